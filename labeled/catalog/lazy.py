"""Sources as dask arrays, with the selection already pushed into the read.

A lazy array is one blockwise layer: block number -> the rows of that block -> one
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
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.base import tokenize
from dask.blockwise import BlockwiseDep, blockwise
from dask.highlevelgraph import HighLevelGraph

from labeled.catalog.chunking import block_shapes, stored_along
from labeled.catalog.loading import enough_memory
from labeled.catalog.source import Source
from labeled.errors import warn
from labeled.later import Later
from labeled.selection import Selection

da: Any = Later("dask.array")
core: Any = Later("dask.array.core")

DECODE_WARNING = 2.0
"""A warning is given where stored chunks would be decoded more often than this, on average."""


@dataclass(frozen=True, eq=False)
class Block:
    """One block of a lazy array, read where it is indexed.

    Parameters
    ----------
    source : Source
    selection : Selection
        Rows of the block.
    parts : tuple of slice
        Its part of each trailing axis.
    """

    source: Source
    selection: Selection
    parts: tuple[slice, ...]

    def __getitem__(self, index: tuple[int | slice | list[int], ...]) -> npt.NDArray[Any]:
        """Read what is asked of the block, one request for each axis."""
        one, *inner = index
        rows = [one] if isinstance(one, int | np.integer) else one
        source = self.source
        for parts in (self.parts, inner):
            source = source.narrow(dict(enumerate(parts)))
        read = read_block(source, self.selection[rows])
        found: npt.NDArray[Any] = read if rows is one else read[0]
        return found


class Blocks(BlockwiseDep):
    """The blocks of a lazy array by their numbers."""

    produces_tasks = False

    def __init__(
        self, source: Source, selection: Selection, chunks: tuple[tuple[int, ...], ...]
    ) -> None:
        self.source = source
        self.selection = selection
        self.chunks = chunks
        self.numblocks = tuple(len(axis) for axis in chunks)
        self._edges = tuple(np.cumsum([0, *axis]) for axis in chunks)

    def __getitem__(self, block: tuple[int, ...]) -> Block:
        rows, *parts = (
            slice(int(edges[number]), int(edges[number + 1]), 1)
            for edges, number in zip(self._edges, block, strict=True)
        )
        return Block(self.source, self.selection[rows], tuple(parts))

    def __dask_tokenize__(self) -> tuple[str, str, Any]:
        return self.source.token, self.selection.token, self.chunks


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


def lazy_array(source: Source, selection: Selection, chunks: Any = "auto") -> Any:
    """Return the selected rows of a source as a dask array.

    Parameters
    ----------
    source : Source
        Dims ``source.dims``.
    selection : Selection
        Rows, in the order wanted.
    chunks : "auto", int, tuple, dict by dim, or None
        As dask takes them; "auto" gives whole multiples of the stored chunks where
        the selection allows, of about 16 MiB each, read or decoded: smaller where dask's
        ``array.chunk-size`` is, larger where there would be more than 10,000 of them
        (see :mod:`labeled.catalog.chunking`).

    Returns
    -------
    dask.array.Array
        Lengths ``(len(selection), *source.row_shape)``; NumPy blocks. Memory is taken, and
        claims of the file are checked, block by block.

    Raises
    ------
    DimsError
        If `chunks` do not fit the source.
    FileFormatError
        If the source reaches past the end of its file.
    """
    shape = (len(selection), *source.row_shape)
    blocks = block_shapes(source, selection, chunks)
    source.check_claim(0)
    _warn_of_repeated_decoding(source, selection, blocks)
    name = f"read-{source.name.rpartition('/')[2]}-{tokenize(source, selection.token, blocks)}"
    axes = "".join(chr(97 + axis) for axis in range(len(shape)))
    every = (slice(None),) * len(shape)
    read = Blocks(source, selection, blocks)
    layer = blockwise(core.getter, name, axes, read, axes, every, None, numblocks={})
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[])
    meta = np.empty((0,) * len(shape), source.dtype)
    return da.Array(graph, name, chunks=blocks, meta=meta, shape=shape)


def _warn_of_repeated_decoding(
    source: Source, selection: Selection, blocks: tuple[tuple[int, ...], ...]
) -> None:
    """Say so when computing block by block would decode stored chunks over and over."""
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
