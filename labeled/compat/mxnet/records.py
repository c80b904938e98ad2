"""In which order the old iterators read the records of files: parts, chunks, shuffles.

Files are one stream of bytes. Without an index a part is a stretch of that stream, read in chunks
that end at the head of a record; with one it is a number of records, read in any order. What is
handed out are chunks: the payloads that were read, and decoded, together, in file order. How a
chunk is shuffled the iterators know.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.twister import Twister
from labeled.errors import FileFormatError, LoaderError
from labeled.formats.recordio.framing import (
    ALIGNMENT,
    FIRST,
    HEAD_BYTES,
    LENGTH_BITS,
    MAGIC,
    FramingError,
    unframe,
)

Chunk = list[memoryview]
"""Payloads, in file order."""

MIB = 1 << 20
SCAN_BYTES = MIB
PIECE_SEED = 666
"""What the seed of the order of pieces began with."""
SOME_RECORDS = 64
"""Records that are read before the first of them is needed, where there is an index."""
SLACK = 1.1
"""Pieces were made somewhat smaller than asked for."""


@dataclass(frozen=True, eq=False)
class ByteStream:
    """Files one after another, as one stretch of bytes."""

    files: Sequence[str]

    @cached_property
    def _ends(self) -> list[int]:
        sizes = [os.path.getsize(file) for file in self.files]
        for file, size in zip(self.files, sizes, strict=True):
            if size % ALIGNMENT:
                raise FileFormatError(
                    f"{file!r} has {size} bytes, no multiple of {ALIGNMENT}: it is no RecordIO "
                    "file, or was cut short"
                )
        return list(accumulate(sizes))

    @property
    def n_bytes(self) -> int:
        return self._ends[-1]

    def read(self, start: int, stop: int) -> memoryview:
        """Return the bytes ``start`` to ``stop``."""
        pieces = []
        while start < stop:
            number = bisect_right(self._ends, start)
            begin = self._ends[number - 1] if number else 0
            end = min(stop, self._ends[number])
            with open(self.files[number], "rb") as stream:
                stream.seek(start - begin)
                pieces.append(stream.read(end - start))
            if len(pieces[-1]) < end - start:
                raise FileFormatError(f"{self.files[number]!r} has become shorter")
            start = end
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def head_from(self, start: int) -> int:
        """Return where the first record at or behind `start` begins; the end if there is none."""
        while start < self.n_bytes:
            window = self.read(start, min(start + SCAN_BYTES + HEAD_BYTES, self.n_bytes))
            heads = _heads(window)
            if len(heads):
                return start + int(heads[0])
            start += SCAN_BYTES
        return self.n_bytes

    def part(self, index: int, count: int) -> tuple[int, int]:
        """Return the stretch of part `index` of `count`: records that begin in equal shares."""
        step = -(-self.n_bytes // count)
        step += -step % ALIGNMENT
        return self.head_from(min(index * step, self.n_bytes)), self.head_from(
            min((index + 1) * step, self.n_bytes)
        )

    def chunks(self, start: int, stop: int, chunk_bytes: int) -> Iterator[Chunk]:
        """Cut a stretch into chunks; each ends before the last head in its bytes."""
        while start < stop:
            size = chunk_bytes
            end = self._chunk_end(start, stop, size)
            while end == start:
                size *= 2
                end = self._chunk_end(start, stop, size)
            yield self.payloads(start, end)
            start = end

    def _chunk_end(self, start: int, stop: int, size: int) -> int:
        if stop - start < size:
            return stop
        return start + int(_heads(self.read(start, start + size))[-1])

    def payloads(self, start: int, stop: int) -> Chunk:
        """Return the payloads of the records of a stretch."""
        held, at, out = self.read(start, stop), 0, []
        while at < len(held):
            try:
                payload, at = unframe(held, at)
            except FramingError as fault:
                raise FileFormatError(
                    f"the record at byte {start + at:,} of {', '.join(map(repr, self.files))} is "
                    f"damaged: {fault}"
                ) from None
            out.append(payload)
        return out


def _heads(window: memoryview) -> npt.NDArray[np.int64]:
    """Return where records begin in some bytes, which begin at a multiple of four."""
    words = np.frombuffer(window[: len(window) // ALIGNMENT * ALIGNMENT], "<u4")
    first = (words[:-1] == MAGIC) & (words[1:] >> LENGTH_BITS <= FIRST)
    return np.flatnonzero(first) * ALIGNMENT


class Passes:
    """Chunks of a stretch of files, pass after pass; see :func:`passes_of`."""

    def begin(self) -> Iterator[Chunk]:
        """Begin a pass."""
        raise NotImplementedError


@dataclass(eq=False)
class PlainPasses(Passes):
    """A stretch of bytes in large chunks."""

    stream: ByteStream
    start: int
    stop: int
    chunk_bytes: int

    def begin(self) -> Iterator[Chunk]:
        return self.stream.chunks(self.start, self.stop, self.chunk_bytes)


@dataclass(eq=False)
class PiecePasses(Passes):
    """A part cut into pieces, whose order is shuffled before every pass, always further."""

    stream: ByteStream
    part: tuple[int, int]
    n_pieces: int
    draws: Twister
    chunk_bytes: int

    def __post_init__(self) -> None:
        self._order = np.arange(self.n_pieces)

    def begin(self) -> Iterator[Chunk]:
        self._order = self._order[self.draws.shuffled(self.n_pieces)]
        return self._chunks(self._order.tolist())

    def _chunks(self, order: list[int]) -> Iterator[Chunk]:
        index, count = self.part
        for piece in order:
            start, stop = self.stream.part(index * self.n_pieces + piece, count * self.n_pieces)
            yield from self.stream.chunks(start, stop, self.chunk_bytes)


@dataclass(eq=False)
class IndexedPasses(Passes):
    """Records by their offsets, some at a time; shuffled all together before every pass."""

    stream: ByteStream
    offsets: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    draws: Twister | None

    def begin(self) -> Iterator[Chunk]:
        n = len(self.offsets)
        order = np.arange(n) if self.draws is None else self.draws.shuffled(n)
        return self._chunks(order)

    def _chunks(self, order: npt.NDArray[np.int64]) -> Iterator[Chunk]:
        for first in range(0, len(order), SOME_RECORDS):
            some = order[first : first + SOME_RECORDS].tolist()
            yield [p for i in some for p in self.stream.payloads(*self._stretch(i))]

    def _stretch(self, record: int) -> tuple[int, int]:
        return int(self.offsets[record]), int(self.ends[record])


def passes_of(asked: dict[str, Any], files: Sequence[str], chunk_bytes: int) -> Passes:
    """Return the passes that an iterator with these parameters makes.

    Raises
    ------
    LoaderError
        If the part does not exist, or holds no record of an index.
    FileFormatError
        If a file is no RecordIO file.
    """
    part, parts = asked["part_index"], asked["num_parts"]
    if not 0 <= part < parts:
        raise LoaderError(f"part_index={part} must be from 0 to num_parts - 1, {parts - 1}")
    stream = ByteStream(files)
    if asked.get("path_imgidx"):
        return _indexed(asked, stream)
    size = asked.get("shuffle_chunk_size", 0) * MIB
    if not size:
        return PlainPasses(stream, *stream.part(part, parts), chunk_bytes)
    n_pieces = math.ceil(SLACK * stream.n_bytes / (parts * size))
    seed = PIECE_SEED + part + parts + n_pieces + asked["shuffle_chunk_seed"]
    return PiecePasses(stream, (part, parts), n_pieces, Twister(seed), max(size // 8, chunk_bytes))


def _indexed(asked: dict[str, Any], stream: ByteStream) -> Passes:
    offsets = _read_offsets(asked["path_imgidx"], stream.n_bytes)
    n, parts = len(offsets), asked["num_parts"]
    step = -(-n // parts)
    first = asked["part_index"] * step
    if first >= n:
        raise LoaderError(
            f"part {asked['part_index']} of {parts} holds none of the {n} records of the index"
        )
    ends = np.append(offsets[1:], stream.n_bytes)
    mine = slice(first, first + step)
    draws = Twister(111 + asked["seed"]) if asked["shuffle"] else None
    return IndexedPasses(stream, offsets[mine], ends[mine], draws)


def _read_offsets(path: str, n_bytes: int) -> npt.NDArray[np.int64]:
    """Return the offsets of an index, sorted; it is read up to the first word that is no number."""
    try:
        with open(path, "rb") as stream:
            words = stream.read().split()
    except OSError as error:
        raise FileFormatError(f"{path!r} cannot be read: {error}") from error
    numbers: list[int] = []
    for word in words:
        if not word.isdigit():
            break
        numbers.append(int(word))
    last = max(numbers[1::2], default=0)
    if last >= n_bytes:
        raise FileFormatError(
            f"{path!r} tells of a record at byte {last:,}, but the records end at {n_bytes:,}: it "
            "is the index of another file, or damaged"
        )
    return np.sort(np.array(numbers[1::2], np.int64))
