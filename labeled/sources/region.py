"""Parts of the trailing axes: what ``isel`` leaves of each row.

A region holds one indexer for each axis after the example axis of the *file*: an
integer (the axis is gone), a slice with a positive step, or an int64 array.
Regions compose, so that ``isel`` after ``isel`` still reads only what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import SelectionError, SelectionTypeError
from labeled.formats.region import Indexer, Region, length
from labeled.selection import as_positions


def whole(row_shape: tuple[int, ...]) -> Region:
    """Take all of every trailing axis."""
    return tuple(slice(0, n, 1) for n in row_shape)


def shape_of(region: Region) -> tuple[int, ...]:
    """Return the lengths that the axes of a region keep (integers drop theirs)."""
    return tuple(length(part) for part in region if not isinstance(part, int))


def narrow(region: Region, axes: Mapping[int, Any], names: tuple[str, ...]) -> Region:
    """Select further along the axes that a region keeps.

    Parameters
    ----------
    region : Region
        What is taken so far.
    axes : mapping of int to request
        Kept axis number (counting only axes that are left) to an integer, slice,
        list of integers or full-length boolean mask, as in NumPy.
    names : tuple of str
        Names of the kept axes, for messages.

    Raises
    ------
    SelectionError
        If an integer is out of range.
    SelectionTypeError
        If a request is not one of these kinds.
    """
    out: list[Indexer] = []
    kept = -1
    for part in region:
        if isinstance(part, int):
            out.append(part)
            continue
        kept += 1
        out.append(_narrowed(part, axes[kept], names[kept]) if kept in axes else part)
    return tuple(out)


def _narrowed(part: slice | npt.NDArray[np.int64], request: Any, name: str) -> Indexer:
    n = length(part)
    try:
        if isinstance(request, int | np.integer) and not isinstance(request, bool):
            return int(_entry(part, int(as_positions([request], n, "position")[0])))
        wanted = as_positions(request, n, "position")
    except SelectionTypeError as error:
        raise SelectionTypeError(f"dim {name!r}: {error}") from None
    except SelectionError as error:
        raise SelectionError(f"dim {name!r} (length {n}): {error}") from None
    if isinstance(part, slice) and isinstance(wanted, range) and wanted.step > 0:
        return _slice_of(
            range(part.start, part.stop, part.step)[wanted.start : wanted.stop : wanted.step]
        )
    positions = np.arange(n, dtype=np.int64)[np.asarray(wanted, dtype=np.int64)]
    if isinstance(part, slice):
        stepped: npt.NDArray[np.int64] = part.start + positions * part.step
        return stepped
    listed: npt.NDArray[np.int64] = part[positions]
    return listed


def _entry(part: slice | npt.NDArray[np.int64], position: int) -> int:
    if isinstance(part, slice):
        return int(range(part.start, part.stop, part.step)[position])
    return int(part[position])


def _slice_of(rows: range) -> slice:
    if not len(rows):
        return slice(0, 0, 1)
    return slice(rows[0], rows[-1] + 1, rows.step)
