"""What a dataset shows at a glance, from headers alone: its sources, splits and variables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dask.utils import format_bytes

from labeled.dataset.dataset import Dataset
from labeled.dataset.joining import Catalog
from labeled.dataset.selecting import heaviest
from labeled.display.plots import Axes, draw_splits
from labeled.display.summary import Interval, Strip, Summary, Table
from labeled.display.text import count_words, shortened, sizes_words
from labeled.errors import ArrayError
from labeled.sources.source import Source

NO_SOURCES = "no sources: it holds no array whose first axis could count examples"

_LISTED = 8
_CHARACTERS = 200


class SplitLine(NamedTuple):
    """One split: how many rows it has of each source, and where they lie in the file."""

    name: str
    rows: Mapping[str, int]
    stretches: tuple[Interval, ...]
    span: int


def summary_of(dataset: Dataset) -> Summary:
    """Summarize a dataset; a repr never fails, though the file may be gone or broken by now."""
    try:
        return _summary(dataset)
    except Exception as error:
        return Summary("labeled.Dataset", f"of {dataset.where}: {error}")


def _summary(dataset: Dataset) -> Summary:
    """List each source with its rows, and the splits that the dataset may be cut into."""
    catalog, sources, rows = dataset.files.catalog, dataset._sources, dataset._rows
    counts = {name: len(selection) for name, selection in rows.items()}
    title = _title(dataset, counts)
    parts: list[str | Table] = [NO_SOURCES]
    more: list[str | Table] = []
    if sources:
        columns = ("source", "dims", "dtype", "size", "stored")
        lines = [_source_cells(one, counts[name]) for name, one in sources.items()]
        parts = [Table(columns, lines, "sources", headed=True)]
        if title != "all rows":
            parts.append(f"holds {_alike({name: rows[name].describe() for name in sources})}")
        spaces = dataset.spaces
        details = [
            (name, str(spaces.get(name, one.ragged or "text")), _attributes(one.attrs))
            for name, one in sources.items()
        ]
        more = [Table(("source", "space", "attributes"), details, "spaces and attributes")]
    if sources and not dataset.chosen:
        splits = [_split_cells(one, [*sources]) for one in split_lines(catalog)]
        if splits:
            parts.append(Table(("split", "rows", "where they lie in the file"), splits, "splits"))
    variables = [
        (name, f"({', '.join(one.dims)})", str(one.dtype))
        for name, one in sorted(catalog.variables.items())
    ]
    unread = sorted(catalog.not_opened.items())
    if variables:
        head = ("name", "dims", "dtype")
        parts.append(Table(head, variables, "coordinates and variables", most=_LISTED))
    if unread:
        parts.append(Table(("dataset", "why"), unread, "not opened", most=_LISTED))
    attrs = [(str(name), shortened(value, _CHARACTERS)) for name, value in catalog.attrs.items()]
    more += [Table(("name", "value"), attrs, "attributes")] if attrs else []
    memory = "" if dataset.loaded is None else ", in memory"
    memory += "" if dataset.resident is None else f" and on {dataset.resident.name}"
    return Summary("labeled.Dataset", f"{title}{memory} of {dataset.where}", parts, more)


def split_lines(catalog: Catalog) -> list[SplitLine]:
    """Return the splits of the files, with the places of their rows."""
    out = []
    for split, by_source in catalog.splits.items():
        counts = {name: len(rows) for name, rows in by_source.items()}
        first = next(iter(by_source), None)
        span = 0 if first is None else catalog.sources[first].n_rows
        out.append(
            SplitLine(split, counts, by_source[first].stretches_among(span) if first else (), span)
        )
    return out


def split_words(by_source: Mapping[str, int], sources: Sequence[str]) -> str:
    """Return how many rows a split has, and which sources it lacks."""
    words = _alike({name: count_words(n, "row") for name, n in sorted(by_source.items())})
    missing = [name for name in sources if name not in by_source]
    if not missing:
        return words
    more = f" and {len(missing) - _LISTED:,} more" if len(missing) > _LISTED else ""
    return f"{words} (without {', '.join(missing[:_LISTED])}{more})"


def _split_cells(split: SplitLine, sources: Sequence[str]) -> tuple[str, str, Strip]:
    title = f"where the rows of {split.name!r} lie in the file"
    strip = Strip({"wanted": split.stretches}, split.span, title)
    return split.name, split_words(split.rows, sources), strip


def _title(dataset: Dataset, counts: Mapping[str, int]) -> str:
    """Say which rows a dataset holds: splits, all that there are, or how many of these."""
    catalog, chosen = dataset.files.known, dataset.chosen
    there = {name: catalog.sources[name].n_rows for name in counts}
    if chosen:
        there = {n: sum(len(catalog.splits[split][n]) for split in chosen) for n in counts}
    whole = " + ".join(chosen) if chosen else "all rows"
    found = {(n, there[name]) for name, n in counts.items()}
    if all(n == of for n, of in found):
        return whole
    if len(found) > 1:
        return f"some rows of {whole}" if chosen else "some rows"
    ((n, of),) = found
    return f"{n:,} of {of:,} rows" + (f" of {whole}" if chosen else "")


def _attributes(attrs: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {shortened(value, _CHARACTERS)}" for name, value in attrs.items())


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
    text = source.ragged is None and source.dtype.kind == "O"
    if source.ragged is not None:
        size = "ragged" if source.loaded is None else format_bytes(source.loaded.nbytes)
    else:
        n_bytes = n_rows * math.prod(source.row_shape) * source.dtype.itemsize
        size = "?" if text else format_bytes(n_bytes)
    dims, dtype = sizes_words(source.dims, (n_rows, *source.row_shape)), str(source.dtype)
    return source.name, dims, "text" if text else dtype, size, _stored_words(source)


def _stored_words(source: Source) -> str:
    """Say how a source is stored: chunks and filters."""
    if source.loaded is not None:
        return "memory"
    header = source.headers[0]
    if source.ragged is not None and "values" not in header.parts:
        return "records" if header.storage == "records" else "rows of variable length"
    header = header.parts.get("values", header)
    whole = "column of a table, " if header.is_column else ""
    if header.storage == "sparse":
        whole = "sparse, "
    if header.chunks is None:
        return f"{whole}{header.storage}".removesuffix(", foreign").removeprefix("sparse, ")
    codec = "+".join(step.words for step in header.filters) or "no filter"
    return f"{whole}chunks {header.chunks}, {codec}"


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
        """Draw where in the file the rows of each split lie; reads no rows.

        Raises
        ------
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        """
        lines = split_lines(self.dataset.files.catalog)
        notes = {line.name: split_words(line.rows, self.dataset.sources) for line in lines}
        n_rows = max((line.span for line in lines), default=0)
        return draw_splits({line.name: line.stretches for line in lines}, notes, n_rows, ax)
