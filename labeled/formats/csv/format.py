"""Delimited text as one format among others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeled.errors import FileFormatError, listed
from labeled.formats.bytesource import FileRef, stamp_of
from labeled.formats.csv.dialect import Dialect, arrow, read_dialect
from labeled.formats.csv.engine import open_reader
from labeled.formats.csv.index import RowIndex, line_at, row_index
from labeled.formats.csv.options import TextOptions
from labeled.formats.csv.parsing import Guess, TextFault, common, guessed
from labeled.formats.csv.table import (
    Chosen,
    Columns,
    check_dtype_names,
    columns_of,
    sources_of,
    typed,
)
from labeled.formats.format import Format, Head, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import FileHeader, FileStamp, Filter, Packing, SourceHeader, fingerprint
from labeled.formats.packed import MOST_POINTS, POINT_BYTES, step_for

log = logging.getLogger(__name__)

SAMPLES = 8
"""Blocks, evenly apart, that tell the dtypes of columns."""

SCRATCH_BLOCKS = 3
"""What a thread holds while it parses, in blocks of text: the text, what the parser notes of it,
and columns of values."""


def _recognises(head: Head) -> bool:
    """Say no: text has no first bytes of its own, so its name decides."""
    return False


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
    for other in texts[1:]:
        _check_columns(texts[0], other)
    guesses = [common(column) for column in zip(*(one.sampled for one in texts), strict=True)]
    return tuple(_file_header(one, guesses, options, own) for one in texts)


def _looked_at(path: str, own: TextOptions) -> _Text:
    stamp = stamp_of(path)
    dialect = read_dialect(stamp, own)
    index = row_index(stamp, dialect)
    if dialect.packed:
        stamp = replace(stamp, packed=Packing(index.n_bytes, 0, step_for(index.n_bytes)))
    sampled = _sampled(stamp, dialect, index, own)
    if dialect.nameless_end and len(sampled) > 1 and sampled[-1].type == arrow().null():
        log.info("%r: nothing stands behind the last delimiter, which makes no column", path)
        dialect, sampled = replace(dialect, names=dialect.names[:-1], trailing=True), sampled[:-1]
    return _Text(stamp, dialect, index, sampled)


def _check_columns(first: _Text, other: _Text) -> None:
    """Refuse to join texts whose columns are not called the same."""
    here, there = first.dialect.names, other.dialect.names
    if here != there:
        raise FileFormatError(
            f"{other.stamp.path!r} cannot be joined to {first.stamp.path!r}: its {len(there)} "
            f"columns are {listed(there, 4)}, not {listed(here, 4)}; pass header= or names= if "
            "these are not names, or open them apart"
        )


def _file_header(
    text: _Text, guesses: Sequence[Guess], options: Options, own: TextOptions
) -> FileHeader:
    stamp, path, names = text.stamp, text.stamp.path, text.dialect.names
    columns = columns_of(names, guesses, own)
    chosen = sources_of(path, columns, own)
    check_dtype_names(path, own, names, list(chosen))
    sources = {}
    for name in chosen_sources(chosen, options, repr(path)):
        dtype, types = typed(path, name, chosen[name], columns, own)
        table = Columns(text.dialect, chosen[name], dtype, types, own.missing, text.index)
        sources[name] = _source(name, stamp, table, options)
    splits = all_rows(sources)
    return FileHeader(
        stamp=stamp,
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
    index, chosen = table.index, table.columns
    row_shape, default, attrs = _row_of(chosen, table.dialect.names)
    if table.dtype.kind == "M" and table.types[0].tz is not None:
        attrs["timezone"] = "UTC"
    points = 0 if stamp.packed is None else MOST_POINTS * POINT_BYTES
    return SourceHeader(
        file=stamp,
        name=name,
        key=str(chosen),
        shape=(index.n_rows, *row_shape),
        dtype=table.dtype,
        dims=dims_of(name, default, options, repr(stamp.path)),
        attrs=attrs,
        storage="chunked",
        chunks=(index.block_rows, *row_shape),
        filters=(Filter(0, "text"),),
        fill_value=_fill_value(table.dtype),
        stored_bytes=stamp.size,
        format="csv",
        detail=table,
        scratch_bytes=SCRATCH_BLOCKS * index.longest + points,
    )


def _fill_value(dtype: np.dtype[Any]) -> Any:
    if dtype.hasobject:
        return b""
    return np.array("NaT", dtype)[()] if dtype.kind == "M" else 0


def _row_of(
    chosen: Chosen, names: Sequence[str]
) -> tuple[tuple[int, ...], tuple[str, ...], dict[str, Any]]:
    """Return the shape of a row, the dims, and the attributes: what columns are called."""
    if isinstance(chosen, tuple):
        return (len(chosen),), ("batch", "feature"), {"columns": [names[i] for i in chosen]}
    return (), ("batch",), {"columns": [names[chosen]]}


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


FORMAT = Format(
    name="csv",
    title="delimited text",
    suffixes=(".csv", ".tsv", ".tab", ".txt", ".csv.gz", ".tsv.gz", ".tab.gz", ".txt.gz"),
    recognises=_recognises,
    scan=_scan,
    open_reader=open_reader,
    kinds={"table": "delimited text"},
    options=TextOptions,
)
