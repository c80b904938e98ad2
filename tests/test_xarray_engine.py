"""``xr.open_dataset(path, engine="labeled")`` keeps every promise of xarray's own engines.

The law: for a file that both can open, each operation gives what engine="h5netcdf" gives.
"""

from __future__ import annotations

import copy
import pickle
import threading
import warnings

import dask
import dask.array
import h5py
import numpy as np
import pytest
import xarray as xr

import labeled

N = 48


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Packed, compressed, contiguous, text, times, and coordinates of one and two dims."""
    rng = np.random.default_rng(0)
    time = np.datetime64("2001-01-01", "ns") + np.arange(N) * np.timedelta64(12, "h")
    images = rng.normal(size=(N, 4, 5)).astype("f4")
    images[3, 1, 2] = np.nan
    made = xr.Dataset(
        {
            "images": (("time", "lat", "lon"), images, {"units": "K", "long_name": "pictures"}),
            "targets": ("time", rng.integers(0, 4, N).astype("i4")),
            "score": (("time", "lat"), rng.normal(size=(N, 4))),
            "name": ("time", np.array([f"row {row}" for row in range(N)], dtype=object)),
            "code": ("time", np.array([b"ab", b"cd"] * (N // 2))),
            "late": ("time", np.arange(N) * np.timedelta64(1, "h").astype("m8[ns]")),
            "mask": (("lat", "lon"), np.arange(20, dtype="i1").reshape(4, 5)),
            "crs": ((), 7, {"grid": "mercator"}),
        },
        coords={
            "time": time,
            "lat": np.linspace(-1, 1, 4),
            "lon": np.arange(5) * 2.0,
            "height": ("time", np.arange(N) * 1.5),
            "area": (("lat", "lon"), rng.random((4, 5))),
        },
        attrs={"title": "weather"},
    )
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 1.0, "_FillValue": -999}
    stored = {
        name: {"chunksizes": (8, *x.shape[1:])} for name, x in made.items() if "time" in x.dims
    }
    stored |= {name: {"chunksizes": (8,)} for name in ("time", "height")}
    stored["code"] = {"chunksizes": (8, 2)}  # characters have an axis of their own
    stored["images"] |= {**packed, "zlib": True, "complevel": 3}
    name = tmp_path_factory.mktemp("engine") / "weather.nc"
    made.to_netcdf(name, engine="h5netcdf", encoding=stored, unlimited_dims=["time"])
    return str(name)


def _written(door):
    def write(ds, folder):
        getattr(ds, f"to_{door}")(folder / f"again.{door}")
        read = xr.open_zarr if door == "zarr" else xr.open_dataset
        with read(folder / f"again.{door}") as again:
            return again.load()

    return write


def _stored(ds, folder):
    """Return the numbers, filters and attributes that a copy of the file holds."""
    ds.to_netcdf(folder / "again.nc", engine="h5netcdf")
    with h5py.File(folder / "again.nc") as f:
        return {
            name: (str(x.dtype), x.chunks, x.compression, x.compression_opts, x[()].tolist())
            for name, x in f.items()
            if name not in ("name", "code")
        }


def _in_threads(ds):
    found = {}
    threads = [
        threading.Thread(target=lambda k=k: found.update({k: ds.images[k::4].values}))
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[k] for k in range(4)]


def _kinds(ds):
    """Return how each variable is held: NumPy, dask or lazily, and whether in memory."""
    return {
        name: (type(v._data).__name__, v._in_memory, dask.is_dask_collection(v))
        for name, v in ds.variables.items()
    }


def _encoding(variable):
    """Return how it is stored; of what has no chunks, not that it follows those of others."""
    said = {key: str(value) for key, value in variable.encoding.items()}
    if variable.encoding.get("chunksizes") is None:
        said.pop("preferred_chunks", None)
    return said


def _changed(ds):
    other = ds.copy(deep=True)
    other["images"][:] = 0
    return ds.images.load()


OPERATIONS = {
    "load": lambda ds, _: ds.load(),
    "values-are-kept": lambda ds, _: (ds.images.values, ds.images.values is ds.images.values),
    "kinds": lambda ds, _: _kinds(ds),
    "dtypes": lambda ds, _: {name: str(v.dtype) for name, v in ds.variables.items()},
    "chunks": lambda ds, _: (dict(ds.chunks), ds.images.chunks),
    "row": lambda ds, _: ds.images[5],
    "slice": lambda ds, _: ds.images[3:40:7, ::-1],
    "list": lambda ds, _: ds.images[[5, 1, 1, -2]],
    "outer": lambda ds, _: ds.images.isel(time=[9, 2], lon=[4, 0, 0], lat=slice(None, None, 2)),
    "pointwise": lambda ds, _: ds.images.isel(
        time=xr.DataArray([3, 1, 30], dims="p"), lat=xr.DataArray([0, 3, 1], dims="p")
    ),
    "empty-slice": lambda ds, _: ds.isel(time=slice(4, 4)),
    "sel": lambda ds, _: ds.sel(lat=0.3, method="nearest").sel(time="2001-01-03"),
    "sel-slice": lambda ds, _: ds.sel(time=slice("2001-01-03", "2001-01-09"), lon=[2.0, 6.0]),
    "concat": lambda ds, _: xr.concat([ds.isel(time=slice(3)), ds.isel(time=slice(9, 12))], "time"),
    "copy": lambda ds, _: (ds.copy(), ds.copy(deep=True), copy.copy(ds), copy.deepcopy(ds)),
    "a-copy-is-apart": lambda ds, _: _changed(ds),
    "write-into": lambda ds, _: (ds.targets.__setitem__(slice(3), 9), ds.targets)[1],
    "pickle": lambda ds, _: pickle.loads(pickle.dumps(ds)),
    "pickle-a-part": lambda ds, _: pickle.loads(pickle.dumps(ds.images[3:30:5, 1])),
    "threads": lambda ds, _: _in_threads(ds),
    "closed": lambda ds, _: (ds.load(), ds.close(), ds.images)[2],
    "to-netcdf": _written("netcdf"),
    "to-zarr": _written("zarr"),
    "stored-alike": _stored,
    "encoding": lambda ds, _: {name: _encoding(v) for name, v in ds.variables.items()},
    "chunk": lambda ds, _: (ds.chunk(time=7).images.chunks, ds.chunk(time=7).images.mean("time")),
    "dask-tokens": lambda ds, _: dask.base.tokenize(ds) == dask.base.tokenize(ds),
}

OPENED = {
    "plain": {},
    "chunks-as-stored": {"chunks": {}},
    "stored-values": {"decode_cf": False},
}
ALWAYS = ["load", "kinds", "dtypes", "slice", "pointwise", "stored-alike", "encoding"]
TRIED = {
    "plain": OPERATIONS,
    "chunks-as-stored": [
        *ALWAYS,
        *("chunks", "concat", "write-into", "pickle", "threads", "closed", "to-zarr", "chunk"),
        "dask-tokens",
    ],
    "stored-values": [*ALWAYS, "list", "outer", "pickle-a-part"],
}
"""What depends on how a file is opened is tried each way."""


def _same(mine, theirs):
    assert type(mine) is type(theirs)
    if isinstance(mine, xr.Dataset | xr.DataArray):
        if isinstance(mine, xr.Dataset):
            assert set(mine.indexes) == set(theirs.indexes)
        xr.testing.assert_identical(mine, theirs)
    elif isinstance(mine, list | tuple):
        assert len(mine) == len(theirs)
        for one, two in zip(mine, theirs, strict=True):
            _same(one, two)
    else:
        np.testing.assert_equal(mine, theirs)


def _outcome(engine, path, options, operation, folder):
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_dataset(path, engine=engine, **options) as ds:
            try:
                return operation(ds, folder)
            except Exception as error:
                if engine == "h5netcdf" and not options:  # there would be nothing to compare with
                    raise
                return type(error), str(error)


@pytest.mark.parametrize(
    ("name", "opened"), [(name, opened) for opened, names in TRIED.items() for name in names]
)
def test_each_operation_gives_what_h5netcdf_gives(path, tmp_path, name, opened):
    mine, theirs = (
        _outcome(engine, path, OPENED[opened], OPERATIONS[name], tmp_path / engine)
        for engine in ("labeled", "h5netcdf")
    )
    _same(mine, theirs)


@pytest.mark.parametrize("engine", ["labeled", "h5netcdf"])
def test_batches_of_what_xarray_opened_do_not_read_it_whole(path, engine):
    with xr.open_dataset(path, engine=engine) as ds, xr.load_dataset(path) as loaded:
        loader = ds[["images", "targets"]].labeled.batches(7, dim="time", shuffle=True, seed=1)
        for batch in loader:
            want = loaded.isel(time=batch.rows)
            np.testing.assert_array_equal(batch["images"], want.images)
            np.testing.assert_array_equal(batch["targets"], want.targets)
        assert not ds.images.variable._in_memory


def test_what_xarray_opened_is_written_without_reading_it_whole(path, tmp_path):
    ds = xr.open_dataset(path, engine="labeled").drop_vars("area")[["images", "targets"]]
    labeled.write(tmp_path / "x.hdf5", {name: ds[name] for name in ds.data_vars})
    assert not ds.images.variable._in_memory
    written = labeled.open_dataset(tmp_path / "x.hdf5").to_xarray()
    np.testing.assert_array_equal(written.images, ds.images)
