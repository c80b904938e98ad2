"""One named source, over one file or many, or in memory: all between headers and a reader.

A source knows its dims, shape and dtype, which part of each row is wanted, how rows lie in
storage, and how to make a reader. It holds no handle and pickles as headers; readers are built
where they are used. Row numbers count through all files, in the order they were joined.

The rows of a ragged source are examples of different shapes: `examples` reads them, `reader` does
not. Their sizes are read once where an order or a memory bound depends on them (eight bytes a
row), and are left behind when the source travels.

Whatever a selection is composed of, a read of it is ascending runs of file rows plus the place of
every row (:class:`Read`). Lists stay lists where rows repeat, and where rows are read one by one
in any case (`SourceReader.file_rows` of the loader).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from operator import call
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize
from dask.utils import format_bytes

from labeled._threads import in_threads, processors
from labeled.errors import (
    DimsError,
    LoaderError,
    SelectionError,
    SelectionTypeError,
    explain_memory_errors,
)
from labeled.formats.bytesource import is_remote
from labeled.formats.cf import DecodingReader, decode
from labeled.formats.header import CF, SourceHeader, decode_text, is_text
from labeled.formats.memory import BLOCK_BYTES, text_row_bytes
from labeled.formats.reader import (
    PIECE_BYTES,
    Io,
    JoinedReader,
    MemoryReader,
    Reader,
    count,
    native,
    pieces,
    read_rows,
    row_nbytes,
)
from labeled.formats.region import Region, is_whole, narrow, outer_take, region_shape, whole
from labeled.formats.registry import format_named
from labeled.ragged import Ragged, RaggedReader
from labeled.selection import Selection, runs_of
from labeled.sources.readers import DaskBlocks, JoinedRagged, in_blocks

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Task = Callable[[], None]

RECORD_BYTES, MANY_RECORD_BYTES = 1 << 20, 8 << 20  # one task reads so many bytes of records


@dataclass(frozen=True, eq=False)
class RowLayout:
    """What is stored, and so read, together: what order and cost of reading depend on.

    Parameters
    ----------
    chunk_rows : int or None
        Rows of a stored chunk; None where any row can be read alone.
    edges : int64 array, optional
        Rows at which chunks begin (and the end of the last), where they are not the
        multiples of `chunk_rows`.
    scratch_bytes : int
        What a thread needs besides the destination while it reads a piece.
    expensive : bool
        A chunk costs more than its bytes: filters are undone, or a graph computed.
    direct : bool
        Stretches of rows are read directly to their destination.
    random : bool
        Rows read one by one cost about what they cost in stretches.
    picked : bool
        Rows in any order are copied one by one out of stored chunks, and nothing else is.
    mapped : bool
        Every row lies in one piece, in memory or in a file that may be mapped there.
    """

    chunk_rows: int | None
    edges: npt.NDArray[np.int64] | None = None
    scratch_bytes: int = 1 << 16
    expensive: bool = False
    direct: bool = False
    random: bool = True
    picked: bool = False
    mapped: bool = False

    def chunks_of(self, rows: Rows, alone: int) -> Rows:
        """Number the chunk of each row; of rows that can be read alone, so many make one."""
        if self.edges is not None:
            return self.edges.searchsorted(rows, side="right")
        return rows // (self.chunk_rows or alone)


@dataclass(frozen=True, eq=False)
class Source:
    """A named array of one or several files, or in memory.

    Parameters
    ----------
    name : str
        What users call it.
    headers : tuple of SourceHeader
        One a file, joined along the example axis; all of one dtype, dims and row shape. A
        variable without axes has one header and no dims; only :meth:`whole` reads it.
    file_dims : tuple of str
        Names of all axes in the file, the example dim first.
    region : Region
        What is taken of the trailing axes; nothing of ragged examples.
    io : {"auto", "pread", "mmap"}
        How bytes are read.
    loaded : array or Ragged, optional
        The rows themselves, decoded, where they were read into memory.
    blocks : DaskBlocks, optional
        The blocks of which rows are computed, in place of files.
    """

    name: str
    headers: tuple[SourceHeader, ...]
    file_dims: tuple[str, ...]
    region: Region
    io: Io = "auto"
    loaded: Any = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    blocks: DaskBlocks | None = None

    # names of the axes that are left, the example dim first
    dims: tuple[str, ...] = field(init=False, repr=False)
    # why examples differ in shape; None where they do not
    ragged: str | None = field(init=False, repr=False)
    n_rows: int = field(init=False, repr=False)
    # lengths by `dims[1:]`; nothing where a row is one object, an example of any shape
    row_shape: tuple[int, ...] = field(init=False, repr=False)
    # the dtype that a reader hands out: mostly the file's, in native byte order
    stored_dtype: np.dtype[Any] = field(init=False, repr=False)
    # how stored values are decoded; None where the reader decodes each file its own way
    cf: CF | None = field(init=False, repr=False)
    # whether the files differ in CF conventions, so that each is decoded as it is read
    packed_differently: bool = field(init=False, repr=False)
    part: Region = field(init=False, repr=False)  # the region; nothing where rows are read whole
    # whether stored values differ from what they mean: CF conventions, or text
    decodes: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        first = self.headers[0] if self.headers else None
        here = self.loaded if self.blocks is None else self.blocks.data
        ragged = None if first is None else first.ragged
        if first is None and isinstance(here, Ragged):
            ragged = "every example has its own shape"
        dims, row_shape = list(self.file_dims[:1]), region_shape(self.region)
        part: Region = ()
        for dim, taken in zip(self.file_dims[1:], self.region, strict=False):
            if not isinstance(taken, int):
                dims.append(dim)
        cf, differ, text = None, False, False
        if first is None or here is not None:
            n_rows, stored_dtype = len(here), here.dtype
        else:
            n_rows = 0
            for header in self.headers:
                n_rows += header.n_rows if self.file_dims else 1
                differ = differ or repr(header.cf) != repr(first.cf)
            cf, text = None if differ else first.cf, is_text(first.dtype)
            stored_dtype = decoded_dtype(first) if differ else first.dtype.newbyteorder("=")
        own = self.__dict__
        if ragged is None:
            if first is not None and here is None and not is_whole(self.region, first.row_shape):
                part = self.region
            own["dtype"] = stored_dtype if cf is None else cf.dtype
            own["row_bytes"] = math.prod(row_shape) * stored_dtype.itemsize
            if not stored_dtype.hasobject or self.blocks is not None:
                own["held_row_bytes"] = own["row_bytes"]
        else:  # values are decoded where they are read
            dims, row_shape, stored_dtype = [*self.file_dims], (), np.dtype(object)
            cf, differ, text = None, False, False
        own.update(dims=tuple(dims), ragged=ragged, n_rows=n_rows, row_shape=row_shape, part=part)
        own.update(stored_dtype=stored_dtype, cf=cf, packed_differently=differ)
        own["decodes"] = cf is not None or text

    @classmethod
    def of(cls, headers: tuple[SourceHeader, ...], io: Io = "auto") -> Source:
        """Make the source of one header a file, taking whole rows."""
        first = headers[0]
        region = whole(first.row_shape) if first.ragged is None else ()
        return cls(first.name, headers, first.dims, region, io, attrs=first.attrs)

    @classmethod
    def of_array(cls, name: str, dims: tuple[str, ...], rows: Array) -> Source:
        """Make the source of an array in memory, its example dim first."""
        return cls(name, (), dims, whole(rows.shape[1:]), loaded=rows)

    @classmethod
    def of_lazy(cls, array: xr.DataArray, dim: Hashable, name: str) -> Source:
        """Make the source of a DataArray that is computed; whole dask blocks are its chunks.

        One that is read when it is used becomes blocks of whole stored chunks of about 16 MiB,
        whole along all other dims.

        Raises
        ------
        LoaderError
            If its blocks have unknown lengths.
        """
        turned = in_blocks(array.transpose(dim, ...))
        data, dims = turned.data, tuple(map(str, turned.dims))
        if any(math.isnan(n) for axis in data.chunks for n in axis):
            raise LoaderError(
                f"variable {name!r} has blocks of unknown length; call .compute_chunk_sizes() on "
                "its dask array first"
            )
        blocks = DaskBlocks(data, f"variable {name!r}")
        return cls(name, (), dims, whole(data.shape[1:]), blocks=blocks)

    def in_memory(self, rows: Any) -> Source:
        """Put decoded rows in memory in the place of those in the files."""
        region = whole(rows.shape[1:]) if self.ragged is None else ()
        return replace(self, loaded=rows, file_dims=self.dims, region=region)

    def as_stored(self) -> Source:
        """Return the source without CF decoding, with all attributes of the file.

        One whose files differ in CF conventions stays as it is.
        """
        if self.packed_differently:
            return self
        headers = tuple(replace(header, cf=None) for header in self.headers)
        return replace(self, headers=headers, attrs={**self.attrs, **headers[0].used_attrs})

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel as headers: all else follows from them."""
        return Source, tuple(getattr(self, one.name) for one in fields(self) if one.init)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of decoded values, or of the elements of ragged examples."""
        return self.examples().dtype

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row in memory before decoding; of an average example of a ragged source."""
        return max(1, int(self.sizes.sum()) * self.dtype.itemsize // max(1, self.n_rows))

    @cached_property
    def held_row_bytes(self) -> int:
        """Bytes of a row and of the texts it refers to, taken to be like a few of them."""
        if self.ragged is not None:
            return self.row_bytes
        reader = self.reader()
        return text_row_bytes(
            lambda start, stop: read_rows(reader, range(start, stop)), self.n_rows
        )

    @cached_property
    def sizes(self) -> Rows:
        """How many elements each ragged example has; reads offsets or lengths of all, once."""
        return self.examples().sizes(range(self.n_rows))

    @property
    def where(self) -> str:
        """How messages name the source and its file."""
        if self.blocks is not None:
            return self.blocks.where
        if not self.headers:
            return f"source {self.name!r} in memory"
        more = f" and {len(self.headers) - 1} more files" if len(self.headers) > 1 else ""
        return f"source {self.name!r} in {self.headers[0].file.path!r}{more}"

    @property
    def stored_chunks(self) -> tuple[int, ...] | None:
        """Chunk shape in the file (of the first file), or None where data are contiguous."""
        return None if self.loaded is not None else self.headers[0].chunks

    @cached_property
    def layout(self) -> RowLayout:
        """What is stored together, counted through all files."""
        if self.loaded is not None:
            dense = self.ragged is None
            return RowLayout(None, direct=dense, mapped=dense)
        if self.blocks is not None:
            rows = int(np.diff(self.blocks.edges).max(initial=0)) or 1
            held = 2 * rows * self.row_bytes
            return RowLayout(rows, self.blocks.edges, held, expensive=True, random=False)
        if self.ragged is not None:
            return _ragged_layout(self)
        chunks, whole_rows = self.headers[0].chunks, not (self.part or self.packed_differently)
        kinds, local, filtered, plain, even = set(), True, False, True, True
        scratch, n_rows, edges = 2 * PIECE_BYTES, 0, []
        each = 3 if self.stored_dtype.itemsize == 1 else 4  # of a chunk, until its rows are out
        for header in self.headers:
            kinds.add(header.storage)
            local = local and not is_remote(header.file.path)
            held = each * row_nbytes(header.chunks, self.stored_dtype) if header.chunks else 0
            scratch = max(scratch, 2 * PIECE_BYTES + header.scratch_bytes + held)
            filtered = filtered or bool(header.filters)
            plain = plain and header.dtype.isnative and not header.detail
            start, n_rows = n_rows, n_rows + header.n_rows
            if chunks is not None:
                own = header.chunks or chunks
                plain = plain and own[1:] == header.row_shape
                even = even and header.chunks == chunks and start % chunks[0] == 0
                edges.append(np.arange(start, n_rows, own[0]))
        mappable = local and self.io != "pread"
        if chunks is None:
            direct = kinds == {"contiguous"} and whole_rows
            random, mapped = kinds <= {"contiguous", "records"} and local, direct and mappable
            return RowLayout(None, None, scratch, filtered, direct, random=random, mapped=mapped)
        # rows of chunks lie in the file as they are
        picked = plain and mappable and not self.part and not filtered and kinds == {"chunked"}
        cuts = None if even else np.append(np.concatenate(edges), n_rows)
        return RowLayout(
            chunks[0], cuts, scratch, filtered, random=False, picked=picked, mapped=picked
        )

    def isel(self, dim: str, request: Any) -> Source:
        """Take part of one dim but the first; a source without the dim stays as it is.

        Raises
        ------
        DimsError
            If examples differ in length along the dim.
        SelectionError, SelectionTypeError
            If a position is out of range, or `request` names none.
        """
        if dim not in self.dims[1:]:
            return self
        if self.ragged is not None:
            raise DimsError(
                f"dim {dim!r} of {self.where} has another length in every example ({self.ragged}), "
                f"so isel() cannot cut it; pad() the source, or leave it out with select()"
            )
        request = list(request) if isinstance(request, tuple) else request
        try:
            return self.narrow({self.dims[1:].index(dim): request})
        except (SelectionError, SelectionTypeError) as error:
            raise type(error)(f"{error} ({self.where})") from None

    def narrow(self, axes: Mapping[int, Any]) -> Source:
        """Take part of the trailing axes; `axes` counts among ``dims[1:]``."""
        region = narrow(self.region, axes, [f"dim {dim!r}" for dim in self.dims[1:]])
        cut = replace(self, region=region)
        return cut if self.loaded is None else cut.in_memory(outer_take(self.loaded, region))

    def around(self, rows: Selection) -> tuple[Source, Selection]:
        """Leave out the files before and behind some rows; return these as they are counted then.

        What it takes to read a few rows of thousands of files depends on the few.
        """
        if len(self.headers) < 2 or not (self.loaded is self.blocks is None):
            return self, rows
        if not len(rows):
            return replace(self, headers=self.headers[:1]), rows
        starts = np.cumsum([0, *(header.n_rows for header in self.headers)])
        pieces = [piece for piece in rows.pieces if len(piece)]
        ends = [one[:: max(1, len(one) - 1)] if isinstance(one, range) else one for one in pieces]
        listed = np.concatenate(ends)
        low_high = np.array([listed.min(), listed.max()])
        first, last = (starts.searchsorted(low_high, side="right") - 1).tolist()
        here = replace(self, headers=self.headers[first : last + 1])
        return here, rows.shift(-int(starts[first]))

    def check_claim(self, n_rows: int) -> None:
        """Refuse what a file claims but does not store, before memory is taken for it.

        Raises
        ------
        UnsafeFileError
            If `n_rows` rows are out of all proportion to what the file stores.
        """
        for header in self.headers if self.loaded is None and self.ragged is None else ():
            wanted = min(n_rows, header.n_rows) * self.row_bytes
            format_named(header.format).check_claim(header, wanted)

    def reader(self) -> Reader:
        """Make a reader of stored values, rows numbered through all files.

        Raises
        ------
        LoaderError
            If rows have no common shape; see :meth:`examples`.
        """
        if self.ragged is not None:
            raise LoaderError(
                f"{self.where} holds examples of different shapes ({self.ragged}), where rows of "
                "one shape are needed; name another source"
            )
        if self.loaded is not None:
            return MemoryReader(self.loaded)
        if self.blocks is not None:
            return JoinedReader(self.blocks.readers(), "blocks")
        readers: list[Reader] = []
        for header in self.headers:
            reader = format_named(header.format).open_reader(header, region=self.part, io=self.io)
            if header.cf is not None and self.packed_differently:
                reader = DecodingReader(reader, header.cf)
            readers.append(reader)
        return readers[0] if len(readers) == 1 else JoinedReader(tuple(readers))

    def examples(self) -> RaggedReader:
        """Make a reader of ragged examples, rows numbered through all files."""
        if self.loaded is not None:
            reader: RaggedReader = self.loaded.reader
            return reader
        readers = tuple(format_named(h.format).open_ragged(h, self.io) for h in self.headers)
        return readers[0] if len(readers) == 1 else JoinedRagged(readers)

    def select(self, selection: Selection) -> Ragged:
        """Return some ragged examples, lazily."""
        return Ragged(self.examples(), selection, self.dims, self.name, self.attrs)

    def whole(self) -> Array:
        """Read every row, decoded; the value of a variable without axes."""
        if not self.file_dims:
            (header,) = self.headers
            stored = format_named(header.format).read_scalar(header)
            return self.decode(stored.astype(native(header.dtype), copy=False))
        return self.decode(read_rows(self.reader(), range(self.n_rows)))

    def decode(self, raw: Array) -> Array:
        """Turn stored values into what they mean: CF scale, offset, fill and times; text."""
        if self.cf is not None:
            return decode(raw, self.cf)
        return decode_text(raw) if self.decodes else raw

    @cached_property
    def token(self) -> str:
        """A digest of which data this is: of files, paths, sizes, times, datasets, the region."""
        if self.blocks is not None:
            return str(self.blocks.data.name)
        rows = self.loaded if self.ragged is None else self.loaded is None
        which = []
        for header in self.headers:
            stamp = header.file.path, header.file.size, header.file.mtime_ns
            which.append((*stamp, header.key, repr((header.detail, header.cf))))
        return str(tokenize(self.name, self.dims, self.region, which, rows))

    def __dask_tokenize__(self) -> str:
        return self.token


def _ragged_layout(source: Source) -> RowLayout:
    """Rows at which chunks of flat values begin; a row that two share belongs to the first."""
    headers, itemsize = source.headers, source.dtype.itemsize
    values = [header.parts.get("values", header) for header in headers]
    longest, total = int(source.sizes.max(initial=0)), int(source.sizes.sum())
    chunk = max((value.chunks or (0,))[0] * value.dtype.itemsize for value in values)
    scratch = min(BLOCK_BYTES, total * itemsize) + 2 * max(longest * itemsize, chunk)
    scratch += max(header.scratch_bytes for header in headers)
    expensive = any(header.filters for header in values)
    if any("values" not in header.parts for header in headers) or values[0].chunks is None:
        alone = "values" in headers[0].parts or headers[0].storage == "records"
        here = not any(is_remote(header.file.path) for header in headers)
        return RowLayout(None, None, scratch, expensive, random=alone and here)
    start, edges = 0, [0]
    for header, value in zip(headers, values, strict=True):
        stop = start + header.n_rows
        step = max(1, (value.chunks or (1,))[0])
        borders = np.arange(step, value.n_rows, step)
        ends = np.cumsum(source.sizes[start:stop])
        edges += [*(start + 1 + ends.searchsorted(borders)).tolist(), stop]
        start = stop
    cuts: Rows = np.unique(np.minimum(edges, source.n_rows)).astype(np.int64)
    rows = max(1, source.n_rows // max(1, len(cuts) - 1))
    return RowLayout(rows, cuts, scratch, expensive, random=False)


def decoded_dtype(header: SourceHeader) -> np.dtype[Any]:
    """Return the dtype of one file's values after CF decoding, in native byte order."""
    return header.dtype.newbyteorder("=") if header.cf is None else header.cf.dtype


# ---------------------------------------------------------------- rows turned into reads
# One read: rows of the file as readers take them, and where each goes; None: one after another.
# Rows that are listed one by one may repeat.
Read = tuple[range | Rows, Rows | None]


def sorted_read(rows: range | Rows, places: Rows | None = None) -> Read:
    """Turn file rows (any order) and their places into a read in file order."""
    if isinstance(rows, range):
        return rows, None
    if (rows[1:] > rows[:-1]).all():
        return runs_of(rows), places
    order = np.argsort(rows, kind="stable")
    ascending = rows[order]
    if not (ascending[1:] > ascending[:-1]).all():
        return rows, places
    return runs_of(ascending), order if places is None else places[order]


def record_task_bytes(n_bytes: int) -> int:
    """Return how many of so many bytes of records one task reads: equal shares for each core.

    Of three tasks on two cores one core waits for the last: windows of 192 pictures took 1.25 times
    as long. Between two tasks pictures drive all else out of the caches. Of 4 MiB each, pictures of
    370 KiB took 1.08 times the bare decode of processor time, and of 8 MiB 1.02 times.
    """
    share = -(-n_bytes // processors())
    rounds = max(1, -(-share // MANY_RECORD_BYTES))
    return max(RECORD_BYTES, -(-share // rounds))


def tasks_of(reader: Reader, read: Read, out: Array, n_bytes: int) -> list[Task]:
    """Cut a read into tasks of about so many bytes, which any threads may do in any order."""
    rows, places = read
    if reader.kind == "records":
        n_bytes = record_task_bytes(count(rows) * row_nbytes(reader.row_shape, reader.dtype))
    tasks: list[Task] = []
    for part, which in pieces(reader, rows, n_bytes):
        target = (out[which], None) if places is None else (out, places[which])
        tasks.append(partial(reader.read, part, *target))
    return tasks


def enough_memory(source: Source, selection: Selection) -> AbstractContextManager[None]:
    """Name what was read where memory does not suffice for it.

    Raises
    ------
    RowsMemoryError
        In the place of a MemoryError.
    """
    return explain_memory_errors(
        lambda why: (
            f"{source.where}: {selection.describe()} take "
            f"{format_bytes(len(selection) * source.row_bytes)} in memory, and more while they are "
            f"read: {why}. Read fewer at a time (a subset, or batches)"
        )
    )


def load_rows(
    source: Source,
    selection: Selection,
    threads: int = 1,
    advance: Callable[[int], object] | None = None,
) -> Array:
    """Read the stored values of a selection into a fresh array.

    Parameters
    ----------
    source : Source
        Dims ``source.dims``.
    selection : Selection
        Rows of `source`, order and repeats kept.
    threads : int
        How many threads decode at the same time.
    advance : callable, optional
        Takes how many bytes were read since it was last called.

    Returns
    -------
    array, lengths ``(len(selection), *source.row_shape)``
        Stored values, before CF decoding.
    """
    out = np.empty((len(selection), *source.row_shape), source.stored_dtype)
    if not len(selection):
        return out
    tasks = tasks_of(source.reader(), sorted_read(selection.compact), out, PIECE_BYTES)
    for number, _ in enumerate(in_threads(call, tasks, threads), 1):
        if advance is not None:  # tasks are about equally large
            before = out.nbytes * (number - 1) // len(tasks)
            advance(out.nbytes * number // len(tasks) - before)
    return out
