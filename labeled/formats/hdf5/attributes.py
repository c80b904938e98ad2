"""Attributes as plain values: text as str, numbers as NumPy has them, nothing of HDF5's own.

An attribute that cannot be read costs only itself. HDF5's bookkeeping is not even read:
in damaged files, reading its reference lists is known to hang.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import h5py
import numpy as np

from labeled.formats.hdf5.safety import to_text

INTERNAL = frozenset(
    {
        "CLASS",
        "NAME",
        "DIMENSION_LIST",
        "DIMENSION_LABELS",
        "REFERENCE_LIST",
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_nc3_strict",
        "labeled_incomplete",
    }
)


def attrs_of(
    thing: h5py.Group | h5py.Dataset, *, leave_out: Collection[str] = (), scalars: bool = False
) -> tuple[dict[str, Any], list[str]]:
    """Return the attributes of an object, and the names of those that cannot be read.

    Parameters
    ----------
    leave_out : names
        Further attributes to leave out, such as the split table.
    scalars : bool
        Turn arrays of one value into that value, as netCDF means them.

    References, and compounds that hold them, mean nothing outside an open file; they
    are left out like HDF5's own.
    """
    values: dict[str, Any] = {}
    unreadable: list[str] = []
    for name in thing.attrs:
        text = to_text(name)
        if text in INTERNAL or text in leave_out:
            continue
        try:
            value = thing.attrs[name]
        except Exception:  # any exception may come of a foreign or damaged type
            unreadable.append(text)
            continue
        if not _holds_references(value):
            values[text] = plain_value(value, scalars=scalars)
    return values, unreadable


def plain_value(value: Any, *, scalars: bool = False) -> Any:
    """Return an attribute value as something that pickles and prints.

    Examples
    --------
    >>> plain_value(b"metres"), plain_value(np.array([b"a", b"b"]))
    ('metres', ['a', 'b'])
    >>> plain_value(np.array([0.5]), scalars=True)
    np.float64(0.5)
    """
    if isinstance(value, h5py.Empty):
        return "" if value.dtype.kind in "SO" else None
    if isinstance(value, bytes | np.bytes_):
        return to_text(bytes(value))
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.ndarray):
        if scalars and value.shape == (1,):
            return plain_value(value[0])
        if value.dtype.kind in "SO":
            return _plain_list(value.tolist())
        return np.array(value)
    return value


def _plain_list(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain_list(each) for each in value]
    if isinstance(value, np.ndarray):  # a row of a variable-length attribute
        return value.tolist()
    return to_text(value) if isinstance(value, bytes) else value


def _holds_references(value: Any) -> bool:
    if isinstance(value, h5py.Reference | h5py.RegionReference):
        return True
    dtype = getattr(value, "dtype", None)
    if not isinstance(dtype, np.dtype):
        return False
    fields = [dtype[name] for name in dtype.names] if dtype.names is not None else [dtype]
    return any(_refers(each.base) for each in fields)


def _refers(dtype: np.dtype[Any]) -> bool:
    base = h5py.check_vlen_dtype(dtype)
    if isinstance(base, np.dtype):
        return _refers(base)
    return h5py.check_ref_dtype(dtype) is not None
