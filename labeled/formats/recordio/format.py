"""RecordIO as one format among others: what opening record files tells, and their readers.

The records of every file are gone through once, by their heads; pictures are looked at until
two of them differ in shape, which is soon. Files that are joined are judged together: their
pictures are ragged, or their labels several, where those of any one are.

Sources of one shape are read by a :class:`~labeled.formats.reader.Reader`. The thread that reads
pictures reads their records and decodes one after the other outside the GIL, each to where it
belongs. Others follow :class:`~labeled.ragged.RaggedReader`; their shapes come from the headers of
pictures. A picture that cannot be decoded has no pixels there, and reading it is an error that
names it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labeled.errors import FileFormatError, LoaderError, ReadError
from labeled.formats.bytesource import stamp_of
from labeled.formats.format import (
    ExampleReader,
    Format,
    Options,
    all_rows,
    chosen_sources,
    dims_of,
)
from labeled.formats.header import FileHeader, FileStamp, Filter, SourceHeader, fingerprint
from labeled.formats.memory import put_rows
from labeled.formats.pictures import PictureError, kind_of
from labeled.formats.reader import (
    ByteRanges,
    FileReader,
    Io,
    Reader,
    ValuesReader,
    decoding,
    describe,
    native,
)
from labeled.formats.recordio.framing import LABEL, MAGIC_BYTES, HeaderError, body_of, unpack
from labeled.formats.recordio.options import Decoding, Detail, RecordOptions
from labeled.formats.recordio.records import (
    READ_BYTES,
    SUFFIX,
    RecordFile,
    header_labels,
    idx_stamp,
    labels_behind,
    lengths_of,
    sizes_by_blocks,
    sizes_of,
    table_of,
)
from labeled.formats.region import Array, Ints, Region, is_whole, outer_take
from labeled.permute.workers import processors, share
from labeled.ragged.flat import AnyRows, Flat, Rows, elements_of, offsets_of
from labeled.selection import rows_of

EXAMPLE = "batch"

DIMS = {
    "images": (EXAMPLE, "height", "width", "channel"),
    "labels": (EXAMPLE, "label"),
    "ids": (EXAMPLE,),
    "encoded": (EXAMPLE, "byte"),
    "records": (EXAMPLE, "byte"),
}
ON_REQUEST = {"encoded": "the bytes of payloads, undecoded; ask for it by name with sources="}
NAMES = {
    "images": ("ids", "images", "labels"),
    "labelled": ("encoded", "ids", "labels"),
    "raw": ("records",),
}
RAGGED = {
    "images": "every picture has its own shape",
    "labels": "records have different numbers of labels",
    "encoded": "every payload has its own length",
    "records": "every payload has its own length",
}

ENCODED = Filter(0, "decoded")
"""Pictures are expensive to read: they have to be decoded."""

PEEKED_ROWS = 8
"""Records of a file that are looked at for pictures."""

DECODED_TIMES = 24
"""How many times larger than its bytes a picture is taken to be while it is decoded."""

MANY_ROWS = 16
"""Pictures that are worth several threads, where they are asked for at once."""


def scan(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    """Return what each file holds.

    Raises
    ------
    FileFormatError
        If a file is not a RecordIO file, is cut short, or does not fit its index.
    UnknownNameError
        If a source does not exist.
    """
    own: RecordOptions = options.own
    files = tuple(map(RecordFile, map(stamp_of, paths), _indexes(paths, own.index)))
    content = _content(files) if own.content == "auto" else own.content
    more = ON_REQUEST if content == "images" else {}
    names: tuple[str, ...] = NAMES[content]
    if options.sources is not None or options.dims:
        chosen = chosen_sources((*names, *more), options, repr(paths[0]))
        names = names if options.sources is None else chosen
    shapes = {name: _row_shape(name, files, own) for name in names}
    headers = []
    for file in files:
        detail = Detail(file, own.decoding, raw=content == "raw")
        sources = {name: _source(name, detail, shapes[name], options) for name in names}
        splits = all_rows(sources)
        header = FileHeader(
            stamp=file.stamp,
            fingerprint=fingerprint(sources, splits),
            attrs={},
            sources=sources,
            variables={},
            splits=splits,
            not_opened={name: why for name, why in more.items() if name not in names},
            example_dim=options.example_dim or EXAMPLE,
            kind=content,
            format="recordio",
        )
        headers.append(header)
    return tuple(headers)


def _indexes(paths: tuple[str, ...], index: Any) -> Iterator[FileStamp | None]:
    if index is False:
        return iter([None] * len(paths))
    if index != "auto":
        if len(index) != len(paths):
            raise LoaderError(f"index= names {len(index)} files for {len(paths)} record files")
        return iter(index)
    beside = (str(Path(path).with_suffix(SUFFIX)) for path in paths)
    return (idx_stamp(one) if os.path.exists(one) else None for one in beside)


def _content(files: tuple[RecordFile, ...]) -> str:
    """Tell by the first records whether there are pictures; one of them may be damaged."""
    for file in files:
        for _, payload in file.payloads(range(min(PEEKED_ROWS, file.n_rows))):
            with contextlib.suppress(HeaderError):
                if kind_of(body_of(payload)) is not None:
                    return "images"
    return "raw"


def _row_shape(
    name: str, files: tuple[RecordFile, ...], own: RecordOptions
) -> tuple[int, ...] | None:
    """Return the row shape of a source in all files; None where examples differ."""
    if name == "ids":
        return ()
    if name == "labels":
        widths = np.unique(np.concatenate([table_of(file).widths for file in files])).tolist()
        if len(widths) > 1:
            return None
        return () if widths in ([], [1]) else tuple(widths)
    if name != "images":
        return None
    found = own.decoding.row_shape
    if found is not None:
        return found
    for sizes in (sizes for file in files for sizes in sizes_by_blocks(file)):
        shapes = own.decoding.shapes(sizes)
        for shape in map(tuple, np.unique(shapes[shapes.any(axis=1)], axis=0).tolist()):
            if found is not None and shape != found:
                return None
            found = shape
    return found


def _source(
    name: str, detail: Detail, row_shape: tuple[int, ...] | None, options: Options
) -> SourceHeader:
    file, own = detail.records, options.own
    dtype = {"ids": np.dtype(np.uint64), "labels": own.label_dtype}.get(name, np.dtype(np.uint8))
    known = DIMS[name] if row_shape is None else DIMS[name][: 1 + len(row_shape)]
    decoded = DECODED_TIMES * file.largest if name == "images" and own.decoding.resizes else 0
    stored_bytes = file.stamp.size
    if name in ("ids", "labels"):  # those in the headers
        n_labels = table_of(file).widths.sum()
        stored_bytes = 8 * file.n_rows if name == "ids" else LABEL.itemsize * int(n_labels)
    return SourceHeader(
        file=file.stamp,
        name=name,
        key=name,
        shape=(file.n_rows, *(row_shape or ())),
        dtype=dtype,
        dims=dims_of(name, known, options, repr(file.stamp.path)),
        storage="records",
        filters=(ENCODED,) if name == "images" else (),
        stored_bytes=stored_bytes,
        ragged=RAGGED[name] if row_shape is None else None,
        format="recordio",
        detail=detail,
        scratch_bytes=READ_BYTES + file.largest + decoded,
    )


# of one shape


def open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> Reader:
    """Return a reader of the rows of one source. Opens nothing yet."""
    if source.key == "images" or source.row_shape:
        return RecordRows(source, region, io)
    load = _ids if source.key == "ids" else _single_labels
    why = f"{source.name} of all records, known from their headers"
    return ValuesReader(source, region, load, why)


def _ids(source: SourceHeader) -> Array:
    return table_of(source.detail.records).ids


def _single_labels(source: SourceHeader) -> Array:
    return exactly(header_labels(source.detail.records), source)


class RecordRows(FileReader):
    """Pictures that all have one shape once they are decoded, or as many labels each record."""

    kind = "records"

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        self.records: RecordFile = source.detail.records

    @property
    def why(self) -> str:  # type: ignore[override]
        if self.source.key == "images":
            return f"pictures of {self.source.row_shape}, decoded one by one"
        return f"{self.source.row_shape[0]} labels a record, read from behind its header"

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        rows, shape = rows_of(runs), self.source.row_shape
        if self.source.key == "labels":
            values = exactly(labels_behind(self.records, rows, shape[0]), self.source)
            which = slice(len(rows)) if places is None else places
            put_rows(out, which, outer_take(values, self.region))
            return
        whole = is_whole(self.region, shape)
        where = range(len(rows)) if places is None else places.tolist()
        for place, (row, payload) in zip(where, self.records.payloads(rows), strict=True):
            if whole:
                picture(self.source, row, payload, shape, out[place])
            else:
                image = picture(self.source, row, payload, shape)
                out[place] = outer_take(image[np.newaxis], self.region)[0]

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        offsets = self.records.offsets
        starts = offsets[runs[:, 0]]
        return (ByteRanges(self.file, starts, offsets[runs[:, 1]] - starts),)


def picture(
    source: SourceHeader,
    row: int,
    payload: memoryview,
    shape: tuple[int, ...],
    out: Array | None = None,
) -> Array:
    """Decode the picture of a record, to `out` if that is given.

    Raises
    ------
    ReadError
        If it is none, or has another shape; names file, row and id.
    """
    try:
        with decoding():
            image: Array = source.detail.decoding(body_of(payload), out)
    except (HeaderError, PictureError) as fault:
        id = ""
        with contextlib.suppress(HeaderError):
            id = f" (id {unpack(payload).id})"
        raise ReadError(
            f"{describe(source)}, row {row}{id}: {fault}; errors='skip' leaves such rows out"
        ) from fault
    if image.shape != shape:
        raise ReadError(
            f"{describe(source)}, row {row}: its picture is {image.shape}, and not {shape} as "
            "expected; it is damaged, or open with shape= and channels= to make all alike"
        )
    if out is not None and image is not out:
        out[...] = image
    return image


def exactly(values: Array, source: SourceHeader) -> Array:
    """Return labels as the dtype that was asked for.

    Raises
    ------
    FileFormatError
        If it cannot hold one of them.
    """
    dtype = native(source.dtype)
    with np.errstate(invalid="ignore"):
        cast = values.astype(dtype, copy=False)
    wrong = cast.astype(np.float64) != values
    if dtype != values.dtype and wrong.any():
        some = values[wrong].ravel()[0]
        raise FileFormatError(
            f"{describe(source)}: {int(wrong.sum())} labels, {some} among them, are not {dtype}; "
            "open without label_dtype= to have them as they are"
        )
    return cast


# of different shapes


@dataclass(frozen=True, eq=False)
class RecordReader(ExampleReader):
    """Pictures, bytes or labels of different shapes."""

    kind: str = "records"
    chunk_rows: int = 1

    def __getstate__(self) -> dict[str, Any]:
        """Leave what was found out behind: it is found out again where the reader arrives."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def why(self) -> str:
        how = "decoded one by one" if self.source.key == "images" else "found by its offset"
        return f"{self.source.ragged}, {how}"

    @property
    def records(self) -> RecordFile:
        records: RecordFile = self.source.detail.records
        return records

    @cached_property
    def _shapes(self) -> Rows:
        if self.source.key == "images":
            pictures: Decoding = self.source.detail.decoding
            return pictures.shapes(sizes_of(self.records))
        if self.source.detail.raw:
            return lengths_of(self.records)[:, np.newaxis]
        table = table_of(self.records)
        of_labels = self.source.key == "labels"
        return (table.widths if of_labels else table.payload_bytes)[:, np.newaxis]

    def shapes(self, rows: AnyRows) -> Rows:
        """Return the shapes of examples."""
        found: Rows = self._shapes[np.asarray(rows, np.int64)]
        return found

    def sizes(self, rows: AnyRows) -> Rows:
        return elements_of(self.shapes(rows))

    def stored_sizes(self, rows: AnyRows) -> Rows:
        """Return the bytes that examples take in the file."""
        if self.source.key == "images":
            return self.records.stored_sizes(rows)
        return self.sizes(rows) * self.dtype.itemsize

    def read_examples(self, rows: AnyRows) -> Iterator[Array]:
        """Yield examples, each in memory of its own."""
        for row, payload in self.records.payloads(rows):
            out = np.empty(tuple(self._shapes[row].tolist()), self.dtype)
            self._put(row, payload, out)
            yield out

    def read_flat(self, rows: AnyRows) -> Flat:
        """Read examples directly to their place; several threads decode pictures if many."""
        listed = np.asarray(rows, np.int64)
        shapes = self.shapes(listed)
        offsets = offsets_of(elements_of(shapes))
        out = np.empty(int(offsets[-1]), self.dtype)
        many = len(listed) >= MANY_ROWS and self.source.key == "images"

        def some(first: int, last: int) -> None:
            payloads = self.records.payloads(listed[first:last])
            for i, (row, payload) in enumerate(payloads, first):
                self._put(row, payload, out[offsets[i] : offsets[i + 1]].reshape(shapes[i]))

        share(some, len(listed), processors() if many else 1)
        return Flat(out, offsets, shapes)

    def _put(self, row: int, payload: memoryview, out: Array) -> None:
        """Store the example of a record."""
        if self.source.key == "images":
            picture(self.source, row, payload, out.shape, out)
        elif self.source.key == "labels":
            out[:] = exactly(unpack(payload).labels, self.source)
        else:
            out[:] = np.frombuffer(payload, np.uint8)[len(payload) - len(out) :]


def open_ragged(source: SourceHeader, io: Io = "auto") -> RecordReader:
    """Return a reader of the examples of a ragged source. Opens nothing yet."""
    return RecordReader(source)


FORMAT = Format(
    name="recordio",
    title="RecordIO",
    suffixes=(".rec", ".recordio"),
    recognises=lambda head: head.data.startswith(MAGIC_BYTES) and not head.packed,
    scan=scan,
    open_reader=open_reader,
    kinds={
        "images": "pictures with labels and ids",
        "labelled": "bytes with labels and ids",
        "raw": "records of any bytes",
    },
    options=RecordOptions,
    open_ragged=open_ragged,
)
