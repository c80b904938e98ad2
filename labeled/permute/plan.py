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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
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
class Plan:
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

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)

    @cached_property
    def pure(self) -> bool:
        """Whether items only move."""
        return not self.scaled and self.item == self.final

    @cached_property
    def moved_bytes(self) -> int:
        """Bytes read and written."""
        return self.size * (self.item.itemsize + self.final.itemsize)

    def over_axes(self, factor: Array, ndim: int) -> Array:
        """Return a scale or shift over the merged axes, with length 1 where it is the same."""
        whole = factor.reshape((1,) * (ndim - factor.ndim) + factor.shape).transpose(self.order)
        merged = whole.reshape([math.prod(whole.shape[a] for a in one) for one in self.groups])
        return np.tile(merged, self.repeat) if merged.shape[-1] > 1 else merged


@lru_cache(maxsize=512)
def plan(request: Request) -> Plan:
    """Check a request and plan it; raises what :mod:`~labeled.permute.arguments` raises."""
    order = checked_order(request.axes, len(request.shape))
    scaled = request.scale is not None or request.shift is not None
    final = result_dtype(request.dtype, request.final, scaled)
    compute = compute_dtype(request.dtype, final) if scaled else final
    lengths = request.shape if request.n_rows is None else (request.n_rows, *request.shape[1:])
    shape = tuple(lengths[axis] for axis in order)
    steps = [packed(shape, final.itemsize), tuple(request.strides[axis] for axis in order)]
    for name, factor in (("scale", request.scale), ("shift", request.shift)):
        if factor is not None:
            whole = _checked_factor_shape(name, factor, lengths)
            step = [0 if n == 1 else s for n, s in zip(whole, packed(whole, 1), strict=True)]
            steps.append(tuple(step[axis] for axis in order))
    gathered = None if request.n_rows is None else order.index(0)
    groups = ((),) if 0 in shape else merged_axes(shape, steps, gathered) or ((),)
    merged = [math.prod(shape[a] for a in group) for group in groups]
    to, at, *others = ([s[group[-1]] if group else 0 for group in groups] for s in steps)
    varies = [any(step[a] for step in others) for a in range(len(merged))]
    axis = groups.index((gathered,)) if (gathered,) in groups else None
    repeat = _repeat(merged, to, at, varies, axis)
    if repeat > 1:
        merged[-2:] = [merged[-2] // repeat, merged[-1] * repeat]
        to[-2], at[-2] = to[-2] * repeat, at[-2] * repeat
    # the last axis along which neighbours touch in the source
    touching = [a for a, step in enumerate(at) if step == request.dtype.itemsize and a != axis]
    return Plan(
        order, shape, request.dtype, final, compute, scaled, groups, repeat,
        tuple(merged), tuple(to), tuple(at), tuple(varies), axis, max(touching, default=None),
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
        if joins and all(step[before] == length * step[axis] for step in steps):
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
    return tuple(math.prod(shape[axis + 1 :]) * itemsize for axis in range(len(shape)))


def _checked_factor_shape(name: str, found: Shape, lengths: Shape) -> Shape:
    """Return the shape of a factor with a length for each axis of the data."""
    whole = (1,) * (len(lengths) - len(found)) + found
    if len(whole) != len(lengths) or any(
        n not in (1, length) for n, length in zip(whole, lengths, strict=True)
    ):
        raise ArrayError(
            f"{name} of shape {found} does not broadcast against the data of shape {lengths}; "
            f"a factor for each step of one axis has length 1 along all others"
        )
    return whole


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
