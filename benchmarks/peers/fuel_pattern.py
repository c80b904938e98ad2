"""The access pattern of Fuel: a sorted request for each batch, put back into its order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.peers.common import Orders, cuts
from benchmarks.subject import Batch, Subject
from benchmarks.timing import Epoch, Way

NAME = "Fuel's pattern"
NEEDS = ()


def ways(subject: Subject, order: str) -> list[Way]:
    if order == "file":
        return []

    def make() -> Epoch:
        x, orders = subject.by_h5py(), Orders(subject.n_rows)

        def epoch() -> Iterator[Batch]:
            rows = orders.next()
            for a, b in cuts(len(rows), subject.batch_rows):
                request = rows[a:b]
                by_row = np.argsort(request)
                back = np.argsort(by_row)
                yield (x[request[by_row].tolist()][back],)

        return epoch

    how = "h5py, the sorted list of each batch, rows put back in order (pattern re-created)"
    return [Way("Fuel's pattern", "peer", "full", how, make)]
