"""Permuting copies of arrays that are not NumPy's, by the functions of their own library.

Any library of the array-API standard serves; the data stays where it is. CuPy arrays go to one
kernel of ours (:mod:`~labeled.permute.cuda`) where it knows their dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled import device
from labeled.errors import ArrayError, DimsError
from labeled.permute import arguments, cuda


def namespace(array: Any) -> Any:
    """Return the array-API namespace of `array`; CuPy itself for its arrays, which name none."""
    try:
        return device.namespace(array)
    except TypeError:
        raise ArrayError(
            f"{type(array).__name__} is neither a NumPy array nor one of an array-API library; "
            f"pass numpy.asarray(...) of it"
        ) from None


def copy(src: Any, axes: Sequence[int], *, out: Any, dtype: Any, scale: Any, shift: Any) -> Any:
    """Return `src` permuted, cast and scaled; the same rules as for NumPy arrays."""
    if device.is_cupy(src) and out is None:
        src = cuda.aligned(src)
        made = cuda.copy(src, axes, dtype=dtype, scale=scale, shift=shift)
        if made is not None:
            return made
    xp = namespace(src)
    order = arguments.checked_order(axes, src.ndim)
    if out is not None:
        raise ArrayError(f"out is for NumPy arrays; leave it out for {type(src).__name__}")
    final = dtype
    result = xp.permute_dims(src, order)
    if scale is not None or shift is not None:
        compute, final = _dtypes(xp, src.dtype, dtype)
        result = xp.astype(result, compute)
        if scale is not None:
            result = result * _factor(xp, src, scale, compute, order)
        if shift is not None:
            result = result + _factor(xp, src, shift, compute, order)
    result = result if final is None else xp.astype(result, final)
    return device.owned_copy(result)


def gather(
    src: Any, rows: Any, axes: Sequence[int], *, out: Any, dtype: Any, scale: Any, shift: Any
) -> Any:
    """Return ``src[rows]`` permuted, cast and scaled; the same rules as for NumPy arrays."""
    xp = namespace(src)
    if src.ndim == 0:
        raise DimsError("an array of rank 0 has no rows to gather; pass rank 1 or more")
    changes = {"dtype": dtype, "scale": scale, "shift": shift}
    chosen = arguments.checked_rows(rows, src.shape[0])
    if device.is_cupy(src) and out is None:
        src = cuda.aligned(src)
        made = cuda.copy(src, axes, rows=chosen, **changes)
        if made is not None:
            return made
    return copy(xp.take(src, xp.asarray(chosen), axis=0), axes, out=out, **changes)


def _dtypes(xp: Any, src: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the dtypes of the arithmetic and of the result."""
    if isinstance(src, np.dtype):  # CuPy's dtypes are NumPy's
        result = arguments.result_dtype(src, dtype, True)
        return arguments.compute_dtype(src, result), result
    small = (xp.bool, xp.int8, xp.uint8, xp.int16, xp.uint16, xp.int32, xp.uint32)
    default = xp.float32 if src in small else src if xp.isdtype(src, "real floating") else None
    final = dtype if dtype is not None else default if default is not None else xp.float64
    narrow = (src in small or src == xp.float32) and final == xp.float32
    return (xp.float32 if narrow else xp.float64), final


def _factor(xp: Any, src: Any, value: Any, compute: Any, order: tuple[int, ...]) -> Any:
    """Return a scale or shift on the device of `src`, in the order of the result."""
    there = {} if device.is_cupy(src) else {"device": src.device}  # CuPy's is the current one
    factor = xp.asarray(value, dtype=compute, **there)
    factor = xp.reshape(factor, (1,) * (src.ndim - factor.ndim) + tuple(factor.shape))
    return xp.permute_dims(factor, order)
