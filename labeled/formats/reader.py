"""What every reader of stored rows offers, whatever the format.

Readers move bytes and know nothing of names, order or batches. They are safe to call
from several threads at once, hold no lock a writer elsewhere would feel, and pickle
as small recipes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a read takes, counted exactly before it is done.

    Parameters
    ----------
    bytes_read : int
        Stored bytes fetched (compressed, gaps that are read through included).
    bytes_used : int
        Bytes of the rows asked for, decoded.
    n_reads : int
        Calls to the file.
    chunks_decoded : int
        Stored chunks whose filters are undone (0 for contiguous data).
    """

    bytes_read: int = 0
    bytes_used: int = 0
    n_reads: int = 0
    chunks_decoded: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.bytes_read + other.bytes_read,
            self.bytes_used + other.bytes_used,
            self.n_reads + other.n_reads,
            self.chunks_decoded + other.chunks_decoded,
        )


class Reader(Protocol):
    """Rows of one source: stored values in native byte order, region applied.

    ``runs`` is an int64 array (k, 2) of half-open stretches of rows, ascending,
    never overlapping. *Run order* counts the rows of all runs one after another;
    with `dest`, row i of the run order is written to ``out[dest[i]]``.
    """

    @property
    def n_rows(self) -> int: ...
    @property
    def row_shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def kind(self) -> str:
        """The path bytes take: "contiguous", "chunked", "h5py", "memory", ..."""

    @property
    def why(self) -> str:
        """Why this path was taken, for `explain`."""

    @property
    def chunk_rows(self) -> int:
        """Rows stored (and decoded) together; 1 where any row can be read alone."""

    def pieces(self, runs: Rows) -> Sequence[Any]:
        """Cut runs into independent units of work of about 0.5 MiB."""

    def read_piece(self, piece: Any, out: Array, dest: Rows | None = None) -> None:
        """Do one unit of work; several threads may do others at the same time."""

    def read_into(self, out: Array, runs: Rows) -> None:
        """Read `runs`, in order, in this thread."""

    def read_run(self, out: Array, start: int, stop: int) -> None:
        """Read one stretch of rows, known to be there, into an `out` that fits, in this thread."""

    def scatter_into(self, out: Array, runs: Rows, dest: Rows | None = None) -> None:
        """Do all units of `runs` in this thread."""

    def gather_into(self, out: Array, rows: Rows) -> None:
        """Read rows in any order, repeats allowed, to ``out[i]``."""

    def gather_known(self, out: Array, rows: Rows) -> None:
        """Do the same with int64 rows that are known to be there, and an `out` that fits."""

    def read(self, rows: range | Rows) -> Array:
        """Read rows into a fresh array, order and repeats kept."""

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch a row from storage."""

    def advise(self, runs: Rows) -> None:
        """Tell the system which rows are read next."""

    def cost(self, runs: Rows) -> Cost:
        """Count what reading `runs` takes, without reading."""
