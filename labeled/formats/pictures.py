"""The door to the libraries that decode and encode pictures.

JPEGs are decoded by simplejpeg, to where they belong; everything else, and what it refuses, by
Pillow, which also reads the headers of other kinds than JPEG and PNG. OpenCV encodes, and changes
pictures in pipelines.

A picture is uint8 by (height, width, channel), channels in the order red, green, blue,
alpha; grey has one. Decoding leaves the GIL, so that a loader's threads work side by side.
Pictures are turned upright here, from their EXIF data, and their size is checked before a
byte is decoded.

The trade-off: a small PNG takes two to three times as long as with OpenCV, which takes memory for
whatever a damaged one claims and knows fewer kinds. For JPEG the pixels of all libraries that build
on libjpeg-turbo are the same, bit for bit.
"""

from __future__ import annotations

import contextlib
import io
from functools import cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled._optional import extra_module, import_optional
from labeled.errors import ArrayError, MissingExtraError
from labeled.formats.picture_heads import (
    PictureError,
    PictureHead,
    checked,
    head_of,
    kind_of,
    orientation_of,
)

Array = npt.NDArray[np.uint8]
Channels = Literal[1, 3, 4] | None

MAX_PIXELS = 1 << 28
"""Pictures of more pixels are refused unless a caller allows more."""

_COLOURS, _MODES = {1: "GRAY", 3: "RGB", 4: "RGBA"}, {1: "L", 3: "RGB", 4: "RGBA"}
"""What simplejpeg and Pillow call one, three and four channels."""
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
    needed = "changing or encoding pictures needs OpenCV"
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
    out: Array | None = None,
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
    out : C-contiguous uint8 array, optional
        Filled, if the picture is a JPEG that gets this shape without being turned.

    Returns
    -------
    uint8 array (height, width, channel)
        C-contiguous; `out` if that was filled. Sixteen bits a channel are cut to eight.

    Raises
    ------
    PictureError
        If it is not a picture, damaged, or too large.
    """
    head = picture_head(data)
    if head.height * head.width > max_pixels:
        raise PictureError(
            f"it claims {head.height:,} x {head.width:,} pixels, more than the {max_pixels:,} that "
            "are allowed; allow more with max_pixels="
        )
    if head.kind == "jpeg" and not _ends(data, head.body):
        if whole:
            raise PictureError("the JPEG is cut short: it has no end marker")
        data = bytes(data) + _JPEG_END
    wanted = head.channels if channels is None else channels
    turn = head.orientation if upright else 1
    shape = (head.height, head.width, wanted)
    image = None
    if head.kind == "jpeg" and _simplejpeg() is not None:
        place = out if out is not None and out.shape == shape and turn == 1 else None
        with contextlib.suppress(ValueError):  # damage that another library may overlook
            image = _simplejpeg().decode_jpeg(data, _COLOURS[wanted], strict=False, buffer=place)
            if place is not None and image.shape == shape:
                return place
    if image is None:
        image = _by_pillow(data, head, wanted)
    if image.shape != shape:
        raise PictureError(
            f"its header says {head.height} x {head.width} pixels, but it has {image.shape[:2]}"
        )
    return turned(image, turn)


def _ends(data: bytes | memoryview, body: int) -> bool:
    """Whether a JPEG has an end marker behind its header; nearly always in its last bytes."""
    if len(data) > body + 2 and data[-1] == 0xD9 and data[-2] == 0xFF:
        return True
    return _JPEG_END in bytes(data[body:])


def _by_pillow(data: bytes | memoryview, head: PictureHead, channels: int) -> Array:
    try:
        with _pillow().open(io.BytesIO(data)) as image:
            if image.mode in ("F", "I"):  # Pillow would cut them off at 255
                raise PictureError("its values are of 32 bits, no bytes or words")
            if channels == 1:
                image.draft("L", image.size)  # the luma plane of a JPEG
            if image.mode.startswith("I;16"):
                image = _pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))
            pixels = np.array(image.convert(_MODES[channels]))
    except PictureError:
        raise
    except Exception as error:
        raise PictureError(f"the {head.kind.upper()} cannot be decoded: {error}") from error
    return pixels.reshape(*pixels.shape[:2], channels)


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
