"""Batches that are listed: which rows a request names, and how a plan serves them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeled.errors import SelectionError, SelectionTypeError
from labeled.samplers.listed import (
    ListedBatches,
    SampledOrder,
    SampledPlan,
    as_request,
    rows_of_request,
)


def lists(sampler):
    """The rows of each batch."""
    return [rows_of_request(request).tolist() for request in sampler]


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
    assert rows_of_request(as_request(item)).tolist() == rows


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


def test_slices_that_follow_each_other_are_one_run():
    batches = ListedBatches.of([slice(0, 2), slice(2, 2), slice(2, 4), slice(5, 7)])
    assert batches.content(0, 3).runs.tolist() == [[0, 4]]
    assert batches.content(0, 4).runs is None
    assert batches.content(0, 4).rows.tolist() == [0, 1, 2, 3, 5, 6]
    assert len(repr(ListedBatches.of([[row] for row in range(50_000)]))) < 120


# ---------------------------------------------------------------- plans a loader can walk
requests = st.lists(
    st.one_of(
        st.lists(st.integers(0, 30), max_size=5),
        st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda t: slice(t[0], t[0] + t[1])),
    ),
    max_size=12,
)


def walked(plan, first=0):
    """The rows of each batch, as a loader cuts them out of windows."""
    windows = list(plan.windows(first))
    rows = np.concatenate([np.zeros(0, int), *(w.content.rows for w in windows)])
    start = plan.span(first)[0] if first < plan.n_batches else 0
    ends = [plan.span(k)[1] - start for k in range(first, plan.n_batches)]
    return [part.tolist() for part in np.split(rows, ends)[: len(ends)]]


@given(requests, st.integers(1, 4), st.integers(0, 12), st.integers(1, 20))
def test_shards_of_a_sampled_plan_hold_each_batch_once(items, count, first, window_rows):
    batches = ListedBatches.of(items)
    order = SampledOrder(batches, 31, window_rows)
    plans = [SampledPlan(order, shard=(i, count)) for i in range(count)]

    dealt = [batch for group in itertools.zip_longest(*map(walked, plans)) for batch in group]
    assert [batch for batch in dealt if batch is not None] == lists(batches)
    assert sum(plan.n_rows for plan in plans) == batches.edges[-1]
    for plan in plans:
        at = min(first, plan.n_batches)
        assert walked(plan, at) == walked(plan)[at:]
        assert [plan.batch(k)[0].tolist() for k in range(plan.n_batches)] == walked(plan)


def test_windows_of_slices_in_order_are_single_runs():
    batches = ListedBatches.of([slice(at, at + 4) for at in range(0, 100, 4)])
    windows = list(SampledPlan(SampledOrder(batches, 100, window_rows=10)).windows())
    assert [(w.start, w.stop) for w in windows][:3] == [(0, 8), (8, 16), (16, 24)]
    assert all(w.content.run == (w.start, w.stop) for w in windows)
