"""IDX as one format among others: files that belong together open as one dataset.

Names of files say which source a file holds, and of which split: ``train-images-idx3-ubyte`` and
``t10k-labels.idx1-ubyte.gz`` are how the MNIST files and their relatives are named;
``images-idx3-ubyte`` does without a split. Anything else is one source, "data".

A file begins with four bytes: two zeros, a code for the dtype, and the number of axes; then
comes the length of each axis as a 32-bit number. Numbers are big-endian throughout. What the
header claims is compared with the size of the file before anyone takes memory for it;
in a gzip-compressed one, with the most that its size could inflate to.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import FileFormatError, UnsafeFileError, warn
from labeled.formats.bytesource import StoredBytes, stamp_of
from labeled.formats.contiguous import ContiguousReader
from labeled.formats.format import Format, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import (
    FileHeader,
    FileStamp,
    Rows,
    SourceHeader,
    fingerprint,
)

SPLITS = {
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "test": "test",
    "t10k": "test",
}
"""Words in names, and the splits they mean."""

ORDER = ("train", "valid", "test")

SOURCES = {
    "images": "images",
    "image": "images",
    "labels": "labels",
    "label": "labels",
    "targets": "targets",
    "features": "features",
}
"""Words in names, and the sources they mean."""

DEFAULT = "data"

_ENDING = re.compile(r"[-._]idx(\d+)?([-._][a-z]+\d*)?(\.gz)?$")


class Named(NamedTuple):
    """What a name says."""

    group: str
    """The same in all files that belong together."""
    split: str | None
    source: str


def is_named_idx(path: str) -> bool:
    """Whether a name is that of an IDX file; a bare ``.idx`` may be an index of something else.

    Examples
    --------
    >>> is_named_idx("t10k-images.idx3-ubyte.gz"), is_named_idx("cifar.idx")
    (True, False)
    """
    found = _ENDING.search(os.path.basename(path).lower())
    return found is not None and found[1] is not None


def what_is_in(path: str) -> Named:
    """Return what the name of a file says.

    Examples
    --------
    >>> what_is_in("/data/emnist-digits-train-images-idx3-ubyte.gz")
    Named(group='emnist-digits', split='train', source='images')
    >>> what_is_in("labels-idx1-ubyte"), what_is_in("faces.idx")
    (Named(group='', split=None, source='labels'), Named(group='', split=None, source='data'))
    """
    stem = _ENDING.sub("", os.path.basename(path).lower())
    words = re.split(r"[-._ ]+", stem.removesuffix(".gz"))
    source = next((SOURCES[word] for word in reversed(words) if word in SOURCES), DEFAULT)
    split = next((SPLITS[word] for word in words if word in SPLITS), None)
    if source == DEFAULT and split is None:
        return Named("", None, DEFAULT)
    group = "-".join(word for word in words if word not in SOURCES and word not in SPLITS)
    return Named(group, split, source)


def in_order(path: str) -> tuple[int, str]:
    """Return what sorts the files of a folder: train before test, then by name."""
    split = what_is_in(path).split
    return (len(ORDER) if split is None else ORDER.index(split), path)


_CHANNELS = (1, 3, 4)


def _scan(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    """Return one header for each set of files that belong together, in the order of the first."""
    units = _units(paths)
    found = [split for split, _ in units if split is not None]
    return tuple(_unit_header(unit, split, found, options) for split, unit in units)


def _units(paths: Sequence[str]) -> list[tuple[str | None, dict[str, str]]]:
    """Put files that differ only in their source together: (split, source -> path)."""
    groups: dict[tuple[str, str | None], list[dict[str, str]]] = {}
    units: list[tuple[str | None, dict[str, str]]] = []
    for path in paths:
        group, split, source = what_is_in(path)
        there = groups.setdefault((group, split), [])
        unit = next((one for one in there if source not in one), None)
        if unit is None:
            unit = {}
            there.append(unit)
            units.append((split, unit))
        unit[source] = path
    return units


def _unit_header(
    unit: dict[str, str], split: str | None, splits: Sequence[str], options: Options
) -> FileHeader:
    where = next(iter(unit.values()))
    names = chosen_sources(unit, options, repr(where))
    sources = {name: _source(name, read_header(unit[name]), options) for name in names}
    _check_counts(sources)
    rows: dict[str, dict[str, Rows]] = {
        each: {n: range(s.n_rows if each == split else 0) for n, s in sources.items()}
        for each in dict.fromkeys(splits)
    }
    rows = rows or all_rows(sources)
    return FileHeader(
        stamp=next(iter(sources.values())).file,
        fingerprint=fingerprint(sources, rows),
        attrs={},
        sources=sources,
        variables={},
        splits=rows,
        not_opened={},
        kind="idx",
        format="idx",
    )


def _source(name: str, header: IdxHeader, options: Options) -> SourceHeader:
    where = repr(header.stamp.path)
    return SourceHeader(
        file=header.stamp,
        name=name,
        key="",
        shape=header.shape,
        dtype=header.dtype,
        dims=dims_of(name, default_dims(header.shape), options, where),
        offset=header.offset,
        stored_bytes=header.stamp.size,
        format="idx",
    )


def default_dims(shape: tuple[int, ...]) -> tuple[str, ...]:
    """Name axes by their number; of four, a last one as long as colours is the channel.

    Examples
    --------
    >>> default_dims((60000, 28, 28)), default_dims((10, 32, 32, 3))
    (('batch', 'height', 'width'), ('batch', 'height', 'width', 'channel'))
    """
    inner: tuple[str, ...]
    if len(shape) == 4:
        last = shape[3] in _CHANNELS and shape[1] not in _CHANNELS
        inner = ("height", "width", "channel") if last else ("channel", "height", "width")
    else:
        known = {1: (), 2: ("feature",), 3: ("height", "width")}
        inner = known.get(len(shape), tuple(f"axis_{axis}" for axis in range(1, len(shape))))
    return ("batch", *inner)


def _check_counts(sources: dict[str, SourceHeader]) -> None:
    counts = {source.file.path: source.n_rows for source in sources.values()}
    if len(set(counts.values())) > 1:
        counts_text = ", ".join(f"{n} in {path!r}" for path, n in counts.items())
        raise FileFormatError(
            f"files that belong together hold different numbers of rows: {counts_text}; name those "
            "that fit, or open them apart"
        )


# the header of a file


DTYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}

MAX_AXES = 64
"""What NumPy can hold."""

_MAX_ROW_BYTES = 1 << 40
_MAX_EMPTY_ROWS = 1 << 24
"""Rows that take no byte, or bytes of a row where there is none."""
GZIP = b"\x1f\x8b"

MAX_EXPANSION = 1032
"""Bytes that one deflated byte may stand for."""


@dataclass(frozen=True, slots=True)
class IdxHeader:
    """The dtype and shape of the array of one file."""

    stamp: FileStamp
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def offset(self) -> int:
        """Where the values begin."""
        return 4 + 4 * len(self.shape)

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def end(self) -> int:
        """Where the values end."""
        return self.offset + self.shape[0] * self.row_bytes


def is_idx(data: bytes) -> bool:
    """Whether the first bytes of a file are those of an IDX file.

    Examples
    --------
    >>> is_idx(bytes([0, 0, 8, 3])), is_idx(bytes([0, 0, 7, 3])), is_idx(b"PK")
    (True, False, False)
    """
    return len(data) >= 4 and data[:2] == b"\0\0" and data[2] in DTYPES and 0 < data[3] <= MAX_AXES


def read_header(path: str) -> IdxHeader:
    """Read and check the header of an IDX file.

    Raises
    ------
    FileFormatError
        If it is not an IDX file, or shorter than its header says.
    UnsafeFileError
        If it claims more than its compressed bytes can stand for.

    Warns
    -----
    LabeledWarning
        If bytes follow its last row.
    """
    stamp = stamp_of(path)
    packed = StoredBytes(stamp).pread(0, 2) == GZIP
    start = _first_bytes(stamp, 4, packed=packed)
    if not is_idx(start):
        raise FileFormatError(
            f"file {stamp.path!r} is not an IDX file: it begins with {start.hex(' ') or 'nothing'}"
            ", where two zero bytes, a code of a dtype (08, 09, 0b, 0c, 0d or 0e) and a number of "
            "axes should stand; check the path"
        )
    n_axes = start[3]
    data = _first_bytes(stamp, 4 + 4 * n_axes, packed=packed)
    if len(data) < 4 + 4 * n_axes:
        raise FileFormatError(
            f"file {stamp.path!r} ends within its header, which should tell the lengths of "
            f"{n_axes} axes; copy it again"
        )
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", offset=4))
    header = IdxHeader(stamp, DTYPES[start[2]], shape)
    _check_rows(header)
    return _check_packed(header) if packed else _check_plain(header)


def _check_rows(header: IdxHeader) -> None:
    """Refuse rows that no memory holds, and great numbers of rows that take no byte."""
    if not header.row_bytes and header.shape[0] > _MAX_EMPTY_ROWS:
        raise UnsafeFileError(
            f"file {header.stamp.path!r} claims {header.shape[0]} rows of no values (shape "
            f"{header.shape}); it is damaged, or no IDX file"
        )
    most = _MAX_ROW_BYTES if header.shape[0] else _MAX_EMPTY_ROWS
    if math.prod(max(n, 1) for n in header.shape[1:]) * header.dtype.itemsize > most:
        raise UnsafeFileError(
            f"file {header.stamp.path!r} claims the shape {header.shape} of {header.dtype}: no row "
            "of that size can be read; it is damaged, or no IDX file"
        )


def _check_plain(header: IdxHeader) -> IdxHeader:
    stamp, end = header.stamp, header.end
    if stamp.size < end:
        whole = max(0, stamp.size - header.offset) // max(1, header.row_bytes)
        raise FileFormatError(
            f"file {stamp.path!r} is truncated: its header announces {header.shape[0]} rows, which "
            f"end at byte {end}, but it has {stamp.size} bytes ({whole} whole rows); copy it again"
        )
    if stamp.size > end:
        warn(
            f"file {stamp.path!r} goes on for {stamp.size - end} bytes after its last row; they "
            "are not read"
        )
    return header


def _check_packed(header: IdxHeader) -> IdxHeader:
    stamp, end = header.stamp, header.end
    if end > stamp.size * MAX_EXPANSION:
        raise UnsafeFileError(
            f"file {stamp.path!r} claims {end} bytes (shape {header.shape} of {header.dtype}), but "
            f"its {stamp.size} compressed bytes cannot stand for more than "
            f"{stamp.size * MAX_EXPANSION}; it is damaged, so copy it again"
        )
    return replace(header, stamp=replace(stamp, unpacked_bytes=end))


def _first_bytes(stamp: FileStamp, n: int, *, packed: bool) -> bytes:
    opener: Any = gzip.open if packed else open
    try:
        with opener(stamp.path, "rb") as file:
            return bytes(file.read(n))
    except (OSError, EOFError, zlib.error) as fault:
        raise FileFormatError(f"file {stamp.path!r} cannot be unpacked: {fault}") from None


FORMAT = Format(
    name="idx",
    title="IDX",
    suffixes=("-idx1-ubyte", "-idx3-ubyte", ".idx3-ubyte", "-idx3-ubyte.gz", "..."),
    recognises=lambda head: is_idx(head.data),
    scan=_scan,
    open_reader=ContiguousReader,
    kinds={"idx": "IDX, one array a file"},
    named=is_named_idx,
    order=in_order,
)
