"""pyfive: HDF5 without the C library; slices, and sorted lists for a shuffle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyfive

from benchmarks.files import GOOD_NAME, BenchFile
from benchmarks.measure import Array, Epoch, Way
from benchmarks.peers.common import Orders, cuts


def ways(file: BenchFile, batch_rows: int, order: str) -> list[Way]:
    n_rows = file.spec.n_rows

    def slices() -> Epoch:
        x = pyfive.File(str(file.path))[GOOD_NAME]

        def epoch() -> Iterator[Array]:
            for a, b in cuts(n_rows, batch_rows):
                yield np.ascontiguousarray(x[a:b])

        return epoch

    def lists() -> Epoch:
        x, orders = pyfive.File(str(file.path))[GOOD_NAME], Orders(n_rows)

        def epoch() -> Iterator[Array]:
            rows = orders.next()
            for a, b in cuts(n_rows, batch_rows):
                yield np.ascontiguousarray(x[np.sort(rows[a:b])])

        return epoch

    if order == "file":
        return [Way("pyfive", "peer", "file", "x[a:b], its own thread count", slices)]
    return [Way("pyfive", "peer", "full", "x[np.sort(rows)]", lists)]
