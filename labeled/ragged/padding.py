"""Padding ragged examples to dense arrays; works on shapes and flat values alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from labeled.errors import ArrayError, DimsError
from labeled.ragged.flat import Array, Flat, Rows

SMALL_PADDED = 1024
"""Padded examples of so many elements are filled together, larger ones one by one."""


def wanted_lengths(to: Any, dims: Sequence[str]) -> list[int | None]:
    """Read what a user gives as `to`: one length or None for each of `dims`."""
    if to is None:
        return [None] * len(dims)
    if isinstance(to, Mapping):
        unknown = [dim for dim in to if dim not in dims]
        if unknown:
            raise DimsError(f"to= names {unknown[0]!r}; an example has the dims {tuple(dims)}")
        lengths = [to.get(dim) for dim in dims]
    elif len(dims) == 1:
        lengths = [to]
    else:
        each = (
            list(to) if isinstance(to, list | tuple) and len(to) == len(dims) else [to] * len(dims)
        )
        raise DimsError(
            f"to={to!r} names none of the {len(dims)} axes of an example; give a mapping, as "
            f"to={dict(zip(dims, each, strict=True))}"
        )
    for length in lengths:
        if length is not None and (not isinstance(length, int | np.integer) or length < 0):
            raise ArrayError(f"to={to!r}: a length must be a whole number, 0 or more")
    return lengths


def first_longer(shapes: Rows, lengths: Sequence[int]) -> tuple[int, int] | None:
    """Return (row, axis) of the first example that is longer than `lengths`."""
    longer = shapes > np.asarray(lengths, np.int64).reshape(1, -1)
    if not longer.any():
        return None
    row = int(np.argmax(longer.any(axis=1)))
    return row, int(np.argmax(longer[row]))


def padded(
    flat: Flat, lengths: Sequence[int], value: Any = 0, *, mask: bool = False
) -> tuple[Array, Array | None]:
    """Lay flat values out densely: (n, *lengths), and where the values are.

    Raises
    ------
    ArrayError
        If `value` cannot be held by the dtype.
    """
    n, dtype, fill = len(flat.shapes), flat.values.dtype, fill_of(value, flat.values.dtype)
    small = math.prod(lengths) <= SMALL_PADDED
    inside = covered(flat.shapes, lengths) if mask or small else None
    if small and inside is not None:
        out = np.full((n, *lengths), fill, dtype)
        out[inside] = flat.values
    elif len(lengths) == 1:  # each byte is written once
        out = np.empty((n, *lengths), dtype)
        for place, (a, b) in zip(out, pairwise(flat.offsets.tolist()), strict=True):
            place[: b - a] = flat.values[a:b]
            place[b - a :] = fill
    else:
        out = np.full((n, *lengths), fill, dtype)
        for place, example in zip(out, flat.examples(), strict=True):
            place[tuple(map(slice, example.shape))] = example
    return out, inside if mask else None


def covered(shapes: Rows, lengths: Sequence[int]) -> Array:
    """Return where examples lie in their padded places: bool (n, *lengths)."""
    n, k = shapes.shape
    out = np.ones(n, bool).reshape(n, *(1 for _ in lengths))
    for axis, length in enumerate(lengths):
        narrow = np.min_scalar_type(length)  # small numbers are compared several times as fast
        stops = np.minimum(shapes[:, axis, None], length).astype(narrow)
        along = np.arange(length, dtype=narrow) < stops
        along = along.reshape(n, *(length if i == axis else 1 for i in range(k)))
        out = along if axis == 0 else out & along
    return out


def fill_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return `value` in `dtype`, or refuse it; among times, the number 0 is NaT."""
    given = np.asarray(value)
    if dtype.kind in "mM" and given.dtype.kind in "biuf" and given.shape == () and not given:
        return np.array("NaT", dtype)
    try:
        with np.errstate(all="ignore"):
            held = given.astype(dtype)
    except (TypeError, ValueError):
        held, given = np.zeros((), dtype), np.ones((), dtype)  # so that it is refused
    same = held.shape == () and bool((held == given) | ((held != held) & (given != given)))
    if not same and not (dtype.kind in "fc" and np.isfinite(held)):
        raise ArrayError(f"value={value!r} cannot fill an array of {dtype}; give one it can hold")
    return held
