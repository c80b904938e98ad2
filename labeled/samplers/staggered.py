"""Blocks of rows that are dealt out in turns, each over a long stretch of the epoch.

A window that is read as a whole and dealt out as a whole has to be in memory twice: one is
read while another is used. Here so many *blocks* are open at a time; each is permuted and
cut into as many *shares*, and every step deals one share of each open block, closes the one
that is used up and opens the next. Nearly all of the memory is mixed in every batch.

Block j gives its share k on *diagonal* ``j + k``. Every diagonal with a share of each open
block is a step; the two triangles at the ends of the epoch, where blocks are missing, are
dealt as one step each, so that no block is read twice. A triangle mixes three quarters as
many blocks as a step between them.

The price: all open blocks are read before the first batch, and a place in mid-epoch is
found by reading them again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from labeled.samplers.content import Content, rows_of
from labeled.samplers.permutation import IntArray, key_of

MOST_OPEN = 16
"""Several units make a block where more than this would be open.

More blocks, and smaller ones, would mix a little better, at the price of more reads.
"""

REMEMBERED = 4096
"""Steps whose first place is kept in mind."""

TOGETHER_ROWS, MOST_TOGETHER = 2048, 64
"""Small steps and blocks are arranged so many at once; orders depend on it."""

GROUP_BITS = 8
"""Bits that tell apart what is arranged at once; the other 56 are random."""


def blocks_of(window_rows: int, unit_rows: int, n_rows: int) -> tuple[int, int]:
    """Return how many rows a block has at most, and how many blocks are open at a time.

    Examples
    --------
    >>> blocks_of(4000, 64, 10**6), blocks_of(10, 64, 10**6), blocks_of(10**6, 64, 4000)
    ((256, 15), (64, 1), (256, 15))
    """
    n_units = min(window_rows, n_rows + unit_rows - 1) // unit_rows
    block_units = max(1, -(-n_units // MOST_OPEN))
    return block_units * unit_rows, max(1, n_units // block_units)


class Blocks(Protocol):
    """A stretch of units in run order, cut into blocks."""

    @property
    def start(self) -> int: ...

    @property
    def n_rows(self) -> int: ...

    @property
    def n_windows(self) -> int: ...

    def edges_of(self, numbers: IntArray) -> IntArray:
        """Return the first place of each block; of the number of blocks, the number of rows."""

    def window(self, number: int) -> tuple[int, int, IntArray]:
        """Return the first place of a block, the place behind it, and its runs."""


@dataclass(frozen=True, eq=False)
class StaggeredDeal:
    """A stretch of units in run order, dealt out block by block, many blocks at a time.

    Parameters
    ----------
    blocks : Blocks
    block_rows : int
        Rows of the largest block.
    most_open : int
        Blocks that are open at a time, and the shares each is cut into.
    salt : tuple of int
    """

    blocks: Blocks
    block_rows: int
    most_open: int
    salt: tuple[int, ...]

    @property
    def n_rows(self) -> int:
        return self.blocks.n_rows

    @cached_property
    def n_blocks(self) -> int:
        """How many blocks there are."""
        return self.blocks.n_windows

    @property
    def n_windows(self) -> int:
        """How many steps there are; the first and the last may be without rows."""
        if self.n_blocks <= self.most_open:  # all are open at the same time
            return min(1, self.n_blocks)
        return self.n_blocks - self.most_open + 3

    def window_at(self, place: int) -> tuple[int, int, int]:
        step, first, last = self._latest
        if place == last < self.n_rows:  # the usual case: one step after another
            step, first, last = step + 1, last, self._first_of(step + 2)
        if not first <= place < last:
            step = bisect_right(range(self.n_windows), place, key=self._first_of) - 1
            first, last = self._first_of(step), self._first_of(step + 1)
        self.__dict__["_latest"] = step, first, last
        return step, first, last

    def open_at(self, place: int) -> tuple[int, int]:
        """Return the first block that is open in the step of `place`, and the first behind."""
        return self._open_in(self.window_at(place)[0])

    def block(self, number: int) -> tuple[int, int, IntArray]:
        """Return the first place of a block in run order, the place behind it, and its runs."""
        return self.blocks.window(number)

    def origins(self, lo: int, hi: int) -> tuple[IntArray, IntArray]:
        """Return where the rows of the places ``[lo, hi)`` of one step are.

        Returns
        -------
        numbers, rows : int64 arrays, (hi - lo,)
            The block of each row, and which of its runs' rows it is.
        """
        step = self.window_at(lo)[0]
        steps, first, numbers, rows = self._arranged
        if step not in steps:
            self.__dict__["_arranged"] = steps, first, numbers, rows = self._arrange(step)
        return numbers[lo - first : hi - first], rows[lo - first : hi - first]

    def content(self, lo: int, hi: int) -> Content:
        numbers, rows = self.origins(lo, hi)
        table = self._positions.covering(int(numbers.min()), int(numbers.max()) + 1)
        return Content(listed=table[numbers % len(table), rows])

    def _open_in(self, step: int) -> tuple[int, int]:
        n, most = self.n_blocks, self.most_open
        if n <= most:
            return 0, n
        return max(0, min(step - 1, n - most + 1)), min(n, max(most - 1, step - 1 + most))

    def _diagonals(self, step: int) -> tuple[int, int]:
        """Return the first diagonal of a step, and the one behind its last."""
        n, most = self.n_blocks, self.most_open
        ends = n + most - 1
        if n <= most:
            return 0, ends
        first = 0 if step == 0 else min(most - 2 + step, ends)
        return first, min(most - 1 + step, ends) if step <= n - most + 1 else ends

    def _first_of(self, step: int) -> int:
        """Return how many rows the steps before `step` deal."""
        if step >= self.n_windows:
            return self.n_rows
        known = self._known
        first = known.get(step)
        if first is None:  # asked once: another thread, which reads ahead, may clear it any time
            if len(known) > REMEMBERED:
                known.clear()
            steps = self._together(step)
            found = dict(zip(steps, self._rows_before(steps), strict=True))
            known.update(found)
            first = found[step]
        return first

    def _rows_before(self, steps: range) -> list[int]:
        """Return how many rows were dealt when each of some steps begins."""
        most = self.most_open
        diagonals = np.array([self._diagonals(step)[0] for step in steps])
        first, last = int(diagonals[0]), int(diagonals[-1])
        begun = np.arange(max(0, first - most), min(self.n_blocks, last) + 1)
        edges = self.blocks.edges_of(begun)
        shares = np.minimum(np.maximum(diagonals[:, None] - begun[:-1], 0), most)
        dealt = ((edges[1:] - edges[:-1]) * shares // most).sum(axis=1)
        found: list[int] = (dealt + edges[0]).tolist()
        return found

    def _arrange(self, step: int) -> tuple[range, int, IntArray, IntArray]:
        """Return a few steps, their first place, and where the rows of their places are.

        Steps of few rows are arranged together, which takes little longer than a single one.
        """
        most, steps = self.most_open, self._together(step)
        begun = np.array([self._open_in(s) for s in (steps[0], steps[-1])])
        a, b = int(begun[0, 0]), int(begun[1, 1])
        numbers = np.arange(a, b)
        edges = self.blocks.edges_of(np.arange(a, b + 1))
        sizes = edges[1:] - edges[:-1]
        diagonals = np.array([self._diagonals(s) for s in steps])
        shares = np.minimum(np.maximum(diagonals[:, :, None] - numbers, 0), most)
        cuts = sizes * shares // most
        begin, counts = cuts[:, 0].ravel(), (cuts[:, 1] - cuts[:, 0]).ravel()
        ends = counts.cumsum()
        rows = np.arange(int(ends[-1])) + (begin - ends + counts).repeat(counts)
        where = np.tile(numbers, len(steps)).repeat(counts)
        first = self._first_of(steps[0])
        of_step = np.arange(len(steps)).repeat(counts.reshape(len(steps), -1).sum(axis=1))
        order = self._shuffled_within(of_step, "steps", self.blocks.start + first)
        where, rows = where[order], rows[order]
        table = self._orders.covering(a, b)
        return steps, first, where, table[where % len(table), rows]

    def _together(self, step: int) -> range:
        """Return the steps that are arranged at once: never one of the triangles with others."""
        last = self.n_windows - 1
        if step in (0, last):
            return range(step, step + 1)
        first = step - (step - 1) % self._group
        return range(first, min(first + self._group, last))

    def _shuffled_within(self, groups: IntArray, purpose: str, place: int) -> IntArray:
        """Return an order in which the members of each group are shuffled; groups ascend."""
        words = np.random.Philox(key=key_of(*self.salt, purpose, place)).random_raw(groups.size)
        words = words.astype(np.uint64, copy=False) >> np.uint64(GROUP_BITS)
        words |= groups.astype(np.uint64) << np.uint64(64 - GROUP_BITS)
        return words.argsort(kind="stable")

    @cached_property
    def _group(self) -> int:
        return min(MOST_TOGETHER, max(1, TOGETHER_ROWS // self.block_rows))

    @cached_property
    def _orders(self) -> _Table:
        """In which order the rows of each block are dealt."""
        return _Table(self.most_open + self._group, self._group, self.block_rows, self._ordered)

    def _ordered(self, a: int, b: int, table: IntArray) -> None:
        edges = self.blocks.edges_of(np.arange(a, min(b, self.n_blocks) + 1))
        sizes = edges[1:] - edges[:-1]
        blocks = np.arange(sizes.size).repeat(sizes)
        order = self._shuffled_within(blocks, "blocks", self.blocks.start + int(edges[0]))
        order -= (edges[:-1] - edges[0]).repeat(sizes)
        table[blocks, np.arange(order.size) - (edges[:-1] - edges[0]).repeat(sizes)] = order

    @cached_property
    def _positions(self) -> _Table:
        """The rows of each block, as its runs have them."""
        return _Table(self.most_open, 1, self.block_rows, self._found)

    def _found(self, a: int, b: int, table: IntArray) -> None:
        rows = rows_of(self.block(a)[2])
        table[0, : rows.size] = rows

    @cached_property
    def _known(self) -> dict[int, int]:
        return {}

    @cached_property
    def _latest(self) -> tuple[int, int, int]:
        return -1, -1, -1

    @cached_property
    def _arranged(self) -> tuple[range, int, IntArray, IntArray]:
        nothing = np.empty(0, np.int64)
        return range(0), 0, nothing, nothing


class _Table:
    """Something of every row of the blocks that are open, worked out for several blocks at once.

    Parameters
    ----------
    most : int
        Blocks that are asked for at a time.
    group : int
        Blocks that are worked out at once.
    width : int
        Rows of the largest block.
    fill : callable
        Gets a stretch of blocks and the lines of the table for them.
    """

    def __init__(
        self, most: int, group: int, width: int, fill: Callable[[int, int, IntArray], None]
    ) -> None:
        self._group = group
        self._fill = fill
        n_groups = -(-most // group) + 1
        self._held = [-1] * n_groups
        self._lines = np.zeros((n_groups * group, width), np.int64)

    def covering(self, first: int, last: int) -> IntArray:
        """Return the table; block j of ``[first, last)`` is in line ``j % len(table)``."""
        for number in range(first // self._group, -(-last // self._group)):
            place = number % len(self._held)
            if self._held[place] != number:
                a, at = number * self._group, place * self._group
                self._fill(a, a + self._group, self._lines[at : at + self._group])
                self._held[place] = number
        return self._lines
