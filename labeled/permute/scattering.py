"""Rows scattered past the caches, by numba (extra ``fast``), without the GIL.

A row that goes to a random place of a large array is stored in whole cache lines that are not
read first, which takes less than half the time. Importing this module imports numba; the
loop, and the intrinsics it is made of, share one file on purpose: numba's cache of compiled
code notices changes of the file of a loop only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from labeled.permute.addresses import address_of
from labeled.permute.compiler import loop
from labeled.permute.layout import CACHE_LINE as LINE

_WORDS = ir.VectorType(ir.IntType(64), LINE // 8)

_made: Callable[..., Any] = intrinsic


@_made
def _move_line(_: Any, to: Any, source: Any) -> Any:
    """Copy a cache line to an address that is a multiple of its size, past the caches."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _WORDS.as_pointer()
        value = builder.load(builder.inttoptr(args[1], pointer), align=1)
        stored = builder.store(value, builder.inttoptr(args[0], pointer), align=LINE)
        mark = builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)])
        stored.set_metadata("nontemporal", mark)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp), generate


@_made
def _finish_stores(_: Any) -> Any:
    """Wait until other threads would see what was stored."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), generate


@loop
def _scatter(
    to: Any, n_rows: int, places: Any, source: Any, n_there: int, wanted: Any, row_bytes: int
) -> bool:
    for i in range(len(places)):
        if places[i] < 0 or places[i] >= n_rows or wanted[i] < 0 or wanted[i] >= n_there:
            return False
    for i in range(len(places)):
        begin, row = to + places[i] * row_bytes, source + wanted[i] * row_bytes
        for at in range(0, row_bytes, LINE):
            _move_line(begin + at, row + at)
    _finish_stores()
    return True


def scatter(out: Any, places: Any, rows: Any, wanted: Any = None) -> bool:
    """Store ``out[places] = rows[wanted]``; False, with nothing stored, if that is not for this.

    Parameters
    ----------
    out, rows : array
        C-contiguous, of one dtype and row shape.
    places : int64 array
    wanted : int64 array, as long as `places`
        All rows, in order, where it is None.
    """
    row_bytes = rows.nbytes // max(1, len(rows))
    to = address_of(out)
    if to % LINE or row_bytes % LINE:
        return False
    if wanted is None:
        wanted = np.arange(len(rows))
    if places.dtype != np.int64 or wanted.dtype != np.int64 or len(places) != len(wanted):
        return False
    there = address_of(rows), len(rows)
    return bool(_scatter(to, len(out), places, *there, wanted, row_bytes))
