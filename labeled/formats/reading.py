"""What readers of rows share: pieces of work, their cost, checked runs, hot memory.

*Runs* are ``int64 (k, 2)`` half-open stretches of rows, ascending, not overlapping.
A *piece* is what one thread reads at a time: about half a mebibyte once decoded, so that
the memory it is decoded in stays in a core's cache and taking the next piece costs
nothing beside it. This module holds no file and knows no storage layout.
"""

from __future__ import annotations

import importlib
import math
import threading
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from labeled.errors import ReadError, SelectionError
from labeled.formats.distance import PAGE_BYTES, apart
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.region import Array, Ints
from labeled.permute import compiler

PIECE_BYTES = 512 * 1024
"""Decoded bytes of a piece: at least this where there is that much, at most about twice."""

STREAMED_BYTES = 8 << 20
"""Rows are scattered past the caches over arrays from this size on."""

PICKED_BYTES = 1 << 16
"""Less than this is picked by NumPy, which is called sooner."""

KEPT_BYTES = 16 * 1024 * 1024
"""The largest buffer a thread keeps between pieces."""

BLOCK_BYTES = 4 << 20
"""What is read at once of examples out of order, or where HDF5 reads them."""

UNSTORED = -1
"""The place of rows that were never stored: they read as the fill value."""

Io = Literal["auto", "pread", "mmap"]


class Piece(NamedTuple):
    """An independent part of reading some runs; rows are numbered in run order.

    Where chunks do not span a row, several pieces share the same rows.
    """

    first: int
    """Number, in run order, of its first row."""
    n_rows: int
    nbytes: int
    """Decoded bytes: how much work it is."""
    start: int
    """First row of the file it touches, and ..."""
    stop: int
    """... one past the last."""
    parts: Ints
    """For the reader that made it."""
    tiles: tuple[int, int] = (0, 1)
    """Which chunks beside one another, where rows are longer than a chunk."""


class Engine(Protocol):
    """How rows of one storage layout are read; made for a :class:`.RowReader`, never pickled."""

    kind: str
    why: str
    scratch_bytes: int

    def pieces(self, runs: Ints) -> list[Piece]: ...
    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None: ...
    def cost(self, runs: Ints) -> Cost: ...

    def advise(self, runs: Ints) -> None:
        """Tell the system which bytes come next; nothing where that is not known."""
        return

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch a row from storage; no where that is not known."""
        return False

    def gather_into(self, out: Array, rows: Ints) -> None:
        """Store ``source[rows]`` in `out`; each touched piece is read once."""
        gather(rows, out, self.pieces, self.read_piece)


def describe(source: SourceHeader) -> str:
    """Return ``source 'name' in 'file'``, the beginning of every message."""
    return f"source {source.name!r} in {source.file.path!r}"


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype handed out: native byte order, h5py's notes left behind.

    Examples
    --------
    >>> native(np.dtype(">i4")) == np.dtype("i4")
    True
    """
    plain = dtype.newbyteorder("=")
    return plain if plain.fields or plain.hasobject else np.dtype(plain.str)


def checked_runs(runs: Any, n_rows: int, where: str) -> Ints:
    """Return `runs` as ``int64 (k, 2)`` without empty ones.

    Raises
    ------
    SelectionError
        If they are not ascending stretches within ``0..n_rows``.
    """
    array = np.asarray(runs, dtype=np.int64)
    if array.size == 0:
        return np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise SelectionError(f"{where}: runs must have shape (k, 2), found {array.shape}")
    if len(array) == 1:
        start, stop = array[0].tolist()
        good, empty = 0 <= start <= stop <= n_rows, start == stop
    else:
        starts, stops = array[:, 0], array[:, 1]
        good = bool(
            starts[0] >= 0
            and stops[-1] <= n_rows
            and (starts <= stops).all()
            and (stops[:-1] <= starts[1:]).all()
        )
        empty = bool((starts == stops).any())
    if not good:
        raise SelectionError(
            f"{where}: runs must be ascending [start, stop) stretches within 0..{n_rows}; "
            f"found {_few(array)}"
        )
    return array[array[:, 0] < array[:, 1]] if empty else array


def _few(runs: Ints) -> str:
    listed = ", ".join(f"[{a}, {b})" for a, b in runs[:4].tolist())
    return listed + (f", ... ({len(runs)} runs)" if len(runs) > 4 else "")


def n_rows_of(runs: Ints) -> int:
    """Return how many rows `runs` hold."""
    return int((runs[:, 1] - runs[:, 0]).sum())


def runs_of(rows: Ints) -> Ints:
    """Return the runs of strictly ascending rows.

    Examples
    --------
    >>> runs_of(np.array([2, 3, 4, 9])).tolist()
    [[2, 5], [9, 10]]
    """
    if not len(rows):
        return np.empty((0, 2), np.int64)
    cut = np.flatnonzero(rows[1:] != rows[:-1] + 1)
    first = np.concatenate(([0], cut + 1))
    last = np.concatenate((cut, [len(rows) - 1]))
    return np.stack((rows[first], rows[last] + 1), axis=1)


def row_at(runs: Ints, numbers: Ints) -> Ints:
    """Return the rows that have these numbers in run order.

    Examples
    --------
    >>> row_at(np.array([[2, 5], [9, 10]]), np.array([0, 3])).tolist()
    [2, 9]
    """
    counts = runs[:, 1] - runs[:, 0]
    ends = np.cumsum(counts)
    run = np.searchsorted(ends, numbers, side="right")
    rows: Ints = runs[run, 0] + numbers - (ends - counts)[run]
    return rows


def spread(starts: Ints, counts: Ints) -> Ints:
    """Return the rows of runs given by their starts and lengths, in order.

    Examples
    --------
    >>> spread(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    ends = np.cumsum(counts)
    return np.repeat(starts - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)


def bands_of(runs: Ints, chunk_rows: int) -> Ints:
    """Cut runs at chunk boundaries: rows of (start, stop, number of the first in run order).

    Examples
    --------
    >>> bands_of(np.array([[2, 9]]), 4).tolist()
    [[2, 4, 0], [4, 8, 2], [8, 9, 6]]
    """
    if len(runs) == 1:
        start, stop = runs[0].tolist()
        begin = np.arange(start - start % chunk_rows, stop, chunk_rows)
        bands = np.empty((len(begin), 3), np.int64)
        bands[:, 0], bands[:, 1], bands[:, 2] = begin, begin + chunk_rows, begin - start
        bands[0, 0], bands[0, 2], bands[-1, 1] = start, 0, stop
        return bands
    starts, stops = runs[:, 0], runs[:, 1]
    n_bands = (stops - 1) // chunk_rows - starts // chunk_rows + 1
    band = spread(starts // chunk_rows, n_bands) * chunk_rows
    begin = np.maximum(np.repeat(starts, n_bands), band)
    end = np.minimum(np.repeat(stops, n_bands), band + chunk_rows)
    counts = end - begin
    return np.stack((begin, end, np.cumsum(counts) - counts), axis=1)


def band_pieces(runs: Ints, band_rows: int, row_bytes: int) -> list[Piece]:
    """Group checked runs by bands of so many rows: a piece a band, with its runs as `parts`."""
    if not len(runs):
        return []
    bands = bands_of(runs, band_rows)
    numbers = bands[:, 0] // band_rows
    cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    return [
        Piece(int(part[0, 2]), n, n * row_bytes, int(part[0, 0]), int(part[-1, 1]), part)
        for part in np.split(bands, cuts)
        for n in (n_rows_of(part),)
    ]


def packed(weights: Ints) -> Ints:
    """Return where to cut consecutive items so that each group weighs about `PIECE_BYTES`.

    Examples
    --------
    >>> packed(np.array([PIECE_BYTES // 2] * 5)).tolist()
    [0, 2, 4, 5]
    """
    before = np.cumsum(weights) - weights
    group = before // PIECE_BYTES
    cuts = np.flatnonzero(group[1:] != group[:-1]) + 1
    return np.concatenate(([0], cuts, [len(weights)])) if len(weights) else np.zeros(1, np.int64)


class _Scratch(threading.local):
    """Buffers of one thread, by use; they stay hot because the next piece reuses them."""

    def __init__(self) -> None:
        self.buffers: dict[str, Array] = {}


_SCRATCH = _Scratch()


def scratch(use: str, nbytes: int, offset: int | None = None) -> Array:
    """Return `nbytes` bytes of this thread's memory for `use`; the next call reuses them.

    What is read there from a file should say from where: see :mod:`labeled.formats.distance`.
    """
    held, needed = _SCRATCH.buffers.get(use), nbytes if offset is None else nbytes + PAGE_BYTES
    if held is None or len(held) < needed:
        held = np.empty(max(needed, 1), np.uint8)
        if nbytes <= KEPT_BYTES:
            _SCRATCH.buffers[use] = held
    return held[:nbytes] if offset is None else apart(held, nbytes, offset)


def put_rows(out: Array, place: slice | Ints, rows: Array, wanted: Ints | None = None) -> None:
    """Store ``out[place] = rows[wanted]``; scattered rows go as single items of many bytes.

    NumPy moves such items up to seven times faster than rows of small numbers. Where compiled
    loops are at hand they go past the caches, twice as fast, to an array larger than these.
    """
    alike = rows.dtype == out.dtype and rows.shape[1:] == out.shape[1:] and rows.size > 0
    packed = rows.flags.c_contiguous and out.flags.c_contiguous
    if isinstance(place, slice) or out.ndim == 1 or not (alike and packed):
        out[place] = rows if wanted is None else np.take(rows, wanted, axis=0, mode="clip")
        return
    large = out.nbytes >= STREAMED_BYTES
    if large and compiler.earned(rows.nbytes) and _scattering().scatter(out, place, rows, wanted):
        return
    if wanted is not None:
        rows = np.take(rows, wanted, axis=0, mode="clip")
    item = np.dtype((np.void, row_nbytes(out.shape[1:], out.dtype)))
    out.reshape(-1).view(item)[place] = rows.reshape(-1).view(item)


def take_rows(stored: Array, rows: Ints, out: Array) -> None:
    """Store ``out[...] = stored[rows]``, of one dtype, both C-contiguous; rows are in range.

    From an array larger than the caches compiled loops, where they are at hand, ask for each
    row some time before it is copied.
    """
    large = stored.nbytes >= STREAMED_BYTES and out.nbytes >= PICKED_BYTES
    if large and not out.dtype.hasobject and compiler.earned(out.nbytes):
        row_bytes = out.nbytes // len(out)
        target = out.reshape(-1).view(np.uint8).reshape(len(out), row_bytes)
        if picking().pick(stored.reshape(-1).view(np.uint8), rows * row_bytes, target):
            return
    np.take(stored, rows, axis=0, out=out, mode="clip")


def _scattering() -> Any:
    """Return compiled loops, which import numba."""
    return importlib.import_module("labeled.permute.scattering")


def picking() -> Any:
    """Return compiled loops, which import numba."""
    return importlib.import_module("labeled.permute.picking")


def gather(
    rows: Ints,
    out: Array,
    pieces: Callable[[Ints], list[Piece]],
    read_piece: Callable[[Piece, Array, Ints | None], None],
) -> None:
    """Store ``source[rows]`` in `out` by reading each touched piece once, whatever the order."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    fresh = np.concatenate(([True], ordered[1:] != ordered[:-1])) if len(rows) else np.ones(0, bool)
    if fresh.all():
        for piece in pieces(runs_of(ordered)):
            read_piece(piece, out, order)
        return
    at = np.flatnonzero(fresh)
    dest, ends = order[at], np.append(at, len(rows))
    for piece in pieces(runs_of(ordered[at])):
        read_piece(piece, out, dest)
        _repeat(out, order, dest, ends, piece)


def _repeat(out: Array, order: Ints, dest: Ints, ends: Ints, piece: Piece) -> None:
    """Copy the rows of a piece from their first place in `out` to all others."""
    last = piece.first + piece.n_rows
    places = order[ends[piece.first] : ends[last]]
    origin = np.repeat(dest[piece.first : last], np.diff(ends[piece.first : last + 1]))
    again = places != origin
    put_rows(out, places[again], out[origin[again]])


def failed(source: SourceHeader, start: int, stop: int, fault: Exception) -> ReadError:
    """Return the error that names file, source and rows of what the system raised."""
    return ReadError(f"{describe(source)}, rows {start} to {stop - 1}: {fault}")


def row_nbytes(row_shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes of one row as handed out."""
    return math.prod(row_shape) * dtype.itemsize
