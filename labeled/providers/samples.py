"""Whatever holds samples, as arrays with names: what users give, and what iterators yield."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from labeled.device import Array, adopted, dtype_of, is_array, is_foreign
from labeled.errors import ArrayError


def named_arrays(given: Any, name: str) -> list[tuple[str, Any]]:
    """Return (name, array) pairs: of one array, one pair, a list of pairs or a mapping.

    Examples
    --------
    >>> [n for n, _ in named_arrays([("x", np.zeros(3)), ("y", np.zeros(3))], "data")]
    ['x', 'y']
    >>> [n for n, _ in named_arrays([1.0, 2.0], "data")]
    ['data']
    """
    if isinstance(given, Mapping):
        return [_pair(pair) for pair in given.items()]
    if _is_pair(given):
        return [_pair(given)]
    if isinstance(given, list | tuple) and any(_is_pair(pair) for pair in given):
        return [_pair(pair) for pair in given]
    if isinstance(given, list | tuple) and not given:
        return []
    return [(name, given)]


def _is_pair(given: Any) -> bool:
    """Whether a name stands beside an array; what is no str there is still meant as a name."""
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    return isinstance(given[0], str) or (_has_axes(given[1]) and not _has_axes(given[0]))


def _has_axes(value: Any) -> bool:
    return isinstance(value, list | tuple) or bool(getattr(value, "shape", ()))


def _pair(pair: Any) -> tuple[str, Any]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ArrayError(f"{pair!r:.60} is no (name, array) pair")
    if not isinstance(pair[0], str):
        raise ArrayError(f"the name {pair[0]!r:.60} of an array is no str")
    return pair


def sample_dim(array: xr.DataArray) -> Hashable:
    """Return the dim of a DataArray that counts samples: ``batch``, else the first one."""
    return "batch" if "batch" in array.dims else array.dims[0]


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
    labeled.errors.ArrayError: 'x' is no array of samples: ... inhomogeneous shape ...
    """
    if isinstance(value, xr.DataArray) and value.dims:
        value = value.transpose(sample_dim(value), ...)
    if is_dask_collection(value):
        value = value.compute()
    check_unmasked(name, value)
    try:
        found = _at_hand(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArrayError(f"{name!r} is no array of samples: {error}") from None
    if dtype_of(found).kind == "O" or not found.shape:
        raise ArrayError(
            f"{name!r} is no array of samples: {type(value).__name__} {value!r:.60} makes one of "
            f"shape {tuple(found.shape)} and dtype {found.dtype}"
        )
    return found


def check_unmasked(name: str, value: Any) -> None:
    """Raise :class:`ArrayError` for a masked array, whose mask nobody would see."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArrayError(
            f"{name!r} is a masked array, whose mask would be lost; give it with its gaps filled"
        )


def _at_hand(value: Any) -> Array:
    if is_array(value):
        return value
    if is_foreign(value):
        return adopted(value)
    return value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)
