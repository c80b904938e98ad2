"""Rows gathered, cropped and mirrored each on its own: what was asked for, checked.

Integers only: a crop is a first index and a length along an axis, the length the same for all
rows since they are stacked; a mirror is one flag a row. Who copies asks for offsets (the CUDA
kernel) or for one row's index at a time (everybody else).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.errors import ArrayError, DimsError, SelectionError
from labeled.permute import arguments
from labeled.permute.arguments import Array, Rows

Crop = tuple[Any, int]
"""First index, one for all rows or one a row, and length."""


@dataclass(frozen=True, eq=False)
class Picks:
    """Which rows, and what of each.

    Attributes
    ----------
    rows : 1-D array of int64
        Counted from 0.
    row_shape : tuple of int
        Of one cropped row.
    starts : mapping of int to 1-D array of int64
        Axis to the first index in each row.
    mirrored : mapping of int to 1-D array of bool
        Axis to whether each row is mirrored along it, after it was cropped.
    """

    rows: Rows
    row_shape: tuple[int, ...]
    starts: Mapping[int, Rows]
    mirrored: Mapping[int, Array]

    @property
    def mirrored_axes(self) -> tuple[int, ...]:
        return tuple(self.mirrored)

    def offsets(self, steps: Sequence[int]) -> Rows:
        """Return (first item, flags) of each row; bit ``n + 1`` mirrors the ``n``-th axis."""
        found: Rows = np.zeros((len(self.rows), 2), np.int64)
        found[:, 0] = self.rows * steps[0]
        for axis, starts in self.starts.items():
            found[:, 0] += starts * steps[axis]
        for n, flags in enumerate(self.mirrored.values()):
            found[:, 1] |= flags.astype(np.int64) << (n + 1)
        return found

    def index(self, k: int) -> tuple[Any, ...]:
        """Return what picks row `k` of the result out of the source."""
        found: list[Any] = [int(self.rows[k])]
        for axis, length in enumerate(self.row_shape, start=1):
            start = int(self.starts[axis][k]) if axis in self.starts else 0
            if length and axis in self.mirrored and self.mirrored[axis][k]:
                found.append(slice(start + length - 1, start - 1 if start else None, -1))
            else:
                found.append(slice(start, start + length))
        return tuple(found)


def checked(
    shape: Sequence[int],
    rows: Any,
    crop: Mapping[int, Crop] | None,
    mirror: Mapping[int, Any] | None,
) -> Picks:
    """Return picks of an array of this shape, or say which axis or row does not fit.

    Examples
    --------
    >>> picks = checked((10, 8, 8), [3, 3], {1: ([0, 2], 6)}, {2: [False, True]})
    >>> picks.row_shape, picks.index(1)
    ((6, 8), (3, slice(2, 8, None), slice(7, None, -1)))
    """
    if not shape:
        raise DimsError("an array of rank 0 has no rows to crop; pass rank 1 or more")
    if rows is None:
        rows = np.arange(shape[0], dtype=np.int64)
    chosen = arguments.checked_rows(rows, shape[0])
    lengths, starts = list(shape[1:]), {}
    for axis, (start, length) in _by_axis("crop", crop, len(shape)).items():
        starts[axis] = _starts(axis, start, length, shape[axis], chosen)
        lengths[axis - 1] = int(length)
    flags = {
        axis: _each("mirror", axis, flag, "b", len(chosen)).astype(bool)
        for axis, flag in _by_axis("mirror", mirror, len(shape)).items()
    }
    return Picks(chosen, tuple(lengths), starts, flags)


def _by_axis(name: str, given: Mapping[int, Any] | None, ndim: int) -> dict[int, Any]:
    """Return what was given by axes counted from 0; the axis of rows is not among them."""
    found: dict[int, Any] = {}
    for axis, value in (given or {}).items():
        counted = axis + ndim if axis < 0 else axis
        if not 1 <= counted < ndim:
            raise DimsError(
                f"{name} along axis {axis}: rows of an array of rank {ndim} have "
                f"axes 1 .. {ndim - 1}"
            )
        if counted in found:
            raise DimsError(f"{name} names axis {counted} twice")
        found[counted] = value
    return found


def _each(name: str, axis: int, value: Any, kind: str, n: int) -> Array:
    """Return one value a row."""
    found = np.asarray(value)
    if found.size and found.dtype.kind not in kind:
        wanted = "true or false" if kind == "b" else "integers"
        raise ArrayError(f"{name} along axis {axis} is {wanted}; found dtype {found.dtype}")
    if found.shape not in ((), (n,)):
        raise ArrayError(
            f"{name} along axis {axis} has shape {found.shape}; give one value, or one for each "
            f"of the {n} rows"
        )
    return np.broadcast_to(found, (n,))


def _starts(axis: int, start: Any, length: Any, size: int, rows: Rows) -> Rows:
    found: Rows = _each("crop", axis, start, "iu", len(rows)).astype(np.int64)
    if not 0 <= length <= size:
        raise ArrayError(f"crop along axis {axis} is {length} long; rows are {size} long there")
    out = np.flatnonzero((found < 0) | (found > size - length))
    if out.size:
        k = int(out[0])
        raise SelectionError(
            f"crop along axis {axis} of row {int(rows[k])}, number {k} of the result: "
            f"{int(found[k])} .. {int(found[k]) + length} is not within 0 .. {size}"
        )
    return found
