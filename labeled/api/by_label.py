"""Positions along a dim by the values of its coordinate, as xarray's own `sel` finds them.

Only the coordinate is read. What comes back is what `isel` takes, so that selecting by label
is as lazy as selecting by position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import xarray as xr

from labeled.errors import SelectionError, UnknownNameError, did_you_mean


def coordinate_of(dim: str, arrays: Iterable[xr.DataArray]) -> xr.DataArray:
    """Return the coordinate of a dim, of the first array that has it.

    Raises
    ------
    UnknownNameError
        If no array has the dim, or the dim has no coordinate.
    """
    dims: set[str] = set()
    for array in arrays:
        if dim in array.dims and dim in array.coords:
            found: xr.DataArray = array.coords[dim]
            return found
        dims.update(map(str, array.dims))
    if dim not in dims:
        raise UnknownNameError(f"no source has a dim {dim!r}; {did_you_mean(dim, dims)}")
    raise UnknownNameError(
        f"dim {dim!r} has no coordinate to select by; take positions, isel(), or give a lazy array "
        f"one: ds['x'].assign_coords({dim}=values).sel(...)"
    )


def positions(
    coordinate: xr.DataArray, label: Any, method: str | None, tolerance: Any
) -> int | slice | list[int]:
    """Return the positions at which a coordinate has a label, a range or a list of them.

    Raises
    ------
    SelectionError
        If a label is not there, or the coordinate cannot be searched as asked.

    Examples
    --------
    >>> lat = xr.DataArray([10.0, 20.0, 30.0], dims="lat", name="lat")
    >>> positions(lat, 20, None, None), positions(lat, slice(15, 35), None, None)
    (1, slice(1, 3, None))
    >>> positions(lat, [29, 12], "nearest", None)
    [2, 0]
    """
    (dim,) = coordinate.dims
    values = coordinate.values
    places = xr.DataArray(np.arange(values.size), {dim: values}, [dim])
    try:
        found = places.sel({dim: label}, method=method, tolerance=tolerance).values
    except (KeyError, ValueError, TypeError) as error:
        ends = f" from {values[0]} to {values[-1]}" if values.size else ""
        raise SelectionError(
            f"{dim}={label!r} is not found among {values.size:,} values{ends}: {error.args[0]}"
        ) from error
    if found.ndim == 0:
        return int(found)
    if found.size and (np.diff(found) == 1).all():
        return slice(int(found[0]), int(found[-1]) + 1)
    return [int(place) for place in found]
