"""The few functions of OpenCV that the old iterators called, for pictures as they are here.

Pictures are uint8 arrays (height, width, channel) with 1, 3 (R, G, B) or 4 (R, G, B, A)
channels, here as everywhere in this package. OpenCV drops a channel axis of length 1; it is put
back here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.cubic import resize_cubic
from labeled.errors import AugmentError
from labeled.formats.pictures import opencv as library
from labeled.transforms.pictures import check_size

Picture = npt.NDArray[np.uint8]

NEAREST, LINEAR, CUBIC, AREA, LANCZOS = range(5)
"""Interpolation codes, the numbers that both OpenCV and the old parameters use."""


def resize(picture: Picture, height: int, width: int, how: int) -> Picture:
    """Return a picture of another size.

    Raises
    ------
    AugmentError
        If no pixel of it, or too many, would be left.
    """
    if height < 1 or width < 1:
        raise AugmentError(
            f"a picture would become {height} x {width} pixels; ask for at least one"
        )
    check_size(height, width)
    if how == CUBIC:
        return resize_cubic(picture, height, width)
    return _with_channels(library().resize(picture, (width, height), interpolation=how))


def warp(
    picture: Picture, matrix: npt.NDArray[np.float32], height: int, width: int, how: int, fill: int
) -> Picture:
    """Return a picture under an affine map from its (x, y) to those of the result."""
    check_size(height, width)
    how = LINEAR if how == AREA else how
    cv2 = library()
    return _with_channels(
        cv2.warpAffine(
            picture, matrix, (width, height), flags=how, borderMode=cv2.BORDER_CONSTANT,
            borderValue=(fill, fill, fill),
        )
    )  # fmt: skip


def _with_channels(found: Any) -> Picture:
    picture: Picture = found[:, :, np.newaxis] if found.ndim == 2 else found
    return picture
