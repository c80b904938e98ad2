"""Sources as xarray objects: dims, coordinates and attributes around lazy arrays.

A :class:`LazyArray` holds rows of a source and reads what it is indexed with. xarray wraps it
for ``engine="labeled"``, and every block of a dask array is one. A dask array is one blockwise
layer: block number -> the rows of that block -> one read by dask's own `getter`, so that slices
are joined with the reading. A permuted selection of n blocks is n tasks; slicing with dask would
build a graph the size of its blocks instead, so a new selection always rebuilds the layer.

Blocks begin and end where stored chunks do, as far as a selection allows, so that computing
block by block decodes each chunk once; and there are never so many that their graph is slow.
Those of one Dataset are cut at the same places along every dim, as xarray and ``map_blocks`` want
it: the source with the largest rows decides.

Coordinates called like their dim get the index that xarray users expect: `sel`, `groupby`
and `resample` need it. Along the example dim they are read for it only where that is little;
a longer one stays lazy, without an index (``set_xindex`` makes one), and so do all others
along it. They take the same rows as the data.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, NamedTuple

import dask
import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.base import tokenize
from dask.blockwise import BlockwiseDep, blockwise
from dask.highlevelgraph import HighLevelGraph
from dask.utils import parse_bytes
from xarray.backends import BackendArray
from xarray.core.indexing import ExplicitIndexer, IndexingSupport, explicit_indexing_adapter

from labeled.dataset.dataset import Dataset, Steps
from labeled.errors import DimsError, warn
from labeled.formats.cf import encoding_of
from labeled.formats.reader import read_rows
from labeled.selection import Selection
from labeled.sources.readers import BLOCK_BYTES
from labeled.sources.source import Source, enough_memory

MAX_BLOCKS = 10_000  # blocks an array is cut into at most, unless chunks are given outright

# the most values along the example dim that are read for an index: about a million times
INDEX_BYTES = 8 << 20

INDEX_FILES = 100  # the most files whose values along the example dim are read for one

TEXT_BYTES = 64  # taken for the size of a text

# the lengths of blocks, one after another, along each axis
BlockLengths = tuple[tuple[int, ...], ...]


# ---------------------------------------------------------------- lazy arrays and their blocks
@dataclass(frozen=True, eq=False)
class LazyArray(BackendArray):
    """Rows of a source under the names of their dims, read where they are indexed.

    It holds no handle, so that it pickles, and may be read by several threads at a time.

    Parameters
    ----------
    source : Source
        A variable without axes has no rows.
    rows : Selection
    dims : tuple of str
        One name an axis. Without a name for the rows there is one row, and no axis for it.
    """

    source: Source
    rows: Selection
    dims: tuple[str, ...]

    @property
    def has_rows(self) -> bool:
        """Whether the first axis is that of the rows."""
        return len(self.dims) > len(self.source.row_shape) and bool(self.source.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        if not self.source.dims:
            return ()
        return (len(self.rows), *self.source.row_shape)[not self.has_rows :]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.source.dtype

    def __getitem__(self, key: ExplicitIndexer | tuple[Any, ...]) -> Any:
        """Read what is asked, one request for each axis as xarray's outer indexing takes them."""
        if isinstance(key, ExplicitIndexer):
            return explicit_indexing_adapter(key, self.shape, IndexingSupport.OUTER, self._read)
        return self._read(key)

    def _read(self, index: tuple[Any, ...]) -> Any:
        if not self.source.dims:
            return self.source.whole()
        one, *inner = index if self.has_rows else (0, *index)
        rows = [one] if isinstance(one, int | np.integer) else one
        read = read_block(self.source.narrow(dict(enumerate(inner))), self.rows[rows])
        return read if rows is one else read[0]

    @property
    def lengths(self) -> list[tuple[str, int]]:
        """Each dim with its length."""
        return list(zip(self.dims, self.shape, strict=True))

    def blocks(self, chunks: Any) -> BlockLengths:
        """Decide the lengths of blocks along each axis; see :func:`block_shapes`."""
        if not self.dims:
            return ()
        return block_shapes(self.source, self.rows, chunks)[not self.has_rows :]

    def renamed(self, names: Mapping[str, str]) -> LazyArray:
        return replace(self, dims=tuple(names.get(dim, dim) for dim in self.dims))


class Blocks(BlockwiseDep):
    """The blocks of a lazy array by their numbers."""

    produces_tasks = False

    def __init__(self, array: LazyArray, chunks: BlockLengths) -> None:
        self.array = array
        self.chunks = chunks
        self.numblocks = tuple(len(axis) for axis in chunks)
        self._edges = tuple(np.cumsum([0, *axis]) for axis in chunks)

    def __getitem__(self, block: tuple[int, ...]) -> LazyArray:
        edges, whole = zip(self._edges, block, strict=True), self.array
        axes = [slice(int(e[n]), int(e[n + 1]), 1) for e, n in edges]
        first, *inner = axes if whole.has_rows else (slice(None), *axes)
        # what travels with its task
        source, rows = whole.source.narrow(dict(enumerate(inner))).around(whole.rows[first])
        return replace(whole, source=source, rows=rows)

    def __dask_tokenize__(self) -> tuple[str, str, Any]:
        return self.array.source.token, self.array.rows.token, self.chunks


def read_block(source: Source, selection: Selection) -> npt.NDArray[Any]:
    """Read the decoded rows of a selection.

    Raises
    ------
    UnsafeFileError
        If they are out of all proportion to what the file stores.
    RowsMemoryError
        If memory does not suffice for them.
    """
    source, selection = source.around(selection)
    source.check_claim(len(selection))
    rows = selection.rows if selection.span is None else selection.span
    with enough_memory(source, selection):
        return source.decode(read_rows(source.reader(), rows))


def dask_array(array: LazyArray, blocks: BlockLengths) -> Any:
    """Return a lazy array as a dask array of blocks of these lengths, NumPy arrays each.

    Memory is taken, and claims of the file are checked, block by block.

    Raises
    ------
    FileFormatError
        If the source reaches past the end of its file.
    """
    from dask.array.core import Array, getter  # takes long to import, and not every program asks

    source = array.source
    source.check_claim(0)
    name = f"read-{source.name.rpartition('/')[2]}-{tokenize(source, array.rows.token, blocks)}"
    axes = "".join(chr(97 + axis) for axis in range(len(blocks)))
    every = (slice(None),) * len(blocks)
    layer = blockwise(getter, name, axes, Blocks(array, blocks), axes, every, None, numblocks={})
    graph = HighLevelGraph.from_collections(name, layer, dependencies=[])
    meta = np.empty((0,) * len(blocks), source.dtype)
    return Array(graph, name, chunks=blocks, meta=meta, shape=array.shape)


def block_shapes(source: Source, selection: Selection, chunks: Any) -> BlockLengths:
    """Decide the lengths of blocks along each axis, rows first.

    Parameters
    ----------
    source : Source
    selection : Selection
        Rows, in the order wanted.
    chunks : "auto", int, tuple, dict by dim, or None
        As dask takes them; "auto" gives whole multiples of the stored chunks where
        the selection allows, of about 16 MiB each: smaller where dask's ``array.chunk-size``
        is, larger where there would be more than 10,000 of them.

    Raises
    ------
    DimsError
        If `chunks` do not fit the source.
    """
    from dask.array.core import normalize_chunks

    shape, dims = (len(selection), *source.row_shape), source.dims
    if isinstance(chunks, tuple | list):
        wanted = tuple(chunks)
    else:
        given = chunks if isinstance(chunks, dict) else {dims[0]: -1 if chunks is None else chunks}
        rest = "auto" if isinstance(chunks, str) and chunks == "auto" else -1
        wanted = (given.get(dims[0], "auto"), *[given.get(dim, rest) for dim in dims[1:]])
    auto = [axis for axis, each in enumerate(wanted) if isinstance(each, str) and each == "auto"]
    try:
        asked = tuple(-1 if axis in auto else each for axis, each in enumerate(wanted))
        sizes = list(normalize_chunks(asked, shape, dtype=source.dtype))
        if any(length < 0 for each in sizes for length in each):
            raise ValueError("lengths are at least 1, or -1 for the whole dim")
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise DimsError(
            f"chunks={wanted} do not fit {source.where}, whose dims are "
            f"{dict(zip(dims, shape, strict=True))}: {error}; pass chunks={{dim: length}}"
        ) from None
    stored = stored_along(source)
    lengths = [stored[axis] if axis in auto else max(each) for axis, each in enumerate(sizes)]
    limit = min(BLOCK_BYTES, int(parse_bytes(dask.config.get("array.chunk-size"))))
    limit //= TEXT_BYTES if source.dtype.kind in "OT" else max(1, source.dtype.itemsize)
    for axis in reversed(auto):  # as many stored chunks as fit, the last axis first
        n, fitting = shape[axis], limit // max(1, math.prod(lengths))
        lengths[axis] = max(1, min(n, stored[axis] * max(1, fitting)))
        if axis == 0:
            across = math.prod([len(each) for each in sizes[1:]])
            rows = max(lengths[0], -(-n * across // MAX_BLOCKS))
            sizes[0] = aligned(source, selection, rows + -rows % stored[0])
        else:
            (sizes[axis],) = normalize_chunks((lengths[axis],), (n,))
    return tuple(sizes)


def aligned(source: Source, selection: Selection, block_rows: int) -> tuple[int, ...]:
    """Cut rows into blocks that begin where stored chunks begin, where they are a range."""
    n, span, first = len(selection), selection.span, block_rows
    if span is not None and span.step == 1 and len(source.headers) <= 1:
        first = block_rows - span.start % stored_along(source)[0]
    if first >= n:
        return (n,)
    full, rest = divmod(n - first, block_rows)
    return (first, *(block_rows,) * full, *((rest,) if rest else ()))


def stored_rows(source: Source, selection: Selection) -> int | tuple[int, ...]:
    """Return how many rows lie in a stored chunk, or in as many as MAX_BLOCKS blocks allow.

    Of a selection that does not begin with a chunk, or of several files, the lengths of all
    blocks.
    """
    chunk = stored_along(source)[0]
    rows = chunk * max(1, -(-len(selection) // (chunk * MAX_BLOCKS)))
    lengths = aligned(source, selection, rows)
    return rows if len(lengths) < 2 or lengths[0] == rows else lengths


def along_dims(
    arrays: Iterable[LazyArray], decide: Callable[[LazyArray], Iterable[Any]]
) -> dict[tuple[str, int], Any]:
    """Return what arrays decide for each dim and length; the one with the largest rows wins."""
    found: dict[tuple[str, int], Any] = {}
    for array in sorted(arrays, key=lambda one: -one.source.row_bytes):
        for at, decided in zip(array.lengths, decide(array), strict=True):
            found.setdefault(at, decided)
    return found


def stored_along(source: Source) -> tuple[int, ...]:
    """Stored chunk lengths along the axes that are left (1 where data are contiguous)."""
    stored = source.stored_chunks
    if stored is None:
        return (1, *source.row_shape)
    taken = zip(stored[1:], source.region, strict=True)
    kept = [n for n, part in taken if not isinstance(part, int)]
    sizes = zip(kept, source.row_shape, strict=True)
    return (stored[0], *(max(1, min(each)) for each in sizes))


def _start_dask_afresh() -> None:
    """Let dask start threads in a forked child: it would wait for its parent's for ever."""
    threaded: Any = sys.modules.get("dask.threaded")
    if hasattr(threaded, "default_pool") and hasattr(threaded, "pools"):
        threaded.default_pool, threaded.pools_lock = None, Lock()
        threaded.pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_dask_afresh)


# ---------------------------------------------------------------- datasets and coordinates
class Arrays(NamedTuple):
    """What makes a Dataset, before anything is read: `sources`, and what else stands in it."""

    sources: Mapping[str, LazyArray]
    others: Mapping[str, LazyArray]
    coords: Set[str]  # which of the others are coordinates, besides those called like their dim


def to_xarray(dataset: Dataset) -> xr.Dataset:
    """Return dense sources, coordinates and carried variables; see :meth:`Dataset.to_xarray`."""
    return _dataset_of(arrays_of(dataset), dataset.chunks, dataset.attrs)


def data_array(dataset: Dataset, name: str) -> xr.DataArray:
    """Return a dense source as a DataArray; dims, attributes and coordinates of the file."""
    source = dataset._sources[name]
    coords = _coordinates(dataset, source)
    arrays = {name: LazyArray(source, dataset.selection(name), source.dims)}
    return _dataset_of(Arrays(arrays, coords, coords.keys()), dataset.chunks)[name]


def variable(dataset: Dataset, name: str) -> xr.DataArray:
    """Return what comes along with sources: a coordinate, or what has no example dim.

    Of the latter, those that are called like its dims come along with it.
    """
    catalog, steps = dataset.files.catalog, dataset.steps
    variables = catalog.variables
    for source in dataset.sources:
        coords_of = catalog.sources[source].headers[0].coords
        if name in coords_of and name in dataset[source].coords:
            found: xr.DataArray = dataset[source].coords[name]
            return found
    of_dims = [dim for dim in variables[name].dims if dim in variables]
    names = [name, *(dim for dim in of_dims if variables[dim].dims == (dim,))]
    along = {one: _carried(dataset, variables[one]) for one in names}
    arrays = {one: array for one, array in along.items() if array is not None}
    if len(arrays) < len(along):  # as the first file has it
        arrays = {one: _taken(variables[one], steps) for one in names}
    coords = {one: arrays[one] for one in names[1:]}
    return _dataset_of(Arrays({name: arrays[name]}, coords, coords.keys()), "auto")[name]


def arrays_of(dataset: Dataset) -> Arrays:
    """Return sources, their coordinates and variables carried whole, as one Dataset has them.

    A dim that is longer or shorter than in a source before gets another name. Variables that the
    file calls coordinates stay some, though no source has them.
    """
    catalog, rows = dataset.files.catalog, dataset._rows
    ragged = [name for name, source in dataset._sources.items() if source.ragged is not None]
    if ragged:
        warn(
            f"ragged sources {ragged} of {dataset.where} are left out of the xarray.Dataset; "
            f"take ds[{ragged[0]!r}].pad() for a dense array, or leave them out with select()"
        )
    sources: dict[str, LazyArray] = {}
    others: dict[str, LazyArray] = {}
    sizes: dict[str, int] = {}
    clashing: dict[str, set[str]] = {}
    for name, source in dataset._sources.items():
        if source.ragged is not None:
            continue
        array = LazyArray(source, rows[name], source.dims)
        odd = {dim for dim, n in array.lengths if sizes.setdefault(dim, n) != n}
        renamed = {dim: f"{name}_{dim}".replace("/", "_") for dim in odd}  # for netCDF
        clashing |= {name: odd} if odd else {}
        sources[name] = array.renamed(renamed)
        for coord, along in _coordinates(dataset, source).items():
            own = coord if odd.isdisjoint(along.dims) else f"{name}_{coord}"
            if own not in others or not others[own].dims:  # of one position in other sources
                others[own] = along.renamed(renamed)
    if clashing:
        warn(
            f"dims {sorted(set().union(*clashing.values()))} have different lengths in different "
            f"sources and became '<source>_<dim>' in {sorted(clashing)}; name them with dims="
        )
    coords, left_out = set(others), []
    known = {coord for one in catalog.sources.values() for coord in one.headers[0].coords}
    for name, one in catalog.variables.items():
        if name not in known | others.keys() | sources.keys():
            found = _carried(dataset, one)
            if found is None or any(sizes.setdefault(dim, n) != n for dim, n in found.lengths):
                left_out.append(name)
            else:
                others[name] = found
    if left_out:
        warn(f"variables {left_out} are left out: their dims have other lengths than in sources")
    return Arrays(sources, others, coords | (catalog.headers[0].coordinates & others.keys()))


def _coordinates(dataset: Dataset, source: Source) -> dict[str, LazyArray]:
    """Return the coordinates of a source that have only dims of it, its rows taken of them."""
    catalog, out = dataset.files.catalog, {}
    rows = {source.file_dims[0]: dataset._file_rows[source.name]}
    for name in catalog.sources[source.name].headers[0].coords:
        coord = catalog.variables[name]
        if _is_as_long(coord, source):
            array = _taken(coord, dataset.steps, rows)
            if {*array.dims} <= {*source.dims}:
                out[name] = array
    return out


def _carried(dataset: Dataset, variable: Source) -> LazyArray | None:
    """Return a variable that no source names; along example dims it has the rows of sources.

    None where it is longer or shorter than these.
    """
    along = {n: one for n, one in dataset._sources.items() if one.file_dims[0] in variable.dims}
    fitting = {n: one for n, one in along.items() if _is_as_long(variable, one)}
    rows = {one.file_dims[0]: dataset._file_rows[name] for name, one in fitting.items()}
    if not rows.keys() >= {one.file_dims[0] for one in along.values()}:
        return None
    return _taken(variable, dataset.steps, rows)


def _is_as_long(variable: Source, source: Source) -> bool:
    """Whether a variable has as many rows as a source along its example dim, or not that dim."""
    n_rows = sum(header.n_rows for header in source.headers)
    lengths = zip(variable.dims, (variable.n_rows, *variable.row_shape), strict=False)
    return dict(lengths).get(source.file_dims[0], n_rows) == n_rows


def _taken(source: Source, steps: Steps, rows: Mapping[str, Selection] | None = None) -> LazyArray:
    """Return a coordinate or a variable, cut like the data: along some dims by rows of sources."""
    rows, first = {} if rows is None else rows, source.dims[:1]
    mine, one = Selection.all(source.n_rows), False
    for dim, request in steps:
        if dim not in rows:
            if first == (dim,):
                one = isinstance(request, int)
                listed = list(request) if isinstance(request, tuple) else request
                mine = mine[[request] if one else listed]
            source = source.isel(dim, request)
    for dim, chosen in rows.items():
        mine = chosen if first == (dim,) else mine
        source = source.isel(dim, chosen.compact) if dim in source.dims[1:] else source
    return LazyArray(source, mine, source.dims[one:])


def _dataset_of(arrays: Arrays, chunks: Any, attrs: Mapping[str, Any] | None = None) -> xr.Dataset:
    """Return a Dataset of dask arrays; variables called like their dim are read for an index.

    Along the example dim they are read only where that is little. Along each dim blocks are those
    of the source with the largest rows.
    """
    blocks = along_dims(arrays.sources.values(), lambda one: one.blocks(chunks))

    def follow(array: LazyArray) -> BlockLengths:
        own = zip(array.source.dims[-len(array.dims) :], array.lengths, strict=False)
        return array.blocks({dim: blocks.get(at, "auto") for dim, at in own})

    blocks = along_dims(arrays.others.values(), follow) | blocks
    examples = {array.dims[0] for array in arrays.sources.values() if array.dims}
    data, coords, indexed = {}, {}, {}
    for name, array in {**arrays.others, **arrays.sources}.items():
        of_dim = array.dims == (name,)
        each = TEXT_BYTES if array.dtype.kind == "O" else array.dtype.itemsize
        n_bytes, n_files = len(array.rows) * each, len(array.source.headers)
        long = name in examples and (n_bytes > INDEX_BYTES or n_files > INDEX_FILES)
        if of_dim and not long:
            indexed[name] = _variable(array, None)
        elif of_dim or name in arrays.coords:
            coords[name] = _variable(array, blocks)
        else:
            data[name] = _variable(array, blocks)
    dataset = xr.Dataset(data, xr.Coordinates(coords, indexes={}), attrs)
    return dataset.assign_coords(indexed)


def _variable(array: LazyArray, blocks: Mapping[tuple[str, int], Any] | None) -> xr.Variable:
    """Return a variable of dask blocks by (dim, length); read now without them, or without axes.

    ``chunks={}`` of xarray keeps the blocks as they are, and `to_netcdf` packs values as the
    files do, if all of them do so alike.
    """
    stored = [encoding_of(header.cf, header.dtype) for header in array.source.headers]
    encoding = stored[0] if all(repr(one) == repr(stored[0]) for one in stored) else {}
    attrs = dict(array.source.attrs)
    if blocks is None or not array.dims:
        return xr.Variable(array.dims, array[(slice(None),) * len(array.dims)], attrs, encoding)
    lengths = tuple(blocks[at] for at in array.lengths)
    encoding = {"preferred_chunks": dict(zip(array.dims, lengths, strict=True)), **encoding}
    return xr.Variable(array.dims, dask_array(array, lengths), attrs, encoding)
