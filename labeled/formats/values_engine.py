"""Rows that are all in memory: labels, ids and names that headers tell."""

from __future__ import annotations

import numpy as np

from labeled.formats.reader import Cost
from labeled.formats.reading import (
    Engine,
    Piece,
    n_rows_of,
    put_rows,
    row_nbytes,
    spread,
    take_rows,
)
from labeled.formats.region import Array, Ints


class ValuesEngine(Engine):
    """Hands out rows of an array; follows :class:`~labeled.formats.reading.Engine`.

    Parameters
    ----------
    values : array (n_rows, ...)
    why : str
        Where they are from, for people.
    """

    kind = "memory"
    scratch_bytes = 0

    def __init__(self, values: Array, why: str) -> None:
        self._values = np.ascontiguousarray(values)
        self.why = why
        self._row_bytes = row_nbytes(values.shape[1:], values.dtype)

    def pieces(self, runs: Ints) -> list[Piece]:
        rows = spread(runs[:, 0], runs[:, 1] - runs[:, 0])
        if not len(rows):
            return []
        return [Piece(0, len(rows), 0, int(rows[0]), int(rows[-1]) + 1, rows)]

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        place = slice(piece.first, piece.first + piece.n_rows)
        put_rows(out, place if dest is None else dest[place], self._values[piece.parts])

    def gather_into(self, out: Array, rows: Ints) -> None:
        take_rows(self._values, rows, out)

    def cost(self, runs: Ints) -> Cost:
        return Cost(0, n_rows_of(runs) * self._row_bytes, 0, 0)
