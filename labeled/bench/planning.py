"""What happens before the first row is read: the chunk index, the graph, the plan, a seek."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from labeled.bench import ours
from labeled.bench.subject import Subject
from labeled.formats.hdf5.chunkindex import build_index

Figures = dict[str, float]


def planning_figures(subject: Subject) -> Figures:
    """Time each step once or as the median of a few; seconds, bytes and counts."""
    out: Figures = {}
    main = subject.main
    if main is not None and main.is_hdf5 and main.header.storage == "chunked":
        began = perf_counter()
        index = build_index(main.header)
        out["index_s"] = perf_counter() - began
        out["index_bytes"] = index.nbytes
        out["n_chunks"] = len(index.offsets)
    if subject.form != "ragged":
        out |= _graph_figures(subject)
    out["plan_s"] = timed(lambda: ours.loader(subject, shuffle=True))
    plan = ours.loader(subject, shuffle=True).plan.epoch_plan
    middle = plan.n_batches // 2
    out["seek_s"] = timed(lambda: next(iter(plan.windows(middle)), None))
    return out


def _graph_figures(subject: Subject) -> Figures:
    name = subject.dataset.sources[0]
    graph = subject.dataset[name].data
    return {
        "graph_s": timed(lambda: subject.dataset[name]),
        "graph_blocks": int(np.prod(graph.numblocks)),
        "graph_layers": len(graph.__dask_graph__().layers),
    }


def timed(work: Callable[[], object], repeats: int = 3) -> float:
    """Median seconds of some repeats."""
    found = []
    for _ in range(repeats):
        began = perf_counter()
        work()
        found.append(perf_counter() - began)
    return sorted(found)[repeats // 2]
