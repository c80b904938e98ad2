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
    FileFormatError,
    LabeledError,
    UnknownNameError,
    check_known,
    did_you_mean,
    listed,
    warn,
)
from labeled.formats.bytesource import check_same, stamp_of
from labeled.formats.cf import named_coordinates
from labeled.formats.format import Format, Head, Names, Options, all_rows, check_once
from labeled.formats.hdf5 import arrays, labels, safety
from labeled.formats.hdf5.arrays import ArrayInfo, Opening
from labeled.formats.hdf5.filters import describe_missing
from labeled.formats.hdf5.fuel import TABLE, arrays_in_table, read_table, splits_of
from labeled.formats.hdf5.headers import Described, add_scales, decoded, describe, with_coordinates
from labeled.formats.hdf5.metadata import read_statistics
from labeled.formats.hdf5.per_object import scan_examples
from labeled.formats.hdf5.ragged import open_ragged
from labeled.formats.hdf5.reader import open_reader, read_scalar
from labeled.formats.header import CALLED_LIKE_A_DIM, FileHeader, Rows, SourceHeader

SIGNATURE = b"\x89HDF\r\n\x1a\n"
FIRST_USER_BLOCK = 512


def recognises(head: Head) -> bool:
    """Look for the signature where HDF5 does: at 0, 512, 1024, 2048, ..."""
    at, found = 0, head.data[: len(SIGNATURE)]
    while found != SIGNATURE and len(found) == len(SIGNATURE):
        at = 2 * at or FIRST_USER_BLOCK
        found = head.at(at, len(SIGNATURE))
    return found == SIGNATURE


MAX_LISTED, MAX_NAMED = 12, 4  # sources that a warning lists, and datasets left out that it names


def scan(
    path: str | os.PathLike[str],
    *,
    dims: Mapping[str, Names] | None = None,
    name_all: bool = False,
    quiet: bool = False,
    **options: Any,
) -> FileHeader:
    """Read the headers of one HDF5 file, from its root.

    Parameters
    ----------
    path : str or path-like
        A local file, or an address.
    dims : mapping of source to names, optional
        Names of axes, before those in the file; None in place of a name keeps the file's.
    name_all : bool
        Name axes of ragged examples by numbers where the file has no `shape_labels`.
    quiet : bool
        Warn of nothing.
    **options
        `sources`, `decode_cf` and `allow_external`, as in
        :class:`~labeled.formats.format.Options`.

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
    asked = Options(dims=tuple((dims or {}).items()), **options)  # type: ignore[arg-type]
    (header,) = scan_files((os.fspath(path),), asked, name_all=name_all, quiet=quiet)
    return header


def scan_files(
    paths: tuple[str, ...], options: Options, *, name_all: bool = False, quiet: bool = False
) -> tuple[FileHeader, ...]:
    """Read the headers of files: one for each group that `options` mean.

    What is worth a warning is said once for all that it holds for alike.
    """
    check_once("sources=", options.sources or ())
    headers: list[FileHeader] = []
    for path in paths:
        if options.examples is not None:
            headers.append(scan_examples(path, options))
            continue
        stamp = stamp_of(path)
        with safety.opened(path, headers=True) as file:
            root, group, dims = file["/"], options.group, dict(options.dims)
            joined = group is not None and arrays.is_pattern(root, group)
            for base in _groups(root, options):
                opening = Opening(base, stamp, options, dims, one_of_many=joined, name_all=name_all)
                headers.append(scan_group(opening))
        check_same(stamp, "Close it where it is open for writing, then open it again")
    where: dict[str, list[str]] = {}
    for header in headers:
        for text in header.warnings:
            where.setdefault(text, []).append(header.where)
    for text, alike in {} if quiet else where.items():
        more = f" (like {len(alike) - 1} of the others)" if len(alike) > 1 else ""
        warn(f"file {alike[0]!r}{more}{text}")
    return tuple(headers)


def _groups(root: h5py.Group, options: Options) -> list[h5py.Group]:
    """Return the groups that are opened: the root, the one asked for, or all that fit a pattern."""
    group, allowed, what = options.group, options.allow_external, repr(options.group)
    if group is None:
        return [root]
    found = [safety.find(root, group, allow_external=allowed)]
    if arrays.is_pattern(root, group):
        found = [*arrays.matching(root, group, allow_external=allowed).values()]
        what = f"that {group!r} matches"
    groups = [each.thing for each in found if isinstance(each.thing, h5py.Group)]
    if not groups:
        remedy = did_you_mean(group, map(safety.to_text, root.id))
        if found and isinstance(found[0].thing, h5py.Dataset):
            remedy = f"{group!r} in it is a dataset, not a group; open it with sources=[{group!r}]"
        raise UnknownNameError(f"file {root.file.filename!r} has no group {what}; {remedy}")
    away = next((each.thing for each in found if each.outside and each.thing in groups), None)
    if away is not None:
        raise FileFormatError(
            f"group {what} in file {root.file.filename!r} lies in another file, to which a link "
            f"leads: open {away.file.filename!r} with group={away.name!r}, or open this file "
            "without group= and choose sources=[...] by their paths"
        )
    return groups


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
    infos = arrays.arrays_of(opening) if table is None else arrays_in_table(opening, table)
    scales = {i.name: i.scale for i in infos if i.scale is not None and i.why_not is None}
    # groups share the dims of the groups above them, which have the scales
    inherited = table is None and options.group is not None and _have_scales(infos)
    opening = replace(opening, netcdf=bool(scales) or inherited)
    described, lost = _described(opening, infos, strict=table is not None)
    attrs = labels.attrs_of(opening.base, "the file", opening.faults, scalars=opening.netcdf)
    carried = {*scales, *(_coordinates_of(described, attrs) if opening.netcdf else ())}
    example_dim = _example_dim(opening, described)
    chosen, variables = _sorted_out(opening, described, example_dim, carried)
    if lost:
        error = next(iter(lost.values()))
        if not chosen:
            raise error
        opening.faults.append(f"it opens without {listed([*lost], MAX_NAMED)}: {error}")
    known = described.keys() | (set() if table is None else table.sources)
    _check_names(opening, known, chosen, variables.keys() | scales.keys())
    advice = None
    if options.sources is not None:
        chosen = {name: chosen[name] for name in options.sources}
    elif table is None and len(chosen) >= arrays.MIN_ALIKE and not opening.one_of_many:
        nameless = {name for name, each in chosen.items() if 0 in each.unnamed}
        advice = arrays.how_to_join({name: each.header for name, each in chosen.items()}, nameless)
    advice = advice or _how_to_name_axes(chosen)
    sources = with_coordinates(opening, chosen, variables)
    coordinates = set[str]()
    for source in sources.values():
        coordinates |= {*source.coords}
    if opening.netcdf:
        attrs.pop("coordinates", None)
        coordinates |= add_scales(opening, sources, variables, scales, carried)
    splits: Mapping[str, Mapping[str, Rows]] = all_rows(sources)
    decode_cf = options.decode_cf
    if table is not None:
        splits = splits_of(table, sources, opening)
        decode_cf &= "labeled_version" in attrs  # others do not mean CF
        attrs.pop(TABLE, None)
    headers = decoded(opening, {**variables, **sources}, decode_cf=decode_cf)
    sources = {name: headers[name] for name in sources}
    faults = [*opening.faults, *describe_missing(sources.values())]
    text = ": " + "; ".join(dict.fromkeys(faults)) if faults else None
    return FileHeader(
        stamp=opening.stamp,
        sources=sources,
        splits=splits,
        attrs=attrs,
        variables={name: headers[name] for name in variables},
        not_opened=opening.not_opened,
        example_dim=example_dim,
        kind="fuel" if table is not None else "netcdf" if opening.netcdf else "plain",
        coordinates=frozenset(coordinates),
        group=opening.base.name.strip("/") if opening.one_of_many else "",
        warnings=tuple(filter(None, (advice, text))),
    )


def _how_to_name_axes(described: Mapping[str, Described]) -> str | None:
    """Return the warning about axes without names, with the remedies; None if all have one."""
    unnamed = {
        name: each
        for name, each in described.items()
        if each.unnamed and len(each.header.dims) > 1  # a single axis counts examples
    }
    if not unnamed:
        return None
    named = [f"{name!r} (axis {', '.join(map(str, unnamed[name].unnamed))})" for name in unnamed]
    if len(named) > MAX_LISTED:
        named[MAX_LISTED:] = [f"... ({len(unnamed):,} sources in all)"]
    few = sorted(unnamed, key=lambda name: -len(unnamed[name].header.dims))[: labels.MAX_SUGGESTED]
    likely = {name: labels.likely_dims(unnamed[name].header, unnamed[name].unnamed) for name in few}
    pictures = any(len(d) > 2 and d != unnamed[name].header.dims for name, d in likely.items())
    header, _, axes = unnamed[few[0]]
    return (
        f" does not name every axis: {', '.join(named)}. Those of {few[0]!r} are called "
        f"{', '.join(header.dims[axis] for axis in axes)}. Set f[{few[0]!r}].dims[{axes[0]}].label "
        f"in the file, or pass {'(if these are pictures) ' if pictures else ''}dims={likely} when "
        "opening it"
    )


def _described(
    opening: Opening, infos: Sequence[ArrayInfo], *, strict: bool
) -> tuple[dict[str, Described], dict[str, LabeledError]]:
    """Return what may be a source or variable, by name in order, and what would be a source if it
    could be opened; note why the rest is none.

    Where it is `strict`, nothing may be lost.
    """
    described: dict[str, Described] = {}
    names: dict[str, str] = {}  # by path
    lost: dict[str, LabeledError] = {}
    for info in infos:
        name, error, why_not = info.name, info.error, info.why_not
        if why_not is None and not info.is_array:
            continue
        if why_not is None and info.matrix is None and info.dataset.shape == ():
            why_not = None if opening.netcdf else "it is a single value (no axis)"
        if why_not is None:
            try:
                described[name] = found = describe(opening, info)
                names[found.header.key] = name
                continue
            except LabeledError as fault:
                error, why_not = fault, str(fault)
        opening.not_opened[name] = why_not
        if error is not None:
            damaged = isinstance(error, FileFormatError) and not isinstance(error, safety.GoneError)
            asked = any(f"{each}/".startswith(f"{name}/") for each in opening.asked)
            chosen = opening.options.sources is not None
            if strict or asked or (damaged and not chosen):
                raise error
            if not chosen:
                lost[name] = error
    for owner, one in list(described.items()):
        for role, part in one.header.parts.items():
            if role != "values" and part.key in names:
                why_not = f"it holds the {role} of ragged source {owner!r}"
                opening.not_opened[names[part.key]] = why_not
                described.pop(names[part.key], None)
    return dict(sorted(described.items())), lost


def _have_scales(infos: Sequence[ArrayInfo]) -> bool:
    """Whether an axis of any array names a dimension scale, wherever that lies."""
    arrays = [info.dataset for info in infos if info.is_array and info.matrix is None]
    return any(h5py.h5a.exists(array.id, b"DIMENSION_LIST") for array in arrays)


def _example_dim(opening: Opening, described: Mapping[str, Described]) -> str | None:
    """Return the dim that counts examples; None where axis 0 of each source does."""
    asked = opening.options.example_dim
    if asked is not None:
        dims = {dim for each in described.values() for dim in each.header.dims}
        check_known("example_dim= names", [asked], dims, f"a dim of file {opening.stamp.path!r}")
        return asked
    found: set[str] = set()
    for each in described.values():
        for own, axis in zip(each.header.dims, each.axes, strict=False):
            counts = axis.counts_examples
            for scale in axis.scales if opening.netcdf else ():
                first = opening.scales.get(safety.address(scale.dataset)) == scale  # no `time_2`
                counts |= first and (scale.dataset.maxshape or ())[:1] == (None,)
            if counts:
                found.add(own)
    dim = found.pop() if len(found) == 1 else None
    for name in () if opening.netcdf else opening.options.sources or ():
        if name not in described or described[name].header.dims[0] != dim:
            return None
    return dim


def _coordinates_of(described: Mapping[str, Described], attrs: Mapping[str, Any]) -> set[str]:
    """Return the variables that are coordinates: declared so, or named like a dim.

    In a group below, a variable called like a dim is one only where it is the dim's scale: the
    column `obs/batch` of a table is not a coordinate of the dim `batch` of all files.
    """
    headers = [each.header for each in described.values()]
    declared = named_coordinates([attrs, *(header.attrs for header in headers)])
    dims = {dim for header in headers for dim in header.dims}
    return {
        name for name in described if name in dims or {name, name.rsplit("/", 1)[-1]} & declared
    }


def _sorted_out(
    opening: Opening, described: Mapping[str, Described], example_dim: str | None, carried: Set[str]
) -> tuple[dict[str, Described], dict[str, SourceHeader]]:
    """Return what has the example dim first, and what is carried whole; note what is neither."""
    chosen: dict[str, Described] = {}
    variables: dict[str, SourceHeader] = {}
    turned: list[str] = []
    every = set[str]()
    for each in described.values():
        every.update(each.header.dims)
    for name, each in described.items():
        header, dims = each.header, each.header.dims
        if header.shape == () and name in every:
            opening.not_opened[name] = CALLED_LIKE_A_DIM
        elif header.shape == () or name in carried or example_dim not in (None, *dims):
            if header.ragged is None:
                variables[name] = header
            else:
                opening.not_opened[name] = f"it is not a source, and ragged: {header.ragged}"
        elif example_dim in (None, dims[0]):
            chosen[name] = each
        else:
            turned.append(name)
            opening.not_opened[name] = (
                f"its example dim {example_dim!r} is axis {dims.index(example_dim)}, not axis 0; "
                "write it with that axis first, or choose another example_dim="
            )
    if turned and opening.options.example_dim is None and opening.options.sources is None:
        why_not = opening.not_opened[turned[0]]
        opening.faults.append(f"it opens without {listed(turned, MAX_NAMED)}: {why_not}")
    return chosen, variables


def _check_names(
    opening: Opening, known: Set[str], sources: Mapping[str, Described], carried: Set[str]
) -> None:
    """Refuse names in `dims` and `sources` that mean no source."""
    wanted, where = opening.options.sources or (), f"file {opening.stamp.path!r}"
    for name in (*wanted, *opening.dims):
        columns = [n for n, s in sources.items() if s.header.is_column and n.startswith(f"{name}/")]
        if columns:
            what = f"in {where} is a table, each column of which is a source: sources={columns}"
        elif name in wanted and (why_not := opening.not_opened.get(name)) is not None:
            raise FileFormatError(f"{name!r} in {where} cannot be a source: {why_not}")
        elif name in wanted and name in carried:
            what = (
                f"in {where} is not a source but a coordinate, or a variable without the example "
                f"dim, and is included whole; {did_you_mean(name, sources)}"
            )
        elif name not in known:
            there = known - carried if name in wanted else known
            what = f"is not a source of {where}; {did_you_mean(name, there)}"
        else:
            continue
        argument = "sources=" if name in wanted else "dims="
        raise UnknownNameError(f"{argument} names {name!r}, which {what}")


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
    check_claim=safety.check_claim,
    stored_bytes=safety.stored_bytes,
    statistics=read_statistics,
    remote=True,
)
