"""Rows that lie in the file as they are, each in one piece: fetched, and nothing more.

Rows follow one another in *stretches*: one for a contiguous source, several where chunks without
filters lie here and there. Runs of rows are cut there into *extents*, which are fetched directly
into the destination where nothing has to be changed on the way, otherwise through a buffer that
stays in cache. Scattered rows (listed ones, or many short runs) are copied from a memory map where
one may be used; elsewhere short extents with small gaps between them come with one call.

The trade-off: a gap is read through where it costs less than another call would.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.bytesource import LocalFile, OpenFile, naming_rows
from labeled.formats.header import SourceHeader
from labeled.formats.memory import pick_rows, put_rows, scratch, take_rows
from labeled.formats.reader import PIECE_BYTES, ByteRanges, FileReader, Io, Rows, count, is_cold
from labeled.formats.region import GAP_BYTES, Array, BoxPlan, Ints, Region, box_plan, outer_take
from labeled.ragged.flat import copy_segments
from labeled.selection import rows_of, spread

# extents shorter than this are worth joining across a gap, at the price of a second copy
SHORT_BYTES = 32 * 1024

MIN_PICKED = 8  # so many short runs are copied from a memory map, row by row

# not runs of so many rows on average (of flat values, say), whose numbers are as large as they
MANY_ROWS = 256

# where row 0 of a stretch lies that was never stored: every row of it lies below 0 then
FAR = -(1 << 62)

# Rows in random order from this size on are read by a call each, and no page of them is mapped. A
# call then costs nothing that can be measured (0.98 and 1.04 of a copy out of a map, for rows of 1
# MiB); for rows of 64 to 512 KiB it took 6 to 37 % longer.
LARGE_ROW_BYTES = 1 << 20


def check_extent(source: SourceHeader, offset: int) -> None:
    """Refuse rows from an offset on that would reach past the end of the file.

    Raises
    ------
    FileFormatError
    """
    end, stamp = offset + source.n_rows * source.row_bytes, source.file
    there = stamp.size if stamp.unpacked_bytes is None else stamp.unpacked_bytes
    if offset < 0 or end > there:
        raise FileFormatError(
            f"{source.where}, rows 0 to {source.n_rows - 1}: its data should lie at bytes "
            f"{offset} to {end}, but there are {there}. It is truncated or damaged, so copy it "
            "again."
        )


class ContiguousReader(FileReader):
    """Reads rows whose offsets in the file are known; see :class:`~.reader.Reader`.

    Raises
    ------
    FileFormatError
        If the rows would reach past the end of the file.
    """

    kind = "contiguous"
    why = "stored in one piece: read by file offset"

    def __init__(
        self,
        source: SourceHeader,
        region: Region = (),
        io: Io = "auto",
        plan: BoxPlan | None = None,
    ) -> None:
        super().__init__(source, region, io)
        if source.offset is not None:
            check_extent(source, source.offset)
        elif source.storage != "chunked" or not self.row_bytes:
            self.why = "nothing is stored, or nothing asked for: only fill values are handed out"
        if source.file.unpacked_bytes is not None:
            self.why = "gzip-compressed: inflated once, into a temporary file"
        plan = self._plan = plan or box_plan(self.region, source.row_shape, source.dtype)
        native = plan.dtype.isnative
        self._direct = plan.whole and native
        # NumPy copies records aside to swap their bytes
        self._in_place = plan.whole and (native or plan.dtype.names is None) and self.row_bytes > 0
        self._by_call = self._in_place and io != "mmap"
        each = plan.row_bytes if plan.read_through else plan.bytes_of(1)
        self._step = max(1, PIECE_BYTES // max(1, each))

    @cached_property
    def _stretches(self) -> tuple[Ints, Ints]:
        """The first row of each stretch, and where row 0 would lie if it belonged to it."""
        offset = self.source.offset
        return np.zeros(1, np.int64), np.array([FAR if offset is None else offset])

    @cached_property
    def _base(self) -> int:
        """Where row 0 lies if all rows follow one another in the file; else below 0."""
        bases = self._stretches[1]
        return int(bases[0]) if len(bases) == 1 else -1

    def _offsets(self, rows: Ints) -> Ints:
        """Return where rows begin in the file; negative if they were never stored."""
        firsts, bases = self._stretches
        return bases[firsts.searchsorted(rows, side="right") - 1] + rows * self._plan.row_bytes

    def _extents(self, runs: Ints) -> Ints:
        """Cut runs where stretches end: (byte offset, number of the first row, rows, first row)."""
        firsts, start, stop = self._stretches[0], runs[:, 0], runs[:, 1]
        if len(firsts) > 1:
            begin = firsts.searchsorted(start, side="right") - 1
            n_parts = firsts.searchsorted(stop, side="left") - begin
            part = spread(begin, n_parts)
            start = np.maximum(np.repeat(start, n_parts), firsts[part])
            ends = np.append(firsts[1:], self.n_rows)[part]
            stop = np.minimum(np.repeat(stop, n_parts), ends)
        n = stop - start
        return np.stack((self._offsets(start), np.cumsum(n) - n, n, start), axis=1)

    # runs

    def read(self, rows: Rows, out: Array, places: Ints | None = None) -> None:
        """Store rows in `out`: a range of one stretch with one call."""
        if self._by_call and places is None and isinstance(rows, range) and rows and rows.step == 1:
            start, stop, base, end = rows.start, rows.stop, self._base, self.n_rows
            if base < 0:
                firsts, bases = self._stretches
                k = int(firsts.searchsorted(start, side="right")) - 1
                base, end = int(bases[k]), end if k + 1 == len(firsts) else int(firsts[k + 1])
            if base >= 0 and 0 <= start < stop <= end:
                n = stop - start
                assert self._fits(out, n)
                file = self.file()
                file.check()
                target = out if len(out) == n else out[:n]
                try:
                    file.read_into(target, base + start * self._plan.row_bytes)
                except (EOFError, OSError):  # entered only then: every batch comes by here
                    with naming_rows(self.source, start, stop):
                        raise
                if not self._direct:
                    self._make_native(target)
                return
        super().read(rows, out, places)

    def _read(self, runs: Ints, out: Array, places: Ints | None) -> None:
        n, n_runs = count(runs), len(runs)
        short = n * self._plan.row_bytes <= n_runs * SHORT_BYTES and n < MANY_ROWS * n_runs
        if n_runs >= MIN_PICKED and short and self._pick(rows_of(runs), out, places):
            return
        file = self.file()
        file.check()
        for span in self._spans(self._extents(runs)):
            stop = int(span[-1, 3] + span[-1, 2])
            with naming_rows(self.source, int(span[0, 3]), stop):
                self._read_span(file, span, out, places)

    def _spans(self, extents: Ints) -> list[Ints]:
        """Group extents that one call brings: short ones with small gaps between."""
        row_bytes, at = self._plan.row_bytes, extents[:, 0]
        n_bytes = extents[:, 2] * row_bytes
        short = n_bytes <= SHORT_BYTES
        near = short[1:] & short[:-1] & self._plan.read_through
        if not near.any():
            return [extents[i : i + 1] for i in range(len(extents))]
        gaps = at[1:] - at[:-1] - n_bytes[:-1]
        near &= (gaps >= 0) & (gaps <= GAP_BYTES) & (gaps % row_bytes == 0)
        full = np.cumsum(n_bytes[1:] + gaps * near) // PIECE_BYTES
        near[1:] &= full[1:] == full[:-1]
        return np.split(extents, np.flatnonzero(~near) + 1)

    def _read_span(self, file: OpenFile, span: Ints, out: Array, places: Ints | None) -> None:
        at, first, n, _ = span[0].tolist()
        total = n if len(span) == 1 else int(span[:, 2].sum())
        place = slice(first, first + total) if places is None else places[first : first + total]
        row_bytes = self._plan.row_bytes
        if at < 0:
            out[place] = np.asarray(self.source.fill_value, self._plan.dtype)
        elif len(span) > 1:
            rows = spread((span[:, 0] - at) // row_bytes, span[:, 2])
            self._store(self._box(file, at, int(rows[-1]) + 1), out, place, rows)
        elif isinstance(place, slice) and self._in_place:
            self._fill(file, out[place], at)
            if not self._direct:
                self._make_native(out[place])
        else:  # in steps that stay in cache
            for a in range(0, n, self._step):
                z = min(n, a + self._step)
                some = slice(first + a, first + z) if places is None else places[first:][a:z]
                self._store(self._box(file, at + a * row_bytes, z - a), out, some, None)

    def _make_native(self, rows: Array) -> None:
        """Swap the bytes of stored rows where they lie, which takes no memory beside them."""
        values = rows.reshape(-1)  # NumPy would copy more than one axis aside first
        values[...] = values.view(self._plan.dtype)

    def _fill(self, file: OpenFile, target: Array, at: int) -> None:
        mapped = file.mapped(target.nbytes) if self.io == "mmap" else None
        if mapped is None:
            file.read_into(target, at)
        else:
            target.reshape(-1).view(np.uint8)[:] = mapped[at : at + target.nbytes]

    def _box(self, file: OpenFile, at: int, n: int) -> Array:
        """Fetch what the plan wants of `n` consecutive rows: ``(n, *box_shape)``, as stored."""
        plan, to = self._plan, 0
        buffer = scratch("box", plan.bytes_of(n), at + plan.starts[0])
        starts, lengths = plan.ranges(np.array([at]), np.array([n]))
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
            self._fill(file, buffer[to : to + length], start)
            to += length
        return plan.view(buffer, n)

    def _store(self, box: Array, out: Array, place: slice | Ints, rows: Ints | None) -> None:
        """Put the wanted elements of some rows of a box in their places."""
        if self._plan.whole and box.flags.c_contiguous:
            put_rows(out, place, box, rows)
        else:
            put_rows(out, place, outer_take(box, self._plan.inner, rows))

    # scattered rows, from a memory map

    @property
    def _picks_rows(self) -> bool:
        """Whether any rows may be copied from a map one by one."""
        is_one = len(self._plan.starts) == 1 and (self._direct or self._base >= 0)
        return self.io != "pread" and is_one

    def _read_list(self, rows: Ints, out: Array, places: Ints | None) -> None:
        """Read listed rows one by one: from a memory map where there is one and it pays."""
        large = self.io == "auto" and self._plan.row_bytes >= LARGE_ROW_BYTES and self._in_place
        if large and places is None and isinstance(self.file(), LocalFile):
            for place, row in enumerate(rows.tolist()):
                self.read(range(row, row + 1), out[place : place + 1])
        elif not self._pick(rows, out, places):
            super()._read_list(rows, out, places)

    def _pick(self, rows: Ints, out: Array, places: Ints | None) -> bool:
        """Copy rows one by one from a memory map; False where there is none, or it lacks some."""
        plan, base, n = self._plan, self._base, self.n_rows
        at = self._offsets(rows) if base < 0 else None
        if not self._picks_rows or (at is not None and (at < 0).any()):
            return False
        file = self.file()
        try:
            mapped = file.mapped()
        except (EOFError, OSError):  # a compressed file is inflated now
            with naming_rows(self.source, int(rows.min()), int(rows.max()) + 1):
                raise
        if mapped is None:
            return False
        file.check()
        step = len(rows) if self._direct and places is None else self._step
        for a in range(0, len(rows), step):
            some = rows[a : a + step]
            target = out[a : a + len(some)]
            if places is not None:
                target = np.empty((len(some), *self.row_shape), self.dtype)
            if not self._direct:
                strides = (plan.row_bytes, *plan.box_strides)
                shape = (n, *plan.box_shape)
                box = np.ndarray(shape, plan.dtype, mapped, base + plan.starts[0], strides)
                target[...] = outer_take(box, plan.inner, some)
            else:
                as_bytes = target.reshape(-1).view(np.uint8).reshape(len(some), plan.row_bytes)
                if at is None:
                    stored = mapped[base : base + n * plan.row_bytes].reshape(n, plan.row_bytes)
                    take_rows(stored, some, as_bytes)
                else:
                    pick_rows(mapped, at[a : a + step], as_bytes)
            if places is not None:
                put_rows(out, places[a : a + step], target)
        return True

    def copy_spans(self, out: Array, places: Ints, starts: Ints, sizes: Ints) -> bool:
        """Copy short spans of values, none empty, from a memory map to their places in `out`.

        In shuffled order that takes a quarter of the time for spans of 4 kB, and four fifths for
        400 bytes.
        False, and nothing done, where there is no map, spans are long, or the system would have
        to fetch them: whoever touches a page that is missing keeps all other threads waiting.
        """
        base, n_bytes = self._base, sizes * self._plan.row_bytes
        if not self._direct or base < 0 or n_bytes.sum() > len(sizes) * SHORT_BYTES:
            return False
        cold = any(is_cold(self, int(starts[k])) for k in {0, len(starts) // 2})
        file = self.file()
        file.check()
        mapped = None if cold or self.io == "pread" else file.mapped()
        if mapped is None:
            return False
        row_bytes, to = self._plan.row_bytes, out.view(np.uint8)
        copy_segments(to, places * row_bytes, mapped, base + starts * row_bytes, n_bytes)
        return True

    # telling

    def byte_ranges(self, rows: Rows) -> Sequence[ByteRanges]:
        """Return the bytes that are fetched; of listed rows, those of each by itself."""
        given = self._checked(rows)
        if given.ndim == 1 and len(given) and self.row_bytes and self._picks_rows:
            return self._fetched(self._offsets(given), np.ones_like(given))
        return super().byte_ranges(rows)

    def _ranges(self, runs: Ints) -> Sequence[ByteRanges]:
        spans = self._spans(self._extents(runs))
        ends = np.array([[*span[0, [0, 2]], *span[-1, [0, 2]]] for span in spans])
        at, row_bytes = ends[:, 0], self._plan.row_bytes
        n = (ends[:, 2] - at) // row_bytes + ends[:, 3]
        if not self._in_place:  # long ones come in steps
            n_steps = -(-n // self._step)
            part = spread(np.zeros_like(n), n_steps) * self._step
            at = np.repeat(at, n_steps) + part * row_bytes
            n = np.minimum(np.repeat(n, n_steps) - part, self._step)
        return self._fetched(at, n)

    def _fetched(self, at: Ints, n: Ints) -> Sequence[ByteRanges]:
        stored = at >= 0
        return (ByteRanges(self.file, *self._plan.ranges(at[stored], n[stored])),)
