"""xbatcher's BatchGenerator over xarray and dask."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from benchmarks.peers.common import Orders
from benchmarks.peers.xarray_dask import BATCH_DIM, computed, lazy
from benchmarks.subject import Batch, Subject
from benchmarks.timing import Epoch, Way

NAME = "xbatcher"
NEEDS = ("xbatcher",)
PERMUTED_BATCHES = 32
"""Batches of a permuted array: permuting all rows makes a graph that takes minutes alone."""


def ways(subject: Subject, order: str) -> list[Way]:
    def generator(x: Any) -> Any:
        xbatcher = importlib.import_module("xbatcher")
        sizes = {**x.sizes, BATCH_DIM: subject.batch_rows}
        return xbatcher.BatchGenerator(x, input_dims=sizes)

    def in_order() -> Epoch:
        batches = generator(lazy(subject))

        def epoch() -> Iterator[Batch]:
            for batch in batches:
                yield computed(batch)

        return epoch

    def shuffled() -> Epoch:
        x, orders = lazy(subject), Orders(subject.n_rows)

        def epoch() -> Iterator[Batch]:
            rows = orders.next()[: PERMUTED_BATCHES * subject.batch_rows]
            for batch in generator(x.isel({BATCH_DIM: rows})):
                yield computed(batch)

        return epoch

    if order == "file":
        return [Way("xbatcher", "peer", "file", "BatchGenerator, dask chunk = batch", in_order)]
    how = f"BatchGenerator over x.isel(batch=permutation), {PERMUTED_BATCHES} batches"
    return [Way("xbatcher", "peer", "list", how, shuffled)]
