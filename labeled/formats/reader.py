"""What a reader of stored rows is, and all that follows from its two methods.

A reader turns rows into bytes: :meth:`Reader.read` fetches them, :meth:`Reader.byte_ranges` says
which bytes of which file that takes. How work is shared among threads (:func:`pieces`), what a
read costs (:func:`cost`), which bytes the system should fetch ahead (:func:`advise`) and whether it
holds them already (:func:`is_cold`) follow from these two, for every format.

Rows are given in one of three ways: a ``range``; *runs*, ``int64 (k, 2)`` half-open stretches of
rows that ascend and do not overlap; or a list, ``int64 (n,)`` in any order, repeats allowed.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property, partial
from operator import add
from time import perf_counter
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from labeled.errors import ReadError, SelectionError
from labeled.formats.bytesource import OpenFile, open_bytes
from labeled.formats.header import SourceHeader
from labeled.formats.memory import put_rows, take_rows
from labeled.formats.region import (
    Array,
    Ints,
    Region,
    is_whole,
    normal_region,
    outer_take,
    region_shape,
)
from labeled.selection import rows_of, runs_of, spread

# what one thread reads at a time: so much stays in a core's cache while it is decoded
PIECE_BYTES = 512 * 1024

FEW_RUNS = 8  # so many runs are cut at chunks one by one

UNSTORED = -1  # the offset of rows that were never stored: they read as the fill value

Io = Literal["auto", "pread", "mmap"]

Rows: TypeAlias = range | Ints
Load: TypeAlias = Callable[[SourceHeader], Array]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a read takes, counted exactly before it is done.

    Parameters
    ----------
    bytes_read : int
        Stored bytes fetched (compressed, gaps that are read through included).
    bytes_used : int
        Bytes of the rows asked for, decoded.
    n_reads : int
        Calls to the file.
    chunks_decoded : int
        Stored chunks whose filters are undone (0 for contiguous data).
    """

    bytes_read: int = 0
    bytes_used: int = 0
    n_reads: int = 0
    chunks_decoded: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(add, astuple(self), astuple(other)))


@dataclass(frozen=True, slots=True, eq=False)
class ByteRanges:
    """The bytes of one file that a read fetches, each range with one call.

    Parameters
    ----------
    file : callable or None
        Opens it; None where another library fetches them, so that only their number is known.
    starts, lengths : int64 (n,)
    chunks_decoded : int
        Stored chunks among them whose filters are undone.
    """

    file: Callable[[], OpenFile] | None
    starts: Ints
    lengths: Ints
    chunks_decoded: int = 0

    @classmethod
    def elsewhere(cls, lengths: Ints, chunks_decoded: int = 0) -> ByteRanges:
        """Count ranges that another library fetches, where it alone knows."""
        return cls(None, np.full(len(lengths), UNSTORED), lengths, chunks_decoded)


class Reader(Protocol):
    """Rows of one source: stored values in native byte order.

    Safe to call from several threads at once; pickles small. :class:`labeled.testing.ReaderTests`
    holds every implementation to that.
    """

    @property
    def n_rows(self) -> int: ...
    @property
    def row_shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def kind(self) -> str:
        """The path bytes take: "contiguous", "chunked", "h5py", "flat", "memory", ..."""

    @property
    def why(self) -> str:
        """Why this path was taken, for `explain`."""

    @property
    def chunk_rows(self) -> int:
        """Rows best read by one call, counted from row 0; 1 where any row can be read alone."""

    def read(self, rows: Rows, out: Array, places: Ints | None = None) -> None:
        """Store row number i of `rows` in ``out[i]``, or in ``out[places[i]]``.

        Parameters
        ----------
        rows : range, int64 (k, 2) or int64 (n,)
        out : C-contiguous array, ``(m, *row_shape)``, of `dtype`
        places : int64 (n,), optional
            A place in `out` for each row.

        Raises
        ------
        SelectionError
            If `rows` are not there.
        ReadError
            If bytes are missing or damaged; names file, source and rows.
        """

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes that :meth:`read` fetches for `rows`; none for rows in memory."""


def read_rows(reader: Reader, rows: Rows) -> Array:
    """Return rows as a fresh array, order and repeats kept."""
    out = np.empty((count(rows), *reader.row_shape), reader.dtype)
    reader.read(rows, out)
    return out


def row_nbytes(row_shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes of one row as handed out."""
    return math.prod(row_shape) * dtype.itemsize


def count(rows: Rows) -> int:
    """Return how many rows these are."""
    if isinstance(rows, range) or rows.ndim == 1:
        return len(rows)
    return int((rows[:, 1] - rows[:, 0]).sum())


# what follows from byte ranges


def cost(reader: Reader, rows: Rows) -> Cost:
    """Count what reading `rows` takes, without reading more than a chunk index."""
    ranges = reader.byte_ranges(rows)
    return Cost(
        sum(int(part.lengths.sum()) for part in ranges),
        count(rows) * row_nbytes(reader.row_shape, reader.dtype),
        sum(len(part.lengths) for part in ranges),
        sum(part.chunks_decoded for part in ranges),
    )


def advise(reader: Reader, rows: Rows) -> None:
    """Tell the system that `rows` are read next, so that a cold disk starts now."""
    for part in reader.byte_ranges(rows):
        if part.file is not None:
            file = part.file()
            for at, n in zip(part.starts.tolist(), part.lengths.tolist(), strict=True):
                file.advise(at, n)


def is_cold(reader: Reader, row: int) -> bool:
    """Whether the system would have to fetch a row from storage; no where it cannot tell."""
    for part in reader.byte_ranges(np.array([row])):
        file = None if part.file is None else part.file()
        if file is not None and not all(map(file.holds, part.starts.tolist())):
            return True
    return False


# rows as runs


def listed_rows(rows: Rows, n_rows: int, where: str = "the source") -> Ints:
    """Return rows one by one, in the order given.

    Raises
    ------
    SelectionError
        If there are not so many rows.

    Examples
    --------
    >>> listed_rows(np.array([[5, 7], [9, 12]]), 20).tolist()
    [5, 6, 9, 10, 11]
    """
    listed = np.asarray(rows, np.int64)
    if listed.ndim == 2:
        listed = rows_of(listed)
    # One pass, for negative rows are large without a sign: between two, threads change turns.
    if len(listed) and int(listed.view(np.uint64).max()) >= n_rows:
        raise SelectionError(
            f"{where}: rows {listed.min()} to {listed.max()} were asked for, but it has rows 0 to "
            f"{n_rows - 1}"
        )
    return listed


def bands_of(runs: Ints, chunk_rows: int) -> Ints:
    """Cut runs at chunk boundaries: rows of (start, stop, number of the first in run order).

    Examples
    --------
    >>> bands_of(np.array([[2, 9]]), 4).tolist()
    [[2, 4, 0], [4, 8, 2], [8, 9, 6]]
    """
    if len(runs) <= FEW_RUNS:  # a piece of work: 2 to 5 us instead of 17
        bands, first = [], 0
        for start, stop in runs.tolist():
            for begin in range(start - start % chunk_rows, stop, chunk_rows):
                a, b = max(start, begin), min(stop, begin + chunk_rows)
                bands.append((a, b, first))
                first += b - a
        return np.array(bands, np.int64).reshape(-1, 3)
    starts, stops = runs.T
    chunks = starts // chunk_rows
    n_bands = (stops - 1) // chunk_rows - chunks + 1
    if n_bands.max() > 1:  # runs of a piece were cut before: 13 us instead of 26
        begins = spread(chunks, n_bands) * chunk_rows
        starts = np.maximum(starts.repeat(n_bands), begins)
        stops = np.minimum(stops.repeat(n_bands), begins + chunk_rows)
    found = np.empty((len(starts), 3), np.int64)
    found[:, 0], found[:, 1] = starts, stops
    counts = stops - starts
    np.subtract(counts.cumsum(), counts, out=found[:, 2])
    return found


def groups_of(runs: Ints, chunk_rows: int, n_chunks: int = 1) -> Iterator[Ints]:
    """Yield the bands of at most `n_chunks` chunks at a time; no chunk is in two groups."""
    bands = bands_of(runs, chunk_rows)
    if len(bands) <= n_chunks:
        yield bands
        return
    chunk = bands[:, 0] // chunk_rows
    cuts = [0, *((chunk[1:] != chunk[:-1]).nonzero()[0] + 1).tolist()][::n_chunks]
    for a, b in itertools.pairwise([*cuts, len(bands)]):
        yield bands[a:b]


def calls_of(runs: Ints, chunk_rows: int, n_chunks: int, near: int) -> Iterator[Ints]:
    """Yield groups of bands, cut where more than `near` rows between two are not wanted."""
    for bands in groups_of(runs, chunk_rows, n_chunks):
        far = bands[1:, 0] - bands[:-1, 1] > near
        yield from np.split(bands, np.flatnonzero(far) + 1)


def put_parts(out: Array, places: Ints | None, bands: Ints, box: Array) -> None:
    """Store the rows of some bands, of a `box` that holds all from the first to the last."""
    rows, first = rows_of(bands) - bands[0, 0], int(bands[0, 2])
    place = slice(first, first + len(rows))
    wanted = None if len(rows) == len(box) else rows
    put_rows(out, place if places is None else places[place], box, wanted)


def as_array(rows: Rows) -> Ints:
    """Return rows as runs, or as a list: a range of step 1 is one run."""
    if isinstance(rows, range) and rows.step == 1 and len(rows):
        return np.array([[rows.start, rows.stop]])
    return np.asarray(rows, np.int64)


def as_runs(rows: Rows) -> Ints:
    """Return rows as runs: listed rows each once."""
    given = as_array(rows)
    return given if given.ndim == 2 else runs_of(np.unique(given))


def pieces(reader: Reader, rows: Rows, n_bytes: int = PIECE_BYTES) -> list[tuple[Rows, slice]]:
    """Cut rows into parts of about `n_bytes` that threads read in any order.

    Returns
    -------
    list of (rows, slice)
        What to read, and which of all rows these are. No stored chunk is read for two pieces,
        and none holds rows of two files.
    """
    n, step, joined = count(rows), reader.chunk_rows, isinstance(reader, JoinedReader)
    each = max(1, n_bytes // max(1, row_nbytes(reader.row_shape, reader.dtype)))
    if not n:
        return []
    even = -(-n // max(1, (n + each // 2) // each))  # rows of a piece, where all are as long
    if isinstance(rows, range) and rows.step == step == 1 and not joined:  # 4 us instead of 50
        if n <= even:
            return [(rows, slice(0, n))]
        return [(rows[a : a + even], slice(a, min(a + even, n))) for a in range(0, n, even)]
    given = as_array(rows)
    if given.ndim == 1:  # chunks are decoded once only if all rows come together
        each = n if step > 1 or joined else each
        return [(given[a : a + each], slice(a, min(a + each, n))) for a in range(0, n, each)]
    if isinstance(reader, JoinedReader):
        return [
            (as_runs(part) + start, slice(which.start + place.start, which.start + place.stop))
            for start, one, own, which in reader.by_reader(given)
            for part, place in pieces(one, own, n_bytes)
        ]
    runs = given[given[:, 0] < given[:, 1]]
    if step > 1:
        groups = list(groups_of(runs, step, -(-each // step)))
    else:  # even parts: what is cut belongs to that in which its middle lies
        begin = runs[0, 0]
        bands = bands_of(runs - begin, even) + np.array([begin, begin, 0])
        part = (bands[:, 2] + (bands[:, 1] - bands[:, 0]) // 2) // even
        groups = np.split(bands, np.flatnonzero(part[1:] != part[:-1]) + 1)
    found: list[tuple[Rows, slice]] = []
    for group in groups:
        (start, _, first), (last, stop, number) = group[0].tolist(), group[-1].tolist()
        end = number + stop - last
        follow = stop - start == end - first
        found.append((range(start, stop) if follow else group[:, :2], slice(first, end)))
    return found


# what formats share


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype handed out: native byte order, h5py's notes left behind.

    Examples
    --------
    >>> native(np.dtype(">i4")) == np.dtype("i4")
    True
    """
    plain = dtype.newbyteorder("=")
    return plain if plain.fields or plain.hasobject else np.dtype(plain.str)


class FileReader:
    """Rows of one source of a file, or of a region of it; a :class:`Reader`.

    Requests are checked here. A format implements ``_read(runs, out, places)`` and
    ``_ranges(runs)``, which get runs that fit and are not empty, of rows that hold something.
    Nothing is opened before the first read; a reader pickles as its header.

    Parameters
    ----------
    source : SourceHeader
    region : tuple, one indexer an axis after the example axis
    io : {"auto", "pread", "mmap"}
    """

    kind: str = ""
    why: str = ""

    def __init__(self, source: SourceHeader, region: Region = (), io: Io = "auto") -> None:
        self.where = source.where
        self.source, self.io = source, io
        self.region = normal_region(region, source.row_shape, self.where)
        self.n_rows = source.n_rows
        self.row_shape = region_shape(self.region)
        self.dtype = native(source.dtype)
        self.chunk_rows = 1 if source.chunks is None else source.chunks[0]
        self.row_bytes = row_nbytes(self.row_shape, source.dtype)
        self.file: Callable[[], OpenFile] = partial(open_bytes, source.file)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.region, self.io)

    def read(self, rows: Rows, out: Array, places: Ints | None = None) -> None:
        """Store rows in `out`; see :class:`Reader`."""
        rows = self._checked(rows)
        n = count(rows)
        assert places is None or len(places) == n
        assert self._fits(out, n if places is None else 0)
        if n and self.row_bytes:
            (self._read if rows.ndim == 2 else self._read_list)(rows, out, places)

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes that are fetched for `rows`; see :class:`Reader`."""
        rows = self._checked(rows)
        if not len(rows) or not self.row_bytes:
            return ()
        return self._ranges(rows if rows.ndim == 2 else runs_of(np.unique(rows)))

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        raise NotImplementedError

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        """Return the bytes that some runs take; none where rows are in memory."""
        return ()

    def _read_list(self, rows: Ints, out: Array, places: Ints | None) -> None:
        """Read each of some listed rows once, in file order, whatever their own."""
        places = np.arange(len(rows)) if places is None else places
        distinct, first, which = np.unique(rows, return_index=True, return_inverse=True)
        self._read(runs_of(distinct), out, places[first])
        again = np.delete(np.arange(len(rows)), first)
        put_rows(out, places[again], out[places[first[which[again]]]])

    def _checked(self, rows: Any) -> Ints:
        """Return rows as runs without empty ones, or as a list; all of them are there."""
        array = np.ascontiguousarray(as_array(rows))
        if len(array) == 1 and array.ndim == 2 and 0 <= array[0, 0] < array[0, -1] <= self.n_rows:
            return array
        if array.ndim == 1:
            return listed_rows(array, self.n_rows, self.where)
        ends = array.reshape(-1)
        if len(ends) and (ends[0] < 0 or ends[-1] > self.n_rows or (ends[1:] < ends[:-1]).any()):
            found = ", ".join(f"[{a}, {b})" for a, b in array[:4].tolist())
            raise SelectionError(
                f"{self.where}: runs must be ascending [start, stop) stretches within "
                f"0..{self.n_rows}; found {found}" + ", ..." * (len(array) > 4)
            )
        return array[array[:, 0] < array[:, 1]]

    def _fits(self, out: Array, n: int) -> bool:
        """Whether an array has room for `n` rows as they are handed out."""
        alike = out.shape[1:] == self.row_shape and out.dtype == self.dtype
        return alike and len(out) >= n and out.flags.c_contiguous


class ValuesReader(FileReader):
    """Rows that are all known once a file is looked at: labels, ids and names; kept in memory.

    Parameters
    ----------
    load : callable
        A function of a module: returns all values of a source, before the region.
    why : str
        Where they are from, for people.
    """

    kind = "memory"

    def __init__(self, source: SourceHeader, region: Region, load: Load, why: str) -> None:
        super().__init__(source, region)
        self._load, self.why, self.chunk_rows = load, why, 1

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.region, self._load, self.why)

    @cached_property
    def _values(self) -> Array:
        return outer_take(self._load(self.source), self.region)

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        self._read_list(rows_of(runs), out, places)

    def _read_list(self, rows: Ints, out: Array, places: Ints | None) -> None:
        out[slice(len(rows)) if places is None else places] = self._values[rows]


class ExampleRowsReader(FileReader):
    """Rows that are read one by one, each to where it belongs: pictures, datasets of their own.

    A format implements ``_read_each(rows, outs)``, which stores whole examples in arrays.
    """

    kind = "records"

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        rows, shape = rows_of(runs), self.source.row_shape
        if is_whole(self.region, shape):  # no copy in between
            at = range(len(rows)) if places is None else places.tolist()
            self._read_each(rows, [out[place, ...] for place in at])
            return
        step = max(1, PIECE_BYTES // max(1, self.source.row_bytes))
        for a in range(0, len(rows), step):
            some = rows[a : a + step]
            values = np.empty((len(some), *shape), self.dtype)
            self._read_each(some, [values[i, ...] for i in range(len(some))])
            which = slice(a, a + len(some)) if places is None else places[a : a + step]
            put_rows(out, which, outer_take(values, self.region))

    def _read_each(self, rows: Ints, outs: Sequence[Array]) -> None:
        raise NotImplementedError


class _Clock(threading.local):
    """How long a thread has been decoding, which who calls a reader cannot see from outside."""

    decode_s = 0.0


CLOCK = _Clock()


class decoding:
    """Count what happens inside as decoding: undoing filters, parsing text, decoding pictures.

    Examples
    --------
    >>> before = CLOCK.decode_s
    >>> with decoding():
    ...     pass
    >>> CLOCK.decode_s > before
    True
    """

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *_: object) -> None:
        CLOCK.decode_s += perf_counter() - self._began


# readers over arrays and over readers


class MemoryReader:
    """Rows of an array, axis 0; a :class:`Reader`."""

    why, kind, chunk_rows = "loaded", "memory", 1

    def __init__(self, array: Array) -> None:
        self.array, self.dtype = array, array.dtype
        self.n_rows, self.row_shape = len(array), array.shape[1:]

    def read(self, rows: Rows, out: Array, places: Ints | None = None) -> None:
        """Copy rows; see :class:`Reader`."""
        n, place = self.n_rows, slice(count(rows)) if places is None else places
        if isinstance(rows, range) and rows.step == 1 and 0 <= rows.start <= rows.stop <= n:
            out[place] = self.array[rows.start : rows.stop]
            return
        listed = listed_rows(rows, self.n_rows)
        if places is None and self.array.flags.c_contiguous:
            take_rows(self.array, listed, out[: len(listed)])
        else:
            out[place] = self.array[listed]

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return none; see :class:`Reader`."""
        return ()


class Joined:
    """Readers one after another, their rows or examples counted through all of them."""

    def __init__(self, readers: Sequence[Any], called: str = "files") -> None:
        self.readers, self.dtype = readers, readers[0].dtype
        self._starts = np.cumsum([0, *(reader.n_rows for reader in readers)], dtype=np.int64)
        self.n_rows = int(self._starts[-1])
        self.kind = "+".join(sorted({reader.kind for reader in readers}))
        reasons = "; ".join(sorted({reader.why for reader in readers}))
        self.why = f"{len(readers)} {called}: {reasons}"

    def by_list(self, rows: Rows) -> Iterator[tuple[int, Any, Ints, Ints]]:
        """Yield (first row, reader, its own rows, which of `rows` these are), file by file."""
        listed = listed_rows(rows, self.n_rows)
        files = self._starts.searchsorted(listed, side="right") - 1
        by_file = np.argsort(files, kind="stable")
        numbers, firsts = np.unique(files[by_file], return_index=True)
        for number, mine in zip(numbers.tolist(), np.split(by_file, firsts)[1:], strict=True):
            start = int(self._starts[number])
            yield start, self.readers[number], listed[mine] - start, mine


class JoinedReader(Joined):
    """Readers of rows one after another; a :class:`Reader`."""

    def __init__(self, readers: Sequence[Reader], called: str = "files") -> None:
        super().__init__(readers, called)
        self.row_shape = readers[0].row_shape
        self.chunk_rows = max(reader.chunk_rows for reader in readers)

    def read(self, rows: Rows, out: Array, places: Ints | None = None) -> None:
        """Read the rows of one file after another; see :class:`Reader`."""
        for start, reader, own, which in self.by_reader(as_array(rows)):
            target, to = out, which if places is None else places[which]
            if isinstance(to, slice):
                target, to = out[to], None
            try:
                reader.read(own, target, to)
            except ReadError as error:
                if error.row is not None:
                    error.row += start
                raise

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes of all files; see :class:`Reader`."""
        found = self.by_reader(as_array(rows))
        return [part for _, reader, own, _ in found for part in reader.byte_ranges(own)]

    def by_reader(self, rows: Ints) -> Iterator[tuple[int, Reader, Rows, Any]]:
        """Yield (first row, reader, its own rows, which of `rows` these are), file by file."""
        if rows.ndim == 1:
            yield from self.by_list(rows)
            return
        if not len(rows):
            return
        low, high, place = int(rows[0, 0]), int(rows[-1, 1]), 0
        if low < 0 or high > self.n_rows:
            listed_rows(rows, self.n_rows)
        first = int(self._starts.searchsorted(low, side="right")) - 1
        last = int(self._starts.searchsorted(high))
        edges = self._starts[first : last + 1]
        # the first run that ends in each file or behind it, and the first that begins behind it
        heads = rows[:, 1].searchsorted(edges[:-1], side="right").tolist()
        ends = rows[:, 0].searchsorted(edges[1:]).tolist()
        for number, a, z in zip(range(first, last), heads, ends, strict=True):
            start, stop = self._starts[number : number + 2].tolist()
            if a < z:
                mine = np.clip(rows[a:z], start, stop) - start
                own = range(*mine[0].tolist()) if len(mine) == 1 else mine
                yield start, self.readers[number], own, slice(place, place + count(own))
                place += count(own)
