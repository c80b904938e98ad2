"""Sources as xarray objects: dims, coordinates and attributes around lazy arrays.

Coordinates called like their dim get the index that xarray users expect: `sel`, `groupby`
and `resample` need it. Along the example dim they are read for it only where that is little;
a longer one stays lazy, without an index (``set_xindex`` makes one), and so do all others
along it. They take the same rows as the data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import xarray as xr

from labeled.catalog.lazy import lazy_array
from labeled.catalog.source import Source
from labeled.errors import warn
from labeled.formats.cf import encoding_of
from labeled.selection import Selection

Steps = Sequence[tuple[str, Any]]

Known = dict[tuple[str, str], xr.Variable]
"""Coordinates by their name and rows."""

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
    chunks : Any
        As given when the files were opened.
    """

    source: Source
    rows: Selection
    file_rows: Selection
    coords: Mapping[str, Source]
    steps: Steps
    chunks: Any = "auto"


def data_array(part: Part, known: Known | None = None) -> xr.DataArray:
    """Return a source as a DataArray; dims, attributes and coordinates of the file.

    Coordinates among the `known` are not read again; others are added to them.
    """
    source = part.source
    variable = _lazy_variable(source, part.rows, part.chunks)
    array = xr.DataArray(variable, name=source.name)
    array.encoding = variable.encoding
    return _with_coords(array, _coordinates(part, {} if known is None else known), _is_long(part))


def _lazy_variable(source: Source, rows: Selection, chunks: Any = "auto") -> xr.Variable:
    """Return rows with their dims.

    ``chunks={}`` of xarray keeps the blocks as they are, and `to_netcdf` packs values as the
    files do, if all of them do so alike.
    """
    data = lazy_array(source, rows, chunks)
    blocks = dict(zip(source.dims, data.chunks, strict=True))
    stored = [encoding_of(header.cf, header.dtype) for header in source.headers]
    alike = all(repr(one) == repr(stored[0]) for one in stored)
    encoding = {"preferred_chunks": blocks, **(stored[0] if alike else {})}
    return xr.Variable(source.dims, data, dict(source.attrs), encoding)


def xarray_dataset(
    parts: Mapping[str, Part],
    carried: Mapping[str, Source],
    coordinates: Set[str],
    steps: Steps,
    attrs: Mapping[str, Any],
) -> xr.Dataset:
    """Return sources, their coordinates and variables carried whole as one Dataset.

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
    variables: dict[str, xr.Variable] = {}
    coords: dict[str, xr.Variable] = {}
    indexes: dict[str, Any] = {}
    known: Known = {}
    for name, part in parts.items():
        array = _renamed(data_array(part, known), name, clashing.get(name, set()))
        variables[name] = array.variable
        for coord, values in array.coords.items():
            coords.setdefault(str(coord), values.variable)
        indexes.update(array.xindexes)
    sizes = {dim: n for v in variables.values() for dim, n in v.sizes.items()}
    missing = {name: v for name, v in carried.items() if name not in coords | variables}
    for name, variable in _fitting(missing, sizes, steps).items():
        # a variable called like its dim is made a coordinate, with an index, by xarray
        loose = name in coordinates and variable.dims != (name,)
        (coords if loose else variables)[name] = variable
    together = xr.Coordinates(coords, indexes=indexes)
    return xr.Dataset(variables, coords=together, attrs=dict(attrs))


def _fitting(
    carried: Mapping[str, Source], sizes: Mapping[Any, int], steps: Steps
) -> dict[str, xr.Variable]:
    """Return the carried variables whose dims are as long as they are elsewhere."""
    known, out, left_out = dict(sizes), {}, []
    for name, source in carried.items():
        variable = carried_variable(source, steps)
        if any(known.setdefault(dim, n) != n for dim, n in variable.sizes.items()):
            left_out.append(name)
        else:
            out[name] = variable
    if left_out:
        warn(
            f"variables {left_out} are left out: their dims have other lengths than in the sources"
        )
    return out


def _renamed(array: xr.DataArray, source: str, clashing: set[str]) -> xr.DataArray:
    """Give dims that clash, and coordinates along them, names of this source's own."""
    dims = {dim for dim in array.dims if dim in clashing}
    along = {name for name, coord in array.coords.items() if set(coord.dims) & dims}
    return array.rename({name: f"{source}_{name}" for name in dims | along})


def carried_variable(source: Source, steps: Steps, rows: Selection | None = None) -> xr.Variable:
    """Return a coordinate or a variable without the example dim, its axes cut like the data."""
    if not source.dims:
        return xr.Variable((), source.whole(), dict(source.attrs))
    rows = Selection.all(source.n_rows) if rows is None else rows
    drop = False
    for dim, request in steps:
        if dim == source.dims[0]:
            drop = isinstance(request, int)
            rows = rows[[request] if drop else _listed(request)]
        elif dim in source.dims[1:]:
            source = source.narrow({source.dims[1:].index(dim): _listed(request)})
    variable = _lazy_variable(source, rows)
    return variable.isel({source.dims[0]: 0}) if drop else variable


def carried_array(name: str, variables: Mapping[str, Source], steps: Steps) -> xr.DataArray:
    """Return one of the variables with those that are called like its dims."""
    of_dims = (dim for dim in variables[name].dims if dim in variables)
    coords = {dim: variables[dim] for dim in of_dims if variables[dim].dims == (dim,)}
    return xr.DataArray(
        carried_variable(variables[name], steps),
        {dim: carried_variable(coordinate, steps) for dim, coordinate in coords.items()},
        name=name,
    )


def _coordinates(part: Part, known: Known) -> dict[str, xr.Variable]:
    example, n_file = part.source.file_dims[0], part.file_rows
    out = {}
    for name, source in part.coords.items():
        if source.dims[:1] == (example,):
            n_rows = sum(header.n_rows for header in part.source.headers)
            key = name, n_file.token
            if source.n_rows == n_rows:
                if key not in known:
                    known[key] = carried_variable(source, part.steps, n_file)
                out[name] = known[key]
        else:
            out[name] = carried_variable(source, part.steps)
    return out


def _is_long(part: Part) -> bool:
    """Whether reading the coordinate of the example dim is too much for an index."""
    source = part.coords.get(part.source.file_dims[0])
    if source is None:
        return False
    each = TEXT_BYTES if source.dtype.kind == "O" else source.dtype.itemsize
    return len(part.rows) * each > INDEX_BYTES or len(source.headers) > INDEX_FILES


def _with_coords(
    array: xr.DataArray, coords: Mapping[str, xr.Variable], long: bool
) -> xr.DataArray:
    lazy = {array.dims[0]} if long else set()
    kept = {n: v for n, v in coords.items() if set(v.dims) <= set(array.dims)}
    indexed = {n: v.load() for n, v in kept.items() if v.dims == (n,) and n not in lazy}
    others = {n: v for n, v in kept.items() if n not in indexed}
    array = array.assign_coords(xr.Coordinates(others, indexes={}))
    return array.assign_coords(indexed)


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


def _listed(request: Any) -> Any:
    return list(request) if isinstance(request, tuple) else request
