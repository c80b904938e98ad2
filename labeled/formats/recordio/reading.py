"""Reading records by row: neighbours in one call, each checked against the index.

A file of records is a recipe (a stamp, and perhaps that of its ``.idx``): it holds no handle
and no index, pickles as a few words, and may be used by several threads at once. Payloads
are handed out as views of what was read, so that a picture is decoded from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import FileFormatError, ReadError
from labeled.formats.bytesource import FileRef, OpenFile
from labeled.formats.header import FileStamp
from labeled.formats.recordio.framing import (
    ALIGNMENT,
    HEAD_BYTES,
    MAGIC,
    FramingError,
    unframe,
)
from labeled.formats.recordio.index import REMEDY, RecordIndex, broken, index_of

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
AnyRows = range | Rows
Held = tuple[Array, Rows]
"""What was read of some stretches, and where in it each begins."""

HEAD_DTYPE = np.dtype([("magic", "<u4"), ("word", "<u4")])

READ_BYTES = 1 << 20
"""What is read at once, unless one record is larger."""

GAP_BYTES = 1 << 12
"""Bytes between two records that are sooner read than skipped."""

SHORT_BYTES, FEWEST_PICKED, ITEM_BYTES = 1 << 15, 8, 1 << 8
"""So many stretches, this short on average, are copied out of a memory map where one may be
used: a call each takes three times as long. They are copied by items of the last size.
"""

FAR_APART = 4
"""Records that lie over so many times the bytes they take have few neighbours among them."""


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
        numbers, starts, stops = placed
        file = self._file()
        found = self._at_once(file, placed, maps=maps)
        if found is not None:
            (held, places), rows = found, numbers.tolist()
            yield rows, self._payloads(held, places, places + (stops - starts), rows)
            return
        for cuts in _blocks(starts, stops):
            first, last = cuts[0], cuts[-1]
            begins, ends = starts[cuts[:-1]], stops[cuts[1:] - 1]
            found = _picked(file, begins, ends) if maps and _scattered(file, begins, ends) else None
            held, places = found or self._read(file, begins, ends, numbers[first:last])
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
        offsets, listed = self.index.offsets, np.asarray(rows, np.int64)
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

    def _at_once(self, file: OpenFile, placed: Rows, *, maps: bool) -> Held | None:
        """Fetch records that lie all side by side, or far apart; None where it takes more.

        These are what most pieces of an epoch are, and need the fewest calls of NumPy.
        """
        numbers, starts, stops = placed
        n_bytes = int((stops - starts).sum())
        if not 0 < n_bytes <= READ_BYTES:
            return None
        span = int(stops[-1]) - int(starts[0])
        if span == n_bytes and (starts[1:] == stops[:-1]).all():
            held = np.empty(n_bytes, np.uint8)
            self._fill(file, held, [(int(starts[0]), 0, n_bytes)], numbers)
            return held, starts - starts[0]
        if maps and span > FAR_APART * n_bytes and _scattered(file, starts, stops):
            return _picked(file, starts, stops)
        return None

    def _read(self, file: OpenFile, begins: Rows, ends: Rows, rows: Rows) -> Held:
        """Fetch some stretches of the file, each by a call."""
        reach = np.cumsum(ends - begins)
        held, places = np.empty(reach[-1], np.uint8), reach - ends + begins
        parts = zip(begins.tolist(), places.tolist(), reach.tolist(), strict=True)
        self._fill(file, held, parts, rows)
        return held, places

    def _fill(
        self, file: OpenFile, held: Array, parts: Iterable[tuple[int, int, int]], rows: Rows
    ) -> None:
        """Read to `held` what begins at some bytes of the file; places in it, first and behind."""
        try:
            for begin, place, stop in parts:
                file.read_into(held[place:stop], begin)
        except EOFError as fault:
            raise ReadError(f"{self._where(rows)}: {fault}; copy the file again") from fault
        except OSError as fault:
            raise ReadError(f"{self._where(rows)} cannot be read: {fault}") from fault

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
            offset = int(self.index.offsets[row])
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


def _scattered(file: OpenFile, begins: Rows, ends: Rows) -> bool:
    """Whether a call a stretch takes longer than what it brings, as the system has that at hand.

    From storage a map would fetch far more around each of them.
    """
    n = len(begins)
    short = n >= FEWEST_PICKED and (ends - begins).sum() <= n * SHORT_BYTES
    return bool(short) and file.holds(int(begins[n // 2]))


def _picked(file: OpenFile, begins: Rows, ends: Rows) -> Held | None:
    """Copy some stretches out of a memory map with one call; None where there is no map.

    They are copied by items of one size, so a few bytes behind each come with it.
    """
    counts = (ends - begins + ITEM_BYTES - 1) // ITEM_BYTES
    reach = np.cumsum(counts)
    places = (reach - counts) * ITEM_BYTES
    mapped = file.mapped(scattered=True)
    if mapped is None or (begins + counts * ITEM_BYTES).max() > len(mapped):
        return None
    anywhere = len(mapped) - ITEM_BYTES + 1
    items = np.ndarray(anywhere, np.dtype((np.void, ITEM_BYTES)), mapped, strides=(1,))
    at = np.repeat(begins - places, counts) + np.arange(0, reach[-1] * ITEM_BYTES, ITEM_BYTES)
    held = items[at].view(np.uint8)
    file.copied(held.nbytes, scattered=True)
    return held, places


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
