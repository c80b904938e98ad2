"""What fits into `memory`: the sources kept whole, and windows that hold the largest rows."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from labeled.errors import LoaderError
from labeled.formats.machine import room_bytes
from labeled.loader.budget import (
    Sizes,
    TooSmallError,
    Wanted,
    Work,
    choose_kept,
    piped_bytes,
    rounded_up,
)
from labeled.loader.cutting import plan_sizes
from labeled.loader.finish import Finish
from labeled.loader.lanes import Lane, lane_of
from labeled.loader.ordering import Grouping, OrderedRows, group_rows
from labeled.loader.ragged_bounds import batch_bytes, beyond_rows, outsized, settled, worst_of
from labeled.samplers.order import Mode
from labeled.samplers.units import UniformUnits
from labeled.selection import Selection
from labeled.sources.source import AnySource, sparing_of
from labeled.transforms.running import MadeOf

MIB = 1 << 20

MOST_TRIES = 24
"""Plans that are tried with what the last one needed, before memory is doubled instead."""


def fitted(
    wanted: Wanted,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    lead: AnySource,
    rows: OrderedRows,
    finish: Finish,
    *,
    piped: MadeOf | None,
    skips: bool,
    sorts: bool,
) -> tuple[list[Lane], Grouping, Sizes]:
    """Make readers and share memory out; where it is too small, find how much is enough.

    Whole stored chunks are read where there is room for it. Only where there is not, rows of
    unfiltered ones are read and shuffled as if there were no chunks, and others are decoded
    one at a time: what an order was with more memory it stays. Memory that nobody named is
    doubled before that is an error, up to half of what the process may still take.

    Parameters
    ----------
    lead : AnySource
        Whose stored chunks decide what is read together, were it all read or not.

    Raises
    ------
    LoaderError
        If `memory` is too small; the message names a size with which this succeeds.
    """
    grouping = group_rows(lead, selections[lead.name], rows.mode)

    def fit(
        memory_bytes: int, read: Mapping[str, AnySource], grouped: Grouping
    ) -> tuple[list[Lane], Grouping, Sizes]:
        lanes = _lanes_within(
            memory_bytes,
            read,
            selections,
            rows,
            finish.out_row_bytes,
            piped=piped,
            skips=skips,
        )
        within = replace(wanted, memory_bytes=memory_bytes)
        sizes = _sizes_within(within, lanes, grouped, rows, finish, piped=piped, sorts=sorts)
        return lanes, grouped, sizes

    try:
        return fit(wanted.memory_bytes, sources, grouping)
    except TooSmallError:
        saved = {name: sparing_of(source) for name, source in sources.items()}
    finer = grouping  # of file order, which is the same by any units, and so is its state
    if rows.mode != "file":
        finer = group_rows(sparing_of(lead), selections[lead.name], rows.mode)
    try:
        return fit(wanted.memory_bytes, saved, finer)
    except TooSmallError as error:
        fault = error

    def attempt(memory_bytes: int) -> TooSmallError | None:
        with contextlib.suppress(TooSmallError):
            fit(memory_bytes, sources, grouping)
            return None
        try:
            fit(memory_bytes, saved, finer)
        except TooSmallError as error:
            return error
        return None

    memory_bytes = wanted.memory_bytes
    while wanted.grows and 2 * memory_bytes <= room_bytes() // 2:
        memory_bytes *= 2
        with contextlib.suppress(TooSmallError):
            return fit(memory_bytes, sources, grouping)
    raise _told(fault, wanted.memory_bytes, attempt, list(outsized(sources, selections)))


def _told(
    fault: TooSmallError,
    memory_bytes: int,
    attempt: Callable[[int], TooSmallError | None],
    others: Sequence[str],
) -> LoaderError:
    """Find how much memory is enough, and no MiB more; what a plan needs may grow with it."""
    less = memory_bytes
    for tried in itertools.count():
        enough = rounded_up(fault.needed_bytes) << max(0, tried - MOST_TRIES)
        failed = attempt(enough)
        if failed is None:
            break
        fault, less = failed, max(less, enough)
    while rounded_up(less + 1) < enough:
        between = rounded_up((less + enough) // 2)
        if between == enough:
            between -= MIB
        failed = attempt(between)
        if failed is None:
            enough = between
        else:
            fault, less = failed, between
    return fault.told(memory_bytes, enough, others)


def _lanes_within(
    memory_bytes: int,
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    rows: OrderedRows,
    out_row_bytes: int,
    *,
    piped: MadeOf | None,
    skips: bool,
) -> list[Lane]:
    """Make readers, and decide which sources are kept in memory.

    What is kept is read at once or not at all, so nothing is where rows may be left out (`skips`).
    """
    lanes = [lane_of(source, selections[name]) for name, source in sources.items()]
    row_bytes = sum(lane.row_bytes for lane in lanes) + out_row_bytes
    batch_bytes = rows.held_rows * row_bytes
    room = memory_bytes
    if piped is not None:
        room -= piped_bytes(memory_bytes, batch_bytes, rows.held_rows, piped)
    shuffled_rows = rows.n_rows if rows.mode == "window" else 0
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
    piped: MadeOf | None,
    sorts: bool,
) -> Sizes:
    """Share memory out, so that it also holds the largest ragged examples that can meet.

    With buckets (`sorts`) the largest of a window do meet in a batch.
    """
    worst = worst_of(lanes, rows.mode, grouping, repeats=rows.repeats)
    together = worst_of(lanes, "full", grouping, repeats=rows.repeats) if sorts else worst
    laid = batch_bytes(together, finish.ragged, rows.held_rows)
    beyond = beyond_rows(laid, finish.ragged)

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

    laid_bytes = rows.held_rows * sum(nbytes for _, nbytes in laid)
    return replace(settled(worst, plan), laid_bytes=laid_bytes)


def job_offset_of(mode: Mode, lanes: list[Lane], grouping: Grouping, sizes: Sizes) -> int | None:
    """Where jobs may be cut so that no stored chunk is read by two of them."""
    units = grouping.units
    chunked = any(lane.reader.chunk_rows > 1 and not lane.keep for lane in lanes)
    if mode != "file" or not chunked or not isinstance(units, UniformUnits):
        return None
    return units.first_rows if sizes.job_rows % units.unit_rows == 0 else None
