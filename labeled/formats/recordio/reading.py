"""Reading records by row: neighbours in one call, each checked against the index.

A file of records is a recipe (a stamp, and perhaps that of its ``.idx``): it holds no handle
and no index, pickles as a few words, and may be used by several threads at once. Payloads
are handed out as views of what was read, so that a picture is decoded from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import ReadError
from labeled.formats.bytesource import FileRef, OpenFile
from labeled.formats.header import FileStamp
from labeled.formats.recordio.framing import (
    ALIGNMENT,
    HEAD,
    HEAD_BYTES,
    MAGIC,
    FramingError,
    unframe,
)
from labeled.formats.recordio.index import RecordIndex, broken, index_of

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
AnyRows = range | Rows
Stretches = Sequence[tuple[int, int]]
Held = tuple[memoryview, list[int]]
"""What was read of some stretches, and where in it each begins."""

READ_BYTES = 1 << 20
"""What is read at once, unless one record is larger."""

GAP_BYTES = 1 << 12
"""Bytes between two records that are sooner read than skipped."""

SHORT_BYTES, FEWEST_PICKED, ITEM_BYTES = 1 << 15, 8, 1 << 8
"""So many stretches, this short on average, are copied out of a memory map where one may be
used: a call each takes three times as long. They are copied by items of the last size.
"""


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
    def index(self) -> RecordIndex:
        return index_of(self.stamp, self.idx)

    @cached_property
    def _opened(self) -> FileRef:
        return FileRef(self.stamp)

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
        for numbers, payloads in self.blocks(self.placed(rows)):
            yield from zip(numbers, payloads, strict=True)

    def placed(self, rows: AnyRows) -> Rows:
        """Return rows, where their records begin, and where they end: int64 (3, n)."""
        offsets, listed = self.index.offsets, np.asarray(rows, np.int64)
        return np.stack((listed, offsets[listed], offsets[listed + 1]))

    def blocks(
        self, placed: Rows, *, maps: bool = False
    ) -> Iterator[tuple[list[int], list[memoryview]]]:
        """Do the same by the block: rows and payloads, about `READ_BYTES` of them at a time.

        Whatever runs between two pictures that are decoded finds none of its own code in the
        caches, so that one call of NumPy takes as long as several records: there are few here.

        Parameters
        ----------
        placed : int64 array (3, n)
            From :meth:`placed`, all of it or some columns.
        maps : bool
            Whether scattered records may be copied out of a memory map, all of them at once.
        """
        numbers, starts, stops = placed.tolist()
        file = self._file()
        for cuts in _blocks(starts, stops):
            first, last = cuts[0], cuts[-1]
            stretches = [(starts[a], stops[b - 1]) for a, b in pairwise(cuts)]
            found = _picked(file, stretches) if maps and _scattered(file, stretches) else None
            view, places = found or self._read(file, stretches, numbers[first:last])
            payloads = list[memoryview]()
            for (a, b), place in zip(pairwise(cuts), places, strict=True):
                shift = place - starts[a]
                for i in range(a, b):
                    at, stop = starts[i] + shift, stops[i] + shift
                    magic, word = HEAD.unpack_from(view, at) if stop - at >= HEAD_BYTES else (0, 0)
                    begin = at + HEAD_BYTES
                    if magic == MAGIC and begin + word + -word % ALIGNMENT == stop:
                        payloads.append(view[begin : begin + word])  # whole: its kind is 0
                    else:
                        payloads.append(self._payload(view, at, stop, numbers[i]))
            yield numbers[first:last], payloads

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
        starts, file = offsets[listed], self._file()
        stops = np.minimum(offsets[listed + 1], starts + width)
        for a, b in pairwise(_cuts(starts.tolist(), stops.tolist())):
            begin = int(starts[a])
            view, _ = self._read(file, [(begin, int(stops[b - 1]))], listed[a:b])
            held = np.frombuffer(view, np.uint8)
            for i in range(a, b):
                part = held[starts[i] - begin : stops[i] - begin]
                out[i, : len(part)] = part
        return out

    def advise(self, runs: Rows) -> None:
        """Tell the system which records are read next."""
        file, offsets = self._opened(), self.index.offsets
        for start, stop in runs.tolist():
            file.advise(int(offsets[start]), int(offsets[stop] - offsets[start]))

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch a record from storage."""
        return not self._opened().holds(int(self.index.offsets[row]))

    def _file(self) -> OpenFile:
        """Return the open file, looking whether it is still the same one."""
        file = self._opened()
        file.check()
        return file

    def _read(self, file: OpenFile, stretches: Stretches, rows: Sequence[int] | Rows) -> Held:
        """Fetch some stretches of the file, each by a call."""
        held, at, places = np.empty(sum([b - a for a, b in stretches]), np.uint8), 0, list[int]()
        try:
            for begin, end in stretches:
                places.append(at)
                at += end - begin
                file.read_into(held[places[-1] : at], begin)
        except EOFError as fault:
            raise ReadError(f"{self._where(rows)}: {fault}; copy the file again") from fault
        except OSError as fault:
            raise ReadError(f"{self._where(rows)} cannot be read: {fault}") from fault
        return held.data, places

    def _where(self, rows: Sequence[int] | Rows) -> str:
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
            offset = int(self.index.offsets[row])
            raise broken(self.stamp.path, row, offset, fault) from None
        return payload


def _scattered(file: OpenFile, stretches: Stretches) -> bool:
    """Whether a call a stretch takes longer than what it brings, as the system has that at hand.

    From storage a map would fetch far more around each of them.
    """
    n, n_bytes = len(stretches), sum([end - begin for begin, end in stretches])
    short = n >= FEWEST_PICKED and n_bytes <= n * SHORT_BYTES
    return short and file.holds(stretches[n // 2][0])


def _picked(file: OpenFile, stretches: Stretches) -> Held | None:
    """Copy some stretches out of a memory map with one call; None where there is no map.

    They are copied by items of one size, so a few bytes behind each come with it.
    """
    starts, stops = np.array(stretches).T
    counts = (stops - starts + ITEM_BYTES - 1) // ITEM_BYTES
    ends = np.cumsum(counts)
    places = (ends - counts) * ITEM_BYTES
    mapped = file.mapped(scattered=True)
    if mapped is None or (starts + counts * ITEM_BYTES).max() > len(mapped):
        return None
    anywhere = len(mapped) - ITEM_BYTES + 1
    items = np.ndarray(anywhere, np.dtype((np.void, ITEM_BYTES)), mapped, strides=(1,))
    at = np.repeat(starts - places, counts) + np.arange(0, ends[-1] * ITEM_BYTES, ITEM_BYTES)
    held = items[at].view(np.uint8)
    file.copied(held.nbytes, scattered=True)
    return held.data, places.tolist()


def _cuts(starts: list[int], stops: list[int]) -> list[int]:
    """Cut rows into stretches that are read by one call: ascending, close together, not large."""
    if starts[1:] == stops[:-1] and starts and stops[-1] - starts[0] <= READ_BYTES:
        return [0, len(starts)]
    cuts, begin, end = [0], 0, 0
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        if i and (not end <= start <= end + GAP_BYTES or stop > begin + READ_BYTES):
            cuts.append(i)
        if cuts[-1] == i:
            begin = start
        end = stop
    return [*cuts, len(starts)] if starts else cuts


def _blocks(starts: list[int], stops: list[int]) -> Iterator[list[int]]:
    """Put stretches together that are held at the same time: where each begins, and the end."""
    cuts, block, size = _cuts(starts, stops), [0], 0
    if len(cuts) == 2:
        yield cuts
        return
    for a, b in pairwise(cuts):
        n_bytes = stops[b - 1] - starts[a]
        if size and size + n_bytes > READ_BYTES:
            yield block
            block, size = [a], 0
        block.append(b)
        size += n_bytes
    if size:
        yield block
