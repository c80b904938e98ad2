"""Values that do not fit what was asked for are named by their row of the dataset."""

from __future__ import annotations

import re
from functools import partial

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import LabeledError, LoaderError, SpaceError, SpecsError
from labeled.spaces import (
    CompositeSpace,
    IndexSpace,
    VectorSpace,
)

N = 40
BAD = 29
LABELS = np.arange(N) % 5
LABELS[BAD] = 9
NUMBERS = np.zeros((N, 3), np.int32)
NUMBERS[BAD, 1] = 300
NAMED = re.compile(r" in row (\d+) of this batch \(row (\d+) of the dataset\) ")


@pytest.fixture(scope="module")
def ds(tmp_path_factory):
    path = tmp_path_factory.mktemp("values") / "d.hdf5"
    names = np.array([f"n{i}" for i in range(N)], object)
    labeled.write(path, {"labels": LABELS, "numbers": NUMBERS, "names": names})
    return labeled.open_dataset(path)


ASKED = {
    "one-hot": {"specs": (VectorSpace(5), "labels")},
    "sparse": {"specs": (VectorSpace(5, sparse=True), "labels")},
    "labels": {"specs": (IndexSpace(5, 1), "labels")},
    "narrowed": {"specs": (VectorSpace(3, dtype="uint8"), "numbers")},
    "cast": {"dtype": {"numbers": "uint8"}},
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("shuffle", [False, "full", "window"])
def test_a_value_that_does_not_fit_is_named_by_its_row(ds, asked, shuffle):
    order = {"shuffle": shuffle, "seed": 3 if shuffle else None}
    rows = np.concatenate([rows for _, rows, _ in ds.batches(8, **order).with_rows()])
    place = int(np.flatnonzero(rows == BAD)[0])
    with pytest.raises(SpaceError) as caught:
        list(ds.batches(8, **order, **asked))
    within, row = map(int, NAMED.search(str(caught.value)).groups())
    assert (within, row) == (place % 8, BAD)
    assert caught.value.row == BAD


def test_rows_are_those_of_the_subset_that_was_asked(ds):
    chosen = ds.subset([3, 7, BAD, 11])
    with pytest.raises(SpaceError, match=r"row 0 of this batch \(row 2 of the dataset\)") as caught:
        list(chosen.batches(2, specs=(VectorSpace(5), "labels")))
    assert chosen.subset([caught.value.row])["labels"].values == [9]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ((VectorSpace(5), "labels"), "'labels': .*label 7 in row 0 is out of range"),
        ((IndexSpace(5, 1), "labels"), "'labels': .*label 7 in row 0 is out of range"),
        ((VectorSpace(3, dtype="uint8"), "numbers"), "'numbers': value 700 .* does not fit uint8"),
    ],
)
def test_padding_that_does_not_fit_the_specs_is_refused_before_the_first_batch(ds, asked, words):
    pad_value = {"labels": 7, "numbers": 700}
    with pytest.raises(LoaderError, match=f"pad_value=.* does not fit the specs: source {words}"):
        ds.batches(4, specs=asked, last="pad", pad_value=pad_value)


def test_padding_that_is_no_class_is_refused_before_the_first_batch(ds):
    clean = ds.select("labels").subset(LABELS < 5)
    for pad_value in (-1, 5):
        with pytest.raises(
            LoaderError, match=f"pad_value=.*{pad_value}.* one_hot: source 'labels'.* 0 to 4"
        ):
            clean.batches(4, one_hot={"labels": 5}, last="pad", pad_value=pad_value)
    *_, end = clean.batches(4, one_hot={"labels": 5}, last="pad", pad_value={"labels": 3})
    assert end.arrays["labels"][-1].tolist() == [0, 0, 0, 1, 0]


def test_texts_are_not_laid_out(ds):
    with pytest.raises(LoaderError, match=r"'names' in .*holds no numbers \(neither text nor"):
        ds.batches(4, dtype={"names": "float32"})
    specs = (CompositeSpace((VectorSpace(3), VectorSpace(1))), ("numbers", "names"))
    with pytest.raises(SpecsError, match=r"'names' in .*d\.hdf5' holds no numbers.*leave it out"):
        ds.batches(4, specs=specs)
    with pytest.raises(SpecsError, match="'nams' is not a source; did you mean"):
        ds.batches(4, specs=(VectorSpace(1), "nams"))


@pytest.fixture(scope="module", params=[(), (1,)], ids=["one axis", "two axes"])
def gaps(request, tmp_path_factory):
    """Labels of which a sixth is NaN."""
    path = tmp_path_factory.mktemp("gaps") / "g.hdf5"
    labels = np.tile(np.array([0, 1, np.nan, 1, 0, 1], "f4"), 10).reshape(60, *request.param)
    labeled.write(path, {"x": np.arange(60.0), "y": labels})
    return labeled.open_dataset(path)


@pytest.mark.parametrize(
    "call",
    [
        lambda ds: next(iter(ds.batches(6, balance="y", seed=1))),
        lambda ds: ds.train_test_split(0.5, stratify="y"),
        lambda ds: ds.batches(6, shuffle="window", seed=1, window_rows=12).explain("y"),
    ],
    ids=["balance", "stratify", "explain"],
)
def test_missing_labels_are_no_class_and_can_be_left_out_as_shown(gaps, call):
    words = r"source 'y' in '.*g\.hdf5' holds NaN in 10 rows, which is not a class.*: (ds\..*)$"
    with pytest.raises(LabeledError, match=words) as caught:
        call(gaps)
    (remedy,) = re.findall(words, str(caught.value))
    call(eval(remedy, {"ds": gaps, "np": np}))


def test_packed_labels_and_weights_count_as_what_they_mean(tmp_path):
    with h5py.File(tmp_path / "p.hdf5", "w") as f:
        f["w"] = np.repeat(np.array([2, 5], "i2"), 50)  # 0 and 1.5
        f["w"].attrs.update(scale_factor=0.5, add_offset=-1.0)
        f["y"] = np.repeat(np.array([-1, 0, 1, 2], "i2"), 25)
        f["y"].attrs["_FillValue"] = np.int16(-1)
    ds = labeled.open_dataset(tmp_path / "p.hdf5")
    drawn = np.concatenate([batch.rows for batch in ds.batches(20, weights="w", seed=1)])
    assert drawn.min() >= 50
    for loader in (ds, ds.load()):
        with pytest.raises(LabeledError, match=r"'y'.*holds NaN in 25 rows, which is not a class"):
            loader.batches(20, balance="y", seed=1)


def test_times_are_padded_with_nan_as_nat(tmp_path):
    times = np.arange(5).astype("M8[ns]")
    for given in (times, times - times[0]):
        stored = labeled.write(tmp_path / f"{given.dtype.kind}.hdf5", {"t": given})
        for batches in (
            partial(labeled.batches, {"t": given}),
            labeled.open_dataset(stored).batches,
        ):
            *_, last = batches(3, last="pad", pad_value=float("nan"))
            np.testing.assert_array_equal(last["t"].values[:2], given[3:])
            assert np.isnat(last["t"].values[2])
        with pytest.raises(LabeledError, match=r"pad_value=1000.* is not a value of dtype"):
            labeled.batches({"t": given}, 3, last="pad", pad_value=10**30)


def test_one_hot_labels_in_floats_are_made_as_shown(gaps):
    known = gaps.subset(~np.isnan(gaps["y"].values.ravel()))
    with pytest.raises(LabeledError, match="this is float32") as caught:
        known.batches(6, one_hot={"y": 2})
    (remedy,) = re.findall(r"say pipeline=(.*)$", str(caught.value))
    batches = known.batches(6, pipeline=eval(remedy, {"np": np}))
    hot = np.concatenate([np.asarray(batch["y"]) for batch in batches])
    np.testing.assert_array_equal(hot.argmax(1), known["y"].values.ravel())
    np.testing.assert_array_equal(hot.sum(1), 1)


def test_times_of_padded_rows_are_never_decoded(tmp_path):
    """What memory happens to hold behind the last row would be no time."""
    with h5py.File(tmp_path / "t.h5", "w") as file:
        file["x"] = np.arange(10)
        file["x"].attrs["units"] = "hours since 2000-01-01"
    loader = labeled.open_dataset(tmp_path / "t.h5").batches(64, last="pad")
    for _ in range(3):
        rubbish = [np.full(size, 0x7F, "u1") for size in range(64, 4096, 16) for _ in range(8)]
        del rubbish
        (batch,) = loader
        times = np.datetime64("2000-01-01", "h") + np.arange(10)
        np.testing.assert_array_equal(batch.arrays["x"][:10], times)
        assert np.isnat(batch.arrays["x"][10:]).all()
