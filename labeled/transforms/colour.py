"""Colours: jitter, shifts of hue, saturation and lightness, noise along the principal colours.

Channels are R, G, B. `peak` is the value of white: the largest of an integer dtype and 1 for
floats when not given. OpenCV converts colours, those of hue in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from labeled.errors import AugmentError
from labeled.formats.pictures import opencv
from labeled.transforms.augment import PictureTransform
from labeled.transforms.parameters import number_of
from labeled.transforms.pictures import Array, Plan, by_opencv, check_channels, in_dtype
from labeled.transforms.row_random import RowRandom

PRINCIPAL_VALUES = (0.2175, 0.0188, 0.0045)
PRINCIPAL_VECTORS = (
    (-0.5675, 0.7192, 0.4009),
    (-0.5808, -0.0045, -0.8140),
    (-0.5836, -0.6948, 0.4203),
)
"""Of the colours of ImageNet, for values from 0 to 1; one row a channel."""

GREY = (0.299, 0.587, 0.114)


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

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        amounts = {n: getattr(self, n) for n in ("brightness", "contrast", "saturation")}
        factors = {
            name: random.uniform(name, max(0.0, 1 - amount), 1 + amount).tolist()
            for name, amount in amounts.items()
            if amount > 0
        }
        if "saturation" in factors:
            check_channels(plan, 3, "saturation")
        orders = list(permutations(factors))
        order = random.integers("order", np.full(len(plan), len(orders))).tolist()

        def jittered(x: Array, at: int) -> Array:
            for name in orders[order[at]]:
                x = _JITTERS[name](x, factors[name][at])
            return x

        if factors:
            plan.change(jittered)


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

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        check_channels(plan, 3, "ShiftHSL")
        peak, cv2 = np.float32(peak_of(self.peak, plan.dtype)), opencv()
        hue, lightness, saturation = (
            random.uniform(name, -getattr(self, name), getattr(self, name))
            for name in ("hue", "lightness", "saturation")
        )

        def shifted(x: Array, at: int) -> Array:
            hls = cv2.cvtColor(np.divide(x, peak, dtype=np.float32), cv2.COLOR_RGB2HLS)
            hls += np.array([hue[at], lightness[at], saturation[at]], np.float32)
            hls[..., 0] %= 360
            np.clip(hls[..., 1:], 0, 1, out=hls[..., 1:])
            return in_dtype(cv2.cvtColor(hls, cv2.COLOR_HLS2RGB) * peak, x.dtype)

        plan.change(shifted)


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

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        check_channels(plan, 3, "PrincipalNoise")
        amounts = np.stack([random.normal(f"colour {n}") for n in range(3)], axis=1)
        weighted = amounts * self.deviation * np.array(self.values)
        offsets = (weighted[:, np.newaxis] * np.array(self.vectors)).sum(axis=2)
        plan.scale(np.ones_like(offsets), offsets * peak_of(self.peak, plan.dtype))


def stretched(x: Array, factor: float, centre: float) -> Array:
    """Return values moved away from a centre: ``centre + (x - centre) * factor``."""
    add = opencv().addWeighted
    return by_opencv(x, lambda values: add(values, factor, values, 0, centre * (1 - factor)))


def _contrasted(x: Array, factor: float) -> Array:
    means = x.mean(axis=(0, 1), dtype=np.float64)
    return stretched(x, factor, float(means @ np.array(GREY) if len(means) == 3 else means.mean()))


def _saturated(x: Array, factor: float) -> Array:
    mixed = factor * np.eye(3) + (1 - factor) * np.array(GREY)
    return by_opencv(x, lambda values: opencv().transform(values, mixed))


_JITTERS: dict[str, Callable[[Array, float], Array]] = {
    "brightness": lambda x, factor: stretched(x, factor, 0.0),
    "contrast": _contrasted,
    "saturation": _saturated,
}


def peak_of(peak: float | None, dtype: np.dtype[Any]) -> float:
    """Return the value of white."""
    if peak is not None:
        return float(peak)
    return 1.0 if dtype.kind == "f" else float(np.iinfo(dtype).max)


def _check_peak(peak: float | None) -> None:
    if peak is not None and number_of("peak", peak) <= 0:
        raise AugmentError(f"peak={peak!r} must be above 0")
