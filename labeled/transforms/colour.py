"""Colours: jitter, shifts in the HSL space, noise along the principal colours.

Channels are R, G, B. `peak` is the value of white: the largest of an integer dtype and 1 for
floats when not given.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from labeled.device import concat, dtype_of, namespace
from labeled.errors import AugmentError
from labeled.transforms.base import PictureTransform
from labeled.transforms.chances import Chances, FloatArray
from labeled.transforms.parameters import number_of
from labeled.transforms.pictures import (
    Array,
    Pictures,
    all_at_once,
    check_channels,
    in_dtype,
    in_floats,
)
from labeled.transforms.values import like, mapped, means, stretched

GREY = (0.299, 0.587, 0.114)
PRINCIPAL_VALUES = (0.2175, 0.0188, 0.0045)
PRINCIPAL_VECTORS = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)
"""Of the colours of ImageNet, for values from 0 to 1; one row a channel."""


@dataclass(frozen=True)
class Jitter(PictureTransform):
    """Change brightness, contrast and saturation by random factors, in random order.

    Parameters
    ----------
    brightness, contrast, saturation : float
        Factors are drawn from [1 - amount, 1 + amount], not below 0; 0 leaves one out.
        Contrast is about the mean grey of a picture, saturation about the grey of each pixel.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            number_of(name, getattr(self, name), least=0)

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        names = [n for n in ("brightness", "contrast", "saturation") if getattr(self, n) > 0]
        factors = {
            name: chances.uniform(name, max(0.0, 1 - getattr(self, name)), 1 + getattr(self, name))
            for name in names
        }
        if "saturation" in names:
            check_channels(pictures, 3, "saturation")
        orders = list(permutations(names))
        order = chances.whole("order", np.full(len(pictures), len(orders)))
        return all_at_once(
            pictures, lambda x, which: _jittered(x, orders, order[which], factors, which)
        )


def _jittered(
    x: Array,
    orders: list[tuple[str, ...]],
    order: Any,
    factors: dict[str, FloatArray],
    which: slice,
) -> Array:
    """Change each picture in its own order; those of one order together."""
    xp, pieces, places = namespace(x), [], []
    for number, names in enumerate(orders):
        chosen = np.flatnonzero(order == number)
        if not len(chosen):
            continue
        piece = xp.take(x, xp.asarray(chosen), axis=0)
        for name in names:
            piece = _STEPS[name](piece, factors[name][which][chosen])
        pieces.append(piece)
        places.append(chosen)
    if not pieces:
        return x
    back = np.argsort(np.concatenate(places))
    return xp.take(concat(pieces, 0), xp.asarray(back), axis=0)


def _brightened(x: Array, factors: FloatArray) -> Array:
    values = in_floats(x)
    return in_dtype(values * like(values, factors.reshape(-1, 1, 1, 1)), dtype_of(x))


def _contrasted(x: Array, factors: FloatArray) -> Array:
    grey = grey_of(x) if x.shape[1] == 3 else x
    return stretched(x, factors, means(grey))


def _saturated(x: Array, factors: FloatArray) -> Array:
    return stretched(x, factors, grey_of(x))


_STEPS = {"brightness": _brightened, "contrast": _contrasted, "saturation": _saturated}


@dataclass(frozen=True)
class ShiftHSL(PictureTransform):
    """Add random amounts to hue, saturation and lightness.

    Parameters
    ----------
    hue : float
        Degrees, at most; hues go round.
    saturation, lightness : float
        Shares of their range, at most; clipped.
    peak : float, optional
        Value of white.
    """

    hue: float = 0.0
    saturation: float = 0.0
    lightness: float = 0.0
    peak: float | None = None

    def __post_init__(self) -> None:
        for name in ("hue", "saturation", "lightness"):
            number_of(name, getattr(self, name), least=0)
        _check_peak(self.peak)

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        check_channels(pictures, 3, "ShiftHSL")
        peak = peak_of(self.peak, pictures.dtype)
        amounts = [
            chances.uniform(name, -getattr(self, name), getattr(self, name))
            for name in ("hue", "saturation", "lightness")
        ]

        def shifted(x: Array, which: slice) -> Array:
            values = in_floats(x)
            hue, saturation, lightness = (
                like(values, amount[which].reshape(-1, 1, 1, 1)) for amount in amounts
            )
            h, s, light = hsl_of(values / peak)
            xp = namespace(x)
            s = _clipped(xp, s + saturation)
            light = _clipped(xp, light + lightness)
            return in_dtype(rgb_of(h + hue / 60, s, light) * peak, dtype_of(x))

        return all_at_once(pictures, shifted)


@dataclass(frozen=True)
class PrincipalNoise(PictureTransform):
    """Add random amounts of the principal colours, the same to all pixels of a picture.

    Parameters
    ----------
    deviation : float
        Standard deviation of the amounts; 0.1 is usual.
    values : sequence of three floats
        Weight of each principal colour, for pictures from 0 to 1; ImageNet's by default.
    vectors : three rows, one a channel, of three floats
        The principal colours are the columns.
    peak : float, optional
        Value of white.
    """

    deviation: float
    values: tuple[float, float, float] = PRINCIPAL_VALUES
    vectors: tuple[tuple[float, float, float], ...] = PRINCIPAL_VECTORS
    peak: float | None = None

    def __post_init__(self) -> None:
        number_of("deviation", self.deviation, least=0)
        _check_peak(self.peak)
        if np.shape(self.values) != (3,) or np.shape(self.vectors) != (3, 3):
            raise AugmentError("principal colours are three values and three rows of three")

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        check_channels(pictures, 3, "PrincipalNoise")
        amounts = np.stack([chances.normal(f"colour {n}") for n in range(3)], axis=1)
        weighted = amounts * self.deviation * np.array(self.values)
        offsets = (weighted[:, np.newaxis] * np.array(self.vectors)).sum(axis=2)
        by_channel = offsets[:, :, np.newaxis, np.newaxis] * peak_of(self.peak, pictures.dtype)
        return mapped(pictures, np.ones_like(by_channel), by_channel)


def grey_of(x: Array) -> Array:
    """Return the grey of pixels, in floats, channels kept as an axis of length 1."""
    values = in_floats(x)
    red, green, blue = (values[:, n : n + 1, ...] * share for n, share in enumerate(GREY))
    return red + green + blue


def hsl_of(rgb: Array) -> tuple[Array, Array, Array]:
    """Return hue (0 to 6), saturation and lightness of colours from 0 to 1; axis 1 is R, G, B."""
    xp = namespace(rgb)
    red, green, blue = (rgb[:, n : n + 1, ...] for n in range(3))
    high = xp.maximum(xp.maximum(red, green), blue)
    low = xp.minimum(xp.minimum(red, green), blue)
    spread, lightness = high - low, (high + low) / 2
    room = 1 - xp.abs(2 * lightness - 1)
    zero, one = xp.zeros_like(spread), xp.ones_like(spread)
    saturation = xp.where(room > 0, spread / xp.where(room > 0, room, one), zero)
    step = xp.where(spread > 0, spread, one)
    hue = xp.where(
        high == red,
        (green - blue) / step,
        xp.where(high == green, (blue - red) / step + 2, (red - green) / step + 4),
    )
    return hue, _clipped(xp, saturation), lightness


def rgb_of(hue: Array, saturation: Array, lightness: Array) -> Array:
    """Return colours from 0 to 1; hues go round at 6."""
    xp = namespace(hue)
    reach = saturation * xp.minimum(lightness, 1 - lightness)
    channels = []
    for turn in (0, 4, 2):
        place = hue * 2 + (turn * 2)  # twelfths of the circle
        place = place - 12 * xp.floor(place / 12)
        bend = _clipped(xp, xp.minimum(place - 3, 9 - place), -1.0)
        channels.append(lightness - reach * bend)
    return concat(channels, 1)


def peak_of(peak: float | None, dtype: np.dtype[Any]) -> float:
    """Return the value of white."""
    if peak is not None:
        return float(peak)
    return 1.0 if dtype.kind == "f" else float(np.iinfo(dtype).max)


def _check_peak(peak: float | None) -> None:
    if peak is not None and number_of("peak", peak) <= 0:
        raise AugmentError(f"peak={peak!r} must be above 0")


def _clipped(xp: Any, values: Array, low: float = 0.0) -> Array:
    bounds = (xp.asarray(bound, dtype=values.dtype) for bound in (low, 1.0))
    return xp.minimum(xp.maximum(values, next(bounds)), next(bounds))
