"""From what a user asks of rows to their order: which rows a batch holds, and when.

Whatever touches neither memory nor the form of a batch: the mode of shuffling, draws,
samplers, parts and the short last batch, checked and put together as the plan of an epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.catalog.source import AnySource
from labeled.errors import LoaderError
from labeled.loader.order.units import Grouping
from labeled.loader.plan import rows_held
from labeled.loader.request.arguments import (
    Asked,
    batch_rows_of,
    drawn_of,
    integer,
    listed_of,
    part_of,
    seed_beside,
    seed_of,
)
from labeled.loader.request.classes import read_classes
from labeled.samplers.buckets import Buckets
from labeled.samplers.draws import Draws, balanced_weights, checked_weights
from labeled.samplers.order import Mode, Order
from labeled.samplers.parts import Last
from labeled.samplers.plan import EpochPlan
from labeled.samplers.requests import Sampler
from labeled.samplers.sampled import AnyPlan, SampledOrder, SampledPlan
from labeled.selection import Selection

SHUFFLES: dict[str, Mode] = {"full": "full", "window": "window"}


@dataclass(frozen=True, eq=False)
class OrderedRows:
    """What decides which rows a batch holds, checked."""

    n_rows: int
    batch_rows: int
    mode: Mode
    last: Last
    part: tuple[int, int]
    seed: int
    epoch: int
    sticky_parts: bool
    draws: tuple[str, npt.NDArray[np.float64]] | None
    listed: Sampler | None

    @property
    def repeats(self) -> bool:
        """Whether a row may come more than once in an epoch."""
        return self.draws is not None or self.listed is not None

    @property
    def held_rows(self) -> int:
        """Rows of the largest batch there can be: `batch_rows`, if there are so many."""
        return rows_held(self.batch_rows, self.n_rows, self.last, listed=self.listed is not None)


def ordered_rows(
    asked: Asked,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    n_rows: int,
    *,
    draws: bool,
) -> OrderedRows:
    """Check what was asked of rows and their order; reads labels where they are balanced."""
    part, listed, drawn = part_of(asked.part), listed_of(asked, draws=draws), drawn_of(asked)
    mode = "full" if listed is not None else _mode(asked.shuffle, sources)
    ordered = drawn or (listed is None and mode != "file")
    if listed is not None and draws:
        seed = seed_beside(listed, asked.seed)
    else:
        seed = seed_of(asked.seed, part[1] if ordered else 1, needed=ordered or draws)
    return OrderedRows(
        n_rows=n_rows,
        batch_rows=batch_rows_of(asked.batch_size) if listed is None else listed.batch_rows or 1,
        mode="window" if drawn else mode,
        last="drop" if drawn else asked.last,
        part=part,
        seed=seed,
        epoch=integer("epoch", asked.epoch, least=0),
        sticky_parts=bool(asked.sticky_parts),
        draws=_draw_weights(asked.balance, asked.weights, sources, selections, n_rows),
        listed=listed,
    )


def _mode(shuffle: Any, sources: Mapping[str, AnySource]) -> Mode:
    """Turn what was asked into a mode; True is full where random rows are cheap."""
    if shuffle is False:
        return "file"
    if isinstance(shuffle, str) and shuffle in SHUFFLES:
        return SHUFFLES[shuffle]
    if shuffle is True:
        cheap = all(source.layout.random for source in sources.values())
        return "full" if cheap else "window"
    known = ", ".join(map(repr, SHUFFLES))
    raise LoaderError(f"shuffle={shuffle!r} must be False, True or one of {known}")


def _draw_weights(
    balance: str | None,
    weights: npt.ArrayLike | str | None,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    n_rows: int,
) -> tuple[str, npt.NDArray[np.float64]] | None:
    """Return (what asked for draws, one weight a row), or None."""
    if isinstance(weights, str):
        weights = read_classes("weights", weights, sources, selections)
    if weights is not None:
        return "weights", checked_weights(weights, n_rows)
    if balance is None:
        return None
    return "balance", balanced_weights(read_classes("balance", balance, sources, selections))


def epoch_plan_of(
    rows: OrderedRows, grouping: Grouping, window_rows: int, buckets: Buckets | None
) -> AnyPlan:
    """Arrange the first epoch."""
    if rows.listed is None:
        order = _order(rows, grouping, window_rows, buckets)
        return EpochPlan(order, rows.part, rows.batch_rows, rows.last)
    sampler = rows.listed.at_epoch(rows.epoch)
    listed = SampledOrder(sampler, rows.n_rows, window_rows, rows.seed)
    plan = SampledPlan(listed, rows.part)
    _ = plan.n_rows  # complain about rows that are not there now
    return plan


def _order(
    rows: OrderedRows, grouping: Grouping, window_rows: int, buckets: Buckets | None
) -> Order | Draws:
    units = grouping.units
    if rows.draws is None:
        return Order(
            rows.mode, units, window_rows, rows.seed, rows.epoch, rows.sticky_parts, buckets
        )
    name, weights = rows.draws
    grouped = weights if grouping.group is None else weights[grouping.group]
    return Draws(units, grouped, window_rows, rows.seed, rows.epoch, name)
