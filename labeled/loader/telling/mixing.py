"""How well an order mixes the labels of a batch, and how much padding its buckets leave."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from labeled.errors import LoaderError
from labeled.loader.plan import LoaderPlan
from labeled.loader.reading.ragged_lane import RaggedLane
from labeled.loader.request.classes import read_classes
from labeled.loader.telling.explanation import GOOD_QUALITY
from labeled.ragged.padding import padding_waste
from labeled.samplers.order import Order
from labeled.samplers.plan import EpochPlan
from labeled.samplers.quality import ListedLabels, expected_quality, rows_for_quality
from labeled.samplers.sampled import AnyPlan

Rows = npt.NDArray[np.int64]

PADDED_BATCHES = 64
"""Batches, spread over the epoch, whose padding is counted."""


def shuffle_quality(
    plan: LoaderPlan, epoch_plan: AnyPlan, labels: npt.ArrayLike | str | None
) -> tuple[float | None, int | None]:
    """Return the expected entropy of batches, and the rows a window must have where it is low.

    None for what is not shuffled, or is mixed well.

    Raises
    ------
    LoaderError
        If there is not one label a row, or no such source.
    """
    if not isinstance(epoch_plan, EpochPlan) or not epoch_plan.n_batches:
        return None, None
    order = epoch_plan.order
    if order.mode == "file":
        return None, None
    known = None if labels is None else _labels(plan, order.n_rows, labels)
    quality = expected_quality(epoch_plan, known)
    if quality >= GOOD_QUALITY or order.mode != "window":
        return quality, None
    return quality, rows_for_quality(GOOD_QUALITY, epoch_plan, known)


def _labels(plan: LoaderPlan, n_rows: int, labels: npt.ArrayLike | str) -> ListedLabels:
    """Return labels by grouped position, read where a source is named."""
    if isinstance(labels, str):
        sources = {lane.name: lane.source for lane in plan.lanes}
        selections = {lane.name: lane.selection for lane in plan.lanes}
        labels = read_classes("labels", labels, sources, selections)
    values = np.asarray(labels).reshape(-1)
    if len(values) != n_rows:
        raise LoaderError(f"{len(values)} labels for {n_rows} rows; give one a row")
    return ListedLabels(values if plan.group is None else values[plan.group])


def memory_for_windows(plan: LoaderPlan, window_rows: int) -> int:
    """Return the memory that windows of so many rows need."""
    if plan.all_kept:
        return plan.sizes.memory_bytes
    wanted = min(window_rows, max(1, plan.epoch_plan.order.n_rows))
    return plan.sizes.memory_for(wanted, [lane.nbytes for lane in plan.lanes if not lane.keep])


def padding_shares(plan: LoaderPlan, epoch_plan: AnyPlan) -> tuple[float, float] | None:
    """Return the share of padding with and without buckets, in batches spread over the epoch."""
    order = epoch_plan.order
    if not isinstance(epoch_plan, EpochPlan) or not epoch_plan.n_batches:
        return None
    if not isinstance(order, Order) or order.buckets is None:
        return None
    name = order.buckets.name
    lane = next((lane for lane in plan.lanes if lane.name == name), None)
    if not isinstance(lane, RaggedLane):
        return None
    without = replace(epoch_plan, order=replace(order, buckets=None))
    return _padding(lane, plan.group, epoch_plan), _padding(lane, plan.group, without)


def _padding(lane: RaggedLane, group: Rows | None, epoch_plan: EpochPlan) -> float:
    """Return the share of padding in some batches, from the shapes of their examples alone."""
    n = epoch_plan.n_batches
    numbers = np.unique(np.linspace(0, n - 1, min(n, PADDED_BATCHES)).astype(int)).tolist()
    batches = [epoch_plan.batch(number) for number in numbers]
    rows = [rows[:count] for rows, count in batches]
    ends = np.cumsum([0, *map(len, rows)])
    positions = np.concatenate(rows)
    file_rows = lane.selection.take(positions if group is None else group[positions])
    shapes = lane.source.examples().shapes(file_rows)
    return padding_waste(shapes, [np.arange(a, b) for a, b in pairwise(ends.tolist())])
