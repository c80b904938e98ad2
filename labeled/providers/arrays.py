"""What is given to a provider: arrays of any library, by the names that they have or get.

Samples lie along the first axis of an array, along the dim ``batch`` of a DataArray if it has one.
What makes no array, or would lose a mask on its way, is refused by name. The providers themselves
lie in the package's `__init__`, and take what this makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from labeled.device import Array, adopted, dtype_of, is_array, is_foreign, to_host
from labeled.errors import ArrayError, LoaderError
from labeled.sources.source import Source


def named_arrays(given: Any, name: str) -> dict[str, Any]:
    """Return arrays by name: an array alone, a (name, array) pair, a list of pairs or a mapping."""
    if given is None or (isinstance(given, list | tuple) and not given):
        return {}
    if isinstance(given, Mapping):
        pairs = list(given.items())
    elif is_pair(given):
        pairs = [given]
    elif isinstance(given, list | tuple) and any(map(is_pair, given)):
        pairs = list(given)
    else:
        pairs = [(name, given)]
    arrays: dict[str, Any] = {}
    for pair in pairs:
        if not is_pair(pair):
            raise ArrayError(f"{pair!r:.60} must be a (name, array) pair, its name a text")
        if pair[0] in arrays:
            raise LoaderError(f"the name {pair[0]!r} is given twice")
        arrays[pair[0]] = pair[1]
    return arrays


def is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)


def numbered_arrays(given: Any, name: str) -> dict[str, Any]:
    """Return arrays by name; several without one are called ``_0_name``, ``_1_name``."""
    is_list = isinstance(given, list | tuple) and bool(given)
    if is_list and all(getattr(one, "shape", ()) for one in given):
        names = [name] if len(given) == 1 else [f"_{i}_{name}" for i in range(len(given))]
        return dict(zip(names, given, strict=True))
    return named_arrays(given, name)


def batch_first(array: xr.DataArray) -> xr.DataArray:
    return array.transpose("batch" if "batch" in array.dims else array.dims[0], ...)


def samples_of(name: str, value: Any) -> Array:
    """Return what was given as an array at hand whose first axis counts samples.

    Parameters
    ----------
    name : str
        What errors call it.
    value : array of any library, DataArray, or nested lists of numbers
        Lazy ones are computed.

    Returns
    -------
    array
        Of NumPy, CuPy or the array-API standard: `value` itself or its memory where it has some.

    Raises
    ------
    ArrayError
        If it makes no array, or one of objects, without axes, or with a mask that would be lost.

    Examples
    --------
    >>> samples_of("x", [[1, 2], [3]])
    Traceback (most recent call last):
    labeled.errors.ArrayError: 'x' must be an array of samples: ... inhomogeneous shape ...
    """
    if isinstance(value, xr.DataArray) and value.dims:
        value = batch_first(value)
    if is_dask_collection(value):
        value = value.compute()
    check_unmasked(name, value)
    try:
        found = adopted(value) if is_foreign(value) else value
        if not is_array(found):
            found = found.asnumpy() if hasattr(found, "asnumpy") else np.asarray(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArrayError(f"{name!r} must be an array of samples: {error}") from None
    if dtype_of(found).kind == "O" or not found.shape:
        shown = f"{type(value).__name__} {value!r:.60}"
        made = f"{shown} makes one of shape {tuple(found.shape)} and dtype {found.dtype}"
        raise ArrayError(f"{name!r} must be an array of samples: {made}")
    return found


def check_unmasked(name: str, value: Any) -> None:
    """Raise :class:`ArrayError` for a masked array, whose mask nobody would see."""
    if isinstance(value, np.ma.MaskedArray):
        wrong = f"{name!r} is a masked array, whose mask would be lost"
        raise ArrayError(f"{wrong}; give it with its gaps filled")


def source_of(name: str, array: Any) -> Source:
    """Return an array as a source of the loader, samples first."""
    if isinstance(array, xr.DataArray) and array.dims:
        array = batch_first(array).data
    is_lazy = is_dask_collection(array)
    values = array if is_lazy else to_host(samples_of(name, array))
    dims = ("batch", *(f"{name}_{axis}" for axis in range(1, values.ndim)))
    if is_lazy:
        check_unmasked(name, array._meta)
        return Source.of_lazy(xr.DataArray(array, dims=dims), "batch", name)
    return Source.of_array(name, dims, values.astype(values.dtype.newbyteorder("="), copy=False))
