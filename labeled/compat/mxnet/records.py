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
from collections.abc import Callable, Iterator, Sequence
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
Begin = Callable[[], Iterator[Chunk]]
"""Begins a pass over the chunks of a stretch of files."""

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
                    f"{file!r} has {size} bytes, no multiple of {ALIGNMENT}: it is not a RecordIO "
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


def passes_of(asked: dict[str, Any], files: Sequence[str], chunk_bytes: int) -> Begin:
    """Return the function by which an iterator with these parameters begins a pass.

    Raises
    ------
    LoaderError
        If the part does not exist, or holds no record of an index.
    FileFormatError
        If a file is not a RecordIO file.
    """
    part, parts = asked["part_index"], asked["num_parts"]
    if not 0 <= part < parts:
        raise LoaderError(f"part_index={part} must be from 0 to num_parts - 1, {parts - 1}")
    stream = ByteStream(files)
    if asked.get("path_imgidx"):
        return _indexed(asked, stream)
    size = asked.get("shuffle_chunk_size", 0) * MIB
    if size:
        return _in_pieces(asked, stream, size, chunk_bytes)
    start, stop = stream.part(part, parts)
    return lambda: stream.chunks(start, stop, chunk_bytes)


def _in_pieces(asked: dict[str, Any], stream: ByteStream, size: int, chunk_bytes: int) -> Begin:
    """Cut a part into pieces, whose order is shuffled before every pass, always further."""
    part, parts = asked["part_index"], asked["num_parts"]
    n = math.ceil(SLACK * stream.n_bytes / (parts * size))
    draws = Twister(PIECE_SEED + part + parts + n + asked["shuffle_chunk_seed"])
    order = np.arange(n)

    def chunks(pieces: list[int]) -> Iterator[Chunk]:
        for piece in pieces:
            start, stop = stream.part(part * n + piece, parts * n)
            yield from stream.chunks(start, stop, max(size // 8, chunk_bytes))

    def begin() -> Iterator[Chunk]:
        order[:] = order[draws.shuffled(n)]
        return chunks(order.tolist())

    return begin


def _indexed(asked: dict[str, Any], stream: ByteStream) -> Begin:
    """Read records by their offsets, some at a time; shuffled all together before every pass."""
    offsets = _read_offsets(asked["path_imgidx"], stream.n_bytes)
    n, parts = len(offsets), asked["num_parts"]
    step = -(-n // parts)
    first = asked["part_index"] * step
    if first >= n:
        raise LoaderError(
            f"part {asked['part_index']} of {parts} holds none of the {n} records of the index"
        )
    bounds = np.append(offsets, stream.n_bytes)
    mine = np.arange(first, min(first + step, n))
    draws = Twister(111 + asked["seed"]) if asked["shuffle"] else None

    def chunks(order: npt.NDArray[np.int64]) -> Iterator[Chunk]:
        for begin in range(0, len(order), SOME_RECORDS):
            some = order[begin : begin + SOME_RECORDS]
            stretches = zip(bounds[some].tolist(), bounds[some + 1].tolist(), strict=True)
            yield [payload for one in stretches for payload in stream.payloads(*one)]

    return lambda: chunks(mine if draws is None else mine[draws.shuffled(len(mine))])


def _read_offsets(path: str, n_bytes: int) -> npt.NDArray[np.int64]:
    """Return the offsets of an index, sorted, up to the first word that is not a number."""
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
            f"{path!r} lists a record at byte {last:,}, but the records end at {n_bytes:,}: it "
            "is the index of another file, or damaged"
        )
    return np.sort(np.array(numbers[1::2], np.int64))
