"""Sparse matrices stored by rows: CSR groups of AnnData, and the matrices of 10x Genomics.

Such a group holds ``data`` and ``indices`` (the values that are not zero, and their columns)
one row after another, and ``indptr``, where each row begins. Here it is one dense source of
(n_rows, n_columns): zeros are filled in where a row is read, and nowhere else. The matrices
of 10x Genomics are stored by columns, one for each cell, so that cells are rows here too.

Cells are the examples of such files, so that what tells of genes is carried whole: AnnData's own
words for the dims are `obs_names` and `var_names`, those of 10x Genomics barcodes and features.

The trade-off: rows come dense, which a network wants anyway; a matrix that is wanted sparse
is opened as the three arrays it is, with ``group=``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import h5py
import numpy as np

from labeled.errors import ReadError
from labeled.formats.hdf5.labels import short_attribute
from labeled.formats.header import SourceHeader
from labeled.formats.reader import Cost
from labeled.formats.reading import (
    PIECE_BYTES,
    Engine,
    Piece,
    band_pieces,
    describe,
    n_rows_of,
    spread,
)
from labeled.formats.region import Array, Ints, Region, length
from labeled.formats.rows import RowReader

PARTS = ("data", "indices", "indptr")

Names = tuple[str, ...]

PIECE_VALUES = 1 << 16
"""Values that are read at a time, at least."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A sparse matrix found in a file: its group, and its shape with rows first."""

    group: h5py.Group
    shape: tuple[int, int]


def matrix_of(group: h5py.Group) -> Matrix | None:
    """Return the matrix that a group holds by rows of this library; None where it holds none."""
    found = [member(group, name) for name in PARTS]
    parts = [part for part in found if part is not None]
    if len(parts) < len(PARTS) or any(len(part.shape or ()) != 1 for part in parts):
        return None
    shape = _shape_said(group)
    if shape is None:
        return None
    data, indices, indptr = parts
    fits = indptr.shape[0] == shape[0] + 1 and data.shape == indices.shape
    kinds = (data, "biuf"), (indices, "iu"), (indptr, "iu")
    numbers = all(part.dtype.kind in kind for part, kind in kinds)
    return Matrix(group, shape) if fits and numbers else None


def is_by_columns(group: h5py.Group) -> bool:
    """Whether a group says that its matrix is stored by columns."""
    said = (short_attribute(group, key) for key in ("encoding-type", "h5sparse_format"))
    return any(text.removesuffix("_matrix") == "csc" for text in said)


def member(group: h5py.Group, name: str, kind: type = h5py.Dataset) -> Any:
    """Return what lies in a group itself; None behind links, which may lead out of the file."""
    raw = name.encode()
    if raw not in group.id or group.id.links.get_info(raw).type != h5py.h5l.TYPE_HARD:
        return None
    thing = group[name]
    return thing if isinstance(thing, kind) else None


def _shape_said(group: h5py.Group) -> tuple[int, int] | None:
    """Return the shape of a matrix with what is stored together first; None where none is told."""
    for kind, shape in (("encoding-type", "shape"), ("h5sparse_format", "h5sparse_shape")):
        if kind in group.attrs and shape in group.attrs:
            lengths = np.ravel(group.attrs[shape]).tolist()
            if short_attribute(group, kind).removesuffix("_matrix") == "csr" and len(lengths) == 2:
                return int(lengths[0]), int(lengths[1])
            return None
    told, barcodes = member(group, "shape"), member(group, "barcodes")
    if told is None or barcodes is None or told.shape != (2,) or told.dtype.kind not in "iu":
        return None
    n_features, n_cells = told[()].tolist()
    return (n_cells, n_features) if barcodes.shape == (n_cells,) else None


@dataclass(frozen=True, slots=True)
class CellAxes:
    """The axes of the arrays of a file of cells."""

    names: Mapping[str, Names]
    """By path, one name an axis."""
    example_dim: str
    scales: Mapping[str, str] = field(default_factory=dict)
    """The paths of datasets that hold the values of a dim, such as names of genes."""


def axes_of_cells(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> CellAxes | None:
    """Return what AnnData or 10x Genomics means by the axes of its arrays; None for other files.

    A file is known by what is written at the root, never by its name.

    Parameters
    ----------
    base : h5py.Group
        What paths are relative to.
    shapes : mapping of path to shape
        Of datasets, and of sparse matrices by the path of their group.
    """
    found = _anndata(base, shapes) or _tenx(base, shapes)
    if found is None:
        return None
    fitting = {n: d for n, d in found.names.items() if len(d) == len(shapes.get(n, ()))}
    return replace(found, names=_agreeing(fitting, found.example_dim, shapes))


def _agreeing(
    names: Mapping[str, Names], example_dim: str, shapes: Mapping[str, tuple[int, ...]]
) -> Mapping[str, Names]:
    """Take the example dim from arrays that are not as long as most that have it."""
    along = [name for name, dims in names.items() if dims[:1] == (example_dim,)]
    usual = Counter(shapes[name][0] for name in along).most_common(1)
    odd = [name for name in along if shapes[name][0] != usual[0][0]]
    last = {name: name.rpartition("/")[2] for name in odd}
    return {**names, **{name: (f"{last[name]}_axis_0", *names[name][1:]) for name in odd}}


def _anndata(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> CellAxes | None:
    """Return what AnnData means: `obs` tells of cells, `var` of genes."""
    obs, var = (member(base, name, h5py.Group) for name in ("obs", "var"))
    if obs is None or var is None:
        return None
    said = short_attribute(base, "encoding-type")
    if said != "anndata" and (said or not all(short_attribute(t, "_index") for t in (obs, var))):
        return None
    index = f"var/{short_attribute(var, '_index') or '_index'}"
    there = [one for one in (index, f"{index}/values") if len(shapes.get(one, ())) == 1]
    scales = {"var_names": there[0]} if there else {}  # texts that may be missing are a group
    names = {path: _anndata_names(path.split("/"), len(shape)) for path, shape in shapes.items()}
    return CellAxes(names, "obs_names", scales)


def _anndata_names(parts: list[str], n_axes: int) -> Names:
    """Return what the axes of an array in a file of AnnData are."""
    match parts:
        case ["X"] | ["layers", _]:
            return ("obs_names", "var_names")
        case ["raw", "X"]:
            return ("obs_names", "raw_var_names")
        case [*_, column, "categories"] | [*_, "__categories", column]:
            return (column,)
        case ["raw", "var", *_]:
            return ("raw_var_names",)
        case ["obs" | "var" as along, *_]:
            return (f"{along}_names",)
        case ["obsm" | "varm" as kind, *_, last]:
            return (f"{kind[:3]}_names", *(f"{last}_axis_{axis}" for axis in range(1, n_axes)))
        case ["obsp" | "varp" as kind, _]:
            return (f"{kind[:3]}_names", f"{kind[:3]}_names_2")
        case _:
            return tuple(f"{parts[-1]}_axis_{axis}" for axis in range(n_axes))


def _tenx(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> CellAxes | None:
    """Return what 10x Genomics means: one group with barcodes, features and a matrix."""
    for path, shape in shapes.items():
        cells, begin = f"{path}/barcodes", f"{path}/"
        if len(shape) == 2 and shapes.get(cells) == shape[:1]:
            kind = "feature" if f"{begin}features/id" in shapes else "gene"
            ids = f"{begin}features/id" if kind == "feature" else f"{begin}genes"
            names: dict[str, Names] = {
                name: (kind if length == shape[1:] else f"{name.rpartition('/')[2]}_axis_0",)
                for name, length in shapes.items()
                if name.startswith(begin)
            }
            scales = {kind: ids} if shapes.get(ids) == shape[1:] else {}
            names |= {path: ("barcode", kind), cells: ("barcode",)}
            return CellAxes(names, "barcode", scales)
    return None


class SparseEngine(Engine):
    """Reads rows of a sparse matrix into dense ones.

    Where rows begin is read once, 8 bytes a row, and kept.
    """

    def __init__(self, source: SourceHeader, region: Region, parts: Mapping[str, RowReader]):
        self.kind = "sparse"
        self.why = "a sparse matrix: zeros are filled in where rows are read"
        self._source, self._parts = source, parts
        (columns,) = region
        self._row_bytes = max(length(columns) * source.dtype.itemsize, 1)
        wanted = np.atleast_1d(np.arange(source.shape[1])[columns])
        self._columns, self._repeated = np.unique(wanted, return_inverse=True)
        self._is_one_to_one = self._columns.size == wanted.size
        self._places = np.full(source.shape[1], -1, np.int64)
        if self._is_one_to_one:
            self._places[wanted] = np.arange(wanted.size)
        else:
            self._places[self._columns] = np.arange(self._columns.size)
        self._band_rows = _band_rows(source, self._row_bytes)
        self._begins = self._read_begins()
        self.scratch_bytes: int = self._most_scratch()

    def _most_scratch(self) -> int:
        """Return what a thread needs beside the rows: values, their columns, where they go."""
        most = int(np.diff(self._begins[:: self._band_rows], append=self._begins[-1:]).max())
        parts = [self._parts[role] for role in ("data", "indices")]
        per_value = sum(part.dtype.itemsize for part in parts) + 4 * 8
        again = 0 if self._is_one_to_one else self._band_rows * self._row_bytes
        inner = sum(part.scratch_bytes for part in parts)
        return most * per_value + again + inner + self._begins.nbytes

    def _read_begins(self) -> Ints:
        begins = self._parts["indptr"].read(range(self._source.n_rows + 1))
        n_values = self._source.parts["data"].n_rows
        if begins[0] != 0 or begins[-1] > n_values:
            raise self._damaged(f"its rows end at value {begins[-1]} of {n_values}")
        if bool((begins[1:] < begins[:-1]).any()):
            raise self._damaged("a row ends before it begins")
        return begins.astype(np.int64, copy=False)

    def _damaged(self, what: str) -> ReadError:
        return ReadError(f"{describe(self._source)}: {what} ('indptr'); copy the file again")

    def pieces(self, runs: Ints) -> list[Piece]:
        """Group checked runs by bands of rows."""
        return band_pieces(runs, self._band_rows, self._row_bytes)

    def read_piece(self, piece: Piece, out: Array, dest: Ints | None) -> None:
        """Read one piece; see :class:`~labeled.formats.rows.RowReader`."""
        begins = self._begins
        runs = begins[piece.parts[:, :2]]
        runs = runs[runs[:, 1] > runs[:, 0]]
        rows = spread(piece.parts[:, 0], piece.parts[:, 1] - piece.parts[:, 0])
        counts = begins[rows + 1] - begins[rows]
        values = np.empty(int(counts.sum()), self._parts["data"].dtype)
        columns = np.empty(len(values), self._parts["indices"].dtype)
        self._parts["data"].read_into(values, runs)
        self._parts["indices"].read_into(columns, runs)
        if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < len(self._places):
            where = f"{describe(self._source)}, rows {piece.start} to {piece.stop - 1}"
            raise ReadError(
                f"{where}: a value lies in column {int(columns.max())} of {len(self._places)} "
                f"('indices'); copy the file again"
            )
        number = np.arange(piece.first, piece.first + piece.n_rows)
        targets = number if dest is None else dest[number]
        places = self._places[columns]
        if self._is_one_to_one:
            out[targets] = 0
            _add(out, np.repeat(targets, counts), places, values)
        else:
            made = np.zeros((piece.n_rows, self._columns.size), out.dtype)
            _add(made, np.repeat(np.arange(piece.n_rows), counts), places, values)
            out[targets] = made[:, self._repeated]

    def cost(self, runs: Ints) -> Cost:
        """Count what reading the values and their columns takes."""
        values = self._begins[runs]
        values = values[values[:, 1] > values[:, 0]]
        taken = self._parts["data"].cost(values) + self._parts["indices"].cost(values)
        return replace(taken, bytes_used=n_rows_of(runs) * self._row_bytes)

    def advise(self, runs: Ints) -> None:
        """Tell the system which values come next."""
        values = self._begins[runs]
        for role in ("data", "indices"):
            self._parts[role].advise(values[values[:, 1] > values[:, 0]])

    def cold(self, row: int) -> bool:
        begins = self._begins
        return bool(begins[row] < begins[row + 1]) and self._parts["data"].cold(int(begins[row]))


def _add(out: Array, at: Ints, places: Ints, values: Array) -> None:
    """Add values at rows and columns, -1 for none; those that come twice add up, as in SciPy."""
    if places.min(initial=0) < 0:
        kept = places >= 0
        at, places, values = at[kept], places[kept], values[kept]
    if out.flags.c_contiguous:  # NumPy adds by one index many times as fast as by two
        width = out.shape[1] if out.ndim > 1 else 1
        np.add.at(out.reshape(-1), at * width + places, values)
    else:
        np.add.at(out, at if out.ndim == 1 else (at, places), values)


def _band_rows(source: SourceHeader, row_bytes: int) -> int:
    """Return how many rows are read at a time: four chunks of values, or as many as pay a call."""
    chunks = source.parts["data"].chunks
    n_values = PIECE_VALUES if chunks is None else max(4 * chunks[0], PIECE_VALUES)
    mean = max(source.parts["data"].n_rows // max(source.n_rows, 1), 1)
    return max(n_values // mean, PIECE_BYTES // row_bytes, 1)
