"""Units of a selection: the least that is read together.

A *unit* is a stretch of consecutive positions whose rows lie in the same stored chunk or chunks.
A shuffled epoch moves whole units about, so that no chunk is decoded for a single row. This module
decides where units begin and end; it knows nothing of order, and a chunk is to it a number of rows.

A plain range has units of one size (`UniformUnits`: a few integers, whatever its length).
Anything else lists the offsets (`ListedUnits`: eight bytes a unit).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from labeled.samplers.permutation import IntArray, digest_of


@dataclass(frozen=True)
class UniformUnits:
    """Units of `unit_rows` rows; the first and the last may be shorter.

    They begin at multiples of `unit_rows`, counted from row 0 of the file: whole stored chunks,
    or any number of rows where these can be read at any place.

    Parameters
    ----------
    n_rows : int
        How many positions there are in all.
    unit_rows : int
        Rows of a whole unit.
    first_row : int
        The row of the file at the first position.
    start : int
        The first position; the last is ``start + n_rows - 1``.

    Examples
    --------
    >>> units = UniformUnits(n_rows=10, unit_rows=4, first_row=101)
    >>> units.bounds(np.arange(units.count))
    (array([0, 3, 7]), array([ 3,  7, 10]))
    """

    n_rows: int
    unit_rows: int
    first_row: int = 0
    start: int = 0
    first_rows: int = field(init=False, repr=False)  # rows of the first unit, at most `unit_rows`
    count: int = field(init=False, repr=False)  # how many units there are
    max_rows: int = field(init=False, repr=False)  # rows of the longest unit
    digest: str = field(init=False, repr=False)  # a text that differs where the units differ

    def __post_init__(self) -> None:
        n_rows, unit_rows = self.n_rows, self.unit_rows
        first_rows = unit_rows - self.first_row % unit_rows
        count = 1 + max(0, -((first_rows - n_rows) // unit_rows)) if n_rows else 0
        digest = f"uniform {self.start} {n_rows} {unit_rows} {first_rows}"
        max_rows = min(unit_rows, n_rows)
        self.__dict__.update(first_rows=first_rows, count=count, max_rows=max_rows, digest=digest)

    def bounds(self, ids: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first position of each unit, and the one behind its last."""
        stops = ids * self.unit_rows + self.first_rows
        starts = np.maximum(stops - self.unit_rows, 0) + self.start
        return starts, np.minimum(stops, self.n_rows) + self.start

    def clip(self, start: int, stop: int) -> UniformUnits:
        """Return the units of the positions ``[start, stop)``, which may cut units."""
        first_row = self.first_row + start - self.start
        return UniformUnits(max(0, stop - start), self.unit_rows, first_row, start)


class ListedUnits:
    """Units of any sizes, given by their offsets.

    Parameters
    ----------
    offsets : array of int64, (units + 1,)
        Strictly ascending; unit ``i`` is the positions ``[offsets[i], offsets[i + 1])``.

    Examples
    --------
    >>> units = ListedUnits(np.array([0, 3, 4, 9]))
    >>> units.count, units.n_rows, units.max_rows
    (3, 9, 5)
    """

    def __init__(self, offsets: npt.ArrayLike) -> None:
        self.offsets: IntArray = np.asarray(offsets, np.int64)
        self.start, self.count = int(self.offsets[0]), self.offsets.size - 1
        self.n_rows = int(self.offsets[-1]) - self.start
        self.max_rows = int(np.diff(self.offsets).max(initial=0))

    @property
    def digest(self) -> str:
        """A text that differs where the units differ."""
        return digest_of(self.offsets)

    def bounds(self, ids: IntArray) -> tuple[IntArray, IntArray]:
        """Return the first position of each unit, and the one behind its last."""
        return self.offsets[ids], self.offsets[ids + 1]

    def clip(self, start: int, stop: int) -> ListedUnits:
        """Return the units of the positions ``[start, stop)``, which may cut units."""
        inside = self.offsets[(self.offsets > start) & (self.offsets < stop)]
        return ListedUnits(np.unique(np.concatenate([[start], inside, [max(start, stop)]])))


Units = UniformUnits | ListedUnits


def units_of_ranges(ranges: Sequence[range], unit_rows: int = 1) -> ListedUnits:
    """Return the units of several ascending ranges of file rows, one after another.

    Examples
    --------
    >>> units_of_ranges([range(0, 10, 3), range(20, 23)], 4).offsets
    array([0, 2, 3, 4, 7])
    """
    edges: list[IntArray] = []
    position, before = 0, -1
    for rows in filter(len, ranges):
        first, last = rows[0] // unit_rows, rows[-1] // unit_rows
        borders = np.arange(first + (before == first), last + 1, dtype=np.int64) * unit_rows
        edges.append(position + np.maximum(0, -((rows[0] - borders) // rows.step)))
        position, before = position + len(rows), last
    return ListedUnits(np.unique(np.concatenate([*edges, [position]]).astype(np.int64)))


def units_of_boundaries(
    start: int, stop: int, boundaries: npt.ArrayLike, min_unit_rows: int = 1
) -> ListedUnits:
    """Return the units of the rows ``[start, stop)`` over chunks of unequal length.

    Parameters
    ----------
    boundaries : array of int
        Ascending rows at which a chunk begins or ends (files that were joined, dask blocks).

    Examples
    --------
    >>> units_of_boundaries(2, 12, [0, 5, 6, 20]).offsets
    array([ 0,  3,  4, 10])
    """
    edges = np.asarray(boundaries, np.int64)
    edges = edges[np.diff(edges, prepend=-1) > 0]  # an empty chunk begins where the next does
    inside = edges[(edges > start) & (edges < stop)] - start
    return _joined(inside, stop - start, min_unit_rows)


def units_of_groups(chunk_ids: npt.ArrayLike, min_unit_rows: int = 1) -> ListedUnits:
    """Return the units of rows that were grouped by stored chunk.

    Parameters
    ----------
    chunk_ids : array of int, (n_rows,)
        For each position the chunk that holds its row; equal numbers stand together.
    min_unit_rows : int
        Neighbouring groups are joined until a unit has so many rows (the last may not).

    Examples
    --------
    >>> units_of_groups([3, 3, 3, 7, 9, 9]).offsets
    array([0, 3, 4, 6])
    >>> units_of_groups([3, 3, 3, 7, 9, 9], min_unit_rows=2).offsets
    array([0, 3, 6])
    """
    ids = np.asarray(chunk_ids)
    return _joined(np.flatnonzero(ids[1:] != ids[:-1]) + 1, ids.size, min_unit_rows)


def _joined(inside: IntArray, n_rows: int, min_unit_rows: int) -> ListedUnits:
    """Join the units of ``n_rows`` positions, cut at `inside`, until each is long enough."""
    offsets = np.concatenate([[0], inside, [n_rows][:n_rows]]).astype(np.int64)
    if offsets.size < 3 or (np.diff(offsets) >= min_unit_rows).all():
        return ListedUnits(offsets)
    last = offsets.size - 1
    nearest = np.minimum(np.searchsorted(offsets, offsets + min_unit_rows), last)
    kept, at = [0], 0
    while at < last:
        at = nearest.item(at)
        kept.append(at)
    return ListedUnits(offsets[kept])
