"""From stored layout to units of order: what must be read together, in dataset positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.catalog.layout import RowLayout
from labeled.catalog.source import AnySource
from labeled.samplers.order import Mode
from labeled.samplers.units import (
    UniformUnits,
    Units,
    units_of_boundaries,
    units_of_groups,
    units_of_range,
    units_of_ranges,
)
from labeled.selection import Selection

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
