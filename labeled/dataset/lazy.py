"""Sources as lazy arrays: nothing is read before rows are asked for, and then only those.

A :class:`LazyArray` holds rows of a source and reads what it is indexed with. xarray wraps it
for ``engine="labeled"``, and every block of a dask array is one.

A dask array is one blockwise layer: block number -> the rows of that block -> one
read. A permuted selection of n blocks is n tasks; each reads every stored chunk it
touches once. Slicing such an array with dask would instead build a graph the size of
its blocks, so a new selection always rebuilds the layer from the composed rows.

A block is read by dask's own `getter`: where an array is sliced before it is computed, dask
joins the slices with the reading, and of each block only what is asked is read.
"""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.base import tokenize
from dask.blockwise import BlockwiseDep, blockwise
from dask.highlevelgraph import HighLevelGraph
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer, IndexingSupport, explicit_indexing_adapter

from labeled.dataset.chunking import BlockLengths, block_shapes, stored_along
from labeled.errors import warn
from labeled.later import Later
from labeled.selection import Selection
from labeled.sources.loading import enough_memory
from labeled.sources.source import Source

da: Any = Later("dask.array")
core: Any = Later("dask.array.core")

DECODE_WARNING = 2.0
"""A warning is given where stored chunks would be decoded more often than this, on average."""


@dataclass(frozen=True, eq=False)
class LazyArray(BackendArray):
    """Rows of a source under the names of their dims, read where they are indexed.

    It holds no handle, so that it pickles, and may be read by several threads at a time.

    Parameters
    ----------
    source : Source
        A variable without axes has no rows.
    rows : Selection
    dims : tuple of str
        One name an axis. Without a name for the rows there is one row, and no axis for it.
    """

    source: Source
    rows: Selection
    dims: tuple[str, ...]

    @property
    def has_rows(self) -> bool:
        """Whether the first axis is that of the rows."""
        return len(self.dims) > len(self.source.row_shape) and bool(self.source.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        if not self.source.dims:
            return ()
        return (len(self.rows), *self.source.row_shape)[not self.has_rows :]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    def __getitem__(self, key: ExplicitIndexer | tuple[Any, ...]) -> npt.NDArray[Any]:
        """Read what is asked, one request for each axis as xarray's outer indexing takes them."""
        if isinstance(key, ExplicitIndexer):
            found: npt.NDArray[Any] = explicit_indexing_adapter(
                key, self.shape, IndexingSupport.OUTER, self._read
            )
            return found
        return self._read(key)

    def _read(self, index: tuple[Any, ...]) -> npt.NDArray[Any]:
        if not self.source.dims:
            return self.source.whole()
        one, *inner = index if self.has_rows else (0, *index)
        rows = [one] if isinstance(one, int | np.integer) else one
        read = read_block(self.source.narrow(dict(enumerate(inner))), self.rows[rows])
        found: npt.NDArray[Any] = read if rows is one else read[0]
        return found

    def read(self) -> npt.NDArray[Any]:
        """Read everything."""
        return self._read((slice(None),) * len(self.dims))

    def blocks(self, chunks: Any) -> BlockLengths:
        """Decide the lengths of blocks along each axis; see :func:`block_shapes`."""
        if not self.source.dims:
            return ()
        return block_shapes(self.source, self.rows, chunks)[not self.has_rows :]

    def part(self, *axes: slice) -> LazyArray:
        """Take a part of each axis, lazily."""
        rows, *inner = axes if self.has_rows else (slice(None), *axes)
        source = self.source.narrow(dict(enumerate(inner)))
        return replace(self, source=source, rows=self.rows[rows])


class Blocks(BlockwiseDep):
    """The blocks of a lazy array by their numbers."""

    produces_tasks = False

    def __init__(self, array: LazyArray, chunks: BlockLengths) -> None:
        self.array = array
        self.chunks = chunks
        self.numblocks = tuple(len(axis) for axis in chunks)
        self._edges = tuple(np.cumsum([0, *axis]) for axis in chunks)

    def __getitem__(self, block: tuple[int, ...]) -> LazyArray:
        edges = zip(self._edges, block, strict=True)
        return self.array.part(*(slice(int(e[n]), int(e[n + 1]), 1) for e, n in edges))

    def __dask_tokenize__(self) -> tuple[str, str, Any]:
        return self.array.source.token, self.array.rows.token, self.chunks


def read_block(source: Source, selection: Selection) -> npt.NDArray[Any]:
    """Read the decoded rows of a selection.

    Raises
    ------
    UnsafeFileError
        If they are out of all proportion to what the file stores.
    RowsMemoryError
        If memory does not suffice for them.
    """
    source.check_claim(len(selection))
    span = selection.span
    with enough_memory(source, selection):
        return source.decode(source.reader().read(selection.rows if span is None else span))


def dask_array(array: LazyArray, blocks: BlockLengths) -> Any:
    """Return a lazy array as a dask array of blocks of these lengths, NumPy arrays each.

    Memory is taken, and claims of the file are checked, block by block.

    Raises
    ------
    FileFormatError
        If the source reaches past the end of its file.
    """
    source = array.source
    source.check_claim(0)
    name = f"read-{source.name.rpartition('/')[2]}-{tokenize(source, array.rows.token, blocks)}"
    axes = "".join(chr(97 + axis) for axis in range(len(blocks)))
    every = (slice(None),) * len(blocks)
    read = Blocks(array, blocks)
    layer = blockwise(core.getter, name, axes, read, axes, every, None, numblocks={})
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[])
    meta = np.empty((0,) * len(blocks), source.dtype)
    return da.Array(graph, name, chunks=blocks, meta=meta, shape=array.shape)


def warn_of_repeated_decoding(array: LazyArray, blocks: BlockLengths) -> None:
    """Warn where computing block by block would decode stored chunks over and over."""
    source, selection = array.source, array.rows
    stored = source.stored_chunks
    if stored is None or not source.headers[0].filters or max(map(len, blocks)) < 2:
        return
    factor = _row_factor(selection, stored[0], np.cumsum([0, *blocks[0]]))
    for cuts, chunk in zip(blocks[1:], stored_along(source)[1:], strict=True):
        if len(cuts) > 1:
            edges = np.cumsum([0, *cuts])
            reach = -(-edges[1:] // chunk) - edges[:-1] // chunk
            factor *= float(reach.sum()) / max(1, -(-int(edges[-1]) // chunk))
    if factor > DECODE_WARNING:
        warn(
            f"{source.where}: computing these {len(selection)} rows block by block decodes each "
            f"stored chunk {factor:.1f} times. To decode once: iterate with .batches(), ask for "
            f"larger blocks (chunks={{{source.dims[0]!r}: ...}}), or sort the rows first",
        )


def _row_factor(selection: Selection, chunk_rows: int, edges: npt.NDArray[np.int64]) -> float:
    """Return how often the blocks of a selection touch each stored chunk along the rows."""
    if len(edges) <= 2:
        return 1.0
    span = selection.span
    if span is None:
        return _touched(selection.rows, chunk_rows, edges)
    firsts = span.start + edges[:-1] * span.step
    lasts = span.start + (edges[1:] - 1) * span.step
    reach = np.abs(lasts // chunk_rows - firsts // chunk_rows) + 1
    across = abs(int(lasts[-1]) // chunk_rows - int(firsts[0]) // chunk_rows) + 1
    return float(np.minimum(reach, np.diff(edges)).sum() / min(across, len(span)))


def _touched(positions: npt.NDArray[np.int64], chunk: int, edges: npt.NDArray[np.int64]) -> float:
    chunk_of = positions // chunk
    touched = sum(len(np.unique(chunk_of[a:b])) for a, b in itertools.pairwise(edges))
    return touched / max(1, len(np.unique(chunk_of)))


def _start_dask_afresh() -> None:
    """Let dask start threads in a forked child: it would wait for its parent's for ever."""
    threaded: Any = sys.modules.get("dask.threaded")
    if hasattr(threaded, "default_pool") and hasattr(threaded, "pools"):
        threaded.default_pool, threaded.pools_lock = None, Lock()
        threaded.pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_dask_afresh)
