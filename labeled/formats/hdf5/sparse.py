"""Reading sparse matrices stored by rows: the CSR groups of AnnData and of 10x Genomics.

Rows come dense: zeros are filled in where a row is read, and nowhere else; see
:mod:`.conventions` for what such a group holds.

The trade-off: a network wants dense rows anyway; a matrix that is wanted sparse is opened as the
three arrays it is, with ``group=``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from labeled.errors import ReadError
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    PIECE_BYTES,
    Engine,
    Piece,
    band_pieces,
    describe,
    n_rows_of,
    spread,
)
from labeled.formats.region import Array, Ints, Region, length
from labeled.formats.rows import RowReader

PARTS = ("data", "indices", "indptr")

PIECE_VALUES = 1 << 16
"""Values that are read at a time, at least."""


class SparseEngine(Engine):
    """Reads rows of a sparse matrix into dense ones.

    Where rows begin is read once, 8 bytes a row, and kept.
    """

    def __init__(self, source: SourceHeader, region: Region, parts: Mapping[str, RowReader]):
        self.kind = "sparse"
        self.why = "a sparse matrix: zeros are filled in where rows are read"
        self._source, self._parts = source, parts
        (columns,) = region
        self._row_bytes = max(length(columns) * source.dtype.itemsize, 1)
        wanted = np.atleast_1d(np.arange(source.shape[1])[columns])
        self._columns, self._repeated = np.unique(wanted, return_inverse=True)
        self._is_one_to_one = self._columns.size == wanted.size
        self._places = np.full(source.shape[1], -1, np.int64)
        if self._is_one_to_one:
            self._places[wanted] = np.arange(wanted.size)
        else:
            self._places[self._columns] = np.arange(self._columns.size)
        self._band_rows = _band_rows(source, self._row_bytes)
        self._begins = self._read_begins()
        self.scratch_bytes: int = self._most_scratch()

    def _most_scratch(self) -> int:
        """Return what a thread needs beside the rows: values, their columns, where they go."""
        most = int(np.diff(self._begins[:: self._band_rows], append=self._begins[-1:]).max())
        parts = [self._parts[role] for role in ("data", "indices")]
        per_value = sum(part.dtype.itemsize for part in parts) + 4 * 8
        again = 0 if self._is_one_to_one else self._band_rows * self._row_bytes
        inner = sum(part.scratch_bytes for part in parts)
        return most * per_value + again + inner + self._begins.nbytes

    def _read_begins(self) -> Ints:
        begins = self._parts["indptr"].read(range(self._source.n_rows + 1))
        n_values = self._source.parts["data"].n_rows
        if begins[0] != 0 or begins[-1] > n_values:
            raise self._damaged(f"its rows end at value {begins[-1]} of {n_values}")
        if bool((begins[1:] < begins[:-1]).any()):
            raise self._damaged("a row ends before it begins")
        return begins.astype(np.int64, copy=False)

    def _damaged(self, what: str) -> ReadError:
        return ReadError(f"{describe(self._source)}: {what} ('indptr'); copy the file again")

    def pieces(self, runs: Ints) -> list[Piece]:
        """Group checked runs by bands of rows."""
        return band_pieces(runs, self._band_rows, self._row_bytes)

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        """Read one piece; see :class:`~labeled.formats.rows.RowReader`."""
        begins = self._begins
        runs = begins[piece.parts[:, :2]]
        runs = runs[runs[:, 1] > runs[:, 0]]
        rows = spread(piece.parts[:, 0], piece.parts[:, 1] - piece.parts[:, 0])
        counts = begins[rows + 1] - begins[rows]
        values = np.empty(int(counts.sum()), self._parts["data"].dtype)
        columns = np.empty(len(values), self._parts["indices"].dtype)
        self._parts["data"].read_into(values, runs)
        self._parts["indices"].read_into(columns, runs)
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < len(self._places):
            where = f"{describe(self._source)}, rows {piece.start} to {piece.stop - 1}"
            raise ReadError(
                f"{where}: a value lies in column {int(columns.max())} of {len(self._places)} "
                f"('indices'); copy the file again"
            )
        number = np.arange(piece.first, piece.first + piece.n_rows)
        targets = number if dest is None else dest[number]
        places = self._places[columns]
        if self._is_one_to_one:
            out[targets] = 0
            _add(out, np.repeat(targets, counts), places, values)
        else:
            made = np.zeros((piece.n_rows, self._columns.size), out.dtype)
            _add(made, np.repeat(np.arange(piece.n_rows), counts), places, values)
            out[targets] = made[:, self._repeated]

    def cost(self, runs: Ints) -> Cost:
        """Count what reading the values and their columns takes."""
        values = self._begins[runs]
        values = values[values[:, 1] > values[:, 0]]
        taken = self._parts["data"].cost(values) + self._parts["indices"].cost(values)
        return replace(taken, bytes_used=n_rows_of(runs) * self._row_bytes)

    def advise(self, runs: Ints) -> None:
        """Tell the system which values come next."""
        values = self._begins[runs]
        for role in ("data", "indices"):
            self._parts[role].advise(values[values[:, 1] > values[:, 0]])

    def cold(self, row: int) -> bool:
        begins = self._begins
        return bool(begins[row] < begins[row + 1]) and self._parts["data"].cold(int(begins[row]))


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
