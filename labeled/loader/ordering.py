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

from labeled._validation import check_classes
from labeled.errors import LoaderError, did_you_mean
from labeled.loader.options import BatchOptions
from labeled.samplers.listed import AnyPlan, SampledOrder, SampledPlan
from labeled.samplers.plan import EpochPlan, Last
from labeled.samplers.units import (
    UniformUnits,
    Units,
    units_of_boundaries,
    units_of_groups,
    units_of_range,
    units_of_ranges,
)
from labeled.samplers.windows import (
    Buckets,
    Mode,
    Order,
    Weights,
    balanced_weights,
    checked_weights,
)
from labeled.selection import Selection
from labeled.sources.loading import load_rows
from labeled.sources.source import Source

Rows = npt.NDArray[np.int64]

UNIT_BYTES = 1 << 17
"""The least that is read together in a shuffled window, where stored chunks are smaller."""


@dataclass(frozen=True, eq=False)
class Grouping:
    """Units of an epoch, and the dataset position of each position of the order.

    An order counts positions from 0. They are those of the dataset, but for listed rows that are
    shuffled: these are sorted by stored chunk first, so that each chunk is read once.

    Parameters
    ----------
    units : Units
        Over positions of the order.
    position_of : int64 array, optional
        Dataset position of each position of the order; None where they are the same.
    """

    units: Units
    position_of: Rows | None = None


def governing_source(sources: Mapping[str, Source]) -> Source:
    """Choose the source whose stored chunks decide what is read together.

    The one that is dearest to read again: filtered chunks first, then the widest rows.
    All sources of the dataset count, also those that specs leave out, so that what is
    asked of a batch never changes which rows it holds.
    """

    return max(sources.values(), key=lambda one: (one.layout.expensive, one.row_bytes, one.name))


def group_rows(source: Source, selection: Selection, mode: Mode) -> Grouping:
    """Find the units of a selection; index lists are grouped by stored chunk when shuffled."""
    n, least = len(selection), max(1, -(-UNIT_BYTES // max(1, source.row_bytes)))
    if mode == "full":
        return Grouping(UniformUnits(n, 1, 1))
    layout, span = source.layout, selection.span
    chunk_rows = layout.chunk_rows or 1
    unit_rows = chunk_rows * -(-least // chunk_rows)
    if span is not None and span.step == 1:
        start, stop = span.start, max(span.start, span.stop)
        if layout.edges is not None:
            return Grouping(units_of_boundaries(start, stop, layout.edges, least))
        return Grouping(units_of_range(start, stop, unit_rows))
    ranges = [p for p in selection.pieces if isinstance(p, range) and p.step > 0]
    if len(ranges) == len(selection.pieces):
        return Grouping(units_of_ranges(ranges, unit_rows))
    if mode == "file":
        return Grouping(UniformUnits(n, least, least))
    # A list is sorted by stored chunk, once: each chunk is then decoded once an epoch.
    chunk = selection.rows // (layout.chunk_rows or least)
    if layout.edges is not None:
        chunk = np.searchsorted(layout.edges, selection.rows, side="right")
    position_of = np.argsort(chunk, kind="stable")
    return Grouping(units_of_groups(chunk[position_of], least), position_of)


def bucket_source(rows: OrderedRows, sources: Mapping[str, Any]) -> Source:
    """Find the source whose examples are measured for buckets.

    Raises
    ------
    LoaderError
        If it is none, several could be meant, or rows are not shuffled within windows.
    """
    bucket = rows.options.bucket
    if rows.options.shuffle not in (True, "window") or rows.repeats:
        raise LoaderError(
            f"bucket={bucket!r} arranges rows within their windows: give shuffle='window' with it, "
            f"and neither balance, weights nor sampler"
        )
    ragged = [name for name, source in sources.items() if source.ragged is not None]
    name = ragged[0] if bucket is True and len(ragged) == 1 else bucket
    if name not in ragged:
        raise LoaderError(
            f"bucket={bucket!r} must name the ragged source whose examples are measured; there are "
            f"{ragged or 'none'}"
        )
    found: Source = sources[name]
    return found


@dataclass(frozen=True, eq=False)
class OrderedRows:
    """What decides which rows a batch holds.

    Parameters
    ----------
    held_rows : int
        Rows of the largest batch there can be: fewer than asked for where there are no more.
    weights : float64 array, optional
        How often each row is drawn, where rows are drawn with replacement.
    """

    options: BatchOptions
    n_rows: int
    batch_rows: int
    held_rows: int
    mode: Mode
    last: Last
    seed: int
    weights: npt.NDArray[np.float64] | None

    @property
    def repeats(self) -> bool:
        """Whether a row may come more than once in an epoch."""
        return self.weights is not None or self.options.sampler is not None


def ordered_rows(
    options: BatchOptions,
    sources: Mapping[str, Source],
    selections: Mapping[str, Selection],
    n_rows: int,
) -> OrderedRows:
    """Choose the mode and the seed; reads labels where classes are balanced."""
    mode: Mode = "file"
    if options.sampler is not None or options.shuffle == "full":
        mode = "full"
    elif options.draws_rows or options.shuffle == "window" or options.bucket is not False:
        mode = "window"
    elif options.shuffle:  # full where random rows are cheap
        mode = "full"
        for source in sources.values():
            if not source.layout.random:
                mode = "window"
    sampler: Any = options.sampler
    last = "drop" if options.draws_rows else options.last
    batch_rows = held_rows = (options.batch_size if sampler is None else sampler.batch_rows) or 1
    if sampler is None and last not in ("pad", "wrap"):  # nothing fills it up
        held_rows = min(batch_rows, max(n_rows, 1))
    seed = options.seed_for(ordered=sampler is None and mode != "file")
    given, weights = options.weights, None
    if options.balance is not None:
        weights = balanced_weights(read_classes("balance", options.balance, sources, selections))
    elif given is not None:
        if isinstance(given, str):
            given = read_values("weights", given, sources, selections)
        weights = checked_weights(given, n_rows)
    return OrderedRows(options, n_rows, batch_rows, held_rows, mode, last, seed, weights)


def read_classes(
    option: str,
    name: Any,
    sources: Mapping[str, Source],
    selections: Mapping[str, Selection],
) -> npt.NDArray[Any]:
    """Read one class label a row, as :func:`read_values` does; NaN is an error."""
    labels, source = read_values(option, name, sources, selections), sources[name]
    values = f"ds[{name!r}].values" + ".ravel()" * bool(source.row_shape)
    check_classes(source.where, labels, values, LoaderError)
    return labels


def read_values(
    option: str,
    name: Any,
    sources: Mapping[str, Source],
    selections: Mapping[str, Selection],
) -> npt.NDArray[Any]:
    """Read one value a row.

    Parameters
    ----------
    option : str
        The argument that names the source; errors begin with it.
    name : str

    Returns
    -------
    array, lengths ``(n_rows,)``
        Stored values, in the order of the rows that were selected.

    Raises
    ------
    LoaderError
        If there is no such source, or its rows are not one label each.
    """
    if not isinstance(name, str) or name not in sources:
        able = [
            one
            for one, source in sources.items()
            if source.ragged is None and np.prod(source.row_shape) == 1
        ]
        what = "source of one value a row" if able else "source"
        hint = did_you_mean(str(name), able or sources)
        raise LoaderError(f"{option}={name!r} is not a {what}; {hint}")
    source, n_rows = sources[name], len(selections[name])
    if int(np.prod(source.row_shape)) != 1:
        raise LoaderError(
            f"{option}={name!r}: its rows have shape {source.row_shape}; it takes one value a row"
        )
    return load_rows(source, selections[name]).reshape(n_rows)


def epoch_plan_of(
    rows: OrderedRows,
    grouping: Grouping,
    window_rows: int,
    measured: Source | None,
    selections: Mapping[str, Selection],
) -> AnyPlan:
    """Arrange the first epoch; examples of `measured` share batches with others of their size."""
    options, units, epoch = rows.options, grouping.units, rows.options.epoch
    if options.sampler is not None:
        sampler: Any = options.sampler
        listed = SampledOrder(sampler.at_epoch(epoch), rows.n_rows, window_rows, rows.seed)
        plan = SampledPlan(listed, options.shard)
        _ = plan.n_rows  # complain about rows that are not there now
        return plan
    buckets, weights, mode = None, None, str(rows.mode)
    by_position: slice | Rows = (
        slice(None) if grouping.position_of is None else grouping.position_of
    )
    if measured is not None:
        lengths: Rows = measured.sizes[selections[measured.name].rows]
        buckets = Buckets(measured.name, lengths[by_position], rows.batch_rows)
    if rows.weights is not None:
        mode = "weights" if options.balance is None else "balance"
        weights = Weights(rows.weights[by_position], units)
    sticky = options.sticky_shards and weights is None
    order = Order(mode, units, window_rows, rows.seed, epoch, sticky, buckets, weights)
    return EpochPlan(order, options.shard, rows.batch_rows, rows.last)
