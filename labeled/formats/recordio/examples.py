"""Examples of different shapes out of record files; follows :class:`~labeled.ragged.RaggedReader`.

Pictures are decoded where they are read, so in the threads of a loader; their shapes come
from their headers. A picture that cannot be decoded has no pixels there, and reading it is
an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import ReadError
from labeled.formats.header import SourceHeader
from labeled.formats.reading import Io, describe, native
from labeled.formats.recordio.decoding import Decoding
from labeled.formats.recordio.engines import exactly, picture
from labeled.formats.recordio.irheader import HEADER_BYTES, LABEL
from labeled.formats.recordio.reading import RecordFile
from labeled.formats.recordio.table import beginnings, lengths_of, sizes_of, table_of
from labeled.ragged.flat import AnyRows, Flat, Rows, elements_of, offsets_of

Array = npt.NDArray[Any]

MANY_LABELS = 1 << 10
"""Labels of a record that are read without the rest of it."""


@dataclass(frozen=True, eq=False)
class RecordReader:
    """What the sources have in common; each tells shapes and reads examples its own way."""

    source: SourceHeader
    kind: str = "records"
    chunk_rows: int = 1

    @property
    def n_rows(self) -> int:
        return self.source.n_rows

    @property
    def n_axes(self) -> int:
        return len(self.source.dims) - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        return native(self.source.dtype)

    @property
    def where(self) -> str:
        return describe(self.source)

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

    def read_examples(self, rows: AnyRows) -> Iterator[Array]:
        for row, payload in self.records.payloads(rows):
            image = picture(self.source, row, payload)
            if image.shape != tuple(self._shapes[row].tolist()):
                raise ReadError(
                    f"{self.where}, row {row}: its picture is {image.shape}, but its header says "
                    f"{tuple(self._shapes[row].tolist())}; the picture is damaged"
                )
            yield image


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
