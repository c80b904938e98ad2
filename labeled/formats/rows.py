"""Rows of one source: requests checked once, then handed to the engine of a format.

:class:`RowReader` costs nothing to make; the file is touched when rows are first asked
for. Then the format makes an :class:`~labeled.formats.reading.Engine`, which reads rows
of one storage layout and may rely on requests that fit. A reader pickles as its header,
its region and the function that makes the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labeled.errors import LoaderError, SelectionError
from labeled.formats.header import SourceHeader
from labeled.formats.keeping import ChunkKeeper, KeepsChunks
from labeled.formats.reader import Cost
from labeled.formats.reading import Engine, Io, Piece, checked_runs, describe, n_rows_of, native
from labeled.formats.region import Array, Ints, Region, normal_region, region_shape

IO = ("auto", "pread", "mmap")
IO_WORDS = "'auto', 'pread' or 'mmap'"

MakeEngine = Callable[[SourceHeader, Region, Io], Engine]
"""A function of a module, so that it pickles: makes what reads a region of a source."""

ReadRun = Callable[[Array, int, int], bool]
"""Reads rows start to stop into an array with one call; False, and nothing done, if it cannot."""


class RowReader:
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
        "_keeper",
        "_make",
        "_region",
        "_straight",
        "_where",
        "chunk_rows",
        "dtype",
        "io",
        "n_rows",
        "row_shape",
        "source",
    )

    def __init__(
        self,
        source: SourceHeader,
        make: MakeEngine,
        region: Region = (),
        io: Io = "auto",
        keeper: ChunkKeeper | None = None,
    ) -> None:
        if io not in IO:
            raise LoaderError(f"{describe(source)}: io must be {IO_WORDS}, found {io!r}")
        self.source = source
        self._make = make
        self.io: Io = io
        self._where = describe(source)
        self._region = normal_region(region, source.row_shape, self._where)
        self.n_rows = source.n_rows
        self.row_shape = region_shape(self._region, source.row_shape)
        self.dtype = native(source.dtype)
        self.chunk_rows = 1 if source.chunks is None else source.chunks[0]
        self._keeper = keeper
        self._engine: Engine | None = None
        self._straight: ReadRun | None = None

    def __reduce__(self) -> tuple[Callable[..., RowReader], tuple[Any, ...]]:
        return RowReader, (
            self.source,
            self._make,
            self._region,
            self.io,
            self._keeper,
        )

    def __repr__(self) -> str:
        return f"<Reader of {self._where}: {self.n_rows} x {self.row_shape} {self.dtype}>"

    @property
    def kind(self) -> str:
        """The path taken: "contiguous", "chunked", "h5py", ..."""
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
            engine = self._make(self.source, self._region, self.io)
            if self._keeper is not None and isinstance(engine, KeepsChunks):
                engine.keep_in(self._keeper)
            self._straight = getattr(engine, "straight_into", None)
            self._engine = engine
        return engine

    def keep_in(self, keeper: ChunkKeeper) -> None:
        """Keep decoded chunks there, so that those are decoded once whose rows come bit by bit."""
        self._keeper, self._engine = keeper, None

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
        self._ready()
        if len(runs) == 1 and self._straight is not None:
            start, stop = runs[0].tolist()
            if stop - start <= len(out) and self._straight(out, start, stop):
                return
        self.scatter_into(out, runs, None)

    def read_run(self, out: Array, start: int, stop: int) -> None:
        """Read rows that are known to be there into an `out` that fits; the cheapest call."""
        self._ready()
        if self._straight is None or not self._straight(out, start, stop):
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

    def copy_spans(self, out: Array, places: Ints, starts: Ints, sizes: Ints) -> bool:
        """Copy short spans of single values from a memory map, each to its place in `out`.

        False, and nothing done, where there is no map, or reading by calls is better.
        """
        copy = getattr(self._ready(), "copy_spans", None)
        return bool(copy is not None and copy(out, places, starts, sizes))

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
