"""Batches gathered from many open blocks: how a staggered order is read and served.

Threads read block after block, in run order, each straight to its place in one large array
a source. Batches are gathered from there by the caller; a block whose last row was taken
makes room for the next. What is handed on looks like windows of one batch each, so that
whoever cuts, uploads or passes on windows need not know of blocks.

The trade-off: a row is copied twice, decoded to its block and gathered into its batch,
but the memory holds nearly as many rows as are mixed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled.loader.reading.engine import WindowSource
from labeled.loader.reading.filled import Filled
from labeled.loader.reading.jobs import block_jobs, steps_of
from labeled.loader.reading.lanes import Lane
from labeled.loader.reading.rescue import rescue
from labeled.loader.reading.slots import Layout, Patience, Slot, SlotPool, owned
from labeled.loader.sizing.sizes import OpenBlocks
from labeled.loader.telling.stats import Stats
from labeled.samplers.content import Content, rows_of
from labeled.samplers.sampled import AnyPlan

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]


class BlockPool(SlotPool):
    """Slots that are stretches of one array a source; there are never more.

    Parameters
    ----------
    layout : mapping of str to (row shape, dtype)
        No objects.
    blocks : OpenBlocks

    Attributes
    ----------
    whole : mapping of str to array
        Of each source, the rows of all slots, one slot after another.
    """

    def __init__(self, layout: Layout, blocks: OpenBlocks) -> None:
        super().__init__(layout, blocks.rows, blocks.count)
        n_rows = blocks.rows * blocks.count
        self.enough = max(1, blocks.ahead // 2)
        self.whole = {name: owned((n_rows, *shape), dt) for name, (shape, dt) in layout.items()}
        self.positions = np.empty(n_rows, np.int64)
        self.lost = np.zeros(n_rows, bool)
        self.slots = [self._slot(at) for at in range(0, n_rows, blocks.rows)]
        self._first_rows = {id(slot): i * blocks.rows for i, slot in enumerate(self.slots)}
        self._patience = Patience(wait_s=0.0002, waits=50)

    def _slot(self, first: int) -> Slot:
        """Make arrays of their own over the same memory, so that each knows who refers to it."""
        slot = Slot({}, self.capacity)
        for name, whole in self.whole.items():
            memory: Any = whole.base
            start = whole.ctypes.data - memory.ctypes.data + first * whole.strides[0]
            shape = (self.capacity, *whole.shape[1:])
            slot.arrays[name] = np.ndarray(shape, whole.dtype, memory, start)
        return slot

    def first_row(self, slot: Slot) -> int:
        """Return where in the whole arrays a slot begins."""
        return self._first_rows[id(slot)]

    def take(self, *, force: bool = False) -> Slot | None:
        slot = super().take()
        if slot is None and force:
            self._patience.wait()
        return slot


class _Opened(NamedTuple):
    number: int
    first_row: int
    block: Filled


class StaggeredSource:
    """Windows of one batch each, gathered from blocks; follows :class:`.engine.WindowSource`.

    Parameters
    ----------
    plan : EpochPlan
        Of a staggered order.
    first_batch : int
    lanes, group
        As for :class:`.engine.WindowSource`.
    blocks : BlockPool
        Memory for blocks.
    pool : SlotPool
        Memory for batches.
    threads : int
        Background threads.
    """

    def __init__(
        self,
        plan: AnyPlan,
        first_batch: int,
        lanes: Sequence[Lane],
        group: Rows | None,
        blocks: BlockPool,
        pool: SlotPool,
        threads: int,
        stats: Stats,
        *,
        skips: bool = False,
    ) -> None:
        self._plan = plan
        self._lanes, self._group = lanes, group
        self._memory, self._pool = blocks, pool
        jobs = block_jobs(plan, first_batch)
        self._blocks = WindowSource(jobs, lanes, group, blocks, threads, stats, skips=skips)
        self._next_batch = first_batch
        self._steps = steps_of(plan, first_batch)
        self._step = next(self._steps, None)
        self._index: Rows | None = None
        """Where in the whole arrays the rows of the step are, once its blocks are open."""
        self._dealt = 0
        self._opened: deque[_Opened] = deque()
        self._serving: Filled | None = None
        self._served = 0
        self._has_lost = False

    def next(self) -> Filled | None:
        """Return the next batch as a window, or None after the last.

        Raises
        ------
        Exception
            Whatever reading one of its blocks raised.
        """
        return self._serve(wait=True)

    def ready(self) -> Filled | None:
        """Return the same if its blocks are read already; never waits."""
        return self._serve(wait=False)

    def _serve(self, *, wait: bool) -> Filled | None:
        """Go on with the next batch, as far as blocks are there; return it once it is whole."""
        if self._serving is None and not self._begin(wait=wait):
            return None
        batch = self._serving
        assert batch is not None
        n_rows = batch.stop - batch.start
        while self._served < n_rows:
            if self._index is None and not self._open(wait=wait):
                return None
            self._gather(batch, n_rows)
        self._serving = None
        self._next_batch += 1
        return batch

    def _begin(self, *, wait: bool) -> bool:
        """Find memory for the next batch; False after the last, or where there is none now."""
        if self._next_batch >= self._plan.n_batches:
            return False
        start, stop = self._plan.span(self._next_batch)
        if start == stop:  # padding alone
            return False
        slot = self._pool.take(force=wait)
        while slot is None and wait:  # shared slots, just released
            slot = self._pool.take(force=True)
        if slot is None:
            return False
        n_rows = stop - start
        arrays = {name: array[:n_rows] for name, array in slot.arrays.items()}
        slot.taken = False  # held from here on by its views
        content = Content(listed=np.empty(n_rows, np.int64))
        self._serving = Filled(start, stop, content, slot, arrays, ready=True)
        self._served = 0
        return True

    def _open(self, *, wait: bool) -> bool:
        """Open the blocks of the step; False if one is not there yet, or all was stopped."""
        step, opened = self._step, self._opened
        if step is None:
            return False
        begun = opened[-1].number + 1 if opened else step.first
        for number in range(begun, step.last):
            block = self._blocks.next() if wait else self._blocks.ready()
            if block is None:
                return False
            opened.append(_Opened(number, self._taken_in(block), block))
        first_rows = np.array([one.first_row for one in opened])
        numbers, rows = step.deal.origins(step.lo, step.hi)
        self._index = first_rows[numbers - step.first] + rows
        self._dealt = 0
        return True

    def _taken_in(self, block: Filled) -> int:
        """Note which rows a block holds, and which it lacks; return where they are."""
        memory, n_rows = self._memory, block.stop - block.start
        first = memory.first_row(block.slot)
        assert block.content.several is not None
        memory.positions[first : first + n_rows] = rows_of(block.content.several)
        memory.lost[first : first + n_rows] = False  # whatever was there in an epoch before
        if block.unread:
            self._has_lost = True
            lost = rescue(self._lanes, block.content, self._group, block.arrays)
            memory.lost[first : first + n_rows] = lost
        return first

    def _gather(self, batch: Filled, n_rows: int) -> None:
        """Copy rows of the step to the batch; let go of blocks once they are dealt."""
        assert self._index is not None
        assert batch.content.listed is not None
        a, at = self._dealt, self._served
        n = min(n_rows - at, len(self._index) - a)
        chosen = self._index[a : a + n]
        for name, array in batch.arrays.items():
            np.take(self._memory.whole[name], chosen, axis=0, out=array[at : at + n], mode="clip")
        batch.content.listed[at : at + n] = self._memory.positions[chosen]
        if self._has_lost:
            if batch.lost is None:
                batch.lost = np.zeros(n_rows, bool)
            batch.lost[at : at + n] = self._memory.lost[chosen]
        self._dealt, self._served = a + n, at + n
        if self._dealt == len(self._index):
            self._close_step()

    def _close_step(self) -> None:
        step = self._step = next(self._steps, None)
        self._index = None
        while self._opened and (
            step is None or not step.follows or self._opened[0].number < step.first
        ):
            self._opened.popleft()

    def poke(self) -> None:
        """Let the threads go on where blocks were let go of; cheap, for every batch."""
        self._blocks.poke()

    def check_process(self) -> None:
        """Raise :class:`LoaderError` if a fork left the threads behind."""
        self._blocks.check_process()

    def stop(self) -> None:
        """Let :meth:`next` return None soon, whoever is in it; :meth:`close` must follow."""
        self._blocks.stop()

    def close(self) -> None:
        """Stop the threads and let go of all blocks."""
        self._blocks.close()
        self._opened.clear()
        self._serving = None
