"""NeXus: groups name the axes of their arrays; a dataset with several names is shown once."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import LabeledWarning, UnknownNameError


def group_attrs(group: h5py.Group) -> None:
    group.attrs["signal"], group.attrs["axes"] = "counts", ["theta", "energy"]


def with_indices(group: h5py.Group) -> None:
    group_attrs(group)
    group.attrs["theta_indices"], group.attrs["energy_indices"] = [0], 1


def fewer_axes(group: h5py.Group) -> None:
    with_indices(group)
    group.attrs["axes"] = ["energy", "theta"]
    group["counts_of_three"] = np.zeros((6, 4, 2))
    group.attrs["signal"] = "counts_of_three"


def as_one_text(separator: str) -> Callable[[h5py.Group], None]:
    def say(group: h5py.Group) -> None:
        group["counts"].attrs["signal"] = 1
        group["counts"].attrs["axes"] = separator.join(("theta", "energy"))

    return say


def nexus(path: Path, say: Callable[[h5py.Group], None] = group_attrs) -> Path:
    with h5py.File(path, "w") as f:
        group = f.create_group("entry/data")
        group.attrs["NX_class"] = "NXdata"
        group["counts"] = np.arange(24).reshape(6, 4)
        group["theta"] = np.linspace(0, 1, 6)
        group["theta"].attrs["units"] = "deg"
        group["energy"] = np.array([8.0, 9.0, 12.0, 15.0])
        say(group)
    return path


@pytest.mark.parametrize(
    "say",
    [group_attrs, with_indices, as_one_text(":"), as_one_text(",")],
    ids=["names", "indices", "colons", "commas"],
)
def test_axes_of_a_plot_name_dims_and_give_coordinates(say, tmp_path):
    path = nexus(tmp_path / "x.nxs", say)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds = labeled.open_dataset(path)

    assert ds.sources == ("entry/data/counts",)
    with h5py.File(path) as f:
        stored = {name: thing[()] for name, thing in f["entry/data"].items()}
    oracle = xr.DataArray(
        stored["counts"],
        dims=("theta", "energy"),
        coords={name: stored[name] for name in ("theta", "energy")},
    )
    xr.testing.assert_equal(ds["entry/data/counts"].compute(), oracle)
    assert ds["entry/data/counts"]["theta"].attrs == {"units": "deg"}
    rows = [5, 0, 2]
    xr.testing.assert_equal(ds.subset(rows)["entry/data/counts"].compute(), oracle[rows])
    for batch in ds.batches(4, shuffle=True, seed=1):
        assert batch["entry/data/counts"].dims == ("theta", "energy")
        np.testing.assert_array_equal(batch["entry/data/counts"], oracle[batch.rows])


def test_fewer_names_than_axes_are_placed_by_their_indices(tmp_path):
    path = nexus(tmp_path / "x.nxs", fewer_axes)

    with pytest.warns(LabeledWarning, match=r"'entry/data/counts_of_three' \(axis 2\)"):
        ds = labeled.open_dataset(path)

    dims = ds["entry/data/counts_of_three"].dims
    assert dims == ("theta", "energy", "counts_of_three_axis_2")


def test_errors_and_auxiliary_signals_have_the_axes_of_the_signal(tmp_path):
    def say(group: h5py.Group) -> None:
        group_attrs(group)
        group.attrs["auxiliary_signals"] = ["more", "of_another_shape"]
        group["counts_errors"], group["more"] = np.ones((6, 4)), np.ones((6, 4))
        group["of_another_shape"] = np.ones((6, 2))
        group["encoder"], group.attrs["encoder_indices"] = np.arange(6), 0

    with pytest.warns(LabeledWarning, match="of_another_shape"):
        ds = labeled.open_dataset(nexus(tmp_path / "x.nxs", say), group="entry/data")

    named = [name for name in ds.sources if ds[name].dims == ("theta", "energy")]
    assert named == ["counts", "counts_errors", "more"]
    assert set(ds["counts"].coords) == {"theta", "energy", "encoder"}
    assert ds["encoder"].dims == ("theta",)


def test_edges_of_bins_name_an_axis_and_stay_a_source(tmp_path):
    def say(group: h5py.Group) -> None:
        group_attrs(group)
        del group["energy"]
        group["energy"] = np.arange(5.0)

    ds = labeled.open_dataset(nexus(tmp_path / "x.nxs", say), group="entry/data")

    assert ds["counts"].dims == ("theta", "energy")
    assert set(ds["counts"].coords) == {"theta"}
    assert ds.sources == ("counts", "energy")
    np.testing.assert_array_equal(ds["energy"], np.arange(5.0))


def contradicting(change: Callable[[h5py.Group], Any]) -> Callable[[h5py.Group], None]:
    def say(group: h5py.Group) -> None:
        with_indices(group)
        change(group)

    return say


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda g: g.attrs.update(theta_indices=1), "'theta' names axis 0, and its indices"),
        (lambda g: g.attrs.update(axes=["theta", "theta"]), "their names are"),
        (lambda g: g.attrs.update(axes=["a", "b", "c"]), "stand for 2 axes"),
        (lambda g: g.attrs.update(axes=["energy", "theta"]), "'energy' names axis 0"),
        (lambda g: g.attrs.update(axes=["odd", "energy"]) or g.update(odd=np.zeros(3)), "shape"),
    ],
)
def test_groups_that_contradict_themselves_name_nothing(change, why, tmp_path):
    path = nexus(tmp_path / "x.nxs", contradicting(change))

    with pytest.warns(LabeledWarning) as told:
        ds = labeled.open_dataset(path)

    assert any("'entry/data' tells of axes is left out" in str(w.message) for w in told)
    assert any(why in str(w.message) for w in told)
    assert ds["entry/data/counts"].dims == ("batch", "counts_axis_1")
    assert {"entry/data/energy", "entry/data/theta"} <= {*ds.sources}


def test_a_field_of_several_axes_names_none(tmp_path):
    def say(group: h5py.Group) -> None:
        group_attrs(group)
        group["place"] = np.zeros((6, 4))
        group.attrs["axes"], group.attrs["place_indices"] = ["place", "energy"], [0, 1]

    with pytest.warns(LabeledWarning, match=r"'entry/data/counts' \(axis 0\)"):
        ds = labeled.open_dataset(nexus(tmp_path / "x.nxs", say))

    assert ds["entry/data/counts"].dims == ("batch", "energy")
    assert "entry/data/place" in ds.sources


def test_one_name_for_different_fields_is_told_apart_by_path(tmp_path):
    path = nexus(tmp_path / "x.nxs")
    with h5py.File(path, "a") as f:
        f.copy("entry", "other")
        f["other/data/energy"][...] += 100
        f["other/data/theta"] = del_and_link(f)

    ds = labeled.open_dataset(path)

    for entry in ("entry", "other"):
        array = ds[f"{entry}/data/counts"]
        assert array.dims == ("theta", f"{entry}/data/energy")  # both mean the same `theta`
        assert set(array.coords) == set(array.dims)
        with h5py.File(path) as f:
            np.testing.assert_array_equal(array[f"{entry}/data/energy"], f[entry]["data/energy"])


def del_and_link(f: h5py.File) -> h5py.Dataset:
    del f["other/data/theta"]
    return f["entry/data/theta"]


@pytest.mark.parametrize("soft", [True, False])
def test_a_dataset_with_several_names_is_shown_once(tmp_path, soft):
    path = nexus(tmp_path / "x.nxs")
    with h5py.File(path, "a") as f:
        f["entry/instrument/detector/data"] = f["entry/data/counts"]
        del f["entry/data/counts"]
        there = "/entry/instrument/detector/data"
        f["entry/data/counts"] = h5py.SoftLink(there) if soft else f[there]

    ds = labeled.open_dataset(path)

    assert ds.sources == ("entry/data/counts",)
    assert ds["entry/data/counts"].dims == ("theta", "energy")
    other = "entry/instrument/detector/data"
    with pytest.raises(UnknownNameError, match="it is another name of 'entry/data/counts'"):
        ds[other]
    both = labeled.open_dataset(path, sources=[other, "entry/data/counts"])
    assert both.sources == (other, "entry/data/counts")
    np.testing.assert_array_equal(both[other], both["entry/data/counts"])
    renamed = labeled.open_dataset(path, dims={other: ("scan", "channel")})
    assert renamed[other].dims == ("scan", "channel")


def test_what_lies_along_an_axis_is_a_source_where_it_is_asked_for(tmp_path):
    path = nexus(tmp_path / "x.nxs")
    names = ["entry/data/counts", "entry/data/theta"]

    ds = labeled.open_dataset(path, sources=names)

    assert ds.sources == tuple(names)
    assert [ds[name].dims for name in names] == [("theta", "energy"), ("theta",)]
    assert set(ds["entry/data/counts"].coords) == {"energy"}
    for batch in ds.batches(4, shuffle=True, seed=1):
        np.testing.assert_array_equal(batch["entry/data/theta"], np.linspace(0, 1, 6)[batch.rows])


def test_names_of_the_user_and_of_the_file_go_before_those_of_the_group(tmp_path):
    path = nexus(tmp_path / "x.nxs")
    with h5py.File(path, "a") as f:
        f["entry/data/counts"].dims[1].label = "channel"

    assert labeled.open_dataset(path)["entry/data/counts"].dims == ("theta", "channel")
    given = labeled.open_dataset(path, dims={"entry/data/counts": ("batch", None)})
    assert given["entry/data/counts"].dims == ("batch", "channel")


@pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")
def test_axes_in_other_files_name_dims_only(tmp_path):
    nexus(tmp_path / "data.h5")
    with h5py.File(tmp_path / "master.h5", "w") as f:
        group = f.create_group("entry/data")
        group_attrs(group)
        for name in ("counts", "theta", "energy"):
            group[name] = h5py.ExternalLink("data.h5", f"/entry/data/{name}")

    ds = labeled.open_dataset(tmp_path / "master.h5", allow_external=True)

    assert ds["entry/data/counts"].dims == ("theta", "energy")
    np.testing.assert_array_equal(ds["entry/data/energy"], [8.0, 9.0, 12.0, 15.0])


@pytest.mark.filterwarnings("ignore:.*does not name every axis:labeled.LabeledWarning")
def test_axis_tags_of_ilastik_name_dims(tmp_path):
    tags = {"axes": [{"key": key, "typeFlags": 2, "resolution": 0} for key in "zyxc"]}
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["exported_data"], f["odd"] = np.zeros((3, 4, 5, 2)), np.zeros((3, 4))
        f["exported_data"].attrs["axistags"] = json.dumps(tags)
        f["below/odd"] = f["odd"][()]
        f["below/odd"].attrs["axistags"] = "no JSON"

    with pytest.warns(LabeledWarning, match="'below' tells of axes is left out"):
        ds = labeled.open_dataset(tmp_path / "x.h5")

    assert ds["exported_data"].dims == ("z", "y", "x", "c")
    assert ds["below/odd"].dims == ("batch", "odd_axis_1")


def test_repacked_files_keep_names_and_coordinates(tmp_path):
    path = nexus(tmp_path / "x.nxs")
    with h5py.File(path, "a") as f:
        f["entry/instrument/data"] = f["entry/data/counts"]
    old = labeled.open_dataset(path)["entry/data/counts"].compute()

    labeled.repack(path, tmp_path / "new.h5")

    new = labeled.open_dataset(tmp_path / "new.h5")["entry/data/counts"].compute()
    xr.testing.assert_equal(new, old)
    with h5py.File(tmp_path / "new.h5") as f:
        assert f["entry/instrument/data"] == f["entry/data/counts"]
