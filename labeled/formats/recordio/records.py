"""Records of a file by row: where each begins, and its payload, checked against that.

Offsets are found by going from head to head once, or read from an ``.idx``: eight bytes a
record, made once a process for a file. Each record ends where the next begins, so a file that
is cut short, or whose lengths lead nowhere, is found out before a row is read. Neighbours are
read by one call; payloads are views of what was read, so that a picture is decoded from there.

A :class:`RecordFile` is a recipe (a stamp, and perhaps that of its ``.idx``): it holds no handle
and no index, pickles as a few words, and may be used by several threads at once.

The trade-off: going from head to head fetches one page a record, which is slow from a cold
disk; an ``.idx`` saves that. It is believed only as far as it can be checked: its first
record must be the first of the file and its last one must end with the file, and reading
finds out whether one is missing between two others.
"""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import FileFormatError, ReadError
from labeled.formats.bytesource import FileRef, OpenFile, open_bytes, stamp_of
from labeled.formats.header import FileStamp
from labeled.formats.picture_heads import HEAD_BYTES as PICTURE_BYTES
from labeled.formats.picture_heads import PictureError, PictureHead, ShortHeadError, head_of
from labeled.formats.pictures import picture_head
from labeled.formats.recordio.framing import (
    ALIGNMENT,
    HEAD_BYTES,
    HEADER_BYTES,
    HEADER_DTYPE,
    LABEL,
    LAST,
    LENGTH_BITS,
    MAGIC,
    MAX_RECORD_BYTES,
    WHOLE,
    FramingError,
    HeaderError,
    padded,
    part_at,
    unframe,
    unpack,
)
from labeled.permute.workers import share

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

SUFFIX = ".idx"
REMEDY = "make it again, or open with index=False to go through the records"

KEPT_FILES = 4096
"""Of so many files a process keeps what it found out: more than are joined to one dataset."""

STREAM_BYTES = 1 << 18
"""What is read at once where records are small."""

SMALL_BYTES = 1 << 14
"""Records that are smaller on average are gone through in one stream."""


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
    if not stamp.size:
        return np.zeros(1, np.int64)
    file = open_bytes(stamp)
    if idx is None:
        return _scanned(file, stamp)
    offsets = np.sort(read_idx(idx.path)[1])
    _check_idx(idx, offsets, stamp, file)
    return np.append(offsets, stamp.size)


def _scanned(file: OpenFile, stamp: FileStamp) -> Rows:
    """Go from head to head."""
    offsets, window = array("q"), _Window(file, stamp.size)
    at = 0
    while at < stamp.size:
        offsets.append(at)
        flag = None
        try:
            while flag not in (WHOLE, LAST):
                first = flag is None
                flag, length = part_at(window.heads(at, len(offsets)), window.place(at))
                if first != (flag < 2):
                    raise FramingError(f"it holds a part of kind {flag} out of its order")
                at += HEAD_BYTES + padded(length)
                if at > stamp.size:
                    raise FramingError(
                        f"it claims {length:,} bytes, {at - stamp.size:,} more than the file has"
                    )
        except FramingError as fault:
            raise broken(stamp.path, len(offsets) - 1, offsets[-1], fault) from None
    offsets.append(stamp.size)
    return np.frombuffer(offsets, np.int64)


class _Window:
    """Some bytes of a file around the head that is looked at."""

    def __init__(self, file: OpenFile, size: int) -> None:
        self._file = file
        self._size = size
        self._begin = 0
        self._held = np.empty(0, np.uint8)

    def heads(self, at: int, n_records: int) -> memoryview:
        """Return bytes that hold the head at `at`, of the n-th record, if the file does."""
        if not self._begin <= at <= self._begin + len(self._held) - HEAD_BYTES:
            want = STREAM_BYTES if at < SMALL_BYTES * n_records else HEAD_BYTES
            self._held = np.empty(min(want, self._size - at), np.uint8)
            self._file.read_into(self._held, at)
            self._begin = at
        return self._held.data

    def place(self, at: int) -> int:
        return at - self._begin


def broken(path: str, record: int, offset: int, fault: Exception) -> FileFormatError:
    """Return the error of a record that is none."""
    return FileFormatError(
        f"record {record} of {path!r}, at byte {offset:,}, is damaged: {fault}; the file is not "
        "a RecordIO file, or was cut short, so copy or write it again"
    )


def idx_stamp(path: str | os.PathLike[str]) -> FileStamp:
    """Return which ``.idx`` is at a path; FileFormatError where there is none to read."""
    try:
        return stamp_of(path)
    except FileFormatError as error:
        raise FileFormatError(f"{error}; {REMEDY}") from None


def read_idx(path: str) -> tuple[list[str], Rows]:
    """Return the keys and offsets that an ``.idx`` lists, in its order.

    Raises
    ------
    FileFormatError
        If a line is not a key and an offset.
    """
    keys, offsets = [], array("q")
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                fields = line.split("\t") if "\t" in line else line.split()
                if not line.strip():
                    continue
                if len(fields) != 2 or not fields[1].strip().isdecimal():
                    raise FileFormatError(
                        f"line {number} of {path!r} is {line.strip()[:60]!r}; each line of an "
                        "index is a key, a tab and the offset of a record"
                    )
                keys.append(fields[0])
                offsets.append(int(fields[1].strip()))
    except FileFormatError as error:
        raise FileFormatError(f"{error}; {REMEDY}") from None
    except (OSError, ValueError, OverflowError) as error:
        raise FileFormatError(f"cannot read the index {path!r}: {error}; {REMEDY}") from error
    return keys, np.frombuffer(offsets, np.int64) if offsets else np.empty(0, np.int64)


def _check_idx(idx: FileStamp, offsets: Rows, stamp: FileStamp, file: OpenFile) -> None:
    problem = None
    if not len(offsets):
        problem = "it lists no record"
    elif offsets[0]:
        problem = f"its first record begins at byte {offsets[0]:,}, not with the file"
    elif offsets[-1] >= stamp.size:
        problem = f"it lists a record at byte {offsets[-1]:,}, but the file has {stamp.size:,}"
    elif (np.diff(offsets) < HEAD_BYTES).any() or (offsets % ALIGNMENT).any():
        problem = "its offsets cannot be those of records"
    else:
        problem = _last_problem(int(offsets[-1]), stamp.size, file)
    if problem is not None:
        raise FileFormatError(
            f"{idx.path!r} is not the index of {stamp.path!r}: {problem}; {REMEDY}"
        )


def _last_problem(offset: int, size: int, file: OpenFile) -> str | None:
    try:
        at = offset
        while True:
            head = np.empty(min(HEAD_BYTES, size - at), np.uint8)
            file.read_into(head, at)
            flag, length = part_at(head.data)
            at += HEAD_BYTES + padded(length)
            if flag in (WHOLE, LAST) or at >= size:
                break
    except FramingError as fault:
        return f"at byte {offset:,}, which it lists last, stands no record: {fault}"
    if at == size:
        return None
    return f"the record that it lists last ends at byte {at:,}, but the file has {size:,}"


# ---------------------------------------------------------------- payloads

AnyRows = range | Rows
HEAD_DTYPE = np.dtype([("magic", "<u4"), ("word", "<u4")])

READ_BYTES = 1 << 20
"""What is read at once, unless one record is larger."""

GAP_BYTES = 1 << 12
"""Bytes between two records that are sooner read than skipped."""


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

    def __getstate__(self) -> dict[str, Any]:
        """Leave what was found out behind: it is found out again where the recipe arrives."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def offsets(self) -> Rows:
        """Where records begin, and the end of the last; see :func:`offsets_of`."""
        return offsets_of(self.stamp, self.idx)

    @cached_property
    def _opened(self) -> FileRef:
        return FileRef(self.stamp)

    @property
    def n_rows(self) -> int:
        return len(self.offsets) - 1

    @property
    def largest(self) -> int:
        """Bytes of the longest record as stored."""
        return int(np.diff(self.offsets).max(initial=0))

    def stored_sizes(self, rows: AnyRows) -> Rows:
        """Return the bytes that records take in the file; payloads are a little smaller."""
        offsets = self.offsets
        listed = np.asarray(rows, np.int64)
        sizes: Rows = offsets[listed + 1] - offsets[listed]
        return sizes

    def payloads(self, rows: AnyRows) -> Iterator[tuple[int, memoryview]]:
        """Yield (row, payload) for rows in any order; neighbours are read together.

        A payload is a view that stays what it is; holding on to one holds about
        `READ_BYTES` of its neighbours.

        Raises
        ------
        FileFormatError
            If a record is not what the index says.
        ReadError
            If the system cannot read the file.
        FileChangedError
            If the file is no longer the one that was opened.
        """
        for numbers, payloads in self.blocks(self.placed(rows)):
            yield from zip(numbers, payloads, strict=True)

    def placed(self, rows: AnyRows) -> Rows:
        """Return rows, where their records begin, and where they end: int64 (3, n)."""
        offsets, listed = self.offsets, np.asarray(rows, np.int64)
        return np.stack((listed, offsets[listed], offsets[listed + 1]))

    def blocks(self, placed: Rows) -> Iterator[tuple[list[int], list[memoryview]]]:
        """Do the same by the block: rows and payloads, about `READ_BYTES` of them at a time.

        Whatever runs between two pictures that are decoded finds none of its own code in the
        caches, so that one call of NumPy takes as long as several records: there are few here.

        Parameters
        ----------
        placed : int64 array (3, n)
            From :meth:`placed`, all of it or some columns.
        """
        numbers, starts, stops = placed
        file = self._file()
        for cuts in _blocks(starts, stops):
            first, last = cuts[0], cuts[-1]
            begins, ends = starts[cuts[:-1]], stops[cuts[1:] - 1]
            held, places = self._read(file, begins, ends, numbers[first:last])
            shifts, rows = np.repeat(places - begins, np.diff(cuts)), numbers[first:last].tolist()
            here, to = starts[first:last] + shifts, stops[first:last] + shifts
            yield rows, self._payloads(held, here, to, rows)

    def _payloads(
        self, held: Array, starts: Rows, stops: Rows, rows: list[int]
    ) -> list[memoryview]:
        """Return the payloads of records that lie at some places of what was read."""
        view = held.data
        heads = np.ndarray(len(held) - HEAD_BYTES + 1, HEAD_DTYPE, held, strides=(1,))[starts]
        words, begins = heads["word"].astype(np.int64), starts + HEAD_BYTES
        ends = begins + words
        whole = (heads["magic"] == MAGIC) & (ends + -words % ALIGNMENT == stops)  # of kind 0
        payloads = [view[a:b] for a, b in zip(begins.tolist(), ends.tolist(), strict=True)]
        for i in np.flatnonzero(~whole).tolist():
            payloads[i] = self._payload(view, int(starts[i]), int(stops[i]), rows[i])
        return payloads

    def payload(self, row: int) -> memoryview:
        """Return the payload of one row."""
        return next(self.payloads(range(row, row + 1)))[1]

    def heads(self, rows: AnyRows, n_bytes: int) -> Array:
        """Return the first bytes of records as stored, their framing included.

        Returns
        -------
        uint8 array (len(rows), 8 + n_bytes)
            Zeros where a record is shorter.
        """
        offsets, listed = self.offsets, np.asarray(rows, np.int64)
        width = HEAD_BYTES + n_bytes
        out = np.zeros((len(listed), width), np.uint8)
        starts, file = offsets[listed], self._file()
        stops = np.minimum(offsets[listed + 1], starts + width)
        for a, b in pairwise(_cuts(starts, stops).tolist() if len(listed) else ()):
            begin = int(starts[a])
            held, _ = self._read(file, starts[a : a + 1], stops[b - 1 : b], listed[a:b])
            for i in range(a, b):
                part = held[starts[i] - begin : stops[i] - begin]
                out[i, : len(part)] = part
        return out

    def _file(self) -> OpenFile:
        """Return the open file, looking whether it is still the same one."""
        file = self._opened()
        file.check()
        return file

    def _read(self, file: OpenFile, begins: Rows, ends: Rows, rows: Rows) -> tuple[Array, Rows]:
        """Fetch some stretches of the file, each by a call; return them, and where each begins."""
        reach = np.cumsum(ends - begins)
        held, places = np.empty(reach[-1], np.uint8), reach - ends + begins
        try:
            for begin, place, stop in zip(
                begins.tolist(), places.tolist(), reach.tolist(), strict=True
            ):
                file.read_into(held[place:stop], begin)
        except EOFError as fault:
            raise ReadError(f"{self._where(rows)}: {fault}; copy the file again") from fault
        except OSError as fault:
            raise ReadError(f"{self._where(rows)} cannot be read: {fault}") from fault
        return held, places

    def _where(self, rows: Rows) -> str:
        return f"records {int(rows[0])} to {int(rows[-1])} of {self.stamp.path!r}"

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
            raise self._broken(row, offset, fault) from None
        return payload

    def _broken(self, row: int, offset: int, fault: FramingError) -> FileFormatError:
        """Return the error of a record that is none, or not where the index says."""
        if self.idx is None:
            return broken(self.stamp.path, row, offset, fault)
        return FileFormatError(
            f"record {row} of {self.stamp.path!r}, at byte {offset:,}, cannot be read: {fault}. It "
            f"is damaged, so copy or write it again; or {self.idx.path!r} is of another file, so "
            f"{REMEDY}"
        )


def _cuts(starts: Rows, stops: Rows) -> Rows:
    """Cut rows into stretches that are read by one call: ascending, close together, not large."""
    n, gaps = len(starts), starts[1:] - stops[:-1]
    apart = np.flatnonzero((gaps < 0) | (gaps > GAP_BYTES)) + 1
    cuts = np.concatenate(([0], apart, [n]))
    if not (stops[cuts[1:] - 1] - starts[cuts[:-1]] > READ_BYTES).any():
        return cuts
    out = list[int]()
    for a, b in pairwise(cuts.tolist()):
        while a < b:
            out.append(a)
            fitting = int(np.searchsorted(stops[a:b], starts[a] + READ_BYTES, "right"))
            a += max(1, fitting)
    return np.array([*out, n])


def _blocks(starts: Rows, stops: Rows) -> Iterator[Rows]:
    """Put stretches together that are held at the same time: where each begins, and the end."""
    if not len(starts):
        return
    cuts = _cuts(starts, stops)
    reach = np.cumsum(stops[cuts[1:] - 1] - starts[cuts[:-1]])
    first = 0
    while first < len(reach):
        before = reach[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(reach, before + READ_BYTES, "right")))
        yield cuts[first : last + 1]
        first = last


# ---------------------------------------------------------------- what records begin with

BLOCK_ROWS = 1 << 12
"""Records that are looked at together."""

THREADS = 8
"""That wait for a disk; a cold one answers several at once."""


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
    lengths, headers = _heads_of(file)
    flags = headers["flag"]
    sizes = lengths - HEADER_BYTES - LABEL.itemsize * flags.astype(np.int64)
    if (sizes < 0).any():
        raise no_header(file, int(np.argmax(sizes < 0)))
    return RecordTable(headers["id"].copy(), flags.copy(), headers["label"].copy(), sizes)


@lru_cache(maxsize=KEPT_FILES)
def lengths_of(file: RecordFile) -> Rows:
    """Return the bytes of all payloads of a file, whatever they hold: int64 (n,)."""
    return _heads_of(file)[0]


def _heads_of(file: RecordFile) -> tuple[Rows, Array]:
    """Return the lengths of all payloads and what may be their headers; several threads read."""
    n = file.n_rows
    lengths, headers = np.empty(n, np.int64), np.empty((n, HEADER_BYTES), np.uint8)

    def some(first: int, last: int) -> None:
        for start in range(first * BLOCK_ROWS, min(n, last * BLOCK_ROWS), BLOCK_ROWS):
            rows = range(start, min(n, start + BLOCK_ROWS))
            found = beginnings(file, rows, HEADER_BYTES)
            lengths[start : rows.stop], headers[start : rows.stop] = found

    share(some, -(-n // BLOCK_ROWS), THREADS)
    return lengths, headers.view(HEADER_DTYPE)[:, 0]


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


def beginnings(file: RecordFile, rows: AnyRows, n_bytes: int) -> tuple[Rows, Array]:
    """Return the lengths of payloads, and their first bytes, zeros where they end.

    Records in several parts are read, and so are those that do not end where the next one begins,
    as errors about them are raised there: an index left by another version of the file is found
    out before labels are.

    Returns
    -------
    int64 array (len(rows),) and uint8 array (len(rows), n_bytes)
    """
    stored, listed = file.heads(rows, n_bytes), np.asarray(rows, np.int64)
    heads, out = stored[:, :HEAD_BYTES].copy().view(HEAD_DTYPE)[:, 0], stored[:, HEAD_BYTES:]
    lengths = (heads["word"] & MAX_RECORD_BYTES).astype(np.int64)
    odd = (heads["word"] >> LENGTH_BITS != WHOLE) | (heads["magic"] != MAGIC)
    odd |= HEAD_BYTES + padded(lengths) != file.stored_sizes(listed)
    for i in np.flatnonzero(odd).tolist():
        payload = file.payload(int(listed[i]))  # raises if it is not a record
        lengths[i] = len(payload)
        out[i] = np.frombuffer(bytes(payload[:n_bytes]).ljust(n_bytes, b"\0"), np.uint8)
    return lengths, out


@lru_cache(maxsize=KEPT_FILES)
def header_labels(file: RecordFile) -> Array:
    """Return the one label of each record, whether it stands in the header or behind it."""
    table = table_of(file)
    labels = table.labels.copy()
    behind = np.flatnonzero(table.flags)
    if len(behind):
        _, begin = beginnings(file, behind, HEADER_BYTES + LABEL.itemsize)
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
    lengths, begins = beginnings(file, rows, HEADER_BYTES + PICTURE_BYTES)
    out = np.empty((len(rows), 4), np.int32)
    for i, (row, n_bytes) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        try:
            head = _head(file, row, begins[i].data[:n_bytes])
            out[i] = head.height, head.width, head.channels, head.orientation
        except (PictureError, HeaderError):
            out[i] = UNKNOWN
    return out


def _head(file: RecordFile, row: int, begin: memoryview) -> PictureHead:
    """Tell a picture by the beginning of its record, or by all of it where that is too little."""
    at = HEADER_BYTES + LABEL.itemsize * int.from_bytes(begin[:4], "little")
    with contextlib.suppress(ShortHeadError):
        head = head_of(begin[at:])
        if head is not None:
            return head
    return picture_head(unpack(file.payload(row)).payload)
