"""Rows of chunks without filters: rows at other places in the file, and nothing more.

Runs are cut at chunk boundaries into *bands*, the rows of one chunk. What is wanted of a
band are bytes at a known offset, so it is read as extents are: no byte more than needed,
neighbouring chunks with one read. Where rows are longer than a chunk, and :mod:`.tiled` would
read too much, each tile (a column of chunks) is read for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from labeled.formats.extent_engine import ExtentEngine
from labeled.formats.extents import Locate, merged
from labeled.formats.hdf5.chunkindex import chunk_index
from labeled.formats.hdf5.tiles import Tile, Tiles
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    UNSTORED,
    Io,
    Piece,
    bands_of,
    gather,
    n_rows_of,
    row_nbytes,
)
from labeled.formats.region import (
    Array,
    Ints,
    Region,
    box_plan,
    region_shape,
)

CHUNKS_A_STRETCH = 4
"""Chunks that follow one another on average, or else it is not kept where they do."""


class Stretches(NamedTuple):
    """Which rows follow one another in the file, though they are stored in several chunks."""

    starts: Ints
    """First row of each stretch, and ..."""
    stops: Ints
    """... one past its last."""
    bases: Ints
    """Where row 0 would lie if those before followed one another as well, in whole chunks."""


class StoredChunks:
    """Reads chunks without filters: rows at other places, tile by tile."""

    def __init__(self, source: SourceHeader, region: Region, tiles: Tiles, io: Io) -> None:
        self.kind: str = "chunked"
        self.why = "chunks without filters: read by file offset"
        self._source = source
        self._io = io
        self._tiles = tiles
        self._engines: dict[int, ExtentEngine] = {}
        self._used = row_nbytes(region_shape(region, source.row_shape), source.dtype)
        self.scratch_bytes = max(
            (self._engine(t).scratch_bytes for t in range(len(self._tiles))[:1]), default=0
        )

    def _range(self) -> range:
        return range(len(self._tiles) if self._used else 0)

    def _engine(self, t: int) -> ExtentEngine:
        engine = self._engines.get(t)
        if engine is None:
            engine = self._engines[t] = self._made(self._tiles[t], alone=len(self._tiles) == 1)
        return engine

    def _made(self, tile: Tile, *, alone: bool) -> ExtentEngine:
        source = self._source
        assert source.chunks is not None
        plan = box_plan(tile.local, source.chunks[1:], source.dtype)
        places = chunk_places(source, tile.number, self._tiles.per_band, plan.row_bytes)
        return ExtentEngine(
            source,
            plan,
            chunk_extents(places, source.chunks[0], plan.row_bytes),
            kind=self.kind,
            why=self.why,
            io=self._io,
            trail=None if alone else tile.trail,
            places=places if alone else None,
        )

    @cached_property
    def _stretches(self) -> Stretches | None:
        return stretches(self._source) if self._tiles.per_band == 1 else None

    def straight_into(self, out: Array, start: int, stop: int) -> bool:
        """Read one run with one call, if its chunks follow one another in the file."""
        base = self._base_of(start, stop)
        return base is not None and self._engine(0).straight_from(base, out, start, stop)

    def _base_of(self, start: int, stop: int) -> int | None:
        """Return where row 0 would be, if the chunks of a run follow one another in the file."""
        found = self._stretches
        if found is None:
            return None
        k = int(found.starts.searchsorted(start, side="right")) - 1
        return None if stop > found.stops[k] else int(found.bases[k])

    def pieces(self, runs: Ints) -> list[Piece]:
        """Split checked runs into pieces of one tile each."""
        return [
            piece._replace(tiles=(t, t + 1))
            for t in range(len(self._tiles))
            for piece in self._engine(t).pieces(runs)
        ]

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        """Read one piece; see :class:`~labeled.formats.rows.RowReader`."""
        self._engine(piece.tiles[0]).read_piece(piece, out, dest)

    def gather_into(self, out: Array, rows: Ints) -> None:
        """Store ``source[rows]`` in `out`."""
        if len(self._tiles) == 1:
            self._engine(0).gather_into(out, rows)
        else:
            gather(rows, out, self.pieces, self.read_piece)

    def cost(self, runs: Ints) -> Cost:
        """Count what reading runs in order would do."""
        if len(runs) == 1 and self._base_of(*runs[0].tolist()) is not None:
            straight = self._engine(0).straight_cost(n_rows_of(runs))
            if straight is not None:
                return straight
        return sum((self._engine(t).cost(runs) for t in range(len(self._tiles))), start=Cost())

    def advise(self, runs: Ints) -> None:
        """Tell the system which bytes come next."""
        for t in range(len(self._tiles)):
            self._engine(t).advise(runs)

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch the first part of a row from storage."""
        return self._engine(0).cold(row)


def stretches(source: SourceHeader, per_band: int = 1) -> Stretches | None:
    """Return where whole bands lie, chunk after chunk; None where that is too scattered to help.

    A band of `per_band` chunks that do not follow one another belongs to no stretch.
    """
    assert source.chunks is not None
    index, chunk_rows = chunk_index(source), source.chunks[0]
    if index.numbers is not None or not len(index.offsets):
        return None
    offsets = index.offsets.astype(np.int64).reshape(-1, per_band)
    chunk_bytes = row_nbytes(source.chunks, source.dtype)
    whole = (np.diff(offsets, axis=1) == chunk_bytes).all(axis=1)
    follows = np.diff(offsets[:, 0]) == per_band * chunk_bytes
    begins = np.append(0, np.flatnonzero(~(follows & whole[1:] & whole[:-1])) + 1)
    if len(begins) > 1 and len(begins) * CHUNKS_A_STRETCH > offsets.size:
        return None
    starts = begins * chunk_rows
    stops = np.append(starts[1:], source.n_rows)
    stops[~whole[begins]] = 0
    bases = offsets[begins, 0] - begins * per_band * chunk_bytes
    return Stretches(starts, stops, bases)


def chunk_places(
    source: SourceHeader, number: int, per_band: int, row_bytes: int
) -> Callable[[Ints], Ints]:
    """Return what tells where rows begin in those chunks that are number `number` of their band."""
    assert source.chunks is not None
    chunk_rows = source.chunks[0]

    def places(rows: Ints) -> Ints:
        index, band = chunk_index(source), rows // chunk_rows
        chunks = band if per_band == 1 else band * per_band + number
        at = rows - band * chunk_rows
        at *= row_bytes
        if index.numbers is None:  # every chunk is there
            at += index.offsets[chunks].view(np.int64)
            return at
        offsets, _, _ = index.find(chunks)
        return np.where(offsets == UNSTORED, UNSTORED, offsets + at)

    return places


def chunk_extents(places: Callable[[Ints], Ints], chunk_rows: int, row_bytes: int) -> Locate:
    """Return the `locate` of rows in chunks: one extent a band, or fewer."""

    def locate(runs: Ints) -> Ints:
        start, stop, first = bands_of(runs, chunk_rows).T
        return merged(np.stack((places(start), first, stop - start), axis=1), row_bytes)

    return locate
