"""Rows in another order than they can be read in, within bounded memory.

Two passes. In the first, rows are read as they lie and put into *buckets*, each a stretch
of the new order; a bucket is a region of one temporary file. In the second, a bucket at a
time is brought into memory and put in order there. Every row is read once, written once and
read once more, always in long stretches, however large the source is.

The temporary file has no name, so that nothing of it stays behind whatever happens.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any

import numpy as np

from labeled.formats.region import Array
from labeled.formats.replacing import explained
from labeled.ragged.flat import Flat, Rows, block_cuts, copy_segments, offsets_of
from labeled.writing.given import text_blocks
from labeled.writing.ordering import Order

Told = Callable[[int], None]

BUCKETS_HELD = 2
"""Buckets in memory at a time: blocks may reach over the border of two."""


@contextmanager
def room(target: str, n_bytes: int) -> Iterator[IO[bytes]]:
    """Open a file without a name beside a target, with so many bytes set aside.

    Raises
    ------
    WriteError
        If the disk does not have them.
    """
    with explained(target), tempfile.TemporaryFile(dir=os.path.dirname(target)) as file:
        if n_bytes and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, n_bytes)
        else:
            os.truncate(file.fileno(), n_bytes)
        yield file


@dataclass(frozen=True, slots=True, eq=False)
class Lot:
    """Some consecutive rows as bytes: values one row after another, and where each begins."""

    start: int
    values: Array
    """uint8."""
    offsets: Rows


class Buckets:
    """Rows of one source in a new order; safe in threads.

    Parameters
    ----------
    order : Order
    sizes : int or int64 array (n_rows,)
        Bytes of every row, or of each.
    budget : int
        Bytes of memory for lots and buckets.
    target : str
        Beside which the temporary file lies.
    stack : ExitStack
        Gives the disk back when it is closed.
    """

    def __init__(
        self, order: Order, sizes: int | Rows, budget: int, target: str, stack: ExitStack
    ) -> None:
        self._order = order
        self._sizes = sizes
        self._edges = self._cut(max(budget // (2 * BUCKETS_HELD + 2), 1))
        self._begin = self._byte_edges()
        self._file = stack.enter_context(room(target, int(self._begin[-1])))
        self._target = target
        self._lock = threading.Lock()
        self._held: OrderedDict[int, tuple[Array, Rows]] = OrderedDict()

    def _cut(self, most: int) -> Rows:
        """Return the positions at which buckets begin, and the end."""
        n_rows = self._order.n_rows
        if isinstance(self._sizes, int):
            step = max(most // max(self._sizes, 1), 1)
            return np.array([*range(0, n_rows, step), n_rows], np.int64)
        sizes = self._sizes[self._order.old(np.arange(n_rows))]
        return np.array(block_cuts(sizes, most), np.int64)

    def _byte_edges(self) -> Rows:
        if isinstance(self._sizes, int):
            return self._edges * self._sizes
        sizes = self._sizes[self._order.old(np.arange(self._order.n_rows))]
        return offsets_of(sizes)[self._edges]

    def fill(self, lots: Iterator[Lot], told: Told) -> None:
        """Take all rows as they come; the first pass."""
        free = self._begin[:-1].copy()
        for lot in lots:
            n_rows = len(lot.offsets) - 1
            positions = self._order.new(np.arange(lot.start, lot.start + n_rows))
            bucket = np.searchsorted(self._edges, positions, side="right") - 1
            grouped = np.argsort(bucket, kind="stable")
            values, offsets = self._picked(lot.values, lot.offsets, grouped)
            cuts = np.flatnonzero(np.diff(bucket[grouped], prepend=-1, append=-1))
            for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
                number = int(bucket[grouped[a]])
                part = values[offsets[a] : offsets[b]]
                with explained(self._target):
                    _write_at(self._file.fileno(), part, int(free[number]))
                free[number] += len(part)
            told(len(values))

    def _picked(self, values: Array, offsets: Rows, which: Rows) -> tuple[Array, Rows]:
        """Put rows in another order."""
        if isinstance(self._sizes, int):
            rows = values.reshape(len(which), self._sizes)[which]
            return rows.reshape(-1), offsets
        sizes = np.diff(offsets)[which]
        out, places = np.empty(len(values), np.uint8), offsets_of(sizes)
        copy_segments(out, places[:-1], values, offsets[:-1][which], sizes)
        return out, places

    def read(self, start: int, stop: int) -> Array:
        """Return the bytes of the rows at positions `start` to `stop`; the second pass."""
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        parts, at = [], start
        while at < stop:
            values, offsets = self._bucket(first)
            low, high = int(self._edges[first]), int(self._edges[first + 1])
            end = min(stop, high)
            parts.append(values[offsets[at - low] : offsets[end - low]])
            at, first = end, first + 1
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])

    def _bucket(self, number: int) -> tuple[Array, Rows]:
        with self._lock:
            if number in self._held:
                self._held.move_to_end(number)
                return self._held[number]
            while len(self._held) >= BUCKETS_HELD:
                self._held.popitem(last=False)
            self._held[number] = found = self._in_order(number)
            return found

    def _in_order(self, number: int) -> tuple[Array, Rows]:
        low, high = int(self._edges[number]), int(self._edges[number + 1])
        begin, end = int(self._begin[number]), int(self._begin[number + 1])
        values = np.empty(end - begin, np.uint8)
        _read_at(self._file.fileno(), values, begin)
        rows = self._order.old(np.arange(low, high))
        came = np.argsort(rows, kind="stable")  # rows came in the order of the file
        back = np.empty_like(came)
        back[came] = np.arange(len(came))
        if isinstance(self._sizes, int):
            return self._picked(values, np.arange(len(rows) + 1) * self._sizes, back)
        return self._picked(values, offsets_of(self._sizes[rows[came]]), back)


def _write_at(handle: int, data: Array, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(handle, data[done:].data, offset + done)


def _read_at(handle: int, out: Array, offset: int) -> None:
    done = 0
    while done < len(out):
        n = os.preadv(handle, [out[done:].data], offset + done)
        if not n:
            raise EOFError("the temporary file is shorter than what was written to it")
        done += n


# rows and bytes


def lots_of_rows(read: Callable[[int, int], Array], n_rows: int, step: int) -> Iterator[Lot]:
    """Read rows of one shape, so many at a time, as bytes."""
    for start in range(0, n_rows, step):
        rows = np.ascontiguousarray(read(start, min(start + step, n_rows)))
        raw = rows.reshape(-1).view(np.uint8)
        size = len(raw) // max(len(rows), 1)
        yield Lot(start, raw, np.arange(len(rows) + 1) * size)


def lots_of_texts(
    read: Callable[[int, int], Array], n_rows: int, most: int, step: int
) -> Iterator[Lot]:
    """Read texts, about `most` bytes at a time: each row's one by one, each after its length."""
    for block in text_blocks(read, n_rows, 1, most, step=step):
        assert block.read is not None
        packed = [packed_texts(row) for row in block.read()]
        sizes = np.array(list(map(len, packed)), np.int64)
        yield Lot(block.start, np.frombuffer(b"".join(packed), np.uint8), offsets_of(sizes))


def packed_texts(row: Any) -> bytes:
    """Return the texts of a row as bytes.

    Examples
    --------
    >>> unpacked_texts(packed_texts("é") + packed_texts("ab")).tolist()
    [b'\\xc3\\xa9', b'ab']
    """
    out = []
    for text in np.asarray(row, object).reshape(-1).tolist():
        raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
        out += [len(raw).to_bytes(8, "little"), raw]
    return b"".join(out)


def unpacked_texts(raw: bytes) -> Array:
    """Return the texts that were packed, as bytes."""
    out, at = [], 0
    while at < len(raw):
        size = int.from_bytes(raw[at : at + 8], "little")
        out.append(raw[at + 8 : at + 8 + size])
        at += 8 + size
    texts = np.empty(len(out), object)
    texts[:] = out
    return texts


def lots_of_examples(read: Callable[[int, int], Flat], sizes: Rows, most: int) -> Iterator[Lot]:
    """Read examples of different shapes, at most `most` bytes at a time, as bytes."""
    cuts = block_cuts(sizes, most)
    for start, stop in pairwise(cuts):
        flat = read(start, stop)
        raw = np.ascontiguousarray(flat.values).view(np.uint8)
        yield Lot(start, raw, offsets_of(sizes[start:stop]))
