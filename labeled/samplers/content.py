"""Rows of one window and their places, as runs, lists and a few functions over them."""

from __future__ import annotations

import numpy as np

from labeled.samplers.permutation import IntArray


class Content:
    """Rows of one window and where they go.

    Either `run`, one stretch of rows in order; or `runs` (ascending half-open stretches of
    rows, (k, 2)) with `dest` (row number i of the runs, one after another, goes to place
    ``dest[i]``; None: to place i); or `listed`, the rows in the order of their places.

    Where `listed` is a part of a window, `soon` may hold the runs of windows that come next,
    each (k, 2), for a disk that is slow to find them; None where nobody has looked ahead.
    """

    __slots__ = ("_rows", "dest", "listed", "run", "several", "soon")

    def __init__(
        self,
        several: IntArray | None = None,
        dest: IntArray | None = None,
        listed: IntArray | None = None,
        run: tuple[int, int] | None = None,
        soon: tuple[IntArray, ...] | None = None,
    ) -> None:
        self.several = several
        self.dest = dest
        self.listed = listed
        self.run = run
        self.soon = soon
        self._rows: IntArray | None = None

    @property
    def runs(self) -> IntArray | None:
        """The stretches of rows, ascending; None where rows are listed."""
        return self.several if self.run is None else np.array([self.run], np.int64)

    @property
    def rows(self) -> IntArray:
        """The rows in the order of their places."""
        if self._rows is None:
            self._rows = self._in_places()
        return self._rows

    def _in_places(self) -> IntArray:
        if self.run is not None:
            return np.arange(*self.run, dtype=np.int64)
        if self.several is None:
            assert self.listed is not None
            return self.listed
        rows = rows_of(self.several)
        if self.dest is None:
            return rows
        dealt = np.empty_like(rows)
        dealt[self.dest] = rows
        return dealt


def even_share(place: int, n_rows: int, count: int) -> tuple[int, int, int]:
    """Return (number, start, stop) of the share of `place`, n_rows being cut evenly in `count`.

    Examples
    --------
    >>> even_share(4, 10, 4)
    (1, 2, 5)
    """
    number = ((place + 1) * count - 1) // n_rows
    return number, n_rows * number // count, n_rows * (number + 1) // count


def rows_of(runs: IntArray) -> IntArray:
    """Return every row of the runs, one run after another.

    Examples
    --------
    >>> rows_of(np.array([[2, 4], [7, 8]]))
    array([2, 3, 7])
    """
    sizes = runs[:, 1] - runs[:, 0]
    ends = np.cumsum(sizes)
    n_rows = int(ends[-1]) if ends.size else 0
    rows = np.repeat(runs[:, 0] - (ends - sizes), sizes)
    rows += np.arange(n_rows)
    return rows


def runs_of(rows: IntArray) -> IntArray:
    """Return strictly ascending rows as runs, (k, 2).

    Examples
    --------
    >>> runs_of(np.array([2, 3, 7])).tolist()
    [[2, 4], [7, 8]]
    """
    return merged(rows, rows + 1)


def merged(starts: IntArray, stops: IntArray) -> IntArray:
    """Join stretches that touch; both arrays ascend."""
    if starts.size == 0:
        return np.empty((0, 2), np.int64)
    gap = np.flatnonzero(starts[1:] != stops[:-1])
    lo = np.concatenate([starts[:1], starts[gap + 1]])
    hi = np.concatenate([stops[gap], stops[-1:]])
    return np.stack([lo, hi], axis=1)
