"""``labeled info``: what a file holds, from its headers alone.

The text is the summary of the dataset that its repr and HTML show, and what only a file has:
sizes and statistics.
``--json`` prints plain values. Files are described one by one and never joined: a folder with
one bad file still shows the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
from dask.utils import format_bytes

from labeled.cli.options import (
    command,
    examples_option,
    external_option,
    given,
    group_option,
    heading,
    in_flags,
    json_option,
    one_line,
    sources_option,
)
from labeled.dataset.dataset import Dataset
from labeled.dataset.files import find_files
from labeled.dataset.opening import open_dataset
from labeled.dataset.summary import summary_of
from labeled.display.summary import Table
from labeled.display.text import shown
from labeled.errors import LabeledError
from labeled.formats.header import SourceHeader
from labeled.formats.registry import format_named

Facts = dict[str, Any]

MAX_FILES = 10
MAX_CHANNELS, MAX_CLASSES = 4, 10
MAX_LINES = 20
"""Of each table about sources, below what a repr shows of them."""


@command("labeled info digits.hdf5", "labeled info data/ --json")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@sources_option
@json_option
@group_option
@examples_option
@external_option
@click.pass_context
def info(ctx: click.Context, /, files: Sequence[str], as_json: bool, **params: Any) -> None:
    """Show what files hold: sources, splits, chunks, sizes.

    Reads headers only. FILE may be a file, a folder or a quoted glob. Each file is shown
    separately, ten of them at most (--json describes all). A file that cannot be opened is
    reported, and the exit code is 1.
    """
    described: list[Facts] = []
    texts: list[str] = []
    errors: list[str] = []
    for path in find_files(files):
        try:
            dataset = open_dataset(path, **given(ctx, "files", "as_json"))
            facts = describe_file(dataset)
            if len(texts) < MAX_FILES:
                texts.append(file_text(facts, dataset))
        except LabeledError as error:
            facts = {"path": path, "error": one_line(error)}
            errors.append(in_flags(facts["error"], ctx.command))
        described.append(facts)
    more = len(described) - len(errors) - len(texts)
    if as_json:
        click.echo(json.dumps(described, indent=2, allow_nan=False))
    elif texts:
        rest = [f"... and {more:,} more files; --json describes each"] if more else []
        click.echo("\n\n".join([*texts, *rest]))
    for words in errors:
        click.echo(f"Error: {words}", err=True)
    if errors:
        ctx.exit(1)


def describe_file(dataset: Dataset) -> Facts:
    """Return what the headers of one file say, as values fit for JSON.

    Of groups that are joined, the first one says what is not a source.

    Returns
    -------
    dict
        ``path``, ``file_bytes``, ``format``, ``kind``, ``sources``, ``splits``, ``variables``,
        ``not_opened``, ``attributes``, ``statistics`` (those stored when the file was written;
        empty without). Sizes are in bytes; ``stored_bytes`` is what a
        source takes in the file after compression.
    """
    catalog, spaces = dataset.files.catalog, dataset.spaces
    header, sources = catalog.headers[0], {n: catalog.sources[n] for n in dataset.sources}
    format = format_named(header.format)
    headers = [(name, one) for name, source in sources.items() for one in source.headers]
    stored = dict.fromkeys(sources, 0)
    for (name, _), n in zip(headers, format.stored_bytes([h for _, h in headers]), strict=True):
        stored[name] += n
    return {
        "path": header.stamp.path,
        "file_bytes": header.stamp.size,
        "format": header.format,
        "kind": header.kind,
        "sources": {
            name: describe_source(source.headers[0], source.n_rows, stored[name])
            | {"space": str(spaces[name]) if name in spaces else None}
            for name, source in sources.items()
        },
        "splits": {
            split: {
                name: {"n_rows": len(rows), "rows": rows.describe()}
                for name, rows in by_source.items()
            }
            for split, by_source in catalog.splits.items()
        },
        "variables": {
            name: {"dims": list(v.dims), "shape": list(v.shape), "dtype": str(dtype_of(v))}
            for name, v in header.variables.items()
        },
        "not_opened": dict(catalog.not_opened),
        "attributes": plain_values(dataset.attrs),
        "statistics": dict(format.statistics(header.stamp.path)),
    }


def describe_source(header: SourceHeader, n_rows: int, stored: int) -> Facts:
    """Return what the headers of one source say; `stored` are its bytes in the file."""
    sized = header.ragged is None and header.dtype.kind != "O"
    n_bytes = n_rows * header.row_bytes if sized else None
    return {
        "dims": list(header.dims),
        "shape": [n_rows, *header.row_shape],
        "dtype": str(dtype_of(header)),
        "stored_dtype": str(header.dtype),
        "storage": header.storage,
        "column": header.is_column,
        "chunks": None if header.chunks is None else list(header.chunks),
        "filters": [{"id": f.id, "name": f.words} for f in header.filters],
        "n_bytes": n_bytes,
        "stored_bytes": stored,
        "ratio": None if n_bytes is None or not stored else round(n_bytes / stored, 2),
        "coords": list(header.coords),
        "ragged": header.ragged,
        "attributes": plain_values(header.attrs),
    }


def dtype_of(header: SourceHeader) -> np.dtype[Any]:
    """Return the dtype of values as they come out: native, after CF decoding."""
    return header.dtype.newbyteorder("=") if header.cf is None else header.cf.dtype


def plain_values(value: Any) -> Any:
    """Turn attributes into values that JSON has: lists, numbers, text.

    Examples
    --------
    >>> plain_values({"scale": np.float32(0.5), "ids": np.arange(2), "raw": b"ab", "no": np.nan})
    {'scale': 0.5, 'ids': [0, 1], 'raw': 'ab', 'no': 'nan'}
    """
    if isinstance(value, Mapping):
        return {str(key): plain_values(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufSUO":
        return plain_values(value.tolist())
    if isinstance(value, list | tuple):
        return [plain_values(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def file_text(facts: Facts, dataset: Dataset) -> str:
    """Draw the description of a file as text."""
    format = format_named(facts["format"])
    size = format_bytes(facts["file_bytes"])
    lines = [heading(f"{shown(facts['path'])}  ({size}, {format.kinds[facts['kind']]})")]
    summary = summary_of(dataset).text(more=True)
    lines += [in_flags(line, info) for line in summary.splitlines()[1:]]
    sizes = []
    for name, source in facts["sources"].items():
        in_heap = facts["format"] == "hdf5" and source["stored_dtype"] == "object"
        sizes.append((name, stored_words(source, in_heap)))
    lines += Table((), sizes, "in the file", most=MAX_LINES).text() if sizes else []
    rows = statistics_rows(facts)
    lines += Table((), rows, "statistics", most=MAX_LINES).text() if rows else []
    return "\n".join(lines)


def stored_words(source: Facts, in_heap: bool) -> str:
    """Say what a source takes in the file, and how many times more it takes in memory.

    HDF5 keeps values of variable length in heaps, whose size it does not tell by source.
    """
    size, ratio = format_bytes(source["stored_bytes"]), source["ratio"]
    if in_heap:
        return f"{size} of references (values lie in HDF5's heap)"
    return size if ratio is None or 0.95 <= ratio < 1.05 else f"{size} ({ratio:.1f}:1)"


def statistics_rows(facts: Facts) -> list[tuple[str, ...]]:
    """Return the table of statistics: a head, then a row for each source and each split of it."""
    head = ("source", "rows", "mean", "std", "min", "max", "classes")
    rows: list[tuple[str, ...]] = [head]
    for name, by_rows in facts["statistics"].items():
        measured = {"all": by_rows["rows"], **by_rows.get("splits", {})}
        for split in ("all", *facts["splits"]):
            found = measured.get(split)
            if found is not None:
                classes = [f"{value}: {n:,}" for value, n in found.get("classes", {}).items()]
                many = len(classes) > MAX_CLASSES
                words = ", ".join(classes[:MAX_CLASSES])
                words += f", ... ({len(classes)} classes)" if many else ""
                numbers = [number_words(found[key]) for key in ("mean", "std", "min", "max")]
                rows.append((name, f"{split} ({found['n_rows']:,})", *numbers, words))
    return rows if len(rows) > 1 else []


def number_words(value: Any) -> str:
    """Write a number, or one for each channel if there are few."""
    if isinstance(value, list):
        more = " ..." if len(value) > MAX_CHANNELS else ""
        return " ".join(map(number_words, value[:MAX_CHANNELS])) + more
    return "-" if value is None else f"{value:.4g}"
