"""What a dataset says of itself, of its files and of what was asked for in vain."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from labelled_file import labelled_file

import labeled
from labeled.errors import (
    DimsError,
    FileFormatError,
    LabeledError,
    LabeledWarning,
    LoaderError,
    SelectionTypeError,
    SpaceTypeError,
    SplitError,
    UnknownNameError,
)
from make_files import fuel_file


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return labelled_file(tmp_path_factory.mktemp("data"))


def test_what_comes_along_with_sources_is_shown_and_taken_by_name(tmp_path):
    """A scientist looks for the time of a climate file, and for its mask of land."""
    path = tmp_path / "climate.nc"
    xr.Dataset(
        {"t": (("time", "lat"), np.arange(40.0).reshape(10, 4)), "land": ("lat", [0, 1, 1, 0])},
        {"time": np.arange("2024-01-01", "2024-01-11", dtype="M8[D]").astype("M8[ns]"),
         "lat": [10.0, 20.0, 30.0, 40.0]},
    ).to_netcdf(path, engine="h5netcdf", unlimited_dims="time")  # fmt: skip
    dataset = labeled.open_dataset(path)
    some, loaded = dataset.subset([7, 2]).isel(lat=slice(1, 3)), xr.load_dataset(path)
    wanted = loaded.isel(time=[7, 2], lat=slice(1, 3))

    for shown in (repr(dataset), dataset._repr_html_()):
        assert all(name in shown for name in ("coordinates and variables", "land", "datetime64"))
    assert dataset.sources == ("t",)
    for name in ("time", "lat", "land"):
        assert (some[name].name, some[name].dims) == (name, wanted[name].dims)
        np.testing.assert_array_equal(some[name].values, wanted[name].values)
    assert some["land"].lat.values.tolist() == [20.0, 30.0]
    with pytest.raises(
        UnknownNameError, match=r"'land' in .* is not a source.*: ds\['land'\] gives it"
    ):
        dataset.select("land")


def test_sources_of_different_length_open_but_do_not_mix(tmp_path):
    name = str(tmp_path / "plain.h5")
    with h5py.File(name, "w") as f:
        f["a"], f["b"] = np.arange(5), np.arange(8)
    dataset = labeled.open_dataset(name)
    assert len(dataset.select("b")) == 8
    with pytest.raises(SplitError, match=r"different numbers of rows \(5 in 'a'; 8 in 'b'\)"):
        len(dataset)
    assert list(dataset) == ["a", "b"]
    assert {name: array.size for name, array in dict(dataset).items()} == {"a": 5, "b": 8}
    with pytest.raises(LoaderError, match="different numbers of rows"):
        dataset.batches(2)


def test_examples_along_the_last_axis_are_served_through_xarray(tmp_path):
    values = np.arange(2 * 3 * 20).reshape(2, 3, 20)
    with h5py.File(tmp_path / "turned.h5", "w") as f:
        f["x"], f["y"] = values, np.arange(20)
    with pytest.raises(LoaderError, match=r"along the last axis of 'x', name it in dims="):
        labeled.open_dataset(tmp_path / "turned.h5", dims={"x": ("p", "q", "r")}).batches(8)
    dims = {"x": ("height", "width", "batch"), "y": ("batch",)}
    ds = labeled.open_dataset(tmp_path / "turned.h5", dims=dims)
    with pytest.raises(LoaderError, match=r"axis 2 of .*'x' .* is called 'batch'"):
        ds.batches(8)
    for batch in labeled.batches(ds.to_xarray(), 8, dim="batch", shuffle=True, seed=0):
        np.testing.assert_array_equal(
            batch["x"].transpose("height", "width", "batch"), values[..., batch.rows]
        )
        np.testing.assert_array_equal(batch["y"], batch.rows)


def test_sources_that_agree_are_proposed_and_splits_only_where_there_are_any(tmp_path):
    """Of X_test, y_test, X_train and y_train it proposed the first pair, and to split()."""
    arrays = {f"{part}_{n}": np.zeros(n) for n in (4, 9) for part in "xy"}
    with h5py.File(tmp_path / "plain.h5", "w") as f:
        f.update(arrays)
    name = fuel_file(
        tmp_path / "fuel.hdf5",
        {"a": np.zeros(4), "b": np.zeros(9)},
        {"train": (0, 4)},
        {"a": ("batch",), "b": ("batch",)},
    )
    with pytest.raises(SplitError, match=r"; select sources of .*: ds\.select\('x_9', 'y_9'\)"):
        len(labeled.open_dataset(tmp_path / "plain.h5"))
    with pytest.raises(
        SplitError, match=r"; select a split, or sources of equal length: ds\.select"
    ):
        len(labeled.open_dataset(name))


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (lambda d: d.select("images", "images"), UnknownNameError, "twice"),
        (lambda d: d.split("train").split("test"), SplitError, "holds split 'train'"),
        (lambda d: d.subset(3), SelectionTypeError, r"\[r\]"),
        (lambda d: d.isel(batch=3), SelectionTypeError, "example dim"),
        (lambda d: d.isel(height=1.5), SelectionTypeError, "'height'"),
        (lambda d: d[3.5], UnknownNameError, r"3\.5 is not the name of a source"),
        (lambda d: d.load().split("train"), SplitError, r"split\(\) first, then load\(\)"),
        (lambda d: d.with_spaces(images=5), SpaceTypeError, "images=.*not 5"),
        (labeled.concat, LoaderError, "concat takes a list"),
        (lambda d: labeled.concat(d.files.paths[0]), LoaderError, r"d\.hdf5' alone"),
    ],
)
def test_mistakes_are_explained(path, act, kind, words):
    with pytest.raises(kind, match=words) as caught:
        act(labeled.open_dataset(path))
    assert isinstance(caught.value, LabeledError)


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (lambda p: labeled.open_dataset(None), FileFormatError, "takes a path.*not NoneType"),
        (lambda p: labeled.open_dataset(p.encode()), FileFormatError, "not bytes"),
        (
            lambda p: labeled.open_dataset("no://b.h5"),
            FileFormatError,
            "cannot open 'no://b.h5': .*no",
        ),
        (
            lambda p: labeled.open_dataset("memory://b.csv", format="csv"),
            FileFormatError,
            "is an address, and .* from local files only",
        ),
        (lambda p: labeled.open_dataset("~/none.h5"), FileFormatError, "'[^~]*none.h5' does not"),
        (lambda p: labeled.open_dataset(p, dims={"images": "b"}), DimsError, "one name per axis"),
        (lambda p: labeled.open_dataset(p, group="images"), UnknownNameError, "is a dataset"),
        (lambda p: labeled.open_dataset(p, sources=[]), UnknownNameError, "leave it out"),
    ],
)
def test_mistakes_in_opening_are_explained(path, act, kind, words):
    with pytest.raises(kind, match=words):
        act(path)


def test_warnings_point_at_the_line_that_opened_the_file(tmp_path):
    path = str(tmp_path / "plain.h5")
    with h5py.File(path, "w") as f:
        f["x"] = np.zeros((5, 3))
    with pytest.warns(LabeledWarning) as caught:
        labeled.open_dataset(path)
    assert caught[0].filename == __file__


def test_a_group_is_named_as_one(tmp_path):
    with h5py.File(tmp_path / "x.hdf5", "w") as f:
        f["raw/a"] = np.arange(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", labeled.LabeledWarning)
        dataset = labeled.open_dataset(tmp_path / "x.hdf5")
    with pytest.raises(
        UnknownNameError, match=r"is a group, not a source; take 'raw/a', or .*'raw'"
    ):
        dataset["raw"]


def test_loading_shows_how_far_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = labeled.write(
        tmp_path / "x.hdf5",
        {"x": np.arange(20_000).reshape(-1, 2), "words": ["a", "b"] * 5000},
        chunks={"x": 500},
        compression="gzip",
    )
    ds = labeled.open_dataset(path)

    loaded = ds.load(progress=True)

    assert re.search(r"load: 100%.* (\S+)/\1 ", capsys.readouterr().err)
    np.testing.assert_array_equal(loaded["x"], ds["x"])
    ds.load()
    assert capsys.readouterr().err == ""  # no terminal


def test_a_group_called_like_a_split_is_named(tmp_path):
    with h5py.File(tmp_path / "groups.h5", "w") as f:
        f["train/x"], f["test/x"] = np.arange(4), np.arange(3)
    ds = labeled.open_dataset(tmp_path / "groups.h5")
    with pytest.raises(UnknownNameError, match="open it with group='train'"):
        ds.split("train")
