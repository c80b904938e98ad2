"""The door to CUDA by CuPy, without a GPU: what it asks of CuPy, as far as that can be seen."""

from __future__ import annotations

import contextlib
import sys
import types

import numpy as np
import pytest

from labeled.device import Resident, cuda_device
from labeled.errors import LoaderError

STREAM = 0x1230


class Gpus:
    """Two GPUs as CuPy shows them: notes what is asked for, of which device and on which stream."""

    class Fault(RuntimeError):
        pass

    def __init__(self):
        gpus, self.noted, self.device = self, [], 0
        self.stream = {0: "0's own", 1: "1's own"}

        class Stream(contextlib.AbstractContextManager):
            def __init__(self, non_blocking=False):
                self.number, self.non_blocking = gpus.device, non_blocking

            from_external = staticmethod(lambda theirs: theirs.__cuda_stream__())

            def __enter__(self):
                self.before, gpus.stream[gpus.device] = gpus.stream[gpus.device], self

            def __exit__(self, *_):
                gpus.stream[gpus.device] = self.before

            def wait_event(self, event):
                gpus.note("waits", self, event)

        class Event:
            done = False

            def __init__(self, disable_timing):
                self.number = gpus.device
                assert disable_timing, "times are not asked for, and cost"

            def record(self, stream):
                gpus.note("recorded", stream, self)

            def synchronize(self):
                gpus.note("waited for", None, self)

        self.runtime = types.SimpleNamespace(
            getDeviceCount=lambda: 2,
            CUDARuntimeError=self.Fault,
            memGetInfo=lambda: (100 + self.device, 1000),
            hostAllocPortable=1,
            deviceSynchronize=lambda: self.note("waited for", None, "everything"),
        )
        self.pool = types.SimpleNamespace(
            free_bytes=lambda: 50, used_bytes=lambda: 30, get_limit=lambda: 0
        )
        self.cuda = types.SimpleNamespace(
            Device=self.on,
            is_available=lambda: True,
            nvrtc=types.SimpleNamespace(getVersion=lambda: (13, 0)),
            Stream=Stream,
            Event=Event,
            runtime=self.runtime,
            get_current_stream=lambda number=-1: self.stream[self.device if number < 0 else number],
            PinnedMemory=self.alloc,
            PinnedMemoryPointer=lambda memory, offset: memory,
        )

    def get_default_memory_pool(self):
        return self.pool

    @contextlib.contextmanager
    def on(self, number):
        before, self.device = self.device, number
        yield
        self.device = before

    def note(self, what, stream, about):
        self.noted.append((what, self.device, stream, about))

    def alloc(self, nbytes, flags):
        assert flags == self.runtime.hostAllocPortable
        if nbytes > 1000:
            raise self.Fault("cudaErrorMemoryAllocation")
        assert nbytes, "CUDA makes no memory of nothing"
        return bytearray(nbytes)

    def empty(self, shape, dtype):
        return self.device, shape, dtype

    def asarray(self, host):
        return self.device, host


@pytest.fixture
def gpus(monkeypatch):
    found = Gpus()
    monkeypatch.setitem(sys.modules, "cupy", found)
    return found


def test_kernels_for_torch_go_to_its_current_stream(gpus, monkeypatch):
    streams = {1: types.SimpleNamespace(cuda_stream=STREAM)}  # which knows nothing of protocols
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(current_stream=streams.__getitem__))
    monkeypatch.setitem(sys.modules, "torch", torch)
    stream = cuda_device("cuda:1").consumer_stream("torch")
    assert (stream.stream, stream.number) == ((0, STREAM), 1)


def test_a_cupy_that_cannot_compile_is_reported_before_work(gpus):
    def missing():
        raise RuntimeError('Failure finding "libnvrtc.so.13"')

    gpus.cuda.nvrtc.getVersion = missing
    with pytest.raises(LoaderError, match=r"finds no NVRTC .*libnvrtc.*cupy-cuda13x\[ctk\]"):
        cuda_device("cuda:1")
    with pytest.raises(LoaderError, match="there are 2 GPUs"):
        cuda_device("cuda:2")


def test_places_in_a_stream_are_marked_there_and_waited_for_there(gpus):
    stream = cuda_device("cuda:1").copy_stream()
    assert (stream.stream.number, stream.stream.non_blocking) == (1, True)  # waits for nobody
    event = stream.record()
    assert event.event.number == 1
    other = cuda_device("cuda:0").copy_stream()
    other.wait_for(event)
    event.wait()
    assert gpus.noted == [
        ("recorded", 1, stream.stream, event.event),
        ("waits", 0, other.stream, event.event),
        ("waited for", 0, None, event.event),
    ]
    assert not event.done()
    event.event.done = True
    assert event.done()


def test_other_events_are_waited_for_by_this_thread(gpus):
    waited = []
    arrival = types.SimpleNamespace(wait=lambda: waited.append(1))
    cuda_device("cuda:1").copy_stream().wait_for(arrival)
    assert waited
    assert not gpus.noted


def test_copies_go_to_their_stream_of_their_device(gpus):
    stream, host, copied = cuda_device("cuda:1").copy_stream(), np.arange(5), []

    def copy(*given):
        copied.append((gpus.device, *given))

    memory = types.SimpleNamespace(copy_from_host_async=copy)
    array = types.SimpleNamespace(data=memory)
    stream.upload(host, array)
    assert copied == [(1, host.ctypes.data, host.nbytes, stream.stream)]


def test_kernels_are_asked_for_on_their_stream_of_their_device(gpus):
    stream = cuda_device("cuda:1").copy_stream()
    seen = stream.run(lambda: (gpus.device, gpus.stream[1]), [])
    assert seen == (1, stream.stream)
    assert (gpus.device, gpus.stream[1]) == (0, "1's own")


def test_rows_that_are_kept_are_there_before_any_stream_reads_them(gpus):
    asked = []
    gpus.stream[1] = types.SimpleNamespace(synchronize=lambda: asked.append("waited for"))
    memory = types.SimpleNamespace(set=lambda host: asked.append((gpus.device, host)))
    gpus.empty = lambda shape, dtype: memory
    rows, resident = np.arange(12), Resident(cuda_device("cuda:1"))
    assert resident.array(rows) is resident.array(rows) is memory
    (device, sent), waited = asked
    assert (device, waited) == (1, "waited for")
    assert sent is rows
    assert not gpus.noted
    held = resident._there
    del rows, sent, asked[:]
    assert gpus.noted == [("waited for", 1, None, "everything")]  # some stream may still read it
    assert not held


def test_memory_is_that_of_the_device(gpus):
    there = cuda_device("cuda:1")
    assert there.empty((2, 3), "u1") == (1, (2, 3), "u1")
    assert there.asarray("values") == (1, "values")
    own = there.consumer_stream(None)
    assert (own.stream, own.number) == ("1's own", 1)
    assert there.pinned((3, 4), np.dtype("i2")).shape == (3, 4)
    assert there.pinned((0, 4), np.dtype("i2")).shape == (0, 4)
    with pytest.raises(there.memory_errors, match="cudaErrorMemoryAllocation"):
        there.pinned((1001,), np.dtype("u1"))
    assert there.free_bytes() == 101 + 50  # what the pool keeps is free, too
    gpus.pool.get_limit = lambda: 90
    assert there.free_bytes() == 90 - 30
    gpus.pool.get_limit = lambda: 1000
    assert there.free_bytes() == 101 + 50
