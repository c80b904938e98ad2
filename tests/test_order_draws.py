"""Draws with replacement: frequencies follow the weights, whatever the shards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeled.errors import LoaderError
from labeled.samplers.draws import Draws, balanced_weights
from labeled.samplers.plan import EpochPlan
from labeled.samplers.units import units_of_groups, units_of_range


def epoch_rows(draws, shard=(0, 1), batch_rows=1):
    plan = EpochPlan(draws, shard, batch_rows, "drop")
    return np.concatenate(
        [np.zeros(0, np.int64), *(window.content.rows for window in plan.windows())]
    )


def times_drawn(draws, epochs):
    """How often each epoch drew each row, (epochs, rows)."""
    rows = [epoch_rows(draws.at_epoch(epoch)) for epoch in range(epochs)]
    return np.stack([np.bincount(drawn, minlength=draws.n_rows) for drawn in rows])


@pytest.mark.parametrize("window_rows", [1, 7, 25, 60, 1000])
@pytest.mark.parametrize("grouped", [False, True])
def test_rows_are_drawn_in_proportion_to_their_weight(window_rows, grouped):
    """Also where positions do not divide evenly among units, and with a short last unit."""
    weights = np.random.default_rng(3).exponential(size=60) * (np.arange(60) % 4 > 0)
    sizes = [11, 3, 20, 1, 25]
    units = units_of_groups(np.repeat(range(5), sizes)) if grouped else units_of_range(4, 64, 11)
    epochs = 1500 if window_rows > 20 else 200
    drawn = times_drawn(Draws(units, weights, window_rows, seed=7), epochs)
    assert (drawn[:, weights == 0] == 0).all()
    assert_mean(drawn[:, weights > 0], (60 * weights / weights.sum())[weights > 0])


def assert_mean(samples, expected):
    """Each column's mean lies within five standard errors (rare rows: of a Poisson count)."""
    error = np.sqrt(np.maximum(samples.var(axis=0), expected) / len(samples))
    assert (np.abs(samples.mean(axis=0) - expected) < 5 * error + 5 / len(samples)).all()


@pytest.mark.parametrize("kind", ["sorted", "mixed"])
def test_balance_draws_every_class_equally_often(kind):
    labels = np.repeat([0, 1, 2, 5], [5000, 2000, 900, 100])
    if kind == "mixed":
        labels = np.random.default_rng(1).permutation(labels)
    draws = Draws(units_of_range(0, 8000, 50), balanced_weights(labels), 1000, 7, mode="balance")
    drawn = labels[epoch_rows(draws)]
    shares = np.bincount(drawn)[[0, 1, 2, 5]] / drawn.size
    np.testing.assert_allclose(shares, 0.25, atol=0.03)


def test_balance_fills_every_window_with_every_class_when_sorted():
    labels = np.repeat(range(4), [5000, 2000, 900, 100])
    draws = Draws(units_of_range(0, 8000, 50), balanced_weights(labels), 1000, seed=7)
    for window in EpochPlan(draws).windows():
        shares = np.bincount(labels[window.content.rows], minlength=4) / (
            window.stop - window.start
        )
        np.testing.assert_allclose(shares, 0.25, atol=0.06)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 120), st.integers(1, 50), st.integers(1, 6), st.integers(1, 20))
def test_shards_take_stretches_of_the_same_draws(n_rows, window_rows, count, batch_rows):
    draws = Draws(units_of_range(2, 2 + n_rows, 7), np.arange(n_rows) + 0.5, window_rows, seed=3)
    whole = epoch_rows(draws)
    assert whole.size == n_rows
    for index in range(count):
        start = n_rows * index // count
        dealt = epoch_rows(draws, (index, count), batch_rows)
        assert dealt.size == n_rows // count // batch_rows * batch_rows
        np.testing.assert_array_equal(dealt, whole[start : start + dealt.size])


def test_neighbouring_seeds_and_epochs_draw_differently():
    draws = Draws(units_of_range(0, 500, 10), np.ones(500), 100, seed=7)
    found = {
        epoch_rows(draws.at_epoch(epoch, seed)).tobytes() for epoch in range(4) for seed in range(4)
    }
    assert len(found) == 16


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(9), r"shape \(9,\), but there are 10 rows"),
        (np.ones((10, 1)), "one weight per row"),
        ([1] * 9 + [-1], r"row 9 has -1\.0"),
        ([1] * 9 + [np.nan], "row 9 has nan"),
        ([1] * 9 + [np.inf], "row 9 has inf"),
        (np.zeros(10), "one above zero"),
    ],
)
def test_impossible_weights_are_refused(weights, message):
    with pytest.raises(LoaderError, match=message):
        Draws(units_of_range(0, 10, 2), weights, 4, seed=7)


def test_labels_of_any_kind_can_be_balanced():
    expected = [0.5, 1.0, 0.5]
    for labels in (["a", "b", "a"], [0, 1, 0], [-1, 9, -1], np.array([7, 10**9, 7], np.uint64)):
        np.testing.assert_array_equal(balanced_weights(labels), expected)
    assert balanced_weights(np.zeros(0, np.int64)).size == 0
    with pytest.raises(LoaderError, match="argmax"):
        balanced_weights(np.eye(3))
