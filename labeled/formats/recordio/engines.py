"""Rows of one shape out of record files: pictures decoded alike, labels, ids.

Follows :class:`~labeled.formats.reading.Engine`. A piece is a mebibyte of pictures or more;
the thread that takes it reads their records, looks at their headers, and decodes one after
the other outside the GIL, each to where it belongs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from labeled.errors import FileFormatError, ReadError
from labeled.formats import clock
from labeled.formats.bytesource import check_path
from labeled.formats.header import FileStamp, SourceHeader
from labeled.formats.picture_heads import PictureError
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    PIECE_BYTES,
    Engine,
    Io,
    Piece,
    describe,
    native,
    put_rows,
    row_nbytes,
    spread,
)
from labeled.formats.recordio.decoding import Decoding
from labeled.formats.recordio.index import KEPT_FILES
from labeled.formats.recordio.irheader import HEADER_BYTES, LABEL, HeaderError, body_of, unpack
from labeled.formats.recordio.lists import ExampleList, read_list
from labeled.formats.recordio.options import Detail
from labeled.formats.recordio.reading import RecordFile
from labeled.formats.recordio.table import beginnings, table_of
from labeled.formats.region import Array, Ints, Region, is_whole, outer_take, region_shape
from labeled.formats.rows import RowReader
from labeled.formats.values_engine import ValuesEngine
from labeled.permute.workers import processors

LEAST_ROW_BYTES = 64
"""A row counts as so many bytes at least: records are found one by one."""


ENOUGH_BYTES, MOST_BYTES = 2 * PIECE_BYTES, 16 * PIECE_BYTES
"""Decoded bytes of a piece, unless that were fewer than `LEAST_ROWS`: as many as give each core
a piece, but no fewer than the first and no more than the second. What a thread does between two
pieces takes long, as pictures have driven the code for it out of the caches.
"""

LEAST_ROWS = 8
"""Rows of a piece at least: finding it and its records costs what a tiny picture costs."""


def open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> RowReader:
    """Return a reader of the rows of one source. Opens nothing yet."""
    return RowReader(source, _engine_of, region, io)


def _engine_of(source: SourceHeader, region: Region, io: Io) -> Engine:
    detail: Detail = source.detail
    if source.key == "images":
        return PictureEngine(source, region, maps=io != "pread")
    if source.key == "labels" and detail.label_list is None and source.row_shape:
        return LabelEngine(source, region)
    values = ids_of(detail) if source.key == "ids" else single_labels(source)
    why = f"{source.name} of all records, known from their headers"
    return ValuesEngine(outer_take(values, region), why)


class RowEngine(Engine):
    """Reads rows one by one, some at a time; what the others share."""

    kind = "records"
    why = "found by their offsets"
    scratch_bytes = 0

    def __init__(self, source: SourceHeader, region: Region) -> None:
        self.source = source
        self.region = region
        self.records: RecordFile = source.detail.records
        self.row_bytes = row_nbytes(region_shape(region, source.row_shape), source.dtype)
        self.scratch_bytes = source.scratch_bytes

    def read_rows(self, rows: Ints) -> Array:
        """Return whole rows; override this."""
        raise NotImplementedError

    def pieces(self, runs: Ints) -> list[Piece]:
        placed = self.records.placed(spread(runs[:, 0], runs[:, 1] - runs[:, 0]))
        n_rows, row_bytes = placed.shape[1], max(LEAST_ROW_BYTES, self.row_bytes)
        each = -(-n_rows // processors())
        step = max(LEAST_ROWS, ENOUGH_BYTES // row_bytes, min(each, MOST_BYTES // row_bytes))
        cuts = range(0, n_rows, step)
        return [_piece(first, placed[:, first : first + step]) for first in cuts]

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        place = slice(piece.first, piece.first + piece.n_rows)
        values = outer_take(self.read_rows(piece.parts[0]), self.region)
        put_rows(out, place if dest is None else dest[place], values)

    def cost(self, runs: Ints) -> Cost:
        stored = n_rows = n_reads = 0
        for start, stop in runs.tolist():
            offsets = self.records.index.offsets
            stored += int(offsets[stop] - offsets[start])
            n_rows += stop - start
            n_reads += 1
        return Cost(stored, n_rows * self.row_bytes, n_reads, 0)

    def advise(self, runs: Ints) -> None:
        self.records.advise(runs)

    def cold(self, row: int) -> bool:
        return self.records.cold(row)


def _piece(first: int, placed: Ints) -> Piece:
    """Return a piece of rows that stand in the first line of `placed`."""
    rows = placed[0]
    return Piece(first, len(rows), 0, int(rows[0]), int(rows[-1]) + 1, placed)


class PictureEngine(RowEngine):
    """Pictures that all have one shape once they are decoded."""

    def __init__(self, source: SourceHeader, region: Region, *, maps: bool) -> None:
        super().__init__(source, region)
        self._maps = maps
        self.why = f"pictures of {source.row_shape}, decoded one by one"
        self._whole = is_whole(region, source.row_shape)

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        place = slice(piece.first, piece.first + piece.n_rows)
        outs = list(out[place]) if dest is None else [out[i] for i in dest[place].tolist()]
        for rows, payloads in self.records.blocks(piece.parts, maps=self._maps):
            here, outs = outs[: len(rows)], outs[len(rows) :]
            rest: Sequence[int] = range(len(rows))
            if self._whole:
                rest = plain_pictures(self.source, payloads, here)
            for i in rest:
                image = self._picture(rows[i], payloads[i])
                here[i][...] = outer_take(image[np.newaxis], self.region)[0]

    def _picture(self, row: int, payload: memoryview) -> Array:
        image = picture(self.source, row, payload)
        if image.shape != self.source.row_shape:
            raise ReadError(
                f"{describe(self.source)}, row {row}: its picture is {image.shape}, and not "
                f"{self.source.row_shape} as all others; open with shape= and channels= to make "
                "them alike"
            )
        return image


def plain_pictures(
    source: SourceHeader, payloads: Sequence[memoryview], outs: Sequence[Array]
) -> list[int]:
    """Decode straight to `outs` the pictures of records for which that is all; name the others."""
    decoding: Decoding = source.detail.decoding
    with clock.decoding():
        try:
            return decoding.plain([*map(body_of, payloads)], outs)
        except HeaderError:
            return list(range(len(payloads)))


def picture(source: SourceHeader, row: int, payload: memoryview) -> Array:
    """Decode the picture of a record.

    Raises
    ------
    ReadError
        If it is none; names file, row and id.
    """
    try:
        with clock.decoding():
            image: Array = source.detail.decoding(body_of(payload))
    except (HeaderError, PictureError) as fault:
        raise ReadError(
            f"{describe(source)}, row {row}{_named(payload)}: {fault}; errors='skip' leaves such "
            "rows out"
        ) from fault
    return image


def _named(payload: memoryview) -> str:
    try:
        return f" (id {unpack(payload).id})"
    except HeaderError:
        return ""


class LabelEngine(RowEngine):
    """Several labels a record, as many in each: read from behind the headers."""

    def __init__(self, source: SourceHeader, region: Region) -> None:
        super().__init__(source, region)
        self.why = f"{source.row_shape[0]} labels a record, read from behind its header"

    def read_rows(self, rows: Ints) -> Array:
        n_labels = self.source.row_shape[0]
        begin = beginnings(self.records, rows, HEADER_BYTES + n_labels * LABEL.itemsize)
        values = np.ascontiguousarray(begin[:, HEADER_BYTES:]).view(LABEL)
        return exactly(values, self.source)


# labels and ids


def ids_of(detail: Detail) -> Array:
    """Return the ids of all records."""
    return table_of(detail.records).ids


def single_labels(source: SourceHeader) -> Array:
    """Return labels that are in memory: those of a list, or one a record."""
    detail: Detail = source.detail
    if detail.label_list is not None:
        return exactly(listed_labels(detail.records, detail.label_list, detail.label_width), source)
    return exactly(header_labels(detail.records), source)


@lru_cache(maxsize=KEPT_FILES)
def header_labels(file: RecordFile) -> Array:
    """Return the one label of each record, whether it stands in the header or behind it."""
    table = table_of(file)
    labels = table.labels.copy()
    behind = np.flatnonzero(table.flags)
    if len(behind):
        begin = beginnings(file, behind, HEADER_BYTES + LABEL.itemsize)
        labels[behind] = np.ascontiguousarray(begin[:, HEADER_BYTES:]).view(LABEL)[:, 0]
    return labels


@lru_cache(maxsize=KEPT_FILES)
def listed_labels(file: RecordFile, stamp: FileStamp, width: int | None) -> Array:
    """Return the labels that a list gives the records: (n, width), or (n,) for one each.

    Raises
    ------
    UnknownNameError
        If a record is not listed.
    """
    found = list_of(stamp, width).labels_of(table_of(file).ids, repr(file.stamp.path))
    return found[:, 0] if found.shape[1] == 1 else found


@lru_cache(maxsize=KEPT_FILES)
def list_of(stamp: FileStamp, width: int | None = None) -> ExampleList:
    """Read a list, if it is still the one that was named; kept once a process."""
    check_path(stamp)
    return read_list(stamp.path, width)


def exactly(values: Array, source: SourceHeader) -> Array:
    """Return labels as the dtype that was asked for.

    Raises
    ------
    FileFormatError
        If it cannot hold one of them.
    """
    dtype = native(source.dtype)
    if dtype == values.dtype:
        return values
    with np.errstate(invalid="ignore"):
        cast = values.astype(dtype)
    wrong = cast.astype(np.float64) != values
    if wrong.any():
        some = values[wrong].ravel()[0]
        raise FileFormatError(
            f"{describe(source)}: {int(wrong.sum())} labels, {some} among them, are no {dtype}; "
            "open without label_dtype= to have them as they are"
        )
    return cast
