"""The bytes of rows: one reader for every source, whatever its storage.

:func:`open_reader` costs nothing; the file is touched when rows are first asked for.
Then the reader chooses its path once: by byte range for contiguous and chunked data
(outside HDF5's lock), through h5py for the rest, with the reason in `why`. It knows
rows and bytes; names of dims, order and threads belong to others.

The trade-off: a header is trusted for what it says of types and places, and checked only
against the size of the file; damage inside uncompressed data without a checksum comes
back as numbers, as it does from HDF5 itself.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from labeled.errors import FileFormatError, LoaderError, SelectionError
from labeled.formats.hdf5.bytesource import is_remote
from labeled.formats.hdf5.decoded import DecodeEngine
from labeled.formats.hdf5.extents import ExtentEngine, contiguous_extents, unstored_extents
from labeled.formats.hdf5.fallback import H5pyEngine
from labeled.formats.hdf5.filters import why_not
from labeled.formats.hdf5.header import SourceHeader
from labeled.formats.hdf5.reading import (
    Engine,
    Io,
    Kind,
    Piece,
    checked_runs,
    describe,
    n_rows_of,
    native,
)
from labeled.formats.hdf5.region import (
    Array,
    BoxPlan,
    Ints,
    Region,
    box_plan,
    normal_region,
    region_shape,
)
from labeled.formats.hdf5.stored import StoredChunks
from labeled.formats.reader import Cost

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
        (of :meth:`Reader.gather_into`, and of many short runs close together) from a memory
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
    if io not in ("auto", "pread", "mmap"):
        raise LoaderError(f"{describe(source)}: io must be 'auto', 'pread' or 'mmap', found {io!r}")
    return Reader(source, region, io)


class Reader:
    """Rows of one source, or of a region of it; safe in threads, small in a pickle.

    Attributes
    ----------
    source : SourceHeader
    n_rows : int
    row_shape : tuple of int
        After the region.
    dtype : numpy.dtype
        What is handed out: the stored one in native byte order.
    chunk_rows : int
        Rows of a stored chunk; 1 where there are no chunks.
    """

    __slots__ = (
        "_engine",
        "_region",
        "_where",
        "chunk_rows",
        "dtype",
        "io",
        "n_rows",
        "row_shape",
        "source",
    )

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        self.source = source
        self.io: Io = io
        self._where = describe(source)
        self._region = normal_region(region, source.row_shape, self._where)
        self.n_rows = source.n_rows
        self.row_shape = region_shape(self._region, source.row_shape)
        self.dtype = native(source.dtype)
        self.chunk_rows = 1 if source.chunks is None else source.chunks[0]
        self._engine: Engine | None = None

    def __reduce__(self) -> tuple[Callable[..., Reader], tuple[SourceHeader, Region, Io]]:
        return Reader, (self.source, self._region, self.io)

    def __repr__(self) -> str:
        return f"<Reader of {self._where}: {self.n_rows} x {self.row_shape} {self.dtype}>"

    @property
    def kind(self) -> Kind:
        """The path taken: "contiguous", "chunked" or "h5py"."""
        return self._ready().kind

    @property
    def why(self) -> str:
        """The reason for that path, for people."""
        return self._ready().why

    @property
    def scratch_bytes(self) -> int:
        """Upper bound of the memory a thread uses besides `out` while it reads a piece."""
        return self._ready().scratch_bytes

    def _ready(self) -> Engine:
        engine = self._engine
        if engine is None:
            engine = self._engine = _engine_of(self.source, self._region, self.io)
        return engine

    def pieces(self, runs: Ints) -> list[Piece]:
        """Split runs into independent units of work of about half a mebibyte.

        Parameters
        ----------
        runs : int64 (k, 2)
            Half-open stretches of rows, ascending; they may touch, not overlap.

        Raises
        ------
        SelectionError
            If `runs` are anything else.
        FileChangedError
            If the file is no longer the one that was opened.
        """
        return self._ready().pieces(checked_runs(runs, self.n_rows, self._where))

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None = None) -> None:
        """Read one piece. Row number ``i`` in run order goes to ``out[i]``, or ``out[dest[i]]``.

        Several threads may read pieces of the same runs into the same `out`.

        Parameters
        ----------
        piece : Piece
            From :meth:`pieces` of this reader.
        out : C-contiguous array, ``(n, *row_shape)``, of ``dtype``
        dest : int64 array or None
            A place in `out` for every row of the runs, not only for this piece.

        Raises
        ------
        ReadError
            If the file ends early, or its data are damaged: names file, source and rows.
        """
        self._ready().read_piece(piece, out, dest)

    def read_into(self, out: Array, runs: Ints) -> None:
        """Read runs into ``out``, in order, in this thread."""
        self._check_out(out, 0)
        runs = checked_runs(runs, self.n_rows, self._where)
        engine = self._ready()
        if len(runs) == 1 and isinstance(engine, ExtentEngine):
            start, stop = runs[0].tolist()
            if stop - start <= len(out) and engine.straight_into(out, start, stop):
                return
        self.scatter_into(out, runs, None)

    def read_run(self, out: Array, start: int, stop: int) -> None:
        """Read the rows ``start`` to ``stop - 1`` into ``out``; the cheapest call for one run."""
        engine = self._ready()
        if start >= 0 and stop <= self.n_rows and isinstance(engine, ExtentEngine):
            self._check_out(out, stop - start)
            if engine.straight_into(out, start, stop):
                return
        self.read_into(out, np.array([[start, stop]]))

    def scatter_into(self, out: Array, runs: Ints, dest: Ints | None = None) -> None:
        """Read runs in this thread; row number ``i`` goes to ``out[dest[i]]``."""
        engine = self._ready()
        runs = checked_runs(runs, self.n_rows, self._where)
        n = n_rows_of(runs)
        self._check_out(out, n if dest is None else 0)
        if dest is not None and len(dest) != n:
            raise SelectionError(f"{self._where}: {len(dest)} places for {n} rows")
        for piece in engine.pieces(runs):
            engine.read_piece(piece, out, dest)

    def gather_into(self, out: Array, rows: Ints) -> None:
        """Read rows in any order, repeats allowed, into ``out``; each chunk is decoded once.

        Raises
        ------
        SelectionError
            If a row lies outside the source, or `out` does not fit.
        """
        rows = np.ascontiguousarray(rows, np.int64)
        self._check_out(out, len(rows))
        if not len(rows):
            return
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= self.n_rows:
            raise SelectionError(
                f"{self._where}: rows {low} to {high} were asked for, "
                f"but it has rows 0 to {self.n_rows - 1}"
            )
        self._ready().gather_into(out, rows)

    def gather_known(self, out: Array, rows: Ints) -> None:
        """Do the same with int64 rows that are known to be there, and an `out` that fits."""
        self._ready().gather_into(out, rows)

    def read(self, rows: range | Ints) -> Array:
        """Return rows as a fresh array, ``(len(rows), *row_shape)``: order and repeats kept."""
        out = np.empty((len(rows), *self.row_shape), self.dtype)
        if isinstance(rows, range) and rows.step == 1 and len(rows):
            self.read_into(out, np.array([[rows.start, rows.stop]]))
        else:
            self.gather_into(out, np.asarray(rows, np.int64))
        return out

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch a row from storage."""
        return self._ready().cold(row)

    def advise(self, runs: Ints) -> None:
        """Tell the system that these runs are read next, so that a cold disk starts now."""
        self._ready().advise(checked_runs(runs, self.n_rows, describe(self.source)))

    def cost(self, runs: Ints) -> Cost:
        """Count what reading `runs` takes, without reading more than the chunk index."""
        return self._ready().cost(checked_runs(runs, self.n_rows, self._where))

    def _check_out(self, out: Array, n: int) -> None:
        if out.shape[1:] != self.row_shape or len(out) < n or out.dtype != self.dtype:
            raise SelectionError(
                f"{self._where}: needs an array of {n} x {self.row_shape} {self.dtype}, "
                f"found {out.shape} {out.dtype}"
            )
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise SelectionError(f"{self._where}: the array must be C-ordered and writable")


def _engine_of(source: SourceHeader, region: Region, io: Io) -> Engine:
    reason = _not_by_range(source)
    if reason is not None:
        return H5pyEngine(source, region, reason)
    plan = box_plan(region, source.row_shape, source.dtype)
    if source.storage == "contiguous" and source.offset is not None:
        return _contiguous(source, plan, io, source.offset)
    if source.storage == "chunked" and 0 not in plan.row_shape:
        return DecodeEngine(source, region) if source.filters else StoredChunks(source, region, io)
    return ExtentEngine(
        source,
        plan,
        unstored_extents,
        kind="contiguous" if source.chunks is None else "chunked",
        why="nothing is stored, or nothing is asked for: only fill values are handed out",
        io=io,
    )


def _contiguous(source: SourceHeader, plan: BoxPlan, io: Io, at: int) -> Engine:
    end = at + source.n_rows * source.row_bytes
    if at < 0 or end > source.file.size:
        raise FileFormatError(
            f"{describe(source)}, rows 0 to {source.n_rows - 1}: its data should lie at bytes "
            f"{at} to {end}, but the file has {source.file.size}. It is truncated or damaged."
        )
    return ExtentEngine(
        source,
        plan,
        contiguous_extents(at, source.row_bytes),
        kind="contiguous",
        why="stored in one piece: read by file offset",
        io=io,
        base=at,
    )


def _not_by_range(source: SourceHeader) -> str | None:
    """Say why a source has to be read through h5py, if it has to."""
    if source.storage in _ONLY_HDF5:
        return _ONLY_HDF5[source.storage]
    if source.dtype.hasobject:
        return "items of variable length"
    if not hasattr(os, "preadv") and not is_remote(source.file.path):
        return "this system cannot read by position"
    return why_not(source.filters) if source.storage == "chunked" else None


__all__ = ["Cost", "Piece", "Reader", "open_reader"]
