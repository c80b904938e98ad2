"""Delimited text as a format: samples of a file tell the types of its columns, as pyarrow infers
them; options and names tell which columns make which sources; blocks of rows are parsed by pyarrow.

A block is parsed as it is if all its rows are wanted; otherwise its rows are found again, and only
those wanted are parsed. A field that does not fit the type of its column is an error that names
its line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import FileFormatError, ReadError, UnknownNameError, did_you_mean, listed
from labeled.formats.bytesource import FileRef, stamp_of
from labeled.formats.csv.index import (
    TIME,
    Dialect,
    RowIndex,
    TextOptions,
    arrow,
    is_packed,
    line_at,
    read_dialect,
    row_index,
)
from labeled.formats.format import Format, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import (
    TEXT,
    FileHeader,
    FileStamp,
    Filter,
    SourceHeader,
)
from labeled.formats.memory import scratch
from labeled.formats.reader import (
    ByteRanges,
    FileReader,
    Io,
    bands_of,
    decoding,
    groups_of,
    naming_rows,
)
from labeled.formats.region import Array, Ints, Region
from labeled.selection import rows_of

SAMPLES = 8
"""Blocks, evenly apart, that tell the types of columns."""

SCRATCH_BLOCKS = 3
"""What a thread holds while it parses, in blocks of text: the text, what the parser notes of it,
and columns of values."""

FEATURES, LABELS = "features", "labels"
DIMS = ("batch", "feature")

_FIELD = re.compile(r"(?s)In CSV column #(\d+): (?:Row #\d+: )?(?:CSV )?(.*)")

Chosen = int | tuple[int, ...]
"""One column, or several side by side."""


class CsvColumn(NamedTuple):
    """One column of a text, as far as samples tell."""

    name: str
    type: Any
    """The Arrow type that its fields are parsed as."""
    has_gaps: bool = False
    """Values are missing."""
    is_large: bool = False
    """It has integers that float64 would round."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values; floats if integers are missing."""
        kinds = arrow().types
        if kinds.is_timestamp(self.type):
            return TIME
        if kinds.is_binary(self.type):
            return TEXT
        if kinds.is_null(self.type) or (kinds.is_integer(self.type) and self.has_gaps):
            return np.dtype(np.float64)
        dtype: np.dtype[Any] = np.dtype(self.type.to_pandas_dtype())
        return dtype

    def parsed_as(self, dtype: np.dtype[Any] | None) -> CsvColumn:
        """Return the column with the dtype that a caller asks for."""
        if dtype is None:
            return self
        if dtype == TIME:
            has_zone = arrow().types.is_timestamp(self.type) and self.type.tz is not None
            return self._replace(type=arrow().timestamp("ns", "UTC" if has_zone else None))
        kind = arrow().binary() if dtype == TEXT else arrow().from_numpy_dtype(dtype)
        return CsvColumn(self.name, kind)


def _scan(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    own: TextOptions = TextOptions() if options.own is None else options.own
    texts = []
    for path in paths:
        stamp = stamp_of(path)
        dialect = read_dialect(stamp, own)
        index = row_index(stamp, dialect)
        if is_packed(stamp):
            stamp = replace(stamp, unpacked_bytes=index.n_bytes)
        texts.append((stamp, dialect, index, _sampled(stamp, dialect, index)))
    first = texts[0][1].names
    for stamp, dialect, _, _ in texts[1:]:
        if dialect.names != first:
            raise FileFormatError(
                f"{stamp.path!r} cannot be joined to {paths[0]!r}: its {len(dialect.names)} "
                f"columns are {listed(dialect.names, 4)}, not {listed(first, 4)}; pass header= or "
                "names= if these are not names, or open them apart"
            )
    columns = [_common(column) for column in zip(*(text[3] for text in texts), strict=True)]
    nameless = own.names is None and first[-1] == f"column_{len(first) - 1}"
    if nameless and len(first) > 1 and columns[-1].type == arrow().null():
        del columns[-1]  # each line ends with a delimiter
    columns = [_with_dtype(column, own.dtype) for column in columns]
    chosen = sources_of(paths[0], columns, own)
    return tuple(_file_header(*text[:3], columns, chosen, options, own) for text in texts)


def _file_header(
    stamp: FileStamp,
    dialect: Dialect,
    index: RowIndex,
    columns: Sequence[CsvColumn],
    chosen: dict[str, Chosen],
    options: Options,
    own: TextOptions,
) -> FileHeader:
    sources = {}
    for name in chosen_sources(chosen, options, repr(stamp.path)):
        numbers = np.atleast_1d(chosen[name]).tolist()
        asked = dict(own.dtype).get(name) if isinstance(own.dtype, tuple) else None
        some = [columns[i].parsed_as(asked) for i in numbers]
        kinds = {column.dtype.kind for column in some}
        if len(some) > 1 and ("O" in kinds or (len(kinds) > 1 and kinds & {"M", "b"})):
            raise FileFormatError(
                f"source {name!r} of {stamp.path!r} would put text, times, or true and false "
                "beside other columns; leave those out of columns= (or pass columns='separate')"
            )
        dtype = some[0].dtype if len(some) == 1 else np.result_type(*(one.dtype for one in some))
        is_vector = isinstance(chosen[name], int)
        types = tuple(_parsed_type(one, dtype) for one in some)
        table = Columns(dialect, tuple(numbers), types, dtype, index)
        shape, dims = ((), ("batch",)) if is_vector else ((len(some),), DIMS)
        attrs: dict[str, Any] = {"columns": [dialect.names[i] for i in numbers]}
        if dtype == TIME and any(one.tz is not None for one in types):
            attrs["timezone"] = "UTC"
        sources[name] = SourceHeader(
            file=stamp,
            name=name,
            key=str(chosen[name]),
            shape=(index.n_rows, *shape),
            dtype=dtype,
            dims=dims_of(name, dims, options, repr(stamp.path)),
            attrs=attrs,
            storage="chunked",
            chunks=(index.block_rows, *shape),
            filters=(Filter(0, "text"),),
            fill_value={"O": b"", "M": np.datetime64("NaT", "ns")}.get(dtype.kind, 0),
            stored_bytes=stamp.size,
            format="csv",
            detail=table,
            scratch_bytes=SCRATCH_BLOCKS * index.longest,
        )
    return FileHeader(
        stamp=stamp,
        sources=sources,
        splits=all_rows(sources),
        kind="table",
        format="csv",
    )


# what columns hold


def _sampled(stamp: FileStamp, dialect: Dialect, index: RowIndex) -> list[CsvColumn]:
    """Return the columns, with the types of values in blocks all over the text.

    Raises
    ------
    FileFormatError
        If a row of them has too few or too many fields.
    """
    n_blocks, found = len(index.starts) - 1, []
    if not n_blocks:
        return [CsvColumn(name, arrow().null()) for name in dialect.names]
    for block in sorted({i * (n_blocks - 1) // (SAMPLES - 1) for i in range(SAMPLES)}):
        begin, end = index.starts[block : block + 2].tolist()
        text = np.empty(end - begin, np.uint8)
        FileRef(stamp)().read_into(text, begin)
        try:
            found.append(_inferred(text, dialect))
        except ValueError:
            _, at, why = _first_fault(text, dialect, lambda part: _inferred(part, dialect))
            line = line_at(stamp, dialect, begin + at)
            raise FileFormatError(f"line {line} of {stamp.path!r}: {why}") from None
    return [_common(column) for column in zip(*found, strict=True)]


def _inferred(text: Array, dialect: Dialect) -> list[CsvColumn]:
    """Return the columns of some rows, with the types that pyarrow infers."""
    kinds, found = arrow().types, list[CsvColumn]()
    for name, values in zip(dialect.names, dialect.parse(text).columns, strict=True):
        has_gaps, is_large = values.null_count > 0, False
        if kinds.is_floating(values.type) and (arrow(".compute").max(values).as_py() or 0) >= 2**63:
            with suppress(ValueError):  # pyarrow infers no uint64
                values = dialect.parse(text, {name: arrow().uint64()}).column(0)
        kind = values.type
        if kinds.is_integer(kind):
            try:
                values.cast(arrow().float64())
            except ValueError:
                is_large = True
        elif kinds.is_date(kind) or kinds.is_timestamp(kind):
            try:  # nanoseconds count the years 1677 to 2262
                kind = values.cast(arrow().timestamp("ns", getattr(kind, "tz", None))).type
            except ValueError:
                kind = arrow().binary()
        elif not (kinds.is_null(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
            kind = arrow().binary()  # not all texts need be UTF-8
        found.append(CsvColumn(name, kind, has_gaps, is_large))
    return found


def _common(columns: Sequence[CsvColumn]) -> CsvColumn:
    """Return a column whose type holds the values of all samples of it."""
    kinds = arrow().types
    held = {one.type for one in columns if not kinds.is_null(one.type)}
    has_gaps = any(one.has_gaps for one in columns) or any(kinds.is_null(c.type) for c in columns)
    if len(held) < 2:
        kind = held.pop() if held else arrow().null()
    elif all(kinds.is_integer(one) for one in held):
        kind = arrow().uint64()
    elif all(kinds.is_integer(one) or kinds.is_floating(one) for one in held):
        kind = arrow().float64()
    else:
        kind = arrow().binary()
    if has_gaps and kinds.is_boolean(kind):
        kind = arrow().binary()
    return CsvColumn(columns[0].name, kind, has_gaps, any(one.is_large for one in columns))


def _with_dtype(column: CsvColumn, dtype: Any) -> CsvColumn:
    """Return a column as `dtype=` asks for it: one for all is for numbers, except str."""
    if isinstance(dtype, tuple):
        return column.parsed_as(dict(dtype).get(column.name))
    return column if dtype != TEXT and column.dtype.kind in "ObM" else column.parsed_as(dtype)


def _parsed_type(column: CsvColumn, dtype: np.dtype[Any]) -> Any:
    """Return the Arrow type of a column: integers among floats are integers until they are cast."""
    is_integer = arrow().types.is_integer(column.type)
    return column.type if dtype.kind != "f" or is_integer else arrow().from_numpy_dtype(dtype)


# which columns make which sources


def sources_of(path: str, columns: Sequence[CsvColumn], options: TextOptions) -> dict[str, Chosen]:
    """Return the columns of each source.

    Raises
    ------
    UnknownNameError
        If an option names a column that is not there.
    FileFormatError
        If two sources would have the same name.
    """
    names = [column.name for column in columns]

    found: dict[str, Chosen] = {}
    if options.labels is not None:
        given = options.labels[0] if len(options.labels) == 1 else options.labels
        found[LABELS] = _numbers_of(given, path, names, "labels=")
    taken = np.ravel(found.get(LABELS, ())).tolist()
    left = [i for i in range(len(names)) if i not in taken]
    if isinstance(options.columns, tuple):
        more = {
            source: _numbers_of(given, path, names, "columns=") for source, given in options.columns
        }
    elif options.columns == "separate" or (options.columns is None and len(names) == 1):
        more = {names[i]: i for i in left}
    else:
        more = _matrix(columns, left)
    if LABELS in found and LABELS in more:
        raise FileFormatError(
            f"two sources of {path!r} would be called {LABELS!r}; pass names=[...], or name the "
            "sources with columns={...}"
        )
    known = {*names, *more, *found}
    for name, _ in options.dtype if isinstance(options.dtype, tuple) else ():
        if name not in known:
            raise UnknownNameError(
                f"dtype= names {name!r}, which is not a column or source of {path!r}; "
                f"{did_you_mean(name, known)}"
            )
    return {**more, **found}


def _numbers_of(given: Any, path: str, names: Sequence[str], argument: str) -> Any:
    """Return the numbers of columns given by name or number (negative from the end)."""
    if isinstance(given, tuple):
        return tuple(_numbers_of(one, path, names, argument) for one in given)
    if isinstance(given, int) and not isinstance(given, bool) and -len(names) <= given < len(names):
        return given % len(names)
    if given in names:
        return names.index(given)
    raise UnknownNameError(
        f"{argument} names column {given!r}, but {path!r} has {len(names)} columns; "
        f"{did_you_mean(str(given), names)}"
    )


def _matrix(columns: Sequence[CsvColumn], left: Sequence[int]) -> dict[str, Chosen]:
    """Put all numeric columns with a name side by side, and each other column alone.

    Large integers beside floats stay alone, too: float64 would hold both, but round them.
    """
    named = [i for i in left if columns[i].name != f"column_{i}"] or left
    numbers = [i for i in named if columns[i].dtype.kind in "iuf"]
    if numbers and np.result_type(*(columns[i].dtype for i in numbers)).kind == "f":
        numbers = [i for i in numbers if not columns[i].is_large] or numbers
    beside = set(numbers)
    alone: dict[str, Chosen] = {columns[i].name: i for i in left if i not in beside}
    return {FEATURES: tuple(numbers), **alone} if numbers else alone


# reading


@dataclass(frozen=True)
class Columns:
    """The columns of a source, and how they are parsed."""

    dialect: Dialect
    numbers: tuple[int, ...]
    types: tuple[Any, ...]
    """The Arrow type that each column is parsed as."""
    dtype: np.dtype[Any]
    index: RowIndex = field(repr=False, compare=False)

    def parse(self, text: Array, chosen: Sequence[int]) -> list[Array]:
        """Return the values of some columns, by their positions among these, in rows of text.

        Raises
        ------
        ValueError
            If a row has too few or too many fields, or a field is not a value of its type.
        """
        names = [self.dialect.names[self.numbers[i]] for i in chosen]
        types = (self.types[i] for i in chosen)
        table = self.dialect.parse(text, dict(zip(names, types, strict=True)))
        return [self._values(name, table.column(name)) for name in names]

    def _values(self, name: str, column: Any) -> Array:
        """Return a column as an array; a missing value is NaN or NaT."""
        if column.null_count and self.dtype.kind not in "fM":
            raise ValueError(
                f"column {name!r} holds nothing, where {self.dtype} is expected; open with "
                f"dtype={{{name!r}: 'float64'}}, which has NaN"
            )
        if self.dtype.kind == "f" and arrow().types.is_integer(column.type):
            try:
                column = column.cast(arrow().from_numpy_dtype(self.dtype))
            except ValueError as fault:
                raise ValueError(
                    f"column {name!r}: {fault}, which {self.dtype} would round; pass "
                    f"columns='separate', or dtype={{{name!r}: {str(self.dtype)!r}}} to have it "
                    f"rounded, or dtype={{{name!r}: 'str'}} to have text"
                ) from None
        if self.dtype.kind in "fM" and column.num_chunks > 1:
            column = column.combine_chunks()
        values: Array = column.to_numpy()
        return values


def _first_fault(
    text: Array, dialect: Dialect, parse: Callable[[Array], object]
) -> tuple[int, int, str]:
    """Return the first row that cannot be parsed, found by halves: its number, place and fault."""
    starts, ends, _ = dialect.lines(text)
    first, stop, words = 0, len(starts), ""
    while first < stop:
        middle = (first + stop) // 2
        try:
            parse(text[starts[first] : ends[middle]])
            first = middle + 1
        except ValueError as fault:
            stop, words = middle, str(fault)
            is_text = not isinstance(fault, UnicodeDecodeError)
    if not is_text:
        words = f"it is not {dialect.encoding}: {words}; pass encoding="
    elif found := _FIELD.match(words):
        name = dialect.names[int(found[1])]
        words = (
            f"column {name!r}: {found[2]}; correct it, name it among missing=, or open with "
            f"dtype={{{name!r}: str}}"
        )
    elif words.startswith("CSV parse error"):
        words = re.sub(r"Row #\d+: ", "", words)
        words = f"{words}; correct it, or check delimiter=, quote= and skip_lines="
    return first, int(starts[first]), words


class TextReader(FileReader):
    """Reads columns of text; a :class:`~labeled.formats.reader.Reader`."""

    kind = "text"
    why = "text: read and parsed block by block"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        self._table: Columns = source.detail
        chosen = np.arange(len(self._table.numbers)).reshape(source.row_shape)[self.region]
        self._chosen: list[int] = chosen.reshape(-1).tolist()

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        self.file().check()
        for bands in groups_of(bands_of(runs, self.chunk_rows), self.chunk_rows, 1):
            with naming_rows(self.source, int(bands[0, 0]), int(bands[-1, 1])):
                values = self._block(bands)
            first, n = int(bands[0, 2]), len(values[0])
            place = slice(first, first + n) if places is None else places[first : first + n]
            flat = out.reshape(len(out), len(values))
            for i, column in enumerate(values):
                flat[place, i] = column
            del values, column  # not held while the next block is parsed

    def _block(self, bands: Ints) -> list[Array]:
        """Return the columns of some rows of one block."""
        table, dialect, file = self._table, self._table.dialect, self.source.file
        rows = rows_of(bands)
        block = int(rows[0]) // self.chunk_rows
        begin, end = table.index.starts[block : block + 2].tolist()
        text = scratch("text", end - begin, begin)
        self.file().read_into(text, begin)
        part, first = text, block * self.chunk_rows
        if len(rows) < min(self.chunk_rows, self.n_rows - first):
            starts, ends, _ = dialect.lines(text)
            spans = [text[starts[a - first] : ends[b - first - 1]] for a, b, _ in bands.tolist()]
            part = np.concatenate(spans) if len(spans) > 1 else spans[0]
        try:
            with decoding():
                values = table.parse(part, self._chosen)
            if len(values[0]) != len(rows):
                raise ReadError(f"{self.where}: {len(rows)} rows are read as {len(values[0])}")
            return values
        except ValueError:
            number, _, why = _first_fault(part, dialect, lambda t: table.parse(t, self._chosen))
            row = int(rows[number])
            at = begin + int(dialect.lines(text).starts[row - first])
            line = line_at(file, dialect, at)
            where = f"{self.where}, rows {rows[0]} to {rows[-1]}"
            error = ReadError(f"{where}: line {line} of {file.path!r}: {why}")
            error.row = row
            raise error from None

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        blocks = np.unique(bands_of(runs, self.chunk_rows)[:, 0] // self.chunk_rows)
        starts, ends = self._table.index.starts[blocks], self._table.index.starts[blocks + 1]
        return (ByteRanges(self.file, starts, ends - starts, len(blocks)),)


FORMAT = Format(
    name="csv",
    title="delimited text",
    suffixes=(".csv", ".tsv", ".tab", ".txt", ".csv.gz", ".tsv.gz", ".tab.gz", ".txt.gz"),
    recognises=lambda head: False,  # text has no first bytes of its own: its name decides
    scan=_scan,
    open_reader=TextReader,
    kinds={"table": "delimited text"},
    options=TextOptions,
)
