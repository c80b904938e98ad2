"""Epochs whose batches a sampler lists: exactly these rows, in this order, so many a batch.

Here the batch, not the row, is what is shared out: a `ListedPlan` is an `EpochPlan` over
the numbers of batches, so that parts, saved places and changes of the number of parts
follow the same arithmetic, and no batch is ever cut in two. Windows, places and rows are
counted in rows, as everywhere.

The rows of an epoch are listed when its first window is asked for: eight bytes a row,
where they do not come as slices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from labeled.errors import LoaderError, SelectionError, StateError
from labeled.samplers.order import Content, Deal, stretch
from labeled.samplers.permutation import IntArray, key_of
from labeled.samplers.plan import EpochPlan, Window
from labeled.samplers.requests import ListedBatches, Sampler

WINDOW_ROWS = 1 << 16  # places worked out together; a batch is never cut by it


@dataclass(frozen=True, eq=False)
class SampledOrder:
    """The order in which a sampler deals: an `EpochOrder` over the numbers of its batches.

    Parameters
    ----------
    sampler : Sampler
        At the epoch in question.

    Examples
    --------
    >>> from labeled.samplers.modes import batch_sampler
    >>> order = SampledOrder(batch_sampler("sequential", 10, 3))
    >>> order.n_rows, [batch.tolist() for batch in order.batches((1, 2)).rows.reshape(-1, 1)[:2]]
    (4, [[6], [7]])
    """

    sampler: Sampler

    mode = "sampler"
    sticky_parts = False
    window_rows = WINDOW_ROWS

    @property
    def n_rows(self) -> int:
        """Batches of an epoch: they are what is dealt."""
        return len(self.sampler)

    @property
    def max_window_rows(self) -> int:
        """Rows of the largest window there can be."""
        return max(WINDOW_ROWS, self.sampler.batch_rows)

    @property
    def epoch(self) -> int:
        return self.sampler.epoch

    @property
    def digest(self) -> str:
        """Hash of the sampler, its seed included, its epoch aside."""
        return f"{key_of('sampled', self.sampler.digest):032x}"

    @property
    def seed(self) -> int:
        """A number that stands for the sampler's own seed, for saved places."""
        return key_of("seed", self.sampler.digest) >> 65

    def at_epoch(self, epoch: int, seed: int | None = None) -> SampledOrder:
        """Return the same sampler's order for another epoch.

        Raises
        ------
        StateError
            If another seed is asked for: a sampler keeps its own.
        """
        if seed is not None and seed != self.seed:
            raise StateError(
                "the place was saved with another sampler; make this one with the same rows, "
                "sizes and seed"
            )
        return replace(self, sampler=self.sampler.at_epoch(epoch))

    def deal(self, part: tuple[int, int] = (0, 1)) -> Deal:
        """Deal the numbers of one part's batches: ``(index, count)``."""
        return NumberedDeal(*stretch(self.n_rows, *part))

    @cached_property
    def listed(self) -> ListedBatches:
        """Every batch of the epoch."""
        return ListedBatches(tuple(self.sampler), self.epoch)

    def batches(self, part: tuple[int, int] = (0, 1)) -> ListedBatches:
        """Return the batches first dealt to one part."""
        first, last = stretch(self.n_rows, *part)
        return ListedBatches(self.listed.requests[first:last], self.epoch)


@dataclass(frozen=True)
class NumberedDeal:
    """The numbers ``start`` to ``stop - 1``, in order, in one window."""

    start: int
    stop: int

    @property
    def n_rows(self) -> int:
        return self.stop - self.start

    @property
    def n_windows(self) -> int:
        return int(self.n_rows > 0)

    def window_at(self, place: int) -> tuple[int, int, int]:
        return 0, 0, self.n_rows

    def content(self, lo: int, hi: int) -> Content:
        return Content(runs=np.array([[self.start + lo, self.start + hi]], np.int64))


@dataclass(frozen=True, eq=False)
class ListedPlan(EpochPlan):
    """The batches of one part of one epoch, as a sampler lists them.

    Parameters
    ----------
    order : SampledOrder
    part, last, history
        As in `EpochPlan`, counting batches for rows: ``drop`` leaves out the batches that
        would give some parts one more than others, ``wrap`` repeats batches instead.
    batch_rows : int
        Always 1: one batch is dealt at a time. See :attr:`most_batch_rows`.

    Raises
    ------
    LoaderError
        If `last` is ``pad``: batches of different lengths have no length to be padded to.

    Examples
    --------
    >>> batches = ListedBatches.of([[3, 1], [4], range(5, 9)])
    >>> plan = ListedPlan(SampledOrder(batches))
    >>> plan.n_batches, plan.n_rows, plan.batch(1), plan.bounds(2)
    (3, 7, (array([4]), 1), (3, 7))
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.order, SampledOrder) or self.batch_rows != 1:
            raise LoaderError("a listed plan deals whole batches of a sampler: batch_rows is 1")
        if self.last == "pad":
            raise LoaderError("last='pad' does not go with a sampler, which fixes every batch")

    @cached_property
    def listed(self) -> ListedBatches:
        """The batches of this part."""
        assert isinstance(self.order, SampledOrder)
        requests = self.order.listed.requests
        return ListedBatches(tuple(requests[i] for i in self._numbers.tolist()), self.order.epoch)

    @cached_property
    def _numbers(self) -> IntArray:
        """Which of the sampler's batches this part hands out."""
        windows = self._between(0, self._ends[-1] if self._ends else 0)
        return np.concatenate([np.zeros(0, np.int64), *(window.rows for window in windows)])

    @property
    def most_batch_rows(self) -> int:
        """Rows of the longest batch of any epoch."""
        assert isinstance(self.order, SampledOrder)
        return self.order.sampler.batch_rows

    @property
    def n_rows(self) -> int:
        """Rows handed out by this part, repeats counted."""
        return int(self.listed.edges[-1])

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the places ``[start, stop)`` of one batch."""
        if not 0 <= number < self.n_batches:
            raise SelectionError(f"batch {number} of {self.n_batches}: there is none")
        return int(self.listed.edges[number]), int(self.listed.edges[number + 1])

    def batch(self, number: int) -> tuple[IntArray, int]:
        start, stop = self.bounds(number)
        return self.listed.content(number, number + 1).rows, stop - start

    def windows(self, first_batch: int = 0) -> Iterator[Window]:
        if not 0 <= first_batch <= self.n_batches:
            raise SelectionError(f"batch {first_batch} of {self.n_batches}: there is none")
        return self._windows(first_batch)

    def _windows(self, first: int) -> Iterator[Window]:
        """Whole batches, as many as fit into WINDOW_ROWS, at least one; empty ones skipped."""
        edges = self.listed.edges
        while first < self.n_batches:
            last = int(edges.searchsorted(edges[first] + WINDOW_ROWS, side="right")) - 1
            last = max(last, first + 1)
            if edges[last] > edges[first]:
                content = self.listed.content(first, last)
                yield Window(int(edges[first]), int(edges[last]), content)
            first = last

    @property
    def n_windows(self) -> int:
        return sum(1 for _ in self._windows(0))
