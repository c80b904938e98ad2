"""`fuel.server` by aliases: batches over a real socket on this machine, and hostile frames."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

import fuel_aliases  # noqa: F401 (makes `fuel` importable)
import numpy as np
import pytest
from fuel.datasets import IndexableDataset
from fuel.schemes import SequentialScheme
from fuel.server import recv_arrays, send_arrays, start_server
from fuel.streams import DataStream, ServerDataStream
from fuel.utils.parallel import producer_consumer
from fuel_served import N_ITEMS, Counting
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal

from labeled.compat.errors import OldValueError
from labeled.compat.fuel.exceptions import ServerError, ServerTimeoutError
from labeled.compat.fuel.server import arrays_of, message_of

ROWS = np.arange(40.0).reshape(10, 4)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        hnp.arrays(
            st.sampled_from(["f4", ">i8", "u1", "?", "S3", ">U2", "M8[s]", ">m8[ns]", ">c16"]),
            hnp.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=4),
        ),
        max_size=3,
    ),
    st.booleans(),
)
def test_messages_carry_arrays(arrays, turned):
    arrays = [array.T if turned else array for array in arrays]
    found = arrays_of([bytes(frame) for frame in message_of(arrays)])
    assert len(found) == len(arrays)
    for one, other in zip(found, arrays, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape or (1,))
        assert_array_equal(one, other)
        assert not one.flags.writeable


@pytest.mark.parametrize("dtype", [object, "f4,f4", "V0"])
def test_what_is_no_row_of_numbers_is_not_sent(dtype):
    with pytest.raises(TypeError, match="cannot be sent"):
        message_of([np.zeros(2, dtype)])


def described(**changes):
    entry = {"descr": "<f8", "shape": [2], "fortran_order": False, **changes}
    return json.dumps([entry]).encode()


@pytest.mark.parametrize(
    "message",
    [
        [],
        [b"no json"],
        [b"[" * 100_000],
        [b"3"],
        [b'{"stop": false}'],
        [b'{"stop": true}', b""],
        [described()],
        [described(), b"\0" * 15],
        [described(), b"\0" * 16, b""],
        [described(descr="|O"), b"\0" * 16],
        [described(descr="no dtype"), b"\0" * 16],
        [described(descr="f8,f8"), b"\0" * 32],
        [described(descr=["f8"]), b"\0" * 16],
        [described(shape=[-2]), b"\0" * 16],
        [described(shape=[1 << 62, 4]), b"\0" * 16],
        [described(shape=[2.0]), b"\0" * 16],
        [described(shape="2"), b"\0" * 16],
        [described(shape=[0, 1 << 62]), b""],
        [described(shape=[1] * 70 + [2]), b"\0" * 16],
        [described(descr="(3,)f8"), b"\0" * 48],
        [described(descr=">U1"), b"\0\x11\0\0" * 2],
        [pickle.dumps(ROWS), b""],
        [b"[3]", b""],
    ],
    ids=lambda message: str(message)[:40],
)
def test_hostile_frames_are_refused(message):
    with pytest.raises(OldValueError, match=r"a message|an array"):
        arrays_of(message)


def test_the_end_of_an_epoch():
    with pytest.raises(StopIteration):
        arrays_of([b'{"stop": true}'])


PROCESSES = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
if sys.platform != "win32":  # quick, and without a socket of this process
    PROCESSES.set_forkserver_preload(["labeled.compat.fuel.datasets", "labeled.compat.fuel.server"])


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


@pytest.fixture
def serve():
    """Start servers in processes of their own: ``port, process = serve(stream)``."""
    pytest.importorskip("zmq", reason="pyzmq is not installed")
    started = []

    def start(stream):
        port = free_port()
        started.append(PROCESSES.Process(target=start_server, args=(stream, port), daemon=True))
        started[-1].start()
        return port, started[-1]

    yield start
    for process in started:
        process.kill()
        process.join()


@pytest.fixture
def client():
    """Make clients: ``client(port, ...)``, closed at the end."""
    made = []

    def make(port, timeout_s=20.0, hwm=10):
        made.append(ServerDataStream(("x",), False, port=port, hwm=hwm, timeout_s=timeout_s))
        return made[-1]

    yield make
    for stream in made:
        stream.close()


def an_epoch(stream):
    return [tuple(x.tolist()) for (x,) in stream.get_epoch_iterator()]


def whole(epoch, n_items=N_ITEMS):
    return [(epoch, number) for number in range(n_items)]


def test_epochs_of_a_dataset_over_a_socket(serve):
    dataset = IndexableDataset({"x": ROWS, "y": np.arange(10)})
    port, _ = serve(DataStream(dataset, iteration_scheme=SequentialScheme(10, 4)))
    stream = ServerDataStream(("x", "y"), False, port=port)
    assert not stream.produces_examples
    for _ in range(2):
        batches = list(stream.get_epoch_iterator())
        assert [len(x) for x, _ in batches] == [4, 4, 2]
        assert_array_equal(np.concatenate([x for x, _ in batches]), ROWS)
        assert_array_equal(np.concatenate([y for _, y in batches]), np.arange(10))
        assert not any(array.flags.writeable for batch in batches for array in batch)
    again = pickle.loads(pickle.dumps(stream))
    with pytest.raises(ValueError):
        stream.get_data([0])
    stream.close()
    found = next(item for epoch in again.iterate_epochs(as_dict=True) for item in epoch)
    assert found.keys() == {"x", "y"}
    again.close()


def test_clients_share_an_epoch_and_its_end_reaches_them_all(serve, client):
    port, _ = serve(Counting())
    clients = [client(port, hwm=hwm) for hwm in (1, 3, 10)]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda stream: [an_epoch(stream) for _ in range(3)], clients))
    items = sorted(item for epochs in found for epoch in epochs for item in epoch)
    assert items[: 2 * N_ITEMS] == whole(0) + whole(1)
    assert all(len({epoch for epoch, _ in items}) <= 1 for epochs in found for items in epochs)


def test_a_client_that_reads_nothing_holds_up_nobody(serve, client):
    port, _ = serve(Counting())
    idle, busy = client(port, hwm=2), client(port)
    (first,) = idle.get_data()
    found = [item for _ in range(5) for item in an_epoch(busy)]
    rest = [tuple(first.tolist()), *an_epoch(idle)]
    assert len(rest) == 3
    assert sorted(rest + found) == [item for epoch in range(5) for item in whole(epoch)]
    assert {epoch for epoch, _ in an_epoch(idle)} <= {5, 6}


def test_an_error_of_the_stream_reaches_every_client_behind_the_items_before_it(serve, client):
    port, process = serve(Counting(fails_at=(0, 30)))

    def until_it_fails(stream):
        found = []
        with pytest.raises(ServerError, match=rf"served at .*:{port} raised OSError: disk 7 is on"):
            found.extend(stream.get_epoch_iterator())
        return [tuple(x.tolist()) for (x,) in found]

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(until_it_fails, [client(port), client(port)]))
    assert sorted(found[0] + found[1]) == whole(0, 30)
    process.join(10)
    assert process.exitcode == 1


def test_the_end_of_all_epochs_and_what_cannot_be_sent(serve, client):
    port, process = serve(Counting(n_epochs=1))
    stream = client(port)
    assert an_epoch(stream) == whole(0)
    with pytest.raises(ServerError, match="has no more epochs"):
        stream.get_data()
    process.join(10)
    assert process.exitcode == 0
    port, _ = serve(Counting(dtype=object))
    with pytest.raises(ServerError, match="raised OldTypeError: arrays of object cannot be sent"):
        client(port).get_data()


def test_a_server_that_is_missing_or_was_killed_is_reported(serve, client):
    with pytest.raises(ServerTimeoutError, match=r"has sent nothing for 0.2 s; see whether it"):
        client(free_port(), timeout_s=0.2).get_data()
    port, process = serve(Counting())
    stream = client(port, hwm=2)
    stream.get_data()
    process.kill()
    process.join()
    stream.timeout_s = 0.2
    with pytest.raises(ServerTimeoutError, match="read on"):
        an_epoch(stream)


def test_clients_that_make_no_sense_are_passed_over(serve, client):
    port, _ = serve(Counting())
    stream = client(port)
    stream.get_data()
    zmq = pytest.importorskip("zmq")
    with zmq.Context() as context, context.socket(zmq.DEALER) as hostile:
        hostile.setsockopt(zmq.LINGER, 500)
        hostile.connect(f"tcp://127.0.0.1:{port}")
        for junk in (b"", b"[" * 900, b"9" * 2000, b"1234567"):
            hostile.send(junk)
        hostile.send_multipart([b"12345678", b"12345678"])
    assert an_epoch(stream) == whole(0)[1:]


@pytest.mark.parametrize("answer", [[b""], [b"hello"], [b"\0" * 8, b""], [b"\0" * 8, b"{}"]])
def test_a_server_that_makes_no_sense_is_refused(client, answer):
    zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
    with zmq.Context() as context, context.socket(zmq.ROUTER) as hostile:
        hostile.setsockopt(zmq.LINGER, 0)
        port = hostile.bind_to_random_port("tcp://127.0.0.1")
        reader = ThreadPoolExecutor(1).submit(client(port).get_data)
        hostile.send_multipart([hostile.recv_multipart()[0], *answer])
        with pytest.raises(OldValueError, match=r"a message (is|has|that begins)"):
            reader.result(10)


@pytest.mark.parametrize("hwm", [0, -1, 1.5])
def test_a_client_holds_at_least_one_item(hwm):
    with pytest.raises(OldValueError, match="cannot be held; expected 1 or more"):
        ServerDataStream(("x",), False, hwm=hwm)


def test_an_address_that_is_in_use():
    zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        with pytest.raises(zmq.ZMQError, match="in use"):
            start_server(Counting(), held.getsockname()[1])


def count_up(socket):
    for number in range(10):
        socket.send_json(number)


@pytest.fixture
def pair():
    zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as two:
        one.bind("inproc://pair")
        two.connect("inproc://pair")
        two.setsockopt(zmq.RCVTIMEO, 5000)
        yield one, two


def test_arrays_are_sent_as_a_header_and_their_bytes(pair):
    one, two = pair
    send_arrays(one, [ROWS[:, 1], np.arange(3, dtype=">i2")])
    header, *frames = two.recv_multipart()
    for array, entry, frame in zip(
        (ROWS[:, 1], [0, 1, 2]), json.loads(header), frames, strict=True
    ):
        assert entry["fortran_order"] is False
        found = np.frombuffer(frame, entry["descr"]).reshape(entry["shape"])
        assert_array_equal(found, array)
    send_arrays(one, None, stop=True)
    assert json.loads(two.recv()) == {"stop": True}


def test_arrays_are_received_from_a_header_and_their_bytes(pair):
    one, two = pair
    header = {"descr": "<f8", "fortran_order": True, "shape": [10, 4]}
    one.send_multipart([json.dumps([header]).encode(), np.ascontiguousarray(ROWS.T)])
    (found,) = recv_arrays(two)
    assert_array_equal(found, ROWS)
    assert not found.flags.writeable
    one.send_json({"stop": True})
    with pytest.raises(StopIteration):
        recv_arrays(two)


def test_a_producer_in_another_process():
    pytest.importorskip("zmq", reason="pyzmq is not installed")
    assert producer_consumer(count_up, lambda s: [s.recv_json() for _ in range(10)]) == [*range(10)]
