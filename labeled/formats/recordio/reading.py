"""Reading records by row: neighbours in one call, each checked against the index.

A file of records is a recipe (a stamp, and perhaps that of its ``.idx``): it holds no handle
and no index, pickles as a few words, and may be used by several threads at once. Payloads
are handed out as views of what was read, so that a picture is decoded from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import LabeledError, ReadError
from labeled.formats.bytesource import open_bytes
from labeled.formats.header import FileStamp
from labeled.formats.recordio.framing import HEAD_BYTES, FramingError, unframe
from labeled.formats.recordio.index import RecordIndex, broken, index_of

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
AnyRows = range | Rows

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

    @property
    def index(self) -> RecordIndex:
        return index_of(self.stamp, self.idx)

    @property
    def n_rows(self) -> int:
        return len(self.index)

    @property
    def largest(self) -> int:
        """Bytes of the longest record as stored."""
        return int(np.diff(self.index.offsets).max(initial=0))

    def stored_sizes(self, rows: AnyRows) -> Rows:
        """Return the bytes that records take in the file; payloads are a little smaller."""
        offsets = self.index.offsets
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
        offsets, listed = self.index.offsets, np.asarray(rows, np.int64)
        for a, b in pairwise(_cuts(offsets[listed], offsets[listed + 1])):
            some = listed[a:b]
            begin, end = int(offsets[some[0]]), int(offsets[some[-1] + 1])
            held = self._read(begin, end, some).data
            for row in some.tolist():
                at, stop = int(offsets[row]) - begin, int(offsets[row + 1]) - begin
                yield row, self._payload(held[:stop], at, row)

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
        offsets, listed = self.index.offsets, np.asarray(rows, np.int64)
        width = HEAD_BYTES + n_bytes
        out = np.zeros((len(listed), width), np.uint8)
        starts = offsets[listed]
        stops = np.minimum(offsets[listed + 1], starts + width)
        for a, b in pairwise(_cuts(starts, stops)):
            begin = int(starts[a])
            held = self._read(begin, int(stops[a:b].max()), listed[a:b])
            for i in range(a, b):
                part = held[starts[i] - begin : stops[i] - begin]
                out[i, : len(part)] = part
        return out

    def advise(self, runs: Rows) -> None:
        """Tell the system which records are read next."""
        file, offsets = open_bytes(self.stamp), self.index.offsets
        for start, stop in runs.tolist():
            file.advise(int(offsets[start]), int(offsets[stop] - offsets[start]))

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch a record from storage."""
        return not open_bytes(self.stamp).holds(int(self.index.offsets[row]))

    def _read(self, begin: int, end: int, rows: Rows) -> Array:
        held = np.empty(end - begin, np.uint8)
        try:
            file = open_bytes(self.stamp)
            file.check()
            file.read_into(held, begin)
        except EOFError as fault:
            raise ReadError(f"{self._where(rows)}: {fault}; copy the file again") from fault
        except LabeledError:
            raise
        except OSError as fault:
            raise ReadError(f"{self._where(rows)} cannot be read: {fault}") from fault
        return held

    def _where(self, rows: Rows) -> str:
        return f"records {int(rows[0])} to {int(rows[-1])} of {self.stamp.path!r}"

    def _payload(self, held: memoryview, at: int, row: int) -> memoryview:
        try:
            payload, end = unframe(held, at)
            if end != len(held):
                raise FramingError(
                    f"it ends {len(held) - end:,} bytes before the next one of the index; "
                    "the index leaves records out"
                )
        except FramingError as fault:
            offset = int(self.index.offsets[row])
            raise broken(self.stamp.path, row, offset, fault) from None
        return payload


def _cuts(starts: Rows, stops: Rows) -> list[int]:
    """Cut rows into stretches that are read by one call: ascending, close together, not large."""
    if not len(starts):
        return [0]
    gaps = starts[1:] - stops[:-1]
    apart = np.flatnonzero((gaps < 0) | (gaps > GAP_BYTES)) + 1
    cuts = [0]
    for edge in [*apart.tolist(), len(starts)]:
        while cuts[-1] < edge:
            first = cuts[-1]
            fitting = int(np.searchsorted(stops[first:edge], starts[first] + READ_BYTES, "right"))
            cuts.append(min(edge, first + max(1, fitting)))
    return cuts
