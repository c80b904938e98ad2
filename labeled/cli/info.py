"""``labeled info``: what a file holds, from its headers alone.

The text is the repr of the dataset, and what only a file has: sizes, attributes, statistics.
``--json`` prints plain values. Files are described one by one and never joined: a folder with
one bad file still shows the others.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import numpy as np
from dask.utils import format_bytes

from labeled.cli.options import (
    SECONDS,
    command,
    examples_option,
    external_option,
    given,
    group_option,
    heading,
    in_flags,
    json_option,
    one_line,
    run_isolated,
    sources_option,
)
from labeled.dataset.dataset import Dataset, DatasetSource
from labeled.dataset.files import find_files
from labeled.dataset.joining import Catalog
from labeled.dataset.opening import open_dataset
from labeled.display.summary import Table
from labeled.errors import LabeledError
from labeled.formats.header import SourceHeader
from labeled.formats.registry import format_named
from labeled.spaces import Space

Facts = dict[str, Any]

MAX_CHARACTERS = 100
MAX_FILES = 3
MAX_CHANNELS, MAX_CLASSES = 4, 10
MAX_LINES = 20
"""Of each table about sources, below what a repr shows of them."""


@command("labeled info digits.hdf5", "labeled info data/ --json")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@sources_option
@json_option
@click.option(
    "--isolated",
    is_flag=True,
    help=f"Read each file, which may be damaged, in its own process, for {SECONDS:g} s at most.",
)
@group_option
@examples_option
@external_option
@click.pass_context
def info(
    ctx: click.Context, /, files: Sequence[str], as_json: bool, isolated: bool, **params: Any
) -> None:
    """Show what files hold: sources, splits, chunks, sizes.

    Reads headers only. FILE may be a file, a folder or a quoted glob. Each file is shown
    separately, but of more than three that are alike only the first. A file that cannot be
    opened is reported, and the exit code is 1.
    """
    if isolated:
        run_isolated(ctx, "isolated")
        return
    described: list[Facts] = []
    opened: list[tuple[Facts, Dataset]] = []
    errors: list[str] = []
    for path in find_files(files):
        try:
            dataset = open_dataset(path, **given(ctx, "files", "as_json"))
            facts = describe_file(dataset)
            opened.append((facts, dataset))
        except LabeledError as error:
            facts = {"path": path, "error": one_line(error)}
            errors.append(in_flags(one_line(error), ctx.command))
        described.append(facts)
    if as_json:
        click.echo(json.dumps(described, indent=2, allow_nan=False))
    elif opened:
        click.echo(visible("\n\n".join(file_texts(opened))))
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
    catalog = dataset.files.catalog
    header = catalog.headers[0]
    stored, spaces = stored_bytes_of(catalog, dataset.sources), dataset.spaces
    return {
        "path": header.stamp.path,
        "file_bytes": header.stamp.size,
        "format": header.format,
        "kind": header.kind,
        "sources": {
            name: describe_source(catalog.sources[name], n_bytes, spaces.get(name))
            for name, n_bytes in stored.items()
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
        "statistics": dict(format_named(header.format).statistics(header.stamp.path)),
    }


def stored_bytes_of(catalog: Catalog, names: Sequence[str]) -> dict[str, int]:
    """Return what each source takes in its files; those of a format are asked at once."""
    headers = [(name, header) for name in names for header in catalog.sources[name].headers]
    ask = format_named(catalog.headers[0].format).stored_bytes
    stored = dict.fromkeys(names, 0)
    for (name, _), n_bytes in zip(headers, ask([each for _, each in headers]), strict=True):
        stored[name] += n_bytes
    return stored


def describe_source(source: DatasetSource, n_stored: int, space: Space | None) -> Facts:
    """Return what the headers of one source say, as values fit for JSON.

    `n_stored` are its bytes in the file; it has no `space` where it is ragged, or text.
    """
    header = source.headers[0]
    sized = header.ragged is None and header.dtype.kind != "O"
    n_bytes = source.n_rows * header.row_bytes if sized else None
    return {
        "dims": list(header.dims),
        "shape": [source.n_rows, *header.row_shape],
        "dtype": str(dtype_of(header)),
        "stored_dtype": str(header.dtype),
        "space": None if space is None else str(space),
        "storage": header.storage,
        "column": header.is_column,
        "chunks": None if header.chunks is None else list(header.chunks),
        "filters": [{"id": f.id, "name": f.words} for f in header.filters],
        "n_bytes": n_bytes,
        "stored_bytes": n_stored,
        "ratio": None if n_bytes is None or not n_stored else round(n_bytes / n_stored, 2),
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
    kind = format_named(facts["format"]).kinds[facts["kind"]]
    lines = [heading(f"{facts['path']}  ({format_bytes(facts['file_bytes'])}, {kind})")]
    lines += [in_flags(line, info) for line in repr(dataset).splitlines()[1:]]
    sources, hdf5 = facts["sources"].items(), facts["format"] == "hdf5"
    attributes = {
        name: ", ".join(f"{key}: {value}" for key, value in one["attributes"].items())
        for name, one in sources
    }
    tables: dict[str, Sequence[tuple[str, ...]]] = {
        "in the file": [
            (name, stored_words(one, hdf5 and one["stored_dtype"] == "object"))
            for name, one in sources
        ],
        "attributes of sources": [(name, cut(one)) for name, one in attributes.items() if one],
        "attributes": [(name, cut(value)) for name, value in facts["attributes"].items()],
        "statistics": statistics_rows(facts["statistics"], facts["splits"]),
    }
    for title, rows in tables.items():
        lines += Table((), rows, title, most=MAX_LINES).text() if rows else []
    return "\n".join(lines)


def file_texts(opened: Sequence[tuple[Facts, Dataset]]) -> list[str]:
    """Draw the descriptions of files; of many that are alike the first, and how many there are."""
    groups: dict[str, list[tuple[Facts, Dataset]]] = {}
    for facts, dataset in opened:
        groups.setdefault(form_of(facts), []).append((facts, dataset))
    texts = []
    for alike in groups.values():
        many = len(alike) > MAX_FILES
        texts += [file_text(*one) for one in (alike[:1] if many else alike)]
        if many:
            names = [os.path.basename(alike[place][0]["path"]) for place in (1, -1)]
            texts.append(
                f"... and {len(alike) - 1:,} more files like it, {names[0]} to {names[1]}; "
                "--json describes each"
            )
    return texts


def form_of(facts: Facts) -> str:
    """Return a text that is the same for files that hold the same but for rows and attributes."""
    sources = {
        name: (s["dims"], s["shape"][1:], s["dtype"], s["storage"], s["chunks"], s["filters"])
        for name, s in facts["sources"].items()
    }
    kind, splits = facts["kind"], sorted(facts["splits"])
    return json.dumps([kind, sources, splits, facts["variables"], facts["not_opened"]])


def visible(text: str) -> str:
    r"""Write bytes that were no UTF-8 in the file as escapes, which any terminal can show.

    Examples
    --------
    >>> print(visible(b"caf\xc3\xa9 \xff".decode("utf-8", "surrogateescape")))
    café \udcff
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def stored_words(source: Facts, in_heap: bool) -> str:
    """Say what a source takes in the file, and how many times more it takes in memory.

    HDF5 keeps values of variable length in heaps, whose size it does not tell by source.
    """
    if in_heap:
        return f"{format_bytes(source['stored_bytes'])} of references (values lie in HDF5's heap)"
    ratio = source["ratio"]
    packed = ratio is not None and not 0.95 <= ratio < 1.05
    return format_bytes(source["stored_bytes"]) + (f" ({ratio:.1f}:1)" if packed else "")


def statistics_rows(statistics: Mapping[str, Any], splits: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the table of statistics: a head, then a row for each source and each split of it."""
    head = ("source", "rows", "mean", "std", "min", "max", "classes")
    body = []
    for name, by_rows in statistics.items():
        found = {"all": by_rows["rows"], **by_rows.get("splits", {})}
        body += [
            (name, f"{split} ({found[split]['n_rows']:,})", *measured_words(found[split]))
            for split in ("all", *splits)
            if split in found
        ]
    return [head, *body] if body else []


def measured_words(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Say mean, deviation and extremes (each channel's, if there are few), and class counts.

    Examples
    --------
    >>> measured_words({"mean": [0.5, 2], "std": None, "min": 0, "max": 1, "classes": {"7": 3}})
    ('0.5 2', '-', '0', '1', '7: 3')
    """

    def number(value: Any) -> str:
        if isinstance(value, list):
            shown = " ".join(map(number, value[:MAX_CHANNELS]))
            return shown if len(value) <= MAX_CHANNELS else f"{shown} ..."
        return "-" if value is None else f"{value:.4g}"

    classes = [f"{value}: {n:,}" for value, n in found.get("classes", {}).items()]
    more = f", ... ({len(classes)} classes)" if len(classes) > MAX_CLASSES else ""
    counted = ", ".join(classes[:MAX_CLASSES]) + more
    return (*(number(found[key]) for key in ("mean", "std", "min", "max")), counted)


def cut(value: Any) -> str:
    """Write a value on one line of bounded length."""
    text = " ".join(str(value).split())
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 3] + "..."
