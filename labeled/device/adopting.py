"""Arrays of other libraries taken as NumPy's or CuPy's, by DLPack: the same memory.

Only libraries that the array-API standard does not cover need this (torch, TensorFlow):
others work as they are wherever arrays of any kind do. Results go back the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.device.arrays import Array, cupy_that_finds, is_array, is_cupy
from labeled.device.handoff import LIBRARIES, HandOff, module
from labeled.errors import ArrayError, LabeledError

HOST, CUDA, PINNED, MANAGED = 1, 2, 3, 13
"""Kinds of memory, as DLPack numbers them."""

NOT_LENT = ("string", "resource", "variant")
"""Dtypes of TensorFlow's that are no numbers; it ends the process where DLPack asks for them."""


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
    what = f"{library_of(x)}'s {type(x).__name__}"
    if library_of(x) == "tensorflow" and x.dtype.name in NOT_LENT:
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
    raise ArrayError(
        f"{what} lives on a device of DLPack's kind {int(kind)}, of which nothing is known here; "
        f"bring it to the host"
    )


def library_of(x: Any) -> str:
    """Return the library that an array belongs to."""
    return type(x).__module__.partition(".")[0]


def brought_back(x: Array, library: str) -> Any:
    """Return an array that came of :func:`adopted` ones as one of their library, where known.

    Strides stay where the library has some.
    """
    if library not in LIBRARIES:
        return x
    if library == "torch" and not (isinstance(x, np.ndarray) and not x.flags.writeable):
        return module("torch").from_dlpack(x)
    return HandOff(library)(x)
