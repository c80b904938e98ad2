"""Examples of different shapes out of record files; follows :class:`~labeled.ragged.RaggedReader`.

Pictures are decoded where they are read, so in the threads of a loader; their shapes come
from their headers. A picture that cannot be decoded has no pixels there, and reading it is
an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import ReadError
from labeled.formats.examples import ExampleReader
from labeled.formats.header import SourceHeader
from labeled.formats.reading import Io
from labeled.formats.recordio.decoding import Decoding
from labeled.formats.recordio.engines import exactly, picture, plain_pictures
from labeled.formats.recordio.irheader import HEADER_BYTES, LABEL
from labeled.formats.recordio.reading import RecordFile
from labeled.formats.recordio.table import beginnings, lengths_of, sizes_of, table_of
from labeled.permute.workers import processors, share
from labeled.ragged.flat import AnyRows, Flat, Rows, elements_of, offsets_of

Array = npt.NDArray[Any]

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
