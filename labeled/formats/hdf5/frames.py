"""What PyTables and pandas (``DataFrame.to_hdf``) keep: times, booleans, names of rows and columns.

Times of pandas are whole numbers there, and an attribute says of what; booleans of PyTables are
fields of eight bits. In the format "fixed" a frame is a group of arrays: ``block0_values`` are the
columns of one dtype, ``block0_items`` their names, ``axis1`` those of the rows, and ``axis0`` those
of all columns in their order.

Names of the columns of a "table" are pickles, and so are blocks of text: they are left alone,
because unpickling runs whatever the file says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import h5py
import numpy as np

from labeled.formats.cf import time_attrs
from labeled.formats.hdf5.columns import Column, item_of
from labeled.formats.hdf5.labels import short_attribute

_TIME = re.compile(r"(datetime|timedelta)64(?:\[(s|ms|us|ns)\b[^]]*\])?")
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_ARRAYS = ("ARRAY", "CARRAY", "EARRAY")
_BLOCK, _ITEMS = re.compile(r"block\d+_values"), re.compile(r"block\d+_items")
_CATEGORIES = re.compile(r"(?:.*/)?meta/[^/]+/meta/table")


def times_told(dtype_words: object) -> dict[str, Any]:
    """Return attributes of times for what pandas calls the dtype of whole numbers.

    Examples
    --------
    >>> times_told("datetime64[us, UTC]")["units"], times_told("timedelta64")["units"]
    ('microseconds since 1970-01-01', 'nanoseconds')
    >>> times_told("int64")
    {}
    """
    found = _TIME.fullmatch(dtype_words) if isinstance(dtype_words, str) else None
    if found is None:
        return {}
    unit = found[2] or "ns"
    attrs = time_attrs("M" if found[1] == "datetime" else "m")
    units = str(attrs["units"]).replace("nanoseconds", _UNITS[unit])
    dtype = {"dtype": f"timedelta64[{unit}]"} if found[1] == "timedelta" else {}
    return {**attrs, "units": units, **dtype}


def meant_by_array(dataset: h5py.Dataset, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes that say what the numbers of an array mean: times, or booleans."""
    said, item = attrs.get("value_type", attrs.get("kind")), item_of(dataset)
    if item == np.int64:
        return times_told(said)
    if item == np.uint8 and short_attribute(dataset, "CLASS") in _ARRAYS:
        return _booleans(dataset.id.get_type())
    return {}


def meant_by_column(table: h5py.Dataset, column: Column) -> dict[str, Any]:
    """Return attributes that say what the numbers of a column mean: times, or booleans."""
    if len(column.fields) > 1 or short_attribute(table, "CLASS") != "TABLE":
        return {}
    (name,) = column.fields
    item = column.dtype_in(item_of(table)).base
    if item == np.int64:
        said = (short_attribute(table, f"{name}_{key}") for key in ("dtype", "kind"))
        return next(filter(None, map(times_told, said)), {})
    kind = table.id.get_type()
    return _booleans(kind.get_member_type(kind.get_member_index(name.encode())))


def _booleans(kind: Any) -> dict[str, Any]:
    if isinstance(kind, h5py.h5t.TypeArrayID):
        kind = kind.get_super()
    return {"dtype": "bool"} if isinstance(kind, h5py.h5t.TypeBitfieldID) else {}


def named_by_pandas(
    group: h5py.Group, names: Iterable[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the arrays of a frame or series, each with the arrays that its axes are named by."""
    kind = short_attribute(group, "pandas_type")
    if kind == "series":
        yield "values", ("index",)
    for array in names if kind == "frame" else ():
        if _BLOCK.fullmatch(array):
            yield array, ("axis1", array.replace("_values", "_items"))


def why_no_examples(dataset: h5py.Dataset, name: str) -> str | None:
    """Say what else PyTables and pandas keep in an array of numbers or text."""
    if _is_pickled(dataset):
        return "PyTables keeps pickled objects there, which may run code when they are read"
    last = name.rpartition("/")[2]
    if last != "axis0" and not _ITEMS.fullmatch(last):
        return None
    group = dataset.parent
    if short_attribute(group, "pandas_type") != "frame":
        return None
    values = None if last == "axis0" else group.get(last.replace("_items", "_values"))
    if last == "axis0" or (isinstance(values, h5py.Dataset) and _is_pickled(values)):
        return "it names columns of a frame of pandas"
    return None


def why_no_table(table: h5py.Dataset, name: str) -> str | None:
    """Say what else pandas keeps in a table: the categories of a column, one a row."""
    if not _CATEGORIES.fullmatch(name):
        return None
    if short_attribute(table.parent, "pandas_type") != "series_table":
        return None
    return "it names categories of a column of pandas"


def _is_pickled(dataset: h5py.Dataset) -> bool:
    return short_attribute(dataset, "PSEUDOATOM") == "object"
