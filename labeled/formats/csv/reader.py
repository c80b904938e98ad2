"""Rows of text: blocks are read by position, cut to the rows wanted, and parsed by pyarrow.

Where all rows of a block are wanted its text is parsed as it is; else its rows are found again
and only those wanted are parsed. Types are pyarrow's, as it infers them of samples, and so are the
words for what does not fit; a :class:`TextFault` tells which row that is in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import ReadError, listed
from labeled.formats.csv.index import Dialect, RowIndex, arrow, line_at, read_table
from labeled.formats.csv.options import TIME
from labeled.formats.header import TEXT, SourceHeader
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

UNSIGNED_FROM = 2.0**63
"""Integers from here on are of uint64, and pyarrow takes them for floats."""

SHOWN = 40
"""Characters of a field that a message shows."""

_ROW = re.compile(r"Row #(\d+): ")
_FIELDS = re.compile(r"Expected (\d+) columns, got (\d+)")
_VALUE = re.compile(r"(?s)column #(\d+): .*conversion error to ([^:]*): invalid value '(.*)'")


class TextFault(Exception):
    """A row that does not fit, and why; nobody outside this package sees it."""

    def __init__(self, why: str, row: int = 0) -> None:
        super().__init__(why)
        self.row = row


class Guess(NamedTuple):
    """What some rows of a column hold: an Arrow type, and what that does not tell."""

    type: Any
    gaps: bool = False
    """Values are missing."""
    wide: bool = False
    """Integers that float64 would round."""

    @property
    def zoned(self) -> bool:
        """Whether the values are times that tell their zone."""
        return bool(arrow().types.is_timestamp(self.type) and self.type.tz is not None)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values; floats where integers are missing."""
        kinds = arrow().types
        if kinds.is_integer(self.type) or kinds.is_floating(self.type) or kinds.is_null(self.type):
            exact = kinds.is_integer(self.type) and not self.gaps
            return np.dtype(self.type.to_pandas_dtype() if exact else np.float64)
        if kinds.is_timestamp(self.type):
            return TIME
        return np.dtype(bool) if kinds.is_boolean(self.type) else TEXT


@dataclass(frozen=True)
class Columns:
    """What reading a source needs to know of its text."""

    dialect: Dialect
    columns: int | tuple[int, ...]
    """One column, or several side by side."""
    dtype: np.dtype[Any]
    types: tuple[Any, ...]
    """The Arrow type that each column is parsed as."""
    missing: tuple[str, ...]
    index: RowIndex = field(repr=False, compare=False)


def type_of(dtype: np.dtype[Any], *, zoned: bool = False) -> Any:
    """Return the Arrow type of a dtype; texts are bytes, of which not all need be UTF-8."""
    if dtype == TIME:
        return arrow().timestamp("ns", tz="UTC" if zoned else None)
    return arrow().binary() if dtype.hasobject else arrow().from_numpy_dtype(dtype)


def parsed(text: Any, source: Columns, columns: Sequence[int]) -> list[Array]:
    """Return some columns of whole rows of text.

    Raises
    ------
    TextFault
        If a row has too few or too many fields, or a field is not a value of its type.
    """
    dialect = source.dialect
    all_types = dict(zip(np.ravel(source.columns).tolist(), source.types, strict=True))
    types = {i: all_types[i] for i in columns}
    if dialect.trailing:
        types[len(dialect.names)] = arrow().null()
    table = _table(text, dialect, source.missing, types)
    return [_values(table.column(str(i)), source.dtype, dialect.names[i]) for i in columns]


def guessed(text: bytes, dialect: Dialect, missing: Sequence[str]) -> list[Guess]:
    """Return what each column of some rows holds.

    Raises
    ------
    TextFault
        If a row has too few or too many fields.
    """
    found = []
    for i, column in enumerate(_table(text, dialect, missing).columns):
        guess = _guess(column)
        if arrow().types.is_floating(column.type):
            most = arrow(".compute").max(column).as_py()
            if most is not None and most >= UNSIGNED_FROM:
                try:
                    whole = _table(text, dialect, missing, {i: arrow().uint64()})
                    guess = _guess(whole.column(0))
                except TextFault:
                    pass
        found.append(guess)
    return found


def common(guesses: Sequence[Guess]) -> Guess:
    """Return what holds the values of all samples of a column."""
    kinds = arrow().types
    held = [one for one in guesses if not kinds.is_null(one.type)]
    if not held:
        return guesses[0]
    types = {one.type for one in held}
    gaps = len(held) < len(guesses) or any(one.gaps for one in held)
    wide = any(one.wide for one in held)
    if len(types) == 1:
        (type_,) = types
    elif all(kinds.is_integer(one) or kinds.is_floating(one) for one in types):
        type_ = arrow().float64() if any(map(kinds.is_floating, types)) else arrow().uint64()
    else:
        type_ = arrow().binary()
    if gaps and (kinds.is_boolean(type_) or (wide and kinds.is_integer(type_))):
        type_ = arrow().binary()
    return Guess(type_, gaps, wide)


def _guess(column: Any) -> Guess:
    kinds, type_, gaps = arrow().types, column.type, column.null_count > 0
    if kinds.is_integer(type_):
        return Guess(type_, gaps, bool(_rounded(column, np.dtype(np.float64)).any()))
    if kinds.is_null(type_) or kinds.is_floating(type_) or kinds.is_boolean(type_):
        return Guess(type_, gaps)
    if kinds.is_date(type_) or kinds.is_timestamp(type_):
        zoned = kinds.is_timestamp(type_) and type_.tz is not None
        try:  # nanoseconds count the years 1677 to 2262
            return Guess(column.cast(type_of(TIME, zoned=zoned)).type, gaps)
        except arrow().ArrowInvalid:
            pass
    return Guess(arrow().binary())


def _table(
    text: Any, dialect: Dialect, missing: Sequence[str], types: Mapping[int, Any] | None = None
) -> Any:
    """Parse whole rows: the columns that have `types`, or all, inferred."""
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
        raise TextFault(_why(words, dialect), int(row[1]) - 1 if row else 0) from None


def _why(words: str, dialect: Dialect) -> str:
    """Return what pyarrow says of a row, with the remedy."""
    if found := _FIELDS.search(words):
        what = "few" if int(found[2]) < int(found[1]) else "many"
        return (
            f"has too {what} fields: {found[2]}, where {found[1]} columns are expected "
            f"({listed(dialect.names, 4)}); correct it, or check delimiter=, quote= and skip_lines="
        )
    found = _VALUE.search(words)
    if found is None:
        return f"cannot be read: {words}"
    column, shown = int(found[1]), repr(found[3][:SHOWN])
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
    """Return a column as an array; a missing value is NaN or NaT where there is one."""
    if column.null_count and dtype.kind not in "fM":
        row = int(np.argmax(column.is_null().to_numpy()))
        raise TextFault(
            f"has nothing in column {name!r}, where {dtype} is expected; open with "
            f"dtype={{{name!r}: 'float64'}}, which has NaN",
            row,
        )
    if arrow().types.is_integer(column.type) and dtype.kind == "f":
        rounded = _rounded(column, dtype)
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


def _rounded(column: Any, dtype: np.dtype[Any]) -> Array:
    """Tell which integers are beyond those that floats hold exactly, all of them."""
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

    def _block(self, bands: Ints) -> list[Any]:
        """Return the columns of some rows of one block."""
        begin, end = self._index.starts[bands[0, 0] // self.chunk_rows :][:2].tolist()
        text = scratch("text", end - begin, begin)
        self.file().read_into(text, begin)
        rows = spread(bands[:, 0], bands[:, 1] - bands[:, 0])
        text, starts = self._cut_to(text, begin, rows, len(bands) == 1)
        try:
            with decoding():
                values = parsed(text, self._table, self._columns)
            if len(values[0]) != len(rows):
                raise TextFault(f"holds {len(rows)} rows, which are read as {len(values[0])}")
        except TextFault as fault:
            raise self._fault(fault, text, starts, rows) from None
        return values

    def _cut_to(
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
        starts, ends = self._index.starts[blocks], self._index.starts[blocks + 1]
        return (ByteRanges(self.file, starts, ends - starts, len(blocks)),)
