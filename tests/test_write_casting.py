"""No value becomes another on its way into a file: casts, texts, times, attributes."""

from __future__ import annotations

import datetime as dt
import re
import tempfile
from pathlib import Path
from typing import Any

import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import example, given
from hypothesis import strategies as st

import labeled
from labeled.errors import ArrayError, DimsError, LabeledError, SplitError

INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">u8"]


@given(st.data(), st.sampled_from(INTEGERS), st.sampled_from([*INTEGERS, "f2", "f4", "f8", "c8"]))
def test_integers_arrive_as_they_are_or_not_at_all(data: Any, old: str, new: str) -> None:
    bounds = np.iinfo(old)
    ints = st.integers(int(bounds.min), int(bounds.max))
    edges = st.sampled_from([0, 1, 127, 128, 255, 300, 2049, 2**24 + 1, 2**31, 2**53 + 1])
    near = edges.filter(lambda n: n <= bounds.max)
    given_ints = data.draw(st.lists(ints | near, min_size=1, max_size=5))
    values = np.array(given_ints, old)
    with np.errstate(all="ignore"):
        out = values.astype(new)
    exact = [np.isfinite(o) and int(o.real) == v for o, v in zip(out, given_ints, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        batches = iter([{"x": np.zeros(1, new)}, {"x": values}])
        if np.can_cast(old, new, "same_kind") and all(exact):
            path = labeled.write(Path(folder) / "x.h5", batches)
            assert labeled.open_dataset(path)["x"].values[1:].tolist() == out.tolist()
            return
        words = "write all rows with one dtype that holds them"
        if np.can_cast(old, new, "same_kind"):
            words = f"row {1 + exact.index(False)}: .* does not fit"
        with pytest.raises(ArrayError, match=words):
            labeled.write(Path(folder) / "x.h5", batches)


@pytest.mark.parametrize(
    ("first", "then", "bad"),
    [
        (np.array([1], "i1"), np.array([5, 300]), "row 2: 300 does not fit int8"),
        (np.array([1], "u1"), np.array([5, 256], "u8"), "row 2: 256 does not fit uint8"),
        (np.array([b"a"]), np.array([b"b", b"abc"]), r"row 2: b'abc' does not fit \|S1"),
        (np.array([1], "f2"), np.array([5, 1e9]), r"row 2: 1000000000.0 does not fit float16"),
        (np.array([1], "f4"), np.array([5, 2**53 + 1]), "row 2: 9007199254740993 does not fit"),
        (np.array([0], "M8[s]"), np.array([5, 6]), "convert them"),
        (np.array([0], "M8[s]"), np.array([5, 6], "m8[s]"), "convert them"),
    ],
)
@pytest.mark.parametrize("chunks", [None, 2])
def test_later_batches_do_not_change_on_the_way(
    tmp_path: Path, first: Any, then: Any, bad: str, chunks: Any
) -> None:
    path = tmp_path / "x.h5"
    with pytest.raises(ArrayError, match=bad):
        labeled.write(path, iter([{"x": first}, {"x": then}]), chunks=chunks)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("old", "new", "way"),
    [
        (np.array([b"a"]), np.array(["abc"]), "cast them with .astype('S')"),
        (np.array([b"a"]), np.array([1.5]), "cast them with .astype('S')"),
        (np.array(["a"]), np.array([b"abc"]), "cast them with .astype(str)"),
        (np.array(["a"]), np.array([1.5]), "cast them with .astype(str)"),
        (np.array([3]), np.array([1.5]), "write all rows with one dtype that holds them"),
        (np.array([3]), np.array(["abc"]), "write all rows with one dtype that holds them"),
        (np.array([1.5]), np.array([1j]), "write all rows with one dtype that holds them"),
        (np.array([True]), np.array([2]), "write all rows with one dtype that holds them"),
    ],
)
def test_no_cast_is_advised_that_loses_values(tmp_path: Path, old: Any, new: Any, way: str) -> None:
    path = labeled.write(tmp_path / "x.h5", {"x": old})
    with pytest.raises(ArrayError, match=re.escape(way)):
        labeled.append(path, {"x": new})


@pytest.mark.parametrize("chunks", [None, 2])
def test_rows_to_append_do_not_wrap_around(tmp_path: Path, chunks: Any) -> None:
    path = tmp_path / "x.h5"
    labeled.write(path, {"x": np.array([1, 2, 3], "i1")}, chunks=chunks)
    with pytest.raises(ArrayError, match="source 'x', row 4: 300 does not fit int8"):
        labeled.append(path, {"x": np.array([7, 300])})
    assert labeled.open_dataset(path)["x"].values.tolist() == [1, 2, 3]

    labeled.append(path, {"x": np.array([7, -128])})

    assert labeled.open_dataset(path)["x"].values.tolist() == [1, 2, 3, 7, -128]


@pytest.mark.parametrize("kind", ["flat", "fuel"])
def test_examples_to_append_do_not_wrap_around(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "x.h5"
    small = [np.arange(3, dtype="i1"), np.arange(2, dtype="i1")]
    labeled.write(path, {"x": small}, {"all": (0, 2)}, ragged=kind)
    with pytest.raises(ArrayError, match="300 does not fit int8"):
        labeled.append(path, {"x": [np.array([1, 300]), np.array([2])]})
    assert labeled.verify(path).sound
    assert len(labeled.open_dataset(path)) == 2


@pytest.mark.parametrize("chunks", [None, 2])
@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_times_can_be_appended(tmp_path: Path, kind: str, chunks: Any) -> None:
    path = tmp_path / "x.h5"
    labeled.write(path, {"x": np.array([1, "NaT", 3], f"{kind}[s]")}, chunks=chunks)
    labeled.append(path, {"x": np.array([4], f"{kind}[ms]")})

    found = labeled.open_dataset(path)["x"].values

    assert found.dtype == f"{kind}[ns]"
    expected = np.array([1_000, "NaT", 3_000, 4], f"{kind}[ms]")
    np.testing.assert_array_equal(found, expected)


@example(">u2", [0, 0], None, "dask")
@given(
    st.sampled_from([">u2", ">f8", ">c8", "<u2"]),
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.integers(1, 6) | st.none(),
    st.sampled_from(["batches", "dask", "appended"]),
)
def test_values_keep_their_byte_order_across_blocks(
    dtype: str, lengths: list[int], chunks: int | None, kind: str
) -> None:
    values = np.arange(1, 1 + sum(lengths)).astype(dtype)
    parts = np.split(values, np.cumsum(lengths)[:-1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.h5"
        if kind == "batches":
            labeled.write(path, [{"x": part} for part in parts], chunks=chunks)
        elif kind == "dask":
            blocks = [da.from_array(part, chunks=-1) for part in parts]
            labeled.write(path, {"x": da.concatenate(blocks).astype(dtype)}, chunks=chunks)
        else:
            labeled.write(path, {"x": parts[0]}, chunks=chunks)
            for part in parts[1:]:
                labeled.append(path, {"x": part})
        with h5py.File(path) as f:
            np.testing.assert_array_equal(f["x"][:], values)
            assert f["x"].dtype == dtype
        np.testing.assert_array_equal(labeled.open_dataset(path)["x"].values, values)
        assert labeled.verify(path).sound


WHEN = np.array(["2020-01-01", "NaT", "2021-05-05T01:02:03.000000004", "1890-02-03"] * 3, "M8[ns]")
LONG = (np.arange(12) * 1000).astype("m8[us]")
LONG[3] = "NaT"


@pytest.mark.parametrize(
    ("rows", "meant"),
    [
        ((2, 9), np.arange(2, 9)),
        ([5, 1, 3], np.array([5, 1, 3])),
        (np.arange(12) % 2 == 0, np.arange(0, 12, 2)),
        ({"when": (0, 4), "long": [3, 2, 1, 0]}, None),
        ({"long": [7]}, None),
    ],
)
@pytest.mark.parametrize("chunks", [None, 5])
def test_times_are_times_beside_splits(tmp_path: Path, rows: Any, meant: Any, chunks: Any) -> None:
    by = rows if isinstance(rows, dict) else {"when": rows, "long": rows}
    expected = {"when": WHEN, "long": LONG.astype("m8[ns]")}
    path = labeled.write(
        tmp_path / "x.h5",
        {"when": WHEN, "long": LONG},
        {"some": rows, "none": []},
        coords={"at": ("batch", WHEN)},
        chunks=chunks,
    )
    repacked = labeled.repack(path, tmp_path / "y.h5", compression="gzip")
    copied = labeled.convert(path, tmp_path / "z.h5")
    for each in (path, repacked, copied):
        dataset = labeled.open_dataset(each)
        found = dataset.split("some")
        assert found.sources == tuple(sorted(by))
        for name in by:
            asked = np.r_[slice(*by[name])] if isinstance(by[name], tuple) else by[name]
            wanted = expected[name][asked if meant is None else meant]
            assert found[name].dtype == wanted.dtype
            np.testing.assert_array_equal(found[name].values, wanted)
            served = [batch[name].values for batch in found.batches(2, shuffle=False)]
            np.testing.assert_array_equal(np.concatenate(served), wanted)
        np.testing.assert_array_equal(dataset["when"].coords["at"].values, WHEN)
        stored = labeled.open_dataset(each, decode_cf=False)["when"]
        assert stored.dtype == np.int64
        assert labeled.verify(each).sound
    with xr.open_dataset(path, engine="h5netcdf") as plain:
        np.testing.assert_array_equal(plain["when"].values, WHEN)


def test_attributes_mean_the_same_with_and_without_splits(tmp_path: Path) -> None:
    """But in files of other writers with a split table, who mean no CF."""
    packing = {"scale_factor": 2.0, "_FillValue": 1}
    options = {"source_attrs": {"x": packing}}
    whole = labeled.write(tmp_path / "whole.h5", {"x": np.arange(3)}, **options)
    path = labeled.write(tmp_path / "x.h5", {"x": np.arange(3)}, {"a": (0, 3)}, **options)
    for each in (whole, path):
        np.testing.assert_array_equal(labeled.open_dataset(each)["x"].values, [0, np.nan, 4])
        raw = labeled.open_dataset(each, decode_cf=False)["x"]
        assert raw.dtype == np.int64
        assert raw.attrs["scale_factor"] == 2.0
    with h5py.File(path, "a") as f:
        del f.attrs["labeled_version"]
    assert labeled.open_dataset(path)["x"].values.tolist() == [0, 1, 2]


def test_times_beyond_nanoseconds_are_refused(tmp_path: Path) -> None:
    far = np.array(["2020-01-01", "3000-01-01"], "M8[s]")
    with pytest.raises(ArrayError, match=r"3000-01-01T00:00:00 does not fit datetime64\[ns\]"):
        labeled.write(tmp_path / "x.h5", {"x": far})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["a\0b", b"a\0b", "\ud800"])
def test_texts_that_hdf5_cannot_hold_are_named(tmp_path: Path, text: Any) -> None:
    with pytest.raises(ArrayError, match="source 'x', row 1 holds"):
        labeled.write(tmp_path / "x.h5", {"x": np.array([["a", "b"], ["c", text]], object)})
    if isinstance(text, str):
        with pytest.raises(ArrayError, match="attribute 'k' of the file is"):
            labeled.write(tmp_path / "x.h5", {"x": np.arange(3)}, attrs={"k": text})
        names = {"name": ("batch", np.array(["a", text], object))}
        with pytest.raises(ArrayError, match="coordinate 'name', row 1 holds"):
            labeled.write(tmp_path / "x.h5", {"x": np.arange(2)}, coords=names)
    assert not list(tmp_path.iterdir())


def test_texts_that_were_no_utf8_can_be_written_again(tmp_path: Path) -> None:
    texts = np.array([["a", b"\xff"], ["\u4e2d", ""]], object, order="F")
    labeled.write(tmp_path / "x.h5", {"x": texts}, attrs={"k": b"\xfe"})
    labeled.repack(tmp_path / "x.h5", tmp_path / "y.h5", chunks=1)
    for name in ("x.h5", "y.h5"):
        dataset = labeled.open_dataset(tmp_path / name)
        assert dataset["x"].values.tolist() == [["a", "\udcff"], ["\u4e2d", ""]]
        assert dataset.attrs["k"] == "\udcfe"
        assert labeled.verify(tmp_path / name).sound


def test_names_that_were_no_utf8_can_be_written_again(tmp_path: Path) -> None:
    path, name = tmp_path / "x.h5", "caf\udce9"
    given = {"x": np.arange(4)}
    how: Any = {"attrs": {name: 1}, "source_attrs": {"x": {name: 2}}}
    labeled.write(path, given, {name: [2, 1]}, **how)
    with h5py.File(path, "r+") as file:
        assert (file.attrs[b"caf\xe9"], file["x"].attrs[b"caf\xe9"]) == (1, 2)
        table = file.attrs["split"]
        table["comment"] = b"\xe9"
        file.attrs["split"] = table
    labeled.write_splits(path, {"v\udce9": (3, 4)})
    labeled.repack(path, tmp_path / "y.h5")
    for each in (path, tmp_path / "y.h5"):
        dataset = labeled.open_dataset(each)
        assert dataset.splits == {name: {"x": 2}, "v\udce9": {"x": 1}}
        assert dataset.split(name)["x"].values.tolist() == [2, 1]
        with h5py.File(each) as file:
            assert file.attrs["split"]["comment"].tolist() == [b"\xe9", b"."]


def test_names_that_hdf5_cannot_hold_are_named(tmp_path: Path) -> None:
    path, bad = labeled.write(tmp_path / "x.h5", {"x": np.arange(4)}, {"a": (0, 2)}), "a\ud800"
    given, words = {"x": np.zeros((3, 2))}, r"'a\\ud800', which is not valid Unicode"
    with pytest.raises(SplitError, match=words):
        labeled.write_splits(path, {bad: [2, 1]})
    with pytest.raises(SplitError, match=words):
        labeled.append(path, {"x": np.arange(2)}, split=bad)
    hows: list[Any] = [{"splits": {bad: (0, 1)}}, {"attrs": {bad: 1}}]
    hows += [
        {"dims": {"x": ("a", bad)}},
        {"dims": {"x": ("a", "b")}, "coords": {bad: ("b", [1, 2])}},
    ]
    for how in hows:
        with pytest.raises(LabeledError, match=words):
            labeled.write(tmp_path / "y.h5", given, **how)
    with h5py.File(path, "r+") as file:
        file[b"caf\xe9"] = np.arange(4)
        del file.attrs["split"]
    for call in (labeled.repack, labeled.convert):
        with pytest.raises(ArrayError, match=r"'caf\\udce9' cannot name a source: .* rename it"):
            call(path, tmp_path / "y.h5")


@pytest.mark.parametrize(
    "value",
    [2**70, np.datetime64("2020-01-01"), np.datetime64("2020-01-01", "ns"), dt.date(2020, 1, 1)],
)
def test_attributes_that_hdf5_cannot_hold_are_named(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ArrayError, match="attribute 'k' of the file is"):
        labeled.write(tmp_path / "x.h5", {"x": np.arange(3)}, attrs={"k": value})
    path = labeled.write(tmp_path / "x.h5", {"x": np.arange(3)}, attrs={"k": np.str_("text")})
    assert labeled.open_dataset(path).attrs["k"] == "text"


@given(st.lists(st.lists(st.integers(-(2**63), 2**64 - 1), min_size=1), min_size=1))
@example([[1, 2**64 - 1]])
@example([[1], [2**64 - 1, 1]])
@example([[-1, 2**64 - 1]])
def test_integers_of_attributes_are_stored_exactly_or_refused(
    tmp_path_factory: Any, rows: Any
) -> None:
    path, whole = tmp_path_factory.mktemp("w") / "x.h5", [one for row in rows for one in row]
    attrs = {"rows": rows, "whole": tuple(whole)}
    if min(whole) < 0 and max(whole) >= 2**63:
        with pytest.raises(ArrayError, match="attribute 'rows' of the file is"):
            labeled.write(path, {"x": np.arange(3)}, attrs=attrs)
        return
    with h5py.File(labeled.write(path, {"x": np.arange(3)}, attrs=attrs)) as file:
        assert [list(map(int, row)) for row in file.attrs["rows"]] == rows
        assert list(map(int, file.attrs["whole"])) == whole


@pytest.mark.parametrize("kind", [int, np.int64])
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), st.floats(allow_nan=False))
@example([2**53 + 1], 0.5)
@example([3], 0.5)
def test_integers_among_floats_are_stored_exactly_or_refused(
    tmp_path_factory: Any, kind: Any, integers: list[int], one: float
) -> None:
    path, values = tmp_path_factory.mktemp("w") / "x.h5", [*map(kind, integers), one]
    attrs = {"whole": values, "rows": [values, [one]]}
    if any(float(n) != n for n in integers):
        for name in attrs:
            with pytest.raises(ArrayError, match=f"attribute {name!r} .* holds exactly; turn it"):
                labeled.write(path, {"x": np.arange(3)}, attrs={name: attrs[name]})
        return
    with h5py.File(labeled.write(path, {"x": np.arange(3)}, attrs=attrs)) as file:
        assert file.attrs["whole"].tolist() == file.attrs["rows"][0].tolist() == [*integers, one]


def test_what_cannot_be_written_is_said_in_words_of_writing(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with pytest.raises(ArrayError, match="40 axes, and HDF5 knows 32"):
        labeled.write(path, {"x": np.zeros((1,) * 40)})
    with pytest.raises(DimsError, match=r"twice, as axis 1 and axis 2; rename one, with dims="):
        labeled.write(path, {"x": np.zeros((2, 2, 2))}, dims={"x": ("batch", "a", "a")})
    levels = pd.MultiIndex.from_product([[1, 2], ["u", "v"]], names=["a", "b"])
    table = xr.Dataset({"x": ("s", np.arange(4))})
    table = table.assign_coords(xr.Coordinates.from_pandas_multiindex(levels, "s"))
    with pytest.raises(ArrayError, match=r"MultiIndex.*reset_index\('s'\)"):
        labeled.write(path, table)
    assert not list(tmp_path.iterdir())
    labeled.write(path, table.reset_index("s"))
    assert labeled.open_dataset(path)["x"].coords["b"].values.tolist() == ["u", "v", "u", "v"]
