"""A data server and its clients, as processes and over real sockets: what goes wrong is told."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from fuel_served import N_ITEMS, Counting, Objects, Reusing, read_and_die

from labeled.compat.fuel.exceptions import OldValueError, ServerError, ServerTimeoutError
from labeled.compat.fuel.server import start_server
from labeled.compat.fuel.streams import ServerDataStream
from labeled.errors import LabeledWarning

zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs fork and SIGKILL")
PROCESSES = multiprocessing.get_context("forkserver")  # quick, and no socket of this process
PROCESSES.set_forkserver_preload(["labeled.compat.fuel.server", "zmq"])


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.fixture
def serve():
    """Start servers in processes of their own: ``port, process = serve(stream)``."""
    started = []

    def start(stream, port=None, **options):
        port = free_port() if port is None else port
        process = PROCESSES.Process(
            target=start_server, args=(stream, port), kwargs=options, daemon=True
        )
        process.start()
        started.append(process)
        return port, process

    yield start
    for process in started:
        process.kill()
        process.join()


@pytest.fixture
def client():
    """Make clients: ``client(port, ...)``, closed at the end."""
    made = []

    def make(port, timeout_s=10.0, hwm=10):
        made.append(ServerDataStream(("x", "p"), False, port=port, hwm=hwm, timeout_s=timeout_s))
        return made[-1]

    yield make
    for stream in made:
        stream.close()


def numbers(items):
    return [tuple(x.tolist()) for x, _ in items]


def an_epoch(stream):
    return numbers(stream.get_epoch_iterator())


def whole(epoch, n_items=N_ITEMS):
    return [(epoch, number) for number in range(n_items)]


def test_an_error_of_the_stream_reaches_every_client_behind_the_items_before_it(serve, client):
    port, process = serve(Counting(fails_at=(0, 30), pause_s=0.005))
    clients = [client(port), client(port)]

    def until_it_fails(stream):
        found = []
        with pytest.raises(ServerError, match=rf"served at .*:{port} raised OSError: disk 7 is on"):
            found.extend(stream.get_epoch_iterator())
        return found

    with ThreadPoolExecutor() as pool:
        found = [item for items in pool.map(until_it_fails, clients) for item in items]
    assert sorted(numbers(found)) == whole(0, 30)
    process.join(10)
    assert process.exitcode == 1


def test_an_item_is_sent_as_it_was_though_the_next_is_made_in_its_memory(serve, client):
    port, _ = serve(Reusing())
    found = [set(x.tolist()) for x, _ in client(port).get_epoch_iterator()]
    assert found == [{number} for number in range(N_ITEMS)]


def test_what_cannot_be_sent_is_an_error_of_both(serve, client):
    port, process = serve(Objects())
    with pytest.raises(ServerError, match=r"raised OldTypeError: arrays of object cannot be sent"):
        client(port).get_data()
    process.join(10)
    assert process.exitcode == 1


def test_the_end_of_all_epochs_and_an_interrupt_are_told(serve, client):
    port, process = serve(Counting(n_epochs=1))
    stream = client(port)
    assert an_epoch(stream) == whole(0)
    with pytest.raises(ServerError, match="has no more epochs"):
        stream.get_data()
    process.join(10)
    assert process.exitcode == 0
    port, process = serve(Counting(pause_s=0.01))
    stream = client(port)
    stream.get_data()
    os.kill(process.pid, signal.SIGINT)
    with pytest.raises(ServerError, match="raised KeyboardInterrupt"):
        an_epoch(stream)


def test_the_end_of_an_epoch_reaches_all_clients_and_its_items_one_each(serve, client):
    port, _ = serve(Counting(pause_s=0.001))
    clients = [client(port, hwm=hwm) for hwm in (1, 3, 10)]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda stream: [an_epoch(stream) for _ in range(3)], clients))
    items = sorted(item for epochs in found for epoch in epochs for item in epoch)
    assert items[: 2 * N_ITEMS] == whole(0) + whole(1)
    assert all(len({epoch for epoch, _ in items}) <= 1 for epochs in found for items in epochs)


def test_who_reads_nothing_holds_up_nobody(serve, client):
    port, _ = serve(Counting())
    idle, busy = client(port, hwm=2), client(port)
    first = idle.get_data()
    found = [item for _ in range(5) for item in an_epoch(busy)]
    rest = [tuple(idle.get_data()[0].tolist()) for _ in range(2)]
    with pytest.raises(StopIteration):
        idle.get_data()
    assert sorted([*numbers([first]), *rest, *found]) == [i for k in range(5) for i in whole(k)]
    assert {epoch for epoch, _ in an_epoch(idle)} <= {5, 6}


def test_items_of_a_client_that_is_killed_go_to_the_others(serve, client):
    port, _ = serve(Counting(nbytes=100_000))
    here, there = PROCESSES.Pipe()
    victim = PROCESSES.Process(target=read_and_die, args=(port, there), daemon=True)
    victim.start()
    taken = [tuple(x) for x in here.recv()]
    stream = client(port)
    first = stream.get_data()
    victim.kill()
    victim.join()
    found = [*numbers([first]), *an_epoch(stream)]
    assert sorted(taken + found) == whole(0)
    assert len(taken) == 2
    assert an_epoch(stream) == whole(1)


def test_items_of_a_client_that_is_closed_come_again_when_it_reads_on(serve, client):
    port, _ = serve(Counting())
    stream = client(port)
    found = [stream.get_data() for _ in range(3)]
    stream.close()
    assert sorted(numbers(found) + an_epoch(stream)) == whole(0)


def test_a_server_that_is_started_later_and_one_that_never_is(serve, client):
    port = free_port()
    stream = client(port, timeout_s=0.2)
    with pytest.raises(ServerTimeoutError, match=rf"localhost:{port} was not reached for 0 s; see"):
        stream.get_data()
    stream.timeout_s = 10.0
    stream.close()
    threading.Timer(0.3, serve, (Counting(), port)).start()
    assert an_epoch(stream) == whole(0)


def test_a_server_that_is_killed_is_told_of_and_one_in_its_place_too(serve, client):
    port, process = serve(Counting())
    stream = client(port, timeout_s=1.5, hwm=2)
    stream.get_data()
    process.kill()
    process.join()
    with pytest.raises(ServerTimeoutError, match=r"has said nothing for [12] s; see whether it"):
        an_epoch(stream)
    _, process = serve(Counting(), port)
    with pytest.raises(ServerError, match=r"replaced .* middle of an epoch, of which \d items"):
        stream.get_data()
    assert an_epoch(stream) == whole(0)


def test_between_two_epochs_a_server_may_be_replaced(serve, client):
    # slow, so that it is gone before an item of its second epoch is on its way
    port, process = serve(Counting(n_items=1, pause_s=2.0), hwm=1)
    stream = client(port, hwm=1)
    assert an_epoch(stream) == whole(0, 1)
    process.kill()
    process.join()
    serve(Counting(), port)
    assert an_epoch(stream) == whole(0)


def test_a_stream_that_takes_long_is_waited_for_with_a_warning(serve, client):
    port, _ = serve(Counting(n_items=1, pause_s=2.5))
    with pytest.warns(LabeledWarning, match=r"lives, but its stream has given nothing for [12] s"):
        assert an_epoch(client(port, timeout_s=1.2)) == [(0, 0)]


class Wire:
    """Passes bytes between a port of its own and another, until it is cut."""

    def __init__(self, port):
        self.target = port
        self.ends = []
        self.silent = threading.Event()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with suppress(OSError):  # that it is closed
            while True:
                one, _ = self.listening.accept()
                try:
                    other = socket.create_connection(("127.0.0.1", self.target))
                except ConnectionRefusedError:  # not there yet
                    one.close()
                    continue
                self.ends += [one, other]
                for source, sink in ((one, other), (other, one)):
                    threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    def carry(self, source, sink):
        with source, suppress(OSError):
            while data := source.recv(1 << 16):
                if not (self.silent.is_set() and sink is self.ends[0]):
                    sink.sendall(data)

    def cut(self):
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.ends.clear()
        self.silent.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.cut()


def test_a_connection_that_breaks_is_told(serve, client):
    port, _ = serve(Counting())
    with Wire(port) as wire:
        stream = client(wire.port, hwm=3)
        stream.get_data()
        time.sleep(0.2)
        wire.silent.set()  # what comes next is lost
        stream.get_data()
        time.sleep(0.2)
        wire.cut()
        with pytest.raises(ServerError, match="broken"):
            an_epoch(stream)
        assert an_epoch(stream)


def test_clients_that_make_no_sense_are_passed_over(serve, client):
    port, _ = serve(Counting())
    stream = client(port)
    stream.get_data()
    with zmq.Context() as context, context.socket(zmq.DEALER) as hostile:
        hostile.setsockopt(zmq.LINGER, 500)
        hostile.connect(f"tcp://127.0.0.1:{port}")
        for junk in (
            b"",
            b"[" * 900,
            b"[1, 2]",
            b"[1e999, null, 0, true]",
            b"\xff",
            b"9" * 2000,
            b'["x", {}, [], 3]',
            b"[1, null, 1e999, true]",
            b"[NaN, null, 0, 1]",
        ):
            hostile.send(junk)
        hostile.send_multipart([b"[]", b"[]", b"[]"])
    assert an_epoch(stream) == whole(0)[1:]


@pytest.mark.parametrize("said", [[b""], [b"hello"], [b"\0" * 40, b""], [b"\0" * 32, b"", b""]])
def test_a_server_that_makes_no_sense_is_refused(client, said):
    with zmq.Context() as context, context.socket(zmq.ROUTER) as hostile:
        hostile.setsockopt(zmq.LINGER, 0)
        port = hostile.bind_to_random_port("tcp://127.0.0.1")
        stream = client(port)
        reader = ThreadPoolExecutor(1).submit(stream.get_data)
        hostile.send_multipart([hostile.recv_multipart()[0], *said])
        with pytest.raises(OldValueError, match="a message begins with"):
            reader.result(10)


@pytest.mark.parametrize("hwm", [0, -1, 1.5])
def test_no_room_is_refused(hwm):
    with pytest.raises(OldValueError, match="cannot be held; expected 1 or more"):
        start_server(Counting(), hwm=hwm)
    with pytest.raises(OldValueError, match="cannot be held; expected 1 or more"):
        ServerDataStream(("x",), False, hwm=hwm).get_data()


def test_an_address_that_is_taken():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        with pytest.raises(zmq.ZMQError, match="in use"):
            start_server(Counting(), held.getsockname()[1])
