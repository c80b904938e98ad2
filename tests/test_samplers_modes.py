"""Iteration modes and schemes: which rows make up each batch, tried with integers alone."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeled.errors import LoaderError, SelectionError, SelectionTypeError
from labeled.samplers.cuts import cut
from labeled.samplers.modes import MODES, batch_sampler, even_sequences
from labeled.samplers.requests import ListedBatches, as_request, rows_of_request
from labeled.samplers.sampled import SampledOrder, SampledPlan
from labeled.samplers.schemes import (
    concatenated,
    cross_validation,
    sequential,
    shuffled,
)

RANDOM = [mode for mode, walk in MODES.items() if walk.random]
WHOLE = [mode for mode in MODES if not mode.startswith(("random", "even"))]
EVEN = [mode for mode in MODES if mode.startswith("even")]


def lists(sampler):
    """The rows of each batch."""
    return [rows_of_request(request).tolist() for request in sampler]


def made(mode, rows, batch_rows=None, n_batches=None, **options):
    options = {"seed": 7, **options} if mode in RANDOM else options
    return batch_sampler(mode, rows, batch_rows, n_batches, **options)


# ---------------------------------------------------------------- laws of every mode
@given(st.sampled_from(WHOLE), st.integers(0, 60), st.integers(1, 20), st.integers(0, 3))
def test_plain_modes_hand_out_each_row_once(mode, n, batch_rows, epoch):
    sampler = made(mode, n, batch_rows).at_epoch(epoch)
    batches = lists(sampler)

    assert sorted(itertools.chain(*batches)) == list(range(n))
    assert len(batches) == len(sampler) == -(-n // batch_rows)
    assert sampler.n_rows == n
    assert sorted(map(len, batches), reverse=True)[:-1] == [batch_rows] * (len(batches) - 1)
    assert lists(sampler) == batches  # re-iterable
    assert lists(pickle.loads(pickle.dumps(sampler))) == batches


@given(st.sampled_from(EVEN), st.integers(0, 60), st.integers(1, 20))
def test_even_modes_leave_out_what_fills_no_batch(mode, n, batch_rows):
    sampler = made(mode, n, batch_rows)
    batches = lists(sampler)

    assert [len(rows) for rows in batches] == [batch_rows] * (n // batch_rows)
    assert len(set(itertools.chain(*batches))) == sampler.n_rows == n // batch_rows * batch_rows


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 9))
def test_random_modes_have_equal_batches_within_range(n, batch_rows, n_batches):
    n_batches += 1
    uniform = made("random_uniform", n, batch_rows, n_batches)
    assert np.array(lists(uniform)).shape == (n_batches, batch_rows)
    assert 0 <= np.min(lists(uniform)) <= np.max(lists(uniform)) < n
    assert uniform.n_rows == n_batches * batch_rows

    if batch_rows <= n:
        for rows in made("random_slice", n, batch_rows, n_batches):
            assert isinstance(rows, slice)
            assert rows.stop - rows.start == batch_rows
            assert 0 <= rows.start <= rows.stop <= n


@pytest.mark.parametrize("mode", RANDOM)
def test_epochs_and_seeds_differ_and_repeat(mode):
    first = made(mode, 200, 10, 15)
    assert lists(first) != lists(first.at_epoch(1))
    assert lists(first) != lists(made(mode, 200, 10, 15, seed=8))
    assert lists(first.at_epoch(1)) == lists(made(mode, 200, 10, 15, epoch=1))


def test_random_slices_start_anywhere_with_equal_chance():
    starts = [s.start for s in batch_sampler("random_slice", 7, 4, 20_000, seed=1)]
    counts = np.bincount(starts, minlength=4)
    assert len(counts) == 4
    assert abs(counts / 5_000 - 1).max() < 0.1


@pytest.mark.parametrize("mode", ["sequential", "even_sequential", "batchwise_shuffled_sequential"])
def test_unlisted_rows_come_as_slices(mode):
    assert all(isinstance(request, slice) for request in made(mode, 100, 7))
    assert all(request.dtype == np.int64 for request in made(mode, np.arange(100), 7))


@given(st.lists(st.integers(0, 99), max_size=30), st.integers(1, 7), st.sampled_from(WHOLE))
def test_listed_rows_are_dealt_like_their_places(rows, batch_rows, mode):
    places = lists(made(mode, len(rows), batch_rows))
    assert lists(made(mode, rows, batch_rows)) == [[rows[i] for i in batch] for batch in places]


def test_sorting_changes_no_batch_but_its_order():
    plain = lists(batch_sampler("shuffled_sequential", 50, 8, seed=3))
    ordered = lists(batch_sampler("shuffled_sequential", 50, 8, seed=3, sorted_within=True))
    assert ordered == [sorted(rows) for rows in plain] != plain


# ---------------------------------------------------------------- sizes
def test_sizes_follow_the_rule_of_the_mode():
    assert lists(batch_sampler("sequential", 10, n_batches=3)) == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    assert lists(batch_sampler("even_sequential", 10, n_batches=3)) == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
    ]
    assert lists(batch_sampler("sequential", 10, 3, 2)) == [[0, 1, 2], [3, 4, 5]]
    assert lists(batch_sampler("even_sequential", 3, 4)) == []
    blocks = lists(made("batchwise_shuffled_sequential", 10, 3, 2))
    assert sorted(blocks) == [[0, 1, 2], [3, 4, 5]]  # only the first two blocks take part


@pytest.mark.parametrize(
    ("mode", "sizes", "words"),
    [
        ("sequential", (), "give batch_rows, n_batches or both"),
        ("sequential", (3, 5), "5 batches of 3 rows cannot be made of 10 rows, only 4"),
        ("sequential", (None, 6), "6 batches of 2 rows cannot be made of 10 rows, only 5"),
        ("even_sequential", (3, 4), "4 full batches of 3 rows"),
        ("even_sequential", (None, 11), "10 rows are too few for 11 batches"),
        ("random_slice", (3,), "need both"),
        ("random_uniform", (None, 3), "need both"),
        ("random_slice", (11, 1), "batches of 11 rows cannot be drawn from 10"),
        ("sequential", (0,), "batch_rows=0 must be at least 1"),
        ("sequential", (2.5,), r"batch_rows=2\.5 must be a whole number"),
        ("sequential", (True,), "batch_rows=True must be a whole number"),
    ],
)
def test_impossible_sizes_are_refused(mode, sizes, words):
    with pytest.raises(LoaderError, match=words):
        made(mode, 10, *sizes)


def test_drawing_from_nothing_is_refused():
    with pytest.raises(LoaderError, match="cannot be drawn from 0 rows"):
        made("random_uniform", 0, 3, 2)
    assert lists(made("shuffled_sequential", 0, 3)) == []


def test_wrong_modes_and_seeds_are_refused():
    with pytest.raises(LoaderError, match="did you mean 'shuffled_sequential'"):
        batch_sampler("shufled_sequential", 10, 2)
    with pytest.raises(LoaderError, match=r"make it with even_sequences\(lengths\)$"):
        batch_sampler("even_sequences", 10, 2)
    for mode in (["sequential"], None):
        with pytest.raises(LoaderError, match=r"mode=.* must be text"):
            batch_sampler(mode, 10, 2)
    with pytest.raises(LoaderError, match=r"rows=10\.0 must be a whole number or a sequence"):
        batch_sampler("sequential", 10.0, 2)
    with pytest.raises(LoaderError, match="takes no seed=7"):
        batch_sampler("sequential", 10, 2, seed=7)
    with pytest.raises(LoaderError, match="give it a seed"):
        batch_sampler("shuffled_sequential", 10, 2)
    with pytest.raises(LoaderError, match="seed='7' must be a whole number"):
        batch_sampler("shuffled_sequential", 10, 2, seed="7")


@given(st.integers(0, 200), st.integers(1, 30), st.integers(1, 30))
def test_cut_is_what_counting_gives(n, batch_rows, n_batches):
    blocks = [range(n)[i : i + batch_rows] for i in range(0, n, batch_rows)]
    found = cut("short last", n, batch_rows, None)
    assert [range(*found.bounds(i)) for i in range(found.n_batches)] == blocks
    full = [block for block in blocks if len(block) == batch_rows]
    assert cut("even", n, batch_rows, None).n_batches == len(full)
    if n_batches <= len(blocks):
        assert cut("short last", n, batch_rows, n_batches).n_batches == n_batches
    else:
        with pytest.raises(LoaderError, match="ask for fewer"):
            cut("short last", n, batch_rows, n_batches)


# ---------------------------------------------------------------- sequences of equal length
@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 6), st.integers(0, 2))
def test_sequences_of_a_batch_have_one_length(lengths, batch_rows, epoch):
    sampler = even_sequences(lengths, batch_rows, seed=7, epoch=epoch)
    batches = lists(sampler)

    assert sorted(itertools.chain(*batches)) == list(range(len(lengths)))
    assert all(len({lengths[row] for row in batch}) == 1 for batch in batches)
    assert all(0 < len(batch) <= batch_rows for batch in batches)
    assert len(batches) == len(sampler)
    assert lists(sampler) == batches


def test_lengths_take_turns():
    lengths = [1] * 6 + [2] * 6 + [3] * 2
    turns = [lengths[batch[0]] for batch in lists(even_sequences(lengths, 2, seed=3))]
    assert sorted(turns[:3]) == [1, 2, 3]
    assert sorted(turns[3:5]) == sorted(turns[5:7]) == [1, 2]


def test_sequences_are_told_by_their_lengths():
    with pytest.raises(LoaderError, match="one whole number a sequence"):
        even_sequences([[1], [2]], 2, seed=7)
    with pytest.raises(LoaderError, match="give it a seed"):
        even_sequences([1, 2], 2)


# ---------------------------------------------------------------- schemes
def test_a_generator_of_rows_serves_every_epoch():
    sampler = sequential((row for row in (4, 2, 8)), 2)
    assert lists(sampler) == lists(sampler) == [[4, 2], [8]]


def test_concatenated_samplers_share_their_epoch():
    both = concatenated([shuffled(4, 2, seed=1), sequential([9], 3)])
    first, second = both.at_epoch(0), both.at_epoch(1)
    assert lists(both) == lists(first) != lists(second)
    assert lists(first)[2] == lists(second)[2] == [9]
    assert (len(both), both.batch_rows) == (3, 2)
    with pytest.raises(LoaderError, match="item 1 to concatenate is no sampler"):
        concatenated([sequential(2, 1), [3, 4]])
    with pytest.raises(LoaderError, match="different epochs"):
        concatenated([shuffled(4, 2, seed=1), shuffled(4, 2, seed=1, epoch=2)])


@given(st.integers(1, 40), st.integers(1, 8))
def test_folds_leave_each_row_out_once(n, n_folds):
    n_folds = min(n, n_folds)
    folds = cross_validation(sequential, n, n_folds, strict=False, batch_rows=5)
    valid = [list(itertools.chain(*lists(fold.valid))) for fold in folds]

    assert list(itertools.chain(*valid)) == list(range(n))
    assert [fold.n_valid for fold in folds] == [len(rows) for rows in valid]
    for fold, rows in zip(folds, valid, strict=True):
        train = list(itertools.chain(*lists(fold.train)))
        assert train == [row for row in range(n) if row not in rows]


def test_lengths_that_are_none_are_refused():
    for lengths in ([[1, 2], [3]], [1.5, 2.0], [[1], [2]]):
        with pytest.raises(LoaderError, match=r"give \[len\(one\) for one in sequences\]"):
            even_sequences(lengths, 2, seed=1)
    with pytest.raises(LoaderError, match="lengths must be 0 or more, found -1"):
        even_sequences([2, -1], 2, seed=1)


def test_samplers_show_themselves_in_a_line():
    made = batch_sampler("shuffled_sequential", 100_000, 3, seed=7, epoch=2)
    assert repr(made) == (
        "<sampler 'shuffled_sequential': 33,334 batches of 3, of 100,000 rows, seed=7, epoch=2>"
    )
    folded = cross_validation(sequential, 10, 2, batch_rows=4)[0]
    assert "valid=<sampler 'sequential': 2 batches of 4, of 5 rows>" in repr(folded)
    assert repr(even_sequences([3, 5, 3], 2, seed=1)).endswith(
        "2 batches of 2, of 3 sequences of 2 lengths, seed=1, epoch=0>"
    )
    listed = ListedBatches.of([[row] for row in range(50_000)])
    assert len(repr(listed)) < 120
    assert repr(concatenated([sequential(4, 2), listed])).startswith("<50,002 batches: <sampler")


def test_folds_that_cannot_be_are_refused_at_once():
    with pytest.raises(LoaderError, match="a scheme is a function"):
        cross_validation("sequential", 10, 5, batch_rows=2)
    with pytest.raises(LoaderError, match="10 rows are not cut into 4 equal folds"):
        cross_validation(sequential, 10, 4, batch_rows=2)
    with pytest.raises(LoaderError, match="cannot be cut into 4 folds"):
        cross_validation(sequential, 3, 4, strict=False, batch_rows=2)


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
    assert batches.rows.tolist() == [0, 1, 2, 3, 5, 6]


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
    rows = np.concatenate([np.zeros(0, int), *(w.rows for w in windows)])
    start = plan.span(first)[0] if first < plan.n_batches else 0
    ends = [plan.span(k)[1] - start for k in range(first, plan.n_batches)]
    return [part.tolist() for part in np.split(rows, ends)[: len(ends)]]


@given(requests, st.integers(1, 4), st.integers(0, 12), st.integers(1, 20))
def test_parts_of_a_sampled_plan_hold_each_batch_once(items, count, first, window_rows):
    batches = ListedBatches.of(items)
    order = SampledOrder(batches, 31, window_rows)
    plans = [SampledPlan(order, part=(i, count)) for i in range(count)]

    dealt = [batch for group in itertools.zip_longest(*map(walked, plans)) for batch in group]
    assert [batch for batch in dealt if batch is not None] == lists(batches)
    assert sum(plan.n_rows for plan in plans) == batches.edges[-1]
    for plan in plans:
        at = min(first, plan.n_batches)
        assert walked(plan, at) == walked(plan)[at:]
        assert [plan.batch(k)[0].tolist() for k in range(plan.n_batches)] == walked(plan)


def test_sequential_windows_are_single_runs():
    plan = SampledPlan(SampledOrder(batch_sampler("sequential", 100, 4), 100, window_rows=10))
    assert [(w.start, w.stop) for w in plan.windows()][:3] == [(0, 8), (8, 16), (16, 24)]
    assert all(w.runs is not None and len(w.runs) == 1 for w in plan.windows())
