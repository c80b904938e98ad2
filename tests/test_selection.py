"""Selections behave as NumPy's indexing of the rows they stand for."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeled.errors import LabeledError, SelectionError, SelectionTypeError
from labeled.selection import Selection

ends = st.none() | st.integers(-15, 15)
slices = st.builds(slice, ends, ends, st.none() | st.integers(-4, 4).filter(bool))


def requests(n: int) -> st.SearchStrategy:
    masks = st.lists(st.booleans(), min_size=n, max_size=n).map(lambda m: np.array(m, bool))
    if not n:
        return slices | masks | st.just([])
    return slices | masks | st.lists(st.integers(-n, n - 1), max_size=12)


def as_numpy(request):
    """NumPy takes an empty list for floats."""
    return np.asarray(request, int) if isinstance(request, list) else request


@given(st.data())
def test_any_composition_agrees_with_numpy(data):
    n = data.draw(st.integers(0, 12))
    selections, arrays = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        selection, array = Selection.all(n), np.arange(n)
        for _ in range(data.draw(st.integers(0, 3))):
            request = data.draw(requests(len(array)))
            selection = selection[request]
            array = (
                array[np.asarray(request, int) if request == [] else request]
                if isinstance(request, list)
                else array[request]
            )
        selections.append(selection)
        arrays.append(array)
    joined, expected = Selection.concat(selections), np.concatenate(arrays)
    for _ in range(data.draw(st.integers(0, 2))):
        request = data.draw(requests(len(expected)))
        joined = joined[request]
        expected = expected[as_numpy(request)]

    assert len(joined) == len(expected)
    np.testing.assert_array_equal(joined.rows, expected)
    again = pickle.loads(pickle.dumps(joined))
    assert again == joined
    assert again.token == joined.token
    assert hash(again) == hash(joined)
    np.testing.assert_array_equal(joined.shift(7).rows, expected + 7)


def test_ranges_compose_without_spelling_out_rows():
    selection = Selection.all(10**12)[5:][::3][100:-100][::-1]
    assert isinstance(selection.pieces[0], range)
    assert len(pickle.dumps(selection)) < 300


def test_an_empty_list_selects_nothing():
    assert len(Selection.all(5)[[]]) == 0
    assert Selection.all(5)[[]].describe() == "no rows"


@pytest.mark.parametrize(
    ("request_", "kind", "words"),
    [
        ([5], SelectionError, "row 5 is out of range: there are 5 rows"),
        ([-6], SelectionError, "row -6"),
        ([True, False], SelectionError, "mask of shape"),
        (3, SelectionTypeError, r"\[r\] selects the single row r"),
        ("ab", SelectionTypeError, "'ab'"),
        ([0.5], SelectionTypeError, "float64"),
        (np.zeros((2, 2), int), SelectionTypeError, r"shape \(2, 2\)"),
        (slice("a", None), SelectionTypeError, "slice"),
        (range(3, 7), SelectionError, "row 6"),
        (np.ma.array([1, 2], mask=[0, 1]), SelectionTypeError, r"masked rows.*\.compressed\(\)"),
    ],
)
def test_bad_requests_are_refused(request_, kind, words):
    with pytest.raises(kind, match=words) as caught:
        Selection.all(5)[request_]
    assert isinstance(caught.value, LabeledError)


def test_rows_beyond_a_source_are_named():
    with pytest.raises(
        SelectionError, match=r"split 'train' of 'x' in 'f\.h5': row 9 is not there"
    ):
        Selection.of(range(5, 10)).check(7, "split 'train' of 'x' in 'f.h5'")
