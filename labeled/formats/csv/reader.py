"""Rows of delimited text: blocks are read by position, cut to the rows wanted, parsed by pyarrow.

A block is parsed as it is if all its rows are wanted; otherwise its rows are found again, and only
those wanted are parsed. A field that does not fit the type of its column is an error that names
its line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labeled.errors import ReadError, listed
from labeled.formats.csv.index import Dialect, RowIndex, arrow, line_at, read_table
from labeled.formats.csv.options import TIME
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

MAX_SHOWN = 40
"""Characters of a field that a message shows."""

_ROW = re.compile(r"Row #(\d+): ")
_FIELDS = re.compile(r"Expected (\d+) columns, got (\d+)")
_VALUE = re.compile(r"(?s)column #(\d+): .*conversion error to ([^:]*): invalid value '(.*)'")


class TextFault(Exception):
    """What is wrong with a row; callers add its line."""

    def __init__(self, why: str, row: int = 0) -> None:
        super().__init__(why)
        self.row = row


@dataclass(frozen=True)
class Columns:
    """The columns of a source, and how they are parsed."""

    dialect: Dialect
    columns: int | tuple[int, ...]
    """One column, or several side by side."""
    dtype: np.dtype[Any]
    types: Mapping[int, Any]
    """The Arrow type that each column is parsed as."""
    missing: tuple[str, ...]
    index: RowIndex = field(repr=False, compare=False)

    def parse(self, text: Any, columns: Sequence[int]) -> list[Array]:
        """Return some columns of whole rows of text; raise :class:`TextFault` if one is wrong."""
        types = {i: self.types[i] for i in columns}
        if self.dialect.trailing:
            types[len(self.dialect.names)] = arrow().null()
        table = parse(text, self.dialect, self.missing, types)
        names = self.dialect.names
        return [_values(table.column(str(i)), self.dtype, names[i]) for i in columns]


def parse(
    text: Any, dialect: Dialect, missing: Sequence[str], types: Mapping[int, Any] | None = None
) -> Any:
    """Parse whole rows: the columns that have `types`, or all with inferred types.

    Raises
    ------
    TextFault
        If a row has too few or too many fields, or a field is not a value of its type.
    """
    by_name = {str(i): one for i, one in (types or {}).items()}
    try:
        return read_table(
            text,
            dialect,
            [str(i) for i in range(dialect.n_fields)],
            column_types=by_name,
            include_columns=[*by_name],
            null_values=list(missing),
            check_utf8=False,
            strings_can_be_null=False,
        )
    except UnicodeDecodeError as fault:
        raise TextFault(f"is not {dialect.encoding}: {fault}; pass encoding=") from None
    except (arrow().ArrowInvalid, arrow().ArrowKeyError) as fault:
        words = str(fault)
        row = _ROW.search(words)
        raise TextFault(_explained(words, dialect), int(row[1]) - 1 if row else 0) from None


def _explained(words: str, dialect: Dialect) -> str:
    """Return what pyarrow says about a row, in our words and with a remedy."""
    if found := _FIELDS.search(words):
        what = "few" if int(found[2]) < int(found[1]) else "many"
        return (
            f"has too {what} fields: {found[2]}, where {found[1]} columns are expected "
            f"({listed(dialect.names, 4)}); correct it, or check delimiter=, quote= and skip_lines="
        )
    found = _VALUE.search(words)
    if found is None:
        return f"cannot be read: {words}"
    column, shown = int(found[1]), repr(found[3][:MAX_SHOWN])
    if column == len(dialect.names):
        return (
            f"has {shown} behind its last delimiter, where others have nothing; correct it, or "
            "pass names= with one more name for that column"
        )
    dtype = {"double": "float64", "float": "float32"}.get(found[2], found[2])
    dtype = str(TIME) if dtype.startswith("timestamp") else dtype
    name = dialect.names[column]
    return (
        f"has {shown} in column {name!r}, which is not {dtype}; correct it, name it among "
        f"missing=, or open with dtype={{{name!r}: str}}"
    )


def _values(column: Any, dtype: np.dtype[Any], name: str) -> Array:
    """Return a column as an array; a missing value is NaN or NaT."""
    if column.null_count and dtype.kind not in "fM":
        row = int(np.argmax(column.is_null().to_numpy()))
        raise TextFault(
            f"has nothing in column {name!r}, where {dtype} is expected; open with "
            f"dtype={{{name!r}: 'float64'}}, which has NaN",
            row,
        )
    if arrow().types.is_integer(column.type) and dtype.kind == "f":
        rounded = would_round(column, dtype)
        if rounded.any():
            row = int(np.argmax(rounded))
            raise TextFault(
                f"has '{column[row]}' in column {name!r}, which {dtype} would round; pass "
                f"columns='separate', or dtype={{{name!r}: {str(dtype)!r}}} to have it rounded, or "
                f"dtype={{{name!r}: 'str'}} to have text",
                row,
            )
        column = column.cast(arrow().from_numpy_dtype(dtype), safe=False)
    if dtype.kind in "fM" and column.num_chunks > 1:
        column = column.combine_chunks()
    values: Array = column.to_numpy()
    return values


def would_round(column: Any, dtype: np.dtype[Any]) -> Array:
    """Return which integers lie beyond those that a floating dtype holds exactly."""
    values, most = column.fill_null(0).to_numpy(), 2 ** (np.finfo(dtype).nmant + 1)
    rounded: Array = (values > most) | (values < -most)
    return rounded


class TextReader(FileReader):
    """Reads columns of text; a :class:`~labeled.formats.reader.Reader`."""

    kind = "text"
    why = "text: read and parsed block by block"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        self._table: Columns = source.detail
        self._index = self._table.index
        chosen = np.asarray(self._table.columns, np.int64)[self.region]
        self._columns: list[int] = chosen.reshape(-1).tolist()
        self._vector = chosen.ndim == 0

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        self.file().check()
        for bands in groups_of(bands_of(runs, self.chunk_rows), self.chunk_rows, 1):
            with naming_rows(self.source, int(bands[0, 0]), int(bands[-1, 1])):
                values = self._block(bands)
            first, n = int(bands[0, 2]), len(values[0])
            place = slice(first, first + n) if places is None else places[first : first + n]
            for i, column in enumerate(values):
                if self._vector:
                    out[place] = column
                else:
                    out[place, i] = column
            del values, column  # not held while the next block is parsed

    def _block(self, bands: Ints) -> list[Array]:
        """Return the columns of some rows of one block."""
        dialect, first = self._table.dialect, int(bands[0, 0])
        begin, end = self._index.starts[first // self.chunk_rows :][:2].tolist()
        text = scratch("text", end - begin, begin)
        self.file().read_into(text, begin)
        rows = spread(bands[:, 0], bands[:, 1] - bands[:, 0])
        lines, first = None, first - first % self.chunk_rows
        if len(rows) < min(self.chunk_rows, self.n_rows - first):
            lines = dialect.lines(text)
            starts, ends = lines.starts[rows - first], lines.ends[rows - first]
            if len(bands) == 1:
                part = text[starts[0] : ends[-1]]
            else:
                spans = zip(starts.tolist(), ends.tolist(), strict=True)
                cut = b"\n".join(text[a:b].tobytes().rstrip(b"\r\n") for a, b in spans)
                part = np.frombuffer(cut, np.uint8)
        else:
            part = text
        try:
            with decoding():
                values = self._table.parse(part, self._columns)
            if len(values[0]) != len(rows):
                raise TextFault(f"holds {len(rows)} rows, which are read as {len(values[0])}")
        except TextFault as fault:
            row = int(rows[min(fault.row, len(rows) - 1)])
            start = begin + int((lines or dialect.lines(text)).starts[row - first])
            file = self.source.file
            where = f"{self.where}, rows {rows[0]} to {rows[-1]}"
            line = line_at(file, dialect, start)
            error = ReadError(f"{where}: line {line} of {file.path!r} {fault}")
            error.row = row
            raise error from None
        return values

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        blocks = np.unique(bands_of(runs, self.chunk_rows)[:, 0] // self.chunk_rows)
        starts, ends = self._index.starts[blocks], self._index.starts[blocks + 1]
        return (ByteRanges(self.file, starts, ends - starts, len(blocks)),)
