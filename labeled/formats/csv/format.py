"""Delimited text as one format among others: which columns make which sources, of which dtype."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
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
from labeled.formats.csv.options import TIME, TextOptions
from labeled.formats.csv.reader import (
    Columns,
    Guess,
    TextFault,
    TextReader,
    common,
    guessed,
    type_of,
)
from labeled.formats.format import Format, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import FileHeader, FileStamp, Filter, Packing, SourceHeader, fingerprint
from labeled.formats.packed import MOST_POINTS, POINT_BYTES, step_for

log = logging.getLogger(__name__)

SAMPLES = 8
"""Blocks, evenly apart, that tell the dtypes of columns."""

SCRATCH_BLOCKS = 3
"""What a thread holds while it parses, in blocks of text: the text, what the parser notes of it,
and columns of values."""

FEATURES, LABELS = "features", "labels"

ALONE = "ObM"
"""Kinds of columns that do not stand beside numbers: text, true and false, times."""

_NUMBERED = re.compile(r"(.+)_(\d+)$")

Chosen = int | tuple[int, ...]
"""One column, or several side by side."""

DIMS = ("batch", "feature")


@dataclass(frozen=True)
class _Text:
    """One file, looked at: how it is written, where its rows are, what samples of it hold."""

    stamp: FileStamp
    dialect: Dialect
    index: RowIndex
    sampled: list[Guess]


def _scan(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    own: TextOptions = TextOptions() if options.own is None else options.own
    texts = [_looked_at(path, own) for path in paths]
    here = texts[0].dialect.names
    for other in texts[1:]:
        there = other.dialect.names
        if here != there:
            raise FileFormatError(
                f"{other.stamp.path!r} cannot be joined to {paths[0]!r}: its {len(there)} columns "
                f"are {listed(there, 4)}, not {listed(here, 4)}; pass header= or names= if these "
                "are not names, or open them apart"
            )
    guesses = [common(column) for column in zip(*(one.sampled for one in texts), strict=True)]
    columns = columns_of(here, guesses, own)
    return tuple(_file_header(one, columns, options, own) for one in texts)


def _looked_at(path: str, own: TextOptions) -> _Text:
    stamp = stamp_of(path)
    dialect = read_dialect(stamp, own)
    index = row_index(stamp, dialect)
    if is_packed(stamp):
        stamp = replace(stamp, packed=Packing(index.n_bytes, 0, step_for(index.n_bytes)))
    sampled = _sampled(stamp, dialect, index, own)
    if dialect.nameless_end and len(sampled) > 1 and sampled[-1].type == arrow().null():
        log.info("%r: nothing stands behind the last delimiter, which makes no column", path)
        dialect, sampled = replace(dialect, names=dialect.names[:-1], trailing=True), sampled[:-1]
    return _Text(stamp, dialect, index, sampled)


def _file_header(
    text: _Text, columns: Sequence[Column], options: Options, own: TextOptions
) -> FileHeader:
    path = text.stamp.path
    chosen = sources_of(path, columns, own)
    sources = {}
    for name in chosen_sources(chosen, options, repr(path)):
        dtype, types = typed(path, name, chosen[name], columns, own)
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
    attrs: dict[str, Any] = {"columns": [table.dialect.names[i] for i in np.ravel(chosen)]}
    fill_value: Any = b"" if dtype.hasobject else 0
    if dtype.kind == "M":
        fill_value = np.array("NaT", dtype)[()]
        if table.types[0].tz is not None:
            attrs["timezone"] = "UTC"
    points = 0 if stamp.packed is None else MOST_POINTS * POINT_BYTES
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
        scratch_bytes=SCRATCH_BLOCKS * index.longest + points,
    )


def _sampled(stamp: FileStamp, dialect: Dialect, index: RowIndex, own: TextOptions) -> list[Guess]:
    """Return what each column holds, from blocks all over the text.

    Raises
    ------
    FileFormatError
        If a row of them has too few or too many fields.
    """
    n_blocks, found = len(index.starts) - 1, []
    if not n_blocks:
        return [Guess(arrow().null())] * len(dialect.names)
    for block in sorted({i * (n_blocks - 1) // (SAMPLES - 1) for i in range(SAMPLES)}):
        begin, end = index.starts[block : block + 2].tolist()
        text = np.empty(end - begin, np.uint8)
        FileRef(stamp)().read_into(text, begin)
        try:
            found.append(guessed(text.tobytes(), dialect, own.missing))
        except TextFault as fault:
            line = line_at(stamp, dialect, begin + int(dialect.lines(text).starts[fault.row]))
            raise FileFormatError(f"line {line} of {stamp.path!r} {fault}") from None
    return [common(column) for column in zip(*found, strict=True)]


# which columns make which sources


class Column(NamedTuple):
    """One column of a text."""

    name: str
    guess: Guess
    requested: np.dtype[Any] | None
    """The dtype that the caller asks for."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.guess.dtype if self.requested is None else self.requested

    def type_as(self, dtype: np.dtype[Any]) -> Any:
        """Return the Arrow type that the column is parsed as, in a source of a dtype."""
        if dtype.hasobject or dtype == TIME:
            return type_of(dtype, zoned=self.guess.zoned)
        if self.requested is not None:
            return type_of(self.requested)
        exact = self.guess.dtype.kind in "iub" or self.guess.gaps
        return self.guess.type if exact else type_of(dtype)


def sources_of(path: str, columns: Sequence[Column], options: TextOptions) -> dict[str, Chosen]:
    """Return the columns of each source.

    Raises
    ------
    UnknownNameError
        If an option names a column that is not there.
    FileFormatError
        If two sources would have the same name, or a column of text is to stand beside others.
    """
    names = [column.name for column in columns]
    found: dict[str, Chosen] = {}
    if options.labels is not None:
        listed = tuple(column_of(path, one, names, "labels=") for one in options.labels)
        found[LABELS] = listed[0] if len(listed) == 1 else listed
    taken = set(np.ravel(list(found.values())).tolist()) if found else set()
    left = [i for i in range(len(names)) if i not in taken]
    if isinstance(options.columns, tuple):
        more = {
            source: tuple(column_of(path, one, names, "columns=") for one in given)
            if isinstance(given, tuple)
            else column_of(path, given, names, "columns=")
            for source, given in options.columns
        }
    elif options.columns == "separate" or (options.columns is None and len(names) == 1):
        more = {names[i]: i for i in left}
    else:
        more = _grouped(names, left) if options.columns is None else {}
        more = more or _matrix(columns, left)
    clash = sorted(set(found) & set(more))
    if clash:
        raise FileFormatError(
            f"two sources of {path!r} would be called {clash[0]!r}; pass names=[...], or name the "
            "sources with columns={...}"
        )
    for name, _ in options.dtype if isinstance(options.dtype, tuple) else ():
        if name not in (*names, *more, *found):
            raise UnknownNameError(
                f"dtype= names {name!r}, which is no column and no source of {path!r}; "
                f"{did_you_mean(name, {*names, *more, *found})}"
            )
    return {**more, **found}


def column_of(path: str, given: Any, names: Sequence[str], argument: str) -> int:
    """Return the number of a column given by its name or number (negative from the end)."""
    if isinstance(given, int) and not isinstance(given, bool) and -len(names) <= given < len(names):
        return given % len(names)
    if given in names:
        return list(names).index(given)
    raise UnknownNameError(
        f"{argument} names column {given!r}, but {path!r} has {len(names)} columns; "
        f"{did_you_mean(str(given), names)}"
    )


def _grouped(names: Sequence[str], left: Sequence[int]) -> dict[str, Chosen]:
    """Put ``x_0``, ``x_1``, ... side by side, each other column alone; nothing without such.

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
    """Put all numbers side by side; alone each column of anything else, or without a name.

    Alone, too, are large integers beside floats: float64 would hold both, but rounds them.
    """
    named = [i for i in left if columns[i].name != f"column_{i}"] or left
    numbers = [i for i in named if columns[i].dtype.kind not in ALONE]
    if numbers and np.result_type(*(columns[i].dtype for i in numbers)).kind == "f":
        exact = [i for i in numbers if columns[i].dtype.kind == "f" or not columns[i].guess.wide]
        numbers = exact or numbers
    beside = set(numbers)
    out: dict[str, Chosen] = {columns[i].name: i for i in left if i not in beside}
    return {FEATURES: tuple(numbers), **out} if numbers else out


def columns_of(
    names: Sequence[str], guesses: Sequence[Guess], options: TextOptions
) -> list[Column]:
    """Return the columns of a text, with what was asked for: of all, only numbers take a dtype."""
    dtype, found = options.dtype, []
    for name, guess in zip(names, guesses, strict=True):
        requested = dict(dtype).get(name) if isinstance(dtype, tuple) else dtype
        of_all = requested is not None and requested is dtype  # numbers alone take it, or all str
        if of_all and not dtype.hasobject and guess.dtype.kind in ALONE:
            requested = None
        found.append(Column(name, guess, requested))
    return found


def typed(
    path: str, source: str, chosen: Chosen, columns: Sequence[Column], options: TextOptions
) -> tuple[np.dtype[Any], tuple[Any, ...]]:
    """Return the dtype of a source, and the Arrow types that its columns are parsed as.

    Raises
    ------
    FileFormatError
        If text is to stand beside other columns, true and false or times beside numbers, or
        times with a zone beside times without.
    """
    requested = dict(options.dtype).get(source) if isinstance(options.dtype, tuple) else None
    if requested is not None:
        columns = [column._replace(requested=requested) for column in columns]
    if not isinstance(chosen, tuple):
        dtype = columns[chosen].dtype
        return dtype, (columns[chosen].type_as(dtype),)
    some = [columns[i] for i in chosen]
    kinds = {column.dtype.kind for column in some}
    why = ""
    if "O" in kinds:
        why = "text beside other columns"
    elif "M" in kinds and len({column.guess.zoned for column in some}) > 1 and len(kinds) == 1:
        why = "times with a zone beside times without one"
    elif len(kinds) > 1 and kinds & {"M", "b"}:
        what = "columns of times" if "M" in kinds else "columns of true and false"
        why = f"{what} beside others"
    if why:
        raise FileFormatError(
            f"source {source!r} of {path!r} would put {why}; leave those out of columns= (or pass "
            "columns='separate')"
        )
    dtype = np.result_type(*(column.dtype for column in some))
    return dtype, tuple(column.type_as(dtype) for column in some)


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
