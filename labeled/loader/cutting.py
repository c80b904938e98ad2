"""How an epoch is cut into windows or jobs, and how many threads read them.

Everything that the order of rows depends on is decided from the selection, the stored
layout, the batch size and `memory` alone: never from the number of cores, of threads, or
from what the machine has free.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dask.utils import format_bytes

from labeled.loader.budget import (
    BLOCK_ROWS,
    FEW_SLOTS,
    INDEX_BYTES,
    Budget,
    Sizes,
    TooSmallError,
    Wanted,
    Work,
    budget_of,
)
from labeled.loader.lanes import Lane
from labeled.loader.ordering import OrderedRows

JOB_BYTES = 3 << 19
"""What one read-ahead job of an unshuffled or fully shuffled epoch should hold.

A consumer finds a batch in its core's cache if nothing else was read after it. But threads that
read smaller jobs wait for one another at Python's lock: of a mebibyte each, rows of 3 KiB came at
0.92 of a bare loop, and at 1.12 of a mebibyte and a half.
"""

ALONE_JOB_BYTES = 1 << 20
"""The same where no thread reads ahead: file order took a third longer with larger ones."""

DEAR_JOB_BYTES = 8 << 20
"""Like `JOB_BYTES`, over chunks that are decoded, where caches matter less than planning does."""

DEAR_SLOTS, MANY_SLOTS = 3, 8
MANY_BYTES = 8 << 20
"""Small jobs that this holds are in memory together: threads seldom wait. Large ones need few."""

LIGHT_BYTES = 32 << 20
"""Kept rows up to this are dealt out by the caller alone: waking a thread takes longer."""

MOST_THREADS = 16

INDEXED_WINDOWS = 3
"""Windows whose row numbers are in memory: the one in use, the next, and the one after it that a
disk is told of."""

PICKED_JOB_BYTES = 3 << 20
"""Like `JOB_BYTES`, where rows are picked one by one: threads then meet half as often."""

PICKED_JOBS = 4
"""A window is cut into so many jobs or more, where batches are not larger than those."""

JOINED_SLOTS = 3
"""Such jobs in memory at the least: a batch in which a window ends lies in two, and the consumer
has the batch before it, out of a third."""

PICKED_ROW_BYTES = 256
"""Rows of windows are picked one by one from this size on.

Of windows read whole, epochs took 1.7 times as long for such rows of a contiguous source and 1.15
times for those of chunks (3 KiB: 2.3 and 1.3; 64 KiB: 3.0 and 1.7), but for rows of 64 bytes only
1.0 and 0.6 times.
"""

THREADS_SHARE = 8
"""Windows leave up to one of so many parts of the memory to the threads that read them."""

LARGE_SHARE, LARGE_BYTES = 8, 1 << 20
"""Chunks larger than one of so many parts of the memory are named as what takes too much, but
none up to this size."""


def plan_sizes(work: Work, wanted: Wanted) -> Sizes:
    """Share memory out.

    Raises
    ------
    TooSmallError
        If the smallest workable plan needs more.
    """
    budget = budget_of(work, wanted)
    cut = _cut(work, wanted, budget)
    slot_bytes = cut.job_rows * budget.row_bytes
    spare = _room(budget, wanted) - cut.slots * slot_bytes
    # What is small is kept whatever reading it takes.
    loading_bytes = min(budget.loading_bytes, max(spare, 0))
    threads, spare = _threads(work, wanted, budget, spare - loading_bytes)
    if spare < 0:
        raise _too_small(work, wanted, budget, cut, spare)
    if work.held_bytes:  # chunks are decoded one at a time, in order: threads would do it again
        threads = 0
    workers = _worker_count(budget.in_flight, wanted.threads)
    idle_bytes = (budget.in_flight - max(1, workers)) * budget.work_bytes if budget.in_flight else 0
    loaders = 1 + (min(threads, spare // loading_bytes) if loading_bytes else threads)
    return Sizes(
        memory_bytes=wanted.memory_bytes,
        window_rows=cut.window_rows,
        job_rows=cut.job_rows,
        slots=cut.slots,
        threads=threads,
        slot_bytes=slot_bytes,
        kept_bytes=budget.kept_bytes,
        thread_bytes=budget.thread_bytes,
        batch_bytes=budget.batch_bytes - idle_bytes,
        index_bytes=budget.index_bytes,
        in_flight=budget.in_flight,
        workers=workers,
        loaders=loaders,
        loading_bytes=loaders * loading_bytes,
    )


@dataclass(frozen=True)
class _Cut:
    """What is shuffled together, what is read at a time, and how often that is in memory."""

    window_rows: int
    job_rows: int
    slots: int
    called: str = "jobs"

    @property
    def words(self) -> str:
        return f"{self.slots} {self.called} of {self.job_rows:,} rows"


def _cut(work: Work, wanted: Wanted, budget: Budget) -> _Cut:
    cut = (_cut_windows if work.windowed else _cut_jobs)(work, wanted, budget)
    return cut if wanted.prefetch is None else replace(cut, slots=_fewest_slots(wanted))


def _fewest_slots(wanted: Wanted) -> int:
    return FEW_SLOTS if wanted.prefetch is None else max(FEW_SLOTS, wanted.prefetch + 1)


def _room(budget: Budget, wanted: Wanted) -> int:
    """What is left for windows when so many threads read: the budget counts one already."""
    return budget.free - _more_threads(wanted) * budget.thread_bytes


def _more_threads(wanted: Wanted) -> int:
    return 0 if wanted.threads is None else max(0, wanted.threads - 1)


# windows


def _cut_windows(work: Work, wanted: Wanted, budget: Budget) -> _Cut:
    """Let a slot hold a window, or as many rows of a full shuffle over chunks."""
    rows = wanted.window_rows
    if rows is None:
        # As much for threads on any machine: windows must not depend on the number of cores.
        for_threads = min((MOST_THREADS - 1) * budget.thread_bytes, budget.free // THREADS_SHARE)
        fitting = (budget.free - max(0, for_threads)) // FEW_SLOTS // budget.row_bytes
        rows = _window_rows(fitting, work.unit_rows, work.batch_rows)
    job_rows = min(max(rows, work.unit_rows), max(work.n_rows, 1))
    if work.mode == "full":
        return _Cut(BLOCK_ROWS, job_rows, FEW_SLOTS)
    return _Cut(rows, job_rows, FEW_SLOTS, called="windows")


def _window_rows(fitting: int, unit_rows: int, batch_rows: int) -> int:
    whole = fitting // unit_rows * unit_rows
    even = fitting - fitting % math.lcm(unit_rows, batch_rows)
    rows = even if 8 * even >= 7 * whole else whole  # batches that end with windows, if cheap
    return max(rows, unit_rows, batch_rows)


def picked_sizes(sizes: Sizes, lanes: Sequence[Lane], rows: OrderedRows, wanted: Wanted) -> Sizes:
    """Let rows of shuffled windows be picked one by one, where all of them can be.

    They are copied straight from the system's cache of the file to their batch then, once, and
    no window is in memory but its row numbers. Windows and their orders stay as they are.
    """
    read = [lane for lane in lanes if not lane.keep]
    one_by_one = all(
        lane.source.layout.mapped and lane.row_bytes >= PICKED_ROW_BYTES for lane in read
    )
    if rows.mode != "window" or not read or not one_by_one:
        return sizes
    row_bytes = sizes.slot_bytes // max(1, sizes.job_rows)
    fitting = PICKED_JOB_BYTES // max(1, row_bytes - INDEX_BYTES)
    fitting = min(fitting, sizes.job_rows // PICKED_JOBS)
    job_rows = _job_rows(fitting, 1, rows.held_rows, rows.n_rows)
    if 2 * job_rows > sizes.job_rows:  # windows hardly larger than batches
        return sizes
    slot_bytes = job_rows * row_bytes
    index_bytes = INDEXED_WINDOWS * sizes.job_rows * INDEX_BYTES
    affordable = (sizes.slots * sizes.slot_bytes - index_bytes) // max(1, slot_bytes)
    most = max(DEAR_SLOTS, min(MANY_SLOTS, MANY_BYTES // max(1, slot_bytes)))
    if wanted.prefetch is not None:
        most = _fewest_slots(wanted)
    elif sizes.threads == 0:
        most = JOINED_SLOTS
    return replace(
        sizes,
        job_rows=job_rows,
        slots=max(JOINED_SLOTS, min(most, affordable)),
        slot_bytes=slot_bytes,
        index_bytes=sizes.index_bytes + index_bytes,
        whole=sizes,
    )


# jobs, where order does not say what is read together


def _cut_jobs(work: Work, wanted: Wanted, budget: Budget) -> _Cut:
    """Cut what follows one another, or is kept, into jobs that suit caches and threads."""
    room = _room(budget, wanted)
    dear = any(lane.source.layout.dear and not lane.keep for lane in work.lanes)
    small = min(JOB_BYTES, ALONE_JOB_BYTES) if wanted.threads == 0 else JOB_BYTES
    job_bytes = min(DEAR_JOB_BYTES, room // DEAR_SLOTS) if dear else small
    job_bytes = min(job_bytes, room // _fewest_slots(wanted))
    unit_rows = work.unit_rows if work.uncut else 1
    job_rows = _job_rows(job_bytes // budget.row_bytes, unit_rows, work.batch_rows, work.n_rows)
    slot_bytes = job_rows * budget.row_bytes
    most = DEAR_SLOTS if dear else max(DEAR_SLOTS, min(MANY_SLOTS, MANY_BYTES // slot_bytes))
    if _light(work, wanted) or wanted.threads == 0 or work.held_bytes:  # nobody reads ahead
        most = FEW_SLOTS
    affordable = (room - 2 * budget.loading_bytes) // slot_bytes
    return _Cut(_kept_window(work, wanted), job_rows, max(FEW_SLOTS, min(most, affordable)))


def _kept_window(work: Work, wanted: Wanted) -> int:
    """Rows shuffled together: all that are kept, where no number is given."""
    if not work.shuffles_kept:
        return BLOCK_ROWS
    return max(work.n_rows, 1) if wanted.window_rows is None else wanted.window_rows


def _job_rows(wanted: int, unit_rows: int, batch_rows: int, n_rows: int) -> int:
    """Rows of a job that may be cut anywhere: whole batches and whole units, where that fits."""
    wanted = max(wanted, 1)
    together = math.lcm(unit_rows, batch_rows)
    step = together if together <= wanted else unit_rows
    rows = max(step, wanted // step * step, -(-batch_rows // step) * step)
    return min(rows, max(n_rows, 1))


# threads


def _threads(work: Work, wanted: Wanted, budget: Budget, spare: int) -> tuple[int, int]:
    """Return how many threads read ahead, and what is left then; less than 0 is missing."""
    threads = wanted.threads
    if spare >= 0 and threads is None:
        affordable = spare // budget.thread_bytes + 1
        cores = _cores() - 1
        most = max(1, min(MOST_THREADS, cores, affordable))
        threads = 0 if _light(work, wanted) else most
        return threads, spare - max(0, threads - 1) * budget.thread_bytes
    fills = work.windowed and wanted.window_rows is None
    if spare < 0 and threads is not None and fills:
        # Windows must not depend on threads, and fill the memory: as many as are left room for.
        room = spare + _more_threads(wanted) * budget.thread_bytes
        fewer = room // budget.thread_bytes + 1
        return (fewer, 0) if fewer > 0 else (threads, spare)
    return threads or 0, spare


def _light(work: Work, wanted: Wanted) -> bool:
    """Whether so little is kept that the caller deals it out alone."""
    few = sum(lane.nbytes for lane in work.lanes) <= LIGHT_BYTES
    return work.kept and wanted.threads is None and few


def _worker_count(in_flight: int, threads: int | None) -> int:
    """A batch a thread; no threads at all means that the caller works."""
    return min(in_flight, _cores() if threads is None else threads)


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# too little memory


def _too_small(work: Work, wanted: Wanted, budget: Budget, cut: _Cut, spare: int) -> TooSmallError:
    """Say what a plan needs, and which of the wishes could be smaller."""
    threads = wanted.threads
    decoding = "decoding" if threads is None else f"decoding in {threads} threads"
    others = ["fewer threads"] if threads is not None and threads > 1 else []
    others += [] if wanted.window_rows is None else ["a smaller window_rows"]
    unit_bytes = work.unit_rows * budget.row_bytes
    if work.by_chunk and unit_bytes > max(LARGE_BYTES, budget.memory_bytes // LARGE_SHARE):
        others += ["write the file with smaller chunks ('labeled repack')"]
    row = format_bytes(budget.row_bytes)
    words = f"{cut.words} ({row} a row), batches and {decoding}"
    return TooSmallError.of(words, budget.memory_bytes - spare, others)
