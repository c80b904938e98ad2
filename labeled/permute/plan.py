"""How a copy is described: decided once for a shape, from integers and dtypes alone.

No array is seen here and no byte is moved, so a plan is kept and used again for every batch of
the same shape. A copy is described in the order of its *destination*, with axes that move
together merged: the lengths of the axes and, for source and destination alike, how many bytes one
step along each is worth.

Two axes matter, whatever the rank. The *fast* axis is the one along which the source is
contiguous; the last axis is the one along which the destination is. When they are the same, the
copy is a series of runs. When they differ, every copy is a batch of matrix transposes, and the
trick is to visit it in tiles small enough to stay in the nearest cache, in whole cache lines on
both sides.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import ArrayError
from labeled.permute.arguments import Array, checked_order, compute_dtype, result_dtype

MOVED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Pure moves see items as unsigned integers: one kernel for every dtype of a width."""

CAST_FROM = frozenset("?bBhHiIlLqQfd")
CAST_TO = frozenset("fd")

WIDE_ITEMS = 4096
"""Factors that change along a short last axis are repeated up to so many items."""

Shape = tuple[int, ...]


class Request(NamedTuple):
    """What makes one plan serve another call: lengths, steps and dtypes, no addresses."""

    shape: Shape
    strides: Shape
    dtype: np.dtype[Any]
    axes: Shape
    final: Any
    scale: Shape | None
    """The shape of the scale; None without one."""
    shift: Shape | None
    n_rows: int | None


@dataclass(frozen=True, eq=False)
class CopyPlan:
    """A copy in the destination's order; `lengths` and steps are those of the merged axes.

    Plans are kept, one for a request, so what follows from one is found by its identity.
    """

    order: Shape
    shape: Shape
    item: np.dtype[Any]
    final: np.dtype[Any]
    compute: np.dtype[Any]
    scaled: bool
    groups: tuple[Shape, ...]
    repeat: int
    """How often factors along a short last axis are repeated along the one before."""
    lengths: Shape
    to: Shape
    """Bytes of a step in the destination."""
    at: Shape
    """Bytes of a step in the source."""
    varies: tuple[bool, ...]
    """Along which axes scale or shift change."""
    axis: int | None
    """The one that rows are gathered along."""
    fast: int | None
    size: int
    pure: bool
    """Whether items only move."""
    moved_bytes: int
    """Bytes read and written."""

    def over_axes(self, factor: Array, ndim: int) -> Array:
        """Return a scale or shift over the merged axes, with length 1 where it is the same."""
        whole = factor.reshape((1,) * (ndim - factor.ndim) + factor.shape).transpose(self.order)
        n_along = whole.shape.__getitem__
        merged = whole.reshape([math.prod(map(n_along, group)) for group in self.groups])
        return np.tile(merged, self.repeat) if merged.shape[-1] > 1 else merged


@lru_cache(maxsize=512)
def plan(request: Request) -> CopyPlan:
    """Check a request and plan it; raises what :mod:`~labeled.permute.arguments` raises."""
    order = checked_order(request.axes, len(request.shape))
    scaled = request.scale is not None or request.shift is not None
    final = result_dtype(request.dtype, request.final, scaled)
    compute = compute_dtype(request.dtype, final) if scaled else final
    lengths = request.shape if request.n_rows is None else (request.n_rows, *request.shape[1:])
    shape = tuple(map(lengths.__getitem__, order))
    steps = [packed(shape, final.itemsize), tuple(map(request.strides.__getitem__, order))]
    for name, factor in (("scale", request.scale), ("shift", request.shift)):
        if factor is not None:
            steps.append(_factor_steps(name, factor, lengths, order))
    gathered = None if request.n_rows is None else order.index(0)
    groups = ((),) if 0 in shape else merged_axes(shape, steps, gathered) or ((),)
    axis = groups.index((gathered,)) if (gathered,) in groups else None
    merged, to, at, varies, fast = [], [], [], [], None
    for number, group in enumerate(groups):
        step, src_step, *others = [one[group[-1]] if group else 0 for one in steps]
        merged.append(math.prod(map(shape.__getitem__, group)))
        to.append(step)
        at.append(src_step)
        varies.append(any(others))
        if src_step == request.dtype.itemsize and number != axis:
            fast = number
    repeat = _repeat(merged, to, at, varies, axis)
    if repeat > 1:
        merged[-2:] = [merged[-2] // repeat, merged[-1] * repeat]
        to[-2], at[-2] = to[-2] * repeat, at[-2] * repeat
    size = math.prod(shape)
    return CopyPlan(
        order, shape, request.dtype, final, compute, scaled, groups, repeat,
        tuple(merged), tuple(to), tuple(at), tuple(varies), axis, fast, size,
        not scaled and request.dtype == final, size * (request.dtype.itemsize + final.itemsize),
    )  # fmt: skip


def merged_axes(
    shape: Sequence[int], steps: Sequence[Sequence[int]], barrier: int | None = None
) -> tuple[Shape, ...]:
    """Return the axes in groups that move together, without those of length 1.

    Parameters
    ----------
    shape : sequence of int
        Lengths, in the order of the destination; none is zero.
    steps : sequences of int
        Steps along those axes, one sequence for each array that takes part.
    barrier : int, optional
        An axis that stays alone and is never dropped: the one that rows are gathered along.

    Examples
    --------
    >>> merged_axes((3, 32, 32, 256), [(1024, 32, 1, 3072), (262144, 8192, 256, 1)])
    ((0, 1, 2), (3,))
    >>> merged_axes((256, 1, 28, 28), [(784, 784, 28, 1), (784, 784, 28, 1)], barrier=0)
    ((0,), (2, 3))
    """
    groups: list[list[int]] = []
    for axis, length in enumerate(shape):
        if length == 1 and axis != barrier:
            continue
        before = groups[-1][-1] if groups else -1
        joins = before >= 0 and barrier not in (axis, before)
        for step in steps:
            joins = joins and step[before] == length * step[axis]
        if joins:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return tuple(map(tuple, groups))


def packed(shape: Sequence[int], itemsize: int) -> Shape:
    """Return the strides of a C-contiguous array.

    Examples
    --------
    >>> packed((2, 3, 5), 4)
    (60, 20, 4)
    """
    steps = accumulate(reversed(shape), operator.mul, initial=itemsize)
    return tuple(steps)[-2::-1]


def _factor_steps(name: str, found: Shape, lengths: Shape, order: Shape) -> Shape:
    """Return the items of a step along each axis of the result; 0 where a factor is the same."""
    whole = (1,) * (len(lengths) - len(found)) + found
    fits = len(whole) == len(lengths)
    for n, length in zip(whole, lengths, strict=fits):
        fits = fits and n in (1, length)
    if not fits:
        raise ArrayError(
            f"{name} of shape {found} does not broadcast against the data of shape {lengths}; "
            f"a factor for each step of one axis has length 1 along all others"
        )
    steps = np.where(np.equal(whole, 1), 0, packed(whole, 1))
    return tuple(steps[list(order)].tolist())


def _repeat(
    lengths: list[int], to: list[int], at: list[int], varies: list[bool], axis: int | None
) -> int:
    """Return how often factors along a short last axis are repeated along the one before."""
    last = len(lengths) - 1
    if last < 1 or not varies[last] or varies[last - 1] or axis in (last, last - 1):
        return 1
    n = lengths[last]
    if n >= 64 or to[last - 1] != n * to[last] or at[last - 1] != n * at[last]:
        return 1
    fits = range(1, min(lengths[last - 1], WIDE_ITEMS // n) + 1)
    return max(q for q in fits if lengths[last - 1] % q == 0)
