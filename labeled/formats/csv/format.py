"""Delimited text as a format: samples of a file tell the types of its columns, as pyarrow infers
them; options and names tell which columns make which sources."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import FileFormatError, UnknownNameError, did_you_mean, listed
from labeled.formats.bytesource import FileRef, stamp_of
from labeled.formats.csv.index import (
    Dialect,
    RowIndex,
    arrow,
    is_packed,
    line_at,
    read_dialect,
    row_index,
)
from labeled.formats.csv.options import TIME, WHITESPACE, TextOptions
from labeled.formats.csv.reader import Columns, TextFault, TextReader, parse, would_round
from labeled.formats.format import Format, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import (
    TEXT,
    FileHeader,
    FileStamp,
    Filter,
    SourceHeader,
    fingerprint,
)

log = logging.getLogger(__name__)

SAMPLES = 8
"""Blocks, evenly apart, that tell the types of columns."""

SCRATCH_BLOCKS = 3
"""What a thread holds while it parses, in blocks of text: the text, what the parser notes of it,
and columns of values."""

UNSIGNED_FROM = 2.0**63
"""Integers from here on are of uint64; pyarrow infers floats."""

NOT_NUMBERS = "ObM"
"""Kinds of columns that do not stand beside numbers: text, true and false, times."""

FEATURES, LABELS = "features", "labels"
DIMS = ("batch", "feature")

_NUMBERED = re.compile(r"(.+)_(\d+)$")

Chosen = int | tuple[int, ...]
"""One column, or several side by side."""


class Column(NamedTuple):
    """One column of a text, as far as samples tell."""

    name: str
    type: Any
    """The Arrow type of its values."""
    gaps: bool = False
    """Values are missing."""
    wide: bool = False
    """It has integers that float64 would round."""
    requested: np.dtype[Any] | None = None
    """The dtype that the caller asks for."""

    @property
    def has_zone(self) -> bool:
        """Whether the values are times that tell their zone."""
        return bool(arrow().types.is_timestamp(self.type) and self.type.tz is not None)

    @property
    def inferred(self) -> np.dtype[Any]:
        """The dtype of the values; floats if integers are missing."""
        kinds = arrow().types
        if kinds.is_integer(self.type) and not self.gaps:
            exact: np.dtype[Any] = np.dtype(self.type.to_pandas_dtype())
            return exact
        if kinds.is_integer(self.type) or kinds.is_floating(self.type) or kinds.is_null(self.type):
            return np.dtype(np.float64)
        if kinds.is_timestamp(self.type):
            return TIME
        return np.dtype(bool) if kinds.is_boolean(self.type) else TEXT

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values as they are handed out."""
        return self.inferred if self.requested is None else self.requested

    def type_in(self, dtype: np.dtype[Any]) -> Any:
        """Return the Arrow type that the column is parsed as, in a source of a dtype."""
        if dtype == TIME:
            return _time_type(has_zone=self.has_zone)
        if dtype.hasobject:
            return arrow().binary()  # not all texts need be UTF-8
        if self.requested is not None:
            return arrow().from_numpy_dtype(self.requested)
        exact = self.gaps or self.inferred.kind in "iub"
        return self.type if exact else arrow().from_numpy_dtype(dtype)


@dataclass(frozen=True)
class _Text:
    """One file: how it is written, where its rows are, what its columns hold."""

    stamp: FileStamp
    dialect: Dialect
    index: RowIndex
    columns: list[Column]


def _scan(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    own: TextOptions = TextOptions() if options.own is None else options.own
    texts = [_scan_text(path, own) for path in paths]
    first = texts[0].dialect.names
    for text in texts[1:]:
        names = text.dialect.names
        if names != first:
            raise FileFormatError(
                f"{text.stamp.path!r} cannot be joined to {paths[0]!r}: its {len(names)} columns "
                f"are {listed(names, 4)}, not {listed(first, 4)}; pass header= or names= if these "
                "are not names, or open them apart"
            )
    columns = [
        _with_request(_common(column), own)
        for column in zip(*(text.columns for text in texts), strict=True)
    ]
    return tuple(_file_header(text, columns, options, own) for text in texts)


def _scan_text(path: str, own: TextOptions) -> _Text:
    stamp = stamp_of(path)
    dialect = read_dialect(stamp, own)
    index = row_index(stamp, dialect)
    if is_packed(stamp):
        stamp = replace(stamp, unpacked_bytes=index.n_bytes)
    columns = _sampled(stamp, dialect, index, own)
    last = len(columns) - 1
    nameless = own.names is None and dialect.names[last] == f"column_{last}"
    if nameless and last and dialect.delimiter != WHITESPACE and columns[last].type == "null":
        log.info("%r: nothing stands behind the last delimiter, which makes no column", path)
        dialect, columns = replace(dialect, names=dialect.names[:-1], trailing=True), columns[:-1]
    return _Text(stamp, dialect, index, columns)


def _file_header(
    text: _Text, columns: Sequence[Column], options: Options, own: TextOptions
) -> FileHeader:
    path = text.stamp.path
    chosen = sources_of(path, columns, own)
    sources = {}
    for name in chosen_sources(chosen, options, repr(path)):
        dtype, types = _source_type(path, name, chosen[name], columns, own)
        table = Columns(text.dialect, chosen[name], dtype, types, own.missing, text.index)
        sources[name] = _source(name, text.stamp, table, options)
    splits = all_rows(sources)
    return FileHeader(
        stamp=text.stamp,
        fingerprint=fingerprint(sources, splits),
        attrs={},
        sources=sources,
        variables={},
        splits=splits,
        not_opened={},
        kind="table",
        format="csv",
    )


def _source(name: str, stamp: FileStamp, table: Columns, options: Options) -> SourceHeader:
    index, chosen, dtype = table.index, table.columns, table.dtype
    shape, dims = ((), ("batch",)) if isinstance(chosen, int) else ((len(chosen),), DIMS)
    attrs: dict[str, Any] = {"columns": [table.dialect.names[i] for i in table.types]}
    fill_value: Any = b"" if dtype.hasobject else 0
    if dtype.kind == "M":
        fill_value = np.array("NaT", dtype)[()]
        if any(one.tz is not None for one in table.types.values()):
            attrs["timezone"] = "UTC"
    return SourceHeader(
        file=stamp,
        name=name,
        key=str(chosen),
        shape=(index.n_rows, *shape),
        dtype=dtype,
        dims=dims_of(name, dims, options, repr(stamp.path)),
        attrs=attrs,
        storage="chunked",
        chunks=(index.block_rows, *shape),
        filters=(Filter(0, "text"),),
        fill_value=fill_value,
        stored_bytes=stamp.size,
        format="csv",
        detail=table,
        scratch_bytes=SCRATCH_BLOCKS * index.longest,
    )


# what columns hold


def _sampled(stamp: FileStamp, dialect: Dialect, index: RowIndex, own: TextOptions) -> list[Column]:
    """Return the columns, with the types of values in blocks all over the text.

    Raises
    ------
    FileFormatError
        If a row of them has too few or too many fields.
    """
    n_blocks, found = len(index.starts) - 1, []
    if not n_blocks:
        return [Column(name, arrow().null()) for name in dialect.names]
    for block in sorted({i * (n_blocks - 1) // (SAMPLES - 1) for i in range(SAMPLES)}):
        begin, end = index.starts[block : block + 2].tolist()
        text = np.empty(end - begin, np.uint8)
        FileRef(stamp)().read_into(text, begin)
        try:
            found.append(_inferred(text.tobytes(), dialect, own.missing))
        except TextFault as fault:
            line = line_at(stamp, dialect, begin + int(dialect.lines(text).starts[fault.row]))
            raise FileFormatError(f"line {line} of {stamp.path!r} {fault}") from None
    return [_common(column) for column in zip(*found, strict=True)]


def _inferred(text: bytes, dialect: Dialect, missing: Sequence[str]) -> list[Column]:
    """Return the columns of some rows, with the types that pyarrow infers."""
    kinds, found = arrow().types, []
    for i, values in enumerate(parse(text, dialect, missing).columns):
        if kinds.is_floating(values.type):
            most = arrow(".compute").max(values).as_py()
            if most is not None and most >= UNSIGNED_FROM:
                with suppress(TextFault):
                    values = parse(text, dialect, missing, {i: arrow().uint64()}).column(0)
        type_, wide = values.type, False
        if kinds.is_integer(type_):
            wide = bool(would_round(values, np.dtype(np.float64)).any())
        elif kinds.is_date(type_) or kinds.is_timestamp(type_):
            has_zone = kinds.is_timestamp(type_) and type_.tz is not None
            try:  # nanoseconds count the years 1677 to 2262
                type_ = values.cast(_time_type(has_zone=has_zone)).type
            except arrow().ArrowInvalid:
                type_ = arrow().binary()
        elif not (kinds.is_null(type_) or kinds.is_floating(type_) or kinds.is_boolean(type_)):
            type_ = arrow().binary()
        found.append(Column(dialect.names[i], type_, values.null_count > 0, wide))
    return found


def _time_type(*, has_zone: bool) -> Any:
    return arrow().timestamp("ns", tz="UTC" if has_zone else None)


def _common(columns: Sequence[Column]) -> Column:
    """Return a column whose type holds the values of all samples of it."""
    kinds = arrow().types
    held = [one for one in columns if not kinds.is_null(one.type)]
    if not held:
        return columns[0]
    types = {one.type for one in held}
    gaps = len(held) < len(columns) or any(one.gaps for one in held)
    wide = any(one.wide for one in held)
    if len(types) == 1:
        (type_,) = types
    elif all(kinds.is_integer(one) or kinds.is_floating(one) for one in types):
        type_ = arrow().float64() if any(map(kinds.is_floating, types)) else arrow().uint64()
    else:
        type_ = arrow().binary()
    if gaps and (kinds.is_boolean(type_) or (wide and kinds.is_integer(type_))):
        type_ = arrow().binary()
    return Column(columns[0].name, type_, gaps, wide)


def _with_request(column: Column, options: TextOptions) -> Column:
    """Return a column with the dtype asked for: a dtype for all is for numbers, except str."""
    dtype = options.dtype
    if isinstance(dtype, tuple):
        return column._replace(requested=dict(dtype).get(column.name))
    if dtype is not None and not dtype.hasobject and column.inferred.kind in NOT_NUMBERS:
        return column
    return column._replace(requested=dtype)


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

    def numbers_of(given: Any, argument: str) -> Chosen:
        if isinstance(given, tuple):
            return tuple(_column_number(path, one, names, argument) for one in given)
        return _column_number(path, given, names, argument)

    found: dict[str, Chosen] = {}
    if options.labels is not None:
        alone = len(options.labels) == 1
        found[LABELS] = numbers_of(options.labels[0] if alone else options.labels, "labels=")
    taken = {int(i) for i in np.ravel(found.get(LABELS, ()))}
    left = [i for i in range(len(names)) if i not in taken]
    if isinstance(options.columns, tuple):
        more = {source: numbers_of(given, "columns=") for source, given in options.columns}
    elif options.columns == "separate" or (options.columns is None and len(names) == 1):
        more = {names[i]: i for i in left}
    else:
        more = _grouped(names, left) if options.columns is None else {}
        more = more or _matrix(columns, left)
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


def _column_number(path: str, given: Any, names: Sequence[str], argument: str) -> int:
    """Return the number of a column given by its name or number (negative from the end)."""
    if isinstance(given, int) and not isinstance(given, bool) and -len(names) <= given < len(names):
        return given % len(names)
    if given in names:
        return names.index(given)
    raise UnknownNameError(
        f"{argument} names column {given!r}, but {path!r} has {len(names)} columns; "
        f"{did_you_mean(str(given), names)}"
    )


def _grouped(names: Sequence[str], left: Sequence[int]) -> dict[str, Chosen]:
    """Put ``x_0``, ``x_1``, ... side by side, and each other column alone; empty if none are so.

    Examples
    --------
    >>> _grouped(["x_0", "x_1", "y"], [0, 1, 2]), _grouped(["a_1", "b"], [0, 1])
    ({'x': (0, 1), 'y': 2}, {})
    """
    stems: dict[str, list[tuple[int, int]]] = {}
    for i in left:
        if (match := _NUMBERED.match(names[i])) and names[i] != f"column_{i}":
            stems.setdefault(match[1], []).append((int(match[2]), i))
    whole = {s: one for s, one in stems.items() if [n for n, _ in one] == list(range(len(one)))}
    if not whole or set(whole) & set(names):
        return {}
    grouped: dict[str, Chosen] = {s: tuple(i for _, i in one) for s, one in whole.items()}
    inside = {i for one in whole.values() for _, i in one}
    return {**grouped, **{names[i]: i for i in left if i not in inside}}


def _matrix(columns: Sequence[Column], left: Sequence[int]) -> dict[str, Chosen]:
    """Put all numeric columns with a name side by side, and each other column alone.

    Large integers beside floats stay alone, too: float64 would hold both, but round them.
    """
    named = [i for i in left if columns[i].name != f"column_{i}"] or left
    numbers = [i for i in named if columns[i].dtype.kind not in NOT_NUMBERS]
    if numbers and np.result_type(*(columns[i].dtype for i in numbers)).kind == "f":
        exact = [i for i in numbers if columns[i].dtype.kind == "f" or not columns[i].wide]
        numbers = exact or numbers
    beside = set(numbers)
    alone: dict[str, Chosen] = {columns[i].name: i for i in left if i not in beside}
    return {FEATURES: tuple(numbers), **alone} if numbers else alone


def _source_type(
    path: str, source: str, chosen: Chosen, columns: Sequence[Column], options: TextOptions
) -> tuple[np.dtype[Any], dict[int, Any]]:
    """Return the dtype of a source, and the Arrow type that each of its columns is parsed as.

    Raises
    ------
    FileFormatError
        If columns that do not go together would stand side by side.
    """
    requested = dict(options.dtype).get(source) if isinstance(options.dtype, tuple) else None
    numbers = chosen if isinstance(chosen, tuple) else (chosen,)
    some = [columns[i] for i in numbers]
    if requested is not None:
        some = [column._replace(requested=requested) for column in some]
    kinds = {column.dtype.kind for column in some}
    why = ""
    if isinstance(chosen, int):
        pass
    elif "O" in kinds:
        why = "text beside other columns"
    elif kinds == {"M"} and len({column.has_zone for column in some}) > 1:
        why = "times with a zone beside times without one"
    elif len(kinds) > 1 and kinds & {"M", "b"}:
        what = "columns of times" if "M" in kinds else "columns of true and false"
        why = f"{what} beside others"
    if why:
        raise FileFormatError(
            f"source {source!r} of {path!r} would put {why}; leave those out of columns= (or pass "
            "columns='separate')"
        )
    dtype = some[0].dtype if isinstance(chosen, int) else np.result_type(*(c.dtype for c in some))
    types = {i: column.type_in(dtype) for i, column in zip(numbers, some, strict=True)}
    return dtype, types


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
