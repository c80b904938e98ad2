"""What the first bytes of an encoded picture tell: its kind, size, channels and orientation.

Pure Python over bytes, so that shapes are known, and absurd ones refused, before any
library is asked to decode. JPEG and PNG are taken apart here, because there are millions
of them; of other kinds only the magic bytes are known.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

LONGEST = (1 << 31) - 1
"""Pixels of an edge, in any kind of picture."""

HEAD_BYTES = 1 << 10
"""So many bytes of a picture nearly always hold its size; where they do not, take all of it."""

_SEGMENT = struct.Struct(">BBH")
_SOF = struct.Struct(">BHHB")
_IHDR = struct.Struct(">IIBB")
_CHUNK = struct.Struct(">I4s")

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset([0x01, *range(0xD0, 0xD8)])
_PASSED = frozenset([0xC4, 0xDB, 0xDD, 0xE0, *range(0xE2, 0xF0), 0xFE])
"""Tables, remarks and data of applications, of which nothing is needed."""

_EXIF, _EXIF_MARKER = b"Exif\0\0", 0xE1
_ORIENTATION_TAG = 0x0112

_PNG_CHUNKS, _CHECKSUM_BYTES = 33, 4
"""Where the chunks of a PNG behind its header begin; what stands behind each."""

_PNG_CHANNELS = {0: 1, 2: 3, 3: 3, 4: 4, 6: 4}
"""By colour type; grey with alpha and palettes are decoded to colour."""

_MAGICS = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"BM", "bmp"),
    (b"GIF8", "gif"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"\0\0\0\x0cjP  \r\n\x87\n", "jpeg2000"),
    (b"\xff\x0a", "jxl"),
)


class PictureError(ValueError):
    """Bytes are no picture that can be decoded. Never leaves the formats."""


class ShortHeadError(PictureError):
    """The bytes end before the size; more of them may hold it."""


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


def kind_of(data: bytes | memoryview) -> str | None:
    """Return the kind of a picture by its magic bytes; None for none that is known.

    Examples
    --------
    >>> kind_of(b"GIF89a"), kind_of(b"id,name")
    ('gif', None)
    """
    begin = bytes(data[:16])
    for magic, kind in _MAGICS:
        if begin.startswith(magic):
            return kind
    if begin[:4] == b"RIFF" and begin[8:12] == b"WEBP":
        return "webp"
    if begin[4:12] in (b"ftypavif", b"ftypavis"):
        return "avif"
    if begin[:1] == b"P" and begin[1:2] in b"123456" and begin[2:3].isspace():
        return "pnm"
    return None


def head_of(data: bytes | memoryview) -> PictureHead | None:
    """Return what the beginning of a JPEG or PNG tells; None for other kinds.

    Raises
    ------
    ShortHeadError
        If `data` ends too early.
    PictureError
        If it tells nonsense.
    """
    if len(data) > 2 and data[0] == 0xFF and data[1] == 0xD8 and data[2] == 0xFF:
        return _jpeg(memoryview(data))
    if bytes(data[:8]) == b"\x89PNG\r\n\x1a\n":
        return _png(memoryview(data))
    return None


def _png(data: memoryview) -> PictureHead:
    if len(data) < 26:
        raise ShortHeadError("the PNG ends within its header")
    if bytes(data[12:16]) != b"IHDR":
        raise PictureError("the PNG does not begin with its header")
    width, height, _depth, colours = _IHDR.unpack_from(data, 16)
    if colours not in _PNG_CHANNELS:
        raise PictureError(f"the PNG has colour type {colours}, which does not exist")
    turn = _png_orientation(data)
    return checked(PictureHead("png", height, width, _PNG_CHANNELS[colours], turn, _PNG_CHUNKS))


def _png_orientation(data: memoryview) -> int:
    """Go from chunk to chunk until the first pixels, for EXIF data that stand before them."""
    at = _PNG_CHUNKS
    while at + _CHUNK.size <= len(data):
        length, kind = _CHUNK.unpack_from(data, at)
        begin = at + _CHUNK.size
        if kind == b"eXIf":
            if begin + length > len(data):
                break
            return orientation_of(data[begin : begin + length])
        if kind == b"IDAT":
            return 1
        at = begin + length + _CHECKSUM_BYTES
    raise ShortHeadError("the PNG ends before its pixels")


def _jpeg(data: memoryview) -> PictureHead:
    """Go from marker to marker until the frame that tells the size."""
    at, n, orientation, known = 2, len(data), 1, False
    while at + 4 <= n:
        begin, marker, length = _SEGMENT.unpack_from(data, at)
        if begin != 0xFF:
            raise PictureError(f"the JPEG has no marker at byte {at}")
        if marker in _PASSED and length > 1:
            at += 2 + length
            continue
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if marker in _ALONE:
            at += 2
            continue
        if marker in _FRAMES:
            if at + 10 > n:
                break
            _, height, width, channels = _SOF.unpack_from(data, at + 4)
            colours = 1 if channels == 1 else 3
            end = at + 2 + length
            return checked(PictureHead("jpeg", height, width, colours, orientation, end))
        if marker in (0xD9, 0xDA) or length < 2:
            raise PictureError("the JPEG has no frame before its pixels")
        if marker == _EXIF_MARKER and not known and bytes(data[at + 4 : at + 10]) == _EXIF:
            if at + 2 + length > n:
                raise ShortHeadError("the JPEG is cut within its EXIF data")
            orientation, known = orientation_of(data[at + 10 : at + 2 + length]), True
        at += 2 + length
    raise ShortHeadError("the JPEG ends before it tells its size")


def checked(head: PictureHead) -> PictureHead:
    """Refuse a size that no picture has."""
    if not (0 < head.height <= LONGEST and 0 < head.width <= LONGEST):
        raise PictureError(f"the {head.kind.upper()} is {head.height} x {head.width} pixels large")
    return head


def orientation_of(tiff: memoryview) -> int:
    """Return the orientation that EXIF data tell; 1 where they do not, or are damaged."""
    order = {b"II": "<", b"MM": ">"}.get(bytes(tiff[:2]))
    if order is None or len(tiff) < 8:
        return 1
    at = struct.unpack_from(order + "I", tiff, 4)[0]
    if at + 2 > len(tiff):
        return 1
    count = struct.unpack_from(order + "H", tiff, at)[0]
    for entry in range(at + 2, min(at + 2 + 12 * count, len(tiff) - 11), 12):
        tag, kind, n = struct.unpack_from(order + "HHI", tiff, entry)
        if tag == _ORIENTATION_TAG:
            value = struct.unpack_from(order + "H", tiff, entry + 8)[0]
            return value if kind == 3 and n == 1 and 1 <= value <= 8 else 1
    return 1
