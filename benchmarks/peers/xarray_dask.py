"""xarray over dask, batch by batch: ``isel(...).compute()``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask.array as da
import xarray as xr

from benchmarks.peers.common import Orders, cuts
from benchmarks.subject import Batch, Stored, Subject
from benchmarks.timing import Epoch, Way

NAME = "xarray+dask"
NEEDS = ()
BATCH_DIM = "batch"


def lazy(subject: Subject) -> Any:
    """Return the rows lazily: a DataArray for one source, a Dataset for several.

    A dask chunk is a batch, or whole stored chunks. Rows that only this library can read
    come through its own lazy arrays.
    """
    if subject.by_others:
        found = {one.name: _lazily(one, subject.batch_rows) for one in subject.stored}
    else:
        arrays = {name: subject.dataset[name] for name in subject.dataset.sources}
        found = {n: xr.DataArray(x.data, dims=_dims(n, x.ndim)) for n, x in arrays.items()}
    return next(iter(found.values())) if len(found) == 1 else xr.Dataset(found)


def _lazily(one: Stored, batch_rows: int) -> xr.DataArray:
    rows = one.quick() if not one.is_hdf5 else one.by_h5py()
    chunks = (max(batch_rows, one.chunk_rows or 1), *one.header.row_shape)
    array = da.from_array(rows, chunks=chunks, **({} if one.is_hdf5 else {"name": False}))
    return xr.DataArray(array, dims=_dims(one.name, array.ndim))


def _dims(name: str, ndim: int) -> tuple[str, ...]:
    return (BATCH_DIM, *(f"{name}_{axis}" for axis in range(1, ndim)))


def computed(x: Any) -> Batch:
    """Compute one or several lazy arrays together."""
    done = x.compute()
    if isinstance(done, xr.DataArray):
        return (done.values,)
    return tuple(done[name].values for name in done.data_vars)


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
