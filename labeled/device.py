"""Where arrays live: the one door to CuPy, to its streams, and to the arrays of other libraries.

The rest of the library handles NumPy, CuPy and any other array of the array-API standard through
the functions here, and never asks which of them it holds. CuPy is imported only when an array is
already CuPy's or a device is asked for, so a machine without a GPU never touches it. What this
module refuses to know: spaces, dims, files, dask.

**Handing over** is by DLPack: the array that is handed over keeps the batch's memory as any view
does, so it stays what it was as long as anybody holds it. A copy is made where a library asks for
one: memory that is read-only has no place in any of them; JAX and TensorFlow take only memory that
starts at a multiple of 64 bytes (TensorFlow ends the process over any other), JAX makes 32 bits of
64 unless asked otherwise; pinning copies into memory of its own. Only libraries that the array-API
standard does not cover (torch, TensorFlow) have to be taken from: others work as they are.

**A stream** is a line of work that is done in order, some time after it was asked for. An event
marks a place in a stream: it is done once everything before it is. What one stream needs of
another is said by events alone, so that nothing here depends on how long work takes. Kernels are
asked for on the stream that is current for the consumer (torch's, where torch tensors are asked
for), and memory they make comes from CuPy's pool for that stream. So whatever the consumer does
next on the same stream finds a batch ready, and memory that is given back is used again only
behind what read it. A consumer who uses a batch on yet another stream waits for the event that
comes with it, and keeps the batch until done.

What is CUDA's here has run on one GPU, an H200 with CuPy 14.2; several at once it has not seen.
"""

from __future__ import annotations

import importlib
import math
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from numpy.typing import DTypeLike

from labeled._optional import extra_module
from labeled.errors import ArrayError, LabeledError, LoaderError, MissingExtraError, did_you_mean

Array = Any  # an array of NumPy, CuPy or any other library of the array-API standard
HostArray = npt.NDArray[Any]
T = TypeVar("T")

Library = Literal["numpy", "cupy", "torch", "jax", "tensorflow"]
LIBRARIES: tuple[str, ...] = get_args(Library)

ALIGNED = 64  # where memory must start that TensorFlow takes

HOST, CUDA, PINNED, MANAGED = 1, 2, 3, 13  # kinds of memory, as DLPack numbers them

# TensorFlow dtypes that are not numbers; it ends the process if DLPack asks for them
NOT_NUMERIC = ("string", "resource", "variant")


# ---------------------------------------------------------------- arrays of any kind
def is_cupy(x: object) -> bool:
    """Whether `x` is a CuPy array; does not import CuPy.

    Examples
    --------
    >>> is_cupy(np.zeros(3))
    False
    """
    return _is_cupys(type(x))  # type: ignore[arg-type]  # mypy takes no class for hashable


@lru_cache(maxsize=64)  # asked several times for each batch
def _is_cupys(kind: type) -> bool:
    if issubclass(kind, np.ndarray):
        return False
    return any(one.__module__.partition(".")[0] == "cupy" for one in kind.__mro__)


def on_gpus(dtype: np.dtype[Any]) -> bool:
    """Whether GPUs have arrays of a dtype: numbers and booleans, but no long doubles.

    Examples
    --------
    >>> on_gpus(np.dtype("f8")), on_gpus(np.dtype(np.longdouble)), on_gpus(np.dtype("S3"))
    (True, False, False)
    """
    return dtype.kind in "biufc" and dtype.char not in "gG"


def is_array(x: object) -> bool:
    """Whether `x` is an array at hand: NumPy, CuPy, or of the array-API standard; not lazy.

    Examples
    --------
    >>> is_array(np.zeros(3)), is_array([0.0]), is_array(None)
    (True, False, False)
    """
    if isinstance(x, np.ndarray):
        return True
    if hasattr(x, "__dask_graph__"):
        return False
    return hasattr(x, "__array_namespace__") or is_cupy(x)


def namespace(x: Array) -> Any:
    """Return the module whose functions work on `x`: ``numpy``, ``cupy``, ...

    Raises
    ------
    TypeError
        If `x` is not an array of any known kind.

    Examples
    --------
    >>> namespace(np.zeros(3)).__name__
    'numpy'
    """
    if isinstance(x, np.ndarray | np.generic):
        return np
    if is_cupy(x):
        return cupy_module()
    if hasattr(x, "__array_namespace__"):
        return x.__array_namespace__()
    raise TypeError(f"expected an array, found {type(x).__module__}.{type(x).__qualname__}")


def kernels_at(x: Array) -> AbstractContextManager[Any]:
    """Return a context in which kernels run where `x` lives: CuPy's device, if it has one."""
    return x.device if is_cupy(x) else nullcontext()


def dtype_of(x: Array) -> np.dtype[Any]:
    """Return the dtype of `x` as NumPy names it, whatever its library calls it.

    Examples
    --------
    >>> dtype_of(np.zeros(3, np.float32))
    dtype('float32')
    """
    found = x.dtype
    if isinstance(found, np.dtype):
        return found
    return np.dtype(str(found).rpartition(".")[2])  # "array_api_strict.float32" and the like


def astype(x: Array, dtype: DTypeLike) -> Array:
    """Return `x` in `dtype`; `x` itself where it already is."""
    wanted = np.dtype(dtype)
    if dtype_of(x) == wanted:
        return x
    if isinstance(x.dtype, np.dtype):
        return x.astype(wanted)
    return namespace(x).astype(x, own_dtype(x, wanted))


def own_dtype(x: Array, dtype: np.dtype[Any]) -> Any:
    """Return `dtype` as the library of `x` names it."""
    return dtype if isinstance(x.dtype, np.dtype) else getattr(namespace(x), dtype.name)


def permute_dims(x: Array, axes: tuple[int, ...]) -> Array:
    """Return `x` with its axes in another order: a view where the library has views."""
    if hasattr(x, "transpose"):
        return x.transpose(axes)
    return namespace(x).permute_dims(x, axes)


def reshape(x: Array, shape: tuple[int, ...]) -> Array:
    """Return `x` in another shape, in row-major order: a view where its strides allow."""
    if hasattr(x, "reshape"):
        return x.reshape(shape)
    return namespace(x).reshape(x, shape)


def concat(pieces: list[Array], axis: int) -> Array:
    """Return `pieces` joined along `axis`."""
    xp = namespace(pieces[0])
    join = xp.concat if hasattr(xp, "concat") else xp.concatenate
    return join(pieces, axis=axis)


def check_copy(target: Array, values: Array) -> None:
    """Make sure that `values` can be copied into `target`.

    Raises
    ------
    ArrayError
        If the shapes differ, a value of one kind would become another (float to integer), or
        an integer is one that the target's dtype does not hold.
    """
    here, there = dtype_of(values), dtype_of(target)
    if tuple(values.shape) != tuple(target.shape) or not np.can_cast(here, there, "same_kind"):
        raise ArrayError(
            f"{here} values of shape {tuple(values.shape)} do not go into a {there} array of "
            f"shape {tuple(target.shape)}"
        )
    if there.kind in "iu" and not np.can_cast(here, there, "safe") and math.prod(values.shape):
        xp, held = namespace(values), np.iinfo(there)
        with kernels_at(values):
            least, most = int(xp.min(values)), int(xp.max(values))
        if least < held.min or most > held.max:
            raise ArrayError(
                f"{here} values from {least} to {most} do not go into a {there} array, which holds "
                f"{held.min} to {held.max}"
            )


def copy_into(target: Array, values: Array) -> None:
    """Copy `values` into `target`, of the same shape, wherever each of them lives.

    Raises
    ------
    ArrayError
        As :func:`check_copy` does.

    Examples
    --------
    >>> place = np.zeros(3, np.float32)
    >>> copy_into(place, np.arange(3))
    >>> place
    array([0., 1., 2.], dtype=float32)
    """
    check_copy(target, values)
    if isinstance(target, np.ndarray):
        np.copyto(target, to_host(values), casting="same_kind")
    elif is_cupy(target):
        with target.device:
            target[...] = cupy_module().asarray(values)
    else:
        target[...] = astype(namespace(target).asarray(to_host(values)), dtype_of(target))


def owned_copy(x: Array) -> Array:
    """Return a copy of `x` in its own library and place, which nobody else holds."""
    if hasattr(x, "copy"):
        with kernels_at(x):  # CuPy copies to the device that is current
            return x.copy()
    return namespace(x).asarray(x, copy=True)


def to_host(x: Array) -> Any:
    """Return `x` as a NumPy array: itself if it is one, a copy if it lives on a device.

    Examples
    --------
    >>> x = np.zeros(3)
    >>> to_host(x) is x
    True
    """
    if isinstance(x, np.ndarray):
        return x
    if is_cupy(x):
        return cupy_module().asnumpy(x)
    return np.asarray(x)


def to_device(x: Array, device: str | int | None) -> Array:
    """Return `x` on `device`: itself if it is there, else a copy.

    Parameters
    ----------
    x : array
        NumPy or CuPy.
    device : None, "cpu", "cuda", "cuda:<n>" or int
        None and "cpu" are the host; a number is a CUDA device.

    Raises
    ------
    LoaderError
        If `device` is none of these, or there is no such CUDA device.
    MissingExtraError
        If a CUDA device is asked for and CuPy is not installed.
    """
    if device is None or device == "cpu":
        return to_host(x)
    number = device_number(device)
    cupy = cupy_that_finds(number)
    with cupy.cuda.Device(number):
        return cupy.asarray(x)


def device_number(device: str | int) -> int:
    """Return the number of a CUDA device.

    Raises
    ------
    LoaderError
        If `device` is not the name of a device.

    Examples
    --------
    >>> device_number("cuda"), device_number("cuda:1")
    (0, 1)
    """
    if isinstance(device, int):
        return device
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number.isdigit() or (not number and ":" not in device)):
        raise LoaderError(f"device={device!r} must be 'cpu', 'cuda' or 'cuda:<number>'")
    return int(number) if number else 0


def cupy_that_finds(number: int) -> Any:
    """Return CuPy, which sees a GPU of that number.

    Raises
    ------
    LoaderError
        If there is none, or no driver.
    MissingExtraError
        If CuPy is not installed.
    """
    cupy = cupy_module()
    if not cupy.cuda.is_available():
        raise LoaderError(f"device 'cuda:{number}': CuPy finds no GPU and driver here; use 'cpu'")
    count = cupy.cuda.runtime.getDeviceCount()
    if number >= count:
        raise LoaderError(f"device 'cuda:{number}': there are {count} GPUs, counted from 0")
    return cupy


def cupy_module() -> Any:
    """Return CuPy.

    Raises
    ------
    MissingExtraError
        If it is not installed; names the extras.
    """
    needed = "arrays on a GPU need CuPy (for CUDA 13, or 12 to match the driver)"
    return extra_module("cupy", needed, "cupy-cuda13x", "gpu-cu13")


# ---------------------------------------------------------------- handed over
@dataclass(frozen=True)
class HandOff:
    """Hands arrays to a library.

    Parameters
    ----------
    library : {"numpy", "cupy", "torch", "jax", "tensorflow"}
    pinned : bool
        Put torch tensors of the host into pinned memory, where torch finds a CUDA device.

    Raises
    ------
    LoaderError
        If the library is none of these, or cannot pin.
    MissingExtraError
        If it is not installed.

    Examples
    --------
    >>> HandOff("numpy")(np.zeros(2))
    array([0., 0.])
    """

    library: str
    pinned: bool = False

    def __post_init__(self) -> None:
        if str(self.library) not in LIBRARIES:
            raise LoaderError(
                f"output={self.library!r} is not a library that batches can be handed to; "
                f"{did_you_mean(str(self.library), LIBRARIES)}"
            )
        if self.pinned and self.library != "torch":
            raise LoaderError(f"pinned=True goes with output='torch', not output={self.library!r}")
        if self.library == "cupy":
            cupy_module()
        elif self.library != "numpy":
            module(self.library)

    def __call__(self, x: Array) -> Any:
        """Return `x` as an array of the library."""
        if self.library == "numpy":
            return to_host(x)
        if self.library == "cupy":
            return to_device(x, "cuda") if isinstance(x, np.ndarray) else x
        if isinstance(x, np.ndarray | np.generic):
            x = np.asarray(x, x.dtype.newbyteorder("="), order="C")
            if not x.flags.writeable:  # torch would write to it, and JAX refuses it
                x = x.copy()
        with kernels_at(x):  # the library waits for its current stream
            if self.library == "jax":
                return module("jax.dlpack").from_dlpack(x)
            if self.library == "tensorflow":
                return _tensorflow(x)
            torch = module("torch")
            made = torch.from_dlpack(x)
            if self.pinned and made.device.type == "cpu" and torch.cuda.is_available():
                return made if made.is_pinned() else made.pin_memory()
            return made

    def dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any] | None:
        """Return what dtype an array of `dtype` has in the library; None if it takes none such."""
        if self.library == "numpy":
            return dtype
        if dtype.kind not in "biufc":
            return None
        if self.library == "cupy":
            return dtype
        try:
            made = self(np.empty(0, dtype))
        except (TypeError, BufferError, RuntimeError):
            return None
        return np.dtype(getattr(made.dtype, "name", str(made.dtype).rpartition(".")[2]))


def _tensorflow(x: Array) -> Any:
    tensorflow = module("tensorflow")
    if not isinstance(x, np.ndarray):
        cupy_module().cuda.get_current_stream().synchronize()  # it waits for no stream but its own
    elif not x.size or x.ctypes.data % ALIGNED or not x.flags.writeable:
        return tensorflow.constant(x)
    return tensorflow.experimental.dlpack.from_dlpack(x.__dlpack__())


def module(name: str) -> Any:
    """Import a library, or a module of it, that arrays are handed to.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise MissingExtraError(
            f"handing arrays to {library} needs {library}, which does not load here ({error}): "
            f"pip install {library}"
        ) from error


# ---------------------------------------------------------------- taken
def has_dlpack(x: object) -> bool:
    """Whether `x` is an array of another library that its memory can be asked of.

    Examples
    --------
    >>> has_dlpack(np.zeros(3)), has_dlpack([0.0])
    (False, False)
    """
    if isinstance(x, np.ndarray | np.generic) or is_cupy(x) or hasattr(x, "__dask_graph__"):
        return False
    return hasattr(type(x), "__dlpack__") and hasattr(type(x), "__dlpack_device__")


def is_foreign(x: object) -> bool:
    """Whether only DLPack knows what `x` holds: it does not follow the array-API standard."""
    return has_dlpack(x) and not is_array(x)


def adopted(x: Any) -> Array:
    """Return an array of another library as one of NumPy, or of CuPy if it lives on a GPU.

    Parameters
    ----------
    x : array with ``__dlpack__``

    Returns
    -------
    array
        The same memory, which is kept; not to be written to where its library says so.

    Raises
    ------
    ArrayError
        If its library does not let go of it (torch where gradients are followed; texts of
        TensorFlow's), or NumPy has no such numbers or memory (bfloat16; devices that are no
        GPU of NVIDIA's).
    MissingExtraError
        If it lives on a GPU and CuPy is not installed.
    """
    library = type(x).__module__.partition(".")[0]
    what = f"{library}'s {type(x).__name__}"
    if library == "tensorflow" and x.dtype.name in NOT_NUMERIC:
        raise ArrayError(f"{what} of {x.dtype.name} is not an array of numbers; pass x.numpy()")
    try:
        kind, number = x.__dlpack_device__()
        if kind in (HOST, PINNED):
            return np.from_dlpack(x)
        if kind in (CUDA, MANAGED):
            cupy = cupy_that_finds(number)
            with cupy.cuda.Device(number):
                return cupy.from_dlpack(x)
    except LabeledError:
        raise
    except Exception as error:  # libraries have errors of their own
        raise ArrayError(
            f"{what} does not come over ({error}); detach() it from gradients, or cast it to "
            f"numbers that NumPy has"
        ) from error
    raise ArrayError(f"{what} lives on a device of DLPack's kind {int(kind)}; bring it to the host")


# ---------------------------------------------------------------- devices and their streams
class Event:
    """A place in a stream. The host does work when it is asked for, so its events are done."""

    def done(self) -> bool:
        """Whether everything before it is done; asks, and does not wait."""
        return True

    def wait(self) -> None:
        """Let this thread wait until it is done."""


class Stream:
    """Work that is done in order; the host's, which does it at once."""

    def record(self) -> Event:
        """Mark this place."""
        return Event()

    def wait_for(self, event: Event) -> None:
        """Let what is asked for from here on begin once `event` is done; returns at once."""
        event.wait()

    def upload(self, host: HostArray, target: Array) -> None:
        """Copy host memory to a device array of its shape and dtype; may return before it is done.

        Until it is, `host` must stay as it is.
        """
        np.copyto(target, host)

    def run(self, kernels: Callable[[], T], reads: Sequence[Array]) -> T:
        """Ask for kernels, which read certain arrays.

        Memory they make belongs to this stream.
        """
        return kernels()


class Device:
    """Where batches are made: the host itself; others are of kinds of their own.

    Examples
    --------
    >>> Device().copy_stream().record().done()
    True
    """

    # What is raised where memory ends; CuPy's own is a MemoryError, and so is that of RMM.
    memory_errors: tuple[type[BaseException], ...] = (MemoryError,)

    @property
    def name(self) -> str:
        """As it is asked for: ``"cuda:1"``."""
        return "host"

    def free_bytes(self) -> int | None:
        """Memory that is free, if the device knows."""
        return None

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return new memory of the device."""
        return np.empty(shape, dtype)

    def asarray(self, host: HostArray) -> Array:
        """Return host values on the device, where what the current stream does next finds them."""
        return host

    def kept(self, host: HostArray) -> Array:
        """Return host values on the device, which any stream may read from now on."""
        return self.asarray(host)

    def wait(self) -> None:
        """Let this thread wait until all streams have done what they were asked for."""

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """Return new host memory that copies to the device may start from at any time.

        Raises one of `memory_errors` where the system gives no more of it.
        """
        return np.empty(shape, dtype)

    def copy_stream(self) -> Stream:
        """Return a stream of its own, for copies."""
        return Stream()

    def consumer_stream(self, library: str | None) -> Stream:
        """Return the stream to which this thread's next work would go.

        Parameters
        ----------
        library : str, optional
            Whose arrays the consumer asked for.
        """
        return Stream()


AnyDevice = str | Device | Any  # a name, a device, or one of torch's, which counts by its name


# ---------------------------------------------------------------- a GPU
def at_gpu(number: int) -> Any:
    """Return a context in which a GPU is the current one: CuPy's own, which costs least."""
    return cupy_module().cuda.Device(number)


@dataclass(frozen=True)
class CudaEvent(Event):
    """An event of CUDA."""

    event: Any

    def done(self) -> bool:
        return bool(self.event.done)

    def wait(self) -> None:
        self.event.synchronize()


@dataclass(frozen=True)
class CudaStream(Stream):
    """A stream of CUDA."""

    stream: Any
    number: int

    def record(self) -> Event:
        with at_gpu(self.number):
            event = cupy_module().cuda.Event(disable_timing=True)
            event.record(self.stream)
        return CudaEvent(event)

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
class CudaDevice(Device):
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

    def free_bytes(self) -> int | None:
        cupy = cupy_module()
        with at_gpu(self.number):
            free, _ = cupy.cuda.runtime.memGetInfo()
            pool = cupy.get_default_memory_pool()
            limit = pool.get_limit()
            has = int(free + pool.free_bytes())
            return min(has, int(limit - pool.used_bytes())) if limit else has

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        with at_gpu(self.number):
            return cupy_module().empty(shape, dtype)

    def asarray(self, host: HostArray) -> Array:
        with at_gpu(self.number):
            return cupy_module().asarray(host)

    def kept(self, host: HostArray) -> Array:
        cupy = cupy_module()
        with at_gpu(self.number):  # `asarray` would pin as much, and keep that
            made = cupy.empty(host.shape, host.dtype)
            made.set(host)
            cupy.cuda.get_current_stream().synchronize()
            return made

    def wait(self) -> None:
        with at_gpu(self.number):
            cupy_module().cuda.runtime.deviceSynchronize()

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        cupy = cupy_module()
        with at_gpu(self.number):
            n_bytes = max(1, math.prod(shape) * dtype.itemsize)
            try:  # not of CuPy's pool, which takes the next power of two and keeps it
                memory = cupy.cuda.PinnedMemory(n_bytes, cupy.cuda.runtime.hostAllocPortable)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise MemoryError(str(error)) from error
        return np.ndarray(shape, dtype, cupy.cuda.PinnedMemoryPointer(memory, 0))

    def copy_stream(self) -> Stream:
        with at_gpu(self.number):
            return CudaStream(cupy_module().cuda.Stream(non_blocking=True), self.number)

    def consumer_stream(self, library: str | None) -> Stream:
        cuda = cupy_module().cuda
        if library != "torch":
            return CudaStream(cuda.get_current_stream(self.number), self.number)
        theirs = TheirStream(module("torch").cuda.current_stream(self.number))
        with at_gpu(self.number):
            return CudaStream(cuda.Stream.from_external(theirs), self.number)


def cuda_device(name: str) -> CudaDevice:
    """Return a GPU by name.

    Raises
    ------
    LoaderError
        If this is not the name of one, there is no such GPU, or CuPy cannot compile kernels.
    MissingExtraError
        If CuPy is not installed.
    """
    number = device_number(name)
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

    Only row numbers go there for a batch.

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
                self._there[key] = self.device.kept(host)
                weakref.finalize(host, self._let_go, key).atexit = False
            return self._there[key]

    def _let_go(self, key: int) -> None:
        """Give memory back, of which nobody knows which streams still read it."""
        kept = self._there.pop(key)
        self.device.wait()
        del kept

    def __reduce__(self) -> tuple[Any, ...]:
        return Resident, (self.device,)
