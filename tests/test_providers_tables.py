"""Providers of digits and of numbers in text: every parameter has its say, epochs are whole."""

from __future__ import annotations

import gzip
import logging
import struct
from functools import partial

import numpy as np
import pytest
from fake_device import FakeDevice
from provided import IMAGES, LABELS, handed_out, make, same
from record_files import write_records

from labeled.errors import FileFormatError, LoaderError, OptionError, ReadError
from labeled.providers import CSVProvider, DataProvider, MNISTProvider

# digits

DIGITS = np.random.default_rng(0).integers(0, 256, (10, 2, 3), dtype=np.uint8)


@pytest.fixture
def idx(tmp_path):
    images, labels = tmp_path / "i-idx3-ubyte", tmp_path / "l-idx1-ubyte.gz"
    images.write_bytes(struct.pack(">4I", 2051, *DIGITS.shape) + DIGITS.tobytes())
    labels.write_bytes(gzip.compress(struct.pack(">2I", 2049, 10) + bytes(range(10))))
    return {"image": images, "label": labels}


MNIST = {
    "batch_size": ({}, 3),
    "shuffle": ({}, False),
    "flat": ({}, True),
    "seed": ({}, 1),
    "num_parts": ({}, 2),
    "part_index": ({"num_parts": 2}, 1),
    "data_name": ({}, "x"),
    "label_name": ({}, None),
    "data_padding": ({}, 3),
    "label_padding": ({}, 3),
    "round_batch": ({}, True),
    "axes": ({}, "last"),
    "dtype": ({}, "float64"),
    "scale": ({}, 0.5),
    "shift": ({}, 1.5),
}


def test_digits_and_text_go_to_a_device(idx, text):
    for maker, given in [(MNISTProvider, idx), (CSVProvider, {"data_csv": text / "a.csv"})]:
        shape = {"data_shape": (2, 3)} if maker is CSVProvider else {}
        there = FakeDevice(2)
        found = handed_out(maker(**given, **shape, batch_size=4, device=there))
        assert same(found, handed_out(maker(**given, **shape, batch_size=4)))
        assert there.n_uploads


def test_what_is_read_of_digits_is_logged_unless_it_is_not_wanted(idx, caplog):
    caplog.set_level(logging.INFO, "labeled")
    MNISTProvider(**idx, silent=True)
    assert "pictures for" not in caplog.text
    MNISTProvider(**idx)
    assert "10 pictures for" in caplog.text


@pytest.mark.parametrize("name", MNIST)
def test_parameters_of_digits_are_heeded(idx, name):
    others, value = MNIST[name]
    usual = {**idx, "batch_size": 4, **others}
    first, second = (
        handed_out(MNISTProvider(**usual)),
        handed_out(MNISTProvider(**{**usual, name: value})),
    )
    alike = [getattr(x, "dtype", None) for x in first] == [
        getattr(x, "dtype", None) for x in second
    ]
    assert not (same(first, second) and alike)


def test_digits_are_whole_batches_in_every_epoch(idx):
    made = MNISTProvider(**idx, batch_size=4)
    assert isinstance(made, DataProvider)
    assert made.provide_data == [("data", (4, 1, 2, 3))]
    assert made.provide_label == [("softmax_label", (4,))]
    orders = []
    for _ in range(2):
        batches = list(made)
        assert [b.count_samples for b in batches] == [4, 4, 2]
        labels = np.concatenate([b.label[0][: b.count_samples] for b in batches])
        images = np.concatenate([b.data[0][: b.count_samples] for b in batches])
        np.testing.assert_array_equal(images[:, 0], DIGITS[labels])
        np.testing.assert_array_equal(np.sort(labels), np.arange(10))
        orders.append(labels.tolist())
    assert orders[0] != orders[1]
    floats = MNISTProvider(**idx, dtype="float32", scale=1 / 255, shuffle=False, silent=True)
    np.testing.assert_allclose(next(iter(floats)).data[0][:10, 0], DIGITS / 255, rtol=1e-6)


def test_digits_that_do_not_fit_are_refused(idx, tmp_path):
    with pytest.raises(OptionError, match="did you mean 'shuffle'"):
        MNISTProvider(**idx, shufle=True)
    for name in ("flat", "silent", "round_batch"):
        with pytest.raises(LoaderError, match=f"{name}='false' must be True or False"):
            MNISTProvider(**idx, **{name: "false"})
    with pytest.raises(LoaderError, match="the name None of an array must be text"):
        MNISTProvider(**idx, data_name=None)
    with pytest.raises(FileFormatError, match="need one label each"):
        MNISTProvider(idx["image"], idx["image"])
    with pytest.raises(FileFormatError):
        MNISTProvider(tmp_path / "none", idx["label"])


# numbers in text

NUMBERS = np.random.default_rng(0).normal(size=(10, 6)).round(3)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    made = tmp_path_factory.mktemp("text")
    for name, rows in {"a": NUMBERS, "b": -NUMBERS, "l": np.arange(20).reshape(10, 2)}.items():
        lines = [",".join(map(str, row)) for row in rows.tolist()]
        (made / f"{name}.csv").write_text("\n".join(lines) + "\n")
    (made / "one.csv").write_text("".join(f"{i}\n" for i in range(10)))
    (made / "semi.csv").write_text("1.5;2.5\n" * 10)
    return made


def make_text(text, **parameters):
    given = {"data_csv": "a.csv", "data_shape": (2, 3), "batch_size": 4, **parameters}
    for name in ("data_csv", "label_csv"):
        if given.get(name):
            given[name] = text / given[name]
    return CSVProvider(given.pop("data_csv"), **given)


TEXT = {
    "data_csv": ({}, "b.csv"),
    "data_shape": ({}, (6,)),
    "batch_size": ({}, 3),
    "label_csv": ({}, "one.csv"),
    "label_shape": ({"label_csv": "l.csv", "label_shape": (2,)}, (1, 2)),
    "round_batch": ({}, False),
    "dtype": ({}, "float64"),
    "header": ({"header": False}, True),
    "delimiter": ({"data_csv": "semi.csv", "data_shape": 2}, ";"),
    "shuffle": ({}, True),
    "seed": ({"shuffle": True}, 5),
    "num_parts": ({}, 2),
    "part_index": ({"num_parts": 2}, 1),
    "data_name": ({}, "x"),
    "label_name": ({}, None),
    "data_padding": ({"round_batch": False}, 9),
    "label_padding": ({"round_batch": False}, 9),
    "axes": ({}, "last"),
}


@pytest.mark.parametrize("name", TEXT)
def test_parameters_of_text_are_heeded(text, name):
    others, value = TEXT[name]
    if name == "delimiter":
        with pytest.raises((FileFormatError, LoaderError)):
            make_text(text, **others, delimiter=",")
        return
    first = handed_out(make_text(text, **others))
    assert not same(first, handed_out(make_text(text, **{**others, name: value})))


def test_text_is_read_exactly_in_whole_epochs(text):
    made = make_text(text, label_csv="l.csv", label_shape=2, shuffle=True, dtype="float64")
    assert isinstance(made, DataProvider)
    assert made.provide_data == [("data", (4, 2, 3))]
    assert made.provide_label == [("softmax_label", (4, 2))]
    for _ in range(2):
        batches = list(made)
        assert [b.count_samples for b in batches] == [4, 4, 2]
        for batch in batches:
            np.testing.assert_array_equal(batch.data[0].reshape(4, 6), NUMBERS[batch.rows])
            np.testing.assert_array_equal(batch.label[0][:, 0], 2 * batch.rows)
        real = np.concatenate([b.rows[: b.count_samples] for b in batches])
        assert sorted(real) == list(range(10))


def test_text_without_labels_has_zeros(text):
    batch = next(iter(make_text(text)))
    np.testing.assert_array_equal(batch.label[0], np.zeros(4))
    old = CSVProvider(text / "a.csv", data_shape=6, batch_size=4, label_csv="NULL")
    np.testing.assert_array_equal(next(iter(old)).label[0], np.zeros(4))
    assert make_text(text, label_shape=(2,)).provide_label == [("softmax_label", (4, 2))]


@pytest.mark.parametrize(
    ("lines", "asked", "words"),
    [
        ("1,2\n3,oops\n", {}, "line 2 of .*bad.csv' has 'oops' in column 'column_1'"),
        ("1,2\n" * 9000 + "x,1\n", {}, "line 9001 of .*bad.csv' has 'x' in column 'column_0'"),
        ("a,b\n1,2\n", {"header": False}, "line 1 of .*bad.csv' has 'a' in column 'column_0'"),
        ("1,2\n3,2026-11-20\n", {}, "line 2 of .*has '2026-11-20' in column 'column_1'"),
        ("2026-11-20,1\n2026-11-21,2\n", {}, "line 1 .*'2026-11-20' in column 'column_0'"),
        ("n,kind\n1,setosa\n2,rosa\n", {}, "line 2 .* has 'setosa' in column 'kind'"),
        ("true,1\nfalse,2\n", {}, "has 'true' in column 'column_0', which is not float32"),
        ("yes\n1\n", {"data_shape": 1, "header": False}, "has 'yes' in column 'column_0'"),
    ],
)
def test_words_among_numbers_are_told_with_their_line(text, lines, asked, words):
    (text / "bad.csv").write_text(lines)
    with pytest.raises((FileFormatError, ReadError), match=words):
        list(make_text(text, **{"data_csv": "bad.csv", "data_shape": 2, **asked}))


def test_columns_without_a_name_are_columns(text):
    (text / "indexed.csv").write_text(",a,b\n0,1.5,2\n1,3,4\n")
    made = make_text(text, data_csv="indexed.csv", data_shape=3, batch_size=2)
    np.testing.assert_array_equal(next(iter(made)).data[0], [[0, 1.5, 2], [1, 3, 4]])


def test_text_that_does_not_fit_is_refused(text):
    with pytest.raises(LoaderError, match=r"\(6,\) does not fit \(5,\)"):
        make_text(text, data_shape=5)
    with pytest.raises(OptionError, match="did you mean 'label_csv'"):
        make_text(text, labels_csv="l.csv")
    with pytest.raises(LoaderError, match="must be a sequence of whole numbers"):
        make_text(text, data_shape="6")
    with pytest.raises(FileFormatError, match="none"):
        make_text(text, data_csv="none.csv")
    (text / "short.csv").write_text("1\n2\n")
    with pytest.raises(LoaderError, match="different numbers of samples"):
        make_text(text, label_csv="short.csv")


# all of them


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("records")
    write_records(made / "a.rec", IMAGES, LABELS)
    return made


def makers(folder, text, idx):
    """Return what makes one of each; in file order, with a short last batch."""
    padded = {"shuffle": False, "round_batch": False}
    return [
        partial(make, folder, batch_size=5, **padded),
        partial(make_text, text, label_csv="one.csv", **padded),
        partial(MNISTProvider, **idx, batch_size=4, silent=True, shuffle=False),
    ]


def test_names_and_paddings_of_data_and_labels_are_told_apart(folder, text, idx):
    given = {"data_name": "x", "label_name": "y", "data_padding": 7, "label_padding": 9}
    for maker in makers(folder, text, idx):
        made = maker(**given)
        assert [name for name, _ in made.provide_data] == ["x"]
        assert [name for name, _ in made.provide_label] == ["y"]
        last = list(made)[-1]
        assert last.count_samples < made.batch_size
        assert (last.get("x")[last.count_samples :] == 7).all()
        assert (last.get("y")[last.count_samples :] == 9).all()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("memory", "1 B", "memory"),
        ("prefetch_buffer", -1, "prefetch_buffer=-1 must be at least 0"),
    ],
)
def test_what_is_said_of_speed_and_memory_is_looked_at(folder, text, idx, name, value, words):
    for maker in makers(folder, text, idx):
        with pytest.raises(LoaderError, match=words):
            maker(**{name: value})
