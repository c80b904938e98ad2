"""IDX files, plain and packed: written by hand here, opened equal, in every order and part."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peak_memory import traced

import labeled
from labeled.errors import (
    DimsError,
    FileChangedError,
    FileFormatError,
    LabeledWarning,
    OptionError,
    ReadError,
    SplitError,
    UnknownNameError,
    UnsafeFileError,
)

CODES = {"u1": 8, "i1": 9, ">i2": 11, ">i4": 12, ">f4": 13, ">f8": 14}


def idx_bytes(array, code=None, shape=None):
    shape = array.shape if shape is None else shape
    key = array.dtype.str.lstrip("|")
    head = bytes([0, 0, CODES[key] if code is None else code, len(shape)])
    return head + struct.pack(f">{len(shape)}I", *shape) + array.tobytes()


def write(path, array, **options):
    data = idx_bytes(np.asarray(array), **options)
    Path(path).write_bytes(gzip.compress(data, 1) if str(path).endswith(".gz") else data)
    return str(path)


def mnist(folder, ending="", n_train=50, n_test=20, **sizes):
    """Write the four files; return their arrays by (split, source)."""
    rng = np.random.default_rng(0)
    arrays = {}
    for split, word, n in (("train", "train", n_train), ("test", "t10k", n_test)):
        arrays[split, "images"] = rng.integers(0, 256, (n, 6, 5)).astype("u1")
        arrays[split, "labels"] = rng.integers(0, 10, n).astype("u1")
        write(folder / f"{word}-images-idx3-ubyte{ending}", arrays[split, "images"])
        write(folder / f"{word}-labels-idx1-ubyte{ending}", arrays[split, "labels"])
    return arrays


shapes = st.lists(st.integers(0, 7), min_size=1, max_size=5).map(tuple)


@settings(max_examples=40, deadline=None)
@given(shapes, st.sampled_from(sorted(CODES)), st.booleans(), st.data())
def test_written_then_opened_is_equal(shape, code, zipped, data):
    n = int(np.prod(shape))
    raw = data.draw(st.binary(min_size=n * np.dtype(code).itemsize, max_size=n * 8))
    array = np.frombuffer(raw, code, n).reshape(shape)
    with tempfile.TemporaryDirectory() as folder:
        path = write(f"{folder}/a-idx{len(shape)}-x{'.gz' if zipped else ''}", array)
        ds = labeled.open_dataset(path)
        found = ds["data"]
        assert found.dtype == array.dtype.newbyteorder("=")
        assert found.dims[0] == "batch"
        assert len(found.dims) == len(shape)
        np.testing.assert_array_equal(found.values, array)
        rows = data.draw(st.lists(st.integers(0, max(shape[0] - 1, 0)), max_size=9))
        if shape[0]:
            np.testing.assert_array_equal(ds.subset(rows)["data"].values, array[rows])


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_folder_of_pairs_is_one_dataset_with_splits(tmp_path, ending):
    arrays = mnist(tmp_path, ending)
    ds = labeled.open_dataset(tmp_path)
    assert ds.sources == ("images", "labels")
    assert ds.dims == {"images": ("batch", "height", "width"), "labels": ("batch",)}
    assert ds.splits == {
        "train": {"images": 50, "labels": 50},
        "test": {"images": 20, "labels": 20},
    }
    for (split, source), array in arrays.items():
        np.testing.assert_array_equal(ds.split(split)[source].values, array)
    both = np.concatenate([arrays["train", "images"], arrays["test", "images"]])
    np.testing.assert_array_equal(ds["images"].values, both)  # train first, whatever the names
    again = pickle.loads(pickle.dumps(ds.split("test")))
    np.testing.assert_array_equal(again["labels"].values, arrays["test", "labels"])


def test_other_ways_to_name_files_that_belong_together(tmp_path):
    arrays = mnist(tmp_path)
    images, labels = tmp_path / "train-images-idx3-ubyte", tmp_path / "train-labels-idx1-ubyte"
    pair = labeled.open_dataset([labels, images])
    assert pair.splits == {"train": {"images": 50, "labels": 50}}
    by_glob = labeled.open_dataset(str(tmp_path / "*ubyte"))
    assert by_glob.splits == labeled.open_dataset(tmp_path).splits
    named = labeled.open_dataset({"x": images, "y": labels}, dims={"x": ("b", "row", "column")})
    assert named.dims == {"x": ("b", "row", "column"), "y": ("batch",)}
    np.testing.assert_array_equal(named["x"].values, arrays["train", "images"])
    assert named.split("train").n_rows == 50
    assert labeled.concat([named, named]).split("train").n_rows == 100
    lists = {"x": [images, tmp_path / "t10k-images-idx3-ubyte"], "y": str(tmp_path / "*labels*")}
    assert {k: v["x"] for k, v in labeled.open_dataset(lists).splits.items()} == {
        "train": 50,
        "test": 20,
    }
    os.rename(images, tmp_path / "images-idx3-ubyte")
    os.rename(labels, tmp_path / "labels-idx1-ubyte")
    plain = labeled.open_dataset([tmp_path / "images-idx3-ubyte", tmp_path / "labels-idx1-ubyte"])
    assert plain.splits == {"all": {"images": 50, "labels": 50}}


def test_a_file_that_is_there_unpacked_too_is_opened_once(tmp_path):
    mnist(tmp_path, ".gz")
    mnist(tmp_path, "")
    ds = labeled.open_dataset(tmp_path)
    assert ds.n_rows == 70
    assert not any(path.endswith(".gz") for path in ds.files.paths)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 9), st.randoms(use_true_random=False))
def test_packed_rows_are_reached_in_any_order_and_by_threads(tmp_path_factory, level, random):
    rng = np.random.default_rng(random.randrange(1 << 30))
    rows = rng.integers(0, 50, (12_000, 32)).astype("u1")
    content = idx_bytes(rows)
    cut = random.randrange(len(content))
    data = gzip.compress(content[:cut], level) + gzip.compress(content[cut:], 1)
    path = tmp_path_factory.mktemp("gz") / "rows-idx2-ubyte.gz"
    path.write_bytes(data + b"\0" * random.randrange(3))
    array = labeled.open_dataset(path)["data"]
    starts = rng.integers(0, 11_000, 12).tolist()
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda a: array[a : a + 900].values, starts)
    for a, one in zip(starts, found, strict=True):
        np.testing.assert_array_equal(one, rows[a : a + 900])


def test_names_of_axes_can_be_given(tmp_path):
    path = write(tmp_path / "a-idx3-ubyte", np.zeros((4, 2, 3), "u1"))
    given = labeled.open_dataset(path, dims={"data": ("n", None, "x")})
    assert given.dims["data"] == ("n", "height", "x")
    four = write(tmp_path / "b-idx4-ubyte", np.zeros((4, 8, 8, 3), "u1"))
    assert labeled.open_dataset(four).dims["data"] == ("batch", "height", "width", "channel")
    for dims, words in (
        (("n", "x"), "has 3 axes, batch, height, width; pass"),
        (("x", "y", "x"), "twice, .*; rename one"),
    ):
        with pytest.raises(DimsError, match=words):
            labeled.open_dataset(path, dims={"data": dims})
    with pytest.raises(UnknownNameError, match=r"dims= names 'date', .* did you mean 'data'"):
        labeled.open_dataset(path, dims={"date": ("x", "y", "z")})
    with pytest.raises(OptionError, match=r"group= means nothing for '.*', which is IDX"):
        labeled.open_dataset(path, group="a")


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (lambda d: d[:-1], FileFormatError, r"truncated: .* 10 rows.*byte 616.*\(9 whole rows\)"),
        (lambda d: d[:9], FileFormatError, "ends within its header"),
        (lambda d: d[:2] + b"\x07" + d[3:], FileFormatError, "is not an IDX file: it begins with"),
        (lambda d: d[:4] + b"\xff" * 4 + d[8:], FileFormatError, "truncated: .* 4294967295 rows"),
        (lambda d: d[:8] + b"\xff" * 8 + d[16:], UnsafeFileError, "which no array has"),
        (
            lambda d: d[:4] + b"\xff" * 4 + bytes(8),
            UnsafeFileError,
            "which no array has",
        ),
        (lambda d: b"", FileFormatError, "is empty"),
    ],
)
def test_headers_that_lie_are_refused_when_opened(tmp_path, damage, error, words):
    data = idx_bytes(np.zeros((10, 6, 10), "u1"))
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(data))
    with pytest.raises(error, match=words):
        labeled.open_dataset(path)


def test_packed_headers_that_lie_are_refused(tmp_path):
    path = tmp_path / "a-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros(100, "u1"), shape=(1 << 31, 1 << 10, 1))))
    with pytest.raises(UnsafeFileError, match="cannot stand for more than"):
        labeled.open_dataset(path)
    path.write_bytes(gzip.compress(b"GIF89a" + bytes(100)))
    with pytest.raises(FileFormatError, match="is not an IDX file: it begins with 47 49 46 38"):
        labeled.open_dataset(path)


def test_a_lazy_array_takes_no_memory_for_what_a_packed_header_claims(tmp_path):
    path = tmp_path / "long.idx.gz"
    path.write_bytes(gzip.compress(idx_bytes(np.zeros(0, "u1"), shape=(2, 1 << 24, 0))))
    ds = labeled.open_dataset(path)
    data, peak_bytes = traced(lambda: ds["data"][:1])
    assert data.shape == (1, 1 << 24, 0)
    assert peak_bytes < 1 << 21


def test_shuffled_rows_of_a_packed_file_take_no_call_each(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).integers(0, 256, (9_000, 56, 56)).astype("u1")
    path = tmp_path / "a-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx_bytes(rows), 0))
    calls, preadv = [], os.preadv
    monkeypatch.setattr(os, "preadv", lambda *args: calls.append(1) or preadv(*args))
    loader = labeled.open_dataset(path).batches(32, shuffle="full", memory="6 MiB")
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["data"], rows[batch.rows])
    assert len(calls) < len(rows) / 10


def test_packed_damage_is_reported_when_rows_are_read(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (300, 10)).astype("u1")
    path = tmp_path / "a-idx2-ubyte.gz"
    whole = gzip.compress(idx_bytes(rows))
    path.write_bytes(whole[:-200])
    cut = r"source 'data' in '.*a-idx2.*rows 0 to 299: .*ends early"
    with pytest.raises(ReadError, match=cut):
        labeled.open_dataset(path)["data"].compute()
    with pytest.raises(ReadError, match=cut):
        labeled.open_dataset(path)["data"][np.random.default_rng(0).permutation(300)].compute()
    path.write_bytes(whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:])
    with pytest.raises(ReadError, match="damaged"):
        labeled.open_dataset(path)["data"].compute()
    claims = gzip.compress(idx_bytes(rows, shape=(400, 10)))
    path.write_bytes(claims)
    with pytest.raises(ReadError, match="contents end at byte 3012, not 4012"):
        labeled.open_dataset(path)["data"].compute()


def test_files_that_do_not_fit_are_refused(tmp_path):
    mnist(tmp_path)
    write(tmp_path / "train-labels-idx1-ubyte", np.zeros(49, "u1"))
    with pytest.raises(FileFormatError, match=r"different numbers of rows: 50 in .*49 in"):
        labeled.open_dataset(tmp_path)
    os.remove(tmp_path / "train-labels-idx1-ubyte")
    with pytest.raises(UnknownNameError, match="cannot be joined"):
        labeled.open_dataset(tmp_path)
    assert labeled.open_dataset(tmp_path, sources=["images"]).n_rows == 70
    images = [tmp_path / "train-images-idx3-ubyte", tmp_path / "t10k-images-idx3-ubyte"]
    with pytest.raises(FileFormatError, match="as many files as the others"):
        labeled.open_dataset({"x": images, "y": tmp_path / "t10k-labels-idx1-ubyte"})
    with pytest.raises(
        SplitError, match=r"t10k-.* has the splits \['test'\], but .* has \['train'\]"
    ):
        labeled.open_dataset({"x": images[0], "y": tmp_path / "t10k-labels-idx1-ubyte"})
    write(tmp_path / "train-labels-idx1-ubyte", np.zeros(49, "u1"))
    with pytest.raises(FileFormatError, match=r"numbers of rows: \{'x': \[50\], 'y': \[49\]\}"):
        labeled.open_dataset({"x": images[0], "y": tmp_path / "train-labels-idx1-ubyte"})


def test_bytes_after_the_last_row_are_reported(tmp_path):
    path = tmp_path / "b-idx1-ubyte"
    path.write_bytes(idx_bytes(np.zeros(5, "u1")) + b"abc")
    with pytest.warns(LabeledWarning, match="goes on for 3 bytes after its last row"):
        ds = labeled.open_dataset(path)
    assert ds.n_rows == 5


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_changed_file_is_not_read_on(tmp_path, ending):
    path = write(tmp_path / f"train-images-idx2-ubyte{ending}", np.zeros((20, 3), "u1"))
    ds = labeled.open_dataset(path)
    kept = pickle.dumps(ds)
    write(path, np.ones((25, 3), "u1"))
    with pytest.raises(FileChangedError):
        list(ds.batches(8))
    with pytest.raises((FileChangedError, FileFormatError)):
        np.asarray(pickle.loads(kept)["images"])
