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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

from labeled.errors import LabeledError, ReadError, SelectionError
from labeled.formats.bytesource import FileRef
from labeled.formats.header import SourceHeader
from labeled.formats.memory import put_rows, take_rows
from labeled.formats.region import Array, Ints, Region, normal_region, outer_take, region_shape
from labeled.selection import rows_of, runs_of, spread

PIECE_BYTES = 512 * 1024
"""What one thread reads at a time: so much stays in a core's cache while it is decoded."""

FEW = 32
"""Runs that are looked at one by one rather than as arrays."""

UNSTORED = -1
"""The offset of rows that were never stored: they read as the fill value."""

Io = Literal["auto", "pread", "mmap"]

Rows: TypeAlias = range | Ints


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
        return Cost(
            self.bytes_read + other.bytes_read,
            self.bytes_used + other.bytes_used,
            self.n_reads + other.n_reads,
            self.chunks_decoded + other.chunks_decoded,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ByteRanges:
    """The bytes of one file that a read fetches, each range with one call.

    Parameters
    ----------
    file : FileRef or None
        None where another library fetches them, so that only their number is known.
    starts, lengths : int64 (n,)
    chunks_decoded : int
        Stored chunks among them whose filters are undone.
    """

    file: FileRef | None
    starts: Ints
    lengths: Ints
    chunks_decoded: int = 0


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
        """The path bytes take: "contiguous", "chunked", "h5py", "memory", ..."""

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
            If `rows` are not there, or `out` does not fit.
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
    for part in reader.byte_ranges(range(row, row + 1)):
        if part.file is not None:
            file = part.file()
            for at in part.starts.tolist():
                if not file.holds(at):
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
    starts, stops = runs[:, 0], runs[:, 1]
    chunks = starts // chunk_rows
    n_bands = (stops - 1) // chunk_rows - chunks + 1
    if (n_bands == 1).all():  # cut already, for pieces of work
        counts = stops - starts
        return np.stack((starts, stops, np.cumsum(counts) - counts), axis=1)
    begin = spread(chunks, n_bands) * chunk_rows
    bands = np.empty((len(begin), 3), np.int64)
    np.maximum(np.repeat(starts, n_bands), begin, out=bands[:, 0])
    np.minimum(np.repeat(stops, n_bands), begin + chunk_rows, out=bands[:, 1])
    counts = bands[:, 1] - bands[:, 0]
    bands[:, 2] = np.cumsum(counts) - counts
    return bands


def groups_of(bands: Ints, chunk_rows: int, n_chunks: int) -> Iterator[Ints]:
    """Yield the bands of at most `n_chunks` chunks at a time; no chunk is in two groups."""
    if len(bands) <= n_chunks:
        yield bands
        return
    chunk = bands[:, 0] // chunk_rows
    begins = np.append(0, np.flatnonzero(chunk[1:] != chunk[:-1]) + 1)[::n_chunks].tolist()
    for a, b in zip(begins, [*begins[1:], len(bands)], strict=True):
        yield bands[a:b]


def pieces(reader: Reader, rows: Rows, n_bytes: int = PIECE_BYTES) -> list[tuple[Rows, slice]]:
    """Cut rows into parts of about `n_bytes` that threads read in any order.

    Returns
    -------
    list of (rows, slice)
        What to read, and which of all rows these are. No stored chunk is read for two pieces,
        and none holds rows of two files.
    """
    if isinstance(rows, range) and rows.step != 1:
        rows = np.array(rows, np.int64)
    n, step = count(rows), reader.chunk_rows
    if isinstance(reader, JoinedReader):
        return reader.pieces(rows, n_bytes)
    if not n:
        return []
    each = max(1, n_bytes // max(1, row_nbytes(reader.row_shape, reader.dtype)))
    if isinstance(rows, range):
        if step > 1:  # whole chunks, the first and last perhaps cut
            wide = -(-each // step) * step
            cuts = [
                rows.start,
                *range(rows.start - rows.start % step + wide, rows.stop, wide),
                rows.stop,
            ]
        else:
            n_parts = max((n + each // 2) // each, 1)
            cuts = [rows.start + n * k // n_parts for k in range(n_parts + 1)]
        ends = itertools.pairwise(cuts)
        return [(range(a, b), slice(a - rows.start, b - rows.start)) for a, b in ends]
    if rows.ndim == 1:
        each = n if step > 1 else each  # chunks are decoded once only if all rows come together
        return [(rows[a : a + each], slice(a, min(a + each, n))) for a in range(0, n, each)]
    runs = as_runs(rows)
    runs = runs[runs[:, 0] < runs[:, 1]]
    if step == 1:
        groups: Iterable[Ints] = _even_groups(runs, -(-n // max(1, n // each)))
    else:
        groups = groups_of(bands_of(runs, step), step, -(-each // step))
    return [
        (part[:, :2], slice(int(part[0, 2]), int(part[-1, 2] + part[-1, 1] - part[-1, 0])))
        for part in groups
    ]


def as_runs(rows: Rows) -> Ints:
    """Return rows as runs: a range of step 1 as one, listed rows each once."""
    if isinstance(rows, range):
        return np.array([[rows.start, rows.stop]])
    return rows if rows.ndim == 2 else runs_of(np.unique(rows))


def _even_groups(runs: Ints, each: int) -> list[Ints]:
    """Group runs by about `each` of their rows; only long runs are cut."""
    counts = runs[:, 1] - runs[:, 0]
    n_parts = np.maximum((counts + each // 2) // each, 1)
    part = spread(np.zeros_like(n_parts), n_parts)
    start, counts, n_parts = (np.repeat(one, n_parts) for one in (runs[:, 0], counts, n_parts))
    parts = np.empty((len(start), 3), np.int64)
    parts[:, 0] = start + counts * part // n_parts
    parts[:, 1] = start + counts * (part + 1) // n_parts
    counts = parts[:, 1] - parts[:, 0]
    parts[:, 2] = np.cumsum(counts) - counts
    group = (parts[:, 2] + counts // 2) // each  # that in which the middle of a part lies
    return np.split(parts, np.flatnonzero(group[1:] != group[:-1]) + 1)


# what formats share


def describe(source: SourceHeader) -> str:
    """Return ``source 'name' in 'file'``, the beginning of every message."""
    return f"source {source.name!r} in {source.file.path!r}"


def failed(source: SourceHeader, start: int, stop: int, fault: Exception) -> ReadError:
    """Return the error that names file, source and rows of what the system raised."""
    return ReadError(f"{describe(source)}, rows {start} to {stop - 1}: {fault}")


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
        self.where = describe(source)
        self.source, self.io = source, io
        self.region = normal_region(region, source.row_shape, self.where)
        self.n_rows = source.n_rows
        self.row_shape = region_shape(self.region)
        self.dtype = native(source.dtype)
        self.chunk_rows = 1 if source.chunks is None else source.chunks[0]
        self.row_bytes = row_nbytes(self.row_shape, source.dtype)
        self.file = FileRef(source.file)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.region, self.io)

    def __repr__(self) -> str:
        return f"<Reader of {self.where}: {self.n_rows} x {self.row_shape} {self.dtype}>"

    def read(self, rows: Rows, out: Array, places: Ints | None = None) -> None:
        """Store rows in `out`; see :class:`Reader`."""
        rows = self._checked(rows)
        n = count(rows)
        self._check_out(out, n if places is None else 0)
        if places is not None and len(places) != n:
            raise SelectionError(f"{self.where}: {len(places)} places for {n} rows")
        if not n or not self.row_bytes:
            return
        if rows.ndim == 1:
            self._read_list(rows, out, places)
        else:
            self._read(rows, out, places)

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes that are fetched for `rows`; see :class:`Reader`."""
        rows = self._checked(rows)
        if not len(rows) or not self.row_bytes:
            return ()
        return self._ranges(as_runs(rows))

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        raise NotImplementedError

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        raise NotImplementedError

    def _read_list(self, rows: Ints, out: Array, places: Ints | None) -> None:
        """Read each of some listed rows once, in file order, whatever their own."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        places = order if places is None else places[order]
        is_first = np.append(True, ordered[1:] != ordered[:-1])
        if is_first.all():
            self._read(runs_of(ordered), out, places)
            return
        self._read(runs_of(ordered[is_first]), out, places[is_first])
        copied_from = places[is_first][np.cumsum(is_first) - 1]
        put_rows(out, places[~is_first], out[copied_from[~is_first]])

    def _checked(self, rows: Any) -> Ints:
        """Return rows as runs without empty ones, or as a list; all of them are there."""
        if isinstance(rows, range):
            if rows.step == 1 and 0 <= rows.start < rows.stop <= self.n_rows:
                return np.array([[rows.start, rows.stop]])
            rows = [[rows.start, rows.stop]] if rows.step == 1 and len(rows) else np.array(rows)
        array = np.ascontiguousarray(rows, np.int64)
        if array.size == 0:
            return np.empty((0, 2), np.int64)
        if array.ndim == 1:
            return listed_rows(array, self.n_rows, self.where)
        if array.ndim != 2 or array.shape[1] != 2:
            raise SelectionError(f"{self.where}: runs must have shape (k, 2), found {array.shape}")
        if len(array) <= FEW:
            few = array.reshape(-1).tolist()
            if few[0] >= 0 and few[-1] <= self.n_rows and few == sorted(set(few)):
                return array
        ends = array.reshape(-1)
        if ends[0] < 0 or ends[-1] > self.n_rows or (ends[1:] < ends[:-1]).any():
            found = ", ".join(f"[{a}, {b})" for a, b in array[:4].tolist())
            raise SelectionError(
                f"{self.where}: runs must be ascending [start, stop) stretches within "
                f"0..{self.n_rows}; found {found}" + ", ..." * (len(array) > 4)
            )
        return array[array[:, 0] < array[:, 1]]

    def _check_out(self, out: Array, n: int) -> None:
        if out.shape[1:] != self.row_shape or len(out) < n or out.dtype != self.dtype:
            raise SelectionError(
                f"{self.where}: needs an array of {n} x {self.row_shape} {self.dtype}, "
                f"found {out.shape} {out.dtype}"
            )
        if not (out.flags.c_contiguous and out.flags.writeable):
            raise SelectionError(f"{self.where}: the array must be C-ordered and writable")


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

    def __init__(
        self,
        source: SourceHeader,
        region: Region,
        load: Callable[[SourceHeader], Array],
        why: str,
    ) -> None:
        super().__init__(source, region)
        self._load, self.why, self.chunk_rows = load, why, 1

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self.region, self._load, self.why)

    @cached_property
    def _values(self) -> MemoryReader:
        return MemoryReader(np.ascontiguousarray(outer_take(self._load(self.source), self.region)))

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        self._values.read(runs, out, places)

    def _read_list(self, rows: Ints, out: Array, places: Ints | None) -> None:
        self._values.read(rows, out, places)

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        return ()


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

    __slots__ = ("_began",)

    def __enter__(self) -> None:
        self._began = perf_counter()

    def __exit__(self, *fault: object) -> None:
        CLOCK.decode_s += perf_counter() - self._began


@contextmanager
def naming_rows(source: SourceHeader, start: int, stop: int) -> Iterator[None]:
    """Name file, source and rows in an error of the system."""
    try:
        yield
    except LabeledError:
        raise
    except (OSError, EOFError) as fault:
        raise failed(source, start, stop, fault) from fault


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


@dataclass(frozen=True, eq=False)
class JoinedReader:
    """Readers one after another, their rows counted through all of them; a :class:`Reader`."""

    readers: Sequence[Reader]
    called: str = "files"

    @cached_property
    def _starts(self) -> Ints:
        return np.cumsum([0, *(reader.n_rows for reader in self.readers)], dtype=np.int64)

    @property
    def n_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def row_shape(self) -> tuple[int, ...]:
        return self.readers[0].row_shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.readers[0].dtype

    @property
    def kind(self) -> str:
        return "+".join(sorted({reader.kind for reader in self.readers}))

    @property
    def why(self) -> str:
        reasons = sorted({reader.why for reader in self.readers})
        return f"{len(self.readers)} {self.called}: {'; '.join(reasons)}"

    @property
    def chunk_rows(self) -> int:
        return max(reader.chunk_rows for reader in self.readers)

    def read(self, rows: Rows, out: Array, places: Ints | None = None) -> None:
        """Read the rows of one file after another; see :class:`Reader`."""
        for start, reader, own, which in self._by_reader(rows):
            try:
                if isinstance(which, slice):
                    part = out[which] if places is None else out
                    reader.read(own, part, None if places is None else places[which])
                else:
                    reader.read(own, out, which if places is None else places[which])
            except ReadError as error:
                if error.row is not None:
                    error.row += start
                raise

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes of all files; see :class:`Reader`."""
        return [
            part for _, reader, own, _ in self._by_reader(rows) for part in reader.byte_ranges(own)
        ]

    def pieces(self, rows: Rows, n_bytes: int) -> list[tuple[Rows, slice]]:
        """Cut rows by file, and those of each as its reader has them cut; see :func:`pieces`."""
        if not isinstance(rows, range) and rows.ndim == 1:
            return [(rows, slice(0, len(rows)))] if len(rows) else []
        return [
            (as_runs(part) + start, slice(which.start + place.start, which.start + place.stop))
            for start, reader, own, which in self._by_reader(rows)
            for part, place in pieces(reader, own, n_bytes)
        ]

    def _by_reader(self, rows: Rows) -> Iterator[tuple[int, Reader, Rows, Any]]:
        """Yield (first row, reader, its own rows, which of `rows` these are), file by file."""
        if isinstance(rows, range) and rows.step != 1:
            rows = np.array(rows)
        if not isinstance(rows, range) and rows.ndim == 1:
            rows = listed_rows(rows, self.n_rows)
            files = np.searchsorted(self._starts, rows, side="right") - 1
            for number in np.unique(files).tolist():
                start, mine = int(self._starts[number]), np.flatnonzero(files == number)
                yield start, self.readers[number], rows[mine] - start, mine
            return
        runs, place = as_runs(rows), 0
        if not len(runs):
            return
        low, high = int(runs[0, 0]), int(runs[-1, 1])
        if low < 0 or high > self.n_rows:
            listed_rows(runs, self.n_rows)
        first = int(np.searchsorted(self._starts, low, side="right")) - 1
        for number in range(first, int(np.searchsorted(self._starts, high, side="left"))):
            start, stop = self._starts[number : number + 2].tolist()
            mine = np.clip(runs, start, stop) - start
            mine = mine[mine[:, 1] > mine[:, 0]]
            if len(mine):
                own = range(*mine[0].tolist()) if len(mine) == 1 else mine
                yield start, self.readers[number], own, slice(place, place + count(own))
                place += count(own)
