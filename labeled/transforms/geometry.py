"""Size and place: crops, mirrors, borders, and new pixels of turned and resized pictures.

OpenCV makes the new pixels, picture by picture. It takes the positions of turned pictures in steps
of 1/32 of a pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np

from labeled.errors import AugmentError, UnfitPictureError
from labeled.formats.pictures import opencv
from labeled.transforms.augment import (
    PictureTransform,
    Range,
    Size,
    above_zero,
    number_of,
    range_of,
    size_of,
    whole_of,
)
from labeled.transforms.pictures import (
    Array,
    FloatArray,
    IntArray,
    PicturePlan,
    PictureSize,
    RowRandom,
    by_opencv,
    in_dtype,
)

Method = Literal["nearest", "area", "bilinear", "bicubic", "lanczos"]
Sampling = Literal["nearest", "bilinear", "bicubic", "lanczos"]
TRIES = 10

CODES = {"nearest": 0, "bilinear": 1, "bicubic": 2, "area": 3, "lanczos": 4}
"""What OpenCV calls the methods."""
NEAREST_EXACT = 6


class OfOneSize(PictureTransform):
    """A transform that makes all pictures one `size`."""

    size: Size

    def one_size(self, before: bool) -> bool:
        return True


@dataclass(frozen=True)
class Crop(OfOneSize):
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

    checks: ClassVar = {
        "size": size_of,
        "y": partial(whole_of, least=0),
        "x": partial(whole_of, least=0),
    }

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        size = size_of("size", self.size)
        rest = margins(plan, size)
        corners = rest // 2
        for axis, start in enumerate((self.y, self.x)):
            corners[:, axis] = corners[:, axis] if start is None else start
        beyond = (corners > rest).any(axis=1)
        if beyond.any():
            plan.refuse(
                f"a window of {size} at y={self.y}, x={self.x} reaches beyond "
                f"{plan.name_first(beyond)}",
                UnfitPictureError,
            )
        plan.crop(corners, size)


@dataclass(frozen=True)
class RandomCrop(OfOneSize):
    """Cut out a window at a random place.

    Parameters
    ----------
    size : int or (height, width)
    """

    size: Size

    checks: ClassVar = {"size": size_of}

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

    checks: ClassVar = {"chance": partial(number_of, least=0, most=1)}

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

    checks: ClassVar = {"width": partial(size_of, least=0), "fill": number_of}

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        down, across = size_of("width", self.width, least=0)
        widths = ((down, down), (across, across), (0, 0))
        plan.change(
            lambda x, _: np.pad(x, widths, constant_values=in_dtype(np.array(self.fill), x.dtype)),
            plan.sizes + np.array([2 * down, 2 * across]),
        )


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
        plan.refuse(
            f"{plan.name_first(unfit)} has no window of {size}; put Resize(least={size}) or Pad "
            "before the crop",
            UnfitPictureError,
        )
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

    checks: ClassVar = {
        "size": size_of,
        "shorter": partial(whole_of, least=1),
        "least": size_of,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [name for name in ("size", "shorter", "least") if getattr(self, name) is not None]
        if len(given) != 1:
            raise AugmentError(f"give one of size, shorter and least; found {given or 'none'}")

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        sizes = [self._size(*size) for size in plan.sizes.tolist()]
        if not np.array_equal(sizes, plan.sizes):
            resize(plan, sizes, self.method, self.antialias)

    def one_size(self, before: bool) -> bool:
        return before or self.size is not None

    def _size(self, height: int, width: int) -> PictureSize:
        if self.size is not None:
            return size_of("size", self.size)
        height, width = max(1, height), max(1, width)  # a picture that cannot be decoded has 0
        if self.shorter is not None:
            factor = self.shorter / min(height, width)
            return max(1, round(height * factor)), max(1, round(width * factor))
        down, across = size_of("least", self.least)
        factor = max(1, down / height, across / width)
        return (
            max(down, math.floor(height * factor + 0.5)),
            max(across, math.floor(width * factor + 0.5)),
        )


@dataclass(frozen=True)
class RandomResizedCrop(OfOneSize):
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

    checks: ClassVar = {"size": size_of, "area": above_zero, "aspect": above_zero}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.area[1] > 1:
            raise AugmentError(f"area={self.area!r}: a window is at most all of the picture")

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        windows = self._windows(plan, random)
        plan.crop(random_corners(random, plan.sizes - windows), windows)
        resize(plan, [size_of("size", self.size)] * len(plan), self.method, self.antialias)

    def _windows(self, plan: PicturePlan, random: RowRandom) -> IntArray:
        """Draw the sizes of windows until they fit."""
        low, high = self.aspect
        pixels, (heights, widths) = plan.sizes.prod(axis=1), plan.sizes.T
        ratio = np.clip(widths / heights, low, high)
        windows = np.minimum(plan.sizes, _rounded(widths / ratio, heights * ratio))
        waiting = np.ones(len(plan), bool)
        for number in range(TRIES):
            area = pixels * random.uniform(f"area {number}", *self.area)
            aspect = np.exp(random.uniform(f"aspect {number}", math.log(low), math.log(high)))
            drawn = _rounded(np.sqrt(area / aspect), np.sqrt(area * aspect))
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

    checks: ClassVar = {
        "rotate": range_of,
        "shear": range_of,
        "scale": above_zero,
        "aspect": above_zero,
        "canvas": size_of,
        "fill": number_of,
    }

    def add_to(self, plan: PicturePlan, random: RowRandom) -> None:
        drawn = [
            random.uniform(name, *range_of(name, getattr(self, name)))
            for name in ("rotate", "shear", "scale", "aspect")
        ]
        matrices = [_matrix(*numbers) for numbers in np.stack(drawn, axis=1).tolist()]
        canvas = None if self.canvas is None else size_of("canvas", self.canvas)
        sizes = plan.sizes.tolist() if canvas is None else [canvas] * len(plan)
        plan.change(lambda x, at: warped(x, matrices[at], sizes[at], self.fill, self.method), sizes)

    def one_size(self, before: bool) -> bool:
        return before or self.canvas is not None


def resize(plan: PicturePlan, sizes: list[PictureSize], method: Method, antialias: bool) -> None:
    """Add that every picture gets a size of its own."""
    plan.change(lambda x, at: resized(x, sizes[at], method, antialias), sizes)


def resized(x: Array, size: PictureSize, method: Method, antialias: bool) -> Array:
    """Return a picture of another size."""
    smaller = min(size[0], x.shape[0]), min(size[1], x.shape[1])
    if antialias and method != "nearest" and smaller != x.shape[:2]:
        x = _resized(x, smaller, "area")
    return x if x.shape[:2] == size else _resized(x, size, method)


def _resized(x: Array, size: PictureSize, method: Method) -> Array:
    how = NEAREST_EXACT if method == "nearest" else CODES[method]
    return by_opencv(x, lambda values: opencv().resize(values, size[::-1], interpolation=how))


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
    return by_opencv(
        x,
        lambda values: cv2.warpAffine(
            values, moved, size[::-1], flags=CODES[method],
            borderMode=cv2.BORDER_CONSTANT, borderValue=(fill,) * 4,
        ),
    )  # fmt: skip


def _matrix(degrees: float, shear: float, scale: float, aspect: float) -> FloatArray:
    """Return the map of a picture: stretched, sheared, then turned."""
    down = 2 * scale / (1 + aspect)
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    turn = np.array([[cos, sin], [-sin, cos]])
    made: FloatArray = turn @ np.array([[1, shear], [0, 1]]) @ np.diag([aspect * down, down])
    return made


def _rounded(heights: FloatArray, widths: FloatArray) -> IntArray:
    """Return sizes (n, 2) in whole pixels, at least one each way."""
    return np.maximum(1, np.rint(np.stack([heights, widths], axis=1)).astype(np.int64))
