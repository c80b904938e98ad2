"""Values as numbers: normalisation, contrast, illumination.

Each is ``value * scale + shift``. Of floats these are noted down and carried out together, in
the copy at the end; of integers they are rounded and clipped at once, but for `Normalize`,
which makes floats of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled.device import dtype_of, namespace
from labeled.dims import find_axes
from labeled.errors import AugmentError
from labeled.permute.arguments import result_dtype
from labeled.transforms.base import PictureTransform
from labeled.transforms.chances import Chances
from labeled.transforms.meanfile import read_mean_file
from labeled.transforms.parameters import number_of
from labeled.transforms.pictures import Array, Factor, Pictures, all_at_once, in_dtype, in_floats

PerChannel = float | Sequence[float]


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

    def __post_init__(self) -> None:
        number_of("scale", self.scale)
        if (self._factors[1] == 0).any():
            raise AugmentError("std holds a 0; leave out the channels that never change")

    @cached_property
    def _factors(self) -> tuple[Factor, Factor]:
        """Mean and standard deviation; a file is read once, when the transform is made."""
        return _mean_of(self.mean), _per_channel("std", self.std)

    @property
    def noted(self) -> bool:
        return self._factors[0].shape[1:] == (1, 1)  # mean images stay where they are

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        mean, std = self._factors
        _check_factors(pictures, mean, std)
        scale = self.scale / std
        return pictures.mapped(scale[np.newaxis], (-mean * scale)[np.newaxis])

    def dtype_after(self, before: np.dtype[Any]) -> np.dtype[Any]:
        return result_dtype(before, None, scaled=True)


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

    def __post_init__(self) -> None:
        number_of("most", self.most, least=0)
        if self.about is not None:
            number_of("about", self.about)

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        factors = chances.uniform("factor", 1 - self.most, 1 + self.most)
        if self.about is not None:
            return mapped(pictures, factors, (1 - factors) * self.about)
        return all_at_once(pictures, lambda x, which: stretched(x, factors[which], means(x)))


@dataclass(frozen=True)
class Illumination(PictureTransform):
    """Add a random amount to all values of a picture.

    Parameters
    ----------
    most : float
        Amounts are drawn from [-most, most].
    """

    most: float

    def __post_init__(self) -> None:
        number_of("most", self.most, least=0)

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        amounts = chances.uniform("amount", -self.most, self.most)
        return mapped(pictures, np.ones_like(amounts), amounts)


def mapped(pictures: Pictures, scale: Factor, shift: Factor) -> Pictures:
    """Return pictures scaled and shifted; one factor a picture, or one a channel of each."""
    n = len(pictures)
    by_picture = scale.reshape(n, -1, 1, 1), shift.reshape(n, -1, 1, 1)
    if pictures.dtype.kind == "f":
        return pictures.mapped(*by_picture)

    def rounded(x: Array, which: slice) -> Array:
        values = in_floats(x)
        factors = (like(values, one[which]) for one in by_picture)
        return in_dtype(values * next(factors) + next(factors), pictures.dtype)

    return all_at_once(pictures, rounded)


def stretched(x: Array, factors: Factor, centres: Array) -> Array:
    """Return pictures (picture, channel, height, width) stretched about one value for each."""
    values = in_floats(x)
    scale = like(values, factors.reshape(-1, 1, 1, 1))
    return in_dtype(values * scale + centres * (1 - scale), dtype_of(x))


def means(x: Array) -> Array:
    """Return the mean of each picture, in floats, over all of its values."""
    xp, values = namespace(x), in_floats(x)
    flat = xp.reshape(values, (values.shape[0], -1))
    return xp.reshape(xp.mean(flat, axis=1), (-1, 1, 1, 1))


def like(x: Array, values: Factor) -> Array:
    """Return factors in the library and the dtype of `x`."""
    return namespace(x).asarray(np.ascontiguousarray(values), dtype=x.dtype)


def _mean_of(mean: Any) -> Factor:
    if isinstance(mean, str | os.PathLike):
        return np.asarray(read_mean_file(mean), np.float64)
    if isinstance(mean, xr.DataArray):
        axes = find_axes(mean.dims, 2).dim_of_axis
        if set(axes) != {"c", 0, 1}:
            raise AugmentError(f"a mean image has channel, height and width; found {mean.dims}")
        mean = mean.transpose(axes["c"], axes[0], axes[1]).to_numpy()
    if np.ndim(mean) == 3:
        return np.asarray(mean, np.float64)
    return _per_channel("mean", mean)


def _per_channel(name: str, values: Any) -> Factor:
    """Return numbers with the lengths (channel or 1, 1, 1)."""
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if found.ndim > 1 or not np.isfinite(found).all():
        raise AugmentError(f"{name}={values!r} must be a finite number, or one a channel")
    return found.reshape(-1, 1, 1)


def _check_factors(pictures: Pictures, mean: Factor, std: Factor) -> None:
    for name, factor in (("mean", mean), ("std", std)):
        if factor.shape[0] not in (1, pictures.n_channels):
            raise AugmentError(
                f"{name} has {factor.shape[0]} channels, pictures have {pictures.n_channels}"
            )
    if mean.shape[1:] != (1, 1) and mean.shape[1:] != pictures.size:
        raise AugmentError(
            f"the mean image is {mean.shape[1]} x {mean.shape[2]}, pictures are "
            f"{pictures.size or 'of different sizes'} by then; crop or resize them to its size "
            "before Normalize"
        )
