"""The picture of a plan: what the first windows of an epoch read, and what they pass over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labeled.views import html
from labeled.views.html import Interval

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


def reads_html(reads: Reads) -> str:
    """Draw where windows read in the file, a strip each, over the borders of chunks."""
    width = reads.n_rows / 2000
    edges: Sequence[Interval] = [(edge - width / 2, edge + width / 2) for edge in reads.edges]
    lines = [
        (
            name,
            html.strip(
                {"half": window.chunks, "one": window.runs, "edge": edges},
                reads.n_rows,
                f"{name}: {len(window.runs):,} stretches of rows",
            ),
        )
        for name, window in zip(reads.names, reads.windows, strict=True)
    ]
    kinds = {"one": "rows that are wanted"}
    if any(_rows(window.chunks) > _rows(window.runs) for window in reads.windows):
        kinds["half"] = "decoded with them (the rest of their chunks)"
    if edges:
        kinds["edge"] = "where chunks begin"
    return html.strips(lines) + html.legend(kinds)


def _rows(stretches: Sequence[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in stretches)
