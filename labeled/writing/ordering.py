"""Another order of rows: which row goes where, and what becomes of the splits.

An order maps new positions to old rows and back. Shuffling keeps every split together:
rows change places only with rows that are in the same splits. Where splits are stretches
they stay where they are, and the order is a keyed bijection that takes no memory; where
they are lists, rows are put together by the splits they are in, and most lists become
stretches. ``"splits"`` does only that, in the order that the splits themselves have.

Integers only: no file, no array of data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from labeled.errors import SplitError
from labeled.formats.header import Rows
from labeled.samplers.permutation import Permutation, explicit_permutation, key_of
from labeled.writing.splits import Splits

IntArray = npt.NDArray[np.int64]

ORDERS = ("keep", "splits", "shuffle")


class Order(Protocol):
    """Which row goes where."""

    @property
    def n_rows(self) -> int: ...

    def old(self, positions: IntArray) -> IntArray:
        """Return the rows that go to `positions`."""

    def new(self, rows: IntArray) -> IntArray:
        """Return the positions that `rows` go to."""


@dataclass(frozen=True)
class Kept:
    """Every row where it is."""

    n_rows: int

    def old(self, positions: IntArray) -> IntArray:
        return positions

    def new(self, rows: IntArray) -> IntArray:
        return rows


@dataclass(frozen=True)
class Within:
    """Rows shuffled within stretches; nothing is stored that grows with their number.

    Parameters
    ----------
    edges : tuple of int
        Where stretches begin, and the end of the last.
    seed : int
    """

    edges: tuple[int, ...]
    seed: int

    @property
    def n_rows(self) -> int:
        return self.edges[-1]

    @cached_property
    def _bijections(self) -> list[Permutation]:
        return [
            Permutation(stop - start, key_of(self.seed, "repack", start))
            for start, stop in pairwise(self.edges)
        ]

    def old(self, positions: IntArray) -> IntArray:
        return self._mapped(positions, forward=True)

    def new(self, rows: IntArray) -> IntArray:
        return self._mapped(rows, forward=False)

    def _mapped(self, numbers: IntArray, *, forward: bool) -> IntArray:
        out = np.empty_like(numbers)
        which = np.searchsorted(self.edges, numbers, side="right") - 1
        for stretch in np.unique(which).tolist():
            here = which == stretch
            bijection, start = self._bijections[stretch], self.edges[stretch]
            local = numbers[here] - start
            out[here] = start + (bijection(local) if forward else bijection.inverse(local))
        return out


@dataclass(frozen=True, eq=False)
class Listed:
    """Any order, as a list: ``rows[i]`` goes to position i. Sixteen bytes a row."""

    rows: IntArray = field(repr=False)

    @property
    def n_rows(self) -> int:
        return len(self.rows)

    @cached_property
    def _positions(self) -> IntArray:
        out = np.empty(len(self.rows), np.int64)
        out[self.rows] = np.arange(len(self.rows))
        return out

    def old(self, positions: IntArray) -> IntArray:
        return self.rows[positions]

    def new(self, rows: IntArray) -> IntArray:
        return self._positions[rows]


def order_of(kind: str, splits: Mapping[str, Mapping[str, Rows]], n_rows: int, seed: int) -> Order:
    """Return the order to write rows in.

    Parameters
    ----------
    kind : {"keep", "splits", "shuffle"}
    splits : mapping of split to mapping of source to rows
    n_rows : int
        Of every source.
    seed : int
        Of a shuffle.

    Raises
    ------
    SplitError
        If the sources of a split do not have the same rows of it.

    Examples
    --------
    >>> order_of("splits", {"a": {"x": np.array([4, 0])}, "b": {"x": np.array([1, 3])}}, 5, 0)
    Listed()
    >>> _.rows.tolist()
    [4, 0, 1, 3, 2]
    """
    if kind == "keep":
        return Kept(n_rows)
    by_split = {name: _common(name, by_source) for name, by_source in splits.items() if by_source}
    if kind == "shuffle" and all(isinstance(rows, range) for rows in by_split.values()):
        edges = {0, n_rows}
        for rows in by_split.values():
            assert isinstance(rows, range)
            edges |= {rows.start, rows.stop} if len(rows) else set()
        return Within(tuple(sorted(edges)), seed)
    group, place = _groups(by_split, n_rows)
    if kind == "shuffle":
        place = explicit_permutation(n_rows, key_of(seed, "repack"))
    return Listed(np.lexsort((place, group)).astype(np.int64))


def _common(split: str, by_source: Mapping[str, Rows]) -> Rows:
    """Return the rows of a split, which must be the same ones of every source."""
    first, *others = by_source.values()
    for other in others:
        if other is not first and not (
            first == other
            if isinstance(first, range) and isinstance(other, range)
            else np.array_equal(np.asarray(first), np.asarray(other))
        ):
            raise SplitError(
                f"split {split!r} has different rows of its sources {tuple(by_source)}, so no "
                f"order suits all of them; repack with order='keep'"
            )
    return first


def _groups(by_split: Mapping[str, Rows], n_rows: int) -> tuple[IntArray, IntArray]:
    """Return for every row a number for the splits it is in, and its place in the first."""
    group = np.zeros(n_rows, np.int64)
    place = np.arange(n_rows)
    claimed = np.zeros(n_rows, bool)
    for rows in by_split.values():
        inside = np.zeros(n_rows, bool)
        listed = np.asarray(rows, np.int64)
        inside[listed] = True
        group = np.unique(2 * group + ~inside, return_inverse=True)[1].astype(np.int64)
        first = listed[::-1]  # of repeats, the first place counts: it is written last
        fresh = ~claimed[first]
        place[first[fresh]] = np.arange(len(listed) - 1, -1, -1)[fresh]
        claimed |= inside
    return group, place


def moved(splits: Mapping[str, Mapping[str, Rows]], order: Order) -> Splits:
    """Return the splits as they are after rows have changed places.

    Stretches and ascending lists mean sets of rows, and ascend again; other lists keep their
    sequence of examples.
    """
    if isinstance(order, Kept | Within):
        return {name: dict(by_source) for name, by_source in splits.items()}
    done: dict[int, Rows] = {}
    out: Splits = {}
    for name, by_source in splits.items():
        out[name] = {}
        for source, rows in by_source.items():
            if id(rows) not in done:  # sources that share a list go on sharing it
                done[id(rows)] = _moved(rows, order)
            out[name][source] = done[id(rows)]
    return out


def _moved(rows: Rows, order: Order) -> Rows:
    listed = np.asarray(rows, np.int64)
    found = order.new(listed)
    if isinstance(rows, range) or bool((np.diff(listed) > 0).all()):
        found = np.sort(found)
    if len(found) and bool((np.diff(found) == 1).all()):
        return range(int(found[0]), int(found[-1]) + 1)
    return found if len(found) else range(0)
