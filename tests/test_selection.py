"""Rows are chosen, and chosen again among the chosen, as NumPy indexes the rows themselves."""

from __future__ import annotations

import pickle

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.errors import LabeledError, SelectionError, SelectionTypeError

ends = st.none() | st.integers(-15, 15)
slices = st.builds(slice, ends, ends, st.none() | st.integers(-4, 4).filter(bool))


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Return datasets of each number of rows up to 12; row r of source x is r."""
    folder = tmp_path_factory.mktemp("rows")
    made = [labeled.write(folder / f"{n}.h5", {"x": np.arange(n)}) for n in range(13)]
    return [labeled.open_dataset(path) for path in made]


def requests(n: int) -> st.SearchStrategy:
    masks = st.lists(st.booleans(), min_size=n, max_size=n).map(lambda m: np.array(m, bool))
    if not n:
        return slices | masks | st.just([])
    return slices | masks | st.lists(st.integers(-n, n - 1), max_size=12)


def chosen(data, dataset, rows, most):
    """Choose some rows of both, up to `most` times."""
    for _ in range(data.draw(st.integers(0, most))):
        request = data.draw(requests(len(rows)))
        dataset = dataset.subset(request)
        rows = rows[np.asarray(request, int) if isinstance(request, list) else request]
    return dataset, rows


@given(st.data())
def test_any_composition_agrees_with_numpy(opened, data):
    parts, rows = [], []
    for _ in range(data.draw(st.integers(1, 3))):
        whole = opened[data.draw(st.integers(0, 12))]
        part, own = chosen(data, whole, np.arange(len(whole)), 3)
        parts.append(part)
        rows.append(own)
    joined, expected = chosen(data, labeled.concat(parts), np.concatenate(rows), 2)
    assert len(joined) == len(expected)
    np.testing.assert_array_equal(joined["x"].values, expected)
    again = pickle.loads(pickle.dumps(joined))
    np.testing.assert_array_equal(again["x"].values, expected)
    assert again["x"].data.name == joined["x"].data.name  # what dask knows equal arrays by


@pytest.mark.filterwarnings("ignore:splits overlap")
def test_splits_that_share_rows_are_joined_as_they_are(tmp_path):
    splits = {"a": range(2), "b": range(1, 3), "c": range(3, 9)}
    path = labeled.write(tmp_path / "x.h5", {"x": np.arange(9)}, splits=splits)
    both = labeled.open_dataset(path).split("a", "b", "c")
    assert both["x"].values.tolist() == [0, 1, 1, 2, 3, 4, 5, 6, 7, 8]
    assert "rows 0:2 + 1:9" in repr(both)


def test_ranges_compose_without_spelling_out_rows(tmp_path):
    with h5py.File(tmp_path / "long.h5", "w") as file:
        file.create_dataset("x", (10**12,), "u1", chunks=(1 << 20,))
    whole = labeled.open_dataset(tmp_path / "long.h5")
    some = whole.subset(slice(5, None)).subset(slice(None, None, 3)).subset(slice(99, -99))
    some = some.subset(slice(None, None, -1))
    assert len(some) == -(-(10**12 - 5) // 3) - 198
    assert len(pickle.dumps(some)) < len(pickle.dumps(whole)) + 300


def test_sources_share_the_rows_of_a_split(tmp_path):
    rows = np.random.default_rng(0).permutation(10_000)[:5000]
    path = labeled.write(tmp_path / "x.h5", dict.fromkeys("xyz", np.arange(10_000)), {"a": rows})
    whole = labeled.open_dataset(path)
    one, three = (whole.select(*names).split("a") for names in ("x", "xyz"))
    assert len(pickle.dumps(three)) < len(pickle.dumps(one)) + 300
    one, three = one.subset(slice(99)), three.subset(slice(99))
    assert len(pickle.dumps(three)) < len(pickle.dumps(one)) + 300


@pytest.mark.parametrize(
    ("request_", "kind", "words"),
    [
        ([-6], SelectionError, "row -6"),
        (3, SelectionTypeError, r"\[r\] selects the single row r"),
        ([0.5], SelectionTypeError, "float64"),
        (np.zeros((2, 2), int), SelectionTypeError, r"shape \(2, 2\)"),
        (slice("a", None), SelectionTypeError, "slice"),
        (range(3, 7), SelectionError, "row 6"),
        (range(6, 2, -1), SelectionError, "row 6"),
        (range(7, 8), SelectionError, "row 7"),
        (np.ma.array([1, 2], mask=[0, 1]), SelectionTypeError, r"masked values.*\.compressed\(\)"),
    ],
)
def test_bad_requests_are_refused(opened, request_, kind, words):
    with pytest.raises(kind, match=words) as caught:
        opened[5].subset(request_)
    assert isinstance(caught.value, LabeledError)
