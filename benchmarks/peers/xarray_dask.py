"""xarray over dask, batch by batch: ``isel(...).compute()``."""

from __future__ import annotations

from collections.abc import Iterator

import dask.array as da
import xarray as xr

from benchmarks.peers.common import Orders, cuts
from benchmarks.subject import Batch, Subject
from benchmarks.timing import Epoch, Way

NAME = "xarray+dask"
NEEDS = ()
BATCH_DIM = "batch"


def lazy(subject: Subject) -> xr.DataArray:
    """Return the rows lazily; a dask chunk is a batch, or whole stored chunks."""
    rows = subject.by_h5py()
    chunks = (max(subject.batch_rows, subject.layout.chunk_rows or 1), *rows.shape[1:])
    array = da.from_array(rows, chunks=chunks)
    return xr.DataArray(array, dims=(BATCH_DIM, *(f"axis_{i}" for i in range(1, array.ndim))))


def computed(x: xr.DataArray) -> Batch:
    return (x.compute().values,)


def ways(subject: Subject, order: str) -> list[Way]:
    n_rows = subject.n_rows

    def slices() -> Epoch:
        x = lazy(subject)

        def epoch() -> Iterator[Batch]:
            for a, b in cuts(n_rows, subject.batch_rows):
                yield computed(x.isel({BATCH_DIM: slice(a, b)}))

        return epoch

    def lists() -> Epoch:
        x, orders = lazy(subject), Orders(n_rows)

        def epoch() -> Iterator[Batch]:
            rows = orders.next()
            for a, b in cuts(n_rows, subject.batch_rows):
                yield computed(x.isel({BATCH_DIM: rows[a:b]}))

        return epoch

    if order == "file":
        how = "isel(slice).compute(), threaded scheduler, dask chunk = batch"
        return [Way("xarray+dask", "peer", "file", how, slices)]
    how = "isel(rows).compute(), threaded scheduler, dask chunk = batch"
    return [Way("xarray+dask", "peer", "full", how, lists)]
