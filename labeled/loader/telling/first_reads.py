"""Where the first windows of an epoch read in the file, for a picture; no row is read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from labeled.catalog.loading import as_runs
from labeled.loader.plan import LoaderPlan
from labeled.loader.reading.jobs import Job
from labeled.loader.reading.lanes import Lane
from labeled.views.reads import Reads, WindowRead

Rows = npt.NDArray[np.int64]

DRAWN_JOBS, DRAWN_RUNS = 8, 120
"""Windows of the picture, and runs of each: more could not be told apart."""


def first_reads(plan: LoaderPlan, jobs: list[Job], mode: str) -> Reads | None:
    """What the largest source reads for some of the windows: some of the runs of each."""
    if not plan.lanes or not jobs:
        return None
    lane = max(plan.lanes, key=lambda one: one.row_bytes)
    windows = []
    for start, stop, content in jobs[:DRAWN_JOBS]:
        runs = as_runs(lane.read(content, plan.group))
        some = runs[:: -(-len(runs) // DRAWN_RUNS) or 1]
        chunks = () if lane.keep else _pairs(_whole_chunks(lane, some))
        windows.append(WindowRead(start, stop, _pairs(some), chunks))
    return Reads(
        lane.name,
        lane.reader.n_rows,
        lane.reader.chunk_rows,
        tuple(windows),
        "window" if mode == "window" else "job",
        lane.keep,
    )


def _whole_chunks(lane: Lane, runs: Rows) -> Rows:
    """Stretches of the stored chunks that hold a row of the runs; nothing without chunks."""
    layout, n_rows = lane.source.layout, lane.reader.n_rows
    if layout.chunk_rows is None or not len(runs):
        return np.empty((0, 2), np.int64)
    if layout.edges is None:
        first = runs[:, 0] // layout.chunk_rows * layout.chunk_rows
        last = -(-runs[:, 1] // layout.chunk_rows) * layout.chunk_rows
    else:
        edges = layout.edges
        first = edges[np.searchsorted(edges, runs[:, 0], side="right") - 1]
        last = edges[np.searchsorted(edges, runs[:, 1], side="left")]
    last = np.minimum(last, n_rows)
    apart = np.flatnonzero(first[1:] > last[:-1])
    return np.stack([first[np.r_[0, apart + 1]], last[np.r_[apart, len(last) - 1]]], axis=1)


def _pairs(runs: Rows) -> tuple[tuple[int, int], ...]:
    return tuple((start, stop) for start, stop in runs.tolist())
