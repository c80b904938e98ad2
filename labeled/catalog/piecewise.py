"""What every reader does alike that cuts runs into pieces and reads them one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from labeled.formats.reader import Array, Rows


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
