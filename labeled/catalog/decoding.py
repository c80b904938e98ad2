"""A reader that decodes as it reads, for files joined that are not packed alike.

Usually stored values go all the way to the consumer and are decoded at the end, once for
all files. Where files tell scale, fill value or the beginning of their times each in
their own way, there is no such end: every file is decoded by its own conventions, here,
before its rows stand among those of others. The price is one copy of each piece read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.catalog.piecewise import Piecewise
from labeled.formats.cf import decode
from labeled.formats.header import CF
from labeled.formats.reader import Cost, Reader
from labeled.formats.reading import n_rows_of

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

PIECE_BYTES = 1 << 19


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
