"""What an order is made of: units of stored chunks, keyed bijections, draws with replacement."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.errors import LoaderError
from labeled.samplers.permutation import TABLE_ROWS, Permutation, explicit_permutation, key_of
from labeled.samplers.plan import EpochPlan
from labeled.samplers.units import (
    ListedUnits,
    UniformUnits,
    units_of_boundaries,
    units_of_groups,
    units_of_ranges,
)
from labeled.samplers.windows import Order, Weights, balanced_weights, valid_weights

small = settings(max_examples=100, deadline=None)


def offsets_of(units):
    """The offsets of any units, from their starts and sizes; they must touch."""
    ids = np.arange(units.count)
    starts, stops = units.bounds(ids)
    assert (stops > starts).all()
    assert units.max_rows >= (stops - starts).max(initial=0)
    np.testing.assert_array_equal(starts[1:], stops[:-1])
    assert units.n_rows == (stops - starts).sum()
    return [*starts.tolist(), int(stops[-1])] if units.count else [units.start]


def borders_by_counting(chunk_of_row):
    """Offsets found by looking at each row."""
    ids = list(chunk_of_row)
    inside = [i for i in range(1, len(ids)) if ids[i] != ids[i - 1]]
    return [0, *inside, len(ids)] if ids else [0]


@small
@given(st.integers(0, 50), st.integers(0, 120), st.integers(1, 30))
def test_units_of_a_range_are_whole_chunks(start, n_rows, unit_rows):
    units = UniformUnits(n_rows, unit_rows, start)
    expected = borders_by_counting(row // unit_rows for row in range(start, start + n_rows))
    assert offsets_of(units) == expected


ranges = st.builds(
    lambda start, n, step: (
        range(start, start + n * step, step) if start + n * step >= 0 else range(0)
    ),
    st.integers(0, 60),
    st.integers(0, 30),
    st.integers(1, 7),
)


@small
@given(st.lists(ranges, max_size=4), st.integers(1, 20))
def test_units_of_ranges_agree_with_counting(rows, chunk_rows):
    chunk_of_row = [row // chunk_rows for these in rows for row in these]
    units = units_of_ranges(rows, chunk_rows)
    assert offsets_of(units) == borders_by_counting(chunk_of_row)


@small
@given(st.lists(st.integers(0, 20), max_size=80), st.integers(1, 12))
def test_units_of_groups_join_small_ones(chunk_ids, min_unit_rows):
    ids = sorted(chunk_ids)
    groups = borders_by_counting(ids)
    assert offsets_of(units_of_groups(ids)) == groups

    joined = offsets_of(units_of_groups(ids, min_unit_rows))

    assert set(joined) <= set(groups)
    assert (np.diff(joined)[:-1] >= min_unit_rows).all()
    assert joined[0] == 0
    assert joined[-1] == len(ids)


@small
@given(st.sets(st.integers(0, 90)), st.integers(0, 40), st.integers(0, 60))
def test_units_of_boundaries_agree_with_counting(boundaries, start, n_rows):
    chunk_of_row = [sum(b <= row for b in boundaries) for row in range(start, start + n_rows)]
    units = units_of_boundaries(start, start + n_rows, sorted(boundaries))
    assert offsets_of(units) == borders_by_counting(chunk_of_row)


@small
@given(st.integers(1, 80), st.integers(1, 20), st.integers(1, 20), st.data())
def test_clipping_keeps_positions(n_rows, unit_rows, first_rows, data):
    lo = data.draw(st.integers(0, n_rows))
    hi = data.draw(st.integers(lo, n_rows))
    whole = UniformUnits(n_rows, unit_rows, min(first_rows, unit_rows))
    listed = ListedUnits(np.array(offsets_of(whole)))
    inside = [offset for offset in offsets_of(whole) if lo < offset < hi]
    expected = [lo, *inside, hi] if hi > lo else [lo]
    assert offsets_of(whole.clip(lo, hi)) == expected
    assert offsets_of(listed.clip(lo, hi)) == expected


keys = st.integers(0, 2**128 - 1)
some_n = st.integers(1, 300) | st.integers(TABLE_ROWS - 3, TABLE_ROWS + 70_000)


@settings(max_examples=40, deadline=None)
@given(some_n, keys)
def test_a_permutation_holds_each_value_once_and_inverts(n, key):
    permutation = Permutation(n, key)
    positions = np.arange(n)

    values = permutation(positions)

    np.testing.assert_array_equal(np.sort(values), positions)
    np.testing.assert_array_equal(permutation(values, inverse=True), positions)


@pytest.mark.parametrize(
    "n", [2**16 + 1, 2**17, 2**18 + 1, 512**2, 512**2 + 1, 513 * 512, 10**6, 999_983]
)
def test_walking_ends_inside_near_squares_powers_and_primes(n):
    permutation = Permutation(n, key_of("walk", n))
    positions = np.arange(n)
    values = permutation(positions)
    assert np.bincount(values, minlength=n).max() == 1
    np.testing.assert_array_equal(permutation(values, inverse=True), positions)


@settings(max_examples=60, deadline=None)
@given(st.integers(TABLE_ROWS + 1, 2**62 - 1), keys, st.data())
def test_huge_permutations_invert_wherever_they_are_asked(n, key, data):
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, unique=True)))
    permutation = Permutation(n, key)
    values = permutation(positions)
    assert values.min() >= 0
    assert values.max() < n
    np.testing.assert_array_equal(permutation(values, inverse=True), positions)
    np.testing.assert_array_equal([permutation(np.array([p]))[0] for p in positions], values)


def test_all_orders_of_five_are_equally_likely():
    trials = 12_000
    counts = dict.fromkeys(itertools.permutations(range(5)), 0)
    for seed in range(trials):
        counts[tuple(explicit_permutation(5, key_of(seed)).tolist())] += 1
    expected = trials / 120
    chi2 = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi2 < 119 + 5 * math.sqrt(2 * 119)


def test_blocks_of_a_large_permutation_draw_evenly_from_all_regions():
    n, regions, block = 10**8, 16, 4096
    chi2 = 0.0
    for seed in range(40):
        values = Permutation(n, key_of(seed))(np.arange(seed * 10**6, seed * 10**6 + block))
        counts = np.bincount(values * regions // n, minlength=regions)
        chi2 += float(((counts - block / regions) ** 2 / (block / regions)).sum())
    freedom = 40 * (regions - 1)
    assert abs(chi2 - freedom) < 5 * math.sqrt(2 * freedom)


def drawing(units, weights, window_rows):
    return Order("weights", units, window_rows, seed=7, weights=Weights(weights, units))


def epoch_rows(draws, shard=(0, 1), batch_rows=1):
    plan = EpochPlan(draws, shard, batch_rows, "drop")
    return np.concatenate(
        [np.zeros(0, np.int64), *(window.content.rows for window in plan.windows())]
    )


def times_drawn(draws, epochs):
    """How often each epoch drew each row, (epochs, rows)."""
    rows = [epoch_rows(replace(draws, epoch=epoch)) for epoch in range(epochs)]
    return np.stack([np.bincount(drawn, minlength=draws.n_rows) for drawn in rows])


@pytest.mark.parametrize("window_rows", [1, 7, 25, 60, 1000])
@pytest.mark.parametrize("grouped", [False, True])
def test_rows_are_drawn_in_proportion_to_their_weight(window_rows, grouped):
    """Also where positions do not divide evenly among units, and with a short last unit."""
    weights = np.random.default_rng(3).exponential(size=60) * (np.arange(60) % 4 > 0)
    sizes = [11, 3, 20, 1, 25]
    units = units_of_groups(np.repeat(range(5), sizes)) if grouped else UniformUnits(60, 11, 4)
    epochs = 400 if window_rows > 20 else 100
    drawn = times_drawn(drawing(units, weights, window_rows), epochs)
    assert (drawn[:, weights == 0] == 0).all()
    assert_mean(drawn[:, weights > 0], (60 * weights / weights.sum())[weights > 0])


def assert_mean(samples, expected):
    """Each column's mean lies within five standard errors (rare rows: of a Poisson count)."""
    error = np.sqrt(np.maximum(samples.var(axis=0), expected) / len(samples))
    assert (np.abs(samples.mean(axis=0) - expected) < 5 * error + 5 / len(samples)).all()


def test_balance_fills_every_window_with_every_class_when_sorted():
    labels = np.repeat(range(4), [5000, 2000, 900, 100])
    draws = drawing(UniformUnits(8000, 50), balanced_weights(labels), 1000)
    for window in EpochPlan(draws).windows():
        shares = np.bincount(labels[window.content.rows], minlength=4) / (
            window.stop - window.start
        )
        np.testing.assert_allclose(shares, 0.25, atol=0.06)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 120), st.integers(1, 50), st.integers(1, 6), st.integers(1, 20))
def test_shards_take_stretches_of_the_same_draws(n_rows, window_rows, count, batch_rows):
    draws = drawing(UniformUnits(n_rows, 7, 2), np.arange(n_rows) + 0.5, window_rows)
    whole = epoch_rows(draws)
    assert whole.size == n_rows
    for index in range(count):
        start = n_rows * index // count
        dealt = epoch_rows(draws, (index, count), batch_rows)
        assert dealt.size == n_rows // count // batch_rows * batch_rows
        np.testing.assert_array_equal(dealt, whole[start : start + dealt.size])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(9), r"shape \(9,\), but there are 10 rows"),
        (np.ones((10, 1)), "one weight per row"),
        ([1] * 9 + [-1], r"row 9 has -1\.0"),
        ([1] * 9 + [np.nan], "row 9 has nan"),
        ([1] * 9 + [np.inf], "row 9 has inf"),
        (np.zeros(10), "one above zero"),
        (["heavy"] * 10, "are not numbers"),
    ],
)
def test_impossible_weights_are_refused(weights, message):
    with pytest.raises(LoaderError, match=message):
        valid_weights(weights, 10)


def test_labels_of_any_kind_can_be_balanced():
    expected = [0.5, 1.0, 0.5]
    for labels in (["a", "b", "a"], [0, 1, 0], [-1, 9, -1], np.array([7, 10**9, 7], np.uint64)):
        np.testing.assert_array_equal(balanced_weights(labels), expected)
    assert balanced_weights(np.zeros(0, np.int64)).size == 0
    with pytest.raises(LoaderError, match="argmax"):
        balanced_weights(np.eye(3))
