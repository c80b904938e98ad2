"""Where a dataset's bytes are and what they are, from its header alone.

The dtype here is the one in the file. A type whose bytes NumPy would misread (odd bit
widths, strings padded with spaces) is marked "foreign", so nobody reads it by byte range.
Nothing here costs more for more chunks: chunks are neither counted nor visited.
"""

from __future__ import annotations

import math
from typing import Any, TypedDict

import h5py
import numpy as np

from labeled.formats.hdf5.attributes import numpy_type
from labeled.formats.hdf5.columns import Column, complex_of, item_of, varies, why_not_read
from labeled.formats.hdf5.safety import check_dataset
from labeled.formats.header import Filter, Storage
from labeled.formats.objects import is_text, vlen_base

_LAYOUTS: dict[int, Storage] = {
    h5py.h5d.COMPACT: "compact",
    h5py.h5d.CONTIGUOUS: "contiguous",
    h5py.h5d.CHUNKED: "chunked",
    h5py.h5d.VIRTUAL: "virtual",
}


class Placement(TypedDict):
    """The fields of a source header that tell where its bytes are."""

    storage: Storage
    offset: int | None
    chunks: tuple[int, ...] | None
    filters: tuple[Filter, ...]
    fill_value: Any
    stored_bytes: int | None


def layout_of(
    dataset: h5py.Dataset,
    path: str,
    *,
    column: Column | None = None,
    allow_external: bool = False,
    outside: bool = False,
) -> Placement:
    """Return where the bytes of a dataset are, refusing those outside its file.

    Those of a `column` lie among others, where only HDF5 finds them.
    """
    plist = dataset.id.get_create_plist()
    beyond = check_dataset(
        dataset, path, allow_external=allow_external, outside=outside, plist=plist
    )
    storage = beyond or _LAYOUTS.get(plist.get_layout(), "foreign")
    offset = dataset.id.get_offset() if storage == "contiguous" else None
    if storage == "contiguous" and (offset is None or dataset.id.get_storage_size() == 0):
        storage, offset = "empty", None  # in files with a user block the offset is no None
    in_file = dataset.id.get_type()
    n_bytes = math.prod(dataset.shape) * in_file.get_size()
    stored: int | None = n_bytes if storage in ("contiguous", "compact") else 0
    if storage == "chunked":
        stored = None
        most = dataset.id.get_space().get_simple_extent_dims(True)
        unlimited = [axis for axis, n in enumerate(most) if n == h5py.h5s.UNLIMITED]
        if len(unlimited) == 1 and unlimited != [0]:
            storage = "misplaced"  # HDF5 2.0 swaps the axes of such chunks when asked for them
    apart = column is not None or not _bytes_are_numpy(dataset.dtype, in_file)
    if storage in ("contiguous", "chunked", "compact") and apart:
        storage, offset = "foreign", None
    if column is not None and stored is not None:
        stored = int(stored * column.share_of(item_of(dataset)))
    added = dtype_of(dataset, column).shape
    chunked = plist.get_layout() == h5py.h5d.CHUNKED
    return Placement(
        storage=storage,
        offset=offset,
        chunks=(*plist.get_chunk(), *added) if chunked else None,
        filters=filters_of(plist),
        fill_value=_fill_value(dataset, plist, column),
        stored_bytes=stored,
    )


def dtype_of(dataset: h5py.Dataset, column: Column | None = None) -> np.dtype[Any]:
    """Return the dtype in the file, of a dataset or of a column, whose `shape` its items have.

    An enumeration is the integers it is made of. Variable-length strings keep h5py's own
    object dtype, by which h5py knows them.
    """
    dtype: np.dtype[Any] = item_of(dataset)
    if column is not None:
        dtype = column.dtype_in(dtype)
    enumerated = h5py.check_enum_dtype(dtype.base) is not None and dtype.base.kind != "b"
    if enumerated:
        return np.dtype((dtype.base.str, dtype.shape))
    return complex_of(dtype) or dtype


def class_attrs(dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return the names of an enumeration's values as attributes tell names of classes.

    Examples
    --------
    >>> class_attrs(h5py.enum_dtype({"cat": 0, "dog": 1}))
    {'class_names': ['cat', 'dog']}
    >>> class_attrs(h5py.enum_dtype({"clear sky": 2, "fog": 5}))
    {'flag_values': [2, 5], 'flag_meanings': 'clear_sky fog'}
    >>> class_attrs(np.dtype(int))
    {}
    """
    values = h5py.check_enum_dtype(dtype.base)
    if not values or dtype.base.kind == "b":
        return {}
    names = sorted(values, key=values.__getitem__)
    numbers = [int(values[name]) for name in names]
    if numbers == list(range(len(numbers))):
        return {"class_names": names}
    meanings = " ".join(name.replace(" ", "_") for name in names)
    return {"flag_values": numbers, "flag_meanings": meanings}


def why_not_a_source(dataset: h5py.Dataset) -> str | None:
    """Return why a dataset cannot be a source, whatever its axes; None if it can."""
    if dataset.shape is None:
        return "it holds nothing, not even a shape (a null data space)"
    dtype = item_of(dataset)
    unknown = why_not_read(dtype)
    if unknown is not None:
        return unknown
    if dtype.names is not None and (dataset.shape == () or complex_of(dtype) is None):
        fields = ", ".join(map(repr, dtype.names))
        some = ", some of varying length" if varies(dtype) else ""
        return f"compound dtype with fields {fields}{some}; write each as a dataset of its own"
    if complex_of(dtype) is not None:
        return None
    if dtype.subdtype is not None:
        return f"array dtype {dtype}"
    if h5py.check_ref_dtype(dtype) is not None:
        return "reference dtype"
    if dtype.kind not in "biufcSOMm":
        remedy = "; examples='PATTERN' opens many such values as examples"
        return f"opaque dtype {dtype}{remedy if dataset.shape == () else ''}"
    if dtype.kind == "O" and not is_text(dtype) and vlen_base(dtype) is None:
        return f"object dtype {dtype} that holds neither strings nor rows of numbers"
    return None


def _bytes_are_numpy(dtype: np.dtype[Any], in_file: Any) -> bool:
    """Whether the bytes in the file are those of the dtype; rows of objects never matter."""
    if dtype.kind == "O":
        return True
    plain = dtype.kind in "iuf" and dtype.metadata is None
    return bool(
        in_file.equal(numpy_type(dtype) if plain else h5py.h5t.py_create(dtype, logical=True))
    )


def filters_of(plist: Any) -> tuple[Filter, ...]:
    """Return the filters that a creation property list names, in the order they are applied."""
    steps = (plist.get_filter(i) for i in range(plist.get_nfilters()))
    return tuple(
        Filter(int(code), name.decode("ascii", "replace"), tuple(map(int, options)))
        for code, _flags, options, name in steps
    )


def _fill_value(dataset: h5py.Dataset, plist: Any, column: Column | None) -> Any:
    dtype = dtype_of(dataset, column).base
    if dtype.kind == "O":
        return b"" if is_text(dtype) else None
    # Asked for only where one was set: HDF5 converts it, and in a damaged file may crash.
    if plist.fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        return np.zeros((), dtype)[()]
    if column is not None:
        return np.zeros((), dtype)[()]  # one value cannot stand for the axes a column adds
    if dataset.dtype.names is not None:
        return np.asarray(dataset.fillvalue, dataset.dtype).view(dtype)[()]
    return dataset.fillvalue
