"""Arrays wherever they live: the one door to CuPy, and what differs between kinds of array.

The rest of the library handles NumPy, CuPy and any other array of the array-API
standard through the functions here, and never asks which of them it holds. CuPy is
imported only when an array is already CuPy's or a device is asked for, so a machine
without a GPU never touches it.

What this module refuses to know: spaces, dims, files, dask. The trade-off: a handful
of named operations instead of a full compatibility layer, which keeps the
dependencies short and the common NumPy case at method-call speed.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from labeled._optional import extra_module
from labeled.errors import ArrayError, LoaderError

Array = Any
"""An array of NumPy, CuPy or any other library of the array-API standard."""


def is_cupy(x: object) -> bool:
    """Whether `x` is a CuPy array; does not import CuPy.

    Examples
    --------
    >>> is_cupy(np.zeros(3))
    False
    """
    if isinstance(x, np.ndarray):
        return False
    return any(kind.__module__.partition(".")[0] == "cupy" for kind in type(x).__mro__)


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
        If there is no such CUDA device.
    MissingExtraError
        If a CUDA device is asked for and CuPy is not installed.
    ValueError
        If `device` is none of these.
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
    ValueError
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
        raise ValueError(f"device={device!r} must be 'cpu', 'cuda', 'cuda:<number>' or a number")
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
        raise LoaderError(
            f"device 'cuda:{number}': CuPy finds no GPU and driver here; leave device out, or 'cpu'"
        )
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
