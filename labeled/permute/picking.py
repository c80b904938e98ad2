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
from labeled.permute.jit import loop

_made: Callable[..., Any] = intrinsic


@_made
def _copy(_: Any, to: Any, source: Any, n_bytes: Any) -> Any:
    """Copy bytes by the C library."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        there, here = (builder.inttoptr(one, ir.IntType(8).as_pointer()) for one in args[:2])
        copy: Any = cgutils.raw_memcpy
        copy(builder, there, here, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


@loop
def _pick(to: Any, source: Any, n_bytes: int, places: Any, row_bytes: int) -> bool:
    for i in range(len(places)):
        if places[i] < 0 or places[i] > n_bytes - row_bytes:
            return False
    for i in range(len(places)):
        _copy(to + i * row_bytes, source + places[i], row_bytes)
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
