"""Chunks made outside HDF5: rows cut into tiles, shuffled, compressed, and checked.

What HDF5's own filters would do under its lock, one chunk at a time, is done here on plain
bytes, by any number of threads or processes; :mod:`.writing` stores the result
as it is. Nothing here opens a file, and a :class:`Layout` pickles small.

A chunk that compression would not make smaller is stored as it is, with its filters marked
as not applied: HDF5 itself does so, and such a chunk is read without decoding.

Libraries are imported once, when a codec is first asked for: deflate: libdeflate (a core
dependency), else zlib; zstd and lz4: imagecodecs.
"""

from __future__ import annotations

import functools
import itertools
import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from labeled._optional import import_optional
from labeled.errors import MissingExtraError, how_to_install
from labeled.formats.hdf5.safety import to_bytes
from labeled.formats.header import DEFLATE, LZ4, SHUFFLE, ZSTD, Filter
from labeled.formats.memory import scratch
from labeled.formats.region import Array

Compress = Callable[[Array, int], bytes]
"""Bytes (uint8, 1-D) and the option of the filter to compressed bytes."""

_LZ4_BLOCK_BYTES = 1 << 30


class Codec(NamedTuple):
    """How chunks are compressed for one filter."""

    number: int
    filter_name: str
    """As the filter is called in a file."""
    levels: tuple[int, int, int]
    """Lowest, highest and usual."""
    compressor: Callable[[], Compress]
    """Imports the library; raises MissingExtraError where there is none."""
    option: int | None = None
    """The option of the filter, where that is not the level."""


def _deflate() -> Compress:
    library = import_optional("deflate")
    if library is None:
        return lambda data, level: zlib.compress(data.tobytes(), level)
    return lambda data, level: bytes(library.zlib_compress(data, level))


def _zstd() -> Compress:
    library = _imagecodecs("zstd")
    return lambda data, level: bytes(library.zstd_encode(data, level))


def _lz4() -> Compress:
    library = _imagecodecs("lz4")
    return lambda data, block: bytes(library.lz4h5_encode(data, blocksize=block))


def _imagecodecs(codec: str) -> Any:
    library = import_optional("imagecodecs")
    if library is None:
        raise MissingExtraError(
            f"writing {codec} needs imagecodecs; use compression='gzip', or "
            + how_to_install("imagecodecs", "codecs")
        )
    return library


CODECS = {
    "gzip": Codec(DEFLATE, "deflate", (1, 9, 4), _deflate),
    "zstd": Codec(ZSTD, "zstd", (1, 22, 3), _zstd),
    "lz4": Codec(LZ4, "lz4", (0, 0, 0), _lz4, option=_LZ4_BLOCK_BYTES),
}
"""Those that rows can be written with, by what users call them."""

NAMES = {codec.number: name for name, codec in CODECS.items()}
"""What users call them, by the number of the filter."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How a source is stored: contiguous without `chunks`, else in chunks with filters."""

    chunks: tuple[int, ...] | None = None
    filters: tuple[Filter, ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk as it goes into the file: where it begins, filters left out, bytes."""

    offset: tuple[int, ...]
    mask: int
    data: Any


def filters_for(codec: str | None, level: int | None, itemsize: int) -> tuple[Filter, ...]:
    """Return the filter pipeline of a codec; bytes are shuffled where elements have several.

    Raises
    ------
    MissingExtraError
        If no library for the codec is installed.

    Examples
    --------
    >>> [(f.name, f.options) for f in filters_for("gzip", None, 4)]
    [('shuffle', (4,)), ('deflate', (4,))]
    >>> filters_for(None, None, 4)
    ()
    """
    if codec is None:
        return ()
    chosen = CODECS[codec]
    compressor(chosen.number)
    level = chosen.levels[2] if level is None else level
    option = level if chosen.option is None else chosen.option
    packed = Filter(chosen.number, chosen.filter_name, (option,))
    return (packed,) if itemsize == 1 else (Filter(SHUFFLE, "shuffle", (itemsize,)), packed)


def can_encode(filters: tuple[Filter, ...]) -> bool:
    """Whether chunks for a pipeline can be made here: shuffle, then one known codec, or less.

    Examples
    --------
    >>> can_encode((Filter(2, "shuffle", (4,)), Filter(1, "deflate", (4,))))
    True
    >>> can_encode((Filter(3, "fletcher32"),))
    False
    """
    kinds = [step.id for step in filters]
    packers = kinds[1:] if kinds[:1] == [SHUFFLE] else kinds
    known = len(packers) == 0 or (len(packers) == 1 and packers[0] in NAMES)
    return known and all(step.options for step in filters)


def chunks_of(rows: Array, start: int, layout: Layout) -> Iterator[Chunk]:
    """Yield the encoded chunks of some rows of a source.

    Parameters
    ----------
    rows : array (k, *row_shape)
        In the dtype of the file.
    start : int
        Row number of the first; a multiple of the rows of a chunk.
    layout : Layout
        With chunks. Where `rows` end within a chunk it is filled up with zeros.
    """
    assert layout.chunks is not None
    assert start % layout.chunks[0] == 0
    steps = [range(0, n, c) for n, c in zip(rows.shape, layout.chunks, strict=True)]
    for corner in itertools.product(*steps):
        tile = rows[tuple(slice(a, a + c) for a, c in zip(corner, layout.chunks, strict=True))]
        data, mask = encoded(_filled(tile, layout.chunks), layout.filters)
        yield Chunk((start + corner[0], *corner[1:]), mask, data)


def _filled(tile: Array, shape: tuple[int, ...]) -> Array:
    """Return a tile as contiguous memory of the shape of a chunk."""
    if tile.shape == shape:
        return np.ascontiguousarray(tile)
    whole = np.zeros(shape, tile.dtype)
    whole[tuple(map(slice, tile.shape))] = tile
    return whole


def encoded(chunk: Array, filters: tuple[Filter, ...]) -> tuple[Any, int]:
    """Return the bytes of a chunk after its filters, and the mask of filters left out."""
    raw = chunk.reshape(-1).view(np.uint8)
    if not filters:
        return raw, 0
    data = raw
    for step in filters:
        if step.id == SHUFFLE:
            data = shuffled(data, step.options[0])
        else:
            packed = compressor(step.id)(data, step.options[0])
            if len(packed) >= len(raw):
                return raw, (1 << len(filters)) - 1
            return packed, 0
    return np.array(data), 0


def shuffled(data: Array, item: int) -> Array:
    """Put the first bytes of all elements first, then the second ones: memory reused later.

    Examples
    --------
    >>> shuffled(np.frombuffer(b"aAbBcC", np.uint8), 2).tobytes()
    b'abcABC'
    """
    out = scratch("shuffled", len(data))
    elements, planes = data.reshape(-1, item), out.reshape(item, -1)
    for byte in range(item):
        planes[byte] = elements[:, byte]
    return out


def checksum(rows: Array) -> int:
    """Return the CRC-32 of rows as they are in memory; texts count with their lengths.

    So do rows of variable length.

    Examples
    --------
    >>> hex(checksum(np.frombuffer(b"123456789", np.uint8)))
    '0xcbf43926'
    """
    if rows.dtype.kind == "O":
        texts = [to_bytes(v) if isinstance(v, str) else bytes(v) for v in rows.reshape(-1).tolist()]
        raw: Any = b"".join(struct.pack("<Q", len(text)) + text for text in texts)
    else:
        raw = np.ascontiguousarray(rows).reshape(-1).view(np.uint8)
    return crc32()(raw)


@functools.cache
def crc32() -> Callable[[Any], int]:
    """Return the fastest CRC-32 there is; libdeflate's is about ten times zlib's."""
    library = import_optional("deflate")
    return zlib.crc32 if library is None else cast(Callable[[Any], int], library.crc32)


@functools.cache
def compressor(number: int) -> Compress:
    """Return what compresses for a filter.

    Raises
    ------
    MissingExtraError
        If no library for it is installed.
    """
    return CODECS[NAMES[number]].compressor()


def rows_a_unit(row_bytes: int, layout: Layout, unit_bytes: int) -> int:
    """Return how many rows are encoded and checked together: about `unit_bytes`, whole chunks.

    Examples
    --------
    >>> rows_a_unit(3072, Layout(), 1 << 20), rows_a_unit(3072, Layout((64, 3072)), 1 << 18)
    (341, 64)
    """
    step = 1 if layout.chunks is None else layout.chunks[0]
    return max(unit_bytes // max(row_bytes * step, 1), 1) * step


def chunk_bytes(layout: Layout, itemsize: int) -> int:
    """Return the decoded bytes of one chunk; 0 where data are contiguous."""
    return 0 if layout.chunks is None else math.prod(layout.chunks) * itemsize
