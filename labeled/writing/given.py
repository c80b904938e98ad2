"""One source as it was given to be written: dtype, shape, names, and rows block by block."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from labeled.formats.hdf5.scales import Names
from labeled.formats.region import Array
from labeled.ragged.flat import Rows, block_cuts

TEXT_BYTES = 256
"""What a text is taken to be in memory where nobody has seen one."""

FIRST_TEXTS = 64
PLACES = 8
"""Texts are looked at in so many places, to know how long they are."""


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Some consecutive rows: read by a call, or computed by dask."""

    start: int
    stop: int
    read: Callable[[], Any] | None = None
    delayed: Any = None
    shapes: Array | None = None
    """Of the examples in it, where these have different shapes."""
    first: int | None = None
    """The number of its first example, where rows are no examples but their values."""
    n_bytes: int | None = None
    """Of its rows in memory, where that is known better than from their number."""


Blocks = Callable[[int], Iterator[Block]]
"""Cuts a source into blocks; takes how many rows a block should have where that is free."""


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """One source as it was given."""

    name: str
    dtype: np.dtype[Any]
    """As stored; object for texts."""
    shape: tuple[int | None, ...]
    """The first is None where rows come in batches whose number is not known."""
    names: Names
    attrs: Mapping[str, Any]
    blocks: Blocks
    encode: Callable[[Array], Array] | None = None
    """Turns times into the numbers that are stored."""
    mean_bytes: int | None = None
    """What a row takes, where rows differ in length."""
    least_bytes: int = 0
    """Of the most that comes in one piece: a block of dask's, an example."""
    batch_bytes: int = 0
    """Of the first batch, where rows come in batches that are made as they are asked for."""
    example_dims: tuple[str, ...] = ()
    """The dims of a source of examples of different shapes, whose values these are."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        return tuple(int(n or 0) for n in self.shape[1:])

    @property
    def row_bytes(self) -> int:
        if self.mean_bytes is not None:
            return self.mean_bytes
        return int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize


def sizes_of_texts(rows: Array) -> Rows:
    """Return what each row of texts takes in memory, itself included."""
    if rows.dtype.kind != "O" or not rows.size:
        return np.full(len(rows), rows.nbytes // max(len(rows), 1))
    flat = rows.reshape(-1)
    sizes = np.fromiter(map(sys.getsizeof, flat), np.int64, len(flat)) + 8
    by_row: Rows = sizes.reshape(len(rows), -1).sum(axis=1)
    return by_row


def mean_of_texts(read: Callable[[int, int], Any], n_rows: int) -> int:
    """Return what a row of texts takes in memory, as far as a few of them tell."""
    few = FIRST_TEXTS // PLACES
    starts = {max(n_rows - few, 0) * place // (PLACES - 1) for place in range(PLACES)}
    sizes = [sizes_of_texts(np.asarray(read(a, min(a + few, n_rows)))) for a in sorted(starts)]
    found = np.concatenate(sizes)
    return max(int(found.mean()), 1) if len(found) else TEXT_BYTES


def text_blocks(
    read: Callable[[int, int], Any], n_rows: int, row_bytes: int, rows: int, *, step: int = 1
) -> Iterator[Block]:
    """Yield blocks of texts: nobody knows how long they are before they are read.

    They are read while blocks are handed out, by multiples of `step` rows, as many as would
    take what `rows` rows of `row_bytes` do if they were like those before them.
    """
    most, start, count = rows * row_bytes, 0, FIRST_TEXTS
    while start < n_rows:
        stop = min(start + -(-count // step) * step, n_rows)
        values = np.asarray(read(start, stop))
        sizes = sizes_of_texts(values)
        for a, b in pairwise(block_cuts(sizes, most)):
            got = partial(np.asarray, values[a:b])
            yield Block(start + a, start + b, got, n_bytes=int(sizes[a:b].sum()))
        count = min(2 * count, max(most * len(sizes) // max(int(sizes.sum()), 1), 1))
        start = stop


def slices(read: Callable[[int, int], Any], n_rows: int, rows: int) -> Iterator[Block]:
    """Yield blocks of `rows` rows, each read by ``read(start, stop)``."""
    for start in range(0, n_rows, rows):
        stop = min(start + rows, n_rows)
        yield Block(start, stop, partial(read, start, stop))


@dataclass(frozen=True, slots=True, eq=False)
class Passing:
    """A source whose rows come in order, as often as somebody begins anew.

    Such is a compressed member of an archive, or a column of a table: nobody can jump into it.

    Parameters
    ----------
    dtype : numpy.dtype
    shape : tuple of int
    begin : callable of int
        Begins at row 0 and yields arrays of at most so many rows, one after another.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: Callable[[int], Iterator[Array]]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Array:
        """Return consecutive rows; everything before them is read too."""
        start, stop, _ = rows.indices(len(self))
        found, at = [np.empty((0, *self.shape[1:]), self.dtype)], 0
        for block in self.begin(max(stop, 1)):
            found.append(block[max(start - at, 0) : max(stop - at, 0)])
            at += len(block)
            if at >= stop:
                break
        return np.concatenate(found)
