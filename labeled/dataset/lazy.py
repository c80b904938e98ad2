"""Sources as lazy arrays: nothing is read before rows are asked for, and then only those.

A :class:`LazyArray` holds rows of a source and reads what it is indexed with. xarray wraps it
for ``engine="labeled"``, and every block of a dask array is one.

A dask array is one blockwise layer: block number -> the rows of that block -> one
read. A permuted selection of n blocks is n tasks; each reads every stored chunk it
touches once. Slicing such an array with dask would instead build a graph the size of
its blocks, so a new selection always rebuilds the layer from the composed rows.

Blocks begin and end where stored chunks do, as far as a selection allows, so that computing
block by block decodes each chunk once; and there are never so many that their graph is slow.

A block is read by dask's own `getter`: where an array is sliced before it is computed, dask
joins the slices with the reading, and of each block only what is asked is read.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
from dask.base import tokenize
from dask.blockwise import BlockwiseDep, blockwise
from dask.highlevelgraph import HighLevelGraph
from dask.utils import parse_bytes
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer, IndexingSupport, explicit_indexing_adapter

from labeled._optional import LazyModule
from labeled.errors import DimsError, warn
from labeled.formats.reader import read_rows
from labeled.selection import Selection
from labeled.sources.loading import enough_memory
from labeled.sources.readers import BLOCK_BYTES
from labeled.sources.source import Source

da: Any = LazyModule("dask.array")
core: Any = LazyModule("dask.array.core")

MAX_BLOCKS = 10_000
"""Blocks an array is cut into at most, unless chunks are given outright."""


BlockLengths = tuple[tuple[int, ...], ...]
"""The lengths of blocks, one after another, along each axis."""

DECODE_WARNING, LOOKED_AT = 2.0, 100
"""A warning is given where the first blocks decode stored chunks more often than this."""


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
        return source.decode(read_rows(source.reader(), selection.rows if span is None else span))


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
    if source.stored_chunks is None or not source.headers[0].filters or len(blocks[0]) < 2:
        return
    edges = np.cumsum([0, *blocks[0][:LOOKED_AT]])
    chunk_of = selection.take(np.arange(edges[-1])) // source.stored_chunks[0]
    touched = sum(len(np.unique(chunk_of[a:b])) for a, b in itertools.pairwise(edges))
    factor = touched / max(1, len(np.unique(chunk_of)))
    if factor > DECODE_WARNING:
        warn(
            f"{source.where}: computing these {len(selection)} rows block by block decodes each "
            f"stored chunk about {factor:.0f} times. To decode once: iterate with .batches(), ask "
            f"for larger blocks (chunks={{{source.dims[0]!r}: ...}}), or sort the rows first",
        )


def block_shapes(source: Source, selection: Selection, chunks: Any) -> BlockLengths:
    """Decide the lengths of blocks along each axis, rows first.

    Parameters
    ----------
    source : Source
    selection : Selection
        Rows, in the order wanted.
    chunks : "auto", int, tuple, dict by dim, or None
        As dask takes them; "auto" gives whole multiples of the stored chunks where
        the selection allows, of about 16 MiB each: smaller where dask's ``array.chunk-size``
        is, larger where there would be more than 10,000 of them.

    Raises
    ------
    DimsError
        If `chunks` do not fit the source.
    """
    shape = (len(selection), *source.row_shape)
    wanted = _by_axis(chunks, source.dims)
    stored = stored_along(source)
    limit = min(BLOCK_BYTES, int(parse_bytes(dask.config.get("array.chunk-size"))))
    # Strings of no fixed length count as 64 bytes, so that "auto" can work with them.
    dtype = np.dtype("S64") if source.dtype.kind in "OT" else source.dtype
    rows = _as_few(stored[0], shape[0], limit // max(1, math.prod(stored) * dtype.itemsize))
    previous = (rows, *stored[1:]) if "auto" in wanted else None
    try:
        sizes = list(
            da.core.normalize_chunks(
                wanted, shape, limit=limit, dtype=dtype, previous_chunks=previous
            )
        )
    except (ValueError, TypeError) as error:
        raise DimsError(
            f"chunks={wanted} do not fit {source.where}, whose dims are "
            f"{dict(zip(source.dims, shape, strict=True))}: {error}; pass chunks={{dim: length}}"
        ) from None
    for axis in range(1, len(shape) if shape[0] else 0):
        if wanted[axis] == "auto":
            sizes[axis] = _whole_chunks(max(sizes[axis]), stored[axis], shape[axis])
    if wanted[0] == "auto" and shape[0]:
        blocks_across = int(np.prod([len(axis) for axis in sizes[1:]], dtype=np.int64))
        rows = max(max(sizes[0]), -(-shape[0] * blocks_across // MAX_BLOCKS))
        rows += -rows % stored[0]
        sizes[0] = aligned(selection, rows, stored[0], source.file_starts)
    return tuple(sizes)


def _as_few(chunk_rows: int, n_rows: int, fitting: int) -> int:
    """Take stored chunks together, as many as fit, until no more are left than blocks may be.

    Dask lists every chunk it is given: 17 seconds for 10^8 rows stored one by one.
    """
    together = -(-n_rows // (chunk_rows * MAX_BLOCKS))
    return chunk_rows * max(1, min(together, fitting))


def _whole_chunks(length: int, chunk: int, size: int) -> tuple[int, ...]:
    """Cut an axis of `size` into blocks of at least `length`, whole stored chunks each."""
    length = max(1, min(size, length + -length % max(1, chunk)))
    full, rest = divmod(size, length)
    return (length,) * full + ((rest,) if rest or not full else ())


def aligned(
    selection: Selection, block_rows: int, chunk_rows: int, file_starts: tuple[int, ...] = (0,)
) -> tuple[int, ...]:
    """Cut `selection` into blocks that begin where stored chunks begin, where it is a range."""
    n, span = len(selection), selection.span
    first = block_rows
    if span is not None and span.step == 1 and len(file_starts) <= 1:
        first = block_rows - span.start % chunk_rows
    if first >= n:
        return (n,)
    full, rest = divmod(n - first, block_rows)
    return (first, *(block_rows,) * full, *((rest,) if rest else ()))


def _by_axis(chunks: Any, dims: tuple[str, ...]) -> tuple[Any, ...]:
    if isinstance(chunks, dict):
        return tuple(chunks.get(dim, "auto" if axis == 0 else -1) for axis, dim in enumerate(dims))
    if isinstance(chunks, tuple | list):
        return tuple(chunks)
    if chunks is None:
        return (-1,) * len(dims)
    return (chunks, *("auto" if chunks == "auto" else -1,) * (len(dims) - 1))


def stored_rows(source: Source, selection: Selection) -> int | tuple[int, ...]:
    """Return how many rows lie in a stored chunk, or in as many as MAX_BLOCKS blocks allow.

    Of a selection that does not begin with a chunk, or of several files, the lengths of all
    blocks.
    """
    chunk = stored_along(source)[0]
    rows = _as_few(chunk, len(selection), len(selection))
    lengths = aligned(selection, rows, chunk, source.file_starts)
    return rows if len(lengths) < 2 or lengths[0] == rows else lengths


def stored_along(source: Source) -> tuple[int, ...]:
    """Stored chunk lengths along the axes that are left (1 where data are contiguous)."""
    stored = source.stored_chunks
    if stored is None:
        return (1, *source.row_shape)
    kept = [
        n for n, part in zip(stored[1:], source.region, strict=True) if not isinstance(part, int)
    ]
    sizes = zip(kept, source.row_shape, strict=True)
    return (stored[0], *(max(1, min(each)) for each in sizes))


def _start_dask_afresh() -> None:
    """Let dask start threads in a forked child: it would wait for its parent's for ever."""
    threaded: Any = sys.modules.get("dask.threaded")
    if hasattr(threaded, "default_pool") and hasattr(threaded, "pools"):
        threaded.default_pool, threaded.pools_lock = None, Lock()
        threaded.pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_dask_afresh)
