"""One named source, over one file or many, or in memory: all between headers and a reader.

A source knows its dims, shape and dtype, which part of each row is wanted, how rows lie in
storage, and how to make a reader. It holds no handle and pickles as headers; readers are built
where they are used. Row numbers count through all files, in the order they were joined.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from labeled.formats.bytesource import is_remote
from labeled.formats.cf import DecodingReader, decode
from labeled.formats.header import CF, SourceHeader, decode_text, is_text
from labeled.formats.reader import PIECE_BYTES, Io, JoinedReader, MemoryReader, Reader, read_rows
from labeled.formats.region import Region, is_whole, narrow, region_shape, whole
from labeled.formats.registry import format_named

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class RowLayout:
    """What is stored, and so read, together: what order and cost of reading depend on.

    Parameters
    ----------
    chunk_rows : int or None
        Rows of a stored chunk; None where any row can be read alone.
    edges : int64 array, optional
        Rows at which chunks begin (and the end of the last), where they are not the
        multiples of `chunk_rows`.
    scratch_bytes : int
        What a thread needs besides the destination while it reads a piece.
    expensive : bool
        A chunk costs more than its bytes: filters are undone, or a graph computed.
    direct : bool
        Stretches of rows are read directly to their destination.
    random : bool
        Rows read one by one cost about what they cost in stretches.
    picked : bool
        Rows in any order are copied one by one out of stored chunks, and nothing else is.
    mapped : bool
        Every row lies in one piece, in memory or in a file that may be mapped there.
    """

    chunk_rows: int | None
    edges: npt.NDArray[np.int64] | None = None
    scratch_bytes: int = 1 << 16
    expensive: bool = False
    direct: bool = False
    random: bool = True
    picked: bool = False
    mapped: bool = False


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
    """

    name: str
    headers: tuple[SourceHeader, ...]
    file_dims: tuple[str, ...]
    region: Region
    io: Io = "auto"
    loaded: Array | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)

    dims: tuple[str, ...] = field(init=False, repr=False)
    """Names of the axes that are left, the example dim first."""
    n_rows: int = field(init=False, repr=False)
    row_shape: tuple[int, ...] = field(init=False, repr=False)
    """Lengths by ``dims[1:]``."""
    stored_dtype: np.dtype[Any] = field(init=False, repr=False)
    """The dtype that a reader hands out: mostly the file's, in native byte order."""
    dtype: np.dtype[Any] = field(init=False, repr=False)
    """The dtype of decoded values."""
    row_bytes: int = field(init=False, repr=False)
    """Bytes of one row as stored in memory before decoding."""
    cf: CF | None = field(init=False, repr=False)
    """How stored values are decoded; None where the reader decodes each file its own way."""
    packed_differently: bool = field(init=False, repr=False)
    """Whether the files differ in CF conventions, so that each is decoded as it is read."""
    part: Region = field(init=False, repr=False)
    """The region; nothing where rows are read whole."""
    decodes: bool = field(init=False, repr=False)
    """Whether stored values differ from what they mean: CF conventions, or text."""

    def __post_init__(self) -> None:
        dims = list(self.file_dims[:1])
        for dim, part in zip(self.file_dims[1:], self.region, strict=True):
            if not isinstance(part, int):
                dims.append(dim)
        n_rows, row_shape, cf, differ, text = 1, region_shape(self.region), None, False, False
        taken: Region = ()
        if self.loaded is not None:
            n_rows, stored_dtype = len(self.loaded), self.loaded.dtype
        else:
            first, *others = self.headers
            n_rows = first.n_rows if self.file_dims else 1
            for other in others:
                n_rows += other.n_rows
                differ = differ or repr(other.cf) != repr(first.cf)
            cf = None if differ else first.cf
            text = first.dtype.kind == "O" and is_text(first.dtype)
            taken = () if is_whole(self.region, first.row_shape) else self.region
            stored_dtype = decoded_dtype(first) if differ else first.dtype.newbyteorder("=")
        self.__dict__.update(
            dims=tuple(dims),
            n_rows=n_rows,
            row_shape=row_shape,
            stored_dtype=stored_dtype,
            dtype=stored_dtype if cf is None else cf.dtype,
            row_bytes=math.prod(row_shape) * stored_dtype.itemsize,
            cf=cf,
            packed_differently=differ,
            part=taken,
            decodes=cf is not None or text,
        )

    @classmethod
    def of(cls, headers: tuple[SourceHeader, ...], io: Io = "auto") -> Source:
        """Make the source of one header a file, taking whole rows."""
        first = headers[0]
        return cls(first.name, headers, first.dims, whole(first.row_shape), io, attrs=first.attrs)

    @classmethod
    def of_array(cls, name: str, dims: tuple[str, ...], rows: Array) -> Source:
        """Make the source of an array in memory, its example dim first."""
        return cls(name, (), dims, whole(rows.shape[1:]), loaded=rows)

    def in_memory(self, rows: Any) -> Source:
        """Put decoded rows in memory in the place of those in the files."""
        return replace(self, loaded=rows, file_dims=self.dims, region=whole(rows.shape[1:]))

    def as_stored(self) -> Source:
        """Return the source without CF decoding, with all attributes of the file.

        One whose files differ in CF conventions stays as it is.
        """
        if self.packed_differently:
            return self
        headers = tuple(replace(header, cf=None) for header in self.headers)
        return replace(self, headers=headers, attrs={**self.attrs, **headers[0].used_attrs})

    @property
    def ragged(self) -> str | None:
        return None

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

    def __getstate__(self) -> dict[str, Any]:
        """Travel as headers: how rows lie in storage follows from them."""
        return {name: value for name, value in self.__dict__.items() if name != "layout"}

    @cached_property
    def layout(self) -> RowLayout:
        """What is stored together, counted through all files."""
        if self.loaded is not None:
            return RowLayout(None, direct=True, mapped=True)
        first, in_part = self.headers[0], bool(self.part)
        chunks, here, kinds, scratch, expensive = first.chunks, True, set(), 2 * PIECE_BYTES, False
        plain = across = even = True
        start, files = 0, []
        for header in self.headers:
            kinds.add(header.storage)
            here = here and not is_remote(header.file.path)
            scratch = max(scratch, 2 * PIECE_BYTES + header.scratch_bytes)
            expensive = expensive or bool(header.filters)
            plain = plain and header.dtype.isnative and not header.detail
            across = across and (header.chunks or ())[1:] == header.row_shape
            if chunks is not None:
                even = even and header.chunks == chunks and start % chunks[0] == 0
                files.append((start, start + header.n_rows, (header.chunks or chunks)[0]))
            start += header.n_rows
        mappable = here and self.io != "pread"
        if chunks is None:
            direct = kinds == {"contiguous"} and not in_part and not self.packed_differently
            random = kinds <= {"contiguous", "records"} and here
            mapped = direct and mappable
            return RowLayout(None, None, scratch, expensive, direct, random=random, mapped=mapped)
        itemsize = self.stored_dtype.itemsize
        scratch += (3 if itemsize == 1 else 4) * math.prod(chunks) * itemsize
        # rows of chunks, or parts of rows, lie in the file as they are
        picked = plain and mappable and not in_part and not expensive and kinds == {"chunked"}
        edges = None if even else np.concatenate([np.arange(*each) for each in files] + [[start]])
        return RowLayout(
            chunks[0],
            edges,
            scratch,
            expensive,
            random=False,
            picked=picked,
            mapped=picked and across,
        )

    def narrow(self, axes: Mapping[int, Any]) -> Source:
        """Take part of the trailing axes; `axes` counts among ``dims[1:]``."""
        region = narrow(self.region, axes, self.dims[1:])
        if self.loaded is None:
            return replace(self, region=region)
        rows, dims = self.loaded, list(self.dims)
        for axis in range(len(region), 0, -1):  # the last first, so that others keep their number
            rows = rows[(slice(None),) * axis + (region[axis - 1],)]
            if isinstance(region[axis - 1], int):
                del dims[axis]
        return replace(self, loaded=rows, file_dims=tuple(dims), region=whole(rows.shape[1:]))

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
        readers: list[Reader] = []
        for header in self.headers:
            opened = format_named(header.format)
            reader = opened.open_reader(header, region=self.part, io=self.io)
            if header.cf is not None and self.packed_differently:
                reader = DecodingReader(reader, header.cf)
            readers.append(reader)
        return readers[0] if len(readers) == 1 else JoinedReader(tuple(readers))

    def whole(self) -> Array:
        """Read every row, decoded; the value of a variable without axes."""
        if not self.file_dims:
            return self.decode(format_named(self.headers[0].format).read_scalar(self.headers[0]))
        return self.decode(read_rows(self.reader(), range(self.n_rows)))

    def decode(self, raw: Array) -> Array:
        """Turn stored values into what they mean: CF scale, offset, fill and times; text."""
        if self.cf is not None:
            return decode(raw, self.cf)
        return decode_text(raw) if self.decodes else raw

    @cached_property
    def token(self) -> str:
        """A digest of which file data this is: paths, sizes, times, dataset, region."""
        digest = digest_of(self.headers)
        for part in self.region:
            digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
        ways = tuple(header.cf for header in self.headers) if self.packed_differently else self.cf
        digest.update(repr((self.name, ways, self.dtype.str)).encode())
        if self.loaded is not None:
            rows: Any = np.ascontiguousarray(self.loaded)
            numbers = rows.dtype.kind in "biufc"  # hashed without a copy
            digest.update(rows.reshape(-1).view(np.uint8) if numbers else rows.tobytes())
        return digest.hexdigest()

    def __dask_tokenize__(self) -> str:
        return self.token


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


def decoded_dtype(header: SourceHeader) -> np.dtype[Any]:
    """Return the dtype of one file's values after CF decoding, in native byte order."""
    return header.dtype.newbyteorder("=") if header.cf is None else header.cf.dtype


def is_elsewhere(headers: Iterable[SourceHeader]) -> bool:
    """Whether a row may take a request of its own, so that rows are best read in stretches."""
    return any(map(is_remote, [header.file.path for header in headers]))
