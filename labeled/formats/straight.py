"""Rows that lie in files as they lie in memory, for whoever reads them past the readers.

A reader fills arrays of the host. Here it is told where the bytes of rows are, and nothing is
read: for devices that read files themselves. Formats that store rows as they are handed out
offer :class:`StraightSource`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from labeled.errors import ReadError
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import UNSTORED, failed, n_rows_of, row_at
from labeled.formats.region import Ints


@dataclass(frozen=True, eq=False)
class StraightPart:
    """Rows of one file.

    Parameters
    ----------
    source : SourceHeader
    runs : int64 array (k, 2)
    extents : int64 array (k, 3)
        Byte offset in the file, number of the first row in run order, rows; the offset is
        :data:`~labeled.formats.reading.UNSTORED` for rows that read as the fill value.
    """

    source: SourceHeader
    runs: Ints
    extents: Ints

    @property
    def n_rows(self) -> int:
        return n_rows_of(self.runs)

    def failed(self, first: int, n: int, fault: Exception) -> ReadError:
        """Return the error that names file, source and rows, by their number in run order."""
        start, last = row_at(self.runs, np.array([first, first + n - 1])).tolist()
        return failed(self.source, start, last + 1, fault)


@dataclass(frozen=True, eq=False)
class StraightWindow:
    """Where the rows of a window lie.

    Parameters
    ----------
    parts : sequence of StraightPart
        File after file.
    rows : int64 array, optional
        For each place of the window: the number of its row in run order, through all parts;
        None where row i goes to place i.
    """

    parts: Sequence[StraightPart]
    rows: Ints | None = None

    @property
    def n_read(self) -> int:
        """Rows that are read."""
        return sum(part.n_rows for part in self.parts)

    def cost(self, row_bytes: int) -> Cost:
        """Count what reading it takes, for rows of so many bytes."""
        stored = [part.extents[part.extents[:, 0] != UNSTORED] for part in self.parts]
        n_rows = sum(int(extents[:, 2].sum()) for extents in stored)
        n = self.n_read if self.rows is None else len(self.rows)
        return Cost(n_rows * row_bytes, n * row_bytes, sum(map(len, stored)), 0)


class StraightSource(Protocol):
    """Rows of a source that may be read past its reader."""

    def parts(self, runs: Ints) -> list[StraightPart]:
        """Find the bytes of the rows of checked runs, file after file; opens no file."""


@dataclass(frozen=True, eq=False)
class StraightRows:
    """Rows of one file; follows :class:`StraightSource`.

    Parameters
    ----------
    source : SourceHeader
    locate : callable
        Runs to extents.
    """

    source: SourceHeader
    locate: Callable[[Ints], Ints]

    def parts(self, runs: Ints) -> list[StraightPart]:
        return [StraightPart(self.source, runs, self.locate(runs))]


@runtime_checkable
class OffersStraight(Protocol):
    """A reader that may tell where rows lie."""

    def straight(self) -> StraightSource | str:
        """Return what tells, or say why not."""


def straight_of(reader: object) -> StraightSource | str:
    """Return what tells where the rows of a reader lie, or say why nothing does."""
    if isinstance(reader, OffersStraight):
        return reader.straight()
    return "its rows are made on the host"
