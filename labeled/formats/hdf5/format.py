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
from collections.abc import Iterator, Mapping, Sequence, Set
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
from labeled.formats.bytesource import check_same, stamp_of
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
from labeled.formats.hdf5.filters import describe_missing
from labeled.formats.hdf5.fuel import TABLE, arrays_in_table, read_table, splits_of
from labeled.formats.hdf5.headers import (
    Described,
    decode,
    describe,
    scale_header,
    with_coordinates,
)
from labeled.formats.hdf5.labels import Names, Scale, attrs_of, default_name, how_to_name_axes
from labeled.formats.hdf5.metadata import read_statistics
from labeled.formats.hdf5.per_object import scan_examples
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.reader import open_reader, read_scalar
from labeled.formats.hdf5.safety import (
    GoneError,
    address,
    check_claim,
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
    at, found = 0, head.data[: len(SIGNATURE)]
    while found != SIGNATURE and len(found) == len(SIGNATURE):
        at = 2 * at or FIRST_USER_BLOCK
        found = head.at(at, len(SIGNATURE))
    return found == SIGNATURE


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
    names = None if sources is None else tuple(sources)
    asked: Any = tuple((dims or {}).items())
    options = Options(names, asked, decode_cf=decode_cf, allow_external=allow_external)
    headers = _scan(path, options, name_all=name_all)
    if not quiet:
        _warn_of(headers)
    return headers[0]


def scan_files(paths: tuple[str, ...], options: Options) -> tuple[FileHeader, ...]:
    """Read the headers of files: one for each group that `options` mean.

    What is worth a warning is said once for all that it holds for alike.
    """
    headers: list[FileHeader] = []
    for path in paths:
        each = options.examples is not None
        headers += [scan_examples(path, options)] if each else _scan(path, options)
    _warn_of(headers)
    return tuple(headers)


def _scan(
    path: str | os.PathLike[str], options: Options, *, name_all: bool = False
) -> list[FileHeader]:
    check_once("sources=", options.sources or ())
    stamp, headers = stamp_of(path), []
    with opened(path, headers=True) as file:
        root, group = file["/"], options.group
        joined = group is not None and is_pattern(root, group)
        for base in _groups(root, stamp.path, options):
            opening = Opening(
                base, stamp, options, dict(options.dims), one_of_many=joined, name_all=name_all
            )
            headers.append(scan_group(opening))
    check_same(stamp, "Close it where it is open for writing, then open it again")
    return headers


def _groups(root: h5py.Group, path: str, options: Options) -> list[h5py.Group]:
    """Return the groups that are opened: the root, the one asked for, or all that fit a pattern."""
    group, allow_external = options.group, options.allow_external
    if group is None:
        return [root]
    if is_pattern(root, group):
        matches = matching(root, group, allow_external=allow_external).values()
        found = [one.thing for one in matches if isinstance(one.thing, h5py.Group)]
    else:
        found = [find(root, group, allow_external=allow_external).thing]
    if found and isinstance(found[0], h5py.Dataset):
        raise UnknownNameError(
            f"{group!r} in file {path!r} is a dataset, not a group; open it with "
            f"sources=[{group!r}]"
        )
    if not found or not isinstance(found[0], h5py.Group):
        names = [to_text(name) for name in root.id]
        what = f"that {group!r} matches" if is_pattern(root, group) else repr(group)
        raise UnknownNameError(f"file {path!r} has no group {what}; {did_you_mean(group, names)}")
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


MAX_NAMED = 4
"""Datasets left out that a warning names."""

Scales = dict[str, Scale]
"""The scales of a file by their names; there are none but in netCDF-style files."""


def scan_group(opening: Opening) -> FileHeader:
    """Return the header of a file, or of a group of it.

    Raises
    ------
    UnknownNameError
        If a source, or the example dim, is not there; or `dims` names no dataset.
    UnsafeFileError
        If a source asked for, or every one there is, lies outside the file.
    DimsError
        If names of axes do not fit.
    SplitError
        If a split table does not fit the sources.
    """
    table, options = read_table(opening.base), opening.options
    infos = arrays_of(opening) if table is None else arrays_in_table(opening, table)
    scales = {i.name: i.scale for i in infos if i.scale is not None and i.why_not is None}
    netcdf, faults = bool(scales), opening.faults
    opening = replace(opening, single_values=netcdf)
    described, not_opened, lost = _described(opening, infos, scales, strict=table is not None)
    attrs = attrs_of(opening.base, "the file", faults, scalars=netcdf)
    example_dim = _example_dim(opening, described, netcdf=netcdf)
    carried = {*scales, *(_coordinates_of(described, attrs) if netcdf else ())}
    chosen, variables = _sorted_out(described, not_opened, example_dim, carried)
    if lost:
        error = next(iter(lost.values()))
        if not chosen:
            raise error
        faults.append(f"it opens without {listed([*lost], MAX_NAMED)}: {error}")
    advice = None
    known = {*described, *(() if table is None else table.sources)}
    _check_names(opening, chosen, not_opened, known, variables.keys() | scales.keys())
    if options.sources is not None:
        chosen = {name: chosen[name] for name in options.sources}
    elif table is None and len(chosen) >= MIN_ALIKE and not opening.one_of_many:
        nameless = {name for name, each in chosen.items() if 0 in each.unnamed}
        advice = how_to_join({name: each.header for name, each in chosen.items()}, nameless)
    sources = with_coordinates(opening, chosen, variables)
    coordinates = {key for source in sources.values() for key in source.coords}
    if netcdf:
        attrs.pop("coordinates", None)
        coordinates |= _carry_scales(opening, sources, variables, scales, carried)
    splits: Mapping[str, Mapping[str, Rows]]
    splits = {ALL: {name: range(header.n_rows) for name, header in sources.items()}}
    decode_cf = options.decode_cf
    if table is not None:
        splits = splits_of(table, sources, opening)
        decode_cf &= "labeled_version" in attrs  # others do not mean CF
        attrs.pop(TABLE, None)
    headers = {**variables, **sources}
    decode(headers, faults, decode_cf=decode_cf, netcdf=netcdf)
    sources = {name: headers[name] for name in sources}
    return FileHeader(
        stamp=opening.stamp,
        sources=sources,
        splits=splits,
        attrs=attrs,
        variables={name: headers[name] for name in variables},
        not_opened=not_opened,
        example_dim=example_dim,
        kind="fuel" if table is not None else "netcdf" if netcdf else "plain",
        coordinates=frozenset(coordinates),
        group=opening.base.name.strip("/") if opening.one_of_many else "",
        warnings=_warnings(chosen, [*faults, *describe_missing(sources.values())], advice),
    )


def _warnings(
    chosen: Mapping[str, Described], faults: Sequence[str], advice: str | None
) -> tuple[str, ...]:
    """Return what is worth a warning; `advice` stands in place of the axes that nobody named."""
    if advice is None:  # a single axis counts examples
        unnamed = {n: (c.header, c.unnamed) for n, c in chosen.items() if len(c.header.dims) > 1}
        unnamed = {name: each for name, each in unnamed.items() if each[1]}
        advice = how_to_name_axes(unnamed) if unnamed else None
    text = ": " + "; ".join(dict.fromkeys(faults)) if faults else None
    return tuple(each for each in (advice, text) if each is not None)


def _described(
    opening: Opening, infos: Sequence[ArrayInfo], scales: Scales, *, strict: bool
) -> tuple[dict[str, Described], dict[str, str], dict[str, LabeledError]]:
    """Return what may be a source or variable, by name in order; why the rest is not opened; and
    what of that would be a source if it could be opened.

    Where it is `strict`, none of these may be lost.
    """
    wanted = opening.options.sources
    described: dict[str, Described] = {}
    not_opened: dict[str, str] = {}
    lost: dict[str, LabeledError] = {}
    for info in infos:
        name, error, why_not = info.name, info.error, info.why_not
        if why_not is None and not info.is_array:
            continue
        if why_not is None and info.matrix is None and info.dataset.shape == () and not scales:
            why_not = "it is a single value (no axis)"
        if why_not is None:
            try:
                described[name] = describe(opening, info)
                continue
            except (FileFormatError, UnsafeFileError, DimsError) as fault:
                error, why_not = fault, str(fault)
        if error is not None:
            may_be_lost = isinstance(error, GoneError | UnsafeFileError | DimsError)
            asked = any(f"{each}/".startswith(f"{name}/") for each in opening.asked)
            if strict or asked or (wanted is None and not may_be_lost):
                raise error
            if wanted is None:
                lost[name] = error
        not_opened[name] = why_not
    if scales:
        described |= _scales_of_several_axes(opening, scales)
    held: dict[str, str] = {}
    for owner, one in described.items():
        for role, part in one.header.parts.items():
            if role != "values":
                held[part.key] = f"it holds the {role} of ragged source {owner!r}"
    for name in [name for name, each in described.items() if each.header.key in held]:
        not_opened[name] = held[described.pop(name).header.key]
    return dict(sorted(described.items())), not_opened, lost


def _scales_of_several_axes(opening: Opening, scales: Scales) -> dict[str, Described]:
    """Describe coordinate variables of several axes, which have no scales themselves."""
    ids: dict[int, str] = {}
    for scale in scales.values():
        ids[int(scale.dataset.attrs.get("_Netcdf4Dimid", -1))] = scale.name
    found = {}
    for name, scale in scales.items():
        n_axes = len(scale.dataset.shape)
        if scale.has_values and n_axes > 1:
            numbers = scale.dataset.attrs.get("_Netcdf4Coordinates", ())
            dims = [ids[int(number)] for number in numbers if int(number) in ids]
            if len(dims) != n_axes:
                dims = [scale.name, *(default_name(scale.name, axis) for axis in range(1, n_axes))]
            path = (scale.path or name).removeprefix(opening.base.name).lstrip("/")
            found[name] = describe(opening, ArrayInfo(name, path, scale.dataset), dims)
    return found


def _example_dim(
    opening: Opening, described: Mapping[str, Described], *, netcdf: bool
) -> str | None:
    """Return the dim that counts examples; None where axis 0 of each source does."""
    asked = opening.options.example_dim
    if asked is not None:
        dims = {dim for each in described.values() for dim in each.header.dims}
        if asked not in dims:
            raise UnknownNameError(
                f"example_dim={asked!r} is not a dim of file {opening.stamp.path!r}; "
                f"{did_you_mean(asked, dims)}"
            )
        return asked
    found: set[str] = set()
    for each in described.values():
        for own, axis in zip(each.header.dims, each.axes, strict=False):
            unlimited = any((scale.dataset.maxshape or (0,))[0] is None for scale in axis.scales)
            if unlimited if netcdf else axis.counts_examples:
                found.add(own)
    dim = found.pop() if len(found) == 1 else None
    for name in () if netcdf else opening.options.sources or ():
        if name not in described or described[name].header.dims[0] != dim:
            return None
    return dim


def _coordinates_of(described: Mapping[str, Described], attrs: Mapping[str, Any]) -> Iterator[str]:
    """Yield the variables that are coordinates: declared so, or named like a dim.

    In a group below, a variable called like a dim is one only where it is the dim's scale: the
    column `obs/batch` of a table is not a coordinate of the dim `batch` of all files.
    """
    headers = [each.header for each in described.values()]
    declared = named_coordinates([attrs, *(header.attrs for header in headers)])
    dims = {dim for header in headers for dim in header.dims}
    for name in described:
        if name in declared | dims or name.rsplit("/", 1)[-1] in declared:
            yield name


def _sorted_out(
    described: Mapping[str, Described],
    not_opened: dict[str, str],
    example_dim: str | None,
    carried: Set[str],
) -> tuple[dict[str, Described], dict[str, SourceHeader]]:
    """Return what has the example dim first, and what is carried whole; note what is neither."""
    chosen: dict[str, Described] = {}
    variables: dict[str, SourceHeader] = {}
    for name, each in described.items():
        header, place = each.header, 0 if example_dim is None else None
        if example_dim in header.dims:
            place = header.dims.index(example_dim)
        if header.shape == () or name in carried:
            place = None
        if place == 0:
            chosen[name] = each
        elif place is not None:
            not_opened[name] = (
                f"its example dim {example_dim!r} is axis {place}, not axis 0; write it with that "
                "axis first, or choose another example_dim="
            )
        elif header.ragged is not None:
            not_opened[name] = f"it is not a source, and ragged: {header.ragged}"
        else:
            variables[name] = header
    return chosen, variables


def _check_names(
    opening: Opening,
    sources: Mapping[str, Described],
    not_opened: Mapping[str, str],
    known: Set[str],
    carried: Set[str],
) -> None:
    """Refuse names in `dims` and `sources` that mean no source."""
    where, wanted = f"file {opening.stamp.path!r}", opening.options.sources or ()
    for name in wanted:
        columns = [n for n, s in sources.items() if s.header.is_column and n.startswith(f"{name}/")]
        if columns:
            raise UnknownNameError(
                f"{name!r} in {where} is a table, each column of which is a source: "
                f"sources={columns}"
            )
        if name in not_opened:
            raise FileFormatError(f"{name!r} in {where} cannot be a source: {not_opened[name]}")
        if name in carried:
            raise UnknownNameError(
                f"{name!r} in {where} is not a source but a coordinate, or a variable without the "
                f"example dim, and is included whole; {did_you_mean(name, sources)}"
            )
    for argument, names in (("dims=", opening.dims), ("sources=", wanted)):
        for name in names:
            if name not in known:
                raise UnknownNameError(
                    f"{argument} names {name!r}, which is not a source of {where}; "
                    f"{did_you_mean(name, known)}"
                )


def _carry_scales(
    opening: Opening,
    sources: dict[str, SourceHeader],
    variables: dict[str, SourceHeader],
    scales: Scales,
    named: Set[str],
) -> set[str]:
    """Carry also the scales that label no axis of a source, such as those of carried variables.

    Sources get every coordinate whose dims they have, at the same lengths. Coordinates are
    named too, as xarray sees them.
    """
    there = {header.key for header in variables.values()}
    seen = {address(scale.dataset) for scale in scales.values() if scale.path in there}
    for name, scale in scales.items():
        here = address(scale.dataset)
        if scale.has_values and len(scale.dataset.shape) == 1 and here not in seen:
            seen.add(here)  # it may have several names
            key = scale.name if scale.name not in variables else name
            variables[key] = scale_header(opening, key, scale, (scale.name,))
    paths = {scale.path for scale in scales.values()}
    coordinates: list[str] = []
    for key, header in variables.items():
        # xarray has no place for a coordinate of several dims named like one of them
        if (key in named or header.key in paths) and (
            header.dims == (key,) or key not in header.dims
        ):
            coordinates.append(key)
    for name, header in sources.items():
        if header.ragged is None:
            sizes, coords = dict(zip(header.dims, header.shape, strict=True)), [*header.coords]
            for key in coordinates:
                own = dict(zip(variables[key].dims, variables[key].shape, strict=True))
                coords += [key] if own.items() <= sizes.items() else []
            sources[name] = replace(header, coords=tuple(dict.fromkeys(coords)))
    return set(coordinates)


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
