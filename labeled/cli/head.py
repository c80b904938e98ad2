"""``labeled head``: the first rows of a file, as numbers or as small pictures.

A source is drawn when its dims are batch, height, width and perhaps channel, found by
name; anything else is printed as aligned numbers. Reads only the rows it shows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np
import numpy.typing as npt
import xarray as xr

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
from labeled.display.classes import class_names_of
from labeled.display.text import count_words, sizes_words
from labeled.formats.picture_heads import PictureError, head_of, kind_of
from labeled.ragged import Ragged

Image = npt.NDArray[np.uint8]
"""Lengths (height, width, 3), or (height, width) where grey."""

MAX_PIXELS = 64
MAX_VALUES = 10
MAX_CHARACTERS = 24
ALONE = 72
"""The most characters of a value that is all there is of a row."""

SHADES = " .:-=+*#%@"
UPPER_HALF = "▀"
GAP = 2
INDENT = "  "


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
            return [heading(title), *pictures, ""]
        title += "  (shapes differ: filled up with 0)"
    if dtype == "text":  # compute() asks pandas for a type, which refuses bytes that are no UTF-8
        return [heading(title), *number_lines(first.values, class_names_of(lazy.attrs)), ""]
    array = first.pad() if ragged else first.compute()
    image = None if numbers or not array.size else as_image(array)
    if image is None:
        return [heading(title), *number_lines(array.values, class_names_of(lazy.attrs)), ""]
    return [heading(title), *image_lines(image)]


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
    """Put an array into the order batch, height, width, channel; None if it is not an image."""
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
    most = max(2, min(MAX_PIXELS, (columns - 2) // (1 if colour else 2)))
    step = shrink_step(values.shape[1], values.shape[2], most)
    if step > 1:
        note += f"every {step}th pixel; "
    values = values[:, ::step, ::step]
    captions = [f"row {i}" for i in range(len(values))]
    low, high = np.nanmin(values), np.nanmax(values)
    lines = gallery(as_pixels(values), captions, colour=colour, columns=columns)
    return [*lines[:-1], f"  ({note}black is {text_of(low)}, white is {text_of(high)})", ""]


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
    flat = values.reshape(len(values), row_size)[:, :MAX_VALUES]
    most = ALONE if row_size == 1 else MAX_CHARACTERS
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


def text_of(value: Any, most: int = MAX_CHARACTERS) -> str:
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


# Small images as text: half blocks in 24-bit colour, or plain shades. A half block shows two
# pixels, one above the other, in one character: its foreground is the upper pixel and its
# background the lower. Where colour is out of place (a pipe, a file, NO_COLOR) pixels become
# ASCII shades, two characters wide so that squares stay square.


def as_pixels(images: npt.NDArray[Any]) -> Image:
    """Stretch values between their least and greatest to 0 .. 255; not-a-number is black.

    Examples
    --------
    >>> as_pixels(np.array([[0.0, 8.0, 16.0]]))
    array([[  0, 127, 255]], dtype=uint8)
    """
    values = np.asarray(images, np.float64)
    finite = np.isfinite(values)
    if not finite.any():
        return np.zeros(values.shape, np.uint8)
    low, high = float(values[finite].min()), float(values[finite].max())
    span = high - low or 1.0
    stretched = (np.where(finite, values, low) - low) * (255 / span)
    return stretched.astype(np.uint8)


def shrink_step(height: int, width: int, most: int) -> int:
    """Return every how many pixels to draw, so that no side passes `most`."""
    return max(1, -(-max(height, width) // most))


def colour_lines(image: Image) -> list[str]:
    """Draw one image as half blocks, two of its rows to a line."""
    rgb = image if image.ndim == 3 else np.repeat(image[..., None], 3, axis=2)
    if len(rgb) % 2:
        rgb = np.concatenate([rgb, np.zeros_like(rgb[:1])])
    return [
        "".join(map(_half_block, upper.tolist(), lower.tolist())) + "\x1b[0m"
        for upper, lower in zip(rgb[::2], rgb[1::2], strict=True)
    ]


def _half_block(upper: Sequence[int], lower: Sequence[int]) -> str:
    front, back = ";".join(map(str, upper)), ";".join(map(str, lower))
    return f"\x1b[38;2;{front};48;2;{back}m{UPPER_HALF}"


def shade_lines(image: Image) -> list[str]:
    """Draw one image as ASCII shades.

    Examples
    --------
    >>> shade_lines(np.array([[0, 128, 255]], np.uint8))
    ['  ++@@']
    """
    grey = image if image.ndim == 2 else image.mean(axis=2)
    levels = (grey.astype(np.int64) * len(SHADES)) >> 8
    return ["".join(SHADES[level] * 2 for level in row) for row in levels.tolist()]


def gallery(images: Image, captions: Sequence[str], *, colour: bool, columns: int) -> list[str]:
    """Draw images side by side, as many to a line as `columns` characters hold.

    Parameters
    ----------
    images : uint8 array, lengths (n, height, width) or (n, height, width, 3)
    captions : sequence of str
        One an image, written above it.
    colour : bool
        Half blocks in 24-bit colour, else shades.
    columns : int
        Characters on a line of the terminal.
    """
    draw = colour_lines if colour else shade_lines
    width = images.shape[2] * (1 if colour else 2)
    slot = max(width, *map(len, captions)) if captions else width
    per_line = max(1, (columns - len(INDENT) + GAP) // (slot + GAP))
    gap = " " * GAP
    lines: list[str] = []
    for first in range(0, len(images), per_line):
        some = slice(first, first + per_line)
        lines.append((INDENT + gap.join(c.ljust(slot) for c in captions[some])).rstrip())
        pad = " " * (slot - width)
        drawn = [[line + pad for line in draw(image)] for image in images[some]]
        lines += [INDENT + gap.join(parts) for parts in zip(*drawn, strict=True)]
        lines.append("")
    return lines
