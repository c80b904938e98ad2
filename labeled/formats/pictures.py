"""The door to the libraries that decode and encode pictures.

JPEGs go to simplejpeg where it is installed, which takes a tenth to a quarter less time than
other libraries for the same pixels; everything else, and what it refuses, to OpenCV. Pillow reads
the headers of other kinds than JPEG and PNG, and decodes those that OpenCV does not know.

A picture is uint8 by (height, width, channel), channels in the order red, green, blue,
alpha; grey has one. Decoding leaves the GIL, so that a loader's threads work side by side.
What OpenCV does on its own account is taken out of its hands where versions differ:
pictures are turned upright here, from their EXIF data, and their size is checked before a
byte is decoded.

The trade-off: OpenCV is large, but it is the one library whose threads scale here and that
decodes every kind; for JPEG its pixels are those of Pillow and of others that build on
libjpeg-turbo, bit for bit.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled._optional import extra_module, import_optional
from labeled.errors import ArrayError, MissingExtraError
from labeled.formats.picture_heads import (
    PictureError,
    PictureHead,
    check_png_chunks,
    checked,
    head_of,
    kind_of,
    orientation_of,
)

Array = npt.NDArray[np.uint8]
Channels = Literal[1, 3, 4] | None

MAX_PIXELS = 1 << 28
"""Pictures of more pixels are refused unless a caller allows more."""

_COLOURS = {1: "GRAY", 3: "RGB", 4: "RGBA"}
_JPEG_END = b"\xff\xd9"
_FORMATS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")

USUAL_QUALITY = 95

_QUALITIES = {
    ".jpg": ("IMWRITE_JPEG_QUALITY", 1, 100),
    ".jpeg": ("IMWRITE_JPEG_QUALITY", 1, 100),
    ".webp": ("IMWRITE_WEBP_QUALITY", 1, 100),
    ".png": ("IMWRITE_PNG_COMPRESSION", 0, 9),
}
"""By suffix: OpenCV's option, the least quality and the most."""


@cache
def opencv() -> Any:
    """Return OpenCV.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    needed = "decoding pictures needs OpenCV"
    return extra_module("cv2", needed, "opencv-python-headless", "images")


@cache
def _pillow() -> Any:
    needed = "pictures other than JPEG and PNG need Pillow"
    return extra_module("PIL.Image", needed, "pillow", "images")


@cache
def _simplejpeg() -> Any:
    """Return simplejpeg; None where it is not installed."""
    return import_optional("simplejpeg")


def picture_head(data: bytes | memoryview) -> PictureHead:
    """Return what a whole encoded picture is, without decoding it.

    Raises
    ------
    PictureError
        If it is not a picture.
    """
    head = head_of(data)
    return _foreign_head(data) if head is None else head


def _foreign_head(data: bytes | memoryview) -> PictureHead:
    """Let Pillow, which reads headers only, tell the size of what is neither JPEG nor PNG."""
    try:
        with _pillow().open(io.BytesIO(data)) as image:
            (width, height), bands = image.size, image.getbands()
            alpha = "A" in bands or "transparency" in image.info
            grey = image.mode in ("1", "L", "I", "F") or image.mode.startswith("I;16")
            turn = _foreign_orientation(image)
    except MissingExtraError:
        raise
    except _pillow().DecompressionBombError as error:
        raise PictureError(f"it claims more pixels than Pillow decodes: {error}") from error
    except Exception as error:  # what Pillow makes of damage is nearly any of them
        raise PictureError(f"Pillow does not open it as a picture ({_words(data)})") from error
    channels = 4 if alpha else 1 if grey else 3
    return checked(PictureHead(kind_of(data) or "picture", height, width, channels, turn))


def _foreign_orientation(image: Any) -> int:
    """Return what the EXIF data of a WebP say; decoders turn a TIFF themselves."""
    exif = image.info.get("exif", b"") if image.format == "WEBP" else b""
    return orientation_of(memoryview(exif.removeprefix(b"Exif\0\0")))


def _words(data: bytes | memoryview) -> str:
    return f"{len(data):,} bytes, beginning with {bytes(data[:8])!r}" if len(data) else "no bytes"


def decode(
    data: bytes | memoryview,
    channels: Channels = None,
    *,
    upright: bool = True,
    max_pixels: int = MAX_PIXELS,
    whole: bool = True,
) -> Array:
    """Decode a picture.

    Parameters
    ----------
    data : bytes-like
        The encoded picture.
    channels : {None, 1, 3, 4}
        As stored; grey (of a colour JPEG its luma plane), colour (alpha left out, grey three
        times), or colour with alpha (opaque where there is none).
    upright : bool
        Turn it as its EXIF data say.
    max_pixels : int
        Larger pictures are refused by what their header claims.
    whole : bool
        Refuse a JPEG that was cut short; else what is missing is grey.

    Returns
    -------
    uint8 array (height, width, channel)
        C-contiguous. Sixteen bits a channel are cut to eight.

    Raises
    ------
    PictureError
        If it is not a picture, damaged, or too large.
    """
    head = picture_head(data)
    check_size(head, max_pixels)
    if head.kind == "jpeg" and not _ends(data, head.body):
        if whole:
            raise PictureError("the JPEG is cut short: it has no end marker")
        data = bytes(data) + _JPEG_END  # else some versions of OpenCV refuse it
    wanted = head.channels if channels is None else channels
    image = _decoded(data, head, wanted)
    if image.shape[:2] != (head.height, head.width):
        raise PictureError(
            f"its header says {head.height} x {head.width} pixels, but it has {image.shape[:2]}"
        )
    image = _with_channels(image, wanted)
    return turned(image, head.orientation) if upright else image


def decode_plain(
    pictures: Sequence[memoryview],
    outs: Sequence[Array],
    channels: Channels = None,
    *,
    upright: bool = True,
    max_pixels: int = MAX_PIXELS,
) -> list[int]:
    """Decode what are upright JPEGs of the right size, directly to their place.

    Nearly all pictures of a dataset are. All headers are looked at first, then nothing is
    done but decode: what is done between two pictures finds the caches full of the last one.

    Parameters
    ----------
    pictures : sequence of bytes-like
    outs : sequence of C-contiguous uint8 arrays
        Where each goes, if it has that shape.
    channels, upright, max_pixels
        See :func:`decode`.

    Returns
    -------
    list of int
        The numbers of the others: :func:`decode` does them, or reports what they lack.
    """
    if _simplejpeg() is None:
        return list(range(len(pictures)))
    others, decode_jpeg = [], _simplejpeg().decode_jpeg
    colours = [
        _plain_colours(data, out.shape, channels, upright, max_pixels)
        for data, out in zip(pictures, outs, strict=True)
    ]
    for number, (data, out, colour) in enumerate(zip(pictures, outs, colours, strict=True)):
        try:
            if colour and decode_jpeg(data, colour, strict=False, buffer=out).shape == out.shape:
                continue
        except ValueError:  # damage that another library may overlook
            pass
        others.append(number)
    return others


def _plain_colours(
    data: memoryview, shape: tuple[int, ...], channels: Channels, upright: bool, max_pixels: int
) -> str | None:
    """Return the colours to decode a JPEG to that needs no more than that; None for others."""
    try:
        head = head_of(data)
    except PictureError:
        return None
    if head is None or head.kind != "jpeg" or (upright and head.orientation != 1):
        return None
    wanted = head.channels if channels is None else channels
    plain = shape == (head.height, head.width, wanted) and head.height * head.width <= max_pixels
    return _COLOURS[wanted] if plain and _ends(data, head.body) else None


def _ends(data: bytes | memoryview, body: int) -> bool:
    """Whether a JPEG has an end marker behind its header; nearly always in its last bytes."""
    if len(data) > body + 2 and data[-1] == 0xD9 and data[-2] == 0xFF:
        return True
    tail = bytes(data[max(body, len(data) - 64) :])
    return _JPEG_END in tail or _JPEG_END in bytes(data[body:])


def check_size(head: PictureHead, max_pixels: int) -> None:
    """Raise PictureError where a picture claims more than `max_pixels`."""
    if head.height * head.width > max_pixels:
        raise PictureError(
            f"it claims {head.height:,} x {head.width:,} pixels, more than the {max_pixels:,} that "
            "are allowed; allow more with max_pixels="
        )


def _decoded(data: bytes | memoryview, head: PictureHead, channels: int) -> Array:
    if head.kind == "jpeg" and _simplejpeg() is not None:
        with contextlib.suppress(ValueError):  # damage that another library may overlook
            found: Array = _simplejpeg().decode_jpeg(data, _COLOURS[channels], strict=False)
            return found
    if head.kind == "png":
        check_png_chunks(data)
    if head.kind == "tiff" and head.channels == 4:
        return _by_pillow(data, head)  # OpenCV multiplies the colours by alpha, and keeps that
    cv2 = opencv()
    flags = {1: cv2.IMREAD_GRAYSCALE, 3: cv2.IMREAD_COLOR_RGB}.get(channels, cv2.IMREAD_UNCHANGED)
    if flags != cv2.IMREAD_UNCHANGED:
        flags |= cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise PictureError(f"it cannot be decoded: {error.err}") from error
    if image is None:
        image = _by_pillow(data, head)
    elif flags == cv2.IMREAD_UNCHANGED:
        image = _from_unchanged(image)
    pixels: Array = image if image.ndim == 3 else image[:, :, np.newaxis]
    return pixels


def _from_unchanged(image: npt.NDArray[Any]) -> Array:
    """Cut to eight bits, and put channels from blue, green, red into order."""
    cv2 = opencv()
    if image.dtype == np.uint16:
        image = (image >> 8).astype(np.uint8)
    if image.dtype != np.uint8:
        raise PictureError(f"its values are {image.dtype}, no bytes or words")
    if image.ndim == 3 and image.shape[2] >= 3:
        codes = {3: cv2.COLOR_BGR2RGB, 4: cv2.COLOR_BGRA2RGBA}
        image = cv2.cvtColor(image, codes[image.shape[2]])
    return image


def _by_pillow(data: bytes | memoryview, head: PictureHead) -> Array:
    """Decode what OpenCV does not know, or cannot."""
    if head.kind in ("jpeg", "png"):
        raise PictureError(f"the {head.kind.upper()} is damaged")
    mode = {1: "L", 3: "RGB", 4: "RGBA"}[head.channels]
    try:
        with _pillow().open(io.BytesIO(data)) as image:
            if image.mode in ("F", "I"):  # Pillow would cut them off at 255
                raise PictureError("its values are of 32 bits, no bytes or words")
            return np.array(image.convert(mode))
    except PictureError:
        raise
    except Exception as error:
        raise PictureError(f"the {head.kind} cannot be decoded: {error}") from error


def _with_channels(image: Array, channels: int) -> Array:
    found = image.shape[2]
    if found == channels:
        return image
    cv2 = opencv()
    codes = {
        (1, 3): cv2.COLOR_GRAY2RGB,
        (1, 4): cv2.COLOR_GRAY2RGBA,
        (3, 4): cv2.COLOR_RGB2RGBA,
        (4, 3): cv2.COLOR_RGBA2RGB,
        (3, 1): cv2.COLOR_RGB2GRAY,
        (4, 1): cv2.COLOR_RGBA2GRAY,
    }
    changed: Array = cv2.cvtColor(image, codes[found, channels])
    return changed if changed.ndim == 3 else changed[:, :, np.newaxis]


def turned(image: Array, orientation: int) -> Array:
    """Turn a picture upright.

    Parameters
    ----------
    image : array (height, width, ...)
    orientation : int
        As EXIF counts: 1 is upright, 3 upside down, 6 and 8 lie on a side; 2, 4, 5 and 7
        are mirrored too.

    Examples
    --------
    >>> turned(np.array([[1, 2, 3]], np.uint8), 6).tolist()
    [[1], [2], [3]]
    """
    if orientation == 1:
        return image
    if orientation >= 5:
        image = image.swapaxes(0, 1)
    rows = slice(None, None, -1 if orientation in (3, 4, 7, 8) else 1)
    columns = slice(None, None, -1 if orientation in (2, 3, 6, 7) else 1)
    return np.ascontiguousarray(image[rows, columns])


def encode(image: npt.ArrayLike, format: str = ".jpg", quality: int | None = None) -> bytes:
    """Encode a picture.

    Parameters
    ----------
    image : uint8 array (height, width) or (height, width, channel)
        One, three (red, green, blue) or four channels.
    format : str
        By suffix: ".jpg", ".png", ".webp", ".bmp", ".tiff".
    quality : int, optional
        Of JPEG and WebP, 1 to 100 (95 by default); of PNG how hard to compress, 0 to 9.

    Raises
    ------
    ArrayError
        If the array is not a picture, or the format is unknown, cannot hold it, or has no such
        quality.
    """
    cv2 = opencv()
    pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    known = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if pixels.dtype != np.uint8 or not known or not pixels.size:
        raise ArrayError(
            f"an array of {pixels.dtype} with shape {pixels.shape} is not a picture; pass uint8 by "
            "(height, width) or (height, width, 1, 3 or 4 channels)"
        )
    suffix = format.lower()
    if suffix not in _FORMATS:
        raise ArrayError(f"format={format!r} must be one of {', '.join(map(repr, _FORMATS))}")
    options = _options(suffix, quality)
    if pixels.ndim == 3:
        codes = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
        pixels = cv2.cvtColor(np.ascontiguousarray(pixels), codes[pixels.shape[2]])
    try:
        done, encoded = cv2.imencode(suffix, np.ascontiguousarray(pixels), options)
    except cv2.error as error:
        raise ArrayError(f"a picture {pixels.shape} as {format}: {error.err}") from error
    if not done:
        raise ArrayError(f"a picture {pixels.shape} cannot be encoded as {format}")
    return bytes(encoded)


def _options(suffix: str, quality: Any) -> list[int]:
    """Return the options of OpenCV; it would clip a wrong quality, and write to standard error."""
    flag, least, most = _QUALITIES.get(suffix, ("", 0, 0))
    if not flag or (quality is None and suffix == ".png"):
        return []
    value = USUAL_QUALITY if quality is None else quality
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (whole and least <= value <= most):
        raise ArrayError(f"quality={value!r}: of {suffix} it is a whole number, {least} to {most}")
    return [getattr(opencv(), flag), value]
