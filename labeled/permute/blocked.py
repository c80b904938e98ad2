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
from typing import Any

import numpy as np

from labeled.permute import workers
from labeled.permute.arguments import Array, Rows
from labeled.permute.plan import PLANES, Plan, blocks

KEPT_BYTES = 1 << 22
"""Memory that a thread keeps under one name, at most."""

Block = tuple[slice, ...]

_local = threading.local()


def run(
    plan: Plan,
    dst: Array,
    src: Array,
    rows: Rows | None,
    scale: Array | None,
    shift: Array | None,
    threads: int,
) -> None:
    """Write ``src * scale + shift`` into `dst` tile by tile, on up to so many threads."""
    whole_rows = plan.axis == 0 and len(plan.lengths) == 2 and plan.fast == 1
    if rows is not None and plan.pure and whole_rows and src.flags.c_contiguous:
        np.take(src, rows, axis=0, out=dst.reshape(len(rows), *src.shape[1:]), mode="clip")
        return
    if plan.tile is None:
        dst[...] = src.transpose(plan.order)
        return
    lengths = list(plan.lengths)
    if rows is not None and plan.axis is not None:
        lengths[plan.axis] = len(src)
    to, at = dst.reshape(plan.lengths), src.transpose(plan.order).reshape(lengths)
    factors = [None if f is None else merged_factor(plan, f, src.ndim) for f in (scale, shift)]
    known = list(blocks(plan.lengths, plan.tile))

    def work(first: int, last: int) -> None:
        for block in known[first:last]:
            part = at[block] if rows is None else _taken(plan, at, rows, block)
            if part.dtype != dst.dtype or not plan.pure:
                part = _converted(plan, part, factors, block)
            _move(to[block], part)

    workers.share(work, len(known), threads)


def merged_factor(plan: Plan, factor: Array, ndim: int) -> Array:
    """Return a factor over the merged axes, with length 1 where it is the same."""
    whole = factor.reshape((1,) * (ndim - factor.ndim) + factor.shape).transpose(plan.order)
    found = whole.reshape([math.prod(whole.shape[a] for a in group) for group in plan.groups] or 1)
    if plan.repeat == 1 or found.shape[-1] == 1:
        return found
    return np.tile(found, (1,) * (found.ndim - 1) + (plan.repeat,))


def _move(dst: Array, src: Array) -> None:
    """Copy `src` into `dst` of equal shape, whatever the strides."""
    if dst.shape[-1] > PLANES or dst.ndim == 1:
        np.copyto(dst, src, casting="unsafe")
        return
    for plane in range(dst.shape[-1]):
        np.copyto(dst[..., plane], src[..., plane], casting="unsafe")


def _converted(plan: Plan, part: Array, factors: list[Array | None], block: Block) -> Array:
    """Convert a tile in scratch memory that lies as the source does."""
    order = sorted(range(part.ndim), key=lambda axis: -abs(part.strides[axis]))
    work = _scratch("computed", [part.shape[axis] for axis in order], plan.compute)
    work = work.transpose(np.argsort(order))
    for factor, apply in zip(factors, (np.multiply, np.add), strict=True):
        if factor is not None:
            taken = zip(block, factor.shape, strict=True)
            here = factor[tuple(slice(None) if n == 1 else cut for cut, n in taken)]
            apply(part, here, out=work, dtype=plan.compute, casting="unsafe")
            part = work
    if part is not work:
        np.copyto(work, part, casting="unsafe")
    return work


def _taken(plan: Plan, at: Array, rows: Rows, block: Block) -> Array:
    """Take the rows of a tile into scratch memory that lies as the source does."""
    axis = plan.axis
    assert axis is not None
    wanted, whole = rows[block[axis]], (*block[:axis], slice(None), *block[axis + 1 :])
    order = sorted(range(at.ndim), key=lambda a: (a != axis, -abs(at.strides[a])))
    by_row = at[whole].transpose(order)
    if by_row.flags.c_contiguous:
        out = _scratch("rows", [len(wanted), *by_row.shape[1:]], by_row.dtype)
        taken = np.take(by_row, wanted, axis=0, out=out, mode="clip")
    else:  # np.take would first copy the whole of the source
        taken = by_row[wanted]
    return taken.transpose(np.argsort(order))


def _scratch(name: str, shape: list[int], dtype: np.dtype[Any]) -> Array:
    """Return memory that this thread keeps under a name, if it is plain."""
    n_bytes = math.prod(shape) * dtype.itemsize
    if dtype.hasobject or dtype.kind == "T" or n_bytes > KEPT_BYTES:
        return np.empty(shape, dtype)
    kept: dict[str, Array] = _local.__dict__
    if name not in kept or kept[name].nbytes < n_bytes:
        kept[name] = np.empty(n_bytes, np.uint8)
    out: Array = kept[name][:n_bytes].view(dtype).reshape(shape)
    return out
