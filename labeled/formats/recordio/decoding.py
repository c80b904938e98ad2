"""What is made of an encoded picture: channels, orientation, size.

The trade-off: pictures are resized by the shorter edge and cut out of the middle, which is
what evaluation wants; what draws at random is for :mod:`labeled.transforms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from labeled.formats.pictures import MAX_PIXELS, Array, Channels, decode, decode_plain, opencv

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

    def __call__(self, data: bytes | memoryview) -> Array:
        """Decode a picture.

        Raises
        ------
        PictureError
            If it is none, or too large.
        """
        image = decode(data, self.channels, upright=self.upright, max_pixels=self.max_pixels)
        if self.resize is not None:
            height, width = image.shape[:2]
            image = resized(image, *shorter_edge(height, width, self.resize))
        return image if self.shape is None else middle(image, *self.shape)

    def plain(self, pictures: Sequence[memoryview], outs: Sequence[Array]) -> list[int]:
        """Decode those that need nothing else straight to `outs`; return the others' numbers."""
        if self.resizes:
            return list(range(len(pictures)))
        return decode_plain(
            pictures, outs, self.channels, upright=self.upright, max_pixels=self.max_pixels
        )

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
