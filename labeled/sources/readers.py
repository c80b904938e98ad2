"""Readers over the readers of formats: of many files, of decoded values, of rows in memory.

:class:`JoinedReader` numbers the rows of many files one after another. :class:`DecodingReader`
decodes one file by its own conventions: normally values stay as stored until the end, but where
files are packed each in their own way there is no such end, and every file is decoded before its
rows stand among those of others, at the price of one copy of each piece read.
:class:`MemoryReader` lets loaded rows go every way that files go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from labeled.errors import ReadError
from labeled.formats.cf import decode
from labeled.formats.header import CF
from labeled.formats.keeping import ChunkKeeper, keep_decoded
from labeled.formats.reader import Array, Cost, Reader, Rows
from labeled.formats.reading import n_rows_of

PIECE_BYTES = 1 << 19


class Piecewise(Protocol):
    """The part of :class:`~labeled.formats.reader.Reader` that follows from pieces."""

    def pieces(self, runs: Rows) -> Sequence[Any]: ...
    def read_piece(self, piece: Any, out: Array, dest: Rows | None = None) -> None: ...
    def gather_into(self, out: Array, rows: Rows) -> None: ...

    def read_into(self, out: Array, runs: Rows) -> None:
        """Read `runs`, in order, in this thread."""
        self.scatter_into(out, runs)

    def read_run(self, out: Array, start: int, stop: int) -> None:
        """Read one stretch of rows."""
        self.read_into(out, np.array([[start, stop]], np.int64))

    def scatter_into(self, out: Array, runs: Rows, dest: Rows | None = None) -> None:
        """Read `runs` in this thread; row number i of them goes to ``out[dest[i]]``."""
        for piece in self.pieces(runs):
            self.read_piece(piece, out, dest)

    def gather_known(self, out: Array, rows: Rows) -> None:
        """Read rows in any order: there is nothing to check that could be left out."""
        self.gather_into(out, rows)

    def cold(self, row: int) -> bool:
        """Say no, where no row is fetched from storage."""
        return False

    def advise(self, runs: Rows) -> None:
        """Do nothing, where no row is fetched from storage."""
        return


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


@dataclass(frozen=True, eq=False)
class DecodingReader(Piecewise):
    """Decoded rows of one file; follows the :class:`~labeled.formats.reader.Reader` protocol.

    Parameters
    ----------
    stored : Reader
        Of the values as stored.
    cf : CF
        How this file means them; ``cf.dtype`` is what comes out.
    """

    stored: Reader
    cf: CF

    @property
    def n_rows(self) -> int:
        return self.stored.n_rows

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.stored.row_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.cf.dtype

    @property
    def kind(self) -> str:
        return "decoded"

    @property
    def why(self) -> str:
        return f"each file is decoded by its own conventions ({self.stored.why})"

    @property
    def chunk_rows(self) -> int:
        return self.stored.chunk_rows

    def pieces(self, runs: Rows) -> list[tuple[int, Rows]]:
        """Cut runs into (first place in run order, runs), never within a stored chunk."""
        row_bytes = int(np.prod(self.row_shape, dtype=np.int64)) * self.dtype.itemsize
        chunks = max(1, PIECE_BYTES // max(1, row_bytes * self.chunk_rows))
        step = chunks * self.chunk_rows
        out: list[tuple[int, Rows]] = []
        blocks: dict[int, list[tuple[int, int]]] = {}
        for start, stop in runs.tolist():
            for block in range(start // step, -(-stop // step)):
                stretch = max(start, block * step), min(stop, (block + 1) * step)
                blocks.setdefault(block, []).append(stretch)
        place = 0
        for stretches in blocks.values():
            out.append((place, np.array(stretches, np.int64)))
            place += sum(stop - start for start, stop in stretches)
        return out

    def read_piece(self, piece: Any, out: Array, dest: Rows | None = None) -> None:
        place, runs = piece
        n = n_rows_of(runs)
        raw = np.empty((n, *self.row_shape), self.stored.dtype)
        self.stored.read_into(raw, runs)
        places = slice(place, place + n) if dest is None else dest[place : place + n]
        out[places] = decode(raw, self.cf)

    def gather_into(self, out: Array, rows: Rows) -> None:
        out[...] = self.read(rows)

    def read(self, rows: range | Rows) -> Array:
        return decode(self.stored.read(rows), self.cf)

    def cold(self, row: int) -> bool:
        return self.stored.cold(row)

    def advise(self, runs: Rows) -> None:
        self.stored.advise(runs)

    def cost(self, runs: Rows) -> Cost:
        return self.stored.cost(runs)


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

    def cost(self, runs: Rows) -> Cost:
        n = n_rows_of(runs)
        return Cost(bytes_used=n * self._row_bytes)
