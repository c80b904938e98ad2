"""One named source, over one file or many, or in memory.

A source knows its dims, shape and dtype, which part of each row is wanted, and how
to make a reader. It holds no handle and pickles as headers; readers are built where
they are used. Row numbers count through all files, in the order they were joined.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from labeled.formats.bytesource import is_remote
from labeled.formats.cf import decode
from labeled.formats.header import CF, DEFLATE, FLETCHER32, SHUFFLE, SourceHeader
from labeled.formats.keeping import ChunkKeeper, keep_decoded
from labeled.formats.objects import decode_text, is_text
from labeled.formats.reader import Reader
from labeled.formats.reading import KEPT_BYTES, PIECE_BYTES
from labeled.formats.region import Region, is_whole
from labeled.formats.registry import format_named
from labeled.sources.layout import RowLayout
from labeled.sources.readers import DecodingReader, JoinedReader, MemoryReader
from labeled.sources.region import narrow, shape_of, whole

Array = npt.NDArray[Any]
Io = Literal["auto", "pread", "mmap"]


HEAP_BYTES = 32 << 20
"""Blocks up to this may stay with the allocator when they are let go of."""

_UNDONE_APART = {DEFLATE, SHUFFLE, FLETCHER32}
"""Filters that leave no memory with the threads that undo them."""


class AnySource(Protocol):
    """What reading, ordering and batching ask of a source, whatever lies behind it."""

    @property
    def name(self) -> str: ...
    @property
    def dims(self) -> tuple[str, ...]: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def row_shape(self) -> tuple[int, ...]: ...
    @property
    def row_bytes(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def stored_dtype(self) -> np.dtype[Any]: ...
    @property
    def decodes(self) -> bool: ...
    @property
    def loaded(self) -> Any:
        """The rows in memory; None where they are read."""

    @property
    def where(self) -> str: ...
    @property
    def token(self) -> str: ...
    @property
    def layout(self) -> RowLayout: ...
    def reader(self) -> Reader: ...
    def decode(self, raw: Array) -> Array: ...


@dataclass(frozen=True, eq=False)
class Source:
    """A named array of one or several files.

    Parameters
    ----------
    name : str
        What users call it.
    headers : tuple of SourceHeader
        One a file, joined along the example axis; all of one dtype, dims and row shape. A
        variable without axes has one header and no dims; only :meth:`whole` reads it.
    file_dims : tuple of str
        Names of all axes in the file, the example dim first.
    region : Region
        What is taken of the trailing axes.
    io : {"auto", "pread", "mmap"}
        How bytes are read.
    loaded : array, optional
        The rows themselves, decoded, where they were read into memory.
    thrifty : bool
        Read with little memory, though stored chunks are large; see :func:`sparing_of`.
    """

    name: str
    headers: tuple[SourceHeader, ...]
    file_dims: tuple[str, ...]
    region: Region
    io: Io = "auto"
    loaded: Array | None = None
    thrifty: bool = False
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, headers: tuple[SourceHeader, ...], io: Io = "auto") -> Source:
        """Make the source of one header a file, taking whole rows."""
        first = headers[0]
        return cls(first.name, headers, first.dims, whole(first.row_shape), io, attrs=first.attrs)

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes that are left, the example dim first."""
        kept = [
            d
            for d, part in zip(self.file_dims[1:], self.region, strict=True)
            if not isinstance(part, int)
        ]
        return (*self.file_dims[:1], *kept)

    @cached_property
    def n_rows(self) -> int:
        if self.loaded is not None:
            return len(self.loaded)
        return sum(header.n_rows for header in self.headers)

    @cached_property
    def row_shape(self) -> tuple[int, ...]:
        """Lengths by ``dims[1:]``."""
        if self.loaded is not None:
            return self.loaded.shape[1:]
        return shape_of(self.region)

    @cached_property
    def cf(self) -> CF | None:
        """How stored values are decoded; None where the reader decodes each file its own way."""
        return None if self.loaded is not None or self.packed_differently else self.headers[0].cf

    def as_stored(self) -> Source:
        """Return the source without CF decoding, with all attributes of the file.

        One whose files differ in CF conventions stays as it is.
        """
        if self.packed_differently:
            return self
        headers = tuple(replace(header, cf=None) for header in self.headers)
        return replace(self, headers=headers, attrs={**self.attrs, **headers[0].used_attrs})

    @cached_property
    def packed_differently(self) -> bool:
        """Whether the files differ in CF conventions, so that each is decoded as it is read."""
        return len({repr(header.cf) for header in self.headers}) > 1

    @cached_property
    def _text(self) -> bool:
        return self.loaded is None and is_text(self.headers[0].dtype)

    @property
    def decodes(self) -> bool:
        """Whether stored values differ from what they mean: CF conventions, or text."""
        return self.cf is not None or self._text

    @property
    def stored_dtype(self) -> np.dtype[Any]:
        """The dtype that a reader hands out: mostly the file's, in native byte order."""
        if self.loaded is not None:
            return self.loaded.dtype
        return (
            decoded_dtype(self.headers[0]) if self.packed_differently else _native(self.headers[0])
        )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of decoded values."""
        return self.stored_dtype if self.cf is None else self.cf.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one row as stored in memory before decoding."""
        return math.prod(self.row_shape) * self.stored_dtype.itemsize

    @property
    def ragged(self) -> str | None:
        return None if self.loaded is not None else self.headers[0].ragged

    @property
    def where(self) -> str:
        """How messages name the source and its file."""
        return where_of(self.name, self.headers)

    @property
    def file_starts(self) -> tuple[int, ...]:
        """Row number at which each file begins."""
        counts = [header.n_rows for header in self.headers]
        return tuple(int(n) for n in np.cumsum([0, *counts[:-1]]))

    @property
    def stored_chunks(self) -> tuple[int, ...] | None:
        """Chunk shape in the file (of the first file), or None where data are contiguous."""
        return None if self.loaded is not None else self.headers[0].chunks

    @property
    def layout(self) -> RowLayout:
        """What is stored together, counted through all files."""
        if self.loaded is not None:
            return RowLayout(None, direct=True, mapped=True)
        chunks = self.headers[0].chunks
        if self.thrifty:
            return self._thrifty_layout
        size = 2 * PIECE_BYTES + max(header.scratch_bytes for header in self.headers)
        if chunks is None:
            kinds = {header.storage for header in self.headers}
            direct = (
                kinds == {"contiguous"} and not self._plain_region and not self.packed_differently
            )
            alone = kinds <= {"contiguous", "records"} and not is_elsewhere(self.headers)
            dear = any(header.filters for header in self.headers)
            mapped = direct and self._mappable
            return RowLayout(None, None, size, dear, direct, random=alone, mapped=mapped)
        each = math.prod(chunks) * self.stored_dtype.itemsize
        size += (3 if self.stored_dtype.itemsize == 1 else 4) * each
        dear = any(header.filters for header in self.headers)
        picked = self._picked
        mapped = picked and all(h.chunks[1:] == h.row_shape for h in self.headers if h.chunks)
        return RowLayout(
            chunks[0], self._edges, size, dear, random=False, picked=picked, mapped=mapped
        )

    @property
    def _picked(self) -> bool:
        """Whether rows of chunks, or parts of rows, lie in the file as they are, to be mapped."""
        plain = all(
            header.storage == "chunked"
            and header.dtype.isnative
            and not (header.filters or header.detail)
            for header in self.headers
        )
        return plain and self._mappable and not self._plain_region

    @property
    def _mappable(self) -> bool:
        """Whether the files may be mapped into memory."""
        return self.io != "pread" and not is_elsewhere(self.headers)

    @property
    def _edges(self) -> Array | None:
        """Rows at which chunks begin, where these are not multiples of a chunk's."""
        first, starts = self.headers[0].chunks, self.file_starts
        assert first is not None
        if all(start % first[0] == 0 for start in starts) and all(
            header.chunks == first for header in self.headers
        ):
            return None
        ends = [*starts[1:], self.n_rows]
        edges = [
            np.arange(a, b, header.chunks[0] if header.chunks else first[0])
            for a, b, header in zip(starts, ends, self.headers, strict=True)
        ]
        return np.append(np.concatenate(edges), self.n_rows)

    @property
    def _thrifty_layout(self) -> RowLayout:
        """What is stored together, where neither jobs nor threads have room for whole chunks."""
        first = self.headers[0]
        assert first.chunks is not None
        size = 2 * PIECE_BYTES + max(header.scratch_bytes for header in self.headers)
        size += 2 * math.prod(first.row_shape) * self.stored_dtype.itemsize
        filtered = [header for header in self.headers if header.filters]
        if not filtered:
            return RowLayout(None, None, size, random=False)
        each = max(map(_chunk_bytes, filtered))
        if any(step.id not in _UNDONE_APART for header in filtered for step in header.filters):
            size += min(each, KEPT_BYTES)
        held = max(map(_band_bytes, filtered)) + (each if each > HEAP_BYTES else 2 * each)
        return RowLayout(
            first.chunks[0], self._edges, size, dear=True, random=False, held_bytes=held
        )

    def narrow(self, axes: Mapping[int, Any]) -> Source:
        """Take part of the trailing axes; `axes` counts among ``dims[1:]``."""
        if self.loaded is not None:
            return replace(self, **_narrow_loaded(self, axes))
        return replace(self, region=narrow(self.region, axes, self.dims[1:]))

    def check_claim(self, n_rows: int) -> None:
        """Refuse what a file claims but does not store, before memory is taken for it.

        Raises
        ------
        UnsafeFileError
            If `n_rows` rows are out of all proportion to what the file stores.
        """
        if self.loaded is None:
            for header in self.headers:
                wanted = min(n_rows, header.n_rows) * self.row_bytes
                format_named(header.format).check_claim(header, wanted)

    def reader(self) -> Reader:
        """Make a reader of stored values, rows numbered through all files."""
        if self.loaded is not None:
            return MemoryReader(self.loaded)
        readers = [self._reader(header) for header in self.headers]
        if self.thrifty:
            keep_decoded(readers, ChunkKeeper())
        return readers[0] if len(readers) == 1 else JoinedReader(tuple(readers))

    def _reader(self, header: SourceHeader) -> Reader:
        opened = format_named(header.format)
        stored = opened.open_reader(header, region=self._plain_region, io=self.io)
        if header.cf is None or not self.packed_differently:
            return stored
        return DecodingReader(stored, header.cf)

    def whole(self) -> Array:
        """Read every row, decoded; the value of a variable without axes."""
        if not self.file_dims:
            return self.decode(format_named(self.headers[0].format).read_scalar(self.headers[0]))
        return self.decode(self.reader().read(range(self.n_rows)))

    @property
    def _plain_region(self) -> Region:
        return () if is_whole(self.region, self.headers[0].row_shape) else self.region

    def decode(self, raw: Array) -> Array:
        """Turn stored values into what they mean: CF scale, offset, fill and times; text."""
        if self._text:
            return decode_text(raw)
        return raw if self.cf is None else decode(raw, self.cf)

    @cached_property
    def token(self) -> str:
        """A digest of which file data this is: paths, sizes, times, dataset, region."""
        digest = digest_of(self.headers)
        for part in self.region:
            digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
        ways = tuple(header.cf for header in self.headers) if self.packed_differently else self.cf
        digest.update(repr((self.name, ways, self.dtype.str)).encode())
        if self.loaded is not None:
            digest.update(_bytes_of(self.loaded))
        return digest.hexdigest()

    def __dask_tokenize__(self) -> str:
        return self.token


def sparing_of(source: AnySource) -> AnySource:
    """Return the same source to be read with the least memory, where stored chunks are large.

    Rows of chunks without filters are read as if there were no chunks. Others are decoded one
    after the other, each once while its rows are wanted, by one thread at a time.
    """
    if not isinstance(source, Source) or source.loaded is not None or source.thrifty:
        return source
    chunked = source.stored_chunks is not None and source.reader().kind == "chunked"
    return replace(source, thrifty=True) if chunked else source


def _chunk_bytes(header: SourceHeader) -> int:
    assert header.chunks is not None
    return math.prod(header.chunks) * header.dtype.itemsize


def _band_bytes(header: SourceHeader) -> int:
    """Bytes of the chunks that hold the same rows."""
    assert header.chunks is not None
    grid = (-(-n // c) for n, c in zip(header.row_shape, header.chunks[1:], strict=True))
    return math.prod(grid) * _chunk_bytes(header)


def where_of(name: str, headers: Sequence[SourceHeader]) -> str:
    """Return how messages name a source and its file."""
    if not headers:
        return f"source {name!r} in memory"
    more = f" and {len(headers) - 1} more files" if len(headers) > 1 else ""
    return f"source {name!r} in {headers[0].file.path!r}{more}"


def digest_of(headers: Iterable[SourceHeader]) -> hashlib.blake2b:
    """Begin a digest with which files these are, as they are now, and which dataset in them."""
    digest = hashlib.blake2b(digest_size=16)
    for header in headers:
        stamp = header.file
        which = stamp.path, stamp.size, stamp.mtime_ns, header.key, header.detail
        digest.update(repr(which).encode())
    return digest


def _bytes_of(array: Array) -> Any:
    """Return what an array holds as bytes; without a copy where that can be."""
    if array.dtype.kind not in "biufc":
        return np.ascontiguousarray(array).tobytes()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def decoded_dtype(header: SourceHeader) -> np.dtype[Any]:
    """Return the dtype of one file's values after CF decoding, in native byte order."""
    return _native(header) if header.cf is None else header.cf.dtype


def _native(header: SourceHeader) -> np.dtype[Any]:
    return header.dtype.newbyteorder("=")


def _narrow_loaded(source: Source, axes: Mapping[int, Any]) -> dict[str, Any]:
    assert source.loaded is not None
    region = narrow(whole(source.row_shape), axes, source.dims[1:])
    array, dims = source.loaded, [source.dims[0]]
    axis = 1
    for name, part in zip(source.dims[1:], region, strict=True):
        array = (
            array.take(part, axis)
            if not isinstance(part, slice)
            else array[(slice(None),) * axis + (part,)]
        )
        if not isinstance(part, int):
            dims.append(name)
            axis += 1
    return {"loaded": array, "file_dims": tuple(dims), "region": whole(array.shape[1:])}


def is_elsewhere(headers: Iterable[SourceHeader]) -> bool:
    """Whether a row may take a request of its own, so that rows are best read in stretches."""
    return any(is_remote(header.file.path) for header in headers)
