"""From what a user asks of rows to their order: which rows a batch holds, and when.

Whatever touches neither memory nor the form of a batch: the mode of shuffling, draws,
samplers, parts and the short last batch, checked and put together as the plan of an epoch; which
source is measured for buckets; and from the stored layout, what must be read together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import LoaderError
from labeled.loader.arguments import (
    Asked,
    batch_rows_of,
    drawn_of,
    integer,
    listed_of,
    read_classes,
    seed_beside,
    seed_of,
    shard_of,
)
from labeled.samplers.buckets import Buckets
from labeled.samplers.draws import Draws, balanced_weights, checked_weights
from labeled.samplers.order import Mode, Order
from labeled.samplers.parts import Last
from labeled.samplers.plan import EpochPlan
from labeled.samplers.requests import Sampler
from labeled.samplers.sampled import AnyPlan, SampledOrder, SampledPlan
from labeled.samplers.units import (
    UniformUnits,
    Units,
    units_of_boundaries,
    units_of_groups,
    units_of_range,
    units_of_ranges,
)
from labeled.selection import Selection
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import AnySource, RowLayout

Rows = npt.NDArray[np.int64]

RUN_BYTES = 1 << 17
"""The least that is read together in a shuffled window, where stored chunks are smaller."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """Units of an epoch, and the dataset position of each grouped position.

    Parameters
    ----------
    units : Units
        Over grouped positions.
    group : int64 array, optional
        Dataset position of each grouped position; None where they are the same.
    """

    units: Units
    group: Rows | None = None


def governing_source(sources: Mapping[str, AnySource]) -> AnySource:
    """Choose the source whose stored chunks decide what is read together.

    The one that is dearest to read again: filtered chunks first, then the widest rows.
    All sources of the dataset count, also those that specs leave out, so that what is
    asked of a batch never changes which rows it holds.
    """

    def price(source: AnySource) -> tuple[bool, int, str]:
        return source.layout.dear, source.row_bytes, source.name

    return max(sources.values(), key=price)


def group_rows(source: AnySource, selection: Selection, mode: Mode) -> Grouping:
    """Find the units of a selection; index lists are grouped by stored chunk when shuffled."""
    n, least = len(selection), max(1, -(-RUN_BYTES // max(1, source.row_bytes)))
    if mode == "full":
        return Grouping(UniformUnits(n, 1, 1))
    layout, stretch = source.layout, selection.stretch
    if stretch is not None:
        start, stop = stretch.start, max(stretch.start, stretch.stop)
        if layout.edges is not None:
            return Grouping(units_of_boundaries(start, stop, layout.edges, least))
        return Grouping(units_of_range(start, stop, layout.chunk_rows, least))
    ranges = [p for p in selection.pieces if isinstance(p, range) and p.step > 0]
    if len(ranges) == len(selection.pieces):
        return Grouping(units_of_ranges(ranges, layout.chunk_rows, least))
    if mode == "file":
        return Grouping(UniformUnits(n, least, least))
    return _grouped_list(selection, layout, least)


def _grouped_list(selection: Selection, layout: RowLayout, least: int) -> Grouping:
    """Sort a list by stored chunk, once: each chunk is then decoded once an epoch."""
    if layout.edges is not None:
        chunk = np.searchsorted(layout.edges, selection.rows, side="right")
    else:
        chunk = selection.rows // (layout.chunk_rows or least)
    group = np.argsort(chunk, kind="stable")
    return Grouping(units_of_groups(chunk[group], least), group)


def layout_words(selections: Mapping[str, Selection], grouping: Grouping) -> list[Any]:
    """Return what the order depends on besides its parameters: rows and unit boundaries."""
    rows = sorted((name, rows.token) for name, rows in selections.items())
    return [rows, grouping.units.digest]


def bucket_source(
    asked: bool | str, sources: Mapping[str, Any], shuffle: Any, *, repeats: bool
) -> RaggedSource:
    """Find the source whose examples are measured for buckets.

    Raises
    ------
    LoaderError
        If it is none, several could be meant, or rows are not shuffled within windows.
    """
    if shuffle not in (True, "window") or repeats:
        raise LoaderError(
            f"bucket={asked!r} arranges rows within their windows: give shuffle='window' with it, "
            f"and neither balance, weights nor sampler"
        )
    ragged = [name for name, source in sources.items() if isinstance(source, RaggedSource)]
    name = ragged[0] if asked is True and len(ragged) == 1 else asked
    if name not in ragged:
        raise LoaderError(
            f"bucket={asked!r} must name the ragged source whose examples are measured; there are "
            f"{ragged or 'none'}"
        )
    found: RaggedSource = sources[name]
    return found


def selected_sizes(source: RaggedSource, selection: Selection, group: Rows | None) -> Rows:
    """Return how many elements the example at each grouped position has."""
    sizes: Rows = source.sizes[selection.rows]
    return sizes if group is None else sizes[group]


SHUFFLES: dict[str, Mode] = {"full": "full", "window": "window"}


def rows_held(batch_rows: int, n_rows: int, last: Last, *, listed: bool) -> int:
    """Return the rows of the largest batch there can be, which may be fewer than asked for.

    Examples
    --------
    >>> rows_held(1000, 10, "keep", listed=False), rows_held(1000, 10, "pad", listed=False)
    (10, 1000)
    """
    filled_up = listed or last in ("pad", "wrap")
    return batch_rows if filled_up else min(batch_rows, max(n_rows, 1))


@dataclass(frozen=True, eq=False)
class OrderedRows:
    """What decides which rows a batch holds, checked."""

    n_rows: int
    batch_rows: int
    mode: Mode
    last: Last
    shard: tuple[int, int]
    seed: int
    epoch: int
    sticky_shards: bool
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
    shard, listed, drawn = shard_of(asked.shard), listed_of(asked, draws=draws), drawn_of(asked)
    mode = "full" if listed is not None else _mode(asked.shuffle, sources)
    ordered = drawn or (listed is None and mode != "file")
    if listed is not None and draws:
        seed = seed_beside(listed, asked.seed)
    else:
        seed = seed_of(asked.seed, shard[1] if ordered else 1, needed=ordered or draws)
    return OrderedRows(
        n_rows=n_rows,
        batch_rows=batch_rows_of(asked.batch_size) if listed is None else listed.batch_rows or 1,
        mode="window" if drawn else mode,
        last="drop" if drawn else asked.last,
        shard=shard,
        seed=seed,
        epoch=integer("epoch", asked.epoch, least=0),
        sticky_shards=bool(asked.sticky_shards),
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
        return EpochPlan(order, rows.shard, rows.batch_rows, rows.last)
    sampler = rows.listed.at_epoch(rows.epoch)
    listed = SampledOrder(sampler, rows.n_rows, window_rows, rows.seed)
    plan = SampledPlan(listed, rows.shard)
    _ = plan.n_rows  # complain about rows that are not there now
    return plan


def _order(
    rows: OrderedRows, grouping: Grouping, window_rows: int, buckets: Buckets | None
) -> Order | Draws:
    units = grouping.units
    if rows.draws is None:
        return Order(
            rows.mode, units, window_rows, rows.seed, rows.epoch, rows.sticky_shards, buckets
        )
    name, weights = rows.draws
    grouped = weights if grouping.group is None else weights[grouping.group]
    return Draws(units, grouped, window_rows, rows.seed, rows.epoch, name)
