"""One shard's share of one epoch: its batches, and the windows that serve them.

A loader walks through `EpochPlan.windows`, in which every row says at which place it is handed
out; batch k is the places ``[k * batch_rows, (k + 1) * batch_rows)``, so it may draw from two
windows. A plan knows integers only: it neither reads nor remembers how far anyone has come.
Starting at batch k costs the same for any k: the window that holds its first row is given in part.

The rows of an epoch stand in one sequence, of which shards take stretches that differ by at most
one row. When the number of shards changes in mid-epoch, what the old shards had left is put end to
end and cut anew. Corner cases of the rules for the last batch:

- ``keep``: shards differ by at most one batch; a shard without rows has none.
- ``pad``, ``wrap``: every shard has as many batches as the longest needs. Where the lengths
  straddle a multiple of the batch, the last batch of a shorter shard is padding (or repeated
  rows) alone.
- ``drop``: every shard has as many batches as the shortest fills. Where the lengths straddle a
  multiple, the longer shards leave out exactly `batch_rows` rows; else fewer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from labeled.errors import SelectionError
from labeled.samplers.listed import last_row, rows_of_requests
from labeled.samplers.permutation import ORDER_VERSION, IntArray
from labeled.samplers.units import ListedUnits
from labeled.samplers.windows import Order, Window, WindowOrder, even_share, shard_bounds

Last = Literal["keep", "pad", "drop", "wrap"]
# for each change of the number of shards in an epoch: how many there were, and how many batches
# each had handed out since the change before
History = tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The batches of one shard of one epoch.

    Parameters
    ----------
    order : Order
        The order of the epoch.
    shard : (int, int)
        Index and count.
    batch_rows : int
        Rows of a batch.
    last : {'keep', 'pad', 'drop', 'wrap'}
        What becomes of a last batch that is not full: it stays short; is padded; is left
        out; is filled with the rows that follow this shard's (after the last shard, the first).
    history : tuple of (count, step)
        Changes of the number of shards within this epoch.

    Examples
    --------
    >>> from labeled.samplers.units import UniformUnits
    >>> order = Order("file", UniformUnits(10, 4), window_rows=8, seed=7)
    >>> plan = EpochPlan(order, shard=(1, 2), batch_rows=3, last="pad")
    >>> plan.n_batches, plan.batch(1)
    (2, (array([ 8,  9, -1]), 2))
    """

    order: Order
    shard: tuple[int, int] = (0, 1)
    batch_rows: int = 1
    last: Last = "keep"
    history: History = ()
    n_batches: int = field(init=False, repr=False)  # batches of this shard
    # rows handed out to this shard: repeated ones counted, padding and dropped ones not
    n_rows: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n_rows = self.order.units.n_rows
        found = share_of(self.last, n_rows, self.history, self.shard, self.batch_rows)
        self.__dict__.update(zip(("n_batches", "n_rows"), found, strict=True))

    def at_epoch(self, epoch: int, seed: int | None = None, history: History = ()) -> EpochPlan:
        """Return the same plan for another epoch, seed and history."""
        order = replace(self.order, epoch=epoch, seed=self.order.seed if seed is None else seed)
        return replace(self, order=order, history=history)

    @cached_property
    def parts(self) -> list[tuple[WindowOrder, int, int]]:
        """What this shard hands out: places ``[lo, hi)`` of shards as they were at first."""
        n_rows, left = self.order.units.n_rows, [range(self.order.units.n_rows)]
        for count, step in self.history:
            left = _left_after(left, count, step * self.batch_rows)
        n_left, room = sum(map(len, left)), self.n_batches * self.batch_rows
        start, stop = shard_bounds(n_left, *self.shard)
        stop = min(stop, start + room)
        if self.last == "wrap" and n_left:  # goes on with the rows that follow, from the first on
            stop = start + room
            left = left * -(-stop // n_left)
        first_count = self.history[0][0] if self.history else self.shard[1]
        orders: dict[int, WindowOrder] = {}
        parts = []
        for piece in left:
            mine = piece[max(start, 0) : max(stop, 0)]
            start, stop = start - len(piece), stop - len(piece)
            while mine:
                shard, first, last = even_share(mine.start, n_rows, first_count)
                if shard not in orders:
                    orders[shard] = WindowOrder(self.order, (shard, first_count))
                end = min(mine.stop, last)
                parts.append((orders[shard], mine.start - first, end - first))
                mine = range(end, mine.stop)
        return parts

    def spans(self, start: int, stop: int) -> Iterator[tuple[WindowOrder, int, int]]:
        """Yield (order, lo, hi) for the places ``[start, stop)`` of this plan, window by window.

        Each says that the next ``hi - lo`` rows are the places ``[lo, hi)`` of that order, which
        lie in one of its windows.
        """
        for order, lo, hi in self.parts:
            at, end = lo + max(start, 0), min(hi, lo + stop)
            while at < end:
                behind = min(end, order.window_at(at)[1])
                yield order, at, behind
                at = behind
            start, stop = start - (hi - lo), stop - (hi - lo)

    def span(self, number: int) -> tuple[int, int]:
        """Return the places of batch `number`, ``[start, stop)``; padding takes no place."""
        start, n_rows = number * self.batch_rows, self.n_rows
        stop = start + self.batch_rows
        return (start, stop) if stop <= n_rows else (min(start, n_rows), n_rows)

    def windows(self, first_batch: int = 0) -> Iterator[Window]:
        """Walk through the windows that serve batch `first_batch` and all later ones."""
        start, _ = self.span(first_batch)
        for order, lo, hi in self.spans(start, self.n_rows):
            yield Window(start, start + hi - lo, order.rows(lo, hi))
            start += hi - lo

    def batch(self, number: int) -> tuple[IntArray, int]:
        """Return the rows of one batch, -1 where it is padded, and how many are rows."""
        return next(self.batches(number))

    def batches(self, first: int = 0) -> Iterator[tuple[IntArray, int]]:
        """Yield what :meth:`batch` returns for batch `first` and all later ones."""
        windows, left = self.windows(first), np.empty(0, np.int64)
        for number in range(first, self.n_batches):
            start, stop = self.span(number)
            count = stop - start
            while len(left) < count:
                more = next(windows).content.rows
                left = np.concatenate([left, more]) if len(left) else more
            n_padded = self.batch_rows - count if self.last == "pad" else 0
            # in memory of its own, lest a batch that is kept keeps a window
            yield np.concatenate([left[:count], np.full(n_padded, -1, np.int64)]), count
            left = left[count:]

    @property
    def n_windows(self) -> int:
        """How many windows serve the whole plan."""
        return sum(1 for _ in self.spans(0, self.n_rows))


@dataclass(frozen=True, eq=False)
class SampledPlan(EpochPlan):
    """The batches of one shard of one epoch of a sampler: each has the length it is listed with.

    Shard `index` serves batches ``index, index + count, ...`` of those that are left.

    Raises
    ------
    SelectionError
        If the sampler asks for a row that is not there.

    Examples
    --------
    >>> from labeled.samplers.listed import ListedBatches
    >>> from labeled.samplers.units import UniformUnits
    >>> batches = ListedBatches.of([[3, 1], slice(0, 4), [2]])
    >>> plan = SampledPlan(Order("sampler", UniformUnits(4, 1), 8, seed=7, sampler=batches))
    >>> plan.n_batches, [plan.span(k) for k in range(3)]
    (3, [(0, 2), (2, 6), (6, 7)])
    """

    def __post_init__(self) -> None:
        assert self.order.sampler is not None
        self.__dict__["n_batches"] = len(range(len(self.order.sampler))[self._own])

    @cached_property  # type: ignore[misc]
    def n_rows(self) -> int:
        return len(self._listed[1])

    @property
    def _own(self) -> slice:
        """Which batches of the sampler are this shard's."""
        served = sum(count * step for count, step in self.history)
        return slice(served + self.shard[0], None, self.shard[1])

    @cached_property
    def _listed(self) -> tuple[IntArray, IntArray]:
        """The places at which batches begin and end, and their rows, one batch after another."""
        order = self.order
        assert order.sampler is not None
        requests = tuple(order.sampler.at_epoch(order.epoch))[self._own]
        highest = max(map(last_row, requests), default=-1)
        if highest >= order.n_rows:
            raise SelectionError(
                f"the sampler asks for row {highest} in epoch {order.epoch}, but there are "
                f"{order.n_rows} rows"
            )
        return rows_of_requests(requests)

    @cached_property
    def parts(self) -> list[tuple[WindowOrder, int, int]]:
        """All places: windows hold whole batches, as many as fit."""
        edges, rows = self._listed
        places = replace(self.order, mode="file", units=ListedUnits(np.unique(edges)))
        return [(WindowOrder(places, (0, 1), rows), 0, len(rows))]

    def span(self, number: int) -> tuple[int, int]:
        edges, _ = self._listed
        return int(edges[number]), int(edges[min(number + 1, self.n_batches)])


def share_of(
    last: Last, n_rows: int, history: History, shard: tuple[int, int], batch_rows: int
) -> tuple[int, int]:
    """Return a shard's batches under the rule `last`, after the changes in `history`, and its rows.

    Examples
    --------
    >>> share_of("keep", 12, (), (0, 2), 4), share_of("keep", 12, ((2, 1),), (0, 1), 4)
    ((2, 6), (1, 4))
    """
    for count, step in history:  # what no shard had handed out yet
        each, longer = divmod(n_rows, count)
        done = step * batch_rows
        n_rows = (count - longer) * max(0, each - done) + longer * max(0, each + 1 - done)
    start, stop = shard_bounds(n_rows, *shard)
    longest = stop - start if last == "keep" else -(-n_rows // shard[1])
    n_batches = n_rows // shard[1] // batch_rows if last == "drop" else -(-longest // batch_rows)
    room = n_batches * batch_rows
    return n_batches, room if last == "wrap" and n_rows else min(stop - start, room)


def _left_after(pieces: Sequence[range], count: int, done: int) -> list[range]:
    """Return what is left of pieces when each of `count` shards has handed out `done` rows.

    Examples
    --------
    >>> _left_after([range(12)], 2, 4)
    [range(4, 6), range(10, 12)]
    """
    n_rows = sum(map(len, pieces))
    shards = (shard_bounds(n_rows, index, count) for index in range(count))
    left, at, start, stop = [], 0, 0, 0
    for piece in pieces:
        while piece:
            while at == stop:
                start, stop = next(shards)
            here, piece = piece[: stop - at], piece[stop - at :]
            left.append(here[max(0, start + done - at) :])
            at += len(here)
    return [piece for piece in left if piece]


def plan_hash(plan: EpochPlan, layout_hash: str) -> str:
    """Hash what the batches of a plan depend on, besides seed, epoch and shards.

    Parameters
    ----------
    plan : EpochPlan
    layout_hash : str
        The caller's hash over the selection and the stored chunks of its sources.
    """
    entries = [ORDER_VERSION, plan.order.digest, plan.batch_rows, plan.last, layout_hash]
    return hashlib.blake2b(json.dumps(entries).encode(), digest_size=16).hexdigest()
