"""Bicubic resizing of 8-bit pictures in the arithmetic of OpenCV 3.

Later releases of OpenCV round otherwise (by one level, in a few pixels of a hundred), so this
one step is made here: whole-number weights of 11 bits along the rows, then float32 down the
columns. The values of a row that do not fill a group of eight are summed up in whole numbers;
the last bit shows which.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SHARPNESS = np.float32(-0.75)
WEIGHT_BITS = 11
GROUP = 8
TAPS = 4

Levels = npt.NDArray[np.uint8]
Sums = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]


def resize_cubic(picture: Levels, height: int, width: int) -> Levels:
    """Return a picture (height, width, channels) of another size.

    Examples
    --------
    >>> ramp = np.arange(0, 80, 10, np.uint8).reshape(1, 8, 1)
    >>> resize_cubic(ramp, 1, 4).ravel().tolist()
    [4, 25, 45, 66]
    """
    columns, across = _taps(picture.shape[1], width)
    lines, down = _taps(picture.shape[0], height)
    wide = picture[..., ::-1].astype(np.int32)  # B, G, R: which values end a row matters
    rows = np.zeros((picture.shape[0], width, picture.shape[2]), np.int32)
    for tap in range(TAPS):
        rows += wide[:, columns[:, tap]] * across[:, tap, np.newaxis]
    flat = rows.reshape(picture.shape[0], -1)
    grouped = flat.shape[1] // GROUP * GROUP
    pieces = _in_floats(flat[:, :grouped], lines, down), _summed(flat[:, grouped:], lines, down)
    joined = np.concatenate(pieces, axis=1).reshape(height, width, picture.shape[2])
    return np.ascontiguousarray(joined[..., ::-1])


def _taps(before: int, after: int) -> tuple[IntArray, Sums]:
    """Return the four places that each new one is made of, and their weights."""
    scale = before / after
    at = ((np.arange(after) + 0.5) * scale - 0.5).astype(np.float32)
    first = np.floor(at)
    x = (at - first).astype(np.float32)
    places = first.astype(np.int64)[:, np.newaxis] + np.arange(-1, TAPS - 1)
    weights = np.rint(_weights(x) * np.float32(1 << WEIGHT_BITS)).astype(np.int32)
    return np.clip(places, 0, before - 1), weights


def _weights(x: FloatArray) -> FloatArray:
    """Weights of Keys' cubic at a fraction `x` behind the second of four places."""
    a, one = SHARPNESS, np.float32(1)
    far, near, beyond = x + one, x, one - x
    before = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    here = ((a + 2) * near - (a + 3)) * near * near + one
    there = ((a + 2) * beyond - (a + 3)) * beyond * beyond + one
    return np.stack([before, here, there, one - before - here - there], axis=1)


def _in_floats(rows: Sums, lines: IntArray, weights: Sums) -> Levels:
    factors = weights.astype(np.float32) * np.float32(2.0 ** (-2 * WEIGHT_BITS))
    total = np.zeros((len(lines), rows.shape[1]), np.float32)
    for tap in range(TAPS):
        total += rows[lines[:, tap]].astype(np.float32) * factors[:, tap, np.newaxis]
    return np.clip(np.rint(total), 0, 255).astype(np.uint8)


def _summed(rows: Sums, lines: IntArray, weights: Sums) -> Levels:
    total = np.full((len(lines), rows.shape[1]), 1 << (2 * WEIGHT_BITS - 1), np.int32)
    for tap in range(TAPS):
        total += rows[lines[:, tap]] * weights[:, tap, np.newaxis]
    rounded: Sums = total >> (2 * WEIGHT_BITS)
    return np.clip(rounded, 0, 255).astype(np.uint8)
