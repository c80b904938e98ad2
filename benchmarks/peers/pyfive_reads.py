"""pyfive: HDF5 without the C library; slices, and sorted lists for a shuffle."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.peers.common import Orders, cuts
from benchmarks.subject import Batch, Subject
from benchmarks.timing import Epoch, Way

NAME = "pyfive"
NEEDS = ("pyfive",)


def _opened(subject: Subject) -> Any:
    return importlib.import_module("pyfive").File(subject.path)[subject.source]


def ways(subject: Subject, order: str) -> list[Way]:
    n_rows, batch_rows = subject.n_rows, subject.batch_rows

    def slices() -> Epoch:
        x = _opened(subject)

        def epoch() -> Iterator[Batch]:
            for a, b in cuts(n_rows, batch_rows):
                yield (np.ascontiguousarray(x[a:b]),)

        return epoch

    def lists() -> Epoch:
        x, orders = _opened(subject), Orders(n_rows)

        def epoch() -> Iterator[Batch]:
            rows = orders.next()
            for a, b in cuts(n_rows, batch_rows):
                wanted = np.sort(rows[a:b])
                yield (np.ascontiguousarray(x[wanted]),)

        return epoch

    if order == "file":
        return [Way("pyfive", "peer", "file", "x[a:b], its own thread count", slices)]
    return [Way("pyfive", "peer", "full", "x[np.sort(rows)]", lists)]
