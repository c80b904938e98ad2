"""Labelled arrays on a device: data goes there block by block, names and indexes stay.

What decides where an array is, is its data. Coordinates stay on the host, where xarray
needs those that are indexes. A lazy array moves lazily: its blocks go to the device when
they are computed, wherever that is, so the machine that asks needs no GPU of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from labeled.device import device_number, is_cupy, on_gpus, to_device
from labeled.device.arrays import cupy_module
from labeled.errors import LoaderError, MissingExtraError


def placed(array: xr.DataArray, device: str) -> xr.DataArray:
    """Return an array with its data on a device.

    Parameters
    ----------
    array : DataArray
    device : "cpu", "cuda" or "cuda:<n>"

    Returns
    -------
    DataArray
        Lazy if `array` is; the same data where it is there already.

    Raises
    ------
    LoaderError
        If this is no name of a device, or the data is neither numbers nor booleans.
    MissingExtraError
        If CuPy is needed and not installed: at once, or where lazy blocks are computed.
    """
    if device != "cpu":
        try:
            device_number(device)
        except ValueError as error:
            raise LoaderError(str(error)) from None
        if not on_gpus(array.dtype):
            raise LoaderError(
                f"{array.name!r} holds {array.dtype}, which a GPU has no arrays of; keep it here"
            )
    data = array.data
    if is_dask_collection(data):
        move = partial(to_device, device=device)
        data = data.map_blocks(move, dtype=data.dtype, meta=_meta(data, device))
    else:
        data = to_device(data, device)
    return array.copy(deep=False, data=data)


def _meta(data: Any, device: str) -> Any:
    """Return an array of no elements, of the kind that blocks will be, as far as that can be made.

    Without a GPU none of CuPy's can be made, and NumPy's stand for them.
    """
    empty = np.empty((0,) * data.ndim, data.dtype)
    if device == "cpu":
        return empty
    try:
        there = cupy_module().cuda.is_available()
    except MissingExtraError:
        return empty
    return to_device(empty, device) if there else empty


def device_name(array: xr.DataArray) -> str:
    """Return where the data of an array is, or will be as far as is known before computing."""
    data = array.data
    if is_dask_collection(data):
        data = data._meta
    if is_cupy(data):
        return f"cuda:{data.device.id}"
    if isinstance(data, np.ndarray):
        return "cpu"
    return str(getattr(data, "device", "cpu"))
