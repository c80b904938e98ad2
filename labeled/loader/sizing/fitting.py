"""What fits into `memory`: the sources kept whole, and windows that hold the largest rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from labeled.catalog.source import AnySource
from labeled.loader.batches.finish import Finish
from labeled.loader.order.ordering import OrderedRows, of_objects
from labeled.loader.order.units import Grouping
from labeled.loader.reading.lanes import Lane
from labeled.loader.reading.ragged_lane import lane_of
from labeled.loader.sizing.budget import SHUFFLED, Work, choose_kept, piped_bytes
from labeled.loader.sizing.cutting import plan_sizes
from labeled.loader.sizing.memory import TooSmallError, Wanted, rounded_up
from labeled.loader.sizing.ragged_bounds import batch_bytes, beyond_rows, settled, worst_of
from labeled.loader.sizing.sizes import Sizes
from labeled.samplers.order import Mode
from labeled.samplers.units import UniformUnits
from labeled.selection import Selection

ENOUGH_UNITS = 45
"""So many units in a window mix well, though each is of a single class.

With m units of one of K classes each, a batch has about ``1 - (K - 1) / (2 m ln 2 log2 K)`` of the
entropy of a full shuffle; ten classes reach 0.95 with 39 units, and some windows hold fewer.
"""

MOST_TRIES = 24
"""Plans that are tried with what the last one needed, before memory is doubled instead."""


def fitted(
    wanted: Wanted,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    grouping: Grouping,
    rows: OrderedRows,
    finish: Finish,
    *,
    piped: bool,
    skips: bool,
    sorts: bool,
) -> tuple[list[Lane], Sizes]:
    """Make readers and share memory out; where it is too small, find how much is enough.

    Raises
    ------
    LoaderError
        If `memory` is too small; the message names a size with which this succeeds.
    """

    def fit(memory_bytes: int) -> tuple[list[Lane], Sizes]:
        lanes = _lanes_within(
            memory_bytes,
            sources,
            selections,
            rows,
            finish.out_row_bytes,
            piped=piped,
            skips=skips,
        )
        within = replace(wanted, memory_bytes=memory_bytes)
        return lanes, _sizes_within(within, lanes, grouping, rows, finish, piped=piped, sorts=sorts)

    try:
        return fit(wanted.memory_bytes)
    except TooSmallError as error:
        fault = error
    for tried in itertools.count():  # what a plan needs may grow with the memory there is
        enough = rounded_up(fault.needed_bytes) << max(0, tried - MOST_TRIES)
        try:
            fit(enough)
        except TooSmallError as error:
            fault = error
        else:
            break
    raise fault.told(wanted.memory_bytes, enough)


def _lanes_within(
    memory_bytes: int,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    rows: OrderedRows,
    out_row_bytes: int,
    *,
    piped: bool,
    skips: bool,
) -> list[Lane]:
    """Make readers, and decide which sources are kept in memory.

    What is kept is read at once or not at all, so nothing is where rows may be left out (`skips`).
    """
    lanes = [lane_of(source, selections[name]) for name, source in sources.items()]
    row_bytes = sum(lane.row_bytes for lane in lanes) + out_row_bytes
    batch_bytes = rows.held_rows * row_bytes
    room = memory_bytes - (piped_bytes(memory_bytes, batch_bytes) if piped else 0)
    shuffled_rows = rows.n_rows if rows.mode in SHUFFLED else 0
    kept = choose_kept(lanes, room, batch_bytes, shuffled_rows)
    for lane in lanes:
        lane.keep = lane.name in kept and lane.source.loaded is None and not skips
    return lanes


def _sizes_within(
    wanted: Wanted,
    lanes: list[Lane],
    grouping: Grouping,
    rows: OrderedRows,
    finish: Finish,
    *,
    piped: bool,
    sorts: bool,
) -> Sizes:
    """Share memory out, so that it also holds the largest ragged examples that can meet.

    With buckets (`sorts`) the largest of a window do meet in a batch.
    """
    worst = worst_of(lanes, rows.mode, grouping, repeats=rows.repeats)
    together = worst_of(lanes, "full", grouping, repeats=rows.repeats) if sorts else worst
    beyond = beyond_rows(batch_bytes(together, finish.ragged, rows.held_rows))

    def plan() -> Sizes:  # again whenever the lanes learn what a row takes
        work = Work(
            lanes,
            rows.mode,
            n_rows=rows.n_rows,
            batch_rows=rows.held_rows,
            unit_rows=max(1, grouping.units.max_rows),
            out_row_bytes=finish.out_row_bytes + beyond,
            piped=piped,
        )
        return plan_sizes(work, wanted)

    return settled(worst, plan)


def mixed_better(
    wanted: Wanted,
    lanes: list[Lane],
    grouping: Grouping,
    rows: OrderedRows,
    finish: Finish,
    sizes: Sizes,
    *,
    piped: bool,
) -> tuple[OrderedRows, Sizes]:
    """Stagger the order where windows, as planned in `sizes`, hold too few units to mix well.

    More units mix better in both: what counts is in how many of them a batch lies.
    """
    unit_rows = max(1, grouping.units.max_rows)
    n_units = sizes.window_rows // unit_rows
    few = n_units < ENOUGH_UNITS and sizes.window_rows < rows.n_rows
    chosen = wanted.window_rows is not None or all(lane.keep for lane in lanes)
    if not few or chosen or of_objects(lane.source for lane in lanes) is not None:
        return rows, sizes
    staggered = replace(rows, mode="staggered")
    try:
        others = _sizes_within(wanted, lanes, grouping, staggered, finish, piped=piped, sorts=False)
    except TooSmallError:  # batches of their own take more than there is
        return rows, sizes
    return (staggered, others) if others.window_rows // unit_rows > n_units else (rows, sizes)


def job_offset_of(mode: Mode, lanes: list[Lane], grouping: Grouping, sizes: Sizes) -> int | None:
    """Where jobs may be cut so that no stored chunk is read by two of them."""
    units = grouping.units
    chunked = any(lane.reader.chunk_rows > 1 and not lane.keep for lane in lanes)
    if mode != "file" or not chunked or not isinstance(units, UniformUnits):
        return None
    return units.first_rows if sizes.job_rows % units.unit_rows == 0 else None
