"""``labeled append``: rows of another file are added as `labeled.append` adds them, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from test_cli import run

import labeled
from labeled.errors import ArrayError, DimsError

SPLITS = {"train": (0, 3), "test": (3, 5)}


def made(path: Path, first: int, **options: Any) -> Path:
    rows = np.arange(first, first + 10, dtype="i8").reshape(5, 2)
    dims = {"x": ("batch", "feature")}
    labeled.write(path, {"x": rows}, SPLITS, dims=dims, **options)
    return path


def test_rows_are_added_to_a_split(tmp_path: Path) -> None:
    path = made(tmp_path / "a.hdf5", 0, chunks=2)
    more = made(tmp_path / "b.hdf5", 10)
    done = run("append", path, more, "--only", "test", "--split", "train", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert told["sources"] == {"x": 7}
    assert told["splits"] == {"train": {"x": 5}, "test": {"x": 2}}
    with h5py.File(path) as f:
        np.testing.assert_array_equal(f["x"][5:], [[16, 17], [18, 19]])
    train = labeled.open_dataset(path).split("train")
    np.testing.assert_array_equal(train["x"].values[:, 0], [0, 2, 4, 16, 18])


def test_what_does_not_fit_is_refused_in_words_of_the_command_line(tmp_path: Path) -> None:
    path = made(tmp_path / "a.hdf5", 0)
    before = path.read_bytes()
    more = made(tmp_path / "b.hdf5", 10)
    np.save(tmp_path / "x.npy", np.zeros((2, 2)))
    labeled.write(tmp_path / "y.hdf5", {"y": np.zeros(3)})
    for words, said in (
        ([path, tmp_path / "x.npy"], "convert it to HDF5 first: labeled convert"),
        ([path, tmp_path / "y.hdf5"], "what is appended has sources ['y']"),
        ([path, more, "--only", "tset"], "did you mean 'test'"),
    ):
        done = run("append", *words)
        assert done.exit_code == 1
        assert said in done.stderr
    assert path.read_bytes() == before


def test_packed_rows_of_netcdf_are_added_as_they_are_stored(tmp_path: Path) -> None:
    path, packed = tmp_path / "x.nc", {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}
    wanted = np.arange(12.0).reshape(6, 2)
    for name, encoding in (("wait", {"units": "hours"}), ("x", packed)):
        values = wanted.astype("m8[h]") if name == "wait" else wanted
        given = xr.Dataset({name: (("time", "place"), values)})
        given.to_netcdf(path, engine="h5netcdf", encoding={name: encoding}, unlimited_dims=["time"])
        refused = run("append", path, path).stderr
        assert "if opened with --option decode_cf=False" in refused
        assert run("append", path, path, "--option", "decode_cf=False").exit_code == 0
        with xr.open_dataset(path, engine="h5netcdf") as grown:
            np.testing.assert_array_equal(grown[name], np.concatenate([values, values]))


@pytest.mark.parametrize("ragged", [False, True])
def test_rows_whose_axes_lie_in_another_order_are_refused(tmp_path: Path, ragged: bool) -> None:
    """Pictures as wide as high were added lying on their side."""
    square = np.arange(4).reshape(2, 2)
    rows: Any = [square, np.zeros((3, 3), int)] if ragged else square[None]
    for name, dims in {
        "old": ("n", "y", "x"),
        "new": ("n", "x", "y"),
        "other": ("n", "a", "b"),
    }.items():
        labeled.write(tmp_path / name, {"im": rows}, dims={"im": dims})
    words = r"dims \('n', 'x', 'y'\), but .* \('n', 'y', 'x'\); transpose"
    with pytest.raises(DimsError, match=words):
        labeled.append(tmp_path / "old", labeled.open_dataset(tmp_path / "new"))
    for more in (labeled.open_dataset(tmp_path / "other"), {"im": rows}):  # nothing contradicts
        labeled.append(tmp_path / "old", more)
    assert labeled.open_dataset(tmp_path / "old").n_rows == 3 * len(rows)


def test_columns_called_otherwise_and_other_units_are_refused(tmp_path: Path) -> None:
    """Columns changed places, and kilometres became metres."""

    def rows(columns: str, units: str) -> dict[str, xr.DataArray]:
        coords = {"column": list(columns)}
        values = np.arange(6.0).reshape(3, 2)
        return {"x": xr.DataArray(values, coords, ("n", "column"), attrs={"units": units})}

    path = labeled.write(tmp_path / "x", rows("ab", "m"))
    with pytest.raises(ArrayError, match=r"'b' at position 0 of 'column', .* but .* 'a'"):
        labeled.append(path, rows("ba", "m"))
    with pytest.raises(ArrayError, match=r"rows in 'km', but .* in 'm'; convert"):
        labeled.append(path, rows("ab", "km"))
    turned = {"x": rows("ba", "m")["x"].sel(column=["a", "b"])}  # as the message says
    for more in (turned, rows("ab", "m"), {"x": np.zeros((1, 2))}):
        labeled.append(path, more)
    labeled.append(path, labeled.open_dataset(path))
    assert labeled.open_dataset(path)["x"].values[3].tolist() == [1, 0]


def test_times_in_another_unit_are_appended_as_the_message_says(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f["t"] = np.arange(3)
        f["t"].attrs["units"] = "hours since 2000-01-01"
    times = labeled.open_dataset(path)["t"].values
    with pytest.raises(ArrayError, match=r"in 'nanoseconds .* in 'hours .*decode_cf=False"):
        labeled.append(path, {"t": times})
    labeled.append(path, labeled.open_dataset(path, decode_cf=False))
    labeled.append(path, {"t": np.arange(3)})
    np.testing.assert_array_equal(labeled.open_dataset(path)["t"], np.tile(times, 3))


DAYS = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "M8[ns]")


@pytest.mark.parametrize(
    ("old", "alike", "other"),
    [
        ([0.1, 0.5, 0.9], np.array([0.1, 0.5, 0.9], "f4"), [0.1, 0.5, 0.9001]),
        ([10**9, 10**9 + 1, 10**9 + 2], [1e9, 1e9 + 1, 1e9 + 2], [10**9, 10**9 + 1, 10**9 + 3]),
        (DAYS, DAYS, DAYS + np.timedelta64(1, "s")),
        ([0.0, np.nan, 1.0], [0.0, np.nan, 1.0], [0.0, 0.5, 1.0]),
        ([1, 2, 3], [1, 2, 3], DAYS),
    ],
)
def test_positions_called_otherwise_are_refused(
    tmp_path: Path, old: Any, alike: Any, other: Any
) -> None:
    def rows(time: Any) -> dict[str, xr.DataArray]:
        return {"x": xr.DataArray(np.zeros((2, 3)), {"time": time}, ("n", "time"))}

    path = labeled.write(tmp_path / "x", rows(old))
    with pytest.raises(ArrayError, match=r"at position \d of 'time', .*drop_vars"):
        labeled.append(path, rows(other))
    with pytest.raises(ArrayError, match=r"batch 1: .* at position \d of 'time'"):
        labeled.write(tmp_path / "batches", [rows(old), rows(other)])
    labeled.append(path, rows(alike))
    labeled.append(path, {"x": rows(other)["x"].drop_vars("time")})
    found = labeled.open_dataset(path)["x"]
    assert found.shape == (6, 3)
    np.testing.assert_array_equal(found["time"], old)


def test_numbers_that_mean_other_classes_are_refused(tmp_path: Path) -> None:
    """Cats became dogs: the file's names stood for the numbers of the new rows."""
    paths = {}
    for name, classes in {"old": ["cat", "dog"], "new": ["dog", "cat"]}.items():
        paths[name] = labeled.write(
            tmp_path / name, {"y": np.array([0, 1])}, source_attrs={"y": {"class_names": classes}}
        )
    with pytest.raises(ArrayError, match=r"'dog' for class 0, but .* 'cat'"):
        labeled.append(paths["old"], labeled.open_dataset(paths["new"]))
    assert labeled.open_dataset(paths["old"]).n_rows == 2
    labeled.append(paths["old"], labeled.open_dataset(paths["old"]))
    labeled.append(paths["old"], {"y": np.array([1])})
    assert labeled.open_dataset(paths["old"])["y"].values.tolist() == [0, 1, 0, 1, 1]
