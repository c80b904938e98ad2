"""``labeled head``: the first rows of a file, as numbers or as small pictures.

A source is drawn when its dims are batch, height, width and perhaps channel, found by
name; anything else is printed as aligned numbers. Reads only the rows it shows.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.cli.drawing import as_pixels, gallery, shrink_step
from labeled.cli.info import plain_values
from labeled.cli.options import examples_option, external_option, group_option, names_of
from labeled.dataset.dataset import Dataset
from labeled.dataset.opening import open_dataset
from labeled.dims import image_dims
from labeled.display.classes import class_names_of
from labeled.display.text import count_words, sizes_words
from labeled.formats.picture_heads import PictureError, head_of, kind_of
from labeled.ragged import Ragged

MOST_PIXELS = 64
MOST_VALUES = 10
MOST_CHARACTERS = 24
ALONE = 72
"""The most characters of a value that is all there is of a row."""


@click.command(short_help="Show the first rows; small images are drawn.")
@click.argument("file")
@click.argument("source", required=False)
@click.option("--rows", "n_rows", default=5, show_default=True, type=click.IntRange(min=0))
@click.option("--split", "split", metavar="NAME", help="Rows of this split; of the file if not.")
@click.option(
    "--dims",
    multiple=True,
    metavar="SOURCE=a,b,c",
    help="Names of all its axes, where the file has none: photos=batch,height,width,channel.",
)
@click.option("--numbers", is_flag=True, help="Print images as numbers, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the rows as JSON: source to values.")
@group_option
@examples_option
@external_option
def head(
    file: str,
    source: str | None,
    n_rows: int,
    split: str | None,
    dims: Sequence[str],
    numbers: bool,
    as_json: bool,
    group: str | None,
    examples: str | None,
    allow_external: bool,
) -> None:
    """Show the first rows of FILE: of SOURCE, or of every source.

    Small images, known by the names of their axes (height, width, perhaps channel), are drawn:
    in colour on a terminal (not with NO_COLOR), else in shades.

    \b
      labeled head digits.hdf5 images --rows 3 --split test
      labeled head plain.hdf5 photos --dims photos=batch,height,width,channel
    """
    wanted = None if source is None else [source]
    named = names_of(dims, "dims", str.rpartition) or None
    dataset = open_dataset(
        file,
        sources=wanted,
        dims=named,
        group=group,
        examples=examples,
        allow_external=allow_external,
    )
    if split is not None:
        dataset = dataset.split(split)
    if as_json:
        first = dataset.subset(slice(n_rows))
        arrays = ((name, first[name]) for name in dataset.sources)
        rows = {
            name: list(map(plain_values, x.to_objects() if isinstance(x, Ragged) else x.values))
            for name, x in arrays
        }
        click.echo(json.dumps(rows, allow_nan=False))
        return
    if not dataset.sources:
        click.echo(f"{dataset.where} holds no source; `labeled info` tells what it holds")
    for name in dataset.sources:
        click.echo("\n".join(source_lines(dataset.select(name), name, n_rows, numbers)))


def source_lines(dataset: Dataset, name: str, n_rows: int, numbers: bool) -> list[str]:
    """Draw the first rows of one source, under a line that says what it is."""
    lazy, first = dataset[name], dataset.subset(slice(n_rows))[name]
    ragged = isinstance(lazy, Ragged)
    shape = (len(lazy),) if ragged else lazy.shape
    dtype = "text" if not ragged and lazy.dtype.kind == "O" else str(lazy.dtype)
    title = f"{name}  {sizes_words(list(map(str, lazy.dims)), shape)}  {dtype}"
    if len(first) < len(lazy):
        title += f"  first {count_words(len(first), 'row')}"
    if isinstance(first, Ragged):
        pictures = [] if numbers else picture_lines(first, name)
        if pictures:
            return [title, *pictures, ""]
        title += "  (shapes differ: filled up with 0)"
    if dtype == "text":  # compute() asks pandas for a type, which refuses bytes that are no UTF-8
        return [title, *number_lines(first.values, class_names_of(lazy.attrs)), ""]
    array = first.pad() if ragged else first.compute()
    image = None if numbers or not array.size else as_image(array)
    if image is None:
        return [title, *number_lines(array.values, class_names_of(lazy.attrs)), ""]
    return [title, *image_lines(image)]


def picture_lines(rows: Ragged, name: str) -> list[str]:
    """Say what encoded pictures are, and what decodes them; nothing where not all are pictures."""
    if rows.dtype != np.uint8 or len(rows.dims) != 2 or not len(rows):
        return []
    encoded = [np.asarray(one).tobytes() for one in rows.to_objects()]
    kinds = [kind_of(one) for one in encoded]
    if None in kinds:
        return []
    lines = [
        f"  row {i}  {kind}{_size_of(one)}, {len(one):,} bytes"
        for i, (kind, one) in enumerate(zip(kinds, encoded, strict=True))
    ]
    decoded = f"pipeline={{{name!r}: labeled.transforms.Decode()}}"
    return [*lines, f"  encoded pictures; batches(..., {decoded}) makes pixels of them"]


def _size_of(encoded: bytes) -> str:
    """Return how large an encoded picture is, in words; nothing where only a decoder knows."""
    try:
        found = head_of(encoded)
    except PictureError:
        return ", damaged"
    if found is None:
        return ""
    height, width, channels = found.shape()
    return f" of {height} x {width} x {channels}"


def as_image(array: xr.DataArray) -> xr.DataArray | None:
    """Put an array into the order batch, height, width, channel; None if it is no image."""
    if array.dtype.kind not in "biuf":
        return None
    first, *inner = map(str, array.dims)
    wanted = image_dims(inner)
    if wanted is None or not wanted.keys() <= {"height", "width", "channel"}:
        return None
    return array.transpose(first, *wanted.values())


def image_lines(image: xr.DataArray) -> list[str]:
    """Draw images side by side, and say what black and white stand for."""
    values, note = image.values, ""
    if values.ndim == 4 and values.shape[3] != 3:
        note = f"channel 0 of {values.shape[3]}; " if values.shape[3] > 1 else ""
        values = values[..., 0]
    columns = shutil.get_terminal_size().columns
    colour = wants_colour()
    most = max(2, min(MOST_PIXELS, (columns - 2) // (1 if colour else 2)))
    step = shrink_step(values.shape[1], values.shape[2], most)
    if step > 1:
        note += f"every {step}th pixel; "
    values = values[:, ::step, ::step]
    captions = [f"row {i}" for i in range(len(values))]
    low, high = np.nanmin(values), np.nanmax(values)
    lines = gallery(as_pixels(values), captions, colour=colour, columns=columns)
    return [*lines[:-1], f"  ({note}black is {text_of(low)}, white is {text_of(high)})", ""]


def wants_colour() -> bool:
    """Whether stdout is a terminal, and nobody asked for no colour."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def number_lines(values: npt.NDArray[Any], classes: Mapping[int, str] | None = None) -> list[str]:
    """Write rows as right-aligned numbers; long rows are cut, and a text a row has more room.

    Parameters
    ----------
    values : array
        The first axis counts the rows.
    classes : mapping of int to str, optional
        Names of the values, where these are classes.

    Examples
    --------
    >>> number_lines(np.array([[1.0, 2.5], [10.0, 0.125]]))
    ['  row 0   1    2.5', '  row 1  10  0.125']
    >>> number_lines(np.array([5, 0, 1]), {0: "cat", 5: "dog"})
    ['  row 0  5 (dog)', '  row 1  0 (cat)', '  row 2        1']
    """
    classes = classes or {}
    row_size = int(np.prod(values.shape[1:], dtype=np.int64))
    flat = values.reshape(len(values), row_size)[:, :MOST_VALUES]
    most = ALONE if row_size == 1 else MOST_CHARACTERS
    rows = [
        [f"row {i}", *(text_of(value, most) + _named(value, classes) for value in row)]
        for i, row in enumerate(flat)
    ]
    if not rows:
        return ["  (no rows)"]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left_out = row_size - flat.shape[1]
    end = f"  ... {left_out:,} more values" if left_out else ""
    return [
        "  " + "  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) + end
        for row in rows
    ]


def _named(value: Any, classes: Mapping[int, str]) -> str:
    known = isinstance(value, np.integer | np.bool_) and int(value) in classes
    return f" ({classes[int(value)]})" if known else ""


def text_of(value: Any, most: int = MOST_CHARACTERS) -> str:
    """Write one value in few characters, `most` of them.

    Examples
    --------
    >>> text_of(np.float32(0.1)), text_of(np.uint8(7)), text_of("a" * 30)
    ('0.1', '7', "'aaaaaaaaaaaaaaaaaaaa...")
    >>> print(text_of(np.bytes_(b"IDLE")))
    b'IDLE'
    >>> text_of(np.datetime64("2024-02-03T04:05:06.070", "ns")), text_of(np.datetime64("NaT", "ns"))
    ('2024-02-03T04:05:06.07', 'NaT')
    """
    if isinstance(value, np.floating | float):
        return f"{value:.4g}"
    if isinstance(value, np.complexfloating | complex):
        return f"{value:.3g}"
    if isinstance(value, np.datetime64):
        second, dot, fraction = str(value).partition(".")
        return second + (dot + fraction.rstrip("0")).rstrip(".")
    if isinstance(value, np.bytes_ | np.str_):
        value = value.item()
    text = repr(value) if isinstance(value, str | bytes) else str(value)
    return text if len(text) <= most else text[: most - 3] + "..."
