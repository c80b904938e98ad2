"""Which part of a picture is kept, and which way round: crops, mirrors, borders.

Crops and mirrors move no value: they are noted down and carried out in the copy at the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.device import concat, dtype_of, namespace, own_dtype
from labeled.errors import UnfitPictureError
from labeled.transforms.base import PictureSize, PictureTransform
from labeled.transforms.chances import Chances
from labeled.transforms.parameters import Size, chance_of, number_of, size_of, whole_of
from labeled.transforms.pictures import (
    Array,
    IntArray,
    Mask,
    Pictures,
    all_at_once,
    check_size,
    held,
)


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

    def __post_init__(self) -> None:
        size_of("size", self.size)
        for name in ("y", "x"):
            if getattr(self, name) is not None:
                whole_of(name, getattr(self, name), least=0)

    @property
    def noted(self) -> bool:
        return True

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        size = size_of("size", self.size)
        down, across = margins(pictures, size, chances.rows)
        top = down // 2 if self.y is None else np.full(len(pictures), self.y)
        left = across // 2 if self.x is None else np.full(len(pictures), self.x)
        beyond = (top > down) | (left > across)
        if beyond.any():
            raise UnfitPictureError(
                f"a window of {size} at y={self.y}, x={self.x} reaches beyond "
                f"{_first(pictures, beyond, chances.rows)}"
            )
        return pictures.cropped(top, left, size)

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        return size_of("size", self.size)


@dataclass(frozen=True)
class RandomCrop(PictureTransform):
    """Cut out a window at a random place.

    Parameters
    ----------
    size : int or (height, width)
    """

    size: Size

    def __post_init__(self) -> None:
        size_of("size", self.size)

    @property
    def noted(self) -> bool:
        return True

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        size = size_of("size", self.size)
        down, across = margins(pictures, size, chances.rows)
        top, left = chances.whole("top", down + 1), chances.whole("left", across + 1)
        return pictures.cropped(top, left, size)

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        return size_of("size", self.size)


@dataclass(frozen=True)
class Mirror(PictureTransform):
    """Turn pictures left to right.

    Parameters
    ----------
    chance : float
        The share of rows that are turned; 1 for all of them.
    """

    chance: float = 0.5

    def __post_init__(self) -> None:
        chance_of("chance", self.chance)

    @property
    def noted(self) -> bool:
        return True

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        return pictures.turned(chances.coin("turned", self.chance))


@dataclass(frozen=True)
class Pad(PictureTransform):
    """Put a border around pictures.

    Parameters
    ----------
    width : int or (int, int)
        Pixels above and below, and left and right.
    fill : float
        Value of the border; rounded and clipped where pictures hold whole numbers.
    """

    width: int | tuple[int, int]
    fill: float = 0.0

    def __post_init__(self) -> None:
        size_of("width", self.width, least=0)
        number_of("fill", self.fill)

    def change(self, pictures: Pictures, chances: Chances) -> Pictures:
        down, across = size_of("width", self.width, least=0)
        size = self.common_size(pictures.size) or (0, 0)
        n_made = pictures.n_channels * size[0] * size[1]
        return all_at_once(
            pictures, lambda x, _: _bordered(x, down, across, self.fill), n_made, moves=True
        )

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        down, across = size_of("width", self.width, least=0)
        return None if before is None else (before[0] + 2 * down, before[1] + 2 * across)


def margins(pictures: Pictures, size: tuple[int, int], rows: IntArray) -> tuple[IntArray, IntArray]:
    """Return how much higher and wider each picture, of some row, is than a window.

    Raises
    ------
    UnfitPictureError
        If one is smaller.
    """
    down, across = pictures.heights - size[0], pictures.widths - size[1]
    unfit = (down < 0) | (across < 0)
    if unfit.any():
        raise UnfitPictureError(
            f"{_first(pictures, unfit, rows)} has no window of {size}; put "
            f"Resize(least={size}) or Pad before the crop"
        )
    return down, across


def _first(pictures: Pictures, which: Mask, rows: IntArray) -> str:
    """Name the first picture of some: its size and its row."""
    at = int(which.argmax())
    return f"a picture of {pictures.heights[at]} x {pictures.widths[at]} (row {rows[at]})"


def _bordered(x: Array, down: int, across: int, fill: float) -> Array:
    height, width = x.shape[2] + 2 * down, x.shape[3] + 2 * across
    check_size(height, width)
    xp = namespace(x)
    own, value = own_dtype(x, dtype_of(x)), held(fill, dtype_of(x))
    if isinstance(x, np.ndarray):
        out = np.full_like(x, value, own, shape=(*x.shape[:2], height, width))
        out[..., down : height - down, across : width - across] = x
        return out

    def border(*lengths: Any) -> Array:
        return xp.full((x.shape[0], x.shape[1], *lengths), value, dtype=own)

    beside = border(x.shape[2], across)
    above = border(down, width)
    return concat([above, concat([beside, x, beside], axis=3), above], axis=2)
