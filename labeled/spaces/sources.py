"""What a source's numbers mean when nobody says: its own space, from its dims and dtype.

The first dim is the example dim whatever its name. The others are looked up in the
table of :mod:`labeled.dims`; names it lacks make a plain vector, flattened in file
order, so that every fixed-size source has a space.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled.dims import SPATIAL, axis_of, role_of
from labeled.errors import DimsError, SpaceTypeError
from labeled.spaces.base import ArraySpace
from labeled.spaces.conv import Conv2DSpace, ConvNDSpace
from labeled.spaces.vector import IndexSpace, VectorSpace


def space_of(
    dims: Sequence[str], shape: Sequence[int], dtype: Any, *, name: str | None = None
) -> ArraySpace:
    """Return a source's own space.

    ======================================  ==========================================
    dims after the example dim              space
    ======================================  ==========================================
    none, integer dtype                     ``IndexSpace(None, 1)``
    ``index``, integer dtype                ``IndexSpace(None, length)``
    ``channel, height, width`` in any order ``Conv2DSpace``, axes in file order
    ``height, width``                       the same with one channel
    ``channel, depth, height, width``       ``ConvNDSpace``, axes in file order
    anything else                           ``VectorSpace`` of the product of lengths
    ======================================  ==========================================

    Parameters
    ----------
    dims : sequence of str
        The example dim first, whatever its name.
    shape : sequence of int
        Their lengths; the example dim's may be left out.
    dtype : dtype
        Of the source. Spaces keep it: their own dtype is None.
    name : str, optional
        Of the source, for messages.

    Raises
    ------
    DimsError
        If `dims` and `shape` do not belong together.
    SpaceTypeError
        If rows are objects (of different lengths), which no space holds.

    Examples
    --------
    >>> space_of(("batch", "channel", "height", "width"), (100, 3, 32, 32), "u1")
    Conv2DSpace(shape=(32, 32), channels=3, axes=('b', 'c', 0, 1))
    >>> space_of(("batch", "index"), (100, 1), "u1"), space_of(("time", "x_axis_1"), (9, 4), "f4")
    (IndexSpace(max_labels=None, dim=1), VectorSpace(dim=4))
    """
    who = "a source" if name is None else f"source {name!r}"
    lengths = _row_lengths(tuple(dims), tuple(shape), who)
    found = np.dtype(dtype)
    if found.kind == "O":
        raise SpaceTypeError(f"{who} has rows of different lengths, which have no space of a batch")
    names = tuple(dims)[1:]
    if found.kind in "iu" and (not names or [role_of(n) for n in names] == ["index"]):
        return IndexSpace(None, math.prod(lengths)) if math.prod(lengths) else VectorSpace(0)
    image = _image(names, lengths)
    return VectorSpace(math.prod(lengths)) if image is None else image


def _row_lengths(dims: tuple[str, ...], shape: tuple[int, ...], who: str) -> tuple[int, ...]:
    if len(shape) == len(dims):
        shape = shape[1:]
    if not dims or len(shape) != len(dims) - 1:
        raise DimsError(f"{who} has {len(dims)} dims {dims}, which do not fit the shape {shape}")
    return shape


def _image(names: tuple[str, ...], lengths: tuple[int, ...]) -> ConvNDSpace | None:
    roles = [role_of(name) for name in names]
    n_spatial = sum(role in SPATIAL for role in roles)
    axes = [None if role is None else axis_of(role, n_spatial) for role in roles]
    if n_spatial < 1 or set(axes) - {"c"} != set(range(n_spatial)) or 0 in lengths:
        return None
    if n_spatial == 1 or len(set(axes)) != len(axes):
        return None
    length = dict(zip(axes, lengths, strict=True))
    shape = tuple(length[i] for i in range(n_spatial))
    order = ("b", *(axis for axis in axes if axis is not None), *(() if "c" in axes else ("c",)))
    channels = length.get("c", 1)
    if n_spatial == 2:
        return Conv2DSpace(shape, channels=channels, axes=order)
    return ConvNDSpace(shape, channels, axes=order)
