"""How memory is shared out: windows, slots, threads, and what is kept for later epochs.

Everything that the order of rows depends on is decided here from the selection, the
stored layout, the batch size and `memory` alone: never from the number of cores, of
threads, or from what the machine has free.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dask.utils import format_bytes, parse_bytes

from labeled.errors import LoaderError
from labeled.loader.lanes import Lane
from labeled.samplers.order import Mode
from labeled.samplers.staggered import blocks_of

DEFAULT_MEMORY = "256 MiB"

ENOUGH_UNITS = 45
"""So many units in a window mix well, though each is of a single class.

With m units of one of K classes each, a batch has about ``1 - (K - 1) / (2 m ln 2 log2 K)`` of the
entropy of a full shuffle; ten classes reach 0.95 with 39 units, and some windows hold fewer.
"""

LEAST_AHEAD = 2
"""Blocks of a staggered order that are read while the open ones are dealt out."""

BLOCK_ROWS = 1 << 16
"""Positions worked out together where the order does not depend on windows."""

RUN_BYTES = 1 << 17
"""The least that is read together in a shuffled window, where stored chunks are smaller."""

JOB_BYTES = 1 << 20
"""What one read-ahead job of an unshuffled or fully shuffled epoch should hold.

A consumer finds a batch in its core's cache if nothing else was read after it.
"""

DEAR_JOB_BYTES = 8 << 20
"""The same over chunks that are decoded, where caches matter less than planning does."""

FEW_SLOTS, DEAR_SLOTS, MANY_SLOTS = 2, 3, 8
MANY_BYTES = 8 << 20
"""Small jobs that this holds are in memory together: threads seldom wait. Large ones need few."""

SPARE_BATCHES = 3
FEWEST_IN_FLIGHT, MOST_IN_FLIGHT = 2, 14
HELD_BATCHES = 2
"""The consumer's: the one in use, and the next while it is handed over."""
IN_FLIGHT_SHARE = 4
"""Batches that are in a pipeline at a time take this fraction of the memory, if so many do."""

OVERHEAD_BYTES = 1 << 20
STACK_BYTES = 1 << 16
INDEX_BYTES, BLOCK_INDEX_BYTES, PLANNER_INDEX_BYTES = 48, 16, 32
"""Row numbers, places and temporary copies of them: of a window's rows, of a block of places.

The last is what stays with each thread that has worked out such a block.
"""

LIGHT_BYTES = 32 << 20
"""Kept rows up to this are dealt out by the caller alone: waking a thread takes longer."""

BESIDE_KEPT, MOST_BESIDE_KEPT = 32, 2 << 20
"""The share of kept rows that reading them in once may leave behind, and the most of it."""

KEEP_SHARE, SMALL_SHARE = 16, 4
"""Where not all fits, what is kept takes at most one of so many parts of the memory: each source,
and all of them together, for a table of many columns is not small because each of them is."""

KEPT_BESIDE = 4
"""Jobs, and their batches, that what is kept leaves room for; orders depend on it, so it stays."""

BESIDE_ASKED = 32
"""The share of what is asked for that the allocator may keep besides: 1.8 % was seen."""

MOST_THREADS = 16

SHUFFLED = ("window", "staggered")
"""Modes in which rows that are kept are shuffled as one window, where none is given."""


@dataclass(frozen=True)
class OpenBlocks:
    """Memory of a staggered order: blocks that are open, and those that are read meanwhile.

    Parameters
    ----------
    rows : int
        Rows of the largest block.
    open : int
        Blocks that are dealt out at a time.
    ahead : int
        Blocks read ahead of them.
    """

    rows: int
    open: int
    ahead: int

    @property
    def count(self) -> int:
        """Blocks in memory at the same time."""
        return self.open + self.ahead

    @property
    def total_rows(self) -> int:
        """Rows that all of them hold."""
        return self.rows * self.count


class TooSmallError(LoaderError):
    """Memory does not hold the smallest plan made with it.

    A plan made with more may need yet more: it keeps more sources, reads larger jobs, or has
    more batches in a pipeline.
    """

    held = ""
    """What was planned, in words."""
    needed_bytes = 0
    """What that plan needs, more than the memory there was."""
    others: Sequence[str] = ()
    """Remedies besides more memory."""

    @classmethod
    def of(cls, held: str, needed_bytes: int, others: Sequence[str]) -> TooSmallError:
        made = cls(held)
        made.held, made.needed_bytes, made.others = held, needed_bytes, others
        return made

    def told(self, memory_bytes: int, enough_bytes: int) -> LoaderError:
        """Return the error for a user who gave less memory than is enough."""
        remedies = [f"give memory={size_words(enough_bytes)!r}", "smaller batches", *self.others]
        return LoaderError(
            f"memory of {format_bytes(memory_bytes)} is too small: {self.held} need "
            f"{format_bytes(self.needed_bytes)}; {', or '.join(remedies)}"
        )


@dataclass(frozen=True)
class Sizes:
    """What a loader allocates, and how it cuts an epoch.

    Parameters
    ----------
    window_rows : int
        Rows shuffled together (orders depend on it, but for file order and full shuffle).
    job_rows : int
        Rows read ahead as one job; the window, in window mode.
    slots : int
        Jobs in memory at the same time, `slot_bytes` each with the row numbers they take.
    threads : int
        Background threads.
    """

    memory_bytes: int
    window_rows: int
    job_rows: int
    slots: int
    threads: int
    slot_bytes: int
    kept_bytes: int
    thread_bytes: int
    batch_bytes: int
    index_bytes: int = 0
    in_flight: int = 0
    """Batches in a pipeline at a time, the consumer's not counted; 0 where there is none."""
    workers: int = 0
    """Threads that take batches through it."""
    blocks: OpenBlocks | None = None
    """Of a staggered order, whose jobs are blocks and whose slots hold a batch each."""
    loaders: int = 1
    """Threads that read what is kept, before the first batch."""
    loading_bytes: int = 0
    """What they need besides; not all of it is given back."""

    @property
    def promised_bytes(self) -> int:
        """The most that iterating adds to the memory of the process."""
        asked = self.asked_bytes
        return max(asked, min(self.memory_bytes, asked + asked // BESIDE_ASKED))

    @property
    def asked_bytes(self) -> int:
        """What is asked of the allocator, which keeps a little beside it."""
        return (
            self.kept_bytes
            + self.slots * self.slot_bytes
            + (0 if self.blocks is None else self.blocks.total_rows * self._row_bytes)
            + (self.threads + 1) * self.thread_bytes
            + self.batch_bytes
            + self.index_bytes
            + self.loading_bytes
            + OVERHEAD_BYTES
        )

    @property
    def read_rows(self) -> int:
        """Rows that are read as one job."""
        return self.job_rows if self.blocks is None else self.blocks.rows

    @property
    def _row_bytes(self) -> int:
        return -(-self.slot_bytes // max(1, self.job_rows))

    def memory_for(self, window_rows: int, nbytes: Sequence[int]) -> int:
        """Return the `memory`, in whole MiB, with which windows of so many rows are made.

        Parameters
        ----------
        nbytes : sequence of int
            Of the sources that are not kept: those that more memory would keep count too.
        """
        larger = replace(self, threads=max(1, self.threads))
        if self.blocks is None:
            larger = replace(larger, slot_bytes=window_rows * self._row_bytes)
        else:
            n_open = -(-window_rows // self.blocks.rows)
            larger = replace(larger, blocks=replace(self.blocks, open=n_open))
        needed = larger.asked_bytes
        for size in sorted(nbytes):
            needed += size if size * KEEP_SHARE <= needed + size else 0
        return max(self.memory_bytes, rounded_up(needed))


@dataclass(frozen=True)
class Wanted:
    """What the caller asked for, checked; None where it is chosen here."""

    memory_bytes: int
    window_rows: int | None = None
    threads: int | None = None
    prefetch: int | None = None


def memory_of(memory: int | str) -> int:
    """Read a size such as ``"512 MiB"`` or a number of bytes.

    Raises
    ------
    LoaderError
        If it is not a size, or not positive.
    """
    try:
        n = parse_bytes(memory)
    except (ValueError, TypeError, AttributeError):
        raise LoaderError(f"memory={memory!r} is not a size; write it like '512 MiB'") from None
    if n <= 0:
        raise LoaderError(f"memory={memory!r} must be more than nothing")
    return int(n)


def choose_kept(
    lanes: Sequence[Lane], memory_bytes: int, batch_bytes: int, shuffled_rows: int = 0
) -> set[str]:
    """Choose the sources that are read once and kept: all if they fit, else only small ones.

    With them must fit what shuffling `shuffled_rows` rows within one window takes.
    """
    sizes = {lane.name: lane.nbytes for lane in lanes}
    room = memory_bytes - OVERHEAD_BYTES - (SPARE_BATCHES + KEPT_BESIDE) * batch_bytes
    scratch = max((lane.source.layout.scratch_bytes for lane in lanes), default=0)
    room -= KEPT_BESIDE * JOB_BYTES + 2 * scratch + shuffled_rows * INDEX_BYTES
    if sum(sizes.values()) <= room:
        return set(sizes)
    kept, taken = set(), 0
    for size, name in sorted((size, name) for name, size in sizes.items()):
        taken += size
        if size * KEEP_SHARE <= memory_bytes and taken * SMALL_SHARE <= memory_bytes:
            kept.add(name)
    return kept


def plan_sizes(
    lanes: Sequence[Lane],
    mode: Mode,
    wanted: Wanted,
    *,
    n_rows: int,
    batch_rows: int,
    unit_rows: int,
    out_row_bytes: int,
    piped: bool = False,
) -> Sizes:
    """Share memory out.

    Parameters
    ----------
    lanes : sequence of Lane
        What is read; ``keep`` already decided.
    wanted : Wanted
    batch_rows : int
        Rows of the largest batch.
    unit_rows : int
        Rows of the largest unit of the order.
    out_row_bytes : int
        Bytes of one row as handed out, where batches are laid out anew; else 0.
    piped : bool
        Batches go through a pipeline, several at a time.

    Raises
    ------
    TooSmallError
        If the smallest workable plan needs more.
    """
    kept = all(lane.keep for lane in lanes)
    by_chunk = any(lane.source.layout.chunk_rows is not None and not lane.keep for lane in lanes)
    staggered = not kept and mode == "staggered"
    windowed = not kept and (mode == "window" or (mode == "full" and by_chunk))
    memory_bytes, window_rows, threads = wanted.memory_bytes, wanted.window_rows, wanted.threads
    light = kept and threads is None and sum(lane.nbytes for lane in lanes) <= LIGHT_BYTES
    row_bytes = sum(lane.row_bytes for lane in lanes) + out_row_bytes
    in_flight = batches_in_flight(memory_bytes, batch_rows * row_bytes) if piped else 0
    shuffled_rows = min(n_rows, window_rows or n_rows) if kept and mode in SHUFFLED else 0
    budget = _budget(
        lanes, mode, n_rows, batch_rows, memory_bytes, out_row_bytes, windowed or staggered,
        in_flight, shuffled_rows,
    )  # fmt: skip
    scratch = _loading_scratch(lanes) if kept else 0
    blocks = None
    rows = BLOCK_ROWS
    more_threads = 0 if threads is None else max(0, threads - 1)  # the budget counts one
    room = budget.free - more_threads * budget.thread_bytes
    if staggered:
        job, slots = batch_rows, FEW_SLOTS
        if not in_flight:  # else batches are copied once more, to outlive their slots
            own_bytes = slots * job * budget.row_bytes
            budget = replace(budget, batch_bytes=budget.batch_bytes - own_bytes)
        fitting = budget.free // budget.row_bytes - slots * job
        rows, blocks = _blocks(window_rows, fitting, unit_rows, batch_rows, n_rows)
        room = budget.free - more_threads * budget.thread_bytes
        room -= blocks.total_rows * budget.row_bytes
    elif windowed:
        fitting = budget.free // FEW_SLOTS // budget.row_bytes
        job = _window_rows(window_rows, fitting, unit_rows, batch_rows)
        rows = job if mode == "window" else BLOCK_ROWS
        job, slots = min(max(job, unit_rows), max(n_rows, 1)), FEW_SLOTS
    else:
        if kept and mode in SHUFFLED:
            rows = max(n_rows, 1) if window_rows is None else window_rows
        unit = unit_rows if by_chunk else 1
        dear = any(lane.source.layout.dear and not lane.keep for lane in lanes)
        job_bytes = min(DEAR_JOB_BYTES, room // DEAR_SLOTS) if dear else JOB_BYTES
        job_bytes = min(job_bytes, room // FEW_SLOTS)
        job = _job_rows(job_bytes // budget.row_bytes, unit, batch_rows, n_rows)
        many = min(MANY_SLOTS, MANY_BYTES // (job * budget.row_bytes))
        most = DEAR_SLOTS if dear else max(DEAR_SLOTS, many)
        most = FEW_SLOTS if light or threads == 0 else most  # nobody reads ahead
        slots = max(FEW_SLOTS, min(most, (room - 2 * scratch) // (job * budget.row_bytes)))
    if wanted.prefetch is not None and not staggered:
        slots = max(FEW_SLOTS, wanted.prefetch + 1)
    slot_bytes = job * budget.row_bytes
    spare = room - slots * slot_bytes
    scratch = min(scratch, max(spare, 0))  # what is small is kept whatever reading it takes
    spare -= scratch
    if (windowed or staggered) and window_rows is None and threads is not None and spare < 0:
        # Windows must not depend on threads, and fill the memory: as many as are left room for.
        fewer = (spare + more_threads * budget.thread_bytes) // budget.thread_bytes + 1
        threads, spare = (fewer, 0) if fewer > 0 else (threads, spare)
    if spare < 0:
        what = "windows" if windowed and mode == "window" else "jobs"
        held = f"{slots} {what} of {job:,} rows"
        if blocks is not None:
            held = f"{blocks.count} blocks of {blocks.rows:,} rows"
        raise _too_small(budget, held, spare, threads, window_rows)
    if threads is None:
        threads = _threads(light, spare // budget.thread_bytes + 1)
        spare -= max(0, threads - 1) * budget.thread_bytes
    loaders = 1 + (min(threads, spare // scratch) if scratch else threads)
    return Sizes(
        memory_bytes=memory_bytes,
        window_rows=rows,
        job_rows=job,
        slots=slots,
        threads=threads,
        slot_bytes=slot_bytes,
        kept_bytes=budget.kept_bytes,
        thread_bytes=budget.thread_bytes,
        batch_bytes=budget.batch_bytes,
        index_bytes=budget.index_bytes,
        in_flight=in_flight,
        workers=_worker_count(in_flight, wanted.threads),
        blocks=blocks,
        loaders=loaders,
        loading_bytes=loaders * scratch,
    )


def _blocks(
    window_rows: int | None, fitting: int, unit_rows: int, batch_rows: int, n_rows: int
) -> tuple[int, OpenBlocks]:
    """Cut the rows there is room for into blocks: those that are open, and those read ahead."""
    if window_rows is None:
        block_rows = blocks_of(max(fitting, 1), unit_rows, n_rows)[0]
        n_blocks = fitting // block_rows - _ahead(block_rows, batch_rows)
        window_rows = max(1, n_blocks) * block_rows
    block_rows, n_open = blocks_of(window_rows, unit_rows, n_rows)
    return window_rows, OpenBlocks(block_rows, n_open, _ahead(block_rows, batch_rows))


def _ahead(block_rows: int, batch_rows: int) -> int:
    return max(LEAST_AHEAD, -(-batch_rows // block_rows))


def batches_in_flight(memory_bytes: int, batch_bytes: int) -> int:
    """Return how many batches are in a pipeline at a time: as many as a share of memory holds."""
    affordable = memory_bytes // IN_FLIGHT_SHARE // max(1, batch_bytes)
    return max(FEWEST_IN_FLIGHT, min(MOST_IN_FLIGHT, affordable))


def piped_bytes(memory_bytes: int, batch_bytes: int) -> int:
    """Return what batches in a pipeline, and those of its consumer, take."""
    return (batches_in_flight(memory_bytes, batch_bytes) + HELD_BATCHES) * batch_bytes


def _worker_count(in_flight: int, threads: int | None) -> int:
    """A batch a thread; no threads at all means that the caller works."""
    return min(in_flight, _cores() if threads is None else threads)


@dataclass(frozen=True)
class _Budget:
    """What is taken before windows are: `free` is left for them, for one thread and the caller."""

    memory_bytes: int
    row_bytes: int
    batch_bytes: int
    kept_bytes: int
    thread_bytes: int
    index_bytes: int

    @property
    def free(self) -> int:
        fixed = OVERHEAD_BYTES + self.kept_bytes + self.index_bytes
        return self.memory_bytes - fixed - self.batch_bytes - 2 * self.thread_bytes


def _budget(
    lanes: Sequence[Lane],
    mode: Mode,
    n_rows: int,
    batch_rows: int,
    memory_bytes: int,
    out_row_bytes: int,
    windowed: bool,
    in_flight: int,
    shuffled_rows: int,
) -> _Budget:
    row_bytes = max(1, sum(lane.row_bytes for lane in lanes))
    straight = not windowed and not out_row_bytes  # batches are cut from jobs, or joined from two
    spare_batches = 1 if straight else SPARE_BATCHES
    if in_flight:
        spare_batches = in_flight + HELD_BATCHES
    kept_bytes = sum(lane.nbytes for lane in lanes if lane.keep)
    block_rows = min(BLOCK_ROWS, n_rows) if mode == "full" else 0
    index_bytes = block_rows * BLOCK_INDEX_BYTES + shuffled_rows * INDEX_BYTES
    thread_bytes = max((_scratch_bytes(lane, windowed) for lane in lanes), default=1)
    if all(lane.keep for lane in lanes):  # counted with the indices: neither is in a slot
        index_bytes += min(kept_bytes // BESIDE_KEPT, MOST_BESIDE_KEPT)
    if windowed:
        row_bytes += INDEX_BYTES  # where each row goes, and what sorting it takes
    return _Budget(
        memory_bytes,
        row_bytes,
        batch_rows * (row_bytes + out_row_bytes) * spare_batches,
        kept_bytes,
        thread_bytes + block_rows * PLANNER_INDEX_BYTES,
        index_bytes,
    )


def _too_small(
    budget: _Budget, held: str, spare: int, threads: int | None, window_rows: int | None
) -> TooSmallError:
    """Say what a plan needs, and which of the wishes could be smaller."""
    decoding = "decoding" if threads is None else f"decoding in {threads} threads"
    others = ["fewer threads"] if threads is not None and threads > 1 else []
    others += [] if window_rows is None else ["a smaller window_rows"]
    row = format_bytes(budget.row_bytes)
    words = f"{held} ({row} a row), batches and {decoding}"
    return TooSmallError.of(words, budget.memory_bytes - spare, others)


def _window_rows(given: int | None, fitting: int, unit_rows: int, batch_rows: int) -> int:
    if given is not None:
        return given
    whole = fitting // unit_rows * unit_rows
    even = fitting - fitting % math.lcm(unit_rows, batch_rows)
    rows = even if 8 * even >= 7 * whole else whole  # batches that end with windows, if cheap
    return max(rows, unit_rows, batch_rows)


def _job_rows(wanted: int, unit_rows: int, batch_rows: int, n_rows: int) -> int:
    """Rows of a job that may be cut anywhere: whole batches and whole units, where that fits."""
    wanted = max(wanted, 1)
    together = math.lcm(unit_rows, batch_rows)
    step = together if together <= wanted else unit_rows
    rows = max(step, wanted // step * step, -(-batch_rows // step) * step)
    return min(rows, max(n_rows, 1))


def _scratch_bytes(lane: Lane, windowed: bool) -> int:
    """What one thread needs besides the destination: nothing much where it reads straight in."""
    layout = lane.source.layout
    if lane.keep or (layout.direct and not windowed):
        return STACK_BYTES
    return layout.scratch_bytes


def _loading_scratch(lanes: Sequence[Lane]) -> int:
    """What one thread needs besides while it reads what is kept."""
    layouts = [lane.source.layout for lane in lanes if lane.keep]
    return max((one.scratch_bytes for one in layouts if not one.direct), default=0)


def _threads(light: bool, affordable: int) -> int:
    return 0 if light else max(1, min(MOST_THREADS, _cores() - 1, affordable))


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def size_words(n_bytes: int) -> str:
    """Write a size so that ``memory=`` reads back no less.

    Examples
    --------
    >>> size_words(20 * 2**20 + 1)
    '21 MiB'
    """
    return f"{rounded_up(n_bytes) >> 20} MiB"


def rounded_up(n_bytes: int) -> int:
    """Return whole mebibytes, in bytes."""
    return -(-n_bytes >> 20) << 20
