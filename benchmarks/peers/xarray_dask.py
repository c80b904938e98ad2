"""xarray over dask, batch by batch: ``isel(...).compute()``."""

from __future__ import annotations

from collections.abc import Iterator

import dask.array as da
import xarray as xr

from benchmarks.files import BenchFile
from benchmarks.measure import Array, Epoch, Way
from benchmarks.peers.common import Orders, cuts, dataset


def lazy(file: BenchFile, batch_rows: int) -> xr.DataArray:
    """Return the rows as a DataArray; a dask chunk is a batch, or whole stored chunks."""
    rows = max(batch_rows, file.spec.chunk_rows or 1)
    dims = ("batch", "channel", "height", "width")[: len(file.spec.row_shape) + 1]
    chunks = (rows, *file.spec.row_shape)
    return xr.DataArray(da.from_array(dataset(file), chunks=chunks), dims=dims, name="features")


def ways(file: BenchFile, batch_rows: int, order: str) -> list[Way]:
    n_rows = file.spec.n_rows

    def slices() -> Epoch:
        x = lazy(file, batch_rows)

        def epoch() -> Iterator[Array]:
            for a, b in cuts(n_rows, batch_rows):
                yield x.isel(batch=slice(a, b)).compute().values

        return epoch

    def lists() -> Epoch:
        x, orders = lazy(file, batch_rows), Orders(n_rows)

        def epoch() -> Iterator[Array]:
            rows = orders.next()
            for a, b in cuts(n_rows, batch_rows):
                yield x.isel(batch=rows[a:b]).compute().values

        return epoch

    if order == "file":
        how = "isel(slice).compute(), threaded scheduler, dask chunk = batch"
        return [Way("xarray+dask", "peer", "file", how, slices)]
    how = "isel(rows).compute(), threaded scheduler, dask chunk = batch"
    return [Way("xarray+dask", "peer", "full", how, lists)]
