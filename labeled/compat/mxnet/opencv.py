"""The few functions of OpenCV that the old iterators called, for pictures as they are here.

Pictures are uint8 arrays (height, width, channel) with 1, 3 (R, G, B) or 4 (R, G, B, A)
channels, here as everywhere in this package. OpenCV drops a channel axis of length 1; it is put
back here.

Two steps are made in the arithmetic of OpenCV 3, which later releases round otherwise, by one
level in a few pixels. Bicubic resizing takes whole-number weights of 11 bits along the rows, then
float32 down the columns; the values of a row that do not fill a group of eight are summed up in
whole numbers. Hue, lightness and saturation are worked out four pixels at a time; those at the end
of a row that fill no group have their saturation computed in another order. The last bit shows
both.

Release 0.9.5 held a libjpeg of the line 7 to 9, which enlarges the colours of a JPEG otherwise than
libjpeg-turbo: up to 32 levels apart at sharp edges, while grey pictures and the brightness of
colour pictures are equal. The library `jpeglib` has that line; it works through temporary files
and one setting for the whole process, so pictures take turns here.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled._optional import import_optional
from labeled.errors import AugmentError, how_to_install, warn
from labeled.formats.pictures import kind_of
from labeled.formats.pictures import opencv as library
from labeled.transforms.pictures import check_size

Picture = npt.NDArray[np.uint8]
FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
F32 = np.float32

# what libpng and OpenCV weighed red, green and blue by, in parts of 2 ** 15 and 2 ** 14
PNG_WEIGHTS, WEIGHTS = np.array([[9797, 19234, 3737], [4899, 9617, 1868]], np.int64)
SRGB = 0.45455


def grey_of(data: memoryview, colours: Picture) -> Picture:
    """Return the grey of a decoded picture other than a JPEG; for a PNG, that of libpng.

    libpng cut off what it weighed; and where a file had a gamma, it weighed light, not values.
    """
    values = colours.astype(np.int64)
    if kind_of(data) != "png":
        grey = (values @ WEIGHTS + (1 << 13)) >> 14
    elif abs((gamma := _gamma_of(data)) - 1) < 0.05:
        grey = values @ PNG_WEIGHTS >> 15
    else:
        level = np.arange(256) / 255
        to_light, back = (np.floor(255 * level**n + 0.5).astype(int) for n in (1 / gamma, gamma))
        mixed = (values != values[..., :1]).any(axis=-1)  # others are grey already
        light = (to_light[values] @ PNG_WEIGHTS + (1 << 14)) >> 15
        grey = np.where(mixed, back[light], values[..., 0])
    return np.asarray(grey[..., np.newaxis], np.uint8)


def _gamma_of(data: memoryview) -> float:
    """Return the gamma in the chunks before the pixels of a PNG; 1 if there is none."""
    at, gamma = 8, 1.0
    while (kind := bytes(data[at + 4 : at + 8])) not in (b"IDAT", b""):
        if kind == b"sRGB":
            return SRGB
        if kind == b"gAMA":
            gamma = int.from_bytes(data[at + 8 : at + 12]) / 100_000 or 1.0
        at += 12 + int.from_bytes(data[at : at + 4])
    return gamma


# interpolation codes, the numbers that both OpenCV and the old parameters use
NEAREST, LINEAR, CUBIC, AREA, LANCZOS = range(5)


def resize(picture: Picture, height: int, width: int, how: int) -> Picture:
    """Return a picture of another size.

    Raises
    ------
    AugmentError
        If no pixel of it, or too many, would be left.
    """
    if height < 1 or width < 1:
        raise AugmentError(f"a picture would become {height} x {width} pixels: give it one or more")
    check_size(height, width)
    if how == CUBIC:
        return resize_cubic(picture, height, width)
    return np.atleast_3d(library().resize(picture, (width, height), interpolation=how))


def warp(
    picture: Picture, matrix: FloatArray, height: int, width: int, how: int, fill: int
) -> Picture:
    """Return a picture under an affine map from its (x, y) to those of the result."""
    check_size(height, width)
    how = LINEAR if how == AREA else how
    cv2, size = library(), (width, height)
    border = cv2.BORDER_CONSTANT, (fill, fill, fill)
    return np.atleast_3d(cv2.warpAffine(picture, matrix, size, None, how, *border))


# bicubic resizing

SHARPNESS = F32(-0.75)
WEIGHT_BITS = 11
CUBIC_GROUP = 8
TAPS = 4


def resize_cubic(picture: Picture, height: int, width: int) -> Picture:
    """Return a picture (height, width, channels) of another size.

    Examples
    --------
    >>> ramp = np.arange(0, 80, 10, np.uint8).reshape(1, 8, 1)
    >>> resize_cubic(ramp, 1, 4).ravel().tolist()
    [4, 25, 45, 66]
    """
    columns, across = _taps(picture.shape[1], width)
    lines, down = _taps(picture.shape[0], height)
    wide = picture[..., ::-1].astype(np.int32)  # B, G, R: which values end a row matters
    rows = _combined(wide.swapaxes(0, 1), columns, across).swapaxes(0, 1)
    flat = rows.reshape(picture.shape[0], -1)
    grouped = flat.shape[1] // CUBIC_GROUP * CUBIC_GROUP
    factors = down.astype(np.float32) * F32(2.0 ** (-2 * WEIGHT_BITS))
    floats = np.rint(_combined(flat[:, :grouped].astype(np.float32), lines, factors))
    sums = _combined(flat[:, grouped:], lines, down) + (1 << (2 * WEIGHT_BITS - 1))
    levels = np.concatenate([floats, sums >> (2 * WEIGHT_BITS)], axis=1)
    made = np.clip(levels, 0, 255).astype(np.uint8).reshape(height, width, picture.shape[2])
    return np.ascontiguousarray(made[..., ::-1])


def _combined(values: Any, places: IntArray, weights: Any) -> Any:
    """Return what the four places along the first axis come to, in the dtype of the values."""
    shape = -1, *[1] * (values.ndim - 1)
    return sum(values[places[:, tap]] * weights[:, tap].reshape(shape) for tap in range(TAPS))


def _taps(before: int, after: int) -> tuple[IntArray, npt.NDArray[np.int32]]:
    """Return the four places that each new one is made of, and their weights."""
    scale = before / after
    at = ((np.arange(after) + 0.5) * scale - 0.5).astype(np.float32)
    first = np.floor(at)
    places = first.astype(np.int64)[:, np.newaxis] + np.arange(-1, TAPS - 1)
    a, one = SHARPNESS, F32(1)
    near = at - first  # Keys' cubic at a fraction behind the second of four places
    far, beyond = near + one, one - near
    left = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
    here, there = (((a + 2) * x - (a + 3)) * x * x + one for x in (near, beyond))
    weights = np.stack([left, here, there, one - left - here - there], axis=1)
    levels = np.rint(weights * F32(1 << WEIGHT_BITS)).astype(np.int32)
    return np.clip(places, 0, before - 1), levels


# hue, lightness and saturation

HLS_GROUP = 4
EPSILON = np.finfo(np.float32).eps


def shift_hls(picture: Picture, hue: int, lightness: int, saturation: int) -> Picture:
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
    clipped = np.clip(shifted, 0, (180, 255, 255)).astype(np.uint8)
    cv2 = library()
    return np.asarray(cv2.cvtColor(clipped, cv2.COLOR_HLS2RGB), np.uint8)


def hls_of(picture: Picture) -> Picture:
    """Return hue, lightness and saturation of R, G, B."""
    red, green, blue = np.moveaxis(picture.astype(np.float32) * F32(1 / 255), 2, 0)
    high = np.maximum(np.maximum(red, green), blue)
    low = np.minimum(np.minimum(red, green), blue)
    spread, total = high - low, high + low
    coloured = spread > EPSILON
    lightness = total * F32(0.5)
    room = F32(2) - total
    end = picture.shape[1] // HLS_GROUP * HLS_GROUP
    room[:, end:] = F32(2) - high[:, end:] - low[:, end:]
    room = np.where(lightness < F32(0.5), total, room)
    saturation = _quotient(spread, room, coloured)
    scale = _quotient(np.full_like(spread, 60), spread, coloured)
    toward_red, toward_green = (green - blue) * scale, (blue - red) * scale + F32(120)
    toward_blue = (red - green) * scale + F32(240)
    hue = np.where(high == red, toward_red, np.where(high == green, toward_green, toward_blue))
    hue = np.where(coloured, np.where(hue < 0, hue + F32(360), hue), F32(0))
    planes = np.stack([hue * F32(0.5), lightness * F32(255), saturation * F32(255)], axis=2)
    return np.asarray(np.clip(np.rint(planes), 0, 255), np.uint8)


def _quotient(above: FloatArray, below: FloatArray, where: Any) -> FloatArray:
    """Divide where that has a meaning; 0 elsewhere."""
    return np.divide(above, below, out=np.zeros_like(above), where=where)


# colour JPEGs of release 0.9.5

LINE = "8d"  # of the releases of that line: equal to the recordings in every value

_TURN = Lock()


def old_pixels(data: bytes | memoryview, decoded: Picture) -> Picture:
    """Return a colour JPEG as the old build decoded it.

    Parameters
    ----------
    data : bytes-like
        The encoded picture.
    decoded : uint8 array (height, width, 3)
        What libjpeg-turbo makes of it; returned where `jpeglib` is missing, with a warning, and
        where it makes something else of the picture (four inks, a damaged end).
    """
    library = _jpeglib()
    if library is None:
        return decoded
    with tempfile.TemporaryDirectory(prefix="labeled") as place, _TURN:
        path = Path(place) / "picture.jpg"
        path.write_bytes(data)
        try:
            with library.version(LINE):
                pixels = np.asarray(library.read_spatial(path).spatial)
        except (OSError, ValueError, RuntimeError):
            return decoded
    return pixels if pixels.shape == decoded.shape and pixels.dtype == np.uint8 else decoded


@cache
def _jpeglib() -> Any:
    found = import_optional("jpeglib")
    if found is None:
        warn(
            "release 0.9.5 decoded colour JPEGs with another libjpeg; without the library "
            "jpeglib their colours differ at edges: " + how_to_install("jpeglib", "mxnet")
        )
    return found
