"""How record files are opened and their pictures decoded; what a source needs to know of it.

The trade-off: pictures are resized by the shorter edge and cut out of the middle, which is
what evaluation wants; what draws at random is for :mod:`labeled.transforms`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled._validation import check_fields, whole
from labeled.errors import LoaderError
from labeled.formats.pictures import MAX_PIXELS, Array, Channels, decode, opencv
from labeled.formats.recordio.records import RecordFile, idx_stamp

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Decoding:
    """How all pictures of a dataset are decoded.

    Parameters
    ----------
    channels : {None, 1, 3, 4}
        As stored, grey, colour, colour with alpha.
    resize : int, optional
        The shorter edge becomes so long, the other keeps its proportion (rounded down).
    shape : (height, width), optional
        Cut so large out of the middle, after :attr:`resize`; a picture that is too small is
        enlarged first, until it is not.
    upright : bool
        Turn pictures as their EXIF data say.
    max_pixels : int
        Larger pictures are refused by what their header claims.
    """

    channels: Channels = None
    resize: int | None = None
    shape: tuple[int, int] | None = None
    upright: bool = True
    max_pixels: int = MAX_PIXELS

    @property
    def row_shape(self) -> tuple[int, int, int] | None:
        """The shape that every picture gets; None where that depends on the picture."""
        if self.shape is None or self.channels is None:
            return None
        return (*self.shape, self.channels)

    @property
    def resizes(self) -> bool:
        """Whether pictures are larger, for a moment, than what becomes of them."""
        return self.resize is not None or self.shape is not None

    def __call__(self, data: bytes | memoryview, out: Array | None = None) -> Array:
        """Decode a picture; see :func:`labeled.formats.pictures.decode` for `out`.

        Raises
        ------
        PictureError
            If it is none, or too large.
        """
        place = None if self.resizes else out
        image = decode(
            data, self.channels, upright=self.upright, max_pixels=self.max_pixels, out=place
        )
        if self.resize is not None:
            height, width = image.shape[:2]
            image = resized(image, *shorter_edge(height, width, self.resize))
        return image if self.shape is None else middle(image, *self.shape)

    def shapes(self, sizes: npt.NDArray[np.int32]) -> Rows:
        """Return the shapes of decoded pictures (n, 3), from their sizes as stored.

        Pictures that will be refused have shape (0, 0, 0).
        """
        height, width, channels, turn = sizes.astype(np.int64).T
        good = (height * width > 0) & (height * width <= self.max_pixels)
        if self.upright:
            height, width = np.where(turn >= 5, (width, height), (height, width))
        if self.resize is not None:
            least = np.maximum(1, np.minimum(height, width))
            height = np.maximum(1, self.resize * height // least)
            width = np.maximum(1, self.resize * width // least)
        if self.shape is not None:
            height, width = (np.full(len(sizes), side) for side in self.shape)
        if self.channels is not None:
            channels = np.full(len(sizes), self.channels)
        shapes: Rows = np.stack((height, width, channels), axis=1) * good[:, np.newaxis]
        return shapes


def shorter_edge(height: int, width: int, edge: int) -> tuple[int, int]:
    """Return the size of a picture whose shorter edge becomes `edge`.

    Examples
    --------
    >>> shorter_edge(97, 131, 60)
    (60, 81)
    """
    least = min(height, width)
    return max(1, edge * height // least), max(1, edge * width // least)


def resized(image: Array, height: int, width: int) -> Array:
    """Resize a picture: averaging where it shrinks, cubic where it grows, linear in between."""
    if image.shape[:2] == (height, width):
        return image
    cv2 = opencv()
    if height <= image.shape[0] and width <= image.shape[1]:
        how = cv2.INTER_AREA
    elif height >= image.shape[0] and width >= image.shape[1]:
        how = cv2.INTER_CUBIC
    else:
        how = cv2.INTER_LINEAR
    out: Array = cv2.resize(image, (width, height), interpolation=how)
    return out.reshape(height, width, image.shape[2])


def middle(image: Array, height: int, width: int) -> Array:
    """Cut (height, width) out of the middle, enlarging a picture that is too small.

    Examples
    --------
    >>> middle(np.arange(5, dtype=np.uint8).reshape(1, 5, 1), 1, 2).ravel().tolist()
    [1, 2]
    """
    rows, columns = image.shape[:2]
    if rows < height or columns < width:
        factor = max(height / rows, width / columns)
        image = resized(image, max(height, int(factor * rows)), max(width, int(factor * columns)))
        rows, columns = image.shape[:2]
    y, x = (rows - height) // 2, (columns - width) // 2
    return np.ascontiguousarray(image[y : y + height, x : x + width])


Content = Literal["auto", "images", "labelled", "raw"]


@dataclass(frozen=True)
class RecordOptions:
    """What :func:`labeled.open_dataset` takes for record files alone.

    Parameters
    ----------
    content : {"auto", "images", "labelled", "raw"}
        What records hold: pictures behind a header of labels and ids, any bytes behind such a
        header, or any bytes. By default the first records tell pictures from the rest, which
        is "raw".
    index : "auto", path, list of paths or False
        Where records begin: from the ``.idx`` of the same name, if there is one; from these
        files, one for each; or by going through all records.
    channels : {1, 3, 4}, optional
        Decode pictures to grey, colour (red, green, blue), or colour with alpha; else they
        keep what they have.
    resize : int, optional
        Resize pictures so that their shorter edge is so long.
    shape : (height, width), optional
        Cut so much out of the middle, after `resize`.
    upright : bool
        Turn pictures as their EXIF data say; a TIFF is turned either way.
    max_pixels : int
        Refuse larger ones by what their header claims.
    label_dtype : dtype
        Of labels; those that it cannot hold exactly are refused.
    """

    content: Content = "auto"
    index: Any = "auto"
    channels: Channels = None
    resize: int | None = None
    shape: tuple[int, int] | None = None
    upright: bool = True
    max_pixels: int = MAX_PIXELS
    label_dtype: Any = "float32"

    def __post_init__(self) -> None:
        check_fields(self, LoaderError, but=("shape",))
        for name in ("resize", "max_pixels"):
            value = getattr(self, name)
            if value is not None:
                whole(name, value, least=1, error=LoaderError)
        changed = {
            "shape": _checked_shape(self.shape),
            "index": _checked_index(self.index),
            "label_dtype": _checked_dtype(self.label_dtype),
        }
        for name, value in changed.items():
            object.__setattr__(self, name, value)

    @property
    def decoding(self) -> Decoding:
        return Decoding(self.channels, self.resize, self.shape, self.upright, self.max_pixels)


def _checked_shape(shape: Any) -> tuple[int, int] | None:
    if shape is None:
        return None
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise LoaderError(f"shape={shape!r} must be a pair (height, width)")
    height, width = (whole("shape", side, least=1, error=LoaderError) for side in shape)
    return height, width


def _checked_index(index: Any) -> Any:
    if index is False or index == "auto":
        return index
    if index is None or index is True:
        raise LoaderError(f"index={index!r} must be 'auto', False, or the path of an .idx file")
    paths = [index] if isinstance(index, str | os.PathLike) else list(index)
    return tuple(idx_stamp(path) for path in paths)


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        raise LoaderError(f"label_dtype={dtype!r} is not a dtype: {error}") from None
    if found.kind not in "iuf":
        raise LoaderError(f"label_dtype={dtype!r}: labels are numbers; give an int or a float")
    return found


@dataclass(frozen=True)
class Detail:
    """What readers of one source of a record file need to know.

    Parameters
    ----------
    records : RecordFile
    decoding : Decoding
        Of pictures.
    raw : bool
        Records have no headers.
    """

    records: RecordFile
    decoding: Decoding = field(default_factory=Decoding)
    raw: bool = False
