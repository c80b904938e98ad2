"""Permuting copies in cache-sized tiles, with NumPy alone.

The way without the ``fast`` extra, and the way of every dtype and stride the compiled kernels do
not know. NumPy's own copy walks the destination in order, so when the fast axis moves, each item
read costs a cache line. Here the same copy is cut into tiles whose source lines and destination
lines stay in the nearest cache between visits; a short last axis (channels) is copied plane by
plane. A cast with scale and shift goes through one scratch tile in the order of the *source*,
where the arithmetic runs over contiguous memory, and never through a full-size temporary.
"""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import numpy as np

from labeled.permute import layout
from labeled.permute.arguments import Array, Rows
from labeled.permute.job import Job

KEPT_BYTES = 1 << 22
"""Memory for gathered rows that a thread keeps, at most."""

SMALL_BYTES = 1 << 15
"""Below this, one NumPy call is faster than planning tiles."""

_local = threading.local()


def run(job: Job) -> None:
    """Do a copy tile by tile."""
    if job.rows is not None:
        _gather(job, job.rows)
    elif job.pure:
        _move(job.dst, job.src)
    else:
        _cast(job)


def _move(dst: Array, src: Array) -> None:
    """Copy `src` into `dst` of equal shape and dtype, whatever the strides."""
    tile = None
    if dst.nbytes > SMALL_BYTES:
        tile = layout.move_tile(dst.shape, dst.strides, src.strides, dst.itemsize)
    if tile is None:
        np.copyto(dst, src)
        return
    by_plane = dst.shape[-1] <= layout.PLANES
    for block in layout.tiles(dst.shape, tile):
        if by_plane:
            for plane in range(dst.shape[-1]):
                np.copyto(dst[block][..., plane], src[block][..., plane])
        else:
            np.copyto(dst[block], src[block])


def _cast(job: Job) -> None:
    """Convert tile by tile, in scratch that lies in memory as the source does."""
    dst, src = job.dst, job.src
    tile = _cast_tile(dst, src)
    order = sorted(range(dst.ndim), key=lambda axis: -abs(src.strides[axis]))
    scratch = _scratch(tile, order, job.compute)
    final = scratch if job.compute == dst.dtype else _scratch(tile, order, dst.dtype)
    for block in layout.tiles(dst.shape, tile):
        part = tuple(slice(0, axis.stop - axis.start) for axis in block)
        work = scratch[part]
        np.copyto(work, src[block], casting="unsafe")
        if job.scale is not None:
            np.multiply(work, _part(job.scale, block), out=work)
        if job.shift is not None:
            np.add(work, _part(job.shift, block), out=work)
        if final is not scratch:
            np.copyto(final[part], work, casting="unsafe")
        _move(dst[block], final[part])


def _part(factor: Array, block: tuple[slice, ...]) -> Array:
    """Return the part of a factor for a block; an axis along which it is the same stays whole."""
    taken = zip(block, factor.shape, strict=True)
    return factor[tuple(slice(None) if length == 1 else part for part, length in taken)]


def _cast_tile(dst: Array, src: Array) -> tuple[int, ...]:
    fast = layout.fast_axis(src.strides, src.itemsize)
    last = dst.ndim - 1
    items = layout.TILE_BYTES // max(dst.itemsize, 4)
    if fast is None or fast == last:
        return layout.tile_shape(dst.shape, last, last_run=items, fast_run=items, items=items)
    return layout.tile_shape(dst.shape, fast, last_run=64, fast_run=layout.FAST_RUN, items=items)


def _scratch(tile: tuple[int, ...], order: list[int], dtype: np.dtype[Any]) -> Array:
    """Allocate one tile whose axes lie in memory in `order`, seen in the destination's order."""
    laid: Array = np.empty([tile[axis] for axis in order], dtype)
    return laid.transpose(np.argsort(order))


def _gather(job: Job, rows: Rows) -> None:
    """Take a cache-sized group of rows at a time and write it where it belongs."""
    src, axis = job.src, job.axis
    order = sorted(range(src.ndim), key=lambda a: (a != axis, -abs(src.strides[a])))
    by_row = src.transpose(order)
    whole = bool(by_row.flags.c_contiguous)
    if job.pure and whole and order == list(range(src.ndim)):
        np.take(src, rows, axis=0, out=job.dst, mode="clip")
        return
    group = max(1, 4 * layout.TILE_BYTES // max(1, src.nbytes // src.shape[axis]))
    back = np.argsort(order)
    at: list[slice] = [slice(None)] * src.ndim
    for start in range(0, len(rows), group):
        chosen = rows[start : start + group]
        at[axis] = slice(start, start + len(chosen))
        here = tuple(at)
        # np.take first copies the whole of a source with gaps; indexing does not
        found = taken(by_row, chosen) if whole else by_row[chosen]
        scale, shift = (None if f is None else _part(f, here) for f in (job.scale, job.shift))
        part = replace(
            job, dst=job.dst[here], src=found.transpose(back), scale=scale, shift=shift, rows=None
        )
        run(part)


def taken(by_row: Array, rows: Rows) -> Array:
    """Take rows into memory of this thread, which is warm from one batch to the next."""
    shape = (len(rows), *by_row.shape[1:])
    n_bytes = math.prod(shape) * by_row.itemsize
    if by_row.dtype.hasobject or n_bytes > KEPT_BYTES:
        return np.take(by_row, rows, axis=0, mode="clip")
    memory = getattr(_local, "memory", None)
    if memory is None or memory.nbytes < n_bytes:
        memory = _local.memory = np.empty(n_bytes, np.uint8)
    out: Array = memory[:n_bytes].view(by_row.dtype).reshape(shape)
    return np.take(by_row, rows, axis=0, out=out, mode="clip")
