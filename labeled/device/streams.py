"""Devices, streams and events, as little of them as a loader needs: the host, and CUDA by CuPy.

A stream is a line of work that is done in order, some time after it was asked for. An
event marks a place in a stream: it is done once everything before it is. What one stream
needs of another is said by events alone, so that nothing here depends on how long work
takes. On the host work is done when it is asked for, and every event is done.

**What is CUDA's here has not run on a GPU yet.** It follows CuPy's documentation; what it does
on a device is unknown.

Kernels are asked for on the stream that is current for the consumer (torch's, where torch
tensors are asked for), and memory they make comes from CuPy's pool for that stream. So
whatever the consumer does next on the same stream finds a batch ready, and memory that is
given back is used again only behind what read it. A consumer who uses a batch on yet
another stream waits for the event that comes with it, and keeps the batch until done.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from labeled.device.arrays import Array, cupy_module, cupy_that_finds, device_number
from labeled.device.handoff import module
from labeled.errors import LoaderError

HostArray = npt.NDArray[Any]
T = TypeVar("T")


class Event(Protocol):
    """A place in a stream."""

    def done(self) -> bool:
        """Whether everything before it is done; asks, and does not wait."""

    def wait(self) -> None:
        """Let this thread wait until it is done."""


class Stream(Protocol):
    """Work that is done in order."""

    def record(self) -> Event:
        """Mark this place."""

    def wait_for(self, event: Event) -> None:
        """Let what is asked for from here on begin once `event` is done; returns at once."""

    def upload(self, host: HostArray, target: Array) -> None:
        """Copy host memory to a device array of its shape and dtype; may return before it is done.

        Until it is, `host` must stay as it is.
        """

    def run(self, kernels: Callable[[], T], reads: Sequence[Array]) -> T:
        """Ask for kernels, which read certain arrays.

        Memory they make belongs to this stream.
        """


@runtime_checkable
class Device(Protocol):
    """Where batches are made."""

    @property
    def name(self) -> str:
        """As it is asked for: ``"cuda:1"``."""

    @property
    def memory_errors(self) -> tuple[type[BaseException], ...]:
        """What is raised where memory ends."""

    def free_bytes(self) -> int | None:
        """Memory that is free, if the device knows."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return new memory of the device."""

    def asarray(self, host: HostArray) -> Array:
        """Return host values on the device, once they are there."""

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """Return new host memory that copies to the device may start from at any time.

        Raises one of `memory_errors` where the system gives no more of it.
        """

    def copy_stream(self) -> Stream:
        """Return a stream of its own, for copies."""

    def consumer_stream(self, library: str | None) -> Stream:
        """Return the stream to which this thread's next work would go.

        Parameters
        ----------
        library : str, optional
            Whose arrays the consumer asked for.
        """


class HostStream:
    """Work that is done when it is asked for; every place in it is done."""

    def record(self) -> Event:
        return self

    def done(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def wait_for(self, event: Event) -> None:
        event.wait()

    def upload(self, host: HostArray, target: Array) -> None:
        np.copyto(target, host)

    def run(self, kernels: Callable[[], T], reads: Sequence[Array]) -> T:
        return kernels()


class HostDevice:
    """The host, used as a device is: for machines without one, and for tests.

    Examples
    --------
    >>> HostDevice().copy_stream().record().done()
    True
    """

    name = "host"
    memory_errors: tuple[type[BaseException], ...] = (MemoryError,)

    def free_bytes(self) -> int | None:
        return None

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return np.empty(shape, dtype)

    def asarray(self, host: HostArray) -> Array:
        return host

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        return np.empty(shape, dtype)

    def copy_stream(self) -> Stream:
        return HostStream()

    def consumer_stream(self, library: str | None) -> Stream:
        return HostStream()


# ---------------------------------------------------------------- a GPU
@contextmanager
def at_gpu(number: int) -> Iterator[Any]:
    """Make a GPU the current one; yields CuPy."""
    cupy = cupy_module()
    with cupy.cuda.Device(number):
        yield cupy


@dataclass(frozen=True)
class CudaEvent:
    """An event of CUDA, of a certain device."""

    event: Any
    number: int

    def done(self) -> bool:
        return bool(self.event.done)

    def wait(self) -> None:
        self.event.synchronize()


@dataclass(frozen=True)
class CudaStream:
    """A stream of CUDA."""

    stream: Any
    number: int

    def record(self) -> Event:
        with at_gpu(self.number) as cupy:
            event = cupy.cuda.Event(disable_timing=True)
            event.record(self.stream)
        return CudaEvent(event, self.number)

    def wait_for(self, event: Event) -> None:
        if not isinstance(event, CudaEvent):
            event.wait()
            return
        with at_gpu(self.number):
            self.stream.wait_event(event.event)

    def upload(self, host: HostArray, target: Array) -> None:
        with at_gpu(self.number):
            target.data.copy_from_host_async(host.ctypes.data, host.nbytes, self.stream)

    def run(self, kernels: Callable[[], T], reads: Sequence[Array]) -> T:
        with at_gpu(self.number), self.stream:
            return kernels()


@dataclass(frozen=True)
class TheirStream:
    """A torch stream that follows CUDA's stream protocol, which older torch versions lack."""

    stream: Any

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, int(self.stream.cuda_stream)


@dataclass(frozen=True)
class CudaDevice:
    """A GPU.

    Parameters
    ----------
    number : int
        Among those that CUDA shows to this process.
    """

    number: int

    @property
    def name(self) -> str:
        return f"cuda:{self.number}"

    memory_errors = (MemoryError,)  # CuPy's own is one, and so is that of RMM

    def free_bytes(self) -> int | None:
        with at_gpu(self.number) as cupy:
            free, _ = cupy.cuda.runtime.memGetInfo()
            pool = cupy.get_default_memory_pool()
            limit = pool.get_limit()
            has = int(free + pool.free_bytes())
            return min(has, int(limit - pool.used_bytes())) if limit else has

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        with at_gpu(self.number) as cupy:
            return cupy.empty(shape, dtype)

    def asarray(self, host: HostArray) -> Array:
        with at_gpu(self.number) as cupy:
            return cupy.asarray(host)

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        with at_gpu(self.number) as cupy:
            n_bytes = max(1, math.prod(shape) * dtype.itemsize)
            try:  # not of CuPy's pool, which takes the next power of two and keeps it
                memory = cupy.cuda.PinnedMemory(n_bytes, cupy.cuda.runtime.hostAllocPortable)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise MemoryError(str(error)) from error
        return np.ndarray(shape, dtype, cupy.cuda.PinnedMemoryPointer(memory, 0))

    def copy_stream(self) -> Stream:
        with at_gpu(self.number) as cupy:
            return CudaStream(cupy.cuda.Stream(non_blocking=True), self.number)

    def consumer_stream(self, library: str | None) -> Stream:
        with at_gpu(self.number) as cupy:
            if library == "torch":
                theirs = TheirStream(module("torch").cuda.current_stream(self.number))
                return CudaStream(cupy.cuda.Stream.from_external(theirs), self.number)
            return CudaStream(cupy.cuda.get_current_stream(), self.number)


def cuda_device(name: str) -> CudaDevice:
    """Return a GPU by name.

    Raises
    ------
    LoaderError
        If this is not the name of one, there is no such GPU, or CuPy cannot compile kernels.
    MissingExtraError
        If CuPy is not installed.
    """
    try:
        number = device_number(name)
    except ValueError as error:
        raise LoaderError(str(error)) from None
    cupy = cupy_that_finds(number)
    try:
        cupy.cuda.nvrtc.getVersion()
    except (RuntimeError, ImportError, OSError) as error:  # its wheels bring no CUDA libraries
        raise LoaderError(
            f"device={name!r}: CuPy finds no NVRTC here, which compiles its kernels ({error}); "
            f"install a CUDA toolkit, or pip install 'cupy-cuda13x[ctk]' (or 12x)"
        ) from error
    return CudaDevice(number)


# ---------------------------------------------------------------- rows kept on a device
class Resident:
    """A device, and the arrays that were brought there: each once, as long as the host has it.

    Only row numbers go there for a batch. **This has not run on a GPU yet.**

    Parameters
    ----------
    device : Device
    """

    def __init__(self, device: Device) -> None:
        self.device, self.name = device, device.name
        self._there: dict[int, Array] = {}
        self._lock = threading.Lock()

    def array(self, host: HostArray) -> Array:
        """Return an array on the device; copied there when it is first asked for."""
        with self._lock:
            key = id(host)
            if key not in self._there:
                self._there[key] = self.device.asarray(host)
                weakref.finalize(host, self._there.pop, key, None)
            return self._there[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return Resident, (self.device,)
