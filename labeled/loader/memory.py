"""How much memory a loader takes: one sum, and what of it windows, buffers and threads get.

What iterating adds to a process is at most

    sources kept + buffers * bytes of a buffer + readers * scratch of a reader
    + batches made or held + row numbers + overhead

With the fewest rows in a buffer, the fewest buffers and one thread, that sum is what a loader
needs: with less it is refused, by an error that states the sum. What `memory` holds beyond it makes
windows larger, keeps sources, reads further ahead and pays for more threads, in that order.

Whatever the order of rows depends on (windows, and which sources are kept) follows from the
selection, the stored layout, the batch size and `memory` alone: never from the number of cores, of
threads, or from what the machine has free.

Examples of different shapes count with the bytes of the largest that can meet: their sizes are
summed once, so no window exceeds its share whichever rows it gets.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled.display.text import count_words
from labeled.errors import LoaderError, explain_memory_errors, warn
from labeled.formats.memory import available_bytes
from labeled.loader.layout import BatchLayout, shape_blocks
from labeled.loader.ordering import Grouping, OrderedRows, group_rows
from labeled.loader.source_readers import RaggedSourceReader, SourceReader
from labeled.samplers.units import Units
from labeled.samplers.windows import Mode
from labeled.selection import Selection
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import AnySource, RowLayout, low_memory_of
from labeled.transforms.running import MadeOf

Rows = npt.NDArray[np.int64]

OVERHEAD_BYTES = 1 << 20
STACK_BYTES = 1 << 16
INDEX_BYTES, BLOCK_INDEX_BYTES, PLANNER_INDEX_BYTES = 48, 16, 32
"""Row numbers, places and temporary copies of them: a row of a window, of a block of places.

The last stays with each thread that has worked out such a block.
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
"""Windows whose row numbers are in memory then: the one in use, the next, and the one after it,
which the system is advised of."""

LIGHT_BYTES = 32 << 20
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
LOADED_SHARE, LOADED_BYTES = 32, 2 << 20
"""The share of kept rows that reading them in once may leave behind, and the most of it."""

ALLOCATOR_SHARE = 32
"""The share of what is asked for that the allocator may keep besides: 1.8 % was seen."""

LARGE_SHARE, LARGE_BYTES = 8, 1 << 20
"""Chunks above one of so many parts of the memory are named as what takes too much, but none up to
this size."""
OUTSIZED = 16
"""A row so many times as large as half of the others is named where it needs too much memory."""


# sizes as people write them


def size_words(n_bytes: int) -> str:
    """Write a size so that ``memory=`` reads back no less.

    Examples
    --------
    >>> size_words(20 * 2**20 + 1)
    '21 MiB'
    """
    return f"{-(-n_bytes >> 20)} MiB"


def enough_memory(memory_bytes: int) -> AbstractContextManager[None]:
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


def warn_of_room(promised_bytes: int) -> None:
    """Warn where a loader may take more than the system lets this process have."""
    room = available_bytes()
    if promised_bytes > room:
        warn(f"batches may take {format_bytes(promised_bytes)}, but {room_words(room)}")


def room_words(available_bytes: float) -> str:
    """Say how much memory is left, and what to ask for there."""
    room, most = max(int(available_bytes), 0), max(int(available_bytes) >> 1, 1 << 20)
    return (
        f"this process may take {format_bytes(room)} more before the system ends it (that is the "
        "machine's memory, or the limit of its container or job); give "
        f"memory='{most >> 20} MiB' or less"
    )


# examples of different shapes


@dataclass(frozen=True, eq=False)
class WorstCase:
    """The most bytes that a window of at most `n` rows can have, whichever rows it gets.

    Parameters
    ----------
    sizes : int64 (n_rows,)
        Bytes by grouped position.
    mode : {"file", "window", "full"}
    units : Units
        What stays together in window mode.
    repeats : bool
        Rows may be drawn more than once.
    """

    sizes: Rows
    mode: Mode
    units: Units
    repeats: bool = False

    def of(self, n: int) -> int:
        """Return the bound for windows that hold up to `n` rows; it never falls."""
        sizes = self.sizes
        n = min(n, len(sizes)) if not self.repeats else n
        if not len(sizes) or not n:
            return 0
        if self.repeats:
            return n * int(sizes.max())
        if self.mode == "file":
            ends = np.concatenate([[0], np.cumsum(sizes)])
            return int((ends[n:] - ends[:-n]).max())
        if self.mode == "full":
            return int(np.partition(sizes, len(sizes) - n)[len(sizes) - n :].sum())
        nbytes, rows = self._densest_units
        taken = int(np.searchsorted(np.cumsum(rows), n)) + 1  # windows are made of whole units
        return int(nbytes[:taken].sum())

    @cached_property
    def _densest_units(self) -> tuple[Rows, Rows]:
        """Bytes and rows of each unit, those with most bytes a row first."""
        starts = self.units.bounds(np.arange(self.units.count))[0] - self.units.start
        rows = np.diff(np.append(starts, len(self.sizes)))
        nbytes = np.add.reduceat(self.sizes, starts)
        order = np.argsort(-(nbytes / rows), kind="stable")
        return nbytes[order], rows[order]


# the outcome


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
        Buffers of that many rows, `slot_bytes` each with the row numbers they take.
    threads : int
        Background threads; those that read take batches through a pipeline, too.
    batch_bytes : int
        Batches made or held, those in a pipeline counted.
    reads_ahead : bool
        Whether threads read ahead of the batch that is made.
    in_flight : int
        Batches in a pipeline at a time, the consumer's not counted; 0 where there is none.
    loaders, loading_bytes : int
        Threads that read what is kept, before the first batch, and what they need besides.
    laid_bytes : int
        Of the largest batch, what ragged examples take as they are laid out.
    whole : Sizes, optional
        What reading windows whole would take, where their rows are read one by one instead.
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
    reads_ahead: bool = True
    in_flight: int = 0
    loaders: int = 1
    loading_bytes: int = 0
    laid_bytes: int = 0
    whole: Sizes | None = None

    @property
    def promised_bytes(self) -> int:
        """The most that iterating adds to the memory of the process."""
        asked = self.asked_bytes
        return max(asked, min(self.memory_bytes, asked + asked // ALLOCATOR_SHARE))

    @property
    def asked_bytes(self) -> int:
        """The sum asked of the allocator, which keeps a little beside it."""
        readers = max(1, self.threads) if self.in_flight else self.threads + 1
        return (
            self.kept_bytes
            + self.slots * self.slot_bytes
            + readers * self.thread_bytes
            + self.batch_bytes
            + self.index_bytes
            + self.loading_bytes
            + OVERHEAD_BYTES
        )

    def memory_for(self, window_rows: int, nbytes: Sequence[int]) -> int:
        """Return the `memory`, in whole MiB, with which windows of so many rows are made.

        Parameters
        ----------
        nbytes : sequence of int
            Of the sources that are not kept: those that more memory would keep count too.
        """
        if self.whole is not None:  # orders are the same
            return self.whole.memory_for(window_rows, nbytes)
        row_bytes = -(-self.slot_bytes // max(1, self.job_rows))
        larger = replace(self, threads=max(1, self.threads), slot_bytes=window_rows * row_bytes)
        asked = larger.asked_bytes
        for size in sorted(nbytes):
            asked += size if size * KEEP_SHARE <= asked + size else 0
        return max(self.memory_bytes, -(-asked >> 20) << 20)


# the sum


class Reading:
    """Sources on their way into batches, in an order of some units.

    Parameters
    ----------
    piped : MadeOf, optional
        What a pipeline makes of rows.
    """

    def __init__(
        self,
        rows: OrderedRows,
        layout: BatchLayout,
        piped: MadeOf | None,
        sources: Mapping[str, AnySource],
        selections: Mapping[str, Selection],
        grouping: Grouping,
    ) -> None:
        self.rows, self.layout, self.piped, self.grouping = rows, layout, piped, grouping
        self.source_readers: list[SourceReader] = []
        self.worst: dict[str, WorstCase] = {}
        self.laid_bytes: dict[str, int] = {}
        """Bytes of the ragged examples of a batch as they are laid out."""
        row_bytes, scratch_bytes, beside_bytes = layout.out_row_bytes, 0, KEPT_BESIDE_BYTES
        for name, source in sources.items():
            source_reader = (
                RaggedSourceReader(source, selections[name], source.examples())
                if isinstance(source, RaggedSource)
                else SourceReader(source, selections[name], source.reader())
            )
            self.source_readers.append(source_reader)
            row_bytes += source_reader.row_bytes
            scratch_bytes = max(scratch_bytes, source_reader.layout.scratch_bytes)
            beside_bytes += source_reader.layout.held_bytes
            if isinstance(source_reader, RaggedSourceReader):
                self._measure(source_reader)
        beside_bytes += (SPARE_BATCHES + KEPT_BESIDE) * rows.held_rows * row_bytes
        beside_bytes += OVERHEAD_BYTES + 2 * scratch_bytes
        if rows.mode == "window":
            beside_bytes += INDEX_BYTES * rows.n_rows
        self.choices = kept_choices(self.source_readers, beside_bytes)

    def _measure(self, source_reader: RaggedSourceReader) -> None:
        """Find what windows of a ragged source, and the largest batch laid out, can take."""
        rows, form, units = (
            self.rows,
            self.layout.ragged.get(source_reader.name),
            self.grouping.units,
        )
        worst = WorstCase(
            source_reader.position_bytes(self.grouping.group), rows.mode, units, rows.repeats
        )
        self.worst[source_reader.name], self.laid_bytes[source_reader.name] = worst, 0
        if form is None:
            return
        if rows.options.bucket is not False:  # the largest of a window meet in a batch
            worst = replace(worst, mode="full")
        n = max(1, min(rows.held_rows, len(worst.sizes)))
        wider = max(1.0, form.out_dtype.itemsize / max(1, form.dtype.itemsize))
        row_bytes = int(wider * worst.of(n) / n) + 1
        if form.layout == "pad":
            lengths = form.lengths or [0] * (len(form.dims) - 1)
            for _, shapes in (
                () if form.lengths else shape_blocks(source_reader.source, source_reader.selection)
            ):
                lengths = np.maximum(lengths, shapes.max(axis=0, initial=0)).tolist()
            row_bytes += math.prod(lengths) * (form.out_dtype.itemsize + 1)
        self.laid_bytes[source_reader.name] = rows.held_rows * row_bytes

    def plan(self, memory_bytes: int) -> tuple[list[SourceReader], Grouping, Sizes] | None:
        """Share memory out, or return None where it is too little."""
        for least_bytes, kept in self.choices:
            terms = Sum(self, kept) if least_bytes <= memory_bytes else None
            if terms is None or terms.needed_bytes > memory_bytes:
                continue
            sizes = terms.sizes(memory_bytes)
            for source_reader in self.source_readers:
                source_reader.keep = source_reader.name in terms.kept
                if isinstance(source_reader, RaggedSourceReader):
                    most = self.worst[source_reader.name].of(max(1, sizes.job_rows))
                    source_reader.row_bytes = max(1, -(-most // max(1, sizes.job_rows)))
            return self.source_readers, self.grouping, sizes
        return None

    def least(self) -> tuple[int, Sum]:
        """Return the least memory with which there is a plan, and the sum of that."""
        found: list[tuple[int, Sum]] = []
        for least_bytes, kept in self.choices:
            terms = Sum(self, kept)
            found.append((max(least_bytes, terms.needed_bytes), terms))
        return min(found, key=lambda one: one[0])


def kept_choices(
    source_readers: Sequence[SourceReader], beside_bytes: int
) -> list[tuple[int, list[str]]]:
    """List which sources may be read once and kept, most of them first, and with what memory.

    All of them if `beside_bytes` fit beside them; else only those that are small.
    """
    taken, kept = 0, list[str]()
    choices = [(0, kept)]
    for source_reader in sorted(source_readers, key=attrgetter("nbytes", "name")):
        taken, kept = taken + source_reader.nbytes, [*kept, source_reader.name]
        choices.append((max(source_reader.nbytes * KEEP_SHARE, taken * SMALL_SHARE), kept))
    least, everything = choices[-1]
    choices[-1] = (min(least, taken + beside_bytes) if everything else 0, everything)
    return choices[::-1]


class Sum:
    """The terms of the sum for one choice of the sources that are kept."""

    def __init__(self, reading: Reading, kept: Collection[str]) -> None:
        rows, wanted = reading.rows, reading.rows.options
        self.rows, self.piped, self.worst = rows, reading.piped, reading.worst
        self.kept = set[str]()
        self.kept_bytes = self.chunks_bytes = self.loading_bytes = row_bytes = 0
        read: list[RowLayout] = []
        for source_reader in reading.source_readers:
            one = source_reader.layout
            self.chunks_bytes += one.held_bytes
            row_bytes += 0 if source_reader.name in self.worst else source_reader.row_bytes
            # What is kept is read at once or not at all, so nothing is where rows may be left out.
            if (
                source_reader.name in kept
                and source_reader.source.loaded is None
                and not wanted.skips
            ):
                self.kept.add(source_reader.name)
                self.kept_bytes += source_reader.nbytes
                scratch_bytes = 0 if one.direct else one.scratch_bytes
                self.loading_bytes = max(self.loading_bytes, scratch_bytes)
            else:
                read.append(one)
        self.all_kept = not read
        self.light = self.all_kept and self.kept_bytes <= LIGHT_BYTES and wanted.threads is None
        """Whether so little is kept that the caller hands it out alone."""
        self.unit_rows, self.job_unit_rows = max(1, reading.grouping.units.max_rows), 1
        self.windowed = rows.mode == "window" and bool(read)
        self.chunked = self.decoded = False
        for one in read:
            chunked = one.chunk_rows is not None
            self.chunked, self.decoded = self.chunked or chunked, self.decoded or one.expensive
            if chunked and not one.held_bytes:
                self.job_unit_rows = self.unit_rows
            if rows.mode == "full" and chunked and not one.picked:
                self.windowed = True  # a stored chunk serves many batches
        self.row_bytes = max(1, row_bytes) + (INDEX_BYTES if self.windowed else 0)

        block_rows = min(BLOCK_ROWS, rows.n_rows) if rows.mode == "full" else 0
        self.thread_bytes = STACK_BYTES if self.kept else 1
        for one in read:
            direct = one.direct and not self.windowed
            scratch_bytes = STACK_BYTES if direct else one.scratch_bytes
            self.thread_bytes = max(self.thread_bytes, scratch_bytes)
        self.thread_bytes += block_rows * PLANNER_INDEX_BYTES
        self.index_bytes = block_rows * BLOCK_INDEX_BYTES + self.chunks_bytes
        if read:
            self.loading_bytes = 0
        else:
            self.index_bytes += min(self.kept_bytes // LOADED_SHARE, LOADED_BYTES)
            if rows.mode == "window":
                shuffled_rows = min(rows.n_rows, wanted.window_rows or rows.n_rows)
                self.index_bytes += INDEX_BYTES * shuffled_rows
        self._add_batches(reading)

        # Windows fill the memory there is: neither threads nor prefetching make them smaller.
        self.fills = self.windowed and wanted.window_rows is None
        self.fewest_buffers, threads = MIN_BUFFERS, 1
        if not self.fills:
            threads = max(1, wanted.threads or 1)
            self.fewest_buffers = max(MIN_BUFFERS, (wanted.prefetch or 0) + 1)
        fewest_rows = job_rows_of(1, self.job_unit_rows, rows)
        if self.windowed:
            fewest_rows = max(wanted.window_rows or rows.held_rows, self.unit_rows)
            fewest_rows = min(fewest_rows, max(rows.n_rows, 1))
        self.fewest_rows, self.fewest_threads = fewest_rows, threads
        self.terms = {
            "buffers": self.fewest_buffers * self.buffer_bytes(fewest_rows),
            "batches": self.held_bytes + MIN_IN_FLIGHT * self.each_bytes,
            "threads": (1 + threads) * self.thread_bytes,
            "sources kept": self.kept_bytes,
            "row numbers and chunks held": self.index_bytes,
            "the rest": OVERHEAD_BYTES,
        }
        """What is needed at the least: the sum that an error states."""
        self.needed_bytes = sum(self.terms.values())
        self.beside_bytes = self.needed_bytes - self.terms["buffers"]

    def _add_batches(self, reading: Reading) -> None:
        """Add what batches take that are made or held, and one more of a pipeline."""
        n, layout, piped = self.rows.held_rows, reading.layout, reading.piped
        batch_bytes, laid_out = (
            n * (self.row_bytes + layout.out_row_bytes),
            layout.out_row_bytes > 0,
        )
        for name, worst in self.worst.items():
            as_read = name not in layout.ragged or layout.ragged[name].as_read
            laid_out = laid_out or not as_read
            batch_bytes += max(worst.of(n), 0 if as_read else reading.laid_bytes[name])
        self.laid_bytes = sum(reading.laid_bytes.values())
        self.held_bytes, self.each_bytes = batch_bytes, 0
        if piped is not None:
            # What a pipeline makes counts twice: where threads make such arrays the system's
            # allocator keeps about one for each, until the next.
            made_bytes = n * piped.row_bytes
            self.held_bytes = HELD_BATCHES * (batch_bytes + made_bytes)
            self.each_bytes = batch_bytes + 2 * made_bytes + piped.work_bytes
        elif self.windowed or laid_out:
            self.held_bytes *= SPARE_BATCHES

    def buffer_bytes(self, n_rows: int) -> int:
        """Bytes of a buffer of so many rows."""
        n_bytes = n_rows * self.row_bytes
        for worst in self.worst.values():
            n_bytes += worst.of(n_rows)
        return n_bytes

    def rows_within(self, n_bytes: int) -> int:
        """Return how many rows a buffer of so many bytes holds."""
        if not self.worst:
            return n_bytes // self.row_bytes
        return bisect_right(range(1, self.rows.n_rows + 1), n_bytes, key=self.buffer_bytes)

    def sizes(self, memory_bytes: int) -> Sizes:
        """Share out memory that is no less than what is needed."""
        free, in_flight, idle_bytes = memory_bytes - self.beside_bytes, 0, 0
        wanted = self.rows.options
        if self.piped is not None:
            each_bytes = max(1, self.each_bytes)
            more = (memory_bytes - self.needed_bytes) // each_bytes
            most = min(memory_bytes // IN_FLIGHT_SHARE // each_bytes, MIN_IN_FLIGHT + more)
            in_flight = max(MIN_IN_FLIGHT, min(MAX_IN_FLIGHT, most))
            free -= (in_flight - MIN_IN_FLIGHT) * self.each_bytes
        window_rows, job_rows, slots = self._windows(free) if self.windowed else self._jobs(free)
        slot_bytes = self.buffer_bytes(job_rows)
        spare = free - slots * slot_bytes
        loading_bytes = min(self.loading_bytes, spare)  # what is small is kept whatever it takes
        spare -= loading_bytes
        affordable = 1 + spare // self.thread_bytes
        if self.chunks_bytes and not in_flight:  # decoded one at a time, in order
            threads = 0
        elif wanted.threads is not None:
            threads = min(wanted.threads, affordable) if self.fills else wanted.threads
        elif wanted.prefetch == 0 or (self.light and not in_flight):
            threads = 0
        else:
            most = min(in_flight, n_cores()) if in_flight else max(1, n_cores() - 1)
            threads = min(MAX_THREADS, most, affordable)
        loaders = 1 + (min(threads, spare // loading_bytes) if loading_bytes else threads)
        if self.piped is not None:
            idle_bytes = max(0, in_flight - max(1, threads)) * self.piped.work_bytes
        return Sizes(
            memory_bytes=memory_bytes,
            window_rows=window_rows,
            job_rows=job_rows,
            slots=slots,
            threads=threads,
            slot_bytes=slot_bytes,
            kept_bytes=self.kept_bytes,
            thread_bytes=self.thread_bytes,
            batch_bytes=self.held_bytes + in_flight * self.each_bytes - idle_bytes,
            index_bytes=self.index_bytes,
            reads_ahead=not self.chunks_bytes,
            in_flight=in_flight,
            loaders=loaders,
            loading_bytes=loaders * loading_bytes,
            laid_bytes=self.laid_bytes,
        )

    def _windows(self, free: int) -> tuple[int, int, int]:
        """Let a buffer hold a window, or as many rows of a full shuffle over chunks."""
        wanted, unit_rows, batch_rows = self.rows.options, self.unit_rows, self.rows.held_rows
        rows = wanted.window_rows
        if rows is None:
            # As much for threads on any machine: windows must not depend on the number of cores.
            for_threads = min((MAX_THREADS - 1) * self.thread_bytes, free // THREADS_SHARE)
            fitting = self.rows_within((free - for_threads) // MIN_BUFFERS)
            whole = fitting // unit_rows * unit_rows
            even = fitting - fitting % math.lcm(unit_rows, batch_rows)
            rows = even if 8 * even >= 7 * whole else whole  # end windows with batches, if cheap
            rows = max(rows, unit_rows, batch_rows)
        job_rows = min(max(rows, unit_rows), max(self.rows.n_rows, 1))
        slots = self.fewest_buffers
        if self.fills and wanted.prefetch is not None:
            slots = max(slots, min(wanted.prefetch + 1, free // self.buffer_bytes(job_rows)))
        return (BLOCK_ROWS if self.rows.mode == "full" else rows), job_rows, slots

    def _jobs(self, free: int) -> tuple[int, int, int]:
        """Cut rows that follow one another, or are kept, into jobs that suit caches and threads."""
        wanted, window_rows, slots = self.rows.options, BLOCK_ROWS, self.fewest_buffers
        if self.all_kept and self.rows.mode == "window":
            window_rows = wanted.window_rows or max(self.rows.n_rows, 1)
        alone = wanted.threads == 0 or (wanted.threads is None and wanted.prefetch == 0)
        job_bytes = min(JOB_BYTES, ALONE_JOB_BYTES) if alone else JOB_BYTES
        if self.decoded:
            job_bytes = min(DECODED_JOB_BYTES, free // DECODED_BUFFERS)
        fitting = self.rows_within(min(job_bytes, free // slots))
        job_rows = job_rows_of(fitting, self.job_unit_rows, self.rows)
        if wanted.prefetch is not None or alone or self.light or self.chunks_bytes:
            return window_rows, job_rows, slots  # nobody reads further ahead
        slot_bytes, most = self.buffer_bytes(job_rows), DECODED_BUFFERS
        if not self.decoded:
            most = max(DECODED_BUFFERS, min(MAX_BUFFERS, BUFFERS_BYTES // slot_bytes))
        affordable = (free - 2 * self.loading_bytes) // slot_bytes
        return window_rows, job_rows, max(slots, min(most, affordable))


def job_rows_of(wanted: int, unit_rows: int, rows: OrderedRows) -> int:
    """Rows of a job that may be cut anywhere: whole batches and whole units, where that fits."""
    together = math.lcm(unit_rows, rows.held_rows)
    step = together if together <= wanted else unit_rows
    n_rows = max(step, wanted // step * step, -(-rows.held_rows // step) * step)
    return min(n_rows, max(rows.n_rows, 1))


def n_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# plans


def plan_memory(
    rows: OrderedRows,
    layout: BatchLayout,
    piped: MadeOf | None,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    lead: AnySource,
) -> tuple[list[SourceReader], Grouping, Sizes]:
    """Make readers and share memory out.

    Whole stored chunks are read where there is room for it. Only where there is not, rows of
    unfiltered ones are read and shuffled as if there were no chunks, and others are decoded
    one at a time. Memory that nobody named is doubled before it is too small, up to half of what
    the process may still take.

    Parameters
    ----------
    piped : MadeOf, optional
        What a pipeline makes of rows.
    lead : AnySource
        Whose stored chunks decide what is read together, were it all read or not.

    Raises
    ------
    LoaderError
        If `memory` is too small; the message states the sum, and a size with which this succeeds.
    """
    memory_bytes = rows.options.memory_bytes
    grouping = group_rows(lead, selections[lead.name], rows.mode)
    whole = Reading(rows, layout, piped, sources, selections, grouping)
    planned = whole.plan(memory_bytes)
    if planned is not None:
        return planned
    if rows.mode != "file":  # file order is the same by any units, and so is its state
        grouping = group_rows(low_memory_of(lead), selections[lead.name], rows.mode)
    saved = {name: low_memory_of(source) for name, source in sources.items()}
    sparing = Reading(rows, layout, piped, saved, selections, grouping)
    planned = sparing.plan(memory_bytes)
    if rows.options.memory is None:
        while planned is None and 2 * memory_bytes <= available_bytes() // 2:
            memory_bytes *= 2
            planned = whole.plan(memory_bytes)
    if planned is not None:
        return planned
    raise LoaderError(_too_small(whole, sparing, sources, selections))


def _too_small(
    whole: Reading,
    sparing: Reading,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
) -> str:
    """State the sum that is needed, term by term, and what would help."""
    wanted, found = whole.rows.options, [sparing.least(), whole.least()]
    enough_bytes, least = min(found, key=lambda one: one[0])
    remedies = [f"give memory={size_words(enough_bytes)!r}", "smaller batches"]
    if (wanted.threads or 0) > 1:
        remedies.append("fewer threads")
    if wanted.window_rows is not None:
        remedies.append("a smaller window_rows")
    large_bytes = max(LARGE_BYTES, wanted.memory_bytes // LARGE_SHARE)
    if least.chunked and least.buffer_bytes(least.unit_rows) > large_bytes:
        remedies.append("write the file with smaller chunks ('labeled repack')")
    for name, source in sources.items():  # rows that are by far the largest can be left out
        sizes = source.sizes[selections[name].rows] if isinstance(source, RaggedSource) else ()
        largest = int(np.argmax(sizes)) if len(sizes) else 0
        if len(sizes) and sizes[largest] > OUTSIZED * max(1, np.median(sizes)):
            taken = format_bytes(int(sizes[largest]) * source.dtype.itemsize)
            which = f"row {largest} of {source.where}, which is to take {taken}"
            remedies.append(f"a subset without {which}")
    buffers = f"{least.fewest_buffers} {'windows' if least.windowed else 'jobs'}"
    row_bytes = least.buffer_bytes(least.fewest_rows) // least.fewest_rows
    longer = {
        "buffers": f"{buffers} of {least.fewest_rows:,} rows ({format_bytes(row_bytes)} a row)",
        "threads": f"reading in {count_words(least.fewest_threads, 'thread')} and the caller",
    }
    terms = []
    for term, n_bytes in least.terms.items():
        if n_bytes:
            terms.append(f"{longer.get(term, term)} {format_bytes(n_bytes)}")
    return (
        f"memory of {format_bytes(wanted.memory_bytes)} is too small: {', '.join(terms)}, together "
        f"{format_bytes(least.needed_bytes)}; {', or '.join(remedies)}"
    )


def picked_sizes(sizes: Sizes, source_readers: Sequence[SourceReader], rows: OrderedRows) -> Sizes:
    """Let rows of shuffled windows be read one by one, where all of them can be.

    They are copied directly from the system's cache of the file to their batch then, once, and
    no window is in memory but its row numbers. Windows and their orders stay as they are.
    """
    fit = False
    for source_reader in source_readers if rows.mode == "window" else ():
        if not source_reader.keep:
            fit = source_reader.layout.mapped and source_reader.row_bytes >= PICKED_ROW_BYTES
            if not fit:
                break
    if not fit:
        return sizes
    row_bytes = sizes.slot_bytes // max(1, sizes.job_rows)
    fitting = PICKED_JOB_BYTES // max(1, row_bytes - INDEX_BYTES)
    job_rows = job_rows_of(max(1, min(fitting, sizes.job_rows // PICKED_JOBS)), 1, rows)
    if 2 * job_rows > sizes.job_rows:  # windows hardly larger than batches
        return sizes
    slot_bytes = job_rows * row_bytes
    index_bytes = INDEXED_WINDOWS * sizes.job_rows * INDEX_BYTES
    affordable = (sizes.slots * sizes.slot_bytes - index_bytes) // max(1, slot_bytes)
    most = max(PICKED_BUFFERS, min(MAX_BUFFERS, BUFFERS_BYTES // max(1, slot_bytes)))
    if rows.options.prefetch is not None:
        most = rows.options.prefetch + 1
    elif sizes.threads == 0:
        most = PICKED_BUFFERS
    return replace(
        sizes,
        job_rows=job_rows,
        slots=max(PICKED_BUFFERS, min(most, affordable)),
        slot_bytes=slot_bytes,
        index_bytes=sizes.index_bytes + index_bytes,
        whole=sizes,
    )
