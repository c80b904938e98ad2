"""Attributes as plain values: text as str, numbers as NumPy has them, nothing of HDF5's own.

An attribute that cannot be read costs only itself. HDF5's bookkeeping is not even read:
in damaged files, reading its reference lists is known to hang.

Files may have tens of thousands of attributes, and most of the time that opening a file
takes goes there, so numbers, which most of them are, are read by the shortest way that h5py has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import h5py
import numpy as np

from labeled.formats.cf import FILLS
from labeled.formats.hdf5.dtypes import numpy_type, refers
from labeled.formats.hdf5.safety import to_bytes, to_text

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
    thing: h5py.Group | h5py.Dataset,
    what: str,
    faults: list[str],
    *,
    leave_out: Collection[str] = (),
    scalars: bool = False,
) -> dict[str, Any]:
    """Return the attributes of an object, in the order that they were made where it is known.

    Parameters
    ----------
    what : str
        The object, for messages.
    faults : list of str
        What cannot be read is told here.
    leave_out : names
        Further attributes to leave out, such as the split table.
    scalars : bool
        Turn arrays of one value into that value, as netCDF means them.

    References, and compounds that hold them, mean nothing outside an open file; they
    are left out like HDF5's own.
    """
    values: dict[str, Any] = {}
    unreadable: list[str] = []
    attributes = thing.attrs if h5py.h5a.get_num_attrs(thing.id) else {}
    for name in attributes:
        text = to_text(name)
        if text in INTERNAL or text in leave_out:
            continue
        try:
            value = _numbers(thing, to_bytes(text))
            if value is None:
                value = attributes[name]
                if _holds_references(value):
                    continue
        except Exception:  # any exception may come of a foreign or damaged type
            unreadable.append(text)
            continue
        fill = text in FILLS and isinstance(value, bytes)  # one of the values, so no text either
        values[text] = value if fill else plain_value(value, scalars=scalars)
    if unreadable:
        faults.append(f"attributes of {what} cannot be read: {', '.join(map(repr, unreadable))}")
    return values


def _numbers(thing: h5py.Group | h5py.Dataset, name: bytes) -> Any:
    """Return an attribute of integers or floats as NumPy has them; None for any other."""
    kept = h5py.h5a.open(thing.id, name)
    kind = kept.get_type()
    if not isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        return None
    shape, dtype = kept.shape, kind.dtype
    if shape is None:
        return None
    values = np.empty(shape, dtype)
    kept.read(values, mtype=numpy_type(dtype))
    return values[()]


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
    return isinstance(dtype, np.dtype) and refers(dtype)
