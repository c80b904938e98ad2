"""Readers of record files: pictures, labels, ids and bytes, of one shape or of many.

Sources of one shape follow :class:`~labeled.formats.reading.Engine`. A piece is a mebibyte of
pictures or more; the thread that takes it reads their records, looks at their headers, and
decodes one after the other outside the GIL, each to where it belongs. Others follow
:class:`~labeled.ragged.RaggedReader`; their shapes come from the headers of pictures. A picture
that cannot be decoded has no pixels there, and reading it is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from labeled.errors import FileFormatError, ReadError
from labeled.formats import clock
from labeled.formats.examples import ExampleReader
from labeled.formats.header import SourceHeader
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
from labeled.formats.recordio.framing import HEADER_BYTES, LABEL, HeaderError, body_of, unpack
from labeled.formats.recordio.lists import listed_labels
from labeled.formats.recordio.options import Decoding, Detail
from labeled.formats.recordio.records import RecordFile
from labeled.formats.recordio.table import beginnings, header_labels, lengths_of, sizes_of, table_of
from labeled.formats.region import Array, Ints, Region, is_whole, outer_take, region_shape
from labeled.formats.rows import RowReader
from labeled.formats.values_engine import ValuesEngine
from labeled.permute.workers import processors, share
from labeled.ragged.flat import AnyRows, Flat, Rows, elements_of, offsets_of

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
        return PictureEngine(source, region)
    if source.key == "labels" and detail.label_list is None and source.row_shape:
        return LabelEngine(source, region)
    values = table_of(detail.records).ids if source.key == "ids" else single_labels(source)
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
            offsets = self.records.offsets
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

    def __init__(self, source: SourceHeader, region: Region) -> None:
        super().__init__(source, region)
        self.why = f"pictures of {source.row_shape}, decoded one by one"
        self._whole = is_whole(region, source.row_shape)

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        place = slice(piece.first, piece.first + piece.n_rows)
        outs = list(out[place]) if dest is None else [out[i] for i in dest[place].tolist()]
        for rows, payloads in self.records.blocks(piece.parts):
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


def single_labels(source: SourceHeader) -> Array:
    """Return labels that are in memory: those of a list, or one a record."""
    detail: Detail = source.detail
    if detail.label_list is not None:
        return exactly(listed_labels(detail.records, detail.label_list, detail.label_width), source)
    return exactly(header_labels(detail.records), source)


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


# ---------------------------------------------------------------- different shapes

MANY_ROWS = 16
"""Pictures that are worth several threads, where they are asked for at once."""


@dataclass(frozen=True, eq=False)
class RecordReader(ExampleReader):
    """What the sources have in common; each tells shapes and reads examples its own way."""

    kind: str = "records"
    chunk_rows: int = 1

    def __getstate__(self) -> dict[str, Any]:
        """Leave what was found out behind: it is found out again where the reader arrives."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def why(self) -> str:
        return f"{self.source.ragged}, found by its offset"

    @property
    def records(self) -> RecordFile:
        records: RecordFile = self.source.detail.records
        return records

    def shapes(self, rows: AnyRows) -> Rows:
        """Return the shapes of examples; override this."""
        raise NotImplementedError

    def read_examples(self, rows: AnyRows) -> Iterator[Array]:
        """Yield examples, each in memory of its own; override this."""
        raise NotImplementedError

    def sizes(self, rows: AnyRows) -> Rows:
        return elements_of(self.shapes(rows))

    def read_flat(self, rows: AnyRows) -> Flat:
        shapes = self.shapes(rows)
        offsets = offsets_of(elements_of(shapes))
        out = np.empty(int(offsets[-1]), self.dtype)
        for i, example in enumerate(self.read_examples(rows)):
            out[offsets[i] : offsets[i + 1]] = example.reshape(-1)
        return Flat(out, offsets, shapes)


class PictureReader(RecordReader):
    """Pictures, decoded: (height, width, channel)."""

    @cached_property
    def _shapes(self) -> Rows:
        decoding: Decoding = self.source.detail.decoding
        return decoding.shapes(sizes_of(self.records))

    def shapes(self, rows: AnyRows) -> Rows:
        found: Rows = self._shapes[np.asarray(rows, np.int64)]
        return found

    @property
    def why(self) -> str:
        return f"{self.source.ragged}; decoded one by one"

    def stored_sizes(self, rows: AnyRows) -> Rows:
        """Return the bytes that examples take in the file."""
        return self.records.stored_sizes(rows)

    def read_examples(self, rows: AnyRows) -> Iterator[Array]:
        for row, payload in self.records.payloads(rows):
            yield self._picture(row, payload)

    def read_flat(self, rows: AnyRows) -> Flat:
        """Decode pictures straight to where they belong, by several threads if there are many."""
        listed = np.asarray(rows, np.int64)
        shapes = self.shapes(listed)
        offsets = offsets_of(elements_of(shapes))
        out = np.empty(int(offsets[-1]), self.dtype)
        placed = self.records.placed(listed)

        def some(first: int, last: int) -> None:
            for numbers, payloads in self.records.blocks(placed[:, first:last]):
                stop = first + len(numbers)
                own = [
                    out[offsets[i] : offsets[i + 1]].reshape(shapes[i]) for i in range(first, stop)
                ]
                for i in plain_pictures(self.source, payloads, own):
                    own[i][...] = self._picture(numbers[i], payloads[i])
                first = stop

        share(some, len(listed), processors() if len(listed) >= MANY_ROWS else 1)
        return Flat(out, offsets, shapes)

    def _picture(self, row: int, payload: memoryview) -> Array:
        image = picture(self.source, row, payload)
        shape = tuple(self._shapes[row].tolist())
        if image.shape != shape:
            raise ReadError(
                f"{self.where}, row {row}: its picture is {image.shape}, but its header says "
                f"{shape}; the picture is damaged"
            )
        return image


class PayloadReader(RecordReader):
    """Bytes: those of pictures, undecoded, or whole payloads where there are no headers."""

    @cached_property
    def _lengths(self) -> Rows:
        if self.source.detail.raw:
            return lengths_of(self.records)
        return table_of(self.records).payload_bytes

    def shapes(self, rows: AnyRows) -> Rows:
        return self._lengths[np.asarray(rows, np.int64)][:, np.newaxis]

    def read_examples(self, rows: AnyRows) -> Iterator[Array]:
        for row, payload in self.records.payloads(rows):
            data = np.frombuffer(payload, np.uint8)
            yield data[len(data) - int(self._lengths[row]) :].copy()


class LabelReader(RecordReader):
    """Labels, of which records have different numbers."""

    def shapes(self, rows: AnyRows) -> Rows:
        return table_of(self.records).widths[np.asarray(rows, np.int64)][:, np.newaxis]

    def read_examples(self, rows: AnyRows) -> Iterator[Array]:
        table, listed = table_of(self.records), np.asarray(rows, np.int64)
        for row in listed.tolist():
            count = int(table.flags[row])
            values = self._behind(row, count) if count else table.labels[row : row + 1].copy()
            yield exactly(values, self.source)

    def _behind(self, row: int, count: int) -> Array:
        n_bytes = HEADER_BYTES + count * LABEL.itemsize
        begin = beginnings(self.records, range(row, row + 1), n_bytes)
        return np.frombuffer(begin.tobytes(), LABEL, count, HEADER_BYTES).copy()


_READERS = {
    "images": PictureReader,
    "encoded": PayloadReader,
    "records": PayloadReader,
    "labels": LabelReader,
}


def open_ragged(source: SourceHeader, io: Io = "auto") -> RecordReader:
    """Return a reader of the examples of a ragged source. Opens nothing yet."""
    return _READERS[source.key](source)
