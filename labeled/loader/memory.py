"""How much memory a loader takes: one sum, and what of it windows, buffers and threads get.

What iterating adds to a process is at most

    sources kept + buffers * bytes of a buffer + readers * scratch of a reader
    + batches made or held + row numbers + overhead

With the fewest rows in a buffer, the fewest buffers and one thread, that sum (:class:`Needs`) is
what a loader needs: with less it is refused, by an error that states the sum. What `memory` holds
beyond it makes windows larger, reads further ahead and pays for more threads, in that order
(:class:`Sizes`). As many sources are kept as there is room for, the smallest first.

Whatever the order of rows depends on (windows, and which sources are kept) follows from the
selection, the stored layout, the batch size and `memory` alone: never from the number of cores, of
threads, or from what the machine has free.

Examples of different shapes count with the bytes of the largest that can meet: their sizes are
summed once, so no window exceeds its share whichever rows it gets.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled.display.text import count_words
from labeled.errors import LoaderError, explain_memory_errors
from labeled.formats.memory import available_bytes
from labeled.loader.layout import BatchLayout, shape_blocks
from labeled.loader.options import OrderedRows
from labeled.loader.reading import bytes_by_position
from labeled.permute.workers import processors
from labeled.samplers.units import UniformUnits, Units
from labeled.sources.source import Source
from labeled.transforms.pipeline import MadeOf

Rows = npt.NDArray[np.int64]

OVERHEAD_BYTES = 1 << 20
STACK_BYTES = 1 << 16
INDEX_BYTES, BLOCK_INDEX_BYTES, PLANNER_INDEX_BYTES = 48, 16, 32
"""Row numbers, places and temporary copies of them: a row of a window, of a block of places.

A row of a block takes the last of the three besides, in every thread that works blocks out.
"""
BLOCK_ROWS = 1 << 16
"""Positions worked out together where the order does not depend on windows."""

MIN_BUFFERS, DECODED_BUFFERS, MAX_BUFFERS = 2, 3, 8
"""One is handed out while the next is read; small buffers keep more threads busy."""
BUFFERS_BYTES = 8 << 20
"""Small buffers are made until they hold this: threads seldom wait then."""

JOB_BYTES = 3 << 19
"""What one read of an unshuffled or fully shuffled epoch should hold.

A consumer finds a batch in its core's cache if nothing else was read after it. But threads that
read less wait for one another at Python's lock: of a mebibyte each, rows of 3 KiB came at 0.92 of a
bare loop, and at 1.12 of a mebibyte and a half.
"""
ALONE_JOB_BYTES = 1 << 20
"""The same where no thread reads ahead: file order took a third longer with more."""
DECODED_JOB_BYTES = 8 << 20
"""The same of chunks that are decoded: planning costs more there than caches gain."""

PICKED_JOB_BYTES = 3 << 20
"""The same where rows of windows are read one by one: threads then meet half as often."""
PICKED_JOBS = 4
"""A window is read in so many jobs or more, where batches are not larger than those."""
PICKED_BUFFERS = 3
"""A batch in which a window ends lies in two; the consumer holds the one before, in a third."""
PICKED_ROW_BYTES = 256
"""Rows of windows are read one by one from this size on.

Of windows read whole, epochs took 1.7 times as long for such rows of a contiguous source and 1.15
times for those of chunks (3 KiB: 2.3 and 1.3; 64 KiB: 3.0 and 1.7), but for rows of 64 bytes only
1.0 and 0.6 times.
"""
INDEXED_WINDOWS = 3
"""Windows whose row numbers are in memory then: in use, planned, and of batches that are held."""

SMALL_KEPT_BYTES = 32 << 20
"""Kept rows up to this are handed out by the caller alone: waking a thread takes longer."""
MAX_THREADS = 16
THREADS_SHARE = 8
"""Windows leave up to one of so many parts of the memory to the threads that read them."""

SPARE_BATCHES = 3
MIN_IN_FLIGHT, MAX_IN_FLIGHT = 2, 14
HELD_BATCHES = 2
"""The consumer's: the one in use, and the next while it is handed over."""
IN_FLIGHT_SHARE = 4
"""Batches in a pipeline take this fraction of the memory, if so many of them do."""

KEEP_SHARE, SMALL_SHARE = 16, 4
"""Where not all sources fit, each that is kept takes at most one of so many parts of the memory,
and all of them together, for a table of many columns is not small because each of them is."""
KEPT_BESIDE, KEPT_BESIDE_BYTES = 4, 4 << 20
"""Batches, and bytes of buffers, that kept sources leave room for."""
ALLOCATOR_SHARE = 32
"""The share of what is asked for that the allocator may keep besides: 1.8 % was seen."""

OUTSIZED = 16
"""An example of so many times the median size is named where memory is too small."""
LARGE_SHARE = 8
"""Chunks above one of so many parts of the memory are named as what takes too much."""


# sizes as people write them


def size_words(n_bytes: int) -> str:
    """Write a size so that ``memory=`` reads back no less.

    Examples
    --------
    >>> size_words(20 * 2**20 + 1)
    '21 MiB'
    """
    return f"{-(-n_bytes >> 20)} MiB"


def host_memory_errors(memory_bytes: int) -> AbstractContextManager[None]:
    """Say what to do where the system gives less memory than a loader was allowed.

    Raises
    ------
    RowsMemoryError
        In the place of a MemoryError.
    """
    return explain_memory_errors(
        lambda why: (
            f"the system gives no memory for windows and batches ({why}). This loader may take "
            f"memory={size_words(memory_bytes)!r}: give less of it, smaller batches, or let go of "
            "batches that are kept"
        )
    )


def room_words(available_bytes: float) -> str:
    """Say how much memory is left, and what to ask for there."""
    room, most = max(int(available_bytes), 0), max(int(available_bytes) >> 1, 1 << 20)
    return (
        f"this process may take {format_bytes(room)} more before the system ends it (that is the "
        "machine's memory, or the limit of its container or job); give "
        f"memory='{most >> 20} MiB' or less"
    )


# the sum


@dataclass(frozen=True, eq=False)
class WorstCase:
    """The most bytes that a window of ragged examples can have, whichever rows it gets.

    Parameters
    ----------
    sizes : int64 (n_rows,)
        Bytes by position of the order.
    units : Units
        What stays together in shuffled windows; None in file order.
    repeats : bool
        Rows may be drawn more than once.
    """

    sizes: Rows
    units: Units | None
    repeats: bool = False

    def of(self, n: int) -> int:
        """Return the bound for windows that hold up to `n` rows; it never falls."""
        sizes = self.sizes
        n = min(n, len(sizes)) if not self.repeats else n
        if not len(sizes) or not n:
            return 0
        if self.repeats:
            return n * int(sizes.max())
        if self.units is None:
            ends = np.concatenate([[0], np.cumsum(sizes)])
            return int((ends[n:] - ends[:-n]).max())
        nbytes, rows = self._densest_units
        return int(nbytes[np.searchsorted(rows, n)])  # windows are made of whole units

    @cached_property
    def _densest_units(self) -> tuple[Rows, Rows]:
        """Bytes and rows of more and more units, those with most bytes a row first."""
        assert self.units is not None
        starts = self.units.bounds(np.arange(self.units.count))[0] - self.units.start
        rows = np.diff(np.append(starts, len(self.sizes)))
        nbytes = np.add.reduceat(self.sizes, starts)
        order = np.argsort(-(nbytes / rows), kind="stable")
        return np.cumsum(nbytes[order]), np.cumsum(rows[order])


class Asked:
    """What memory is shared out for: rows in some order, and batches of some layout.

    Parameters
    ----------
    makes : MadeOf, optional
        What a pipeline makes of rows.
    on_device : bool
        Whether windows go to a device, so that their rows are not picked one by one.

    Attributes
    ----------
    nbytes : mapping of str to int
        Of all rows of each source.
    worst : mapping of str to WorstCase
        Bounds of the ragged sources.
    layout_bytes : mapping of str to int
        What their examples take as they are laid out.
    beside_bytes : int
        What all sources that are kept leave room for: batches, buffers and shuffled row numbers.
    """

    def __init__(
        self, rows: OrderedRows, layout: BatchLayout, makes: MadeOf | None, *, on_device: bool
    ) -> None:
        self.rows, self.layout, self.makes, self.on_device = rows, layout, makes, on_device
        self.nbytes, self.layout_bytes = dict[str, int](), dict[str, int]()
        self.worst = dict[str, WorstCase]()
        row_bytes, scratch_bytes = layout.out_row_bytes, 0
        for name, source in layout.sources.items():
            self.nbytes[name] = len(rows.selections[name]) * source.row_bytes
            if source.ragged is not None:
                sizes = bytes_by_position(source, rows.selections[name], rows.position_of)
                units = None if rows.mode == "file" else rows.units
                self.worst[name] = worst = WorstCase(sizes, units, rows.repeats)
                self.layout_bytes[name] = ragged_layout_bytes(source, worst, rows, layout)
                self.nbytes[name] = int(sizes.sum())
            row_bytes += source.row_bytes
            scratch_bytes = max(scratch_bytes, source.layout.scratch_bytes)
        self.beside_bytes = KEPT_BESIDE_BYTES + OVERHEAD_BYTES + 2 * scratch_bytes
        self.beside_bytes += (SPARE_BATCHES + KEPT_BESIDE) * rows.held_rows * row_bytes
        self.beside_bytes += INDEX_BYTES * rows.n_rows if rows.mode == "window" else 0


class Needs:
    """What a loader needs at the least, where some sources are kept: attributes are the terms.

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

    def __init__(self, asked: Asked, kept: Sequence[str]) -> None:
        self.asked, rows, options = asked, asked.rows, asked.rows.options
        mode, windows = rows.mode, rows.mode == "window"
        # What is kept is read at once or not at all, so nothing is where rows may be left out.
        read, self.kept, self.kept_bytes = dict(asked.layout.sources), set[str](), 0
        for name in kept if not options.skips else ():
            if asked.layout.sources[name].loaded is None:
                self.kept.add(name)
                del read[name]
                self.kept_bytes += asked.nbytes[name]
        self.all_kept = not read
        self.windowed = self.picks = windows and bool(read)
        self.chunked = self.decoded = False
        for source in read.values():
            one = source.layout
            self.chunked = self.chunked or one.chunk_rows is not None
            self.decoded = self.decoded or one.expensive
            self.picks = self.picks and one.mapped and source.row_bytes >= PICKED_ROW_BYTES
            if mode == "full" and one.chunk_rows is not None and not one.picked:
                self.windowed = True  # a stored chunk serves many batches
        # Nobody gave windows: they fill the memory, and threads and prefetching do not count.
        self.fills = self.windowed and options.window_rows is None

        self.row_bytes = self.loading_bytes = 0
        self.thread_bytes = STACK_BYTES if self.kept else 1
        for name, source in asked.layout.sources.items():
            self.row_bytes += 0 if name in asked.worst else source.row_bytes
            direct = source.layout.direct and not self.windowed
            scratch_bytes = STACK_BYTES if direct else source.layout.scratch_bytes
            if name not in self.kept:
                self.thread_bytes = max(self.thread_bytes, scratch_bytes)
            elif self.all_kept and not direct:
                self.loading_bytes = max(self.loading_bytes, scratch_bytes)
        self.row_bytes = max(1, self.row_bytes) + INDEX_BYTES * self.windowed
        block_rows = min(BLOCK_ROWS, rows.n_rows) if mode == "full" else 0
        self.thread_bytes += block_rows * PLANNER_INDEX_BYTES
        self.index_bytes = block_rows * BLOCK_INDEX_BYTES
        if self.all_kept and windows:
            self.index_bytes += INDEX_BYTES * min(rows.n_rows, options.window_rows or rows.n_rows)
        self._count_batches()
        self._add_up()

    def _count_batches(self) -> None:
        asked, held_rows = self.asked, self.asked.rows.held_rows
        laid_out = asked.layout.out_row_bytes > 0
        self.batch_bytes = held_rows * (self.row_bytes + asked.layout.out_row_bytes)
        for name, bound in asked.worst.items():
            form = asked.layout.ragged.get(name)
            as_read = form is None or form.as_read
            laid_out = laid_out or not as_read
            self.batch_bytes += max(bound.of(held_rows), 0 if as_read else asked.layout_bytes[name])
        self.each_bytes = 0
        """Of a batch in a pipeline."""
        if asked.makes is not None:
            # What a pipeline makes counts twice: where threads make such arrays the system's
            # allocator keeps about one for each, until the next.
            made_bytes = held_rows * asked.makes.row_bytes
            self.each_bytes = self.batch_bytes + 2 * made_bytes + asked.makes.work_bytes
            self.batch_bytes = HELD_BATCHES * (self.batch_bytes + made_bytes)
        elif self.windowed or laid_out:
            self.batch_bytes *= SPARE_BATCHES

    def _add_up(self) -> None:
        rows, options = self.asked.rows, self.asked.rows.options
        self.unit_rows = max(1, rows.units.max_rows)
        self.n_buffers = max(MIN_BUFFERS, 1 + (0 if self.fills else options.prefetch or 0))
        self.fewest_rows = job_rows_of(1, self.unit_rows if self.chunked else 1, rows)
        if self.windowed:
            self.fewest_rows = max(options.window_rows or rows.held_rows, self.unit_rows)
            self.fewest_rows = min(self.fewest_rows, max(rows.n_rows, 1))
        n_bytes, what = self.buffer_bytes(self.fewest_rows), "windows" if self.windowed else "jobs"
        threads = 1 if self.fills else max(1, options.threads or 1)
        each, reading = format_bytes(n_bytes // self.fewest_rows), count_words(threads, "thread")
        buffers = f"{self.n_buffers} {what} of {self.fewest_rows:,} rows ({each} a row)"
        self.parts = {
            buffers: self.n_buffers * n_bytes,
            "batches": self.batch_bytes + MIN_IN_FLIGHT * self.each_bytes,
            f"reading in {reading} and the caller": (1 + threads) * self.thread_bytes,
            "sources kept": self.kept_bytes,
            "row numbers": self.index_bytes,
            "the rest": OVERHEAD_BYTES,
        }
        """The sum that an error states, term by term."""
        self.needed_bytes = sum(self.parts.values())

    def buffer_bytes(self, n_rows: int) -> int:
        """Bytes of a buffer of so many rows."""
        n_bytes = n_rows * self.row_bytes
        for worst in self.asked.worst.values():
            n_bytes += worst.of(n_rows)
        return n_bytes

    def rows_within(self, n_bytes: int) -> int:
        """Return how many rows a buffer of so many bytes holds."""
        if not self.asked.worst:
            return n_bytes // self.row_bytes
        return bisect_right(range(1, self.asked.rows.n_rows + 1), n_bytes, key=self.buffer_bytes)


def plan_memory(
    rows: OrderedRows, layout: BatchLayout, makes: MadeOf | None, *, on_device: bool
) -> Sizes:
    """Share memory out, with as many sources kept as there is room for.

    Memory that nobody named is doubled before it is too small, up to half of what the process may
    still take.

    Raises
    ------
    LoaderError
        If `memory` is too small; the message states the sum, and a size with which this succeeds.
    """
    asked = Asked(rows, layout, makes, on_device=on_device)
    nbytes, memory_bytes = asked.nbytes, rows.options.memory_bytes
    names = sorted(sorted(nbytes), key=nbytes.__getitem__)
    least: Needs | None = None
    while least is None or memory_bytes <= available_bytes() // 2:
        taken = sum(nbytes.values())
        for n_kept in range(len(names), -1, -1):
            largest = nbytes[names[n_kept - 1]] if n_kept else 0
            enough = max(largest * KEEP_SHARE, taken * SMALL_SHARE) <= memory_bytes
            if enough or (n_kept == len(names) and taken + asked.beside_bytes <= memory_bytes):
                needs = Needs(asked, names[:n_kept])
                if needs.needed_bytes <= memory_bytes:
                    return Sizes(needs, memory_bytes)
                if least is None or needs.needed_bytes < least.needed_bytes:
                    least = needs
            taken -= largest
        if rows.options.memory is not None:
            break
        memory_bytes *= 2
    assert least is not None
    raise LoaderError(_too_small(least))


def ragged_layout_bytes(
    source: Source, worst: WorstCase, rows: OrderedRows, layout: BatchLayout
) -> int:
    """Bytes of the ragged examples of the largest batch as they are laid out."""
    form = layout.ragged.get(source.name)
    if form is None:
        return 0
    if rows.options.bucket is not False:  # the largest of a window meet in a batch
        worst = replace(worst, units=UniformUnits(len(worst.sizes), 1, 1))
    n = max(1, min(rows.held_rows, len(worst.sizes)))
    wider = max(1.0, form.out_dtype.itemsize / max(1, form.dtype.itemsize))
    row_bytes = int(wider * worst.of(n) / n) + 1
    if form.layout == "pad":
        lengths = [0] * (len(form.dims) - 1)
        for shapes in shape_blocks(source, rows.selections[source.name]):
            lengths = np.maximum(lengths, shapes.max(axis=0, initial=0)).tolist()
        row_bytes += math.prod(lengths) * (form.out_dtype.itemsize + 1)
    return rows.held_rows * row_bytes


# what is done with more


class Sizes:
    """What a loader allocates, and how it cuts an epoch: memory no less than needed, shared out.

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
    loaders : int
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
        buffers_bytes, *others = needs.parts.values()
        free, in_flight, batch_bytes = memory_bytes - sum(others), 0, needs.batch_bytes
        if makes is not None:
            more = (free - buffers_bytes) // needs.each_bytes
            most = min(memory_bytes // IN_FLIGHT_SHARE // needs.each_bytes, MIN_IN_FLIGHT + more)
            in_flight = max(MIN_IN_FLIGHT, min(MAX_IN_FLIGHT, most))
            batch_bytes += in_flight * needs.each_bytes
            free -= (in_flight - MIN_IN_FLIGHT) * needs.each_bytes
        kept_small = (
            needs.all_kept and needs.kept_bytes <= SMALL_KEPT_BYTES and options.threads is None
        )
        if needs.windowed:
            window_rows, job_rows, n_buffers = windows_within(needs, free)
        else:
            window_rows, job_rows, n_buffers = jobs_within(needs, free, kept_small=kept_small)
        buffer_bytes, index_bytes = needs.buffer_bytes(job_rows), needs.index_bytes
        self.row_bytes = -(-buffer_bytes // job_rows)

        spare = free - n_buffers * buffer_bytes
        loading_bytes = min(needs.loading_bytes, spare)  # what is small is kept whatever it takes
        spare -= loading_bytes
        affordable = 1 + spare // needs.thread_bytes
        n_cores = processors(MAX_THREADS + 1)
        if options.threads is not None:
            threads = min(options.threads, affordable) if needs.fills else options.threads
        elif options.prefetch == 0 or (kept_small and not in_flight):
            threads = 0
        else:
            most = min(in_flight, n_cores) if in_flight else max(1, n_cores - 1)
            threads = min(MAX_THREADS, most, affordable)
        self.loaders = 1 + (min(threads, spare // loading_bytes) if loading_bytes else threads)
        if makes is not None:  # batches that wait are not worked on
            batch_bytes -= max(0, in_flight - max(1, threads)) * makes.work_bytes

        picks, picked_rows = needs.picks and not needs.asked.on_device, 1
        if picks:
            # Rows of windows are copied once, directly to their batch; no window is in memory but
            # its row numbers. Windows and their orders stay as they are.
            fitting = PICKED_JOB_BYTES // max(1, needs.row_bytes - INDEX_BYTES)
            picked_rows = job_rows_of(max(1, min(fitting, job_rows // PICKED_JOBS)), 1, rows)
            picks = 2 * picked_rows <= job_rows  # else windows are hardly larger than batches
        if picks:
            numbers_bytes = INDEXED_WINDOWS * job_rows * INDEX_BYTES
            left, index_bytes = (
                n_buffers * buffer_bytes - numbers_bytes,
                index_bytes + numbers_bytes,
            )
            job_rows, buffer_bytes = picked_rows, needs.buffer_bytes(picked_rows)
            most = max(PICKED_BUFFERS, min(MAX_BUFFERS, BUFFERS_BYTES // buffer_bytes))
            if options.prefetch is not None:
                most = options.prefetch + 1
            elif threads == 0:
                most = PICKED_BUFFERS
            n_buffers = max(PICKED_BUFFERS, min(most, left // buffer_bytes))
        self.example_bytes = dict[str, int]()
        for name, worst in needs.asked.worst.items():
            self.example_bytes[name] = max(1, -(-worst.of(job_rows) // job_rows))
        self.memory_bytes, self.beside_bytes = memory_bytes, sum(others)
        self.beside_bytes += max(0, threads - 1) * needs.thread_bytes
        readers = max(1, threads) if in_flight else threads + 1
        promised = n_buffers * buffer_bytes + readers * needs.thread_bytes + OVERHEAD_BYTES
        promised += needs.kept_bytes + self.loaders * loading_bytes + batch_bytes + index_bytes
        # The allocator keeps a little beside what it is asked for.
        self.promised_bytes = max(
            promised, min(memory_bytes, promised + promised // ALLOCATOR_SHARE)
        )
        self.kept, self.kept_bytes = frozenset(needs.kept), needs.kept_bytes
        self.window_rows, self.job_rows, self.n_buffers = window_rows, job_rows, n_buffers
        self.threads, self.in_flight, self.picks = threads, in_flight, picks
        self.layout_bytes = sum(needs.asked.layout_bytes.values())

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


def windows_within(needs: Needs, free: int) -> tuple[int, int, int]:
    """Return (rows shuffled together, rows of a buffer, buffers) where a buffer holds a window."""
    rows, options, unit_rows = needs.asked.rows, needs.asked.rows.options, needs.unit_rows
    window_rows, n_buffers = options.window_rows, needs.n_buffers
    if window_rows is None:
        # As much for threads on any machine: windows must not depend on the number of cores.
        for_threads = min((MAX_THREADS - 1) * needs.thread_bytes, free // THREADS_SHARE)
        fitting = needs.rows_within((free - for_threads) // MIN_BUFFERS)
        whole = fitting // unit_rows * unit_rows
        even = fitting - fitting % math.lcm(unit_rows, rows.held_rows)
        window_rows = even if 8 * even >= 7 * whole else whole  # end with a batch, if cheap
        window_rows = max(window_rows, unit_rows, rows.held_rows)
    job_rows = min(max(window_rows, unit_rows), max(rows.n_rows, 1))
    if needs.fills and options.prefetch is not None:
        n_buffers = max(n_buffers, min(options.prefetch + 1, free // needs.buffer_bytes(job_rows)))
    return BLOCK_ROWS if rows.mode == "full" else window_rows, job_rows, n_buffers


def jobs_within(needs: Needs, free: int, *, kept_small: bool) -> tuple[int, int, int]:
    """Return the same where rows follow one another, or are kept: jobs suit caches and threads."""
    rows, options, n_buffers = needs.asked.rows, needs.asked.rows.options, needs.n_buffers
    window_rows = BLOCK_ROWS
    if needs.all_kept and rows.mode == "window":
        window_rows = options.window_rows or max(rows.n_rows, 1)
    alone = options.threads == 0 or (options.threads is None and options.prefetch == 0)
    job_bytes = ALONE_JOB_BYTES if alone else JOB_BYTES
    if needs.decoded:
        job_bytes = min(DECODED_JOB_BYTES, free // DECODED_BUFFERS)
    fitting = needs.rows_within(min(job_bytes, free // n_buffers))
    job_rows = job_rows_of(fitting, needs.unit_rows if needs.chunked else 1, rows)
    if options.prefetch is None and not alone and not kept_small:
        buffer_bytes, most = needs.buffer_bytes(job_rows), DECODED_BUFFERS
        if not needs.decoded:
            most = max(DECODED_BUFFERS, min(MAX_BUFFERS, BUFFERS_BYTES // buffer_bytes))
        n_buffers = max(n_buffers, min(most, free // buffer_bytes))
    return window_rows, job_rows, n_buffers


def job_rows_of(wanted: int, unit_rows: int, rows: OrderedRows) -> int:
    """Rows of a job that may be cut anywhere: whole batches and whole units, where that fits."""
    together = math.lcm(unit_rows, rows.held_rows)
    step = together if together <= wanted else unit_rows
    n_rows = max(step, wanted // step * step, -(-rows.held_rows // step) * step)
    return min(n_rows, max(rows.n_rows, 1))


def _too_small(least: Needs) -> str:
    """State the sum that is needed, term by term, and what would help."""
    rows, options = least.asked.rows, least.asked.rows.options
    remedies = [f"give memory={size_words(least.needed_bytes)!r}", "smaller batches"]
    if (options.threads or 0) > 1:
        remedies.append("fewer threads")
    if options.window_rows is not None:
        remedies.append("a smaller window_rows")
    large_bytes = max(1 << 20, options.memory_bytes // LARGE_SHARE)
    if least.chunked and least.buffer_bytes(least.unit_rows) > large_bytes:
        remedies.append("write the file with smaller chunks ('labeled repack')")
    for name, source in least.asked.layout.sources.items():  # a damaged example may claim any size
        sizes = source.sizes[rows.selections[name].rows] if source.ragged is not None else ()
        if len(sizes) and max(sizes) > OUTSIZED * max(1, np.median(sizes)):
            row = int(np.argmax(sizes))
            taken = format_bytes(int(sizes[row]) * source.dtype.itemsize)
            remedies.append(f"a subset without row {row} of {source.where}, which takes {taken}")
    terms = [f"{term} {format_bytes(n_bytes)}" for term, n_bytes in least.parts.items() if n_bytes]
    return (
        f"memory of {format_bytes(options.memory_bytes)} is too small: {', '.join(terms)}, "
        f"together {format_bytes(least.needed_bytes)}; {', or '.join(remedies)}"
    )
