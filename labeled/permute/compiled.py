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
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from labeled.errors import how_to_install
from labeled.permute import compiler, workers
from labeled.permute.addresses import address_of
from labeled.permute.arguments import Array, Rows
from labeled.permute.blocked import merged_factor
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
"""Runs from this length on are stored past the caches where results are large."""

BLOCK_ITEMS = 1024
"""Items along the fast axis that a thread claims at a time."""

KEPT_FACTORS = 64
"""Scales and shifts of so many numbers are laid out once, and known again by their bytes."""


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
        return f"blocked NumPy (numba is disabled by {compiler.OFF})"
    if not available():
        absent = f"numba is not installed: {how_to_install('numba', 'fast')}"
        return f"blocked NumPy ({_failed or absent})"
    if _kernels is None:
        return "compiled kernels (not needed yet)"
    return f"compiled kernels ({_spent_s:.1f} s spent on loading and compiling)"


def left_to_numpy(plan: Plan) -> bool:
    """Say whether a pure move is best left to NumPy: runs, or next to nothing to do."""
    return plan.in_runs or plan.size * plan.final.itemsize < USE_BYTES


def rows_left_to_numpy(plan: Plan) -> bool:
    """Say whether gathered rows move as they are, and are too few for a second thread."""
    whole = plan.pure and plan.axis == 0 and len(plan.lengths) == 2 and plan.in_runs
    return whole and 2 * plan.size * plan.final.itemsize < SHARE_BYTES


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
    call = _call(plan) if _kernels is not None or _worth_loading(plan) else None
    if call is None:
        return False
    table = call.table
    if rows is not None:
        assert call.gathered is not None
        slot, shape, row_bytes = call.gathered
        table = table.copy()
        table[slot].reshape(shape)[...] += (rows * row_bytes)[:, None]
    scales = shifts = (_NOTHING, _NOWHERE)
    if not plan.pure:
        scales, shifts = _factors(plan, scale, 1.0), _factors(plan, shift, -0.0)
    to = address_of(dst)
    streamed = int(call.streams and to % call.streams == 0)
    fixed = (call.kinds, address_of(src), to, table, scales[1], shifts[1], streamed)
    count = 1 if call.moved_bytes < SHARE_BYTES else worth_threads(threads, call.moved_bytes)

    def work(first: int, last: int) -> None:
        call.kernel(*fixed, first, last, _scratch())

    workers.share(work, call.n_units, count)
    return True


def forget() -> None:
    """Look at the switch and for numba again, for plans that were run before, too."""
    _call.cache_clear()
    compiler.forget()


def _worth_loading(plan: Plan) -> bool:
    """Load the kernels if a copy is large enough; say whether they are there."""
    large = plan.cut is not None and _moved_bytes(plan) >= 2 * LOAD_BYTES
    return large and available() and _loaded()


def _loaded() -> bool:
    global _kernels, _failed, _spent_s
    started = time.perf_counter()
    try:
        _kernels = importlib.import_module("labeled.permute.kernels")
    except ImportError as error:
        _failed = f"numba does not load: {error}"
    _spent_s += time.perf_counter() - started
    return _kernels is not None


def _moved_bytes(plan: Plan) -> int:
    """Return the bytes read and written."""
    assert plan.cut is not None
    return plan.size * (plan.cut.item.itemsize + plan.final.itemsize)


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """What follows from a plan alone: a kernel and its arguments."""

    kernel: Any
    kinds: tuple[Any, ...]
    table: Rows
    streams: int
    """Past the caches, where the destination begins at a multiple of this; 0 where never."""
    n_units: int
    moved_bytes: int
    gathered: tuple[slice, tuple[int, int, int], int] | None
    """Which offsets of the table depend on gathered rows, their shape and the bytes of a row."""


@lru_cache(maxsize=1024)
def _call(plan: Plan) -> _Call | None:
    """Return a call that is ready to run; None where the kernels are turned off, or do not pay."""
    global _spent_s
    cut = plan.cut
    if cut is None or _moved_bytes(plan) < 2 * USE_BYTES or not available():
        return None
    n_outer, n_rows = (math.prod(plan.lengths[a] for a in part) for part in (cut.outer, cut.rows))
    n_fast, size = plan.lengths[cut.fast], cut.final.itemsize
    step = plan.dst_strides[cut.rows[-1] if cut.kernel == "runs" and cut.rows else cut.fast]
    block = max(1, 16 * BLOCK_ITEMS // n_fast) if cut.kernel == "runs" else BLOCK_ITEMS
    by = _steps(cut, (n_outer, n_fast, n_rows))
    # everything a kernel reads: sizes, outer offsets and offsets of rows; those along a gathered
    # axis are left at zero, as they differ from call to call
    header = (n_outer, n_rows, n_fast, step, block, *by)
    outer_dst = _offsets(plan, plan.dst_strides, cut.outer)
    outer_src, row_src = (
        _offsets(plan, plan.src_strides, part, plan.axis) for part in (cut.outer, cut.rows)
    )
    along = {"weaves": n_fast, "unweaves": n_rows}.get(cut.kernel, CACHE_LINE)
    width = np.uint64(0) if along * size >= 64 else np.uint16(0)  # a vector of 64 or 16 bytes
    woven = (0,) * {"weaves": n_rows, "unweaves": n_fast}.get(cut.kernel, 1)
    kinds = (cut.item.type(0), cut.final.type(0), width, woven)
    table: Rows = np.concatenate([header, outer_src, outer_dst, row_src])
    signature = (cut.kernel, cut.item, cut.final, width.dtype, len(woven))
    if signature not in _entries:
        assert _kernels is not None
        started = time.perf_counter()
        numbers = (_NOWHERE, _NOWHERE, 0, 0, 0, 0)
        _entries[signature] = _kernels.entry(cut.kernel, (kinds, 0, 0, table, *numbers))
        _spent_s += time.perf_counter() - started
    return _Call(
        _entries[signature],
        kinds,
        table,
        _streams(plan, cut, header, aligned=not np.any(outer_dst % CACHE_LINE)),
        n_outer * _units(cut, header),
        _moved_bytes(plan),
        _gather_slot(plan, cut, n_outer, n_rows),
    )


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


def _gather_slot(
    plan: Plan, cut: Cut, n_outer: int, n_rows: int
) -> tuple[slice, tuple[int, int, int], int] | None:
    axis = plan.axis
    if axis is None:
        return None
    part, start, count = cut.outer, HEADER, n_outer
    if axis in cut.rows:
        part, start, count = cut.rows, HEADER + 2 * n_outer, n_rows
    at = part.index(axis)
    before = math.prod(plan.lengths[a] for a in part[:at])
    after = math.prod(plan.lengths[a] for a in part[at + 1 :])
    return slice(start, start + count), (before, plan.lengths[axis], after), plan.src_strides[axis]


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
    if factor is None or factor.size <= KEPT_FACTORS:
        known = (None, b"") if factor is None else (factor.shape, factor.tobytes())
        return _few_factors(plan, neutral, *known)
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


def _units(cut: Cut, header: tuple[int, ...]) -> int:
    """Return into how many units a kernel cuts one outer step."""
    _, n_rows, n_fast, _, block = header[:5]
    if cut.kernel in ("runs", "unweaves"):
        return -(-n_rows // block)
    if cut.kernel == "weaves":
        return -(-n_fast // block)
    run = max(TILE_RUN // cut.final.itemsize, CACHE_LINE // cut.item.itemsize)
    return -(-n_rows // run) * -(-n_fast // block)


def _streams(plan: Plan, cut: Cut, header: tuple[int, ...], *, aligned: bool) -> int:
    """Return where a destination must begin to be stored past the caches; 0: not at all.

    `aligned`: outer steps of the destination are whole cache lines.
    """
    size, n_bytes = cut.final.itemsize, plan.size * plan.final.itemsize
    _, n_rows, n_fast, step, *_ = header
    if n_bytes < (STREAM_BYTES if cut.kernel == "tiles" else STREAM_RUN_BYTES):
        return 0
    if cut.kernel == "runs":  # which begin each run by hand
        return size if n_fast * size >= LONG_RUN_BYTES else 0
    whole = step % CACHE_LINE == 0 or cut.kernel == "weaves"
    length = n_fast if cut.kernel == "weaves" else n_rows
    return CACHE_LINE if whole and aligned and length >= 2 * CACHE_LINE else 0


def _scratch() -> int:
    """Return the address of this thread's scratch memory, at the start of a cache line."""
    address: int | None = getattr(_local, "address", None)
    if address is None:
        assert _kernels is not None
        _local.memory = np.empty(_kernels.SCRATCH_BYTES + CACHE_LINE, np.uint8)
        address = _local.address = -(-address_of(_local.memory) // CACHE_LINE) * CACHE_LINE
    return address
