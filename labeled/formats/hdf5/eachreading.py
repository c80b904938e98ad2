"""Reading examples that are datasets of their own: by their places, else through h5py.

An example that is not chunked lies in one piece, and is fetched by one call of the system to
where it belongs; chunks are fetched one by one and decoded; all of it outside HDF5's lock. What is
left is opened and read by h5py, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import h5py
import numpy as np

from labeled.formats.bytesource import open_bytes
from labeled.formats.examples import ExampleReader
from labeled.formats.hdf5.eachplaces import IN_CHUNKS, NOWHERE, Places, places_of
from labeled.formats.hdf5.fallback import PIECE_BYTES as H5PY_BYTES
from labeled.formats.hdf5.filters import DecodeError
from labeled.formats.hdf5.handles import h5_of
from labeled.formats.hdf5.safety import check_claim, to_text
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    PIECE_BYTES,
    Engine,
    Piece,
    failed,
    n_rows_of,
    put_rows,
    row_nbytes,
    spread,
)
from labeled.formats.region import Array, Ints, Region, is_whole, outer_take, region_shape
from labeled.ragged.flat import AnyRows, Flat, Rows, elements_of, offsets_of

BY_PLACE = "each example is a dataset of its own, read from where it lies"
BY_H5PY = "each example is a dataset of its own, read by h5py"


def _how(places: Places) -> str:
    return BY_H5PY if (places.offsets == NOWHERE).any() else BY_PLACE


class EachEngine(Engine):
    """Examples of one shape; follows :class:`~labeled.formats.reading.Engine`."""

    kind = "records"

    def __init__(self, source: SourceHeader, region: Region) -> None:
        self._source, self._region = source, region
        self._names, self._places = places_of(source.file, source.detail)
        self.why = _how(self._places)
        self._whole = is_whole(region, source.row_shape)
        self._row_bytes = max(1, source.row_bytes)
        self._used = row_nbytes(region_shape(region, source.row_shape), source.dtype)
        most = PIECE_BYTES if self.why == BY_PLACE else H5PY_BYTES
        self._step = max(1, most // self._row_bytes)
        self.scratch_bytes = self._step * self._row_bytes

    def pieces(self, runs: Ints) -> list[Piece]:
        rows = spread(runs[:, 0], runs[:, 1] - runs[:, 0])
        cuts = range(0, len(rows), self._step)
        return [self._piece(first, rows[first : first + self._step]) for first in cuts]

    def _piece(self, first: int, rows: Ints) -> Piece:
        n = len(rows)
        return Piece(first, n, n * self._used, int(rows[0]), int(rows[-1]) + 1, rows)

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        place = slice(piece.first, piece.first + piece.n_rows)
        source = self._source
        straight = dest is None and self._whole and out.dtype == source.dtype
        if straight and out.flags.c_contiguous:
            self._fill(out[place], piece.parts)
            return
        rows = np.empty((piece.n_rows, *source.row_shape), source.dtype)
        self._fill(rows, piece.parts)
        put_rows(out, place if dest is None else dest[place], outer_take(rows, self._region))

    def _fill(self, out: Array, rows: Ints) -> None:
        targets = [out[i : i + 1] for i in range(len(rows))]
        fill(self._source, self._names, self._places, rows, targets)

    def cost(self, runs: Ints) -> Cost:
        n = n_rows_of(runs)
        n_chunks = self._places.chunks.count(runs)
        return Cost(n * self._row_bytes, n * self._used, n, n_chunks)

    def advise(self, runs: Ints) -> None:
        """Do nothing: examples are small, and the system reads ahead by itself."""

    def cold(self, row: int) -> bool:
        offset = int(self._places.offsets[row])
        return offset >= 0 and not open_bytes(self._source.file).holds(offset)


class EachReader(ExampleReader):
    """Examples of different shapes; follows :class:`~labeled.ragged.RaggedReader`."""

    kind = "records"
    chunk_rows = 1

    def __getstate__(self) -> dict[str, Any]:
        """Leave the places behind: they are found again where the reader arrives."""
        return {"source": self.source}

    @cached_property
    def _found(self) -> tuple[Array, Places]:
        return places_of(self.source.file, self.source.detail)

    @property
    def _places(self) -> Places:
        return self._found[1]

    @property
    def why(self) -> str:
        return _how(self._places)

    def shapes(self, rows: AnyRows) -> Rows:
        return self._places.shapes[np.asarray(rows, np.int64)]

    def sizes(self, rows: AnyRows) -> Rows:
        return elements_of(self.shapes(rows))

    def read_flat(self, rows: AnyRows) -> Flat:
        shapes = self.shapes(rows)
        offsets = offsets_of(elements_of(shapes))
        check_claim(self.source, int(offsets[-1]) * self.source.dtype.itemsize)
        out = np.empty(int(offsets[-1]), self.source.dtype)
        targets = [
            out[a:b].reshape(shape)
            for a, b, shape in zip(offsets[:-1].tolist(), offsets[1:].tolist(), shapes, strict=True)
        ]
        fill(self.source, *self._found, np.asarray(rows, np.int64), targets)
        return Flat(out.astype(self.dtype, copy=False), offsets, shapes)


def fill(
    source: SourceHeader, names: Array, places: Places, rows: Ints, targets: Sequence[Array]
) -> None:
    """Read examples to where they belong.

    Parameters
    ----------
    source : SourceHeader
        Whose `detail` is an :class:`.Each`.
    names, places
        What :func:`.places_of` found of it.
    rows : int64 (n,)
        In any order.
    targets : arrays, C-contiguous
        One for each of `rows`, of its size, in the dtype of the file.

    Raises
    ------
    ReadError
        If the system or HDF5 cannot; names the row.
    """
    apart = _by_place(source, places, rows, targets)
    if not apart:
        return
    part = source.detail.part
    with h5_of(source.file) as opened:
        for i in apart:
            name = to_text(names[rows[i]])
            _by_h5py(source, opened, f"{name}/{part}".rstrip("/"), int(rows[i]), targets[i])


def _by_place(
    source: SourceHeader, places: Places, rows: Ints, targets: Sequence[Array]
) -> list[int]:
    """Read what is found by its place; return the numbers of the others."""
    apart = []
    file = open_bytes(source.file)
    file.check()
    for i, offset in enumerate(places.offsets[rows].tolist()):
        if offset == NOWHERE:
            apart.append(i)
            continue
        try:
            if offset == IN_CHUNKS:
                target = targets[i].reshape(places.shapes[rows[i]])
                places.chunks.read_into(file, int(rows[i]), target)
            else:
                file.read_into(targets[i], offset)
        except (OSError, EOFError, DecodeError) as fault:
            raise failed(source, int(rows[i]), int(rows[i]) + 1, fault) from fault
    return apart


def _by_h5py(source: SourceHeader, file: h5py.File, path: str, row: int, target: Array) -> None:
    if not target.size:
        return
    try:
        dataset = file[path]
        values = np.asarray(dataset[()])
        if values.dtype.kind == "V":  # complex numbers of two fields, or opaque bytes
            values = np.frombuffer(values.tobytes(), source.dtype).reshape(target.shape)
        target[()] = values.reshape(target.shape)
    except Exception as fault:  # what HDF5 makes of damage is nearly any of them
        raise failed(source, row, row + 1, fault) from fault
