"""Compiled loops for resampling (extra ``fast``): the same sums as by whole arrays, to the bit.

Values are multiplied and added in the order in which the array code does it, and in the same
dtypes, so it makes no difference who computes. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.permute.jit import loop


@loop
def across(x: Any, places: Any, weights: Any, out: Any) -> None:
    """Resample the last axis of (channel, height, width)."""
    channels, height, width = out.shape
    taps = places.shape[1]
    for c in range(channels):
        for row in range(height):
            for i in range(width):
                total = x[c, row, places[i, 0]] * weights[i, 0]
                for tap in range(1, taps):
                    total += x[c, row, places[i, tap]] * weights[i, tap]
                out[c, row, i] = total


@loop
def down(x: Any, places: Any, weights: Any, out: Any) -> None:
    """Resample the middle axis of (channel, height, width)."""
    channels, height, width = out.shape
    taps = places.shape[1]
    for c in range(channels):
        for i in range(height):
            for column in range(width):
                out[c, i, column] = x[c, places[i, 0], column] * weights[i, 0]
            for tap in range(1, taps):
                for column in range(width):
                    out[c, i, column] += x[c, places[i, tap], column] * weights[i, tap]


@loop
def warp(x: Any, back: Any, fill: Any, out: Any) -> None:
    """Fill (channel, height, width) with what lies between four pixels of `x` each.

    `back` leads from places of `out` to places of `x`, both from their middles.
    """
    channels, height, width = x.shape
    _, new_height, new_width = out.shape
    shares = np.empty(4, x.dtype)
    for i in range(new_height):
        row = i - (new_height - 1) / 2
        for j in range(new_width):
            column = j - (new_width - 1) / 2
            to_right = column * back[0, 0] + row * back[0, 1] + (width - 1) / 2
            to_bottom = column * back[1, 0] + row * back[1, 1] + (height - 1) / 2
            top, left = np.floor(to_bottom), np.floor(to_right)
            lower, right = to_bottom - top, to_right - left
            shares[0], shares[1] = (1 - lower) * (1 - right), (1 - lower) * right
            shares[2], shares[3] = lower * (1 - right), lower * right
            for c in range(channels):
                for corner in range(4):
                    y, z = top + corner // 2, left + corner % 2
                    value = fill
                    if 0 <= y < height and 0 <= z < width:
                        value = x[c, int(y), int(z)]
                    if corner == 0:
                        total = value * shares[0]
                    else:
                        total += value * shares[corner]
                out[c, i, j] = total


@loop
def windows(src: Any, top: Any, left: Any, mirrored: Any, out: Any) -> None:
    """Copy a window of each picture (picture, channel, height, width), turned where asked."""
    n, channels, height, width = out.shape
    for i in range(n):
        for c in range(channels):
            for row in range(height):
                line = src[i, c, top[i] + row, left[i] : left[i] + width]
                made = out[i, c, row]
                if mirrored[i]:
                    for column in range(width):
                        made[column] = line[width - 1 - column]
                else:
                    for column in range(width):
                        made[column] = line[column]


@loop
def mapped_windows(
    src: Any, top: Any, left: Any, mirrored: Any, scale: Any, shift: Any, out: Any
) -> None:
    """Copy windows and map their values, by factors for each picture and channel."""
    n, channels, height, width = out.shape
    for i in range(n):
        for c in range(channels):
            factor, offset = scale[i, c], shift[i, c]
            for row in range(height):
                line = src[i, c, top[i] + row, left[i] : left[i] + width]
                made = out[i, c, row]
                if mirrored[i]:
                    for column in range(width):
                        made[column] = line[width - 1 - column] * factor + offset
                else:
                    for column in range(width):
                        made[column] = line[column] * factor + offset
