"""A plan to be drawn: what the first windows of an epoch read, and what they pass over."""

from __future__ import annotations

from dataclasses import dataclass

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
    def edges(self) -> range:
        """Rows at which stored chunks begin, if few enough to be seen."""
        step = self.chunk_rows
        few = step > 1 and self.n_rows <= step * _EDGES
        return range(step, self.n_rows, step) if few else range(0)

    @property
    def names(self) -> list[str]:
        """How each window is called beside its line."""
        return [f"{self.called} at row {window.start:,} of the epoch" for window in self.windows]
