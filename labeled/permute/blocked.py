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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeled.permute import layout, workers
from labeled.permute.arguments import Array, Rows
from labeled.permute.plan import Plan

KEPT_BYTES = 1 << 22
"""Memory that a thread keeps under one name, at most."""

SMALL_BYTES = 1 << 15
"""Below this, one NumPy call is faster than planning tiles."""

Block = tuple[slice, ...]

_local = threading.local()


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Write ``src * scale + shift`` into `dst`; with `rows`, of those rows along `axis`.

    `dst` and `src` have one shape but for the length along `axis`; `scale` and `shift` have
    length 1 where they are the same.
    """

    dst: Array
    src: Array
    scale: Array | None
    shift: Array | None
    compute: np.dtype[Any]
    rows: Rows | None
    axis: int

    @property
    def pure(self) -> bool:
        """Whether bytes are moved as they are."""
        return self.scale is None and self.shift is None and self.src.dtype == self.dst.dtype


def job(
    plan: Plan,
    dst: Array,
    src: Array,
    rows: Rows | None,
    scale: Array | None,
    shift: Array | None,
) -> Job:
    """Show arrays as a plan sees them; `dst` and `src` stay views of the same memory."""
    lengths = list(plan.lengths)
    axis = -1
    if rows is not None and plan.axis is not None:
        axis = plan.axis
        lengths[axis] = src.shape[0]
    factors = [None if f is None else merged_factor(plan, f, src.ndim) for f in (scale, shift)]
    return Job(
        dst.reshape(plan.lengths),
        src.transpose(plan.order).reshape(lengths),
        factors[0],
        factors[1],
        plan.compute,
        rows,
        axis,
    )


def merged_factor(plan: Plan, factor: Array, ndim: int) -> Array:
    """Return a factor over the merged axes, with length 1 where it is the same."""
    whole = factor.reshape((1,) * (ndim - factor.ndim) + factor.shape).transpose(plan.order)
    found = whole.reshape([math.prod(whole.shape[a] for a in group) for group in plan.groups] or 1)
    if plan.repeat == 1 or found.shape[-1] == 1:
        return found
    return np.tile(found, (1,) * (found.ndim - 1) + (plan.repeat,))


def move_plainly(plan: Plan, dst: Array, src: Array) -> None:
    """Make a pure move with one NumPy copy; short runs go as one item each."""
    if plan.run_item is None or dst.nbytes < SMALL_BYTES:
        dst[...] = src.transpose(plan.order) if plan.moved else src
        return
    to, there = dst.reshape(plan.lengths), src.transpose(plan.order).reshape(plan.lengths)
    to.view(plan.run_item)[..., 0] = there.view(plan.run_item)[..., 0]


def take_plainly(dst: Array, src: Array, rows: Rows) -> None:
    """Take whole rows of a C-contiguous source with one NumPy call."""
    np.take(src, rows, axis=0, out=dst.reshape(len(rows), *src.shape[1:]), mode="clip")


def run(job: Job, threads: int = 1) -> None:
    """Do a copy tile by tile, on up to so many threads."""
    if job.rows is not None:
        _gather(job, job.rows, threads)
    elif job.pure:
        _move(job.dst, job.src, threads)
    else:
        _cast(job, threads)


def _each(blocks: Iterable[Block], work: Callable[[Block], None], threads: int) -> None:
    """Do the work on every block; no two of them touch the same items."""
    known = list(blocks)

    def stretch(first: int, last: int) -> None:
        for block in known[first:last]:
            work(block)

    workers.share(stretch, len(known), threads)


def _move(dst: Array, src: Array, threads: int = 1) -> None:
    """Copy `src` into `dst` of equal shape and dtype, whatever the strides."""
    tile = None
    if dst.nbytes > SMALL_BYTES:
        tile = layout.move_tile(dst.shape, dst.strides, src.strides, dst.itemsize)
    if tile is None:
        np.copyto(dst, src)
        return
    n_planes = dst.shape[-1]

    def whole(block: Block) -> None:
        np.copyto(dst[block], src[block])

    def by_plane(block: Block) -> None:
        for plane in range(n_planes):
            np.copyto(dst[block][..., plane], src[block][..., plane])

    work = by_plane if n_planes <= layout.PLANES else whole
    _each(layout.tiles(dst.shape, tile), work, threads)


def _cast(job: Job, threads: int = 1) -> None:
    """Convert tile by tile, in scratch that lies in memory as the source does.

    Where nothing is left to move or to cast after the arithmetic, the destination is the scratch.
    """
    dst, src = job.dst, job.src
    moves = layout.fast_axis(src.strides, src.itemsize) not in (None, dst.ndim - 1)
    tile = layout.cast_tile(dst.shape, src.strides, src.itemsize)
    scale, shift = (_plain(factor) for factor in (job.scale, job.shift))

    def convert(block: Block) -> None:
        found, out = src[block], dst[block]
        work = out
        if moves or job.compute != dst.dtype:
            work = _scratch("computed", out.shape, src, job.compute)
        if scale is None or src.dtype != job.compute:
            np.copyto(work, found, casting="unsafe")
            found = work
        if scale is not None:
            np.multiply(found, _part(scale, block), out=work)
        if shift is not None:
            np.add(work, _part(shift, block), out=work)
        if moves and job.compute != dst.dtype:
            final = _scratch("cast", out.shape, src, dst.dtype)
            np.copyto(final, work, casting="unsafe")
            work = final
        if work.dtype != dst.dtype:
            np.copyto(out, work, casting="unsafe")
        elif work is not out:
            _move(out, work)

    _each(layout.tiles(dst.shape, tile), convert, threads)


def _plain(factor: Array | None) -> Array | None:
    """Return one number as an array of rank 0, which needs no cutting."""
    return factor if factor is None or factor.size > 1 else factor.reshape(())


def _part(factor: Array, block: Block) -> Array:
    """Return the part of a factor for a block; an axis along which it is the same stays whole."""
    if not factor.ndim:
        return factor
    taken = zip(block, factor.shape, strict=True)
    return factor[tuple(slice(None) if length == 1 else part for part, length in taken)]


def _scratch(name: str, shape: tuple[int, ...], src: Array, dtype: np.dtype[Any]) -> Array:
    """Return memory of this thread whose axes lie as those of the source do, in its order."""
    order = sorted(range(src.ndim), key=lambda axis: -abs(src.strides[axis]))
    laid = _kept(name, tuple(shape[axis] for axis in order), dtype)
    return laid.transpose(np.argsort(order))


def _gather(job: Job, rows: Rows, threads: int) -> None:
    """Take a cache-sized group of rows, or of parts of rows, and write it where it belongs."""
    src, axis = job.src, job.axis
    order = sorted(range(src.ndim), key=lambda a: (a != axis, -abs(src.strides[a])))
    by_row = src.transpose(order)
    if job.pure and by_row.flags.c_contiguous and order == list(range(src.ndim)):
        np.take(src, rows, axis=0, out=job.dst, mode="clip")
        return
    back = np.argsort(order)

    def take(block: Block) -> None:
        found = taken(by_row, rows[block[axis]]).transpose(back)
        scale, shift = (None if f is None else _part(f, block) for f in (job.scale, job.shift))
        run(replace(job, dst=job.dst[block], src=found, scale=scale, shift=shift, rows=None))

    tile = layout.gather_tile(job.dst.shape, axis, src.itemsize)
    _each(layout.tiles(job.dst.shape, tile), take, threads)


def taken(by_row: Array, rows: Rows) -> Array:
    """Take rows into memory of this thread, warm from one batch to the next."""
    if not by_row.flags.c_contiguous:  # np.take would first copy the whole of the source
        return by_row[rows]
    out = _kept("rows", (len(rows), *by_row.shape[1:]), by_row.dtype)
    return np.take(by_row, rows, axis=0, out=out, mode="clip")


def _kept(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return memory of a shape and dtype that this thread keeps under a name, if it is plain."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or dtype.kind == "T" or n_bytes > KEPT_BYTES:
        return np.empty(shape, dtype)
    kept: dict[str, Array] = _local.__dict__
    if name not in kept or kept[name].nbytes < n_bytes:
        kept[name] = np.empty(n_bytes, np.uint8)
    out: Array = kept[name][:n_bytes].view(dtype).reshape(shape)
    return out
