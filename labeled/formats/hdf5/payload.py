"""The path to the bytes of an HDF5 dataset: by byte range, or through h5py.

Contiguous and chunked data are read by byte range (outside HDF5's lock), the rest through
h5py, with the reason in `why`. Names of dims, order and threads belong to others.

The trade-off: a header is trusted for what it says of types and places, and checked only
against the size of the file; damage inside uncompressed data without a checksum comes
back as numbers, as it does from HDF5 itself.
"""

from __future__ import annotations

import logging
import os

from labeled.formats.bytesource import is_remote
from labeled.formats.contiguous import contiguous_engine
from labeled.formats.extent_engine import ExtentEngine
from labeled.formats.extents import unstored_extents
from labeled.formats.hdf5.decoded import DecodeEngine
from labeled.formats.hdf5.fallback import H5pyEngine
from labeled.formats.hdf5.filters import why_not
from labeled.formats.hdf5.per_object import Each, EachEngine, EachValue, values_of
from labeled.formats.hdf5.sparse import SparseEngine
from labeled.formats.hdf5.stored import StoredChunks
from labeled.formats.hdf5.tiled import TiledChunks, spans_chunks
from labeled.formats.hdf5.tiles import Tiles
from labeled.formats.header import SourceHeader
from labeled.formats.reading import Engine, Io, describe
from labeled.formats.region import Region, box_plan, outer_take
from labeled.formats.rows import RowReader
from labeled.formats.values_engine import ValuesEngine

log = logging.getLogger(__name__)

_ONLY_HDF5 = {
    "compact": "compact storage: the data are part of the header",
    "external": "external storage: the data are in other files",
    "foreign": "a stored type that HDF5 must convert",
    "misplaced": "HDF5 tells wrong places of chunks whose one unlimited axis is not the first",
    "virtual": "virtual storage: the data are in other datasets",
}


def open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> RowReader:
    """Return a reader of the rows of one source. Opens nothing yet.

    Parameters
    ----------
    source : SourceHeader
    region : tuple, one indexer an axis after the example axis
        Integers (which drop their axis), slices with positive steps, or 1-D integer
        arrays, each axis for itself; missing ones are whole.
    io : {"auto", "pread", "mmap"}
        How local bytes are fetched: "auto" reads runs by ``preadv`` and picks scattered rows
        (of :meth:`.RowReader.gather_into`, and of many short runs close together) from a memory
        map where no filter has to be undone; "pread" never maps; "mmap" maps for long runs
        too. A file that is truncated while it is mapped ends the process (SIGBUS); under
        "pread" it is an error like any other.

    Raises
    ------
    SelectionError, SelectionTypeError
        If the region does not fit the source.
    LoaderError
        If `io` is something else.
    """
    return RowReader(source, _engine_of, region, io)


def _engine_of(source: SourceHeader, region: Region, io: Io) -> Engine:
    if isinstance(source.detail, Each):
        return EachEngine(source, region)
    if isinstance(source.detail, EachValue):
        values = outer_take(values_of(source.file, source.detail), region)
        return ValuesEngine(values, "names or attributes of examples, kept in memory")
    if source.storage == "sparse":
        parts = {role: open_reader(part, io=io) for role, part in source.parts.items()}
        return SparseEngine(source, region, parts)
    reason = _not_by_range(source)
    if reason is not None:
        log.info("%s is read through h5py: %s", describe(source), reason)
        return H5pyEngine(source, region, reason)
    plan = box_plan(region, source.row_shape, source.dtype)
    if source.storage == "contiguous" and source.offset is not None:
        return contiguous_engine(source, region, io)
    if source.storage == "chunked" and 0 not in plan.row_shape:
        return _chunked(source, region, io)
    return ExtentEngine(
        source,
        plan,
        unstored_extents,
        kind="contiguous" if source.chunks is None else "chunked",
        why="nothing is stored, or nothing is asked for: only fill values are handed out",
        io=io,
    )


def _chunked(source: SourceHeader, region: Region, io: Io) -> Engine:
    assert source.chunks is not None
    if source.filters:
        return DecodeEngine(source, region)
    tiles = Tiles(region, source.row_shape, source.chunks[1:])
    if spans_chunks(region, tiles, source):
        return TiledChunks(source, region, tiles, io)
    return StoredChunks(source, region, tiles, io)


def _not_by_range(source: SourceHeader) -> str | None:
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
