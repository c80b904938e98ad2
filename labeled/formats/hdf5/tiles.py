"""Which chunks along the axes after the first hold a region, and how they fit together.

A *tile* is one chunk of that grid: the elements wanted of it, and where they go in a row
of the result. Chunks as long as the row make one tile, the ordinary case.

A *move* takes elements of tiles to their places by views, and nothing more. Chunks beside one
another of which the same elements are wanted are copied together. What follows one another both as
stored and as handed out is copied as one item of many bytes, which NumPy moves several times faster
than as many small numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.formats.region import Array, Indexer, Ints, Region, c_strides, length


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


Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """One patch of tiles: where its items are stored, and where they go.

    Tiles are ``step`` bytes apart wherever they are read from, so those of the patch are
    ``steps`` of them apart along each of its axes.
    """

    counts: Counts
    """Tiles along each axis, and ..."""
    lengths: Counts
    """... items of each along each axis."""
    first: int
    """Number of the first tile."""
    steps: Counts
    stored_at: int
    """The first byte wanted of a row of a tile, and ..."""
    stored: Counts
    """... from one item to the next."""
    stored_item: np.dtype[Any]
    placed_at: int
    """The same in a row of the result."""
    placed: Counts
    """From one tile, and from one item, to the next."""
    placed_item: np.dtype[Any]

    def reach(self, step: int) -> int:
        """Return how many bytes from the first tile wanted to the end of the last item."""
        spans = zip((*self.counts, *self.lengths), self._strides(step), strict=True)
        inside = sum((n - 1) * stride for n, stride in spans)
        return self.first * step + self.stored_at + inside + self.stored_item.itemsize

    def taken(self, stored: Array, at: int, step: int, shape: Counts, strides: Counts) -> Array:
        """View what is wanted of some rows of tiles `step` bytes apart, the first at byte `at`."""
        return np.ndarray(
            (*shape, *self.counts, *self.lengths),
            self.stored_item,
            stored,
            at + self.first * step + self.stored_at,
            (*strides, *self._strides(step)),
        )

    def target(self, rows: Array, first: int, shape: Counts) -> Array:
        """View where it goes in ``rows``, bytes of shape (n, row bytes), from row `first` on."""
        strides = c_strides((*shape, rows.shape[1]), 1)[:-1]
        return np.ndarray(
            (*shape, *self.counts, *self.lengths),
            self.placed_item,
            rows,
            first * rows.shape[1] + self.placed_at,
            (*strides, *self.placed),
        )

    def _strides(self, step: int) -> Counts:
        return (*(n * step for n in self.steps), *self.stored)


def moves_of(
    tiles: Tiles, chunk: Counts, row: Counts, dtype: np.dtype[Any], *, wanted: bool
) -> list[Move]:
    """Return the moves of all tiles.

    Parameters
    ----------
    tiles : Tiles
        Of a region without lists.
    chunk, row : tuple of int
        Lengths, after the first axis, of a chunk and of the result.
    dtype : dtype
        As stored.
    wanted : bool
        Whether tiles are counted among those wanted, or among all from the first wanted on.
    """
    grid = tiles.shape if wanted else tiles.grid
    begin = 0 if wanted else tiles[0].number
    moves = []
    for patch in tiles.patches():
        number = sum(i * n for i, n in zip(patch.at, c_strides(grid, 1), strict=True))
        first = number if wanted else patch.tile.number - begin
        moves.append(_move(patch, first, grid, chunk, row, dtype))
    return moves


def move_of(tile: Tile, chunk: Counts, row: Counts, dtype: np.dtype[Any]) -> Move:
    """Return the move of one tile alone."""
    alone = Patch(tile, (0,) * len(chunk), (1,) * len(chunk))
    return _move(alone, 0, alone.counts, chunk, row, dtype)


def _move(
    patch: Patch, first: int, grid: Counts, chunk: Counts, row: Counts, dtype: np.dtype[Any]
) -> Move:
    stored_steps, row_steps = c_strides(chunk, dtype.itemsize), c_strides(row, dtype.itemsize)
    counts, steps, apart = [], [], []
    axes: list[tuple[int, int, int]] = []
    stored_at = placed_at = axis = 0
    for index, count, step, stored in zip(
        patch.tile.local, patch.counts, c_strides(grid, 1), stored_steps, strict=True
    ):
        if isinstance(index, int):
            stored_at += index * stored
            continue
        assert isinstance(index, slice)
        trail = patch.tile.trail[axis]
        assert isinstance(trail, slice)
        stored_at += index.start * stored
        placed_at += trail.start * row_steps[axis]
        axes.append((length(index), index.step * stored, row_steps[axis]))
        if count > 1:
            counts.append(count)
            steps.append(step)
            apart.append(length(index) * row_steps[axis])
        axis += 1
    item, axes = _items(axes, dtype)
    return Move(
        tuple(counts),
        tuple(n for n, _, _ in axes),
        first,
        tuple(steps),
        stored_at,
        tuple(stored for _, stored, _ in axes),
        item,
        placed_at,
        (*apart, *(placed for _, _, placed in axes)),
        item.newbyteorder("="),
    )


def _items(
    axes: list[tuple[int, int, int]], dtype: np.dtype[Any]
) -> tuple[np.dtype[Any], list[tuple[int, int, int]]]:
    """Make one item of what follows one another on both sides; bytes to be swapped stay apart."""
    axes = [axis for axis in axes if axis[0] > 1]
    if not dtype.isnative:
        return dtype, axes
    nbytes = dtype.itemsize
    while axes and axes[-1][1:] == (nbytes, nbytes):
        nbytes *= axes.pop()[0]
    return np.dtype((np.void, nbytes)), axes
