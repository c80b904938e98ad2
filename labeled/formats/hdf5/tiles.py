"""Which chunks along the axes after the first hold a region, and how they fit together.

A *tile* is one chunk of that grid: the elements wanted of it, and where they go in a row
of the result. Chunks as long as the row make one tile, the ordinary case.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from labeled.formats.region import Indexer, Ints, Region


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """One chunk of the grid over the axes after the first."""

    number: int
    """In C order over that grid."""
    local: Region
    """The elements wanted, counted within the chunk."""
    trail: Region
    """Their places in a row of the result; integers have dropped their axis."""


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """Tiles beside one another of which the same elements are wanted: a block of the grid."""

    tile: Tile
    """The first of them."""
    at: tuple[int, ...]
    """Where it is among the tiles wanted, along each axis after the first of the source."""
    counts: tuple[int, ...]
    """How many there are along each of these."""


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """What a region's indexer takes of the chunks along one axis."""

    coords: Ints
    index: Indexer
    chunk: int
    firsts: Ints
    """Place, in the result, of the first element of each chunk."""
    counts: Ints
    order: Ints | None = None
    """For lists out of chunk order: their elements chunk by chunk."""

    def part(self, k: int) -> tuple[int, Indexer, Indexer | None]:
        """Return the k-th chunk, the elements within it, and their places."""
        coord, first = int(self.coords[k]), int(self.firsts[k])
        base, last = coord * self.chunk, first + int(self.counts[k])
        if isinstance(self.index, int):
            return coord, self.index - base, None
        if isinstance(self.index, slice):
            start = self.index.start + first * self.index.step - base
            stop = start + (last - first - 1) * self.index.step + 1
            return coord, slice(start, stop, self.index.step), slice(first, last, 1)
        if self.order is None:
            return coord, self.index[first:last] - base, slice(first, last, 1)
        places = self.order[first:last]
        return coord, self.index[places] - base, places

    def alike(self) -> Iterator[tuple[int, int]]:
        """Yield stretches (first, count) of neighbours of which the same elements are taken."""
        begin, taken = 0, self.part(0)[1]
        for k in range(1, len(self.coords)):
            wanted, beside = self.part(k)[1], self.coords[k] == self.coords[k - 1] + 1
            if not (beside and isinstance(wanted, slice) and wanted == taken):
                yield begin, k - begin
                begin, taken = k, wanted
        yield begin, len(self.coords) - begin


def _cut(index: Indexer, chunk: int) -> _Cut:
    if isinstance(index, int):
        one = np.ones(1, np.int64)
        return _Cut(one * (index // chunk), index, chunk, one - 1, one)
    wanted = np.arange(index.start, index.stop, index.step) if isinstance(index, slice) else index
    at = wanted // chunk
    order = None
    if (at[1:] < at[:-1]).any():
        order = np.argsort(at, kind="stable")
        at = at[order]
    coords, firsts, counts = np.unique(at, return_index=True, return_counts=True)
    return _Cut(coords, index, chunk, firsts, counts, order)


class Tiles:
    """The tiles of a region, made when asked for.

    Parameters
    ----------
    region : Region
        Full and normal.
    shape, chunks : tuple of int
        Of the axes after the first.

    Examples
    --------
    >>> tiles = Tiles((slice(3, 7, 1), 2), (8, 6), (4, 6))
    >>> [(tile.number, tile.local, tile.trail) for tile in tiles]
    [(0, (slice(3, 4, 1), 2), (slice(0, 1, 1),)), (1, (slice(0, 3, 1), 2), (slice(1, 4, 1),))]
    """

    def __init__(self, region: Region, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
        self._grid = tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
        self._cuts = [_cut(index, chunk) for index, chunk in zip(region, chunks, strict=True)]
        self.per_band = math.prod(self._grid)
        """Chunks of the whole grid beside one another, wanted or not."""

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def grid(self) -> tuple[int, ...]:
        """Chunks along each axis, wanted or not."""
        return self._grid

    @property
    def numbers(self) -> Ints:
        """The number of every tile."""
        numbers = np.zeros(1, np.int64)
        for cut, n in zip(self._cuts, self._grid, strict=True):
            numbers = (numbers[:, None] * n + cut.coords).reshape(-1)
        return numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """Tiles along each axis."""
        return tuple(len(cut.coords) for cut in self._cuts)

    def patches(self) -> list[Patch]:
        """Return blocks that together are all tiles; few, however many tiles there are."""
        blocks = itertools.product(*(list(cut.alike()) for cut in self._cuts))
        return [
            Patch(self._at(at), at, counts)
            for at, counts in ((tuple(zip(*b, strict=True)) or ((), ())) for b in blocks)
        ]

    def __getitem__(self, k: int) -> Tile:
        if not 0 <= k < len(self):
            raise IndexError(k)
        return self._at(self.at(k))

    def at(self, k: int) -> tuple[int, ...]:
        """Return where the k-th tile is among those wanted, along each axis."""
        return tuple(int(i) for i in np.unravel_index(k, self.shape)) if self.shape else ()

    def _at(self, at: tuple[int, ...]) -> Tile:
        parts = [cut.part(i) for cut, i in zip(self._cuts, at, strict=True)]
        number = 0
        for (coord, _, _), n in zip(parts, self._grid, strict=True):
            number = number * n + coord
        trail = tuple(place for _, _, place in parts if place is not None)
        return Tile(number, tuple(local for _, local, _ in parts), trail)
