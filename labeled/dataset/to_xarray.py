"""Sources as xarray objects: dims, coordinates and attributes around lazy arrays.

Coordinates called like their dim get the index that xarray users expect: `sel`, `groupby`
and `resample` need it. Along the example dim they are read for it only where that is little;
a longer one stays lazy, without an index (``set_xindex`` makes one), and so do all others
along it. They take the same rows as the data.

Dask blocks of one Dataset are cut at the same places along every dim, as xarray and
``map_blocks`` want it: the source with the largest rows decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import xarray as xr

from labeled.dataset.chunking import BlockLengths
from labeled.dataset.lazy import LazyArray, dask_array, warn_of_repeated_decoding
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


@dataclass(frozen=True, eq=False)
class Part:
    """One source as a dataset holds it: what to read, and what goes along.

    Parameters
    ----------
    source : Source
        Parts of axes already taken.
    rows : Selection
        Rows to read from `source`.
    file_rows : Selection
        The same rows as the file numbers them, for coordinates along the example dim.
    coords : mapping of str to Source
        Coordinates of this source, whole.
    steps : sequence of (dim, request)
        The ``isel`` calls that made `source`; coordinates follow them.
    """

    source: Source
    rows: Selection
    file_rows: Selection
    coords: Mapping[str, Source]
    steps: Steps

    @property
    def array(self) -> LazyArray:
        return LazyArray(self.source, self.rows, self.source.dims)

    def coordinates(self) -> dict[str, LazyArray]:
        """Return the coordinates that have only dims of the source."""
        example = self.source.file_dims[0]
        n_rows = sum(header.n_rows for header in self.source.headers)
        out = {}
        for name, source in self.coords.items():
            along = source.dims[:1] == (example,)
            if not along or source.n_rows == n_rows:
                out[name] = taken(source, self.steps, self.file_rows if along else None)
        return {name: each for name, each in out.items() if {*each.dims} <= {*self.source.dims}}


class Arrays(NamedTuple):
    """What makes a Dataset, before anything is read: `sources`, and what else stands in it."""

    sources: Named
    others: Named
    coords: Set[str]
    """Which of the others are coordinates, besides those called like their dim."""


def data_array(part: Part, chunks: Any) -> xr.DataArray:
    """Return a source as a DataArray; dims, attributes and coordinates of the file."""
    name, coords = part.source.name, part.coordinates()
    return dask_dataset(Arrays({name: part.array}, coords, coords.keys()), chunks)[name]


def carried_array(name: str, variables: Mapping[str, Source], steps: Steps) -> xr.DataArray:
    """Return one of the variables with those that are called like its dims."""
    of_dims = (dim for dim in variables[name].dims if dim in variables)
    coords = {dim: taken(variables[dim], steps) for dim in of_dims if variables[dim].dims == (dim,)}
    array = taken(variables[name], steps)
    return dask_dataset(Arrays({name: array}, coords, coords.keys()), "auto")[name]


def arrays_of(
    parts: Mapping[str, Part],
    carried: Mapping[str, Source],
    coordinates: Set[str],
    steps: Steps,
) -> Arrays:
    """Return sources, their coordinates and variables carried whole, as one Dataset has them.

    Those of `carried` that are among `coordinates` stay coordinates, though no source has them.
    """
    clashing = _clashing_dims(parts)
    if clashing:
        dims = sorted(set().union(*clashing.values()))
        warn(
            f"dims {dims} have different lengths in different sources and became "
            "'<source>_<dim>' where they are not the most common; give them names of their own "
            "with dims={source: (...)}",
        )
    sources: dict[str, LazyArray] = {}
    coords: dict[str, LazyArray] = {}
    for name, part in parts.items():
        renamed = {dim: f"{name}_{dim}" for dim in clashing.get(name, ())}
        sources[name] = _renamed(part.array, renamed)
        for coord, array in part.coordinates().items():
            own = coord if renamed.keys().isdisjoint(array.dims) else f"{name}_{coord}"
            coords.setdefault(own, _renamed(array, renamed))
    sizes = {dim: n for a in sources.values() for dim, n in zip(a.dims, a.shape, strict=True)}
    missing = {name: each for name, each in carried.items() if name not in coords.keys() | sources}
    others = coords | _fitting(missing, sizes, steps)
    return Arrays(sources, others, coords.keys() | (coordinates & others.keys()))


def _renamed(array: LazyArray, names: Mapping[str, str]) -> LazyArray:
    return replace(array, dims=tuple(names.get(dim, dim) for dim in array.dims))


def _fitting(
    carried: Mapping[str, Source], sizes: Mapping[Any, int], steps: Steps
) -> dict[str, LazyArray]:
    """Return the carried variables whose dims are as long as they are elsewhere."""
    known, out, left_out = dict(sizes), {}, []
    for name, source in carried.items():
        array = taken(source, steps)
        lengths = zip(array.dims, array.shape, strict=True)
        if any(known.setdefault(dim, n) != n for dim, n in lengths):
            left_out.append(name)
        else:
            out[name] = array
    if left_out:
        warn(
            f"variables {left_out} are left out: their dims have other lengths than in the sources"
        )
    return out


def taken(source: Source, steps: Steps, rows: Selection | None = None) -> LazyArray:
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


def dask_dataset(arrays: Arrays, chunks: Any, attrs: Mapping[str, Any] | None = None) -> xr.Dataset:
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

    for array in sorted(arrays.sources.values(), key=_row_bytes, reverse=True):
        lengths = array.blocks(chunks)
        warn_of_repeated_decoding(array, lengths)
        known(array, lengths)
    for array in sorted(arrays.others.values(), key=_row_bytes, reverse=True):
        shape = zip(array.dims, array.shape, strict=True)
        own = array.source.dims[-len(array.dims) :]
        asked = {dim: found.get(each, "auto") for dim, each in zip(own, shape, strict=False)}
        known(array, array.blocks(asked))
    return found


def _row_bytes(array: LazyArray) -> int:
    return array.source.row_bytes


def _is_long(array: LazyArray) -> bool:
    """Whether reading the coordinate of the example dim is too much for an index."""
    each = TEXT_BYTES if array.dtype.kind == "O" else array.dtype.itemsize
    too_many = len(array.source.headers) > INDEX_FILES
    return len(array.rows) * each > INDEX_BYTES or too_many


def _clashing_dims(parts: Mapping[str, Part]) -> dict[str, set[str]]:
    """Return the dims to rename, by source: those whose length is not the one most sources have.

    Where no length is the most common one, every source gets a name of its own.
    """
    lengths: dict[str, dict[str, int]] = {}
    for name, part in parts.items():
        shape = (len(part.rows), *part.source.row_shape)
        for dim, length in zip(part.source.dims, shape, strict=True):
            lengths.setdefault(dim, {})[name] = length
    clashing: dict[str, set[str]] = {}
    for dim, by_source in lengths.items():
        kept = _most_common(by_source.values())
        for name, length in by_source.items():
            if length != kept:
                clashing.setdefault(name, set()).add(dim)
    return clashing


def _most_common(lengths: Iterable[int]) -> int | None:
    """Return the value that occurs most often; None where two occur equally often."""
    (most, count), *others = Counter(lengths).most_common(2)
    return None if others and others[0][1] == count else most
