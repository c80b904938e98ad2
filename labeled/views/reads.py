"""A plan to be drawn: what the first windows of an epoch read, and what they pass over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labeled.views.summary import Interval, Strip, Table

_EDGES = 240
"""More chunk borders than this would be a grey surface."""


@dataclass(frozen=True)
class WindowRead:
    """One window: places ``start .. stop`` of the epoch, and rows of the file read for it."""

    start: int
    stop: int
    runs: tuple[tuple[int, int], ...]
    """Rows wanted, half-open and ascending; some of them where there are very many."""
    chunks: tuple[tuple[int, int], ...] = ()
    """Rows of the stored chunks that are decoded for them."""


@dataclass(frozen=True)
class Reads:
    """What the largest source reads for some windows.

    Parameters
    ----------
    source : str
    n_rows : int
        Rows of its file or files.
    chunk_rows : int
        Rows stored together; 1 where any row can be read alone.
    windows : tuple of WindowRead
    called : str
        What a window is called: "window", or "job" where rows are only read ahead.
    kept : bool
        Whether all rows are read once and kept, so that windows read nothing.
    """

    source: str
    n_rows: int
    chunk_rows: int
    windows: tuple[WindowRead, ...]
    called: str = "window"
    kept: bool = False

    @property
    def title(self) -> str:
        """What the picture shows, in words."""
        takes = "takes from memory, read once before" if self.kept else "reads"
        return f"rows of {self.source!r} that each {self.called} {takes}"

    @property
    def edges(self) -> range:
        """Rows at which stored chunks begin, if few enough to be seen."""
        step = self.chunk_rows
        few = step > 1 and self.n_rows <= step * _EDGES
        return range(step, self.n_rows, step) if few else range(0)

    @property
    def names(self) -> list[str]:
        """How each window is called beside its line."""
        return [f"{self.called} at row {window.start:,} of the epoch" for window in self.windows]

    def parts(self) -> tuple[Table, str]:
        """Return where windows read in the file: a strip each, over the borders of chunks."""
        half = self.n_rows / 4000
        edges: Sequence[Interval] = [(edge - half, edge + half) for edge in self.edges]
        strips = []
        for name, window in zip(self.names, self.windows, strict=True):
            marks = {"decoded": window.chunks, "wanted": window.runs, "edge": edges}
            strips.append((name, Strip(marks, self.n_rows, name)))
        more = any(_rows(one.chunks) > _rows(one.runs) for one in self.windows)
        words = "dark: rows that are wanted"
        words += "; pale: decoded with them, the rest of their chunks" * more
        words += "; lines: where chunks begin" * bool(edges)
        return Table((self.called, "rows of the file"), strips, self.title), words


def _rows(stretches: Sequence[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in stretches)
