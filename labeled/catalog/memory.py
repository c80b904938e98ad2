"""A reader over an array in memory, so that loaded data go every way that files go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.catalog.piecewise import Piecewise
from labeled.formats.reader import Cost
from labeled.formats.reading import n_rows_of

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

PIECE_BYTES = 1 << 19


@dataclass(frozen=True, eq=False)
class MemoryReader(Piecewise):
    """Rows of `array`, axis 0; follows the :class:`~labeled.formats.reader.Reader` protocol."""

    array: Array
    kind: str = "memory"
    why: str = "loaded"
    chunk_rows: int = 1

    @property
    def n_rows(self) -> int:
        return len(self.array)

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.array.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def _row_bytes(self) -> int:
        return int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize

    def pieces(self, runs: Rows) -> list[tuple[int, int, int]]:
        """Cut runs into (first place in run order, start, stop)."""
        step = max(1, PIECE_BYTES // max(1, self._row_bytes))
        out, place = [], 0
        for start, stop in runs.tolist():
            for begin in range(start, stop, step):
                end = min(stop, begin + step)
                out.append((place, begin, end))
                place += end - begin
        return out

    def read_piece(self, piece: Any, out: Array, dest: Rows | None = None) -> None:
        place, start, stop = piece
        n = stop - start
        if dest is None:
            out[place : place + n] = self.array[start:stop]
        else:
            out[dest[place : place + n]] = self.array[start:stop]

    def gather_into(self, out: Array, rows: Rows) -> None:
        np.take(self.array, rows, axis=0, out=out, mode="clip")

    def read(self, rows: range | Rows) -> Array:
        if isinstance(rows, range) and rows.step > 0:
            return self.array[rows.start : rows.stop : rows.step].copy()
        return self.array[np.asarray(rows, dtype=np.int64)]

    def cold(self, row: int) -> bool:
        return False

    def advise(self, runs: Rows) -> None:
        """Do nothing: there is nobody to tell."""

    def cost(self, runs: Rows) -> Cost:
        n = n_rows_of(runs)
        return Cost(bytes_used=n * self._row_bytes)
