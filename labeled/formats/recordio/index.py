"""Where the records of a file begin: by going from head to head once, or from its ``.idx``.

An index is eight bytes a record, made once a process for a file and left behind when
anything travels. Each record ends where the next begins, so a file that is cut short, or
whose lengths lead nowhere, is found out here, before a row is read.

The trade-off: going from head to head fetches one page a record, which is slow from a cold
disk; an ``.idx`` saves that. It is believed only as far as it can be checked: its first
record must be the first of the file and its last one must end with the file, and reading
finds out whether one is missing between two others.
"""

from __future__ import annotations

import os
from array import array
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from labeled.errors import FileFormatError
from labeled.formats.bytesource import OpenFile, open_bytes, stamp_of
from labeled.formats.header import FileStamp
from labeled.formats.recordio.framing import (
    ALIGNMENT,
    HEAD_BYTES,
    LAST,
    WHOLE,
    FramingError,
    padded,
    part_at,
)

Rows = npt.NDArray[np.int64]

SUFFIX = ".idx"
REMEDY = "make it again, or open with index=False to go through the records"

KEPT_FILES = 4096
"""Of so many files a process keeps what it found out: more than are joined to one dataset."""

STREAM_BYTES = 1 << 18
"""What is read at once where records are small."""

SMALL_BYTES = 1 << 14
"""Records that are smaller on average are gone through in one stream."""


@dataclass(frozen=True, eq=False)
class RecordIndex:
    """Where records begin, and the end of the last.

    Parameters
    ----------
    offsets : int64 (n + 1,)
        Ascending; record i lies in ``offsets[i] : offsets[i + 1]``.
    why : str
        Where they are known from, for `explain`.
    """

    offsets: Rows
    why: str

    def __len__(self) -> int:
        return len(self.offsets) - 1


@lru_cache(maxsize=KEPT_FILES)
def index_of(stamp: FileStamp, idx: FileStamp | None = None) -> RecordIndex:
    """Return where the records of a file begin.

    Parameters
    ----------
    stamp : FileStamp
        Of the record file.
    idx : FileStamp, optional
        Of a text file of keys and offsets that spares going through the records.

    Raises
    ------
    FileFormatError
        If the file is no RecordIO file or is cut short, or `idx` is not its index.
    """
    if not stamp.size:
        return RecordIndex(np.zeros(1, np.int64), "an empty file")
    file = open_bytes(stamp)
    if idx is None:
        return RecordIndex(_scanned(file, stamp), "records gone through once")
    offsets = np.sort(read_idx(idx.path)[1])
    _check_idx(idx, offsets, stamp, file)
    return RecordIndex(np.append(offsets, stamp.size), f"offsets from {os.path.basename(idx.path)}")


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
        f"record {record} of {path!r}, at byte {offset:,}, is damaged: {fault}; the file is no "
        "RecordIO file, or was cut short, so copy or write it again"
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
        If a line is no key and offset.
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
