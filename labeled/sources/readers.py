"""Readers that stand for several: examples of joined files, and the blocks of a dask array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr
from dask.base import get_scheduler, optimize
from dask.core import flatten
from dask.local import get_sync
from dask.optimization import cull

from labeled.errors import ArrayError, ReadError, is_interrupt
from labeled.formats.reader import ByteRanges, Cost, Joined, MemoryReader, row_nbytes
from labeled.formats.reader import Rows as FileRows
from labeled.ragged.flat import AnyRows, Array, RaggedReader, Rows
from labeled.spaces.arrays import cast

# size that "auto" aims at: small enough that a few blocks at a time fit anywhere
BLOCK_BYTES = 1 << 24


# ---------------------------------------------------------------- ragged examples of several files
def cost_of(reader: Any, rows: Rows) -> Cost:
    """Count what reading examples takes; one call where a reader does not count."""
    nbytes = int(reader.sizes(rows).sum()) * reader.dtype.itemsize
    counted = reader.cost(rows) if hasattr(reader, "cost") else Cost(nbytes, n_reads=1)
    return replace(counted, bytes_used=nbytes)


# a reader of some examples, what tells it which these are, and which of all they are
InOneFile = tuple[RaggedReader, Any, Rows]


class JoinedRagged(Joined, RaggedReader):
    """Readers of ragged sources one after another."""

    def __init__(self, readers: Sequence[Any]) -> None:
        super().__init__(readers)
        self.n_axes = readers[0].n_axes
        self.where = f"{readers[0].where} and {len(readers) - 1} more files"

    def sizes(self, rows: AnyRows) -> Rows:
        out = np.empty(len(rows), np.int64)
        for _, reader, own, places in self.by_list(rows):
            out[places] = reader.sizes(own)
        return out

    def cost(self, rows: AnyRows) -> Cost:
        """Count what reading examples takes, file by file."""
        return sum([cost_of(reader, own) for _, reader, own, _ in self.by_list(rows)], Cost())

    def _found(self, rows: AnyRows) -> tuple[Rows, list[InOneFile]]:
        shapes, found = np.empty((len(rows), self.n_axes), np.int64), list[InOneFile]()
        for _, reader, own, places in self.by_list(rows):
            shapes[places], wanted = reader._found(own)
            found.append((reader, wanted, places))
        return shapes, found

    def read_at(self, rows: AnyRows, out: Array, places: Rows, sizes: Rows) -> Rows:
        """Read examples to their places, file by file: an error names the one that is damaged."""
        shapes = np.empty((len(rows), self.n_axes), np.int64)
        for _, reader, own, which in self.by_list(rows):
            shapes[which] = reader.read_at(own, out, places[which], sizes[which])
        return shapes

    def _check_claim(self, found: list[InOneFile], sizes: Rows) -> None:
        for reader, wanted, places in found:
            reader._check_claim(wanted, sizes[places])

    def _read(
        self, found: list[InOneFile], out: Array, places: Rows, sizes: Rows, threads: int
    ) -> None:
        for reader, wanted, which in found:
            reader._read(wanted, out, places[which], sizes[which], threads)


# ---------------------------------------------------------------- dask blocks
class DaskBlocks:
    """A dask array whose blocks along axis 0 are computed one by one, each when rows are needed.

    The scheduler that is active computes them: a distributed client, else the reading thread, also
    inside a task of a worker where the cluster holds nothing of it. The memory that a graph needs
    while it computes a block is its own; only the blocks handed over count.
    """

    def __init__(self, data: Any, where: str) -> None:
        self.data, self.where = data, where
        self.edges = np.cumsum([0, *data.chunks[0]], dtype=np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the optimised graph, which is made anew where it is needed."""
        return DaskBlocks, (self.data, self.where)

    def readers(self) -> list[BlockReader]:
        """Return a reader of the rows of each block."""
        return [BlockReader(self, number) for number in range(len(self.edges) - 1)]

    @cached_property
    def _graph(self) -> tuple[dict[Any, Any], list[Any]]:
        """The optimised graph as a dict, and the keys of the blocks (nested by axis)."""
        (data,) = optimize(self.data)  # which leaves out what a cluster holds
        layers = [one for one in self.data.dask.layers.values() if one.is_materialized()]
        held = {key: one for layer in layers for key, one in layer.items() if is_held(one)}
        return held | dict(data.__dask_graph__()), data.__dask_keys__()

    def block(self, number: int) -> Array:
        """Compute block `number` along the example dim, whole along all others."""
        graph, keys = self._graph
        get = get_scheduler() or get_sync
        client = getattr(get, "__self__", None)
        try:
            small, _ = cull(graph, list(flatten([keys[number]])))
            # Inside a worker, a thread that waits for tasks may stand in their way.
            in_worker = str(getattr(client, "id", "")).startswith("Client-worker-")
            in_worker = in_worker and not any(map(is_held, small.values()))
            if in_worker or getattr(get, "__module__", "").startswith("dask."):
                get = get_sync  # blocks are already computed side by side, by the reading threads
            found = get(small, keys[number])
            if isinstance(keys[number], list):
                from dask.array.core import concatenate3  # blocks in blocks, axis by axis

                found = concatenate3([found])
            return self._as_announced(found, number)
        except Exception as error:
            if is_interrupt(error):
                raise
            start, stop = self.edges[number], self.edges[number + 1]
            where = f"{self.where}: computing rows {start} to {stop - 1} failed"
            within = "" if getattr(error, "row", None) is None else ", counted within these rows"
            raise ReadError(f"{where}: {error}{within}") from error

    def _as_announced(self, found: Any, number: int) -> Array:
        """Return a block that is what its array said: dask trusts whoever gave dtype and shape."""
        rows, wanted = np.asarray(found), (self.data.chunks[0][number], *self.data.shape[1:])
        if np.ma.is_masked(found):
            raise ArrayError("some values are masked; fill them in with .filled(value)")
        if rows.shape != wanted:
            words = f"a block of shape {rows.shape} where {wanted} was announced"
            raise ArrayError(f"{words}; correct what computes it")
        made: Array = cast(rows, self.data.dtype)
        return made


def is_held(one: Any) -> bool:
    """Whether a node of a graph is a future: what a cluster computes, or holds already."""
    return hasattr(one, "add_done_callback")


class BlockReader:
    """The rows of one block; a :class:`~labeled.formats.reader.Reader`."""

    kind, why = "dask", "whole blocks are computed"

    def __init__(self, blocks: DaskBlocks, number: int) -> None:
        self.blocks, self.number = blocks, number
        self.row_shape, self.dtype = blocks.data.shape[1:], blocks.data.dtype
        self.n_rows = int(blocks.data.chunks[0][number])
        self.chunk_rows = max(1, self.n_rows)

    def read(self, rows: FileRows, out: Array, places: Rows | None = None) -> None:
        MemoryReader(self.blocks.block(self.number)).read(rows, out, places)

    def byte_ranges(self, rows: FileRows) -> Sequence[ByteRanges]:
        """Count the block as read: what a graph reads to compute it is not known."""
        n_bytes = self.n_rows * row_nbytes(self.row_shape, self.dtype)
        return (ByteRanges.elsewhere(np.array([n_bytes]), 1),)


def in_blocks(array: xr.DataArray) -> xr.DataArray:
    """Make a lazy array one of dask blocks: whole stored chunks, about 16 MiB, along axis 0."""
    if array.chunks is not None:
        return array
    if isinstance(array.variable._data, np.ndarray):
        return array.chunk()
    dim, n_rows = array.dims[0], array.shape[0]
    stored = array.encoding.get("preferred_chunks", {}).get(dim, 1)
    step = stored if isinstance(stored, int) else stored[0]
    rows = BLOCK_BYTES // max(1, array.nbytes // max(1, n_rows))
    return array.chunk({dim: max(1, rows // step) * step})
