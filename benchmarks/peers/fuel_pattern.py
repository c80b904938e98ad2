"""The access pattern of Fuel: a sorted request for each batch, put back into its order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.files import BenchFile
from benchmarks.measure import Array, Epoch, Way
from benchmarks.peers.common import Orders, cuts, dataset


def ways(file: BenchFile, batch_rows: int, order: str) -> list[Way]:
    if order == "file":
        return []

    def make() -> Epoch:
        x, orders = dataset(file), Orders(file.spec.n_rows)

        def epoch() -> Iterator[Array]:
            rows = orders.next()
            for a, b in cuts(len(rows), batch_rows):
                request = rows[a:b]
                by_row = np.argsort(request)
                data = x[request[by_row].tolist()]
                yield data[np.argsort(by_row)]

        return epoch

    how = "h5py, the sorted list of each batch, rows put back in order (pattern re-created)"
    return [Way("Fuel's pattern", "peer", "full", how, make)]
