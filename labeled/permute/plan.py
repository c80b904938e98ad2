"""Which kernel makes a copy, and the tables of byte offsets it works from.

A job is cut into its *fast* axis (the source is contiguous along it), the *rows* (the axes along
which the destination is contiguous, all taken as one), and everything else, the *outer* axes:

* ``runs``: the fast axis is last in the destination too; rows are runs to be copied.
* ``weaves``: two to four rows; planes become interleaved pixels.
* ``unweaves``: a fast axis of length two to four beside the rows; pixels become planes.
* ``tiles``: anything else, a batch of matrix transposes.

Scale and shift become one small table over (outer, fast, row), each of length 1 where nothing
depends on it. What no kernel does well gets no plan and is left to NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.permute import layout
from labeled.permute.arguments import Array, Rows
from labeled.permute.job import Job

MOVED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""Pure moves see items as unsigned integers: one kernel for every dtype of a width."""

CAST_FROM = frozenset("?bBhHiIlLqQfd")
CAST_TO = frozenset("fd")
ENOUGH_ROW_BYTES = 256
"""Axes join the rows until a row of the destination is so long."""

ENOUGH_RUN_ROWS = 1024
FACTOR_SHARE = 4
"""A table of factors may have one entry for so many items, else the copy is left to NumPy."""

SHORT_RUN_BYTES = 512
"""Pure runs from this length on are NumPy's own copy."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A kernel's name and arguments, byte offsets from the first item of source and destination."""

    kernel: str
    item: np.dtype[Any]
    final: np.dtype[Any]
    outer_src: Rows
    outer_dst: Rows
    rows: Rows
    n_fast: int
    step: int
    scale: Array
    shift: Array
    by: tuple[int, int, int]

    @property
    def n_rows(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class _Cut:
    """The axes of a job by the part they play."""

    kernel: str
    fast: int
    rows: tuple[int, ...]
    outer: tuple[int, ...]


def plan(job: Job) -> Plan | None:
    """Return how a kernel makes this copy, or None where NumPy should."""
    items = _items(job)
    cut = None if items is None else _cut(job)
    if items is None or cut is None:
        return None
    factors = _factors(job, cut)
    if factors is None:
        return None
    scale, shift, by = factors
    return Plan(
        cut.kernel,
        items[0],
        items[1],
        _offsets(job.src.shape, job.src.strides, cut.outer, job),
        _offsets(job.dst.shape, job.dst.strides, cut.outer, None),
        _offsets(job.src.shape, job.src.strides, cut.rows, job),
        job.dst.shape[cut.fast],
        job.dst.strides[cut.rows[-1] if cut.kernel == "runs" and cut.rows else cut.fast],
        scale,
        shift,
        by,
    )


def _items(job: Job) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Return the item types that a kernel would see, or None where it cannot."""
    src, dst = job.src.dtype, job.dst.dtype
    if job.pure:
        moved = MOVED.get(src.itemsize)
        known = moved is not None and src.kind in "biufcmMV" and not src.hasobject
        return (np.dtype(moved), np.dtype(moved)) if known else None
    native = src.isnative and dst.isnative and job.compute == dst
    if not native or src.char not in CAST_FROM or dst.char not in CAST_TO:
        return None
    return (np.dtype(np.uint8) if src.kind == "b" else src), dst


def _cut(job: Job) -> _Cut | None:
    """Choose the fast axis, the rows and with them the kernel."""
    src, dst = job.src, job.dst
    last = dst.ndim - 1
    steps = [0 if axis == job.axis else step for axis, step in enumerate(src.strides)]
    fast = layout.fast_axis(steps, src.itemsize)
    if fast is None or dst.strides[last] != dst.itemsize:
        return None
    if fast == last:
        return _cut_runs(job, fast)
    rows = _joined(dst, range(last, fast, -1), ENOUGH_ROW_BYTES // dst.itemsize)
    n_rows = math.prod(dst.shape[axis] for axis in rows)
    per = layout.CACHE_LINE // dst.itemsize
    kernel = "tiles"
    if 2 <= n_rows <= 4 and dst.shape[fast] >= per and dst.strides[fast] == n_rows * dst.itemsize:
        kernel = "weaves"
    elif 2 <= dst.shape[fast] <= 4 and dst.shape[last] >= per and last != job.axis:
        pixel = dst.shape[fast] * src.itemsize
        if src.strides[last] == pixel:
            kernel, rows = "unweaves", (last,)
    return _Cut(kernel, fast, rows, _others(dst.ndim, fast, rows))


def _cut_runs(job: Job, fast: int) -> _Cut | None:
    dst = job.dst
    run_bytes = dst.shape[fast] * dst.itemsize
    if job.pure and job.rows is None and run_bytes >= SHORT_RUN_BYTES:
        return None
    rows = _joined(dst, range(fast - 1, -1, -1), ENOUGH_RUN_ROWS)
    return _Cut("runs", fast, rows, _others(dst.ndim, fast, rows))


def _joined(dst: Array, axes: Sequence[int], enough: int) -> tuple[int, ...]:
    """Return the first of `axes`, from inner to outer, that are one run of the destination."""
    chosen: list[int] = []
    items = 1
    for axis in axes:
        if chosen:
            inner = chosen[0]
            if items >= enough or dst.strides[axis] != dst.strides[inner] * dst.shape[inner]:
                break
        chosen.insert(0, axis)
        items *= dst.shape[axis]
    return tuple(chosen)


def _others(ndim: int, fast: int, rows: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis for axis in range(ndim) if axis != fast and axis not in rows)


def _offsets(
    shape: Sequence[int], strides: Sequence[int], axes: tuple[int, ...], job: Job | None
) -> Rows:
    """Return the byte offset of every step along `axes`, the last running fastest."""
    offsets: Rows = np.zeros(1, np.int64)
    for axis in axes:
        if job is not None and job.rows is not None and axis == job.axis:
            steps = job.rows * strides[axis]
        else:
            steps = np.arange(shape[axis], dtype=np.int64) * strides[axis]
        offsets = (offsets[:, None] + steps).reshape(-1)
    return offsets


def _factors(job: Job, cut: _Cut) -> tuple[Array, Array, tuple[int, int, int]] | None:
    """Return scale and shift as tables (outer, fast, row) and the items of a step in each."""
    given = [factor for factor in (job.scale, job.shift) if factor is not None]
    parts = (cut.outer, (cut.fast,), cut.rows)
    shape = job.dst.shape
    # a part is kept whole where any factor changes along any of its axes
    kept = [
        any(f.strides[axis] and shape[axis] > 1 for f in given for axis in part) for part in parts
    ]
    if cut.kernel in ("weaves", "unweaves"):
        if kept[1 if cut.kernel == "weaves" else 2]:
            return None
        kept[2 if cut.kernel == "weaves" else 1] = not job.pure
    wholes = list(zip(parts, kept, strict=True))
    lengths = [math.prod(shape[axis] for axis in part) if whole else 1 for part, whole in wholes]
    if given and math.prod(lengths) > max(64, job.dst.size // FACTOR_SHARE):
        return None
    order = [axis for part in parts for axis in part]
    wanted = [shape[axis] if whole else 1 for part, whole in wholes for axis in part]
    first = tuple(slice(None, n) for n in wanted)
    scale = _table(job.scale, 1.0, order, first, wanted, job.compute)
    shift = _table(job.shift, -0.0, order, first, wanted, job.compute)
    steps = (lengths[1] * lengths[2], lengths[2], 1)
    by = tuple(step if k else 0 for step, k in zip(steps, kept, strict=True))
    return scale, shift, (by[0], by[1], by[2])


def _table(
    factor: Array | None,
    neutral: float,
    order: list[int],
    first: tuple[slice, ...],
    wanted: list[int],
    compute: np.dtype[Any],
) -> Array:
    """Lay a factor out flat; without one, the value that changes nothing (-0.0 keeps -0.0)."""
    n = math.prod(wanted)
    table: Array = np.full(n + layout.CACHE_LINE, neutral, compute if compute.kind == "f" else "f8")
    if factor is not None:
        table[:n].reshape(wanted)[...] = factor.transpose(order)[first]
    return table
