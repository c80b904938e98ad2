"""Sources as dask arrays, with the selection already pushed into the read.

A lazy array is one blockwise layer: block number -> the rows of that block -> one
read. A permuted selection of n blocks is n tasks; each reads every stored chunk it
touches once. Slicing such an array with dask would instead build a graph the size of
its blocks, so a new selection always rebuilds the layer from the composed rows.
"""

from __future__ import annotations

import itertools
from typing import Any, cast

import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.array.core import normalize_chunks
from dask.base import tokenize
from dask.blockwise import BlockwiseDep, blockwise
from dask.highlevelgraph import HighLevelGraph

from labeled.catalog.region import whole
from labeled.catalog.source import Source
from labeled.errors import warn
from labeled.selection import Selection

MAX_BLOCKS = 10_000
"""Blocks an array is cut into at most, unless chunks are given outright."""

DECODE_WARNING = 2.0


class BlockRows(BlockwiseDep):
    """What each block reads: its rows, and its part of the trailing axes."""

    produces_tasks = False

    def __init__(self, selection: Selection, chunks: tuple[tuple[int, ...], ...]) -> None:
        self.selection = selection
        self.chunks = chunks
        self.numblocks = tuple(len(axis) for axis in chunks)
        self._edges = tuple(np.cumsum([0, *axis]) for axis in chunks)

    def __getitem__(self, block: tuple[int, ...]) -> tuple[Selection, tuple[slice, ...]]:
        parts = tuple(
            slice(int(edges[number]), int(edges[number + 1]), 1)
            for edges, number in zip(self._edges, block, strict=True)
        )
        return self.selection[parts[0]], parts[1:]

    def __dask_tokenize__(self) -> tuple[str, Any]:
        return self.selection.token, self.chunks


def read_block(block: tuple[Selection, tuple[slice, ...]], source: Source) -> npt.NDArray[Any]:
    """Read one block: the decoded rows of a selection, cut to a part of the trailing axes."""
    selection, parts = block
    if parts != whole(source.row_shape):
        source = source.narrow(dict(enumerate(parts)))
    span = selection.span
    return source.decode(source.reader().read(selection.rows if span is None else span))


def lazy_array(source: Source, selection: Selection, chunks: Any = "auto") -> da.Array:
    """Return the selected rows of a source as a dask array.

    Parameters
    ----------
    source : Source
        Dims ``source.dims``.
    selection : Selection
        Rows, in the order wanted.
    chunks : "auto", int, tuple, dict by dim, or None
        As dask takes them; "auto" gives whole multiples of the stored chunks where
        the selection allows, about dask's ``array.chunk-size`` each.

    Returns
    -------
    dask.array.Array
        Lengths ``(len(selection), *source.row_shape)``; NumPy blocks.
    """
    shape = (len(selection), *source.row_shape)
    blocks = block_shapes(source, selection, chunks)
    source.check_claim(len(selection))
    _warn_of_repeated_decoding(source, selection, blocks[0])
    name = f"read-{source.name.rpartition('/')[2]}-{tokenize(source, selection.token, blocks)}"
    axes = "".join(chr(97 + axis) for axis in range(len(shape)))
    layer = blockwise(
        read_block, name, axes, BlockRows(selection, blocks), axes, numblocks={}, source=source
    )
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[])
    meta = np.empty((0,) * len(shape), source.dtype)
    return da.Array(graph, name, chunks=blocks, meta=meta, shape=shape)


def block_shapes(source: Source, selection: Selection, chunks: Any) -> tuple[tuple[int, ...], ...]:
    """Decide the block lengths along each axis, rows first."""
    shape = (len(selection), *source.row_shape)
    wanted = _by_axis(chunks, source.dims)
    stored = _stored_along(source)
    sizes = normalize_chunks(
        wanted,
        shape,
        dtype=_sized(source.dtype),
        previous_chunks=stored if "auto" in wanted else None,
    )
    if wanted[0] != "auto" or not shape[0]:
        return cast("tuple[tuple[int, ...], ...]", sizes)
    blocks_across = int(np.prod([len(axis) for axis in sizes[1:]], dtype=np.int64))
    least = -(-shape[0] * blocks_across // MAX_BLOCKS)
    rows = max(max(sizes[0]), least)
    rows += -rows % stored[0]
    return (aligned(selection, rows, stored[0], source.file_starts), *sizes[1:])


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


def _sized(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Strings of no fixed length count as 64 bytes, so that "auto" can work with them."""
    return np.dtype("S64") if dtype.kind in "OT" else dtype


def _stored_along(source: Source) -> tuple[int, ...]:
    """Stored chunk lengths along the axes that are left (1 where data are contiguous)."""
    stored = source.stored_chunks
    if stored is None:
        return (1, *source.row_shape)
    kept = [
        min(length, size)
        for length, part, size in _kept(source, stored)
        if not isinstance(part, int)
    ]
    return (stored[0], *(max(1, length) for length in kept))


def _kept(source: Source, stored: tuple[int, ...]) -> list[tuple[int, Any, int]]:
    sizes = iter(source.row_shape)
    return [
        (length, part, 0 if isinstance(part, int) else next(sizes))
        for length, part in zip(stored[1:], source.region, strict=True)
    ]


def _warn_of_repeated_decoding(
    source: Source, selection: Selection, blocks: tuple[int, ...]
) -> None:
    """Say so when the blocks of a scattered selection would decode chunks over and over."""
    stored = source.stored_chunks
    if (
        stored is None
        or selection.span is not None
        or len(blocks) < 2
        or not source.headers[0].filters
    ):
        return
    chunk_of = selection.rows // stored[0]
    edges = np.cumsum([0, *blocks])
    touched = sum(len(np.unique(chunk_of[a:b])) for a, b in itertools.pairwise(edges))
    factor = touched / max(1, len(np.unique(chunk_of)))
    if factor > DECODE_WARNING:
        warn(
            f"{source.where}: computing these {len(selection)} scattered rows block by block "
            f"decodes each stored chunk {factor:.1f} times. To decode once: iterate with "
            ".batches(), ask for larger blocks (chunks={'"
            + source.dims[0]
            + "': ...}), or sort the rows first",
        )
