"""Sharing an epoch out: parts, the last batch, and a change of the number of parts.

The rows of an epoch stand in one sequence; `count` parts take stretches of it that differ
by at most one row. When the number of parts changes in mid-epoch, what the old parts had
left is put end to end and cut anew. This module does that arithmetic on intervals; it
knows neither rows nor windows.

Corner cases of the rules for the last batch, n rows in `count` parts:

- ``keep``: parts differ by at most one batch; a part without rows has none.
- ``pad``, ``wrap``: every part has as many batches as the longest needs. Where the lengths
  straddle a multiple of the batch, the last batch of a shorter part is padding (or
  repeated rows) alone.
- ``drop``: every part has as many batches as the shortest fills. Where the lengths straddle
  a multiple, the longer parts leave out exactly `batch_rows` rows; else fewer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from labeled.errors import LoaderError
from labeled.samplers.order import stretch

Last = Literal["keep", "pad", "drop", "wrap"]
LAST_RULES = ("keep", "pad", "drop", "wrap")
History = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Piece:
    """Places ``[lo, hi)`` of what the epoch first dealt to part number `part`."""

    part: int
    lo: int
    hi: int

    @property
    def n_rows(self) -> int:
        """Rows of the piece."""
        return self.hi - self.lo


@dataclass(frozen=True)
class Shares:
    """What is left of an epoch, in sequence, and how many parts share it.

    Parameters
    ----------
    pieces : sequence of Piece
        One after another, they are the sequence.
    count : int
        How many parts it is cut into now.
    dealt_count : int
        Into how many parts the epoch was cut at first: what `Piece.part` counts.
    """

    pieces: Sequence[Piece]
    count: int
    dealt_count: int

    def __post_init__(self) -> None:
        ends = tuple(accumulate(piece.n_rows for piece in self.pieces))
        object.__setattr__(self, "_ends", ends)

    @property
    def n_rows(self) -> int:
        """Rows of the whole sequence."""
        ends: tuple[int, ...] = self.__dict__["_ends"]
        return ends[-1] if ends else 0

    def cut(self, start: int, stop: int) -> list[Piece]:
        """Return the pieces of the stretch ``[start, stop)`` of the sequence, if it has rows."""
        ends: tuple[int, ...] = self.__dict__["_ends"]
        found: list[Piece] = []
        number = bisect_right(ends, start)
        while start < stop:
            piece = self.pieces[number]
            lo = piece.hi - (ends[number] - start)
            hi = min(piece.hi, lo + stop - start)
            found.append(Piece(piece.part, lo, hi))
            start, number = start + hi - lo, number + 1
        return found

    def cyclic(self, start: int, n_rows: int) -> list[Piece]:
        """Return the pieces of `n_rows` rows from `start`, going on at the beginning."""
        found: list[Piece] = []
        while n_rows and self.n_rows:
            start %= self.n_rows
            stop = min(self.n_rows, start + n_rows)
            found += self.cut(start, stop)
            start, n_rows = stop, n_rows - (stop - start)
        return found

    def after(self, step: int, batch_rows: int, count: int) -> Shares:
        """Return what is left when each part handed out `step` batches, for `count` parts."""
        left: list[Piece] = []
        for index in range(self.count):
            start, stop = stretch(self.n_rows, index, self.count)
            left += self.cut(start + step * batch_rows, stop)
        return Shares(left, count, self.dealt_count)


def fresh_shares(n_rows: int, count: int) -> Shares:
    """Return a whole epoch cut into `count` parts."""
    bounds = [stretch(n_rows, index, count) for index in range(count)]
    pieces = [Piece(part, 0, stop - start) for part, (start, stop) in enumerate(bounds)]
    return Shares([piece for piece in pieces if piece.n_rows], count, count)


def shares_of(n_rows: int, history: History, count: int, batch_rows: int) -> Shares:
    """Return what `count` parts share after the changes in `history`.

    Parameters
    ----------
    history : tuple of (count, step)
        For each change in this epoch: how many parts there were, and how many batches each
        had handed out since the change before.

    Examples
    --------
    >>> shares_of(12, ((2, 1),), 1, batch_rows=4).pieces
    [Piece(part=0, lo=4, hi=6), Piece(part=1, lo=4, hi=6)]
    """
    counts = [number for number, _ in history] + [count]
    if min(counts) < 1 or any(step < 0 for _, step in history):
        raise LoaderError(f"history {history}, {count} parts: counts from 1, steps from 0")
    shares = fresh_shares(n_rows, counts[0])
    for (_, step), after in zip(history, counts[1:], strict=True):
        shares = shares.after(step, batch_rows, after)
    return shares


def batches_in(last: Last, shares: Shares, index: int, batch_rows: int) -> int:
    """Return how many batches part `index` has under the rule `last`."""
    if last == "drop":
        return shares.n_rows // shares.count // batch_rows
    if last == "keep":
        start, stop = stretch(shares.n_rows, index, shares.count)
        return -(-(stop - start) // batch_rows)
    longest = -(-shares.n_rows // shares.count)
    return -(-longest // batch_rows)
