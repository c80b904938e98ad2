"""From what a user asks of rows to their order: which rows a batch holds, and when.

Whatever touches neither memory nor the form of a batch: the mode of shuffling, draws,
samplers, parts and the short last batch, checked and put together as the plan of an epoch; which
source is measured for buckets; and from the stored layout, what must be read together.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class OrderedRows:
    """What decides which rows a batch holds, and which rows are read together.

    All sources of the dataset count, also those that specs leave out, so that what is asked of
    a batch never changes which rows it holds. Reads labels where classes are balanced.

    Attributes
    ----------
    batch_rows, held_rows : int
        Rows of a batch, and of the largest there can be: fewer where there are no more.
    weights : float64 array, optional
        How often each row is drawn, where rows are drawn with replacement.
    repeats : bool
        Whether a row may come more than once in an epoch.
    units : Units
        What is read together, over positions of the order.
    position_of : int64 array, optional
        Dataset position of each position of the order; None where they are the same. They
        differ for listed rows that are shuffled: these are sorted by stored chunk first, so
        that each chunk is read once.
    measured : Source, optional
        The source whose examples share batches with others of their size.
    """

    def __init__(
        self,
        options: BatchOptions,
        sources: Mapping[str, Source],
        selections: Mapping[str, Selection],
        n_rows: int,
    ) -> None:
        self.options, self.selections, self.n_rows = options, selections, n_rows
        sampler: Any = options.sampler
        self.mode: Mode = "file"
        if sampler is not None or options.shuffle == "full":
            self.mode = "full"
        elif options.draws_rows or options.shuffle == "window" or options.bucket is not False:
            self.mode = "window"
        elif options.shuffle:  # full where random rows are cheap
            self.mode = "full"
            for source in sources.values():
                if not source.layout.random:
                    self.mode = "window"
        self.last: Last = "drop" if options.draws_rows else options.last
        self.batch_rows = (options.batch_size if sampler is None else sampler.batch_rows) or 1
        self.held_rows = self.batch_rows
        if sampler is None and self.last not in ("pad", "wrap"):  # nothing fills it up
            self.held_rows = min(self.batch_rows, max(n_rows, 1))
        self.seed = options.seed_for(ordered=sampler is None and self.mode != "file")
        given, self.weights = options.weights, None
        if options.balance is not None:
            classes = read_classes("balance", options.balance, sources, selections)
            self.weights = balanced_weights(classes)
        elif given is not None:
            if isinstance(given, str):
                given = read_values("weights", given, sources, selections)
            self.weights = checked_weights(given, n_rows)
        self.repeats = self.weights is not None or sampler is not None
        self.measured = None if options.bucket is False else self._bucket_source(sources)
        # Stored chunks of the source that is dearest to read again decide what is read together.
        lead, rank = next(iter(sources.values())), (False, -1, "")
        for source in sources.values():
            its_rank = source.layout.expensive, source.row_bytes, source.name
            lead, rank = (source, its_rank) if its_rank > rank else (lead, rank)
        self.units, self.position_of = group_rows(lead, selections[lead.name], self.mode)

    def _bucket_source(self, sources: Mapping[str, Any]) -> Source:
        bucket = self.options.bucket
        if self.options.shuffle not in (True, "window") or self.repeats:
            raise LoaderError(
                f"bucket={bucket!r} arranges rows within their windows: give shuffle='window' with "
                "it, and neither balance, weights nor sampler"
            )
        ragged = [name for name, source in sources.items() if source.ragged is not None]
        name = ragged[0] if bucket is True and len(ragged) == 1 else bucket
        if name not in ragged:
            raise LoaderError(
                f"bucket={bucket!r} must name the ragged source whose examples are measured; there "
                f"are {ragged or 'none'}"
            )
        found: Source = sources[name]
        return found

    def epoch_plan(self, window_rows: int) -> AnyPlan:
        """Arrange the first epoch."""
        options, epoch, buckets = self.options, self.options.epoch, None
        if options.sampler is not None:
            sampler: Any = options.sampler
            listed = SampledOrder(sampler.at_epoch(epoch), self.n_rows, window_rows, self.seed)
            plan = SampledPlan(listed, options.shard)
            _ = plan.n_rows  # complain about rows that are not there now
            return plan
        mode, weights = str(self.mode), None
        by_position: slice | Rows = slice(None) if self.position_of is None else self.position_of
        if self.measured is not None:
            lengths = self.measured.sizes[self.selections[self.measured.name].rows]
            buckets = Buckets(self.measured.name, lengths[by_position], self.batch_rows)
        if self.weights is not None:
            mode = "weights" if options.balance is None else "balance"
            weights = Weights(self.weights[by_position], self.units)
        sticky = options.sticky_shards and weights is None
        order = Order(mode, self.units, window_rows, self.seed, epoch, sticky, buckets, weights)
        return EpochPlan(order, options.shard, self.batch_rows, self.last)


def group_rows(source: Source, selection: Selection, mode: Mode) -> tuple[Units, Rows | None]:
    """Find the units of a selection; index lists are grouped by stored chunk when shuffled."""
    n, least = len(selection), max(1, -(-UNIT_BYTES // max(1, source.row_bytes)))
    if mode == "full":
        return UniformUnits(n, 1, 1), None
    layout, span = source.layout, selection.span
    chunk_rows = layout.chunk_rows or 1
    unit_rows = chunk_rows * -(-least // chunk_rows)
    if span is not None and span.step == 1:
        start, stop = span.start, max(span.start, span.stop)
        if layout.edges is not None:
            return units_of_boundaries(start, stop, layout.edges, least), None
        return units_of_range(start, stop, unit_rows), None
    ranges = [p for p in selection.pieces if isinstance(p, range) and p.step > 0]
    if len(ranges) == len(selection.pieces):
        return units_of_ranges(ranges, unit_rows), None
    if mode == "file":
        return UniformUnits(n, least, least), None
    # A list is sorted by stored chunk, once: each chunk is then decoded once an epoch.
    chunk = selection.rows // (layout.chunk_rows or least)
    if layout.edges is not None:
        chunk = np.searchsorted(layout.edges, selection.rows, side="right")
    position_of = np.argsort(chunk, kind="stable")
    return units_of_groups(chunk[position_of], least), position_of


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
    """Read the stored values of a source of one value a row, in the order of the selected rows.

    Errors begin with `option`, the argument that names the source.
    """
    if not isinstance(name, str) or name not in sources:
        able = []
        for one, source in sources.items():
            if source.ragged is None and np.prod(source.row_shape) == 1:
                able.append(one)
        what = "source of one value a row" if able else "source"
        hint = did_you_mean(str(name), able or sources)
        raise LoaderError(f"{option}={name!r} is not a {what}; {hint}")
    source, n_rows = sources[name], len(selections[name])
    if int(np.prod(source.row_shape)) != 1:
        raise LoaderError(
            f"{option}={name!r}: its rows have shape {source.row_shape}; it takes one value a row"
        )
    return load_rows(source, selections[name]).reshape(n_rows)
