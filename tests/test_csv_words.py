"""What words of delimited text are taken for: names, numbers, dates, text and nothing."""

from __future__ import annotations

import subprocess
import sys
from datetime import datetime

import numpy as np
import pytest
from hypothesis import strategies as st
from text_files import put, values_of

import labeled
from labeled.errors import FileFormatError, LoaderError, ReadError

pytest.importorskip("pyarrow")


words = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


def test_what_is_not_said_is_guessed(tmp_path):
    def opened(name, text, **options):
        return labeled.open_dataset(put(tmp_path / name, text), **options)

    semicolons = opened("a.csv", "x;y\n1,5;2\n1,6;3\n")
    assert semicolons.sources == ("features", "x")  # decimal commas are text
    assert semicolons["x"].values.tolist() == ["1,5", "1,6"]
    assert opened("b.tsv", "1\t2\n3\t4\n")["features"].values.tolist() == [[1, 2], [3, 4]]
    aligned = opened("c.txt", "  1.5   2\n 10.25  3 \n")
    assert aligned["features"].values.tolist() == [[1.5, 2], [10.25, 3]]
    ints = opened("d.csv", "1,2\n3,4\n")
    assert ints.dtypes["features"] == np.int64
    assert opened("e.csv", "1,2\n3,\n")["features"].values[1, 1] != 4
    assert np.isnan(opened("f.csv", "1,2\n3,NA\n")["features"].values[1, 1])
    bools = opened("g.csv", "yes\ntrue\nfalse\n", columns="separate")
    assert bools["yes"].values.tolist() == [True, False]
    grouped = opened("h.csv", "x_0,x_1,y\n1,2,3\n4,5,6\n")
    assert grouped["x"].values.tolist() == [[1, 2], [4, 5]]
    assert grouped["y"].values.tolist() == [3, 6]
    bom = opened("i.csv", b"\xef\xbb\xbf1,2\r\n\r\n3,4")
    assert bom["features"].values.tolist() == [[1, 2], [3, 4]]
    old = opened("j.csv", b"a,b\r1,2\r3,4\r")
    assert old["features"].values.tolist() == [[1, 2], [3, 4]]
    late = opened("k.csv", "n\n" + "1\n" * 200_000 + "2.5\n" + "1\n" * 200_000)
    assert late.n_rows == 400_001


def test_headers_that_lack_their_outermost_names(tmp_path):
    def opened(name, text):
        ds = labeled.open_dataset(put(tmp_path / name, text))
        return {source: ds[source].values.tolist() for source in ds.sources}

    numbered = opened("a.csv", ",a,b\n0,1,3.5\n1,2,4.0\n")  # as pandas writes a table
    assert numbered == {"column_0": [0, 1], "features": [[1, 3.5], [2, 4]]}
    texts = opened("b.csv", ",t\n0,x\n1,y\n")
    assert texts == {"column_0": [0, 1], "t": ["x", "y"]}
    ended = opened("c.csv", "a,b,\n1,2,\n3,4,\n")
    assert ended == {"features": [[1, 2], [3, 4]]}
    assert opened("d.csv", ",x\n5,y\n")["column_1"] == ["x", "y"]  # a row: its number is missing
    assert opened("e.csv", ",2\n3,4\n")["features"][1] == [3, 4]
    inner = opened("f.csv", "a,,b\n1,2,3\n")  # words above numbers alone are names
    assert inner == {"column_1": [2], "features": [[1, 3]]}
    assert opened("h.csv", "x,,u\ny,2,v\n")["column_0"] == ["x", "y"]
    assert opened("g.csv", ",\n1,2\n")["features"][1] == [1, 2]


def test_the_first_line_of_a_spreadsheet_tells_the_delimiter(tmp_path):
    for end in ("\n", "\r\n"):
        text = 'sep=;\na;b\n1;2,0\n3;"4,0,1"\n'.replace("\n", end)
        ds = labeled.open_dataset(put(tmp_path / "a.csv", text))
        assert ds["features"].values.tolist() == [[1], [3]]
        assert ds["b"].values.tolist() == ["2,0", "4,0,1"]
    bad = put(tmp_path / "b.csv", "sep=;\na;b\n1;2\n3\n")
    with pytest.raises(FileFormatError, match=r"line 4 of .* too few fields"):
        labeled.open_dataset(bad)


def test_fractions_behind_a_comma(tmp_path):
    text = "id;x;word\n1;2,5;a\n2;-4,5e3;b,c\n"
    path = put(tmp_path / "a.csv", text)
    assert labeled.open_dataset(path)["x"].values.tolist() == ["2,5", "-4,5e3"]
    ds = labeled.open_dataset(path, decimal=",")
    assert ds["features"].values.tolist() == [[1, 2.5], [2, -4500]]
    assert ds["word"].values.tolist() == ["a", "b,c"]
    alone = labeled.open_dataset(put(tmp_path / "b.csv", "2,5\n3,25\n"), decimal=",")
    assert alone["column_0"].values.tolist() == [2.5, 3.25]
    for options in ({"decimal": ",", "delimiter": ","}, {"decimal": ",,"}, {"decimal": None}):
        with pytest.raises(LoaderError, match="decimal="):
            labeled.open_dataset(path, **options)


@pytest.mark.parametrize("dtype", ["float16", "longdouble", {"a": "float16"}])
def test_floats_that_no_parser_makes_are_refused(tmp_path, dtype):
    path = put(tmp_path / "a.csv", "a,b\n1,2\n")
    with pytest.raises(LoaderError, match=r"float16|longdouble.*float32 or float64"):
        labeled.open_dataset(path, dtype=dtype)
    assert labeled.open_dataset(path, dtype=">f4")["features"].dtype == np.float32


def test_true_and_false_stand_apart_from_numbers(tmp_path):
    text = "a,flag,b\n1,True,2.5\n3,False,4.5\n"
    path = put(tmp_path / "a.csv", text)
    for options in ({}, {"dtype": "float32"}):
        ds = labeled.open_dataset(path, **options)
        assert ds["features"].values.tolist() == [[1, 2.5], [3, 4.5]]
        assert ds["flag"].values.tolist() == [True, False]
    with pytest.raises(FileFormatError, match=r"'x' .*true and false beside others; leave"):
        labeled.open_dataset(path, columns={"x": ["a", "flag"]})
    flags = put(tmp_path / "b.csv", "x_0,x_1\ntrue,false\nfalse,false\n")
    assert labeled.open_dataset(flags)["x"].values.tolist() == [[True, False], [False, False]]


def test_dates_and_times_are_times(tmp_path):
    """As the standard library reads them; a missing one is NaT, and `str` leaves text."""
    days = ["2026-11-20", "", "1999-12-31"]
    moments = ["2026-11-20 12:30:00", "2026-11-20T12:30:00.5", "NA"]
    rows = [
        f"{n}.5,{day},{moment}" for n, (day, moment) in enumerate(zip(days, moments, strict=True))
    ]
    path = put(tmp_path / "a.csv", "\n".join(["height,day,moment", *rows]) + "\n")
    ds = labeled.open_dataset(path)
    assert ds["features"].values.tolist() == [[0.5], [1.5], [2.5]]
    for name, words in (("day", days), ("moment", moments)):
        expected = [
            None if word in {"", "NA"} else datetime.fromisoformat(word).isoformat()
            for word in words
        ]
        np.testing.assert_array_equal(ds[name].values, np.array(expected, "datetime64[ns]"))
        (batch,) = ds.batches(3)
        np.testing.assert_array_equal(batch[name].values, ds[name].values)
    assert labeled.open_dataset(path, dtype={"day": str})["day"].values.tolist() == days
    assert ds.dtypes["day"] == ds.dtypes["moment"] == np.dtype("datetime64[ns]")
    labels = labeled.open_dataset(path, columns={"x": ["day", "moment"]})["x"]
    assert (labels.shape, labels.dtype) == ((3, 2), np.dtype("datetime64[ns]"))
    with pytest.raises(FileFormatError, match=r"'x' .*columns of times beside others; leave"):
        labeled.open_dataset(path, columns={"x": ["height", "day"]})


@pytest.mark.parametrize("word", ["9999-12-31T12:30:00Z", "9999-12-31", "12:30:00", "20.11.2026"])
def test_times_that_datetime64_does_not_hold_as_they_are_stay_text(tmp_path, word):
    ds = labeled.open_dataset(put(tmp_path / "a.csv", f"when,n\n{word},1\n"))
    assert ds["when"].values.tolist() == [word]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt"])
def test_numbers_in_columns_whatever_the_name(tmp_path, suffix):
    values = np.array([[0.5, 1, 2], [3, 4.25, -5]])
    path = tmp_path / f"a.{suffix}"
    np.savetxt(path, values)
    np.testing.assert_array_equal(labeled.open_dataset(path)["features"].values, values)
    texts = put(tmp_path / f"b.{suffix}", "place\nNew York\nSan Marino\n")
    found = labeled.open_dataset(texts, format="csv")["place"]
    assert found.values.tolist() == ["New York", "San Marino"]


def test_integers_too_large_for_int64_stay_what_they_are(tmp_path):
    ids = [2**64 - 1, 10000169349117863715, 7]
    path = put(
        tmp_path / "a.csv", "id,n,x\n" + "".join(f"{one},{-i},{i}.5\n" for i, one in enumerate(ids))
    )
    ds = labeled.open_dataset(path)
    assert ds.sources == ("features", "id")  # float64, which holds the others, would round them
    assert ds["id"].dtype == np.uint64
    assert ds["id"].values.tolist() == ids
    assert ds["features"].values.tolist() == [[-i, i + 0.5] for i in range(3)]
    assert labeled.open_dataset(path, labels="id")["labels"].values.tolist() == ids
    alike = put(tmp_path / "b.csv", "".join(f"{one},{one - 1}\n" for one in ids))
    assert labeled.open_dataset(alike)["features"].values.tolist() == [[a, a - 1] for a in ids]
    for text in ("1e19,2\n3,4\n", "18446744073709551616,2\n3,4\n", "9223372036854775808,2\n-3,4\n"):
        ds = labeled.open_dataset(put(tmp_path / "c.csv", text))
        values = [[float(field) for field in line.split(",")] for line in text.splitlines()]
        assert ds["features"].values.tolist() == values


def test_what_is_said_holds(tmp_path):
    path = put(tmp_path / "a.csv", "# made by hand\nid,x,y,kind\n7,1,2,cat\n8,3,4,dog\n")
    ds = labeled.open_dataset(
        path, skip_lines=1, columns={"point": ["y", 1], "kind": "kind"}, dtype={"point": "float32"}
    )
    assert ds.dtypes["point"] == np.float32
    assert ds["point"].values.tolist() == [[2, 1], [4, 3]]
    assert ds["kind"].values.tolist() == ["cat", "dog"]
    plain = labeled.open_dataset(path, skip_lines=1, dtype=str, columns="separate")
    assert plain["id"].values.tolist() == ["7", "8"]
    named = labeled.open_dataset(path, skip_lines=2, header=False, names=["a", "b", "c", "d"])
    assert named["features"].attrs["columns"] == ["a", "b", "c"]
    bare = put(tmp_path / "b.data", 'a,"b\n"c,d\n')
    unquoted = labeled.open_dataset(bare, format="csv", quote=None, header=False)
    assert unquoted["column_1"].values.tolist() == ['"b', "d"]
    strange = labeled.open_dataset(put(tmp_path / "c.csv", "x\n1\n?\n"), missing=["?"])
    np.testing.assert_array_equal(strange["x"].values, [1, np.nan])  # one column: one value a row


def test_numbers_are_rounded_correctly_also_to_single_precision(tmp_path):
    hard = ["1.00000005960464477539062500001", "8388608.5000000001", "1e-45", "3.4028235e38", "0.1"]
    ds = labeled.open_dataset(
        put(tmp_path / "a.csv", "\n".join(hard)), header=False, columns="separate", dtype="float32"
    )
    # twice rounded, the first two would be 1.0 and 8388608
    exact = np.array([0x3F800001, 0x4B000001, 1, 0x7F7FFFFF, 0x3DCCCCCD], np.uint32)
    np.testing.assert_array_equal(ds["column_0"].values.view(np.uint32), exact)


def test_tables_beside_one_another_have_the_names_given(tmp_path):
    data = put(tmp_path / "data.csv", "1,2\n3,4\n5,6\n")
    label = put(tmp_path / "label.csv", "7\n8\n9\n")
    ds = labeled.open_dataset({"data": data, "label": label})
    assert ds.dims == {"data": ("batch", "feature"), "label": ("batch",)}
    assert ds.subset([2, 0])["label"].values.tolist() == [9, 7]
    assert [b["data"].values.tolist() for b in ds.batches(2)] == [[[1, 2], [3, 4]], [[5, 6]]]


# how text is written


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "iso8859-15", "utf-8"])
@pytest.mark.parametrize("quoted", [False, True])
def test_text_of_other_encodings(tmp_path, encoding, quoted):
    words = [
        "süß",
        "Ärger, groß" if quoted else "Ärger",
        "plain",
        "€" if "8859" in encoding else "é",
    ]
    lines = ["größe,wörter", *(f'{i}.5,"{word}"' for i, word in enumerate(words))]
    (tmp_path / "a.csv").write_bytes("\n".join(lines).encode(encoding))
    ds = labeled.open_dataset(tmp_path / "a.csv", encoding=encoding, columns="separate")
    assert ds.sources == ("größe", "wörter")
    assert ds["wörter"].values.tolist() == words
    for shuffle in (False, True):
        for batch in ds.batches(2, shuffle=shuffle, seed=1):
            assert batch.arrays["wörter"].tolist() == [words[row] for row in batch.rows]
            assert batch.arrays["größe"].tolist() == [row + 0.5 for row in batch.rows]


def test_encodings_that_are_none_or_not_given(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes("größe,x\n1,2\n".encode("latin-1"))
    with pytest.raises(
        FileFormatError, match=r"not UTF-8: b'gr\\xf6\\xdfe,x\\n'; pass .*'latin-1'"
    ):
        labeled.open_dataset(path)
    for encoding, words in [
        ("utf-16", "iconv -f utf-16"),
        ("shift-jis", "of several bytes"),
        ("gbk", "of several bytes"),
        ("cp037", "of several bytes"),
        ("klingon", "unknown encoding"),
        (8, "encoding=8"),
    ]:
        with pytest.raises(LoaderError, match=words):
            labeled.open_dataset(path, encoding=encoding)


@pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 + 1])
def test_integers_of_which_some_are_missing_are_not_rounded(tmp_path, large):
    path = put(tmp_path / "a.csv", f"id,n\n{large},1\n,2\n8,\n")
    found = values_of(path)
    assert found["id"].tolist() == [str(large), "", "8"]
    np.testing.assert_array_equal(found["features"][:, 0], [1, 2, np.nan])
    asked = values_of(path, dtype={"id": float})["features"]
    np.testing.assert_array_equal(asked, [[float(large), 1], [np.nan, 2], [8, np.nan]])


@pytest.mark.parametrize("large", [2**53 + 1, -(2**53) - 1, 2**62 + 1, 2**63 + 1])
def test_integers_that_floats_round_do_not_stand_beside_them(tmp_path, large):
    path = put(tmp_path / "a.csv", f"id,x,n\n{large},0.5,1\n7,1.5,2\n")
    found = values_of(path)
    assert found["id"].tolist() == [large, 7]
    assert found["features"].tolist() == [[0.5, 1], [1.5, 2]]
    dataset = labeled.open_dataset(path, columns={"f": ["id", "x"]})
    words = rf"line 2 of .* '{large}' in column 'id', which float64 would round; .*'separate'"
    with pytest.raises(ReadError, match=words):
        dataset["f"].load()
    asked = values_of(path, columns={"f": ["id", "x"]}, dtype={"f": float})["f"]
    assert asked[0].tolist() == [float(large), 0.5]


@pytest.mark.parametrize("text", ["a,b,c\n", "a,b,c", "\ufeffa;b;c\r\n", '"a","b","c"\n\n'])
def test_a_file_of_nothing_but_names_has_no_rows(tmp_path, text):
    dataset = labeled.open_dataset(put(tmp_path / "a.csv", text))
    assert dataset["features"].shape == (0, 3)
    assert dataset["features"].attrs["columns"] == ["a", "b", "c"]
    assert len(list(dataset.batches(4))) == 0


def test_one_word_is_a_row_of_text(tmp_path):
    assert values_of(put(tmp_path / "a.csv", "hello\n"))["column_0"].tolist() == ["hello"]


def test_times_with_and_without_a_zone_stay_text(tmp_path):
    texts = ["2026-11-20T12:30:00Z", "2026-11-20T12:30:00"]
    found = values_of(put(tmp_path / "a.csv", "t,x\n" + "".join(f"{t},1\n" for t in texts)))
    assert found["t"].tolist() == texts
    path = put(tmp_path / "b.csv", f"t,u\n{texts[0]},{texts[1]}\n")
    with pytest.raises(FileFormatError, match="times with a zone beside times without"):
        labeled.open_dataset(path, columns={"both": ["t", "u"]})


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--numbers"], ["--json"]])
def test_head_shows_bytes_that_are_no_utf_8(tmp_path, words):
    path = tmp_path / "a.csv"
    path.write_bytes(b"id,text\n1,w\xf6rd\n2,b\n")
    ran = subprocess.run(
        [sys.executable, "-m", "labeled", "head", path, *words], capture_output=True, timeout=60
    )
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert rb"w\udcf6rd" in ran.stdout
