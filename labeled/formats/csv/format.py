"""Delimited text as one format among others."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from labeled.errors import FileFormatError, listed
from labeled.formats.bytesource import FileRef, stamp_of
from labeled.formats.csv.engine import open_reader
from labeled.formats.csv.index import (
    Dialect,
    RowIndex,
    arrow,
    is_packed,
    line_at,
    read_dialect,
    row_index,
)
from labeled.formats.csv.options import TextOptions
from labeled.formats.csv.parsing import Guess, TextFault, common, guessed
from labeled.formats.csv.table import Column, Columns, Typed, columns_of, sources_of, typed
from labeled.formats.format import Format, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import FileHeader, FileStamp, Filter, Packing, SourceHeader, fingerprint
from labeled.formats.packed import MOST_POINTS, POINT_BYTES, step_for

log = logging.getLogger(__name__)

SAMPLES = 8
"""Blocks, evenly apart, that tell the dtypes of columns."""

SCRATCH_BLOCKS = 3
"""What a thread holds while it parses, in blocks of text: the text, what the parser notes of it,
and columns of values."""


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
    sources = {
        name: _source(name, text, typed(path, name, chosen[name], columns, own), options, own)
        for name in chosen_sources(chosen, options, repr(path))
    }
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


def _source(
    name: str, text: _Text, typed: Typed, options: Options, own: TextOptions
) -> SourceHeader:
    stamp, index, chosen, dtype = text.stamp, text.index, typed.columns, typed.dtype
    several = isinstance(chosen, tuple)
    shape = (len(chosen),) if isinstance(chosen, tuple) else ()
    attrs: dict[str, Any] = {"columns": [text.dialect.names[i] for i in np.ravel(chosen)]}
    fill_value: Any = b"" if dtype.hasobject else 0
    if dtype.kind == "M":
        fill_value = np.array("NaT", dtype)[()]
        if typed.types[0].tz is not None:
            attrs["timezone"] = "UTC"
    points = 0 if stamp.packed is None else MOST_POINTS * POINT_BYTES
    dims = ("batch", "feature") if several else ("batch",)
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
        detail=Columns(text.dialect, chosen, dtype, typed.types, own.missing, index),
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


FORMAT = Format(
    name="csv",
    title="delimited text",
    suffixes=(".csv", ".tsv", ".tab", ".txt", ".csv.gz", ".tsv.gz", ".tab.gz", ".txt.gz"),
    recognises=lambda head: False,  # text has no first bytes of its own: its name decides
    scan=_scan,
    open_reader=open_reader,
    kinds={"table": "delimited text"},
    options=TextOptions,
)
