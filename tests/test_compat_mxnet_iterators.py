"""The old iterators over arrays, text and IDX files; facts recorded from the genuine program."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from record_files import pictures, write_records

from labeled.compat import mxnet
from labeled.compat.mxnet import ArrayDataProvider, CSVIter, DataBatch, MNISTIter
from labeled.errors import (
    ArrayError,
    FileFormatError,
    LoaderError,
    OptionError,
    UnknownNameError,
)

VERSIONS = ("seed", "0.9.5", "1.9.1")

# numbers

FLOATS = {
    "2.36": "2.3600001", "1e39": "1.0000001e38", "9e39": "inf", "3.4028235e38": "inf",
    "1e-45": "1.1754942e-38", "0e-45": "1.1754942e-38", "2e-45": "1.9999999e-38",
    "1e4294967297": "10", "16777217": "16777216", "18446744073709551616": "0",
    "12345678901234567890123": "4.807116e18", "0.12345678901234567890123": "0.12345679",
    "  7 8": "7", "-": "-0", "+-5": "0", ".": "0", "e5": "0", "1e": "1", "1.e2": "100",
    "0x10": "0", "1.5f": "1.5", "F8": "0", "nano": "nan", "-INF": "-inf", "infinityx": "inf",
}  # fmt: skip
"""What version 1.9.1 made of a field, as it was printed."""

FLOATS_095 = {
    "1e-39": "1e-38", "1e-45": "1e-38", "-INF": "-0", "nan": "0", "abc": "0",
    "12345678901234567890123": "1.2345682e22", "0.12345678901234567890123": "23.990427",
}  # fmt: skip


@pytest.mark.parametrize(
    ("version", "facts"),
    [("1.9.1", FLOATS), ("0.9.5", FLOATS_095), ("seed", FLOATS_095)],
)
def test_floats_are_read_as_recorded(tmp_path, version, facts):
    given = {"data_csv": csv(tmp_path, facts), "data_shape": 1, "batch_size": len(facts)}
    found = CSVIter(version=version, **given).next().data[0].ravel()
    wanted = np.array(list(facts.values()), np.float32)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


@pytest.mark.parametrize(
    ("dtype", "facts"),
    [
        ("int32", {"012": 10, "08": 0, "-0x10": -16, "1.9": 1, "4294967297": 1}),
        ("int32", {"9223372036854775808": -1}),
        ("int64", {"0x1f": 31, "2147483648": 2**31, "9223372036854775808": 2**63 - 1}),
    ],
)
def test_whole_numbers_are_read_as_recorded(tmp_path, dtype, facts):
    given = {"data_csv": csv(tmp_path, facts), "data_shape": 1, "batch_size": len(facts)}
    found = CSVIter(dtype=dtype, **given).next().data[0]
    assert found.dtype == dtype
    assert found.ravel().tolist() == list(facts.values())


# CSVIter


def csv(folder, rows, name="d.csv"):
    path = folder / name
    path.write_bytes(rows if isinstance(rows, bytes) else "".join(f"{r}\n" for r in rows).encode())
    return str(path)


def epoch(it, at_most=99):
    """Return the first values and pads of the batches of an epoch, or of its beginning."""
    out = []
    for _ in range(at_most):
        try:
            batch = it.next()
        except StopIteration:
            return out
        assert batch.index.tolist() == batch.data[0].ravel().tolist()
        out.append((batch.data[0].ravel().astype(int).tolist(), batch.pad))
    return out


SHIFTED = [
    [([0, 1, 2, 3, 4], 0), ([5, 6, 7, 8, 9], 0), ([10, 11, 0, 1, 2], 3)],
    [([3, 4, 5, 6, 7], 0), ([8, 9, 10, 11, 0], 1)],
    [([1, 2, 3, 4, 5], 0), ([6, 7, 8, 9, 10], 0), ([11, 0, 1, 2, 3], 4)],
    [([4, 5, 6, 7, 8], 0), ([9, 10, 11, 0, 1], 2)],
]


def test_epochs_are_shifted_behind_the_rows_that_filled_them_up(tmp_path):
    it = CSVIter(data_csv=csv(tmp_path, range(12)), data_shape=(1,), batch_size=5)
    for expected in SHIFTED:
        assert epoch(it) == expected
        assert epoch(it) == []  # the end is signalled until the reset
        it.reset()


@pytest.mark.parametrize(
    ("n", "size", "taken", "second"),
    [
        (12, 5, 1, SHIFTED[1]),  # the thread that ran ahead was at the end
        (12, 4, 1, [([0, 1, 2, 3], 0), ([4, 5, 6, 7], 0), ([8, 9, 10, 11], 0)]),
        (82, 5, 1, [([3, 4, 5, 6, 7], 0)]),
        (87, 5, 1, [([0, 1, 2, 3, 4], 0)]),
        (87, 5, 2, [([3, 4, 5, 6, 7], 0)]),
    ],
)
def test_a_reset_in_mid_epoch_acts_where_the_thread_was(tmp_path, n, size, taken, second):
    it = CSVIter(data_csv=csv(tmp_path, range(n)), data_shape=(1,), batch_size=size)
    epoch(it, taken)
    it.reset()
    assert epoch(it)[: len(second)] == second


def test_a_batch_takes_rows_of_two_passes_at_most(tmp_path):
    path = csv(tmp_path, range(12))
    it = CSVIter(data_csv=path, data_shape=(1,), batch_size=24)
    for expected in ([12], [], [12]):
        assert [pad for _, pad in epoch(it)] == expected
        it.reset()
    with pytest.raises(LoaderError, match="must be bigger than the batch size"):
        CSVIter(data_csv=path, data_shape=(1,), batch_size=25)
    it = CSVIter(data_csv=path, data_shape=(1,), batch_size=20)
    assert [pad for _, pad in epoch(it)] == [8]
    it.reset()
    with pytest.raises(LoaderError, match="takes 16 rows"):
        epoch(it)


@pytest.mark.parametrize(
    ("text", "shape", "rows"),
    [
        (b"1,2,\n", (2,), [[1, 2]]),
        (b"1,,2\n", (2,), [[1, 2]]),
        (b",1,x,2,,\n", (2,), [[1, 2]]),
        (b"\n\n1,2\r\n\r\n3,4", (2,), [[1, 2], [3, 4]]),
        (b"1,2\r3,4\r", (1, 2), [[1, 2], [3, 4]]),
        (b"\xef\xbb\xbf1,2\n", (2,), [[1, 2]]),
        (b'abc,1,infi,"5",2', (2,), [[1, 2]]),  # what is no number was left out
    ],
)
def test_lines_of_version_191(tmp_path, text, shape, rows):
    it = CSVIter(data_csv=csv(tmp_path, text), data_shape=shape, batch_size=1)
    got = [batch.data[0] for batch in it]
    np.testing.assert_array_equal(np.reshape(got, (len(rows), -1)), rows)
    assert it.provide_data == [("data", (1, *shape))]


def test_csv_parameters(tmp_path):
    data, label = csv(tmp_path, ["1,2", "3,4"]), csv(tmp_path, ["5,6", "7,8"], "l.csv")
    both = CSVIter(data_csv=data, label_csv=label, data_shape=2, label_shape="(2,)", batch_size="2")
    batch = both.next()
    assert isinstance(batch, DataBatch)
    np.testing.assert_array_equal(batch.label[0], [[5, 6], [7, 8]])
    none = CSVIter(data_csv=data, data_shape=(2,), label_shape=(2,), batch_size=2)
    np.testing.assert_array_equal(none.next().label[0], [0, 0])
    flat = CSVIter(
        data_csv=data, label_csv=label, data_shape=(2,), label_shape=(1, 2), batch_size=2
    )
    np.testing.assert_array_equal(flat.next().label[0], [5, 6])  # the first, and so the wrong ones
    named = CSVIter(
        data_csv=data, data_shape=(2,), batch_size=2, data_name="x", label_name=None, version="seed"
    )
    assert (named.provide_data, named.provide_label) == ([("x", (2, 2))], [])


def test_csv_errors(tmp_path):
    data = csv(tmp_path, ["1,2", "3"])
    it = CSVIter(data_csv=data, data_shape=(2,), batch_size=1)
    it.next()
    with pytest.raises(
        FileFormatError, match=r"row 1: 1 values, where the shape \(2,\) asks for 2"
    ):
        it.next()
    with pytest.raises(FileFormatError, match="row 1: 1 values"):
        it.next()
    short, label = csv(tmp_path, [1, 2], "s.csv"), csv(tmp_path, ["1"], "l.csv")
    with pytest.raises(FileFormatError, match="has 1 rows of labels"):
        CSVIter(data_csv=short, label_csv=label, data_shape=1, batch_size=2)
    with pytest.raises(LoaderError, match="data_shape is required"):
        CSVIter(data_csv=data, batch_size=1)
    with pytest.raises(LoaderError, match="version='2'"):
        CSVIter(data_csv=data, data_shape=1, batch_size=1, version="2")
    with pytest.raises(FileFormatError, match="no file with anything in it"):
        CSVIter(data_csv=str(tmp_path / "none.csv"), data_shape=1, batch_size=1)
    CSVIter(data_csv=data, data_shape=2, batch_size=1, bach_size=3)  # unknown words were ignored
    with pytest.raises(OptionError, match="did you mean 'batch_size'"):
        CSVIter(data_csv=data, data_shape=2, batch_size=1, bach_size=3, strict=True)


def test_paths_mean_files_folders_lists_and_patterns(tmp_path):
    a, b = csv(tmp_path, [0, 1], "a1.csv"), csv(tmp_path, b"2\n3", "a2.csv")
    empty = csv(tmp_path, b"", "a3.csv")
    wide = csv(tmp_path, ["1;2;3"], "wide")
    it = CSVIter(data_csv=wide + "?delimiter=;&label_column=1", data_shape=(2,), batch_size=1)
    np.testing.assert_array_equal(it.next().data[0], [[1, 3]])
    Path(wide).unlink()
    for path in (f"{b};{a};{empty}", tmp_path, tmp_path / r"a\d\.csv"):
        found = CSVIter(data_csv=path, data_shape=1, batch_size=4).next().data[0].ravel().tolist()
        assert sorted(found) == [0, 1, 2, 3]
        assert found == [2, 3, 0, 1] or ";" not in str(path)


def test_shapes_and_flags_are_read_as_recorded(tmp_path):
    path = csv(tmp_path, ["1,2,3,4"])

    def shape_of(text, **more):
        return CSVIter(data_csv=path, data_shape=text, batch_size=1, **more).next().data[0].shape

    shapes = {"(4,)": (4,), "(2,2)": (2, 2), "[4]": (4,), "4": (4,)}
    assert {text: shape_of(text)[1:] for text in shapes} == shapes
    for text in ("4,", "(2 2)", "(4", "4)", "", "x"):
        with pytest.raises(LoaderError, match="not a valid shape"):
            shape_of(text)
    for text in ("TRUE", "1", "false", "0"):
        shape_of(4, round_batch=text)
    for text in ("yes", "2"):
        with pytest.raises(LoaderError, match="not a valid flag"):
            shape_of(4, round_batch=text)


# MNISTIter

PICTURES = np.random.default_rng(0).integers(0, 256, (10, 2, 3), dtype=np.uint8)


@pytest.fixture
def idx(tmp_path):
    images, labels = tmp_path / "images", tmp_path / "labels"
    images.write_bytes(struct.pack(">4I", 2051, *PICTURES.shape) + PICTURES.tobytes())
    labels.write_bytes(struct.pack(">2I", 2049, 10) + bytes(range(10)))
    return {"image": str(images), "label": str(labels)}


ORDER = [0, 2, 3, 5, 9, 1, 6, 8, 4, 7]
"""How seed 0 shuffled ten rows."""


def labels_of(it):
    return [batch.label[0].astype(int).tolist() for batch in it]


@pytest.mark.parametrize("version", VERSIONS)
def test_mnist_is_shuffled_once_and_drops_the_rest(idx, version):
    it = MNISTIter(version=version, **idx, batch_size=4, silent=True)
    assert it.provide_data == [("data", (4, 1, 2, 3))]
    assert labels_of(it) == [ORDER[:4], ORDER[4:8]]
    it.reset()
    batch = it.next()
    np.testing.assert_array_equal(batch.data[0][:, 0], PICTURES[ORDER[:4]] / np.float32(256))
    assert batch.data[0].dtype == np.float32
    assert (batch.pad, batch.index.tolist()) == (0, [0] * 4)
    it.reset()
    assert labels_of(it) == [ORDER[:4], ORDER[4:8]]


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"shuffle": False}, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ({"seed": 10}, [[3, 1, 4, 6], [9, 7, 5, 8]]),
        ({"shuffle": 0, "num_parts": 3, "part_index": 1, "batch_size": 3}, [[3, 4, 5]]),
        ({"shuffle": 0, "num_parts": 3, "part_index": 2, "batch_size": 4}, [[6, 7, 8, 9]]),
        ({"shuffle": 0, "batch_size": 10}, [list(range(10))]),
    ],
)
def test_mnist_orders_and_parts(idx, parameters, expected):
    it = MNISTIter(**{**idx, "batch_size": 4, **parameters})
    assert labels_of(it) == expected


def test_mnist_errors(idx, tmp_path):
    with pytest.raises(LoaderError, match="no first batch"):
        MNISTIter(**idx, batch_size=11)
    with pytest.raises(LoaderError, match="below num_parts"):
        MNISTIter(**idx, num_parts=2, part_index=2)
    with pytest.raises(LoaderError, match="dtype"):
        MNISTIter(**idx, dtype="uint8")
    with pytest.raises(FileFormatError, match=r"none' cannot be read: No such file"):
        MNISTIter(image=idx["image"], label=str(tmp_path / "none"))
    few = tmp_path / "few"
    few.write_bytes(struct.pack(">2I", 2049, 9) + bytes(9))
    for shuffle in (True, False):
        with pytest.raises(FileFormatError, match=r"few' holds 9 labels for the 10 pictures"):
            MNISTIter(image=idx["image"], label=str(few), batch_size=4, shuffle=shuffle)
    Path(idx["image"]).write_bytes(struct.pack(">4I", 2051, 2**32 - 1, 2**32 - 1, 9) + b"1")
    with pytest.raises(FileFormatError, match=r"claims .* and holds 1 values"):
        MNISTIter(**idx)
    Path(idx["image"]).write_bytes(b"123")
    with pytest.raises(FileFormatError, match="holds 0 values"):
        MNISTIter(**idx)


def test_iter_next_stays_before_the_first_batch(idx):
    it = MNISTIter(**idx, batch_size=4)
    assert [it.iter_next() for _ in range(5)] == [True] * 5
    it.next()
    assert [it.iter_next(), it.iter_next()] == [True, False]
    assert it.getlabel()[0].tolist() == ORDER[4:8]


# ArrayDataProvider

ROWS = np.arange(2 * 3 * 15).reshape(2, 3, 15)


def test_arrays_are_cut_along_the_last_axis_as_float32():
    labels = np.arange(15)
    it = ArrayDataProvider(ROWS, labels, batch_size=4, data_padding=-1, label_padding=9)
    assert it.provide_data == [("data", (2, 3, 4))]
    assert it.provide_label == [("softmax_label", (4,))]
    assert it.get_batch_size() == 4
    batches = list(it.eachbatch())
    assert [it.count_samples(b) for b in batches] == [4, 4, 4, 3]
    assert [b.pad for b in batches] == [0, 0, 0, 1]
    for k, batch in enumerate(batches):
        n = it.count_samples(batch)
        data, label = batch.data[0], it.get(batch, "softmax_label")
        assert data.dtype == label.dtype == np.float32
        np.testing.assert_array_equal(data[..., :n], ROWS[..., 4 * k : 4 * k + n])
        np.testing.assert_array_equal(label[:n], batch.index)
        assert (data[..., n:] == -1).all()
        assert (label[n:] == 9).all()
    assert batches[0].data[0] is batches[1].data[0]  # one buffer for all batches


def test_shuffles_accumulate_and_keep_labels_with_their_data():
    labels = np.arange(15.0, dtype=np.float32)
    it = ArrayDataProvider(
        labels * 2, labels, batch_size=4, shuffle=True, rng=np.random.default_rng(1)
    )
    draws = np.random.default_rng(1)
    order = np.arange(15)
    for _ in range(3):
        order = order[draws.permutation(15)]
        got = [(b.data[0][: 4 - b.pad].copy(), b.label[0][: 4 - b.pad].copy()) for b in it]
        np.testing.assert_array_equal(np.concatenate([d for d, _ in got]), 2 * order)
        np.testing.assert_array_equal(np.concatenate([lab for _, lab in got]), order)
    np.testing.assert_array_equal(labels, np.arange(15))


@pytest.mark.parametrize(
    ("data", "label", "options", "error", "words"),
    [
        ({"x": ROWS}, (), {}, ArrayError, "Invalid data argument type: dict"),
        (ROWS, "text", {}, ArrayError, "Invalid label argument type: str"),
        (
            [("x", ROWS), ROWS],
            (),
            {},
            ArrayError,
            "type: list; give an array, a .name, array. pair or",
        ),
        (ROWS * 1j, (), {}, ArrayError, "Invalid data argument type: ndarray"),
        (ROWS.astype(str), (), {}, ArrayError, "of real numbers"),
        (("x", np.array(1.0)), (), {}, ArrayError, "Invalid data argument type: tuple"),
        (xr.DataArray(ROWS), (), {}, ArrayError, "Invalid data argument type: DataArray"),
        ([], (), {}, ArrayError, "at least one"),
        (ROWS, np.arange(4), {}, ArrayError, "'softmax_label' has 4 samples, 'data' has 15"),
        (ROWS, (), {"batch_size": 16}, LoaderError, "from 0 to"),
        (ROWS, (), {"batch_size": -1}, LoaderError, "from 0 to"),
        (ROWS, (), {"batch_size": 2.5}, LoaderError, "must be a whole number"),
    ],
)
def test_what_array_providers_refused(data, label, options, error, words):
    with pytest.raises(error, match=words):
        ArrayDataProvider(data, label, **options)


# what all of them have


def made_of_each(tmp_path, idx, version="seed"):
    """Make one of each provider of the old manual: five batches of two, labels 0 to 9."""
    labels, rows = csv(tmp_path, range(10), "l.csv"), [f"{i},{-i}" for i in range(10)]
    write_records(tmp_path / "a.rec", pictures(10), range(10))
    text = {"data_csv": csv(tmp_path, rows), "label_csv": labels, "data_shape": 2}
    records = {"path_imgrec": tmp_path / "a.rec", "data_shape": (3, 24, 30), "verbose": False}
    return [
        mxnet.CSVProvider(version=version, batch_size=2, **text),
        mxnet.ImageRecordProvider(version=version, batch_size=2, **records),
        mxnet.MNISTProvider(version=version, batch_size=2, shuffle=False, **idx),
        ArrayDataProvider(np.arange(30).reshape(3, 10), np.arange(10), batch_size=2),
    ]


def test_descriptions_and_batches_take_what_they_took():
    one = mxnet.io.DataDesc("data", (8, 2, 5), np.int32, layout="TNC")
    assert (one.name, one.shape, one.dtype, one.layout) == ("data", (8, 2, 5), np.int32, "TNC")
    again = pickle.loads(pickle.dumps(one))
    assert again == one == ("data", (8, 2, 5))
    assert again.layout == "TNC"
    axes = [mxnet.DataDesc.get_batch_axis(layout) for layout in ("NCHW", "TNC", "C", None)]
    assert axes == [0, 1, -1, 0]
    plain = DataBatch((np.zeros(2),))
    assert (plain.label, plain.pad, plain.index, plain.bucket_key) == (None,) * 4
    assert DataBatch([], None, bucket_key=7, provide_data=[one]).provide_data == [one]
    with pytest.raises(AssertionError, match="label is a list"):
        DataBatch([np.zeros(2)], np.zeros(2))


def test_every_provider_is_looped_over_as_the_manual_says(tmp_path, idx):
    whole = [[2 * k, 2 * k + 1] for k in range(5)]
    for it in made_of_each(tmp_path, idx):
        assert labels_of(it.eachbatch()) == whole
        assert labels_of(it) == whole  # a loop resets
        next(iter(it))
        assert labels_of(it.eachbatch()) == whole  # also one that begins in mid-epoch
        it.reset()
        assert labels_of(it) == whole


@pytest.mark.parametrize("version", ["0.9.5", "1.9.1"])
def test_loops_of_other_versions_go_on_where_the_last_one_stopped(tmp_path, idx, version):
    for it in made_of_each(tmp_path, idx, version)[:3]:
        next(iter(it))
        assert labels_of(it) == [[2 * k, 2 * k + 1] for k in range(1, 5)]
        assert labels_of(it) == []


def test_every_provider_finds_counts_and_loads_what_a_batch_holds(tmp_path, idx):
    for it in made_of_each(tmp_path, idx):
        batch = next(iter(it))
        data, labels = it.get_data(batch), it.get_label(batch)
        assert it.get_batch_size() == it.batch_size == it.count_samples(batch) == 2
        assert it.get(batch, it.provide_data[0][0]) is data[0]
        np.testing.assert_array_equal(it.get(batch, "softmax_label"), [0, 1])
        with pytest.raises(UnknownNameError, match=r"'dta', which .*did you mean 'data'"):
            it.get(batch, "dta")
        before = (...,) if isinstance(it, ArrayDataProvider) else ()  # samples come last there
        first, second = data[0][*before, :1], data[0][*before, 1:]
        one, two = np.zeros(first.shape), np.zeros(second.size)
        it.load_data(batch, [[(slice(0, 1), one), (slice(1, 2), two)]])
        np.testing.assert_array_equal(one, first)
        np.testing.assert_array_equal(two, second.ravel())
        place = np.zeros(2)
        it.load_label(batch, [place, "surplus"])
        np.testing.assert_array_equal(place, labels[0])
        with pytest.raises(ArrayError, match="not within a batch of 2"):
            it.load_label(batch, [[(slice(1, 3), place)]])
        with pytest.raises(ArrayError, match=r"shape \(2,\), their target \(3,\)"):
            it.load_label(batch, [np.zeros(3)])
