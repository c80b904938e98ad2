"""Moving axes, flattening and unflattening: plain functions of plain arrays.

Rows are flattened in the canonical order ``('b', 0, ..., 'c')`` always, never in a
space's own order: position of (row, column, channel) is
``(row * columns + column) * channels + channel``. Arrays of NumPy, CuPy, dask and the
array-API standard all work; results are views wherever strides allow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from labeled.device import Array, permute_dims, reshape

Axes = Sequence[str | int]


def canonical_axes(n_spatial: int) -> tuple[str | int, ...]:
    """Return the axis order in which rows are flattened.

    Examples
    --------
    >>> canonical_axes(2)
    ('b', 0, 1, 'c')
    """
    return ("b", *range(n_spatial), "c")


@lru_cache(maxsize=1024)
def order_of(source: tuple[str | int, ...], target: tuple[str | int, ...]) -> tuple[int, ...]:
    """Return the positions in `source` of the axes of `target`.

    Examples
    --------
    >>> order_of(("b", "c", 0, 1), ("c", 0, 1, "b"))
    (1, 2, 3, 0)
    """
    return tuple(map(source.index, target))


def move_axes(x: Array, source: Axes, target: Axes) -> Array:
    """Return `x`, whose axes are in order `source`, in order `target`: a view, or `x` itself.

    Examples
    --------
    >>> import numpy as np
    >>> move_axes(np.zeros((8, 3, 4, 5)), ("b", "c", 0, 1), ("c", 0, 1, "b")).shape
    (3, 4, 5, 8)
    """
    order = order_of(tuple(source), tuple(target))
    return x if order == tuple(range(len(order))) else permute_dims(x, order)


def flatten_rows(x: Array, axes: Axes) -> Array:
    """Return (batch, feature) in canonical order from `x` with axes in order `axes`.

    Examples
    --------
    >>> import numpy as np
    >>> flatten_rows(np.arange(6).reshape(1, 2, 1, 3), ("b", "c", 0, 1))
    array([[0, 3, 1, 4, 2, 5]])
    """
    moved = move_axes(x, axes, canonical_axes(len(axes) - 2))
    return reshape(moved, (moved.shape[0], math.prod(moved.shape[1:])))


def unflatten_rows(x: Array, shape: tuple[int, ...], channels: int, axes: Axes) -> Array:
    """Return images in order `axes` from (batch, feature) `x` in canonical order.

    Examples
    --------
    >>> import numpy as np
    >>> unflatten_rows(np.zeros((8, 12)), (2, 2), 3, ("c", 0, 1, "b")).shape
    (3, 2, 2, 8)
    """
    images = reshape(x, (x.shape[0], *shape, channels))
    return move_axes(images, canonical_axes(len(shape)), axes)
