"""Sources as xarray objects: dims, coordinates and attributes around lazy arrays.

Coordinates called like their dim get the index that xarray users expect: `sel`, `groupby`
and `resample` need it. Along the example dim they are read for it only where that is little;
a longer one stays lazy, without an index (``set_xindex`` makes one), and so do all others
along it. They take the same rows as the data.

Dask blocks of one Dataset are cut at the same places along every dim, as xarray and
``map_blocks`` want it: the source with the largest rows decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

import xarray as xr

from labeled.dataset.dataset import Dataset
from labeled.dataset.joining import Catalog
from labeled.dataset.lazy import BlockLengths, LazyArray, dask_array, warn_of_repeated_decoding
from labeled.errors import warn
from labeled.formats.cf import encoding_of
from labeled.selection import Selection
from labeled.sources.source import Source

Steps = Sequence[tuple[str, Any]]
Named = Mapping[str, LazyArray]

INDEX_BYTES = 8 << 20
"""The most values along the example dim that are read for an index: about a million times."""

INDEX_FILES = 100
"""The most files whose values along the example dim are read for one."""

TEXT_BYTES = 64
"""Taken for the size of a text."""


class Arrays(NamedTuple):
    """What makes a Dataset, before anything is read: `sources`, and what else stands in it."""

    sources: Named
    others: Named
    coords: Set[str]
    """Which of the others are coordinates, besides those called like their dim."""


def to_xarray(dataset: Dataset) -> xr.Dataset:
    """Return dense sources, coordinates and carried variables; see :meth:`Dataset.to_xarray`."""
    return _dataset_of(arrays_of(dataset), dataset.chunks, dataset.attrs)


def data_array(dataset: Dataset, name: str) -> xr.DataArray:
    """Return a dense source as a DataArray; dims, attributes and coordinates of the file."""
    source = dataset._sources[name]
    coords = _coordinates(dataset, dataset.files.catalog, source)
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
    coords = {}
    for dim in variables[name].dims:
        if dim in variables and variables[dim].dims == (dim,):
            coords[dim] = _taken(variables[dim], steps)
    array = {name: _taken(variables[name], steps)}
    return _dataset_of(Arrays(array, coords, coords.keys()), "auto")[name]


def arrays_of(dataset: Dataset) -> Arrays:
    """Return sources, their coordinates and variables carried whole, as one Dataset has them.

    Those carried that the file calls coordinates stay some, though no source has them.
    """
    ragged = [name for name, source in dataset._sources.items() if source.ragged is not None]
    if ragged:
        warn(
            f"ragged sources {ragged} of {dataset.where} are left out of the xarray.Dataset; "
            f"take ds[{ragged[0]!r}].pad() for a dense array, or leave them out with select()"
        )
    catalog, rows, parts = dataset.files.catalog, dataset._rows, {}
    for name, source in dataset._sources.items():
        if source.ragged is None:
            parts[name] = LazyArray(source, rows[name], source.dims)
    clashing = _clashing_dims(parts)
    if clashing:
        dims = sorted(set().union(*clashing.values()))
        warn(
            f"dims {dims} have different lengths in different sources and became "
            f"'<source>_<dim>' in {sorted(clashing)}; give them names of their own with "
            "dims={source: (...)}",
        )
    sources: dict[str, LazyArray] = {}
    others: dict[str, LazyArray] = {}
    for name, part in parts.items():
        renamed = {dim: f"{name}_{dim}" for dim in clashing.get(name, ())}
        sources[name] = _renamed(part, renamed)
        for coord, array in _coordinates(dataset, catalog, part.source).items():
            own = coord if renamed.keys().isdisjoint(array.dims) else f"{name}_{coord}"
            others.setdefault(own, _renamed(array, renamed))
    coords = set(others)
    along = {coord for one in catalog.sources.values() for coord in one.headers[0].coords}
    sizes = {dim: n for a in sources.values() for dim, n in zip(a.dims, a.shape, strict=True)}
    left_out = []
    for name, one in catalog.variables.items():
        if name in along or name in others or name in sources:
            continue
        array = _taken(one, dataset.steps)
        lengths = list(zip(array.dims, array.shape, strict=True))
        if any(sizes.setdefault(dim, n) != n for dim, n in lengths):
            left_out.append(name)
        else:
            others[name] = array
    if left_out:
        warn(
            f"variables {left_out} are left out: their dims have other lengths than in the sources"
        )
    return Arrays(sources, others, coords | (catalog.coordinates & others.keys()))


def _coordinates(dataset: Dataset, catalog: Catalog, source: Source) -> dict[str, LazyArray]:
    """Return the coordinates of a source that have only dims of it, its rows taken of them."""
    example = source.file_dims[0]
    n_rows = sum(header.n_rows for header in source.headers)
    out = {}
    for name in catalog.sources[source.name].headers[0].coords:
        coord = catalog.variables[name]
        along = coord.dims[:1] == (example,)
        if not along or coord.n_rows == n_rows:
            rows = dataset._file_rows(source.name) if along else None
            array = _taken(coord, dataset.steps, rows)
            if {*array.dims} <= {*source.dims}:
                out[name] = array
    return out


def _renamed(array: LazyArray, names: Mapping[str, str]) -> LazyArray:
    return replace(array, dims=tuple(names.get(dim, dim) for dim in array.dims))


def _taken(source: Source, steps: Steps, rows: Selection | None = None) -> LazyArray:
    """Return a coordinate or a variable without the example dim, its axes cut like the data."""
    if not source.dims:
        return LazyArray(source, Selection.all(0), ())
    rows = Selection.all(source.n_rows) if rows is None else rows
    one = False
    for dim, request in steps:
        wanted = list(request) if isinstance(request, tuple) else request
        if dim == source.dims[0]:
            one = isinstance(request, int)
            rows = rows[[request] if one else wanted]
        elif dim in source.dims[1:]:
            source = source.narrow({source.dims[1:].index(dim): wanted})
    return LazyArray(source, rows, source.dims[one:])


def _dataset_of(arrays: Arrays, chunks: Any, attrs: Mapping[str, Any] | None = None) -> xr.Dataset:
    """Return a Dataset of dask arrays; variables called like their dim are read for an index."""
    everything = {**arrays.others, **arrays.sources}
    blocks = _aligned_blocks(arrays, chunks)
    examples = {array.dims[0] for array in arrays.sources.values() if array.dims}
    data, coords, indexed = {}, {}, {}
    for name, array in everything.items():
        of_dim = array.dims == (name,)
        if of_dim and not (name in examples and _is_long(array)):
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
    alike = all(repr(one) == repr(stored[0]) for one in stored)
    encoding = stored[0] if alike else {}
    attrs = dict(array.source.attrs)
    if blocks is None or not array.dims:
        return xr.Variable(array.dims, array.read(), attrs, encoding)
    lengths = tuple(blocks[each] for each in zip(array.dims, array.shape, strict=True))
    encoding = {"preferred_chunks": dict(zip(array.dims, lengths, strict=True)), **encoding}
    return xr.Variable(array.dims, dask_array(array, lengths), attrs, encoding)


def _aligned_blocks(arrays: Arrays, chunks: Any) -> dict[tuple[str, int], tuple[int, ...]]:
    """Decide the lengths of blocks along each dim: those of the source with the largest rows."""
    found: dict[tuple[str, int], tuple[int, ...]] = {}

    def known(array: LazyArray, lengths: BlockLengths) -> None:
        for dim, n, axis in zip(array.dims, array.shape, lengths, strict=True):
            found.setdefault((dim, n), axis)

    def from_the_largest(named: Named) -> list[LazyArray]:
        return sorted(named.values(), key=lambda array: -array.source.row_bytes)

    for array in from_the_largest(arrays.sources):
        lengths = array.blocks(chunks)
        warn_of_repeated_decoding(array, lengths)
        known(array, lengths)
    for array in from_the_largest(arrays.others):
        shape = zip(array.dims, array.shape, strict=True)
        own = array.source.dims[-len(array.dims) :]
        asked = {dim: found.get(each, "auto") for dim, each in zip(own, shape, strict=False)}
        known(array, array.blocks(asked))
    return found


def _is_long(array: LazyArray) -> bool:
    """Whether reading the coordinate of the example dim is too much for an index."""
    each = TEXT_BYTES if array.dtype.kind == "O" else array.dtype.itemsize
    too_many = len(array.source.headers) > INDEX_FILES
    return len(array.rows) * each > INDEX_BYTES or too_many


def _clashing_dims(parts: Named) -> dict[str, set[str]]:
    """Return the dims to rename, by source: those that are as long as no source before it."""
    lengths: dict[str, int] = {}
    clashing: dict[str, set[str]] = {}
    for name, part in parts.items():
        for dim, length in zip(part.dims, part.shape, strict=True):
            if lengths.setdefault(dim, length) != length:
                clashing.setdefault(name, set()).add(dim)
    return clashing
