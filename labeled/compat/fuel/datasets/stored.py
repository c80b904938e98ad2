"""Rows of one source of an open file, read by this library where that is possible.

What lies on a disk and is open for reading only is read by byte range, outside HDF5;
files in memory, or open for writing, are read through their handle. Either way a list of
rows is read in file order, each row once, and put into the order asked for.

Examples of different shapes come in three layouts: Fuel's own (rows of variable length with
a scale ``shapes``), plain rows of variable length, and this library's flat layout. How a
file is read is decided when it is opened.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import h5py
import numpy as np

from labeled.compat.errors import OldValueError
from labeled.formats.bytesource import stamp_of
from labeled.formats.hdf5.metadata import example_dims, is_flat, part_paths
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.safety import to_text
from labeled.formats.hdf5.sources import header_of
from labeled.formats.header import FileStamp, SourceHeader, vlen_base
from labeled.formats.reader import read_rows
from labeled.formats.region import Ints
from labeled.selection import Selection
from labeled.sources.loading import load_rows
from labeled.sources.source import Source

SHARED_BYTES = 1 << 25
"""From this size on, reading is shared among threads."""

DECODED_BYTES = 1 << 21
"""From this size on, decoding is shared among threads."""


class StoredRows:
    """Rows of a dataset; indexed as old code indexed datasets.

    Parameters
    ----------
    dataset : h5py.Dataset
    n_rows : int
    read : callable (range or array of int) -> array
    """

    def __init__(self, dataset: h5py.Dataset, n_rows: int, read: Callable[[Any], Any]) -> None:
        self.dataset, self.read = dataset, read
        self.shape: tuple[int, ...] = (n_rows, *dataset.shape[1:])
        self.dtype: np.dtype[Any] = dataset.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, request: Any) -> Any:
        """Return the rows of a slice, or one row without its axis."""
        if isinstance(request, slice):
            return self.read(range(*request.indices(len(self))))
        return self.read(range(request, request + 1))[0]

    def take_rows(self, rows: Ints) -> Any:
        """Return listed rows, in any order and as often as they are listed."""
        return self.read(np.asarray(rows, np.int64))


def stored_rows(file: h5py.File, name: str) -> StoredRows:
    """Return the rows of a source of an open file."""
    dataset, parts, n_rows, stamp = (
        file[name],
        parts_of(file, name),
        rows_of(file, name),
        _stamp(file),
    )
    if not parts and vlen_base(dataset.dtype) is None:
        return StoredRows(dataset, n_rows, _dense_read(dataset, name, stamp))
    if stamp is None:
        return StoredRows(dataset, n_rows, lambda rows: _examples(dataset, parts, np.array(rows)))
    headers = {role: _header(part, role, stamp) for role, part in parts.items()}
    n_axes = headers["shapes"].shape[1] if "shapes" in headers else 1
    if "offsets" in parts:
        headers["values"] = _header(dataset, name, stamp)
    header = _header(dataset, name, stamp, headers, n_axes, (n_rows,))
    reader = open_ragged(header)
    return StoredRows(dataset, n_rows, lambda rows: reader.read_flat(rows).examples())


def is_ragged(file: h5py.File, name: str) -> bool:
    """Whether the examples of a source have shapes of their own.

    Raises
    ------
    OldValueError
        If it has more axes than one.
    """
    dataset = file[name]
    if not dataset.shape or not (is_flat(dataset) or "shapes" in dataset.dims[0].keys()):  # noqa: SIM118 (not a mapping)
        return False
    if len(dataset.shape) > 1:
        raise OldValueError(
            f"source {name!r} in {file.filename!r} has a scale 'shapes', and shape "
            f"{dataset.shape}; examples of variable length lie along one axis"
        )
    return True


def parts_of(file: h5py.File, name: str) -> dict[str, h5py.Dataset]:
    """Return the datasets that tell the shapes of a source's examples, by role."""
    dataset = file[name]
    if is_flat(dataset):
        return {role: file[path] for role, path in part_paths(dataset, name).items()}
    return {"shapes": dataset.dims[0]["shapes"]} if is_ragged(file, name) else {}


def rows_of(file: h5py.File, name: str) -> int:
    """Return how many examples a source has."""
    parts = parts_of(file, name)
    return len(parts["offsets"]) - 1 if "offsets" in parts else len(file[name])


def labels_of(file: h5py.File, name: str) -> tuple[str, ...]:
    """Return the names of a source's axes; a name that is not set is empty."""
    dims, parts = file[name].dims, parts_of(file, name)
    if "offsets" in parts:
        n_axes = parts["shapes"].shape[1] if "shapes" in parts else 1
        return example_dims(file[name], n_axes)
    own = tuple(dim.label for dim in dims)
    if not parts:
        return own
    inner = dims[0]["shape_labels"][...].tolist()
    return (own[0], *(to_text(bytes(label)) for label in inner))


def _dense_read(dataset: h5py.Dataset, name: str, stamp: FileStamp | None) -> Callable[[Any], Any]:
    header = None if stamp is None else _header(dataset, name, stamp)
    if (
        header is None
        or header.storage not in ("contiguous", "chunked", "empty")
        or header.dtype.hasobject
    ):
        return lambda rows: _from_handle(dataset, np.array(rows))
    source = Source.of((header,))
    reader = source.reader()
    shared_bytes = DECODED_BYTES if source.layout.expensive else SHARED_BYTES

    def read(rows: Any) -> Any:
        if len(rows) * source.row_bytes >= shared_bytes:
            values = load_rows(source, Selection.of(rows), min(4, os.cpu_count() or 1))
        else:
            wanted = rows if isinstance(rows, range) else np.asarray(rows, np.int64)
            values = read_rows(reader, wanted)
        return values.astype(dataset.dtype, copy=False)

    return read


def _stamp(file: h5py.File) -> FileStamp | None:
    """Return which file this is, if its bytes are those on a disk; None otherwise."""
    if file.mode != "r" or file.driver not in ("sec2", "stdio"):
        return None
    return stamp_of(file.filename) if os.path.isfile(file.filename) else None


def _header(
    dataset: h5py.Dataset,
    name: str,
    stamp: FileStamp,
    parts: dict[str, SourceHeader] | None = None,
    n_inner: int = 0,
    shape: tuple[int, ...] | None = None,
) -> SourceHeader:
    is_vlen = vlen_base(dataset.dtype) is not None
    dims = [f"axis {axis}" for axis in range(dataset.ndim + n_inner)]
    return replace(
        header_of(stamp, dataset, name, dims),
        shape=dataset.shape if shape is None else shape,
        ragged="rows of variable length" if parts or is_vlen else None,
        parts=parts or {},
    )


def _from_handle(dataset: h5py.Dataset, rows: Ints) -> Any:
    """Read listed rows through HDF5: ascending, each once."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return dataset[rows[0] : rows[-1] + 1]
    wanted, places = np.unique(rows, return_inverse=True)
    return dataset[wanted][places]


def _examples(dataset: h5py.Dataset, parts: dict[str, h5py.Dataset], rows: Ints) -> Any:
    """Read listed examples of different shapes through HDF5."""
    if "offsets" in parts:
        starts, stops = (_from_handle(parts["offsets"], rows + more).tolist() for more in (0, 1))
        found = np.empty(len(rows), object)
        for place, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            found[place] = dataset[start:stop]
    else:
        found = _from_handle(dataset, rows)
    if "shapes" in parts:
        for place, shape in enumerate(_from_handle(parts["shapes"], rows).tolist()):
            found[place] = found[place].reshape(shape)
    return found
