"""Where rows lie in a file: runs of rows become *extents*.

Extents are ``int64 (k, 3)`` of (byte offset in the file, number of the first row in run
order, rows); offset -1 stands for rows that were never stored and read as the fill value.
A `locate` turns runs into them, one for each way in which files place their rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from labeled.formats.reading import UNSTORED, bands_of, n_rows_of
from labeled.formats.region import Ints

Locate = Callable[[Ints], Ints]
"""Runs to extents."""


def span_extents(at: int, row_bytes: int, span_rows: int) -> Locate:
    """Return the `locate` of rows that follow one another, cut at every `span_rows` rows."""

    def locate(runs: Ints) -> Ints:
        start, stop, first = bands_of(runs, span_rows).T
        return np.stack((at + start * row_bytes, first, stop - start), axis=1)

    return locate


def contiguous_extents(at: int, row_bytes: int) -> Locate:
    """Return the `locate` of rows that all follow one another from byte `at` on."""

    def locate(runs: Ints) -> Ints:
        if len(runs) == 1:
            start, stop = runs[0].tolist()
            return np.array([[at + start * row_bytes, 0, stop - start]], np.int64)
        counts = runs[:, 1] - runs[:, 0]
        extents = np.stack(
            (at + runs[:, 0] * row_bytes, np.cumsum(counts) - counts, counts), axis=1
        )
        return merged(extents, row_bytes)

    return locate


def unstored_extents(runs: Ints) -> Ints:
    """Return the extents of a dataset for which nothing was ever stored."""
    n = n_rows_of(runs)
    return np.array([[UNSTORED, 0, n]], np.int64)


def merged(extents: Ints, row_bytes: int) -> Ints:
    """Join extents that follow one another in the file without a gap."""
    at, first, n = extents.T
    follows = (at[1:] == at[:-1] + n[:-1] * row_bytes) & (at[:-1] != UNSTORED)
    follows |= (at[1:] == UNSTORED) & (at[:-1] == UNSTORED)
    if not follows.any():
        return extents
    begin = np.flatnonzero(np.concatenate(([True], ~follows)))
    return np.stack((at[begin], first[begin], np.add.reduceat(n, begin)), axis=1)


def cut_long(extents: Ints, rows_each: int, row_bytes: int) -> Ints:
    """Cut long extents into nearly equal ones of at least `rows_each` rows."""
    at, first, n = extents.T
    parts = np.maximum(n // rows_each, 1)
    if parts.max() == 1:
        return extents
    part = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)
    at, first, n, parts = (np.repeat(column, parts) for column in (at, first, n, parts))
    begin, end = n * part // parts, n * (part + 1) // parts
    moved = np.where(at == UNSTORED, UNSTORED, at + begin * row_bytes)
    return np.stack((moved, first + begin, end - begin), axis=1)
