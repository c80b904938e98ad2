"""Hue, lightness and saturation of 8-bit pictures in the arithmetic of OpenCV 3.

Later releases round some hues otherwise. Hue is counted in steps of two degrees, 0 to 180, the
others from 0 to 255. Pixels were converted four at a time; those at the end of a row that fill
no group of four had their saturation computed in another order, which the last bit shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = np.float32
GROUP = 4
EPSILON = np.finfo(np.float32).eps

Levels = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.float32]

SECTORS = np.array([[1, 3, 0], [1, 0, 2], [3, 0, 1], [0, 2, 1], [0, 1, 3], [2, 1, 0]])
"""Which of four values blue, green and red take, in each sixth of the circle of hues."""


def shift_hls(picture: Levels, hue: int, lightness: int, saturation: int) -> Levels:
    """Add whole numbers to hue, lightness and saturation; clipped, hues do not go round.

    Parameters
    ----------
    picture : uint8, lengths (height, width, 3)
        R, G, B.

    Examples
    --------
    >>> grey = np.full((1, 1, 3), 100, np.uint8)
    >>> shift_hls(grey, 0, 20, 0).tolist()
    [[[120, 120, 120]]]
    """
    shifted = hls_of(picture) + np.array([hue, lightness, saturation])
    return rgb_of(np.clip(shifted, 0, (180, 255, 255)).astype(np.uint8))


def hls_of(picture: Levels) -> Levels:
    """Return hue, lightness and saturation of R, G, B."""
    red, green, blue = np.moveaxis(picture.astype(np.float32) * F32(1 / 255), 2, 0)
    high = np.maximum(np.maximum(red, green), blue)
    low = np.minimum(np.minimum(red, green), blue)
    spread, total = high - low, high + low
    coloured = spread > EPSILON
    lightness = total * F32(0.5)
    room = F32(2) - total
    end = picture.shape[1] // GROUP * GROUP
    room[:, end:] = F32(2) - high[:, end:] - low[:, end:]
    room = np.where(lightness < F32(0.5), total, room)
    saturation = _quotient(spread, room, coloured)
    scale = _quotient(np.full_like(spread, 60), spread, coloured)
    hue = np.where(
        high == red,
        (green - blue) * scale,
        np.where(high == green, (blue - red) * scale + F32(120), (red - green) * scale + F32(240)),
    )
    hue = np.where(coloured, np.where(hue < 0, hue + F32(360), hue), F32(0))
    return _bytes(hue * F32(0.5), lightness * F32(255), saturation * F32(255))


def rgb_of(hls: Levels) -> Levels:
    """Return R, G, B of hue, lightness and saturation."""
    sixth = hls[..., 0].astype(np.float32) * F32(6 / 180)
    lightness, saturation = (hls[..., n].astype(np.float32) * F32(1 / 255) for n in (1, 2))
    product = lightness * saturation
    bright = lightness * (F32(1) + saturation)
    high = np.where(lightness <= F32(0.5), bright, lightness + saturation - product)
    low = F32(2) * lightness - high
    sixth = np.where(sixth >= F32(6), sixth - F32(6), sixth)
    sector = np.floor(sixth).astype(np.int64)
    part = sixth - sector.astype(np.float32)
    values = np.stack(
        [high, low, low + (high - low) * (F32(1) - part), low + (high - low) * part], axis=2
    )
    blue, green, red = np.moveaxis(np.take_along_axis(values, SECTORS[sector], 2), 2, 0)
    grey = saturation == 0
    chosen = (np.where(grey, lightness, colour) for colour in (red, green, blue))
    return _bytes(*(colour * F32(255) for colour in chosen))


def _quotient(above: FloatArray, below: FloatArray, where: Any) -> FloatArray:
    """Divide where that has a meaning; 0 elsewhere."""
    return np.divide(above, below, out=np.zeros_like(above), where=where)


def _bytes(*planes: FloatArray) -> Levels:
    rounded = np.clip(np.rint(np.stack(planes, axis=2)), 0, 255)
    return rounded.astype(np.uint8)
