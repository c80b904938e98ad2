"""What the beginnings of records tell: ids, labels, sizes of payloads and of pictures.

Two passes over a file, each done once a process, when it is needed, and kept: over the heads
of all records (28 bytes a record kept), and over the headers of all pictures (12 bytes).
Neither reads more than a kibibyte of a record, and nothing is decoded.

A picture whose header makes no sense has size 0 x 0 here; reading it tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import FileFormatError
from labeled.formats.picture_heads import HEAD_BYTES as PICTURE_BYTES
from labeled.formats.picture_heads import PictureError, PictureHead, ShortHeadError, head_of
from labeled.formats.pictures import picture_head
from labeled.formats.recordio.framing import (
    HEAD_BYTES,
    HEADER_BYTES,
    HEADER_DTYPE,
    LABEL,
    LENGTH_BITS,
    MAGIC,
    MOST_BYTES,
    WHOLE,
    HeaderError,
    padded,
    unpack,
)
from labeled.formats.recordio.records import HEAD_DTYPE, KEPT_FILES, AnyRows, RecordFile

Rows = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

BLOCK_ROWS = 1 << 12
"""Records that are looked at together."""

THREADS = 8
"""That wait for a disk; a cold one answers several at once."""

_STORED = np.dtype([("frame", HEAD_DTYPE), ("header", HEADER_DTYPE)])


@dataclass(frozen=True, eq=False)
class RecordTable:
    """The headers of all records of a file, by row.

    Parameters
    ----------
    ids, id2s : uint64 (n,)
    flags : uint32 (n,)
        How many labels follow the header; 0 where it holds the only one.
    labels : float32 (n,)
        What the header itself holds.
    payload_bytes : int64 (n,)
        Of the payloads, their headers and labels left out.
    """

    ids: npt.NDArray[np.uint64]
    flags: npt.NDArray[np.uint32]
    labels: npt.NDArray[np.float32]
    payload_bytes: Rows

    @property
    def widths(self) -> Rows:
        """How many labels each record has."""
        return np.maximum(self.flags, 1).astype(np.int64)

    @property
    def label_width(self) -> int | None:
        """How many labels every record has; None where they differ. 1 where there is no record."""
        if not len(self.flags):
            return 1
        widths = self.widths
        return int(widths[0]) if (widths == widths[0]).all() else None


@lru_cache(maxsize=KEPT_FILES)
def table_of(file: RecordFile) -> RecordTable:
    """Return the headers of all records of a file.

    Raises
    ------
    FileFormatError
        If a record has no such header; names the first.
    """
    n = file.n_rows
    ids, flags = np.empty(n, np.uint64), np.empty(n, np.uint32)
    labels, sizes = np.empty(n, np.float32), np.empty(n, np.int64)
    for rows, stored in _by_blocks(file, HEADER_BYTES):
        some = slice(rows.start, rows.stop)
        length, header = _lengths(file, rows, stored)
        ids[some], flags[some] = header["id"], header["flag"]
        labels[some] = header["label"]
        sizes[some] = length - HEADER_BYTES - LABEL.itemsize * header["flag"].astype(np.int64)
    if (sizes < 0).any():
        raise no_header(file, int(np.argmax(sizes < 0)))
    return RecordTable(ids, flags, labels, sizes)


@lru_cache(maxsize=KEPT_FILES)
def lengths_of(file: RecordFile) -> Rows:
    """Return the bytes of all payloads of a file, whatever they hold: int64 (n,)."""
    out = np.empty(file.n_rows, np.int64)
    for rows, stored in _by_blocks(file, HEADER_BYTES):
        out[rows.start : rows.stop] = _lengths(file, rows, stored)[0]
    return out


def no_header(file: RecordFile, row: int) -> FileFormatError:
    """Return the error of a record that does not begin with a header."""
    try:
        unpack(file.payload(row))
        fault = "it has none"
    except HeaderError as error:
        fault = str(error)
    return FileFormatError(
        f"record {row} of {file.stamp.path!r} has no header of labels and ids: {fault}; open with "
        "content='raw' to have the payloads as they are"
    )


def _by_blocks(file: RecordFile, n_bytes: int) -> Iterator[tuple[range, Array]]:
    """Yield rows and the beginnings of their records; several threads read, in order."""
    n = file.n_rows
    blocks = [range(a, min(n, a + BLOCK_ROWS)) for a in range(0, n, BLOCK_ROWS)]
    if len(blocks) < 2:
        yield from ((rows, file.heads(rows, n_bytes)) for rows in blocks)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, len(blocks), THREADS):
            few = blocks[first : first + THREADS]
            yield from zip(few, pool.map(partial(file.heads, n_bytes=n_bytes), few), strict=True)


def _lengths(file: RecordFile, rows: range, stored: Array) -> tuple[Rows, Array]:
    """Return the lengths of payloads and their headers; of several parts, by reading them.

    So are those read that do not end where the next one begins, as what is wrong with them is
    told there: an index left by another version of the file is found out before labels are.
    """
    fields = stored[:, : _STORED.itemsize].copy().view(_STORED)[:, 0]
    lengths = (fields["frame"]["word"] & MOST_BYTES).astype(np.int64)
    headers = fields["header"].copy()
    apart = HEAD_BYTES + padded(lengths) != file.stored_sizes(rows)
    for i in np.flatnonzero(_odd(stored) | apart).tolist():
        payload = file.payload(rows[i])  # raises for what is no record
        lengths[i] = len(payload)
        headers[i] = np.frombuffer(_beginning(payload, HEADER_BYTES), HEADER_DTYPE)[0]
    return lengths, headers


def _odd(stored: Array) -> npt.NDArray[np.bool_]:
    """Which records are not stored in one part, or are none."""
    fields = stored[:, :HEAD_BYTES].copy().view(HEAD_DTYPE)[:, 0]
    several = fields["word"] >> LENGTH_BITS != WHOLE
    odd: npt.NDArray[np.bool_] = several | (fields["magic"] != MAGIC)
    return odd


def _beginning(payload: memoryview, n_bytes: int) -> bytes:
    return bytes(payload[:n_bytes]).ljust(n_bytes, b"\0")


def beginnings(file: RecordFile, rows: AnyRows, n_bytes: int) -> Array:
    """Return the first bytes of payloads, uint8 (len(rows), n_bytes); zeros where they end."""
    stored = file.heads(rows, n_bytes)
    out = stored[:, HEAD_BYTES:]
    listed = np.asarray(rows, np.int64)
    for i in np.flatnonzero(_odd(stored)).tolist():
        payload = file.payload(int(listed[i]))
        out[i] = np.frombuffer(_beginning(payload, n_bytes), np.uint8)
    return out


@lru_cache(maxsize=KEPT_FILES)
def header_labels(file: RecordFile) -> Array:
    """Return the one label of each record, whether it stands in the header or behind it."""
    table = table_of(file)
    labels = table.labels.copy()
    behind = np.flatnonzero(table.flags)
    if len(behind):
        begin = beginnings(file, behind, HEADER_BYTES + LABEL.itemsize)
        labels[behind] = np.ascontiguousarray(begin[:, HEADER_BYTES:]).view(LABEL)[:, 0]
    return labels


# pictures

UNKNOWN = (0, 0, 0, 1)
"""What stands for the height, width, channels and orientation of a picture that is none."""


@lru_cache(maxsize=KEPT_FILES)
def sizes_of(file: RecordFile) -> npt.NDArray[np.int32]:
    """Return height, width, channels and orientation of each picture, as stored: (n, 4)."""
    out = np.empty((file.n_rows, 4), np.int32)
    for rows, sizes in sizes_by_blocks(file):
        out[rows.start : rows.stop] = sizes
    return out


def sizes_by_blocks(file: RecordFile) -> Iterator[tuple[range, npt.NDArray[np.int32]]]:
    """Yield rows and :func:`sizes_of` them; the first block is small, for who soon knows enough."""
    n, first, step = file.n_rows, 0, 16
    while first < n:
        rows = range(first, min(n, first + step))
        yield rows, _sizes(file, rows)
        first, step = rows.stop, BLOCK_ROWS


def _sizes(file: RecordFile, rows: range) -> npt.NDArray[np.int32]:
    stored = file.heads(rows, HEADER_BYTES + PICTURE_BYTES)
    out = np.empty((len(rows), 4), np.int32)
    for i, row in enumerate(rows):
        try:
            head = _head(file, row, stored[i].data)
            size = head.height, head.width, head.channels, head.orientation
        except (PictureError, HeaderError):
            size = UNKNOWN
        out[i] = size
    return out


def _head(file: RecordFile, row: int, begin: memoryview) -> PictureHead:
    """Tell a picture by the beginning of its record, or by all of it where that is too little."""
    word, flag = int.from_bytes(begin[4:8], "little"), int.from_bytes(begin[8:12], "little")
    at = HEAD_BYTES + HEADER_BYTES + LABEL.itemsize * flag
    if word >> LENGTH_BITS == WHOLE and at < len(begin):
        try:
            head = head_of(begin[at : HEAD_BYTES + (word & MOST_BYTES)])
        except ShortHeadError:
            head = None
        if head is not None:
            return head
    return picture_head(unpack(file.payload(row)).payload)
