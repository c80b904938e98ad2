"""Cutting windows into jobs: what is read ahead at once where the order allows any cut.

A shuffled window is one job. File order and full shuffle come in long blocks that may
be cut anywhere; they are cut where batches end and, over stored chunks, where chunks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from labeled.samplers.order import Content
from labeled.samplers.plan import Window

Job = tuple[int, int, Content]


def cut_jobs(
    windows: Iterable[Window], job_rows: int, offset: int | None, *, listed: bool = False
) -> Iterator[Job]:
    """Cut windows into jobs of `job_rows` rows.

    Parameters
    ----------
    windows : iterable of Window
    job_rows : int
        Rows of a job, where the window is not shuffled within.
    offset : int, optional
        Cut the rows of runs at ``offset + k * job_rows``, so that no stored chunk is
        read twice; places are cut (at multiples of `job_rows`) when None.
    listed : bool
        Cut shuffled windows too, row by row: right where rows are in memory already.
    """
    for window in windows:
        runs = window.runs
        if window.n_rows <= job_rows and offset is None:
            yield window.start, window.stop, window.content
        elif runs is None or (listed and window.dest is not None):
            yield from _listed_jobs(window, job_rows)
        elif window.dest is None and len(runs) == 1:
            yield from _run_jobs(window, job_rows, offset)
        else:
            yield window.start, window.stop, window.content


def _listed_jobs(window: Window, job_rows: int) -> Iterator[Job]:
    rows, start = window.rows, window.start
    for a, b in _cuts(start, window.stop, job_rows, 0):
        yield a, b, Content(listed=rows[a - start : b - start])


def _run_jobs(window: Window, job_rows: int, offset: int | None) -> Iterator[Job]:
    assert window.runs is not None
    shift = int(window.runs[0, 0]) - window.start
    at = 0 if offset is None else offset - shift
    for a, b in _cuts(window.start, window.stop, job_rows, at):
        yield a, b, Content(runs=np.array([[a + shift, b + shift]], np.int64))


def _cuts(start: int, stop: int, step: int, offset: int) -> Iterator[tuple[int, int]]:
    while start < stop:
        end = min(stop, start + step - (start - offset) % step)
        yield start, end
        start = end
