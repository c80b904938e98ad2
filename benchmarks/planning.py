"""What happens before the first byte of a row is read: opening, indexing, graphs, planning."""

from __future__ import annotations

import os
import statistics
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import labeled
from benchmarks.files import GOOD_NAME, many_rows, million_chunks

Figures = dict[str, float]


def timed(work: Callable[[], object], repeats: int = 5) -> float:
    """Median seconds of some repeats."""
    found = []
    for _ in range(repeats):
        began = perf_counter()
        work()
        found.append(perf_counter() - began)
    return statistics.median(found)


def traced(work: Callable[[], object]) -> float:
    """Most bytes that Python and NumPy held at a time while working."""
    tracemalloc.start()
    try:
        work()
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def open_seconds(path: str) -> float:
    """Open a file that this process has not seen: its time of change is moved each time."""
    found = []
    for _ in range(5):
        os.utime(path)
        began = perf_counter()
        _ = labeled.open_dataset(path).sources
        found.append(perf_counter() - began)
    return statistics.median(found)


def chunk_figures(folder: Path, n: int) -> Figures:
    """Open a file of `n` chunks, index it, make its graph."""
    from labeled.formats.hdf5.reader import build_index

    path = str(million_chunks(folder, n))
    data = labeled.open_dataset(path)
    header = data.files.catalog.sources[GOOD_NAME].headers[0]
    began = perf_counter()
    index = build_index(header)
    indexed = perf_counter() - began
    graph_s = timed(lambda: data[GOOD_NAME])  # before the file's time is moved
    return {
        "n_chunks": n,
        "open_s": open_seconds(path),
        "graph_s": graph_s,
        "index_s": indexed,
        "index_bytes": index.table.nbytes,
    }


def row_figures(folder: Path, n: int) -> Figures:
    """Split, subset, share, seek: over ranges of `n` rows, and over a list of some of them."""
    path = str(many_rows(folder, n))
    opened = labeled.open_dataset(path)
    _ = opened.n_rows

    def compose() -> labeled.Dataset:
        return opened.split("train").subset(slice(1000, None)).subset(slice(None, -1000, 2))

    def plan(shuffle: Any = "full", **options: Any) -> labeled.Loader:
        rows = opened.split("train").subset(slice(1000, None))
        return rows.batches(256, shuffle=shuffle, seed=7, shard=(3, 8), **options)

    plan()
    epochs = plan().plan.epoch_plan
    windowed = plan("window", window_rows=1 << 16).plan.epoch_plan
    places = np.linspace(0, epochs.n_batches - 1, 9).astype(int).tolist()
    listed = np.random.default_rng(0).permutation(n // 10)

    def plan_list() -> labeled.Loader:
        return opened.subset(listed).batches(256, shuffle="window", seed=7)

    def graph() -> Any:
        whole = labeled.open_dataset(path, chunks=n // 10_000)
        return whole.split("train")[GOOD_NAME].data

    return {
        "n_rows": n,
        "graph_auto_s": timed(lambda: opened[GOOD_NAME]),
        "graph_s": timed(graph),
        "graph_blocks": int(np.prod(graph().numblocks)),
        "graph_layers": len(graph().__dask_graph__().layers),
        "compose_s": timed(compose, 20) / 3,
        "plan_s": timed(plan),
        "plan_window_s": timed(lambda: plan("window")),
        "plan_bytes": traced(plan),
        "seek_s": statistics.median(timed(lambda b=b: next(epochs.windows(b)), 3) for b in places),
        "seek_window_s": statistics.median(
            timed(lambda b=b: next(windowed.windows(b)), 3) for b in places
        ),
        "list_rows": len(listed),
        "list_plan_s": timed(plan_list, 1),
        "sort_s": timed(lambda: np.argsort(listed, kind="stable"), 1),
        "list_bytes_a_row": traced(plan_list) / len(listed),
    }
