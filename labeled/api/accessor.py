"""``.labeled`` on xarray objects: spaces for labelled arrays, batches for any dask-backed one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from labeled.spaces import Space, format_dataarray, space_of, undo_format


@xr.register_dataarray_accessor("labeled")
class LabeledArray:
    """Lay a labelled array out for a space, and serve it in batches."""

    def __init__(self, array: xr.DataArray) -> None:
        self._array = array

    @property
    def space(self) -> Space:
        """The space that this array's dims and dtype say it is in."""
        a = self._array
        return space_of(tuple(map(str, a.dims)), a.shape, a.dtype, name=str(a.name))

    def format_as(self, space: Space, *, dims: Mapping[Any, str] | None = None) -> xr.DataArray:
        """Lay the array out for `space`, finding its axes by name.

        Parameters
        ----------
        space : Space
            What the result must look like.
        dims : mapping of axis to dim name, optional
            Where names differ from batch/channel/height/width: ``{"b": "time"}``.

        Returns
        -------
        xarray.DataArray
            Lazy if this array is; a transpose is a view.

        Raises
        ------
        DimsError
            If a dim is missing, or one is there that the space does not know.
        SpaceError
            If the lengths do not fit.
        """
        return format_dataarray(self._array, space, dims=dims)

    def undo_format_as(self) -> xr.DataArray:
        """Return the array as it was before :meth:`format_as`: dims, order and coordinates."""
        return undo_format(self._array)
