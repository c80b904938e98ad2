"""Files without a split table: plain HDF5, and netCDF-4 style with dimension scales.

Every dataset that holds numbers or strings along at least one axis is a source, called by
its path, and so is each column of a table (see :mod:`.columns`); one split, ``"all"``, has
all rows of each. What is not opened is listed with the reason.

Scales make a file netCDF-4 style. Then the example dim is the one asked for, else the only
unlimited one, else axis 0 of each variable; coordinate variables, and variables without
the example dim, are carried whole. A variable stored with fewer rows than its dim has is
read with the rows it has, where netCDF would pad it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import h5py

from labeled.errors import (
    DimsError,
    FileFormatError,
    UnknownNameError,
    UnsafeFileError,
    did_you_mean,
    listed,
)
from labeled.formats.cf import cf_of, named_coordinates, with_bounds_units
from labeled.formats.hdf5.contents import Contents, contents_of, leave_out
from labeled.formats.hdf5.groups import told_of_datasets, told_of_groups
from labeled.formats.hdf5.labels import Scale, default_name
from labeled.formats.hdf5.safety import Found, GoneError, address
from labeled.formats.hdf5.sources import Builder, with_cf
from labeled.formats.header import ALL, FileHeader, SourceHeader, fingerprint

MOST_NAMED = 4
"""Datasets left out that a note names."""


def scan_tableless(
    builder: Builder,
    *,
    wanted: Sequence[str] | None = None,
    example_dim: str | None = None,
    decode_cf: bool = True,
) -> FileHeader:
    """Describe every dataset below the builder's group.

    Raises
    ------
    UnknownNameError
        If a source, or the example dim, is not there; or `dims` names no dataset.
    UnsafeFileError
        If a source asked for, or every one there is, lies outside the file.
    """
    contents = contents_of(builder, wanted)
    builder.scalar_attrs = contents.kind == "netcdf"
    described = _describe(builder, contents, wanted)
    _check_given_dims(builder, described)
    chosen = _example_dim(builder, contents, described, example_dim, wanted)
    named = _named(builder, contents, described)
    sources = _sources(builder, contents, described, named, chosen)
    _check_wanted(builder, contents, sources, wanted)
    _tell_what_is_left_out(builder, contents, sources)
    if wanted is not None:
        sources = {name: sources[name] for name in wanted}
    builder.notes.unnamed = {n: a for n, a in builder.notes.unnamed.items() if n in sources}
    if not builder.in_turn and wanted is None:
        unnamed = builder.notes.unnamed.items()  # an axis 0 that has a name counts examples
        whole = {name: sources[name] for name, each in unnamed if 0 in each.axes}
        builder.notes.alike = told_of_groups(sources) or told_of_datasets(whole)
    headers = builder.with_coordinates(sources)
    _add_loose_scales(builder, contents)
    coordinates = _coordinate_names(builder, contents, named)
    headers = {name: _with_shared(each, coordinates) for name, each in headers.items()}
    headers, variables = _finished(builder, headers, contents.kind == "netcdf", decode_cf)
    structure = {"coordinates"} if contents.kind == "netcdf" else set()
    along = {key for key, each in variables.items() if each.key in contents.along.values()}
    splits = {ALL: {name: range(each.n_rows) for name, each in headers.items()}}
    return FileHeader(
        stamp=builder.stamp,
        fingerprint=fingerprint(headers, splits),
        attrs=builder.attrs_of(builder.base, "the file", structure),
        sources=headers,
        variables=variables,
        splits=splits,
        not_opened=contents.not_opened,
        example_dim=chosen,
        kind=contents.kind,
        coordinates=frozenset(along.union(coordinates)),
    )


def _named(
    builder: Builder, contents: Contents, described: Mapping[str, SourceHeader]
) -> frozenset[str]:
    """Return the variables that are coordinates: told to be, or called like a dim.

    In a group below, a variable called like a dim is one only where it is the dim's scale: the
    column `obs/batch` of a table is no coordinate of the dim `batch` of all files.
    """
    if contents.kind == "plain":
        return frozenset()
    told = named_coordinates([each.attrs for each in described.values()])
    told |= named_coordinates([builder.attrs_of(builder.base, "the file")])
    dims = {dim for each in described.values() for dim in each.dims}
    return frozenset(
        name for name in described if name in told | dims or name.rsplit("/", 1)[-1] in told
    )


def _sources(
    builder: Builder,
    contents: Contents,
    described: Mapping[str, SourceHeader],
    named: frozenset[str],
    example_dim: str | None,
) -> dict[str, SourceHeader]:
    """Return the sources; put aside variables, and tell why the rest is neither."""
    sources: dict[str, SourceHeader] = {}
    for name, each in described.items():
        place = _place(each, named, example_dim, contents)
        if place == "source":
            sources[name] = each
        elif place == "variable" and each.ragged is not None:
            contents.not_opened[name] = f"it is no source, and ragged: {each.ragged}"
        elif place == "variable":
            builder.variables[name] = each
        else:
            contents.not_opened[name] = place
    return sources


def _tell_what_is_left_out(
    builder: Builder, contents: Contents, sources: Mapping[str, SourceHeader]
) -> None:
    """Note what cannot be opened, the first with the reason; refuse a file without others."""
    if not contents.left_out:
        return
    names, error = [*contents.left_out], next(iter(contents.left_out.values()))
    if not sources:
        raise error
    builder.notes.odd.append(f"it opens without {listed(names, MOST_NAMED)}: {error}")


def _describe(
    builder: Builder, contents: Contents, wanted: Sequence[str] | None
) -> dict[str, SourceHeader]:
    described: dict[str, SourceHeader] = {}
    for name, found in contents.datasets.items():
        if found.thing.shape == () and contents.kind == "plain":
            contents.not_opened[name] = "it is a single value (no axis)"
            continue
        try:
            own = contents.axes and found.column is None
            told = contents.axes.get(address(found.thing), ()) if own else ()
            described[name] = builder.describe(name, found, told=told)
        except (UnsafeFileError, DimsError, GoneError) as error:
            if name in builder.given_dims or name in (wanted or ()):
                raise
            leave_out(contents, name, error, wanted)
        except FileFormatError as error:  # it contradicts itself
            if wanted is None or name in wanted:
                raise
            contents.not_opened[name] = str(error)
    for name, matrix in contents.matrices.items():
        described[name] = builder.matrix(name, matrix, contents.matrix_axes.get(name, ()))
    ids = _dim_ids(contents)
    for name, scale in contents.scales.items():
        if scale.has_values and len(scale.dataset.shape) > 1:
            own_dims = _own_dims(scale, ids)
            path = (scale.path or name).removeprefix(builder.base.name).lstrip("/")
            found = Found(scale.dataset, path=path)
            described[name] = builder.describe(name, found, own_dims=own_dims)
    _put_parts_aside(contents, described)
    return dict(sorted(described.items()))


def _put_parts_aside(contents: Contents, described: dict[str, SourceHeader]) -> None:
    """Take out the datasets that only tell offsets and shapes of ragged sources."""
    roles = {
        part.key: f"it tells the {role} of ragged source {owner!r}"
        for owner, each in described.items()
        for role, part in each.parts.items()
        if role != "values"
    }
    for name in [name for name, each in described.items() if each.key in roles]:
        contents.not_opened[name] = roles[described.pop(name).key]


def _dim_ids(contents: Contents) -> dict[int, str]:
    """Return the names of dims by netCDF's number for them."""
    ids: dict[int, str] = {}
    for scale in contents.scales.values():
        if h5py.h5a.exists(scale.dataset.id, b"_Netcdf4Dimid"):
            ids[int(scale.dataset.attrs["_Netcdf4Dimid"])] = scale.name
    return ids


def _own_dims(scale: Scale, ids: Mapping[int, str]) -> tuple[str, ...]:
    """Return the dims of a coordinate variable of several axes, which has no scales itself."""
    n_axes = len(scale.dataset.shape)
    if h5py.h5a.exists(scale.dataset.id, b"_Netcdf4Coordinates"):
        numbers = scale.dataset.attrs["_Netcdf4Coordinates"].tolist()
        if len(numbers) == n_axes and all(number in ids for number in numbers):
            return tuple(ids[number] for number in numbers)
    return (scale.name, *(default_name(scale.name, axis) for axis in range(1, n_axes)))


def _check_given_dims(builder: Builder, described: Mapping[str, SourceHeader]) -> None:
    for name in builder.given_dims:
        if name not in described:
            raise UnknownNameError(
                f"dims= names {name!r}, which file {builder.stamp.path!r} does not have; "
                f"{did_you_mean(name, described)}"
            )


def _example_dim(
    builder: Builder,
    contents: Contents,
    described: Mapping[str, SourceHeader],
    asked: str | None,
    wanted: Sequence[str] | None,
) -> str | None:
    dims = {dim for header in described.values() for dim in header.dims}
    if asked is not None:
        if asked not in dims:
            raise UnknownNameError(
                f"example_dim={asked!r} is no dim of file {builder.stamp.path!r}; "
                f"{did_you_mean(asked, dims)}"
            )
        return asked
    meant = contents.example_dim
    if contents.kind == "plain":
        along = [name for name, each in described.items() if meant in each.dims[:1]]
        return meant if along and {*(wanted or ())} <= {*along} else None
    unlimited = {
        dim
        for name, each in described.items()
        for dim, axis in zip(each.dims, builder.axes.get(name, ()), strict=False)
        if any((scale.dataset.maxshape or (0,))[0] is None for scale in axis.scales)
    }
    return unlimited.pop() if len(unlimited) == 1 else None


def _place(
    header: SourceHeader, named: frozenset[str], example_dim: str | None, contents: Contents
) -> str:
    """Return "source", "variable", or why the dataset is neither."""
    scale = contents.scales.get(header.name)
    if header.name in named or (scale is not None and scale.has_values):
        return "variable"
    if header.shape == ():
        return "variable"
    if example_dim is None or header.dims[0] == example_dim:
        return "source"
    if example_dim not in header.dims:
        return "variable"
    return (
        f"its example dim {example_dim!r} is axis {header.dims.index(example_dim)}, not axis 0; "
        f"write it with that axis first, or choose another example_dim="
    )


def _check_wanted(
    builder: Builder,
    contents: Contents,
    sources: Mapping[str, SourceHeader],
    wanted: Sequence[str] | None,
) -> None:
    for name in wanted or ():
        if name in sources:
            continue
        where = builder.stamp.path
        columns = [n for n, s in sources.items() if s.detail and n.startswith(f"{name}/")]
        if columns:
            raise UnknownNameError(
                f"{name!r} in file {where!r} is a table, each column of which is a source: "
                f"sources={columns}"
            )
        if name in contents.not_opened:
            raise FileFormatError(
                f"{name!r} in file {where!r} cannot be a source: {contents.not_opened[name]}"
            )
        if name in builder.variables or name in contents.scales:
            raise UnknownNameError(
                f"{name!r} in file {where!r} is no source but a coordinate, or a variable without "
                f"the example dim, and comes along whole; {did_you_mean(name, sources)}"
            )
        raise UnknownNameError(
            f"file {where!r} has no source {name!r}; {did_you_mean(name, sources)}"
        )


def _add_loose_scales(builder: Builder, contents: Contents) -> None:
    """Carry the scales that label no axis of a source, such as those of carried variables."""
    keys = {header.key for header in builder.variables.values()}
    paths = {name: scale.path or name for name, scale in contents.scales.items()}
    carried = {address(contents.scales[name].dataset) for name, p in paths.items() if p in keys}
    for name, scale in contents.scales.items():
        here = address(scale.dataset)
        if scale.has_values and len(scale.dataset.shape) == 1 and here not in carried:
            carried.add(here)  # it may have several names
            key = scale.name if scale.name not in builder.variables else name
            builder.variables[key] = builder.coordinate_header(key, scale, (scale.name,))


def _coordinate_names(
    builder: Builder, contents: Contents, named: frozenset[str]
) -> dict[str, SourceHeader]:
    """Return the variables that are coordinates, as xarray sees them."""
    paths = {scale.path for scale in contents.scales.values()}
    return {
        key: header
        for key, header in builder.variables.items()
        if (key in named or header.key in paths)
        # xarray has no place for a coordinate of several dims named like one of them
        and not (len(header.dims) > 1 and key in header.dims)
    }


def _with_shared(header: SourceHeader, coordinates: Mapping[str, SourceHeader]) -> SourceHeader:
    """Attach every coordinate whose dims the source has, at the same lengths."""
    if header.ragged is not None or not coordinates:
        return header
    sizes = dict(zip(header.dims, header.shape, strict=True))
    fitting = [
        key
        for key, each in coordinates.items()
        if all(sizes.get(dim) == n for dim, n in zip(each.dims, each.shape, strict=True))
    ]
    return replace(header, coords=tuple(dict.fromkeys([*header.coords, *fitting])))


def _finished(
    builder: Builder, sources: Mapping[str, SourceHeader], netcdf: bool, decode_cf: bool
) -> tuple[dict[str, SourceHeader], dict[str, SourceHeader]]:
    """Return sources and variables with their CF decoding, if wanted.

    The attribute `coordinates` goes either way: it tells of structure, and is told by `coords`.
    """
    everything = {**builder.variables, **sources}
    attrs = with_bounds_units({name: header.attrs for name, header in everything.items()})
    structure = frozenset({"coordinates"} if netcdf else ())

    def finished(name: str, header: SourceHeader) -> SourceHeader:
        if not decode_cf:
            return with_cf(header, None, structure)
        said: dict[str, Any] = attrs[name]
        cf, used = cf_of(name, header.dtype, said, builder.notes.odd)
        if not netcdf and not used:
            cf = None  # only the byte order differs: plain files keep theirs
        whole = header if len(said) == len(header.attrs) else replace(header, attrs=said)
        return with_cf(whole, cf, used | structure)

    return (
        {name: finished(name, header) for name, header in sources.items()},
        {name: finished(name, header) for name, header in builder.variables.items()},
    )
