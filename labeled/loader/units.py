"""From stored layout to units of order: what must be read together, in dataset positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.catalog.source import Source
from labeled.loader.sizes import RUN_BYTES
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


def governing_source(sources: Mapping[str, Source]) -> Source:
    """Choose the source whose stored chunks decide what is read together.

    The one that is dearest to read again: filtered chunks first, then the widest rows.
    All sources of the dataset count, also those that specs leave out, so that what is
    asked of a batch never changes which rows it holds.
    """

    def price(source: Source) -> tuple[bool, int, str]:
        filtered = source.loaded is None and bool(source.headers[0].filters)
        return filtered, source.row_bytes, source.name

    return max(sources.values(), key=price)


def group_rows(source: Source, selection: Selection, mode: Mode) -> Grouping:
    """Find the units of a selection; index lists are grouped by stored chunk when shuffled."""
    n, least = len(selection), max(1, -(-RUN_BYTES // max(1, source.row_bytes)))
    chunks = source.stored_chunks
    chunk_rows = None if chunks is None else chunks[0]
    if mode == "full":
        return Grouping(UniformUnits(n, 1, 1))
    span = selection.span
    if span is not None and span.step == 1:
        return Grouping(_units_of_span(source, span, chunk_rows, least))
    pieces = selection.pieces
    if all(isinstance(piece, range) and piece.step > 0 for piece in pieces):
        ranges = [piece for piece in pieces if isinstance(piece, range)]
        return Grouping(units_of_ranges(ranges, chunk_rows, least))
    if mode == "file":
        return Grouping(UniformUnits(n, least, least))
    return _grouped_list(selection, chunk_rows or least, least)


def _units_of_span(source: Source, span: range, chunk_rows: int | None, least: int) -> Units:
    starts = source.file_starts if source.loaded is None else (0,)
    aligned = chunk_rows is None or all(start % chunk_rows == 0 for start in starts)
    if aligned:
        return units_of_range(span.start, max(span.start, span.stop), chunk_rows, least)
    assert chunk_rows is not None
    ends = [*starts[1:], source.n_rows]
    edges = [np.arange(a, b, chunk_rows) for a, b in zip(starts, ends, strict=True)]
    return units_of_boundaries(span.start, span.stop, np.concatenate(edges), least)


def _grouped_list(selection: Selection, chunk_rows: int, least: int) -> Grouping:
    """Sort a list by stored chunk, once: each chunk is then decoded once an epoch."""
    chunk = selection.rows // chunk_rows
    group = np.argsort(chunk, kind="stable")
    return Grouping(units_of_groups(chunk[group], least), group)


def layout_words(selections: Mapping[str, Selection], grouping: Grouping) -> list[Any]:
    """Return what the order depends on besides its parameters: rows and unit boundaries."""
    rows = sorted((name, rows.token) for name, rows in selections.items())
    return [rows, grouping.units.digest]
