"""How much memory a loader takes: one sum, and what of it windows, buffers and threads get.

What iterating adds to a process is at most

    sources kept + buffers * bytes of a buffer + readers * scratch of a reader
    + batches made or held + row numbers + overhead

With the fewest rows in a buffer, the fewest buffers and one thread, that sum
(:meth:`Needs.parts`) is what a loader needs: with less it is refused, by an error that states the
sum. What `memory` holds beyond it makes windows larger, reads further ahead and pays for more
threads, in that order (:class:`Sizes`); with what came of that, the same sum is what is promised.

Whatever the order of rows depends on (windows, and which sources are kept) follows from the
selection, the stored layout, the batch size and `memory` alone: never from the number of cores, of
threads, or from what the machine has free.

Examples of different shapes count with the bytes of the largest that can meet: their sizes are
summed once, so no window exceeds its share whichever rows it gets.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from dask.utils import format_bytes

from labeled._threads import processors
from labeled.display.text import count_words
from labeled.errors import LoaderError
from labeled.formats.memory import available_bytes
from labeled.loader.layout import BatchLayout, shape_blocks
from labeled.loader.options import OrderedRows
from labeled.loader.reading import OBJECT_BYTES
from labeled.ragged.flat import offsets_of
from labeled.samplers.units import UniformUnits, Units
from labeled.sources.source import Rows, Source
from labeled.transforms.running import MadeOf

# the most bytes that so many rows of a ragged source have, of one row at least
Bound = Callable[[int], int]

OVERHEAD_BYTES = 1 << 20
STACK_BYTES = 1 << 16
# Row numbers, places and temporary copies of them: a row of a window, of a block of places.
# A row of a block takes the last of the three besides, in every thread that works blocks out.
# Listed rows in file order take more: each may be a run of its own, and the runs of a job are cut.
INDEX_BYTES, BLOCK_INDEX_BYTES, PLANNER_INDEX_BYTES, LISTED_INDEX_BYTES = 48, 16, 32, 112
BLOCK_ROWS = 1 << 16  # positions worked out together where the order does not depend on windows

# one is handed out while the next is read; small buffers keep more threads busy
MIN_BUFFERS, MORE_BUFFERS, MAX_BUFFERS = 2, 3, 8
# Of large ones, where that takes nothing from threads: one is used or copied from, the next is
# waited for, and threads go on with the other two.
LARGE_BUFFERS = 4
BUFFERS_BYTES = 8 << 20  # small buffers are made until they hold this: threads seldom wait then

# What one read should hold, unless a window is read whole: 6 MiB, and what the numbers of rows of
# 1 KiB or more take. With more, a consumer finds less of a batch in the caches; a thread that reads
# less waits as long for Python's lock after each read. Shuffled rows of 3 KiB took 141 us a batch
# in jobs of 3 MiB, 126 in jobs of 4.5, 123 in jobs of 6, and 140 in jobs of 9.
JOB_BYTES = 49 << 17
# the same where no thread reads ahead: file order took a third longer with more
ALONE_JOB_BYTES = 1 << 20
# the same of chunks that are decoded: planning costs more there than caches gain
DECODED_JOB_BYTES = 8 << 20

# a window is read in so many jobs or more if its rows are read one by one
PICKED_JOBS = 4
# Rows of windows are read one by one from this size on.
# Of windows read whole, epochs took 1.7 times as long for such rows of a contiguous source and 1.15
# times for those of chunks (3 KiB: 2.3 and 1.3; 64 KiB: 3.0 and 1.7), but for rows of 64 bytes only
# 1.0 and 0.6 times.
PICKED_ROW_BYTES = 256
# windows whose row numbers are in memory then: in use, planned, the next, of batches held
INDEXED_WINDOWS = 4

# kept rows up to this are handed out by the caller alone: waking a thread takes longer
SMALL_KEPT_BYTES = 32 << 20
MAX_THREADS = 16
# Threads that only copy runs of local files wait for one another at Python's lock. On 16 cores file
# order came at 3.1 GB/s in jobs of 1 MiB with 15 threads, and at 7.5 with 4; to a GPU in jobs of 32
# MiB, which are read in several parts, at 15.6 with 15 and at 23.3 with 8.
RUN_THREADS, SMALL_RUN_THREADS, SMALL_RUN_BYTES = 8, 4, 7 << 20
# windows leave up to one of so many parts of the memory to the threads that read them
THREADS_SHARE = 16

# the one in use, the next while it is handed over, and what a loader itself joins or lays out
SPARE_BATCHES, HELD_BATCHES = 3, 2
MIN_IN_FLIGHT, MAX_IN_FLIGHT = 2, 14
IN_FLIGHT_SHARE = 4  # batches in a pipeline take this fraction of the memory, if so many of them do

# where not all sources fit, each that is kept takes at most one of so many parts of the memory, and
# all of them together, for a table of many columns is not small because each of them is
KEEP_SHARE, SMALL_SHARE = 16, 4
KEPT_SCRATCH = 4  # reading a small source takes no more than so many times its size
# where all sources are kept, so many threads and batches have room, and so much is read ahead
KEPT_BESIDE, KEPT_BESIDE_BYTES = 2, 4 << 20
# the share of what is asked for that the allocator may keep besides: 1.8 % was seen
ALLOCATOR_SHARE = 32

OUTSIZED = 16  # an example of so many times the median size is named where memory is too small


# sizes as people write them


def size_words(n_bytes: int) -> str:
    """Write a size so that ``memory=`` reads back no less.

    Examples
    --------
    >>> size_words(20 * 2**20 + 1)
    '21 MiB'
    """
    return f"{-(-n_bytes >> 20)} MiB"


def room_words(available_bytes: float) -> str:
    """Say how much memory is left, and what to ask for there."""
    room, most = max(int(available_bytes), 0), max(int(available_bytes) >> 1, 1 << 20)
    return (
        f"this process may take {format_bytes(room)} more before the system ends it (that is the "
        "machine's memory, or the limit of its container or job); give "
        f"memory='{most >> 20} MiB' or less"
    )


# examples of different shapes


def worst_case(sizes: Rows, units: Units | None, *, repeats: bool) -> Bound:
    """Return how many bytes a window can have at most; it never falls with the number of rows.

    Parameters
    ----------
    sizes : int64 (n_rows,)
        Bytes by position of the order.
    units : Units
        What stays together in shuffled windows; None in file order.
    repeats : bool
        Rows may be drawn more than once.
    """
    n_rows = len(sizes)
    if repeats or not n_rows:
        largest = int(sizes.max(initial=0))
        return lambda n: n * largest
    if units is None:
        ends = offsets_of(sizes)
        return lambda n: int((ends[min(n, n_rows) :] - ends[: -min(n, n_rows)]).max())
    starts = units.bounds(np.arange(units.count))[0] - units.start
    rows, nbytes = np.diff(np.append(starts, n_rows)), np.add.reduceat(sizes, starts)
    densest = np.argsort(-(nbytes / rows), kind="stable")
    up_to, most = np.cumsum(rows[densest]), np.cumsum(nbytes[densest])
    return lambda n: int(most[np.searchsorted(up_to, min(n, n_rows))])  # made of whole units


# the sum


class RaggedBytes:
    """What the examples of a ragged source take, whichever of them meet.

    Attributes
    ----------
    nbytes : int
        Of all rows.
    worst, largest : callable
        Bounds of the windows, and of any rows.
    layout_bytes : int
        What the largest batch takes as it is laid out, and so at most.
    """

    def __init__(self, rows: OrderedRows, layout: BatchLayout, source: Source) -> None:
        selection, at = rows.selections[source.name], rows.position_of
        listed = selection.rows if at is None else selection.take(at)
        sizes = source.sizes[listed] * source.dtype.itemsize + OBJECT_BYTES
        units = None if rows.mode == "file" else rows.units
        single = UniformUnits(len(sizes), 1)
        self.nbytes = int(sizes.sum())
        self.worst = worst_case(sizes, units, repeats=rows.repeats)
        self.largest = worst_case(sizes, single, repeats=rows.repeats)
        bound = self.worst if rows.options.bucket is False else self.largest
        stored_bytes, itemsize = bound(rows.held_rows), layout.out_dtypes[source.name].itemsize
        wider = max(1.0, itemsize / max(1, source.dtype.itemsize))
        self.layout_bytes = int(wider * stored_bytes)
        if layout.ragged[source.name].layout == "pad":
            lengths = np.zeros(len(source.dims) - 1, np.int64)
            for shapes in shape_blocks(source, selection):
                lengths = np.maximum(lengths, shapes.max(axis=0, initial=0))
            self.layout_bytes += rows.held_rows * math.prod(lengths.tolist()) * (itemsize + 1)


@dataclass(frozen=True, eq=False)
class LoaderContents:
    """What memory is shared out for, whatever is kept: rows in some order, and batches."""

    rows: OrderedRows
    layout: BatchLayout
    makes: MadeOf | None  # what a pipeline makes of rows
    nbytes: Mapping[str, int]  # of all rows of each source
    ragged: Mapping[str, RaggedBytes]


class Needs:
    """What a loader takes where some sources are kept: attributes are what the sum is made of.

    What is read decides how, and whether buffers hold windows:

    =======================  =======  ===============  ============================
    stored as                file     window           full
    =======================  =======  ===============  ============================
    stretches                         windowed
    chunks                   chunked  windowed         windowed, unless rows of all
                                                       chunks are picked (`RowLayout`)
    stretches, mapped                 windowed, picks
    chunks, mapped           chunked  windowed, picks
    =======================  =======  ===============  ============================

    Rows of windows are picked, read one by one directly to their batch, where all sources are
    mapped and have rows of `PICKED_ROW_BYTES` or more.
    """

    def __init__(self, asked: LoaderContents, kept: Sequence[str]) -> None:
        rows, layout, makes, options = asked.rows, asked.layout, asked.makes, asked.rows.options
        self.asked, self.kept, self.kept_bytes = asked, set[str](), 0
        self.windowed = self.chunked = self.decoded = False
        self.mapped, self.picks, self.row_bytes, read = True, True, 0, []
        listed = False
        for name, source in layout.sources.items():
            one = source.layout
            self.row_bytes += 0 if name in asked.ragged else source.held_row_bytes
            # What is kept is read at once or not at all, so nothing is where rows may be left out.
            if name in kept and source.loaded is None and not options.skips:
                self.kept.add(name)
                self.kept_bytes += asked.nbytes[name]
                continue
            read.append(one)
            span = rows.selections[name].span
            listed |= rows.mode == "file" and (span is None or span.step != 1)
            self.chunked = self.chunked or one.chunk_rows is not None
            self.decoded = self.decoded or one.expensive
            self.mapped = self.mapped and one.mapped
            self.picks = self.picks and one.mapped and source.row_bytes >= PICKED_ROW_BYTES
            # In full shuffle a stored chunk serves many batches.
            together = one.chunk_rows is not None and not one.picked
            self.windowed |= rows.mode == "window" or (rows.mode == "full" and together)
        self.all_kept, self.worst = not read, dict[str, Bound]()
        self.picks = self.picks and self.windowed and rows.mode == "window"
        # Nobody gave windows: they fill the memory, and threads and prefetching do not count;
        # nor where all is kept, for whether it is decides how large windows are.
        self.fills = options.window_rows is None and (self.windowed or rows.mode == "window")
        self.row_bytes = max(1, self.row_bytes) + INDEX_BYTES * self.windowed
        self.row_bytes += LISTED_INDEX_BYTES * listed

        block_rows = min(BLOCK_ROWS, rows.n_rows) if rows.mode == "full" else 0
        self.index_bytes, self.thread_bytes = block_rows * BLOCK_INDEX_BYTES, STACK_BYTES
        for name, source in layout.sources.items():
            scratch_bytes = source.layout.scratch_bytes
            if name in self.kept:  # read by as many threads, before there are buffers
                scratch_bytes = min(scratch_bytes, KEPT_SCRATCH * asked.nbytes[name])
            if not source.layout.direct or (self.windowed and name not in self.kept):
                self.thread_bytes = max(self.thread_bytes, scratch_bytes)
        self.thread_bytes += block_rows * PLANNER_INDEX_BYTES
        if self.all_kept and rows.mode == "window":
            self.index_bytes += INDEX_BYTES * min(rows.n_rows, options.window_rows or rows.n_rows)

        self.batch_bytes = rows.held_rows * (self.row_bytes + layout.out_row_bytes)
        for name, each in asked.ragged.items():
            by_unit = read and not self.picks  # else jobs are cut anywhere
            self.worst[name] = each.worst if by_unit else each.largest
            self.batch_bytes += each.layout_bytes
        self.each_bytes = 0  # of a batch in a pipeline
        if makes is not None:
            # What a pipeline makes counts twice: where threads make such arrays the system's
            # allocator keeps about one for each, until the next.
            made_bytes = rows.held_rows * makes.row_bytes
            self.each_bytes = self.batch_bytes + 2 * made_bytes + makes.work_bytes
            self.batch_bytes = HELD_BATCHES * (self.batch_bytes + made_bytes)
        elif self.windowed or layout.out_row_bytes or layout.ragged:
            self.batch_bytes *= SPARE_BATCHES

        self.unit_rows = max(1, rows.units.max_rows)
        self.n_buffers = max(MIN_BUFFERS, 1 + (0 if self.fills else options.prefetch or 0))
        fewest_rows = max(options.window_rows or rows.held_rows, self.unit_rows)
        if not self.windowed:
            step = self.unit_rows if self.chunked else 1
            fewest_rows = -(-rows.held_rows // step) * step
        fewest_rows = min(fewest_rows, max(rows.n_rows, 1))
        threads = 1 if self.fills else max(1, options.threads or 1)
        self.fewest = fewest_rows, self.n_buffers, threads
        self.least = self.parts(*self.fewest, MIN_IN_FLIGHT)
        self.needed_bytes = sum(self.least.values())

    def parts(self, n_rows: int, n_buffers: int, threads: int, in_flight: int) -> dict[str, int]:
        """Return the sum for buffers of so many rows, term by term."""
        return {
            "buffers": n_buffers * self.buffer_bytes(n_rows),
            "batches": self.batch_bytes + in_flight * self.each_bytes,
            "reading": (1 + threads) * self.thread_bytes,
            "sources kept": self.kept_bytes,
            "row numbers": self.index_bytes,
            "the rest": OVERHEAD_BYTES,
        }

    def buffer_bytes(self, n_rows: int) -> int:
        """Bytes of a buffer of so many rows."""
        n_bytes = n_rows * self.row_bytes
        for worst in self.worst.values():
            n_bytes += worst(n_rows)
        return n_bytes

    def rows_within(self, n_bytes: int) -> int:
        """Return how many rows a buffer of so many bytes holds."""
        if not self.worst:
            return n_bytes // self.row_bytes
        return bisect_right(range(1, self.asked.rows.n_rows + 1), n_bytes, key=self.buffer_bytes)


def plan_memory(rows: OrderedRows, layout: BatchLayout, makes: MadeOf | None) -> Sizes:
    """Share memory out, with all sources kept, or the small ones, or none, as there is room.

    Memory that nobody named is doubled before it is too small, up to half of what the process may
    still take.

    Raises
    ------
    LoaderError
        If `memory` is too small; the message states the sum, and a size with which this succeeds.
    """
    nbytes, ragged = dict[str, int](), dict[str, RaggedBytes]()
    for name, source in layout.sources.items():
        nbytes[name] = len(rows.selections[name]) * source.held_row_bytes
        if source.ragged is not None:
            ragged[name] = RaggedBytes(rows, layout, source)
            nbytes[name] = ragged[name].nbytes
    asked = LoaderContents(rows, layout, makes, nbytes, ragged)
    memory_bytes = rows.options.memory_bytes
    names = sorted(sorted(nbytes), key=nbytes.__getitem__)
    least: Needs | None = None
    while least is None or memory_bytes <= available_bytes() // 2:
        small, taken = list[str](), 0
        for name in names:
            taken += nbytes[name]
            if max(nbytes[name] * KEEP_SHARE, taken * SMALL_SHARE) > memory_bytes:
                break
            small.append(name)
        for kept in (names, small, []):
            needs, beside = Needs(asked, kept), 0
            if kept is names:
                beside = KEPT_BESIDE * (needs.thread_bytes + needs.each_bytes) + KEPT_BESIDE_BYTES
            if needs.needed_bytes + beside <= memory_bytes:
                return Sizes(needs, memory_bytes)
            if not beside and (least is None or needs.needed_bytes < least.needed_bytes):
                least = needs
        if rows.options.memory is not None:
            break
        memory_bytes *= 2
    assert least is not None
    raise LoaderError(_too_small(least))


def _too_small(least: Needs) -> str:
    """State the sum that is needed, term by term, and what would help."""
    rows, options = least.asked.rows, least.asked.rows.options
    remedies = [f"give memory={size_words(least.needed_bytes)!r}", "smaller batches"]
    if (options.threads or 0) > 1:
        remedies.append("fewer threads")
    if options.window_rows is not None:
        remedies.append("a smaller window_rows")
    if least.windowed and least.unit_rows > rows.held_rows:
        remedies.append("write the file with smaller chunks ('labeled repack')")
    for name, source in least.asked.layout.sources.items():  # a damaged example may claim any size
        sizes = source.sizes[rows.selections[name].rows] if source.ragged is not None else ()
        if len(sizes) and max(sizes) > OUTSIZED * max(1, np.median(sizes)):
            row = int(np.argmax(sizes))
            taken = format_bytes(int(sizes[row]) * source.dtype.itemsize)
            remedies.append(f"a subset without row {row} of {source.where}, which takes {taken}")
    n_rows, n_buffers, threads = least.fewest
    what, each = "windows" if least.windowed else "jobs", least.buffer_bytes(n_rows) // n_rows
    words = {
        "buffers": f"{n_buffers} {what} of {n_rows:,} rows ({format_bytes(each)} a row)",
        "reading": f"reading in {count_words(threads, 'thread')} and the caller",
    }
    terms = [f"{words.get(one, one)} {format_bytes(n)}" for one, n in least.least.items() if n]
    return (
        f"memory of {format_bytes(options.memory_bytes)} is too small: {', '.join(terms)}, "
        f"together {format_bytes(least.needed_bytes)}; {', or '.join(remedies)}"
    )


# what is done with more


class Sizes:
    """What a loader allocates, and how it cuts an epoch: memory no less than needed, shared out.

    Windows come first, then buffers, then threads.

    Attributes
    ----------
    promised_bytes : int
        The most that iterating adds to the memory of the process.
    kept : set of str
        Sources that are read once, and kept for all epochs.
    window_rows : int
        Rows shuffled together (orders depend on it, but for file order and full shuffle).
    job_rows : int
        Rows read ahead as one job: the window in window mode, unless its rows are picked one by
        one or all sources are kept.
    n_buffers : int
        Buffers of that many rows.
    threads : int
        Background threads; those that read take batches through a pipeline, too.
    load_threads : int
        Threads that read what is kept, before the first batch.
    in_flight : int
        Batches in a pipeline at a time, the consumer's not counted; 0 where there is none.
    layout_bytes : int
        Of the largest batch, what ragged examples take as they are laid out.
    picks : bool
        Whether rows of windows are read one by one, directly to their batch.
    example_bytes : mapping of str to int
        For ragged sources, bytes of a row in a buffer: what no job exceeds on average.
    row_bytes, beside_bytes : int
        Of a row in a window that is read whole, and of all that is needed beside such windows.
    """

    def __init__(self, needs: Needs, memory_bytes: int) -> None:
        rows, options, makes = needs.asked.rows, needs.asked.rows.options, needs.asked.makes
        buffers_bytes, *others = needs.least.values()
        free, in_flight = memory_bytes - sum(others), 0
        if makes is not None:
            more = (free - buffers_bytes) // needs.each_bytes
            most = min(memory_bytes // IN_FLIGHT_SHARE // needs.each_bytes, MIN_IN_FLIGHT + more)
            in_flight = max(MIN_IN_FLIGHT, min(MAX_IN_FLIGHT, most))
            free -= (in_flight - MIN_IN_FLIGHT) * needs.each_bytes
        small = needs.all_kept and needs.kept_bytes <= SMALL_KEPT_BYTES
        alone = options.threads == 0
        if options.threads is None:
            alone = options.prefetch == 0 or (small and not in_flight)

        window_rows, unit_rows, self.picks = options.window_rows, needs.unit_rows, False
        if needs.windowed:  # a buffer holds a window
            if window_rows is None:
                # As much for threads on any machine: windows must not depend on its cores.
                for_threads = min((MAX_THREADS - 1) * needs.thread_bytes, free // THREADS_SHARE)
                fitting = needs.rows_within((free - for_threads) // MIN_BUFFERS)
                whole = fitting // unit_rows * unit_rows
                even = fitting - fitting % math.lcm(unit_rows, rows.held_rows)
                window_rows = even if 8 * even >= 7 * whole else whole  # end with a batch, if cheap
                window_rows = max(window_rows, unit_rows, rows.held_rows)
            job_rows = min(max(window_rows, unit_rows), max(rows.n_rows, 1))
            n_buffers, whole_bytes = needs.n_buffers, needs.buffer_bytes(job_rows)
            if needs.fills and options.prefetch is not None:
                n_buffers = max(n_buffers, min(options.prefetch + 1, free // whole_bytes))
        else:
            job_bytes = ALONE_JOB_BYTES if alone else JOB_BYTES
            job_bytes = DECODED_JOB_BYTES if needs.decoded else job_bytes
            unit_rows = unit_rows if needs.chunked else 1
            chosen = alone or options.threads is not None  # those are counted already
            for_threads = 0 if chosen else (MAX_THREADS - 1) * needs.thread_bytes
            job_rows, n_buffers = jobs_within(
                needs, free, job_bytes, unit_rows, few=alone or small, for_threads=for_threads
            )
            whole_bytes = needs.buffer_bytes(job_rows)
            window_rows = window_rows or max(rows.n_rows, 1)
        if rows.mode != "window":  # the order depends on no windows
            window_rows = BLOCK_ROWS
        self.row_bytes = -(-whole_bytes // job_rows)
        affordable = 1 + (free - n_buffers * whole_bytes) // needs.thread_bytes
        threads = options.threads or 0
        if options.threads is None and not alone:
            n_cores = processors(MAX_THREADS + 1)
            most = min(in_flight, n_cores) if in_flight else max(1, n_cores - 1)
            threads = min(MAX_THREADS, most, affordable)
            if rows.mode == "file" and needs.mapped and not in_flight:
                small_jobs = whole_bytes <= SMALL_RUN_BYTES
                threads = min(threads, SMALL_RUN_THREADS if small_jobs else RUN_THREADS)
        elif needs.fills:
            threads = min(threads, affordable)

        if needs.picks:
            # Rows of windows are copied once, directly to their batch; no window is in memory but
            # its row numbers. Windows and their orders stay as they are.
            numbers_bytes = INDEXED_WINDOWS * job_rows * INDEX_BYTES
            room = n_buffers * whole_bytes - numbers_bytes
            job_bytes = min(JOB_BYTES, whole_bytes // PICKED_JOBS)
            picked = jobs_within(needs, room, job_bytes, 1, few=alone)
            if 2 * picked[0] <= job_rows:  # else windows are hardly larger than batches
                self.picks, (job_rows, n_buffers) = True, picked
                needs.index_bytes += numbers_bytes
        promised = sum(needs.parts(job_rows, n_buffers, threads, in_flight).values())
        # The allocator keeps a little beside what it is asked for.
        allowed = min(memory_bytes, promised + promised // ALLOCATOR_SHARE)
        self.memory_bytes, self.promised_bytes = memory_bytes, max(promised, allowed)
        self.beside_bytes = sum(others) + max(0, threads - 1) * needs.thread_bytes
        self.kept, self.kept_bytes = needs.kept, needs.kept_bytes
        self.window_rows, self.job_rows, self.n_buffers = window_rows, job_rows, n_buffers
        self.threads, self.in_flight, self.load_threads = threads, in_flight, threads + 1
        if options.threads is None and options.prefetch != 0:
            # There are no buffers yet, whose memory serves more threads.
            room = self.promised_bytes - needs.kept_bytes - OVERHEAD_BYTES
            most = min(processors(MAX_THREADS + 1), room // needs.thread_bytes)
            self.load_threads = max(self.load_threads, most)
        self.layout_bytes, self.example_bytes = 0, dict[str, int]()
        for name, worst in needs.worst.items():
            self.layout_bytes += needs.asked.ragged[name].layout_bytes
            self.example_bytes[name] = max(1, -(-worst(job_rows) // job_rows))

    def without_memory(self, why: str) -> str:
        """Say what to do where the system gives less memory than a loader was allowed."""
        return (
            f"the system gives no memory for windows and batches ({why}). This loader may take "
            f"memory={size_words(self.memory_bytes)!r}: give less of it, smaller batches, or let "
            "go of batches that are kept"
        )

    def memory_for(self, window_rows: int, nbytes: Sequence[int]) -> int:
        """Return the `memory`, in whole MiB, with which windows of so many rows are made.

        Parameters
        ----------
        nbytes : sequence of int
            Of the sources that are not kept: those that more memory would keep count too.
        """
        asked = self.beside_bytes + MIN_BUFFERS * window_rows * self.row_bytes
        for size in sorted(nbytes):
            asked += size if size * KEEP_SHARE <= asked + size else 0
        return max(self.memory_bytes, -(-asked >> 20) << 20)


def jobs_within(
    needs: Needs, free: int, job_bytes: int, unit_rows: int, *, few: bool, for_threads: int = 0
) -> tuple[int, int]:
    """Return (rows of a buffer, buffers) where jobs may be cut anywhere: as caches like it."""
    rows, options, n_buffers = needs.asked.rows, needs.asked.rows.options, needs.n_buffers
    if needs.windowed:
        # A batch in which a window ends lies in two; the consumer holds the one before, in a third.
        n_buffers = max(MORE_BUFFERS, 1 + (options.prefetch or 0))
    fitting = needs.rows_within(min(job_bytes, free // max(n_buffers, MORE_BUFFERS)))
    # Whole batches and whole units, where that fits.
    together = math.lcm(unit_rows, rows.held_rows)
    step = together if together <= fitting else unit_rows
    job_rows = max(step, fitting // step * step, -(-rows.held_rows // step) * step)
    job_rows = min(job_rows, max(rows.n_rows, 1))
    buffer_bytes = needs.buffer_bytes(job_rows)
    large = min(LARGE_BUFFERS, max(MORE_BUFFERS, (free - for_threads) // buffer_bytes))
    most = n_buffers if few else max(large, min(MAX_BUFFERS, BUFFERS_BYTES // buffer_bytes))
    if options.prefetch is not None:
        most = options.prefetch + 1
    return job_rows, max(n_buffers, min(most, free // buffer_bytes))
