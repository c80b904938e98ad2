"""Delimited text: compared with Python's own csv module and float(), row by row."""

from __future__ import annotations

import csv
import io
import json
import pickle
import struct
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from time import process_time

import numpy as np
import pytest
import xarray as xr
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_memory import MIB, SCRIPT
from text_files import put, values_of

import labeled
from labeled.errors import (
    FileChangedError,
    FileFormatError,
    LabeledWarning,
    LoaderError,
    MissingExtraError,
    OptionError,
    ReadError,
    UnknownNameError,
)
from labeled.formats.csv import index as indexing
from labeled.formats.csv.index import LF, lines_of

pytest.importorskip("pyarrow")


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few rows, so that small files have many."""
    monkeypatch.setattr(indexing, "BLOCK_BYTES", 64)
    monkeypatch.setattr(indexing, "READ_BYTES", 100)
    indexing.row_index.cache_clear()
    yield
    indexing.row_index.cache_clear()


finite = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=8)


@pytest.mark.usefixtures("small_blocks")
@settings(max_examples=40, deadline=None)
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
    writer.writerow(["x", "n", "word"])
    writer.writerows((repr(x), n, f"w{word}") for x, n, word in rows)
    with tempfile.TemporaryDirectory() as folder:
        path = put(f"{folder}/a.csv{'.gz' if zipped else ''}", text.getvalue())
        ds = labeled.open_dataset(path, columns="separate", delimiter=delimiter, header=True)
        assert ds.sources == ("n", "word", "x")
        assert ds["x"].values.tolist() == [x for x, _, _ in rows]  # to the last bit
        assert ds["n"].values.tolist() == [n for _, n, _ in rows]
        assert ds["word"].values.tolist() == [f"w{word}" for _, _, word in rows]
        wanted = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12))
        assert ds.subset(wanted)["x"].values.tolist() == [rows[i][0] for i in wanted]
        assert ds.subset(wanted)["word"].values.tolist() == [f"w{rows[i][2]}" for i in wanted]


def by_hand(text, last):
    """Cut text into rows byte by byte."""
    rows, begin, quoted, field = [], 0, False, True
    i = 0
    while i < len(text):
        one = text[i : i + 1]
        if quoted:
            if one == b'"' and text[i + 1 : i + 2] == b'"':
                i += 1
            elif one == b'"':
                quoted = False
        elif one == b'"' and field:
            quoted = True
        elif one == b"\n":
            rows.append((begin, i + 1))
            begin = i + 1
        field = one in (b",", b"\n", b"\r") and not quoted
        i += 1
    rest = begin
    if last and not quoted and begin < len(text):
        rows.append((begin, len(text)))
        rest = len(text)
    return [(a, b) for a, b in rows if text[a:b] not in (b"\n", b"\r\n", b"\r")], rest


@settings(max_examples=400, deadline=None)
@given(st.text('a",\n\r', max_size=30), st.booleans())
@example('5" pipe,"x\n"\n"', True)
def test_rows_begin_where_a_walk_by_hand_says(text, last):
    data = text.encode()
    found = lines_of(np.frombuffer(data, np.uint8), ord('"'), ord(","), LF, last)
    rows, rest = by_hand(data, last)
    assert list(zip(found.starts.tolist(), found.ends.tolist(), strict=True)) == rows
    assert found.rest == rest


def table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return np.round(rng.standard_normal((n, 4)), 3), rng.integers(0, 10, n)


def numbers(path, values, labels, header=True):
    text = io.StringIO()
    if header:
        text.write("a,b,c,d,label\n")
    for row, label in zip(values.tolist(), labels.tolist(), strict=True):
        text.write(",".join(map(repr, row)) + f",{label}\n")
    return put(path, text.getvalue())


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("shuffle", [False, True, "full", "window"])
def test_parts_hold_every_row_once_and_epochs_resume(tmp_path, ending, shuffle):
    values, labels = table()
    ds = labeled.open_dataset(numbers(tmp_path / f"a.csv{ending}", values, labels), labels="label")
    assert ds.dims == {"features": ("batch", "feature"), "labels": ("batch",)}
    options = {"shuffle": shuffle, "seed": 3, "memory": "8 MiB"}
    seen = []
    for index in range(3):
        for batch in ds.batches(16, shard=(index, 3), **options):
            np.testing.assert_array_equal(batch["features"], values[batch.rows])
            np.testing.assert_array_equal(batch["labels"], labels[batch.rows])
            seen += batch.rows.tolist()
    assert sorted(seen) == list(range(200))
    loader = ds.batches(16, **options)
    live = iter(loader)
    for _ in range(4):
        next(live)
    state = loader.state_dict()
    rest = [batch.rows.tolist() for batch in live]
    fresh = ds.batches(16, **options)
    fresh.load_state_dict(state)
    assert [batch.rows.tolist() for batch in fresh] == rest


def test_a_dataset_of_text_is_one_like_any_other(tmp_path):
    values, labels = table()
    one = numbers(tmp_path / "a.csv", values[:120], labels[:120])
    two = numbers(tmp_path / "b.csv", values[120:], labels[120:])
    ds = labeled.open_dataset(tmp_path, labels=-1)
    assert ds.files.paths == (one, two)
    np.testing.assert_array_equal(ds["features"].values, values)
    again = pickle.loads(pickle.dumps(ds.subset([130, 2, 2])))
    np.testing.assert_array_equal(again["features"].values, values[[130, 2, 2]])
    np.testing.assert_array_equal(ds.isel(feature=[3, 0])["features"].values, values[:, [3, 0]])
    np.testing.assert_array_equal(ds.isel(feature=2)["features"].values, values[:, 2])
    assert ds["features"].attrs["columns"] == ["a", "b", "c", "d"]
    assert "text" in repr(ds)
    loaded = ds.load()
    np.testing.assert_array_equal(loaded["labels"].values, labels)
    side = labeled.open_dataset({"x": one, "y": two.replace("b.csv", "a.csv")}, labels=None)
    assert side.sources == ("x", "y")
    numbers(tmp_path / "b.csv", values[120:190], labels[120:190])
    with pytest.raises(FileChangedError):
        ds["features"].compute()


def test_files_are_joined_by_the_names_of_their_columns(tmp_path):
    ints, floats = put(tmp_path / "a.csv", "x,y\n1,2\n"), put(tmp_path / "b.csv", "x,y\n1.5,2\n")
    both = labeled.open_dataset([ints, floats], columns="separate")
    assert both["x"].values.tolist() == [1, 1.5]
    assert both.dtypes["y"] == np.int64
    swapped = put(tmp_path / "c.csv", "y,x\n1,2\n")
    with pytest.raises(FileFormatError, match=r"c\.csv' cannot be joined .*columns are 'y', 'x'"):
        labeled.open_dataset([ints, swapped])
    bare = put(tmp_path / "d.csv", "1,2\n3,4\n")
    with pytest.raises(
        FileFormatError, match=r"'column_0', 'column_1', not 'x', 'y'; pass header="
    ):
        labeled.open_dataset([ints, bare])


@pytest.mark.parametrize("header", ["", "text,label\n"])
def test_fields_longer_than_pythons_reader_takes(tmp_path, header):
    words = 'x, y; "z"\n' * 20_000
    text = header + '"{}",1\nshort,2\n'.format(words.replace('"', '""'))
    ds = labeled.open_dataset(put(tmp_path / "a.csv", text))
    first = ds.sources[0] if header == "" else "text"
    assert ds[first].values.tolist() == [words, "short"]
    assert ds["features"].values.tolist() == [[1], [2]]


@pytest.mark.usefixtures("small_blocks")
def test_what_is_no_time_between_times_names_its_line(tmp_path):
    lines = ["day,n", *(f"2026-11-20,{i}" for i in range(4000))]
    lines[1503] = "9999-12-31,1"  # far from the rows that are looked at
    ds = labeled.open_dataset(put(tmp_path / "a.csv", "\n".join(lines)))
    words = "line 1504 .*'9999-12-31' in column 'day', which is not datetime64.*dtype={'day': str}"
    with pytest.raises(ReadError, match=words):
        ds["day"].compute()
    asked = labeled.open_dataset(put(tmp_path / "b.csv", "day\nsoon\n"), dtype="datetime64[s]")
    assert asked["day"].dtype == object
    with pytest.raises(ReadError, match="'soon' in column 'day', which is not datetime64"):
        labeled.open_dataset(tmp_path / "b.csv", dtype={"day": "datetime64"}).load()


@pytest.mark.usefixtures("small_blocks")
def test_large_integers_anywhere_in_a_column_tell_its_dtype(tmp_path):
    ids = [*range(400), 2**63, *range(400)]
    path = put(tmp_path / "a.csv", "id,n\n" + "".join(f"{one},1\n" for one in ids[:401]))
    other = put(tmp_path / "b.csv", "id,n\n" + "".join(f"{one},1\n" for one in ids[401:]))
    assert labeled.open_dataset([path, other])["id"].values.tolist() == ids
    put(other, "id,n\n4,1\n-5,1\n")
    ds = labeled.open_dataset([path, other])
    with pytest.raises(
        ReadError, match=r"line 3 of .*b.csv' has '-5' in column 'id', which is not uint64"
    ):
        ds["id"].compute()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3\n4,5\n", r"line 3 of .* has too few fields: 1, where 2 columns .*'a', 'b'"),
        ('a,b\n1,"2\n"\n\n3,4,5\n', r"line 5 of .* has too many fields: 3, where 2"),
        ('a,b\n1,2\n"3,4\n5,6\n', r"opens a quote after byte 8 that is not closed"),
        (b"a,b\n1,2\0\n", r"is not text: byte 7 is zero"),
        ("a,b\n1,2\n".encode("utf-16"), r"is text in UTF-16; save it as UTF-8"),
        ("\n\n", r"holds no row of text"),
        ("a,a\n1,2\n", r"columns \['a'\] of .* have the same names; pass names="),
        (b"\x1f\x8b\x08" + b"\0" * 20, r"cannot be unpacked"),
    ],
)
def test_text_that_is_wrong_is_refused_when_opened(tmp_path, text, words):
    with pytest.raises(FileFormatError, match=words):
        labeled.open_dataset(put(tmp_path / "a.csv", text))


@pytest.mark.usefixtures("small_blocks")
def test_damage_between_the_samples_names_its_line(tmp_path):
    lines = ["x,y", *(f"{i},{i}" for i in range(4000))]
    broken = {
        1503: ("1502,abc", "line 1504 .*'abc' in column 'y', which is not int64"),
        1507: ("3", "line 1508 .*too few fields: 1"),
        1511: ("7,", r"line 1512 .*nothing in column 'y'.*dtype={'y': 'float64'}"),
    }
    for number, (text, words) in broken.items():
        path = put(
            tmp_path / f"{number}.csv", "\n".join([*lines[:number], text, *lines[number + 1 :]])
        )
        ds = labeled.open_dataset(path)
        assert ds.subset([7])["features"].values.tolist() == [[7, 7]]  # the rest can be read
        joined = labeled.open_dataset([path, path]).subset([3, 4000 + number - 1])
        with pytest.raises(ReadError) as caught:
            joined.load()
        assert caught.value.row == 4000 + number - 1
        for ask in (ds["features"], ds.subset([3, number - 1, number + 4])["features"]):
            with pytest.raises(ReadError, match=f"source 'features' in .*{words}"):
                ask.compute()
        with pytest.warns(LabeledWarning, match="1 rows are left out"):
            kept = [b.rows for b in ds.batches(100, memory="8 MiB", errors="skip")]
        assert set(range(4000)) - set(np.concatenate(kept).tolist()) == {number - 1}


def test_options_that_mean_nothing_are_refused(tmp_path):
    path = put(tmp_path / "a.csv", "a,b\n1,2\n3,4\n")
    for options, error, words in (
        ({"delimeter": ";"}, OptionError, "no option 'delimeter'; did you mean 'delimiter'"),
        ({"delimiter": ";;"}, LoaderError, "delimiter=';;': give one ASCII character, or 'whites"),
        ({"labels": "c"}, UnknownNameError, "labels= names column 'c', .*there are: 'a', 'b'"),
        ({"columns": {"x": 9}}, UnknownNameError, "columns= names column 9"),
        ({"columns": "rows"}, LoaderError, "columns='rows': give 'matrix', 'separate'"),
        ({"dtype": {"q": "f4"}}, UnknownNameError, "dtype= names 'q', which is not a column"),
        ({"dtype": "m8[s]"}, LoaderError, "text is read as numbers, bool, datetime64 or str"),
        ({"names": ["x"]}, FileFormatError, "names= gives 1 names, but the first row of"),
        ({"skip_lines": -1}, LoaderError, "give a number of lines"),
        ({"skip_lines": 9}, FileFormatError, "has no line after the skip_lines=9 first"),
        ({"group": "/"}, OptionError, "group= means nothing for .*, which is delimited text"),
    ):
        with pytest.raises(error, match=words):
            labeled.open_dataset(path, **options)
    with pytest.raises(OptionError, match=r"delimiter= means nothing .* which is IDX"):
        labeled.open_dataset(put(tmp_path / "a-idx1-ubyte", b"\0\0\x08\1\0\0\0\1a"), delimiter=",")


def test_a_missing_parser_names_the_extra(tmp_path, monkeypatch):
    indexing.arrow.cache_clear()
    for module in ("pyarrow", "pyarrow.csv"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"pip install pyarrow \(the extra 'tables'"):
        labeled.open_dataset(put(tmp_path / "a.csv", "1,2\n3,4\n"))
    indexing.arrow.cache_clear()


def test_a_row_without_end_takes_no_more_memory_than_a_row_may(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "READ_BYTES", 1000)
    monkeypatch.setattr(indexing, "MAX_ROW_BYTES", 5000)
    path = put(tmp_path / "a.csv", 'a,b\n1,"2\n' + "3,4\n" * 5000)
    with pytest.raises(FileFormatError, match=r"more than 5000 bytes\); close it, or pass quote="):
        labeled.open_dataset(path)
    assert labeled.open_dataset(path, quote=None).n_rows == 5001


@pytest.mark.slow
def test_blocks_stay_small_where_rows_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(indexing, "READ_BYTES", 1 << 20)
    path = put(tmp_path / "a.csv", "1,a\n" * 300_000 + f"2,{'b' * 200_000}\n" * 100)
    ds = labeled.open_dataset(path, columns="separate")
    (header,) = ds.files.catalog.sources["column_0"].headers
    assert header.detail.index.longest <= indexing.MAX_BLOCK_BYTES
    assert ds.n_rows == 300_100
    assert ds.subset([-1])["column_1"].values[0] == "b" * 200_000
    assert ds["column_0"].values.sum() == 300_200


@pytest.mark.parametrize(
    ("text", "words"),
    [("\n" * 1_000_000, "holds no row"), ('a,"b\n' + "1,2\n" * 250_000, "opens a quote")],
)
def test_a_beginning_that_makes_no_sense_is_soon_refused(tmp_path, text, words):
    began = process_time()
    with pytest.raises(FileFormatError, match=words):
        labeled.open_dataset(put(tmp_path / "a.csv", text), header=True)
    assert process_time() - began < 20


def test_xarray_opens_text_through_its_own_door(tmp_path):
    path = put(tmp_path / "a.csv", "x,y,kind\n1,2,cat\n3,4,dog\n")
    opened = xr.open_dataset(path, engine="labeled", options={"labels": "kind"})
    assert opened["labels"].values.tolist() == ["cat", "dog"]
    assert opened["features"].dims == ("batch", "feature")


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


@pytest.mark.parametrize("long", [b"1" * 200_000, b'"' * 200_000, b"," * 200_000])
def test_a_field_too_long_for_words_is_reported_with_its_line(tmp_path, long):
    path = tmp_path / "long.csv"
    path.write_bytes(b"1,2\n3,4\n" + long)
    with pytest.raises(labeled.LabeledError, match=r"long\.csv"):
        labeled.open_dataset(path).load()


@pytest.mark.slow
def test_many_columns_open_in_time_that_grows_with_them(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("\n".join([",".join(["1"] * 60_000)] * 3))
    began = process_time()
    assert labeled.open_dataset(path).dims["features"] == ("batch", "feature")
    assert process_time() - began < 20  # counting each name in all of them took minutes


def test_tables_without_end_to_their_rows_are_refused(tmp_path, monkeypatch):
    def wide(name):
        (tmp_path / name).write_text("1," * 300 + "2\n" + "3," * 300 + "4\n")
        return tmp_path / name

    assert labeled.open_dataset(wide("a.csv")).shapes == {"features": (2, 301)}
    monkeypatch.setattr(indexing, "HEAD_BYTES", 600)
    with pytest.raises(FileFormatError, match="no line end in its first 600 bytes: it is not"):
        labeled.open_dataset(wide("b.csv"))
    monkeypatch.undo()
    monkeypatch.setattr(indexing, "MAX_COLUMNS", 300)
    with pytest.raises(FileFormatError, match="has more than the 300 columns that are parsed"):
        labeled.open_dataset(wide("c.csv"))


@pytest.mark.parametrize("header", ["", "a,b,\n"])
def test_a_delimiter_at_the_end_of_lines_makes_no_column(tmp_path, small_blocks, header):
    rows = [[i, 2 * i + 0.5] for i in range(40)]
    text = header + "".join(f"{a},{b},\n" for a, b in rows)
    for name in ("a.csv", "a.csv.gz"):
        found = values_of(put(tmp_path / name, text))
        assert found.keys() == {"features"}
        np.testing.assert_array_equal(found["features"], rows)
    found = values_of(put(tmp_path / "b.csv", text), labels=-1)
    np.testing.assert_array_equal(found["labels"], [b for _, b in rows])
    named = values_of(put(tmp_path / "c.csv", text), names=["a", "b", "c"], header=bool(header))
    assert named["features"].shape == (40, 3)
    assert np.isnan(named["features"][:, 2]).all()


def test_what_stands_behind_such_a_delimiter_is_not_lost(tmp_path, small_blocks):
    lines = ["1,2,"] * 100
    assert values_of(put(tmp_path / "a.csv", "\n".join(lines)))["features"].shape == (100, 2)
    samples = 8
    for place in range(samples, 100):  # somewhere between two samples
        lines[place] = "1,2,note"
        dataset = labeled.open_dataset(put(tmp_path / f"{place}.csv", "\n".join(lines)))
        lines[place] = "1,2,"
        if dataset.sources == ("column_2", "features"):
            assert dataset["column_2"].values[place] == "note"
            continue
        with pytest.raises(ReadError, match=f"line {place + 1} of .* 'note' behind its last"):
            dataset["features"].load()
        break
    else:
        pytest.fail("no line lies between samples")


@pytest.mark.parametrize("form", ["separate", "matrix"])
@pytest.mark.parametrize("large", [-(2**53) - 1, 2**63 + 1025])
def test_an_integer_between_samples_that_floats_would_round_is_named(
    tmp_path, small_blocks, form, large
):
    lines = ["7,1" if i % 3 else ",2" for i in range(400)]
    for place in range(8, 400):
        given = [*lines[:place], f"{large},1", *lines[place + 1 :]]
        path = put(tmp_path / f"{place}.csv", "id,n\n" + "\n".join(given) + "\n")
        dataset = labeled.open_dataset(path, columns=form)
        name = "id" if form == "separate" else "features"
        if dataset[name].dtype == np.float64 and dataset[name].shape != (400, 1):
            break
    else:
        pytest.fail("no line lies between samples")
    words = f"line {place + 2} of .* '{large}' in column 'id', which (float64 would|is not int64)"
    with pytest.raises(ReadError, match=words):
        dataset[name].load()
    for dtype in (float, {"id": float}):
        asked = labeled.open_dataset(path, columns=form, dtype=dtype)[name].values
        assert asked.reshape(400, -1)[place, 0] == float(large)


def test_large_integers_that_samples_do_not_hold_are_refused(tmp_path, small_blocks):
    lines = [f"{i},{i}.5" for i in range(200)]
    lines[0] = "0,0.5"
    path = put(tmp_path / "a.csv", "\n".join(lines))
    assert values_of(path)["features"].shape == (200, 2)
    for place in range(10, 200):
        changed = [*lines[:place], f"{2**53 + 1},0.5", *lines[place + 1 :]]
        dataset = labeled.open_dataset(put(tmp_path / f"{place}.csv", "\n".join(changed)))
        if "column_0" in dataset.sources:  # a sample holds it
            continue
        with pytest.raises(ReadError, match=f"line {place + 1} of .* would round"):
            dataset["features"].load()
        break
    else:
        pytest.fail("no line lies between samples")


def test_times_with_a_zone_are_those_of_utc(tmp_path, small_blocks):
    zones = ["Z", "+02:00", "-05:30", "+0100"]
    texts = [f"2026-11-{1 + i % 28:02}T12:30:{i % 60:02}.25{zones[i % 4]}" for i in range(50)]
    expected = [datetime.fromisoformat(text) for text in texts]
    path = put(tmp_path / "a.csv", "t,x\n" + "".join(f"{t},1\n" for t in texts) + ",2\n")
    for options in ({}, {"dtype": {"t": "datetime64[ns]"}}):
        dataset = labeled.open_dataset(path, **options)
        found = dataset["t"]
        assert found.dtype == "datetime64[ns]"
        assert found.attrs["timezone"] == "UTC"
        assert found.values[:-1].astype("datetime64[us]").tolist() == [
            one.astimezone(UTC).replace(tzinfo=None) for one in expected
        ]
        assert np.isnat(found.values[-1])
        assert dataset.isel(batch=[3, 1])["t"].values.tolist() == found.values[[3, 1]].tolist()
    assert values_of(path, dtype={"t": str})["t"].tolist() == [*texts, ""]
