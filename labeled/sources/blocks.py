"""A dask-backed xarray variable as a source: whole dask blocks are its stored chunks.

Blocks are computed one by one, each when a window needs rows of it, by the scheduler
that is active (a distributed client, else in the reading thread). The memory that a
graph needs while it computes a block is its own; only the blocks handed over count.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import get_scheduler, optimize
from dask.core import flatten
from dask.local import get_sync
from dask.optimization import cull

from labeled._optional import LazyModule
from labeled.errors import DimsError, LoaderError, ReadError
from labeled.formats.reader import UNSTORED, ByteRanges, JoinedReader, MemoryReader, Reader
from labeled.formats.reader import Rows as AnyRows
from labeled.sources.source import RowLayout

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]


core: Any = LazyModule("dask.array.core")

BLOCK_BYTES = 1 << 24
"""Size that "auto" aims at: small enough that a few blocks at a time fit anywhere."""


class BlockSource:
    """One variable of an xarray object, its example dim first.

    Offers what the loader asks of a :class:`~labeled.sources.source.Source`.

    Parameters
    ----------
    name : str
    dims : tuple of str
    data : dask array
        Axis 0 is the example dim.
    """

    decodes = False
    loaded = None

    def __init__(self, name: str, dims: tuple[str, ...], data: Any) -> None:
        self.name, self.dims, self.data = name, dims, data
        self.n_rows, *row_shape = map(int, data.shape)
        self.row_shape = tuple(row_shape)
        self.dtype: np.dtype[Any] = np.dtype(data.dtype)
        self.stored_dtype = self.dtype
        self.row_bytes = math.prod(row_shape) * self.dtype.itemsize
        self.where, self.token = f"variable {name!r}", str(data.name)
        self._edges = np.cumsum([0, *data.chunks[0]], dtype=np.int64)

    @classmethod
    def of(cls, array: xr.DataArray, dim: Hashable, name: str | None = None) -> BlockSource:
        """Take a DataArray apart.

        One in memory becomes one block. One that is read when it is used becomes blocks of
        whole stored chunks of about 16 MiB, whole along all other dims.

        Raises
        ------
        DimsError
            If `dim` is not among its dims.
        LoaderError
            If its blocks have unknown lengths.
        """
        name = str(array.name if name is None else name)
        if dim not in array.dims:
            raise DimsError(f"variable {name!r} has no dim {dim!r}; its dims are {array.dims}")
        turned = array.transpose(dim, ...)
        data = (_in_blocks(turned) if turned.chunks is None else turned).data
        if any(math.isnan(n) for axis in data.chunks for n in axis):
            raise LoaderError(
                f"variable {name!r} has blocks of unknown length; call .compute_chunk_sizes() on "
                "its dask array first"
            )
        return cls(name, tuple(map(str, turned.dims)), data)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel without the optimised graph, which is made anew where it is needed."""
        return BlockSource, (self.name, self.dims, self.data)

    @property
    def layout(self) -> RowLayout:
        rows = max((int(n) for n in self.data.chunks[0]), default=1)
        return RowLayout(rows, self._edges, 2 * rows * self.row_bytes, expensive=True, random=False)

    def reader(self) -> Reader:
        blocks = range(len(self.data.chunks[0]))
        return JoinedReader([BlockReader(self, number) for number in blocks], "blocks")

    def decode(self, raw: Array) -> Array:
        return raw

    @cached_property
    def _graph(self) -> tuple[dict[Any, Any], list[Any]]:
        """The optimised graph as a dict, and the keys of the blocks (nested by axis)."""
        (data,) = optimize(self.data)
        return dict(data.__dask_graph__()), data.__dask_keys__()

    def block(self, number: int) -> Array:
        """Compute block `number` along the example dim, whole along all others."""
        graph, keys = self._graph
        get = get_scheduler() or get_sync
        if getattr(get, "__module__", "").startswith("dask."):
            get = get_sync  # blocks are already computed side by side, by the reading threads
        try:
            small, _ = cull(graph, list(flatten([keys[number]])))
            found = get(small, keys[number])
        except Exception as error:
            start, stop = self._edges[number], self._edges[number + 1]
            raise ReadError(
                f"{self.where}: computing rows {start} to {stop - 1} failed: {error}"
            ) from error
        several = isinstance(keys[number], list)  # one inside the other, axis by axis
        return np.asarray(core.concatenate3([found]) if several else found)


class BlockReader:
    """The rows of one block; a :class:`~labeled.formats.reader.Reader`."""

    kind, why = "dask", "whole blocks are computed"

    def __init__(self, source: BlockSource, number: int) -> None:
        self.source, self.number = source, number
        self.row_shape, self.dtype = source.row_shape, source.dtype
        self.n_rows = int(source.data.chunks[0][number])
        self.chunk_rows = max(1, self.n_rows)

    def read(self, rows: AnyRows, out: Array, places: Rows | None = None) -> None:
        MemoryReader(self.source.block(self.number)).read(rows, out, places)

    def byte_ranges(self, rows: AnyRows) -> Sequence[ByteRanges]:
        """Count the block as read: what a graph reads to compute it is not known."""
        n_bytes = np.array([self.n_rows * self.source.row_bytes])
        return (ByteRanges(None, np.full(1, UNSTORED), n_bytes, 1),)


def _in_blocks(array: xr.DataArray) -> xr.DataArray:
    if isinstance(array.variable._data, np.ndarray):
        return array.chunk()
    dim, n_rows = array.dims[0], array.shape[0]
    stored = array.encoding.get("preferred_chunks", {}).get(dim, 1)
    step = stored if isinstance(stored, int) else stored[0]
    rows = BLOCK_BYTES // max(1, array.nbytes // max(1, n_rows))
    return array.chunk({dim: max(1, rows // step) * step})
