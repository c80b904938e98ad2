"""What cannot be written is refused by name, and what two meanings would be lost in is, too."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import dask
import dask.bag
import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr

import labeled
from labeled.errors import (
    ArgumentError,
    ArrayError,
    DimsError,
    FileFormatError,
    LabeledError,
    LoaderError,
    SplitTypeError,
    WriteError,
)

MASKED = np.ma.masked_array([1, 2], [False, True])
PLAIN = np.ma.masked_array([1, 2], [False, False])
X = {"x": np.zeros((4, 3))}


@pytest.mark.parametrize(
    "sources",
    [
        {"x": [PLAIN, MASKED]},
        {"x": [PLAIN, np.arange(3), MASKED]},
        iter([{"x": [PLAIN, np.arange(3)]}, {"x": [MASKED, np.arange(4)]}]),
    ],
)
def test_masks_of_examples_are_refused_by_row(tmp_path: Path, sources: Any) -> None:
    with pytest.raises(ArrayError, match=r"'x', row [0-2] is a masked array.*\.filled\(value\)"):
        labeled.write(tmp_path / "x.h5", sources)
    assert not list(tmp_path.iterdir())


def test_masked_rows_of_splits_are_refused(tmp_path: Path) -> None:
    """They were in the split whatever the mask said."""
    rows = np.ma.array([1, 2, 3], mask=[0, 1, 0])
    with pytest.raises(SplitTypeError, match=r"'train'.*masked values.*\.compressed\(\)"):
        labeled.write(tmp_path / "x.h5", {"x": np.arange(5)}, {"train": rows})
    path = labeled.write(tmp_path / "x.h5", {"x": np.arange(5)}, {"train": rows.compressed()})
    assert labeled.open_dataset(path).split("train")["x"].values.tolist() == [1, 3]


@pytest.mark.parametrize("lengths", [(1, 1), (1, 2)])
def test_integers_that_only_floats_hold_together_are_refused(
    tmp_path: Path, lengths: tuple[int, int]
) -> None:
    """NumPy joins them as float64: 2**63 + 1 was written as 2**63."""
    one, two = np.full(lengths[0], 2**63 + 1, "u8"), np.full(lengths[1], -1, "i8")
    with pytest.raises(ArrayError, match="source 'x' has arrays of int64, uint64, which only"):
        labeled.write(tmp_path / "x.h5", {"x": [one, two]})
    with pytest.raises(ArrayError, match=f"source 'x', row 1 holds {2**63 + 1}, which float64 "):
        labeled.write(tmp_path / "x.h5", {"x": [-1, 2**63 + 1]})
    path = labeled.write(tmp_path / "x.h5", {"x": [one.astype("u4"), two]})
    assert labeled.open_dataset(path)["x"].dtype == np.int64


@pytest.mark.parametrize("rows", [["a", 1], [b"a", 1.5], [["a", "b"], ["c", True]]])
def test_lists_of_texts_and_numbers_are_refused(tmp_path: Path, rows: list[Any]) -> None:
    """NumPy makes texts of the numbers."""
    with pytest.raises(ArrayError, match=r"'x', row 1 holds .+ among texts"):
        labeled.write(tmp_path / "x.h5", {"x": rows})
    path = labeled.write(tmp_path / "x.h5", {"x": [np.array("a"), "b", b"c", np.str_("d")]})
    assert labeled.open_dataset(path)["x"].values.tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"x": dask.delayed(np.zeros)(3)}, "'x' is dask's Delayed.*from_delayed"),
        ({"x": dask.bag.from_sequence([1, 2])}, "'x' is dask's Bag"),
        (dask.bag.from_sequence([1, 2]), "cannot write Bag; give {name: array}"),
        (iter([{"x": [1]}, [1, 2]]), "batch 1 is list; expected a mapping"),
        (iter([None]), "batch 0 is NoneType"),
    ],
)
def test_what_is_no_array_is_named(tmp_path: Path, sources: Any, words: str) -> None:
    with pytest.raises(ArrayError, match=words):
        labeled.write(tmp_path / "x.h5", sources)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"dims": ("batch", "w")}, ArgumentError, r"dims=\('batch', 'w'\) must be a mapping"),
        ({"source_attrs": {"x": 3}}, ArgumentError, "source_attrs=.* must be a mapping"),
        ({"compression": "gzip", "level": "9"}, ArgumentError, "level='9' must be a whole number"),
        ({"level": 3}, ArrayError, "compression=None of source 'x'; give it a compression=, or"),
        ({"compression": "gzip", "level": 10}, ArrayError, "of source 'x'; levels are 1 to 9"),
        ({"memory": [1]}, ArgumentError, r"memory=\[1\] must be a number, text"),
        ({"threads": "2"}, ArgumentError, "threads='2' must be a whole number"),
        ({"attrs": {"": 1}}, ArrayError, "an attribute of the file has no name"),
        (
            {"attrs": {"a": b"b\0c"}},
            ArrayError,
            r"'a' of the file is b'b\\x00c', and HDF5 ends a text",
        ),
        (
            {"source_attrs": {"x": {"a": "b\0"}}},
            ArrayError,
            r"'a' of source 'x' is 'b\\x00', and HDF5",
        ),
        ({"attrs": {"a": ["b", 1]}}, ArrayError, r"'a' of the file is list \['b', 1\]; HDF5 holds"),
        ({"attrs": {"a": [[b"b"], [1.5]]}}, ArrayError, "HDF5 holds texts, numbers and lists"),
        ({"splits": {"a": [[1], [2, 3]]}}, SplitTypeError, "'a' of source 'x'.*several lengths"),
        ({"splits": {"a": slice(0, 1.5)}}, SplitTypeError, "'a' of source 'x'.*whole numbers"),
    ],
)
def test_options_of_another_kind_are_refused(
    tmp_path: Path, options: Any, error: Any, words: str
) -> None:
    with pytest.raises(error, match=words):
        labeled.write(tmp_path / "x.h5", X, **options)
    assert not list(tmp_path.iterdir())


def test_one_dim_has_one_set_of_coordinates(tmp_path: Path) -> None:
    """Sources are opened with the coordinates of their dims; two sets would be taken for one."""

    def labelled(*given: Any) -> dict[str, xr.DataArray]:
        return {
            name: xr.DataArray(np.zeros((4, len(h))), dims=("batch", "h"), coords={"h": h})
            for name, h in zip("xy", given, strict=True)
        }

    with pytest.raises(DimsError, match=r"'h' has other coordinates in source 'y' than.*'x'"):
        labeled.write(tmp_path / "x.h5", labelled([1, 2, 3], [7, 8, 9]))
    assert not list(tmp_path.iterdir())
    same = labelled(np.array([1, 2, 3]), np.array([1, 2, 3], np.float32))
    for given in (same, labelled([np.nan, 1.0], [np.nan, 1.0]), labelled(["a"], ["a"])):
        ds = labeled.open_dataset(labeled.write(tmp_path / "x.h5", given, overwrite=True))
        for name, array in given.items():
            np.testing.assert_array_equal(ds[name]["h"].values, array["h"].values)
    labeled.write(tmp_path / "x.h5", labelled([1, 2, 3], [7, 8]), overwrite=True)


def test_a_column_is_written_as_in_its_table(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "time": pd.date_range("2020", periods=2, tz="Asia/Tokyo"),
            "count": pd.array([1, None], dtype="Int64"),
            "kind": pd.Categorical(["a", "b"]),
        }
    )
    whole = labeled.open_dataset(labeled.write(tmp_path / "whole.h5", frame))
    columns = {name: frame[name] for name in frame}
    apart = labeled.open_dataset(labeled.write(tmp_path / "apart.h5", columns))
    xr.testing.assert_identical(whole.to_xarray(), apart.to_xarray())
    variables = {name: ("index", pd.Index(frame[name])) for name in frame}
    with_times = xr.Dataset(variables, {"moment": ("index", pd.Index(frame["time"]))})
    labelled = labeled.open_dataset(labeled.write(tmp_path / "labelled.h5", with_times))
    for name in frame:
        np.testing.assert_array_equal(labelled[name].values, whole[name].values)
    assert whole["time"].values[0] == np.datetime64("2019-12-31T15:00")
    np.testing.assert_array_equal(labelled["kind"]["moment"], whole["time"].values)
    for name in frame:  # without its table
        for given in (frame[name].array, pd.Index(frame[name])):
            alone = labeled.open_dataset(
                labeled.write(tmp_path / "a.h5", {name: given}, overwrite=True)
            )
            np.testing.assert_array_equal(alone[name].values, whole[name].values)
    for many in (pd.array([(1 << 60) + 1, None]), pd.Index([(1 << 60) + 1, None], dtype="Int64")):
        with pytest.raises(ArrayError, match=r"row 0 holds 1152921504606846977.*would round"):
            labeled.write(tmp_path / "x.h5", {"x": many})
    with pytest.raises(ArrayError, match=r"row 1 holds None.*fillna"):
        labeled.write(tmp_path / "x.h5", {"x": pd.Series(["a", None], dtype=object)})
    with pytest.raises(ArrayError, match=r"row 1 holds <NA>.*fillna"):
        labeled.write(tmp_path / "x.h5", {"x": pd.Series([True, None], dtype="boolean")})
    stored = pd.DataFrame({"word": [b"caf\xc3\xa9", b""]})  # as h5py reads texts
    with pytest.raises(ArrayError, match=r"'word', row 0 holds b'caf.*\.str\.decode\('utf-8'\)"):
        labeled.write(tmp_path / "x.h5", stored)
    decoded = labeled.write(tmp_path / "x.h5", {"word": stored["word"].str.decode("utf-8")})
    assert labeled.open_dataset(decoded)["word"].values.tolist() == ["caf\xe9", ""]


def test_targets_that_are_no_files_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path))
    refused: dict[Any, str] = {
        "s3://bucket/x.h5": "that is an address; write a file of this machine",
        tmp_path / "file" / "x.h5": "is not a folder",
        "~/none/x.h5": "none' does not exist; make it first",
        "-": "standard output cannot hold",
        f"{tmp_path}/new/": "names a folder",
    }
    for path, words in refused.items():
        with pytest.raises(WriteError, match=words):
            labeled.write(path, X)
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.name == "nt", reason="homes are told otherwise there")
def test_a_tilde_is_the_home_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "a.npy", np.arange(3))
    made = [
        labeled.write("~/x.h5", {"x": np.arange(3)}, chunks=2),
        labeled.append("~/x.h5", {"x": np.arange(2)}),
        labeled.convert("~/a.npy", "~/a.h5"),
        labeled.repack("~/x.h5", "~/y.h5"),
    ]
    assert [os.path.dirname(path) for path in made] == [str(tmp_path)] * 4
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "a.npy", "x.h5", "y.h5"]
    assert labeled.verify("~/y.h5").sound
    assert labeled.doctor("~/y.h5").path == str(tmp_path / "y.h5")
    assert labeled.open_dataset("~/y.h5")["x"].values.tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("ragged", [False, True])
def test_names_of_axes_that_are_no_utf8_are_kept(tmp_path: Path, ragged: bool) -> None:
    """Programs that know Latin-1 alone name axes in it."""
    latin = "größe".encode("latin-1")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        if ragged:
            source = file.create_dataset("x", (2,), h5py.vlen_dtype(np.uint8))
            source[0], source[1] = np.arange(2), np.arange(3)
            for role, values in (("shapes", [[2], [3]]), ("shape_labels", [latin])):
                file[role] = values
                file[role].make_scale(role)
                source.dims[0].attach_scale(file[role])
        else:
            source = file.create_dataset("x", data=np.zeros((2, 3)))
            h5py.h5ds.set_label(source.id, 1, latin)
        h5py.h5ds.set_label(source.id, 0, b"batch")
    made = [
        labeled.convert(tmp_path / "x.h5", tmp_path / "flat.h5"),
        labeled.repack(tmp_path / "x.h5", tmp_path / "same.h5"),
    ]
    for path in (tmp_path / "x.h5", *made):
        assert [os.fsencode(dim) for dim in labeled.open_dataset(path).dims["x"]] == [
            b"batch",
            latin,
        ]
    with pytest.raises(DimsError, match="'x' has a dim called"):
        labeled.write(tmp_path / "y.h5", X, dims={"x": ("batch", "\ud800")})


@pytest.mark.parametrize(
    ("sources", "split", "words"),
    [
        ({"x": np.ma.masked_array([1, 2], [0, 1])}, None, "'x' is a masked array"),
        ({"x": [1, 2]}, "", "'' cannot name a split"),
        ([{"x": [1]}, [2]], None, "batch 1 is list"),
        ([], None, "batches to write are empty"),
    ],
)
def test_rows_that_cannot_be_added_name_the_file(
    tmp_path: Path, sources: Any, split: Any, words: str
) -> None:
    path = labeled.write(tmp_path / "a.h5", {"x": np.arange(5)}, {"all": (0, 5)}, chunks=2)
    before = Path(path).read_bytes()
    with pytest.raises(LabeledError, match=f"{words}.*{re.escape(repr(path))}"):
        labeled.append(path, sources, split=split)
    assert Path(path).read_bytes() == before
    assert os.listdir(tmp_path) == ["a.h5"]


def test_pictures_that_would_be_cut_off_are_refused(tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image")
    (tmp_path / "all" / "cat").mkdir(parents=True)
    values = np.array([[0, 3000], [6000, 9000]])
    pillow.fromarray(values.astype(np.uint16)).save(tmp_path / "all" / "cat" / "a.tif")
    path = labeled.convert(tmp_path / "all", tmp_path / "x.h5", channels=1)
    np.testing.assert_array_equal(labeled.open_dataset(path)["images"][0, ..., 0], values >> 8)
    with pytest.raises(LoaderError, match="channels=0 must be 1, 3, 4 or None"):
        labeled.convert(tmp_path / "all", tmp_path / "y.h5", channels=0)
    for dtype in (np.float32, np.int32):
        pillow.fromarray(values.astype(dtype)).save(tmp_path / "all" / "cat" / "b.tif")
        with pytest.raises(FileFormatError, match=r"row 1, .*b\.tif'.* its values are of 32 bits"):
            labeled.convert(tmp_path / "all", tmp_path / "y.h5", channels=1)
    assert sorted(os.listdir(tmp_path)) == ["all", "x.h5"]


def test_a_column_may_be_in_two_sources(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": [5, 6]})
    columns = {"f": ["a", "b"], "g": ["b"]}
    frame.to_csv(tmp_path / "x.csv", index=False)
    for origin in (frame, tmp_path / "x.csv"):
        path = labeled.convert(origin, tmp_path / "x.h5", columns=columns, overwrite=True)
        ds = labeled.open_dataset(path)
        np.testing.assert_array_equal(ds["f"], [[1, 3], [2, 4]])
        np.testing.assert_array_equal(ds["g"], [[3], [4]])
    with pytest.raises(LoaderError, match="'f' names no column"):
        labeled.open_dataset(tmp_path / "x.csv", columns={"f": []})


def test_a_source_called_like_the_example_dim_is_renamed_by_dims(tmp_path: Path) -> None:
    """Numbers of the batches of an experiment, say; netcdf=False does not help there."""
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["batch"] = np.arange(6) // 2
    dataset = labeled.open_dataset(tmp_path / "plain.h5")
    for netcdf in (True, False):
        with pytest.raises(DimsError, match=r"'batch' is both .* dims={source: \(\.\.\.\)} \("):
            labeled.write(tmp_path / "new.h5", dataset, netcdf=netcdf)
    path = labeled.write(tmp_path / "new.h5", dataset, dims={"batch": ("row",)})
    assert labeled.open_dataset(path)["batch"].values.tolist() == [0, 0, 1, 1, 2, 2]
