"""A CUDA device by CuPy: pinned memory, a stream for copies, the consumer's own stream.

**This has not run on a GPU yet.** It follows CuPy's documentation; what it does on a device
is unknown.

Kernels are asked for on the stream that is current for the consumer (torch's, where torch
tensors are asked for), and memory they make comes from CuPy's pool for that stream. So
whatever the consumer does next on the same stream finds a batch ready, and memory that is
given back is used again only behind what read it. A consumer who uses a batch on yet
another stream waits for the event that comes with it, and keeps the batch until done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from labeled.device.arrays import Array, cupy_module, cupy_that_finds, device_number
from labeled.device.handoff import module
from labeled.device.streams import Event, HostArray, Stream
from labeled.errors import LoaderError

T = TypeVar("T")


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
        cupy = cupy_module()
        with cupy.cuda.Device(self.number):
            event = cupy.cuda.Event(disable_timing=True)
            event.record(self.stream)
        return CudaEvent(event, self.number)

    def wait_for(self, event: Event) -> None:
        if not isinstance(event, CudaEvent):
            event.wait()
            return
        with cupy_module().cuda.Device(self.number):
            self.stream.wait_event(event.event)

    def upload(self, host: HostArray, target: Array) -> None:
        with cupy_module().cuda.Device(self.number):
            target.data.copy_from_host_async(host.ctypes.data, host.nbytes, self.stream)

    def run(self, kernels: Callable[[], T], reads: Sequence[Array]) -> T:
        with cupy_module().cuda.Device(self.number), self.stream:
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

    @property
    def memory_errors(self) -> tuple[type[BaseException], ...]:
        return (MemoryError,)  # CuPy's own is one, and so is that of RMM

    def free_bytes(self) -> int | None:
        cupy = cupy_module()
        with cupy.cuda.Device(self.number):
            free, _ = cupy.cuda.runtime.memGetInfo()
            pool = cupy.get_default_memory_pool()
            limit = pool.get_limit()
            has = int(free + pool.free_bytes())
            return min(has, int(limit - pool.used_bytes())) if limit else has

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        cupy = cupy_module()
        with cupy.cuda.Device(self.number):
            return cupy.empty(shape, dtype)

    def asarray(self, host: HostArray) -> Array:
        cupy = cupy_module()
        with cupy.cuda.Device(self.number):
            return cupy.asarray(host)

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        cupy = cupy_module()
        with cupy.cuda.Device(self.number):
            try:
                memory = cupy.cuda.alloc_pinned_memory(max(1, math.prod(shape) * dtype.itemsize))
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise MemoryError(str(error)) from error
        return np.ndarray(shape, dtype, memory)

    def copy_stream(self) -> Stream:
        cupy = cupy_module()
        with cupy.cuda.Device(self.number):
            return CudaStream(cupy.cuda.Stream(non_blocking=True), self.number)

    def consumer_stream(self, library: str | None) -> Stream:
        cupy = cupy_module()
        with cupy.cuda.Device(self.number):
            if library == "torch":
                theirs = TheirStream(module("torch").cuda.current_stream(self.number))
                return CudaStream(cupy.cuda.Stream.from_external(theirs), self.number)
            return CudaStream(cupy.cuda.get_current_stream(), self.number)


def cuda_device(name: str) -> CudaDevice:
    """Return a GPU by name.

    Raises
    ------
    LoaderError
        If this is no name of one, or there is no such GPU; if CuPy cannot compile kernels.
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
