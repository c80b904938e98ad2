"""Reading ragged sources: examples of different shapes, never one call an example.

Three layouts become one :class:`~labeled.ragged.RaggedReader`: the flat layout of this
library (:mod:`.metadata`), Fuel's (rows of variable length with a `shapes` scale), and
plain rows of variable length. Shapes, offsets and lengths are read by byte range like
any dense source; they are checked against each other and against the file before any
memory is taken for values.

The dataset itself holds the lengths of rows of variable length; h5py reads the rows in large
slices, in the order of the file and under its lock. The flat layout reads many times
faster in any other order: ``labeled repack FILE OUT --ragged flat``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import h5py
import numpy as np

from labeled._threads import share
from labeled.errors import FileFormatError
from labeled.formats.bytesource import naming_rows
from labeled.formats.cf import decode
from labeled.formats.contiguous import ContiguousReader
from labeled.formats.format import ExampleReader
from labeled.formats.hdf5.filters import require_filters
from labeled.formats.hdf5.per_object import Each, EachReader
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.hdf5.safety import check_claim, h5_of
from labeled.formats.header import SourceHeader, vlen_base
from labeled.formats.memory import BLOCK_BYTES, scratch
from labeled.formats.reader import Cost, Io, Reader, cost, native, pieces, read_rows
from labeled.formats.region import Array
from labeled.ragged.flat import (
    AnyRows,
    RaggedReader,
    Rows,
    block_cuts,
    check_sizes,
    copy_segments,
    offsets_of,
    sizes_of,
)
from labeled.selection import merged_runs, runs_of

# how a row of variable length is stored, in a file with addresses of eight bytes
REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])

BLOCK_ROWS = 1 << 16  # rows that HDF5 reads at once at most

DECODED_VALUES = 1 << 17  # at a time, about: all at once would lie in memory twice

MANY_PIECES = 4  # from so many pieces on, of half a mebibyte each, threads of their own pay

DENSE = 6  # HDF5 reads a list of rows so many times slower than a slice that holds them


def open_ragged(source: SourceHeader, io: Io = "auto") -> RaggedReader:
    """Return a reader of the examples of a ragged source. Opens nothing yet.

    Raises
    ------
    FileFormatError
        If the datasets that make up the source do not belong together.
    """
    if isinstance(source.detail, Each):
        return EachReader(source)
    if "values" in source.parts:
        return FlatReader(source, io)
    _check_vlen(source)
    return VlenReader(source, io)


def _check_vlen(source: SourceHeader) -> None:
    shapes, what = source.parts.get("shapes"), ""
    if vlen_base(source.dtype) is None:
        what = (
            f" is {source.shape} {source.dtype}; write its examples flattened, as rows of variable "
            "length along one axis with the scale 'shapes', or detach that scale"
        )
    elif shapes is None and source.ragged is not None and "shapes" in source.ragged:
        what = ": its scale 'shapes' has no name in the file; link it to one, or write it again"
    elif shapes is not None:
        is_table = len(shapes.shape) == 2 and shapes.dtype.kind in "iu"
        if not is_table or shapes.n_rows != source.n_rows:
            what = (
                f" has {source.n_rows} rows, but its scale 'shapes' is {shapes.shape} "
                f"{shapes.dtype}; it must be integers, one row an example"
            )
    if what:
        raise FileFormatError(f"{source.where}{what}")


class StoredExamples(ExampleReader):
    """What the two readers of ragged datasets share; each tells the sizes."""

    def _checked(self, rows: AnyRows, sizes: Rows) -> Rows:
        """Return the shapes of examples, after comparing them with what is stored.

        Raises
        ------
        FileFormatError
            If a shape is impossible or has another number of elements; names the row.
        """
        header = self.source.parts.get("shapes")
        if header is None:
            return sizes.reshape(-1, 1)
        check_claim(header, len(rows) * header.row_bytes)
        shapes = _integers(open_reader(header, io=self.io), rows)
        wrong = sizes_of(shapes, rows, self.where, self.source.dtype.itemsize) != sizes
        if wrong.any():
            at = int(np.argmax(wrong))
            raise FileFormatError(
                f"{self.where}, row {rows[at]}: its shape {tuple(shapes[at].tolist())} does not "
                f"fit the {sizes[at]} values that are stored; correct the shapes, or leave the "
                "row out"
            )
        return shapes


class FlatReader(StoredExamples):
    """Examples in the flat layout; follows :class:`~labeled.ragged.RaggedReader`."""

    kind = "flat"

    def __init__(self, source: SourceHeader, io: Io = "auto") -> None:
        super().__init__(source, io)
        self._values = open_reader(source.parts["values"], io=io)
        self._offsets = open_reader(source.parts["offsets"], io=io)
        self.why = f"flat values, {self._values.why}"

    def sizes(self, rows: AnyRows) -> Rows:
        return self._bounds(rows)[1]

    def _found(self, rows: AnyRows) -> tuple[Rows, Rows]:
        starts, sizes = self._bounds(rows)
        return self._checked(rows, sizes), starts

    def _check_claim(self, wanted: Rows, sizes: Rows) -> None:
        check_claim(self.source.parts["values"], int(sizes.sum()) * self._values.dtype.itemsize)

    def _read(self, wanted: Rows, out: Array, places: Rows, sizes: Rows, threads: int) -> None:
        """Read examples directly, unless they are decoded then; compressed chunks by threads."""
        cf = self.source.cf
        if cf is None:
            self._read_segments(out, places, wanted, sizes, threads)
            return
        offsets = offsets_of(sizes)
        stored = np.empty(int(offsets[-1]), self._values.dtype)
        self._read_segments(stored, offsets[:-1], wanted, sizes, threads)
        for a, b in pairwise(block_cuts(sizes, DECODED_VALUES)):
            values = decode(stored[offsets[a] : offsets[b]], cf)
            copy_segments(out, places[a:b], values, offsets[a:b] - offsets[a], sizes[a:b])

    def _read_segments(
        self, out: Array, places: Rows, starts: Rows, sizes: Rows, threads: int
    ) -> None:
        """Read segments of values to places of `out`; directly if both follow one another."""
        held, values = sizes > 0, self._values
        places, starts, sizes = places[held], starts[held], sizes[held]
        if not len(sizes):
            return
        packed = bool((places[1:] == places[:-1] + sizes[:-1]).all())
        if packed and (starts[1:] >= starts[:-1] + sizes[:-1]).all():
            target = out[places[0] : places[-1] + sizes[-1]]
            self._read_runs(target, _joined(starts, sizes), threads)
            return
        if isinstance(values, ContiguousReader) and values.copy_spans(out, places, starts, sizes):
            return
        order = np.argsort(starts, kind="stable")
        for a, b in pairwise(block_cuts(sizes[order] * out.itemsize, BLOCK_BYTES)):
            some = order[a:b]
            runs = _joined(starts[some], sizes[some])
            begins = offsets_of(runs[:, 1] - runs[:, 0])
            nbytes = int(begins[-1]) * out.itemsize
            buffer = scratch("ragged", max(nbytes, BLOCK_BYTES))[:nbytes].view(out.dtype)
            self._read_runs(buffer, runs, threads)
            run = runs[:, 0].searchsorted(starts[some], side="right") - 1
            at = starts[some] - runs[run, 0] + begins[run]
            copy_segments(out, places[some], buffer, at, sizes[some])

    def _read_runs(self, out: Array, runs: Rows, threads: int) -> None:
        decodes = threads > 1 and bool(self.source.parts["values"].filters)
        parts = pieces(self._values, runs) if decodes else []
        if len(parts) < MANY_PIECES:
            self._values.read(runs, out)
            return

        def read(first: int, last: int) -> None:
            for some, place in parts[first:last]:
                self._values.read(some, out[place])

        share(read, len(parts), threads)

    def cost(self, rows: AnyRows) -> Cost:
        """Count what reading the values of examples takes, each chunk of them once."""
        starts, sizes = self._bounds(np.unique(np.asarray(rows, np.int64)))
        header = self.source.parts["values"]
        step = 1 if header.chunks is None else header.chunks[0]  # chunks are read whole
        stops = np.minimum(-(-(starts + sizes) // step) * step, header.n_rows)
        begins, held = starts // step * step, sizes > 0
        return cost(self._values, _joined(begins[held], (stops - begins)[held]))

    def _bounds(self, rows: AnyRows) -> tuple[Rows, Rows]:
        """Return where examples begin and how long they are, checked."""
        if isinstance(rows, range) and rows.step == 1:
            edges = _integers(self._offsets, range(rows.start, max(rows.start, rows.stop) + 1))
            starts, stops = edges[:-1], edges[1:]
        else:
            listed = np.asarray(rows, np.int64)
            starts, stops = _integers(self._offsets, listed), _integers(self._offsets, listed + 1)
        n_values = self.source.parts["values"].n_rows
        bad = (starts < 0) | (stops < starts) | (stops > n_values)
        if bad.any():
            at = int(np.argmax(bad))
            wrong = "run backwards" if stops[at] < starts[at] else "lie outside"
            raise FileFormatError(
                f"{self.where}, row {rows[at]}: its offsets {starts[at]} to {stops[at]} {wrong} "
                f"(there are {n_values} values); the file is damaged, so write it again"
            )
        return starts, stops - starts


class VlenReader(StoredExamples):
    """Rows of variable length, with or without shapes; follows ``RaggedReader``."""

    kind = "vlen"

    def __init__(self, source: SourceHeader, io: Io = "auto") -> None:
        super().__init__(source, io)
        self.dtype = native(np.dtype(vlen_base(source.dtype)))
        # reads what the dataset itself holds; None if its bytes cannot be reached
        self._references: Reader | None = None
        if source.storage in ("contiguous", "chunked", "empty"):
            fill = np.zeros((), REFERENCE)[()]
            header = replace(source, dtype=REFERENCE, fill_value=fill, ragged=None, cf=None)
            reader = open_reader(header, io=io)
            self._references = None if reader.kind == "h5py" else reader
        lengths = "known before" if self._references is not None else "unknown before reading"
        self.why = f"rows of variable length: read by h5py in blocks, lengths {lengths}"

    def sizes(self, rows: AnyRows) -> Rows:
        if self._references is None:
            return self._lengths_by_reading(np.asarray(rows, np.int64))
        lengths: Rows = read_rows(self._references, rows)["length"].astype(np.int64)
        _, own = np.unique(np.asarray(rows, np.int64), return_index=True)
        size, total = self.source.file.size, float(lengths[own].sum()) * self.dtype.itemsize
        if total > size:
            at = int(np.argmax(lengths))
            raise FileFormatError(
                f"{self.where}, row {rows[at]}: it claims {lengths[at]} values, and with others "
                f"{total:.0f} bytes, more than the {size} of the file; the file is damaged"
            )
        return lengths

    def _found(self, rows: AnyRows) -> tuple[Rows, Rows]:
        return self._checked(rows, self.sizes(rows)), np.asarray(rows, np.int64)

    def _read(self, wanted: Rows, out: Array, places: Rows, sizes: Rows, threads: int) -> None:
        source, order = self.source, np.argsort(wanted, kind="stable")
        stored = np.dtype(vlen_base(source.dtype))
        weights = np.maximum(sizes[order] * out.itemsize, BLOCK_BYTES // BLOCK_ROWS + 1)
        with h5_of(source.file) as file:
            require_filters(source)
            dataset = file[source.key]
            for a, b in pairwise(block_cuts(weights, BLOCK_BYTES)):
                some = order[a:b]
                own, at, which = np.unique(wanted[some], return_index=True, return_inverse=True)
                arrays, expected = self._arrays(dataset, own), sizes[some][at]
                found = np.fromiter(map(len, arrays), np.int64, len(arrays))
                check_sizes(self.where, own, found, expected)
                values = np.concatenate([*arrays, np.empty(0, self.dtype)])
                if not stored.isnative and byte_order_lost():
                    values = values.view(stored)
                starts = offsets_of(expected)[which]
                copy_segments(out, places[some], values, starts, sizes[some])

    def _arrays(self, dataset: h5py.Dataset, rows: Rows) -> list[Array]:
        """Read ascending rows as HDF5 hands them out, in slices if skipping does not pay."""
        cuts = [0, len(rows)]
        if len(rows) and int(rows[-1] - rows[0]) >= DENSE * len(rows):
            runs = runs_of(rows)
            cuts = [0, *np.cumsum(runs[:, 1] - runs[:, 0]).tolist()]
        out: list[Array] = []
        for a, b in pairwise(cuts):
            first, stop = int(rows[a]), int(rows[b - 1]) + 1
            with naming_rows(self.source, first, stop, Exception):  # damage is nearly any
                out += dataset[first:stop][rows[a:b] - first].tolist()
        return out

    def _lengths_by_reading(self, rows: Rows) -> Rows:
        distinct, which = np.unique(rows, return_inverse=True)
        lengths: list[int] = []
        with h5_of(self.source.file) as file:
            dataset = file[self.source.key]
            for first in range(0, len(distinct), 256):
                lengths += map(len, self._arrays(dataset, distinct[first : first + 256]))
        return np.array(lengths, np.int64)[which]


@cache
def byte_order_lost() -> bool:
    """Whether h5py hands out foreign byte order in variable length as if it were native.

    Its versions up to 3.16 do; asked of h5py itself, so that a fixed one is not fixed again.
    """
    foreign = np.dtype("i2").newbyteorder("S")
    with h5py.File("byte-order", "w", driver="core", backing_store=False) as file:
        dataset = file.create_dataset("x", (1,), h5py.vlen_dtype(foreign))
        dataset[0] = np.array([1], foreign)
        return int(dataset[0][0]) != 1


def _joined(starts: Rows, sizes: Rows) -> Rows:
    """Return ascending segments of values, none empty, as runs: joined where they meet."""
    return merged_runs(starts, np.maximum.accumulate(starts + sizes))


def _integers(reader: Reader, rows: AnyRows) -> Rows:
    """Read integers as int64; what does not fit comes out negative, and is refused later."""
    return np.asarray(read_rows(reader, rows), np.int64)
