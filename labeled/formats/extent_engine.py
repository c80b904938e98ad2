"""Rows that lie in the file as they are: contiguous datasets and unfiltered chunks.

Whoever knows the layout says where rows lie (see `extents`). This module fetches them:
straight into the destination where nothing has to be changed on the way, otherwise through
a buffer that stays in cache. Short extents with small gaps between them come with one read,
or are picked from a memory map where one may be used: such rows are scattered ones.

The trade-off: a gap is read through where it costs less than another call would.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from labeled.errors import LabeledError, ends_early
from labeled.formats.bytesource import FileRef, LocalFile, OpenFile
from labeled.formats.extents import Locate, cut_long
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    PIECE_BYTES,
    UNSTORED,
    Io,
    Piece,
    failed,
    gather,
    n_rows_of,
    packed,
    picking,
    put_rows,
    row_at,
    row_nbytes,
    scratch,
    spread,
    take_rows,
)
from labeled.formats.region import GAP_BYTES, Array, BoxPlan, Ints, Region, outer_put, outer_take
from labeled.permute import compiler
from labeled.ragged.flat import copy_segments

SHORT_BYTES = 32 * 1024
"""Extents shorter than this are worth joining across a gap, at the price of a second copy."""

FEWEST_PICKED = 8
"""So many short extents of a piece are picked from a memory map with one call."""

MANY_ROWS = 256
"""Stretches of so many rows on average (of flat values, say) are copied one by one from the map:
knowing where each single row lies would take longer than that."""

LARGE_ROW_BYTES = 1 << 20
"""Rows in random order from this size on are read by a call each, and no page of them is mapped.

A call then costs nothing that can be measured (0.98 and 1.04 of a copy out of a map, for rows of
1 MiB); for rows of 64 to 512 KiB it took 6 to 37 % longer.
"""

LONG_ROW_BYTES = 768
"""Rows from this size on are picked byte by byte as NumPy sees it, and not each as one item.

It copies items while it keeps all other threads from running Python, and bytes without. That
takes 1.1 to 1.2 times as long for rows of 784 bytes and more, and twice as long for 64.
"""

PICKED_BYTES = 192 * 1024
"""So much is picked at a time where NumPy copies rows twice: the second time out of the cache."""

STRAIGHT_BYTES = 4 << 20
"""Up to this, or one row, follows one another and is read with one call.

Each further call costs more than what its bytes take to be copied, where threads wait for one
another at Python's lock: 3 MiB in six calls came half as fast as in one.
"""

Target = slice | Ints


class ExtentEngine:
    """Reads rows whose places in the file are known.

    Parameters
    ----------
    source : SourceHeader
    plan : BoxPlan
        What is wanted of a stored row.
    locate : callable
        Runs to extents.
    kind, why
        What ``explain()`` says.
    io : {"auto", "pread", "mmap"}
    trail : Region or None
        Where that goes in a row of the result; None where it is all of it.
    base : int or None
        Byte offset of row 0 where all rows follow one another: such rows may be gathered
        from a memory map.
    places : callable or None
        Rows to their byte offsets, where they may be gathered from a memory map though they
        do not follow one another.
    rows_each : int or None
        Rows of an ordinary piece; by default those of half a mebibyte.
    """

    def __init__(
        self,
        source: SourceHeader,
        plan: BoxPlan,
        locate: Locate,
        *,
        kind: str,
        why: str,
        io: Io,
        trail: Region | None = None,
        base: int | None = None,
        places: Callable[[Ints], Ints] | None = None,
        rows_each: int | None = None,
    ) -> None:
        self.kind: str = kind
        self.why = why
        self._source = source
        self._file = FileRef(source.file)
        self._plan = plan
        self._locate = locate
        self._io = io
        self._trail = trail
        self._used = row_nbytes(plan.row_shape, plan.dtype)
        self._straight = plan.whole and trail is None
        self._direct = self._straight and plan.dtype.isnative
        self._base = base
        self._places = places if self._direct else None
        self._weight = plan.row_bytes if plan.read_through else plan.box_bytes
        each = PIECE_BYTES // max(1, self._weight) if rows_each is None else rows_each
        self._rows_each = max(1, each)
        records = plan.dtype.names is not None  # NumPy copies these aside to swap their bytes
        self._in_place = self._straight and (self._direct or not records)
        straight = self._in_place and self._used and io != "mmap"
        self._most_straight = max(1, STRAIGHT_BYTES // plan.row_bytes) if straight else 0
        large = plan.row_bytes >= LARGE_ROW_BYTES and io == "auto"
        self._by_calls = bool(straight and large and base is not None)
        self.scratch_bytes = 2 * max(PIECE_BYTES, self._rows_each * self._weight)

    def pieces(self, runs: Ints) -> list[Piece]:
        """Split checked runs into pieces; makes sure that the file is still the same one."""
        if not len(runs) or not self._used:
            return []
        self._file().check()
        if self._follow_on(runs):
            return self._even_pieces(*runs[0].tolist())
        extents, cuts = self._planned(runs)
        if len(cuts) == 2:
            n = n_rows_of(runs)
            return [Piece(0, n, n * self._used, int(runs[0, 0]), int(runs[-1, 1]), extents)]
        firsts = extents[cuts[:-1], 1]
        lasts = extents[cuts[1:] - 1, 1] + extents[cuts[1:] - 1, 2] - 1
        starts, stops = row_at(runs, firsts).tolist(), (row_at(runs, lasts) + 1).tolist()
        counts = (lasts - firsts + 1).tolist()
        return [
            Piece(first, n, n * self._used, start, stop, part)
            for first, n, start, stop, part in zip(
                firsts.tolist(), counts, starts, stops, np.split(extents, cuts[1:-1]), strict=True
            )
        ]

    def _follow_on(self, runs: Ints) -> bool:
        """Whether rows need no planning: one run of a source whose rows follow one another."""
        return len(runs) == 1 and self._base is not None and self._plan.read_through

    def _even_cuts(self, start: int, stop: int) -> Ints:
        """Cut rows that follow one another into as few parts as may be read with one call each."""
        most = max(self._most_straight, 2 * self._rows_each - 1)
        return np.linspace(start, stop, -(-(stop - start) // most) + 1).astype(np.int64)

    def _even_pieces(self, start: int, stop: int) -> list[Piece]:
        assert self._base is not None
        pieces = []
        for a, b in pairwise(self._even_cuts(start, stop).tolist()):
            extent = np.array([[self._base + a * self._weight, a - start, b - a, 0]])
            pieces.append(Piece(a - start, b - a, (b - a) * self._used, a, b, extent))
        return pieces

    def _planned(self, runs: Ints) -> tuple[Ints, Ints]:
        """Return extents, none much longer than a piece, and where pieces begin and end.

        A fourth column says whether one read brings an extent with the one before it.
        """
        row_bytes = self._plan.row_bytes
        extents = cut_long(self._locate(runs), self._rows_each, row_bytes)
        planned = np.zeros((len(extents), 4), np.int64)
        planned[:, :3] = extents
        if len(extents) == 1:
            return planned, np.array([0, 1])
        weights = extents[:, 2] * self._weight
        if self._plan.read_through:
            gaps = extents[1:, 0] - extents[:-1, 0] - extents[:-1, 2] * row_bytes
            short = np.minimum(extents[1:, 2], extents[:-1, 2]) * row_bytes <= SHORT_BYTES
            stored = (extents[1:, 0] != UNSTORED) & (extents[:-1, 0] != UNSTORED)
            near = (gaps >= 0) & (gaps <= GAP_BYTES) & (gaps % row_bytes == 0)
            planned[1:, 3] = near & short & stored
            weights[1:] += gaps * planned[1:, 3]
        cuts = packed(weights)
        planned[cuts[:-1], 3] = 0
        return planned, cuts

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        """Read one piece; see :class:`.rows.RowReader`."""
        file, extents = self._file(), piece.parts
        try:
            if self._scattered(extents) and (mapped := file.mapped(scattered=True)) is not None:
                self._pick(mapped, extents, out, dest)
                file.copied(piece.n_rows * self._used, scattered=True)
            elif len(extents) == 1 or extents[1:, 3].all():
                self._read_span(file, extents, out, dest)
            else:
                for span in np.split(extents, np.flatnonzero(extents[1:, 3] == 0) + 1):
                    self._read_span(file, span, out, dest)
        except LabeledError:
            raise
        except (OSError, EOFError) as fault:
            raise failed(self._source, piece.start, piece.stop, fault) from fault

    def _scattered(self, extents: Ints) -> bool:
        """Whether all rows of a piece are better picked from a memory map at once."""
        if not self._direct or self._io == "pread" or len(extents) < FEWEST_PICKED:
            return False
        nbytes = int(extents[:, 2].sum()) * self._plan.row_bytes
        return nbytes <= len(extents) * SHORT_BYTES and bool((extents[:, 0] != UNSTORED).all())

    def _pick(self, mapped: Array, extents: Ints, out: Array, dest: Ints | None) -> None:
        """Copy stored rows to their places: no call a stretch, however short they are."""
        counts, row_bytes = extents[:, 2], self._plan.row_bytes
        if dest is None and counts.sum() >= MANY_ROWS * len(extents):
            _copy_stretches(mapped, extents, out.reshape(-1).view(np.uint8), row_bytes)
            return
        inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        at = np.repeat(extents[:, 0], counts) + inside * row_bytes
        _check_ends(mapped, at, row_bytes)
        first = int(extents[0, 1])
        place: Target = slice(first, first + len(at)) if dest is None else dest[first:][: len(at)]
        _items(out, row_bytes)[place] = _items_anywhere(mapped, row_bytes)[at]

    def _read_span(self, file: OpenFile, span: Ints, out: Array, dest: Ints | None) -> None:
        at, first, n, _ = span[0].tolist()
        if len(span) > 1:
            n = int(span[:, 2].sum())
        place: Target = slice(first, first + n) if dest is None else dest[first : first + n]
        if at == UNSTORED:
            self._put(out, place, np.asarray(self._source.fill_value, self._plan.dtype))
        elif len(span) > 1:
            rows = spread((span[:, 0] - at) // self._plan.row_bytes, span[:, 2])
            mapped = None if self._io == "pread" else file.mapped(scattered=True)
            if mapped is None:
                self._store(self._box(file, at, int(rows[-1]) + 1), out, place, rows)
            else:
                self._store(self._view(mapped, at, int(rows[-1]) + 1), out, place, rows)
                file.copied(n * self._used)
        elif not isinstance(place, slice):
            self._scatter_span(file, at, out, place)
        elif self._in_place:
            self._fill(file, out[place], at)
            self._make_native(out[place])
        else:
            self._store(self._box(file, at, n), out, place, None)

    def _scatter_span(self, file: OpenFile, at: int, out: Array, places: Ints) -> None:
        """Store rows that follow one another in scattered places, in steps that stay in cache."""
        step = 2 * self._rows_each
        for a in range(0, len(places), step):
            some = places[a : a + step]
            box = self._box(file, at + a * self._plan.row_bytes, len(some))
            self._store(box, out, some, None)

    def straight_into(self, out: Array, start: int, stop: int) -> bool:
        """Read one run with one call, if that is all it takes."""
        if self._base is None:
            return False
        return self.straight_from(self._base, out, start, stop)

    def straight_from(self, base: int, out: Array, start: int, stop: int) -> bool:
        """Do the same with rows that follow one another as if row 0 were at byte `base`."""
        if not 0 < stop - start <= self._most_straight:
            return False
        file = self._file()
        file.check()
        at = base + start * self._plan.row_bytes
        try:
            file.read_into(out[: stop - start], at)
        except (OSError, EOFError) as fault:
            raise failed(self._source, start, stop, fault) from fault
        self._make_native(out[: stop - start])
        return True

    def straight_cost(self, n_rows: int) -> Cost | None:
        """Count what :meth:`straight_from` would do for so many rows; None if nothing."""
        if not 0 < n_rows <= self._most_straight:
            return None
        return Cost(n_rows * self._plan.row_bytes, n_rows * self._used, 1, 0)

    def _make_native(self, rows: Array) -> None:
        """Swap the bytes of stored rows where they lie, which takes no memory beside them."""
        if not self._direct:
            values = rows.reshape(-1)  # NumPy would copy more than one axis aside first
            values[...] = values.view(self._plan.dtype)

    def _fill(self, file: OpenFile, target: Array, at: int) -> None:
        mapped = file.mapped() if self._io == "mmap" else None
        if mapped is None:
            file.read_into(target, at)
        else:
            target.reshape(-1).view(np.uint8)[:] = mapped[at : at + target.nbytes]
            file.copied(target.nbytes)

    def _box(self, file: OpenFile, at: int, n: int) -> Array:
        """Fetch what the plan wants of `n` consecutive rows: ``(n, *box_shape)``, as stored."""
        plan = self._plan
        buffer = scratch("box", plan.bytes_of(n), at + plan.starts[0])
        if plan.read_through:
            self._fill(file, buffer, at + plan.starts[0])
            return self._view(buffer, -plan.starts[0], n)
        size, to = plan.stretch_bytes, 0
        for row in range(n):
            for start in plan.starts:
                self._fill(file, buffer[to : to + size], at + row * plan.row_bytes + start)
                to += size
        return buffer.view(plan.dtype).reshape(n, *plan.box_shape)

    def _view(self, stored: Array, at: int, n: int) -> Array:
        """View what the plan wants of `n` consecutive rows that begin at byte `at`."""
        plan = self._plan
        if plan.whole and at == 0 and len(stored) == n * plan.row_bytes:
            return stored.view(plan.dtype).reshape(n, *plan.box_shape)
        strides, offset = (plan.row_bytes, *plan.box_strides), at + plan.starts[0]
        return np.ndarray((n, *plan.box_shape), plan.dtype, stored, offset, strides)

    def _store(self, box: Array, out: Array, place: Target, rows: Ints | None) -> None:
        """Put wanted elements of wanted rows of a box in their places."""
        if rows is None and self._plan.whole:
            self._put(out, place, box)
        elif rows is not None and self._direct and box.flags.c_contiguous:
            row_bytes = self._plan.row_bytes
            stored, target = _items(box, row_bytes), _items(out, row_bytes)
            if isinstance(place, slice):
                np.take(stored, rows, out=target[place], mode="clip")
            else:
                target[place] = np.take(stored, rows, mode="clip")
        else:
            self._put(out, place, outer_take(box, self._plan.inner, rows))

    def _put(self, out: Array, place: Target, values: Array) -> None:
        if self._trail is None:
            put_rows(out, place, values)
        else:
            outer_put(out, place, self._trail, values)

    def gather_into(self, out: Array, rows: Ints) -> None:
        """Store ``source[rows]`` in `out`: from a memory map where there is one and it pays."""
        mappable = self._io != "pread" and (self._base is not None or self._places is not None)
        file = self._file()
        if self._by_calls and isinstance(file, LocalFile):
            for place, row in enumerate(rows.tolist()):
                self.straight_into(out[place : place + 1], row, row + 1)
            return
        mapped = file.mapped(scattered=True) if mappable and self._used else None
        if mapped is None or len(self._plan.starts) > 1:
            gather(rows, out, self.pieces, self.read_piece)
            return
        file.check()
        if self._base is not None:
            self._gather_regular(mapped[self._base :], out, rows)
        elif self._places is not None:
            self._gather_anywhere(mapped, out, rows, self._places)
        file.copied(out.nbytes, scattered=True)

    def copy_spans(self, out: Array, places: Ints, starts: Ints, sizes: Ints) -> bool:
        """Copy spans of rows from a memory map to their places, if that is the best way.

        It is not where spans are long, nor where the system would have to fetch them: whoever
        touches a page that is missing keeps all other threads from running Python.
        """
        file, row_bytes = self._file(), self._plan.row_bytes
        short = int(sizes.sum()) * row_bytes <= len(sizes) * SHORT_BYTES
        if self._base is None or not self._direct or self._io == "pread" or not short:
            return False
        file.check()
        if any(self.cold(int(starts[k])) for k in {0, len(starts) // 2}):
            return False
        mapped = file.mapped(scattered=True)
        if mapped is None:
            return False
        at, nbytes = self._base + starts * row_bytes, sizes * row_bytes
        try:
            _check_ends(mapped, at + nbytes - row_bytes, row_bytes)
        except EOFError as fault:
            k = int((at + nbytes).argmax())
            raise failed(self._source, int(starts[k]), int(starts[k] + sizes[k]), fault) from fault
        copy_segments(out.view(np.uint8), places * row_bytes, mapped, at, nbytes)
        file.copied(int(nbytes.sum()), scattered=True)
        return True

    def _gather_regular(self, stored: Array, out: Array, rows: Ints) -> None:
        n, plan = self._source.n_rows, self._plan
        if self._direct:
            source = stored[: n * plan.row_bytes].reshape(n, plan.row_bytes)
            target = out.reshape(-1).view(np.uint8).reshape(len(rows), plan.row_bytes)
            take_rows(source, rows, target)
            return
        box = self._view(stored, 0, n)
        step = max(1, PIECE_BYTES // self._used)
        for a in range(0, len(rows), step):
            out[a : a + step] = outer_take(box, plan.inner, rows[a : a + step])

    def _gather_anywhere(
        self, mapped: Array, out: Array, rows: Ints, places: Callable[[Ints], Ints]
    ) -> None:
        """Copy rows from places of any alignment."""
        target = out.reshape(-1).view(np.uint8).reshape(len(rows), self._plan.row_bytes)
        at = places(rows)
        try:
            _check_ends(mapped, at, target.shape[1])
        except EOFError as fault:
            row = int(rows[at.argmax()])
            raise failed(self._source, row, row + 1, fault) from fault
        stored = at != UNSTORED
        if stored.all():
            _pick_rows(mapped, at, target)
            return
        out[...] = self._source.fill_value
        there = np.flatnonzero(stored)
        step = max(1, self.scratch_bytes // target.shape[1])
        for some in np.split(there, range(step, len(there), step)):
            part = np.empty((len(some), target.shape[1]), np.uint8)
            _pick_rows(mapped, at[some], part)
            target[some] = part

    def cost(self, runs: Ints) -> Cost:
        """Count what reading runs in order would do."""
        if not len(runs) or not self._used:
            return Cost(0, 0, 0, 0)
        at, stop = self._fetched(runs)
        n, plan = (stop - at) // self._plan.row_bytes, self._plan
        n_reads = len(n) if plan.read_through else int(n.sum()) * len(plan.starts)
        n_bytes = int(n.sum()) * plan.box_bytes
        if plan.read_through:
            n_bytes += int((n - 1).sum()) * (plan.row_bytes - plan.box_bytes)
        return Cost(n_bytes, n_rows_of(runs) * self._used, n_reads, 0)

    def _fetched(self, runs: Ints) -> tuple[Ints, Ints]:
        """Return where each span of stored rows begins and ends in the file."""
        if self._follow_on(runs):
            assert self._base is not None
            ends = self._base + self._even_cuts(*runs[0].tolist()) * self._plan.row_bytes
            return ends[:-1], ends[1:]
        extents, _ = self._planned(runs)
        begins = np.flatnonzero(extents[:, 3] == 0)
        last = np.append(begins[1:], len(extents)) - 1
        at, end = extents[begins, 0], extents[last, 0] + extents[last, 2] * self._plan.row_bytes
        return at[at != UNSTORED], end[at != UNSTORED]

    def advise(self, runs: Ints) -> None:
        """Tell the system which bytes come next."""
        if len(runs) and self._used:
            file = self._file()
            for at, end in zip(*(ends.tolist() for ends in self._fetched(runs)), strict=True):
                file.advise(at, end - at)

    def cold(self, row: int) -> bool:
        """Whether the system would have to fetch a row from storage."""
        if not self._used:
            return False
        at = self._locate(np.array([[row, row + 1]]))[0, 0]
        return at != UNSTORED and not self._file().holds(int(at))


def _check_ends(stored: Array, at: Ints, row_bytes: int) -> None:
    """Raise EOFError where a row would reach past the file: of others none may be handed out."""
    last = int(at.max(initial=0))
    if last + row_bytes > len(stored):
        raise ends_early(last, row_bytes, max(0, len(stored) - last))


def _copy_stretches(stored: Array, extents: Ints, target: Array, row_bytes: int) -> None:
    """Copy stretches of rows to their places among the bytes of `target`."""
    starts, places = extents[:, 0], extents[:, 1] * row_bytes
    sizes = extents[:, 2] * row_bytes
    _check_ends(stored, starts + sizes - row_bytes, row_bytes)
    for start, place, size in zip(starts.tolist(), places.tolist(), sizes.tolist(), strict=True):
        target[place : place + size] = stored[start : start + size]


def _pick_rows(stored: Array, at: Ints, target: Array) -> None:
    """Copy the rows that begin at some bytes to `target`, ``(len(at), row_bytes)``."""
    row_bytes = target.shape[1]
    first = int(at[0]) % row_bytes if len(at) else 0
    if not ((at - first) % row_bytes).any():  # whole rows apart, as in a contiguous source
        n = (len(stored) - first) // row_bytes
        rows = stored[first : first + n * row_bytes].reshape(n, row_bytes)
        take_rows(rows, at // row_bytes, target)
        return
    if compiler.earned(target.nbytes) and picking().pick(stored, at, target):
        return
    if row_bytes < LONG_ROW_BYTES:
        target, anywhere = _items(target, row_bytes), _items_anywhere(stored, row_bytes)
    else:
        shape = (len(stored) - row_bytes + 1, row_bytes)
        anywhere = np.lib.stride_tricks.as_strided(stored, shape, (1, 1), writeable=False)
    step = max(1, PICKED_BYTES // row_bytes)
    for a in range(0, len(at), step):
        target[a : a + step] = anywhere[at[a : a + step]]


def _items(rows: Array, row_bytes: int) -> Array:
    """View rows as items of one type without fields: each is copied by one memmove."""
    return rows.reshape(-1).view(np.uint8).view(np.dtype((np.void, row_bytes)))


def _items_anywhere(stored: Array, row_bytes: int) -> Array:
    """View the rows that begin at every byte, so that rows at any places can be taken at once."""
    item = np.dtype((np.void, row_bytes))
    return np.ndarray(max(len(stored) - row_bytes + 1, 0), item, stored, strides=(1,))
