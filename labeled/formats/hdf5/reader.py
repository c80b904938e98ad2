"""The path to the bytes of an HDF5 dataset: by byte range, or through h5py.

Contiguous and chunked data are read by byte range (outside HDF5's lock), the rest through
h5py, with the reason in `why`. Names of dims, order and threads belong to others.

The trade-off: a header is trusted for what it says of types and places, and checked only
against the size of the file; damage inside uncompressed data without a checksum comes
back as numbers, as it does from HDF5 itself.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import h5py
import numpy as np

from labeled.errors import ReadError
from labeled.formats.bytesource import is_remote
from labeled.formats.contiguous import ContiguousReader
from labeled.formats.hdf5.chunked import ChunkedReader, PlainChunks, tiles_of
from labeled.formats.hdf5.dtypes import Column
from labeled.formats.hdf5.filters import require_filters, why_not
from labeled.formats.hdf5.per_object import H5PY_BYTES, Each, EachRowsReader, values_of
from labeled.formats.hdf5.safety import h5_of, resolve
from labeled.formats.header import SourceHeader
from labeled.formats.reader import (
    UNSTORED,
    ByteRanges,
    FileReader,
    Io,
    Reader,
    ValuesReader,
    describe,
    failed,
    groups_of,
    native,
    put_parts,
    read_rows,
)
from labeled.formats.region import (
    Array,
    Ints,
    Region,
    box_of,
    normal_region,
    outer_take,
    region_shape,
)
from labeled.selection import rows_of

log = logging.getLogger(__name__)

H5PY_GAP_BYTES = 256 * 1024
"""Rows read through between others: a call costs as much as copying them."""

PIECE_VALUES = 1 << 16
"""Values that are read at a time, at least."""

_OBJECT_BYTES = 64  # a guess at what a variable-length item takes

_ONLY_HDF5 = {
    "compact": "compact storage: the data are part of the header",
    "external": "external storage: the data are in other files",
    "foreign": "a stored type that HDF5 must convert",
    "misplaced": "HDF5 tells wrong places of chunks whose one unlimited axis is not the first",
    "virtual": "virtual storage: the data are in other datasets",
}


def open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> Reader:
    """Return a reader of the rows of one source. Opens nothing yet.

    Parameters
    ----------
    source : SourceHeader
    region : tuple, one indexer an axis after the example axis
        Integers (which drop their axis), slices with positive steps, or 1-D integer
        arrays, each axis for itself; missing ones are whole.
    io : {"auto", "pread", "mmap"}
        How local bytes are fetched: "auto" reads runs by ``preadv`` and picks scattered rows
        (listed ones, and many short runs close together) from a memory map where no filter has
        to be undone; "pread" never maps; "mmap" maps for long runs too. A file that is truncated
        while it is mapped ends the process (SIGBUS); under "pread" it is an error like any other.

    Raises
    ------
    SelectionError, SelectionTypeError
        If the region does not fit the source.
    LoaderError
        If `io` is something else.
    """
    if isinstance(source.detail, Each):
        if source.detail.part is not None:
            return EachRowsReader(source, region, io)
        why = "names or attributes of examples, kept in memory"
        return ValuesReader(source, region, values_of, why)
    if source.storage == "sparse":
        return SparseReader(source, region, io)
    reason = why_not_by_range(source)
    if reason is not None:
        log.info("%s is read through h5py: %s", describe(source), reason)
        return H5pyReader(source, region, io)
    wanted = normal_region(region, source.row_shape, describe(source))
    is_empty = 0 in region_shape(wanted) or not source.row_bytes
    if source.storage == "contiguous" and source.offset is not None:
        return ContiguousReader(source, region, io)
    if source.storage == "chunked" and not is_empty:
        assert source.chunks is not None
        tiles = tiles_of(wanted, source.row_shape, source.chunks[1:])
        plain = not source.filters and len(tiles) == 1
        return (PlainChunks if plain else ChunkedReader)(source, region, io)
    return ContiguousReader(replace(source, offset=None, storage="empty"), region, io)


def why_not_by_range(source: SourceHeader) -> str | None:
    """Say why a source has to be read through h5py, if it has to."""
    if source.detail is not None:
        return "a column of a table: HDF5 takes it out of the rows"
    if source.storage in _ONLY_HDF5:
        return _ONLY_HDF5[source.storage]
    if source.dtype.hasobject:
        return "items of variable length"
    if not hasattr(os, "preadv") and not is_remote(source.file.path):
        return "this system cannot read by position"
    return why_not(source.filters) if source.storage == "chunked" else None


class H5pyReader(FileReader):
    """Reads everything whose bytes this package does not take apart itself, with ``h5py``.

    HDF5 does the work behind its one lock, so a second thread gains nothing; pieces are large and
    follow stored chunks, since each one opens the file and closes it again: no handle outlives a
    call, and none crosses a fork.

    The trade-off: lists within a region are read from their first index to their last and picked
    in memory, because HDF5 is slowest at selecting single elements.
    """

    kind = "h5py"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        self.why = why_not_by_range(source) or ""
        self._box, self._inner = box_of(self.region)
        item = _OBJECT_BYTES if source.dtype.hasobject else source.dtype.itemsize
        self._box_bytes = max(math.prod(b.stop - b.start for b in self._box) * item, 1)
        self._near = max(H5PY_GAP_BYTES // self._box_bytes, self.chunk_rows)
        self.chunk_rows *= max(1, H5PY_BYTES // (self._box_bytes * self.chunk_rows))

    def _calls(self, runs: Ints) -> Iterator[Ints]:
        """Yield the parts of runs that one call reads: a call costs as much as rows between."""
        for parts in groups_of(runs, self.chunk_rows):
            far = parts[1:, 0] - parts[:-1, 1] > self._near
            yield from np.split(parts, np.flatnonzero(far) + 1)

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        require_filters(self.source)
        with h5_of(self.source.file) as file:
            for parts in self._calls(runs):
                start, stop = int(parts[0, 0]), int(parts[-1, 1])
                try:
                    box = self._items(file[self.source.key], (slice(start, stop), *self._box))
                    put_parts(out, places, parts, outer_take(box, self._inner))
                except Exception as fault:  # what HDF5 makes of damage is nearly any of them
                    raise failed(self.source, start, stop, fault) from fault

    def _items(self, dataset: h5py.Dataset, box: tuple[slice, ...]) -> Array:
        column: Column | None = self.source.detail
        if column is not None:
            return column.read(dataset, box)
        return np.asarray(dataset[box])

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        """Estimate: decoded bytes of the rows, since only HDF5 knows what it fetches."""
        rows = np.array([int(p[-1, 1] - p[0, 0]) for p in self._calls(runs)], np.int64)
        return (ByteRanges(None, np.full(len(rows), UNSTORED), rows * self._box_bytes),)


class SparseReader(FileReader):
    """Reads rows of a sparse matrix into dense ones.

    Zeros are filled in where a row is read; see :mod:`.arrays` for what such a group holds.
    Where rows begin is read once, 8 bytes a row, and kept.

    The trade-off: a network wants dense rows anyway; a matrix that is wanted sparse is opened as
    the three arrays it is, with ``group=``.
    """

    kind = "sparse"
    why = "a sparse matrix: zeros are filled in where rows are read"

    def __init__(self, source: SourceHeader, region: Region, io: Io) -> None:
        super().__init__(source, region, io)
        # so many rows are read at a time: four chunks of values, or as many as pay a call
        data = source.parts["data"]
        n_values = PIECE_VALUES if data.chunks is None else max(4 * data.chunks[0], PIECE_VALUES)
        mean = max(data.n_rows // max(source.n_rows, 1), 1)
        most = H5PY_BYTES // max(source.row_bytes, 1)
        self.chunk_rows = max(min(n_values // mean, most), 1)

    @cached_property
    def _parts(self) -> Mapping[str, Reader]:
        return {n: open_reader(part, io=self.io) for n, part in self.source.parts.items()}

    @cached_property
    def _begins(self) -> Ints:
        begins = read_rows(self._parts["indptr"], range(self.n_rows + 1))
        n_values = self.source.parts["data"].n_rows
        if begins[0] != 0 or begins[-1] > n_values:
            raise self._damaged(f": its rows end at value {begins[-1]} of {n_values}", "indptr")
        if bool((begins[1:] < begins[:-1]).any()):
            raise self._damaged(": a row ends before it begins", "indptr")
        return begins.astype(np.int64, copy=False)

    def _damaged(self, what: str, part: str) -> ReadError:
        return ReadError(f"{self.where}{what} ({part!r}); copy the file again")

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        n_columns = self.source.shape[1]
        for bands in groups_of(runs, self.chunk_rows):
            held, rows = self._values(bands[:, :2]), rows_of(bands)
            values, columns = (read_rows(self._parts[role], held) for role in ("data", "indices"))
            if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < n_columns:
                what = f"a value lies in column {int(columns.max())} of {n_columns}"
                raise self._damaged(f", rows {rows[0]} to {rows[-1]}: {what}", "indices")
            n_values = self._begins[rows + 1] - self._begins[rows]
            made = np.zeros((len(rows), n_columns), out.dtype)
            at = np.repeat(np.arange(len(rows)), n_values) * n_columns + columns
            np.add.at(made.reshape(-1), at, values)  # those that come twice add up
            first = int(bands[0, 2])
            place = slice(first, first + len(rows))
            out[place if places is None else places[place]] = outer_take(made, self.region)

    def _values(self, runs: Ints) -> Ints:
        """Return the runs of values that rows hold."""
        values = self._begins[runs]
        held: Ints = values[values[:, 1] > values[:, 0]]
        return held

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        values = self._values(runs)
        parts = (self._parts[role] for role in ("data", "indices"))
        return [one for part in parts for one in part.byte_ranges(values)]


def read_scalar(source: SourceHeader) -> Array:
    """Return the value of a dataset without axes, as an array without axes.

    It has no rows (a projection, the one height of a whole grid), and nothing to be lazy about.
    """
    with h5_of(source.file) as file:
        external = source.storage == "external"
        value = resolve(file, source.key, allow_external=external).thing[()]
    return np.asarray(value, source.dtype).astype(native(source.dtype), copy=False)
