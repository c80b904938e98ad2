"""Sources whose rows all follow one another, in a file as it is or in a gzip-compressed one."""

from __future__ import annotations

import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.extent_engine import ExtentEngine
from labeled.formats.extents import contiguous_extents, span_extents
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import Engine, Io, Piece, bands_of, describe
from labeled.formats.region import Array, BoxPlan, Ints, Region, box_plan

PACKED_PIECE_BYTES = 4 * 1024 * 1024
"""Most that is inflated at a time."""


def contiguous_engine(source: SourceHeader, region: Region, io: Io) -> Engine:
    """Return the engine of a source whose rows all follow one another from its offset on.

    Raises
    ------
    FileFormatError
        If they would reach past the end of the file.
    """
    at = source.offset
    assert at is not None
    end = at + source.n_rows * source.row_bytes
    if at < 0 or end > source.file.content_bytes:
        raise FileFormatError(
            f"{describe(source)}, rows 0 to {source.n_rows - 1}: its data should lie at bytes {at} "
            f"to {end}, but there are {source.file.content_bytes}. It is truncated or damaged."
        )
    plan = box_plan(region, source.row_shape, source.dtype)
    if source.file.packed is not None and source.chunks is not None:
        return PackedEngine(source, plan, io)
    return ExtentEngine(
        source,
        plan,
        contiguous_extents(at, source.row_bytes),
        kind="contiguous",
        why="stored in one piece: read by file offset",
        io=io,
        base=at,
    )


class PackedEngine(Engine):
    """Reads rows that follow one another in a gzip-compressed file.

    Pieces end where rows of a chunk do: there inflating can begin (see :mod:`.packed`).
    """

    def __init__(self, source: SourceHeader, plan: BoxPlan, io: Io) -> None:
        assert source.chunks is not None
        assert source.offset is not None
        self.kind = "packed"
        self.why = "gzip-compressed: inflated from the nearest place where that can begin"
        self._source, self._chunk_rows = source, source.chunks[0]
        self._extents = ExtentEngine(
            source,
            plan,
            span_extents(source.offset, source.row_bytes, self._chunk_rows),
            kind=self.kind,
            why=self.why,
            io=io,
            rows_each=min(self._chunk_rows, PACKED_PIECE_BYTES // max(1, source.row_bytes)),
        )
        self.scratch_bytes = self._extents.scratch_bytes

    def pieces(self, runs: Ints) -> list[Piece]:
        """Split checked runs into pieces of one chunk each."""
        return self._extents.pieces(runs)

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        """Read one piece; see :class:`.rows.RowReader`."""
        self._extents.read_piece(piece, out, dest)

    def gather_into(self, out: Array, rows: Ints) -> None:
        """Store ``source[rows]`` in `out`."""
        self._extents.gather_into(out, rows)

    def cost(self, runs: Ints) -> Cost:
        """Count chunks that are inflated, each as the same share of the file."""
        chunks = np.unique(bands_of(runs, self._chunk_rows)[:, 0] // self._chunk_rows)
        every = -(-self._source.n_rows // self._chunk_rows)
        stored = self._source.file.size * len(chunks) // max(1, every)
        used = self._extents.cost(runs).bytes_used
        return Cost(stored, used, len(chunks), len(chunks))
