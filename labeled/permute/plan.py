"""What a caller asked for, checked before a byte moves, and how the copy is described.

Every refusal is raised here, with what was found and what was expected; what copies takes its
arguments for granted.

A plan is made once for a shape, of integers and dtypes alone, so it is kept and used again for
every batch of the same shape. A copy is described in the order of its *destination*, with axes
that move together merged: the lengths of the axes and, for source and destination alike, how many
bytes one step along each is worth.

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
from ctypes import addressof, c_char
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from labeled.errors import ArrayError, DimsError, SelectionError, SelectionTypeError

CACHE_LINE = 64  # bytes moved between memory and cache at a time

ALIGNED_BYTES = 1 << 14  # new arrays of so many bytes start at a cache line

Shape = tuple[int, ...]
Array = np.ndarray[Any, np.dtype[Any]]
Rows = np.ndarray[Any, np.dtype[np.int64]]

MOVED = (1, 2, 4, 8)  # bytes of items that kernels move

CAST_FROM = frozenset("?bBhHiIlLqQfd")
CAST_TO = frozenset("fd")

# runs of up to so many items are moved by a kernel, longer ones as fast by NumPy; between 112 and
# 2,048 bytes the kernel takes 0.4 to 0.8 of NumPy's time
SHORT_RUN = 1000

FEW_ITEMS = 1 << 12  # pure moves of so few items are over before a way for them is chosen

WIDE_ITEMS = 4096  # factors that change along a short last axis are repeated up to so many items


# ---------------------------------------------------------------- arguments
def checked_order(axes: Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return `axes` counted from 0: each axis of an array of rank `ndim` exactly once."""
    order = tuple(axis + ndim if axis < 0 else axis for axis in axes)
    if sorted(order) != list(range(ndim)):
        raise DimsError(
            f"axes {tuple(axes)} do not reorder an array of rank {ndim}; "
            f"give each of 0 .. {ndim - 1} exactly once"
        )
    return order


def checked_rows(rows: Any, n_rows: int) -> Rows:
    """Return `rows` as int64 within ``0 .. n_rows - 1``; negative ones count from the end."""
    found = np.asarray(rows)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise SelectionTypeError(
            f"rows are a 1-D array of integers; found dtype {found.dtype} of rank {found.ndim}. "
            f"Turn a boolean mask into rows with np.flatnonzero(mask)"
        )
    chosen: Rows = found.astype(np.int64, copy=False)
    if chosen.size == 0 or int(chosen.view(np.uint64).max()) < n_rows:  # negative ones are huge
        return chosen
    low, high = int(found.min()), int(found.max())  # of unsigned ones, too
    if low < -n_rows or high >= n_rows:
        bad = low if low < -n_rows else high
        raise SelectionError(f"row {bad} is not in an array of {n_rows} rows")
    return np.where(chosen < 0, chosen + n_rows, chosen)


def result_dtype(src: np.dtype[Any], dtype: Any, scaled: bool) -> np.dtype[Any]:
    """Return the dtype of the result: the one asked for, else a native one that holds it.

    Examples
    --------
    >>> result_dtype(np.dtype("u1"), None, True), result_dtype(np.dtype("i8"), None, True)
    (dtype('float32'), dtype('float64'))
    """
    if dtype is not None:
        asked: np.dtype[Any] = np.dtype(dtype)
        return asked
    if not scaled or src.kind in "fc":
        return src if src.isnative else src.newbyteorder("=")
    return np.dtype(np.float64 if src.itemsize > 4 else np.float32)


def compute_dtype(src: np.dtype[Any], dst: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which ``src * scale + shift`` is computed.

    float32 where the input has at most 32 bits and the result is a float of at most 32 bits or
    a small integer; float64 otherwise; the complex dtype of that precision where either is
    complex.
    """
    for kind in (src, dst):
        if kind.kind not in "biufc":
            raise ArrayError(f"dtype {kind} cannot be scaled or shifted; cast to a number first")
    if "c" in (src.kind, dst.kind):
        wide = max(_wide(src), _wide(dst))
        return np.dtype(np.complex128 if wide else np.complex64)
    wide_result = dst.kind in "iu" and dst.itemsize >= 4
    return np.dtype(np.float64 if _wide(src) or _wide(dst) or wide_result else np.float32)


def _wide(dtype: np.dtype[Any]) -> bool:
    return dtype.itemsize > (8 if dtype.kind == "c" else 4)


def checked_factor(name: str, value: Any, compute: np.dtype[Any]) -> Array | None:
    """Return `value` in dtype `compute`; None stays None."""
    if value is None:
        return None
    found = np.asarray(value)
    if found.dtype.kind not in ("biufc" if compute.kind == "c" else "biuf"):
        raise ArrayError(f"{name} has dtype {found.dtype}; the data is computed in {compute}")
    return found.astype(compute, copy=False)


_first_byte = c_char.from_buffer


def address_of(array: Array) -> int:
    """Return where the first item of an array lies.

    NumPy's own check takes two microseconds, a fifth of what a small copy takes.

    Examples
    --------
    >>> rows = np.zeros((4, 2), np.float32)
    >>> address_of(rows[1:]) - address_of(rows)
    8
    """
    if array.flags.carray:
        memory: Any = array
        try:
            return addressof(_first_byte(memory))
        except (TypeError, ValueError):  # a dtype that no buffer has, or nothing in it
            pass
    address: int = array.ctypes.data
    return address


def empty(shape: Sequence[int], dtype: Any) -> Array:
    """Return new C-contiguous memory to copy into: a large array starts at a cache line.

    Examples
    --------
    >>> empty((1024, 1024), "f4").__array_interface__["data"][0] % 64
    0
    """
    dtype = np.dtype(dtype)
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < ALIGNED_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = np.empty(n_bytes + CACHE_LINE, np.uint8)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % CACHE_LINE)


def checked_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], src: Array) -> Array:
    """Return `out`, or new memory where it is None: C-contiguous and clear of `src`."""
    if out is None:
        return empty(shape, dtype)
    if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype:
        found = f"shape {getattr(out, 'shape', '?')} and dtype {getattr(out, 'dtype', '?')}"
        raise ArrayError(f"out has {found}; the result has shape {shape} and dtype {dtype}")
    flags = out.flags
    if not (flags.carray or (flags.c_contiguous and flags.writeable)):
        raise ArrayError("out is not a writable C-contiguous array; pass one made by np.empty")
    # two arrays that own their memory share none, nor do views of theirs; this takes half as long
    held, read = out if out.base is None else out.base, src if src.base is None else src.base
    apart = held is not read and type(held) is type(read) is np.ndarray
    if not (apart and held.base is read.base is None) and np.may_share_memory(out, src):
        raise ArrayError("out shares memory with the source; permute into another array")
    return out


# ---------------------------------------------------------------- plans
@dataclass(frozen=True, eq=False)
class CopyPlan:
    """A copy in the destination's order; `lengths` and steps are those of the merged axes.

    Plans are kept, so what follows from one is found by its identity.
    """

    order: Shape
    shape: Shape
    item: np.dtype[Any]
    final: np.dtype[Any]
    compute: np.dtype[Any]
    scaled: bool
    groups: tuple[Shape, ...]
    repeat: int  # how often factors along a short last axis are repeated along the one before
    lengths: Shape
    to: Shape  # bytes of a step in the destination
    at: Shape  # bytes of a step in the source
    varies: tuple[bool, ...]  # along which axes scale or shift change
    axis: int | None  # the one that rows are gathered along
    fast: int | None
    size: int
    pure: bool  # whether items only move
    moved_bytes: int  # bytes read and written
    reach: int  # bytes from the first to the last item of the source
    # whether NumPy's own copy is as fast as memory, or so short that no other is faster
    plain: bool
    whole: bool  # whether rows of a contiguous source are taken whole, one after the other
    still: bool  # whether all axes stay where they are

    def over_axes(self, factor: Array, ndim: int, *, repeated: bool = True) -> Array:
        """Return a scale or shift over the merged axes, with length 1 where it is the same.

        Along the last axis it can be had once, where it would be repeated.
        """
        whole = factor.reshape((1,) * (ndim - factor.ndim) + factor.shape).transpose(self.order)
        n_along = whole.shape.__getitem__
        merged = whole.reshape([math.prod(map(n_along, group)) for group in self.groups])
        return np.tile(merged, self.repeat) if repeated and merged.shape[-1] > 1 else merged

    def kernel_items(self) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
        """Return the item types that a kernel sees, before and after; None where there is none.

        Pure moves see items as unsigned integers: one kernel for every dtype of a width.
        """
        item, final = self.item, self.final
        if self.pure:
            known = item.itemsize in MOVED and item.kind in "biufcmMV" and not item.hasobject
            return (np.dtype(f"u{item.itemsize}"),) * 2 if known else None
        native = item.isnative and final.isnative and self.compute == final
        if not native or item.char not in CAST_FROM or final.char not in CAST_TO:
            return None
        return (np.dtype(np.uint8) if item.kind == "b" else item), final


@lru_cache(maxsize=512)
def plan_of(
    src_shape: Shape, strides: Shape, item: np.dtype[Any], axes: Shape, asked: Any,
    scale: Shape | None, shift: Shape | None, rows: Shape | None,
) -> CopyPlan:  # fmt: skip
    """Check a copy and plan it: once for all arrays of these lengths, steps and dtypes.

    `scale`, `shift` and `rows` are their shapes. Raises what this module raises.
    """
    order = checked_order(axes, len(src_shape))
    scaled = scale is not None or shift is not None
    final = result_dtype(item, asked, scaled)
    compute = compute_dtype(item, final) if scaled else final
    lengths = src_shape if rows is None else (*rows, *src_shape[1:])
    shape = tuple(map(lengths.__getitem__, order))
    steps = [packed(shape, final.itemsize), tuple(map(strides.__getitem__, order))]
    for name, factor in (("scale", scale), ("shift", shift)):
        if factor is not None:
            steps.append(_factor_steps(name, factor, lengths, order))
    gathered = None if rows is None else order.index(0)
    groups = ((),) if 0 in shape else merged_axes(shape, steps, gathered) or ((),)
    axis = groups.index((gathered,)) if (gathered,) in groups else None
    to, at, *others = [[one[group[-1]] if group else 0 for group in groups] for one in steps]
    merged = [math.prod(map(shape.__getitem__, group)) for group in groups]
    varies = [any(factor[n] for factor in others) for n in range(len(groups))]
    fast = max((n for n, by in enumerate(at) if by == item.itemsize and n != axis), default=None)
    repeat = _repeat(merged, to, at, varies, axis)
    if repeat > 1:
        merged[-2:] = [merged[-2] // repeat, merged[-1] * repeat]
        to[-2], at[-2] = to[-2] * repeat, at[-2] * repeat
    size, last, pure = math.prod(shape), len(groups) - 1, not scaled and item == final
    runs = fast is None or (fast == last and merged[last] > SHORT_RUN)
    plain = pure and rows is None and (runs or size <= FEW_ITEMS)
    whole = pure and axis == 0 and len(groups) == 2 and fast == 1
    whole = whole and strides == packed(src_shape, item.itemsize)
    reach = sum((n - 1) * abs(step) for n, step in zip(src_shape, strides, strict=True))
    return CopyPlan(
        order, shape, item, final, compute, scaled, groups, repeat,
        tuple(merged), tuple(to), tuple(at), tuple(varies), axis, fast, size, pure,
        size * (item.itemsize + final.itemsize), reach, plain, whole,
        order == tuple(range(len(order))),
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
    try:
        steps = np.broadcast_to(np.empty(found, np.uint8), lengths).strides
    except ValueError:
        raise ArrayError(
            f"{name} of shape {found} does not broadcast against the data of shape {lengths}; "
            f"a factor for each step of one axis has length 1 along all others"
        ) from None
    return tuple(map(steps.__getitem__, order))


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
