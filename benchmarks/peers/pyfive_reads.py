"""pyfive: HDF5 without the C library; slices, and sorted lists for a shuffle."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.peers.common import Orders, cuts
from benchmarks.subject import Batch, Chosen, Subject
from benchmarks.timing import Epoch, Way

NAME = "pyfive"
NEEDS = ("pyfive",)


def _opened(subject: Subject) -> list[Any]:
    pyfive = importlib.import_module("pyfive")
    found = []
    for one in subject.stored:
        x = pyfive.File(one.header.file.path)[one.header.key.strip("/")]
        whole = one.span == range(one.header.n_rows)
        found.append(x if whole else Chosen(x, one.selection))
    return found


def ways(subject: Subject, order: str) -> list[Way]:
    if not subject.by_h5py:
        return []
    n_rows, batch_rows = subject.n_rows, subject.batch_rows

    def slices() -> Epoch:
        sources = _opened(subject)

        def epoch() -> Iterator[Batch]:
            for a, b in cuts(n_rows, batch_rows):
                yield tuple(np.ascontiguousarray(x[a:b]) for x in sources)

        return epoch

    def lists() -> Epoch:
        sources, orders = _opened(subject), Orders(n_rows)

        def epoch() -> Iterator[Batch]:
            rows = orders.next()
            for a, b in cuts(n_rows, batch_rows):
                wanted = np.sort(rows[a:b])
                yield tuple(np.ascontiguousarray(x[wanted]) for x in sources)

        return epoch

    if order == "file":
        return [Way("pyfive", "peer", "file", "x[a:b], its own thread count", slices)]
    return [Way("pyfive", "peer", "full", "x[np.sort(rows)]", lists)]
