"""Rows of text: blocks are read by position, cut to the rows wanted, and parsed.

A piece is one block, or several small ones. Where all its rows are wanted its text is parsed
as it is; else its rows are found again and only those wanted are parsed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled.errors import LabeledError, ReadError
from labeled.formats.bytesource import FileRef
from labeled.formats.clock import decoding
from labeled.formats.csv.index import line_at
from labeled.formats.csv.parsing import Asked, TextFault, parsed
from labeled.formats.csv.table import Columns
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    Engine,
    Io,
    Piece,
    bands_of,
    describe,
    failed,
    n_rows_of,
    packed,
    row_nbytes,
    scratch,
)
from labeled.formats.region import Array, Ints, Region, region_shape
from labeled.formats.rows import RowReader


class TextEngine(Engine):
    """Reads columns of text; see :class:`~labeled.formats.reading.Engine`."""

    def __init__(self, source: SourceHeader, region: Region, io: Io) -> None:
        self.kind = "text"
        self.why = "text: read and parsed block by block"
        table: Columns = source.detail
        chosen: Any = table.columns
        if region:
            chosen = np.asarray(chosen, np.int64)[region]
        columns: list[int] = np.atleast_1d(np.asarray(chosen, np.int64)).tolist()
        types = dict(zip(np.ravel(table.columns).tolist(), table.types, strict=True))
        self._asked = [Asked(i, types[i], table.dtype) for i in columns]
        self._vector = np.ndim(chosen) == 0
        self._source, self._table, self._index = source, table, table.index
        self._file = FileRef(source.file)
        self._used = row_nbytes(region_shape(region, source.row_shape), source.dtype)
        self.scratch_bytes = source.scratch_bytes

    def pieces(self, runs: Ints) -> list[Piece]:
        """Split checked runs into pieces of one block each, or of several small ones in a row."""
        if not len(runs) or not self._asked:
            return []
        self._file().check()
        bands = bands_of(runs, self._index.block_rows)
        block = bands[:, 0] // self._index.block_rows
        begins = np.flatnonzero(np.concatenate(([True], block[1:] != block[:-1])))
        blocks = block[begins]
        full = packed(self._index.starts[blocks + 1] - self._index.starts[blocks])[1:-1]
        cuts = np.union1d(full, np.flatnonzero(np.diff(blocks) > 1) + 1)
        out = []
        for part in np.split(bands, begins[cuts]):
            n = n_rows_of(part[:, :2])
            first, start, stop = int(part[0, 2]), int(part[0, 0]), int(part[-1, 1])
            out.append(Piece(first, n, n * self._used, start, stop, part))
        return out

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        """Read one piece; see :class:`~labeled.formats.rows.RowReader`."""
        try:
            text, begin = self._text_of(piece)
            text, starts = self._wanted(text, begin, piece)
            try:
                with decoding():
                    values = self._parsed(text, piece.n_rows)
            except TextFault as fault:
                raise self._fault(fault, text, starts, piece) from None
        except LabeledError:
            raise
        except (OSError, EOFError) as fault:
            raise failed(self._source, piece.start, piece.stop, fault) from fault
        self._put(out, piece, dest, values)

    def _text_of(self, piece: Piece) -> tuple[Array, int]:
        """Read the text of the blocks of a piece; tell where it begins."""
        block_rows = self._index.block_rows
        begin = int(self._index.starts[piece.start // block_rows])
        end = int(self._index.starts[(piece.stop - 1) // block_rows + 1])
        text = scratch("text", end - begin, begin)
        self._file().read_into(text, begin)
        return text, begin

    def _wanted(self, text: Array, begin: int, piece: Piece) -> tuple[Array, Ints | None]:
        """Cut blocks to the rows of a piece; where they begin, unless it is all of them."""
        block_rows = self._index.block_rows
        first = piece.start - piece.start % block_rows
        stop = min(-(-piece.stop // block_rows) * block_rows, self._index.n_rows)
        if piece.n_rows == stop - first:
            return text, None
        lines = self._table.dialect.lines(text)
        rows = _rows_of(piece) - first
        starts, ends = lines.starts[rows], lines.ends[rows]
        if len(piece.parts) == 1:
            return text[starts[0] : ends[-1]], begin + starts
        spans = zip(starts.tolist(), ends.tolist(), strict=True)
        cut = b"\n".join(text[a:b].tobytes().rstrip(b"\r\n") for a, b in spans)
        return np.frombuffer(cut, np.uint8), begin + starts

    def _parsed(self, text: Any, n_rows: int) -> list[Any]:
        table = self._table
        values = parsed(text, table.dialect, self._asked, table.missing)
        if len(values[0]) != n_rows:
            raise TextFault(f"holds {n_rows} rows, which are read as {len(values[0])}")
        return values

    def _put(self, out: Array, piece: Piece, dest: Ints | None, values: list[Any]) -> None:
        end = piece.first + piece.n_rows
        place: slice | Ints = slice(piece.first, end) if dest is None else dest[piece.first : end]
        if self._vector:
            out[place] = values[0]
        elif isinstance(place, slice):
            target = out[place]
            for i, column in enumerate(values):
                target[:, i] = column
        else:
            rows = np.empty((piece.n_rows, len(values)), out.dtype)
            for i, column in enumerate(values):
                rows[:, i] = column
            out[place] = rows

    def _fault(self, fault: TextFault, text: Array, starts: Ints | None, piece: Piece) -> ReadError:
        """Return the error that names the line that cannot be parsed, and knows its row."""
        dialect = self._table.dialect
        if starts is None:
            first = int(self._index.starts[piece.start // self._index.block_rows])
            starts = first + dialect.lines(text).starts
        row = min(fault.row, len(starts) - 1)
        file = self._source.file
        line = line_at(file, dialect, int(starts[row]))
        where = f"{describe(self._source)}, rows {piece.start} to {piece.stop - 1}"
        error = ReadError(f"{where}: line {line} of {file.path!r} {fault}")
        error.row = int(_rows_of(piece)[row])
        return error

    def _blocks(self, runs: Ints) -> Ints:
        return np.unique(bands_of(runs, self._index.block_rows)[:, 0] // self._index.block_rows)

    def cost(self, runs: Ints) -> Cost:
        """Count what :meth:`pieces` and :meth:`read_piece` would do."""
        if not len(runs) or not self._asked:
            return Cost()
        blocks = self._blocks(runs)
        n_bytes = int((self._index.starts[blocks + 1] - self._index.starts[blocks]).sum())
        stored = n_bytes * self._source.file.size // max(1, self._source.file.content_bytes)
        return Cost(stored, n_rows_of(runs) * self._used, len(blocks), len(blocks))

    def advise(self, runs: Ints) -> None:
        """Tell the system which bytes come next."""
        for block in self._blocks(runs).tolist() if len(runs) else ():
            begin, end = self._index.starts[block : block + 2].tolist()
            self._file().advise(begin, end - begin)

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch a row from storage."""
        return not self._file().holds(int(self._index.starts[row // self._index.block_rows]))


def _rows_of(piece: Piece) -> Ints:
    return np.concatenate([np.arange(a, b) for a, b, _ in piece.parts.tolist()])


def open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> RowReader:
    """Return a reader of columns of text. Opens nothing yet."""
    return RowReader(source, TextEngine, region, io)
