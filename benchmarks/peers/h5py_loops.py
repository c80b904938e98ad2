"""Plain h5py: slices in file order, sorted lists of rows for a shuffle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.files import BenchFile
from benchmarks.measure import Array, Epoch, Way
from benchmarks.peers.common import Orders, cuts, dataset


def ways(file: BenchFile, batch_rows: int, order: str) -> list[Way]:
    n_rows = file.spec.n_rows

    def slices() -> Epoch:
        x = dataset(file)

        def epoch() -> Iterator[Array]:
            for a, b in cuts(n_rows, batch_rows):
                yield x[a:b]

        return epoch

    def lists() -> Epoch:
        x, orders = dataset(file), Orders(n_rows)

        def epoch() -> Iterator[Array]:
            rows = orders.next()
            for a, b in cuts(n_rows, batch_rows):
                yield x[np.sort(rows[a:b])]

        return epoch

    if order == "file":
        return [Way("h5py slices", "peer", "file", "x[a:b], file open throughout", slices)]
    how = "x[np.sort(rows)]; rows of a batch stay sorted"
    return [Way("h5py sorted lists", "peer", "full", how, lists)]
