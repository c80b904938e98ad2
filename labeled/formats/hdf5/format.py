"""HDF5 as a format: one pass over the headers of a file tells everything about it.

It reads attributes, shapes, dtypes and the lists of rows that splits refer to, but no example,
and it never counts chunks, so opening takes the same few milliseconds for a thousand chunks or
a million. The file is closed again before anything is returned.

In a file without a split table every dataset that holds numbers or strings along at least one
axis is a source, called by its path, and so is each column of a table; one split, ``"all"``, has
all rows of each. What is not opened is listed with the reason.

Scales make a file netCDF-4 style. Then the example dim is the one asked for, else the only
unlimited one, else axis 0 of each variable; coordinate variables, and variables without
the example dim, are carried whole. A variable stored with fewer rows than its dim has is
read with the rows it has, where netCDF would pad it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import h5py

from labeled.errors import (
    DimsError,
    FileFormatError,
    LabeledError,
    UnknownNameError,
    UnsafeFileError,
    did_you_mean,
    listed,
    warn,
)
from labeled.formats.bytesource import stamp_of
from labeled.formats.cf import named_coordinates
from labeled.formats.format import Format, Head, Options, check_once
from labeled.formats.hdf5.arrays import (
    MIN_ALIKE,
    ArrayInfo,
    Opening,
    arrays_of,
    how_to_join,
    is_pattern,
    matching,
)
from labeled.formats.hdf5.fuel import read_table, scan_fuel
from labeled.formats.hdf5.headers import (
    Described,
    decode,
    describe_array,
    file_header,
    scale_header,
    with_coordinates,
)
from labeled.formats.hdf5.labels import Names, Scale, attrs_of, default_name
from labeled.formats.hdf5.metadata import read_statistics
from labeled.formats.hdf5.per_object import scan_examples
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.reader import open_reader, read_scalar
from labeled.formats.hdf5.safety import (
    GoneError,
    address,
    check_claim,
    check_unchanged,
    find,
    opened,
    stored_bytes,
    to_text,
)
from labeled.formats.header import ALL, FileHeader, Rows, SourceHeader

SIGNATURE = b"\x89HDF\r\n\x1a\n"
FIRST_USER_BLOCK = 512


def recognises(head: Head) -> bool:
    """Look for the signature where HDF5 does: at 0, 512, 1024, 2048, ..."""
    if head.data.startswith(SIGNATURE):
        return True
    at, found = FIRST_USER_BLOCK, head.at(FIRST_USER_BLOCK, len(SIGNATURE))
    while len(found) == len(SIGNATURE):
        if found == SIGNATURE:
            return True
        at *= 2
        found = head.at(at, len(SIGNATURE))
    return False


def scan(
    path: str | os.PathLike[str],
    *,
    sources: Sequence[str] | None = None,
    dims: Mapping[str, Names] | None = None,
    decode_cf: bool = True,
    allow_external: bool = False,
    name_all: bool = False,
    quiet: bool = False,
) -> FileHeader:
    """Read the headers of one HDF5 file, from its root.

    Parameters
    ----------
    path : str or path-like
        A local file, or an address.
    sources : sequence of str, optional
        Open only these, in this order; others are not even checked. Default: all, sorted.
    dims : mapping of source to names, optional
        Names of axes, before those in the file; None in place of a name keeps the file's.
    decode_cf, allow_external : bool
        As in :class:`~labeled.formats.format.Options`.
    name_all : bool
        Name axes of ragged examples by numbers where the file has no `shape_labels`.
    quiet : bool
        Warn of nothing.

    Returns
    -------
    FileHeader
        Holds no handle; pickles small, apart from the lists of rows of its splits.

    Raises
    ------
    FileFormatError
        If the file is missing, damaged or not HDF5.
    UnsafeFileError
        If it leads outside itself and `allow_external` is False.
    SplitError
        If its split table does not fit its sources.
    DimsError
        If names of axes repeat or do not fit, or those of ragged examples are missing.
    UnknownNameError
        If `sources` or `dims` name what is not there.
    FileChangedError
        If somebody wrote to the file meanwhile.

    Warns
    -----
    LabeledWarning
        If axes have no name, or scales or attributes cannot be used.
    """
    if isinstance(sources, str):
        raise UnknownNameError(f"sources={sources!r} is one name; give a list, [{sources!r}]")
    check_once("sources=", sources or ())
    if dims is not None and not isinstance(dims, Mapping):
        raise DimsError(f"dims={dims!r} is not a mapping; pass {{source: (name, ...)}}")
    chosen = None if sources is None else tuple(sources)
    options = Options(sources=chosen, decode_cf=decode_cf, allow_external=allow_external)
    headers = _scan(path, options, dims or {}, name_all=name_all)
    if not quiet:
        _warn_of(headers)
    return headers[0]


def scan_files(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    """Read the headers of files: one for each group that `options` mean.

    What is worth a warning is said once for all that it holds for alike.
    """
    if options.sources is not None:
        check_once("sources=", options.sources)
    dims, headers = dict(options.dims), []
    for path in paths:
        if options.examples is not None:
            headers.append(scan_examples(path, options))
        else:
            headers += _scan(path, options, dims)
    _warn_of(headers)
    return tuple(headers)


def _scan(
    path: str | os.PathLike[str],
    options: Options,
    dims: Mapping[str, Names],
    *,
    name_all: bool = False,
) -> list[FileHeader]:
    stamp, headers = stamp_of(path), []
    with opened(path, headers=True) as file:
        group, root = options.group, file["/"]
        joined = group is not None and is_pattern(root, group)
        if group is None:
            bases = [root]
        elif joined:
            bases = [*matching(root, group, allow_external=options.allow_external).values()]
        else:
            bases = [_group(root, stamp.path, group, allow_external=options.allow_external)]
        if not bases:
            raise UnknownNameError(
                f"file {stamp.path!r} has no group that {group!r} matches; at its root lie "
                f"{[to_text(name) for name in file.id][:12]}"
            )
        for base in bases:
            opening = Opening(base, stamp, options, dims, one_of_many=joined, name_all=name_all)
            table = read_table(base)
            headers.append(scan_generic(opening) if table is None else scan_fuel(opening, table))
    check_unchanged(path, stamp)
    return headers


def _group(root: h5py.Group, path: str, group: str, *, allow_external: bool) -> h5py.Group:
    found = find(root, group, allow_external=allow_external).thing
    if isinstance(found, h5py.Dataset):
        raise UnknownNameError(
            f"{group!r} in file {path!r} is a dataset, not a group; open it with "
            f"sources=[{group!r}]"
        )
    if not isinstance(found, h5py.Group):
        names = [to_text(name) for name in root.id]
        raise UnknownNameError(
            f"file {path!r} has no group {group!r}; {did_you_mean(group, names)}"
        )
    return found


def _warn_of(headers: Sequence[FileHeader]) -> None:
    """Warn about what files report, once for all files it applies to."""
    where: dict[str, list[str]] = {}
    for header in headers:
        for text in header.warnings:
            where.setdefault(text, []).append(header.where)
    for text, paths in where.items():
        more = f" (like {len(paths) - 1} of the others)" if len(paths) > 1 else ""
        warn(f"file {paths[0]!r}{more}{text}")


# files without a split table


MAX_NAMED = 4
"""Datasets left out that a warning names."""

Scales = dict[str, Scale]
"""The scales of a file by their names; there are none but in netCDF-style files."""


def scan_generic(opening: Opening) -> FileHeader:
    """Describe every dataset below a group.

    Raises
    ------
    UnknownNameError
        If a source, or the example dim, is not there; or `dims` names no dataset.
    UnsafeFileError
        If a source asked for, or every one there is, lies outside the file.
    DimsError
        If nobody names the axes of ragged examples.
    """
    infos = arrays_of(opening)
    scales: Scales = {}
    along: set[str] = set()
    faults: list[str] = []
    for info in infos:
        if info.scale is not None and info.why_not is None:
            scales[info.name] = info.scale
        if info.along:
            along.add(opening.path_of(info.path))
        if info.warning is not None:
            faults.append(info.warning)
    netcdf, wanted = bool(scales), opening.options.sources
    opening = replace(opening, single_values=netcdf)
    described, not_opened, lost = _described(opening, infos, scales)
    for name in opening.dims:
        if name not in described:
            raise UnknownNameError(
                f"dims= names {name!r}, which file {opening.stamp.path!r} does not have; "
                f"{did_you_mean(name, described)}"
            )
    for each in described.values():
        faults += each.faults
    attrs = attrs_of(opening.base, "the file", faults, scalars=netcdf)
    example_dim = _example_dim(opening, described, netcdf=netcdf)
    named = _named_coordinates(described, attrs) if netcdf else frozenset()
    chosen: dict[str, Described] = {}
    variables: dict[str, SourceHeader] = {}
    for name, each in described.items():
        header, why_not = each.header, None
        if header.shape == () or name in named or name in scales:
            variables[name] = header
        elif example_dim is None or header.dims[0] == example_dim:
            chosen[name] = each
        elif example_dim not in header.dims:
            variables[name] = header
        else:
            why_not = (
                f"its example dim {example_dim!r} is axis {header.dims.index(example_dim)}, not "
                "axis 0; write it with that axis first, or choose another example_dim="
            )
        if name in variables and header.ragged is not None:
            del variables[name]
            why_not = f"it is not a source, and ragged: {header.ragged}"
        if why_not is not None:
            not_opened[name] = why_not
    if lost:
        error = next(iter(lost.values()))
        if not chosen:
            raise error
        faults.append(f"it opens without {listed([*lost], MAX_NAMED)}: {error}")
    advice = None
    if wanted is not None:
        _check_wanted(opening, chosen, not_opened, variables.keys() | scales.keys())
        chosen = {name: chosen[name] for name in wanted}
    elif len(chosen) >= MIN_ALIKE and not opening.one_of_many:
        nameless = {name for name, each in chosen.items() if 0 in each.unnamed}
        advice = how_to_join({name: each.header for name, each in chosen.items()}, nameless)
    sources = with_coordinates(opening, chosen, variables, faults)
    coordinates: set[str] = set()
    if netcdf:
        attrs.pop("coordinates", None)
        coordinates = _carry_scales(opening, sources, variables, scales, named, faults)
    if along:
        coordinates |= {key for key, one in variables.items() if one.key in along}
    decode(sources, variables, faults, decode_cf=opening.options.decode_cf, netcdf=netcdf)
    rows: dict[str, Rows] = {}
    for name, header in sources.items():
        rows[name] = range(header.n_rows)
    return file_header(
        opening,
        chosen,
        sources,
        {ALL: rows},
        faults,
        advice=advice,
        attrs=attrs,
        variables=variables,
        not_opened=not_opened,
        example_dim=example_dim,
        kind="netcdf" if netcdf else "plain",
        coordinates=frozenset(coordinates),
    )


def _described(
    opening: Opening, infos: Sequence[ArrayInfo], scales: Scales
) -> tuple[dict[str, Described], dict[str, str], dict[str, LabeledError]]:
    """Return what may be a source or variable, by name in order; why the rest is not opened; and
    what of that would be a source if it could be opened."""
    wanted = opening.options.sources
    described: dict[str, Described] = {}
    not_opened: dict[str, str] = {}
    lost: dict[str, LabeledError] = {}
    for info in infos:
        name, error, why_not = info.name, info.error, info.why_not
        if why_not is not None:
            is_wanted = any(f"{each}/".startswith(f"{name}/") for each in wanted or ())
            if error is not None and is_wanted:
                raise error
        elif not info.is_array:
            continue
        elif info.matrix is None and info.dataset.shape == () and not scales:
            why_not = "it is a single value (no axis)"
        else:
            try:
                described[name] = describe_array(opening, info)
            except (FileFormatError, UnsafeFileError, DimsError) as fault:
                may_be_lost = isinstance(fault, GoneError | UnsafeFileError | DimsError)
                if name in opening.asked or (wanted is None and not may_be_lost):
                    raise
                error, why_not = fault, str(fault)
        if why_not is not None:
            not_opened[name] = why_not
        if error is not None and wanted is None:
            lost[name] = error
    if scales:
        described |= _scales_of_several_axes(opening, scales)
    for owner, one in [*described.items()]:
        for role, part in one.header.parts.items():
            held = [name for name, each in described.items() if each.header.key == part.key]
            for name in held if role != "values" else ():
                del described[name]
                not_opened[name] = f"it holds the {role} of ragged source {owner!r}"
    return dict(sorted(described.items())), not_opened, lost


def _scales_of_several_axes(opening: Opening, scales: Scales) -> dict[str, Described]:
    """Describe coordinate variables of several axes, which have no scales themselves."""
    ids: dict[int, str] = {}
    for scale in scales.values():
        if h5py.h5a.exists(scale.dataset.id, b"_Netcdf4Dimid"):
            ids[int(scale.dataset.attrs["_Netcdf4Dimid"])] = scale.name
    found = {}
    for name, scale in scales.items():
        n_axes, numbers = len(scale.dataset.shape), []
        if not scale.has_values or n_axes < 2:
            continue
        path = (scale.path or name).removeprefix(opening.base.name).lstrip("/")
        if h5py.h5a.exists(scale.dataset.id, b"_Netcdf4Coordinates"):
            numbers = scale.dataset.attrs["_Netcdf4Coordinates"].tolist()
        dims = [ids[number] for number in numbers if number in ids]
        if len(dims) != n_axes:
            dims = [scale.name, *(default_name(scale.name, axis) for axis in range(1, n_axes))]
        found[name] = describe_array(opening, ArrayInfo(name, path, scale.dataset), dims)
    return found


def _named_coordinates(
    described: Mapping[str, Described], attrs: Mapping[str, Any]
) -> frozenset[str]:
    """Return the variables that are coordinates: declared so, or named like a dim.

    In a group below, a variable called like a dim is one only where it is the dim's scale: the
    column `obs/batch` of a table is not a coordinate of the dim `batch` of all files.
    """
    headers = [each.header for each in described.values()]
    named = named_coordinates([attrs, *(header.attrs for header in headers)])
    dims = {dim for header in headers for dim in header.dims}
    return frozenset(
        name for name in described if name in named | dims or name.rsplit("/", 1)[-1] in named
    )


def _example_dim(
    opening: Opening, described: Mapping[str, Described], *, netcdf: bool
) -> str | None:
    """Return the dim that counts examples; None where axis 0 of each source does."""
    asked, wanted = opening.options.example_dim, opening.options.sources
    if asked is not None:
        dims = {dim for each in described.values() for dim in each.header.dims}
        if asked not in dims:
            raise UnknownNameError(
                f"example_dim={asked!r} is not a dim of file {opening.stamp.path!r}; "
                f"{did_you_mean(asked, dims)}"
            )
        return asked
    if netcdf:
        unlimited = {
            dim
            for each in described.values()
            for dim, axis in zip(each.header.dims, each.axes, strict=False)
            if any((scale.dataset.maxshape or (0,))[0] is None for scale in axis.scales)
        }
        return unlimited.pop() if len(unlimited) == 1 else None
    dim: str | None = None
    for name, each in described.items():
        if each.axes and each.axes[0].counts_examples:
            dim = each.axes[0].name
            if name in opening.dims:
                return None  # the user has another name for it
    if dim is not None:
        for name in wanted or ():
            if name not in described or described[name].header.dims[0] != dim:
                return None
    return dim


def _check_wanted(
    opening: Opening,
    sources: Mapping[str, Described],
    not_opened: Mapping[str, str],
    carried: Set[str],
) -> None:
    where = opening.stamp.path
    for name in opening.options.sources or ():
        if name in sources:
            continue
        columns = [n for n, s in sources.items() if s.info.column and n.startswith(f"{name}/")]
        if columns:
            raise UnknownNameError(
                f"{name!r} in file {where!r} is a table, each column of which is a source: "
                f"sources={columns}"
            )
        if name in not_opened:
            raise FileFormatError(
                f"{name!r} in file {where!r} cannot be a source: {not_opened[name]}"
            )
        if name in carried:
            raise UnknownNameError(
                f"{name!r} in file {where!r} is not a source but a coordinate, or a variable "
                f"without the example dim, and is included whole; {did_you_mean(name, sources)}"
            )
        raise UnknownNameError(
            f"file {where!r} has no source {name!r}; {did_you_mean(name, sources)}"
        )


def _carry_scales(
    opening: Opening,
    sources: dict[str, SourceHeader],
    variables: dict[str, SourceHeader],
    scales: Scales,
    named: Set[str],
    faults: list[str],
) -> set[str]:
    """Carry also the scales that label no axis of a source, such as those of carried variables.

    Sources get every coordinate whose dims they have, at the same lengths. Coordinates are
    named too, as xarray sees them.
    """
    keys = {header.key for header in variables.values()}
    paths = {name: scale.path or name for name, scale in scales.items()}
    there = {address(scale.dataset) for name, scale in scales.items() if paths[name] in keys}
    for name, scale in scales.items():
        here = address(scale.dataset)
        if scale.has_values and len(scale.dataset.shape) == 1 and here not in there:
            there.add(here)  # it may have several names
            key = scale.name if scale.name not in variables else name
            variables[key] = scale_header(opening, key, scale, (scale.name,), faults)
    coordinates: set[str] = set()
    for key, header in variables.items():
        is_named = key in named or header.key in paths.values()
        # xarray has no place for a coordinate of several dims named like one of them
        if is_named and not (len(header.dims) > 1 and key in header.dims):
            coordinates.add(key)
    for name, header in sources.items():
        if header.ragged is None:
            sizes, coords = dict(zip(header.dims, header.shape, strict=True)), [*header.coords]
            for key, each in variables.items():
                own = dict(zip(each.dims, each.shape, strict=True))
                if key in coordinates and own.items() <= sizes.items():
                    coords.append(key)
            sources[name] = replace(header, coords=tuple(dict.fromkeys(coords)))
    return coordinates


FORMAT = Format(
    name="hdf5",
    title="HDF5",
    suffixes=(".hdf5", ".h5", ".hdf", ".he5", ".nc", ".nc4"),
    recognises=recognises,
    scan=scan_files,
    open_reader=open_reader,
    kinds={
        "fuel": "splits in a Fuel table",
        "netcdf": "netCDF-style dimension scales",
        "plain": "plain HDF5, no splits of its own",
    },
    accepts=frozenset({"group", "examples", "decode_cf", "allow_external"}),
    open_ragged=open_ragged,
    read_scalar=read_scalar,
    check_claim=check_claim,
    stored_bytes=stored_bytes,
    statistics=read_statistics,
    remote=True,
)
