"""What a dataset says of itself: from headers, at a glance, and in statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from dask.utils import format_bytes

from labeled.dataset.dataset import TEXT_KINDS, Dataset
from labeled.dataset.selecting import heaviest
from labeled.display.plots import Axes, RowLines, draw_rows
from labeled.display.progress import progress_bar
from labeled.display.text import Summary, Table, count_words, shortened, sizes_words
from labeled.errors import ArrayError, listed
from labeled.formats.registry import format_named
from labeled.loader.batch import Batch
from labeled.loader.loader import Loader
from labeled.loader.options import BatchOptions
from labeled.loader.plan import LoaderPlan
from labeled.sources.source import Source
from labeled.writing.statistics import Measure, Moments, can_measure, merged, plain

NO_SOURCES = "no sources: it holds no array whose first axis could count examples"

READ_BYTES = 4 << 20
MEMORY = "64 MiB"

_LISTED = 8
_CHARACTERS = 200


# ---------------------------------------------------------------- at a glance
def summary_of(dataset: Dataset) -> Summary:
    """Summarize a dataset; a repr never fails, though the file may be gone or broken by now."""
    try:
        return _summary(dataset)
    except Exception as error:
        return Summary("labeled.Dataset", f"of {dataset.where}: {error}")


def _summary(dataset: Dataset) -> Summary:
    """List each source with its rows, and the splits that the dataset may be cut into."""
    catalog, sources, rows = dataset.files.catalog, dataset._sources, dataset._rows
    title, first = _title(dataset), catalog.headers[0]
    parts: list[str | Table] = [NO_SOURCES]
    more: list[str | Table] = []
    if sources:
        columns = ("source", "dims", "dtype", "size", "stored")
        lines = [_source_cells(one, len(rows[name])) for name, one in sources.items()]
        parts = [Table(columns, lines, "sources", headed=True)]
        if title != "all rows":
            parts.append(f"holds {_alike({name: rows[name].describe() for name in sources})}")
        spaces, details = dataset.spaces, []
        for name, one in sources.items():
            own = "; ".join(f"{n}: {shortened(v, _CHARACTERS)}" for n, v in one.attrs.items())
            details.append((name, str(spaces.get(name, one.ragged or "text")), own))
        more = [Table(("source", "space", "attributes"), details, "spaces and attributes")]
    splits = [(name, _split_words(dataset, name)) for name in catalog.splits]
    if sources and splits and dataset.selections is None:
        parts.append(Table(("split", "rows"), splits, "splits"))
    others = sorted(catalog.variables.items())
    variables = [(name, f"({', '.join(one.dims)})", str(one.dtype)) for name, one in others]
    unread = sorted(first.not_opened.items())
    if variables:
        head = ("name", "dims", "dtype")
        parts.append(Table(head, variables, "coordinates and variables", most=_LISTED))
    if unread:
        parts.append(Table(("dataset", "why"), unread, "not opened", most=_LISTED))
    attrs = [(str(name), shortened(value, _CHARACTERS)) for name, value in first.attrs.items()]
    more += [Table(("name", "value"), attrs, "attributes")] if attrs else []
    memory = "" if dataset.loaded is None else ", in memory"
    memory += "" if dataset.resident is None else f" and on {dataset.resident.name}"
    return Summary("labeled.Dataset", f"{title}{memory} of {dataset.where}", parts, more)


def _split_words(dataset: Dataset, split: str) -> str:
    """Return how many rows a split has, and which sources it lacks."""
    counts, words_of, missing = dataset.splits[split], dict[str, str](), list[str]()
    for name in sorted(dataset.sources):
        if name in counts:
            words_of[name] = count_words(counts[name], "row")
        else:
            missing.append(name)
    words = _alike(words_of) if words_of else count_words(0, "row")
    return f"{words} (without {listed(missing, _LISTED)})" if missing else words


def _title(dataset: Dataset) -> str:
    """Say which rows a dataset holds: splits, all that there are, or how many of these."""
    catalog, chosen, found = dataset.files.known, dataset.chosen, set()
    for name, rows in dataset._rows.items():
        of_splits = sum(len(catalog.splits[split][name]) for split in chosen)
        found.add((len(rows), of_splits if chosen else catalog.sources[name].n_rows))
    whole = " + ".join(chosen)
    if all(n == of for n, of in found):
        return whole or "all rows"
    some = [f"{n:,} of {of:,} rows" for n, of in found]
    return (some[0] if len(some) == 1 else "some rows") + (f" of {whole}" if chosen else "")


def _alike(words_of: Mapping[str, str]) -> str:
    """Say something of sources: once where it holds for all, else by those it holds for.

    Examples
    --------
    >>> _alike({"x": "60 rows", "y": "60 rows", "z": "7 rows"})
    '60 rows (2 sources), 7 rows (z)'
    """
    names: dict[str, list[str]] = {}
    for name, words in words_of.items():
        names.setdefault(words, []).append(name)
    if len(names) == 1:
        return next(iter(names))
    few = [
        f"{words} ({alike[0] if len(alike) == 1 else count_words(len(alike), 'source')})"
        for words, alike in list(names.items())[:_LISTED]
    ]
    return ", ".join([*few, *(["..."] if len(names) > _LISTED else [])])


def _source_cells(source: Source, n_rows: int) -> tuple[str, ...]:
    """Return the name, dims, dtype and size of a source, and how it is stored."""
    text = source.ragged is None and source.dtype.kind == "O"
    dtype, size = "text" if text else str(source.dtype), "?"
    if source.ragged is not None:
        size = "ragged" if source.loaded is None else format_bytes(source.loaded.nbytes)
    elif not text:
        size = format_bytes(n_rows * math.prod(source.row_shape) * source.dtype.itemsize)
    stored = "memory"
    if source.loaded is None:
        header = source.headers[0]
        header = header.parts.get("values", header)
        whole = "column of a table, " if header.is_column else ""
        stored = f"{whole}{header.storage}".removesuffix(", foreign")
        if source.ragged is not None and "values" not in source.headers[0].parts:
            stored = "records" if header.storage == "records" else "rows of variable length"
        elif header.chunks is not None:
            codec = "+".join(step.words for step in header.filters) or "no filter"
            whole = "sparse, " if header.storage == "sparse" else whole
            stored = f"{whole}chunks {header.chunks}, {codec}"
    dims = sizes_words(source.dims, (n_rows, *source.row_shape))
    return source.name, dims, dtype, size, stored


@dataclass(frozen=True, repr=False)
class DatasetPlots:
    """What ``dataset.plot`` offers. Each picture returns its axes and takes ``ax=``."""

    dataset: Dataset

    def __call__(self, source: str | None = None, *, n: int = 16, ax: Axes | None = None) -> Axes:
        """Draw the first `n` rows, as :meth:`labeled.Batch.plot` draws a batch of them.

        Where sources differ in length, those as long as `source` are looked at, or without one
        those that hold most.

        Raises
        ------
        UnknownNameError, ArrayError
            If there is no such source, it holds no numbers, or there are no rows.
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        """
        alike = heaviest(self.dataset)
        if source is not None:
            n_rows = len(self.dataset.selection(source))
            alike = [name for name, rows in self.dataset._rows.items() if len(rows) == n_rows]
        chosen = self.dataset.select(*alike) if alike else self.dataset
        for batch in chosen.subset(slice(n)).batches(n):
            return batch.plot(source, n=n, ax=ax)
        raise ArrayError(f"there is nothing to draw: no rows of {self.dataset.where} are chosen")

    def __repr__(self) -> str:
        return f"<plots of {self.dataset.where}: plot(), plot.splits()>"

    def splits(self, *, ax: Axes | None = None) -> Axes:
        """Draw where in the file the rows of each split lie, in the longest source; reads no rows.

        Raises
        ------
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        """
        catalog, found, longest = self.dataset.files.catalog, {}, 0
        for split, by_source in catalog.splits.items():
            there = [catalog.sources[name] for name in self.dataset.sources if name in by_source]
            if not there:
                continue
            most = max(there, key=attrgetter("n_rows"))
            rows, n_rows = by_source[most.name], most.n_rows
            longest, found[split] = max(longest, n_rows), (rows.stretches_among(n_rows),)
        notes = [_split_words(self.dataset, split) for split in found]
        lines = RowLines(found, longest, "row of the file", notes=notes)
        return draw_rows(lines, "where the rows of splits lie", ax)


# ---------------------------------------------------------------- statistics
def statistics_of(dataset: Dataset, name: str, progress: bool | None) -> dict[str, Any]:
    """Return what the file says of exactly these rows; else read and measure them.

    Raises
    ------
    ArrayError
        If the source holds no numbers.
    """
    source, rows = dataset._sources[name], dataset.selection(name)
    stored = None if dataset.steps else _stored_statistics(dataset, name)
    if stored is not None:
        return stored
    if not can_measure(source.dtype):
        text = source.dtype.kind in TEXT_KINDS
        counted = f"; np.unique(ds[{name!r}], return_counts=True) counts classes" if text else ""
        raise ArrayError(
            f"{source.where} holds {'text' if text else source.dtype}, which has no mean{counted}"
        )
    memory = MEMORY if source.ragged is None else None
    options = BatchOptions(rows_at_once(source.row_bytes), ragged="flat", memory=memory)
    loader = Loader(LoaderPlan({name: source}, {name: rows}, {}, len(rows), options))
    measures, found = {name: measure_of(source)}, {name: Moments()}
    with progress_bar(progress, len(rows), f"measuring {name}", "rows") as done:
        for batch in loader:
            measure_batch(measures, found, batch)
            done(batch.count)
    return plain(found[name])


def measure_of(source: Source) -> Measure:
    """Return how the values of a source are measured, those of different shapes together."""
    shape = source.row_shape if source.ragged is None else None
    return Measure.of(source.dims, shape, source.dtype)


def rows_at_once(row_bytes: int) -> int:
    """Return how many rows make a batch that is measured."""
    return min(max(READ_BYTES // max(row_bytes, 1), 1), 1 << 16)


def measure_batch(
    measures: Mapping[str, Measure], found: dict[str, Moments], batch: Batch
) -> dict[str, Moments]:
    """Add the moments of a batch, whose examples of different shapes are flat; return all."""
    for name, measure in measures.items():
        values, shapes = batch.arrays[name], batch.arrays.get(f"{name}_shapes")
        found[name] = merged([found[name], measure.block(values, shapes)])
    return found


def _stored_statistics(dataset: Dataset, name: str) -> dict[str, Any] | None:
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
