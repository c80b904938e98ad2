"""Small images as text: half blocks in 24-bit colour, or plain shades.

A half block shows two pixels, one above the other, in one character: its foreground
is the upper pixel and its background the lower. Where colour is out of place (a pipe, a
file, ``NO_COLOR``) pixels become ASCII shades, two characters wide so that squares stay
square. Works on plain arrays; which source is an image is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]
"""Lengths (height, width, 3), or (height, width) where grey."""

SHADES = " .:-=+*#%@"
UPPER_HALF = "▀"
GAP = 2
INDENT = "  "


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
