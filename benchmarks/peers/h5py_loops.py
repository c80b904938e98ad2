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
    if not subject.by_h5py:
        return []
    n_rows, batch_rows = subject.n_rows, subject.batch_rows

    def slices() -> Epoch:
        sources = [one.by_h5py() for one in subject.stored]

        def epoch() -> Iterator[Batch]:
            for a, b in cuts(n_rows, batch_rows):
                yield tuple(x[a:b] for x in sources)

        return epoch

    def lists() -> Epoch:
        sources, orders = [one.by_h5py() for one in subject.stored], Orders(n_rows)

        def epoch() -> Iterator[Batch]:
            rows = orders.next()
            for a, b in cuts(n_rows, batch_rows):
                wanted = np.sort(rows[a:b])
                yield tuple(x[wanted] for x in sources)

        return epoch

    if order == "file":
        return [Way("h5py slices", "peer", "file", "x[a:b], file open throughout", slices)]
    how = "x[np.sort(rows)]; rows of a batch stay sorted"
    return [Way("h5py sorted lists", "peer", "full", how, lists)]
