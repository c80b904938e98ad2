"""How elements of tiles get to their places in rows of the result: views, and nothing more.

Chunks beside one another of which the same elements are wanted are copied together. What
follows one another both as stored and as handed out is copied as one item of many bytes,
which NumPy moves several times faster than as many small numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.formats.hdf5.tiles import Patch, Tile, Tiles
from labeled.formats.region import Array, c_strides, length

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
