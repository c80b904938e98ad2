"""Delimited text as a format: samples of a file tell the types of its columns, as pyarrow infers
them; options and names tell which columns make which sources; blocks of rows are parsed by pyarrow.

A block is parsed as it is if all its rows are wanted; otherwise its rows are found again, and only
those wanted are parsed. A field that does not fit the type of its column is an error that names
its line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import FileFormatError, ReadError, check_known, listed, warn
from labeled.formats.bytesource import is_packed, naming_rows, open_bytes, stamp_of
from labeled.formats.csv.index import (
    TIME,
    Dialect,
    RowError,
    RowIndex,
    TextOptions,
    arrow,
    line_at,
    read_dialect,
    row_index,
)
from labeled.formats.format import Format, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import (
    TEXT,
    FileHeader,
    FileStamp,
    FilterInfo,
    SourceHeader,
    first_rounded,
)
from labeled.formats.memory import scratch
from labeled.formats.reader import ByteRanges, FileReader, Io, bands_of, decoding, groups_of
from labeled.formats.region import Array, Ints, Region
from labeled.selection import rows_of

SAMPLES = 8  # blocks, evenly apart, that tell the types of columns

# what a thread holds while it parses, in blocks of text: the text, what the parser notes of it, and
# columns of values
SCRATCH_BLOCKS = 3

FEATURES, LABELS = "features", "labels"
DIMS = ("batch", "feature")

Chosen = int | tuple[int, ...]  # one column, or several side by side


class Column(NamedTuple):
    """One column of a text, as far as samples tell."""

    name: str
    type: Any  # the Arrow type that its fields are parsed as
    has_gaps: bool = False  # values are missing
    is_large: bool = False  # it has integers that float64 would round

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

    def parsed_as(self, dtype: np.dtype[Any] | None) -> Column:
        """Return the column with the dtype that a caller asks for."""
        if dtype is None:
            return self
        if dtype == TIME:
            has_zone = arrow().types.is_timestamp(self.type) and self.type.tz is not None
            return self._replace(type=arrow().timestamp("ns", "UTC" if has_zone else None))
        kind = arrow().binary() if dtype == TEXT else arrow().from_numpy_dtype(dtype)
        return Column(self.name, kind)


def _scan(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    own: TextOptions = TextOptions() if options.own is None else options.own
    texts, sampled = [], []
    for path in paths:
        stamp = stamp_of(path)
        dialect = read_dialect(stamp, own)
        index = row_index(stamp, dialect)
        if is_packed(stamp):
            stamp = stamp._replace(unpacked_bytes=index.n_bytes)
        if index.odd is not None:
            at, near = index.odd
            warn(
                f"line {line_at(stamp, at)} of {path!r} is not UTF-8, as in {near!r}; such bytes "
                "are read as surrogate escapes, or pass encoding='latin-1', 'cp1252' or whatever "
                "it is"
            )
        texts.append((stamp, dialect, index))
        sampled.append(_sampled(stamp, dialect, index))
        first = texts[0][1].names
        if dialect.names != first:
            raise FileFormatError(
                f"{path!r} cannot be joined to {paths[0]!r}: its {len(dialect.names)} "
                f"columns are {listed(dialect.names, 4)}, not {listed(first, 4)}; pass header= or "
                "names= if these are not names, or open them apart"
            )
    columns = [_common(column) for column in zip(*sampled, strict=True)]
    nameless = own.names is None and first[-1] == f"column_{len(first) - 1}"
    if nameless and len(first) > 1 and columns[-1].type == arrow().null():
        del columns[-1]  # each line ends with a delimiter
    asked = dict(own.dtype) if isinstance(own.dtype, tuple) else {}
    for i, column in enumerate(columns):
        # one dtype for all is for numbers, except str
        for_all = own.dtype if own.dtype == TEXT or column.dtype.kind not in "ObM" else None
        columns[i] = column.parsed_as(asked.get(column.name) if asked else for_all)
    chosen = sources_of(paths[0], columns, own)
    return tuple(_file_header(*text, columns, chosen, asked, options) for text in texts)


def _file_header(
    stamp: FileStamp,
    dialect: Dialect,
    index: RowIndex,
    columns: Sequence[Column],
    chosen: dict[str, Chosen],
    asked: dict[str, Any],
    options: Options,
) -> FileHeader:
    sources = {}
    for name in chosen_sources(chosen, options, repr(stamp.path)):
        numbers = np.atleast_1d(chosen[name]).tolist()
        some = [columns[i].parsed_as(asked.get(name)) for i in numbers]
        kinds = {column.dtype.kind for column in some}
        if len(some) > 1 and ("O" in kinds or (len(kinds) > 1 and kinds & {"M", "b"})):
            raise FileFormatError(
                f"source {name!r} of {stamp.path!r} would put text, times, or true and false "
                "beside other columns; leave those out of columns= (or pass columns='separate')"
            )
        dtype = some[0].dtype if len(some) == 1 else np.result_type(*(one.dtype for one in some))
        types = [one.type for one in some]
        if dtype.kind == "f":  # integers among floats are integers until they are cast
            own = arrow().from_numpy_dtype(dtype)
            types = [one if arrow().types.is_integer(one) else own for one in types]
        shape, dims = ((), ("batch",)) if isinstance(chosen[name], int) else ((len(some),), DIMS)
        attrs: dict[str, Any] = {"columns": [dialect.names[i] for i in numbers]}
        if dtype == TIME and any(one.tz is not None for one in types):
            attrs["timezone"] = "UTC"
        sources[name] = SourceHeader(
            file=stamp,
            name=name,
            key=str(chosen[name]),
            shape=(index.n_rows, *shape),
            dtype=dtype,
            dims=dims_of(name, dims, options, stamp.path),
            attrs=attrs,
            storage="chunked",
            chunks=(index.block_rows, *shape),
            filters=(FilterInfo(0, "text"),),
            fill_value={"O": b"", "M": np.datetime64("NaT", "ns")}.get(dtype.kind, 0),
            stored_bytes=stamp.size,
            format="csv",
            detail=Columns(dialect, tuple(numbers), tuple(types), dtype, index),
            scratch_bytes=SCRATCH_BLOCKS * int(np.diff(index.starts).max(initial=0)),
        )
    return FileHeader(
        stamp=stamp, sources=sources, splits=all_rows(sources), kind="table", format="csv"
    )


# what columns hold


def _sampled(stamp: FileStamp, dialect: Dialect, index: RowIndex) -> list[Column]:
    """Return the columns, with the types of values in blocks all over the text.

    Raises
    ------
    FileFormatError
        If a row of them has too few or too many fields.
    """
    n_blocks = len(index.starts) - 1
    if not n_blocks:
        return [Column(name, arrow().null()) for name in dialect.names]
    blocks = np.unique(np.arange(SAMPLES) * (n_blocks - 1) // (SAMPLES - 1))
    begins = index.starts[blocks]
    cuts = np.append(0, np.cumsum(index.starts[blocks + 1] - begins))
    text = np.empty(cuts[-1], np.uint8)
    for (a, b), begin in zip(pairwise(cuts.tolist()), begins.tolist(), strict=True):
        open_bytes(stamp).read_into(text[a:b], begin)
    try:
        table = dialect.parse(text)
    except RowError as fault:
        at = int(dialect.rows(text)[0][fault.row])
        sample = int(np.searchsorted(cuts, at, "right")) - 1
        line = line_at(stamp, int(begins[sample] + at - cuts[sample]))
        raise FileFormatError(f"line {line} of {stamp.path!r}: {fault}") from None
    columns = zip(dialect.names, table.columns, strict=True)
    return [_inferred(name, values, text, dialect) for name, values in columns]


def _inferred(name: str, values: Any, text: Array, dialect: Dialect) -> Column:
    """Return a column with the type that pyarrow infers from values of it."""
    kinds, kind, is_large = arrow().types, values.type, False
    ends = arrow(".compute").min_max(values).as_py() if kinds.is_floating(kind) else {}
    if any(abs(end or 0) >= 2**53 for end in ends.values()):
        try:  # pyarrow infers no uint64, and takes integers with a plus sign for floats
            values = dialect.parse(text, {name: arrow().uint64()}).column(0)
        except RowError:  # ids of so many digits stay what they are
            words = dialect.parse(text, {name: arrow().string()}).column(0)
            if _would_be_rounded(set(words.to_pylist()) - set(dialect.given.missing)):
                values = words
        kind = values.type
    if kinds.is_integer(kind):
        is_large = not _can_be(arrow().float64(), values)
    elif kinds.is_date(kind) or kinds.is_timestamp(kind):
        kind = arrow().timestamp("ns", getattr(kind, "tz", None))
        if not _can_be(kind, values):  # nanoseconds count the years 1677 to 2262
            kind = arrow().binary()
    elif not (kinds.is_null(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
        kind = arrow().binary()  # not all texts need be UTF-8
    return Column(name, kind, values.null_count > 0, is_large)


def _would_be_rounded(words: Collection[str]) -> bool:
    """Whether fields are all integers, of which floats do not hold some."""
    is_whole = all(re.fullmatch(r"[-+]?\d{1,300}", word.strip()) for word in words)
    return is_whole and any(int(word) != float(word) for word in words)


def _can_be(kind: Any, values: Any) -> bool:
    """Whether a type of Arrow holds all values."""
    try:
        values.cast(kind)
    except ValueError:
        return False
    return True


def _common(columns: Sequence[Column]) -> Column:
    """Return a column whose type holds the values of all samples of it."""
    kinds = arrow().types
    held = {one.type for one in columns if not kinds.is_null(one.type)}
    has_gaps = any(one.has_gaps for one in columns)  # a text without rows has none
    kind = next(iter(held), arrow().null())
    if len(held) > 1:
        kind = arrow().binary()
        if all(kinds.is_integer(one) or kinds.is_floating(one) for one in held):
            is_whole = all(map(kinds.is_integer, held))
            kind = arrow().uint64() if is_whole else arrow().float64()
    if has_gaps and kinds.is_boolean(kind):
        kind = arrow().binary()
    return Column(columns[0].name, kind, has_gaps, any(one.is_large for one in columns))


# which columns make which sources


def sources_of(path: str, columns: Sequence[Column], options: TextOptions) -> dict[str, Chosen]:
    """Return the columns of each source.

    Raises
    ------
    UnknownNameError
        If an option names a column that is not there.
    FileFormatError
        If two sources would have the same name.
    """
    names = [column.name for column in columns]

    def number_of(given: Any, argument: str) -> Any:
        """Return the number of a column given by name or number, or those of several."""
        if isinstance(given, tuple):
            return tuple(number_of(one, argument) for one in given)
        if isinstance(given, int) and -len(names) <= given < len(names):
            return given % len(names)
        what = f"one of the {len(names)} columns of {path!r}"
        check_known(f"{argument} names column", [given], names, what)
        return names.index(given)

    found: dict[str, Chosen] = {}
    if options.labels is not None:
        given = options.labels[0] if len(options.labels) == 1 else options.labels
        found[LABELS] = number_of(given, "labels=")
    left = [i for i in range(len(names)) if i not in np.ravel(found.get(LABELS, ()))]
    if isinstance(options.columns, tuple):
        more = {source: number_of(given, "columns=") for source, given in options.columns}
    elif options.columns == "separate" or (options.columns is None and len(names) == 1):
        more = {names[i]: i for i in left}
    else:
        more = _matrix(columns, left)
    if LABELS in found and LABELS in more:
        raise FileFormatError(
            f"two sources of {path!r} would be called {LABELS!r}; pass names=[...], or name the "
            "sources with columns={...}"
        )
    typed = dict(options.dtype) if isinstance(options.dtype, tuple) else {}
    check_known("dtype= names", typed, {*names, *more, *found}, f"a column or source of {path!r}")
    return {**more, **found}


def _matrix(columns: Sequence[Column], left: Sequence[int]) -> dict[str, Chosen]:
    """Put all numeric columns with a name side by side, and each other column alone.

    Large integers beside floats stay alone, too: float64 would hold both, but round them.
    """
    named = [i for i in left if columns[i].name != f"column_{i}"] or left
    numbers = [i for i in named if columns[i].dtype.kind in "iuf"]
    if numbers and np.result_type(*(columns[i].dtype for i in numbers)).kind == "f":
        numbers = [i for i in numbers if not columns[i].is_large] or numbers
    alone: dict[str, Chosen] = {columns[i].name: i for i in left if i not in set(numbers)}
    return {FEATURES: tuple(numbers), **alone} if numbers else alone


# reading


@dataclass(frozen=True)
class Columns:
    """The columns of a source, and how they are parsed."""

    dialect: Dialect
    numbers: tuple[int, ...]
    types: tuple[Any, ...]  # the Arrow type that each column is parsed as
    dtype: np.dtype[Any]
    index: RowIndex = field(repr=False, compare=False)

    def values(self, text: Array, chosen: Sequence[int]) -> list[Array]:
        """Return the values of some columns, by their positions among these, in rows of text.

        Raises
        ------
        RowError
            If a row has too few or too many fields, or a field is not a value of its type.
        """
        types = {self.dialect.names[self.numbers[i]]: self.types[i] for i in chosen}
        table, is_integer = self.dialect.parse(text, types), arrow(".types").is_integer
        found = zip(types, types.values(), table.columns, strict=True)
        return [_values(name, each, self.dtype, is_integer(kind)) for name, kind, each in found]


def _values(name: str, column: Any, dtype: np.dtype[Any], is_whole: bool) -> Array:
    """Return a column as an array; a missing value is NaN or NaT."""
    values: Array
    if column.null_count and dtype.kind not in "fM":
        raise RowError(
            column.is_null().index(True).as_py(),
            f"column {name!r} holds nothing, where {dtype} is expected; open "
            f"with dtype={{{name!r}: 'float64'}}, which has NaN",
        )
    if dtype.kind != "f" or not is_whole:
        values = column.to_numpy()
        return values
    whole = column.fill_null(0).to_numpy()
    values = whole.astype(dtype)
    at = first_rounded(whole, dtype)
    if at is not None:
        raise RowError(
            at,
            f"column {name!r}: it holds {whole[at]}, which {dtype} would round; pass "
            f"columns='separate' with dtype={{{name!r}: 'str'}} to have text, or with "
            f"dtype={{{name!r}: {str(dtype)!r}}} to have it rounded",
        )
    values[column.is_null().to_numpy()] = np.nan
    return values


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
        for some in groups_of(runs, self.chunk_rows):
            with naming_rows(self.source, int(some[0, 0]), int(some[-1, 1])):
                values = self._parsed(some)
            first, n = int(some[0, 2]), len(values[0])
            place = slice(first, first + n) if places is None else places[first : first + n]
            flat = out.reshape(len(out), len(values))
            for i, column in enumerate(values):
                flat[place, i] = column
            del values, column  # not held while the next block is parsed

    def _parsed(self, bands: Ints) -> list[Array]:
        """Return the columns of some rows of a block."""
        table, dialect, file = self._table, self._table.dialect, self.source.file
        rows = rows_of(bands)
        block = int(rows[0]) // self.chunk_rows
        begin, end = table.index.starts[block : block + 2].tolist()
        text = scratch("text", end - begin, begin)
        self.file().read_into(text, begin)
        self.file().check()
        part, skipped = text, block * self.chunk_rows
        if len(rows) < min(self.chunk_rows, self.n_rows - skipped):
            starts, ends, _ = dialect.rows(text)
            spans = (bands[:, :2] - skipped).tolist()
            part = np.concatenate([text[starts[a] : ends[b - 1]] for a, b in spans])
        try:
            with decoding():
                values = table.values(part, self._chosen)
        except RowError as fault:
            row = int(rows[fault.row])
            line = line_at(file, begin + int(dialect.rows(text)[0][row - skipped]))
            where = f"{self.where}, rows {rows[0]} to {rows[-1]}"
            error = ReadError(f"{where}: line {line} of {file.path!r}: {fault}")
            error.row = row
            raise error from None
        if len(values[0]) != len(rows):
            raise ReadError(f"{self.where}: {len(rows)} rows are read as {len(values[0])}")
        return values

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        blocks = np.unique(bands_of(runs, self.chunk_rows)[:, 0] // self.chunk_rows)
        starts = self._table.index.starts[blocks]
        lengths = self._table.index.starts[blocks + 1] - starts
        return (ByteRanges(self.file, starts, lengths, len(blocks)),)


FORMAT = Format(
    name="csv",
    title="delimited text",
    suffixes=(".csv", ".tsv", ".tab", ".txt", ".csv.gz", ".tsv.gz", ".tab.gz", ".txt.gz"),
    scan=_scan,
    open_reader=TextReader,
    kinds={"table": "delimited text"},
    options=TextOptions,
)
