"""How payloads of any bytes lie in a RecordIO file, and labels and ids before a payload.

::

    record := part+
    part   := magic u32 | cflag << 29 | length u32 | payload | zeros to a multiple of 4

Numbers are little-endian. A payload that holds the magic word at an aligned place is cut
there: the word itself is not stored, and comes back when the parts are joined. So whatever
looks like the head of a record is one.

A labelled payload begins with a header::

    flag u32 | label f32 | id u64 | id2 u64 | flag times f32 | payload

Flag 0 says that the header holds the only label; any other flag counts the labels that
follow, and the one in the header means nothing.

Knows bytes only: no files, no rows. :class:`FramingError` and :class:`HeaderError` report what
is wrong; whoever reads adds the file and the row.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

MAGIC = 0xCED7230A
MAGIC_BYTES = MAGIC.to_bytes(4, "little")

HEAD = struct.Struct("<II")
HEAD_BYTES = HEAD.size
ALIGNMENT = 4

LENGTH_BITS = 29
MAX_RECORD_BYTES = (1 << LENGTH_BITS) - 1
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
    if n_bytes > MAX_RECORD_BYTES:
        raise FramingError(
            f"a payload of {n_bytes:,} bytes is too long; a record holds at most "
            f"{MAX_RECORD_BYTES:,}"
        )
    data = bytes(payload)
    words = np.frombuffer(data[: len(data) // ALIGNMENT * ALIGNMENT], "<u4")
    cuts = [*(np.flatnonzero(words == MAGIC) * ALIGNMENT).tolist(), len(data)]
    flags = [WHOLE] if len(cuts) == 1 else [FIRST, *[MIDDLE] * (len(cuts) - 2), LAST]
    out, begin = [], 0
    for flag, end in zip(flags, cuts, strict=True):
        out += [HEAD.pack(MAGIC, flag << LENGTH_BITS | end - begin), data[begin:end]]
        begin = end + len(MAGIC_BYTES)
    out.append(bytes(-len(data) % ALIGNMENT))
    return b"".join(out)


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
    return word >> LENGTH_BITS, word & MAX_RECORD_BYTES


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


# ---------------------------------------------------------------- headers

HEADER = struct.Struct("<IfQQ")
HEADER_BYTES = HEADER.size
_FLAG = struct.Struct("<I")

HEADER_DTYPE = np.dtype(
    [("flag", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")], align=False
)
LABEL = np.dtype("<f4")
LABEL_BYTES = LABEL.itemsize

Labels = npt.NDArray[np.float32]


class HeaderError(ValueError):
    """A payload does not begin with such a header. Never leaves the formats."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A payload taken apart."""

    id: int
    labels: Labels
    """float32 (n,); one where the header holds it."""
    payload: memoryview


def pack(payload: Buffer, labels: Any, id: int) -> bytes:
    """Put labels and an id before a payload; the second id of the header is 0.

    Parameters
    ----------
    labels : number or array of numbers
        A single number goes into the header; an array, of whatever length, behind it.
    id : int
        0 .. 2**64 - 1.

    Raises
    ------
    HeaderError
        If the id is out of range, or labels are not numbers.

    Examples
    --------
    >>> pack(b"xy", 3, id=7).hex()
    '0000000000004040070000000000000000000000000000007879'
    """
    try:
        with np.errstate(over="ignore"):  # becomes infinite, as for a plain cast
            values = np.asarray(labels).astype(np.float32)
        if values.ndim == 0:
            return HEADER.pack(0, float(values), id, 0) + bytes(payload)
        head = HEADER.pack(values.size, 0.0, id, 0)
    except (struct.error, ValueError, TypeError) as error:
        raise HeaderError(f"labels {labels!r} with id {id!r}: {error}") from None
    return b"".join((head, np.ascontiguousarray(values, LABEL).tobytes(), payload))


def unpack(data: Buffer) -> Labelled:
    """Take a payload apart.

    Raises
    ------
    HeaderError
        If it is shorter than its header says.

    Examples
    --------
    >>> one = unpack(pack(b"xy", [1, 2.5], id=7))
    >>> one.id, one.labels.tolist(), bytes(one.payload)
    (7, [1.0, 2.5], b'xy')
    """
    view = memoryview(data)
    body = body_of(view)
    flag, label, id, _ = HEADER.unpack_from(view)
    behind = view[HEADER_BYTES : len(view) - len(body)]
    return Labelled(id, np.frombuffer(behind, LABEL) if flag else np.array([label], LABEL), body)


def body_of(data: memoryview) -> memoryview:
    """Return what follows the header and the labels, without taking these apart.

    Raises
    ------
    HeaderError
        If there is no room for them.
    """
    n_bytes = len(data)
    if n_bytes < HEADER_BYTES:
        raise HeaderError(f"it has {n_bytes} bytes, where a header alone takes {HEADER_BYTES}")
    flag = _FLAG.unpack_from(data)[0]
    begin = HEADER_BYTES + LABEL_BYTES * flag
    if begin > n_bytes:
        raise HeaderError(f"it claims {flag:,} labels, more than its {n_bytes:,} bytes hold")
    return data[begin:]
