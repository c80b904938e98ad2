"""Keyed bijections: one-to-one for any n, fair, and nothing shared between neighbours."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.samplers.permutation import (
    TABLE_ROWS,
    Permutation,
    explicit_permutation,
    key_of,
)

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
    trials = 24_000
    counts = dict.fromkeys(itertools.permutations(range(5)), 0)
    for seed in range(trials):
        counts[tuple(explicit_permutation(5, key_of(seed)).tolist())] += 1
    expected = trials / 120
    chi2 = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi2 < 119 + 5 * math.sqrt(2 * 119)


@pytest.mark.parametrize(("n", "trials"), [(1_000, 1_500), (70_000, 120)])
def test_neighbours_are_not_kept_together(n, trials):
    """As many pairs of neighbours stay neighbours as chance has it: 2 (n - 1) / n."""
    positions, pairs = np.arange(n), 0
    for seed in range(trials):
        values = Permutation(n, key_of(seed))(positions)
        pairs += np.count_nonzero(np.abs(np.diff(values)) == 1)
    expected = trials * 2 * (n - 1) / n
    assert abs(pairs - expected) < 5 * math.sqrt(expected)  # nearly Poisson


def test_blocks_of_a_large_permutation_draw_evenly_from_all_regions():
    n, regions, block = 10**8, 16, 4096
    chi2 = 0.0
    for seed in range(40):
        values = Permutation(n, key_of(seed))(np.arange(seed * 10**6, seed * 10**6 + block))
        counts = np.bincount(values * regions // n, minlength=regions)
        chi2 += float(((counts - block / regions) ** 2 / (block / regions)).sum())
    freedom = 40 * (regions - 1)
    assert abs(chi2 - freedom) < 5 * math.sqrt(2 * freedom)
