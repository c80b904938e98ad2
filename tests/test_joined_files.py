"""Files joined along the example dim: each means its rows in its own way, or is refused."""

from __future__ import annotations

import pickle
import sys

import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import FileFormatError, LabeledWarning, UnknownNameError


def written(path, day=0, n=3, coord=None, encoding=None, **variables):
    """Write a netCDF file of `n` rows whose times begin at `day`; returns its path."""
    days = np.datetime64("2001-01-01", "ns") + (day + np.arange(n)) * np.timedelta64(1, "D")
    coords = {"time": days} if coord is None else coord
    data = {"a": ("time", np.arange(n) + 10 * day), **variables}
    xr.Dataset(data, coords=coords).to_netcdf(
        path, engine="h5netcdf", encoding=encoding, unlimited_dims=["time"]
    )
    return str(path)


def test_times_of_each_file_count_from_its_own_beginning(tmp_path):
    stamps = np.datetime64("2001-01-01T00", "ns") + np.arange(6) * np.timedelta64(1, "D")
    paths = [
        written(tmp_path / f"{day}.nc", day, when=("time", stamps[day : day + 3])) for day in (0, 3)
    ]
    joined = labeled.open_dataset(paths)
    np.testing.assert_array_equal(joined["a"]["time"].values, stamps)
    np.testing.assert_array_equal(joined.to_xarray()["time"].values, stamps)
    np.testing.assert_array_equal(joined["when"].values, stamps)
    np.testing.assert_array_equal(joined.subset([4, 1, 4])["when"].values, stamps[[4, 1, 4]])
    np.testing.assert_array_equal(joined.load()["when"].values, stamps)
    assert pickle.loads(pickle.dumps(joined))["when"].dtype == stamps.dtype
    for batch in joined.batches(4, shuffle=True, seed=0, last="keep"):
        np.testing.assert_array_equal(batch["when"].values, stamps[batch.rows])


@pytest.mark.parametrize("shuffle", [False, True, "full", "window"])
def test_each_file_is_unpacked_by_its_own_scale(tmp_path, shuffle):
    values = np.random.default_rng(0).integers(0, 900, (60, 4)) / 8
    paths = []
    for number, scale in enumerate((0.125, 0.25, 0.125)):
        encoding = {"x": {"dtype": "i2", "scale_factor": scale, "_FillValue": -1}}
        encoding["x"] |= {"zlib": True, "chunksizes": (7, 2)} if number else {}
        part = np.floor(values[number * 20 : number * 20 + 20] / scale) * scale
        values[number * 20 : number * 20 + 20] = part
        path = tmp_path / f"{number}.nc"
        paths.append(written(path, number, 20, x=(("time", "k"), part), encoding=encoding))
    joined = labeled.open_dataset(paths)
    np.testing.assert_array_equal(joined["x"].values, values)
    for batch in joined.isel(k=[3, 0]).batches(7, shuffle=shuffle, seed=3):
        np.testing.assert_array_equal(batch["x"].values, values[batch.rows][:, [3, 0]])


def test_units_that_differ_are_reported(tmp_path):
    x = [("time", np.arange(3.0), {"units": unit}) for unit in ("m", "km")]
    paths = [written(tmp_path / f"{i}.nc", i, x=x[i]) for i in range(2)]
    with pytest.warns(LabeledWarning, match=r"'x' has the units 'km' in .*1\.nc.*'m' in .*0\.nc"):
        labeled.open_dataset(paths)
    paths = [written(tmp_path / f"times{i}.nc", i) for i in range(2)]
    with pytest.warns(LabeledWarning, match="'time' has the units 'days since 2001-01-02"):
        labeled.open_dataset(paths, decode_cf=False)


def test_coordinates_of_other_dtypes_are_refused(tmp_path):
    one = written(tmp_path / "one.nc", coord={"time": np.arange(3)})
    two = written(tmp_path / "two.nc", coord={"time": np.arange(3) + 0.5})
    with pytest.raises(FileFormatError, match=r"coordinate 'time'.*two\.nc.*one\.nc"):
        labeled.open_dataset([one, two])


def test_stored_dtypes_must_agree(tmp_path):
    whole = written(tmp_path / "whole.nc")
    half = np.datetime64("2001-01-01", "ns") + np.arange(3) * np.timedelta64(12, "h")
    part = written(
        tmp_path / "part.nc",
        coord={"time": half},
        encoding={"time": {"units": "days since 2001-01-01", "dtype": "f8"}},
    )
    with pytest.raises(FileFormatError, match=r"'time'.*dtype float64 in .*part\.nc.*int64"):
        labeled.open_dataset([whole, part])


def test_a_coordinate_missing_from_one_file_is_named(tmp_path):
    height = {"height": ("time", np.arange(3.0))}
    one = written(tmp_path / "one.nc", coord={"time": np.arange(3)} | height)
    two = written(tmp_path / "two.nc", coord={"time": np.arange(3)})
    with pytest.raises(UnknownNameError, match=r"two\.nc.*one\.nc.*'height'"):
        labeled.open_dataset([one, two])


@pytest.mark.parametrize("other", [[2.0, 2.0], [1.0, 2.0, 3.0], None])
def test_variables_carried_whole_that_differ_are_reported(tmp_path, other):
    one = written(tmp_path / "one.nc", k=("x", [1.0, 2.0]))
    two = written(tmp_path / "two.nc", **({} if other is None else {"k": ("x", other)}))
    with pytest.warns(LabeledWarning, match=r"\['k'\].*two\.nc.*one\.nc"):
        joined = labeled.open_dataset([one, two])
    np.testing.assert_array_equal(joined.to_xarray()["k"].values, [1.0, 2.0])


def test_what_was_warned_of_when_files_were_opened_is_not_repeated(tmp_path):
    for number in range(2):
        with h5py.File(tmp_path / f"{number}.hdf5", "w") as file:
            file["x"] = np.full((3, 2), number)
    with pytest.warns(LabeledWarning, match="does not name every axis") as told:
        parts = [labeled.open_dataset(tmp_path / f"{number}.hdf5") for number in range(2)]
    assert len(told) == 2
    assert labeled.concat(parts)["x"].values[:, 0].tolist() == [0, 0, 0, 1, 1, 1]


def test_datasets_are_joined_by_the_sources_that_were_selected(tmp_path):
    n, parts = np.arange(3), []
    for name, more in (("one", {}), ("two", {"w": n}), ("three", {"v": n})):
        path = labeled.write(tmp_path / f"{name}.hdf5", {"x": n, "y": -n, **more})
        parts.append(labeled.open_dataset(path).select("y", "x"))
    joined = labeled.concat([labeled.concat(parts), parts[1].subset([2, 0])])
    assert joined.sources == ("y", "x")
    assert joined["y"].values.tolist() == [0, -1, -2] * 3 + [-2, 0]
    named = labeled.open_dataset(tmp_path / "two.hdf5", sources=["y", "x"])
    assert labeled.concat([parts[0], named])["x"].values.tolist() == [0, 1, 2] * 2
    with pytest.raises(UnknownNameError, match=r"'w' in .* and 1 more file is not selected"):
        labeled.concat([parts[1], parts[1]])["w"]


def test_a_few_rows_of_many_files_cost_as_much_as_of_few(tmp_path):
    """Counted in Python functions that are entered, which no neighbour slows down."""

    def entered(ds, start, stop):
        count = 0

        def see(_, event, __):
            nonlocal count
            count += event == "call"

        sys.setprofile(see)
        try:
            ds.read_rows("x", start, stop)
        finally:
            sys.setprofile(None)
        return count

    rows, paths = np.arange(64 * 5 * 3).reshape(-1, 3), []
    for number, part in enumerate(np.split(rows, 64)):
        paths.append(labeled.write(tmp_path / f"{number:02d}", {"x": part}, compression="gzip"))
    few, many = (labeled.open_dataset(paths[:n]) for n in (4, 64))
    for start, stop in ((0, 0), (0, 2), (3, 12), (4, 20)):
        for ds in (few, many):
            np.testing.assert_array_equal(ds.read_rows("x", start, stop), rows[start:stop])
        counts = [entered(ds, start, stop) for ds in (few, many)]
        assert counts[1] <= counts[0] + 3 * 60, (start, stop)  # a file is asked for its length
    for taken in (slice(250, 90, -7), [200, 3, 201, 3], slice(318, None)):
        np.testing.assert_array_equal(many["x"][taken].values, rows[taken])
        np.testing.assert_array_equal(many.subset(taken)["x"].values, rows[taken])


def test_a_task_of_many_files_carries_the_files_of_its_block(tmp_path):
    rows = np.arange(64 * 5 * 3).reshape(-1, 3)
    paths = [
        labeled.write(tmp_path / f"{number:02d}", {"x": part})
        for number, part in enumerate(np.split(rows, 64))
    ]
    sizes = []
    for n in (4, 64):
        array = labeled.open_dataset(paths[:n], chunks=10)["x"].data
        np.testing.assert_array_equal(array.compute(scheduler="sync"), rows[: 5 * n])
        sizes.append(max(len(pickle.dumps(task)) for task in dict(array.dask).values()))
    assert sizes[1] < 1.5 * sizes[0]
