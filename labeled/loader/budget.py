"""Memory: the option ``memory=``, what is taken before windows or jobs get the rest, the outcome.

Taken first are sources read once and kept for later epochs, batches that are made or held, the
places of rows, and what each thread needs while it reads. Which sources are kept is decided here,
too, from their sizes and `memory` alone, since orders depend on it. :class:`Sizes` is what a loader
allocates once all is decided (see `cutting`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from dask.utils import format_bytes, parse_bytes

from labeled.errors import LoaderError, told_of_memory, warn
from labeled.formats.machine import room_bytes
from labeled.loader.lanes import Lane
from labeled.samplers.order import Mode
from labeled.transforms.running import MadeOf

DEFAULT_MEMORY = "256 MiB"
"""What is taken where nothing is said; twice, four times as much where batches need it."""


@dataclass(frozen=True)
class Wanted:
    """What the caller asked for, checked; None where it is chosen here."""

    memory_bytes: int
    window_rows: int | None = None
    threads: int | None = None
    prefetch: int | None = None
    grows: bool = False
    """Whether twice as much may be taken where it is too small: nobody said how much."""


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

    def told(self, memory_bytes: int, enough_bytes: int, others: Sequence[str] = ()) -> LoaderError:
        """Return the error for a user who gave less memory than is enough."""
        enough = f"give memory={size_words(enough_bytes)!r}"
        remedies = [enough, "smaller batches", *self.others, *others]
        # with more memory another plan may be made, one that needs less than this one
        need = f"need {format_bytes(self.needed_bytes)}"
        return LoaderError(
            f"memory of {format_bytes(memory_bytes)} is too small: {self.held} "
            f"{need if enough_bytes >= self.needed_bytes else 'do not fit'}; "
            f"{', or '.join(remedies)}"
        )


def memory_of(memory: Any) -> int:
    """Read a size such as ``"512 MiB"`` or a number of bytes.

    Raises
    ------
    LoaderError
        If it is not a size, or not positive.
    """
    try:
        if isinstance(memory, bool | np.bool_):
            raise TypeError
        n = int(memory if isinstance(memory, np.number) else parse_bytes(memory))
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise LoaderError(f"memory={memory!r} is not a size; write it like '512 MiB'") from None
    if n <= 0:
        raise LoaderError(f"memory={memory!r} must be more than nothing")
    return n


def enough_memory(memory_bytes: int) -> AbstractContextManager[None]:
    """Say what to do where the system gives less memory than a loader was allowed.

    Raises
    ------
    RowsMemoryError
        In the place of a MemoryError.
    """
    return told_of_memory(
        lambda why: (
            f"the system gives no memory for windows and batches ({why}). This loader may take "
            f"memory={size_words(memory_bytes)!r}: give less of it, smaller batches, or let go of "
            "batches that are kept"
        )
    )


def warn_of_room(promised_bytes: int) -> None:
    """Warn where a loader may take more than the system lets this process have."""
    room = room_bytes()
    if promised_bytes > room:
        warn(f"batches may take {format_bytes(promised_bytes)}, but {room_words(room)}")


def room_words(room_bytes: float) -> str:
    """Say how much memory is left, and what to ask for there."""
    room, most = max(int(room_bytes), 0), max(int(room_bytes) >> 1, 1 << 20)
    return (
        f"this process may take {format_bytes(room)} more before the system ends it (that is the "
        "machine's memory, or the limit of its container or job); give "
        f"memory='{most >> 20} MiB' or less"
    )


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


BLOCK_ROWS = 1 << 16
"""Positions worked out together where the order does not depend on windows."""

FEW_SLOTS = 2
"""Jobs in memory at the least: one that is dealt out, and one that is read."""

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

BESIDE_KEPT, MOST_BESIDE_KEPT = 32, 2 << 20
"""The share of kept rows that reading them in once may leave behind, and the most of it."""

KEEP_SHARE, SMALL_SHARE = 16, 4
"""Where not all fits, what is kept takes at most one of so many parts of the memory: each source,
and all of them together, for a table of many columns is not small because each of them is."""

KEPT_BESIDE, KEPT_BESIDE_BYTES = 4, 4 << 20
"""Batches, and bytes of jobs, that what is kept leaves room for; orders depend on it, so it stays.
"""


@dataclass(frozen=True)
class Work:
    """What an epoch reads and hands out: the figures by which memory is shared out.

    Parameters
    ----------
    lanes : sequence of Lane
        What is read; ``keep`` already decided.
    batch_rows : int
        Rows of the largest batch.
    unit_rows : int
        Rows of the largest unit of the order.
    out_row_bytes : int
        Bytes of one row as handed out, where batches are laid out anew; else 0.
    piped : MadeOf, optional
        What a pipeline makes of rows, through which batches go several at a time.
    """

    lanes: Sequence[Lane]
    mode: Mode
    n_rows: int
    batch_rows: int
    unit_rows: int
    out_row_bytes: int
    piped: MadeOf | None = None

    @cached_property
    def kept(self) -> bool:
        """Whether every source is kept, so that an epoch reads nothing."""
        return all(lane.keep for lane in self.lanes)

    @cached_property
    def by_chunk(self) -> bool:
        """Whether a source is read whose rows are stored together."""
        layouts = (lane.source.layout for lane in self.lanes if not lane.keep)
        return any(layout.chunk_rows is not None for layout in layouts)

    @cached_property
    def uncut(self) -> bool:
        """Whether jobs hold whole chunks, lest rows that lie together are fetched twice."""
        layouts = (lane.source.layout for lane in self.lanes if not lane.keep)
        return any(one.chunk_rows is not None and not one.held_bytes for one in layouts)

    @cached_property
    def held_bytes(self) -> int:
        """What readers keep between reads, and take to decode it, whoever reads."""
        return sum(lane.source.layout.held_bytes for lane in self.lanes)

    @cached_property
    def windowed(self) -> bool:
        """Whether whole windows are read before their rows are dealt out."""
        layouts = (lane.source.layout for lane in self.lanes if not lane.keep)
        full = self.mode == "full" and any(
            layout.chunk_rows is not None and not layout.picked for layout in layouts
        )
        return not self.kept and (self.mode == "window" or full)

    @property
    def shuffles_kept(self) -> bool:
        """Whether rows that are kept are shuffled within windows."""
        return self.kept and self.mode == "window"


@dataclass(frozen=True)
class Budget:
    """What is taken before windows are: `free` is left for them, for one thread and the caller.

    Parameters
    ----------
    row_bytes : int
        Bytes of a row in a slot, with its places.
    in_flight : int
        Batches in a pipeline at a time; 0 where there is none.
    loading_bytes : int
        What one thread needs besides while it reads what is kept.
    """

    memory_bytes: int
    row_bytes: int
    batch_bytes: int
    kept_bytes: int
    thread_bytes: int
    index_bytes: int
    in_flight: int
    loading_bytes: int
    work_bytes: int = 0
    """Of `batch_bytes`, what working on a batch takes, for each in a pipeline."""

    @property
    def free(self) -> int:
        fixed = OVERHEAD_BYTES + self.kept_bytes + self.index_bytes
        return self.memory_bytes - fixed - self.batch_bytes - 2 * self.thread_bytes


def budget_of(work: Work, wanted: Wanted) -> Budget:
    """Count what is taken before windows are."""
    stored_bytes = sum(lane.row_bytes for lane in work.lanes)
    # Where each row goes, and what sorting it takes, is in the slots of windows.
    row_bytes = max(1, stored_bytes) + (INDEX_BYTES if work.windowed else 0)
    in_flight = 0
    if work.piped is not None:
        held_bytes = work.batch_rows * (stored_bytes + work.out_row_bytes)
        in_flight = batches_in_flight(wanted.memory_bytes, held_bytes, work.batch_rows, work.piped)
    block_rows = min(BLOCK_ROWS, work.n_rows) if work.mode == "full" else 0
    thread_bytes = max((_scratch_bytes(lane, work.windowed) for lane in work.lanes), default=1)
    return Budget(
        memory_bytes=wanted.memory_bytes,
        row_bytes=row_bytes,
        batch_bytes=_batch_bytes(work, row_bytes, in_flight),
        kept_bytes=sum(lane.nbytes for lane in work.lanes if lane.keep),
        thread_bytes=thread_bytes + block_rows * PLANNER_INDEX_BYTES,
        index_bytes=block_rows * BLOCK_INDEX_BYTES
        + _kept_index_bytes(work, wanted.window_rows)
        + work.held_bytes,
        in_flight=in_flight,
        loading_bytes=_loading_bytes(work),
        work_bytes=0 if work.piped is None else work.piped.work_bytes,
    )


def _batch_bytes(work: Work, row_bytes: int, in_flight: int) -> int:
    """What batches take that are made, handed out or in a pipeline."""
    batch_bytes = work.batch_rows * (row_bytes + work.out_row_bytes)
    if work.piped is not None:
        return _in_pipeline(in_flight, batch_bytes, work.batch_rows, work.piped)
    if work.windowed or work.out_row_bytes:
        return SPARE_BATCHES * batch_bytes
    return batch_bytes  # cut from jobs, or joined from two


def _kept_index_bytes(work: Work, window_rows: int | None) -> int:
    """What kept rows take besides: their places, and what reading them in left behind."""
    if not work.kept:
        return 0
    shuffled_rows = min(work.n_rows, window_rows or work.n_rows) if work.shuffles_kept else 0
    kept_bytes = sum(lane.nbytes for lane in work.lanes)
    return shuffled_rows * INDEX_BYTES + min(kept_bytes // BESIDE_KEPT, MOST_BESIDE_KEPT)


def _scratch_bytes(lane: Lane, windowed: bool) -> int:
    """What one thread needs besides the destination: nothing much where it reads straight in."""
    layout = lane.source.layout
    if lane.keep or (layout.direct and not windowed):
        return STACK_BYTES
    return layout.scratch_bytes


def _loading_bytes(work: Work) -> int:
    """What one thread needs besides while it reads what is kept, where nothing else is read."""
    if not work.kept:
        return 0
    layouts = [lane.source.layout for lane in work.lanes]
    return max((layout.scratch_bytes for layout in layouts if not layout.direct), default=0)


def batches_in_flight(memory_bytes: int, batch_bytes: int, batch_rows: int, made: MadeOf) -> int:
    """Return how many batches are in a pipeline at a time: as many as a share of memory holds."""
    each_bytes = _in_pipeline(1, batch_bytes, batch_rows, made)
    each_bytes -= _in_pipeline(0, batch_bytes, batch_rows, made)
    affordable = memory_bytes // IN_FLIGHT_SHARE // max(1, each_bytes)
    return max(FEWEST_IN_FLIGHT, min(MOST_IN_FLIGHT, affordable))


def piped_bytes(memory_bytes: int, batch_bytes: int, batch_rows: int, made: MadeOf) -> int:
    """Return what batches in a pipeline, and those of its consumer, take."""
    in_flight = batches_in_flight(memory_bytes, batch_bytes, batch_rows, made)
    return _in_pipeline(in_flight, batch_bytes, batch_rows, made)


def _in_pipeline(in_flight: int, batch_bytes: int, batch_rows: int, made: MadeOf) -> int:
    """Return what so many batches take, with those of the consumer.

    What is made of a batch counts twice: where threads make such arrays the system's allocator
    keeps about one for each, until the next.
    """
    made_bytes = batch_rows * made.row_bytes
    held_bytes = (in_flight + HELD_BATCHES) * (batch_bytes + made_bytes)
    return held_bytes + in_flight * (made_bytes + made.work_bytes)


def choose_kept(
    lanes: Sequence[Lane], memory_bytes: int, batch_bytes: int, shuffled_rows: int = 0
) -> set[str]:
    """Choose the sources that are read once and kept: all if they fit, else only small ones.

    With them must fit what shuffling `shuffled_rows` rows within one window takes.
    """
    sizes = {lane.name: lane.nbytes for lane in lanes}
    room = memory_bytes - OVERHEAD_BYTES - (SPARE_BATCHES + KEPT_BESIDE) * batch_bytes
    scratch = max((lane.source.layout.scratch_bytes for lane in lanes), default=0)
    room -= sum(lane.source.layout.held_bytes for lane in lanes)
    room -= KEPT_BESIDE_BYTES + 2 * scratch + shuffled_rows * INDEX_BYTES
    if sum(sizes.values()) <= room:
        return set(sizes)
    kept, taken = set(), 0
    for size, name in sorted((size, name) for name, size in sizes.items()):
        taken += size
        if size * KEEP_SHARE <= memory_bytes and taken * SMALL_SHARE <= memory_bytes:
            kept.add(name)
    return kept


def also_kept(memory_bytes: int, nbytes: Sequence[int]) -> int:
    """Return the bytes of those sources that would be kept, too, where windows get so much."""
    kept = 0
    for size in sorted(nbytes):
        kept += size if size * KEEP_SHARE <= memory_bytes + kept + size else 0
    return kept


BESIDE_ASKED = 32
"""The share of what is asked for that the allocator may keep besides: 1.8 % was seen."""


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
    loaders: int = 1
    """Threads that read what is kept, before the first batch."""
    loading_bytes: int = 0
    """What they need besides; not all of it is given back."""
    laid_bytes: int = 0
    """Of the largest batch, what ragged examples take as they are laid out."""
    whole: Sizes | None = None
    """What reading windows whole would take, where their rows are picked one by one instead."""

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
            + (self.threads + 1) * self.thread_bytes
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
        return max(self.memory_bytes, rounded_up(asked + also_kept(asked, nbytes)))
