"""Rows picked from any places of memory, by numba (extra ``fast``), without the GIL.

NumPy takes rows from places that are no whole rows apart by copying them twice, and lets go of
the GIL for each. Importing this module imports numba; the loop, and the intrinsic it is made of,
share one file on purpose: numba's cache of compiled code notices changes of the file of a loop
only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from labeled.permute.addresses import address_of
from labeled.permute.compiler import loop
from labeled.permute.layout import CACHE_LINE as LINE

AHEAD_BYTES = 4096
"""How far ahead of what is copied memory is asked for, along the rows in their new order.

No hardware foresees the next row, nor reads on beyond a page: 256 to 3,072 bytes a row are
copied 1.3 to 1.9 times as fast as without (Zen 4, one thread and two)."""

_BYTES = ir.IntType(8).as_pointer()
_WORDS = ir.VectorType(ir.IntType(64), LINE // 8)
_I32 = ir.IntType(32)
_ASK = ir.FunctionType(ir.VoidType(), [_BYTES, _I32, _I32, _I32])
_FOR_READING_NEAR = [ir.Constant(_I32, n) for n in (0, 2, 1)]

_made: Callable[..., Any] = intrinsic


@_made
def _copy(_: Any, to: Any, source: Any, n_bytes: Any) -> Any:
    """Copy bytes by the C library."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        there, here = (builder.inttoptr(one, _BYTES) for one in args[:2])
        copy: Any = cgutils.raw_memcpy
        copy(builder, there, here, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@_made
def _move_line(_: Any, to: Any, source: Any, soon: Any) -> Any:
    """Copy a cache line, and ask for another that is needed soon."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        ask = builder.module.declare_intrinsic("llvm.prefetch", (_BYTES,), _ASK)
        builder.call(ask, [builder.inttoptr(args[2], _BYTES), *_FOR_READING_NEAR])
        there, here = (builder.inttoptr(one, _WORDS.as_pointer()) for one in args[:2])
        builder.store(builder.load(here, align=1), there, align=1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@loop
def _copy_row(to: Any, row: Any, later: Any, n_bytes: int) -> None:
    """Copy bytes, and ask for those that are copied `AHEAD_BYTES` later, there or in `later`."""
    back = max(0, n_bytes - AHEAD_BYTES)
    whole = n_bytes // LINE * LINE
    own = min(whole, back // LINE * LINE)
    for at in range(0, own, LINE):
        _move_line(to + at, row + at, row + at + AHEAD_BYTES)
    for at in range(own, whole, LINE):
        _move_line(to + at, row + at, later - back + at)
    if whole < n_bytes:
        _copy(to + whole, row + whole, n_bytes - whole)


@loop
def _pick(to: Any, source: Any, n_bytes: int, places: Any, row_bytes: int) -> bool:
    for i in range(len(places)):
        if places[i] < 0 or places[i] > n_bytes - row_bytes:
            return False
    ahead, last = max(1, AHEAD_BYTES // max(1, row_bytes)), len(places) - 1
    for i in range(len(places)):
        later = source + places[min(i + ahead, last)]
        _copy_row(to + i * row_bytes, source + places[i], later, row_bytes)
    return True


def pick(stored: Any, places: Any, out: Any) -> bool:
    """Copy the rows that begin at some bytes; False, with nothing copied, if one lies outside.

    Parameters
    ----------
    stored : uint8 array
        C-contiguous.
    places : int64 array
    out : uint8 array, lengths ``(len(places), row_bytes)``
        C-contiguous.
    """
    assert places.dtype == np.int64
    assert len(places) == len(out)
    to, source = address_of(out), address_of(stored)
    return bool(_pick(to, source, len(stored), places, out.shape[1]))


@loop
def _copy_segments(
    to: Any, room: int, places: Any, source: Any, n_bytes: int, starts: Any, sizes: Any
) -> bool:
    n, total = len(sizes), 0
    for i in range(n):
        size = sizes[i]
        if size < 0 or places[i] < 0 or starts[i] < 0:
            return False
        if places[i] > room - size or starts[i] > n_bytes - size:
            return False
        total += size
    ahead = max(1, AHEAD_BYTES * n // max(1, total))
    for i in range(n):
        later = source + starts[min(i + ahead, n - 1)]
        _copy_row(to + places[i], source + starts[i], later, sizes[i])
    return True


def copy_segments(out: Any, places: Any, source: Any, starts: Any, sizes: Any) -> bool:
    """Store ``out[p:p + n] = source[s:s + n]``; False, with nothing stored, if one lies outside.

    Parameters
    ----------
    out, source : uint8 array
        C-contiguous.
    places, starts, sizes : int64 array
        One of each a segment.
    """
    if {places.dtype, starts.dtype, sizes.dtype} != {np.dtype(np.int64)}:
        return False
    assert len(places) == len(starts) == len(sizes)
    to, there = address_of(out), address_of(source)
    return bool(_copy_segments(to, len(out), places, there, len(source), starts, sizes))
