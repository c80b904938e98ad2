"""An index of rows: where every so-many-th row begins, found in one pass over the text.

Eight bytes are kept for about every half mebibyte. A row is found by reading the
block it is in, whose rows are then found again; so rows in any order work, whatever the
size of the file. Compressed text is inflated on the way, in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.bytesource import FileRef
from labeled.formats.csv.dialect import READ_BYTES, Dialect, parts_of
from labeled.formats.header import FileStamp
from labeled.formats.region import Ints

BLOCK_BYTES = 512 * 1024
"""Text of a block, about."""

MOST_BLOCK_BYTES = 16 * BLOCK_BYTES

MOST_ROW_BYTES = 8 * 1024 * 1024
"""The longest row there may be: a quote that is never closed would make one of the whole file,
and telling what is wrong with a row takes some twenty times its bytes."""


@dataclass(frozen=True, eq=False)
class RowIndex:
    """Where the rows of a text are.

    Parameters
    ----------
    starts : int64 array
        Where the first row of each block begins; then where the last row ends.
    block_rows : int
        Rows of a block, but for the last.
    n_rows : int
    n_bytes : int
        Of the text, unpacked.
    """

    starts: Ints
    block_rows: int
    n_rows: int
    n_bytes: int

    @property
    def longest(self) -> int:
        """Bytes of the longest block."""
        return int(np.diff(self.starts).max(initial=0))


@lru_cache(maxsize=8)
def row_index(stamp: FileStamp, dialect: Dialect) -> RowIndex:
    """Go through a text once and note where its rows are.

    Raises
    ------
    FileFormatError
        If a quote is not closed, or a row longer than any can be.
    """
    index = _indexed(stamp, dialect, 0)
    while index.longest > MOST_BLOCK_BYTES and index.block_rows > 1:  # the first rows misled
        fewer = index.block_rows * BLOCK_BYTES // index.longest
        index = _indexed(stamp, dialect, max(1, fewer))
    return index


def _indexed(stamp: FileStamp, dialect: Dialect, block_rows: int) -> RowIndex:
    """Go through a text once; without `block_rows` the first rows tell how many are a block."""
    found: list[Ints] = []
    n_rows, at, end = 0, dialect.begin, dialect.begin
    left = np.zeros(0, np.uint8)
    for part, last in _parts(stamp, dialect.begin):
        text = np.concatenate((left, np.frombuffer(part, np.uint8)))
        lines = dialect.lines(text, last=last)
        if len(lines.starts):
            if not block_rows:
                each = (int(lines.ends[-1]) - int(lines.starts[0])) / len(lines.starts)
                block_rows = max(1, int(BLOCK_BYTES / each))
            found.append(at + lines.starts[-n_rows % block_rows :: block_rows])
            n_rows += len(lines.starts)
            end = at + int(lines.ends[-1])
        left, at = text[lines.rest :], at + lines.rest
        if len(left) > (0 if last else MOST_ROW_BYTES):
            raise _unclosed(stamp, at)
    starts = np.concatenate([*found, np.array([end])]).astype(np.int64)
    return RowIndex(starts, max(1, min(block_rows, n_rows)), n_rows, at)


def _parts(stamp: FileStamp, begin: int) -> Iterator[tuple[bytes, bool]]:
    """Yield the text from `begin` on in large pieces, the last one empty and marked."""
    held, at = bytearray(), 0
    for part in parts_of(stamp):
        held += part[max(begin - at, 0) :]
        at += len(part)
        if len(held) >= READ_BYTES:
            yield bytes(held), False
            held.clear()
    yield bytes(held), False
    yield b"", True


def _unclosed(stamp: FileStamp, at: int) -> FileFormatError:
    return FileFormatError(
        f"file {stamp.path!r} opens a quote after byte {at} that is not closed (or has a row of "
        f"more than {MOST_ROW_BYTES} bytes); close it, or pass quote=None if quotes enclose nothing"
    )


def line_at(stamp: FileStamp, dialect: Dialect, at: int) -> int:
    """Return the number of the line at byte `at`: the line ends before it are counted."""
    file, line, end = FileRef(stamp)(), dialect.first_line, bytes([dialect.newline])
    for begin in range(dialect.begin, at, READ_BYTES):
        data = np.empty(min(READ_BYTES, at - begin), np.uint8)
        file.read_into(data, begin)
        line += data.tobytes().count(end)
    return line
