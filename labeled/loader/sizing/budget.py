"""What memory is taken before windows, jobs or blocks get the rest of it.

That is: sources read once and kept for later epochs, batches that are made or held, the
places of rows, and what each thread needs while it reads. Which sources are kept is decided
here, too, from their sizes and `memory` alone, since orders depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from labeled.loader.reading.lanes import Lane
from labeled.loader.sizing.memory import Wanted
from labeled.samplers.order import Mode
from labeled.transforms.running import MadeOf

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
