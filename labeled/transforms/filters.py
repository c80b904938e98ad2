"""Resampling along one axis: which old places a new one is made of, and with what weights.

Pixels are little squares. A filter is stretched when a picture shrinks, so that every old pixel
counts (`antialias`), and stays as it is when it grows. Weights are worked out once for lengths
and method; values are summed up tap by tap, so that the sum is the same however many pictures
are resized together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled.device import namespace
from labeled.transforms.fast import loops_for
from labeled.transforms.pictures import Array, along

FloatArray = npt.NDArray[np.float64]


class Filter(NamedTuple):
    """A weight by distance, and the distance from which on it is 0."""

    support: float
    weight: Callable[[FloatArray], FloatArray]


class Taps(NamedTuple):
    """Old places and weights, lengths (new length, taps)."""

    places: npt.NDArray[np.int64]
    weights: FloatArray


def _box(x: FloatArray) -> FloatArray:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _triangle(x: FloatArray) -> FloatArray:
    return np.where(np.abs(x) < 1, 1 - np.abs(x), 0)


def _cubic(x: FloatArray) -> FloatArray:
    a, d = -0.5, np.abs(x)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return np.where(d < 1, near, np.where(d < 2, far, 0))


def _lanczos(x: FloatArray) -> FloatArray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


FILTERS = {
    "area": Filter(0.5, _box),
    "bilinear": Filter(1.0, _triangle),
    "bicubic": Filter(2.0, _cubic),
    "lanczos": Filter(3.0, _lanczos),
}
METHODS = ("nearest", *FILTERS)


@lru_cache(maxsize=256)
def taps(before: int, after: int, method: str, antialias: bool) -> Taps:
    """Return how a length becomes another one.

    Examples
    --------
    >>> taps(4, 2, "area", True).weights.tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    scale = before / after
    centres = (np.arange(after) + 0.5) * scale
    nearest = (2 * np.arange(after) + 1) * before // (2 * after)
    if method == "nearest":
        return Taps(nearest[:, np.newaxis], np.ones((after, 1)))
    support, weight = FILTERS[method]
    stretch = max(scale, 1.0) if antialias else 1.0
    reach = support * stretch
    first = np.maximum(np.floor(centres - reach + 0.5).astype(np.int64), 0)
    last = np.minimum(np.floor(centres + reach + 0.5).astype(np.int64), before)
    places = first[:, np.newaxis] + np.arange(max(1, int((last - first).max())))
    weights = weight((places + 0.5 - centres[:, np.newaxis]) / stretch)
    weights = np.where(places < last[:, np.newaxis], weights, 0)
    total = weights.sum(axis=1, keepdims=True)
    if (total == 0).any():  # a box without stretching can fall between two pixels
        weights = np.where(total == 0, places == nearest[:, np.newaxis], weights)
        total = weights.sum(axis=1, keepdims=True)
    used = (weights != 0).any(axis=0)
    places = np.minimum(places, before - 1)[:, used]
    return Taps(np.ascontiguousarray(places), (weights / total)[:, used])


def resample(x: Array, axis: int, length: int, method: str, antialias: bool) -> Array:
    """Return float values with another length along one of the last two axes."""
    if x.shape[axis] == length:
        return x
    found = taps(int(x.shape[axis]), length, method, antialias)
    loops = None if method == "nearest" else loops_for(x)
    if loops is not None:
        return _looped(loops, x, axis, found)
    xp = namespace(x)
    total = None
    for places, weights in zip(found.places.T, found.weights.T, strict=True):
        piece = xp.take(x, xp.asarray(np.ascontiguousarray(places)), axis=axis)
        if method != "nearest":
            piece = piece * along(x, weights, axis)
        total = piece if total is None else total + piece
    assert total is not None
    return total


def _looped(loops: Any, x: Array, axis: int, found: Taps) -> Array:
    planes = np.ascontiguousarray(x).reshape(-1, *x.shape[-2:])
    shape = list(x.shape)
    shape[axis] = len(found.places)
    out = np.empty(shape, x.dtype)
    step = loops.across if axis == x.ndim - 1 else loops.down
    step(planes, found.places, found.weights.astype(x.dtype), out.reshape(-1, *out.shape[-2:]))
    return out


def new_sizes(
    height: int, width: int, shorter: int | None, least: tuple[int, int] | None
) -> tuple[int, int]:
    """Return the size of a picture whose proportions stay.

    Parameters
    ----------
    shorter : int, optional
        Length of the shorter edge.
    least : (int, int), optional
        Neither edge is shorter than this; larger pictures stay.

    Examples
    --------
    >>> new_sizes(40, 60, 20, None), new_sizes(40, 60, None, (50, 50))
    ((20, 30), (50, 75))
    """
    if shorter is not None:
        factor = shorter / min(height, width)
        return max(1, round(height * factor)), max(1, round(width * factor))
    assert least is not None
    factor = max(1.0, least[0] / height, least[1] / width)
    return (
        max(least[0], math.floor(height * factor + 0.5)) if factor > 1 else height,
        max(least[1], math.floor(width * factor + 0.5)) if factor > 1 else width,
    )
