"""A device that does everything as late, and in as odd an order, as its streams allow.

Arrays are NumPy's. A copy is done when something that has waited for it needs it, or when a seeded
generator says so; it then takes from host memory what is there by that time. A kernel gives its
result at once, and is taken to read its arrays until its stream is waited for or the generator
ends it: another stream that did not wait may not write them. So a loader that forgets one of its
events hands out wrong values, or is caught writing where somebody still reads.
"""

from __future__ import annotations

import mmap
import random
import weakref
import zlib
from collections.abc import Mapping

import numpy as np

from labeled import Batch
from labeled.device import Device

FRESH = 0xEE


class Pinned(np.ndarray):
    """Memory that arrays refer to."""


class There(np.ndarray):
    """Memory of the device, for as long as streams may touch it, whoever let go of its arrays."""


def memory_of(array):
    """Return what an array's memory belongs to."""
    while isinstance(array.base, np.ndarray) and not isinstance(array, There):
        array = array.base
    return array


def numbers_of(data):
    """Return all arrays of numbers of a batch, in order."""
    data = data.arrays if isinstance(data, Batch) else data
    if isinstance(data, Mapping):
        data = data.values()
    elif not isinstance(data, tuple):
        return [data] if isinstance(data, np.ndarray) and data.dtype.kind in "biufc" else []
    return [array for one in data for array in numbers_of(one)]


class FakeMemoryError(Exception):
    """No room on the fake device."""


class FakeEvent:
    def __init__(self, stream, place):
        self.stream, self.place = stream, place

    def done(self):
        self.stream.device.chance()
        return self.stream.n_done >= self.place

    def wait(self):
        self.stream.finish(self.place)


def checksum(host):
    """Return a checksum of the bytes of an array, of which no copy is made: memory is counted."""
    return zlib.crc32(host.reshape(-1).view(np.uint8))


class FakeStream:
    def __init__(self, device):
        self.device = device
        self.work = []
        self.n_done = 0
        device.streams.append(self)

    def record(self):
        self.device.chance()
        return FakeEvent(self, len(self.work))

    def wait_for(self, event):
        self.work.append(event.wait)
        self.device.chance()

    def upload(self, host, target):
        assert host.shape == target.shape
        assert host.dtype == target.dtype
        then = checksum(host)
        raw, place = self.device.pinned_at(host)
        shape, dtype, kept = host.shape, host.dtype, weakref.ref(host)
        del host  # a device knows an address, and keeps nobody's memory

        def copy():
            assert kept() is not None, "a host slot was let go of before it was copied"
            host = np.ndarray(shape, dtype, raw, place)
            now = checksum(host)
            assert now == then, "a host slot was written again before it was copied"
            assert not self.device.read_elsewhere(target), "a window is written while it is read"
            target[...] = host

        self.work.append(copy)
        self.device.n_uploads += 1
        self.device.chance()

    def run(self, kernels, reads):
        self.finish(len(self.work))  # what this stream was told to wait for
        outside, self.device.current = self.device.current, self
        try:
            made = kernels()
        finally:  # what was asked for before an error reads, too
            self.device.current = outside
            self.reads(reads)
        self.device.made(made)
        self.device.chance()
        return made

    def reads(self, arrays):
        """Read arrays until some time later.

        They are let go of at once: a device gives memory to what its stream does next, while this
        stream may still read it.
        """
        memory = [memory_of(array) for array in arrays]
        self.device.reading.append((self, len(self.work) + 1, memory))
        self.work.append(lambda: None)

    def finish(self, place):
        """Do the work up to a place, in order."""
        while self.n_done < place:
            self.n_done += 1
            do, self.work[self.n_done - 1] = self.work[self.n_done - 1], None
            do()


class FakeDevice(Device):
    """A device of the tests; see the module.

    Parameters
    ----------
    seed : int
        What comes when.
    haste : float
        How likely work is done before anybody needs it: 0 never does more than it must.
    room : int, optional
        Bytes there are.
    pinned_room : int
        Bytes of host memory after which no more is pinned.
    """

    name = "fake"
    memory_errors = (FakeMemoryError,)

    def __init__(self, seed=0, haste=0.3, room=None, pinned_room=1 << 40):
        self.random = random.Random(seed)
        self.haste, self.room = haste, room
        self.streams, self.reading = [], []
        self.n_uploads = self.n_placed = self.n_bytes = self.most_bytes = 0
        self.pinned_bytes, self.pinned_room, self.pins = 0, pinned_room, []
        self.consumers = self.current = None
        self.counted, self.most_made_bytes = {}, 0

    def chance(self):
        """Let some work be done, on some stream."""
        if self.random.random() < self.haste:
            stream = self.random.choice(self.streams)
            stream.finish(min(len(stream.work), stream.n_done + self.random.randint(1, 3)))

    def read_elsewhere(self, target):
        """Whether a kernel that is not done reads this memory."""
        self.reading = [one for one in self.reading if one[0].n_done < one[1]]
        return any(np.shares_memory(target, a) for _, _, arrays in self.reading for a in arrays)

    def free_bytes(self):
        return None if self.room is None else self.room - self.n_bytes

    def empty(self, shape, dtype):
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if self.room is not None and nbytes > self.free_bytes():
            raise FakeMemoryError
        memory = There((nbytes,), np.uint8, mmap.mmap(-1, max(nbytes, 1)))
        memory[...] = FRESH
        made = np.ndarray(shape, dtype, memory)
        self.takes(made)
        self.current.reads([made])  # whoever had this memory before may not be done
        return made

    def made(self, results):
        """Count what kernels made in memory of NumPy's, which stands for the device's."""
        for array in map(memory_of, numbers_of(results)):
            if not isinstance(array, There | Pinned) and id(array) not in self.counted:
                self.counted[id(array)] = array.nbytes
                weakref.finalize(array, self.counted.pop, id(array))
                self.takes(array)
        self.most_made_bytes = max(self.most_made_bytes, sum(self.counted.values()))

    def takes(self, made):
        """Count an array for as long as somebody refers to it."""
        self.n_bytes += made.nbytes
        self.most_bytes = max(self.most_bytes, self.n_bytes)
        weakref.finalize(made, self.freed, made.nbytes)

    def freed(self, nbytes):
        self.n_bytes -= nbytes

    def asarray(self, host):
        if isinstance(memory_of(host), There):
            return host
        if self.room is not None and host.nbytes > self.free_bytes():
            raise FakeMemoryError
        self.n_placed += 1
        there = host.copy()
        self.made((there,))
        return there

    def pinned(self, shape, dtype):
        if self.pinned_bytes >= self.pinned_room:
            raise FakeMemoryError("no page is left to lock")
        raw = Pinned((int(np.prod(shape)) * np.dtype(dtype).itemsize,), np.uint8)
        self.pinned_bytes += raw.nbytes
        self.pins.append(raw)
        return np.ndarray(shape, dtype, raw)

    def pinned_at(self, host):
        """Return the pinned memory that an array lies in, and where."""
        place = host.ctypes.data
        for raw in self.pins:
            if raw.ctypes.data <= place <= place + host.nbytes <= raw.ctypes.data + raw.nbytes:
                return raw, place - raw.ctypes.data
        raise AssertionError("copied from memory that is not pinned")

    def copy_stream(self):
        return FakeStream(self)

    def consumer_stream(self, library):
        """One of two streams: the consumer changes between them as it likes."""
        if self.consumers is None:
            self.consumers = [FakeStream(self), FakeStream(self)]
        return self.random.choice(self.consumers)
