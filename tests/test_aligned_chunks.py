"""Dask blocks of one Dataset are cut at the same rows, whatever the rows of its sources weigh."""

from __future__ import annotations

import dask
import h5py
import numpy as np
import pytest
import xarray as xr

import labeled

N = 900
STORED = {
    "images": ((N, 32, 32), (50, 32, 32), ("batch", "y", "x")),
    "pairs": ((N, 4), (64, 4), ("batch", "feature")),
    "targets": ((N,), None, ("batch",)),
    "weights": ((N,), (N,), ("batch",)),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    name = tmp_path_factory.mktemp("aligned") / "x.hdf5"
    rng = np.random.default_rng(0)
    with h5py.File(name, "w") as f:
        for source, (shape, chunks, dims) in STORED.items():
            packed = {} if chunks is None else {"chunks": chunks, "compression": "gzip"}
            f.create_dataset(source, data=rng.integers(0, 9, shape, "u1"), **packed)
            for axis, dim in enumerate(dims):
                f[source].dims[axis].label = dim
        f["id"] = np.arange(N) * 3
        f["id"].make_scale("id")
        for source in STORED:
            f[source].dims[0].attach_scale(f["id"])
    return name


def opened(path, door, rows, chunks):
    if door == "engine":
        options = {} if rows is None else {"subset": rows}
        return xr.open_dataset(
            path, engine="labeled", chunks={} if chunks == "auto" else chunks, **options
        )
    ds = labeled.open_dataset(path, chunks=chunks)
    return (ds if rows is None else ds.subset(rows)).to_xarray()


@pytest.mark.parametrize("door", ["to_xarray", "engine"])
@pytest.mark.parametrize("chunks", ["auto", {"batch": 100}])
@pytest.mark.parametrize(
    "rows",
    [None, slice(3, 800), slice(None, None, 2), np.random.default_rng(1).permutation(N)[:500]],
    ids=["all", "from-mid-chunk", "every-other", "permuted"],
)
@pytest.mark.filterwarnings("ignore:The specified chunks separate the stored chunks")
def test_blocks_are_cut_at_the_same_rows(path, door, rows, chunks):
    with dask.config.set({"array.chunk-size": "100 kiB"}):
        ds = opened(path, door, rows, chunks)
        assert set(ds.chunks) == {"batch", "y", "x", "feature"}
    assert len(ds.chunks["batch"]) > 1
    assert ds.id.chunks == ds.targets.chunks
    doubled = ds.map_blocks(lambda part: part * 2, template=ds * 2).compute()
    with h5py.File(path) as f:
        for name in STORED:
            values = f[name][()] if rows is None else f[name][()][rows]
            np.testing.assert_array_equal(doubled[name], values * 2)


def test_stored_chunks_of_the_largest_rows_are_kept_whole(path):
    with dask.config.set({"array.chunk-size": "100 kiB"}):
        first, *others = (
            labeled.open_dataset(path).subset(slice(3, None)).to_xarray().chunks["batch"]
        )
    assert (first + 3) % 50 == 0
    assert all(rows % 50 == 0 for rows in others[:-1])
