"""Reading through h5py: everything whose bytes this package does not take apart itself.

Variable-length strings, virtual and external datasets, unusual types, filters without a
decoder here. HDF5 does the work behind its one lock, so a second thread gains nothing;
pieces are large and follow stored chunks, since each one opens the file and closes it
again: no handle outlives a call, and none crosses a fork.

The trade-off: lists within a region are read from their first index to their last and
picked in memory, because HDF5 is slowest at selecting single elements.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Iterable, Sequence

import h5py
import numpy as np

from labeled.errors import MissingExtraError, how_to_install, listed
from labeled.formats.hdf5.door import h5_of
from labeled.formats.hdf5.dtypes import Column
from labeled.formats.hdf5.filters import why_not
from labeled.formats.hdf5.safety import resolve
from labeled.formats.header import Filter, SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    Engine,
    Piece,
    band_pieces,
    describe,
    failed,
    n_rows_of,
    native,
    spread,
)
from labeled.formats.region import Array, Ints, Region, bounds, length, outer_take, shifted

PIECE_BYTES = 8 * 1024 * 1024
GAP_BYTES = 256 * 1024
_OBJECT_BYTES = 64  # a guess at what a variable-length item takes


class H5pyEngine(Engine):
    """Reads rows with ``h5py``, one thread at a time."""

    def __init__(self, source: SourceHeader, region: Region, why: str) -> None:
        self.kind: str = "h5py"
        self.why = why
        self._source = source
        self._box = tuple(slice(*bounds(index)) for index in region)
        self._inner = tuple(
            shifted(index, b.start) for index, b in zip(region, self._box, strict=True)
        )
        dtype = source.dtype
        item = _OBJECT_BYTES if dtype.hasobject else dtype.itemsize
        self._row_bytes = max(math.prod(b.stop - b.start for b in self._box) * item, 1)
        self._used = math.prod(length(index) for index in region) * item
        self._chunk_rows = 1 if source.chunks is None else source.chunks[0]
        bands = max(1, PIECE_BYTES // (self._row_bytes * self._chunk_rows))
        self._piece_rows = bands * self._chunk_rows
        self.scratch_bytes = self._piece_rows * self._row_bytes

    def pieces(self, runs: Ints) -> list[Piece]:
        """Group checked runs by stretches of whole chunks."""
        return band_pieces(runs, self._piece_rows, self._used) if self._used else []

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        """Read one piece; see :class:`~labeled.formats.rows.RowReader`."""
        source = self._source
        require_filters(source)
        with h5_of(source.file) as file:
            try:
                self._read_parts(file[source.key], piece, out, dest)
            except Exception as fault:  # what HDF5 makes of damage is nearly any of them
                raise failed(source, piece.start, piece.stop, fault) from fault

    def _read_parts(
        self, dataset: h5py.Dataset, piece: Piece, out: Array, dest: Ints | None
    ) -> None:
        for parts in self._joined(piece.parts):
            start, first = int(parts[0, 0]), int(parts[0, 2])
            counts = parts[:, 1] - parts[:, 0]
            rows = None if len(parts) == 1 else spread(parts[:, 0] - start, counts)
            box = self._items(dataset, (slice(start, int(parts[-1, 1])), *self._box))
            numbers = slice(first, first + int(counts.sum()))
            out[numbers if dest is None else dest[numbers]] = outer_take(box, self._inner, rows)

    def _items(self, dataset: h5py.Dataset, box: tuple[slice, ...]) -> Array:
        column: Column | None = self._source.detail
        if column is not None:
            return column.read(dataset, box)
        items = np.asarray(dataset[box])
        return items if items.dtype.names is None else items.view(self._source.dtype)

    def _joined(self, parts: Ints) -> list[Ints]:
        """Group runs that one call reads: a call costs as much as copying the rows between."""
        near = max(GAP_BYTES // self._row_bytes, self._chunk_rows)
        return np.split(parts, np.flatnonzero(parts[1:, 0] - parts[:-1, 1] > near) + 1)

    def cost(self, runs: Ints) -> Cost:
        """Estimate: decoded bytes of the rows, since only HDF5 knows what it fetches."""
        groups = [parts for piece in self.pieces(runs) for parts in self._joined(piece.parts)]
        n_rows = sum(int(parts[-1, 1] - parts[0, 0]) for parts in groups)
        return Cost(n_rows * self._row_bytes, n_rows_of(runs) * self._used, len(groups), 0)


def read_scalar(source: SourceHeader) -> Array:
    """Return the value of a dataset without axes, as an array without axes.

    It has no rows (a projection, the one height of a whole grid), and nothing to be lazy about.
    """
    with h5_of(source.file) as file:
        external = source.storage == "external"
        value = resolve(file, source.key, allow_external=external).thing[()]
    return np.asarray(value, source.dtype).astype(native(source.dtype), copy=False)


def require_filters(source: SourceHeader) -> None:
    """Make sure that HDF5 can undo the filters of a source.

    Raises
    ------
    MissingExtraError
        If it cannot, and the library that could teach it is not installed.
    """
    missing = _missing(source.filters)
    if missing:
        raise MissingExtraError(f"{describe(source)}: {_how_to_undo(missing)}")


def told_of_filters(sources: Iterable[SourceHeader]) -> list[str]:
    """Return what to say of sources whose filters nothing installed undoes."""
    found: dict[tuple[Filter, ...], list[str]] = {}
    for source in sources:
        if source.filters:
            found.setdefault(source.filters, []).append(source.name)
    return [
        f"no row of {listed(names, 4)} can be read: {why}"
        for filters, names in found.items()
        if (why := why_not_undone(filters)) is not None
    ]


def why_not_undone(filters: tuple[Filter, ...]) -> str | None:
    """Return what is missing to undo filters; None if nothing is."""
    if why_not(filters) is None:
        return None
    missing = _missing(filters)
    return _how_to_undo(missing) if missing else None


def _missing(filters: tuple[Filter, ...]) -> list[Filter]:
    """Return the filters that HDF5 cannot undo, whatever is installed."""
    missing = [step for step in filters if not h5py.h5z.filter_avail(step.id)]
    if missing:
        with contextlib.suppress(ImportError):
            importlib.import_module("hdf5plugin")  # registers its filters with HDF5
    return [step for step in missing if not h5py.h5z.filter_avail(step.id)]


def _how_to_undo(missing: Sequence[Filter]) -> str:
    names = ", ".join(f"{step.words} ({step.id})" for step in missing)
    how = how_to_install("imagecodecs hdf5plugin", "codecs")
    return f"nothing installed undoes its {names}: {how}"
