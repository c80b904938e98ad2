"""One picture under an affine map: every new pixel made of the old ones around its place."""

from __future__ import annotations

import math

import numpy as np

from labeled.device import concat, dtype_of, namespace, own_dtype, reshape
from labeled.transforms.chances import FloatArray
from labeled.transforms.fast import loops_for
from labeled.transforms.pictures import Array, held, in_dtype, in_floats

CUBIC = -0.5
"""What Keys' cubic is bent by: the same as where pictures are resized."""

BAND_PIXELS = 1 << 15
"""Pixels of the result that are made at a time, so that their places stay in the caches."""

LOBES = 3
"""Of Lanczos' filter, to each side."""


def warped(x: Array, matrix: FloatArray, size: tuple[int, int], fill: float, method: str) -> Array:
    """Return a picture (channel, height, width) moved by a matrix about its middle.

    Parameters
    ----------
    matrix : float64 array (2, 2)
        From (x, y) of the picture to (x, y) of the result, both from their middles.
    size : (int, int)
        Height and width of the result.
    fill : float
        Value of what lies outside of the picture.
    method : {"nearest", "bilinear", "bicubic", "lanczos"}
    """
    back: FloatArray = np.linalg.inv(matrix).astype(np.float64)
    values = x if method == "nearest" else in_floats(x)
    fill = held(fill, dtype_of(x))
    loops = loops_for(values) if method == "bilinear" else None
    if loops is not None:
        out = np.empty((x.shape[0], *size), values.dtype)
        loops.warp(np.ascontiguousarray(values), back, values.dtype.type(fill), out)
        return in_dtype(out, dtype_of(x))
    step = max(1, BAND_PIXELS // size[1]) if isinstance(x, np.ndarray) else size[0]
    bands = [range(n, min(n + step, size[0])) for n in range(0, size[0], step)]
    if method == "nearest":
        made = [_nearest(x, back, size, band, fill) for band in bands]
    else:
        floats = (_between(values, back, size, band, fill, method) for band in bands)
        made = [in_dtype(piece, dtype_of(x)) for piece in floats]
    return made[0] if len(made) == 1 else concat(made, 1)


def _nearest(x: Array, back: FloatArray, size: tuple[int, int], band: range, fill: float) -> Array:
    """Return the pixel that is nearest to each place of a band of rows."""
    xp = namespace(x)
    down, across = _places(x, back, size, band)
    places = xp.floor(down + 0.5), xp.floor(across + 0.5)
    return _taken(x, *places, xp.asarray(fill, dtype=x.dtype))


def _places(x: Array, back: FloatArray, size: tuple[int, int], band: range) -> tuple[Array, Array]:
    """Return where in a picture each pixel of a band of the result lies: row and column."""
    xp, float64 = namespace(x), own_dtype(x, np.dtype(np.float64))
    rows, columns = (
        reshape(xp.arange(own.start, own.stop, dtype=float64), shape) - (n - 1) / 2
        for n, own, shape in ((size[0], band, (-1, 1)), (size[1], range(size[1]), (1, -1)))
    )
    across = columns * float(back[0, 0]) + rows * float(back[0, 1]) + (x.shape[2] - 1) / 2
    down = columns * float(back[1, 0]) + rows * float(back[1, 1]) + (x.shape[1] - 1) / 2
    return down, across


def _between(
    values: Array, back: FloatArray, size: tuple[int, int], band: range, fill: float, method: str
) -> Array:
    """Return what lies between the pixels around each place of a band of rows."""
    xp = namespace(values)
    down, across = _places(values, back, size, band)
    top, left = xp.floor(down), xp.floor(across)
    first, shares_down = _shares(down - top, method)
    _, shares_across = _shares(across - left, method)
    outside = xp.asarray(fill, dtype=values.dtype)
    total = None
    for step_down, share_down in enumerate(shares_down, first):
        for step_across, share_across in enumerate(shares_across, first):
            share = xp.astype(share_down * share_across, values.dtype)
            piece = _taken(values, top + step_down, left + step_across, outside) * share
            total = piece if total is None else total + piece
    return total


def _shares(part: Array, method: str) -> tuple[int, list[Array]]:
    """Return the first pixel, counted from the one before a place, and the weight of each.

    Parameters
    ----------
    part : array
        How far each place lies behind the pixel before it, from 0 to 1.
    """
    if method == "bilinear":
        return 0, [1 - part, part]
    if method == "bicubic":
        near = [((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1 for d in (part, 1 - part)]
        far = [(((d - 5) * d + 8) * d - 4) * CUBIC for d in (part + 1, 2 - part)]
        return -1, [far[0], near[0], near[1], far[1]]
    waves = [_lanczos(part - step) for step in range(1 - LOBES, LOBES + 1)]
    total = sum(waves[1:], waves[0])
    return 1 - LOBES, [wave / total for wave in waves]


def _lanczos(x: Array) -> Array:
    xp = namespace(x)
    angle = xp.where(x == 0, xp.ones_like(x), x) * math.pi
    wave = xp.sin(angle) * xp.sin(angle / LOBES) * LOBES / (angle * angle)
    return xp.where(x == 0, xp.ones_like(x), wave)


def _taken(x: Array, down: Array, across: Array, outside: Array) -> Array:
    """Return the values at places given as whole floats; `outside` where there are none."""
    xp = namespace(x)
    channels, height, width = x.shape
    within = (down >= 0) & (down < height) & (across >= 0) & (across < width)
    flat = xp.where(within, down * width + across, xp.zeros_like(down))
    places = reshape(xp.astype(flat, xp.int64), (-1,))
    values = xp.take(reshape(x, (channels, height * width)), places, axis=1)
    return xp.where(within, reshape(values, (channels, *down.shape)), outside)
