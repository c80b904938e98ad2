"""Batches that are listed: which rows a request names, and how a plan serves them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from labeled.errors import SelectionError, SelectionTypeError
from labeled.samplers.listed import (
    as_request,
)


def rows_of(request):
    return (
        list(range(request.start, request.stop)) if isinstance(request, slice) else request.tolist()
    )


def lists(sampler):
    """The rows of each batch."""
    return [rows_of(request) for request in sampler]


# ---------------------------------------------------------------- requests
@pytest.mark.parametrize(
    ("item", "rows"),
    [
        (slice(2, 5), [2, 3, 4]),
        (slice(3), [0, 1, 2]),
        (slice(5, 2), []),
        (slice(8, 2, -3), [8, 5]),
        (range(4, 0, -2), [4, 2]),
        ([], []),
        (np.array([3, 3, 1], np.uint8), [3, 3, 1]),
        (4, [4]),
    ],
)
def test_requests_name_rows(item, rows):
    assert rows_of(as_request(item)) == rows


@pytest.mark.parametrize(
    ("item", "error", "words"),
    [
        (slice(2, None), SelectionTypeError, "does not say which rows"),
        (slice(-3, 5), SelectionError, "counts from the end"),
        ([1, -2], SelectionError, "row -2 of a batch is negative"),
        (range(2, -3, -1), SelectionError, "negative rows"),
        ([1.5], SelectionTypeError, "a list of row numbers"),
        ([True, False], SelectionTypeError, "a list of row numbers"),
        ([[1], [2]], SelectionTypeError, "a list of row numbers"),
        ("rows", SelectionTypeError, "a list of row numbers"),
    ],
)
def test_what_names_no_rows_is_refused(item, error, words):
    with pytest.raises(error, match=words):
        as_request(item)


# ---------------------------------------------------------------- plans a loader can walk
requests = st.lists(
    st.one_of(
        st.lists(st.integers(0, 30), max_size=5),
        st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda t: slice(t[0], t[0] + t[1])),
    ),
    max_size=12,
)
