"""How payloads of any bytes lie in a RecordIO file, so that any record can be found again.

::

    record := part+
    part   := magic u32 | cflag << 29 | length u32 | payload | zeros to a multiple of 4

Numbers are little-endian. A payload that holds the magic word at an aligned place is cut
there: the word itself is not stored, and comes back when the parts are joined. So whatever
looks like the head of a record is one.

Knows bytes only: no files, no rows. What is wrong is told by :class:`FramingError`, to which
whoever reads adds the file and the row.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt

MAGIC = 0xCED7230A
MAGIC_BYTES = MAGIC.to_bytes(4, "little")

HEAD = struct.Struct("<II")
HEAD_BYTES = HEAD.size
ALIGNMENT = 4

LENGTH_BITS = 29
MOST_BYTES = (1 << LENGTH_BITS) - 1
"""Of one record."""

WHOLE, FIRST, MIDDLE, LAST = range(4)
"""What a part is of its record: its `cflag`."""

Buffer = bytes | bytearray | memoryview
Lengths = TypeVar("Lengths", int, npt.NDArray[np.int64])


class FramingError(ValueError):
    """Bytes are no records. Never leaves the formats: a FileFormatError is made of it."""


def frame(payload: Buffer) -> bytes:
    """Return a payload as it is stored.

    Raises
    ------
    FramingError
        If it is too long for a record.

    Examples
    --------
    >>> frame(b"abc").hex(" ", 4)
    '0a23d7ce 03000000 61626300'
    >>> frame(MAGIC_BYTES).hex(" ", 4)
    '0a23d7ce 00000020 0a23d7ce 00000060'
    """
    n_bytes = memoryview(payload).nbytes
    if n_bytes > MOST_BYTES:
        raise FramingError(
            f"a payload of {n_bytes:,} bytes is too long; a record holds at most {MOST_BYTES:,}"
        )
    data = bytes(payload)
    cuts = [*_magics(data), len(data)]
    out, begin = [], 0
    for number, end in enumerate(cuts):
        flag = _flag(number, len(cuts))
        out += [HEAD.pack(MAGIC, flag << LENGTH_BITS | end - begin), data[begin:end]]
        begin = end + len(MAGIC_BYTES)
    out.append(bytes(-len(data) % ALIGNMENT))
    return b"".join(out)


def _flag(number: int, count: int) -> int:
    if count == 1:
        return WHOLE
    return FIRST if not number else LAST if number == count - 1 else MIDDLE


def _magics(data: bytes) -> Iterator[int]:
    """Yield where a payload holds the magic word, aligned."""
    at = data.find(MAGIC_BYTES)
    while at >= 0:
        aligned = at % ALIGNMENT == 0
        if aligned:
            yield at
        at = data.find(MAGIC_BYTES, at + (ALIGNMENT if aligned else 1))


def part_at(data: Buffer, at: int = 0) -> tuple[int, int]:
    """Return (cflag, payload length) of the part whose head stands at `at`.

    Raises
    ------
    FramingError
        If there is no whole head, or it has no magic word.
    """
    if at + HEAD_BYTES > len(data):
        raise FramingError(f"{len(data) - at} bytes are left, where the head of a record takes 8")
    magic, word = HEAD.unpack_from(data, at)
    if magic != MAGIC:
        raise FramingError(f"it begins with {magic:#010x}, not with the magic word {MAGIC:#010x}")
    return word >> LENGTH_BITS, word & MOST_BYTES


def padded(length: Lengths) -> Lengths:
    """Return a length, or an array of them, rounded up to whole words.

    Examples
    --------
    >>> padded(5), padded(8)
    (8, 8)
    """
    return length + -length % ALIGNMENT


def unframe(data: Buffer, at: int = 0) -> tuple[memoryview, int]:
    """Return the payload of the record that begins at `at`, and where the record ends.

    The payload is a view of `data` where it is stored in one part.

    Raises
    ------
    FramingError
        If there is no record, or not all of it.

    Examples
    --------
    >>> stored = frame(b"abcd" + MAGIC_BYTES + b"xyz") + frame(b"")
    >>> payload, end = unframe(stored)
    >>> bytes(payload) == b"abcd" + MAGIC_BYTES + b"xyz", end
    (True, 24)
    >>> bytes(unframe(stored, end)[0])
    b''
    """
    view = memoryview(data)
    flag, length = part_at(view, at)
    if flag not in (WHOLE, FIRST):
        raise FramingError(f"it begins with a part of kind {flag}, a continuation")
    first, at = _part(view, at, length)
    if flag == WHOLE:
        return first, at
    parts = [first]
    while flag != LAST:
        flag, length = part_at(view, at)
        if flag not in (MIDDLE, LAST):
            raise FramingError(f"its part {len(parts)} is of kind {flag}, no continuation")
        part, at = _part(view, at, length)
        parts.append(part)
    return memoryview(MAGIC_BYTES.join(parts)), at


def _part(view: memoryview, at: int, length: int) -> tuple[memoryview, int]:
    begin = at + HEAD_BYTES
    end = begin + padded(length)
    if end > len(view):
        raise FramingError(
            f"it claims {length:,} bytes, but {max(0, len(view) - begin):,} are left for it"
        )
    return view[begin : begin + length], end
