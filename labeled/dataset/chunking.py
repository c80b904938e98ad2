"""How long the blocks of a lazy array are along each axis.

Blocks begin and end where stored chunks do, as far as a selection allows, so that computing
block by block decodes each chunk once; and there are never so many that their graph is slow.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, cast

import dask
import numpy as np
from dask.utils import parse_bytes

from labeled.errors import DimsError, did_you_mean
from labeled.formats.region import Indexer
from labeled.later import Later
from labeled.selection import Selection
from labeled.sources.blocks import BLOCK_BYTES
from labeled.sources.source import Source

da: Any = Later("dask.array")

MAX_BLOCKS = 10_000
"""Blocks an array is cut into at most, unless chunks are given outright."""


BlockLengths = tuple[tuple[int, ...], ...]
"""The lengths of blocks, one after another, along each axis."""


def block_shapes(source: Source, selection: Selection, chunks: Any) -> BlockLengths:
    """Decide the lengths of blocks along each axis, rows first.

    Parameters
    ----------
    source : Source
    selection : Selection
        Rows, in the order wanted.
    chunks : "auto", int, tuple, dict by dim, or None
        As dask takes them; "auto" gives whole multiples of the stored chunks where
        the selection allows, of about 16 MiB each, read or decoded: smaller where dask's
        ``array.chunk-size`` is, larger where there would be more than 10,000 of them.

    Raises
    ------
    DimsError
        If `chunks` do not fit the source.
    """
    shape = (len(selection), *source.row_shape)
    wanted = _by_axis(chunks, source.dims)
    stored = stored_along(source)
    sizes = list(_normalized(source, wanted, shape, stored))
    if not shape[0]:
        return tuple(sizes)
    for axis in range(1, len(shape)):
        if wanted[axis] == "auto":
            sizes[axis] = _whole_chunks(max(sizes[axis]), stored[axis], shape[axis])
    if wanted[0] == "auto":
        blocks_across = int(np.prod([len(axis) for axis in sizes[1:]], dtype=np.int64))
        most = max(1, _limit() // max(1, _decoded_bytes(source)))
        rows = max(min(max(sizes[0]), most), -(-shape[0] * blocks_across // MAX_BLOCKS))
        rows += -rows % stored[0]
        sizes[0] = aligned(selection, rows, stored[0], source.file_starts)
    return tuple(sizes)


def _normalized(
    source: Source, wanted: tuple[Any, ...], shape: tuple[int, ...], stored: tuple[int, ...]
) -> BlockLengths:
    limit = _limit()
    dtype = _sized(source.dtype)
    rows = _as_few(stored[0], shape[0], limit // max(1, math.prod(stored) * dtype.itemsize))
    try:
        sizes = da.core.normalize_chunks(
            wanted,
            shape,
            limit=limit,
            dtype=dtype,
            previous_chunks=(rows, *stored[1:]) if "auto" in wanted else None,
        )
    except (ValueError, TypeError) as error:
        raise DimsError(
            f"chunks={wanted} do not fit {source.where}, whose dims are "
            f"{dict(zip(source.dims, shape, strict=True))}: {error}; pass chunks={{dim: length}}"
        ) from None
    return cast("BlockLengths", sizes)


def _as_few(chunk_rows: int, n_rows: int, fitting: int) -> int:
    """Take stored chunks together, as many as fit, until no more are left than blocks may be.

    Dask lists every chunk it is told of: 17 seconds for 10^8 rows stored one by one.
    """
    together = -(-n_rows // (chunk_rows * MAX_BLOCKS))
    return chunk_rows * max(1, min(together, fitting))


def _limit() -> int:
    """Bytes of a block that "auto" aims at."""
    return min(BLOCK_BYTES, int(parse_bytes(dask.config.get("array.chunk-size"))))


def _decoded_bytes(source: Source) -> int:
    """Bytes that are decoded for a row to take a part of it; 0 where none are, or all are kept.

    One value of every picture takes as long as the whole pictures, so that blocks of such
    values have no more rows than blocks of pictures.
    """
    if source.loaded is not None or not source.headers[0].filters:
        return 0
    header = source.headers[0]
    chunks = header.row_shape if header.chunks is None else header.chunks[1:]
    touched = [
        chunk * min(-(-size // chunk), _chunks_touched(part, chunk))
        for chunk, size, part in zip(chunks, header.row_shape, source.region, strict=True)
        if chunk
    ]
    return math.prod(touched) * source.stored_dtype.itemsize


def _chunks_touched(part: Indexer, chunk: int) -> int:
    """Count the chunks along an axis that a part of it lies in; nothing is as long as the axis.

    Examples
    --------
    >>> _chunks_touched(slice(3, 2**40), 2**20), _chunks_touched(slice(0, 100, 30), 10)
    (1048576, 4)
    """
    if not isinstance(part, slice):
        return int(np.unique(np.asarray(part) // chunk).size)
    wanted = range(part.start, part.stop, part.step or 1)
    if not wanted or wanted.step > chunk:
        return len(wanted)
    return wanted[-1] // chunk - wanted[0] // chunk + 1


def _whole_chunks(length: int, chunk: int, size: int) -> tuple[int, ...]:
    """Cut an axis of `size` into blocks of at least `length`, whole stored chunks each."""
    length = max(1, min(size, length + -length % max(1, chunk)))
    full, rest = divmod(size, length)
    return (length,) * full + ((rest,) if rest or not full else ())


def check_chunks(chunks: Any, dims: Collection[str], where: str) -> None:
    """Refuse chunks that no array could have, when files are opened.

    Parameters
    ----------
    chunks : Any
        As a user gave them.
    dims : collection of str
        All dims there are.
    where : str
        How messages name the files.

    Raises
    ------
    DimsError
        If a dim is unknown, or a length is none.
    """
    if isinstance(chunks, dict):
        for dim in chunks:
            if dim not in dims:
                hint = did_you_mean(str(dim), dims)
                raise DimsError(f"chunks= names {dim!r}, which is no dim of {where}; {hint}")
        lengths = tuple(chunks.values())
    else:
        lengths = tuple(chunks) if isinstance(chunks, tuple | list) else (chunks,)
    for length in lengths:
        if not _is_length(length):
            raise DimsError(
                f"chunks={chunks!r}: {length!r} is no length of a block; give a positive number "
                "of positions, -1 (the whole axis), 'auto', a size such as '64 MiB', or lengths "
                "one after another"
            )


def _is_length(length: Any) -> bool:
    if isinstance(length, tuple | list):
        return all(_is_length(each) and not isinstance(each, str) for each in length)
    if isinstance(length, str):
        return length == "auto" or _is_size(length)
    whole_number = isinstance(length, int | np.integer) and not isinstance(length, bool)
    return length is None or (whole_number and (length > 0 or length == -1))


def _is_size(text: str) -> bool:
    try:
        return bool(parse_bytes(text) > 0)
    except ValueError:
        return False


def aligned(
    selection: Selection, block_rows: int, chunk_rows: int, file_starts: tuple[int, ...] = (0,)
) -> tuple[int, ...]:
    """Cut `selection` into blocks that begin where stored chunks begin, where it is a range."""
    n, stretch = len(selection), selection.stretch
    first = block_rows
    if stretch is not None and len(file_starts) <= 1:
        first = block_rows - stretch.start % chunk_rows
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
