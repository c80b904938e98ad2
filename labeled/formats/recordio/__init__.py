"""RecordIO as one format among others: what opening record files tells, and their readers.

The records of every file are gone through once, by their heads; pictures are looked at until
two of them differ in shape, which is soon. Files that are joined are judged together: their
pictures are ragged, or their labels several, where those of any one are.

Sources of one shape are read by a :class:`~labeled.formats.reader.Reader`. The thread that reads
pictures reads their records and decodes one after the other outside the GIL, each to where it
belongs. Others follow :class:`~labeled.ragged.RaggedReader`; their shapes come from the headers of
pictures. A picture that cannot be decoded has no pixels there, and reading it is an error that
names it.

The trade-off: pictures are resized by the shorter edge and cut out of the middle, which is
what evaluation wants; what draws at random is for :mod:`labeled.transforms`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled._threads import processors, share
from labeled._validation import check_fields, integer
from labeled.errors import FileFormatError, LoaderError, ReadError
from labeled.formats.bytesource import stamp_of
from labeled.formats.format import ExampleReader, Format, Options, all_rows, chosen_sources, dims_of
from labeled.formats.header import FileHeader, FilterInfo, SourceHeader
from labeled.formats.pictures import (
    MAX_PIXELS,
    Channels,
    PictureError,
    decode,
    jpegs_into,
    kind_of,
    opencv,
)
from labeled.formats.reader import (
    ByteRanges,
    Cost,
    ExampleRowsReader,
    Io,
    Reader,
    ValuesReader,
    decoding,
    native,
)
from labeled.formats.recordio.records import (
    LABEL,
    MAGIC_BYTES,
    NO_SIZES,
    READ_BYTES,
    SUFFIX,
    HeaderError,
    RecordFile,
    beginnings_of,
    body_begins,
    body_of,
    header_labels,
    headers_of,
    labels_behind,
    sizes_at,
    sizes_of,
    unpack,
)
from labeled.formats.region import Array, Ints, Region
from labeled.ragged.flat import AnyRows, Rows

EXAMPLE = "batch"

# dims, and why examples are ragged where they are
SOURCES = {
    "images": ((EXAMPLE, "height", "width", "channel"), "every picture has its own shape"),
    "labels": ((EXAMPLE, "label"), "records have different numbers of labels"),
    "ids": ((EXAMPLE,), ""),
    "encoded": ((EXAMPLE, "byte"), "every payload has its own length"),
    "records": ((EXAMPLE, "byte"), "every payload has its own length"),
}
ON_REQUEST = {"encoded": "the bytes of payloads, undecoded; ask for it by name with sources="}
NAMES = {
    "images": ("ids", "images", "labels"),
    "labelled": ("encoded", "ids", "labels"),
    "raw": ("records",),
}
ENCODED = FilterInfo(0, "decoded")  # pictures are expensive to read: they have to be decoded

PEEKED_ROWS = 8  # records of a file that are looked at for pictures

# how many times larger than its bytes a picture is taken to be while it is decoded
DECODED_TIMES = 24

MANY_ROWS = 16  # pictures that are worth several threads, where they are asked for at once


# options


@dataclass(frozen=True)
class Decoding:
    """How all pictures of a dataset are decoded.

    Parameters
    ----------
    channels : {1, 3, 4}, optional
        Decode pictures to grey, colour (red, green, blue), or colour with alpha; else they
        keep what they have.
    resize : int, optional
        Resize pictures so that their shorter edge is so long; the other keeps its proportion.
    shape : (height, width), optional
        Cut so much out of the middle, after `resize`; a picture that is too small is enlarged
        first, until it is not.
    upright : bool
        Turn pictures as their EXIF data say; a TIFF is turned either way, a PNG never.
    max_pixels : int
        Refuse larger ones by what their header claims.
    """

    channels: Channels = None
    resize: int | None = None
    shape: tuple[int, int] | None = None
    upright: bool = True
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        check_fields(self, LoaderError)
        if self.shape is not None:
            object.__setattr__(self, "shape", tuple(self.shape))
        sides = [("shape", side) for side in self.shape or ()]
        for name, value in (*sides, ("resize", self.resize), ("max_pixels", self.max_pixels)):
            if value is not None:
                integer(name, value, least=1)

    @property
    def row_shape(self) -> tuple[int, int, int] | None:
        """The shape that every picture gets; None where that depends on the picture."""
        if self.shape is None or self.channels is None:
            return None
        return (*self.shape, self.channels)

    @property
    def resizes(self) -> bool:
        """Whether pictures are larger, for a moment, than what becomes of them."""
        return self.resize is not None or self.shape is not None

    def __call__(self, data: bytes | memoryview) -> Array:
        """Decode a picture.

        Raises
        ------
        PictureError
            If it is none, or too large.
        """
        image = decode(data, self.channels, upright=self.upright, max_pixels=self.max_pixels)
        if self.resize is not None:
            image = resized(image, *map(int, self._scaled(*image.shape[:2])))
        if self.shape is None:
            return image
        (rows, columns), (height, width) = image.shape[:2], self.shape
        if rows < height or columns < width:
            factor = max(height / rows, width / columns)
            rows, columns = max(height, int(factor * rows)), max(width, int(factor * columns))
            image = resized(image, rows, columns)
        y, x = (rows - height) // 2, (columns - width) // 2
        return np.ascontiguousarray(image[y : y + height, x : x + width])

    def _scaled(self, height: Any, width: Any) -> tuple[Any, Any]:
        """Return heights and widths, the shorter ones `resize`."""
        least = np.maximum(1, np.minimum(height, width))
        tall, wide = (self.resize * edge // least for edge in (height, width))
        return np.maximum(1, tall), np.maximum(1, wide)

    def shapes(self, sizes: npt.NDArray[np.int32]) -> Rows:
        """Return the shapes of decoded pictures (n, 3), from their sizes as stored.

        Pictures that will be refused have shape (0, 0, 0).
        """
        height, width, channels, turn = sizes.astype(np.int64).T
        good = (height * width > 0) & (height * width <= self.max_pixels)
        if self.upright:
            height, width = np.where(turn >= 5, (width, height), (height, width))
        if self.resize is not None:
            height, width = self._scaled(height, width)
        if self.shape is not None:
            height, width = (np.full(len(sizes), side) for side in self.shape)
        if self.channels is not None:
            channels = np.full(len(sizes), self.channels)
        shapes: Rows = np.stack((height, width, channels), axis=1) * good[:, np.newaxis]
        return shapes


def resized(image: Array, height: int, width: int) -> Array:
    """Resize a picture: averaging where it shrinks, cubic where it grows, linear in between."""
    if image.shape[:2] == (height, width):
        return image
    cv2 = opencv()
    if height <= image.shape[0] and width <= image.shape[1]:
        how = cv2.INTER_AREA
    elif height >= image.shape[0] and width >= image.shape[1]:
        how = cv2.INTER_CUBIC
    else:
        how = cv2.INTER_LINEAR
    out: Array = cv2.resize(image, (width, height), interpolation=how)
    return out.reshape(height, width, image.shape[2])


@dataclass(frozen=True)
class RecordOptions(Decoding):
    """What :func:`labeled.open_dataset` takes for record files alone, besides :class:`Decoding`.

    Parameters
    ----------
    content : {"auto", "images", "labelled", "raw"}
        What records hold: pictures behind a header of labels and ids, any bytes behind such a
        header, or any bytes. By default the first records tell pictures from the rest, which
        is "raw".
    label_dtype : dtype
        Of labels; those that it cannot hold exactly are refused.
    """

    content: Literal["auto", "images", "labelled", "raw"] = "auto"
    label_dtype: Any = "float32"

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            dtype: np.dtype[Any] = np.dtype(self.label_dtype)
        except TypeError as error:
            raise LoaderError(f"label_dtype={self.label_dtype!r} is not a dtype: {error}") from None
        if dtype.kind not in "iuf":
            raise LoaderError(f"label_dtype={dtype}: labels are numbers; give an int or a float")
        object.__setattr__(self, "label_dtype", dtype)


class Detail(NamedTuple):
    """What readers of one source of a record file need to know."""

    records: RecordFile
    decoding: Decoding  # of pictures


# opening


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
    beside = [str(Path(path).with_suffix(SUFFIX)) for path in paths]
    indexes = [stamp_of(path) if os.path.exists(path) else None for path in beside]
    files = tuple(map(RecordFile, map(stamp_of, paths), indexes))
    content = _content(files) if own.content == "auto" else own.content
    more = ON_REQUEST if content == "images" else {}
    names: tuple[str, ...] = NAMES[content]
    if options.sources is not None or options.dims:
        chosen = chosen_sources((*names, *more), options, repr(paths[0]))
        names = names if options.sources is None else chosen
    shapes = {name: _row_shape(name, files, own) for name in names}
    headers = []
    for file in files:
        sources = {name: _source(name, file, shapes[name], options) for name in names}
        header = FileHeader(
            stamp=file.stamp,
            sources=sources,
            splits=all_rows(sources),
            not_opened={name: why for name, why in more.items() if name not in names},
            example_dim=options.example_dim or EXAMPLE,
            kind=content,
            format="recordio",
        )
        headers.append(header)
    return tuple(headers)


def _content(files: tuple[RecordFile, ...]) -> str:
    """Tell by the first records whether there are pictures; one of them may be damaged."""
    for file in files:
        for _, payload in file.payloads(range(min(PEEKED_ROWS, file.n_rows))):
            with contextlib.suppress(HeaderError):
                if kind_of(body_of(payload)) is not None:
                    return "images"
    return "raw"


def _row_shape(
    name: str, files: tuple[RecordFile, ...], decoding: Decoding
) -> tuple[int, ...] | None:
    """Return the row shape of a source in all files; None where examples differ."""
    if name == "ids":
        return ()
    if name == "labels":
        flags = np.concatenate([headers_of(file)["flag"] for file in files])
        widths = np.unique(np.maximum(flags, 1)).tolist()
        if len(widths) > 1:
            return None
        return () if widths in ([], [1]) else tuple(widths)
    if name != "images":
        return None
    found = decoding.row_shape
    if found is not None:
        return found
    first_ones = (sizes_at(file, range(min(PEEKED_ROWS, file.n_rows))) for file in files)
    for some in (first_ones, map(sizes_of, files)):  # different shapes are met soon, if at all
        shapes = decoding.shapes(np.concatenate([NO_SIZES, *some]))
        found = np.unique(shapes[shapes.any(axis=1)], axis=0).tolist()
        if len(found) > 1:
            return None
    return tuple(found[0]) if found else None


def _source(
    name: str, file: RecordFile, row_shape: tuple[int, ...] | None, options: Options
) -> SourceHeader:
    own: RecordOptions = options.own
    stored_bytes = file.stamp.size
    if name in ("ids", "labels"):  # those in the headers
        n_labels = int(np.maximum(headers_of(file)["flag"], 1).sum(dtype=np.int64))
        stored_bytes = 8 * file.n_rows if name == "ids" else LABEL.itemsize * n_labels
    dims, why = SOURCES[name]
    known = dims if row_shape is None else dims[: 1 + len(row_shape)]
    dtypes = {"ids": np.dtype(np.uint64), "labels": own.label_dtype}
    decoded = DECODED_TIMES * file.largest if name == "images" and own.resizes else 0
    return SourceHeader(
        file=file.stamp,
        name=name,
        key=name,
        shape=(file.n_rows, *(row_shape or ())),
        dtype=dtypes.get(name, np.dtype(np.uint8)),
        dims=dims_of(name, known, options, file.stamp.path),
        storage="records",
        filters=(ENCODED,) if name == "images" else (),
        stored_bytes=stored_bytes,
        ragged=why if row_shape is None else None,
        format="recordio",
        detail=Detail(file, own),
        scratch_bytes=READ_BYTES + file.largest + decoded,
    )


# examples


def read_examples(source: SourceHeader, rows: AnyRows, outs: Sequence[Array]) -> None:
    """Store the examples of some records, each where it belongs.

    Raises
    ------
    ReadError
        If one is not a picture, or has another shape; names file, row and id.
    FileFormatError
        If its labels are no values of the dtype.
    """
    records: RecordFile = source.detail.records
    if source.key == "images":
        _read_pictures(source, np.asarray(rows, np.int64), outs)
        return
    for (_, payload), out in zip(records.payloads(rows), outs, strict=True):
        if source.key == "labels":
            out[...] = exactly(unpack(payload).labels, source)
        else:
            out[...] = np.frombuffer(payload, np.uint8)[len(payload) - len(out) :]


def _read_pictures(source: SourceHeader, rows: Rows, outs: Sequence[Array]) -> None:
    """Decode pictures: right to where they belong, if they are neither turned nor resized."""
    records, recipe = source.detail
    is_plain = np.full(len(rows), not recipe.resizes)
    if not recipe.resizes:
        height, _, _, turn = sizes_of(records)[rows].T
        is_plain = (height > 0) & ((turn == 1) | (not recipe.upright))
    first = 0
    for numbers, payloads in records.blocks(rows):
        which = slice(first, first := first + len(numbers))
        places, plain = outs[which], is_plain[which].tolist()
        bodies = [
            body_of(one) if is_one else b"" for one, is_one in zip(payloads, plain, strict=True)
        ]
        with decoding():
            for i in jpegs_into(bodies, places):
                _read_other(source, numbers[i], payloads[i], places[i])


def _read_other(source: SourceHeader, row: int, payload: memoryview, out: Array) -> None:
    """Decode any picture, or tell what is wrong with it."""
    try:
        image = source.detail.decoding(body_of(payload))
    except (HeaderError, PictureError) as fault:
        id = ""
        with contextlib.suppress(HeaderError):
            id = f" (id {unpack(payload).id})"
        raise ReadError(
            f"{source.where}, row {row}{id}: {fault}; errors='skip' leaves such rows out"
        ) from fault
    if image.shape != out.shape:
        raise ReadError(
            f"{source.where}, row {row}: its picture is {image.shape}, and not {out.shape} as "
            "expected; it is damaged, or open with shape= and channels= to make all alike"
        )
    out[...] = image


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
            f"{source.where}: {int(wrong.sum())} labels, {some} among them, are not {dtype}; "
            "open without label_dtype= to have them as they are"
        )
    return cast


# readers


def open_reader(source: SourceHeader, *, region: Region = (), io: Io = "auto") -> Reader:
    """Return a reader of the rows of one source. Opens nothing yet."""
    if source.key == "images" or source.row_shape:
        return RecordRows(source, region, io)
    why = f"{source.name} of all records, known from their headers"
    return ValuesReader(source, region, _values_of_heads, why)


def _values_of_heads(source: SourceHeader) -> Array:
    records = source.detail.records
    if source.key == "ids":
        return headers_of(records)["id"]
    return exactly(header_labels(records), source)


class RecordRows(ExampleRowsReader):
    """Pictures that all have one shape once they are decoded, or as many labels each record."""

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        super().__init__(source, region, io)
        self.why = f"pictures of {source.row_shape}, decoded one by one"
        if source.key == "labels":
            self.why = f"{source.row_shape[0]} labels a record, read from behind its header"

    def _read_each(self, rows: Ints, outs: Sequence[Array]) -> None:
        if self.source.key == "images":
            read_examples(self.source, rows, outs)
            return
        labels = labels_behind(self.source.detail.records, rows, self.source.row_shape[0])
        for own, out in zip(exactly(labels, self.source), outs, strict=True):
            out[...] = own

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        offsets = self.source.detail.records.offsets
        starts = offsets[runs[:, 0]]
        return (ByteRanges(self.file, starts, offsets[runs[:, 1]] - starts),)


class RecordReader(ExampleReader):
    """Pictures, bytes or labels of different shapes."""

    kind = "records"

    def __init__(self, source: SourceHeader, io: Io = "auto") -> None:
        super().__init__(source, io)
        how = "decoded one by one" if source.key == "images" else "found by its offset"
        self.why = f"{source.ragged}, {how}"

    def _found(self, rows: AnyRows) -> tuple[Rows, tuple[Rows, Rows]]:
        (records, recipe), key = self.source.detail, self.source.key
        listed = np.asarray(rows, np.int64)
        if key == "images":
            shapes: Rows = recipe.shapes(sizes_of(records)[listed])
        elif key == "labels":
            counts = np.maximum(headers_of(records)["flag"][listed], 1)
            shapes = counts.astype(np.int64)[:, np.newaxis]
        else:
            begins = 0 if key == "records" else body_begins(headers_of(records)[listed])
            shapes = (beginnings_of(records)[0][listed] - begins)[:, np.newaxis]
        return shapes, (listed, shapes)

    def cost(self, rows: AnyRows) -> Cost:
        """Count what reading examples takes: of pictures, their bytes in the file."""
        sizes = self.sizes(rows) * self.dtype.itemsize
        if self.source.key == "images":
            listed, offsets = np.asarray(rows, np.int64), self.source.detail.records.offsets
            sizes = offsets[listed + 1] - offsets[listed]
        return Cost(int(sizes.sum()), n_reads=1)

    def _read(
        self, wanted: tuple[Rows, Rows], out: Array, places: Rows, sizes: Rows, threads: int
    ) -> None:
        """Read examples directly to their places; several threads decode pictures if many."""
        listed, shapes = wanted
        lines = zip(places.tolist(), (places + sizes).tolist(), shapes.tolist(), strict=True)
        outs = [out[a:b].reshape(shape) for a, b, shape in lines]

        def some(a: int, b: int) -> None:
            read_examples(self.source, listed[a:b], outs[a:b])

        many = len(listed) >= MANY_ROWS and self.source.key == "images"
        share(some, len(listed), min(threads, processors()) if many else 1)


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
    open_ragged=RecordReader,
)
