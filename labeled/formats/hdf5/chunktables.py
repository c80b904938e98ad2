"""Large tables of chunks, read without HDF5 where they are of a kind that is understood here.

HDF5 calls Python once a chunk, and reads the nodes of a table one by one where they come from a
disk. For files in general that does not matter; where there is a chunk for each of a million
pictures it is what the first batch waits for.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import h5py
import numpy as np

from labeled.formats.bytesource import LocalFile, open_bytes
from labeled.formats.hdf5.chunkarrays import array_entries
from labeled.formats.hdf5.chunktree import tree_entries
from labeled.formats.hdf5.objectheader import ChunkTable, UnknownLayoutError, chunk_table
from labeled.formats.hdf5.safety import MANY_CHUNKS, address
from labeled.formats.header import SourceHeader
from labeled.formats.region import Array, Ints


class Columns(NamedTuple):
    """Chunks as a table has them: numbers in C order over the grid of chunks, int64 and uint64.

    `masks` are uint32, with a bit for each filter that was left out.
    """

    numbers: Ints
    offsets: Array
    sizes: Array
    masks: Array


def read_table(
    source: SourceHeader, dataset: h5py.Dataset, grid: tuple[int, ...]
) -> Columns | None:
    """Read a large table of chunks; None where HDF5 must be asked."""
    chunks = source.chunks
    assert chunks is not None
    if math.prod(grid) < MANY_CHUNKS or dataset.file.userblock_size:
        return None
    file = open_bytes(source.file)
    if not isinstance(file, LocalFile):
        return None
    file.check()
    try:
        table = chunk_table(file, address(dataset)[1])
        if table.lengths[:-1] != chunks:
            return None
        if table.kind == "tree":
            parts = list(_of_tree(file, table, grid))
        else:
            parts = list(_of_array(file, table, grid, dataset.maxshape))
    except (UnknownLayoutError, EOFError, struct.error, IndexError):  # a short message, say
        return None
    return joined(parts)


def joined(parts: Sequence[Columns]) -> Columns:
    """Put columns one behind the other."""
    dtypes = (np.int64, np.uint64, np.uint64, np.uint32)
    empty = [np.empty(0, dtype) for dtype in dtypes]
    numbers, offsets, sizes, masks = map(np.concatenate, zip(empty, *parts, strict=True))
    return Columns(numbers, offsets, sizes, masks)


def _of_tree(file: LocalFile, table: ChunkTable, grid: tuple[int, ...]) -> Iterator[Columns]:
    chunks = table.lengths[:-1]
    for found in tree_entries(file, table, math.prod(grid)):
        numbers = numbers_of(list(found["place"].T), range(len(grid)), chunks, grid)
        yield Columns(numbers, found["offset"], found["size"].astype(np.uint64), found["mask"])


def _of_array(
    file: LocalFile, table: ChunkTable, grid: tuple[int, ...], most_shape: tuple[int | None, ...]
) -> Iterator[Columns]:
    """Read an array, whose places count along the axis that grows first, then the others."""
    axes = sorted(range(len(grid)), key=lambda axis: most_shape[axis] is not None)
    grows = most_shape[axes[0]] is None
    room = [-(-(most_shape[axis] or 0) // table.lengths[axis]) for axis in axes]
    room[0] = grid[axes[0]] if grows else room[0]
    once = (1,) * len(grid)
    for places, offsets, sizes, masks in array_entries(file, table, math.prod(room)):
        steps = np.unravel_index(places, room)
        yield Columns(numbers_of(steps, axes, once, grid), offsets, sizes, masks)


def numbers_of(
    places: Sequence[Array], axes: Sequence[int], chunks: tuple[int, ...], grid: tuple[int, ...]
) -> Ints:
    """Return the chunk numbers of places along some axes, at the first chunk of the others.

    Raises
    ------
    UnknownLayoutError
        If a place is within a chunk, or outside the grid: names the axis.
    """
    numbers = np.zeros(len(places[0]), np.int64)
    for along, axis in zip(places, axes, strict=False):
        steps, within = np.divmod(along, along.dtype.type(chunks[axis]))
        if within.any() or (len(steps) and int(steps.max()) >= max(grid[axis], 1)):
            raise UnknownLayoutError(f"off the grid on axis {axis}")
        numbers += steps.astype(np.int64) * math.prod(grid[axis + 1 :])
    return numbers
