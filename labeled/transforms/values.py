"""Values of pictures: normalisation, contrast, illumination, colours.

`Normalize`, `Contrast` and `Illumination` are ``value * scale + shift``. For
floats these are carried out together, in the copy that makes the batch; integers are rounded and
clipped at once, except by `Normalize`, which makes floats of them.

Channels of colours are R, G, B. `peak` is the value of white: the largest of an integer dtype and 1
for floats when not given. OpenCV converts colours, those of hue in float32.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import as_array
from labeled.dims import find_axes
from labeled.errors import AugmentError
from labeled.formats.pictures import opencv
from labeled.permute.arguments import result_dtype
from labeled.transforms.augment import PictureTransform, number_of
from labeled.transforms.meanimage import read_mean_file
from labeled.transforms.pictures import (
    Array,
    FloatArray,
    Plan,
    RowRandom,
    by_opencv,
    check_channels,
    in_dtype,
    linear,
)

PerChannel = float | Sequence[float]

not_negative = partial(number_of, least=0)


def _peak(name: str, value: float) -> None:
    if number_of(name, value) <= 0:
        raise AugmentError(f"{name}={value!r} must be above 0")


GREY = (0.299, 0.587, 0.114)


@dataclass(frozen=True, eq=False)
class Normalize(PictureTransform):
    """Make floats: ``(value - mean) / std * scale``.

    Computed as one product and one sum, float32 for integers of up to 32 bits.

    Parameters
    ----------
    mean : float, one a channel, mean image or path
        A mean image is an array (channel, height, width) of the size that pictures have by
        then, or a DataArray, or a file that :func:`read_mean_file` reads.
    std : float, or one a channel
    scale : float

    Examples
    --------
    >>> image = np.array([[[0, 255]]], np.uint8)
    >>> Normalize(127.5, 127.5)(image, dims=("channel", "height", "width")).tolist()
    [[[-1.0, 1.0]]]
    """

    mean: PerChannel | npt.NDArray[Any] | xr.DataArray | str | os.PathLike[str] = 0.0
    std: PerChannel = 1.0
    scale: float = 1.0

    checks = (("scale", number_of),)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self._factors[1] == 0).any():
            raise AugmentError("std holds a 0; leave out the channels that never change")

    @cached_property
    def _factors(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation; a file is read once, when the transform is made."""
        return _mean_of(self.mean), _per_channel("std", self.std)

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        mean, std = self._factors
        _check_factors(plan, mean, std)
        scale = self.scale / std
        shift = -mean * scale
        if mean.ndim == 1:
            plan.map(scale[np.newaxis], shift[np.newaxis])
        else:  # one value for each pixel
            dtype = result_dtype(plan.dtype, None, scaled=True)
            plan.change(lambda x, _: linear(x, scale, shift).astype(dtype), dtype=dtype)


@dataclass(frozen=True)
class Contrast(PictureTransform):
    """Stretch values about a level by a random factor.

    Parameters
    ----------
    most : float
        Factors are drawn from [1 - most, 1 + most].
    about : float or None
        The level that stays; None for the mean of each picture.
    """

    most: float
    about: float | None = None

    checks = (("most", not_negative), ("about", number_of))

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        factors = random.uniform("factor", 1 - self.most, 1 + self.most)
        if self.about is not None:
            plan.scale(factors[:, np.newaxis], (1 - factors[:, np.newaxis]) * self.about)
        else:
            plan.change(lambda x, at: stretched(x, float(factors[at]), float(x.mean(dtype=float))))


@dataclass(frozen=True)
class Illumination(PictureTransform):
    """Add a random amount to all values of a picture.

    Parameters
    ----------
    most : float
        Amounts are drawn from [-most, most].
    """

    most: float

    checks = (("most", not_negative),)

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        amounts = random.uniform("amount", -self.most, self.most)[:, np.newaxis]
        plan.scale(np.ones_like(amounts), amounts)


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

    checks = tuple((name, not_negative) for name in ("brightness", "contrast", "saturation"))

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

    checks = (
        ("hue", not_negative),
        ("saturation", not_negative),
        ("lightness", not_negative),
        ("peak", _peak),
    )

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        check_channels(plan, 3, "ShiftHSL")
        white, cv2 = 1.0 if plan.dtype.kind == "f" else float(np.iinfo(plan.dtype).max), opencv()
        peak = np.float32(white if self.peak is None else self.peak)
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


def _mean_of(mean: Any) -> FloatArray:
    """Return a mean image (height, width, channel), or numbers (channel or 1)."""
    if isinstance(mean, str | os.PathLike):
        mean = read_mean_file(mean)
    if isinstance(mean, xr.DataArray):
        axes = find_axes(mean.dims, 2).dim_of_axis
        if set(axes) != {"c", 0, 1}:
            raise AugmentError(f"a mean image has channel, height and width; found {mean.dims}")
        mean = mean.transpose(axes["c"], axes[0], axes[1]).to_numpy()
    found = as_array("mean", mean, AugmentError)
    if found.ndim == 3:
        return found.astype(np.float64).transpose(1, 2, 0)
    return _per_channel("mean", mean)


def _per_channel(name: str, values: Any) -> FloatArray:
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if found.ndim > 1 or not np.isfinite(found).all():
        raise AugmentError(f"{name}={values!r} must be a finite number, or one a channel")
    return found.reshape(-1)


def _check_factors(plan: Plan, mean: FloatArray, std: FloatArray) -> None:
    for name, factor in (("mean", mean), ("std", std)):
        if factor.shape[-1] not in (1, plan.n_channels):
            plan.refuse(f"{name} has {factor.shape[-1]} channels, pictures have {plan.n_channels}")
    if mean.ndim == 3 and mean.shape[:2] != plan.size:
        plan.refuse(
            f"the mean image is {mean.shape[0]} x {mean.shape[1]}, pictures are "
            f"{plan.size or 'of different sizes'} by then; crop or resize them to its size "
            "before Normalize"
        )


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
