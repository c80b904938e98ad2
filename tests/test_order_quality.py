"""The entropy foretold is the entropy an epoch has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from labeled.samplers.plan import EpochPlan
from labeled.samplers.quality import (
    expected_quality,
    rows_for_quality,
)
from labeled.samplers.units import UniformUnits
from labeled.samplers.windows import Order, Weights, balanced_weights


def entropy(labels):
    """Written out with natural logarithms, independent of the module."""
    shares = np.array([np.mean(labels == label) for label in set(labels.tolist())])
    return -np.sum(shares * np.log(shares)) / np.log(2)


def measured_quality(plan, labels):
    """Mean entropy of every full batch of the epoch, over that of a full shuffle."""
    n_rows, rows = plan.order.n_rows, plan.batch_rows
    batches = [plan.batch(number)[0] for number in range(plan.n_rows // rows)]
    random = np.random.default_rng(5)
    shuffled = [random.choice(n_rows, rows, replace=False) for _ in range(400)]
    found, best = (np.mean([entropy(labels[b]) for b in some]) for some in (batches, shuffled))
    return found / best


SORTED = np.repeat(np.arange(10), 10_000)
SKEWED = (
    np.random.default_rng(1)
    .permuted(
        np.sort(
            np.random.default_rng(0).choice(6, 100_000, p=[0.6, 0.2, 0.1, 0.05, 0.03, 0.02])
        ).reshape(-1, 500),
        axis=1,
    )
    .ravel()
)


@pytest.mark.parametrize("labels", [SORTED, SKEWED], ids=["sorted", "skewed"])
@pytest.mark.parametrize(
    ("mode", "chunk_rows", "window_rows", "batch_rows"),
    [
        ("window", 64, 4096, 256),
        ("window", 1000, 4000, 256),
        ("window", 1000, 16_000, 128),
        ("window", 1000, 700, 300),
        ("window", 250, 250, 256),
        ("file", 1000, 4000, 256),
        ("full", 1000, 4000, 256),
    ],
)
def test_predicted_and_measured_agree(labels, mode, chunk_rows, window_rows, batch_rows):
    order = Order(mode, UniformUnits(100_000, chunk_rows), window_rows, seed=7)
    plan = EpochPlan(order, batch_rows=batch_rows)
    foretold = expected_quality(plan, labels)
    assert abs(foretold - measured_quality(plan, labels)) < 0.01


def test_predicted_and_measured_agree_for_draws():
    labels = np.repeat(range(5), [50_000, 20_000, 20_000, 9_000, 1_000])
    units = UniformUnits(100_000, 500)
    draws = Order(
        "balance", units, 20_000, seed=7, weights=Weights(balanced_weights(labels), units)
    )
    plan = EpochPlan(draws, batch_rows=200, last="drop")
    foretold = expected_quality(plan, labels)
    assert abs(foretold - measured_quality(plan, labels)) < 0.01
    assert foretold > 1.1  # evener than the file


def test_the_smallest_window_for_a_quality_is_found():
    units = UniformUnits(1_000_000, 500)
    plan = EpochPlan(Order("file", units, 500, 7), batch_rows=256)
    window_rows = rows_for_quality(0.95, plan)
    assert 40 <= window_rows / 500 <= 50  # at least 45 chunks of a single class each, theory says
    reached, missed = (
        expected_quality(replace(plan, order=Order("window", units, rows, 7)))
        for rows in (window_rows, window_rows * 3 // 4)
    )
    assert reached > 0.945
    assert missed < 0.945


def test_quality_at_the_ends():
    order = Order("window", UniformUnits(1000, 100), 1000, 7)
    assert expected_quality(EpochPlan(order, batch_rows=2000)) == 1.0
    assert expected_quality(EpochPlan(order, batch_rows=10), np.zeros(1000)) == 1.0
    empty = replace(order, units=UniformUnits(0, 100))
    assert expected_quality(EpochPlan(empty)) == 1.0
    assert rows_for_quality(0.999, EpochPlan(order, batch_rows=500)) == 1000
    assert rows_for_quality(0.0, EpochPlan(order, batch_rows=150)) == 200
