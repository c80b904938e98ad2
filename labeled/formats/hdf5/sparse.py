"""Reading sparse matrices stored by rows: the CSR groups of AnnData and of 10x Genomics.

Rows come dense: zeros are filled in where a row is read, and nowhere else; see
:mod:`.conventions` for what such a group holds.

The trade-off: a network wants dense rows anyway; a matrix that is wanted sparse is opened as the
three arrays it is, with ``group=``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from labeled.errors import ReadError
from labeled.formats.header import SourceHeader
from labeled.formats.reader import (
    PIECE_BYTES,
    ByteRanges,
    FileReader,
    Io,
    Reader,
    bands_of,
    groups_of,
    read_rows,
    spread,
)
from labeled.formats.region import Array, Ints, Region

PARTS = ("data", "indices", "indptr")

PIECE_VALUES = 1 << 16
"""Values that are read at a time, at least."""


class SparseReader(FileReader):
    """Reads rows of a sparse matrix into dense ones.

    Where rows begin is read once, 8 bytes a row, and kept.

    Parameters
    ----------
    open_part : callable
        Makes a reader of the values, of their columns, and of where rows begin.
    """

    kind = "sparse"
    why = "a sparse matrix: zeros are filled in where rows are read"

    def __init__(
        self, source: SourceHeader, region: Region, io: Io, open_part: Callable[..., Reader]
    ) -> None:
        super().__init__(source, region, io)
        self._open_part = open_part
        (columns,) = self.region
        wanted = np.atleast_1d(np.arange(source.shape[1])[columns])
        self._columns, self._repeated = np.unique(wanted, return_inverse=True)
        self._is_one_to_one = self._columns.size == wanted.size
        self._places = np.full(source.shape[1], -1, np.int64)
        if self._is_one_to_one:
            self._places[wanted] = np.arange(wanted.size)
        else:
            self._places[self._columns] = np.arange(self._columns.size)
        self.chunk_rows = _band_rows(source, max(self.row_bytes, 1))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.region, self.io, self._open_part)

    @cached_property
    def _parts(self) -> Mapping[str, Reader]:
        return {n: self._open_part(part, io=self.io) for n, part in self.source.parts.items()}

    @cached_property
    def _begins(self) -> Ints:
        begins = read_rows(self._parts["indptr"], range(self.n_rows + 1))
        n_values = self.source.parts["data"].n_rows
        if begins[0] != 0 or begins[-1] > n_values:
            raise self._damaged(f"its rows end at value {begins[-1]} of {n_values}")
        if bool((begins[1:] < begins[:-1]).any()):
            raise self._damaged("a row ends before it begins")
        return begins.astype(np.int64, copy=False)

    def _damaged(self, what: str) -> ReadError:
        return ReadError(f"{self.where}: {what} ('indptr'); copy the file again")

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        for bands in groups_of(bands_of(runs, self.chunk_rows), self.chunk_rows, 1):
            self._read_band(bands, out, places)

    def _read_band(self, bands: Ints, out: Array, places: Ints | None) -> None:
        begins = self._begins
        runs = self._values(bands[:, :2])
        rows = spread(bands[:, 0], bands[:, 1] - bands[:, 0])
        counts = begins[rows + 1] - begins[rows]
        values, columns = (read_rows(self._parts[role], runs) for role in ("data", "indices"))
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < len(self._places):
            raise ReadError(
                f"{self.where}, rows {rows[0]} to {rows[-1]}: a value lies in column "
                f"{int(columns.max())} of {len(self._places)} ('indices'); copy the file again"
            )
        number = np.arange(len(rows)) + bands[0, 2]
        targets = number if places is None else places[number]
        at = self._places[columns]
        if self._is_one_to_one:
            out[targets] = 0
            _add(out, np.repeat(targets, counts), at, values)
        else:
            made = np.zeros((len(rows), self._columns.size), out.dtype)
            _add(made, np.repeat(np.arange(len(rows)), counts), at, values)
            out[targets] = made[:, self._repeated]

    def _values(self, runs: Ints) -> Ints:
        """Return the runs of values that rows hold."""
        values = self._begins[runs]
        held: Ints = values[values[:, 1] > values[:, 0]]
        return held

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        values = self._values(runs)
        parts = (self._parts[role] for role in ("data", "indices"))
        return [one for part in parts for one in part.byte_ranges(values)]


def _add(out: Array, at: Ints, places: Ints, values: Array) -> None:
    """Add values at rows and columns, -1 for none; those that come twice add up, as in SciPy."""
    if places.min(initial=0) < 0:
        kept = places >= 0
        at, places, values = at[kept], places[kept], values[kept]
    if out.flags.c_contiguous:  # NumPy adds by one index many times as fast as by two
        width = out.shape[1] if out.ndim > 1 else 1
        np.add.at(out.reshape(-1), at * width + places, values)
    else:
        np.add.at(out, at if out.ndim == 1 else (at, places), values)


def _band_rows(source: SourceHeader, row_bytes: int) -> int:
    """Return how many rows are read at a time: four chunks of values, or as many as pay a call."""
    chunks = source.parts["data"].chunks
    n_values = PIECE_VALUES if chunks is None else max(4 * chunks[0], PIECE_VALUES)
    mean = max(source.parts["data"].n_rows // max(source.n_rows, 1), 1)
    return max(n_values // mean, PIECE_BYTES // row_bytes, 1)
