"""What a file holds besides its sources: carried over when it is written anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr

import labeled
from labeled.errors import NotYetError

N = 40
KEPT = ("names", "pairs", "g/inner/deep", "empty", "nothing", "single", "packed", "spare")


@pytest.fixture(params=["earliest", "latest"])
def fuel_file(tmp_path: Path, request: Any) -> Path:
    """A file with splits, and with all that no split names."""
    path = tmp_path / "old.h5"
    dims = {"x": ("batch", "feature"), "y": ("batch",)}
    splits = {"train": (0, 30), "test": [39, 35, 31]}
    sources = {"x": np.arange(N * 3.0).reshape(N, 3), "y": np.arange(N)}
    labeled.write(path, sources, splits, dims=dims)
    with h5py.File(path, "a", libver=request.param) as f:
        texts = np.array(["cat", "dög"], object)
        f.create_dataset("names", data=texts, chunks=(2,), compression="gzip")
        f["names"].attrs["unit"] = "animal"
        f["pairs"] = np.array([(1, 2.5)] * 5, [("a", "i4"), ("b", "f4")])
        f.create_dataset("g/inner/deep", data=np.arange(100), chunks=(7,), compression="gzip")
        f["g"].attrs["told"] = "of the group"
        f.create_group("g/hollow")
        f["empty"] = h5py.Empty("f4")
        f["nothing"] = np.zeros((0, 3))
        f["single"] = 7.5
        packed = f.create_dataset("packed", (4,), h5py.vlen_dtype("i2"))
        packed[:] = [np.arange(i, dtype="i2") for i in range(4)]
        f["spare"] = np.arange(6)
        f["twin"] = f["spare"]
        f["x_too"] = f["x"]
        f["soft"] = h5py.SoftLink("/g/inner")
        f["dangling"] = h5py.SoftLink("/not/there")
        f["boxes"] = np.arange(N * 4).reshape(N, 4)
        f["boxes"].make_scale("boxes")
        f["x"].dims[0].attach_scale(f["boxes"])
        f["boxes"].dims[1].label = "corner"
        table = f.attrs["split"]
        table = table.astype(
            [(n, "S9" if n == "comment" else table.dtype[n]) for n in table.dtype.names]
        )
        table["comment"][0] = b"by hand"
        f.attrs["split"] = table
    return path


def check_others(path: Path, old: Path) -> None:
    with h5py.File(path) as new, h5py.File(old) as before:
        for name in KEPT:
            assert new[name].dtype == before[name].dtype
            assert new[name].chunks == before[name].chunks
            assert new[name].compression == before[name].compression
            assert dict(new[name].attrs) == dict(before[name].attrs)
            if before[name].shape is None:
                assert new[name].shape is None
            else:
                for a, b in zip(np.ravel(new[name][()]), np.ravel(before[name][()]), strict=True):
                    np.testing.assert_array_equal(a, b)
        assert new["g"].attrs["told"] == "of the group"
        assert list(new["g/hollow"]) == []
        assert new["twin"] == new["spare"]
        assert new["x_too"] == new["x"]
        assert new.get("soft", getlink=True).path == "/g/inner"
        assert new.get("dangling", getlink=True).path == "/not/there"
        assert new["x"].dims[0]["boxes"] == new["boxes"]
        assert new["boxes"].dims[1].label == "corner"
        assert b"by hand" in new.attrs["split"]["comment"].tolist()


@pytest.mark.filterwarnings("ignore:.*left out. it has shape")
def test_repack_carries_what_no_split_names(fuel_file: Path, tmp_path: Path) -> None:
    new = Path(labeled.repack(fuel_file, tmp_path / "new.h5", chunks=8))
    check_others(new, fuel_file)
    with h5py.File(new) as f:
        assert f["boxes"][:].tolist() == np.arange(N * 4).reshape(N, 4).tolist()
    labeled.repack(new, new, chunks=4, overwrite=True)  # and once more, onto itself
    check_others(new, fuel_file)
    assert labeled.open_dataset(new).sources == ("x", "y")


@pytest.mark.filterwarnings("ignore:.*left out. it has shape")
@pytest.mark.parametrize("memory", ["128 MiB", "2 kiB"])
def test_scales_of_examples_change_places_with_them(
    fuel_file: Path, tmp_path: Path, memory: str
) -> None:
    with h5py.File(fuel_file, "a") as f:
        f["ids"] = np.arange(N)
    with pytest.warns(labeled.LabeledWarning, match=r"\['ids'\] .* keep their order"):
        new = labeled.repack(fuel_file, tmp_path / "new.h5", order="shuffle", memory=memory)
    check_others(Path(new), fuel_file)
    with h5py.File(new) as f:
        assert f["y"][:].tolist() != list(range(N))
        assert f["boxes"][:, 0].tolist() == (f["y"][:] * 4).tolist()
        assert f["ids"][:].tolist() == list(range(N))


@pytest.mark.filterwarnings("ignore:.*left out. it has shape")
def test_append_carries_them_too(fuel_file: Path, tmp_path: Path) -> None:
    before = fuel_file.read_bytes()
    labeled.append(fuel_file, {"x": np.zeros((2, 3)), "y": np.zeros(2, int)}, split="train")
    (tmp_path / "before.h5").write_bytes(before)
    check_others(fuel_file, tmp_path / "before.h5")
    assert labeled.open_dataset(fuel_file).shapes["x"] == (N + 2, 3)


@pytest.mark.parametrize("order", ["keep", "shuffle"])
def test_netcdf_files_keep_variables_and_coordinates_of_several_axes(
    tmp_path: Path, order: str
) -> None:
    rng = np.random.default_rng(0)
    old = xr.Dataset(
        {
            "temp": (("time", "y", "x"), rng.normal(size=(50, 4, 5)), {"units": "K"}),
            "mask": (("y", "x"), rng.integers(0, 2, (4, 5))),
            "weights": (("y",), np.arange(4.0)),
            "cells": (("cell",), np.arange(7), {"told": "apart"}),
            "const": ((), 3.5),
        },
        coords={
            "lat": (("y", "x"), rng.normal(size=(4, 5)), {"units": "degrees_north"}),
            "when": (("time", "x"), rng.normal(size=(50, 5))),
            "time": ("time", np.arange(50)),
            "y": ("y", np.arange(4) * 10.0),
            "cell": ("cell", np.arange(7) / 2),
        },
        attrs={"title": "weather"},
    )
    path = tmp_path / "old.nc"
    old.to_netcdf(path, engine="h5netcdf", unlimited_dims=["time"])
    new = labeled.repack(path, tmp_path / "new.nc", order=order, chunks={"temp": 16})
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        before = opened.load()
    with xr.open_dataset(new, engine="h5netcdf") as opened:
        found = opened.load()
    found.attrs.pop("labeled_provenance", None)
    del found["temp"].attrs["DIMENSION_LABELS"]  # h5netcdf shows them; the old file had none
    assert (found.time.values != before.time.values).any() == (order == "shuffle")
    xr.testing.assert_identical(found, before.isel(time=found.time.values))
    ds = labeled.open_dataset(new)
    assert set(ds.to_xarray().coords) == set(before.coords)
    assert ds.shapes == labeled.open_dataset(path).shapes == {"temp": (50, 4, 5)}


def test_unlimited_dims_and_coordinates_of_a_netcdf_file_stay_some(tmp_path: Path) -> None:
    data = xr.Dataset({"b": (("y", "z"), np.ones((2, 4)))}, {"t": [1, 2], "y": [0, 1]})
    data = data.assign_coords(along=(("t", "y"), np.ones((2, 2))))  # no source lies along t
    data.to_netcdf(tmp_path / "old.nc", engine="h5netcdf", unlimited_dims=["t", "y"])
    labeled.repack(tmp_path / "old.nc", tmp_path / "new.nc")
    for name in ("old.nc", "new.nc"):
        assert labeled.open_dataset(tmp_path / name).shapes == {"b": (2, 4)}
        with xr.open_dataset(tmp_path / name, engine="h5netcdf") as found:
            assert found.encoding["unlimited_dims"] == {"t", "y"}
            xr.testing.assert_equal(found, data)


def test_what_cannot_be_carried_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    labeled.write(tmp_path / "other.h5", {"z": np.arange(3)})
    cases: dict[str, Any] = {
        "refs": lambda f: f.create_dataset("refs", data=np.array([f["x"].ref], h5py.ref_dtype)),
        "pointing": lambda f: (
            f["x"]
            .parent.create_dataset("pointing", data=1)
            .attrs.create("to", f["x"].ref, dtype=h5py.ref_dtype)
        ),
        "away": lambda f: f.__setitem__("away", h5py.ExternalLink("other.h5", "z")),
    }
    for name, change in cases.items():
        path = labeled.write(tmp_path / f"{name}.h5", {"x": np.arange(3)}, {"a": (0, 3)})
        with h5py.File(path, "a") as f:
            change(f)
        with pytest.raises(NotYetError, match=f"'{name}'"):
            labeled.repack(path, tmp_path / "new.h5")
        assert not (tmp_path / "new.h5").exists()
    assert labeled.doctor(path).command is None


@pytest.mark.parametrize("dim", ["", "shot"])  # with a name of its own, energies are no scale
@pytest.mark.parametrize("order", ["keep", "shuffle"])
def test_coordinates_stay_beside_the_arrays_that_name_them(
    tmp_path: Path, order: str, dim: str
) -> None:
    old, new, last = (str(tmp_path / name) for name in ("old.h5", "new.h5", "last.h5"))
    energy = np.linspace(1, 2, N)
    with h5py.File(old, "w") as f:
        data = f.create_group("entry/data")
        data["counts"] = np.arange(N * 3).reshape(N, 3)
        data["energy"], data["x"] = energy, np.arange(3.0)
        for axis, name in enumerate(("energy", "x")):
            data[name].make_scale(name)
            data["counts"].dims[axis].attach_scale(data[name])
        data["counts"].dims[0].label = dim
        data["energy"].attrs["units"] = "keV"
    labeled.repack(old, new, order=order)
    labeled.repack(new, last)
    opened = [labeled.open_dataset(path) for path in (old, new, last)]
    with h5py.File(new) as f:
        data = f["entry/data"]
        rows = data["counts"][:, 0] // 3
        np.testing.assert_array_equal(data["energy"][...], energy[rows])
        np.testing.assert_array_equal(data["x"][...], np.arange(3.0))
        assert data["energy"].attrs["units"] == "keV"
    for again in opened[1:]:
        assert again.sources == ("entry/data/counts",)
        assert set(again.to_xarray().coords) == {"energy", "x"}
        assert set(again.to_xarray().variables) == set(opened[0].to_xarray().variables)


def test_texts_of_one_width_keep_null_bytes_inside(tmp_path: Path) -> None:
    text, arrays = np.bytes_(b"a\0b"), [np.arange(i) for i in range(3)]
    sources = {"x": np.arange(3), "r": labeled.Ragged.of(arrays, ("row", "time"))}
    path = labeled.write(tmp_path / "old.h5", sources, coords={"batch": [4, 5, 6]})
    with h5py.File(path, "r+") as file:
        for thing in (file, file["x"], file["r"], file["batch"]):
            thing.attrs["odd"] = text
    new = labeled.repack(path, tmp_path / "new.h5")
    with h5py.File(new) as file:
        for thing in (file, file["x"], file["r"], file["batch"]):
            assert (thing.attrs["odd"], thing.attrs.get_id("odd").dtype) == (text, "S3")


def test_texts_of_attributes_keep_their_encoding(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old.h5"), str(tmp_path / "new.h5")
    kinds = [h5py.string_dtype("utf-8", 5), h5py.string_dtype("ascii", 5), h5py.string_dtype()]
    texts = np.array("dög".encode()), np.array([b"ab", b"c"]), "long"
    with h5py.File(old, "w") as f:
        f["x"] = np.arange(3)
        group = f.create_group("g")
        for number, (kind, text) in enumerate(zip(kinds, texts, strict=True)):
            group.attrs.create(f"text {number}", text, dtype=kind)
    labeled.repack(old, new)
    with h5py.File(old) as f, h5py.File(new) as g:
        for name in f["g"].attrs:
            one, two = (h5py.h5a.open(file["g"].id, name.encode()) for file in (f, g))
            assert one.get_type().equal(two.get_type())
            assert one.shape == two.shape
            assert np.array_equal(f["g"].attrs[name], g["g"].attrs[name])


UNEVEN: dict[str, tuple[Any, list[list[Any]]]] = {
    "numbers": ("i4", [[1, 2], [3]]),
    "one without any": ("f4", [[], [0.5]]),
    "booleans": (bool, [[True], [False, True, True]]),
    "texts": (h5py.string_dtype(), [[b"ab", b"c"], ["dög".encode()]]),
    "compound": (np.dtype("i4, f8"), [[(1, 0.5), (2, 1.5)], []]),
    "compound of one length": (np.dtype("i4, f8"), [[(1, 0.5)], [(2, 1.5)]]),
}


@pytest.mark.parametrize("kind", UNEVEN)
@pytest.mark.parametrize("how", ["repack", "convert", "append"])
def test_attributes_of_uneven_rows_and_of_bytes_are_carried(
    tmp_path: Path, how: str, kind: str
) -> None:
    old, new, (dtype, rows) = tmp_path / "old.h5", tmp_path / "new.h5", UNEVEN[kind]
    arrays = [np.arange(i) for i in range(3)]
    sources = {"x": np.zeros((3, 2)), "r": labeled.Ragged.of(arrays, ("row", "time"))}
    labeled.write(old, sources, dims={"x": ("row", "side")}, coords={"side": [4, 5]})
    uneven = np.fromiter((np.array(row, dtype) for row in rows), object, len(rows))
    with h5py.File(old, "r+") as f:
        for thing in (f, f["x"], f["r"], f["side"]):
            thing.attrs.create("uneven", uneven, dtype=h5py.vlen_dtype(dtype))
            thing.attrs["raw"] = np.void(b"a\0b")
    if how == "append":
        new = old
        more = {"x": np.ones((1, 2)), "r": labeled.Ragged.of([np.arange(4)], ("row", "time"))}
        labeled.append(old, more)
    else:
        getattr(labeled, how)(old, new)
    with h5py.File(new) as f:
        for thing in (f, f["x"], f["r"], f["side"]):
            assert [row.tolist() for row in thing.attrs["uneven"]] == rows
            assert thing.attrs["raw"] == np.void(b"a\0b")
    ds = labeled.open_dataset(new)
    for found in (ds.attrs["uneven"], ds["x"].attrs["uneven"]):  # compound rows are arrays
        assert [row if isinstance(row, list) else row.tolist() for row in found] == rows


@pytest.mark.filterwarnings("ignore:.*cannot be read")  # that is what it warns of
def test_attributes_that_h5py_cannot_read_are_left_out_of_sources(tmp_path: Path) -> None:
    old, new = str(tmp_path / "old.h5"), str(tmp_path / "new.h5")
    with h5py.File(old, "w") as f:
        f["x"], f["one"] = np.arange(3), 1.5
        for thing in (f, f["x"], f["one"], f.create_group("g")):
            space = h5py.h5s.create(h5py.h5s.SCALAR)
            made = h5py.h5a.create(thing.id, b"when", h5py.h5t.UNIX_D32LE, space)
            made.write(np.array(b"abc", "V4"), mtype=h5py.h5t.UNIX_D32LE)
    labeled.repack(old, new)
    with h5py.File(new) as f:
        assert "when" not in f["x"].attrs
        for thing in (f["one"], f["g"]):
            found = np.empty((), "V4")
            h5py.h5a.open(thing.id, b"when").read(found, mtype=h5py.h5t.UNIX_D32LE)
            assert found.tobytes() == b"abc\0"


@pytest.mark.parametrize("order", ["keep", "shuffle"])
def test_every_name_leads_to_the_same_object_in_the_new_file(tmp_path: Path, order: str) -> None:
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    with h5py.File(old, "w") as f:
        f["g/x"] = np.arange(N)
        f["g"].attrs["unit"] = "kg"
        f["again"], f["g/up"] = f["g"], f["/"]
        f["number"] = np.arange(N) + 100
        f["number"].make_scale("number")
        f["g/x"].dims[0].attach_scale(f["number"])
        f["same_number"] = f["number"]
    labeled.repack(old, new, order=order)
    with h5py.File(new) as f:
        assert f["again"] == f["g"]
        assert f["g/up"] == f["/"]
        assert f["again/x"][:].tolist() == (f["same_number"][:] - 100).tolist()
        assert f["same_number"] == f["number"]
        assert f["g"].attrs["unit"] == "kg"


@pytest.mark.parametrize("order", ["keep", "shuffle"])
@pytest.mark.parametrize("ragged", [None, "flat"])
def test_coordinates_of_ragged_sources_alone_are_carried(
    tmp_path: Path, order: str, ragged: Any
) -> None:
    old = labeled.write(tmp_path / "old.h5", {"r": [np.full(i % 4, i, "i2") for i in range(N)]})
    labeled.repack(old, old, ragged="fuel", overwrite=True)
    with h5py.File(old, "a") as f:
        f["number"] = np.arange(N) + 100
        f["number"].make_scale("number")
        f["r"].dims[0].attach_scale(f["number"])
    new = labeled.repack(old, tmp_path / "new.h5", order=order, ragged=ragged)
    with h5py.File(new) as f:
        numbers = f["number"][:] - 100
        if ragged is None:
            assert f["r"].dims[0]["number"] == f["number"]
    rows = labeled.open_dataset(new)["r"]
    assert sorted(numbers) == list(range(N))
    assert [rows[i].values.tolist() for i in range(N)] == [[n] * (n % 4) for n in numbers]


def test_attributes_of_tables_stay_with_their_columns(tmp_path: Path) -> None:
    old, new = tmp_path / "old.h5", tmp_path / "new.h5"
    with h5py.File(old, "w") as f:
        f["table"] = np.array([(1, 2.5)] * 5, [("a", "i4"), ("b", "f4")])
        f["table"].attrs.update({"told": "by hand", "CLASS": "TABLE", "FIELD_0_NAME": "a"})
    labeled.repack(old, new)
    with h5py.File(new) as f:
        assert dict(f["table"].attrs) == {"told": "by hand"}
        assert f["table/a"][:].tolist() == [1] * 5


@pytest.mark.filterwarnings("ignore:.*hold references")
def test_attributes_of_groups_that_hold_references_are_left_out(tmp_path: Path) -> None:
    old = labeled.write(tmp_path / "old.h5", {"x": np.arange(3)}, {"a": (0, 3)})
    with h5py.File(old, "a") as f:
        f.create_group("g").attrs.create("to", f["x"].ref, dtype=h5py.ref_dtype)
        f["g"].attrs["told"] = 1
    with pytest.warns(labeled.LabeledWarning, match=r"\['to'\] of '/g'"):
        labeled.repack(old, tmp_path / "new.h5")
    with h5py.File(tmp_path / "new.h5") as f:
        assert dict(f["g"].attrs) == {"told": 1}


def test_what_stands_before_the_file_stays(tmp_path: Path) -> None:
    path, block = tmp_path / "of_matlab.mat", b"MATLAB 7.3 MAT-file".ljust(508) + b"\0\2IM"
    with h5py.File(path, "w", userblock_size=512) as f:
        f["x"] = np.arange(N)
    path.write_bytes(block + path.read_bytes()[512:])
    new = labeled.repack(path, tmp_path / "new.h5", order="shuffle")
    labeled.append(path, {"x": np.arange(2)})
    for each, n in ((new, N), (path, N + 2)):
        assert Path(each).read_bytes()[:512] == block
        assert sorted(labeled.open_dataset(each)["x"].values) == sorted([*range(N), 0, 1][:n])
        assert labeled.verify(each).sound
