"""Chunks across a row: the elements wanted of each, and where they go.

A *tile* is one chunk of those that hold the same rows: the elements wanted of it, and where they go
in a row of the result; chunks as wide as rows make one tile. A *move* is a copy of one tile, or of
several in step. Integers only: nothing here sees an array.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from labeled.formats.region import Indexer, Region, c_strides


class Tile(NamedTuple):
    """One chunk of the grid over the axes after the first."""

    number: int
    """In C order over that grid."""
    local: Region
    """The elements wanted, counted within the chunk."""
    trail: Region
    """Their places in a row of the result; integers have dropped their axis."""


class Tiles(Sequence[Tile]):
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
    >>> [tuple(tile) for tile in tiles]
    [(0, (slice(3, 4, 1), 2), (slice(0, 1, 1),)), (1, (slice(0, 3, 1), 2), (slice(1, 4, 1),))]
    """

    def __init__(self, region: Region, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
        self._grid = tuple(-(-n // c) for n, c in zip(shape, chunks, strict=True))
        self._cuts = [_cut(index, chunk) for index, chunk in zip(region, chunks, strict=True)]
        self._shape = tuple(map(len, self._cuts))
        self.per_band = math.prod(self._grid)
        """Chunks of the whole grid beside one another, wanted or not."""

    def __len__(self) -> int:
        return math.prod(self._shape)

    def __getitem__(self, k: Any) -> Any:
        if not 0 <= k < len(self):
            raise IndexError(k)
        number, local, trail = 0, [], []
        at = np.unravel_index(k, self._shape) if self._shape else ()
        for cut, i, n in zip(self._cuts, at, self._grid, strict=True):
            coord, wanted, place = cut[int(i)]
            number = number * n + coord
            local.append(wanted)
            if place is not None:
                trail.append(place)
        return Tile(number, tuple(local), tuple(trail))


def _cut(index: Indexer, chunk: int) -> list[tuple[int, Indexer, Indexer | None]]:
    """Return the chunks that an indexer touches, what it takes of each, and where that goes."""
    if isinstance(index, int):
        return [(index // chunk, index % chunk, None)]
    wanted = np.arange(index.start, index.stop, index.step) if isinstance(index, slice) else index
    coords, which = np.unique(wanted // chunk, return_inverse=True)
    if isinstance(index, slice) or (which[1:] >= which[:-1]).all():
        ends = np.searchsorted(which, np.arange(len(coords) + 1)).tolist()
        places: list[Any] = [slice(a, b, 1) for a, b in itertools.pairwise(ends)]
    else:
        places = [np.flatnonzero(which == i) for i in range(len(coords))]
    found: list[tuple[int, Indexer, Indexer | None]] = []
    for coord, place in zip(coords.tolist(), places, strict=True):
        inside: Any = wanted[place] - coord * chunk
        if isinstance(index, slice):
            inside = slice(int(inside[0]), int(inside[-1]) + 1, index.step)
        found.append((coord, inside, place))
    return found


class Move(NamedTuple):
    """How the elements of tiles that lie in step go to a row of the result: as the widest items."""

    item: np.dtype[Any]
    shape: tuple[int, ...]
    """The number of tiles, then lengths within one."""
    begin: int
    strides: tuple[int, ...]
    """In bytes, from the first chunk of a band on."""
    to: int
    to_strides: tuple[int, ...]
    """The same from the beginning of a row of the result on."""


def moves_of(
    tiles: Sequence[Tile],
    chunk: tuple[int, ...],
    chunk_bytes: int,
    row: tuple[int, ...],
    itemsize: int,
) -> list[Move]:
    """Return what copies tiles whose indexers are slices and integers, and which lie in turn.

    Examples
    --------
    >>> tiles = Tiles((slice(0, 2, 1), slice(0, 8, 1)), (2, 8), (1, 4))
    >>> (move,) = moves_of(tiles, (1, 4), 40, (2, 8), 1)
    >>> move.shape, move.strides, move.to_strides
    ((4, 1), (40, 4), (4, 8))
    """
    moves: list[Move] = []
    for t, tile in enumerate(tiles):
        move = _move(tile, t * chunk_bytes, chunk, row, itemsize)
        if moves:
            before, n = moves[-1], moves[-1].shape[0]
            step = before.to_strides[0] if n > 1 else move.to - before.to
            strides = (chunk_bytes, *before.strides[1:])
            to_strides = (step, *before.to_strides[1:])
            joined = Move(
                before.item, (1, *before.shape[1:]), before.begin + n * chunk_bytes,
                (0, *strides[1:]), before.to + n * step, (0, *to_strides[1:]),
            )  # fmt: skip
            if joined == move:
                shape = (n + 1, *before.shape[1:])
                move = before._replace(shape=shape, strides=strides, to_strides=to_strides)
                moves.pop()
        moves.append(move)
    return moves


def _move(
    tile: Tile, begin: int, chunk: tuple[int, ...], row: tuple[int, ...], itemsize: int
) -> Move:
    to, axis = 0, 0
    axes: list[tuple[int, int, int]] = []
    steps, to_steps = c_strides(chunk, itemsize), c_strides(row, itemsize)
    for index, step in zip(tile.local, steps, strict=True):
        if isinstance(index, int):
            begin += index * step
            continue
        place = tile.trail[axis]
        assert isinstance(index, slice)
        assert isinstance(place, slice)
        begin, to = begin + index.start * step, to + place.start * to_steps[axis]
        axes.append((place.stop - place.start, index.step * step, to_steps[axis]))
        axis += 1
    while axes and axes[-1][1] == axes[-1][2] == itemsize:
        itemsize *= axes.pop()[0]
    shape, strides, to_strides = zip((1, 0, 0), *axes, strict=True)
    return Move(np.dtype((np.void, itemsize)), shape, begin, strides, to, to_strides)
