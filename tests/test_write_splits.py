"""Splits added to files that are there, read back by h5py and by the library."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.compat.fuel.datasets import H5PYDataset
from labeled.errors import SplitError, SplitTypeError, UnknownNameError, WriteError

X = np.arange(40.0).reshape(10, 4)
Y = np.arange(10, dtype=">i4")
RAGGED = [np.full(n % 3 + 1, n, "f4") for n in range(10)]


@pytest.fixture(params=["netcdf", "plain", "chunked", "ragged", "fuel ragged"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    sources: dict[str, Any] = {"x": X, "y": Y}
    if "ragged" in request.param:
        sources["r"] = RAGGED
    options: dict[str, Any] = {
        "plain": {"netcdf": False},
        "chunked": {"chunks": 3, "compression": "gzip"},
        "fuel ragged": {"ragged": "fuel", "splits": {"old": (0, 5)}},
    }.get(request.param, {})
    return labeled.write(tmp_path / "a.h5", sources, **options)


def test_added_splits_select_rows_and_leave_all_else(path: str) -> None:
    before = labeled.open_dataset(path)
    dims, dtypes, old = before.dims, before.dtypes, set(before.splits) - {"all"}
    with pytest.warns(labeled.LabeledWarning, match="splits overlap"):
        labeled.write_splits(path, {"train": (0, 7), "test": [9, 8], "x": {"x": slice(2, 4)}})
    ds = labeled.open_dataset(path)
    assert set(ds.splits) == {"train", "test", "x"} | old
    np.testing.assert_array_equal(ds.split("test")["x"].values, X[[9, 8]])
    np.testing.assert_array_equal(ds.split("train")["y"].values, Y[:7])
    assert ds.split("x").sources == ("x",)
    assert (ds.dims, ds.dtypes) == (dims, dtypes)
    if "r" in ds.sources:
        assert [r.values.tolist() for r in ds.split("test")["r"]] == [
            RAGGED[i].tolist() for i in (9, 8)
        ]
    assert labeled.verify(path).sound
    assert ds.split("test").statistics("y")["mean"] == 8.5
    with h5py.File(path) as f:
        np.testing.assert_array_equal(f["x"][:], X)


def test_splits_that_are_there_are_replaced_only_if_asked(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "a.h5", {"x": X}, {"train": (0, 5), "test": (5, 10)})
    with pytest.raises(SplitError, match=r"has splits \['test'\] already.*overwrite=True"):
        labeled.write_splits(path, {"test": (8, 10)})
    labeled.write_splits(path, {"test": (8, 10)}, overwrite=True)
    ds = labeled.open_dataset(path)
    assert {name: by["x"] for name, by in ds.splits.items()} == {"train": 5, "test": 2}
    assert ds.split("test").statistics("x")["mean"] == X[8:].mean()  # not those of the old split


@pytest.mark.parametrize(
    ("splits", "error", "words"),
    [
        ({"a": (0, 11)}, SplitError, "rows 0 to 11, but the source has 10"),
        ({"a": {"x": (0, 3), "y": (0, 4)}}, SplitError, "different numbers of rows"),
        ({"a": {"z": (0, 3)}}, UnknownNameError, "source 'z'"),
        ({}, SplitError, "names no split"),
        ({"a": (True, False)}, SplitTypeError, r"give \(start, stop\), or other rows as a list"),
        ({"a": np.array([2**63 + 1], "u8")}, SplitTypeError, "give row numbers of at most 63 bits"),
    ],
)
def test_what_does_not_fit_leaves_the_file_alone(
    tmp_path: Path, splits: Any, error: Any, words: str
) -> None:
    path = Path(labeled.write(tmp_path / "a.h5", {"x": X, "y": Y}))
    before = path.read_bytes()
    with pytest.raises(error, match=words):
        labeled.write_splits(path, splits)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.h5"]


def test_files_that_would_be_read_otherwise_are_refused(tmp_path: Path) -> None:
    """Beside a split table, numbers of other programs are not unpacked."""
    path = tmp_path / "a.nc"
    packed = {"x": (("batch", "i"), X.astype("i2"), {"scale_factor": 0.5})}
    xr.Dataset(packed).to_netcdf(path, engine="h5netcdf")
    before = path.read_bytes()
    with pytest.raises(WriteError, match=r"'x' of .* otherwise beside splits.*labeled.convert"):
        labeled.write_splits(path, {"a": (0, 5)})
    assert path.read_bytes() == before
    np.savetxt(tmp_path / "a.csv", X)
    with pytest.raises(labeled.LabeledError, match="HDF5"):
        labeled.write_splits(tmp_path / "a.csv", {"a": (0, 5)})


def test_variables_that_a_table_would_hide_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    given = xr.Dataset({"x": (("batch", "i"), X.astype("i2")), "crs": 7})
    given.to_netcdf(path, engine="h5netcdf")
    before = path.read_bytes()
    with pytest.raises(WriteError, match=r"variables \['crs'\] .*; make a new file with labeled"):
        labeled.write_splits(path, {"a": (0, 5)})
    assert path.read_bytes() == before


def test_lists_of_rows_that_serve_others_stay(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "a.h5", {"x": X}, {"own": [3, 1], "noted": [5, 4]})
    with h5py.File(path, "r+") as file:
        file["noted_indices"].attrs["drawn by"] = "hand"
        file["rows"] = [2, 0]
        pairs = {split: (0, 0, file[f"{split}_indices"].ref) for split in ("own", "noted")}
        pairs["named"] = 0, 0, file["rows"].ref
        splits = {split: {"x": pair} for split, pair in pairs.items()}
        file.attrs["split"] = H5PYDataset.create_split_array(splits)
    labeled.write_splits(path, {"own": [8]}, overwrite=True)
    with h5py.File(path) as file:
        assert file["rows"][:].tolist() == [2, 0]
        assert file["noted_indices"].attrs["drawn by"] == "hand"
        assert file["own_indices"][:].tolist() == [8]
    dataset = labeled.open_dataset(path)
    for split, rows in {"own": [8], "noted": [5, 4], "named": [2, 0]}.items():
        np.testing.assert_array_equal(dataset.split(split)["x"].values, X[rows])


def test_sources_of_a_dataset_written_again_share_their_lists(tmp_path: Path) -> None:
    sources, splits = {name: np.arange(9) for name in "xyz"}, {"a": [3, 1, 7], "none": []}
    first = labeled.write(tmp_path / "first.h5", sources, splits)
    again = labeled.write(tmp_path / "again.h5", labeled.open_dataset(first))
    for path in (again, labeled.convert(first, tmp_path / "converted.h5")):
        with h5py.File(path) as file:
            assert [name for name in file if "indices" in name] == ["a_indices"]
        assert labeled.open_dataset(path).split("a")["z"].values.tolist() == [3, 1, 7]


def _beside_what_cannot_be_opened(file: h5py.File) -> None:
    file["other"] = np.zeros(10, [("id", "i4"), ("when", "i8")])
    file["list"] = [5, 1]
    pairs = {"x": (0, 0, file["list"].ref), "other": (0, 0, file["list"].ref)}
    file.attrs["split"] = H5PYDataset.create_split_array({"old": pairs})


def _sparse(file: h5py.File) -> None:
    group = file.create_group("m")
    group.attrs.update({"encoding-type": "csr_matrix", "shape": [10, 4]})
    group["data"], group["indices"], group["indptr"] = np.ones(10), np.arange(10) % 4, range(11)


@pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")  # of axes without names
@pytest.mark.parametrize(
    ("add", "words"),
    [
        (_beside_what_cannot_be_opened, r"name \['other'\], which cannot be opened"),
        (_sparse, "'m' of .* is a sparse matrix"),
        (lambda f: f.create_dataset("t", data=np.zeros(10, "i4,i8")), "'t/f0' .* is a column"),
    ],
)
def test_what_a_new_table_would_take_from_a_file_stays(
    tmp_path: Path, add: Callable[[h5py.File], Any], words: str
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = X
        add(file)
    before = path.read_bytes()
    with pytest.raises(WriteError, match=rf"{words}.*labeled.convert\(\.\.\., split=\)") as told:
        labeled.write_splits(path, {"a": (0, 5)})
    assert str(path) in str(told.value)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.h5"]
    new = labeled.convert(path, tmp_path / "b.h5", split={"a": "0:5"})  # as the message says
    np.testing.assert_array_equal(labeled.open_dataset(new).split("a")["x"].values, X[:5])


def test_an_attribute_called_like_the_table_is_not_overwritten(path: str) -> None:
    with h5py.File(path, "r+") as file:
        file.attrs.pop("split", None)
        file.attrs["split"] = "training portion"
    with pytest.raises(WriteError, match=r"not a split table.*; rename it in the file"):
        labeled.write_splits(path, {"a": (0, 5)})
    with h5py.File(path, "r+") as file:
        assert file.attrs["split"] == "training portion"
        file.attrs["portion"] = file.attrs.pop("split")
    labeled.write_splits(path, {"a": (0, 5)})
    assert labeled.open_dataset(path).splits["a"]["x"] == 5


def test_an_error_on_the_way_leaves_the_file_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(labeled.write(tmp_path / "a.h5", {"x": X}))
    before = path.read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(WriteError):
        labeled.write_splits(path, {"a": (0, 5)})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.h5"]
