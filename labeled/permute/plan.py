"""How a copy is made: decided once for a shape, from integers and dtypes alone.

No array is seen here and no byte is moved, so a plan is kept and used again for every batch of
the same shape. A copy is described in the order of its *destination*, with axes that move
together merged: the lengths of the axes and, for source and destination alike, how many bytes one
step along each is worth.

Two axes matter, whatever the rank. The *fast* axis is the one along which the source is
contiguous; the last axis is the one along which the destination is. When they are the same, the
copy is a series of runs. When they differ, every copy is a batch of matrix transposes, and the
trick is to visit it in tiles small enough to stay in the nearest cache, in whole cache lines on
both sides. The compiled kernels see a copy as its fast axis, its *rows* (axes along which the
destination is contiguous, taken as one), and everything else, the *outer* axes:

* ``runs``: the fast axis is last in the destination too. Long runs that only move are left to
  NumPy.
* ``weaves``: two to four rows; planes become interleaved pixels.
* ``unweaves``: a fast axis of length two to four beside the rows; pixels become planes.
* ``tiles``: anything else.

Scale and shift become one small table over (outer, fast, row), of length 1 where nothing depends
on it. What no kernel does well is left to NumPy, which makes it in tiles of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import ArrayError
from labeled.permute.arguments import CACHE_LINE, checked_order, compute_dtype, result_dtype

MOVED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Pure moves see items as unsigned integers: one kernel for every dtype of a width."""

CAST_FROM = frozenset("?bBhHiIlLqQfd")
CAST_TO = frozenset("fd")

ENOUGH_ROW_BYTES = 256
"""Axes join the rows until a row of the destination is so long."""

ENOUGH_RUNS = 1024
"""Axes join the rows of ``runs`` until there are so many."""

SHORT_RUN_BYTES = 64
"""Runs up to this are moved by a kernel, longer ones as fast by NumPy."""

SMALL_TILE_BYTES = 256
"""Pure moves of matrices smaller than this (16 x 16 bytes, 8 x 8 floats) are left to NumPy."""

FACTOR_SHARE = 4
"""A table of factors may have one entry for so many items; beyond, NumPy does as well."""

WIDE_ITEMS = 4096
"""Factors that change along a short last axis are repeated up to so many items."""

TILE_ITEMS = 1 << 16
"""Items of a tile that NumPy moves or converts: it and its scratch stay in the caches."""

NEAR_BYTES = 1 << 17
"""What NumPy's own copy may touch before it comes back to a line, to find it still near."""

FAST_RUN = 1024
"""Items of a tile along the fast axis: long enough for NumPy's inner loops."""

PLANES = 4
"""Longest last axis that NumPy copies plane by plane."""


class Request(NamedTuple):
    """What makes one plan serve another call: lengths, steps and dtypes, no addresses."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    axes: tuple[int, ...]
    final: Any
    scale_shape: tuple[int, ...] | None
    shift_shape: tuple[int, ...] | None
    n_rows: int | None


@dataclass(frozen=True)
class Cut:
    """The merged axes by the part they play, for one kernel."""

    kernel: str
    item: np.dtype[Any]
    final: np.dtype[Any]
    fast: int
    rows: tuple[int, ...]
    outer: tuple[int, ...]
    kept: tuple[bool, ...]
    """Whether factors change along (outer, fast, rows)."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A copy in the destination's order; `lengths` and strides are those of the merged axes.

    Plans are kept, one for a request, so what follows from one is found by its identity.
    """

    order: tuple[int, ...]
    shape: tuple[int, ...]
    final: np.dtype[Any]
    compute: np.dtype[Any]
    pure: bool
    groups: tuple[tuple[int, ...], ...]
    repeat: int
    """How often factors along a short last axis are repeated along the one before."""
    lengths: tuple[int, ...]
    dst_strides: tuple[int, ...]
    src_strides: tuple[int, ...]
    axis: int | None
    """The one that rows are gathered along."""
    fast: int | None
    cut: Cut | None = None

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def tile(self) -> tuple[int, ...] | None:
        """How many steps along each axis NumPy takes at a time; None for all at once."""
        if self.pure and self.axis is None and not self._tiles_pay():
            return None
        tile = [1] * len(self.lengths)
        first = [len(tile) - 1] if self.fast is None else [self.fast, len(tile) - 1]
        limits = {self.fast: FAST_RUN}
        if self.axis is not None:  # whole rows, as many as fit
            first, limits = [a for a in range(len(tile)) if a != self.axis], {}
        elif len(first) == 2 and self.lengths[-1] > PLANES:
            limits[first[1]] = max(16, TILE_ITEMS // min(self.lengths[first[0]], FAST_RUN))
        for axis in (*first, *range(len(tile) - 1, -1, -1), *first):
            room = max(1, TILE_ITEMS * tile[axis] // math.prod(tile))
            tile[axis] = max(tile[axis], min(self.lengths[axis], room, limits.pop(axis, room)))
        return tuple(tile)

    def _tiles_pay(self) -> bool:
        """Whether NumPy, which walks the destination, comes back to lines that are no longer near.

        That is after everything behind the fast axis.
        """
        last = len(self.lengths) - 1
        if self.fast in (None, last) or self.final.itemsize > 8:
            return False
        assert self.fast is not None
        step = min(abs(self.src_strides[last]), CACHE_LINE)
        behind = math.prod(self.lengths[self.fast + 1 :]) * step
        return self.lengths[last] <= PLANES or behind > NEAR_BYTES


@lru_cache(maxsize=512)
def plan(request: Request) -> Plan:
    """Check a request and plan it; raises what :mod:`~labeled.permute.arguments` raises."""
    order = checked_order(request.axes, len(request.shape))
    scaled = request.scale_shape is not None or request.shift_shape is not None
    final = result_dtype(request.dtype, request.final, scaled)
    compute = compute_dtype(request.dtype, final) if scaled else final
    lengths = request.shape if request.n_rows is None else (request.n_rows, *request.shape[1:])
    shape = tuple(lengths[axis] for axis in order)
    factors = [
        _factor_steps(name, found, lengths, order)
        for name, found in (("scale", request.scale_shape), ("shift", request.shift_shape))
        if found is not None
    ]
    gathered = None if request.n_rows is None else order.index(0)
    dst = _packed(shape, final.itemsize)
    src = tuple(request.strides[axis] for axis in order)
    groups = () if 0 in shape else merged_axes(shape, dst, src, *factors, barrier=gathered)
    merged = [math.prod(shape[a] for a in group) for group in groups] or [1]
    steps = [[s[group[-1]] for group in groups] or [0] for s in (dst, src, *factors)]
    varies = [any(each) for each in zip(*steps[2:], strict=True)] or [False] * len(merged)
    axis = None if gathered is None or not groups else groups.index((gathered,))
    repeat = _repeat(merged, steps[0], steps[1], varies, axis)
    if repeat > 1:
        merged[-2:] = [merged[-2] // repeat, merged[-1] * repeat]
        for step in steps[:2]:
            step[-2] *= repeat
    along = [0 if a == axis else step for a, step in enumerate(steps[1])]
    draft = Plan(
        order, shape, final, compute, not scaled and request.dtype == final, groups, repeat,
        tuple(merged), tuple(steps[0]), tuple(steps[1]), axis,
        fast_axis(along, request.dtype.itemsize),
    )  # fmt: skip
    return replace(draft, cut=_cut(draft, request.dtype, varies)) if groups else draft


def merged_axes(
    shape: Sequence[int], *strides: Sequence[int], barrier: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """Return the axes in groups that move together, without those of length 1.

    Parameters
    ----------
    shape : sequence of int
        Lengths, in the order of the destination; none is zero.
    strides : sequences of int
        Byte steps along those axes, one sequence for each array that takes part.
    barrier : int, optional
        An axis that stays alone and is never dropped: the one that rows are gathered along.

    Examples
    --------
    >>> merged_axes((3, 32, 32, 256), (1024, 32, 1, 3072), (262144, 8192, 256, 1))
    ((0, 1, 2), (3,))
    >>> merged_axes((256, 1, 28, 28), (784, 784, 28, 1), (784, 784, 28, 1), barrier=0)
    ((0,), (2, 3))
    """
    groups: list[list[int]] = []
    for axis, length in enumerate(shape):
        if length == 1 and axis != barrier:
            continue
        before = groups[-1][-1] if groups else -1
        joins = before >= 0 and barrier not in (axis, before)
        if joins and all(s[before] == length * s[axis] for s in strides):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return tuple(tuple(group) for group in groups)


def fast_axis(strides: Sequence[int], itemsize: int) -> int | None:
    """Return the axis along which neighbours touch in the source, the last of several.

    Examples
    --------
    >>> fast_axis((1024, 1, 3072), 1)
    1
    >>> fast_axis((2048, 2), 1) is None
    True
    """
    return max((a for a, step in enumerate(strides) if step == itemsize), default=None)


def blocks(shape: Sequence[int], tile: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Cut an index space into tiles, the last axis running fastest.

    Examples
    --------
    >>> [(a.start, b.start, b.stop) for a, b in blocks((2, 5), (1, 3))]
    [(0, 0, 3), (0, 3, 5), (1, 0, 3), (1, 3, 5)]
    """
    if not shape:
        yield ()
        return
    for start in range(0, shape[0], tile[0]):
        head = slice(start, min(start + tile[0], shape[0]))
        for rest in blocks(shape[1:], tile[1:]):
            yield (head, *rest)


def _factor_steps(
    name: str, found: tuple[int, ...], lengths: tuple[int, ...], order: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the items of a step along each axis of the result; 0 where a factor is the same."""
    whole = (1,) * (len(lengths) - len(found)) + found
    if len(whole) != len(lengths) or any(
        n not in (1, length) for n, length in zip(whole, lengths, strict=True)
    ):
        raise ArrayError(
            f"{name} of shape {found} does not broadcast against the data of shape {lengths}; "
            f"a factor for each step of one axis has length 1 along all others"
        )
    steps = _packed(whole, 1)
    return tuple(0 if whole[axis] == 1 else steps[axis] for axis in order)


def _packed(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Return the strides of a C-contiguous array."""
    return tuple(math.prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape)))


def _repeat(
    lengths: list[int], dst: list[int], src: list[int], varies: list[bool], axis: int | None
) -> int:
    """Return how often factors along a short last axis are repeated along the one before."""
    last = len(lengths) - 1
    if last < 1 or not varies[last] or varies[last - 1] or axis in (last, last - 1):
        return 1
    n = lengths[last]
    if n >= 64 or dst[last - 1] != n * dst[last] or src[last - 1] != n * src[last]:
        return 1
    fits = range(1, min(lengths[last - 1], WIDE_ITEMS // n) + 1)
    return max(q for q in fits if lengths[last - 1] % q == 0)


def _cut(draft: Plan, src: np.dtype[Any], varies: list[bool]) -> Cut | None:
    """Return the kernel and what it sees; None where NumPy makes the copy."""
    items = _items(draft, src)
    if items is None or draft.fast is None:
        return None
    fast, lengths, size = draft.fast, draft.lengths, draft.final.itemsize
    last = len(lengths) - 1
    if fast == last:
        kernel, rows = "runs", _joined(lengths, range(last - 1, -1, -1), ENOUGH_RUNS)
        if draft.pure and (lengths[last] * size > SHORT_RUN_BYTES or draft.axis is not None):
            return None
    else:
        kernel, rows = "tiles", _joined(lengths, range(last, fast, -1), ENOUGH_ROW_BYTES // size)
        n_rows = math.prod(lengths[a] for a in rows)
        step = draft.src_strides[last] if draft.axis != last else 0
        if 2 <= n_rows <= 4 and draft.dst_strides[fast] == n_rows * size:
            kernel = "weaves"
        elif 2 <= lengths[fast] <= 4 and step == lengths[fast] * src.itemsize:
            kernel, rows = "unweaves", (last,)
        elif draft.pure and n_rows * lengths[fast] * size < SMALL_TILE_BYTES:
            return None
    outer = tuple(a for a in range(len(lengths)) if a != fast and a not in rows)
    kept = [any(varies[axis] for axis in part) for part in (outer, (fast,), rows)]
    woven = {"weaves": 2, "unweaves": 1}.get(kernel)
    if woven is not None:
        if kept[3 - woven]:
            return None
        kept[woven] = not draft.pure
    table = math.prod(
        math.prod(lengths[axis] for axis in part)
        for part, whole in zip((outer, (fast,), rows), kept, strict=True)
        if whole
    )
    if table > max(64, draft.size // FACTOR_SHARE):
        return None
    return Cut(kernel, items[0], items[1], fast, rows, outer, tuple(kept))


def _items(draft: Plan, src: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Return the item types that a kernel would see, or None where it cannot."""
    if draft.pure:
        moved = MOVED.get(src.itemsize)
        known = moved is not None and src.kind in "biufcmMV" and not src.hasobject
        return (np.dtype(moved), np.dtype(moved)) if known else None
    final = draft.final
    native = src.isnative and final.isnative and draft.compute == final
    if not native or src.char not in CAST_FROM or final.char not in CAST_TO:
        return None
    return (np.dtype(np.uint8) if src.kind == "b" else src), final


def _joined(lengths: Sequence[int], axes: Sequence[int], enough: int) -> tuple[int, ...]:
    """Return the first of `axes`, from inner to outer, that are one run of the destination."""
    chosen: list[int] = []
    items = 1
    for axis in axes:
        if chosen and items >= enough:
            break
        chosen.insert(0, axis)
        items *= lengths[axis]
    return tuple(chosen)
