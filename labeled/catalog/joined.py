"""One reader over the same source of many files, rows numbered through them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.catalog.piecewise import Piecewise
from labeled.errors import ReadError
from labeled.formats.keeping import ChunkKeeper, keep_decoded
from labeled.formats.reader import Cost, Reader
from labeled.formats.reading import n_rows_of

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class JoinedReader(Piecewise):
    """Readers one after another; follows the :class:`~labeled.formats.reader.Reader` protocol."""

    readers: tuple[Reader, ...]

    @cached_property
    def _starts(self) -> Rows:
        return np.cumsum([0, *(reader.n_rows for reader in self.readers)], dtype=np.int64)

    @property
    def n_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.readers[0].row_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.readers[0].dtype

    @property
    def kind(self) -> str:
        kinds = sorted({reader.kind for reader in self.readers})
        return kinds[0] if len(kinds) == 1 else "+".join(kinds)

    @property
    def why(self) -> str:
        reasons = sorted({reader.why for reader in self.readers})
        return f"{len(self.readers)} files: {'; '.join(reasons)}"

    @property
    def chunk_rows(self) -> int:
        return max(reader.chunk_rows for reader in self.readers)

    def keep_in(self, keeper: ChunkKeeper) -> None:
        """Keep decoded chunks there: those of one file at a time."""
        keep_decoded(self.readers, keeper)

    def by_file(self, runs: Rows) -> Iterator[tuple[int, int, Rows]]:
        """Yield (file number, first place in run order, runs in that file)."""
        place = 0
        first = int(np.searchsorted(self._starts, runs[0, 0], side="right")) - 1 if len(runs) else 0
        last = int(np.searchsorted(self._starts, runs[-1, 1], side="left")) if len(runs) else 0
        for number in range(first, last):
            begin, end = self._starts[number], self._starts[number + 1]
            mine = np.clip(runs, begin, end) - begin
            mine = mine[mine[:, 1] > mine[:, 0]]
            if len(mine):
                yield number, place, mine
                place += n_rows_of(mine)

    def pieces(self, runs: Rows) -> list[tuple[int, int, int, Any]]:
        """Cut runs into (file number, first place, rows, piece of that file's reader)."""
        return [
            (number, place, n_rows_of(mine), piece)
            for number, place, mine in self.by_file(runs)
            for piece in self.readers[number].pieces(mine)
        ]

    def read_piece(self, piece: Any, out: Array, dest: Rows | None = None) -> None:
        number, place, n, inner = piece
        with self._row_of(number):
            if dest is None:
                self.readers[number].read_piece(inner, out[place : place + n])
            else:
                self.readers[number].read_piece(inner, out, dest[place : place + n])

    @contextmanager
    def _row_of(self, number: int) -> Iterator[None]:
        """Count the row of an error through all files."""
        try:
            yield
        except ReadError as error:
            if error.row is not None:
                error.row += int(self._starts[number])
            raise

    def gather_into(self, out: Array, rows: Rows) -> None:
        which = np.searchsorted(self._starts, rows, side="right") - 1
        for number in np.unique(which):
            mine = np.flatnonzero(which == number)
            part = np.empty((len(mine), *self.row_shape), self.dtype)
            with self._row_of(int(number)):
                self.readers[number].gather_into(part, rows[mine] - self._starts[number])
            out[mine] = part

    def read(self, rows: range | Rows) -> Array:
        if isinstance(rows, range) and rows.step == 1:
            out = np.empty((len(rows), *self.row_shape), self.dtype)
            if len(rows):
                self.scatter_into(out, np.array([[rows.start, rows.stop]], np.int64))
            return out
        listed = np.asarray(rows, dtype=np.int64)
        out = np.empty((len(listed), *self.row_shape), self.dtype)
        self.gather_into(out, listed)
        return out

    def cold(self, row: int) -> bool:
        number = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self.readers[number].cold(row - int(self._starts[number]))

    def advise(self, runs: Rows) -> None:
        for number, _, mine in self.by_file(runs):
            self.readers[number].advise(mine)

    def cost(self, runs: Rows) -> Cost:
        total = Cost()
        for number, _, mine in self.by_file(runs):
            total += self.readers[number].cost(mine)
        return total
