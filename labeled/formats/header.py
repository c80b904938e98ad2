"""What opening a file tells, whatever its format: plain, frozen, picklable values.

Nothing here holds a handle. A header is made once, when a file is opened, and read by
everything else; readers are built from a :class:`SourceHeader` alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Rows = range | np.ndarray[Any, Any]

# Where the bytes are. Only "contiguous" and "chunked" may be read by byte range. "records" are
# found one by one, so that rows in any order cost what stretches cost. "empty" has no bytes
# (nothing allocated, or an axis of length 0): it reads as fill values. "sparse" is a matrix of
# several datasets, its `parts`. "foreign" has bytes that are not those of `dtype` (odd bit widths,
# padded strings), so h5py must convert them.
Storage = Literal[
    "contiguous",
    "chunked",
    "records",
    "misplaced",
    "compact",
    "empty",
    "foreign",
    "virtual",
    "external",
    "sparse",
]

ALL = "all"  # the split of a file that names none

_hash = partial(hashlib.blake2b, digest_size=16)

# why a variable without axes is left out
CALLED_LIKE_A_DIM = "it is a single value called like a dim, and xarray has one name for both"


DEFLATE, SHUFFLE, FLETCHER32 = 1, 2, 3
LZF, BLOSC, LZ4, BITSHUFFLE, ZSTD = 32000, 32001, 32004, 32008, 32015

# short names, by number: files hold whole sentences for some, addresses in them
FILTER_NAMES = {
    DEFLATE: "gzip",
    SHUFFLE: "shuffle",
    FLETCHER32: "fletcher32",
    307: "bzip2",
    LZF: "lzf",
    BLOSC: "blosc",
    LZ4: "lz4",
    BITSHUFFLE: "bitshuffle",
    32013: "zfp",
    ZSTD: "zstd",
    32017: "sz",
    32024: "sz3",
    32026: "blosc2",
}


class FileStamp(NamedTuple):
    """Which file was opened: enough to notice that it is another one now.

    A tuple, for each read looks its file up by it.
    """

    path: str
    size: int
    mtime_ns: int
    # bytes that a gzip-compressed file contains, if these are what positions count
    unpacked_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class FilterInfo:
    """One step of a chunk's filter pipeline, as HDF5 numbers it (1 deflate, 2 shuffle, ...)."""

    id: int
    name: str
    options: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """This step as h5py users name it.

        Examples
        --------
        >>> FilterInfo(1, "deflate", (4,)).words, FilterInfo(2, "shuffle", (8,)).words
        ('gzip 4', 'shuffle')
        >>> FilterInfo(99, "").words
        'filter 99'
        >>> FilterInfo(32015, "HDF5 zstd filter; see https://example.org").words
        'zstd'
        """
        if self.id == DEFLATE and self.options:
            return f"gzip {self.options[0]}"
        return FILTER_NAMES.get(self.id) or self.name or f"filter {self.id}"


@dataclass(frozen=True, slots=True)
class CF:
    """CF decoding of a variable: packed numbers, fill values to NaN, or times; see :mod:`.cf`."""

    dtype: np.dtype[Any]  # what comes out, in native byte order
    # the attributes that tell how; they keep the dtype they have in the file, on which rounding
    # depends
    attrs: tuple[tuple[str, Any], ...] = ()
    fills: tuple[Any, ...] = ()  # values that stand for nothing, as they are read

    @property
    def changes_values(self) -> bool:
        """Whether values come out as others; else they only have another dtype."""
        if self.dtype.kind in "mM":
            return True
        steps = (key for key, value in self.attrs if value == value)  # NaN hides nothing
        return any(key not in ("dtype", "units") for key in steps)


@dataclass(frozen=True, slots=True)
class SourceHeader:
    """One named array of a file, as far as headers tell."""

    file: FileStamp
    name: str  # what users say: `"features"`, `"camera/left"`
    key: str  # what the file calls it: a path in HDF5, a column of text
    shape: tuple[int, ...]
    dtype: np.dtype[Any]  # the dtype in the file (big-endian stays big-endian); before CF decoding
    dims: tuple[str, ...]  # one name an axis; axis 0 is the example axis
    attrs: Mapping[str, Any] = field(default_factory=dict)
    # further attributes of the file, which `cf` and `coords` stand for
    used_attrs: Mapping[str, Any] = field(default_factory=dict)
    storage: Storage = "contiguous"
    # byte offset of contiguous data in the file; None where nothing is allocated
    offset: int | None = None
    chunks: tuple[int, ...] | None = None
    filters: tuple[FilterInfo, ...] = ()
    fill_value: Any = 0
    stored_bytes: int | None = 0  # None where counting is slow: see Format.stored_bytes
    cf: CF | None = None
    # Why this source holds examples of different shapes (None for a dense one). Its `dims` then
    # name the axes of the examples too, so they outnumber `shape`, which is `(n_rows,)`.
    ragged: str | None = None
    # names (in the file header's `variables`) of the coordinates of this source
    coords: tuple[str, ...] = ()
    # datasets that a source is made of, by role: "values", "offsets", "shapes" of a ragged one,
    # "data", "indices", "indptr" of a sparse matrix
    parts: Mapping[str, SourceHeader] = field(default_factory=dict)
    format: str = "hdf5"  # the name of the format whose readers read it
    # what these need to know besides; its repr tells all that values of rows depend on
    detail: Any = None
    # what a thread needs while it reads a piece, besides the piece and chunks
    scratch_bytes: int = 0

    @property
    def where(self) -> str:
        """``source 'name' in 'file'``, the beginning of every message."""
        return f"source {self.name!r} in {self.file.path!r}"

    @property
    def n_rows(self) -> int:
        return self.shape[0]

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.shape[1:]

    @property
    def is_column(self) -> bool:
        """Whether it is a part of the items of an HDF5 table."""
        return self.format == "hdf5" and self.detail is not None and self.storage != "records"

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class FileHeader:
    """All that opening a file tells."""

    stamp: FileStamp
    sources: Mapping[str, SourceHeader]
    # split -> source -> rows of that source; only sources available in the split
    splits: Mapping[str, Mapping[str, Rows]]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    # coordinates, and variables without the example dim (carried whole)
    variables: Mapping[str, SourceHeader] = field(default_factory=dict)
    # datasets that are not sources, each with the reason
    not_opened: Mapping[str, str] = field(default_factory=dict)
    # the example dim of a netCDF-style file; None where axis 0 of each source is it
    example_dim: str | None = None
    kind: str = "plain"  # one of Format.kinds
    # names among `variables` that are coordinates, whether a source has their dims or not
    coordinates: frozenset[str] = frozenset()
    format: str = "hdf5"
    group: str = ""  # which of several groups of the file this one describes
    # what whoever opens it should know; each follows the name of the file
    warnings: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """How messages name it: the path of the file, and of the group in it."""
        return f"{self.stamp.path}/{self.group}" if self.group else self.stamp.path

    @property
    def stamps(self) -> tuple[FileStamp, ...]:
        """All files that it describes, by path."""
        by_path = {self.stamp.path: self.stamp}
        for source in self.sources.values():
            by_path[source.file.path] = source.file
        return tuple(dict(sorted(by_path.items())).values())

    @property
    def fingerprint(self) -> str:
        """A hash over names, shapes, dtypes, dims and splits; not path, time or layout."""
        parts: list[object] = []
        for name in sorted(self.sources):
            header = self.sources[name]
            parts.append((name, header.shape, header.dtype.str, header.dims))
        hashed: dict[int, str] = {}
        for split, sources in sorted(self.splits.items()):
            parts.append(split)
            for name, rows in sorted(sources.items()):
                if not isinstance(rows, range) and id(rows) not in hashed:
                    hashed[id(rows)] = _hash(rows.data).hexdigest()
                parts.append((name, hashed.get(id(rows), rows)))
        return _hash(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()


# items of no fixed size: h5py notes in the metadata of their dtype what they are, `vlen` for
# text (str or bytes) and for rows (the dtype of their numbers)

Array = npt.NDArray[Any]

TEXT: np.dtype[Any] = np.dtype(object, metadata={"vlen": str})  # objects that are text


def first_rounded(whole: Array, dtype: np.dtype[Any]) -> int | None:
    """Return where the first integer stands that a dtype of floats would round."""
    exact = 2 ** (np.finfo(dtype).nmant + 1)  # all integers up to here
    far = np.flatnonzero((whole > exact) | (whole < -exact)).tolist()
    return next((at for at in far if int(whole[at].astype(dtype)) != whole[at]), None)


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether a stored dtype is text of variable length (fixed-length text stays bytes).

    Examples
    --------
    >>> is_text(TEXT), is_text(np.dtype(object)), is_text(np.dtype("S4"))
    (True, False, False)
    """
    return dtype.metadata is not None and dtype.metadata.get("vlen") in (str, bytes)


def vlen_base(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the dtype of the numbers in a variable-length row; None for other dtypes."""
    base = None if dtype.metadata is None else dtype.metadata.get("vlen")
    if base is None:
        return None
    numbers: np.dtype[Any] = np.dtype(base)
    return numbers if numbers.kind in "biufc" else None


def decode_text(raw: Array) -> Array:
    """Turn an object array of UTF-8 bytes into one of str; undecodable bytes are kept visible.

    Examples
    --------
    >>> decode_text(np.array([b"caf\\xc3\\xa9"], object))
    array(['café'], dtype=object)
    """
    out = np.empty(raw.shape, object)
    for place, item in enumerate(raw.reshape(-1)):
        text = item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else item
        out.reshape(-1)[place] = text
    return out
