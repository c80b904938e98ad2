"""How records lie in a file, where each begins, and what all of them begin with.

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

Offsets are found by going from head to head once, or read from an ``.idx``: eight bytes a
record, made once a process for a file. Each record ends where the next begins, so a file that
is cut short, or whose lengths lead nowhere, is found out before a row is read. Neighbours are
read by one call; payloads are views of what was read, so that a picture is decoded from there.

A :class:`RecordFile` is a recipe (a stamp, and perhaps that of its ``.idx``): it holds no handle
and no index, pickles as a few words, and may be used by several threads at once.

The trade-off: going from head to head fetches one page a record, which is slow from a cold
disk; an ``.idx`` saves that. It is believed only as far as it can be checked: its first
record must be the first of the file, and reading finds out whether a record ends where the next
one of the index, or the file, does.
"""

from __future__ import annotations

import contextlib
import struct
import warnings
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from labeled._threads import share
from labeled.errors import FileFormatError, ReadError
from labeled.formats.bytesource import OpenFile, open_bytes
from labeled.formats.header import FileStamp
from labeled.formats.pictures import HEAD_BYTES as PICTURE_BYTES
from labeled.formats.pictures import PictureError, ShortHeadError, head_of, picture_head
from labeled.ragged.flat import AnyRows, Array, Rows, copy_segments

MAGIC = 0xCED7230A
MAGIC_BYTES = MAGIC.to_bytes(4, "little")

HEAD = struct.Struct("<II")
HEAD_BYTES = HEAD.size
ALIGNMENT = 4

LENGTH_BITS = 29
MAX_RECORD_BYTES = (1 << LENGTH_BITS) - 1  # of one record

WHOLE, FIRST, MIDDLE, LAST = range(4)  # what a part is of its record: its `cflag`

Buffer = bytes | bytearray | memoryview
Lengths = TypeVar("Lengths", int, Rows)

SUFFIX = ".idx"
REMEDY = "make it again, or remove it: then the records are gone through"

# of so many files a process keeps what it found out: more than are joined to one dataset
KEPT_FILES = 4096

STREAM_BYTES = 1 << 18  # what is read at once where records are small

SMALL_BYTES = 1 << 14  # records that are smaller on average are gone through in one stream

READ_BYTES = 1 << 20  # what is read at once, unless one record is larger

GAP_BYTES = 1 << 12  # bytes between two records that are sooner read than skipped

# so many stretches that are so short are copied from a memory map
MIN_COPIED, SHORT_BYTES = 8, 1 << 15

BLOCK_ROWS = 1 << 12  # records that are looked at together

THREADS = 8  # that wait for a disk; a cold one answers several at once

NO_SIZES = np.empty((0, 4), np.int32)
HEAD_DTYPE = np.dtype([("magic", "<u4"), ("word", "<u4")])


# how payloads lie in a file


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
    view, parts, flag = memoryview(data), list[memoryview](), FIRST
    while flag not in (WHOLE, LAST):
        flag, length = part_at(view, at)
        if (flag in (MIDDLE, LAST)) != bool(parts):
            raise FramingError(f"its part {len(parts)} is of kind {flag}, which is out of order")
        begin = at + HEAD_BYTES
        at = begin + padded(length)
        if at > len(view):
            raise FramingError(
                f"it claims {length:,} bytes, but {max(0, len(view) - begin):,} are left for it"
            )
        parts.append(view[begin : begin + length])
    return parts[0] if len(parts) == 1 else memoryview(MAGIC_BYTES.join(parts)), at


# headers of labels and ids


HEADER = struct.Struct("<IfQQ")
HEADER_BYTES = HEADER.size

HEADER_DTYPE = np.dtype([("flag", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")])
LABEL = np.dtype("<f4")
LABEL_BYTES = LABEL.itemsize

Labels = npt.NDArray[np.float32]


class HeaderError(ValueError):
    """A payload does not begin with such a header. Never leaves the formats."""


class Labelled(NamedTuple):
    """A payload taken apart."""

    id: int
    labels: Labels  # float32 (n,); one where the header holds it
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
    flag = int.from_bytes(data[:4], "little")
    begin = HEADER_BYTES + LABEL_BYTES * flag
    if begin > n_bytes:
        raise HeaderError(f"it claims {flag:,} labels, more than its {n_bytes:,} bytes hold")
    return data[begin:]


# where records begin


@lru_cache(maxsize=KEPT_FILES)
def offsets_of(stamp: FileStamp, idx: FileStamp | None = None) -> Rows:
    """Return where the records of a file begin, and the end of the last: int64 (n + 1,).

    Ascending; record i lies in ``offsets[i] : offsets[i + 1]``.

    Parameters
    ----------
    stamp : FileStamp
        Of the record file.
    idx : FileStamp, optional
        Of a text file of keys and offsets that spares going through the records.

    Raises
    ------
    FileFormatError
        If the file is not a RecordIO file or is cut short, or `idx` is not its index.
    """
    if idx is None:
        return _scanned(open_bytes(stamp), stamp)
    try:
        with warnings.catch_warnings(action="ignore"):  # of a file that lists nothing
            listed = np.loadtxt(idx.path, np.int64, comments=None, usecols=1, ndmin=1)
    except (OSError, ValueError, OverflowError) as fault:
        raise FileFormatError(f"cannot read the index {idx.path!r}: {fault}; {REMEDY}") from None
    offsets = np.append(np.sort(listed), stamp.size)
    if offsets[0] or (np.diff(offsets) < HEAD_BYTES).any() or (offsets % ALIGNMENT).any():
        raise FileFormatError(
            f"{idx.path!r} is not the index of {stamp.path!r}: it lists {len(listed):,} records "
            f"from byte {offsets[0]:,} to {max(listed, default=0):,}, which do not fill its "
            f"{stamp.size:,} bytes; {REMEDY}"
        )
    return offsets


def _scanned(file: OpenFile, stamp: FileStamp) -> Rows:
    """Go from head to head."""
    offsets, size, at = array("q"), stamp.size, 0
    begin, held = 0, np.empty(0, np.uint8)  # some bytes around the head that is looked at
    while at < size:
        offsets.append(at)
        flag = None
        try:
            while flag not in (WHOLE, LAST):
                if not begin <= at <= begin + len(held) - HEAD_BYTES:
                    want = STREAM_BYTES if at < SMALL_BYTES * len(offsets) else HEAD_BYTES
                    begin, held = at, np.empty(min(want, size - at), np.uint8)
                    file.read_into(held, at)
                first = flag is None
                flag, length = part_at(held.data, at - begin)
                if first != (flag < 2):
                    raise FramingError(f"it holds a part of kind {flag} out of its order")
                at += HEAD_BYTES + padded(length)
                if at > size:
                    raise FramingError(
                        f"it claims {length:,} bytes, {at - size:,} more than the file has"
                    )
        except FramingError as fault:
            raise _broken(stamp.path, len(offsets) - 1, offsets[-1], fault) from None
    offsets.append(size)
    return np.frombuffer(offsets, np.int64)


def _broken(
    path: str, record: int, offset: int, fault: Exception, idx: FileStamp | None = None
) -> FileFormatError:
    """Return the error of a record that is none."""
    why = "the file is not a RecordIO file, or was cut short, so copy or write it again"
    if idx is not None:
        why = (
            "the file is damaged, so copy or write it again; or "
            f"{idx.path!r} is of another file, so {REMEDY}"
        )
    return FileFormatError(
        f"record {record} of {path!r}, at byte {offset:,}, is damaged: {fault}; {why}"
    )


# records by row


@dataclass(frozen=True)
class RecordFile:
    """The records of one file, by row.

    Parameters
    ----------
    stamp : FileStamp
    idx : FileStamp, optional
        Of its index; without it the file is gone through once a process.
    """

    stamp: FileStamp
    idx: FileStamp | None = None

    @property
    def offsets(self) -> Rows:
        """Where records begin, and the end of the last; see :func:`offsets_of`."""
        return offsets_of(self.stamp, self.idx)

    @property
    def n_rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def largest(self) -> int:
        """Bytes of the longest record as stored."""
        return int(np.diff(self.offsets).max(initial=0))

    def payloads(self, rows: AnyRows) -> Iterator[tuple[int, memoryview]]:
        """Yield (row, payload) for rows in any order; see :meth:`blocks`."""
        for numbers, payloads in self.blocks(rows):
            yield from zip(numbers, payloads, strict=True)

    def blocks(self, rows: AnyRows) -> Iterator[tuple[list[int], list[memoryview]]]:
        """Yield rows, in any order, and their payloads, about `READ_BYTES` of them at a time.

        A payload is a view that stays what it is; holding on to one holds its block.

        Raises
        ------
        FileFormatError
            If a record is not what the index says.
        ReadError
            If the system cannot read the file.
        FileChangedError
            If the file is no longer the one that was opened.
        """
        listed, offsets = np.asarray(rows, np.int64), self.offsets
        starts, stops = offsets[listed], offsets[listed + 1]
        for first, last, places, held in self._blocks(listed, starts, stops):
            numbers, view = listed[first:last].tolist(), held.data
            words, ends = held.view("<u4"), places + stops[first:last] - starts[first:last]
            at, begins = places // ALIGNMENT, places + HEAD_BYTES
            lengths = words[at + 1].astype(np.int64)
            is_whole = (words[at] == MAGIC) & (begins + padded(lengths) == ends)  # of one part
            reach = (begins + lengths).tolist()
            payloads = [view[a:b] for a, b in zip(begins.tolist(), reach, strict=True)]
            for i in np.flatnonzero(~is_whole).tolist():
                payloads[i] = self._payload(view, int(places[i]), int(ends[i]), numbers[i])
            yield numbers, payloads

    def payload(self, row: int) -> memoryview:
        """Return the payload of one row."""
        return next(self.payloads(range(row, row + 1)))[1]

    def _payload(self, held: memoryview, at: int, stop: int, row: int) -> memoryview:
        """Return the payload of a record in several parts, or tell what is wrong with it."""
        try:
            payload, end = unframe(held[:stop], at)
            if end != stop:
                raise FramingError(
                    f"it ends {stop - end:,} bytes before the next one of the index; "
                    "the index leaves records out"
                )
        except FramingError as fault:
            offset = int(self.offsets[row])
            raise _broken(self.stamp.path, row, offset, fault, self.idx) from None
        return payload

    def beginnings(self, rows: AnyRows, n_bytes: int) -> tuple[Rows, Array]:
        """Return the lengths of payloads, and their first bytes, zeros where they end.

        Records in several parts are read whole, and so are those that do not end where the next
        one begins, which raises: an index left by another version of the file is found out before
        labels are.

        Returns
        -------
        int64 array (len(rows),) and uint8 array (len(rows), n_bytes)
        """
        listed, width = np.asarray(rows, np.int64), HEAD_BYTES + n_bytes
        starts, ends = self.offsets[listed], self.offsets[listed + 1]
        stops = np.minimum(ends, starts + width)
        stored = np.zeros((len(listed), width), np.uint8)
        for first, last, places, held in self._blocks(listed, starts, stops):
            reach = (places + stops[first:last] - starts[first:last]).tolist()
            for i, a, b in zip(range(first, last), places.tolist(), reach, strict=True):
                stored[i, : b - a] = held[a:b]
        heads, out = stored[:, :HEAD_BYTES].copy().view(HEAD_DTYPE)[:, 0], stored[:, HEAD_BYTES:]
        lengths = heads["word"].astype(np.int64)
        whole = (heads["magic"] == MAGIC) & (HEAD_BYTES + padded(lengths) == ends - starts)
        for i in np.flatnonzero(~whole).tolist():
            payload = self.payload(int(listed[i]))  # raises if it is not a record
            lengths[i] = len(payload)
            out[i] = np.frombuffer(bytes(payload[:n_bytes]).ljust(n_bytes, b"\0"), np.uint8)
        return lengths, out

    def _blocks(
        self, rows: Rows, starts: Rows, stops: Rows
    ) -> Iterator[tuple[int, int, Rows, Array]]:
        """Yield which stretches of the file were read together, where each begins, and the bytes.

        Stretches that lie close together are read by one call, with what is between them.
        """
        file = open_bytes(self.stamp)
        file.check()
        n, lengths, gaps = len(rows), stops - starts, np.zeros(len(rows), np.int64)
        gaps[1:] = starts[1:] - stops[:-1]
        is_apart = (gaps < 0) | (gaps > GAP_BYTES)
        gaps[is_apart] = 0
        ends = np.cumsum(lengths + gaps)  # in memory, if all of them were read at once
        begins, first = ends - lengths, 0
        while first < n:
            last = max(first + 1, int(ends.searchsorted(begins[first] + READ_BYTES, "right")))
            places, reach = begins[first:last] - begins[first], ends[first:last] - begins[first]
            cuts = np.append(0, is_apart[first + 1 : last].nonzero()[0] + 1)
            last_ones = np.append(cuts[1:], last - first) - 1
            held = np.empty(int(reach[-1]), np.uint8)
            at, sizes = starts[first + cuts], reach[last_ones] - places[cuts]
            try:
                if not _copied(file, held, places[cuts], at, sizes):
                    parts = places[cuts].tolist(), reach[last_ones].tolist(), at.tolist()
                    for a, b, begin in zip(*parts, strict=True):
                        file.read_into(held[a:b], begin)
            except (EOFError, OSError) as fault:
                file.check()
                where = f"records {rows[first]} to {rows[last - 1]} of {self.stamp.path!r}"
                raise ReadError(f"{where} cannot be read: {fault}") from fault
            yield first, last, places, held
            first = last


def _copied(file: OpenFile, held: Array, places: Rows, starts: Rows, sizes: Rows) -> bool:
    """Copy many short stretches from a memory map; False, and nothing done, where that is slower.

    A call for each takes 20 us where two threads read, as both wait for Python's lock after it.
    From storage a map would fetch far more around each of them.
    """
    n = len(sizes)
    if n < MIN_COPIED or len(held) > n * SHORT_BYTES or not file.holds(int(starts[n // 2])):
        return False
    mapped = file.mapped()
    if mapped is None or int((starts + sizes).max()) > len(mapped):
        return False
    copy_segments(held, places, mapped, starts, sizes)
    return True


# what all records begin with


@lru_cache(maxsize=KEPT_FILES)
def beginnings_of(file: RecordFile) -> tuple[Rows, Array]:
    """Return how long all payloads are, and what may be their headers; several threads read."""
    n = file.n_rows
    lengths, heads = np.empty(n, np.int64), np.empty((n, HEADER_BYTES), np.uint8)

    def some(first: int, last: int) -> None:
        found = file.beginnings(range(first, last), HEADER_BYTES)
        lengths[first:last], heads[first:last] = found

    share(some, n, THREADS if n > BLOCK_ROWS else 1)
    return lengths, heads.view(HEADER_DTYPE)[:, 0]


@lru_cache(maxsize=KEPT_FILES)
def headers_of(file: RecordFile) -> Array:
    """Return the headers of all records, of :data:`HEADER_DTYPE`.

    Raises
    ------
    FileFormatError
        If a record has none; names the first.
    """
    lengths, heads = beginnings_of(file)
    for row in np.flatnonzero(lengths < body_begins(heads))[:1].tolist():
        try:
            body_of(file.payload(row))
        except HeaderError as fault:
            raise FileFormatError(
                f"record {row} of {file.stamp.path!r} has no header of labels and ids: "
                f"{fault}; open with content='raw' to have the payloads as they are"
            ) from None
    return heads


def body_begins(heads: Array) -> Rows:
    """Return where payloads begin, behind their headers and labels."""
    return HEADER_BYTES + LABEL_BYTES * heads["flag"].astype(np.int64)


@lru_cache(maxsize=KEPT_FILES)
def header_labels(file: RecordFile) -> Array:
    """Return the one label of each record, whether it stands in the header or behind it."""
    heads = headers_of(file)
    labels, behind = heads["label"].copy(), np.flatnonzero(heads["flag"])
    if len(behind):
        labels[behind] = labels_behind(file, behind, 1)[:, 0]
    return labels


def labels_behind(file: RecordFile, rows: AnyRows, width: int) -> npt.NDArray[np.float32]:
    """Return the first `width` labels that follow the headers of some records."""
    _, begin = file.beginnings(rows, HEADER_BYTES + width * LABEL_BYTES)
    return np.ascontiguousarray(begin[:, HEADER_BYTES:]).view(LABEL)


@lru_cache(maxsize=KEPT_FILES)
def sizes_of(file: RecordFile) -> npt.NDArray[np.int32]:
    """Return height, width, channels and orientation of each picture, as stored: (n, 4).

    A picture that is none has the size (0, 0, 0, 1).
    """
    blocks = range(0, file.n_rows, BLOCK_ROWS)
    return np.concatenate(
        [sizes_at(file, range(a, min(file.n_rows, a + BLOCK_ROWS))) for a in blocks] or [NO_SIZES]
    )


def sizes_at(file: RecordFile, rows: range) -> npt.NDArray[np.int32]:
    """Return :func:`sizes_of` some rows."""
    lengths, begins = file.beginnings(rows, HEADER_BYTES + PICTURE_BYTES)
    out = np.array([(0, 0, 0, 1)] * len(rows), np.int32).reshape(len(rows), 4)
    for i, (row, n_bytes) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        begin = begins[i].data[:n_bytes]
        at = HEADER_BYTES + LABEL_BYTES * int.from_bytes(begin[:4], "little")
        head = None
        with contextlib.suppress(PictureError, HeaderError):
            with contextlib.suppress(ShortHeadError):
                head = head_of(begin[at:])
            if head is None:  # the beginning tells too little
                head = picture_head(unpack(file.payload(row)).payload)
            out[i] = head.height, head.width, head.channels, head.orientation
    return out
