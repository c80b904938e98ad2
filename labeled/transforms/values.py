"""Values as numbers: normalisation, contrast, illumination.

Each is ``value * scale + shift``. For floats these are carried out together, in the copy that
makes the batch; integers are rounded and clipped at once, except by `Normalize`, which makes
floats of them.
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

from labeled.dims import find_axes
from labeled.errors import AugmentError
from labeled.permute.arguments import result_dtype
from labeled.transforms.augment import PictureTransform
from labeled.transforms.colour import stretched
from labeled.transforms.meanimage import read_mean_file
from labeled.transforms.parameters import number_of
from labeled.transforms.pictures import FloatArray, Plan, linear
from labeled.transforms.row_random import RowRandom

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
            dtype = self.dtype_after(plan.dtype)
            plan.change(lambda x, _: linear(x, scale, shift).astype(dtype), dtype=dtype)

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

    def __post_init__(self) -> None:
        number_of("most", self.most, least=0)

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        amounts = random.uniform("amount", -self.most, self.most)[:, np.newaxis]
        plan.scale(np.ones_like(amounts), amounts)


def _mean_of(mean: Any) -> FloatArray:
    """Return a mean image (height, width, channel), or numbers (channel or 1)."""
    if isinstance(mean, str | os.PathLike):
        mean = read_mean_file(mean)
    if isinstance(mean, xr.DataArray):
        axes = find_axes(mean.dims, 2).dim_of_axis
        if set(axes) != {"c", 0, 1}:
            raise AugmentError(f"a mean image has channel, height and width; found {mean.dims}")
        mean = mean.transpose(axes["c"], axes[0], axes[1]).to_numpy()
    if np.ndim(mean) == 3:
        return np.asarray(mean, np.float64).transpose(1, 2, 0)
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
            raise AugmentError(
                f"{name} has {factor.shape[-1]} channels, pictures have {plan.n_channels}"
            )
    if mean.ndim == 3 and mean.shape[:2] != plan.size:
        raise AugmentError(
            f"the mean image is {mean.shape[0]} x {mean.shape[1]}, pictures are "
            f"{plan.size or 'of different sizes'} by then; crop or resize them to its size "
            "before Normalize"
        )
