"""What a caller asked for, checked before a byte moves: axes, rows, dtypes, the destination.

Every refusal is raised here, with what was found and what was expected; the modules that copy
take their arguments for granted.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled.errors import ArrayError, DimsError, SelectionError, SelectionTypeError

CACHE_LINE = 64
"""Bytes moved between memory and cache at a time."""

ALIGNED_BYTES = 1 << 14
"""New arrays of so many bytes start at a cache line."""

_INT64 = np.dtype(np.int64)

Array = np.ndarray[Any, np.dtype[Any]]
Rows = np.ndarray[Any, np.dtype[np.int64]]


def checked_order(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return `axes` counted from 0: each axis of an array of rank `ndim` exactly once."""
    try:
        order = tuple(map(range(ndim).__getitem__, axes))
    except IndexError:
        order = (-1,)
    if sorted(order) != list(range(ndim)):
        raise DimsError(
            f"axes {tuple(axes)} do not reorder an array of rank {ndim}; "
            f"give each of 0 .. {ndim - 1} exactly once"
        )
    return order


def checked_rows(rows: Any, n_rows: int) -> Rows:
    """Return `rows` as int64 within ``0 .. n_rows - 1``; negative ones count from the end."""
    found = np.asarray(rows)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise SelectionTypeError(
            f"rows are a 1-D array of integers; found dtype {found.dtype} of rank {found.ndim}. "
            f"Turn a boolean mask into rows with np.flatnonzero(mask)"
        )
    chosen: Rows = found if found.dtype is _INT64 else found.astype(np.int64)
    if chosen.size == 0:
        return chosen
    if int(chosen.view(np.uint64).max()) < n_rows:  # negative ones look huge
        return chosen
    low, high = int(chosen.min()), int(chosen.max())
    if low < -n_rows or high >= n_rows:
        bad = low if low < -n_rows else high
        raise SelectionError(
            f"row {bad} is not in an array of {n_rows} rows; rows go from 0 to {n_rows - 1}"
        )
    return np.where(chosen < 0, chosen + n_rows, chosen)


def result_dtype(src: np.dtype[Any], dtype: Any, scaled: bool) -> np.dtype[Any]:
    """Return the dtype of the result: the one asked for, else a native one that holds it.

    Examples
    --------
    >>> result_dtype(np.dtype("u1"), None, True), result_dtype(np.dtype("i8"), None, True)
    (dtype('float32'), dtype('float64'))
    """
    if dtype is not None:
        asked: np.dtype[Any] = np.dtype(dtype)
        return asked
    if not scaled or src.kind in "fc":
        return src if src.isnative else src.newbyteorder("=")
    return np.dtype(np.float64 if src.itemsize > 4 else np.float32)


def compute_dtype(src: np.dtype[Any], dst: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which ``src * scale + shift`` is computed.

    float32 where the input has at most 32 bits and the result is a float of at most 32 bits or
    a small integer; float64 otherwise; the complex dtype of that precision where either is
    complex.
    """
    for kind in (src, dst):
        if kind.kind not in "biufc":
            raise ArrayError(f"dtype {kind} cannot be scaled or shifted; cast to a number first")
    if "c" in (src.kind, dst.kind):
        wide = max(_wide(src), _wide(dst))
        return np.dtype(np.complex128 if wide else np.complex64)
    wide_result = dst.kind in "iu" and dst.itemsize >= 4
    return np.dtype(np.float64 if _wide(src) or _wide(dst) or wide_result else np.float32)


def _wide(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize > (8 if dtype.kind == "c" else 4)


def checked_factor(name: str, value: Any, compute: np.dtype[Any]) -> Array | None:
    """Return `value` in dtype `compute`; None stays None."""
    if value is None:
        return None
    found = np.asarray(value)
    if found.dtype.kind not in ("biufc" if compute.kind == "c" else "biuf"):
        raise ArrayError(f"{name} has dtype {found.dtype}; the data is computed in {compute}")
    return found.astype(compute, copy=False)


def address_of(array: Array) -> int:
    """Return where the first item of an array lies.

    NumPy's own check takes two microseconds, a fifth of what a small copy takes.

    Examples
    --------
    >>> rows = np.zeros((4, 2), np.float32)
    >>> address_of(rows[1:]) - address_of(rows)
    8
    """
    if array.flags.carray:
        memory: Any = array
        try:
            return ctypes.addressof(ctypes.c_char.from_buffer(memory))
        except (TypeError, ValueError):  # a dtype that no buffer has, or nothing in it
            pass
    address: int = array.ctypes.data
    return address


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return new memory; large arrays start at a cache line, which large copies are faster into.

    Examples
    --------
    >>> empty((1024, 1024), np.dtype("f4")).__array_interface__["data"][0] % 64
    0
    """
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < ALIGNED_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = np.empty(n_bytes + CACHE_LINE, np.uint8)
    start = -address_of(memory) % CACHE_LINE
    return memory[start : start + n_bytes].view(dtype).reshape(shape)


def checked_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], src: Array) -> Array:
    """Return `out`, or new memory where it is None: C-contiguous and clear of `src`."""
    if out is None:
        return empty(shape, dtype)
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype:
        found = f"shape {getattr(out, 'shape', '?')} and dtype {getattr(out, 'dtype', '?')}"
        raise ArrayError(f"out has {found}; the result has shape {shape} and dtype {dtype}")
    flags = out.flags
    if not (flags.carray or (flags.c_contiguous and flags.writeable)):
        raise ArrayError("out is not a writable C-contiguous array; pass one made by np.empty")
    apart = flags.owndata and src.flags.owndata and out is not src
    if not apart and np.may_share_memory(out, src) and _overlaps(out, src):
        raise ArrayError("out shares memory with the source; permute into another array")
    return out


def _overlaps(out: Array, src: Array) -> bool:
    """Whether two arrays share bytes; yes where the answer is too hard to find."""
    effort: Any = 10_000
    try:
        return np.shares_memory(out, src, max_work=effort)
    except np.exceptions.TooHardError:
        return True
