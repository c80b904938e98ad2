"""Chunks of examples that are datasets of their own: where they are, read and decoded by place."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import h5py
import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.bytesource import OpenFile
from labeled.formats.clock import decoding
from labeled.formats.hdf5.filters import Pipeline, why_not
from labeled.formats.hdf5.layout import filters_of
from labeled.formats.header import Filter
from labeled.formats.reading import scratch
from labeled.formats.region import Array, Ints

KEPT_PIPELINES = 256
"""Sizes of chunks for which decoders are kept; examples of different shapes have many."""


@dataclass(frozen=True, eq=False)
class ChunkPlaces:
    """Where the chunks of examples are.

    Parameters
    ----------
    filters : tuple of Filter
        Of all of them.
    shapes : int64 (n, axes)
        Of the chunks of each example.
    edges : int64 (n + 1,)
        The chunks of example i are those from ``edges[i]`` to ``edges[i + 1]``.
    offsets, sizes, masks : int64 (k,)
        Where each is in the file, its stored bytes, and the filters left out.
    corners : int64 (k, axes)
        Its first element in its example.
    """

    filters: tuple[Filter, ...]
    shapes: Ints
    edges: Ints
    offsets: Ints
    sizes: Ints
    masks: Ints
    corners: Ints

    def read_into(self, file: OpenFile, example: int, target: Array) -> None:
        """Read and decode an example into a C-contiguous array of its shape and dtype.

        Raises
        ------
        DecodeError
            If stored bytes are damaged.
        OSError, EOFError
            If the system cannot read them.
        """
        shape = tuple(self.shapes[example].tolist())
        pipeline = _pipeline(self.filters, math.prod(shape) * target.itemsize, target.itemsize)
        for k in range(int(self.edges[example]), int(self.edges[example + 1])):
            offset, mask = int(self.offsets[k]), int(self.masks[k])
            stored = scratch("each", int(self.sizes[k]), offset)
            file.read_into(stored, offset)
            with decoding():
                if shape == target.shape:
                    pipeline.undo_into(stored.data, mask, target.reshape(-1).view(np.uint8))
                    continue
                chunk = pipeline.undo(stored.data, mask).view(target.dtype)
                corner = self.corners[k].tolist()
                box = tuple(slice(a, a + n) for a, n in zip(corner, shape, strict=True))
                part = target[box]
                part[...] = chunk.reshape(shape)[tuple(map(slice, part.shape))]

    def count(self, runs: Ints) -> int:
        """Return how many chunks some examples have that filters are undone of."""
        if not self.filters:
            return 0
        return int((self.edges[runs[:, 1]] - self.edges[runs[:, 0]]).sum())


@lru_cache(maxsize=KEPT_PIPELINES)
def _pipeline(filters: tuple[Filter, ...], chunk_bytes: int, itemsize: int) -> Pipeline:
    return Pipeline(filters, chunk_bytes, itemsize)


class ChunkLook:
    """Gathers where the chunks of examples are, example after example."""

    def __init__(self, n_axes: int) -> None:
        self.filters: tuple[Filter, ...] | None = None
        self._n_axes = n_axes
        self._shapes, self._edges, self._corners = array("q"), array("q", [0]), array("q")
        self._offsets, self._sizes, self._masks = array("q"), array("q"), array("q")

    def add(self, dataset: Any, plist: Any, path: str, file_bytes: int) -> bool:
        """Note the chunks of the next example; False, and none noted, if HDF5 has to read it.

        `dataset` and `plist` are h5py's identifiers of it and of its creation properties.

        Raises
        ------
        FileFormatError
            If a chunk reaches past the end of the file.
        """
        chunk, filters = plist.get_chunk(), filters_of(plist)
        if self.filters is None:
            self.filters = filters
        found: list[Any] = []
        if filters == self.filters and why_not(filters) is None and not _misplaced(dataset):
            dataset.chunk_iter(found.append)
        n_chunks = math.prod(-(-n // c) for n, c in zip(dataset.shape, chunk, strict=True))
        if len(found) != n_chunks:  # others read as the fill value
            self.skip()
            return False
        for one in found:
            if one.byte_offset + one.size > file_bytes:
                raise FileFormatError(
                    f"a chunk of {path!r} is said to reach to byte {one.byte_offset + one.size}, "
                    f"but the file has {file_bytes}; it is damaged, so copy it again"
                )
            self._offsets.append(one.byte_offset)
            self._sizes.append(one.size)
            self._masks.append(one.filter_mask)
            self._corners.extend(one.chunk_offset)
        self._shapes.extend(chunk)
        self._edges.append(len(self._offsets))
        return True

    def skip(self) -> None:
        """Note that the next example has no chunks."""
        self._shapes.extend([0] * self._n_axes)
        self._edges.append(len(self._offsets))

    def found(self) -> ChunkPlaces:
        """Return the places of all chunks."""
        edges, offsets, sizes, masks = (
            np.array(one, np.int64)
            for one in (self._edges, self._offsets, self._sizes, self._masks)
        )
        shapes, corners = (
            np.array(one, np.int64).reshape(n, self._n_axes)
            for one, n in ((self._shapes, len(edges) - 1), (self._corners, len(offsets)))
        )
        return ChunkPlaces(self.filters or (), shapes, edges, offsets, sizes, masks, corners)


def _misplaced(dataset: Any) -> bool:
    """Whether HDF5 may tell wrong places: where the one unlimited axis is not axis 0."""
    most = dataset.get_space().get_simple_extent_dims(True)
    unlimited = [axis for axis, n in enumerate(most) if n == h5py.h5s.UNLIMITED]
    return len(unlimited) == 1 and unlimited != [0]
