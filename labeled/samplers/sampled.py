"""Epochs whose batches somebody else lists: any sampler, served like the library's own orders.

The batches are what the sampler yields, in that order and of those lengths; parts take
them in turn. All rows of an epoch are listed, so this costs eight bytes a row where the
sampler does not yield slices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from labeled.errors import SelectionError
from labeled.samplers.parts import History, Last
from labeled.samplers.permutation import IntArray
from labeled.samplers.plan import EpochPlan, Window
from labeled.samplers.requests import ListedBatches, Sampler
from labeled.samplers.state import State, check_state, place_in_epoch


@dataclass(frozen=True, eq=False)
class SampledOrder:
    """The order a sampler gives to one epoch; offers what :class:`.order.Order` offers.

    Its `seed` decides nothing about rows: random transforms draw from it.
    """

    sampler: Sampler
    n_rows: int
    window_rows: int
    seed: int = 0

    mode = "sampler"
    sticky_shards = False

    @property
    def epoch(self) -> int:
        return self.sampler.epoch

    @property
    def digest(self) -> str:
        return self.sampler.digest

    def at_epoch(self, epoch: int, seed: int | None = None) -> SampledOrder:
        """Return the order of another epoch; a sampler carries the seed of its rows."""
        sampler = self.sampler.at_epoch(epoch)
        return replace(self, sampler=sampler, seed=self.seed if seed is None else seed)


@dataclass(frozen=True, eq=False)
class SampledPlan:
    """The batches of one part of one epoch of a sampler.

    Parameters
    ----------
    order : SampledOrder
    part : (int, int)
        This part serves batches ``index, index + count, ...`` of those that are left.
    history : tuple of (count, step)
        Changes of the number of parts within this epoch: each of `count` parts had served
        `step` batches then.

    Raises
    ------
    SelectionError
        If the sampler asks for a row that is not there.

    Examples
    --------
    >>> order = SampledOrder(ListedBatches.of([[3, 1], slice(0, 4), [2]]), 4, window_rows=8)
    >>> plan = SampledPlan(order)
    >>> plan.n_batches, [plan.span(k) for k in range(3)]
    (3, [(0, 2), (2, 6), (6, 7)])
    """

    order: SampledOrder
    part: tuple[int, int] = (0, 1)
    history: History = ()

    last: Last = "keep"

    @property
    def _own(self) -> slice:
        """Which batches of the sampler are this part's."""
        index, count = self.part
        done = sum(parts * step for parts, step in self.history)
        return slice(done + index, None, count)

    @cached_property
    def _batches(self) -> ListedBatches:
        listed = ListedBatches(tuple(self.order.sampler)[self._own], self.order.epoch)
        if listed.row_limit > self.order.n_rows:
            raise SelectionError(
                f"the sampler asks for row {listed.row_limit - 1} in epoch {self.order.epoch}, "
                f"but there are {self.order.n_rows} rows"
            )
        return listed

    @property
    def batch_rows(self) -> int:
        """Rows of the longest batch of any epoch."""
        return max(1, self.order.sampler.batch_rows)

    @property
    def n_batches(self) -> int:
        return len(range(len(self.order.sampler))[self._own])

    @property
    def n_rows(self) -> int:
        """Rows of all batches of this part, repeats counted."""
        return int(self._batches.edges[-1])

    def span(self, number: int) -> tuple[int, int]:
        """Return the places of batch `number`: ``[start, stop)``."""
        edges = self._batches.edges
        return int(edges[number]), int(edges[number + 1])

    def batch(self, number: int) -> tuple[IntArray, int]:
        """Return the rows of one batch, and how many they are."""
        rows = self._batches.content(number, number + 1).rows
        return rows, len(rows)

    @cached_property
    def _window_edges(self) -> list[int]:
        """First batch of each window, and the number of batches."""
        edges, found = self._batches.edges, [0]
        while found[-1] < self.n_batches:
            fitting = int(
                np.searchsorted(edges, edges[found[-1]] + self.order.window_rows, "right")
            )
            found.append(max(fitting - 1, found[-1] + 1))
        return found

    @property
    def n_windows(self) -> int:
        return len(self._window_edges) - 1

    def windows(self, first_batch: int = 0) -> Iterator[Window]:
        """Walk through windows of whole batches, from batch `first_batch` on."""
        ends = self._window_edges[1:]
        for end in ends[bisect_right(ends, first_batch) :]:
            start, stop = self.span(first_batch)[0], int(self._batches.edges[end])
            if start < stop:
                yield Window(start, stop, self._batches.content(first_batch, end))
            first_batch = end


AnyPlan: TypeAlias = EpochPlan | SampledPlan
"""The plan of one part of one epoch, whoever orders its rows."""


def moved(plan: AnyPlan, epoch: int, seed: int | None = None, history: History = ()) -> AnyPlan:
    """Return the same plan for another epoch, seed and history."""
    order: Any = plan.order.at_epoch(epoch, seed)  # of the kind that the plan has
    return replace(plan, order=order, history=history)


def restore_sampled(state: State, plan: SampledPlan, plan_hash: str) -> tuple[SampledPlan, int]:
    """Find a saved place again: the plan to go on with, and its first batch.

    With another number of parts, the batches that none had served are taken in turn anew.

    Raises
    ------
    StateError
        If the state was saved for another sampler or other rows.
    """
    check_state(state, plan, plan_hash)
    order = plan.order.at_epoch(state.epoch, state.seed)
    longest = replace(plan, order=order, part=(0, state.count), history=state.history)
    if state.ends_epoch(plan.part, longest.n_batches):
        return replace(plan, order=plan.order.at_epoch(state.epoch + 1, state.seed), history=()), 0
    history, first = place_in_epoch(state, plan.part[1])
    return replace(plan, order=order, history=history), first
