"""Rows put behind those of a file: all of them, or the file as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import xarray as xr
from written_files import KINDS, rows

import labeled
from labeled.compat.fuel.datasets import H5PYDataset
from labeled.errors import ArrayError, DimsError, NotYetError, SplitError


def check_rows(path: Any, expected: dict[str, np.ndarray]) -> None:
    ds = labeled.open_dataset(path)
    for name, array in expected.items():
        np.testing.assert_array_equal(ds[name], array)
    assert labeled.verify(path).sound


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("n_old", [0, 21, 24])
def test_append_keeps_old_rows(tmp_path: Path, options: Any, n_old: int) -> None:
    data = rows(40)
    old = {name: a[:n_old] for name, a in data.items()}
    new = {name: a[n_old:] for name, a in data.items()}
    path = (
        labeled.write(
            tmp_path / "x", old, {"train": (0, n_old), "few": [0] * bool(n_old)}, **options
        )
        if n_old == 0
        else _with_few(tmp_path / "x", old, n_old, options)
    )
    labeled.append(path, new, split="train")

    check_rows(path, data)
    ds = labeled.open_dataset(path)
    np.testing.assert_array_equal(ds.split("train")["t"], data["t"])
    assert ds.split("few").n_rows == min(n_old, 1)
    for each in (ds.statistics("x"), ds.split("train").statistics("x")):
        assert each["n_rows"] == 40
        assert each["std"] == pytest.approx(data["x"].std(), rel=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def _with_few(path: Path, old: dict[str, np.ndarray], n_old: int, options: Any) -> str:
    with pytest.warns(labeled.LabeledWarning, match="1 row "):
        return labeled.write(path, old, {"train": (0, n_old), "few": [0]}, **options)


def test_a_file_without_rows_is_made_to_grow(tmp_path: Path) -> None:
    """Its chunks were of one row each, and those of all rows that followed."""
    data = {"x": np.arange(6000, dtype=np.uint8).reshape(3000, 2)}
    path = labeled.write(tmp_path / "x", {"x": data["x"][:0]}, compression="gzip")
    labeled.append(path, data)
    check_rows(path, data)
    with h5py.File(path) as file:
        assert file["x"].chunks == (1 << 17, 2)


def test_append_batches_to_a_list_of_rows(tmp_path: Path) -> None:
    data = rows(30)
    parts = [{name: a[i : i + 5] for name, a in data.items()} for i in range(0, 30, 5)]
    path = labeled.write(tmp_path / "x", iter(parts[:2]), {"train": [9, 0, 3]}, chunks=4)
    labeled.append(path, iter(parts[2:]), split="train")
    check_rows(path, data)
    found = labeled.open_dataset(path).split("train")
    np.testing.assert_array_equal(found["x"], data["x"][[9, 0, 3, *range(10, 30)]])
    assert found.statistics("x")["n_rows"] == 23
    with h5py.File(path) as f:
        assert [name for name in f if name.endswith("indices")] == ["train_indices"]


@pytest.mark.parametrize("split", ["listed", "last", "first", "new"])
def test_batches_leave_no_split_without_statistics(tmp_path: Path, split: str) -> None:
    data = rows(30)
    parts = [{name: a[i : i + 5] for name, a in data.items()} for i in range(0, 30, 5)]
    splits = {"listed": [6, 0, 3], "last": (7, 10), "first": (1, 3)}
    path = labeled.write(tmp_path / "x", iter(parts[:2]), splits, chunks=4)
    labeled.append(path, iter(parts[2:]), split=split)
    with h5py.File(path) as file:
        kept = json.loads(file["_labeled"].attrs["statistics"])["x"]["splits"]
    ds = labeled.open_dataset(path)
    assert kept.keys() == ds.splits.keys() == {*splits, split}
    for name, found in kept.items():
        array = ds.split(name)["x"].values
        assert (found["n_rows"], found["min"], found["max"]) == (len(array), *_ends(array))
        assert found["mean"] == pytest.approx(array.mean(), rel=1e-12)


def _ends(array: np.ndarray) -> tuple[float, float]:
    return float(array.min()), float(array.max())


@pytest.mark.parametrize("ragged", ["flat", "fuel"])
def test_batches_of_examples_are_appended_again_and_again(tmp_path: Path, ragged: Any) -> None:
    """The datasets that examples are stored as keep their layout, and the names of their axes."""
    examples = [np.full((i % 3, 2), i, "i2") for i in range(30)]
    first = {"r": labeled.Ragged.of(examples[:10])}
    path = labeled.write(tmp_path / "x", first, ragged=ragged, chunks=4)
    dims = _dims(path)
    for start in (10, 20):
        labeled.append(path, iter([{"r": examples[i : i + 5]} for i in (start, start + 5)]))
    labeled.repack(path, path, overwrite=True)
    found = labeled.open_dataset(path)["r"].to_objects()
    assert [one.tolist() for one in found] == [one.tolist() for one in examples]
    with h5py.File(path) as f:
        assert f["r"].chunks == (4,)
    assert _dims(path) == dims


def _dims(path: str) -> dict[str, tuple[str, ...]]:
    with h5py.File(path) as f:
        return {
            name: tuple(axis[-1].name for axis in f[name].dims if len(axis))
            for name in f
            if isinstance(f[name], h5py.Dataset)
        }


@pytest.mark.parametrize("ragged", ["flat", "fuel"])
def test_lists_without_rows_fit_every_source(tmp_path: Path, ragged: Any) -> None:
    data = {
        "n": np.arange(3, dtype=">i2"),
        "yes": [True, False, True],
        "when": np.array(["2026-11-20", "NaT", "1999-12-31"], "M8[s]"),
        "word": ["a", "b", ""],
        "x": np.zeros((3, 2, 4), np.uint8),
        "r": labeled.Ragged.of([np.zeros((i, 2), "i2") for i in range(3)]),
    }
    path = labeled.write(tmp_path / "x", data, {"a": (0, 3)}, ragged=ragged)
    before = labeled.open_dataset(path)
    found, dims, dtypes = before["when"].values, before.dims, before.dtypes
    none: dict[str, Any] = {name: [] for name in data}
    labeled.append(path, none, split="a")
    after = labeled.open_dataset(path)
    assert (after.dims, after.dtypes, after.split("a").n_rows) == (dims, dtypes, 3)
    np.testing.assert_array_equal(after["when"].values, found)
    with pytest.raises(ArrayError, match="'y'"):
        labeled.append(path, none | {"y": []})


@pytest.mark.parametrize("ragged", ["flat", "fuel"])
def test_a_batch_may_have_lists_without_rows(tmp_path: Path, ragged: Any) -> None:
    """The first one to append, and later ones of a new file, too."""
    one = {
        "n": np.arange(2, dtype="i2"),
        "when": np.array(["2026-11-20", "NaT"], "M8[ns]"),
        "word": ["a", "b"],
        "r": [np.zeros((1, 2), "i2"), np.ones((3, 2), "i2")],
    }
    none: dict[str, Any] = {name: [] for name in one}
    path = labeled.write(tmp_path / "x", iter([one, none, one]), chunks=4, ragged=ragged)
    for batches in ([none], [none, one], [one, none]):
        labeled.append(path, iter(batches))
    found = labeled.open_dataset(path)
    assert found["n"].values.tolist() == [0, 1] * 4
    assert found["word"].values.tolist() == ["a", "b"] * 4
    assert [each.shape for each in found["r"].to_objects()] == [(1, 2), (3, 2)] * 4
    np.testing.assert_array_equal(found["when"].values, np.tile(one["when"], 4))


@pytest.mark.parametrize("ragged", ["flat", "fuel"])
def test_a_batch_of_padding_only_adds_no_rows(tmp_path: Path, ragged: Any) -> None:
    """Of four shards of three rows, the first has none; it cannot tell what the examples are."""
    given = {"n": np.arange(3), "r": [np.arange(n) for n in (2, 0, 3)]}
    path = labeled.write(tmp_path / "x", given, chunks=2, ragged=ragged)
    ds = labeled.open_dataset(path)
    none, *some = (batch for at in range(4) for batch in ds.batches(2, last="pad", shard=(at, 4)))
    assert (none.count, [one.count for one in some]) == (0, [1, 1, 1])
    with pytest.raises(ArrayError, match=r"batch 1: source 'r' .* or begin with a batch that has"):
        labeled.write(tmp_path / "y", [none, *some])
    new = labeled.write(tmp_path / "y", [*some, none], chunks=2, ragged=ragged)
    labeled.append(new, none)
    labeled.append(new, [none, some[0]])
    found = labeled.open_dataset(new)
    assert found["n"].values.tolist() == [0, 1, 2, 0]
    assert [one.tolist() for one in found["r"].to_objects()] == [[0, 1], [], [0, 1, 2], [0, 1]]


@pytest.mark.parametrize("ragged", ["flat", "fuel"])
def test_examples_of_one_shape_follow_others(tmp_path: Path, ragged: Any) -> None:
    """As a list, and as an array whose rows they are."""
    examples = [np.full((i, 2), i, "i2") for i in range(3)]
    path = labeled.write(
        tmp_path / "x", {"r": labeled.Ragged.of(examples)}, ragged=ragged, chunks=4
    )
    more = np.arange(12, dtype="i2").reshape(2, 3, 2)
    labeled.append(path, {"r": list(more)})
    labeled.append(path, {"r": more})
    labeled.append(path, iter([{"r": more}, {"r": more[:1]}]))
    found = labeled.open_dataset(path)["r"].to_objects()
    expected = [*examples, *more, *more, *more, *more[:1]]
    assert [one.tolist() for one in found] == [one.tolist() for one in expected]
    with pytest.raises(ArrayError, match="3 axes"):
        labeled.append(path, {"r": more[..., None]})


def test_append_to_a_file_of_plain_h5py_keeps_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(5.0), chunks=(2,), maxshape=(None,), compression="lzf")
        f["x"].dims[0].label = "batch"
        f["split"] = np.zeros(3)  # what is no source of the table stays
        f.attrs["split"] = H5PYDataset.create_split_array({"a": {"x": (0, 5, None, "said")}})
    labeled.append(path, {"x": np.arange(3, dtype="f4")}, split="a")
    assert labeled.open_dataset(path).split("a").n_rows == 8
    with h5py.File(path) as f:
        np.testing.assert_array_equal(f["x"], [0, 1, 2, 3, 4, 0, 1, 2])
        assert (f["x"].compression, f.attrs["split"]["stop"][0]) == ("gzip", 8)
        assert f.attrs["split"]["comment"].tolist() == [b"said"]
        assert "split" in f


@pytest.mark.parametrize(
    ("new", "options", "error", "words"),
    [
        ({"x": np.zeros((2, 9))}, {}, ArrayError, "has sources"),
        ({"x": np.zeros((2, 9)), "t": ["a", "b"]}, {}, ArrayError, "rows of shape"),
        (
            {"x": np.zeros((2, 3, 8)), "t": ["a", "b"]},
            {},
            ArrayError,
            "of float64, but file .* of uint8",
        ),
        ({"x": np.zeros((2, 3, 8), "u1"), "t": ["a"]}, {}, ArrayError, "differ in number"),
        (rows(2), {"split": "a"}, SplitError, "no splits"),
    ],
)
def test_append_refuses_rows_that_do_not_fit(
    tmp_path: Path, new: Any, options: Any, error: Any, words: str
) -> None:
    path = labeled.write(tmp_path / "x", rows(5), chunks=2)
    before = Path(path).read_bytes()
    with pytest.raises(error, match=words):
        labeled.append(path, new, **options)
    assert Path(path).read_bytes() == before


def test_append_refuses_coordinates_along_the_rows_and_tells_how_to_join_files(
    tmp_path: Path,
) -> None:
    path = labeled.write(tmp_path / "x", {"x": np.zeros(3)}, coords={"batch": [5, 6, 7]}, chunks=2)
    words = r"'batch'.*to a second file.*labeled\.convert\(\[path, second\], target\) makes one"
    with pytest.raises(NotYetError, match=words):
        labeled.append(path, {"x": np.zeros(3)})
    second = labeled.write(tmp_path / "y", {"x": np.ones(2)}, coords={"batch": [8, 9]})
    joined = labeled.open_dataset(labeled.convert([path, second], tmp_path / "z"))["x"]
    for found in (joined, labeled.open_dataset([path, second])["x"]):
        assert found.values.tolist() == [0, 0, 0, 1, 1]
        assert found["batch"].values.tolist() == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("dims", [("time", "batch", "y"), ("batch", "y", "time")])
def test_arrays_whose_axes_are_in_another_order_are_refused(tmp_path: Path, dims: Any) -> None:
    """Of axes of one length, no shape tells."""
    one = {"x": xr.DataArray(np.arange(8).reshape(2, 2, 2), dims=("batch", "time", "y"))}
    other = {"x": xr.DataArray(one["x"].values, dims=dims)}
    path = labeled.write(tmp_path / "x.h5", one)
    with pytest.raises(DimsError, match=r"source 'x' has dims .* but file .*; transpose them"):
        labeled.append(path, other)
    with pytest.raises(DimsError, match=r"batch 1: source 'x' has dims .*; transpose them"):
        labeled.write(tmp_path / "y.h5", iter([one, other]))
    assert [each.name for each in tmp_path.iterdir()] == ["x.h5"]
    labeled.append(path, {"x": other["x"].transpose("batch", "time", "y")})
    assert labeled.open_dataset(path).dims["x"] == ("batch", "time", "y")


@pytest.mark.parametrize("n_old", [0, 7])
def test_messages_count_batches_and_rows_as_they_were_given(tmp_path: Path, n_old: int) -> None:
    """From 0, as those of write do; what the file holds is none of them."""
    good = {"x": np.zeros((2, 3)), "t": np.zeros(2)}
    wide, short = good | {"x": np.zeros((2, 4))}, good | {"t": np.zeros(1)}
    stored = {"x": np.zeros((n_old, 3)), "t": np.zeros(n_old)}
    path = labeled.write(tmp_path / "x", stored, chunks=1)
    pairs = "batch 2 comes after 3 rows of source 't' and 4 of 'x'"
    for batches, words in (([good, wide], "batch 1: source 'x'"), ([good, short, good], pairs)):
        with pytest.raises(ArrayError, match=words):
            labeled.write(tmp_path / "y", batches)
        with pytest.raises(ArrayError, match=words):
            labeled.append(path, batches)
