"""Rows of a design matrix as images, channel after channel: the order ``('c', 0, 1)``.

This is not the order in which spaces flatten, ``(0, 1, 'c')``. Both stood side by side in
the old code, and so they do here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled.compat.pylearn2.errors import OldValueError
from labeled.compat.pylearn2.space import Conv2DSpace, VectorSpace

Axes = tuple[str | int, ...]
ROW_AXES: Axes = ("b", "c", 0, 1)
WEIGHTS_AXES: Axes = ("b", 0, 1, "c")


class DefaultViewConverter:
    """Between rows of a design matrix and images in `axes`.

    Parameters
    ----------
    shape : (rows, columns, channels)
    axes : sequence of four
        Of the images.

    Examples
    --------
    >>> converter = DefaultViewConverter((1, 2, 3))
    >>> converter.design_mat_to_topo_view(np.arange(6).reshape(1, 6))[0, 0]
    array([[0, 2, 4],
           [1, 3, 5]])
    """

    def __init__(self, shape: Sequence[int], axes: Sequence[str | int] = WEIGHTS_AXES) -> None:
        self.shape = list(shape)
        if len(self.shape) != 3:
            raise OldValueError(f"shape is (rows, columns, channels), found {self.shape}")
        self.pixels_per_channel = math.prod(self.shape[:-1])
        self.set_axes(axes)

    @property
    def _row_width(self) -> int:
        return self.pixels_per_channel * self.shape[-1]

    def view_shape(self) -> list[int]:
        """Return (rows, columns, channels)."""
        return self.shape

    def set_axes(self, axes: Sequence[str | int]) -> None:
        """Take another axis order for images."""
        rows, columns, channels = self.shape
        space = Conv2DSpace((rows, columns), num_channels=channels, axes=axes, dtype=None)
        self.axes: Axes = tuple(axes)
        self.topo_space = space

    def design_mat_to_topo_view(self, design_matrix: Any) -> Any:
        """Return rows (batch, feature) as images in :attr:`axes`: a view where that is possible."""
        if design_matrix.ndim != 2 or design_matrix.shape[1] != self._row_width:
            raise OldValueError(
                f"rows of {self._row_width} become images of {self.shape}; the design matrix has "
                f"shape {design_matrix.shape}"
            )
        rows, columns, channels = self.shape
        images = design_matrix.reshape(design_matrix.shape[0], channels, rows, columns)
        return Conv2DSpace.convert(images, ROW_AXES, self.axes)

    def design_mat_to_weights_view(self, design_matrix: Any) -> Any:
        """Return rows as images in ``('b', 0, 1, 'c')``, whatever :attr:`axes` says."""
        images = self.design_mat_to_topo_view(design_matrix)
        return Conv2DSpace.convert(images, self.axes, WEIGHTS_AXES)

    def topo_view_to_design_mat(self, topo_array: Any) -> Any:
        """Return images in :attr:`axes` as rows: a view where that is possible."""
        images = Conv2DSpace.convert(topo_array, self.axes, ROW_AXES)
        rows, columns, channels = self.shape
        if images.shape[1:] != (channels, rows, columns):
            raise OldValueError(
                f"images of {self.shape} in axes {self.axes} are expected; found shape "
                f"{topo_array.shape}"
            )
        return images.reshape(images.shape[0], self._row_width)

    def get_formatted_batch(self, batch: Any, dspace: Any) -> Any:
        """Return rows laid out for a `VectorSpace` or a `Conv2DSpace`."""
        if isinstance(dspace, VectorSpace):
            return VectorSpace(batch.shape[1], dtype=None).np_format_as(batch, dspace)
        if isinstance(dspace, Conv2DSpace):
            images = self.design_mat_to_topo_view(batch)
            return self.topo_space.np_format_as(images, dspace)
        raise OldValueError(f"rows become a VectorSpace or a Conv2DSpace, not {dspace}")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.set_axes(state.get("axes", WEIGHTS_AXES))  # older pickles have none


def converter_for(topo_view: Any, axes: Sequence[str | int]) -> DefaultViewConverter:
    """Return the converter of images in `axes`, their lengths taken from `topo_view`."""
    order = tuple(axes)
    lengths = [int(np.shape(topo_view)[order.index(axis)]) for axis in (0, 1, "c")]
    return DefaultViewConverter(lengths, order)
