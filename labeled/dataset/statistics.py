"""Statistics of the rows of one source: those a file was written with, or measured now."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from labeled.dataset.held import TEXT_KINDS
from labeled.errors import ArrayError
from labeled.formats.registry import format_named
from labeled.loader.loader import Loader
from labeled.loader.options import BatchOptions
from labeled.loader.plan import plan_batches
from labeled.ragged import Ragged
from labeled.ragged.flat import block_cuts, elements_of
from labeled.selection import Selection
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import Source
from labeled.writing.progress import progress_bar
from labeled.writing.statistics import Measure, Moments, can_measure, plain

READ_BYTES = 4 << 20
MEMORY = "64 MiB"


def statistics_of(
    source: Source | RaggedSource,
    selection: Selection,
    splits: Mapping[str, Selection],
    *,
    whole: bool,
    progress: bool | None = None,
) -> dict[str, Any]:
    """Return what the file says of these rows, if they are `whole`; else read and measure them.

    Raises
    ------
    ArrayError
        If the source holds no numbers.
    """
    stored = stored_statistics(source, selection, splits) if whole else None
    if stored is not None:
        return stored
    if not can_measure(source.dtype):
        counted = f"; np.unique(ds[{source.name!r}], return_counts=True) counts classes"
        text = source.dtype.kind in TEXT_KINDS
        raise ArrayError(
            f"{source.where} holds {'text' if text else source.dtype}, which has no mean"
            f"{counted if text else ''}"
        )
    if isinstance(source, RaggedSource):
        return measured_ragged(source, selection)
    return measured_statistics(source, selection, progress)


def stored_statistics(
    source: Source | RaggedSource, selection: Selection, splits: Mapping[str, Selection]
) -> dict[str, Any] | None:
    """Return what the file says of exactly these rows, or None. Reads headers only.

    Parameters
    ----------
    source : Source
        Of one file, whole rows.
    selection : Selection
        Rows of it.
    splits : mapping of str to Selection
        Rows of the source in each split.
    """
    whole = source.loaded is None and len(source.headers) == 1
    if not whole or source.row_shape != source.headers[0].row_shape:
        return None
    header = source.headers[0]
    stored = format_named(header.format).statistics(header.file.path).get(source.name)
    decoded = header.cf is not None and header.cf.changes_values
    if stored is None or stored.get("decoded", False) != decoded:
        return None
    if selection.span == range(source.n_rows):
        return dict(stored["rows"])
    named = stored.get("splits", {})
    same = (name for name, rows in splits.items() if name in named and rows == selection)
    return next((dict(named[name]) for name in same), None)


def measured_statistics(
    source: Source, selection: Selection, progress: bool | None = None
) -> dict[str, Any]:
    """Read the rows, in file order within 64 MiB, and measure them."""
    measure = Measure.of(source.dims, source.row_shape, source.dtype)
    total = Moments()
    batch_rows = int(np.clip(READ_BYTES // max(source.row_bytes, 1), 1, 1 << 16))
    sources, rows = {source.name: source}, {source.name: selection}
    options = BatchOptions(batch_rows, memory=MEMORY)
    loader = Loader(plan_batches(sources, rows, {}, len(selection), options))
    with progress_bar(progress, len(selection), f"measuring {source.name}", "rows") as done:
        for batch in loader:
            total = total.merge(measure.rows(batch.arrays[source.name]))
            done(batch.count)
    return plain(total)


def measured_ragged(source: RaggedSource, selection: Selection) -> dict[str, Any]:
    """Read the examples, some at a time, and measure them."""
    examples = source.select(selection)
    measure = Measure.of(source.dims, None, source.dtype)
    total = Moments()
    n_bytes = elements_of(examples.shapes) * source.dtype.itemsize
    for start, stop in pairwise(block_cuts(n_bytes, READ_BYTES)):
        some: Ragged = examples[start:stop]
        values, _, shapes = some.flat()
        total = total.merge(measure.examples(values, shapes, np.arange(len(shapes))))
    return plain(total)
