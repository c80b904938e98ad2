"""Coordinates and netCDF-style files: what xarray users expect, lazily and per batch."""

from __future__ import annotations

import itertools
import warnings

import dask
import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import LabeledWarning, LoaderError

N = 40


@pytest.fixture(scope="module")
def netcdf(tmp_path_factory):
    rng = np.random.default_rng(0)
    time = np.datetime64("2001-01-01", "ns") + np.arange(N) * np.timedelta64(1, "D")
    temperature = rng.normal(size=(N, 4, 5)).astype("f4")
    temperature[3, 1, 2] = np.nan
    dataset = xr.Dataset(
        {
            "temperature": (("time", "lat", "lon"), temperature, {"units": "K"}),
            "flag": ("time", np.arange(N, dtype="i4")),
            "mask": (("lat", "lon"), np.ones((4, 5), "i1")),
            "when": ("time", time + np.timedelta64(1, "h")),
        },
        coords={
            "time": time,
            "lat": np.linspace(-1, 1, 4),
            "lon": np.arange(5) * 2.0,
            "height": ("time", np.arange(N) * 1.5),
        },
        attrs={"title": "weather"},
    )
    packed = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 1.0, "_FillValue": -999}
    path = tmp_path_factory.mktemp("nc") / "weather.nc"
    dataset.to_netcdf(
        path,
        engine="h5netcdf",
        encoding={"temperature": {**packed, "zlib": True, "chunksizes": (8, 4, 5)}},
        unlimited_dims=["time"],
    )
    return str(path)


def test_a_netcdf_file_opens_as_xarray_opens_it(netcdf):
    ours = labeled.open_dataset(netcdf)
    assert ours.sources == ("flag", "temperature", "when")
    assert ours.splits == {"all": dict.fromkeys(ours.sources, N)}
    with xr.open_dataset(netcdf, engine="h5netcdf") as theirs:
        mine = ours.to_xarray()
        assert set(mine.variables) == set(theirs.variables)
        assert set(mine.coords) == set(theirs.coords)
        assert mine.sizes == theirs.sizes
        assert mine.attrs == theirs.attrs
        for name in theirs.variables:
            assert mine[name].dims == theirs[name].dims
            assert mine[name].dtype == theirs[name].dtype
            assert mine[name].attrs == theirs[name].attrs
            np.testing.assert_array_equal(mine[name].values, theirs[name].values)
        assert set(theirs.indexes) == set(mine.indexes)
        xr.testing.assert_identical(mine["temperature"].load(), theirs["temperature"].load())


def test_long_coordinates_of_rows_stay_lazy(tmp_path):
    n = 1_100_000  # more than 8 MiB of times
    made = xr.Dataset({"x": ("time", np.zeros(n, "u1"))}, {"time": np.arange(n)})
    made.to_netcdf(tmp_path / "long.nc", engine="h5netcdf", unlimited_dims=["time"])
    mine = labeled.open_dataset(tmp_path / "long.nc")["x"]
    assert not mine.indexes
    assert dask.is_dask_collection(mine["time"])
    xr.testing.assert_identical(mine.set_xindex("time").load(), made["x"])


def test_the_batch_path_decodes_the_same(netcdf):
    with xr.open_dataset(netcdf, engine="h5netcdf") as theirs:
        for batch in labeled.open_dataset(netcdf).batches(7, shuffle=True, seed=1):
            for name in batch:
                want = theirs[name].isel(time=batch.rows).values
                np.testing.assert_array_equal(batch[name].values, want)
                assert batch[name].dtype == want.dtype


@pytest.mark.parametrize(
    "decoders",
    [
        {"mask_and_scale": {"temperature": False}},
        {"decode_times": False},
        {"decode_times": xr.coders.CFDatetimeCoder(time_unit="s")},
        {"decode_coords": "all"},
        {"decode_coords": False},
        {"concat_characters": False},
        {"drop_variables": ["flag", "lat"]},
    ],
)
def test_the_engine_takes_the_decoders_of_xarray(netcdf, decoders):
    with xr.open_dataset(netcdf, engine="h5netcdf", **decoders) as theirs:
        mine = xr.open_dataset(netcdf, engine="labeled", **decoders)
        xr.testing.assert_identical(mine, theirs)


def test_the_engine_decodes_files_that_are_packed_differently(tmp_path):
    values, paths = np.linspace(0, 9, 6), [tmp_path / "a.nc", tmp_path / "b.nc"]
    for path, scale in zip(paths, (0.5, 0.25), strict=True):
        made = xr.Dataset({"x": ("time", values)}, coords={"time": np.arange(6)})
        packing = {"dtype": "i2", "scale_factor": scale, "_FillValue": -1}
        made.to_netcdf(path, engine="h5netcdf", encoding={"x": packing}, unlimited_dims=["time"])
    theirs = [xr.load_dataset(path, engine="h5netcdf").x.values for path in paths]
    mine = xr.open_dataset(paths, engine="labeled", create_default_indexes=False)
    np.testing.assert_array_equal(mine.x.values, np.concatenate(theirs))
    with pytest.raises(LoaderError, match=r"'x' of .*a\.nc.*packed differently.*decode_cf=False"):
        xr.open_dataset(paths, engine="labeled", decode_times=False)
    assert xr.open_dataset(paths, engine="labeled", decode_cf=False).x.dtype == np.int16


def test_another_example_dim(netcdf):
    dataset = labeled.open_dataset(netcdf, example_dim="lat")
    assert dataset.sources == ("mask",)
    assert len(dataset) == 4
    with xr.open_dataset(netcdf, engine="h5netcdf") as theirs:
        mine = dataset.to_xarray()
        assert set(mine.coords) == set(theirs.coords)
        np.testing.assert_array_equal(mine["height"].values, theirs["height"].values)
        assert "time" in mine.indexes


def test_coordinates_follow_rows_and_parts(netcdf):
    part = labeled.open_dataset(netcdf).subset([3, 1]).isel(lat=2, lon=slice(1, 4))
    with xr.open_dataset(netcdf, engine="h5netcdf") as theirs:
        want = theirs["temperature"].isel(time=[3, 1], lat=2, lon=slice(1, 4))
        xr.testing.assert_equal(part["temperature"].load().drop_vars("lat"), want.drop_vars("lat"))
        assert float(part["temperature"]["lat"]) == float(want["lat"])
        loaded = part.load().subset([1])
        np.testing.assert_array_equal(
            loaded["temperature"]["height"].values, want["height"].values[1:]
        )


@pytest.mark.parametrize("rows", [slice(None, None, -1), [1, 1, 0], slice(2), []])
def test_coordinates_with_other_dims_than_sources_follow_rows(tmp_path, rows):
    numbers, path = np.arange(6.0), tmp_path / "x.nc"
    coords = {
        "along": (("time", "lat"), numbers.reshape(3, 2)),  # no source has lat
        "turned": (("lon", "time"), numbers.reshape(2, 3)),
        "both": (("lat", "time"), numbers.reshape(2, 3)),
        "time": [7, 8, 9],
        "single": 2.5,
    }
    variables = {"x": (("time", "lon"), numbers.reshape(3, 2)), "number": 3}
    written = xr.Dataset(variables, coords)
    written.to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"])
    dataset, wanted = labeled.open_dataset(path), written.isel(time=rows)
    for taken in (dataset.subset(rows), dataset.load().subset(rows)):
        xr.testing.assert_identical(taken.to_xarray().compute(), wanted)
        for name in written.variables:
            np.testing.assert_array_equal(taken[name], wanted[name])
    xr.testing.assert_identical(xr.open_dataset(path, engine="labeled", subset=rows), wanted)


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("places", [[1, 0, 2], [2], slice(None, None, -2), [True, False, True]])
def test_dims_that_count_examples_of_some_sources_are_cut_in_all(tmp_path, places, loaded):
    written = xr.Dataset(
        {
            "x": (("time", "lat"), np.arange(9.0).reshape(3, 3)),
            "lat_bounds": (("lat", "end"), np.arange(6.0).reshape(3, 2)),
        },
        {"time": [5, 6, 7], "lat": [1.5, 2.5, 3.5]},
    )
    written.to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    dataset = labeled.open_dataset(tmp_path / "x.nc")
    dataset = dataset.load() if loaded else dataset
    for dim in ("lat", "time"):
        taken, wanted = dataset.isel({dim: places}), written.isel({dim: places})
        xr.testing.assert_identical(taken.to_xarray().compute(), wanted)
        for name in dataset.sources:
            xr.testing.assert_identical(taken[name].compute(), wanted[name])
    one = dataset.isel(lat=1)
    assert one.to_xarray()["lat"].values == [2.5]
    np.testing.assert_array_equal(one["x"], written["x"].isel(lat=1))
    np.testing.assert_array_equal(one["lat_bounds"], written["lat_bounds"].isel(lat=[1]))


def test_text_is_text_on_every_path(tmp_path):
    path, words = str(tmp_path / "text.h5"), ["a", "bb", "ü", ""] * 3
    with h5py.File(path, "w") as f:
        f["word"], f["code"] = words, np.array([b"ab", b"c"] * 6)
        f["x"] = np.arange(12)
        for name in f:
            f[name].dims[0].label = "batch"
    dataset = labeled.open_dataset(path)
    assert "word" in repr(dataset)
    assert dataset["word"].values.tolist() == words
    assert dataset.load()["word"].values.tolist() == words
    assert dataset["code"].values[:2].tolist() == [b"ab", b"c"]
    for batch in dataset.batches(5, shuffle=True, seed=1, last="pad"):
        assert batch["word"].values[: batch.count].tolist() == [
            words[row] for row in batch.rows[: batch.count]
        ]
        assert (batch["word"].values[batch.count :] == "").all()
        assert (batch["code"].values[batch.count :] == b"").all()


def test_the_engine_gives_texts_of_many_files_as_those_of_one(tmp_path):
    paths = [str(tmp_path / f"{n}.nc") for n in range(2)]
    for path in paths:
        words = xr.Dataset({"word": ("time", np.array(["a", "bcd", ""], object))})
        words.to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"])
    one, many = (xr.open_dataset(given, engine="labeled", chunks="auto") for given in (path, paths))
    assert many["word"].dtype == one["word"].dtype
    assert many["word"].values.tolist() == ["a", "bcd", ""] * 2


def test_variables_without_axes_come_along(tmp_path):
    path = str(tmp_path / "scalars.nc")
    xr.Dataset(
        {"a": (("time", "x"), np.ones((4, 2))), "crs": ((), 1, {"name": "mercator"})},
        coords={"height": 2.5, "when": np.datetime64("2001-01-01", "ns"), "site": "Ü"},
    ).to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"])
    dataset = labeled.open_dataset(path)
    assert dataset.sources == ("a",)
    with xr.open_dataset(path, engine="h5netcdf") as theirs:
        theirs.load()
    for mine in (dataset.to_xarray(), xr.open_dataset(path, engine="labeled")):
        assert set(mine.coords) == set(theirs.coords)
        for name in theirs.variables:
            assert mine[name].dims == theirs[name].dims
            assert mine[name].attrs == theirs[name].attrs
            np.testing.assert_array_equal(mine[name].values, theirs[name].values)
    part = dataset.subset([2])["a"]
    assert float(part["height"]) == 2.5
    assert part["site"].item() == "Ü"


@pytest.mark.parametrize("kind", ["hdf5", "zarr"])
def test_a_single_value_called_like_a_dim_is_left_out(tmp_path, kind):
    path = str(tmp_path / f"x.{kind}")
    if kind == "zarr":
        group = pytest.importorskip("zarr").open_group(path, mode="w")
        group.create_array("v", data=np.ones((3, 2)), dimension_names=("time", "x"))
        group.create_array("time", data=np.array(5.0), dimension_names=())
    else:
        with h5py.File(path, "w") as f:
            f["v"], f["seconds"], f["time"] = np.ones((3, 2)), np.arange(3), 5.0
            f["seconds"].make_scale("time")
            f["v"].dims[0].attach_scale(f["seconds"])
            f["v"].dims[1].label = "x"
    ds = labeled.open_dataset(path)
    assert "time  it is a single value called like a dim" in repr(ds)
    np.testing.assert_array_equal(ds["v"], np.ones((3, 2)))
    with xr.open_dataset(path, engine="labeled") as opened:
        xr.testing.assert_identical(opened.load(), ds.to_xarray().load())


def test_coordinates_called_alike_in_several_groups_are_distinguished_by_their_paths(tmp_path):
    """Every variable had one of its own, called after it: hundreds in a file of ICESat-2."""
    with h5py.File(tmp_path / "beams.h5", "w") as f:
        for beam, n in {"gt1l": 4, "gt1r": 5}.items():
            f[f"{beam}/time"] = np.arange(n) * 10.0
            f[f"{beam}/time"].make_scale("time")
            for name in ("height", "canopy/cover"):
                f[f"{beam}/{name}"] = np.zeros(n)
                f[f"{beam}/{name}"].dims[0].attach_scale(f[f"{beam}/time"])
    ds = labeled.open_dataset(tmp_path / "beams.h5")
    found = {name: [*ds[name].coords] for name in ds.sources}
    assert found == {
        "gt1l/canopy/cover": ["time"],
        "gt1l/height": ["time"],
        "gt1r/canopy/cover": ["gt1r_time"],
        "gt1r/height": ["gt1r_time"],
    }
    np.testing.assert_array_equal(ds["gt1r/height"]["gt1r_time"], np.arange(5) * 10)


def test_coordinates_keep_their_names_however_often_a_file_is_converted(tmp_path):
    """Each time, the name of the source was put in front once more."""
    scales = [
        ("b", "p/time", 3),  # along a dim that `a` has, of another length and without values
        ("b", "q/place", 3),
        ("a", "r/place", 4),
        ("b", "s/batch", 3),  # called like a dim
        ("b", "q/height", 3),  # called like a source in a group
        ("c", "v_time", 2),  # along that dim, with another length again
    ]
    with h5py.File(tmp_path / "0.h5", "w") as f:
        for name, n in {"a": 4, "b": 3, "c": 2, "g/height": 3}.items():
            f[name] = np.zeros((5, n))
            f[name].dims[0].label, f[name].dims[1].label = "batch", "time"
        for number, (name, path, n) in enumerate(scales):
            f[path] = np.arange(n) + 10 * number
            f[path].make_scale(path[2:])
            f[name].dims[1].attach_scale(f[path])

    found = []
    for i in range(4):
        ds = labeled.open_dataset(tmp_path / f"{i}.h5")
        found.append({name: ds[name].load() for name in ds.sources})
        labeled.convert(tmp_path / f"{i}.h5", tmp_path / f"{i + 1}.h5")

    ds.select("b").to_xarray().to_netcdf(tmp_path / "b.nc", engine="h5netcdf")
    assert found[0].keys() == {"a", "b", "c", "g/height"}
    assert {*found[0]["b"].coords} == {"time", "q_place", "s_batch", "height"}
    for later, (name, first) in itertools.product(found[1:], found[0].items()):
        xr.testing.assert_equal(later[name], first)


@pytest.mark.parametrize("alike", [True, False])
def test_two_sets_of_values_for_one_dim_are_reported(tmp_path, alike):
    """The second source was selected by the values of the first, and nobody said so."""
    with h5py.File(tmp_path / "two.h5", "w") as f:
        for i, name in enumerate("ab"):
            f[name] = np.arange(6.0).reshape(3, 2)
            f[f"time_{name}"] = np.arange(2.0) * (10 if i and not alike else 1)
            f[f"time_{name}"].make_scale("time")
            f[name].dims[0].label = "batch"
            f[name].dims[1].attach_scale(f[f"time_{name}"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        both = labeled.open_dataset(tmp_path / "two.h5")
    told = [str(each.message) for each in said if each.category is LabeledWarning]
    assert both["b"].time.values.tolist() == [0, 1]
    if alike:
        assert told == []
        return
    (words,) = told
    assert "'b' has values of its own along dim 'time', those of 'time_b'" in words
    alone = labeled.open_dataset(tmp_path / "two.h5", sources=["b"])  # as the warning says
    assert alone["b"].time.values.tolist() == [0, 10]
    other = labeled.open_dataset(tmp_path / "two.h5", dims={"b": ("batch", "t")})
    assert [*other["b"].coords] == ["b_time"]
    assert other["b"].b_time.values.tolist() == [0, 10]


def test_netcdf_written_of_a_packed_file_is_packed_alike(tmp_path):
    """Packed integers became floats of four times the size, and times other times."""
    packing = {"dtype": "i2", "scale_factor": 0.01, "add_offset": 273.0, "_FillValue": -999}
    values = np.random.default_rng(0).integers(-500, 500, (6, 4)) * 0.01 + 273
    values[2, 1] = np.nan
    times = np.datetime64("2024-01-01T00", "ns") + np.arange(6) * np.timedelta64(6, "h")
    waits = np.arange(6).astype("m8[m]").astype("m8[ns]")
    waits[3] = np.timedelta64("NaT")
    variables = {"t2m": (("time", "x"), values), "wait": ("time", waits)}
    made = xr.Dataset(variables, coords={"time": times})
    hours = {"units": "hours since 2000-01-01", "dtype": "i4"}
    seconds = {"units": "seconds", "dtype": "i8", "_FillValue": -1}
    encoding = {"t2m": packing, "time": hours, "wait": seconds}
    path, again = str(tmp_path / "a.nc"), str(tmp_path / "again.nc")
    made.to_netcdf(path, engine="h5netcdf", encoding=encoding, unlimited_dims=["time"])

    labeled.open_dataset(path).to_xarray().isel(time=slice(1, 5)).to_netcdf(
        again, engine="h5netcdf"
    )

    with h5py.File(path) as old, h5py.File(again) as new:
        for name in ("t2m", "time", "wait"):
            assert new[name].dtype == old[name].dtype
            np.testing.assert_array_equal(new[name], old[name][1:5])
            assert new[name].attrs.get("units") == old[name].attrs.get("units")
        assert new["t2m"].attrs["scale_factor"] == 0.01
    with h5py.File(path, "a") as f:  # one file of two is packed otherwise: neither way is meant
        f["t2m"].attrs["add_offset"] = 0.0
    joined = labeled.open_dataset([path, again]).to_xarray()
    assert "scale_factor" not in joined["t2m"].encoding
    assert joined["t2m"].shape == (10, 4)
