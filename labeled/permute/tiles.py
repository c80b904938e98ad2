"""Permuting copies in cache-sized tiles, with NumPy alone.

The way without the ``fast`` extra, and the way of every dtype and stride the compiled kernels do
not know. NumPy's own copy walks the destination in order, so when the fast axis moves, each item
read costs a cache line. Here the same copy is cut into tiles whose source lines and destination
lines stay in the nearest cache between visits; a short last axis (channels) is copied plane by
plane. A cast with scale and shift goes through one scratch tile in the order of the *source*,
where the arithmetic runs over contiguous memory, and never through a full-size temporary.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np

from labeled.permute import workers
from labeled.permute.arguments import CACHE_LINE, Array, Rows
from labeled.permute.plan import CopyPlan

TILE_ITEMS = 1 << 16
"""Items of a tile: it and its scratch stay in the caches."""

NEAR_BYTES = 1 << 17
"""What NumPy's own copy may touch before it comes back to a line, to find it still near."""

FAST_RUN = 1024
"""Items of a tile along the fast axis: long enough for NumPy's inner loops."""

PLANES = 4
"""Longest last axis that is copied plane by plane."""

Block = tuple[slice, ...]


def run(
    plan: CopyPlan,
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
    blocks = _blocks(plan)
    if blocks is None:
        dst[...] = src.transpose(plan.order)
        return
    lengths = [n if a != plan.axis else len(src) for a, n in enumerate(plan.lengths)]
    to, at = dst.reshape(plan.lengths), src.transpose(plan.order).reshape(lengths)
    steps = [
        (apply, plan.over_axes(factor, src.ndim))
        for apply, factor in ((np.multiply, scale), (np.add, shift))
        if factor is not None
    ]

    def work(first: int, last: int) -> None:
        scratch = None
        for block in blocks[first:last]:
            part = at[block] if rows is None else _taken(plan, at, rows, block)
            if not plan.pure:
                if scratch is None or scratch.shape != part.shape:
                    scratch = np.empty_like(part, plan.compute)  # lies as the source does
                for apply, factor in steps:
                    taken = zip(block, factor.shape, strict=True)
                    here = factor[tuple(slice(None) if n == 1 else cut for cut, n in taken)]
                    apply(part, here, out=scratch, dtype=plan.compute, casting="unsafe")
                    part = scratch
                if not steps:
                    np.copyto(scratch, part, casting="unsafe")
                    part = scratch
            _move(to[block], part)

    workers.share(work, len(blocks), threads)


def _move(dst: Array, src: Array) -> None:
    """Copy `src` into `dst` of equal shape, whatever the strides."""
    if dst.shape[-1] > PLANES or dst.ndim == 1:
        np.copyto(dst, src, casting="unsafe")
        return
    for plane in range(dst.shape[-1]):
        np.copyto(dst[..., plane], src[..., plane], casting="unsafe")


def _taken(plan: CopyPlan, at: Array, rows: Rows, block: Block) -> Array:
    """Take the rows of a tile, in memory that lies as the source does."""
    axis = plan.axis
    assert axis is not None
    wanted, whole = rows[block[axis]], (*block[:axis], slice(None), *block[axis + 1 :])
    order = sorted(range(at.ndim), key=lambda a: (a != axis, -abs(at.strides[a])))
    return at[whole].transpose(order)[wanted].transpose(np.argsort(order))


@lru_cache(maxsize=512)
def _blocks(plan: CopyPlan) -> list[Block] | None:
    """Cut a copy into tiles, the last axis running fastest; None where tiles do not pay."""
    last, fast = len(plan.lengths) - 1, plan.fast
    if plan.pure and plan.axis is None:
        if fast in (None, last) or plan.final.itemsize > 8:
            return None
        # NumPy comes back to a line of the source after everything behind the fast axis
        behind = math.prod(plan.lengths[fast + 1 :]) * min(abs(plan.at[last]), CACHE_LINE)
        if plan.lengths[last] > PLANES and behind <= NEAR_BYTES:
            return None
    inwards = [(axis, TILE_ITEMS) for axis in range(last, -1, -1)]
    if plan.axis is not None:  # whole rows, as many as fit
        grown = [one for one in inwards if one[0] != plan.axis] + inwards
    else:
        grown = [(last if fast is None else fast, FAST_RUN), inwards[0], *inwards]
    tile = [1] * len(plan.lengths)
    for axis, most in grown:
        room = TILE_ITEMS * tile[axis] // math.prod(tile)
        tile[axis] = max(tile[axis], min(plan.lengths[axis], most, room))
    cuts = [
        [slice(start, min(start + step, n)) for start in range(0, n, step)]
        for n, step in zip(plan.lengths, tile, strict=True)
    ]
    return list(itertools.product(*cuts))
