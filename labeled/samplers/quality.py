"""How well mixed the batches of a plan will be, predicted before anything is read.

Quality is the mean entropy of the labels in a batch, divided by the same for a full shuffle:
1.0 means that batches look like those of a full shuffle, 0.5 that they carry half
as much. It depends on how labels lie in the file; without labels, ten equal classes, sorted,
stand for the worst that is common.

Batches are sampled, not read. Each keeps the windows the plan will really give it; within a
window, the rows of a batch are any rows of the window, so a random handful of them has the
same distribution and spares the shuffle. The result is a pure function of its arguments. It
moves by a few thousandths where windows hold few units, by less elsewhere. Orders do not need it:
`explain()` and `labeled bench` do.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.samplers.permutation import IntArray, key_of
from labeled.samplers.plan import EpochPlan

SAMPLED_BATCHES = 800
SEARCHED_BATCHES = 150  # for each size tried
REFERENCE_BATCHES = 600
SAMPLED_ROWS = 2_000_000
SAMPLED_RUNS = 400_000  # runs arranged for one estimate, all windows together


Labels = npt.NDArray[Any]  # the class of each row, in the order of the rows that are shuffled


def batch_entropies(classes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the entropy of the labels of each batch, in bits.

    Parameters
    ----------
    classes : array, (batches, batch_rows)
        The class of every row.

    Examples
    --------
    >>> batch_entropies(np.array([[0, 1, 2, 3], [4, 4, 5, 5], [6, 6, 6, 6]]))
    array([2., 1., 0.])
    """
    n, batch_rows = classes.shape
    ordered = np.sort(classes, axis=1)
    begins = np.ones(ordered.shape, bool)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = np.flatnonzero(begins)
    counts = np.diff(starts, append=classes.size)
    missing = np.bincount(starts // batch_rows, weights=counts * np.log2(counts), minlength=n)
    bits: npt.NDArray[np.float64] = np.log2(batch_rows) - missing / batch_rows
    return np.maximum(bits, 0.0)


def expected_quality(plan: EpochPlan, labels: Labels | None = None) -> float:
    """Predict the mean batch entropy of a plan relative to a full shuffle.

    Parameters
    ----------
    plan : EpochPlan
        Any shard of any epoch; only its full batches count.
    labels : array, (n_rows,), optional
        The class of each row that is shuffled; ten equal classes, sorted, where not given.

    Returns
    -------
    float
        From 0 to about 1; above 1 where draws even out what the file holds unevenly.

    Examples
    --------
    >>> from labeled.samplers.units import UniformUnits
    >>> from labeled.samplers.windows import Order
    >>> order = Order("window", UniformUnits(10**8, 1000), window_rows=64_000, seed=7)
    >>> round(expected_quality(EpochPlan(order, batch_rows=256)), 2)
    0.97
    """
    order = plan.order
    if plan.n_rows < plan.batch_rows or order.mode == "full":
        return 1.0
    best = _shuffled_entropy(plan, labels)
    return 1.0 if best == 0.0 else _mean_entropy(plan, labels, SAMPLED_BATCHES) / best


def rows_for_quality(target: float, plan: EpochPlan, labels: Labels | None = None) -> int:
    """Return the smallest `window_rows`, in whole units, with which a plan reaches `target`.

    Windows are at least as large as a batch.

    Parameters
    ----------
    target : float
        From 0 to below 1, which no window reaches.
    plan : EpochPlan
        In file order or with windows, with one row at least; its own `window_rows` is set aside.
    """
    order = plan.order
    needed = target * _shuffled_entropy(plan, labels)
    mode = "window" if order.weights is None else order.mode

    def reached(n_units: int) -> bool:
        window_rows = min(order.n_rows, n_units * order.units.max_rows)
        trial = replace(plan, order=replace(order, mode=mode, window_rows=window_rows))
        return _mean_entropy(trial, labels, SEARCHED_BATCHES) >= needed

    most = -(-order.n_rows // order.units.max_rows)
    high = min(most, -(-plan.batch_rows // order.units.max_rows))
    low = high - 1
    while high < most and not reached(high):
        low, high = high, 2 * high
    high = low + 1 + bisect_left(range(low + 1, high), True, key=reached)
    return min(order.n_rows, high * order.units.max_rows)


def _random(plan: EpochPlan, purpose: str) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key_of("quality", purpose, plan.order.seed)))


def _shuffled_entropy(plan: EpochPlan, labels: Labels | None) -> float:
    """Mean entropy of batches drawn from all rows."""
    random, n_rows = _random(plan, "shuffled"), plan.order.n_rows
    batch_rows = min(n_rows, plan.batch_rows)
    numbers = range(_affordable(REFERENCE_BATCHES, batch_rows))
    drawn = (random.choice(n_rows, batch_rows, replace=False, shuffle=False) for _ in numbers)
    return _mean(drawn, labels, n_rows)


def _mean_entropy(plan: EpochPlan, labels: Labels | None, sampled_batches: int) -> float:
    """Mean entropy of the full batches of a plan, from a sample spread over the epoch.

    Batches come in groups where it is much work to know the runs of a window.
    """
    n_full, order, runs = plan.n_rows // plan.batch_rows, plan.order, 1
    if n_full == 0:
        return math.inf  # one short batch holds every row: as mixed as can be
    if order.mode == "window":
        runs = 1 + order.window_rows * order.units.count // order.n_rows
    elif order.weights is not None:
        runs = order.window_rows // 8
    wanted = min(n_full, _affordable(sampled_batches, plan.batch_rows))
    groups = max(1, min(wanted, SAMPLED_RUNS // max(1, runs)))
    size = wanted // groups
    first = [(n_full - size) * group // max(1, groups - 1) for group in range(groups)]
    numbers = sorted({start + number for start in first for number in range(size)})
    return _mean(_sampled(plan, numbers), labels, order.n_rows)


def _sampled(plan: EpochPlan, numbers: Iterable[int]) -> Iterator[IntArray]:
    """Yield the rows of batches: those of their real windows, there at random places."""
    random, known = _random(plan, "batches"), None
    for number in numbers:
        parts = []
        for order, lo, hi in plan.spans(number * plan.batch_rows, (number + 1) * plan.batch_rows):
            first, last = order.window_at(lo)
            if plan.order.mode in ("file", "full"):
                parts.append(order.rows(lo, hi).rows)
            elif plan.order.weights is not None:
                if known != (order, first):
                    known, rows = (order, first), order.rows(first, last).rows
                parts.append(rows[lo - first : hi - first])
            else:
                if known != (order, first):
                    known, runs = (order, first), order.whole_runs(first, last)
                    ends = np.cumsum(runs[:, 1] - runs[:, 0])
                places = random.choice(last - first, hi - lo, replace=False, shuffle=False)
                run = ends.searchsorted(places, side="right")
                parts.append(runs[run, 1] - (ends[run] - places))
        yield np.concatenate(parts)


def _affordable(n_batches: int, batch_rows: int) -> int:
    """Fewer batches where they are large: their entropies hardly differ."""
    return min(n_batches, max(16, SAMPLED_ROWS // batch_rows))


def _mean(batches: Iterable[IntArray], labels: Labels | None, n_rows: int) -> float:
    """Mean entropy of batches of equal size, some of them at a time."""
    source, found = iter(batches), []
    while some := list(islice(source, 64)):
        rows = np.stack(some)
        found.append(batch_entropies((rows * 10 + 9) // n_rows if labels is None else labels[rows]))
    return float(np.mean(np.concatenate(found)))
