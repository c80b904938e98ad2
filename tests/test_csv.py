"""Delimited text: compared with Python's own csv module and float(), row by row."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import tempfile
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_memory import MIB, SCRIPT

import labeled
from labeled.errors import (
    FileChangedError,
    FileFormatError,
    LabeledError,
    LabeledWarning,
    LoaderError,
    MissingExtraError,
    OptionError,
    ReadError,
    UnknownNameError,
)

pyarrow = pytest.importorskip("pyarrow")
pyarrow_csv = pytest.importorskip("pyarrow.csv")

PAD = "p" * 50_000
"""A field so long that a few rows make a block."""


def put(path, text):
    data = text if isinstance(text, bytes) else text.encode()
    Path(path).write_bytes(gzip.compress(data, 1) if str(path).endswith(".gz") else data)
    return str(path)


def values_of(path, **options):
    dataset = labeled.open_dataset(path, **options)
    return {name: dataset[name].values.tolist() for name in dataset.sources}


finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(finite, st.integers(-(2**62), 2**62), words), min_size=1, max_size=30),
    st.sampled_from([",", ";", "\t", "|"]),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.data(),
)
def test_written_then_opened_is_equal(rows, delimiter, end, zipped, data):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerow(["x", "n", "word", "pad"])
    writer.writerows((repr(x), n, f"w{word}", PAD) for x, n, word in rows)
    with tempfile.TemporaryDirectory() as folder:
        path = put(f"{folder}/a.csv{'.gz' if zipped else ''}", text.getvalue())
        ds = labeled.open_dataset(path, columns="separate", delimiter=delimiter, header=True)
        assert ds.sources == ("n", "pad", "word", "x")
        assert ds["x"].values.tolist() == [x for x, _, _ in rows]  # to the last bit
        assert ds["n"].values.tolist() == [n for _, n, _ in rows]
        assert ds["word"].values.tolist() == [f"w{word}" for _, _, word in rows]
        wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12))
        assert ds.subset(wanted)["x"].values.tolist() == [rows[i][0] for i in wanted]
        assert ds.subset(wanted)["word"].values.tolist() == [f"w{rows[i][2]}" for i in wanted]


@settings(max_examples=150, deadline=None)
@given(st.text('a",\n\r', max_size=30))
@example('5" pipe,"x\n"\n"')
def test_rows_are_cut_where_the_parser_ends_them(tmp_path_factory, text):
    text = "a,b\n" + text.replace("\r", "\r\n")
    path = put(tmp_path_factory.mktemp("csv") / "a.csv", text)
    strings = pyarrow_csv.ConvertOptions(column_types={"a": "string", "b": "string"})
    parsing = pyarrow_csv.ParseOptions(newlines_in_values=True)
    options = {"delimiter": ",", "header": True, "dtype": str, "columns": "separate"}

    def parsed():
        return pyarrow_csv.read_csv(path, convert_options=strings, parse_options=parsing)

    try:
        ds = labeled.open_dataset(path, **options)
        each = [ds.read_rows(name, i, i + 1)[0] for name in "ab" for i in range(ds.n_rows)]
    except LabeledError as error:
        if "close it" not in str(error):  # a quote left open, which the parser may put up with
            with pytest.raises(pyarrow.ArrowInvalid):
                parsed()
        return
    whole = parsed()
    assert each == [*whole["a"].to_pylist(), *whole["b"].to_pylist()]


@pytest.mark.parametrize("noted", [1, 7, 64, 10_000])
def test_rows_are_found_however_few_of_them_are_noted(tmp_path, monkeypatch, noted):
    for name, value in {"MAX_NOTED": noted, "BLOCK_BYTES": 200, "READ_BYTES": 999}.items():
        monkeypatch.setattr(f"labeled.formats.csv.index.{name}", value)
    lines = [f'{i},"{"x" * (i % 37)}\n"' for i in range(1999)]
    path = put(tmp_path / "a.csv", "n,word\n\n" + "\r\n".join(lines))
    ds = labeled.open_dataset(path, columns="separate")
    assert ds["n"].values.tolist() == list(range(1999))
    some = [1998, 0, 777, 1024, 777]
    assert ds.subset(some)["word"].values.tolist() == ["x" * (i % 37) + "\n" for i in some]


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return np.round(rng.standard_normal((n, 4)), 3), rng.integers(0, 10, n)


def numbers(path, values, labels):
    text = io.StringIO()
    text.write("a,b,c,d,label,pad\n")
    for row, label in zip(values.tolist(), labels.tolist(), strict=True):
        text.write(",".join(map(repr, row)) + f",{label},{PAD[:20_000]}\n")
    return put(path, text.getvalue())


def test_a_dataset_of_text_is_one_like_any_other(tmp_path):
    values, labels = table()
    one = numbers(tmp_path / "a.csv", values[:120], labels[:120])
    numbers(tmp_path / "b.csv", values[120:], labels[120:])
    ds = labeled.open_dataset(tmp_path, labels="label").select("features", "labels")
    np.testing.assert_array_equal(ds["features"].values, values)
    again = pickle.loads(pickle.dumps(ds.subset([130, 2, 2])))
    np.testing.assert_array_equal(again["features"].values, values[[130, 2, 2]])
    np.testing.assert_array_equal(ds.isel(feature=[3, 0])["features"].values, values[:, [3, 0]])
    np.testing.assert_array_equal(ds.isel(feature=2)["features"].values, values[:, 2])
    assert ds["features"].attrs["columns"] == ["a", "b", "c", "d"]
    opened = xr.open_dataset(one, engine="labeled", labels="label")
    np.testing.assert_array_equal(opened["labels"].values, labels[:120])
    data, label = put(tmp_path / "x.csv", "1,2\n3,4\n"), put(tmp_path / "y.csv", "7\n8\n")
    side = labeled.open_dataset({"data": data, "label": label})
    assert side.dims == {"data": ("batch", "feature"), "label": ("batch",)}
    numbers(tmp_path / "b.csv", values[120:190], labels[120:190])
    with pytest.raises(FileChangedError):
        ds["features"].compute()


@pytest.mark.parametrize("after", ["", "a,b\n" + "1,x\n" * 2000, "a,b\n" + "1,2,3\n" * 2000])
def test_a_text_that_changes_while_it_is_read_has_changed(tmp_path, monkeypatch, after):
    path = put(tmp_path / "a.csv", "a,b\n" + "1,2\n" * 2000)
    ds, preadv = labeled.open_dataset(path), os.preadv

    def later(*args):
        put(path, after)
        return preadv(*args)

    monkeypatch.setattr(os, "preadv", later)
    with pytest.raises(FileChangedError, match=r"a\.csv.*Open it again"):
        ds.read_rows("features", 1000, 1900)


def test_files_are_joined_by_the_names_of_their_columns(tmp_path):
    ints, floats = put(tmp_path / "a.csv", "x,y\n1,2\n"), put(tmp_path / "b.csv", "x,y\n1.5,2\n")
    both = labeled.open_dataset([ints, floats], columns="separate")
    assert both["x"].values.tolist() == [1, 1.5]
    assert both.dtypes["y"] == np.int64
    yes = put(tmp_path / "yes.csv", "x,y\n9007199254740993,true\n")
    for files in ([no := put(tmp_path / "no.csv", "x,y\n"), yes], [yes, no]):  # one without rows
        joined = labeled.open_dataset(files)
        assert joined["features"].values.tolist() == [[9007199254740993]]
        assert joined["y"].values.tolist() == [True]
    gaps = labeled.open_dataset([ints, put(tmp_path / "gaps.csv", "x,y\n,\n")])
    np.testing.assert_array_equal(gaps["features"], [[1, 2], [np.nan, np.nan]])
    swapped = put(tmp_path / "c.csv", "y,x\n1,2\n")
    with pytest.raises(FileFormatError, match=r"c\.csv' cannot be joined .*columns are 'y', 'x'"):
        labeled.open_dataset([ints, swapped])
    bare = put(tmp_path / "d.csv", "1,2\n3,4\n")
    with pytest.raises(
        FileFormatError, match=r"'column_0', 'column_1', not 'x', 'y'; pass header="
    ):
        labeled.open_dataset([ints, bare])


# what is guessed, and what options say


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.csv", "x;y\n1,5;2\n1,6;3\n", {"features": [[2], [3]], "x": ["1,5", "1,6"]}),
        ("a.tsv", "1\t2\n3\t4\n", {"features": [[1, 2], [3, 4]]}),
        ("a.txt", "  1.5   2\n 10.25  3 \n", {"features": [[1.5, 2], [10.25, 3]]}),
        ("a.txt", "1 2\n \t \n3 4\n", {"features": [[1, 2], [3, 4]]}),
        ("a.csv", "0.5 1\n3 4.25\n", {"features": [[0.5, 1], [3, 4.25]]}),
        ("a.csv", "place\nNew York\nSan Marino\n", {"place": ["New York", "San Marino"]}),
        ("a.csv", "yes\ntrue\nfalse\n", {"yes": [True, False]}),
        ("a.csv", b"\xef\xbb\xbf1,2\r\n\r\n3,4", {"features": [[1, 2], [3, 4]]}),
        ("a.csv", ",a,b\n0,1,3.5\n1,2,4\n", {"column_0": [0, 1], "features": [[1, 3.5], [2, 4]]}),
        ("a.csv", "a,b,\n1,2,\n3,4,\n", {"features": [[1, 2], [3, 4]]}),
        ("a.csv", "1,2,\n3,4,\n", {"features": [[1, 2], [3, 4]]}),
        ("a.csv", "a,,b\n1,2,3\n", {"column_1": [2], "features": [[1, 3]]}),
        ("a.csv", "hello\n", {"column_0": ["hello"]}),
        ("a.csv", "a,b,c\n", {"features": []}),
        ("a.csv", "a,b,c", {"features": []}),
        (
            "a.csv",
            "a,flag,b\n1,True,2.5\n3,False,4\n",
            {"features": [[1, 2.5], [3, 4]], "flag": [True, False]},
        ),
        ("a.csv", "f,n\ntrue,1\n,2\n", {"f": ["true", ""], "features": [[1], [2]]}),
    ],
)
def test_what_is_not_said_is_guessed(tmp_path, name, text, expected):
    assert values_of(put(tmp_path / name, text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "country,2019,2020\nDE,1,2\nFR,3,4\n",
        ",2019,2020,2021\nDE,1.5,2,\nFR,3,4,5\n",
        "id,0,1\n5,0,1\n6,1,2\n",
        "id,name,2019\n5,DE,1\n",
        "x,1\n2,?\n3,\n",
        pd.DataFrame(np.ones((3, 4))).to_csv(index=False),
        pd.DataFrame(np.ones((3, 2), int)).to_csv(),
        pd.DataFrame(np.arange(12).reshape(3, 4)).to_csv(),
        pd.DataFrame(np.arange(40).reshape(4, 10) ** 2).to_csv(index=False),
        pd.DataFrame(np.arange(12).reshape(3, 4), list("abc"), range(1990, 1994)).to_csv(),
    ],
)
def test_numbers_that_name_columns_are_no_values(tmp_path, text):
    names = text.splitlines()[0].split(",")
    found = labeled.open_dataset(put(tmp_path / "a.csv", text), columns="separate")
    assert {*found.sources} == {name or "column_0" for name in names}
    assert found.n_rows == text.count("\n") - 1


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("0,1,2\n3,4,5\n", False),
        ("0,1,2,3,4\n1,0,2,3,4\n9,9,9,9,9\n", True),
        ("0,1,2,3,4\n0,2,4,6,8\n", False),
        ("0 1\n0 2\n1 2\n", True),  # edges of a graph
        ("0,1,2\n0.5,0.9,2\n", True),
        ("2019,2020\n5,6\n", True),
        ("2019,2020,2021\n2018,2020,2031\n", False),
        ("DE,2019,7\nFR,3,4\n", False),
        ("a,0,1\nb,1,0\nc,1,1\n", False),
        ("?,5\n1,6\n", False),
        ("NA,5\n1,6\n", False),
        (",5,6\n1,6,7\n", False),
        ("5kg,1\n2,3\n", False),
        ("0,1,5\n2,3,5\n", False),
        ("0,1,2,3,4,5\n", False),
    ],
)
def test_values_are_no_names(tmp_path, text, is_told):
    path = put(tmp_path / "a.csv", text)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert labeled.open_dataset(path).n_rows == text.count("\n")
    assert ["header=True" in str(one.message) for one in told] == [True] * is_told
    assert labeled.open_dataset(path, header=True).n_rows == text.count("\n") - 1
    assert labeled.open_dataset(path, header=False).n_rows == text.count("\n")


@pytest.mark.parametrize(
    ("text", "options", "expected"),
    [
        ("id;x\n2;-4,5e3\n", {"decimal": ","}, {"features": [[2, -4500]]}),
        ("# by hand\na,b\n1,2\n", {"skip_lines": 1}, {"features": [[1, 2]]}),
        ("a,b\n1,2\n", {"skip_lines": 1, "names": ["p", "q"]}, {"features": [[1, 2]]}),
        ("a b\n", {"delimiter": " ", "header": False}, {"column_0": ["a"], "column_1": ["b"]}),
        ('"b,1\n', {"quote": None}, {"column_0": ['"b'], "features": [[1]]}),
        ("1,2,3\n", {"labels": -1}, {"features": [[1, 2]], "labels": [3]}),
        ("1,2,3\n", {"labels": [0, 2]}, {"features": [[2]], "labels": [[1, 3]]}),
        ("x,y\n1,2\n", {"columns": {"p": ["y", 0]}}, {"p": [[2, 1]]}),
        ("x,y\n07,2\n", {"columns": "separate", "dtype": str}, {"x": ["07"], "y": ["2"]}),
        ("x,y\n1,2\n", {"dtype": {"x": str}}, {"features": [[2]], "x": ["1"]}),
    ],
)
def test_what_is_said_holds(tmp_path, text, options, expected):
    assert values_of(put(tmp_path / "a.csv", text), **options) == expected


def test_missing_values(tmp_path):
    path = put(tmp_path / "a.csv", "x,y\n1,?\nNA,2\n")
    np.testing.assert_array_equal(values_of(path, missing=["?", "NA"])["features"][1], [np.nan, 2])
    assert values_of(path)["y"] == ["?", "2"]
    blanks = put(tmp_path / "b.txt", "x  y z\n1 2 3\n4 NA  6\n")  # a table of numbers, too
    np.testing.assert_array_equal(values_of(blanks)["features"], [[1, 2, 3], [4, np.nan, 6]])


def test_dtypes(tmp_path):
    path = put(tmp_path / "a.csv", "a,b\n1,2\n")
    assert labeled.open_dataset(path).dtypes["features"] == np.int64
    assert labeled.open_dataset(path, dtype=">f4").dtypes["features"] == np.float32
    both = labeled.open_dataset(path, columns={"x": ["a", "b"]}, dtype={"x": "float32"})
    assert both.dtypes["x"] == np.float32
    for dtype in ("float16", "longdouble", {"a": "float16"}, "m8[s]"):
        with pytest.raises(LoaderError, match="text is read as integers, float32, float64"):
            labeled.open_dataset(path, dtype=dtype)


def test_integers_stay_integers(tmp_path):
    ids = [2**64 - 1, 10000169349117863715, 7]
    lines = "".join(f"{one},{-i},{i}.5\n" for i, one in enumerate(ids))
    found = values_of(put(tmp_path / "a.csv", "id,n,x\n" + lines))
    assert found == {"id": ids, "features": [[-i, i + 0.5] for i in range(3)]}
    alike = put(tmp_path / "b.csv", "".join(f"{one},{one - 1}\n" for one in ids))
    assert values_of(alike)["features"] == [[a, a - 1] for a in ids]
    late = put(tmp_path / "c.csv", "id,n\n" + "".join(f"{one},1\n" for one in [*range(400), 2**63]))
    assert values_of(late)["id"][-1] == 2**63


@pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 - 1, 2**64 - 1])
def test_integers_are_never_rounded_unasked(tmp_path, large):
    path = put(tmp_path / "a.csv", f"id,x,n\n{large},0.5,1\n7,1.5,2\n")
    assert values_of(path) == {"id": [large, 7], "features": [[0.5, 1], [1.5, 2]]}
    words = rf"line 2 of .* column 'id': it holds {large}, which float64 would round; .*'separate'"
    with pytest.raises(ReadError, match=words):
        labeled.open_dataset(path, columns={"f": ["id", "x"]})["f"].load()
    exact = put(tmp_path / "c.csv", f"id,x\n1,0.5\n{2**60},1.5\n")
    assert values_of(exact, columns={"f": ["id", "x"]})["f"][1] == [2**60, 1.5]
    asked = values_of(path, columns={"f": ["id", "x"]}, dtype={"f": float})["f"]
    assert asked[0] == [float(large), 0.5]
    gaps = put(tmp_path / "b.csv", f"id,n\n{large},1\n,2\n8,\n")
    with pytest.raises(ReadError, match=r"line 2 of .* would round; .*dtype={'id': 'str'}"):
        labeled.open_dataset(gaps, columns="separate")["id"].load()
    assert values_of(gaps, dtype={"id": str})["id"] == [str(large), "", "8"]


@pytest.mark.parametrize("options", [{}, {"columns": "separate"}, {"columns": {"f": ["id", "v"]}}])
def test_the_advice_for_integers_that_would_be_rounded_helps(tmp_path, options):
    path = put(tmp_path / "a.csv", "id,v\n9007199254740993,1\n,2\n")
    source = "f" if "f" in options.get("columns", ()) else "id"
    with pytest.raises(ReadError, match="would round") as told:
        labeled.open_dataset(path, **options)[source].load()
    advised = {"columns": re.findall(r"columns='(\w+)'", str(told.value))[0]}
    dtypes = re.findall(r"dtype={'id': '(\w+)'}", str(told.value))
    assert dtypes == ["str", "float64"]
    text, rounded = (values_of(path, **advised, dtype={"id": dtype})["id"] for dtype in dtypes)
    assert text == ["9007199254740993", ""]
    assert rounded[0] == 2.0**53


@pytest.mark.parametrize("large", [10**20 + 1, -(10**20) - 1, 2**64, "+9007199254740993"])
def test_integers_that_no_dtype_holds_are_text_unless_floats_hold_them(tmp_path, large):
    ids = [str(large), "", "-3"]
    found = values_of(put(tmp_path / "a.csv", "id,x\n" + "".join(f"{one},1\n" for one in ids)))
    if large == 2**64:
        np.testing.assert_array_equal(found["features"], [[2.0**64, 1], [np.nan, 1], [-3, 1]])
    else:
        assert found == {"id": ids, "features": [[1], [1], [1]]}
    floats = put(tmp_path / "b.csv", f"x\n{large}\n0.5\n")
    assert values_of(floats)["x"] == [float(large), 0.5]


def test_dates_and_times_are_times(tmp_path):
    """As the standard library reads them; a missing one is NaT, and `str` leaves text."""
    days = ["2026-11-20", "", "1999-12-31"]
    moments = ["2026-11-20 12:30:00", "2026-11-20T12:30:00.5", "NA"]
    zones = ["2026-11-20T12:30:00Z", "2026-11-20T12:30:00+02:00", ""]
    rows = [
        f"{n}.5,{','.join(one)}" for n, one in enumerate(zip(days, moments, zones, strict=True))
    ]
    path = put(tmp_path / "a.csv", "\n".join(["height,day,moment,zone", *rows]) + "\n")
    ds = labeled.open_dataset(path)
    assert ds["features"].values.tolist() == [[0.5], [1.5], [2.5]]
    for name, texts in (("day", days), ("moment", moments), ("zone", zones)):
        read = [None if t in {"", "NA"} else datetime.fromisoformat(t) for t in texts]
        if name == "zone":
            read = [one and one.astimezone(UTC).replace(tzinfo=None) for one in read]
        assert ds[name].dtype == np.dtype("datetime64[ns]")
        np.testing.assert_array_equal(ds[name].values, np.array(read, "datetime64[ns]"))
    assert ds["zone"].attrs["timezone"] == "UTC"
    assert values_of(path, dtype={"day": str})["day"] == days
    labels = labeled.open_dataset(path, columns={"x": ["day", "moment"]})["x"]
    assert (labels.shape, labels.dtype) == ((3, 2), np.dtype("datetime64[ns]"))


@pytest.mark.parametrize("word", ["9999-12-31T12:30:00Z", "9999-12-31", "12:30:00", "20.11.2026"])
def test_times_that_datetime64_does_not_hold_as_they_are_stay_text(tmp_path, word):
    assert values_of(put(tmp_path / "a.csv", f"when,n\n{word},1\n"))["when"] == [word]
    mixed = put(tmp_path / "b.csv", "when,n\n2026-11-20T12:30:00Z,1\n2026-11-20T12:30:00,1\n")
    assert values_of(mixed)["when"] == ["2026-11-20T12:30:00Z", "2026-11-20T12:30:00"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift-jis", "utf-8"])
def test_text_of_other_encodings(tmp_path, encoding):
    words = ["ソース", "表, 表"] if encoding == "shift-jis" else ["süß", "Ärger, groß"]
    lines = ["grosse,word", *(f'{i}.5,"{word}"' for i, word in enumerate(words))]
    (tmp_path / "a.csv").write_bytes("\n".join(lines).encode(encoding))
    ds = labeled.open_dataset(tmp_path / "a.csv", encoding=encoding, columns="separate")
    assert ds["word"].values.tolist() == words
    assert [batch["word"].values[0] for batch in ds.batches(1, shuffle=True)] in (
        words,
        words[::-1],
    )
    if encoding == "latin-1":
        with pytest.raises(FileFormatError, match=r"not UTF-8: .*; pass .*'latin-1'"):
            labeled.open_dataset(put(tmp_path / "b.csv", "größe,x\n1,2\n".encode("latin-1")))
        path = put(tmp_path / "c.csv", "x,word\n1,no\n2,süß\n".encode("latin-1"))
        with pytest.warns(LabeledWarning, match=r"not UTF-8, as in b'.*s\\xfc.*encoding='latin-1'"):
            assert labeled.open_dataset(path)["word"].values[1] == "s\udcfc\udcdf"


@pytest.mark.parametrize("suffix", ["csv", "csv.gz"])
def test_bytes_that_are_not_utf8_are_reported_with_their_line(tmp_path, suffix):
    lines = [b"n,word", *(b"%d,word number %d" % (n, n) for n in range(300_000))]
    lines[200_000] = b"200000,bad \xff byte"  # between two samples
    path, text = tmp_path / f"a.{suffix}", b"\n".join(lines)
    path.write_bytes(gzip.compress(text, 1) if suffix.endswith("gz") else text)
    with pytest.warns(LabeledWarning, match=r"line 200001 of .*a\.csv.* not UTF-8, as in b'.*bad"):
        ds = labeled.open_dataset(path)
    (row,) = ds.select("word").subset([199_999]).batches(1)
    assert row["word"].values.tolist() == ["bad \udcff byte"]


# what is wrong


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3\n4,5\n", r"line 3 of .* Expected 2 columns, got 1: 3; .*delimiter="),
        ('a,b\n1,"2\n"\n\n3,4,5\n', r"line 5 of .* Expected 2 columns, got 3"),
        ('a,b\n1,2\n"3,4\n5,6\n', r"opens a quote after byte 8 that is not closed"),
        (b"a,b\n1,2\0\n", r"is not text: byte 7 is zero"),
        ("a,b\n1,2\n".encode("utf-16"), r"is not text: byte 3 is zero; save UTF-16 as UTF-8"),
        ("a,b\r1,2\r", "ends its lines by CR alone"),
        ("\n\n", r"holds no row of text"),
        ("a,a\n1,2\n", r"columns \['a'\] of .* have the same names; pass names="),
        (b"\x1f\x8b\x08" + b"\0" * 20, r"cannot be unpacked"),
        (
            "1," * (1 << 20) + "2\n",
            "no row of text in its first 2,097,152 bytes",
        ),
        ('a,b\n1,"2\n' + "3,4\n" * 2_200_000, r"\(or has a row of more than \d+ bytes\); close"),
    ],
)
def test_text_that_is_wrong_is_refused_when_opened(tmp_path, text, words):
    with pytest.raises(FileFormatError, match=words):
        labeled.open_dataset(put(tmp_path / "a.csv", text))


def test_more_columns_than_are_parsed_are_refused_by_their_number(tmp_path):
    path = put(tmp_path / "a.csv", "," * (1 << 17) + "2\n")
    with pytest.raises(FileFormatError, match="more than the 131,072 columns that are parsed"):
        labeled.open_dataset(path, delimiter=",")


def test_damage_between_the_samples_names_its_line(tmp_path):
    lines = ["x,y,pad", *(f"{i},{i},{PAD}" for i in range(400))]
    broken = {
        153: (f"152,abc,{PAD}", "line 154 .* column 'y': conversion error to int64: .*'abc'"),
        157: ("3", "line 158 .*Expected 3 columns, got 1"),
        171: (f"7,,{PAD}", "line 172 .* column 'y' holds nothing.*dtype={'y': 'float64'}"),
        175: (f"{2**53 + 1},x,{PAD}", "line 176 .*'x'"),
    }
    for number, (text, words) in broken.items():
        given = [*lines[:number], text, *lines[number + 1 :]]
        path = put(tmp_path / f"{number}.csv", "\n".join(given))
        ds = labeled.open_dataset(path).select("features")
        assert ds.subset([number])["features"].values.tolist() == [[number] * 2]  # the rest is read
        joined = labeled.open_dataset([path, path]).subset([3, 400 + number - 1])
        with pytest.raises(ReadError) as caught:
            joined.load()
        assert caught.value.row == 400 + number - 1
        for ask in (ds["features"], ds.subset([3, number - 1, number + 4])["features"]):
            with pytest.raises(ReadError, match=f"source 'features' in .*{words}"):
                ask.compute()
        with pytest.warns(LabeledWarning, match="1 row is left out"):
            kept = [b.rows for b in ds.batches(100, memory="24 MiB", errors="skip")]
        assert set(range(400)) - set(np.concatenate(kept).tolist()) == {number - 1}


def test_options_that_mean_nothing_are_refused(tmp_path):
    path = put(tmp_path / "a.csv", "a,b\n1,2\n3,4\n")
    for options, error, words in (
        ({"delimiter": ";;"}, LoaderError, "delimiter=';;': give one ASCII character, or 'whites"),
        ({"decimal": ",", "delimiter": ","}, LoaderError, "decimal=',' is the delimiter, too"),
        ({"decimal": None}, LoaderError, "decimal=None must be text"),
        ({"labels": "c"}, UnknownNameError, "labels= names column 'c', .*there are: 'a', 'b'"),
        ({"columns": {"x": 9}}, UnknownNameError, "columns= names column 9"),
        ({"columns": "rows"}, LoaderError, "columns='rows': give 'matrix', 'separate'"),
        ({"columns": {"x": []}}, LoaderError, "columns= of source 'x' names no column"),
        ({"dtype": {"q": "f4"}}, UnknownNameError, "dtype= names 'q', which is not a column"),
        (
            {"names": ["x"]},
            FileFormatError,
            "line 2 of .* Expected 1 columns, got 2.* check .*names=",
        ),
        ({"names": "x"}, LoaderError, r"names='x' is one word; give a list, \['x'\]"),
        ({"skip_lines": -1}, LoaderError, "skip_lines=-1 must be at least 0"),
        ({"skip_lines": 9}, FileFormatError, "has no line after the skip_lines=9 first"),
        ({"encoding": "klingon"}, LoaderError, "unknown encoding"),
    ):
        with pytest.raises(error, match=words):
            labeled.open_dataset(path, **options)
    text = put(tmp_path / "b.csv", "a,word,flag\n1,x,true\n")
    for names in (["a", "word"], ["a", "flag"]):
        with pytest.raises(
            FileFormatError, match=r"'x' .*would put text, times, or true and false"
        ):
            labeled.open_dataset(text, columns={"x": names})


def test_a_missing_parser_names_the_extra(tmp_path, monkeypatch):
    for module in ("pyarrow", "pyarrow.csv"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"pip install pyarrow \(the extra 'tables'"):
        labeled.open_dataset(put(tmp_path / "a.csv", "1,2\n3,4\n"))


@pytest.mark.slow
def test_memory_is_bounded_where_rows_grow(tmp_path):
    path = put(tmp_path / "a.csv", "1,a\n" * 60_000 + f"2,{'b' * 200_000}\n" * 60)
    ds = labeled.open_dataset(path, columns="separate")
    assert ds.n_rows == 60_060
    assert len(list(ds.batches(64, memory="64 MiB", threads=0))) == 939
    assert ds.subset([-1])["column_1"].values[0] == "b" * 200_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["numbers.csv", "numbers-idx2-float.gz"])
def test_memory_stays_within_the_promise(tmp_path, name):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 100, (300_000, 16)) / 4
    if name.endswith(".gz"):
        head = bytes([0, 0, 13, 2]) + struct.pack(">2I", *rows.shape)
        put(tmp_path / name, head + rows.astype(">f4").tobytes())
    else:
        lines = "\n".join(",".join(map(str, row)) for row in rows[:1000].tolist()) + "\n"
        put(tmp_path / name, lines * 300)
    options = {"batch_size": 256, "seed": 1, "memory": 16 * MIB, "shuffle": "window"}
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / name), json.dumps(options)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    figures = json.loads(out.stdout)
    assert figures["growth"] <= 16 * MIB
    assert figures["growth"] <= figures["promised"] <= 16 * MIB


def test_the_decimal_point_cuts_no_column_in_two(tmp_path: Path) -> None:
    for head in ("", "x\n"):
        (tmp_path / "a.csv").write_text(head + "1,5\n2,25\n")
        (values,) = labeled.open_dataset(tmp_path / "a.csv", decimal=",").load().loaded.values()
        assert values.tolist() == [1.5, 2.25]


def test_each_column_is_converted_alone_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2.5\n3,4.5\n")
    path = labeled.convert(tmp_path / "a.csv", tmp_path / "a.hdf5", columns="separate")
    ds = labeled.open_dataset(path)
    assert {name: ds[name].values.tolist() for name in ds.sources} == {"a": [1, 3], "b": [2.5, 4.5]}
    with pytest.raises(OptionError, match=r"columns='matrix' means nothing for .*table"):
        labeled.convert(pd.DataFrame({"a": [1]}), tmp_path / "b.hdf5", columns="matrix")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a file without room")
def test_numbers_that_come_twice_name_nothing(tmp_path: Path) -> None:
    assert labeled.open_dataset(put(tmp_path / "a.csv", "a,1,1\n2,3,4\n")).n_rows == 2


def test_no_room_to_unpack_is_an_error_that_says_where(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    (tmp_path / "full").touch()
    full = os.open("/dev/full", os.O_RDWR), str(tmp_path / "full")
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: full)
    with pytest.raises(ReadError, match=r"a\.csv\.gz' takes 8 bytes in .* set TMPDIR"):
        labeled.open_dataset(tmp_path / "a.csv.gz")
