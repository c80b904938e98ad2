"""xbatcher's BatchGenerator over xarray and dask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import xbatcher

from benchmarks.files import BenchFile
from benchmarks.measure import Array, Epoch, Way
from benchmarks.peers.common import Orders
from benchmarks.peers.xarray_dask import lazy

PERMUTED_BATCHES = 32
"""Batches of a permuted array: permuting all rows makes a graph that takes minutes alone."""


def ways(file: BenchFile, batch_rows: int, order: str) -> list[Way]:
    inner = dict(zip(("channel", "height", "width"), file.spec.row_shape, strict=False))

    def generator(x: Any) -> Any:
        return xbatcher.BatchGenerator(x, input_dims={"batch": batch_rows, **inner})

    def in_order() -> Epoch:
        batches = generator(lazy(file, batch_rows))

        def epoch() -> Iterator[Array]:
            for batch in batches:
                yield batch.values

        return epoch

    def shuffled() -> Epoch:
        x, orders = lazy(file, batch_rows), Orders(file.spec.n_rows)

        def epoch() -> Iterator[Array]:
            rows = orders.next()[: PERMUTED_BATCHES * batch_rows]
            for batch in generator(x.isel(batch=rows)):
                yield batch.values

        return epoch

    if order == "file":
        return [Way("xbatcher", "peer", "file", "BatchGenerator, dask chunk = batch", in_order)]
    how = f"BatchGenerator over x.isel(batch=permutation), {PERMUTED_BATCHES} batches"
    return [Way("xbatcher", "peer", "list", how, shuffled)]
