"""Running plans on the compiled kernels: when to load them, tables, scratch memory, threads.

Importing and compiling the kernels costs about a second, so nothing here touches numba until a
copy is large enough (`LOAD_BYTES`); from then on smaller copies use them too. Everything that
follows from the plan alone is kept with it, so that a batch costs a few microseconds besides
its bytes.
"""

from __future__ import annotations

import importlib
import math
import os
import threading
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from labeled.errors import how_to_install
from labeled.permute import blocked, compiler, workers
from labeled.permute.addresses import address_of
from labeled.permute.arguments import Array, Rows
from labeled.permute.job import job, merged_factor
from labeled.permute.layout import CACHE_LINE, HEADER, TILE_RUN
from labeled.permute.plan import Cut, Plan

SWITCH = compiler.SWITCH

LOAD_BYTES = 1 << 18
"""The first copy of so many bytes imports the kernels."""

USE_BYTES = 1 << 14
"""Once they are imported, copies of so many bytes use them."""

SHARE_BYTES = 1 << 24
"""Bytes read and written from which a second thread pays, even if it is kept waiting a little."""

STREAM_BYTES = 1 << 21
"""Tiles of results of so many bytes are stored past the caches, where they would not stay."""

STREAM_RUN_BYTES = 1 << 25
"""The same for kernels that write in order, which the caches serve well up to their size."""

LONG_RUN_BYTES = 256
"""Pure runs from this length on are left to NumPy's own copy."""

FAR_RUN_BYTES = 1 << 13
"""The same where a second thread pays."""

VAST_RUN_BYTES = 1 << 27
"""A single run of so many bytes is stored past the caches by the C library, too."""

RUNS_BYTES = 1 << 18
"""Shorter runs are left to NumPy in copies of fewer bytes."""

WRAP_BYTES = 1 << 12
"""Rows of the destination up to so long are written across their ends, see `_wrapped`."""

WRAP_ITEMS = 512
"""The fast axis is at least so long there: its first and last items are copied by NumPy."""

BLOCK_ITEMS = 1024
"""Items along the fast axis that a thread claims at a time."""

KEPT_FACTORS = 64
"""Scales and shifts of so many numbers are laid out once, and known again by their bytes."""

NEAR_BYTES = 512
"""Bytes of runs copied before the next runs of the same rows, while these are still near."""


_NOTHING = np.zeros(8, np.float64)
_NOWHERE = address_of(_NOTHING)
_local = threading.local()
_kernels: ModuleType | None = None
_failed = ""
_entries: dict[tuple[Any, ...], Any] = {}
_spent_s = 0.0


def available() -> bool:
    """Say whether the kernels are installed and not turned off."""
    if _failed or os.environ.get(SWITCH) == "0":
        return False
    return not compiler.turned_off() and (_kernels is not None or compiler.installed())


def describe() -> str:
    """Return one line for plans and reports."""
    if os.environ.get(SWITCH) == "0":
        return f"blocked NumPy (compiled kernels turned off by {SWITCH}=0)"
    if compiler.turned_off():
        return f"blocked NumPy (numba is told not to compile by {compiler.OFF})"
    if not available():
        absent = f"numba is not installed: {how_to_install('numba', 'fast')}"
        return f"blocked NumPy ({_failed or absent})"
    if _kernels is None:
        return "compiled kernels (not needed yet)"
    return f"compiled kernels ({_spent_s:.1f} s spent on loading and compiling)"


def left_to_numpy(plan: Plan) -> bool:
    """Say whether a pure move is best left to NumPy: long runs, or next to nothing to do."""
    n_bytes = plan.size * plan.final.itemsize
    runs = plan.run_bytes
    long = FAR_RUN_BYTES if 2 * n_bytes >= SHARE_BYTES and available() else LONG_RUN_BYTES
    if runs == n_bytes >= VAST_RUN_BYTES:
        return True
    if runs >= long and worth_streaming(plan):  # which earns no import of the kernels
        return plan.cut is None or _kernels is None or not available()
    return n_bytes < USE_BYTES or runs >= long or (runs > 0 and n_bytes < RUNS_BYTES)


def worth_streaming(plan: Plan) -> bool:
    """Say whether long runs are so many bytes that they are best stored past the caches."""
    return plan.size * plan.final.itemsize >= STREAM_RUN_BYTES


def rows_left_to_numpy(plan: Plan, threads: int | None) -> bool:
    """Say whether gathered rows are moved whole, and are too few for a second thread."""
    whole = plan.pure and plan.axis == 0 and len(plan.lengths) == 2
    few = threads == 1 or 2 * plan.size * plan.final.itemsize < SHARE_BYTES
    return whole and few and plan.run_bytes >= LONG_RUN_BYTES


def run(
    plan: Plan,
    dst: Array,
    src: Array,
    rows: Rows | None,
    scale: Array | None,
    shift: Array | None,
    threads: int | None,
) -> bool:
    """Make a copy by a kernel; False, with nothing written, where none is at hand or fits."""
    if plan.cut is None or not (_kernels is not None or _worth_loading(plan)):
        return False
    to = address_of(dst)
    placed = _placed(plan, to % CACHE_LINE)
    if placed is None:
        return False
    call, header, head, n_units = placed.call, placed.call.header, placed.head, placed.n_units
    table = call.table if rows is None else _gathered(call, rows)
    scales = shifts = (_NOTHING, _NOWHERE)
    if not plan.pure:
        scales, shifts = _factors(plan, scale, 1.0), _factors(plan, shift, -0.0)
    if placed.wrapped:
        table, to = _wrapped(table, head, plan.cut), to + head * dst.itemsize
        header, head = tuple(table[:HEADER].tolist()), 0
        n_units = _n_units(plan.cut, call, header, head)
        _copy_ends(plan, dst, src, rows, scale, shift)
    fixed = (
        call.kinds, address_of(src), to, table, scales[1], shifts[1], placed.streamed, head
    )  # fmt: skip
    kernel = placed.kernel
    count = 1 if placed.moved_bytes < SHARE_BYTES else worth_threads(threads, placed.moved_bytes)
    if count == 1:
        kernel(*fixed, 0, n_units, _scratch())
    else:

        def work(first: int, last: int) -> None:
            kernel(*fixed, first, last, _scratch())

        workers.share(work, n_units, count)
    return True


def forget() -> None:
    """Look at the switch and for numba again, for plans that were run before, too."""
    _placed.cache_clear()
    compiler.forget()


@dataclass(frozen=True, slots=True, eq=False)
class _Placed:
    """The call of a plan for destinations at one place of a cache line."""

    call: _Call
    kernel: Any
    streamed: int
    """Whether to store past the caches, 0 or 1."""
    head: int
    """Items before the first whole line."""
    wrapped: bool
    """Whether rows are written across their ends, see `_wrapped`."""
    n_units: int
    moved_bytes: int


@lru_cache(maxsize=1024)
def _placed(plan: Plan, place: int) -> _Placed | None:
    """Return a call that is ready to run; None where the kernels are turned off, or do not pay."""
    moved_bytes = _moved_bytes(plan)
    if plan.cut is None or moved_bytes < 2 * USE_BYTES or not available():
        return None
    call = _call(plan)
    streamed, head = _streaming(plan.cut, call, place, plan.size * plan.final.itemsize)
    wrapped = head > 0 and call.wraps
    n_units = 0 if wrapped else _n_units(plan.cut, call, call.header, head)
    return _Placed(call, _entry(call), streamed, head, wrapped, n_units, moved_bytes)


def _worth_loading(plan: Plan) -> bool:
    """Load the kernels if a copy is large enough; say whether they are there."""
    return _moved_bytes(plan) >= 2 * LOAD_BYTES and available() and _loaded() is not None


def _moved_bytes(plan: Plan) -> int:
    """Return the bytes read and written."""
    assert plan.cut is not None
    return plan.size * (plan.cut.item.itemsize + plan.final.itemsize)


def _loaded() -> ModuleType | None:
    global _kernels, _failed, _spent_s
    if _kernels is None and not _failed:
        started = time.perf_counter()
        try:
            _kernels = importlib.import_module("labeled.permute.kernels")
        except ImportError as error:
            _failed = f"numba does not load: {error}"
        _spent_s += time.perf_counter() - started
    return _kernels


def _entry(call: _Call) -> Any:
    """Return the compiled code for a call; what compiling costs is timed apart."""
    global _spent_s
    entry = _entries.get(call.signature)
    if entry is None:
        assert _kernels is not None
        started = time.perf_counter()
        numbers = (_NOWHERE, _NOWHERE, 0, 0, 0, 0, 0)
        entry = _kernels.entry(call.signature[0], (call.kinds, 0, 0, call.table, *numbers))
        _spent_s += time.perf_counter() - started
        _entries[call.signature] = entry
    return entry


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """The arguments of a kernel that follow from the plan alone."""

    signature: tuple[Any, ...]
    kinds: tuple[Any, ...]
    header: tuple[int, ...]
    table: Rows
    n_outer: int
    aligned: bool
    """Whether outer steps of the destination are whole cache lines."""
    wraps: bool
    """Whether rows may be written across their ends."""
    gathered: tuple[slice, tuple[int, int, int], int] | None
    """Which offsets of the table depend on gathered rows, their shape and the bytes of a row."""


@lru_cache(maxsize=512)
def _call(plan: Plan) -> _Call:
    cut = plan.cut
    assert cut is not None
    n_outer, n_fast, n_rows = _counts(plan, cut)
    step = plan.dst_strides[cut.rows[-1] if cut.kernel == "runs" and cut.rows else cut.fast]
    along = {"weaves": n_fast, "unweaves": n_rows}.get(cut.kernel, CACHE_LINE)
    vector = 64 if along * cut.final.itemsize >= 64 else 16
    inner = 1 if cut.near is None else plan.lengths[cut.near]
    block = BLOCK_ITEMS
    if cut.kernel == "runs":
        few = NEAR_BYTES // (n_fast * cut.final.itemsize)
        block = max(1, 16 * BLOCK_ITEMS // n_fast) if inner == 1 else max(8, few)
    width = np.uint64(0) if vector == 64 else np.uint16(0)
    woven = (0,) * {"weaves": n_rows, "unweaves": n_fast}.get(cut.kernel, 1)
    by = _steps(cut, (n_outer, n_fast, n_rows))
    header = (n_outer, n_rows, n_fast, step, block, *by, inner)
    outer_dst = _offsets(plan, plan.dst_strides, cut.outer)
    return _Call(
        (cut.kernel, cut.item, cut.final, vector, len(woven)),
        (cut.item.type(0), cut.final.type(0), width, woven),
        header,
        _table(plan, cut, header),
        n_outer,
        not np.any(outer_dst % CACHE_LINE),
        _wraps(cut, header),
        _gather_slot(plan, cut),
    )


def _counts(plan: Plan, cut: Cut) -> tuple[int, int, int]:
    n_outer, n_rows = (math.prod(plan.lengths[a] for a in part) for part in (cut.outer, cut.rows))
    return n_outer, plan.lengths[cut.fast], n_rows


def _table(plan: Plan, cut: Cut, header: tuple[int, ...]) -> Rows:
    """Return everything a kernel reads: sizes, outer offsets and offsets of rows.

    Offsets along a gathered axis are left at zero: they differ from call to call.
    """
    outer_src = _offsets(plan, plan.src_strides, cut.outer, plan.axis)
    outer_dst = _offsets(plan, plan.dst_strides, cut.outer)
    row_src = _offsets(plan, plan.src_strides, cut.rows, plan.axis)
    return np.concatenate([header, outer_src, outer_dst, row_src])


def _offsets(
    plan: Plan, strides: tuple[int, ...], axes: tuple[int, ...], without: int | None = None
) -> Rows:
    """Return the byte offset of every step along `axes`, the last running fastest."""
    offsets: Rows = np.zeros(1, np.int64)
    for axis in axes:
        step = 0 if axis == without else strides[axis]
        steps = np.arange(plan.lengths[axis], dtype=np.int64) * step
        offsets = (offsets[:, None] + steps).reshape(-1)
    return offsets


def _gather_slot(plan: Plan, cut: Cut) -> tuple[slice, tuple[int, int, int], int] | None:
    axis = plan.axis
    if axis is None:
        return None
    part = cut.rows if axis in cut.rows else cut.outer
    n_outer, _, n_rows = _counts(plan, cut)
    start = HEADER + (2 * n_outer if axis in cut.rows else 0)
    count = n_rows if axis in cut.rows else n_outer
    before, after = (
        math.prod(plan.lengths[a] for a in side)
        for side in (part[: part.index(axis)], part[part.index(axis) + 1 :])
    )
    shape = (before, plan.lengths[axis], after)
    return slice(start, start + count), shape, plan.src_strides[axis]


def _gathered(call: _Call, rows: Rows) -> Rows:
    """Return the table of a call for these rows."""
    assert call.gathered is not None
    slot, shape, row_bytes = call.gathered
    table = call.table.copy()
    if shape[0] == shape[2] == 1:
        np.multiply(rows, row_bytes, out=table[slot])
    else:
        table[slot].reshape(shape)[...] += (rows * row_bytes)[:, None]
    return table


def _wraps(cut: Cut, header: tuple[int, ...]) -> bool:
    """Say whether short rows follow one another without a gap, treated alike in all columns."""
    _, n_rows, n_fast, step, _, _, by_fast, by_row, _ = header
    packed = step == n_rows * cut.final.itemsize <= WRAP_BYTES
    return cut.kernel == "tiles" and packed and n_fast >= WRAP_ITEMS and not (by_fast or by_row)


def _wrapped(table: Rows, head: int, cut: Cut) -> Rows:
    """Return the table of a copy that begins `head` items later, at a whole line.

    A row of the destination then ends with the `head` first items of the next one, which lie one
    item further in the source. So every line is written whole, but for those of both ends.
    """
    made = table.copy()
    n_outer, n_rows = made[:2]
    rows = made[HEADER + 2 * n_outer :]
    rows[...] = np.roll(rows, -head)
    rows[n_rows - head :] += cut.item.itemsize
    made[2] -= 1
    return made


def _copy_ends(
    plan: Plan,
    dst: Array,
    src: Array,
    rows: Rows | None,
    scale: Array | None,
    shift: Array | None,
) -> None:
    """Copy the first and the last step along the fast axis, which wrapped rows leave open."""
    assert plan.cut is not None
    whole = job(plan, dst, src, rows, scale, shift)
    for part in (slice(0, 1), slice(-1, None)):
        at = (slice(None),) * plan.cut.fast + (part,)
        blocked.run(replace(whole, dst=whole.dst[at], src=whole.src[at]))


def _factor_order(cut: Cut) -> tuple[int, int, int]:
    """Return the order of (outer, fast, rows) in a table of factors: what is read as one, last."""
    return (0, 2, 1) if cut.kernel == "runs" else (0, 1, 2)


def _steps(cut: Cut, lengths: tuple[int, int, int]) -> list[int]:
    """Return how many factors one step along (outer, fast, rows) is worth."""
    steps = [0, 0, 0]
    items = 1
    for part in reversed(_factor_order(cut)):
        if cut.kept[part]:
            steps[part] = items
            items *= lengths[part]
    return steps


def _factors(plan: Plan, factor: Array | None, neutral: float) -> tuple[Array, int]:
    """Lay a factor out for a kernel, and say where it lies; without one, what changes nothing."""
    if factor is None:
        return _few_factors(plan, neutral, None, b"")
    if factor.size <= KEPT_FACTORS:
        return _few_factors(plan, neutral, factor.shape, factor.tobytes())
    table = _factor_table(plan, neutral, factor)
    return table, address_of(table)


@lru_cache(maxsize=512)
def _few_factors(
    plan: Plan, neutral: float, shape: tuple[int, ...] | None, values: bytes
) -> tuple[Array, int]:
    """Lay out a factor that is the same from batch to batch."""
    factor = None if shape is None else np.frombuffer(values, plan.compute).reshape(shape)
    table = _factor_table(plan, neutral, factor)
    return table, address_of(table)


def _factor_table(plan: Plan, neutral: float, factor: Array | None) -> Array:
    """Return what kernels read as a factor; they may read a line past the end.

    Adding -0.0 keeps every number, -0.0 included.
    """
    cut = plan.cut
    assert cut is not None
    parts = (cut.outer, (cut.fast,), cut.rows)
    order = [(axis, cut.kept[part]) for part in _factor_order(cut) for axis in parts[part]]
    wanted = [plan.lengths[axis] if whole else 1 for axis, whole in order]
    n = math.prod(wanted)
    table: Array = np.full(n + CACHE_LINE // 4, neutral, plan.compute)
    if factor is not None:
        laid = merged_factor(plan, factor, len(plan.order)).transpose([axis for axis, _ in order])
        table[:n].reshape(wanted)[...] = laid
    return table


def worth_threads(asked: int | None, moved_bytes: int) -> int:
    """Return how many threads pay for a copy that reads and writes so many bytes, or fewer."""
    if asked == 1 or moved_bytes < SHARE_BYTES:
        return 1
    most = workers.processors() if asked is None else asked
    return min(most, moved_bytes // (SHARE_BYTES // 2))


def _n_units(cut: Cut, call: _Call, header: tuple[int, ...], head: int) -> int:
    return call.n_outer // header[-1] * _units(cut, header, head)


def _units(cut: Cut, header: tuple[int, ...], head: int) -> int:
    """Return into how many units a kernel cuts one outer step."""
    _, n_rows, n_fast, _, block = header[:5]
    if cut.kernel == "runs":
        return -(-n_rows // block)
    if cut.kernel == "unweaves":
        return -(-(n_rows - head) // block)
    if cut.kernel == "weaves":
        return -(-(n_fast - head) // block)
    run = max(TILE_RUN // cut.final.itemsize, CACHE_LINE // cut.item.itemsize)
    n_runs = -(-(n_rows - head) // run) + (1 if head else 0)
    return n_runs * -(-n_fast // block)


def _streaming(cut: Cut, call: _Call, to: int, n_bytes: int) -> tuple[int, int]:
    """Say whether to store past the caches, and how many items come before a whole line."""
    size = cut.final.itemsize
    _, n_rows, n_fast, step, *_ = call.header
    enough = STREAM_BYTES if cut.kernel == "tiles" else STREAM_RUN_BYTES
    if n_bytes < enough or to % size:
        return 0, 0
    if cut.kernel == "runs":
        return int(n_fast * size >= LONG_RUN_BYTES), 0
    pixel = step if cut.kernel == "weaves" else size
    whole = step % CACHE_LINE == 0 or cut.kernel == "weaves"
    length = n_fast if cut.kernel == "weaves" else n_rows
    if not (whole and call.aligned and length >= 2 * CACHE_LINE):
        return 0, 0
    # an odd pixel comes past every alignment of its items
    heads = (n for n in range(CACHE_LINE) if (to + n * pixel) % CACHE_LINE == 0)
    head = next(heads, None)
    return (0, 0) if head is None else (1, head)


def _scratch() -> int:
    """Return the address of this thread's scratch memory, at the start of a cache line."""
    address: int | None = getattr(_local, "address", None)
    if address is None:
        assert _kernels is not None
        _local.memory = np.empty(_kernels.SCRATCH_BYTES + CACHE_LINE, np.uint8)
        address = _local.address = -(-address_of(_local.memory) // CACHE_LINE) * CACHE_LINE
    return address
