"""New pixels from old ones: other sizes, turned, sheared and stretched pictures.

All of it is written in terms of the array library at hand, and value by value, so that a picture
comes out the same by itself and in any batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from labeled.device import concat, dtype_of
from labeled.errors import AugmentError
from labeled.transforms.base import PictureSize, PictureTransform
from labeled.transforms.chances import Chances, FloatArray
from labeled.transforms.crop import margins
from labeled.transforms.fast import loops_for
from labeled.transforms.filters import METHODS, new_sizes, resample
from labeled.transforms.parameters import (
    Range,
    Size,
    above_zero,
    choice_of,
    number_of,
    range_of,
    size_of,
    whole_of,
)
from labeled.transforms.pictures import (
    Array,
    Pictures,
    all_at_once,
    check_size,
    each,
    in_dtype,
    in_floats,
)
from labeled.transforms.warping import warped

Method = Literal["nearest", "area", "bilinear", "bicubic", "lanczos"]
Sampling = Literal["nearest", "bilinear", "bicubic", "lanczos"]
TRIES = 10

BAND_ITEMS = 1 << 21
"""Values that are made at a time where a picture becomes larger than this, as floats.

So few that the caches hold them: bytes become a picture of 3000 x 3000 in two thirds of the time
that it takes in one piece. With a fourth of them, batches of small pictures took twice as long.
"""

MOST_KEPT_PIXELS = 1 << 26
"""Of an enlarged one whose proportions stay: a single row becomes longer than anybody meant."""


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
        Let every old pixel count where pictures shrink.

    Examples
    --------
    >>> ramp = np.array([[[0, 10, 20, 30]]], np.uint8)
    >>> Resize((1, 2))(ramp, dims=("channel", "height", "width")).tolist()
    [[[7, 23]]]
    """

    size: Size | None = None
    shorter: int | None = None
    least: Size | None = None
    method: Method = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        choice_of("method", self.method, METHODS)
        given = [name for name in ("size", "shorter", "least") if getattr(self, name) is not None]
        if len(given) != 1:
            raise AugmentError(f"give one of size, shorter and least; found {given or 'none'}")
        if self.shorter is not None:
            whole_of("shorter", self.shorter, least=1)
        else:
            size_of(given[0], getattr(self, given[0]))

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        if self.least is not None:
            height, width = size_of("least", self.least)
            if (pictures.heights >= height).all() and (pictures.widths >= width).all():
                return pictures
        made = 0 if pictures.size is None else math.prod(self._size(*pictures.size))
        return all_at_once(pictures, lambda x, _: self._resized(x), made * pictures.n_channels)

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        if self.size is not None:
            return size_of("size", self.size)
        return None if before is None else self._size(*before)

    def _resized(self, x: Array) -> Array:
        size = self._size(int(x.shape[-2]), int(x.shape[-1]))
        return resized(x, size, self.method, self.antialias)

    def _size(self, height: int, width: int) -> PictureSize:
        if self.size is not None:
            return size_of("size", self.size)
        least = None if self.least is None else size_of("least", self.least)
        made = new_sizes(height, width, self.shorter, least)
        if math.prod(made) > height * width:
            check_size(*made, MOST_KEPT_PIXELS)
        return made


@dataclass(frozen=True)
class RandomSizedCrop(PictureTransform):
    """Cut out a square of random size at a random place, and resize it.

    Parameters
    ----------
    size : int or (height, width)
        What the square becomes.
    edge : (int, int)
        Least and largest edge of the square.
    centred : bool
        Keep the square in the middle.
    method, antialias
        As for :class:`Resize`.
    """

    size: Size
    edge: tuple[int, int]
    centred: bool = False
    method: Method = "bilinear"
    antialias: bool = True

    def __post_init__(self) -> None:
        choice_of("method", self.method, METHODS)
        size_of("size", self.size)
        least, most = size_of("edge", self.edge)
        if least > most:
            raise AugmentError(f"edge={self.edge!r}: the least comes first")

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        least, most = size_of("edge", self.edge)
        margins(pictures, (most, most), chances.rows)
        edges = least + chances.whole("edge", np.full(len(pictures), most - least + 1))
        down, across = pictures.heights - edges, pictures.widths - edges
        top, left = down // 2, across // 2
        if not self.centred:
            top, left = chances.whole("top", down + 1), chances.whole("left", across + 1)
        cut = pictures.cropped(top, left, (edges, edges))
        return _all_resized(cut, size_of("size", self.size), self.method, self.antialias)

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        return size_of("size", self.size)


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

    def __post_init__(self) -> None:
        choice_of("method", self.method, METHODS)
        size_of("size", self.size)
        above_zero("aspect", self.aspect)
        if above_zero("area", self.area)[1] > 1:
            raise AugmentError(f"area={self.area!r}: a window is at most all of the picture")

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        heights, widths = self._windows(pictures, chances)
        down, across = pictures.heights - heights, pictures.widths - widths
        placed = chances.whole("top", down + 1), chances.whole("left", across + 1)
        cut = pictures.cropped(*placed, (heights, widths))
        return _all_resized(cut, size_of("size", self.size), self.method, self.antialias)

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        return size_of("size", self.size)

    def _windows(
        self, pictures: Pictures, chances: Chances
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Draw the sizes of windows until they fit."""
        low, high = self.aspect
        whole = pictures.heights * pictures.widths
        ratio = np.clip(pictures.widths / pictures.heights, low, high)
        heights = np.minimum(pictures.heights, np.rint(pictures.widths / ratio).astype(np.int64))
        widths = np.minimum(pictures.widths, np.rint(pictures.heights * ratio).astype(np.int64))
        waiting = np.ones(len(pictures), bool)
        for number in range(TRIES):
            area = whole * chances.uniform(f"area {number}", *self.area)
            drawn = chances.uniform(f"aspect {number}", math.log(low), math.log(high))
            aspect = np.exp(drawn)
            h = np.maximum(1, np.rint(np.sqrt(area / aspect)).astype(np.int64))
            w = np.maximum(1, np.rint(np.sqrt(area * aspect)).astype(np.int64))
            fits = waiting & (h <= pictures.heights) & (w <= pictures.widths)
            heights, widths = np.where(fits, h, heights), np.where(fits, w, widths)
            waiting &= ~fits
            if not waiting.any():
                break
        return np.maximum(1, heights), np.maximum(1, widths)


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
    canvas : {"same", "scaled"} or (height, width)
        Size of the result: as before; times `scale`; or given.
    limits : (float, float)
        Least and largest side of a scaled canvas.
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
    canvas: Literal["same", "scaled"] | Size = "same"
    limits: tuple[float, float] = (1.0, 1e5)
    fill: float = 0.0
    method: Sampling = "bilinear"

    def __post_init__(self) -> None:
        range_of("rotate", self.rotate)
        range_of("shear", self.shear)
        above_zero("scale", self.scale)
        above_zero("aspect", self.aspect)
        above_zero("limits", self.limits)
        number_of("fill", self.fill)
        choice_of("method", self.method, get_args(Sampling))
        if self.canvas not in ("same", "scaled"):
            if isinstance(self.canvas, str):
                choice_of("canvas", self.canvas, ("same", "scaled"))
            size_of("canvas", self.canvas)

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        angle, shear, scale, aspect = (
            chances.uniform(name, *range_of(name, getattr(self, name)))
            for name in ("rotate", "shear", "scale", "aspect")
        )
        matrices = _matrices(np.radians(angle), shear, scale, aspect)

        def moved(x: Array, number: int) -> Array:
            size = self._size(x.shape[-2:], float(scale[number]))
            check_size(*size)
            return warped(x, matrices[number], size, self.fill, self.method)

        return each(pictures, moved)

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        if self.canvas not in ("same", "scaled"):
            return size_of("canvas", self.canvas)
        low, high = range_of("scale", self.scale)
        fixed = self.canvas == "same" or low == high
        return self._size(before, low) if before is not None and fixed else None

    def largest_size(self, before: PictureSize) -> PictureSize:
        return self._size(before, range_of("scale", self.scale)[1])

    def _size(self, before: Any, scale: float) -> tuple[int, int]:
        if self.canvas == "same":
            return int(before[0]), int(before[1])
        if self.canvas != "scaled":
            return size_of("canvas", self.canvas)
        low, high = self.limits
        height, width = (max(1, int(min(max(scale * n, low), high))) for n in before)
        return height, width


def resized(x: Array, size: tuple[int, int], method: str, antialias: bool) -> Array:
    """Return pictures of another size, in their dtype; height and width are the last axes."""
    if tuple(x.shape[-2:]) == size:
        return x
    check_size(*size)
    if method == "nearest":
        values = resample(x, x.ndim - 1, size[1], method, antialias)
        return resample(values, x.ndim - 2, size[0], method, antialias)
    wide, final = resample(in_floats(x), x.ndim - 1, size[1], method, antialias), dtype_of(x)
    if loops_for(wide) is not None and dtype_of(wide) == final:  # nothing is made but the result
        return resample(wide, x.ndim - 2, size[0], method, antialias)
    step = max(1, BAND_ITEMS // max(1, math.prod(x.shape[:-2]) * size[0]))

    def band(start: int) -> Array:
        columns = wide[..., start : min(start + step, size[1])]
        return in_dtype(resample(columns, x.ndim - 2, size[0], method, antialias), final)

    starts = range(0, max(size[1], 1), step)
    if len(starts) == 1:
        return band(0)
    if not isinstance(x, np.ndarray):
        return concat([band(start) for start in starts], x.ndim - 1)
    out = np.empty((*x.shape[:-2], *size), final)
    for start in starts:
        out[..., start : start + step] = band(start)
    return out


def _matrices(
    angle: FloatArray, shear: FloatArray, scale: FloatArray, aspect: FloatArray
) -> FloatArray:
    """Return the map of each picture: stretched, sheared, then turned."""
    down = 2 * scale / (1 + aspect)
    across = aspect * down
    cos, sin = np.cos(angle), np.sin(angle)
    turn = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], -2)
    none, one = np.zeros_like(shear), np.ones_like(shear)
    slant = np.stack([np.stack([one, shear], -1), np.stack([none, one], -1)], -2)
    stretch = np.stack([np.stack([across, none], -1), np.stack([none, down], -1)], -2)
    made: FloatArray = turn @ slant @ stretch
    return made


def _all_resized(
    pictures: Pictures, size: tuple[int, int], method: str, antialias: bool
) -> Pictures:
    return each(pictures, lambda x, _: resized(x, size, method, antialias))
