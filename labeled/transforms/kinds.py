"""The transforms of pictures: size and place, values and colours.

Crops, mirrors and borders are views and copies of NumPy's. OpenCV makes new pixels, picture by
picture: it takes the positions of turned pictures in steps of 1/32 of a pixel, and converts
colours (channels R, G, B), those of hue in float32.

`Normalize`, `Contrast` and `Illumination` are ``value * scale + shift``. For floats these are
carried out together, in the copy that makes the batch; integers are rounded and clipped at once,
except by `Normalize`, which makes floats of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import as_array, check_fields
from labeled.dims import find_axes
from labeled.errors import AugmentError, UnfitPictureError
from labeled.formats.pictures import opencv
from labeled.permute.plan import result_dtype
from labeled.transforms.augment import PictureTransform, Range, Size, range_of, size_of
from labeled.transforms.means import read_mean_file
from labeled.transforms.pictures import PicturePlan, RowRandom, by_opencv, in_dtype, linear

Array = npt.NDArray[Any]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
PictureSize = tuple[int, int]

Method = Literal["nearest", "area", "bilinear", "bicubic", "lanczos"]
Sampling = Literal["nearest", "bilinear", "bicubic", "lanczos"]
TRIES = 10

CODES = {"nearest": 0, "bilinear": 1, "bicubic": 2, "area": 3, "lanczos": 4}  # of OpenCV
NEAREST_EXACT = 6


@dataclass(frozen=True)
class Crop(PictureTransform):
    """Cut out a window: the middle one, or one at a given place.

    Parameters
    ----------
    size : int or (height, width)
    y, x : int, optional
        First row and column of the window; in the middle when not given, the odd one of an
        uneven margin below and to the right.

    Examples
    --------
    >>> image = np.arange(25).reshape(1, 5, 5)
    >>> Crop(2, y=0)(image, dims=("channel", "height", "width")).tolist()
    [[[1, 2], [6, 7]]]
    """

    size: Size
    y: int | None = None
    x: int | None = None

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        size = size_of("size", self.size)
        rest = margins(plan, size)
        corners = rest // 2
        for axis, start in enumerate((self.y, self.x)):
            corners[:, axis] = corners[:, axis] if start is None else start
        beyond = (corners > rest).any(axis=1)
        if beyond.any():
            window = f"window {size} at y={self.y}, x={self.x}"
            plan.refuse(f"{window} reaches beyond {plan.name_first(beyond)}", UnfitPictureError)
        plan.crop(corners, size)


@dataclass(frozen=True)
class RandomCrop(PictureTransform):
    """Cut out a window at a random place.

    Parameters
    ----------
    size : int or (height, width)
    """

    size: Size

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        size = size_of("size", self.size)
        plan.crop(random_corners(random, margins(plan, size)), size)


@dataclass(frozen=True)
class Mirror(PictureTransform):
    """Turn pictures left to right.

    Parameters
    ----------
    chance : float
        The share of rows that are turned; 1 for all of them.
    """

    chance: float = 0.5

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        plan.mirror(random.coin("turned", self.chance))


@dataclass(frozen=True)
class Pad(PictureTransform):
    """Put a border around pictures.

    Parameters
    ----------
    width : int or (int, int)
        Pixels above and below, and left and right.
    fill : float
        Value of the border; rounded and clipped where pictures hold integers.
    """

    width: int | tuple[int, int]
    fill: float = 0.0

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        down, across = size_of("width", self.width, least=0)
        widths = ((down, down), (across, across), (0, 0))
        fill = in_dtype(np.array(self.fill), plan.dtype)
        larger = plan.sizes + np.array([2 * down, 2 * across])
        plan.change(lambda x, _: np.pad(x, widths, constant_values=fill), larger)


def margins(plan: PicturePlan, size: PictureSize) -> IntArray:
    """Return how much higher and wider (n, 2) each picture is than a window.

    Raises
    ------
    UnfitPictureError
        If one is smaller.
    """
    rest = plan.sizes - size
    unfit = (rest < 0).any(axis=1)
    if unfit.any():
        remedy = f"put Resize(least={size}) or Pad before the crop"
        wrong = f"{plan.name_first(unfit)} has no window of {size}"
        plan.refuse(f"{wrong}; {remedy}", UnfitPictureError)
    return rest


def random_corners(random: RowRandom, rest: IntArray) -> IntArray:
    """Draw the upper left corner of a window that leaves so much of each picture."""
    top, left = random.integers("top", rest[:, 0] + 1), random.integers("left", rest[:, 1] + 1)
    return np.stack([top, left], axis=1)


@dataclass(frozen=True)
class Resize(PictureTransform):
    """Change the size of pictures.

    Parameters
    ----------
    size : int or (height, width), optional
        What they become, whatever their proportions.
    shorter : int, optional
        What their shorter edge becomes; the proportions stay.
    least : int or (height, width), optional
        Enlarge what is smaller than this, keeping proportions; leave the others alone.
    method : {"nearest", "area", "bilinear", "bicubic", "lanczos"}
    antialias : bool
        Where pictures shrink, average the old pixels that each new one covers, whatever the
        method; "nearest" never does.

    Examples
    --------
    >>> ramp = np.array([[[0, 10, 20, 30]]], np.uint8)
    >>> Resize((1, 2))(ramp, dims=("channel", "height", "width")).tolist()
    [[[5, 25]]]
    """

    size: Size | None = None
    shorter: int | None = None
    least: Size | None = None
    method: Method = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("size", "shorter", "least") if getattr(self, name) is not None]
        if len(given) != 1:
            raise AugmentError(f"give one of size, shorter and least; found {given or 'none'}")

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        sizes, before = plan.sizes, np.maximum(1, plan.sizes)  # 0 is one that cannot be decoded
        if self.size is not None:
            sizes = np.broadcast_to(size_of("size", self.size), sizes.shape)
        elif self.shorter is not None:
            factors = self.shorter / before.min(axis=1, keepdims=True)
            sizes = _rounded(before * factors)
        else:
            least = np.array(size_of("least", self.least))
            factors = np.maximum(1, (least / before).max(axis=1, keepdims=True))
            sizes = np.maximum(least, np.floor(before * factors + 0.5).astype(np.int64))
        if not np.array_equal(sizes, plan.sizes):
            resize(plan, sizes, self.method, self.antialias)


@dataclass(frozen=True)
class RandomResizedCrop(PictureTransform):
    """Cut out a window of random area and proportions at a random place, and resize it.

    After ten windows that do not fit, the largest one in the middle whose proportions lie
    within `aspect`.

    Parameters
    ----------
    size : int or (height, width)
        What the window becomes.
    area : (float, float)
        Least and largest share of the picture.
    aspect : (float, float)
        Least and largest width over height.
    method, antialias
        As for :class:`Resize`.
    """

    size: Size
    area: tuple[float, float] = (0.08, 1.0)
    aspect: tuple[float, float] = (3 / 4, 4 / 3)
    method: Method = "bilinear"
    antialias: bool = True

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        windows = self._windows(plan, random)
        plan.crop(random_corners(random, plan.sizes - windows), windows)
        size = np.broadcast_to(size_of("size", self.size), windows.shape)
        resize(plan, size, self.method, self.antialias)

    def _windows(self, plan: PicturePlan, random: RowRandom) -> IntArray:
        """Draw the sizes of windows until they fit."""
        low, high = self.aspect
        pixels, (heights, widths) = plan.sizes.prod(axis=1), plan.sizes.T
        ratio = np.clip(widths / heights, low, high)
        largest = np.stack([widths / ratio, heights * ratio], axis=1)
        windows = np.minimum(plan.sizes, _rounded(largest))
        waiting = np.ones(len(plan), bool)
        for number in range(TRIES):
            area = pixels * random.uniform(f"area {number}", *self.area)
            aspect = np.exp(random.uniform(f"aspect {number}", math.log(low), math.log(high)))
            drawn = _rounded(np.sqrt(np.stack([area / aspect, area * aspect], axis=1)))
            fits = waiting & (drawn <= plan.sizes).all(axis=1)
            windows[fits] = drawn[fits]
            waiting &= ~fits
            if not waiting.any():
                break
        return windows


@dataclass(frozen=True)
class Affine(PictureTransform):
    """Turn, shear, scale and stretch pictures about their middle.

    A number is fixed, a pair (least, most) is drawn from.

    Parameters
    ----------
    rotate : float or (float, float)
        Degrees, counter-clockwise.
    shear : float or (float, float)
        Pixels to the left for every pixel up.
    scale : float or (float, float)
    aspect : float or (float, float)
        Width over height of what was square; the mean of both factors is `scale`.
    canvas : int or (height, width), optional
        Size of the result; as before when not given.
    fill : float
        Value of what lies outside of the picture; rounded and clipped where pictures hold whole
        numbers.
    method : {"nearest", "bilinear", "bicubic", "lanczos"}

    Examples
    --------
    >>> image = np.arange(9).reshape(1, 3, 3)
    >>> Affine(rotate=90)(image, dims=("channel", "height", "width")).tolist()
    [[[2, 5, 8], [1, 4, 7], [0, 3, 6]]]
    """

    rotate: Range = 0.0
    shear: Range = 0.0
    scale: Range = 1.0
    aspect: Range = 1.0
    canvas: Size | None = None
    fill: float = 0.0
    method: Sampling = "bilinear"

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        names = ("rotate", "shear", "scale", "aspect")
        drawn = [random.uniform(n, *range_of(n, getattr(self, n))) for n in names]
        matrices = [_matrix(*numbers) for numbers in np.stack(drawn, axis=1).tolist()]
        canvas = None if self.canvas is None else size_of("canvas", self.canvas)
        sizes = plan.sizes.tolist() if canvas is None else [canvas] * len(plan)
        plan.change(lambda x, at: warped(x, matrices[at], sizes[at], self.fill, self.method), sizes)


def resize(plan: PicturePlan, sizes: IntArray, method: Method, antialias: bool) -> None:
    """Add that every picture gets a size (n, 2) of its own."""
    code = NEAREST_EXACT if method == "nearest" else CODES[method]

    def to(x: Array, size: PictureSize, how: int) -> Array:
        return by_opencv(x, lambda values: opencv().resize(values, size[::-1], interpolation=how))

    def resized(x: Array, at: int) -> Array:
        height, width = sizes[at].tolist()
        smaller = min(height, x.shape[0]), min(width, x.shape[1])
        if antialias and method != "nearest" and smaller != x.shape[:2]:
            x = to(x, smaller, CODES["area"])
        return x if x.shape[:2] == (height, width) else to(x, (height, width), code)

    plan.change(resized, sizes)


def warped(x: Array, matrix: FloatArray, size: PictureSize, fill: float, method: Sampling) -> Array:
    """Return a picture moved by a matrix about its middle.

    Parameters
    ----------
    matrix : float64 array (2, 2)
        From (x, y) of the picture to (x, y) of the result, both from their middles.
    size : (int, int)
        Height and width of the result.
    fill : float
        Value of what lies outside of the picture.
    """
    cv2 = opencv()
    before, after = ((np.array(lengths[1::-1]) - 1) / 2 for lengths in (x.shape, size))
    moved = np.column_stack([matrix, after - matrix @ before])
    how = CODES[method], cv2.BORDER_CONSTANT, (fill,) * 4
    return by_opencv(x, lambda values: cv2.warpAffine(values, moved, size[::-1], None, *how))


def _matrix(degrees: float, shear: float, scale: float, aspect: float) -> FloatArray:
    """Return the map of a picture: stretched, sheared, then turned."""
    down = 2 * scale / (1 + aspect)
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = np.array([[cos, sin], [-sin, cos]])
    made: FloatArray = turn @ np.array([[1, shear], [0, 1]]) @ np.diag([aspect * down, down])
    return made


def _rounded(sizes: FloatArray) -> IntArray:
    """Return sizes (n, 2) in whole pixels, at least one each way."""
    return np.maximum(1, np.rint(sizes).astype(np.int64))


# values and colours

PerChannel = float | Sequence[float]

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

    def __post_init__(self) -> None:
        check_fields(self, AugmentError)
        _per_channel("scale", self.scale)
        if (self._factors[1] == 0).any():
            raise AugmentError("std holds a 0; leave out the channels that never change")

    @cached_property
    def _factors(self) -> tuple[FloatArray, FloatArray]:
        """Mean and standard deviation; a file is read once, when the transform is made."""
        return _mean_of(self.mean), _per_channel("std", self.std)

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        mean, std = self._factors
        for name, factor in (("mean", mean), ("std", std)):
            n = factor.shape[-1]
            if n not in (1, plan.n_channels):
                plan.refuse(f"{name} has {n} channels, pictures have {plan.n_channels}")
        if mean.ndim == 3 and mean.shape[:2] != plan.size:
            wrong = f"pictures are {plan.size or 'of different sizes'} by then"
            found = f"the mean image is {mean.shape[0]} x {mean.shape[1]}"
            plan.refuse(f"{found}, {wrong}; crop or resize them to its size")
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

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
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

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
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
        A fourth channel is alpha, which stays as it is.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        factors = {}
        for name in ("brightness", "contrast", "saturation"):
            amount = getattr(self, name)
            if amount > 0:
                factors[name] = random.uniform(name, max(0.0, 1 - amount), 1 + amount).tolist()
        if "saturation" in factors:
            plan.check_colours("saturation")
        orders = list(permutations(factors))
        order = random.integers("order", np.full(len(plan), len(orders))).tolist()

        def jittered(x: Array, at: int) -> Array:
            colours = x[..., :3] if x.shape[2] == 4 else x
            for name in orders[order[at]]:
                colours = _jittered(colours, name, factors[name][at])
            return colours if x.shape[2] != 4 else np.concatenate([colours, x[..., 3:]], axis=2)

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

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        plan.check_colours("ShiftHSL")
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
    found = as_array(name, values, AugmentError)
    if found.ndim > 1 or found.dtype.kind not in "biuf" or not np.isfinite(found).all():
        raise AugmentError(f"{name}={values!r} must be a finite number, or one a channel")
    return found.astype(np.float64).reshape(-1)


def stretched(x: Array, factor: float, centre: float) -> Array:
    """Return values moved away from a centre: ``centre + (x - centre) * factor``."""
    add = opencv().addWeighted
    return by_opencv(x, lambda values: add(values, factor, values, 0, centre * (1 - factor)))


def _jittered(x: Array, name: str, factor: float) -> Array:
    """Return a picture whose brightness, contrast or saturation is changed by a factor."""
    if name == "saturation":
        mixed = factor * np.eye(3) + (1 - factor) * np.array(GREY)
        return by_opencv(x, lambda values: opencv().transform(values, mixed))
    centre = 0.0
    if name == "contrast":
        means = x.mean(axis=(0, 1), dtype=np.float64)
        centre = float(means @ np.array(GREY) if len(means) == 3 else means.mean())
    return stretched(x, factor, centre)
