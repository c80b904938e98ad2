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
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import h5py
import numpy as np

from labeled.formats.cf import time_attrs
from labeled.formats.hdf5.columns import Column, item_of
from labeled.formats.hdf5.labels import Axis, Scale, short_attribute
from labeled.formats.hdf5.safety import Found

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


def axes_of_frames(base: h5py.Group, datasets: Mapping[str, Found]) -> dict[str, tuple[Axis, ...]]:
    """Return the axes of frames and series: each is named by the array that lies along it.

    One name for arrays of different frames becomes the path of each.

    Parameters
    ----------
    base : h5py.Group
        What paths are relative to.
    datasets : mapping of path to Found
        All that are there.
    """
    along = {path: names for path in datasets if (names := _arrays_along(base, path, datasets))}
    paths: dict[str, set[str]] = defaultdict(set)
    for name in {name for names in along.values() for name in names}:
        paths[name.rpartition("/")[2]].add(name)

    def axis(length: int, path: str) -> Axis:
        last = path.rpartition("/")[2]
        name = last if len(paths[last]) == 1 else path
        scale = Scale(name, datasets[path].thing, f"{base.name.rstrip('/')}/{path}")
        return Axis(length, name, () if datasets[path].outside else (scale,))

    return {
        path: tuple(map(axis, datasets[path].thing.shape, names)) for path, names in along.items()
    }


def _arrays_along(base: h5py.Group, path: str, datasets: Mapping[str, Found]) -> tuple[str, ...]:
    """Return the paths of the arrays along the axes of another; none where it is no frame's."""
    parent, slash, array = path.rpartition("/")
    is_block = _BLOCK.fullmatch(array)
    if not is_block and array != "values":
        return ()
    kind = short_attribute(base[parent] if parent else base, "pandas_type")
    if kind != ("frame" if is_block else "series"):
        return ()
    beside = ("axis1", array.replace("_values", "_items")) if is_block else ("index",)
    names = tuple(f"{parent}{slash}{name}" for name in beside)
    shapes = [datasets[name].thing.shape for name in names if name in datasets]
    return names if shapes == [(length,) for length in datasets[path].thing.shape] else ()


def is_index_of_pytables(path: str) -> bool:
    """Whether a dataset is part of an index of PyTables, which holds no examples."""
    return any(part.startswith("_i_") for part in path.split("/")[:-1])


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
