"""How a copy is made: decided once for a shape, from integers and dtypes alone.

No array is seen here, so a plan is kept and used again for every batch of the same shape. The
copy is described in the order of the destination, with axes that move together merged, and cut
into its *fast* axis (the source is contiguous along it), its *rows* (axes along which the
destination is contiguous, taken as one), and everything else, the *outer* axes:

* ``runs``: the fast axis is last in the destination too; rows are runs to be cast. Runs that
  only move are left to NumPy.
* ``weaves``: two to four rows; planes become interleaved pixels.
* ``unweaves``: a fast axis of length two to four beside the rows; pixels become planes.
* ``tiles``: anything else, a batch of matrix transposes.

Scale and shift become one small table over (outer, fast, row), of length 1 where nothing depends
on it. What no kernel does well has no cut and is left to NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import ArrayError
from labeled.permute import arguments, layout

MOVED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Pure moves see items as unsigned integers: one kernel for every dtype of a width."""

CAST_FROM = frozenset("?bBhHiIlLqQfd")
CAST_TO = frozenset("fd")

ENOUGH_ROW_BYTES = 256
"""Axes join the rows until a row of the destination is so long."""

ENOUGH_RUNS = 1024
"""Axes join the rows of ``runs`` until there are so many."""

SMALL_TILE_BYTES = 256
"""Pure moves of matrices smaller than this (16 x 16 bytes, 8 x 8 floats) are left to NumPy."""

SHORT_RUN_BYTES = 512
"""Runs up to this are moved by NumPy as one item each: u8 rows of 28 and 32 bytes 1.7 to 3.5 times
as fast as item by item, f4 rows of 128 bytes 1.1 to 1.6 times."""

FACTOR_SHARE = 4
"""A table of factors may have one entry for so many items; beyond, NumPy does as well."""

WIDE_ITEMS = 4096
"""Factors that change along a short last axis are repeated up to so many items."""


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


@dataclass(frozen=True, slots=True)
class Cut:
    """The merged axes by the part they play, for one kernel."""

    kernel: str
    item: np.dtype[Any]
    final: np.dtype[Any]
    fast: int
    rows: tuple[int, ...]
    outer: tuple[int, ...]
    kept: tuple[bool, bool, bool]
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
    lengths: tuple[int, ...]
    dst_strides: tuple[int, ...]
    src_strides: tuple[int, ...]
    axis: int | None
    cut: Cut | None

    @cached_property
    def tiled(self) -> bool:
        """Whether NumPy alone should make a pure move in tiles."""
        args = (self.lengths, self.dst_strides, self.src_strides, self.final.itemsize)
        return layout.move_tile(*args) is not None

    @cached_property
    def in_runs(self) -> bool:
        """Whether the fast axis stays: items that lie together do so on both sides."""
        last = len(self.lengths) - 1
        return self.src_strides[last] == self.dst_strides[last] and self.axis != last

    @cached_property
    def run_item(self) -> np.dtype[Any] | None:
        """A short run of a large pure move as one item; None where there are none."""
        n_bytes = self.lengths[-1] * self.final.itemsize
        plain = self.final.kind in "biufcmMV" and not self.final.hasobject
        short = self.in_runs and len(self.lengths) > 1 and n_bytes <= SHORT_RUN_BYTES
        return np.dtype((np.void, n_bytes)) if short and plain else None

    @cached_property
    def moved(self) -> bool:
        """Whether any axis goes elsewhere."""
        return self.order != tuple(range(len(self.order)))

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)


@lru_cache(maxsize=512)
def plan(request: Request) -> Plan:
    """Check a request and plan it; raises what :mod:`~labeled.permute.arguments` raises."""
    ndim = len(request.shape)
    order = arguments.checked_order(request.axes, ndim)
    scaled = request.scale_shape is not None or request.shift_shape is not None
    final = arguments.result_dtype(request.dtype, request.final, scaled)
    compute = arguments.compute_dtype(request.dtype, final) if scaled else final
    lengths = request.shape if request.n_rows is None else (request.n_rows, *request.shape[1:])
    shape = tuple(lengths[axis] for axis in order)
    factors = [
        _factor_steps(name, found, lengths, order)
        for name, found in (("scale", request.scale_shape), ("shift", request.shift_shape))
        if found is not None
    ]
    dst_strides = _packed(shape, final.itemsize)
    src_strides = tuple(request.strides[axis] for axis in order)
    axis = None if request.n_rows is None else order.index(0)
    groups: tuple[tuple[int, ...], ...] = ()
    if 0 not in shape:
        steps = (dst_strides, src_strides, *factors)
        groups = layout.merged_axes(shape, *steps, barrier=axis)
    merged = [math.prod(shape[a] for a in group) for group in groups] or [1]
    dst = [dst_strides[group[-1]] for group in groups] or [final.itemsize]
    src = [src_strides[group[-1]] for group in groups] or [request.dtype.itemsize]
    varies = [any(f[group[-1]] for f in factors) for group in groups] or [False]
    at = None if axis is None or not groups else groups.index((axis,))
    pure = not scaled and request.dtype == final
    repeat = _repeat(merged, dst, src, varies, at)
    if repeat > 1:
        merged[-2:] = [merged[-2] // repeat, merged[-1] * repeat]
        dst[-2], src[-2] = dst[-2] * repeat, src[-2] * repeat
    draft = Plan(
        order, shape, final, compute, pure, groups, repeat, tuple(merged), tuple(dst), tuple(src),
        at, None,
    )  # fmt: skip
    return _with_cut(draft, request.dtype, varies) if groups else draft


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
    steps = [itemsize]
    for length in reversed(shape[1:]):
        steps.append(steps[-1] * length)
    return tuple(reversed(steps[: len(shape)]))


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


def _with_cut(draft: Plan, src: np.dtype[Any], varies: list[bool]) -> Plan:
    items = _items(draft, src)
    parts = None if items is None else _parts(draft, src.itemsize)
    if items is None or parts is None:
        return draft
    kernel, fast, rows = parts
    outer = [a for a in range(len(draft.lengths)) if a != fast and a not in rows]
    kept = [any(varies[axis] for axis in part) for part in (outer, (fast,), rows)]
    woven = {"weaves": 2, "unweaves": 1}.get(kernel)
    if woven is not None:
        if kept[3 - woven]:
            return draft
        kept[woven] = not draft.pure
    table = math.prod(
        math.prod(draft.lengths[axis] for axis in part)
        for part, whole in zip((outer, (fast,), rows), kept, strict=True)
        if whole
    )
    if table > max(64, draft.size // FACTOR_SHARE):
        return draft
    varied = (kept[0], kept[1], kept[2])
    cut = Cut(kernel, items[0], items[1], fast, rows, tuple(outer), varied)
    return replace(draft, cut=cut)


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


def _parts(draft: Plan, item_bytes: int) -> tuple[str, int, tuple[int, ...]] | None:
    """Choose the kernel, the fast axis and the rows."""
    lengths, dst, axis = draft.lengths, draft.dst_strides, draft.axis
    last = len(lengths) - 1
    steps = [0 if a == axis else step for a, step in enumerate(draft.src_strides)]
    fast = layout.fast_axis(steps, item_bytes)
    if fast is None:
        return None
    if fast == last:  # NumPy moves runs as fast as anybody
        rows = _joined(draft, range(last - 1, -1, -1), ENOUGH_RUNS)
        return None if draft.pure else ("runs", fast, rows)
    final_bytes = draft.final.itemsize
    rows = _joined(draft, range(last, fast, -1), ENOUGH_ROW_BYTES // final_bytes)
    n_rows = math.prod(lengths[a] for a in rows)
    narrow = 16 // final_bytes
    if 2 <= n_rows <= 4 and lengths[fast] >= narrow and dst[fast] == n_rows * final_bytes:
        return "weaves", fast, rows
    pixel = lengths[fast] * item_bytes
    if 2 <= lengths[fast] <= 4 and lengths[last] >= narrow and steps[last] == pixel:
        return "unweaves", fast, (last,)
    if draft.pure and n_rows * lengths[fast] * item_bytes < SMALL_TILE_BYTES:
        return None
    return "tiles", fast, rows


def _joined(draft: Plan, axes: Sequence[int], enough: int) -> tuple[int, ...]:
    """Return the first of `axes`, from inner to outer, that are one run of the destination."""
    chosen: list[int] = []
    items = 1
    for axis in axes:
        if chosen and items >= enough:
            break
        chosen.insert(0, axis)
        items *= draft.lengths[axis]
    return tuple(chosen)
