"""Which part of a picture is kept, and which way round: crops, mirrors, borders."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from labeled.errors import UnfitPictureError
from labeled.transforms.augment import PictureTransform
from labeled.transforms.parameters import Size, chance_of, number_of, size_of, whole_of
from labeled.transforms.pictures import IntArray, PictureSize, Plan, in_dtype
from labeled.transforms.place import RowRandom


class OfOneSize(PictureTransform):
    """A transform that makes all pictures one `size`."""

    size: Size

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        return size_of("size", self.size)


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

    checks = (
        ("size", size_of),
        ("y", partial(whole_of, least=0)),
        ("x", partial(whole_of, least=0)),
    )

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        size = size_of("size", self.size)
        rest = margins(plan, size)
        corners = rest // 2
        for axis, start in enumerate((self.y, self.x)):
            corners[:, axis] = corners[:, axis] if start is None else start
        beyond = (corners > rest).any(axis=1)
        if beyond.any():
            raise UnfitPictureError(
                f"a window of {size} at y={self.y}, x={self.x} reaches beyond "
                f"{plan.name_first(beyond)}"
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

    checks = (("size", size_of),)

    def add_to(self, plan: Plan, random: RowRandom) -> None:
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

    checks = (("chance", chance_of),)

    def add_to(self, plan: Plan, random: RowRandom) -> None:
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

    checks = (("width", partial(size_of, least=0)), ("fill", number_of))

    def add_to(self, plan: Plan, random: RowRandom) -> None:
        down, across = size_of("width", self.width, least=0)
        widths = ((down, down), (across, across), (0, 0))
        plan.change(
            lambda x, _: np.pad(x, widths, constant_values=in_dtype(np.array(self.fill), x.dtype)),
            plan.sizes + np.array([2 * down, 2 * across]),
        )

    def common_size(self, before: PictureSize | None) -> PictureSize | None:
        down, across = size_of("width", self.width, least=0)
        return None if before is None else (before[0] + 2 * down, before[1] + 2 * across)


def margins(plan: Plan, size: PictureSize) -> IntArray:
    """Return how much higher and wider (n, 2) each picture is than a window.

    Raises
    ------
    UnfitPictureError
        If one is smaller.
    """
    rest = plan.sizes - size
    unfit = (rest < 0).any(axis=1)
    if unfit.any():
        raise UnfitPictureError(
            f"{plan.name_first(unfit)} has no window of {size}; put Resize(least={size}) or Pad "
            "before the crop"
        )
    return rest


def random_corners(random: RowRandom, rest: IntArray) -> IntArray:
    """Draw the upper left corner of a window that leaves so much of each picture."""
    top, left = random.integers("top", rest[:, 0] + 1), random.integers("left", rest[:, 1] + 1)
    return np.stack([top, left], axis=1)
