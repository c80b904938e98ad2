"""Copies by compiled kernels: when numba is imported, which kernel fits, its table, its factors.

Importing numba (extra ``fast``) and compiling costs about a second, so nothing here touches it
until a copy is large enough (`LOAD_BYTES`), or enough bytes were moved without it
(:func:`pays_off`). With ``NUMBA_DISABLE_JIT`` set, as who debugs or measures coverage sets it,
loops would run as plain Python, a hundred times slower: then all is done as without numba.

The kernels see a copy as its fast axis, its *rows* (axes along which the destination is
contiguous, taken as one), and everything else, the *outer* axes:

* ``runs``: the fast axis is last in the destination too. Long runs that only move are left to
  NumPy.
* ``weaves``: two to four rows; planes become interleaved pixels.
* ``unweaves``: a fast axis of length two to four beside the rows; pixels become planes.
* ``tiles``: anything else.

Scale and shift become one small table over (outer, fast, row), of length 1 where nothing depends
on it. Everything that follows from the plan alone is kept, so that a batch costs a few
microseconds besides its bytes.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Any, NamedTuple, cast

import numpy as np

from labeled.errors import how_to_install
from labeled.permute import workers
from labeled.permute.arguments import CACHE_LINE, Array, Rows, address_of
from labeled.permute.plan import CAST_FROM, CAST_TO, MOVED, CopyPlan, Shape

Loop = Callable[..., Any]

OFF, SWITCH = "NUMBA_DISABLE_JIT", "LABELED_FAST"
"""numba's own variable, which turns compiling off; ours, which leaves compiled loops alone."""

LOAD_BYTES = 1 << 19
"""The first copy that reads and writes so many bytes imports the kernels."""

USE_BYTES = 1 << 15
"""Once they are imported, copies of so many bytes use them."""

PAID_BYTES = 1 << 30
"""Bytes moved without compiled loops, which took about as long as importing numba takes."""

SHARE_BYTES = 1 << 24
"""Bytes read and written from which a second thread pays, even if it is kept waiting a little."""

STREAM_BYTES = 1 << 21
"""Tiles of results of so many bytes are stored past the caches, where they would not stay."""

BLOCK_ITEMS = 1024
"""Items along the fast axis that a thread claims at a time."""

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

KEPT_FACTORS = 64
"""Scales and shifts of so many numbers are laid out once, and known again by their bytes."""

TILE_RUN = 128
"""Bytes written in one go along a row of the destination: two lines suit the prefetchers."""

HEADER = 8
"""Numbers at the start of a kernel's table, before its offsets."""

_local = threading.local()
_kernels: ModuleType | None = None
_failed = ""
_codes: dict[tuple[Any, ...], Any] = {}
_spent_s = 0.0
_moved_bytes = 0


# ---------------------------------------------------------------- whether numba is there
def wanted() -> bool:
    """Whether compiled loops may be used: neither numba's compiler nor our use of it is off."""
    return os.environ.get(OFF, "") in ("", "0") and os.environ.get(SWITCH) != "0"


@cache
def installed() -> bool:
    """Whether numba can be found; looked for once, which takes longer than a small copy."""
    return importlib.util.find_spec("numba") is not None


def available() -> bool:
    """Say whether the kernels are installed and not turned off."""
    return not _failed and wanted() and (_kernels is not None or installed())


def describe() -> str:
    """Return one line for plans and reports."""
    if os.environ.get(SWITCH) == "0":
        return f"blocked NumPy (compiled kernels turned off by {SWITCH}=0)"
    if not wanted():
        return f"blocked NumPy (numba is disabled by {OFF})"
    if not available():
        absent = f"numba is not installed: {how_to_install('numba', 'fast')}"
        return f"blocked NumPy ({_failed or absent})"
    if _kernels is None:
        return "compiled kernels (not needed yet)"
    return f"compiled kernels ({_spent_s:.1f} s spent on loading and compiling)"


def forget() -> None:
    """Look at the switch and for numba again, for plans that were run before, too."""
    _call.cache_clear()
    installed.cache_clear()


def pays_off(n_bytes: int) -> bool:
    """Whether to move so many bytes by compiled loops: numba is imported, or that pays by now.

    It is imported here, once this process has moved :data:`PAID_BYTES` bytes without it.
    """
    global _moved_bytes
    if not wanted():
        return False
    if hasattr(sys.modules.get("numba"), "njit"):
        return True
    if _moved_bytes > PAID_BYTES:  # it is not there, does not load, or another thread is at it
        return False
    _moved_bytes += n_bytes
    if _moved_bytes <= PAID_BYTES or not installed():
        return False
    with suppress(ImportError):
        importlib.import_module("numba")
    return hasattr(sys.modules.get("numba"), "njit")


def loop(function: Loop, **options: Any) -> Loop:
    """Compile at the first call, without the GIL; keep the code where numba may write."""
    njit: Any = importlib.import_module("numba").njit
    made: Any
    try:
        made = njit(nogil=True, cache=True, **options)(function)
    except RuntimeError:  # no folder to write to: neither beside the file nor the user's own
        made = njit(nogil=True, **options)(function)
    for name in ("save_overload", "load_overload"):
        method = getattr(made._cache, name, None)
        if method is None:
            continue

        def unless_full(*args: Any, method: Loop = method) -> Any:
            with suppress(OSError):  # the disk is full, with the code compiled and ready
                return method(*args)

        setattr(made._cache, name, unless_full)
    return cast(Loop, made)


# ---------------------------------------------------------------- a copy by a kernel
def run(
    plan: CopyPlan,
    dst: Array,
    src: Array,
    rows: Rows | None,
    scale: Array | None,
    shift: Array | None,
    threads: int | None,
) -> bool:
    """Make a copy by a kernel; False, with nothing written, where none is at hand or fits."""
    call = _call(plan)
    if call is None:
        return False
    table = call.table
    if rows is not None and call.gathered is not None:
        place, shape, row_bytes = call.gathered
        table = table.copy()
        table[place].reshape(shape)[...] += (rows * row_bytes)[:, None]
    factors: tuple[Array | None, Array | None] = (None, None)
    if not plan.pure:
        factors = _factor(call, scale, 1.0, src.ndim), _factor(call, shift, -0.0, src.ndim)
    to = address_of(dst)
    streamed = int(call.streams and to % CACHE_LINE == 0)
    fixed = (*call.kinds, address_of(src), to, table, *factors, streamed)

    def work(first: int, last: int) -> None:
        call.code(*fixed, first, last, _scratch())

    workers.share(work, call.n_units, worth_threads(threads, plan.moved_bytes))
    return True


def worth_threads(asked: int | None, moved_bytes: int) -> int:
    """Return how many threads pay for a copy that reads and writes so many bytes, or fewer."""
    if asked == 1 or moved_bytes < SHARE_BYTES:
        return 1
    most = workers.processors() if asked is None else asked
    return min(most, moved_bytes // (SHARE_BYTES // 2))


def _load() -> bool:
    """Import the kernels, for smaller copies too; False where they do not load."""
    global _kernels, _failed, _spent_s
    started = time.perf_counter()
    try:
        _kernels = importlib.import_module("labeled.permute.kernels")
    except ImportError as error:
        _failed = f"numba does not load: {error}"
    _spent_s += time.perf_counter() - started
    _call.cache_clear()
    return _kernels is not None


class Cut(NamedTuple):
    """The merged axes by the part they play, for one kernel."""

    kernel: str
    item: np.dtype[Any]
    final: np.dtype[Any]
    outer: Shape
    rows: Shape
    kept: tuple[bool, ...]
    """Whether factors change along (outer, fast, rows)."""


def _cut(plan: CopyPlan) -> Cut | None:
    """Return the kernel and what it sees; None where NumPy makes the copy."""
    items, fast = _items(plan), plan.fast
    if items is None or fast is None:
        return None
    lengths, size = plan.lengths, plan.final.itemsize
    last = len(lengths) - 1
    n_fast = lengths[fast]
    if fast == last:
        kernel, rows = "runs", _joined(lengths, range(last - 1, -1, -1), ENOUGH_RUNS)
        if plan.pure and (n_fast * size > SHORT_RUN_BYTES or plan.axis is not None):
            return None
    else:
        kernel, rows = "tiles", _joined(lengths, range(last, fast, -1), ENOUGH_ROW_BYTES // size)
        n_rows = math.prod(map(lengths.__getitem__, rows))
        step = plan.at[last] if plan.axis != last else 0
        if 2 <= n_rows <= 4 and plan.to[fast] == n_rows * size:
            kernel = "weaves"
        elif 2 <= n_fast <= 4 and step == n_fast * plan.item.itemsize:
            kernel, rows = "unweaves", (last,)
        elif plan.pure and n_rows * n_fast * size < SMALL_TILE_BYTES:
            return None
    outer = tuple(sorted({*range(len(lengths))} - {fast, *rows}))
    parts, table = (outer, (fast,), rows), 1
    kept = [any(map(plan.varies.__getitem__, part)) for part in parts]
    if kernel in ("weaves", "unweaves"):
        along, across = (1, 2) if kernel == "weaves" else (2, 1)
        if kept[along]:
            return None
        kept[across] = not plan.pure
    for part, one in zip(parts, kept, strict=True):
        table *= math.prod(map(lengths.__getitem__, part)) if one else 1
    if table > max(64, plan.size // FACTOR_SHARE):
        return None
    return Cut(kernel, *items, outer, rows, tuple(kept))


def _items(plan: CopyPlan) -> tuple[np.dtype[Any], np.dtype[Any]] | None:
    """Return the item types that a kernel would see, or None where it cannot."""
    item, final = plan.item, plan.final
    if plan.pure:
        moved = MOVED.get(item.itemsize)
        known = moved is not None and item.kind in "biufcmMV" and not item.hasobject
        return (np.dtype(moved), np.dtype(moved)) if known else None
    native = item.isnative and final.isnative and plan.compute == final
    if not native or item.char not in CAST_FROM or final.char not in CAST_TO:
        return None
    return (np.dtype(np.uint8) if item.kind == "b" else item), final


def _joined(lengths: Shape, axes: Sequence[int], enough: int) -> Shape:
    """Return the first of `axes`, from inner to outer, that are one run of the destination."""
    chosen: Shape = ()
    for axis in axes:
        if chosen and math.prod(map(lengths.__getitem__, chosen)) >= enough:
            break
        chosen = (axis, *chosen)
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """What follows from a plan alone: a kernel and its arguments."""

    plan: CopyPlan
    code: Any
    kinds: tuple[Any, ...]
    table: Rows
    streams: bool
    """Whether to store past the caches, where the destination begins at a cache line."""
    n_units: int
    gathered: tuple[slice, tuple[int, int, int], int] | None
    """Which offsets of the table depend on gathered rows, their shape and the bytes of a row."""
    factor_axes: Shape
    """The order of axes in a table of factors."""
    factor_shape: Shape


@lru_cache(maxsize=1024)
def _call(plan: CopyPlan) -> _Call | None:
    """Return a call that is ready to run; None where the kernels are turned off, or do not pay."""
    cut = _cut(plan)
    if cut is None or plan.moved_bytes < USE_BYTES or not available():
        return None
    if _kernels is None and (plan.moved_bytes < LOAD_BYTES or not _load()):
        return None
    fast, lengths, by_runs = plan.fast, plan.lengths, cut.kernel == "runs"
    assert fast is not None
    parts = (cut.outer, (fast,), cut.rows)
    n_outer = math.prod(map(lengths.__getitem__, cut.outer))
    n_rows, n_fast = math.prod(map(lengths.__getitem__, cut.rows)), lengths[fast]
    step = plan.to[cut.rows[-1] if by_runs and cut.rows else fast]
    block = max(1, 16 * BLOCK_ITEMS // n_fast) if by_runs else BLOCK_ITEMS

    # factors lie as the kernel walks, with one for all steps along a part where nothing changes
    factor_axes: Shape = ()
    factor_shape: Shape = ()
    by, items = [0, 0, 0], 1
    for number in (1, 2, 0) if by_runs else (2, 1, 0):
        by[number] = items if cut.kept[number] else 0
        part, shape = parts[number], (1,) * len(parts[number])
        shape = tuple(map(lengths.__getitem__, part)) if cut.kept[number] else shape
        factor_axes, factor_shape = (*part, *factor_axes), (*shape, *factor_shape)
        items *= math.prod(shape)

    # everything a kernel reads: sizes, outer offsets and offsets of rows; those along a gathered
    # axis are left at zero, as they differ from call to call
    at = [*plan.at]
    if plan.axis is not None:
        at[plan.axis] = 0
    outer_dst = _offsets(lengths, plan.to, cut.outer)
    table: Rows = np.concatenate([
        (n_outer, n_rows, n_fast, step, block, *by),
        _offsets(lengths, at, cut.outer), outer_dst, _offsets(lengths, at, cut.rows),
    ])  # fmt: skip
    gathered = None
    if plan.axis is not None:
        part, start, count = cut.outer, HEADER, n_outer
        if plan.axis in cut.rows:
            part, start, count = cut.rows, HEADER + 2 * n_outer, n_rows
        inner = math.prod(map(lengths.__getitem__, part[part.index(plan.axis) + 1 :]))
        n = lengths[plan.axis]
        place = slice(start, start + count)
        gathered = place, (count // (n * inner), n, inner), plan.at[plan.axis]

    tile_rows = max(TILE_RUN // cut.final.itemsize, CACHE_LINE // cut.item.itemsize)
    units = {"weaves": -(-n_fast // block), "tiles": -(-n_rows // tile_rows) * -(-n_fast // block)}
    large = cut.kernel == "tiles" and plan.size * plan.final.itemsize >= STREAM_BYTES
    woven = {"weaves": (n_rows, 1), "unweaves": (1, n_fast)}.get(cut.kernel, (1, 1))
    kinds = np.empty(0, cut.item), np.empty(0, cut.final), ((0,) * woven[0], (0,) * woven[1])
    return _Call(
        plan,
        _code(cut, kinds, None if plan.pure else np.empty(0, plan.compute)),
        kinds,
        table,
        large and bool(step % CACHE_LINE == 0 and not np.any(outer_dst % CACHE_LINE)),
        n_outer * units.get(cut.kernel, -(-n_rows // block)),
        gathered,
        factor_axes,
        factor_shape,
    )


def _code(cut: Cut, kinds: tuple[Any, ...], factor: Array | None) -> Any:
    """Return the code of a kernel for some types of items, compiled where it is not yet."""
    global _spent_s
    key = (cut.kernel, cut.item, cut.final, factor is None, kinds[-1])
    if key not in _codes:
        assert _kernels is not None
        started = time.perf_counter()
        args = (*kinds, 0, 0, np.zeros(HEADER + 9, np.int64), factor, factor, 0, 0, 0, 0)
        _codes[key] = _kernels.entry(cut.kernel.removeprefix("un"), args)
        _spent_s += time.perf_counter() - started
    return _codes[key]


def _offsets(lengths: Shape, steps: Sequence[int], axes: Shape) -> Rows:
    """Return the byte offset of every step along `axes`, the last running fastest."""
    found: Rows = np.zeros(1, np.int64)
    for axis in axes:
        found = np.add.outer(found, np.arange(lengths[axis]) * steps[axis]).reshape(-1)
    return found


def _factor(call: _Call, factor: Array | None, neutral: float, ndim: int) -> Array:
    """Lay a factor out for a kernel; without one, what changes nothing (-0.0 keeps -0.0)."""
    if factor is None:
        return _kept_factor(call, (), np.array(neutral, call.plan.compute).tobytes(), ndim)
    if factor.size <= KEPT_FACTORS:
        return _kept_factor(call, factor.shape, factor.tobytes(), ndim)
    return _factor_table(call, factor, ndim)


@lru_cache(maxsize=512)
def _kept_factor(call: _Call, shape: Shape, values: bytes, ndim: int) -> Array:
    """Lay out a factor that is the same from batch to batch."""
    return _factor_table(call, np.frombuffer(values, call.plan.compute).reshape(shape), ndim)


def _factor_table(call: _Call, factor: Array, ndim: int) -> Array:
    """Return what kernels read as a factor; they may read a few numbers past the end."""
    laid = call.plan.over_axes(factor, ndim).transpose(call.factor_axes)
    n = math.prod(call.factor_shape)
    table: Array = np.zeros(n + 4, call.plan.compute)
    table[:n].reshape(call.factor_shape)[...] = laid
    return table


def _scratch() -> int:
    """Return the address of this thread's scratch memory, at the start of a cache line."""
    address: int | None = getattr(_local, "address", None)
    if address is None:
        assert _kernels is not None
        _local.memory = np.empty(_kernels.SCRATCH_BYTES + CACHE_LINE, np.uint8)
        address = _local.address = -(-address_of(_local.memory) // CACHE_LINE) * CACHE_LINE
    return address
