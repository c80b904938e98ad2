"""Examples of different shapes, written in both layouts and read back here and elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from ragged_files import ragged_path, same

import labeled
from labeled import Ragged
from labeled.errors import (
    ArgumentError,
    ArrayError,
    DimsError,
    FileFormatError,
    LabeledError,
    SplitError,
)

KINDS = ("flat", "fuel")


def sequences() -> list[np.ndarray[Any, Any]]:
    return [np.arange(n, dtype="i2") + 10 * n for n in (3, 0, 5, 1, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_plain_h5py_finds_what_the_formats_promise(tmp_path: Path, kind: Any) -> None:
    images = [np.arange(h * w, dtype="u1").reshape(h, w) for h, w in [(2, 3), (1, 4), (2, 3)]]
    path = labeled.write(
        tmp_path / "x.h5",
        {"images": images, "targets": np.arange(3)},
        {"train": (0, 2), "test": (2, 3)},
        dims={"images": ("batch", "height", "width")},
        ragged=kind,
    )
    with h5py.File(path) as f:
        if kind == "flat":
            assert f["images_offsets"][:].tolist() == [0, 6, 10, 16]
            assert f["images_shapes"][:].tolist() == [[2, 3], [1, 4], [2, 3]]
            stored = f["images"][6:10]
        else:
            assert f["images"].dims[0]["shapes"][:].tolist() == [[2, 3], [1, 4], [2, 3]]
            assert f["images"].dims[0]["shapes"].dtype == np.int32
            assert f["images"].dims[0]["shape_labels"][:].tolist() == [b"height", b"width"]
            assert f["images"].dims[0].label == "batch"
            stored = f["images"][1]
        np.testing.assert_array_equal(stored, np.arange(4))
        named = {row["source"] for row in f.attrs["split"]}
    assert named == {b"images", b"targets"}


def test_examples_that_happen_to_be_alike_stay_ragged_if_that_is_said(tmp_path: Path) -> None:
    alike, uneven = [np.zeros((2, 3)), np.ones((2, 3))], [np.zeros((2, 3)), np.ones((1, 3))]
    first, second = tmp_path / "1.h5", tmp_path / "2.h5"
    options: Any = {"dims": {"x": ("batch", "height", "width")}, "overwrite": True}
    with pytest.raises(ArrayError, match=r"batch 1: .* different .*\(2, 3\); give .*Ragged\.of"):
        labeled.write(first, [{"x": alike}, {"x": uneven}], **options)

    labeled.write(first, {"x": alike}, **options)
    labeled.write(second, {"x": uneven}, **options)
    for paths in ([first, second], [second, first]):
        words = rf"'{first}' have .*'{second}' differ; .*Ragged\.of"
        with pytest.raises(FileFormatError, match=words):
            labeled.open_dataset(paths)

    batches = [{"x": Ragged.of(alike)}, {"x": uneven}]
    labeled.write(first, batches, **options)
    labeled.write(second, {"x": Ragged.of(alike)}, **options)
    same(labeled.open_dataset([first, second])["x"].to_objects(), [*alike, *uneven, *alike])


def test_a_dataset_with_ragged_sources_is_written_whole_or_in_part(tmp_path: Path) -> None:
    arrays = sequences()
    old = labeled.open_dataset(ragged_path(tmp_path / "old.h5", "fuel", arrays))
    path = labeled.write(tmp_path / "new.h5", old)
    new = labeled.open_dataset(path)
    assert new.splits == old.splits
    assert new.dims["x"] == old.dims["x"]
    same(new["x"].to_objects(), arrays)
    part = labeled.open_dataset(labeled.write(tmp_path / "part.h5", old.subset([4, 2, 2])))
    same(part["x"].to_objects(), [arrays[4], arrays[2], arrays[2]])


def test_labelled_examples_name_their_dims(tmp_path: Path) -> None:
    arrays = [xr.DataArray(np.ones((n, 2)), dims=("time", "sensor")) for n in (3, 1)]
    opened = labeled.open_dataset(labeled.write(tmp_path / "x.h5", {"x": arrays}))
    assert opened["x"].dims == ("batch", "time", "sensor")


def test_damage_of_any_part_is_found(tmp_path: Path) -> None:
    for kind, part in [("flat", "x"), ("flat", "x_offsets"), ("flat", "x_shapes"), ("fuel", "x")]:
        arrays = [np.ones((2, n), "u1") for n in (2, 3, 4)]
        path = labeled.write(tmp_path / "x.h5", {"x": arrays}, ragged=kind, overwrite=True)
        with h5py.File(path, "a") as f:
            f[part][1] = f[part][1] + 1
        found = labeled.verify(path)
        assert [each.source for each in found.differences] == [part]


@pytest.mark.parametrize(
    ("sources", "splits", "options", "error", "words"),
    [
        ({"x": [np.ones(2), np.ones((2, 2))]}, None, {}, ArrayError, "row 1: an example of 2 axes"),
        ({"x": [["a"], ["b", "c"]]}, None, {}, ArrayError, "row 0: an example of <U1"),
        ({"x": [[1, [2]], [3]]}, None, {}, ArrayError, "row 0: no array"),
        ({"x": Ragged.of([["a"], ["b", "c"]])}, None, {}, ArrayError, "examples of <U1"),
        ({"x": [[1], [2, 3]]}, {"a": (0, 3)}, {}, SplitError, "has 2 rows"),
        ({"x": [[1], [2, 3]]}, None, {"dims": {"x": ("b",)}}, DimsError, "2 axes"),
        ({"x": [[1], [2, 3]]}, None, {"ragged": "vlen"}, ArgumentError, "'flat' or 'fuel'"),
        (
            {"x": [[1], [2, 3]], "x_offsets": np.ones(2)},
            None,
            {},
            ArrayError,
            "needs the name 'x_offsets'",
        ),
        (
            [{"x": [[1], [2, 3]]}, {"x": [np.ones((1, 1)), np.ones((2, 2))]}],
            None,
            {},
            ArrayError,
            "2 axes, but the first one has .* 1 axes",
        ),
        (
            {"x": [xr.DataArray([1], dims="a"), xr.DataArray([1, 2], dims="b")]},
            None,
            {},
            DimsError,
            "dims",
        ),
    ],
)
def test_bad_examples_are_refused_and_nothing_stays(
    tmp_path: Path, sources: Any, splits: Any, options: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        labeled.write(tmp_path / "x.hdf5", sources, splits, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["list", "Ragged", "objects"])
def test_append_writes_a_ragged_file_anew(tmp_path: Path, kind: Any, way: str) -> None:
    old, new = sequences(), [np.arange(4, dtype="i8"), np.arange(4, dtype="i8")]
    path = labeled.write(
        tmp_path / "x.h5",
        {"x": old, "y": np.arange(5)},
        {"train": (0, 5)},
        dims={"x": ("batch", "time")},
        ragged=kind,
        source_attrs={"x": {"unit": "m"}},
        **({"compression": {"x": "gzip"}} if kind == "flat" else {}),
    )
    more: Any = np.empty(2, object)
    more[:] = new
    more = {"list": [*new[:1], np.arange(3)], "Ragged": Ragged.of(new), "objects": more}[way]
    expected = [*old, new[0].astype("i2"), new[1 - (way == "list")][: 3 if way == "list" else 4]]
    labeled.append(path, {"x": more, "y": np.arange(2)}, split="train")
    opened = labeled.open_dataset(path).split("train")
    same(opened["x"].to_objects(), [one.astype("i2") for one in expected])
    assert opened["x"].dims == ("batch", "time")
    assert opened["x"].attrs == {"unit": "m"}
    assert opened["y"].values.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert labeled.verify(path).sound
    if kind == "flat":
        assert opened.statistics("x")["n_rows"] == 7
        with h5py.File(path) as f:
            assert f["x"].compression == "gzip"


@pytest.mark.parametrize(
    ("new", "options", "words"),
    [
        ({"x": np.ones(2)}, {}, "rows of shape .* has examples of different"),
        ({"x": np.ones((2, 3))}, {}, "of float64, but file .* of int16"),
        ({"x": [np.ones((1, 1)), np.ones((2, 2))]}, {}, "2 axes, but file .* 1 axes"),
        ({"x": [[1.5], [2.5, 1.0]]}, {}, "of float64, but file .* of int16"),
        ([{"x": [[1], [2, 1]]}], {}, "rows must be counted"),
    ],
)
def test_append_refuses_examples_that_do_not_fit(
    tmp_path: Path, new: Any, options: Any, words: str
) -> None:
    path = labeled.write(tmp_path / "x.h5", {"x": sequences()})
    before = Path(path).read_bytes()
    with pytest.raises(LabeledError, match=words):
        labeled.append(path, new, **options)
    assert Path(path).read_bytes() == before


def test_an_empty_list_among_others_makes_no_floats_of_them(tmp_path: Path) -> None:
    """NumPy takes float64 for it, which would round large integers besides."""
    words = [[2**60 + 1, 2], [], [3]]
    labeled.write(tmp_path / "x", {"a": words, "b": labeled.Ragged.of(words)})
    ds = labeled.open_dataset(tmp_path / "x")
    for name in ds.sources:
        assert ds[name].dtype == np.int64
        assert [one.tolist() for one in ds[name].to_objects()] == words
    assert labeled.Ragged.of([[], []]).dtype == np.float64


@pytest.mark.parametrize("kind", KINDS)
def test_no_examples_and_names_of_axes(tmp_path: Path, kind: Any) -> None:
    dims = ("batch", "height", "width")
    given = {"x": Ragged.of([np.zeros((1, 2))], dims=dims)[:0], "y": np.empty(0)}
    opened = labeled.open_dataset(labeled.write(tmp_path / "x.h5", given, ragged=kind))
    assert opened["x"].dims == dims
    assert len(opened["x"]) == 0


def test_xarray_opens_the_flat_layout_with_the_same_dims(tmp_path: Path) -> None:
    path = labeled.write(
        tmp_path / "x.nc",
        {"x": [np.ones((2, 3)), np.ones((1, 5))], "y": np.arange(2.0)},
        dims={"x": ("batch", "height", "width"), "y": ("batch",)},
    )
    with xr.open_dataset(path, engine="h5netcdf") as opened:
        assert opened["x"].dims == ("x_value",)
        assert opened["x_shapes"].dims == ("batch", "x_axis")
        assert opened["y"].dims == ("batch",)


@pytest.mark.parametrize("kind", ["flat", "fuel"])
def test_lists_of_examples_that_happen_to_be_alike_are_appended(tmp_path: Path, kind: Any) -> None:
    words = [np.arange(2), np.arange(5)]
    path = labeled.write(tmp_path / "x.hdf5", {"x": words}, ragged=kind)
    alike = [np.full(3, 7), np.full(3, 8)]
    labeled.append(path, {"x": alike})
    found = labeled.open_dataset(path)["x"]
    assert [found[i].values.tolist() for i in range(4)] == [x.tolist() for x in words + alike]
    with pytest.raises(ArrayError):
        labeled.append(path, {"x": [np.ones((2, 2))] * 2})
    with pytest.raises(ArrayError):
        labeled.append(path, {"x": [1, 2]})


def test_axes_of_ragged_arrays_without_names_are_called_after_their_source(tmp_path):
    values = labeled.Ragged.from_flat(np.arange(6), [0, 2, 6])
    path = labeled.write(tmp_path / "x.hdf5", {"a": values, "b": [np.zeros(1), np.zeros(2)]})
    dims = labeled.open_dataset(path).dims
    assert dims == {"a": ("batch", "a_axis_1"), "b": ("batch", "b_axis_1")}
