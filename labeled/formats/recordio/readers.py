"""Readers of record files: pictures, labels, ids and bytes, of one shape or of many.

Sources of one shape are :class:`~labeled.formats.reader.Reader`. The thread that reads pictures
reads their records, looks at their headers, and decodes one after the other outside the GIL, each
to where it belongs. Others follow :class:`~labeled.ragged.RaggedReader`; their shapes come from the
headers of pictures. A picture that cannot be decoded has no pixels there, and reading it is an
error that names it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from labeled.errors import FileFormatError, ReadError
from labeled.formats.format import ExampleReader
from labeled.formats.header import SourceHeader
from labeled.formats.memory import put_rows
from labeled.formats.picture_heads import PictureError
from labeled.formats.reader import (
    ByteRanges,
    FileReader,
    Io,
    Reader,
    ValuesReader,
    decoding,
    describe,
    native,
    spread,
)
from labeled.formats.recordio.framing import HEADER_BYTES, LABEL, HeaderError, body_of, unpack
from labeled.formats.recordio.lists import listed_labels
from labeled.formats.recordio.options import Decoding, Detail
from labeled.formats.recordio.records import (
    RecordFile,
    beginnings,
    header_labels,
    lengths_of,
    sizes_of,
    table_of,
)
from labeled.formats.region import Array, Ints, Region, is_whole, outer_take
from labeled.permute.workers import processors, share
from labeled.ragged.flat import AnyRows, Flat, Rows, elements_of, offsets_of


def open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> Reader:
    """Return a reader of the rows of one source. Opens nothing yet."""
    detail: Detail = source.detail
    if source.key == "images":
        return PictureRows(source, region, io)
    if source.key == "labels" and detail.label_list is None and source.row_shape:
        return LabelRows(source, region, io)
    load = _ids if source.key == "ids" else single_labels
    why = f"{source.name} of all records, known from their headers"
    return ValuesReader(source, region, load, why)


def _ids(source: SourceHeader) -> Array:
    return table_of(source.detail.records).ids


class RecordRows(FileReader):
    """Rows of records, found one by one; what the others share."""

    kind = "records"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        self.records: RecordFile = source.detail.records

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        offsets = self.records.offsets
        starts = offsets[runs[:, 0]]
        return (ByteRanges(self.file, starts, offsets[runs[:, 1]] - starts),)


class PictureRows(RecordRows):
    """Pictures that all have one shape once they are decoded."""

    @property
    def why(self) -> str:  # type: ignore[override]
        return f"pictures of {self.source.row_shape}, decoded one by one"

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        rows, shape = spread(runs[:, 0], runs[:, 1] - runs[:, 0]), self.source.row_shape
        outs = list(out[: len(rows)]) if places is None else [out[i] for i in places.tolist()]
        if is_whole(self.region, shape):
            decode_all(self.source, self.records.placed(rows), outs)
            return
        for (row, payload), to in zip(self.records.payloads(rows), outs, strict=True):
            image = picture(self.source, row, payload, shape)
            to[...] = outer_take(image[np.newaxis], self.region)[0]


def decode_all(source: SourceHeader, placed: Rows, outs: Sequence[Array]) -> None:
    """Decode the pictures of records, each to where it goes.

    Parameters
    ----------
    placed : int64 array (3, n)
        Rows and where their records lie; see :meth:`RecordFile.placed`.
    outs : n C-contiguous arrays
        Each of the shape that its picture has.
    """
    records, pictures, first = source.detail.records, source.detail.decoding, 0
    for numbers, payloads in records.blocks(placed):
        here = outs[first : first + len(numbers)]
        first += len(numbers)
        with decoding():
            try:
                rest = pictures.plain([*map(body_of, payloads)], here)
            except HeaderError:
                rest = range(len(payloads))
        for i in rest:
            here[i][...] = picture(source, numbers[i], payloads[i], here[i].shape)


def picture(
    source: SourceHeader, row: int, payload: memoryview, shape: tuple[int, ...] | None = None
) -> Array:
    """Decode the picture of a record.

    Raises
    ------
    ReadError
        If it is none, or has another shape; names file, row and id.
    """
    where = f"{describe(source)}, row {row}"
    try:
        with decoding():
            image: Array = source.detail.decoding(body_of(payload))
    except (HeaderError, PictureError) as fault:
        raise ReadError(
            f"{where}{_named(payload)}: {fault}; errors='skip' leaves such rows out"
        ) from fault
    if shape is None or image.shape == shape:
        return image
    if source.ragged:
        raise ReadError(
            f"{where}: its picture is {image.shape}, but its header says {shape}; the picture is "
            "damaged"
        )
    raise ReadError(
        f"{where}: its picture is {image.shape}, and not {shape} as all others; open with shape= "
        "and channels= to make them alike"
    )


def _named(payload: memoryview) -> str:
    try:
        return f" (id {unpack(payload).id})"
    except HeaderError:
        return ""


class LabelRows(RecordRows):
    """Several labels a record, as many in each: read from behind the headers."""

    @property
    def why(self) -> str:  # type: ignore[override]
        return f"{self.source.row_shape[0]} labels a record, read from behind its header"

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        rows = spread(runs[:, 0], runs[:, 1] - runs[:, 0])
        n_bytes = HEADER_BYTES + self.source.row_shape[0] * LABEL.itemsize
        _, begin = beginnings(self.records, rows, n_bytes)
        values = np.ascontiguousarray(begin[:, HEADER_BYTES:]).view(LABEL)
        chosen = outer_take(exactly(values, self.source), self.region)
        put_rows(out, slice(len(rows)) if places is None else places, chosen)


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
        pictures: Decoding = self.source.detail.decoding
        return pictures.shapes(sizes_of(self.records))

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
            yield picture(self.source, row, payload, tuple(self._shapes[row].tolist()))

    def read_flat(self, rows: AnyRows) -> Flat:
        """Decode pictures directly to their place, by several threads if there are many."""
        listed = np.asarray(rows, np.int64)
        shapes = self.shapes(listed)
        offsets = offsets_of(elements_of(shapes))
        out = np.empty(int(offsets[-1]), self.dtype)
        placed = self.records.placed(listed)

        def some(first: int, last: int) -> None:
            own = [out[offsets[i] : offsets[i + 1]].reshape(shapes[i]) for i in range(first, last)]
            decode_all(self.source, placed[:, first:last], own)

        share(some, len(listed), processors() if len(listed) >= MANY_ROWS else 1)
        return Flat(out, offsets, shapes)


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
        _, begin = beginnings(self.records, range(row, row + 1), n_bytes)
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
