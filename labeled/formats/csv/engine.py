"""Rows of text: blocks are read by position, cut to the rows wanted, and parsed.

Where all rows of a block are wanted its text is parsed as it is; else its rows are found again
and only those wanted are parsed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from labeled.errors import ReadError
from labeled.formats.csv.index import line_at
from labeled.formats.csv.parsing import Asked, TextFault, parsed
from labeled.formats.csv.table import Columns
from labeled.formats.header import SourceHeader
from labeled.formats.memory import scratch
from labeled.formats.reader import (
    ByteRanges,
    FileReader,
    Io,
    bands_of,
    decoding,
    groups_of,
    naming_rows,
    spread,
)
from labeled.formats.region import Array, Ints, Region


class TextReader(FileReader):
    """Reads columns of text; a :class:`~labeled.formats.reader.Reader`."""

    kind = "text"
    why = "text: read and parsed block by block"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        table: Columns = source.detail
        chosen: Any = table.columns
        if self.region:
            chosen = np.asarray(chosen, np.int64)[self.region]
        columns: list[int] = np.atleast_1d(np.asarray(chosen, np.int64)).tolist()
        types = dict(zip(np.ravel(table.columns).tolist(), table.types, strict=True))
        self._asked = [Asked(i, types[i], table.dtype) for i in columns]
        self._vector = np.ndim(chosen) == 0
        self._table, self._index = table, table.index

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        self.file().check()
        for bands in groups_of(bands_of(runs, self.chunk_rows), self.chunk_rows, 1):
            with naming_rows(self.source, int(bands[0, 0]), int(bands[-1, 1])):
                values = self._block(bands)
            first, n = int(bands[0, 2]), len(values[0])
            place = slice(first, first + n) if places is None else places[first : first + n]
            if self._vector:
                out[place] = values[0]
                continue
            rows = (
                out[place] if isinstance(place, slice) else np.empty((n, *out.shape[1:]), out.dtype)
            )
            for i, column in enumerate(values):
                rows[:, i] = column
            if not isinstance(place, slice):
                out[place] = rows

    def _block(self, bands: Ints) -> list[Any]:
        """Return the columns of some rows of one block."""
        begin, end = self._index.starts[bands[0, 0] // self.chunk_rows :][:2].tolist()
        text = scratch("text", end - begin, begin)
        self.file().read_into(text, begin)
        rows = spread(bands[:, 0], bands[:, 1] - bands[:, 0])
        text, starts = self._wanted(text, begin, rows, len(bands) == 1)
        try:
            with decoding():
                return self._parsed(text, len(rows))
        except TextFault as fault:
            raise self._fault(fault, text, starts, rows) from None

    def _wanted(
        self, text: Array, begin: int, rows: Ints, in_one: bool
    ) -> tuple[Array, Ints | None]:
        """Cut a block to some rows; tell where they begin, unless it is all of them."""
        first = int(rows[0]) - int(rows[0]) % self.chunk_rows
        if len(rows) == min(self.chunk_rows, self.n_rows - first):
            return text, None
        lines = self._table.dialect.lines(text)
        starts, ends = lines.starts[rows - first], lines.ends[rows - first]
        if in_one:
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

    def _fault(self, fault: TextFault, text: Array, starts: Ints | None, rows: Ints) -> ReadError:
        """Return the error that names the line that cannot be parsed, and knows its row."""
        dialect = self._table.dialect
        if starts is None:
            first = int(self._index.starts[rows[0] // self.chunk_rows])
            starts = first + dialect.lines(text).starts
        row = min(fault.row, len(starts) - 1)
        file = self.source.file
        line = line_at(file, dialect, int(starts[row]))
        where = f"{self.where}, rows {rows[0]} to {rows[-1]}"
        error = ReadError(f"{where}: line {line} of {file.path!r} {fault}")
        error.row = int(rows[row])
        return error

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        blocks = np.unique(bands_of(runs, self.chunk_rows)[:, 0] // self.chunk_rows)
        starts = self._index.starts[blocks]
        ends = self._index.starts[blocks + 1]
        return (ByteRanges(self.file, starts, ends - starts, len(blocks)),)


def open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> TextReader:
    """Return a reader of columns of text. Opens nothing yet."""
    return TextReader(source, region, io)
