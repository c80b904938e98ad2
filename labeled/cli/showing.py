"""``labeled info`` and ``labeled head``: what a file holds, and its first rows.

`info` reads headers alone. Its text is the summary of the dataset that its repr and HTML show, and
what only a file has: sizes and statistics. Files are described one by one and never joined: a
folder with one bad file still shows the others. The other commands are lines over one call each,
in `main`; drawing what a file holds is not.

`head` draws a source whose dims are batch, height, width and perhaps channel, found by name;
anything else is printed as aligned numbers. It reads only the rows it shows.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled.cli import options as opt
from labeled.dataset.dataset import Dataset
from labeled.dataset.files import find_files
from labeled.dataset.opening import open_dataset
from labeled.dataset.summary import summary_of
from labeled.dims import image_dims
from labeled.display.plots import as_images, finite_range
from labeled.display.text import Table, class_names_of, count_words, shortened, shown, sizes_words
from labeled.errors import LabeledError
from labeled.formats.header import FileStamp, SourceHeader
from labeled.formats.pictures import PictureError, head_of, kind_of
from labeled.formats.registry import format_named
from labeled.ragged import Ragged
from labeled.sources.source import decoded_dtype

Facts = dict[str, Any]
Array = npt.NDArray[Any]

MAX_FILES = 10
MAX_CHANNELS, MAX_CLASSES = 4, 10
MAX_LINES = 20  # of each table about sources, below what a repr shows of them

MAX_PIXELS = 64
MAX_VALUES = 10
MAX_CHARACTERS = 24
ALONE = 72  # the most characters of a value that is all there is of a row

SHADES = np.array(list(" .:-=+*#%@"))
# two pixels in one character: its foreground is the upper one and its background the lower
HALF_BLOCK = "\x1b[38;2;{};{};{};48;2;{};{};{}m▀"

GAP = "  "


# info


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@opt.sources
@opt.as_json
@opt.group
@opt.examples
@opt.external
@click.pass_context
def info(ctx: click.Context, /, files: Sequence[str], as_json: bool, **params: Any) -> None:
    """Show what files hold: sources, splits, chunks, sizes.

    \b
    labeled info digits.hdf5
    labeled info data/ --json

    Reads headers only. FILE may be a file, a folder or a quoted glob. Each file is shown
    separately, ten of them at most (--json describes all). A file that cannot be opened is
    reported, and the exit code is 1.
    """
    described: list[Facts] = []
    texts: list[str] = []
    errors: list[str] = []
    for path in find_files(files):
        try:
            dataset = open_dataset(path, **opt.given(ctx, "files", "as_json"))
            facts = describe_file(dataset)
            if len(texts) < MAX_FILES:
                texts.append(file_text(facts, dataset))
        except LabeledError as error:
            facts = {"path": path, "error": opt.one_line(error)}
            errors.append(opt.in_flags(facts["error"], ctx.command))
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
        "file_bytes": size_of(header.stamp),
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
            name: {"dims": list(v.dims), "shape": list(v.shape), "dtype": str(decoded_dtype(v))}
            for name, v in header.variables.items()
        },
        "not_opened": dict(header.not_opened),
        "attributes": plain_values(dataset.attrs),
        "statistics": dict(format.statistics(header.stamp.path)),
    }


def size_of(stamp: FileStamp) -> int:
    """Return the bytes of a file, or of all files of a store: a stamp counts its metadata alone."""
    inside = (os.path.join(at, name) for at, _, names in os.walk(stamp.path) for name in names)
    return sum(map(os.path.getsize, inside)) if os.path.isdir(stamp.path) else stamp.size


def describe_source(header: SourceHeader, n_rows: int, stored: int) -> Facts:
    """Return what the headers of one source say; `stored` are its bytes in the file."""
    sized = header.ragged is None and header.dtype.kind != "O"
    n_bytes = n_rows * header.row_bytes if sized else None
    as_they_are = ("dims", "storage", "chunks", "coords", "ragged")
    return {name: plain_values(getattr(header, name)) for name in as_they_are} | {
        "shape": [n_rows, *header.row_shape],
        "dtype": str(decoded_dtype(header)),
        "stored_dtype": str(header.dtype),
        "column": header.is_column,
        "filters": [{"id": f.id, "name": f.words} for f in header.filters],
        "n_bytes": n_bytes,
        "stored_bytes": stored,
        "ratio": None if n_bytes is None or not stored else round(n_bytes / stored, 2),
        "attributes": plain_values(header.attrs),
    }


def plain_values(value: Any) -> Any:
    """Turn attributes into values that JSON has: lists, numbers, text.

    Examples
    --------
    >>> plain_values({"scale": np.float32(0.5), "ids": np.arange(2), "raw": b"ab", "no": np.nan})
    {'scale': 0.5, 'ids': [0, 1], 'raw': 'ab', 'no': 'nan'}
    """
    if isinstance(value, Mapping):
        return {str(key): plain_values(one) for key, one in value.items()}
    if isinstance(value, float | np.floating):  # long doubles among them, which tolist() leaves
        return float(value) if math.isfinite(value) else str(value)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufSUO":
        return plain_values(value.tolist())
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        return [plain_values(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def file_text(facts: Facts, dataset: Dataset) -> str:
    """Draw the description of a file as text."""
    format = format_named(facts["format"])
    size = format_bytes(facts["file_bytes"])
    lines = [opt.heading(f"{shown(facts['path'])}  ({size}, {format.kinds[facts['kind']]})")]
    summary = summary_of(dataset).text(more=True)
    lines += [opt.in_flags(line, info) for line in summary.splitlines()[1:]]
    sizes = [(name, stored_words(facts, name)) for name in facts["sources"]]
    lines += Table((), sizes, "in the file", most=MAX_LINES).text() if sizes else []
    rows = statistics_rows(facts)
    lines += Table((), rows, "statistics", most=MAX_LINES).text() if rows else []
    return "\n".join(lines)


def stored_words(facts: Facts, name: str) -> str:
    """Say what a source takes in the file, and how many times more it takes in memory.

    HDF5 keeps values of variable length in heaps, whose size it does not tell by source, and a
    text holds the columns of all sources.
    """
    source, format = facts["sources"][name], facts["format"]
    size, ratio = format_bytes(source["stored_bytes"]), source["ratio"]
    if format == "hdf5" and source["stored_dtype"] == "object":
        return f"{size} of references (values lie in HDF5's heap)"
    if format == "csv" and len(facts["sources"]) > 1:
        return f"{size} of text, all columns together"
    return size if not ratio or 0.95 <= ratio < 1.05 else f"{size} ({ratio:.1f}:1)"


def statistics_rows(facts: Facts) -> list[tuple[str, ...]]:
    """Return the table of statistics: a head, then a row for each source and each split of it."""
    rows: list[tuple[str, ...]] = [("source", "rows", "mean", "std", "min", "max", "classes")]
    for name, by_rows in facts["statistics"].items():
        measured = {"all": by_rows["rows"], **by_rows.get("splits", {})}
        for split in dict.fromkeys(("all", *facts["splits"])):  # a file may have an "all" itself
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


# head


@click.command()
@click.argument("file")
@click.argument("sources", metavar="[SOURCE]", required=False)
@click.option("--rows", "n_rows", default=5, show_default=True, type=click.IntRange(min=0))
@click.option("--split", metavar="NAME", help="Rows of this split; of the file if not given.")
@opt.dims
@click.option("--numbers", is_flag=True, help="Print images as numbers, too.")
@opt.as_json
@opt.group
@opt.examples
@opt.external
@click.pass_context
def head(
    ctx: click.Context,
    /,
    file: str,
    sources: str | None,
    n_rows: int,
    split: str | None,
    numbers: bool,
    as_json: bool,
    **params: Any,
) -> None:
    """Show the first rows of SOURCE, or of every source.

    \b
    labeled head digits.hdf5
    labeled head digits.hdf5 images --rows 3 --split test
    labeled head plain.hdf5 photos --dims photos=batch,height,width,channel

    Small images, known by the names of their axes (height, width, perhaps channel), are drawn:
    in colour on a terminal (not with NO_COLOR), else in shades.
    """
    opened = opt.given(ctx, "file", "sources", "n_rows", "split", "numbers", "as_json")
    dataset = open_dataset(file, sources=sources, **opened)
    if split is not None:
        dataset = dataset.split(split)
    if as_json:
        plain = {}
        for name in dataset.sources:
            rows = dataset.select(name).subset(slice(n_rows))[name]
            values = rows.to_objects() if isinstance(rows, Ragged) else rows.values
            plain[name] = list(map(plain_values, values))
        click.echo(json.dumps(plain, allow_nan=False))
        return
    if not dataset.sources:
        click.echo(f"{dataset.where} holds no source; `labeled info` tells what it holds")
    for name in dataset.sources:
        click.echo("\n".join([*source_lines(dataset.select(name), name, n_rows, numbers), ""]))


def source_lines(dataset: Dataset, name: str, n_rows: int, numbers: bool) -> list[str]:
    """Draw the first rows of one source, under a line that says what it is."""
    lazy, first = dataset[name], dataset.subset(slice(n_rows))[name]
    ragged = isinstance(lazy, Ragged)
    shape = (len(lazy),) if ragged else lazy.shape
    dtype = "text" if not ragged and lazy.dtype.kind == "O" else str(lazy.dtype)
    title = f"{name}  {sizes_words(list(map(str, lazy.dims)), shape)}  {dtype}"
    if len(first) < len(lazy):
        title += f"  first {count_words(len(first), 'row')}"
    if ragged:
        pictures = [] if numbers else encoded_lines(first, name)
        if pictures:
            return [opt.heading(title), *pictures]
    padded = first.pad() if ragged else first
    wanted = None if numbers or padded.dtype.kind not in "biuf" else image_dims(padded.dims[1:])
    if wanted is None or not padded.size or not wanted.keys() <= {"height", "width", "channel"}:
        rows = list(first.to_objects()) if ragged else first.values
        return [opt.heading(title), *number_lines(rows, class_names_of(lazy.attrs))]
    title += "  (shapes differ: filled up with 0)" if ragged else ""
    images, note = as_images(padded.values, padded.dims[1:])
    return [opt.heading(title), *image_lines(np.stack(images), note)]


def encoded_lines(rows: Ragged, name: str) -> list[str]:
    """Say what encoded pictures are, and what decodes them; nothing where not all are pictures."""
    if rows.dtype != np.uint8 or len(rows.dims) != 2 or not len(rows):
        return []
    lines = []
    for number, row in enumerate(rows.to_objects()):
        encoded = np.asarray(row).tobytes()
        kind = kind_of(encoded)
        if kind is None:
            return []
        try:
            found = head_of(encoded)
            size = "" if found is None else " of {} x {} x {}".format(*found.shape())
        except PictureError:
            size = ", damaged"
        lines.append(f"  row {number}  {kind}{size}, {len(encoded):,} bytes")
    decoded = f"pipeline={{{name!r}: labeled.transforms.Decode()}}"
    return [*lines, f"  encoded pictures; batches(..., {decoded}) makes pixels of them"]


def number_lines(values: Array | list[Array], classes: Mapping[int, str]) -> list[str]:
    """Write rows as right-aligned numbers; long rows are cut, and a text a row has more room.

    Parameters
    ----------
    values : array, or list of arrays
        The first axis counts the rows; those of different shapes are a list.
    classes : mapping of int to str
        Names of the values, where these are classes.

    Examples
    --------
    >>> number_lines(np.array([[1.0, 2.5], [10.0, 0.125]]), {})
    ['  row 0   1    2.5', '  row 1  10  0.125']
    >>> number_lines(np.array([5, 0, 1]), {0: "cat", 5: "dog"})
    ['  row 0  5 (dog)', '  row 1  0 (cat)', '  row 2        1']
    >>> number_lines([np.array([[7, 8]]), np.zeros((0, 2))], {})
    ['  row 0 (1 x 2)  7  8', '  row 1 (0 x 2)']
    """
    if not len(values):
        return ["  (no rows)"]
    flat = [row.reshape(-1) if isinstance(row, np.ndarray) else [row] for row in values]
    most = ALONE if all(len(row) == 1 for row in flat) else MAX_CHARACTERS
    rows, ends = [], []
    for number, (row, whole) in enumerate(zip(flat, values, strict=True)):
        words = [f"row {number}"]
        if isinstance(values, list) and whole.ndim > 1:
            words[0] += f" ({' x '.join(map(str, whole.shape))})"
        for value in row[:MAX_VALUES]:
            known = isinstance(value, np.bool_ | np.integer) and value in classes
            words.append(text_of(value, most) + (f" ({classes[value]})" if known else ""))
        rows.append(words)
        more = len(row) - MAX_VALUES
        ends.append(f"  ... {more:,} more values" if more > 0 else "")
    widths = [max(map(len, column)) for column in zip_longest(*rows, fillvalue="")]
    lines = (GAP.join(map(str.rjust, row, widths)) for row in rows)
    return [f"  {line}{end}" for line, end in zip(lines, ends, strict=True)]


def text_of(value: Any, most: int = MAX_CHARACTERS) -> str:
    """Write one value in few characters, `most` of them.

    Examples
    --------
    >>> text_of(np.float32(0.1)), text_of(np.uint8(7)), text_of("a" * 30)
    ('0.1', '7', "'aaaaaaaaaaaaaaaaaaaa...")
    >>> text_of(np.datetime64("2024-02-03T04:05:06.070", "ns"))
    '2024-02-03T04:05:06.07'
    >>> text_of(np.timedelta64(90_000_000_000, "ns"))
    '0:01:30'
    """
    if isinstance(value, np.inexact | float):
        return f"{value:.4g}"
    if isinstance(value, np.datetime64):
        second, dot, fraction = str(value).partition(".")
        return second + (dot + fraction.rstrip("0")).rstrip(".")
    if isinstance(value, np.timedelta64) and value == value.astype("m8[us]"):
        return str(value.astype("m8[us]").item())
    value = value.item() if isinstance(value, np.bytes_ | np.str_) else value
    return shortened(repr(value) if isinstance(value, str | bytes) else value, most)


# images as text: half blocks in 24-bit colour; where colour is out of place (a pipe, a file,
# NO_COLOR) ASCII shades, two characters wide so that squares stay square


def image_lines(values: Array, note: str) -> list[str]:
    """Draw images side by side under their numbers, and say what black and white stand for.

    Parameters
    ----------
    values : array, lengths (n, height, width) or (n, height, width, 3)
    note : str
        What of each image is not shown, after a comma.
    """
    colour, columns = opt.wants_colour(), shutil.get_terminal_size().columns
    most = max(2, min(MAX_PIXELS, (columns - 2) // (1 if colour else 2)))
    step = max(1, -(-max(values.shape[1:3]) // most))
    note += f", every {step}th pixel" if step > 1 else ""
    values = values[:, ::step, ::step].astype(np.float64)
    low, high = finite_range(values)
    scaled = np.nan_to_num((values - low) * (255 / ((high - low) or 1)))
    drawn = [drawn_lines(image, colour) for image in scaled.clip(0, 255).astype(np.uint8)]
    names = [f"row {number}" for number in range(len(values))]
    width = values.shape[2] * (1 if colour else 2)
    slot = max(width, len(names[-1]))
    pad, per_line = " " * (slot - width) + GAP, max(1, columns // (slot + len(GAP)))
    lines = []
    for first in range(0, len(values), per_line):
        some = slice(first, first + per_line)
        lines.append((GAP + GAP.join(name.ljust(slot) for name in names[some])).rstrip())
        lines += [GAP + pad.join(parts) for parts in zip(*drawn[some], strict=True)]
    return [*lines, f"  (black is {text_of(low)}, white is {text_of(high)}{note})"]


def drawn_lines(image: npt.NDArray[np.uint8], colour: bool) -> list[str]:
    """Draw one image, lengths (height, width) or (height, width, 3).

    Examples
    --------
    >>> drawn_lines(np.array([[0, 128, 255]], np.uint8), False)
    ['  ++@@']
    """
    if not colour:
        grey = image if image.ndim == 2 else image.mean(axis=2)
        return ["".join(row) for row in SHADES[grey.astype(int) * len(SHADES) >> 8].repeat(2, 1)]
    rgb = image if image.ndim == 3 else image[..., None].repeat(3, axis=2)
    rgb = np.pad(rgb, ((0, len(rgb) % 2), (0, 0), (0, 0)))
    pairs = np.concatenate([rgb[::2], rgb[1::2]], axis=2).tolist()
    return ["".join(HALF_BLOCK.format(*pair) for pair in row) + "\x1b[0m" for row in pairs]
