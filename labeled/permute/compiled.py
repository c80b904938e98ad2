"""Copies by compiled kernels: which kernel fits, its table, its factors.

Importing numba and compiling costs about a second, so nothing here touches it until a copy is
large enough (`LOAD_BYTES`).

The kernels see a copy as its fast axis, its *rows* (axes along which the destination is
contiguous, taken as one), and everything else, the *outer* axes:

* ``runs``: the fast axis is last in the destination too. Long runs that only move are left to
  NumPy where a second thread does not pay.
* ``weaves``: two to four rows, planes that become interleaved pixels; or a fast axis of that
  length beside the rows, pixels that become planes.
* ``tiles``: anything else.

Scale and shift become one small table over (outer, fast, row), of length 1 where nothing depends
on it. Everything that follows from the plan alone is kept, so that a batch costs a few
microseconds besides its bytes.
"""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from labeled._numba import at_hand, available, look_again, obstacle
from labeled._threads import processors, share
from labeled.permute.plan import CACHE_LINE, Array, CopyPlan, Rows, Shape, address_of

LOAD_BYTES = 1 << 19  # the first copy that reads and writes so many bytes imports the kernels

# once they are imported, copies of so many bytes use them: one picture is scaled in a third of the
# time that NumPy takes
USE_BYTES = 1 << 12

# bytes read and written from which a second thread pays, even if it is kept waiting a little
SHARE_BYTES = 1 << 24

# transposes of so many bytes are stored past the caches: 3 MB of floats in the order of c01b take
# 236 us and not 356 (2 MB of second cache); a sum of them afterwards takes what that saves
STREAM_BYTES = 1 << 21
# the same of planes that are woven or taken apart, and of runs: 0.6 to 0.9 of the time
STREAM_WOVEN_BYTES = 1 << 25

BLOCK_ITEMS = 1024  # items along the fast axis that a thread claims at a time
RUN_ITEMS = 1 << 14  # the same of runs

ENOUGH_ROW_BYTES = 256  # axes join the rows until a row of the destination is so long

ENOUGH_RUNS = 64  # axes join the rows of `runs` until there are so many

# Where so many runs of the destination lie between two that are neighbours in the source, these are
# copied together, so many bytes of each in turn: 256 x 3 x 32 x 32 bytes in the order of 0bc1 take
# 38 us and not 52, 8,192 x 28 x 28 numbers scaled to 0b1 1.5 ms and not 3.8
ENOUGH_BETWEEN, NEAR_BYTES = 128, 1024

# pure moves of matrices smaller than this (16 x 16 bytes, 8 x 8 floats) are left to NumPy
SMALL_TILE_BYTES = 256

KEPT_FACTORS = 64  # scales and shifts of so many numbers are laid out once

# bytes written in one go along a row of the destination: two lines suit the prefetchers
TILE_RUN = 128

HEADER = 9  # numbers at the start of a kernel's table, before its offsets

_local = threading.local()
_kernels: ModuleType | None = None


# ---------------------------------------------------------------- whether kernels are at hand
def describe() -> str:
    """Return one line for plans and reports."""
    if available():
        return "compiled kernels" + (" (not needed yet)" if _kernels is None else "")
    return f"blocked NumPy ({obstacle()})"


def forget() -> None:
    """Look at the switch and for numba again."""
    global _kernels
    _kernels = None
    look_again()


def kernels() -> Any:
    """Return the compiled loops; the first call imports numba."""
    global _kernels
    if _kernels is None:
        _kernels = importlib.import_module("labeled.permute.kernels")
    return _kernels


def _loaded(*, worth: bool) -> bool:
    """Whether the kernels are at hand; they are imported now if that is worth it."""
    return _kernels is not None or (worth and at_hand() and kernels() is not None)


# ---------------------------------------------------------------- a copy by a kernel
def run(
    plan: CopyPlan, dst: Array, src: Array, rows: Rows | None, scale: Array | None,
    shift: Array | None, threads: int | None,
) -> bool:  # fmt: skip
    """Make a copy by a kernel; False, with nothing written, where none is at hand or fits."""
    if plan.moved_bytes < USE_BYTES or not _loaded(worth=plan.moved_bytes >= LOAD_BYTES):
        return False
    call = _call(plan)
    if call is None:
        return False
    table = call.table
    if rows is not None and call.gathered is not None:
        place, shape, row_bytes = call.gathered
        table = table.copy()
        table[place].reshape(shape)[...] += (rows * row_bytes)[:, None]
    factors: tuple[Array | None, Array | None] = (None, None)
    if not plan.pure:  # -0.0 keeps -0.0
        factors = _factors(call, scale, 1.0, src.ndim), _factors(call, shift, -0.0, src.ndim)
    to = address_of(dst)
    streamed = int(call.streams > 0 and to % call.streams == 0)
    fixed = (*call.kinds, address_of(src), to, table, *factors, streamed)

    def work(first: int, last: int) -> None:
        call.code(*fixed, first, last, _scratch())

    share(work, call.n_units, worth_threads(threads, plan.moved_bytes))
    return True


def worth_threads(asked: int | None, moved_bytes: int) -> int:
    """Return how many threads pay for a copy that reads and writes so many bytes, or fewer."""
    if asked == 1 or moved_bytes < SHARE_BYTES:
        return 1
    most = processors() if asked is None else asked
    return min(most, moved_bytes // (SHARE_BYTES // 2))


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """What follows from a plan alone: a kernel and its arguments."""

    plan: CopyPlan
    code: Any
    kinds: tuple[Any, ...]
    table: Rows
    streams: int  # stored past the caches where this divides the address of the destination
    n_units: int
    # which offsets of the table depend on gathered rows, their shape and the bytes of a row
    gathered: tuple[slice, tuple[int, int, int], int] | None
    factor_axes: Shape  # the order of axes in a table of factors
    factor_shape: Shape


@lru_cache(maxsize=1024)
def _call(plan: CopyPlan) -> _Call | None:
    """Choose a kernel and prepare its arguments; None where NumPy makes the copy."""
    items, fast, lengths, size = plan.kernel_items(), plan.fast, plan.lengths, plan.final.itemsize
    if items is None or fast is None:
        return None
    last, n_fast = len(lengths) - 1, lengths[fast]
    kernel, woven, by_runs, beside, near = "tiles", (1, 1), fast == last, range(last, fast, -1), -1
    if by_runs:
        nearest = min(range(last), key=lambda axis: abs(plan.at[axis]), default=-1)
        many = _count(lengths, range(nearest + 1, last)) >= ENOUGH_BETWEEN
        near = nearest if many and n_fast * size <= NEAR_BYTES else -1
        beside = range(last - 1, near, -1)
    rows = _joined(lengths, beside, ENOUGH_RUNS if by_runs else ENOUGH_ROW_BYTES // size)
    n_rows, row_step = _count(lengths, rows), 0 if plan.axis == last else plan.at[last]
    if by_runs:
        kernel = "runs"
        small = plan.plain and plan.moved_bytes < SHARE_BYTES
        if small or (plan.pure and plan.axis is not None):
            return None
    elif 2 <= n_rows <= 4 and plan.to[fast] == n_rows * size:
        kernel, woven = "weaves", (n_rows, 1)
    elif 2 <= n_fast <= 4 and row_step == n_fast * plan.item.itemsize:
        kernel, woven, rows, n_rows = "weaves", (1, n_fast), (last,), lengths[last]
    elif plan.pure and n_rows * n_fast * size < SMALL_TILE_BYTES:
        return None
    outer = tuple(sorted({*range(last + 1)} - {fast, *rows}, key=lambda axis: (axis == near, axis)))
    if kernel == "weaves":  # read in order: 4,096 x 3 x 32 x 32 floats to 0b1c 2.3 ms, and not 5.7
        outer = tuple(sorted(outer, key=lambda axis: -abs(plan.at[axis])))
    parts, n_outer = (outer, (fast,), rows), _count(lengths, outer)
    kept = [any(map(plan.varies.__getitem__, part)) for part in parts]
    if kernel == "weaves":  # a factor for each plane, and none along them
        planes = 2 if woven[0] > 1 else 1
        if kept[3 - planes]:
            return None
        kept[planes] = not plan.pure

    # factors lie as kernels convert, along the fast axis or the rows; one serves all steps where
    # none changes
    factor_axes: Shape = ()
    factor_shape: Shape = ()
    by, count = [0, 0, 0], 1
    item_size = plan.item.itemsize
    grows = kernel == "tiles" and not plan.pure and item_size < size
    casts_last = grows and n_rows >= CACHE_LINE // item_size  # fewer do not fill a vector
    if casts_last:
        woven = (2, 1)  # as types have it, so that sizes are constants
    for number in (2, 1, 0) if casts_last else (1, 2, 0):
        part, by[number] = parts[number], count if kept[number] else 0
        shape = tuple(lengths[axis] if kept[number] else 1 for axis in part)
        factor_axes, factor_shape = (*part, *factor_axes), (*shape, *factor_shape)
        count *= math.prod(shape)

    # everything a kernel reads: sizes, outer offsets and offsets of rows; those along a gathered
    # axis are left at zero, as they differ from call to call
    step = plan.to[rows[-1] if by_runs and rows else fast]
    block, large = BLOCK_ITEMS, kernel == "tiles" and plan.size * size >= STREAM_BYTES
    if by_runs:
        block = max(8, NEAR_BYTES // (n_fast * size)) if near >= 0 else max(1, RUN_ITEMS // n_fast)
        step, large = step if rows else 0, plan.size * size >= STREAM_WOVEN_BYTES
    elif kernel == "weaves":
        large = plan.size * size >= STREAM_WOVEN_BYTES
        step = 0 if woven[0] > 1 else step  # planes lie apart where they are the destination
    at = [0 if axis == plan.axis else one for axis, one in enumerate(plan.at)]
    outer_dst = _offsets(lengths, plan.to, outer)
    streams = large and not step % CACHE_LINE and not np.any(outer_dst % CACHE_LINE)
    units = -(-(n_fast if kernel == "tiles" or woven[0] > 1 else n_rows) // block) * n_outer
    n_near, n_runs = lengths[near] if near >= 0 else 1, 1
    if by_runs:
        units *= -(-n_fast // RUN_ITEMS)
    if kernel == "tiles":  # a destination that begins within a line may need one more
        run = TILE_RUN // (item_size if casts_last else size)
        n_runs = -(-(n_rows + (CACHE_LINE // size - 1 if streams else 0)) // run)
    table: Rows = np.concatenate([
        (n_outer, n_rows, n_fast, step, block, *by, n_near * n_runs),
        _offsets(lengths, at, outer), outer_dst, _offsets(lengths, at, rows),
    ])  # fmt: skip
    gathered = None
    if plan.axis is not None:
        by_row = plan.axis in rows
        part, start = (rows, HEADER + 2 * n_outer) if by_row else (outer, HEADER)
        inner = _count(lengths, part[part.index(plan.axis) + 1 :])
        place = slice(start, start + _count(lengths, part))
        gathered = place, (-1, lengths[plan.axis], inner), plan.at[plan.axis]

    item, final = items
    code, kinds = _code(kernel, item, final, None if plan.pure else plan.compute, woven)
    multiple = size if n_runs > 3 else CACHE_LINE  # one more of two runs takes what it saves
    return _Call(
        plan, code, kinds, table, streams * multiple, units * n_runs // n_near, gathered,
        factor_axes, factor_shape,
    )  # fmt: skip


def _joined(lengths: Shape, axes: Iterable[int], enough: int) -> Shape:
    """Return the first of `axes`, from inner to outer, that are one run of the destination."""
    chosen: Shape = ()
    for axis in axes:
        if chosen and _count(lengths, chosen) >= enough:
            break
        chosen = (axis, *chosen)
    return chosen


def _count(lengths: Shape, axes: Iterable[int]) -> int:
    return math.prod(lengths[axis] for axis in axes)


@cache
def _code(kernel: str, item: Any, final: Any, compute: Any, woven: Shape) -> Any:
    """Return the code of a kernel for some types of items, and what shows it these types."""
    assert _kernels is not None
    kinds = np.empty(0, item), np.empty(0, final), ((0,) * woven[0], (0,) * woven[1])
    factor = None if compute is None else np.empty(0, compute)
    args = (*kinds, 0, 0, np.zeros(HEADER + 9, np.int64), factor, factor, 0, 0, 0, 0)
    return _kernels.entry(kernel, args), kinds


def _offsets(lengths: Shape, steps: Sequence[int], axes: Shape) -> Rows:
    """Return the byte offset of every step along `axes`, the last running fastest."""
    found: Rows = np.zeros(1, np.int64)
    for axis in axes:
        found = np.add.outer(found, np.arange(lengths[axis]) * steps[axis]).reshape(-1)
    return found


def _factors(call: _Call, factor: Array | None, neutral: float, ndim: int) -> Array:
    """Lay a factor out for a kernel; few numbers are laid out once, and known by their bytes."""
    given = np.array(neutral, call.plan.compute) if factor is None else factor
    if given.size > KEPT_FACTORS:
        return _factor_table(call, given, ndim)
    return _kept_factors(call, given.shape, given.tobytes(), ndim)


@lru_cache(maxsize=512)
def _kept_factors(call: _Call, shape: Shape, values: bytes, ndim: int) -> Array:
    return _factor_table(call, np.frombuffer(values, call.plan.compute).reshape(shape), ndim)


def _factor_table(call: _Call, factor: Array, ndim: int) -> Array:
    """Return what kernels read as a factor; they may read a few numbers past the end."""
    n, laid = math.prod(call.factor_shape), call.plan.over_axes(factor, ndim)
    table: Array = np.zeros(n + 4, call.plan.compute)
    table[:n].reshape(call.factor_shape)[...] = laid.transpose(call.factor_axes)
    return table


def _scratch() -> int:
    """Return the address of this thread's scratch memory, at the start of a cache line."""
    address: int | None = getattr(_local, "address", None)
    if address is None:
        assert _kernels is not None
        _local.memory = np.empty(_kernels.SCRATCH_BYTES + CACHE_LINE, np.uint8)
        address = _local.address = -(-address_of(_local.memory) // CACHE_LINE) * CACHE_LINE
    return address
