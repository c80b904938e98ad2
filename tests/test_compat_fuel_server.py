"""`fuel.server` by aliases: batches over a real socket on this machine, and hostile frames."""

from __future__ import annotations

import json
import pickle
import socket

import fuel_aliases  # noqa: F401 (makes `fuel` importable)
import numpy as np
import pytest
from fuel.datasets import IndexableDataset
from fuel.schemes import SequentialScheme
from fuel.server import recv_arrays, send_arrays, start_server
from fuel.streams import DataStream, ServerDataStream
from fuel.utils.parallel import producer_consumer
from fuel_served import Counting
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_array_equal
from written_files import PROCESSES

from labeled.compat.fuel.config_parser import ServerTimeoutError
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


def described(**changes):
    entry = {"descr": "<f8", "shape": [2], "fortran_order": False, **changes}
    return json.dumps([entry]).encode()


@pytest.mark.parametrize(
    "message",
    [
        [],
        [b"no json"],
        [b"[" * 100_000],
        [b'{"stop": false}'],
        [b'{"stop": true}', b""],
        [described()],
        [described(), b"\0" * 15],
        [described(descr="|O"), b"\0" * 16],
        [described(descr="no dtype"), b"\0" * 16],
        [described(shape=[-2]), b"\0" * 16],
        [described(shape=[1 << 62, 4]), b"\0" * 16],
        [described(shape=[0, 1 << 62]), b""],
        [described(shape=[1] * 70 + [2]), b"\0" * 16],
        [described(descr="(3,)f8"), b"\0" * 48],
        [described(descr=">U1"), b"\0\x11\0\0" * 2],
        [pickle.dumps(ROWS), b""],
    ],
    ids=lambda message: str(message)[:40],
)
def test_hostile_frames_are_refused(message):
    with pytest.raises(ValueError, match=r"a message|an array"):
        arrays_of(message)


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

    def make(port, timeout_s=20.0):
        made.append(ServerDataStream(("x",), False, port=port, timeout_s=timeout_s))
        return made[-1]

    yield make
    for stream in made:
        stream.close()


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


def drain(stream):
    for epoch in stream.iterate_epochs():
        list(epoch)


def test_a_server_that_is_missing_or_was_killed_is_reported(serve, client):
    with pytest.raises(ServerTimeoutError, match=r"has sent nothing for 0.2 s; see whether it"):
        client(free_port(), timeout_s=0.2).get_data()
    port, process = serve(Counting())
    stream = client(port)
    stream.get_data()
    process.kill()
    process.join()
    stream.timeout_s = 0.2
    with pytest.raises(ServerTimeoutError, match="read on"):
        drain(stream)


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


def test_arrays_travel_as_a_header_and_their_bytes(pair):
    one, two = pair
    send_arrays(one, [ROWS.T, np.arange(3, dtype=">i2")])
    header, *frames = two.recv_multipart()
    first, second = json.loads(header)
    assert first == {"descr": "<f8", "fortran_order": True, "shape": [4, 10]}
    assert_array_equal(np.frombuffer(frames[0], "<f8"), ROWS.ravel())
    assert_array_equal(np.frombuffer(frames[1], second["descr"]), [0, 1, 2])
    one.send_multipart([header, *frames])
    found, _ = recv_arrays(two)
    assert_array_equal(found, ROWS.T)
    assert not found.flags.writeable
    send_arrays(one, None, stop=True)
    assert json.loads(two.recv()) == {"stop": True}
    one.send_json({"stop": True})
    with pytest.raises(StopIteration):
        recv_arrays(two)


def test_a_producer_in_another_process():
    pytest.importorskip("zmq", reason="pyzmq is not installed")
    assert producer_consumer(count_up, lambda s: [s.recv_json() for _ in range(10)]) == [*range(10)]
