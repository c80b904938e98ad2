"""The header of an IDX file: its dtype and shape, checked against what the file holds.

Four bytes come first: two zeros, a code for the dtype, and how many axes there are; then
the length of each axis as a 32-bit number. Numbers are big-endian throughout. What the
header claims is compared with the size of the file before anyone takes memory for it;
in a gzip-compressed one, with the most that its size could inflate to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeled.errors import FileFormatError, UnsafeFileError, warn
from labeled.formats.bytesource import StoredBytes, inflating, stamp_of
from labeled.formats.header import FileStamp, Packing
from labeled.formats.packed import MOST_EXPANSION, step_for

DTYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}

MOST_AXES = 64
"""What NumPy can hold."""

_MOST_ROW_BYTES = 1 << 40
_MOST_EMPTY_ROWS = 1 << 24
"""Rows that take no byte, or bytes of a row where there is none."""
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class IdxHeader:
    """What one file says of its array."""

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

    @property
    def span_rows(self) -> int | None:
        """Rows inflated together; None where the file is not compressed."""
        packed = self.stamp.packed
        return None if packed is None else max(1, packed.step // max(1, self.row_bytes))


def is_idx(data: bytes) -> bool:
    """Whether the first bytes of a file are those of an IDX file.

    Examples
    --------
    >>> is_idx(bytes([0, 0, 8, 3])), is_idx(bytes([0, 0, 7, 3])), is_idx(b"PK")
    (True, False, False)
    """
    return len(data) >= 4 and data[:2] == b"\0\0" and data[2] in DTYPES and 0 < data[3] <= MOST_AXES


def read_header(path: str) -> IdxHeader:
    """Read and check the header of an IDX file.

    Raises
    ------
    FileFormatError
        If it is no IDX file, or shorter than its header says.
    UnsafeFileError
        If it claims more than its compressed bytes can stand for.

    Warns
    -----
    LabeledWarning
        If bytes follow its last row.
    """
    stamp = stamp_of(path)
    packed = StoredBytes(stamp).pread(0, 2) == _GZIP
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
    if not header.row_bytes and header.shape[0] > _MOST_EMPTY_ROWS:
        raise UnsafeFileError(
            f"file {header.stamp.path!r} claims {header.shape[0]} rows of no values (shape "
            f"{header.shape}); it is damaged, or no IDX file"
        )
    most = _MOST_ROW_BYTES if header.shape[0] else _MOST_EMPTY_ROWS
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
            f"file {stamp.path!r} is truncated: its header tells of {header.shape[0]} rows, which "
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
    if end > stamp.size * MOST_EXPANSION:
        raise UnsafeFileError(
            f"file {stamp.path!r} claims {end} bytes (shape {header.shape} of {header.dtype}), but "
            f"its {stamp.size} compressed bytes cannot stand for more than "
            f"{stamp.size * MOST_EXPANSION}; it is damaged, so copy it again"
        )
    rows = max(1, min(-(-step_for(end) // max(1, header.row_bytes)), header.shape[0]))
    packing = Packing(end, header.offset, max(1, rows * header.row_bytes))
    return replace(header, stamp=replace(stamp, packed=packing))


def _first_bytes(stamp: FileStamp, n: int, *, packed: bool) -> bytes:
    if not packed:
        return StoredBytes(stamp).pread(0, n)
    place, data = inflating(stamp), b""
    try:
        while len(data) < n and (part := place.read(n - len(data))):
            data += part
    except (OSError, EOFError) as fault:
        raise FileFormatError(f"file {stamp.path!r} cannot be unpacked: {fault}") from None
    return data
