"""Statistics of the rows of one source: those a file was written with, or measured now."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from labeled.dataset.dataset import TEXT_KINDS, Dataset
from labeled.display.progress import progress_bar
from labeled.errors import ArrayError
from labeled.formats.registry import format_named
from labeled.loader.loader import Loader
from labeled.loader.options import BatchOptions
from labeled.loader.plan import LoaderPlan
from labeled.ragged.flat import block_cuts, elements_of
from labeled.writing.statistics import Measure, Moments, can_measure, plain

READ_BYTES = 4 << 20
MEMORY = "64 MiB"


def statistics_of(dataset: Dataset, name: str, progress: bool | None) -> dict[str, Any]:
    """Return what the file says of exactly these rows; else read and measure them.

    Raises
    ------
    ArrayError
        If the source holds no numbers.
    """
    stored = None if dataset.steps else _stored(dataset, name)
    if stored is not None:
        return stored
    source, rows = dataset._sources[name], dataset.selection(name)
    if not can_measure(source.dtype):
        text = source.dtype.kind in TEXT_KINDS
        counted = f"; np.unique(ds[{name!r}], return_counts=True) counts classes" if text else ""
        raise ArrayError(
            f"{source.where} holds {'text' if text else source.dtype}, which has no mean{counted}"
        )
    total = Moments()
    if source.ragged is not None:
        measure, examples = Measure.of(source.dims, None, source.dtype), source.select(rows)
        n_bytes = elements_of(examples.shapes) * source.dtype.itemsize
        for start, stop in pairwise(block_cuts(n_bytes, READ_BYTES)):
            values, _, shapes = examples[start:stop].flat()
            total = total.merge(measure.examples(values, shapes, np.arange(len(shapes))))
        return plain(total)
    measure = Measure.of(source.dims, source.row_shape, source.dtype)
    batch_rows = int(np.clip(READ_BYTES // max(source.row_bytes, 1), 1, 1 << 16))
    options = BatchOptions(batch_rows, memory=MEMORY)
    loader = Loader(LoaderPlan({name: source}, {name: rows}, {}, len(rows), options))
    with progress_bar(progress, len(rows), f"measuring {name}", "rows") as done:
        for batch in loader:
            total = total.merge(measure.rows(batch.arrays[name]))
            done(batch.count)
    return plain(total)


def _stored(dataset: Dataset, name: str) -> dict[str, Any] | None:
    """Return what the file says of exactly these rows, or None. Reads headers only."""
    source, rows = dataset._sources[name], dataset.selection(name)
    if source.loaded is not None or len(source.headers) > 1:
        return None
    header = source.headers[0]
    stored = format_named(header.format).statistics(header.file.path).get(name)
    decoded = header.cf is not None and header.cf.changes_values
    if stored is None or stored.get("decoded", False) != decoded:
        return None
    if rows.span == range(source.n_rows):
        return dict(stored["rows"])
    for split, found in stored.get("splits", {}).items():
        there = dataset.files.catalog.splits.get(split, {}).get(name)
        if there is not None and there == rows:
            return dict(found)
    return None
