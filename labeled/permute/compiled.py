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
from labeled.permute.arguments import CACHE_LINE, Array, Rows, address_of
from labeled.permute.blocked import merged_factor
from labeled.permute.plan import Cut, Plan

LOAD_BYTES = 1 << 18
"""The first copy of so many bytes imports the kernels."""

USE_BYTES = 1 << 14
"""Once they are imported, copies of so many bytes use them."""

SHARE_BYTES = 1 << 24
"""Bytes read and written from which a second thread pays, even if it is kept waiting a little."""

STREAM_BYTES = 1 << 21
"""Tiles of results of so many bytes are stored past the caches, where they would not stay."""

BLOCK_ITEMS = 1024
"""Items along the fast axis that a thread claims at a time."""

KEPT_FACTORS = 64
"""Scales and shifts of so many numbers are laid out once, and known again by their bytes."""

TILE_RUN = 128
"""Bytes written in one go along a row of the destination: two lines suit the prefetchers."""

HEADER = 8
"""Numbers at the start of a kernel's table, before its offsets."""

_local = threading.local()
_kernels: ModuleType | None = None
_failed = ""
_entries: dict[tuple[Any, ...], Any] = {}
_spent_s = 0.0


def available() -> bool:
    """Say whether the kernels are installed and not turned off."""
    return not _failed and compiler.wanted() and (_kernels is not None or compiler.installed())


def describe() -> str:
    """Return one line for plans and reports."""
    if os.environ.get(compiler.SWITCH) == "0":
        return f"blocked NumPy (compiled kernels turned off by {compiler.SWITCH}=0)"
    if not compiler.wanted():
        return f"blocked NumPy (numba is disabled by {compiler.OFF})"
    if not available():
        absent = f"numba is not installed: {how_to_install('numba', 'fast')}"
        return f"blocked NumPy ({_failed or absent})"
    if _kernels is None:
        return "compiled kernels (not needed yet)"
    return f"compiled kernels ({_spent_s:.1f} s spent on loading and compiling)"


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
    if rows is not None and call.gathered is not None:
        place, shape, row_bytes = call.gathered
        table = table.copy()
        table[place].reshape(shape)[...] += (rows * row_bytes)[:, None]
    factors: tuple[Array | None, Array | None] = (None, None)
    if not plan.pure:
        factors = _factor(plan, scale, 1.0), _factor(plan, shift, -0.0)
    to = address_of(dst)
    streamed = int(call.streams and to % CACHE_LINE == 0)
    fixed = (*call.kinds, address_of(src), to, table, *factors, streamed)

    def work(first: int, last: int) -> None:
        call.kernel(*fixed, first, last, _scratch())

    workers.share(work, call.n_units, worth_threads(threads, call.moved_bytes))
    return True


def worth_threads(asked: int | None, moved_bytes: int) -> int:
    """Return how many threads pay for a copy that reads and writes so many bytes, or fewer."""
    if asked == 1 or moved_bytes < SHARE_BYTES:
        return 1
    most = workers.processors() if asked is None else asked
    return min(most, moved_bytes // (SHARE_BYTES // 2))


def forget() -> None:
    """Look at the switch and for numba again, for plans that were run before, too."""
    _call.cache_clear()
    compiler.forget()


def _worth_loading(plan: Plan) -> bool:
    """Load the kernels if a copy is large enough; say whether they are there."""
    global _kernels, _failed, _spent_s
    if plan.cut is None or _moved_bytes(plan, plan.cut) < 2 * LOAD_BYTES or not available():
        return False
    started = time.perf_counter()
    try:
        _kernels = importlib.import_module("labeled.permute.kernels")
    except ImportError as error:
        _failed = f"numba does not load: {error}"
    _spent_s += time.perf_counter() - started
    return _kernels is not None


def _moved_bytes(plan: Plan, cut: Cut) -> int:
    """Return the bytes read and written."""
    return plan.size * (cut.item.itemsize + plan.final.itemsize)


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """What follows from a plan alone: a kernel and its arguments."""

    kernel: Any
    kinds: tuple[Any, ...]
    table: Rows
    streams: bool
    """Whether to store past the caches, where the destination begins at a cache line."""
    n_units: int
    moved_bytes: int
    gathered: tuple[slice, tuple[int, int, int], int] | None
    """Which offsets of the table depend on gathered rows, their shape and the bytes of a row."""


@lru_cache(maxsize=1024)
def _call(plan: Plan) -> _Call | None:
    """Return a call that is ready to run; None where the kernels are turned off, or do not pay."""
    cut = plan.cut
    if cut is None or _moved_bytes(plan, cut) < 2 * USE_BYTES or not available():
        return None
    n_outer, n_rows = (math.prod(plan.lengths[a] for a in part) for part in (cut.outer, cut.rows))
    n_fast, by_runs = plan.lengths[cut.fast], cut.kernel == "runs"
    step = plan.dst_strides[cut.rows[-1] if by_runs and cut.rows else cut.fast]
    block = max(1, 16 * BLOCK_ITEMS // n_fast) if by_runs else BLOCK_ITEMS
    # everything a kernel reads: sizes, outer offsets and offsets of rows; those along a gathered
    # axis are left at zero, as they differ from call to call
    header = (n_outer, n_rows, n_fast, step, block, *_factor_steps(plan, cut))
    outer_dst = _offsets(plan, plan.dst_strides, cut.outer)
    outer_src, row_src = (
        _offsets(plan, plan.src_strides, part, plan.axis) for part in (cut.outer, cut.rows)
    )
    table: Rows = np.concatenate([header, outer_src, outer_dst, row_src])
    tile_rows = max(TILE_RUN // cut.final.itemsize, CACHE_LINE // cut.item.itemsize)
    units = {
        "runs": -(-n_rows // block),
        "unweaves": -(-n_rows // block),
        "weaves": -(-n_fast // block),
        "tiles": -(-n_rows // tile_rows) * -(-n_fast // block),
    }
    large = cut.kernel == "tiles" and plan.size * plan.final.itemsize >= STREAM_BYTES
    in_lines = bool(step % CACHE_LINE == 0 and not np.any(outer_dst % CACHE_LINE))
    kinds = (
        np.empty(0, cut.item),
        np.empty(0, cut.final),
        (0,) * {"weaves": n_rows, "unweaves": n_fast}.get(cut.kernel, 1),
    )
    return _Call(
        _entry(plan, cut, kinds, table),
        kinds,
        table,
        large and in_lines,
        n_outer * units[cut.kernel],
        _moved_bytes(plan, cut),
        _gathered(plan, cut, n_outer, n_rows),
    )


def _entry(plan: Plan, cut: Cut, kinds: tuple[Any, ...], table: Rows) -> Any:
    """Return the code of a kernel for some types of items, compiled where it is not yet."""
    global _spent_s
    signature = (cut.kernel, cut.item, cut.final, plan.pure, len(kinds[-1]))
    if signature not in _entries:
        assert _kernels is not None
        started = time.perf_counter()
        factor = None if plan.pure else _factor(plan, None, 1.0)
        args = (*kinds, 0, 0, table, factor, factor, 0, 0, 0, 0)
        _entries[signature] = _kernels.entry(cut.kernel, args)
        _spent_s += time.perf_counter() - started
    return _entries[signature]


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


def _gathered(
    plan: Plan, cut: Cut, n_outer: int, n_rows: int
) -> tuple[slice, tuple[int, int, int], int] | None:
    """Return where a table holds the offsets of gathered rows."""
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


# ---------------------------------------------------------------- scale and shift
def _factor_axes(plan: Plan, cut: Cut) -> list[tuple[int, int, int]]:
    """Return (part, axis, length) of a table of factors; what is read as one comes last."""
    parts = (cut.outer, (cut.fast,), cut.rows)
    order = (0, 2, 1) if cut.kernel == "runs" else (0, 1, 2)
    return [
        (part, axis, plan.lengths[axis] if cut.kept[part] else 1)
        for part in order
        for axis in parts[part]
    ]


def _factor_steps(plan: Plan, cut: Cut) -> list[int]:
    """Return how many factors one step along (outer, fast, rows) is worth."""
    steps, items = [0, 0, 0], 1
    for part, _, length in reversed(_factor_axes(plan, cut)):
        if cut.kept[part]:
            steps[part] = steps[part] or items
            items *= length
    return steps


def _factor(plan: Plan, factor: Array | None, neutral: float) -> Array:
    """Lay a factor out for a kernel; without one, what changes nothing."""
    if factor is None:
        return _few_factors(plan, neutral, None, b"")
    if factor.size <= KEPT_FACTORS:
        return _few_factors(plan, neutral, factor.shape, factor.tobytes())
    return _factor_table(plan, neutral, factor)


@lru_cache(maxsize=512)
def _few_factors(plan: Plan, neutral: float, shape: tuple[int, ...] | None, values: bytes) -> Array:
    """Lay out a factor that is the same from batch to batch."""
    factor = None if shape is None else np.frombuffer(values, plan.compute).reshape(shape)
    return _factor_table(plan, neutral, factor)


def _factor_table(plan: Plan, neutral: float, factor: Array | None) -> Array:
    """Return what kernels read as a factor; they may read a few numbers past the end.

    Adding -0.0 keeps every number, -0.0 included.
    """
    assert plan.cut is not None
    axes = _factor_axes(plan, plan.cut)
    wanted = [length for _, _, length in axes]
    n = math.prod(wanted)
    table: Array = np.full(n + 4, neutral, plan.compute)
    if factor is not None:
        laid = merged_factor(plan, factor, len(plan.order)).transpose([axis for _, axis, _ in axes])
        table[:n].reshape(wanted)[...] = laid
    return table


def _scratch() -> int:
    """Return the address of this thread's scratch memory, at the start of a cache line."""
    address: int | None = getattr(_local, "address", None)
    if address is None:
        assert _kernels is not None
        _local.memory = np.empty(_kernels.SCRATCH_BYTES + CACHE_LINE, np.uint8)
        address = _local.address = -(-address_of(_local.memory) // CACHE_LINE) * CACHE_LINE
    return address
