"""The door to the libraries that decode and encode pictures, and what the first bytes of one tell.

A picture is uint8 by (height, width, channel), channels in the order red, green, blue,
alpha; grey has one. Decoding leaves the GIL, so that a loader's threads work side by side.
The sizes of JPEG and PNG are read here, in pure Python, because there are millions of them; their
shapes are known, and absurd ones refused, before a library is asked to decode. JPEGs are turned
upright from their EXIF data.

JPEGs, and PNGs that are stored as they are wanted, are decoded by imagecodecs, JPEGs to where they
belong. Everything else, and what it refuses, is decoded by Pillow. For JPEG the pixels of all
libraries that build on libjpeg-turbo are the same, bit for bit. OpenCV encodes, and changes
pictures in pipelines.

Pillow does not do all of it, for it decodes under Python's lock (400 PNGs of 224 pixels square, two
threads: 430 to 460 ms and not 240 to 350).
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled._optional import extra_module, import_optional
from labeled._validation import integer
from labeled.errors import ArrayError, is_interrupt

Array = npt.NDArray[np.uint8]
Channels = Literal[1, 3, 4] | None
Data = bytes | memoryview

# names of files that are taken for pictures
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")

MAX_PIXELS = 1 << 28  # pictures of more pixels are refused unless a caller allows more

LONGEST = (1 << 31) - 1  # pixels of an edge, in any kind of picture

# so many bytes of a picture nearly always hold its size; where they do not, take all of it
HEAD_BYTES = 1 << 10

# what imagecodecs and Pillow call one, three and four channels
_COLOURS, _MODES = {1: "GRAYSCALE", 3: "RGB", 4: "RGBA"}, {1: "L", 3: "RGB", 4: "RGBA"}

_SEGMENT, _SOF = struct.Struct(">BBH"), struct.Struct(">BHHB")
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset([0x01, *range(0xD0, 0xD8)])
_EXIF, _EXIF_MARKER, _ORIENTATION = b"Exif\0\0", 0xE1, 0x0112
_JPEG_END = b"\xff\xd9"

_PNG, _IHDR, _CHUNK = b"\x89PNG\r\n\x1a\n", struct.Struct(">IIBB"), struct.Struct(">I4s")
_INTERLACED = slice(28, 29)  # of a PNG, which byte says so
# by colour type; grey with alpha and palettes are decoded to colour
_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 4, 6: 4}

# what pictures of each kind begin with
_KINDS = re.compile(
    rb"""(?xs)
    (?P<jpeg> \xff\xd8\xff) | (?P<png> \x89PNG\r\n\x1a\n) | (?P<bmp> BM) | (?P<gif> GIF8)
    | (?P<tiff> II\*\0 | MM\0\*) | (?P<jpeg2000> \0\0\0\x0cjP\ \ \r\n\x87\n) | (?P<jxl> \xff\n)
    | (?P<webp> RIFF....WEBP) | (?P<avif> ....ftypavi[fs]) | (?P<pnm> P[1-6]\s)
    """
)

# by suffix: OpenCV's option, the least quality, the most and the usual one
_QUALITIES: dict[str, tuple[str, int, int, int | None]] = {
    ".jpg": ("IMWRITE_JPEG_QUALITY", 1, 100, 95),
    ".jpeg": ("IMWRITE_JPEG_QUALITY", 1, 100, 95),
    ".webp": ("IMWRITE_WEBP_QUALITY", 1, 100, 95),
    ".png": ("IMWRITE_PNG_COMPRESSION", 0, 9, None),
    **dict.fromkeys((".bmp", ".tif", ".tiff"), ("", 0, 0, None)),
}


class PictureError(ValueError):
    """Bytes are no picture that can be decoded. Never leaves the formats."""


class ShortHeadError(PictureError):
    """The bytes end before the size; more of them may hold it."""


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
def pillow() -> Any:
    """Return the module `PIL.Image`; raises MissingExtraError where it is not installed."""
    needed = "pictures other than JPEG and PNG, and old transforms, need Pillow"
    return extra_module("PIL.Image", needed, "pillow", "images")


@cache
def faster(name: str) -> Any:
    """Return a library that spares others some work; None where it is not installed."""
    return import_optional(name)


@cache
def imagecodecs() -> Any:
    """Return imagecodecs; None where it is not installed, or was built without JPEG or PNG."""
    library = faster("imagecodecs")
    whole = library is not None and library.JPEG8.available and library.PNG.available
    return library if whole else None


# what the first bytes tell


class PictureHead(NamedTuple):
    """What a picture is, before it is decoded.

    Parameters
    ----------
    kind : str
    height, width : int
        As stored, before it is turned upright.
    channels : int
        1 grey, 3 colour, 4 with alpha.
    orientation : int
        1 to 8, as EXIF counts; 1 is upright.
    body : int
        Where the part of the bytes that holds pixels begins.
    """

    kind: str
    height: int
    width: int
    channels: int
    orientation: int = 1
    body: int = 0

    def shape(self) -> tuple[int, int, int]:
        """Return (height, width, channels), once it is turned upright."""
        if self.orientation >= 5:
            return self.width, self.height, self.channels
        return self.height, self.width, self.channels

    def checked(self) -> PictureHead:
        """Refuse a size that no picture has."""
        if not (0 < self.height <= LONGEST and 0 < self.width <= LONGEST):
            size = f"{self.height} x {self.width}"
            raise PictureError(f"the {self.kind.upper()} is {size} pixels large")
        return self


def kind_of(data: Data) -> str | None:
    """Return the kind of a picture by its magic bytes; None for none that is known.

    Examples
    --------
    >>> kind_of(b"GIF89a"), kind_of(b"id,name")
    ('gif', None)
    """
    found = _KINDS.match(data)
    return None if found is None else found.lastgroup


def head_of(data: Data) -> PictureHead | None:
    """Return what the beginning of a JPEG or PNG tells; None for other kinds.

    Raises
    ------
    ShortHeadError
        If `data` ends too early.
    PictureError
        If it tells nonsense.
    """
    begin = bytes(data[:26])
    if begin.startswith(b"\xff\xd8\xff"):
        return _jpeg_head(memoryview(data))
    if not begin.startswith(_PNG):
        return None
    if len(begin) < 26:
        raise ShortHeadError("the PNG ends within its header")
    width, height, _depth, colours = _IHDR.unpack_from(begin, 16)
    if begin[12:16] != b"IHDR" or colours not in _PNG_CHANNELS:
        raise PictureError("the PNG does not begin with a header that could be one")
    return PictureHead("png", height, width, _PNG_CHANNELS[colours]).checked()


def _jpeg_head(data: memoryview) -> PictureHead:
    """Go from marker to marker until the frame that tells the size."""
    at, n, turn = 2, len(data), 0
    while at + 4 <= n:
        begin, marker, length = _SEGMENT.unpack_from(data, at)
        end = at + 2 + length
        if begin != 0xFF:
            raise PictureError(f"the JPEG has no marker at byte {at}")
        if marker in _FRAMES:
            if at + 10 > n:
                break
            _, height, width, channels = _SOF.unpack_from(data, at + 4)
            colours = 1 if channels == 1 else 3
            return PictureHead("jpeg", height, width, colours, turn or 1, end).checked()
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _ALONE:
            at += 2
        elif marker in (0xD9, 0xDA) or length < 2:
            raise PictureError("the JPEG has no frame before its pixels")
        else:
            if marker == _EXIF_MARKER and not turn and data[at + 4 : at + 10] == _EXIF:
                if end > n:
                    break
                turn = _orientation_of(bytes(data[at + 4 : end]))
            at = end
    raise ShortHeadError("the JPEG ends before it tells its size")


def _orientation_of(exif: bytes) -> int:
    """Return the orientation that EXIF data tell; 1 where they do not, or are damaged."""
    found = pillow().Exif()
    with contextlib.suppress(Exception):  # what Pillow makes of damage is nearly any error
        found.load(exif)
        turn = found.get(_ORIENTATION)
        return turn if turn in range(1, 9) else 1
    return 1


def picture_head(data: Data) -> PictureHead:
    """Return what a whole encoded picture is, without decoding it.

    Raises
    ------
    PictureError
        If it is not a picture.
    """
    head = head_of(data)
    if head is not None:
        return head
    library = pillow()
    try:  # Pillow reads headers only
        with library.open(io.BytesIO(data)) as image:
            (width, height), bands = image.size, image.getbands()
            alpha = "A" in bands or "transparency" in image.info
            grey = image.mode in ("1", "L", "I", "F") or image.mode.startswith("I;16")
            is_turned = image.format == "WEBP" and "exif" in image.info  # a TIFF turns itself
            turn = _orientation_of(image.info["exif"]) if is_turned else 1
    except library.DecompressionBombError as error:
        raise PictureError(f"it claims more pixels than Pillow decodes: {error}") from error
    except Exception as error:
        if is_interrupt(error):
            raise
        what = f"{len(data):,} bytes, beginning with {bytes(data[:8])!r}" if data else "no bytes"
        raise PictureError(f"Pillow does not open it as a picture ({what})") from error
    channels = 4 if alpha else 1 if grey else 3
    return PictureHead(kind_of(data) or "picture", height, width, channels, turn).checked()


def has_more_frames(data: Data) -> bool:
    """Whether a picture (GIF, TIFF, WebP) has frames or pages after the first, which is decoded."""
    with contextlib.suppress(EOFError, OSError, SyntaxError, ValueError, struct.error):
        if head_of(data) is None:
            with pillow().open(io.BytesIO(data)) as image:
                return bool(getattr(image, "is_animated", False))
    return False


# decoding


def decode(
    data: Data,
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
    if head.height * head.width > max_pixels:
        raise PictureError(
            f"it claims {head.height:,} x {head.width:,} pixels, more than the {max_pixels:,} that "
            "are allowed; allow more with max_pixels="
        )
    if head.kind == "jpeg" and bytes(data).rfind(_JPEG_END, head.body) < 0:
        if whole:
            raise PictureError("the JPEG is cut short: it has no end marker")
        data = bytes(data) + _JPEG_END
    wanted = head.channels if channels is None else channels
    turn = head.orientation if upright else 1
    shape = (head.height, head.width, wanted)
    image = _by_imagecodecs(data, head, wanted)
    if image is None or image.shape != shape:
        image = _by_pillow(data, head, wanted)
    if image.shape != shape:
        raise PictureError(
            f"its header says {head.height} x {head.width} pixels, but it has {image.shape[:2]}"
        )
    return turned(image, turn)


def jpegs_into(pictures: Sequence[Data], outs: Sequence[Array]) -> list[int]:
    """Decode JPEGs that need not be turned, each right to where it belongs.

    Nothing else is done between two of them: decoding drives all other code out of the caches.

    Parameters
    ----------
    pictures : sequence of bytes-like
    outs : sequence of C-contiguous uint8 arrays (height, width, channel)

    Returns
    -------
    list of int
        The numbers of those that are not whole JPEGs of these shapes, or all without imagecodecs:
        :func:`decode` does them, or says what is wrong.
    """
    library, others = imagecodecs(), list[int]()
    if library is None:
        return list(range(len(pictures)))
    decode_jpeg, refused = library.jpeg8_decode, (library.Jpeg8Error, ValueError)
    colours = [
        _COLOURS[out.shape[2]] if data[-2:] == _JPEG_END else None
        for data, out in zip(pictures, outs, strict=True)
    ]
    for number, (data, colour, out) in enumerate(zip(pictures, colours, outs, strict=True)):
        try:
            if colour:
                decode_jpeg(data, outcolorspace=colour, out=out)
                continue
        except refused:  # another shape, or damage that another library may overlook
            pass
        others.append(number)
    return others


def _by_imagecodecs(data: Data, head: PictureHead, channels: int) -> Array | None:
    """Decode a JPEG, or a PNG of eight bits a channel as it is stored; None for all else."""
    library = imagecodecs()
    if library is None:
        return None
    try:
        if head.kind == "jpeg":
            image = library.jpeg8_decode(data, outcolorspace=_COLOURS[channels])
        elif head.kind == "png" and channels == head.channels and _is_plain(data):
            image = library.png_decode(data)
        else:
            return None
    # damage that another library may overlook, or that is described in bytes that are not UTF-8
    except (library.Jpeg8Error, library.PngError, ValueError):
        return None
    if image.dtype != np.uint8:
        return None
    return np.asarray(image.reshape(*image.shape[:2], -1))


def _is_plain(data: Data) -> bool:
    """Whether a PNG is for imagecodecs, which logs a warning for each that is interlaced.

    No chunk may claim more than is there, either: libraries take memory for it first.
    """
    if data[_INTERLACED] != b"\0":
        return False
    at = len(_PNG)
    while at + 12 <= len(data):
        n_bytes, kind = _CHUNK.unpack_from(data, at)
        if kind == b"IEND":
            return bool(n_bytes == 0)
        at += 12 + n_bytes
    return False


def _by_pillow(data: Data, head: PictureHead, channels: int) -> Array:
    try:
        with pillow().open(io.BytesIO(data)) as image:
            if image.mode in ("F", "I"):  # Pillow would cut them off at 255
                raise ValueError("its values are of 32 bits, no bytes or words")
            if channels == 1:
                image.draft("L", image.size)  # the luma plane of a JPEG
            if image.mode.startswith("I;16"):
                image = pillow().fromarray((np.asarray(image) >> 8).astype(np.uint8))
            pixels = np.array(image.convert(_MODES[channels]))
    except Exception as error:
        if is_interrupt(error):
            raise
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


# encoding


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
    cv2, suffix = opencv(), format.lower()
    pixels = np.asarray(image)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    known = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))
    if pixels.dtype != np.uint8 or not known or not pixels.size:
        raise ArrayError(
            f"an array of {pixels.dtype} with shape {pixels.shape} is not a picture; pass uint8 by "
            "(height, width) or (height, width, 1, 3 or 4 channels)"
        )
    if suffix not in _QUALITIES:
        raise ArrayError(f"format={format!r} must be one of {', '.join(map(repr, _QUALITIES))}")
    flag, least, most, value = _QUALITIES[suffix]
    if quality is not None:  # OpenCV would clip it
        value = integer("quality", quality, least=least, most=most, error=ArrayError)
    options = [] if value is None or not flag else [getattr(cv2, flag), value]
    if pixels.ndim == 3:
        codes = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}
        pixels = cv2.cvtColor(np.ascontiguousarray(pixels), codes[pixels.shape[2]])
    done, encoded = False, b""
    with contextlib.suppress(cv2.error):
        done, encoded = cv2.imencode(suffix, np.ascontiguousarray(pixels), options)
    if not done:
        raise ArrayError(f"a picture {pixels.shape} cannot be encoded as {format}")
    return bytes(encoded)
