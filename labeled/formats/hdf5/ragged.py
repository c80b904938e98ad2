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

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import h5py
import numpy as np

from labeled.errors import FileFormatError
from labeled.formats.cf import decode
from labeled.formats.contiguous import ContiguousReader
from labeled.formats.format import ExampleReader
from labeled.formats.hdf5.filters import require_filters
from labeled.formats.hdf5.per_object import Each, EachReader
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.hdf5.safety import check_claim, h5_of
from labeled.formats.header import SourceHeader, vlen_base
from labeled.formats.memory import BLOCK_BYTES, scratch
from labeled.formats.reader import (
    Cost,
    Io,
    Reader,
    cost,
    describe,
    failed,
    native,
    pieces,
    read_rows,
)
from labeled.formats.region import Array
from labeled.ragged.flat import (
    AnyRows,
    Flat,
    RaggedReader,
    Rows,
    block_cuts,
    check_sizes,
    copy_segments,
    offsets_of,
    sizes_of,
)
from labeled.selection import runs_of

REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])
"""How a row of variable length is stored, in a file with addresses of eight bytes."""

BLOCK_ROWS = 1 << 16
"""Rows that HDF5 reads at once at most."""

MANY_PIECES = 4
"""From so many pieces on, of half a mebibyte each, threads of their own pay."""

DENSE = 6
"""HDF5 reads a list of rows so many times slower than a slice that holds them."""


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
    where = describe(source)
    if vlen_base(source.dtype) is None:
        raise FileFormatError(
            f"{where} has a scale 'shapes' but holds {source.dtype}, no rows of variable length; "
            "detach the scale, or write the source again as rows of variable length"
        )
    if len(source.shape) != 1:
        raise FileFormatError(
            f"{where} has shape {source.shape}; rows of variable length must lie along one axis, "
            "so write it flattened, with the scale 'shapes'"
        )
    shapes = source.parts.get("shapes")
    if shapes is None:
        if source.ragged is not None and "shapes" in source.ragged:
            raise FileFormatError(
                f"{where}: its scale 'shapes' has no name in the file; link it to one, or write "
                "the source again"
            )
        return
    if len(shapes.shape) != 2 or shapes.dtype.kind not in "iu":
        raise FileFormatError(
            f"{where}: its scale 'shapes' is {shapes.shape} {shapes.dtype}; it must be integers, "
            "one row an example"
        )
    if shapes.n_rows != source.n_rows:
        raise FileFormatError(
            f"{where} has {source.n_rows} rows, but its scale 'shapes' has {shapes.n_rows}; the "
            f"first row without its other half is {min(shapes.n_rows, source.n_rows)}"
        )


@dataclass(frozen=True, eq=False)
class FlatReader(ExampleReader):
    """Examples in the flat layout; follows :class:`~labeled.ragged.RaggedReader`."""

    io: Io = "auto"
    kind: str = "flat"
    chunk_rows: int = 1

    @property
    def why(self) -> str:
        return f"flat values, {self._values.why}"

    @cached_property
    def _values(self) -> Reader:
        return open_reader(self.source.parts["values"], io=self.io)

    @cached_property
    def _offsets(self) -> Reader:
        return open_reader(self.source.parts["offsets"], io=self.io)

    def sizes(self, rows: AnyRows) -> Rows:
        return self._bounds(rows)[1]

    def shapes(self, rows: AnyRows) -> Rows:
        return checked_shapes(self.source, rows, self.sizes(rows), self.io)

    def read_flat(self, rows: AnyRows) -> Flat:
        return self.read_flat_by(1, rows)

    def read_flat_by(self, threads: int, rows: AnyRows) -> Flat:
        """Return the examples one after another; compressed chunks by so many threads."""
        starts, sizes = self._bounds(rows)
        shapes = checked_shapes(self.source, rows, sizes, self.io)
        offsets = offsets_of(sizes)
        header = self.source.parts["values"]
        check_claim(header, int(offsets[-1]) * header.dtype.itemsize)
        out = np.empty(int(offsets[-1]), self._values.dtype)
        if (starts[1:] >= starts[:-1] + sizes[:-1]).all():
            self._read(out, _segments(starts, starts + sizes), threads)
        else:

            def read(some: Rows) -> Array:
                values = np.empty(int(sizes[some].sum()), out.dtype)
                self._read(values, _segments(starts[some], starts[some] + sizes[some]), threads)
                return values

            read_in_blocks(out, offsets, listed(rows), read)
        cf = self.source.cf
        return Flat(out if cf is None else decode(out, cf), offsets, shapes)

    def read_at(self, rows: AnyRows, out: Array, places: Rows, sizes: Rows) -> Rows:
        """Read ascending examples to their places: directly if both lie together."""
        starts, found = self._bounds(rows)
        check_sizes(self.where, rows, found, sizes)
        shapes = checked_shapes(self.source, rows, sizes, self.io)
        if (
            not len(sizes)
            or self.source.cf is not None
            or (starts[1:] < starts[:-1] + sizes[:-1]).any()
        ):
            flat = self.read_flat(rows)
            copy_segments(out, places, flat.values, flat.offsets[:-1], sizes)
            return shapes
        runs = _segments(starts, starts + sizes)
        first, total = int(places[0]), int(sizes.sum())
        if total == int(places[-1]) + int(sizes[-1]) - first and (places[1:] > places[:-1]).all():
            self._read(out[first : first + total], runs, 1)
        elif not (
            isinstance(self._values, ContiguousReader)
            and self._values.copy_spans(out, places, starts, sizes)
        ):
            nbytes = total * out.itemsize
            values = scratch("ragged", max(nbytes, BLOCK_BYTES))[:nbytes].view(out.dtype)
            self._read(values, runs, 1)
            copy_segments(out, places, values, offsets_of(sizes)[:-1], sizes)
        return shapes

    def _read(self, out: Array, runs: Rows, threads: int) -> None:
        decodes = threads > 1 and bool(self.source.parts["values"].filters)
        parts = pieces(self._values, runs) if decodes else []
        if len(parts) < MANY_PIECES:
            self._values.read(runs, out)
            return
        with ThreadPoolExecutor(threads, "labeled-ragged") as pool:
            for _ in pool.map(lambda part: self._values.read(part[0], out[part[1]]), parts):
                pass

    def cost(self, rows: AnyRows) -> Cost:
        """Count what reading the values of examples takes, each chunk of them once."""
        starts, sizes = self._bounds(np.unique(listed(rows)))
        header = self.source.parts["values"]
        step = 1 if header.chunks is None else header.chunks[0]  # chunks are read whole
        stops = np.minimum(-(-(starts + sizes) // step) * step, header.n_rows)
        stops = np.where(sizes > 0, stops, 0)
        return cost(self._values, _segments(starts // step * step, stops))

    def _bounds(self, rows: AnyRows) -> tuple[Rows, Rows]:
        """Return where examples begin and how long they are, checked."""
        run = as_run(rows)
        if run is not None:
            edges = _integers(self._offsets, range(run.start, run.stop + 1))
            starts, stops = edges[:-1], edges[1:]
        else:
            starts = _integers(self._offsets, listed(rows))
            stops = _integers(self._offsets, listed(rows) + 1)
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


@dataclass(frozen=True, eq=False)
class VlenReader(ExampleReader):
    """Rows of variable length, with or without shapes; follows ``RaggedReader``."""

    io: Io = "auto"
    kind: str = "vlen"
    chunk_rows: int = 1

    @property
    def n_axes(self) -> int:
        shapes = self.source.parts.get("shapes")
        return 1 if shapes is None else int(shapes.shape[1])

    @property
    def _stored(self) -> np.dtype[Any]:
        """The dtype of the values in the file."""
        base = vlen_base(self.source.dtype)
        assert base is not None, "checked by open_ragged"
        return base

    @property
    def dtype(self) -> np.dtype[Any]:
        return native(self._stored)

    @property
    def why(self) -> str:
        lengths = "known before" if self._references is not None else "unknown before reading"
        return f"rows of variable length: read by h5py in blocks, lengths {lengths}"

    @cached_property
    def _references(self) -> Reader | None:
        """Reader of what the dataset itself holds; None if its bytes cannot be reached."""
        source = self.source
        if source.storage not in ("contiguous", "chunked", "empty"):
            return None
        header = replace(
            source, dtype=REFERENCE, fill_value=np.zeros((), REFERENCE)[()], ragged=None, cf=None
        )
        reader = open_reader(header, io=self.io)
        return None if reader.kind == "h5py" else reader

    def sizes(self, rows: AnyRows) -> Rows:
        if self._references is None:
            return self._lengths_by_reading(listed(rows))
        lengths: Rows = read_rows(self._references, rows)["length"].astype(np.int64)
        most = self.source.file.size // self.dtype.itemsize
        if len(lengths) and int(lengths.max()) > most:
            at = int(np.argmax(lengths))
            raise FileFormatError(
                f"{self.where}, row {rows[at]}: it claims {lengths[at]} values, more than the "
                f"{self.source.file.size} bytes of the file can hold; the file is damaged"
            )
        return lengths

    def shapes(self, rows: AnyRows) -> Rows:
        return checked_shapes(self.source, rows, self.sizes(rows), self.io)

    def read_flat(self, rows: AnyRows) -> Flat:
        wanted, sizes, source = listed(rows), self.sizes(rows), self.source
        shapes = checked_shapes(source, rows, sizes, self.io)
        _, first = np.unique(wanted, return_index=True)
        total = float(sizes[first].sum(dtype=np.float64)) * self.dtype.itemsize
        if total > source.file.size:
            raise FileFormatError(
                f"{self.where}: its rows claim {total:.0f} bytes, more than the "
                f"{source.file.size} of the file; the file is damaged"
            )
        offsets = offsets_of(sizes)
        out = np.empty(int(offsets[-1]), self._stored)
        with h5_of(source.file) as file:
            require_filters(source)
            dataset = file[source.key]

            def read(some: Rows) -> Array:
                return self._values(dataset, wanted[some], sizes[some])

            read_in_blocks(out, offsets, wanted, read, BLOCK_ROWS)
        return Flat(out.astype(self.dtype, copy=False), offsets, shapes)

    def read_at(self, rows: AnyRows, out: Array, places: Rows, sizes: Rows) -> Rows:
        flat = self.read_flat(rows)
        check_sizes(self.where, rows, np.diff(flat.offsets), sizes)
        copy_segments(out, places, flat.values, flat.offsets[:-1], sizes)
        return flat.shapes

    def _values(self, dataset: h5py.Dataset, rows: Rows, sizes: Rows) -> Array:
        """Read ascending rows, each once, flat."""
        arrays = self._arrays(dataset, rows)
        found = np.fromiter(map(len, arrays), np.int64, len(arrays))
        check_sizes(self.where, rows, found, sizes)
        held = [array for array in arrays if len(array)]
        values = np.concatenate(held) if held else np.empty(0, self.dtype)
        stored = self._stored
        return values if stored.isnative or not byte_order_lost() else values.view(stored)

    def _arrays(self, dataset: h5py.Dataset, rows: Rows) -> list[Array]:
        """Read ascending rows as HDF5 hands them out, in slices if skipping does not pay."""
        cuts = [0, len(rows)]
        if len(rows) and int(rows[-1] - rows[0]) >= DENSE * len(rows):
            cuts = np.cumsum(
                [0, *(stop - start for start, stop in runs_of(rows).tolist())]
            ).tolist()
        out: list[Array] = []
        try:
            for a, b in pairwise(cuts):
                first, some = int(rows[a]), rows[a:b]
                out += dataset[first : int(rows[b - 1]) + 1][some - first].tolist()
        except Exception as fault:  # what HDF5 makes of damage is nearly any of them
            raise failed(self.source, int(rows[0]), int(rows[-1]) + 1, fault) from fault
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


def _segments(starts: Rows, stops: Rows) -> Rows:
    """Return the runs that segments of values make, which ascend and are joined where they meet."""
    held = stops > starts
    starts, stops = starts[held], stops[held]
    if not len(starts):
        return np.empty((0, 2), np.int64)
    fresh = np.concatenate(([True], starts[1:] > stops[:-1]))
    last = np.append(np.flatnonzero(fresh)[1:] - 1, len(starts) - 1)
    return np.stack((starts[fresh], stops[last]), axis=1)


def read_in_blocks(
    out: Array,
    offsets: Rows,
    rows: Rows,
    read: Callable[[Rows], Array],
    most_rows: int = 1 << 62,
) -> None:
    """Fill flat values in any order of rows, reading each block in file order.

    Parameters
    ----------
    out : array (offsets[-1],)
    offsets : int64 (n + 1,)
        Where the example of each of `rows` goes.
    read : callable
        Given positions in `rows` of different rows, ascending: their values, flat.
    """
    sizes = np.diff(offsets)
    order = np.argsort(rows, kind="stable")
    cuts = block_cuts(
        np.maximum(sizes[order] * out.itemsize, BLOCK_BYTES // most_rows + 1), BLOCK_BYTES
    )
    for a, b in pairwise(cuts):
        part = order[a:b]
        _, first, which = np.unique(rows[part], return_index=True, return_inverse=True)
        some = part[first]
        values = read(some)
        if len(some) == b - a and part[-1] - part[0] == b - a - 1 and (np.diff(part) == 1).all():
            out[offsets[part[0]] : offsets[part[-1] + 1]] = values
        else:
            starts = offsets_of(sizes[some])[which]
            copy_segments(out, offsets[part], values, starts, sizes[part])


def checked_shapes(source: SourceHeader, rows: AnyRows, sizes: Rows, io: Io) -> Rows:
    """Return the shapes of examples, after comparing them with what is stored.

    Raises
    ------
    FileFormatError
        If a shape is impossible or has another number of elements; names the row.
    """
    header = source.parts.get("shapes")
    if header is None:
        return sizes.reshape(-1, 1)
    check_claim(header, len(rows) * header.row_bytes)
    shapes = _integers(open_reader(header, io=io), rows)
    where = describe(source)
    wrong = sizes_of(shapes, rows, where, source.dtype.itemsize) != sizes
    if wrong.any():
        at = int(np.argmax(wrong))
        raise FileFormatError(
            f"{where}, row {rows[at]}: its shape {tuple(shapes[at].tolist())} does not fit the "
            f"{sizes[at]} values that are stored; correct the shapes, or leave the row out"
        )
    return shapes


def listed(rows: AnyRows) -> Rows:
    """Return rows as int64."""
    return np.asarray(rows, np.int64)


def as_run(rows: AnyRows) -> range | None:
    """Return rows as a range, where each follows the one before."""
    if isinstance(rows, range):
        return rows if rows.step == 1 else None
    if not len(rows) or rows[-1] - rows[0] != len(rows) - 1 or (np.diff(rows) != 1).any():
        return None
    return range(int(rows[0]), int(rows[-1]) + 1)


def _integers(reader: Reader, rows: AnyRows) -> Rows:
    """Read integers as int64; what does not fit comes out negative, and is refused later."""
    values: Rows = read_rows(reader, rows).astype(np.int64, copy=False)
    return values
