"""Plain h5py: slices in file order, sorted lists of rows for a shuffle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.peers.common import Orders, cuts
from benchmarks.subject import Batch, Subject
from benchmarks.timing import Epoch, Way

NAME = "h5py"
NEEDS = ()


def ways(subject: Subject, order: str) -> list[Way]:
    n_rows, batch_rows = subject.n_rows, subject.batch_rows

    def slices() -> Epoch:
        x = subject.by_h5py()

        def epoch() -> Iterator[Batch]:
            for a, b in cuts(n_rows, batch_rows):
                yield (x[a:b],)

        return epoch

    def lists() -> Epoch:
        x, orders = subject.by_h5py(), Orders(n_rows)

        def epoch() -> Iterator[Batch]:
            rows = orders.next()
            for a, b in cuts(n_rows, batch_rows):
                wanted = np.sort(rows[a:b])
                yield (x[wanted],)

        return epoch

    if order == "file":
        return [Way("h5py slices", "peer", "file", "x[a:b], file open throughout", slices)]
    how = "x[np.sort(rows)]; rows of a batch stay sorted"
    return [Way("h5py sorted lists", "peer", "full", how, lists)]
