"""Chunks as they are stored, for whoever decodes them elsewhere than where they are read.

A reader fills rows. Here bytes are read as the file has them, side by side into one stretch of
memory, and it is told what they are: where each compressed stretch begins and what it becomes,
and which rows the decoded chunks hold. Nothing here decodes; formats that can tell so much of
their chunks offer :class:`CodedSource`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from labeled.device import Frames
from labeled.errors import ReadError
from labeled.formats.reader import Cost
from labeled.formats.region import Array, Ints

Task = Callable[[], None]

NO_SUM = -1
"""The checksum of a chunk that has none."""


@dataclass(frozen=True, eq=False)
class Coding:
    """How the chunks of a source are coded, all alike.

    Parameters
    ----------
    codec : {"deflate", "zstd", "lz4"}
    item : int
        Bytes of an element whose first, second, ... bytes were put together before that; 1
        where none were.
    chunks : tuple of int
        Lengths of a chunk: rows, then along the axes of a row.
    grid : tuple of int
        Chunks beside one another along the axes of a row.
    row_shape : tuple of int
    dtype : numpy.dtype
    fill_value : scalar
        What a chunk holds that was never stored.
    """

    codec: str
    item: int
    chunks: tuple[int, ...]
    grid: tuple[int, ...]
    row_shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fill_value: Any

    @property
    def chunk_rows(self) -> int:
        return self.chunks[0]

    @property
    def chunk_bytes(self) -> int:
        return math.prod(self.chunks) * self.dtype.itemsize

    @property
    def per_band(self) -> int:
        """Chunks that hold the same rows."""
        return math.prod(self.grid)

    @property
    def band_bytes(self) -> int:
        return self.per_band * self.chunk_bytes

    @property
    def words(self) -> str:
        """For people: ``"deflate, byte shuffle"``."""
        return self.codec + (", byte shuffle" if self.item > 1 else "")


@dataclass(eq=False)
class Found:
    """What was found in the chunks of a part or window, once their bytes are there.

    Chunks are numbered in the order of their bands, those of a band in C order.
    """

    frames: Frames
    chunks: Ints
    """The chunk that each frame is of."""
    plain: Sequence[tuple[int, int, int]]
    """Stretches that were not compressed: first byte, size, and where it goes."""
    ready: Sequence[tuple[int, int]]
    """Chunks that are decoded already: number, and first byte."""
    missing: Sequence[int]
    """Chunks that were never stored."""
    sums: Ints
    """Adler-32 checksum of each decoded chunk, or :data:`NO_SUM`."""


class CodedPart(Protocol):
    """The chunks of one file that hold certain rows."""

    @property
    def n_bands(self) -> int: ...
    @property
    def rows(self) -> Ints:
        """For each row, in run order: its number among the rows of all these bands."""

    @property
    def packed_bytes(self) -> int:
        """Memory that the stored bytes take, a multiple of what frames are aligned to."""

    @property
    def n_stored(self) -> int:
        """Chunks there are; others were never stored."""

    @property
    def cost(self) -> Cost:
        """What reading them takes."""

    def tasks(self, packed: Array) -> list[Task]:
        """Return what must be done, in any threads, so that `packed` holds the stored bytes."""

    def found(self) -> Found:
        """Tell what is there; once all tasks are done."""

    def damaged(self, chunk: int, what: str) -> ReadError:
        """Return the error that names file, source and rows of a chunk."""


class CodedSource(Protocol):
    """Chunks of a source that can be decoded elsewhere."""

    @property
    def coding(self) -> Coding: ...
    def parts(self, runs: Ints) -> list[CodedPart]:
        """Find the chunks that hold the rows of checked runs, file after file."""


@runtime_checkable
class OffersCoded(Protocol):
    """A reader that may offer its chunks as they are stored."""

    def coded(self) -> CodedSource | str:
        """Return them, or say why not."""


def coded_of(reader: object) -> CodedSource | str:
    """Return the chunks behind a reader as they are stored, or say why there are none."""
    if isinstance(reader, OffersCoded):
        return reader.coded()
    return "its rows are made on the host"


@dataclass(eq=False)
class CodedWindow:
    """The chunks that hold the rows of a window.

    Parameters
    ----------
    coding : Coding
    runs : int64 array (k, 2)
        Its rows.
    parts : list of CodedPart
        File after file.
    rows : int64 array
        For each place of the window: the number of its row among those of all bands.
    """

    coding: Coding
    runs: Ints
    parts: list[CodedPart]
    rows: Ints

    @property
    def n_bands(self) -> int:
        return sum(part.n_bands for part in self.parts)

    @property
    def packed_bytes(self) -> int:
        return sum(part.packed_bytes for part in self.parts)

    @property
    def n_stored(self) -> int:
        return sum(part.n_stored for part in self.parts)

    def cost(self, row_bytes: int) -> Cost:
        """Count what reading it takes, for rows of so many bytes."""
        total = Cost(bytes_used=len(self.rows) * row_bytes)
        for part in self.parts:
            total += part.cost
        return total

    def tasks(self, packed: Array) -> list[Task]:
        """Return what must be done so that `packed`, bytes, holds what is stored."""
        found: list[Task] = []
        start = 0
        for part in self.parts:
            found += part.tasks(packed[start : start + part.packed_bytes])
            start += part.packed_bytes
        return found

    def found(self) -> Found:
        """Tell what is there, counted through all files; once all tasks are done."""
        frames, chunks, sums = [], [], []
        plain: list[tuple[int, int, int]] = []
        ready: list[tuple[int, int]] = []
        missing: list[int] = []
        start = first = 0
        for part in self.parts:
            one, place = part.found(), first * self.coding.chunk_bytes
            frames.append(
                np.stack(
                    (
                        one.frames.starts + start,
                        one.frames.sizes,
                        one.frames.places + place,
                        one.frames.lengths,
                    )
                )
            )
            chunks.append(one.chunks + first)
            plain += [(at + start, size, to + place) for at, size, to in one.plain]
            ready += [(number + first, at + start) for number, at in one.ready]
            missing += [number + first for number in one.missing]
            sums.append(one.sums)
            start += part.packed_bytes
            first += part.n_bands * self.coding.per_band
        return Found(
            Frames(*np.concatenate(frames, axis=1)),
            np.concatenate(chunks),
            plain,
            ready,
            missing,
            np.concatenate(sums),
        )

    def damaged(self, chunk: int, what: str) -> ReadError:
        """Return the error that names file, source and rows of a chunk."""
        for part in self.parts:
            n_chunks = part.n_bands * self.coding.per_band
            if chunk < n_chunks:
                break
            chunk -= n_chunks
        return part.damaged(chunk, what)


def joined_rows(parts: Sequence[CodedPart], chunk_rows: int) -> Ints:
    """Return the numbers of the rows of all parts, in run order, among those of all bands."""
    first, found = 0, []
    for part in parts:
        found.append(part.rows + first * chunk_rows)
        first += part.n_bands
    return np.concatenate(found) if found else np.empty(0, np.int64)
