"""``labeled head``: the first rows of a file, as numbers or as small pictures.

A source is drawn when its dims are batch, height, width and perhaps channel, found by
name; anything else is printed as aligned numbers. Reads only the rows it shows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from labeled.cli.info import plain_values
from labeled.cli.options import (
    command,
    dims_option,
    examples_option,
    external_option,
    given,
    group_option,
    heading,
    json_option,
    wants_colour,
)
from labeled.dataset.dataset import Dataset
from labeled.dataset.opening import open_dataset
from labeled.dims import image_dims
from labeled.display.text import class_names_of, count_words, shortened, sizes_words
from labeled.formats.pictures import PictureError, head_of, kind_of
from labeled.ragged import Ragged

Array = npt.NDArray[Any]

MAX_PIXELS = 64
MAX_VALUES = 10
MAX_CHARACTERS = 24
ALONE = 72
"""The most characters of a value that is all there is of a row."""

SHADES = np.array(list(" .:-=+*#%@"))
HALF_BLOCK = "\x1b[38;2;{};{};{};48;2;{};{};{}m▀"
"""Two pixels in one character: its foreground is the upper one and its background the lower."""

GAP = "  "


@command(
    "labeled head digits.hdf5",
    "labeled head digits.hdf5 images --rows 3 --split test",
    "labeled head plain.hdf5 photos --dims photos=batch,height,width,channel",
)
@click.argument("file")
@click.argument("source", required=False)
@click.option("--rows", "n_rows", default=5, show_default=True, type=click.IntRange(min=0))
@click.option("--split", metavar="NAME", help="Rows of this split; of the file if not given.")
@dims_option
@click.option("--numbers", is_flag=True, help="Print images as numbers, too.")
@json_option
@group_option
@examples_option
@external_option
@click.pass_context
def head(
    ctx: click.Context,
    /,
    file: str,
    source: str | None,
    n_rows: int,
    split: str | None,
    numbers: bool,
    as_json: bool,
    **params: Any,
) -> None:
    """Show the first rows of SOURCE, or of every source.

    Small images, known by the names of their axes (height, width, perhaps channel), are drawn:
    in colour on a terminal (not with NO_COLOR), else in shades.
    """
    opened = given(ctx, "file", "source", "n_rows", "split", "numbers", "as_json")
    dataset = open_dataset(file, sources=source, **opened)
    if split is not None:
        dataset = dataset.split(split)
    if as_json:
        first, plain = dataset.subset(slice(n_rows)), {}
        for name in dataset.sources:
            rows = first[name]
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
            return [heading(title), *pictures]
        title += "  (shapes differ: filled up with 0)"
        first = first.pad()
    wanted = None if numbers or first.dtype.kind not in "biuf" else image_dims(first.dims[1:])
    if wanted is None or not first.size or not wanted.keys() <= {"height", "width", "channel"}:
        return [heading(title), *number_lines(first.values, class_names_of(lazy.attrs))]
    return [heading(title), *image_lines(first.transpose(first.dims[0], *wanted.values()).values)]


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


def number_lines(values: Array, classes: Mapping[int, str]) -> list[str]:
    """Write rows as right-aligned numbers; long rows are cut, and a text a row has more room.

    Parameters
    ----------
    values : array
        The first axis counts the rows.
    classes : mapping of int to str
        Names of the values, where these are classes.

    Examples
    --------
    >>> number_lines(np.array([[1.0, 2.5], [10.0, 0.125]]), {})
    ['  row 0   1    2.5', '  row 1  10  0.125']
    >>> number_lines(np.array([5, 0, 1]), {0: "cat", 5: "dog"})
    ['  row 0  5 (dog)', '  row 1  0 (cat)', '  row 2        1']
    """
    if not len(values):
        return ["  (no rows)"]
    row_size = int(np.prod(values.shape[1:], dtype=np.int64))
    most = ALONE if row_size == 1 else MAX_CHARACTERS
    rows = []
    for number, row in enumerate(values.reshape(len(values), row_size)[:, :MAX_VALUES]):
        words = [f"row {number}"]
        for value in row:
            known = values.dtype.kind in "biu" and value in classes
            words.append(text_of(value, most) + (f" ({classes[value]})" if known else ""))
        rows.append(words)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    end = f"  ... {row_size - MAX_VALUES:,} more values" if row_size > MAX_VALUES else ""
    return ["  " + GAP.join(map(str.rjust, row, widths)) + end for row in rows]


def text_of(value: Any, most: int = MAX_CHARACTERS) -> str:
    """Write one value in few characters, `most` of them.

    Examples
    --------
    >>> text_of(np.float32(0.1)), text_of(np.uint8(7)), text_of("a" * 30)
    ('0.1', '7', "'aaaaaaaaaaaaaaaaaaaa...")
    >>> text_of(np.datetime64("2024-02-03T04:05:06.070", "ns"))
    '2024-02-03T04:05:06.07'
    """
    if isinstance(value, np.inexact | float):
        return f"{value:.4g}"
    if isinstance(value, np.datetime64):
        second, dot, fraction = str(value).partition(".")
        return second + (dot + fraction.rstrip("0")).rstrip(".")
    value = value.item() if isinstance(value, np.bytes_ | np.str_) else value
    return shortened(repr(value) if isinstance(value, str | bytes) else value, most)


# images as text: half blocks in 24-bit colour; where colour is out of place (a pipe, a file,
# NO_COLOR) ASCII shades, two characters wide so that squares stay square


def image_lines(values: Array) -> list[str]:
    """Draw images side by side under their numbers, and say what black and white stand for.

    Parameters
    ----------
    values : array, lengths (n, height, width) or (n, height, width, channel)
    """
    note = ""
    if values.ndim == 4 and values.shape[3] != 3:
        note = f"channel 0 of {values.shape[3]}; " if values.shape[3] > 1 else ""
        values = values[..., 0]
    colour, columns = wants_colour(), shutil.get_terminal_size().columns
    most = max(2, min(MAX_PIXELS, (columns - 2) // (1 if colour else 2)))
    step = max(1, -(-max(values.shape[1:3]) // most))
    note += f"every {step}th pixel; " if step > 1 else ""
    values = values[:, ::step, ::step].astype(np.float64)
    low, high = np.nanmin(values), np.nanmax(values)
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
    return [*lines, f"  ({note}black is {text_of(low)}, white is {text_of(high)})"]


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
