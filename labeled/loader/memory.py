"""How much memory a loader takes: one sum, and what of it windows, buffers and threads get.

What iterating adds to a process is at most

    sources kept + buffers * bytes of a buffer + readers * scratch of a reader
    + batches made or held + row numbers + overhead

With the fewest rows in a buffer, the fewest buffers and one thread, that sum (:class:`Terms`) is
what a loader needs: with less it is refused, by an error that states the sum. What `memory` holds
beyond it makes windows larger, reads further ahead and pays for more threads, in that order
(:func:`share_out`). As many sources are kept as there is room for, the smallest first.

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
from collections.abc import Mapping, Sequence
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
from labeled.loader.ordering import Grouping, OrderedRows
from labeled.loader.source_readers import bytes_by_position
from labeled.samplers.units import Units
from labeled.samplers.windows import Mode
from labeled.selection import Selection
from labeled.sources.source import Source
from labeled.transforms.running import MadeOf

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
        Bytes by position of the order.
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
    kept : set of str
        Sources that are read once, and kept for all epochs.
    window_rows : int
        Rows shuffled together (orders depend on it, but for file order and full shuffle).
    job_rows : int
        Rows read ahead as one job: the window in window mode, unless its rows are picked one by
        one or all sources are kept.
    n_buffers : int
        Buffers of that many rows, `buffer_bytes` each with the row numbers they take.
    threads : int
        Background threads; those that read take batches through a pipeline, too.
    batch_bytes : int
        Batches made or held, those in a pipeline counted.
    in_flight : int
        Batches in a pipeline at a time, the consumer's not counted; 0 where there is none.
    layout_bytes : int
        Of the largest batch, what ragged examples take as they are laid out.
    picks : bool
        Whether rows of windows are read one by one, directly to their batch.
    loaders, loading_bytes : int
        Threads that read what is kept, before the first batch, and what they need besides.
    example_bytes : mapping of str to int
        For ragged sources, bytes of a row in a buffer: what no job exceeds on average.
    row_bytes, beside_bytes : int
        Of a row in a window that is read whole, and of all that is needed beside such windows.
    """

    memory_bytes: int
    kept: frozenset[str]
    window_rows: int
    job_rows: int
    n_buffers: int
    threads: int
    buffer_bytes: int
    kept_bytes: int
    thread_bytes: int
    batch_bytes: int
    index_bytes: int
    in_flight: int
    layout_bytes: int
    picks: bool
    loaders: int
    loading_bytes: int
    example_bytes: Mapping[str, int]
    row_bytes: int
    beside_bytes: int

    @property
    def promised_bytes(self) -> int:
        """The most that iterating adds to the memory of the process."""
        readers = max(1, self.threads) if self.in_flight else self.threads + 1
        asked = self.n_buffers * self.buffer_bytes + readers * self.thread_bytes + OVERHEAD_BYTES
        asked += self.kept_bytes + self.loading_bytes + self.batch_bytes + self.index_bytes
        # The allocator keeps a little beside what it is asked for.
        return max(asked, min(self.memory_bytes, asked + asked // ALLOCATOR_SHARE))

    def memory_for(self, window_rows: int, nbytes: Sequence[int]) -> int:
        """Return the `memory`, in whole MiB, with which windows of so many rows are made.

        Parameters
        ----------
        nbytes : sequence of int
            Of the sources that are not kept: those that more memory would keep count too.
        """
        asked = self.beside_bytes + MIN_BUFFERS * window_rows * self.row_bytes
        asked += max(0, self.threads - 1) * self.thread_bytes
        for size in sorted(nbytes):
            asked += size if size * KEEP_SHARE <= asked + size else 0
        return max(self.memory_bytes, -(-asked >> 20) << 20)


# the sum


@dataclass(frozen=True, eq=False)
class Terms:
    """What a loader needs at the least, with some choice of the sources that are kept.

    Parameters
    ----------
    least_bytes : int
        With less memory these sources are not kept, though there were room.
    worst : mapping of str to WorstCase
        Bounds of the ragged sources.
    row_bytes : int
        Of a row of the dense sources in a buffer.
    all_kept : bool
        Whether nothing is read once it is kept; nothing below is true then.
    windowed, fills : bool
        Whether a buffer holds a window, and whether windows fill the memory there is (nobody gave
        `window_rows`): threads and prefetching do not count then.
    chunked, decoded : bool
        Whether a source that is read has stored chunks, and whether one is expensive to read.
    picks : bool
        Whether rows of windows could be read one by one, directly to their batch. By what is read
        (the last two where all sources are mapped and have rows of `PICKED_ROW_BYTES` or more):

        =======================  =======  ===============  ============================
        stored as                file     window           full
        =======================  =======  ===============  ============================
        stretches                         windowed
        chunks                   chunked  windowed         windowed, unless rows of all
                                                           chunks are picked (`RowLayout`)
        stretches, mapped                 windowed, picks
        chunks, mapped           chunked  windowed, picks
        =======================  =======  ===============  ============================
    unit_rows, fewest_rows : int
        Rows of the largest unit, and the fewest that a buffer holds.
    batch_bytes, each_bytes : int
        Batches made or held, and each one more in a pipeline.
    """

    rows: OrderedRows
    kept: frozenset[str]
    least_bytes: int
    worst: Mapping[str, WorstCase]
    row_bytes: int
    all_kept: bool
    windowed: bool
    fills: bool
    chunked: bool
    decoded: bool
    picks: bool
    n_buffers: int
    unit_rows: int
    fewest_rows: int
    kept_bytes: int
    loading_bytes: int
    thread_bytes: int
    index_bytes: int
    batch_bytes: int
    each_bytes: int
    layout_bytes: int

    @cached_property
    def parts(self) -> dict[str, int]:
        """The sum that an error states, term by term."""
        n_bytes, n_rows = self.buffer_bytes(self.fewest_rows), self.fewest_rows
        what, each = "windows" if self.windowed else "jobs", format_bytes(n_bytes // n_rows)
        threads = 1 if self.fills else max(1, self.rows.options.threads or 1)
        reading = f"reading in {count_words(threads, 'thread')} and the caller"
        return {
            f"{self.n_buffers} {what} of {n_rows:,} rows ({each} a row)": self.n_buffers * n_bytes,
            "batches": self.batch_bytes + MIN_IN_FLIGHT * self.each_bytes,
            reading: (1 + threads) * self.thread_bytes,
            "sources kept": self.kept_bytes,
            "row numbers": self.index_bytes,
            "the rest": OVERHEAD_BYTES,
        }

    @cached_property
    def needed_bytes(self) -> int:
        """The least memory with which these sources are kept."""
        return max(self.least_bytes, sum(self.parts.values()))

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


def plan_memory(
    rows: OrderedRows,
    layout: BatchLayout,
    pipeline_makes: MadeOf | None,
    sources: Mapping[str, Source],
    selections: Mapping[str, Selection],
    grouping: Grouping,
    *,
    on_device: bool,
) -> Sizes:
    """Share memory out, with as many sources kept as there is room for.

    Memory that nobody named is doubled before it is too small, up to half of what the process may
    still take.

    Parameters
    ----------
    pipeline_makes : MadeOf, optional
        What a pipeline makes of rows.
    on_device : bool
        Whether windows go to a device, so that their rows are not picked one by one.

    Raises
    ------
    LoaderError
        If `memory` is too small; the message states the sum, and a size with which this succeeds.
    """
    nbytes, worst, layout_bytes = dict[str, int](), dict[str, WorstCase](), dict[str, int]()
    row_bytes, scratch_bytes = layout.out_row_bytes, 0
    for name, source in sources.items():
        nbytes[name] = len(selections[name]) * source.row_bytes
        if source.ragged is not None:
            sizes = bytes_by_position(source, selections[name], grouping.position_of)
            worst[name] = WorstCase(sizes, rows.mode, grouping.units, rows.repeats)
            layout_bytes[name] = ragged_layout_bytes(
                source, selections[name], worst[name], rows, layout
            )
            nbytes[name] = int(sizes.sum())
        row_bytes += source.row_bytes
        scratch_bytes = max(scratch_bytes, source.layout.scratch_bytes)
    # All are kept only where batches, buffers and shuffled row numbers have room beside them.
    beside_bytes = KEPT_BESIDE_BYTES + OVERHEAD_BYTES + 2 * scratch_bytes
    beside_bytes += (SPARE_BATCHES + KEPT_BESIDE) * rows.held_rows * row_bytes
    beside_bytes += INDEX_BYTES * rows.n_rows if rows.mode == "window" else 0

    order, taken = sorted(zip(nbytes.values(), nbytes, strict=True)), sum(nbytes.values())
    memory_bytes, choices = rows.options.memory_bytes, list[tuple[int, dict[str, int]]]()
    for n_kept in range(len(order), -1, -1):
        largest = order[n_kept - 1][0] if n_kept else 0
        least_bytes = max(largest * KEEP_SHARE, taken * SMALL_SHARE)
        if n_kept == len(order):
            least_bytes = min(least_bytes, taken + beside_bytes)
        choices.append((least_bytes, {name: size for size, name in order[:n_kept]}))
        taken -= largest
    facts, found = (
        (rows, layout, pipeline_makes, sources, worst, layout_bytes, grouping.units),
        list[Terms](),
    )
    while not found or memory_bytes <= available_bytes() // 2:
        for least_bytes, kept in choices:
            if least_bytes <= memory_bytes:
                found.append(terms_of(*facts, kept, least_bytes))
                if found[-1].needed_bytes <= memory_bytes:
                    return share_out(found[-1], memory_bytes, pipeline_makes, on_device=on_device)
        if rows.options.memory is not None:
            break
        memory_bytes *= 2
    least = min(found, key=attrgetter("needed_bytes"))
    raise LoaderError(_too_small(least, sources, selections))


def ragged_layout_bytes(
    source: Source,
    selection: Selection,
    worst: WorstCase,
    rows: OrderedRows,
    layout: BatchLayout,
) -> int:
    """Bytes of the ragged examples of the largest batch as they are laid out."""
    form = layout.ragged.get(source.name)
    if form is None:
        return 0
    if rows.options.bucket is not False:  # the largest of a window meet in a batch
        worst = replace(worst, mode="full")
    n = max(1, min(rows.held_rows, len(worst.sizes)))
    wider = max(1.0, form.out_dtype.itemsize / max(1, form.dtype.itemsize))
    row_bytes = int(wider * worst.of(n) / n) + 1
    if form.layout == "pad":
        lengths = [0] * (len(form.dims) - 1)
        for _, shapes in shape_blocks(source, selection):
            lengths = np.maximum(lengths, shapes.max(axis=0, initial=0)).tolist()
        row_bytes += math.prod(lengths) * (form.out_dtype.itemsize + 1)
    return rows.held_rows * row_bytes


def terms_of(
    rows: OrderedRows,
    layout: BatchLayout,
    pipeline_makes: MadeOf | None,
    sources: Mapping[str, Source],
    worst: Mapping[str, WorstCase],
    layout_bytes: Mapping[str, int],
    units: Units,
    kept: Mapping[str, int],
    least_bytes: int,
) -> Terms:
    """Add up what is needed where the sources `kept`, of so many bytes each, are kept."""
    wanted, mode, n_rows, held_rows = rows.options, rows.mode, rows.n_rows, rows.held_rows
    read, kept_bytes = dict[str, Source](), 0
    for name, source in sources.items():
        # What is kept is read at once or not at all, so nothing is where rows may be left out.
        if name in kept and source.loaded is None and not wanted.skips:
            kept_bytes += kept[name]
        else:
            read[name] = source
    windowed = picks = mode == "window" and bool(read)
    chunked = decoded = False
    for source in read.values():
        one = source.layout
        chunked, decoded = chunked or one.chunk_rows is not None, decoded or one.expensive
        picks = picks and one.mapped and source.row_bytes >= PICKED_ROW_BYTES
        if mode == "full" and one.chunk_rows is not None and not one.picked:
            windowed = True  # a stored chunk serves many batches

    row_bytes, loading_bytes, thread_bytes = 0, 0, STACK_BYTES if len(read) < len(sources) else 1
    for name, source in sources.items():
        row_bytes += 0 if name in worst else source.row_bytes
        scratch_bytes = source.layout.scratch_bytes
        if name in read:
            direct = source.layout.direct and not windowed
            thread_bytes = max(thread_bytes, STACK_BYTES if direct else scratch_bytes)
        elif not read and not source.layout.direct:
            loading_bytes = max(loading_bytes, scratch_bytes)
    row_bytes = max(1, row_bytes) + (INDEX_BYTES if windowed else 0)
    block_rows = min(BLOCK_ROWS, n_rows) if mode == "full" else 0
    index_bytes = block_rows * BLOCK_INDEX_BYTES
    if not read and mode == "window":
        index_bytes += INDEX_BYTES * min(n_rows, wanted.window_rows or n_rows)

    batch_bytes, laid_out = held_rows * (row_bytes + layout.out_row_bytes), layout.out_row_bytes > 0
    for name, bound in worst.items():
        as_read = name not in layout.ragged or layout.ragged[name].as_read
        laid_out = laid_out or not as_read
        batch_bytes += max(bound.of(held_rows), 0 if as_read else layout_bytes[name])
    each_bytes = 0
    if pipeline_makes is not None:
        # What a pipeline makes counts twice: where threads make such arrays the system's
        # allocator keeps about one for each, until the next.
        made_bytes = held_rows * pipeline_makes.row_bytes
        each_bytes = batch_bytes + 2 * made_bytes + pipeline_makes.work_bytes
        batch_bytes = HELD_BATCHES * (batch_bytes + made_bytes)
    elif windowed or laid_out:
        batch_bytes *= SPARE_BATCHES

    unit_rows, fills = max(1, units.max_rows), windowed and wanted.window_rows is None
    fewest_rows = job_rows_of(1, unit_rows if chunked else 1, rows)
    if windowed:
        fewest_rows = max(wanted.window_rows or held_rows, unit_rows)
        fewest_rows = min(fewest_rows, max(n_rows, 1))
    return Terms(
        rows=rows,
        kept=frozenset(sources.keys() - read.keys()),
        least_bytes=least_bytes,
        worst=worst,
        row_bytes=row_bytes,
        all_kept=not read,
        windowed=windowed,
        fills=fills,
        chunked=chunked,
        decoded=decoded,
        picks=picks,
        n_buffers=max(MIN_BUFFERS, 1 + (0 if fills else wanted.prefetch or 0)),
        unit_rows=unit_rows,
        fewest_rows=fewest_rows,
        kept_bytes=kept_bytes,
        loading_bytes=loading_bytes,
        thread_bytes=thread_bytes + block_rows * PLANNER_INDEX_BYTES,
        index_bytes=index_bytes,
        batch_bytes=batch_bytes,
        each_bytes=each_bytes,
        layout_bytes=sum(layout_bytes.values()),
    )


def share_out(
    terms: Terms, memory_bytes: int, pipeline_makes: MadeOf | None, *, on_device: bool
) -> Sizes:
    """Share out memory that is no less than what is needed."""
    rows, wanted, in_flight = terms.rows, terms.rows.options, 0
    buffers_bytes, *others = terms.parts.values()
    free, batch_bytes = memory_bytes - sum(others), terms.batch_bytes
    if pipeline_makes is not None:
        more = (free - buffers_bytes) // terms.each_bytes
        most = min(memory_bytes // IN_FLIGHT_SHARE // terms.each_bytes, MIN_IN_FLIGHT + more)
        in_flight = max(MIN_IN_FLIGHT, min(MAX_IN_FLIGHT, most))
        batch_bytes += in_flight * terms.each_bytes
        free -= (in_flight - MIN_IN_FLIGHT) * terms.each_bytes
    kept_small = terms.all_kept and terms.kept_bytes <= SMALL_KEPT_BYTES and wanted.threads is None
    cut = (
        windows_within(terms, free)
        if terms.windowed
        else jobs_within(terms, free, kept_small=kept_small)
    )
    window_rows, job_rows, n_buffers = cut
    buffer_bytes, index_bytes = terms.buffer_bytes(job_rows), terms.index_bytes

    spare = free - n_buffers * buffer_bytes
    loading_bytes = min(terms.loading_bytes, spare)  # what is small is kept whatever it takes
    spare -= loading_bytes
    affordable = 1 + spare // terms.thread_bytes
    if wanted.threads is not None:
        threads = min(wanted.threads, affordable) if terms.fills else wanted.threads
    elif wanted.prefetch == 0 or (kept_small and not in_flight):
        threads = 0
    else:
        most = min(in_flight, n_cores()) if in_flight else max(1, n_cores() - 1)
        threads = min(MAX_THREADS, most, affordable)
    loaders = 1 + (min(threads, spare // loading_bytes) if loading_bytes else threads)
    if pipeline_makes is not None:  # batches that wait are not worked on
        batch_bytes -= max(0, in_flight - max(1, threads)) * pipeline_makes.work_bytes

    picks, picked_rows = terms.picks and not on_device, 1
    if picks:
        # Rows of windows are copied once, directly to their batch; no window is in memory but its
        # row numbers. Windows and their orders stay as they are.
        fitting = PICKED_JOB_BYTES // max(1, terms.row_bytes - INDEX_BYTES)
        picked_rows = job_rows_of(max(1, min(fitting, job_rows // PICKED_JOBS)), 1, rows)
        picks = 2 * picked_rows <= job_rows  # else windows are hardly larger than batches
    if picks:
        numbers_bytes = INDEXED_WINDOWS * job_rows * INDEX_BYTES
        left, index_bytes = n_buffers * buffer_bytes - numbers_bytes, index_bytes + numbers_bytes
        job_rows, buffer_bytes = picked_rows, terms.buffer_bytes(picked_rows)
        most = max(PICKED_BUFFERS, min(MAX_BUFFERS, BUFFERS_BYTES // buffer_bytes))
        if wanted.prefetch is not None:
            most = wanted.prefetch + 1
        elif threads == 0:
            most = PICKED_BUFFERS
        n_buffers = max(PICKED_BUFFERS, min(most, left // buffer_bytes))
    example_bytes = dict[str, int]()
    for name, worst in terms.worst.items():
        example_bytes[name] = max(1, -(-worst.of(job_rows) // job_rows))
    return Sizes(
        memory_bytes=memory_bytes,
        kept=terms.kept,
        window_rows=window_rows,
        job_rows=job_rows,
        n_buffers=n_buffers,
        threads=threads,
        buffer_bytes=buffer_bytes,
        kept_bytes=terms.kept_bytes,
        thread_bytes=terms.thread_bytes,
        batch_bytes=batch_bytes,
        index_bytes=index_bytes,
        in_flight=in_flight,
        layout_bytes=terms.layout_bytes,
        picks=picks,
        loaders=loaders,
        loading_bytes=loaders * loading_bytes,
        example_bytes=example_bytes,
        row_bytes=-(-terms.buffer_bytes(cut[1]) // cut[1]),
        beside_bytes=sum(others),
    )


def windows_within(terms: Terms, free: int) -> tuple[int, int, int]:
    """Return (rows shuffled together, rows of a buffer, buffers) where a buffer holds a window."""
    rows, wanted, unit_rows = terms.rows, terms.rows.options, terms.unit_rows
    window_rows, n_buffers = wanted.window_rows, terms.n_buffers
    if window_rows is None:
        # As much for threads on any machine: windows must not depend on the number of cores.
        for_threads = min((MAX_THREADS - 1) * terms.thread_bytes, free // THREADS_SHARE)
        fitting = terms.rows_within((free - for_threads) // MIN_BUFFERS)
        whole = fitting // unit_rows * unit_rows
        even = fitting - fitting % math.lcm(unit_rows, rows.held_rows)
        window_rows = even if 8 * even >= 7 * whole else whole  # end with a batch, if cheap
        window_rows = max(window_rows, unit_rows, rows.held_rows)
    job_rows = min(max(window_rows, unit_rows), max(rows.n_rows, 1))
    if terms.fills and wanted.prefetch is not None:
        n_buffers = max(n_buffers, min(wanted.prefetch + 1, free // terms.buffer_bytes(job_rows)))
    return BLOCK_ROWS if rows.mode == "full" else window_rows, job_rows, n_buffers


def jobs_within(terms: Terms, free: int, *, kept_small: bool) -> tuple[int, int, int]:
    """Return the same where rows follow one another, or are kept: jobs suit caches and threads."""
    rows, wanted, window_rows, n_buffers = (
        terms.rows,
        terms.rows.options,
        BLOCK_ROWS,
        terms.n_buffers,
    )
    if terms.all_kept and rows.mode == "window":
        window_rows = wanted.window_rows or max(rows.n_rows, 1)
    alone = wanted.threads == 0 or (wanted.threads is None and wanted.prefetch == 0)
    job_bytes = ALONE_JOB_BYTES if alone else JOB_BYTES
    if terms.decoded:
        job_bytes = min(DECODED_JOB_BYTES, free // DECODED_BUFFERS)
    fitting = terms.rows_within(min(job_bytes, free // n_buffers))
    job_rows = job_rows_of(fitting, terms.unit_rows if terms.chunked else 1, rows)
    if wanted.prefetch is None and not alone and not kept_small:
        buffer_bytes, most = terms.buffer_bytes(job_rows), DECODED_BUFFERS
        if not terms.decoded:
            most = max(DECODED_BUFFERS, min(MAX_BUFFERS, BUFFERS_BYTES // buffer_bytes))
        n_buffers = max(n_buffers, min(most, free // buffer_bytes))
    return window_rows, job_rows, n_buffers


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


def _too_small(
    least: Terms, sources: Mapping[str, Source], selections: Mapping[str, Selection]
) -> str:
    """State the sum that is needed, term by term, and what would help."""
    wanted = least.rows.options
    remedies = [f"give memory={size_words(least.needed_bytes)!r}", "smaller batches"]
    if (wanted.threads or 0) > 1:
        remedies.append("fewer threads")
    if wanted.window_rows is not None:
        remedies.append("a smaller window_rows")
    large_bytes = max(1 << 20, wanted.memory_bytes // LARGE_SHARE)
    if least.chunked and least.buffer_bytes(least.unit_rows) > large_bytes:
        remedies.append("write the file with smaller chunks ('labeled repack')")
    for name, source in sources.items():  # a damaged example may claim any size
        sizes = source.sizes[selections[name].rows] if source.ragged is not None else ()
        if len(sizes) and max(sizes) > OUTSIZED * max(1, np.median(sizes)):
            row = int(np.argmax(sizes))
            taken = format_bytes(int(sizes[row]) * source.dtype.itemsize)
            remedies.append(f"a subset without row {row} of {source.where}, which takes {taken}")
    terms = [f"{term} {format_bytes(n_bytes)}" for term, n_bytes in least.parts.items() if n_bytes]
    return (
        f"memory of {format_bytes(wanted.memory_bytes)} is too small: {', '.join(terms)}, together "
        f"{format_bytes(sum(least.parts.values()))}; {', or '.join(remedies)}"
    )
