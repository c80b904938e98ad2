"""Values that do not fit what was asked for are named by their row of the dataset."""

from __future__ import annotations

import re

import numpy as np
import pytest

import labeled
from labeled.errors import SpaceError, SpaceTypeError, SpecsError
from labeled.spaces import (
    CompositeSpace,
    IndexSpace,
    NullSpace,
    VectorSequenceSpace,
    VectorSpace,
)

N = 40
BAD = 29
LABELS = np.arange(N) % 5
LABELS[BAD] = 9
NUMBERS = np.zeros((N, 3), np.int32)
NUMBERS[BAD, 1] = 300
NAMED = re.compile(r" in row (\d+) .*Row (\d+) of this batch is row (\d+) of the dataset$")


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
    within, again, row = map(int, NAMED.search(str(caught.value)).groups())
    assert (within, again, row) == (place % 8, place % 8, BAD)
    assert caught.value.row == BAD


def test_rows_are_those_of_the_subset_that_was_asked(ds):
    chosen = ds.subset([3, 7, BAD, 11])
    with pytest.raises(SpaceError, match="Row 0 of this batch is row 2 of the dataset") as caught:
        list(chosen.batches(2, specs=(VectorSpace(5), "labels")))
    assert chosen.subset([caught.value.row])["labels"].values == [9]


def test_padding_that_does_not_fit_is_named_as_such(ds):
    padded = ds.subset(slice(0, 3)).batches(
        4, specs=(VectorSpace(5), "labels"), last="pad", pad_value=7
    )
    with pytest.raises(SpaceError, match=r"label 7 in row 3 .* Row 3 of this batch is padding"):
        list(padded)


def test_texts_are_not_laid_out(ds):
    specs = (CompositeSpace((VectorSpace(3), VectorSpace(1))), ("numbers", "names"))
    with pytest.raises(SpecsError, match=r"'names' in .*d\.hdf5' holds no numbers.*leave it out"):
        ds.batches(4, specs=specs)
    with pytest.raises(SpecsError, match="'nams' is not a source; did you mean"):
        ds.batches(4, specs=(VectorSpace(1), "nams"))


def test_a_space_given_to_a_source_is_one_its_rows_fit(ds):
    labelled = ds.with_spaces(numbers=IndexSpace(400, 3))
    batch = next(iter(labelled.batches(8, specs=(VectorSpace(1200, dtype="uint8"), "numbers"))))
    assert batch.shape == (8, 1200)
    assert ds.spaces["numbers"] == VectorSpace(3)
    for space, words in [
        (IndexSpace(400, 4), r"'numbers'.*holds 3 values.*says 4"),
        (VectorSpace(2), "holds 3 values.*says 2"),
        (NullSpace(), "is not one of batches"),
        (CompositeSpace((VectorSpace(1), VectorSpace(2))), "is not one of batches"),
        (VectorSequenceSpace(3), "is not one of batches"),
    ]:
        with pytest.raises(SpecsError, match=words):
            ds.with_spaces(numbers=space)
    with pytest.raises(SpaceTypeError, match=r"'names' in .*holds text, which has no space"):
        ds.with_spaces(names=VectorSpace(1))
