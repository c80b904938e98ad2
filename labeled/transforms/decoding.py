"""Encoded pictures to pixels: the first step where a source holds JPEGs and the like as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import check_fields
from labeled.dims import EXAMPLE_DIMS
from labeled.errors import AugmentError, UnfitPictureError
from labeled.formats.picture_heads import PictureError
from labeled.formats.pictures import Channels, decode

DIMS = ("height", "width", "channel")


@dataclass(frozen=True)
class Decode:
    """Decode pictures that a source holds as rows of bytes: JPEG, PNG and what Pillow opens.

    It goes before an `Augment`, whose pictures may differ in size. Needs the extra
    ``labeled[images]``.

    Parameters
    ----------
    channels : {3, 1, 4, None}
        Colour, grey, colour with alpha, or as stored.
    upright : bool
        Turn pictures as their EXIF data say; a TIFF is turned either way.

    Examples
    --------
    >>> import io
    >>> from PIL import Image
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 3), "red").save(file, "png")
    >>> picture = Decode()(np.frombuffer(file.getvalue(), np.uint8))
    >>> dict(picture.sizes), picture.values[0, 0].tolist()
    ({'height': 3, 'width': 4, 'channel': 3}, [255, 0, 0])
    """

    channels: Channels = 3
    upright: bool = True

    def __post_init__(self) -> None:
        check_fields(self, AugmentError)

    def __call__(self, encoded: Any, *, rows: npt.ArrayLike | None = None) -> Any:
        """Return the pixels.

        Parameters
        ----------
        encoded : DataArray, array or list
            The bytes of one picture, or a batch of them: each a vector of uint8.
        rows : int or array of int, optional
            The row of every picture, for messages.

        Returns
        -------
        DataArray, uint8
            One picture (height, width, channel), or a batch of them as a loader hands out
            examples of different shapes.

        Raises
        ------
        AugmentError
            If one is not a picture, or damaged; names its row.
        """
        given = encoded.data if isinstance(encoded, xr.DataArray) else encoded
        if isinstance(given, bytes) or getattr(given, "dtype", None) == np.uint8:
            return xr.DataArray(self._pixels(given, rows), dims=DIMS)
        numbers = range(len(given)) if rows is None else np.atleast_1d(rows).tolist()
        made = np.empty(len(given), object)
        for place, (one, row) in enumerate(zip(given, numbers, strict=True)):
            made[place] = self._pixels(one, row)
        dims: Sequence[Any] = encoded.dims if isinstance(encoded, xr.DataArray) else ("batch",)
        batch = xr.DataArray(made, dims=dims)
        batch.encoding = {EXAMPLE_DIMS: DIMS}
        return batch

    def _pixels(self, one: Any, row: Any) -> npt.NDArray[np.uint8]:
        data = one.data if isinstance(one, xr.DataArray) else one
        if not isinstance(data, bytes):
            data = np.asarray(data)
            if data.ndim != 1 or data.dtype != np.uint8:
                raise AugmentError(
                    f"encoded pictures are rows of uint8; found {data.dtype} of shape {data.shape}"
                )
            data = np.ascontiguousarray(data).data
        try:
            pixels: npt.NDArray[np.uint8] = decode(data, self.channels, upright=self.upright)
        except PictureError as error:
            at = "" if row is None else f" of row {row}"
            raise UnfitPictureError(f"the picture{at} cannot be decoded: {error}") from error
        return pixels
