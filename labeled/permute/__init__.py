"""Permuting copies at the speed of memory: axes reordered, cast, scaled and shifted in one pass.

Positions only: no dim has a name here, and nothing here knows what an array holds. Callers that
know names turn them into axis numbers once, then ask for :func:`copy` or :func:`gather`.

What is decided here is *how* an array is copied: by tiles of plain NumPy, or NumPy's own copy
where that is as fast as memory, or by the kernels of :mod:`~labeled.permute.compiled` (the extra
``fast``), imported by the first copy large enough to earn the second that importing and
compiling them costs. CuPy arrays have a kernel of their own (:mod:`~labeled.permute.cuda`); those
of any other array-API library are served by its own functions. All ways give the same result; a
scaled copy multiplies and adds in two rounded steps on every one of them.

Tiles are the way without the extra, and the way of every dtype and stride that the kernels do not
know. NumPy's own copy walks the destination in order, so when the fast axis moves, each item read
costs a cache line. Here the same copy is cut into tiles whose source lines and destination lines
stay in the caches between visits; a short last axis (channels) is copied plane by plane, others
in strips of as many lines as the nearest cache holds. A cast with scale and shift is made in the
destination where its axes lie as those of the source do, else in one scratch tile in the order of
the *source*, where the arithmetic runs over contiguous memory; never in a full-size temporary.

The environment variable ``LABELED_FAST=0`` turns the compiled kernels off; it is read once, when
something is copied that they might copy.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from labeled import device
from labeled._numba import available
from labeled._threads import share
from labeled.errors import ArrayError, DimsError
from labeled.permute import compiled, cuda, plan
from labeled.permute.compiled import describe, forget
from labeled.permute.plan import CACHE_LINE, Array, CopyPlan, Rows, empty

__all__ = ["Taken", "available", "copy", "describe", "empty", "forget", "gather"]

TILE_ITEMS = 1 << 17  # items of a tile: it and its scratch stay in the caches

# what a copy may touch of the nearest cache before it comes back to a line, to find it there
NEAR_BYTES = 1 << 15

# lines so far apart take the same place of that cache, which holds a few of them only
WAY_BYTES = 1 << 12

# Items of a tile along the fast axis: long enough for NumPy's inner loops. As floats they are an
# odd number of lines, so that rows of scratch do not take the same places.
FAST_RUN = 1040

PLANES = 4  # longest last axis that is copied plane by plane

Block = tuple[slice, ...]


class Taken:
    """Rows of an array that are still to be gathered: :func:`copy` does it on the way.

    Parameters
    ----------
    src : array
        At least one axis; rows lie along axis 0.
    rows : 1-D array of integers

    Examples
    --------
    >>> taken = Taken(np.arange(12).reshape(4, 3), [3, 0])
    >>> taken.shape, copy(taken, (1, 0)).tolist()
    ((2, 3), [[9, 0], [10, 1], [11, 2]])
    """

    def __init__(self, src: Any, rows: Any) -> None:
        self.src, self.rows = src, rows
        self.shape, self.dtype, self.ndim = (len(rows), *src.shape[1:]), src.dtype, src.ndim

    def reshape(self, shape: Sequence[int]) -> Taken:
        """Return the same rows, each in another shape."""
        return Taken(self.src.reshape((len(self.src), *shape[1:])), self.rows)

    def gathered(self) -> Any:
        """Return the rows as an array."""
        return gather(self.src, self.rows, range(self.ndim))


def copy(
    src: Any,
    axes: Sequence[int],
    *,
    out: Any = None,
    dtype: Any = None,
    scale: Any = None,
    shift: Any = None,
    threads: int | None = None,
) -> Any:
    """Copy an array into another order of its axes, cast and scaled on the way.

    Parameters
    ----------
    src : array
        Any shape, dtype and strides. An array of another array-API library than NumPy stays in
        it and is served by that library's own functions (`out` and `threads` are NumPy's only).
    axes : sequence of int
        Axis ``k`` of the result is axis ``axes[k]`` of `src`.
    out : ndarray, optional
        C-contiguous destination of the result's shape and dtype, clear of `src`. Large ones are
        written fastest where they start at a cache line (64 bytes), as :func:`empty` makes them.
    dtype : dtype, optional
        Of the result. Not given: that of `src`, in this machine's byte order; or, where integers
        are scaled or shifted, float32 for integers of up to 32 bits and float64 for wider ones.
    scale, shift : scalar or array, optional
        The result is ``(src * scale + shift).astype(dtype)``. Arrays broadcast against `src`, in
        the order of *its* axes. Computed in float32 where `src` has at most 32 bits and the
        result is float32 or smaller, in float64 otherwise. Without both this is a plain cast,
        as ``astype`` makes it.
    threads : int, optional
        At most so many; not given: as many as pay. 1 never starts a thread.

    Returns
    -------
    ndarray
        `out`, or a new C-contiguous array.

    Raises
    ------
    DimsError
        If `axes` is not an order of the axes of `src`.
    ArrayError
        If `out`, `scale` or `shift` do not fit, or `out` shares memory with `src`.

    Examples
    --------
    >>> images = np.arange(24, dtype=np.uint8).reshape(2, 3, 2, 2)
    >>> copy(images, (0, 2, 3, 1)).shape
    (2, 2, 2, 3)
    >>> copy(images, (1, 2, 3, 0), scale=1 / 255).dtype
    dtype('float32')
    """
    return _copied(src, None, axes, out, dtype, scale, shift, threads)


def gather(
    src: Any,
    rows: Any,
    axes: Sequence[int],
    *,
    out: Any = None,
    dtype: Any = None,
    scale: Any = None,
    shift: Any = None,
    threads: int | None = None,
) -> Any:
    """Copy chosen rows of an array into another order of its axes, in one pass.

    Equal to ``copy(src[rows], axes, ...)`` without the array of gathered rows in between.

    Parameters
    ----------
    src : array
        At least one axis; rows lie along axis 0.
    rows : 1-D array of integers
        In any order, repeats allowed; negative ones count from the end.
    axes, out, dtype, scale, shift, threads
        As for :func:`copy`, with ``src[rows]`` in the place of `src`.

    Raises
    ------
    SelectionError
        If a row is not in `src`.
    SelectionTypeError
        If `rows` are not integers of rank 1.
    DimsError, ArrayError
        As for :func:`copy`.

    Examples
    --------
    >>> images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    >>> gather(images, [1, 0, 1], (2, 1, 0))[0]
    array([[12,  0, 12],
           [16,  4, 16],
           [20,  8, 20]], dtype=uint8)
    """
    if not isinstance(src, np.ndarray):
        _namespace(src)  # anything but an array is an error
    if src.ndim == 0:
        raise DimsError("an array of rank 0 has no rows to gather; pass rank 1 or more")
    chosen = plan.checked_rows(rows, src.shape[0])
    return _copied(src, chosen, axes, out, dtype, scale, shift, threads)


def _copied(
    src: Any, rows: Rows | None, axes: Sequence[int], out: Any, dtype: Any, scale: Any,
    shift: Any, threads: int | None,
) -> Any:  # fmt: skip
    if type(src) is not np.ndarray:
        if isinstance(src, Taken):
            src, rows = src.src, plan.checked_rows(src.rows, len(src.src))
        if not isinstance(src, np.ndarray | np.generic):
            return _in_its_library(src, rows, axes, out, dtype, scale, shift)
        src = np.asarray(src)
    if threads is not None and threads < 1:
        raise ArrayError(f"threads={threads} must be at least 1; or leave it out")
    found = plan.plan_of(
        src.shape, src.strides, src.dtype, tuple(axes), dtype,
        None if scale is None else np.asarray(scale).shape,
        None if shift is None else np.asarray(shift).shape, None if rows is None else rows.shape,
    )  # fmt: skip
    result = plan.checked_out(out, found.shape, found.final, src)
    if found.plain and found.moved_bytes < compiled.SHARE_BYTES:
        result[...] = src if found.still else src.transpose(found.order)
        return result
    if found.size == 0:
        return result
    if rows is not None and found.whole:
        np.take(src, rows, axis=0, out=result.reshape(len(rows), *src.shape[1:]), mode="clip")
        return result
    if found.scaled:
        scale = plan.checked_factor("scale", scale, found.compute)
        shift = plan.checked_factor("shift", shift, found.compute)
    if not compiled.run(found, result, src, rows, scale, shift, threads):
        _by_tiles(found, result, src, rows, scale, shift, threads)
    return result


# ---------------------------------------------------------------- tiles, by NumPy alone
def _by_tiles(
    copied: CopyPlan, dst: Array, src: Array, rows: Rows | None, scale: Array | None,
    shift: Array | None, threads: int | None,
) -> None:  # fmt: skip
    """Write ``src * scale + shift`` into `dst` tile by tile, on up to so many threads."""
    blocks = _blocks(copied)
    if blocks is None:
        dst[...] = src.transpose(copied.order)
        return
    lengths = [n if a != copied.axis else len(src) for a, n in enumerate(copied.lengths)]
    to, at = dst.reshape(copied.lengths), src.transpose(copied.order).reshape(lengths)
    steps = [
        (apply, copied.over_axes(factor, src.ndim))
        for apply, factor in ((np.multiply, scale), (np.add, shift))
        if factor is not None
    ]
    in_place = copied.compute == copied.final and copied.fast in (None, len(lengths) - 1)

    def work(first: int, last: int) -> None:
        scratch = None
        for block in blocks[first:last]:
            part, here = at[block] if rows is None else _taken(copied, at, rows, block), to[block]
            if copied.pure or in_place:
                scratch = here
            elif scratch is None or scratch.shape != part.shape:
                scratch = np.empty_like(part, copied.compute)  # lies as the source does
            if part.dtype != copied.compute:
                np.copyto(scratch, part, casting="unsafe")
                part = scratch
            for apply, factor in steps:
                taken = zip(block, factor.shape, strict=True)
                cut = factor[tuple(slice(None) if n == 1 else cut for cut, n in taken)]
                apply(part, cut, out=scratch)
                part = scratch
            if part is not here:
                _move(here, part)

    share(work, len(blocks), compiled.worth_threads(threads, copied.moved_bytes))


def _move(dst: Array, src: Array) -> None:
    """Copy `src` into `dst` of equal shape, by planes or in strips whose lines stay near."""
    n = dst.shape[-1]
    step = 1 if n <= PLANES else NEAR_BYTES // _taken_up(src.strides[-1])
    for start in range(0, n, step):
        np.copyto(dst[..., start : start + step], src[..., start : start + step], casting="unsafe")


def _taken_up(step: int) -> int:
    """Return how many bytes of the nearest cache each of many items takes, `step` bytes apart."""
    return max(min(abs(step), CACHE_LINE), math.gcd(step, WAY_BYTES))


def _taken(copied: CopyPlan, at: Array, rows: Rows, block: Block) -> Array:
    """Take the rows of a tile, in memory that lies as the source does."""
    axis = copied.axis
    assert axis is not None
    wanted, whole = rows[block[axis]], (*block[:axis], slice(None), *block[axis + 1 :])
    order = sorted(range(at.ndim), key=lambda a: (a != axis, -abs(at.strides[a])))
    return at[whole].transpose(order)[wanted].transpose(np.argsort(order))


@lru_cache(maxsize=512)
def _blocks(copied: CopyPlan) -> list[Block] | None:
    """Cut a copy into tiles, the last axis running fastest; None where tiles do not pay."""
    last, fast = len(copied.lengths) - 1, copied.fast
    if copied.pure and copied.axis is None:
        if fast in (None, last) or copied.final.itemsize > 8:
            return None
        # NumPy comes back to a line of the source after everything behind the fast axis
        behind = math.prod(copied.lengths[fast + 1 :]) * _taken_up(copied.at[last])
        if copied.lengths[last] > PLANES and behind <= NEAR_BYTES:
            return None
    inwards = [(axis, TILE_ITEMS) for axis in range(last, -1, -1)]
    if copied.axis is not None:  # whole rows, as many as fit
        grown = [one for one in inwards if one[0] != copied.axis] + inwards
    else:
        grown = [(last if fast is None else fast, FAST_RUN), inwards[0], *inwards]
    tile = [1] * len(copied.lengths)
    for axis, most in grown:
        room = TILE_ITEMS * tile[axis] // math.prod(tile)
        tile[axis] = max(tile[axis], min(copied.lengths[axis], most, room))
    cuts = [
        [slice(start, min(start + step, n)) for start in range(0, n, step)]
        for n, step in zip(copied.lengths, tile, strict=True)
    ]
    return list(itertools.product(*cuts))


# ---------------------------------------------------------------- any other library
def _namespace(src: Any) -> Any:
    try:
        return device.namespace(src)
    except TypeError:
        what = type(src).__name__
        raise ArrayError(f"{what} is not an array; pass numpy.asarray(...) of it") from None


def _in_its_library(
    src: Any, rows: Rows | None, axes: Sequence[int], out: Any, dtype: Any, scale: Any, shift: Any
) -> Any:
    """Permute, cast and scale where `src` is; the same rules as for NumPy arrays."""
    xp = _namespace(src)
    if out is not None:
        raise ArrayError(f"out is for NumPy arrays; leave it out for {type(src).__name__}")
    order = plan.checked_order(axes, src.ndim)
    with device.kernels_at(src):
        if device.is_cupy(src):
            src = cuda.aligned(src)
            made = cuda.copied(src, rows, order, dtype, scale, shift)
            if made is not None:
                return made
        if dtype is not None and not isinstance(dtype, str | type | np.dtype):
            dtype = str(dtype).rpartition(".")[2]  # "torch.float32" and the like
        held = device.dtype_of(src)
        final = plan.result_dtype(held, dtype, scale is not None or shift is not None)
        result = src if rows is None else xp.take(src, xp.asarray(rows), axis=0)
        there = {} if device.is_cupy(src) else {"device": src.device}  # CuPy's is current
        for factor, apply in ((scale, operator.mul), (shift, operator.add)):
            if factor is not None:
                result = device.astype(result, plan.compute_dtype(held, final))
                result = apply(result, xp.asarray(factor, dtype=result.dtype, **there))
        return device.owned_copy(device.astype(xp.permute_dims(result, order), final))
