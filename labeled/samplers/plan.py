"""One part's share of one epoch: its batches, and the windows that serve them.

Puts order, parts and the rule for the last batch together. A loader walks through
`EpochPlan.windows`, in which every row says where it is dealt to; batch k is the places
``[k * batch_rows, (k + 1) * batch_rows)``, so it may draw from two windows. A plan knows
integers only: it neither reads nor remembers how far anyone has come.

Starting at batch k costs the same for any k. The window that holds its first row is given
in part: only the rows that are still to be handed out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import numpy as np

from labeled.errors import LoaderError, SelectionError
from labeled.samplers.content import Content
from labeled.samplers.order import Deal, stretch
from labeled.samplers.parts import (
    LAST_RULES,
    History,
    Last,
    Piece,
    Shares,
    batches_in,
    shares_of,
)
from labeled.samplers.permutation import IntArray


class EpochOrder(Protocol):
    """What a plan asks of an order: `Order`, or draws with replacement."""

    @property
    def mode(self) -> str: ...

    @property
    def n_rows(self) -> int: ...

    @property
    def window_rows(self) -> int: ...

    @property
    def seed(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def sticky_shards(self) -> bool: ...

    @property
    def digest(self) -> str: ...

    def at_epoch(self, epoch: int, seed: int | None = None) -> EpochOrder: ...

    def deal(self, part: tuple[int, int] = (0, 1)) -> Deal: ...


@dataclass(frozen=True, eq=False)
class Window:
    """Rows read together, and the places they are dealt to.

    Attributes
    ----------
    start, stop : int
        The places of the part's sequence that this window serves; place 0 is the first row
        of batch 0. Windows follow one another without a gap.
    runs : array of int64, (k, 2), or None
        Ascending half-open stretches of rows, merged where they touch; together they hold
        ``stop - start`` rows, none twice. None where `rows` are listed one by one (full
        shuffle, draws).
    dest : array of int64, (stop - start,), or None
        Row number i of the runs goes to place ``start + dest[i]``. None: to place
        ``start + i``.
    """

    start: int
    stop: int
    content: Content

    @property
    def n_rows(self) -> int:
        """Places served."""
        return self.stop - self.start

    @property
    def runs(self) -> IntArray | None:
        return self.content.runs

    @property
    def dest(self) -> IntArray | None:
        return self.content.dest

    @property
    def rows(self) -> IntArray:
        """The rows in the order of their places, ``start`` to ``stop - 1``."""
        return self.content.rows


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """The batches of one part of one epoch.

    Parameters
    ----------
    order : Order
        The order of the epoch.
    part : (int, int)
        Index and count.
    batch_rows : int
        Rows of a batch.
    last : {'keep', 'pad', 'drop', 'wrap'}
        What becomes of a last batch that is not full: it stays short; is padded; is left
        out; is filled with the rows that follow this part's (after the last part, the first).
    history : tuple of (count, step)
        Changes of the number of parts within this epoch, see `shares_of`.

    Raises
    ------
    LoaderError
        If a size, a part or a rule is impossible.

    Examples
    --------
    >>> from labeled.samplers.order import Order
    >>> from labeled.samplers.units import UniformUnits
    >>> order = Order("file", UniformUnits(10, 4, 4), window_rows=8, seed=7)
    >>> plan = EpochPlan(order, part=(1, 2), batch_rows=3, last="pad")
    >>> plan.n_batches, plan.batch(1)
    (2, (array([ 8,  9, -1]), 2))
    """

    order: EpochOrder
    part: tuple[int, int] = (0, 1)
    batch_rows: int = 1
    last: Last = "keep"
    history: History = ()

    def __post_init__(self) -> None:
        if self.batch_rows < 1:
            raise LoaderError(f"batch_rows is {self.batch_rows}; a batch needs at least 1 row")
        if self.last not in LAST_RULES:
            raise LoaderError(
                f"last={self.last!r} is not one of {', '.join(map(repr, LAST_RULES))}"
            )
        stretch(0, *self.part)

    @cached_property
    def shares(self) -> Shares:
        """What all parts share from here on."""
        return shares_of(self.order.n_rows, self.history, self.part[1], self.batch_rows)

    @cached_property
    def n_batches(self) -> int:
        """Batches of this part."""
        return batches_in(self.last, self.shares, self.part[0], self.batch_rows)

    @cached_property
    def n_rows(self) -> int:
        """Rows dealt to this part: repeated ones counted, padding and dropped ones not."""
        return self._ends[-1] if self._ends else 0

    @cached_property
    def _pieces(self) -> list[Piece]:
        """What this part deals, one after another."""
        start, stop = stretch(self.shares.n_rows, *self.part)
        room = self.n_batches * self.batch_rows
        pieces = self.shares.cut(start, min(stop, start + room))
        if self.last == "wrap":
            pieces += self.shares.cyclic(stop, room - (stop - start))
        return pieces

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(piece.n_rows for piece in self._pieces))

    @cached_property
    def _deals(self) -> dict[int, Deal]:
        return {}

    def deal_of(self, part: int) -> Deal:
        """Return what the epoch first dealt to a part: what `spans` speaks of."""
        if part not in self._deals:
            self._deals[part] = self.order.deal((part, self.shares.dealt_count))
        return self._deals[part]

    def spans(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield (part, lo, hi) for the places ``[start, stop)`` of this plan, window by window.

        Each says that the next ``hi - lo`` rows are the places ``[lo, hi)`` of
        ``deal_of(part)``, which lie in one of its windows.
        """
        number = bisect_right(self._ends, start)
        while start < stop:
            piece = self._pieces[number]
            lo = piece.hi - (self._ends[number] - start)
            hi = min(piece.hi, self.deal_of(piece.part).window_at(lo)[2], lo + stop - start)
            yield piece.part, lo, hi
            start += hi - lo
            number += start == self._ends[number]

    def span(self, number: int) -> tuple[int, int]:
        """Return the places of batch `number`, ``[start, stop)``; padding takes no place."""
        start, n_rows = number * self.batch_rows, self.n_rows
        stop = start + self.batch_rows
        return (start, stop) if stop <= n_rows else (min(start, n_rows), n_rows)

    def windows(self, first_batch: int = 0) -> Iterator[Window]:
        """Walk through the windows that serve batch `first_batch` and all later ones.

        Raises
        ------
        SelectionError
            If there is no such batch; the number of batches itself gives no windows.
        """
        if not 0 <= first_batch <= self.n_batches:
            raise SelectionError(f"batch {first_batch} of {self.n_batches}: there is none")
        return self._between(min(first_batch * self.batch_rows, self.n_rows), self.n_rows)

    def batch(self, number: int) -> tuple[IntArray, int]:
        """Return the rows of one batch, -1 where it is padded, and how many are rows.

        Raises
        ------
        SelectionError
            If there is no such batch.
        """
        if not 0 <= number < self.n_batches:
            raise SelectionError(f"batch {number} of {self.n_batches}: there is none")
        start = min(number * self.batch_rows, self.n_rows)
        stop = min(start + self.batch_rows, self.n_rows)
        rows = np.full(self.batch_rows if self.last == "pad" else stop - start, -1, np.int64)
        for window in self._between(start, stop):
            rows[window.start - start : window.stop - start] = window.rows
        return rows, stop - start

    @property
    def n_windows(self) -> int:
        """How many windows serve the whole plan."""
        total = 0
        for piece in self._pieces:
            deal = self.deal_of(piece.part)
            total += deal.window_at(piece.hi - 1)[0] - deal.window_at(piece.lo)[0] + 1
        return total

    def _between(self, start: int, stop: int) -> Iterator[Window]:
        """Windows for the places ``[start, stop)``."""
        for part, lo, hi in self.spans(start, stop):
            yield Window(start, start + hi - lo, self.deal_of(part).content(lo, hi))
            start += hi - lo
