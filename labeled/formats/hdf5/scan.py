"""Opening a file: one pass over its headers, and everything known about it afterwards.

:func:`scan` is the only function others need. It reads attributes, shapes, dtypes and the
lists of rows that splits refer to, but no example, and it never counts chunks, so opening
takes the same few milliseconds for a thousand chunks or a million. The file is closed
again before it returns.

Values of a file with a split table are left as stored, whatever CF attributes they carry:
such files are made for training, and their writers do not mean CF. Times are the exception,
where they are stored exactly as this library stores them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import h5py

from labeled.errors import (
    DimsError,
    FileFormatError,
    SplitError,
    UnknownNameError,
    UnsafeFileError,
    did_you_mean,
)
from labeled.formats.bytesource import stamp_of
from labeled.formats.cf import cf_of
from labeled.formats.hdf5.door import check_unchanged, opened
from labeled.formats.hdf5.fallback import told_of_filters
from labeled.formats.hdf5.fuel import TABLE, Table, read_table, splits_of
from labeled.formats.hdf5.groups import is_pattern, matching
from labeled.formats.hdf5.labels import Notes, warn_of
from labeled.formats.hdf5.layout import why_not_a_source
from labeled.formats.hdf5.safety import Found, NotThereError, resolve, to_text
from labeled.formats.hdf5.sources import Builder, Names, with_cf
from labeled.formats.hdf5.tableless import scan_tableless
from labeled.formats.header import FileHeader, FileStamp, SourceHeader, fingerprint
from labeled.formats.naming import check_once


def scan(
    path: str | os.PathLike[str],
    *,
    sources: Sequence[str] | None = None,
    dims: Mapping[str, Names] | None = None,
    example_dim: str | None = None,
    group: str | None = None,
    decode_cf: bool = True,
    allow_external: bool = False,
    name_all: bool = False,
) -> FileHeader:
    """Read the headers of an HDF5 file.

    Parameters
    ----------
    path : str or path-like
        A local file.
    sources : sequence of str, optional
        Open only these, in this order; others are not even checked. Default: all, sorted.
    dims : mapping of source to names, optional
        Names of axes, before those in the file; None in place of a name keeps the file's.
    example_dim : str, optional
        The dim that counts examples in a file without a split table.
    group : str, optional
        Open what is below this group; names are relative to it. A pattern (``data/*``) must
        match one group here; see :mod:`.groups`.
    decode_cf : bool
        Decode packed numbers, fill values and times in files without a split table.
    allow_external : bool
        Follow links, storage and virtual datasets out of the file.
    name_all : bool
        Name axes of ragged examples by numbers where the file has no `shape_labels`.

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
        If `sources`, `dims`, `example_dim` or `group` name what is not there.
    FileChangedError
        If somebody wrote to the file meanwhile.

    Warns
    -----
    LabeledWarning
        If axes have no name, or scales or attributes cannot be used.
    """
    found = noted(
        path,
        sources=sources,
        dims=dims,
        example_dim=example_dim,
        group=group,
        decode_cf=decode_cf,
        allow_external=allow_external,
        name_all=name_all,
    )
    warn_of((header.where, notes) for header, notes in found)
    if len(found) > 1:
        raise UnknownNameError(f"group={group!r} means {len(found)} groups; name one")
    return found[0][0]


def noted(
    path: str | os.PathLike[str],
    *,
    sources: Sequence[str] | None = None,
    dims: Mapping[str, Names] | None = None,
    example_dim: str | None = None,
    group: str | None = None,
    decode_cf: bool = True,
    allow_external: bool = False,
    name_all: bool = False,
) -> list[tuple[FileHeader, Notes]]:
    """Do what :func:`scan` does, for each group that `group` means.

    What is worth a warning is returned, so that it is said once.
    """
    _check_names(sources, dims)
    stamp = stamp_of(path)
    with opened(path, headers=True) as file:
        found = [
            _noted_one(
                Builder(base, stamp, dict(dims or {}), allow_external, in_turn=one_of_many),
                sources,
                example_dim,
                decode_cf,
            )
            for base, one_of_many in _bases(file, stamp, group, allow_external)
        ]
    check_unchanged(path, stamp)
    for header, notes in found:
        notes.odd += told_of_filters(header.sources.values())
        refused = [m for n, m in notes.unnamed_examples.items() if n in header.sources]
        if refused and not name_all:
            raise DimsError(refused[0])
    return found


def _noted_one(
    builder: Builder, sources: Sequence[str] | None, example_dim: str | None, decode_cf: bool
) -> tuple[FileHeader, Notes]:
    table = read_table(builder.base)
    if table is None:
        header = scan_tableless(
            builder, wanted=sources, example_dim=example_dim, decode_cf=decode_cf
        )
    else:
        header = _scan_fuel(builder, table, sources, example_dim)
        header = _decoded(header) if decode_cf and "labeled_version" in header.attrs else header
    group = builder.base.name.strip("/") if builder.in_turn else ""
    return replace(header, group=group), builder.notes


def _check_names(sources: Sequence[str] | None, dims: Mapping[str, Names] | None) -> None:
    if isinstance(sources, str):
        raise UnknownNameError(f"sources={sources!r} is one name; give a list, [{sources!r}]")
    check_once("sources=", sources or ())
    if dims is not None and not isinstance(dims, Mapping):
        raise DimsError(f"dims={dims!r} is no mapping; give {{source: (name, ...)}}")


def _bases(
    file: h5py.File, stamp: FileStamp, group: str | None, allow_external: bool
) -> list[tuple[h5py.Group, bool]]:
    """Return the groups to look below, and whether each is one of several."""
    if group is None or not is_pattern(file["/"], group):
        return [(_base(file, stamp, group, allow_external), False)]
    found = matching(file["/"], group, allow_external=allow_external)
    if not found:
        raise UnknownNameError(
            f"file {stamp.path!r} has no group that {group!r} matches; at its root lie "
            f"{[to_text(name) for name in file.id][:12]}"
        )
    return [(base, True) for base in found.values()]


def _base(file: h5py.File, stamp: FileStamp, group: str | None, allow_external: bool) -> h5py.Group:
    if group is None:
        return file["/"]
    try:
        found = resolve(file["/"], group, allow_external=allow_external).thing
    except NotThereError:
        found = None
    if isinstance(found, h5py.Dataset):
        raise UnknownNameError(
            f"{group!r} in file {stamp.path!r} is a dataset, not a group; open it with "
            f"sources=[{group!r}]"
        )
    if not isinstance(found, h5py.Group):
        names = [to_text(name) for name in file.id]
        raise UnknownNameError(
            f"file {stamp.path!r} has no group {group!r}; {did_you_mean(group, names)}"
        )
    return found


def _scan_fuel(
    builder: Builder, table: Table, sources: Sequence[str] | None, example_dim: str | None
) -> FileHeader:
    """Scan a file with a split table: only what the table names exists."""
    _check_known(builder, table, sources)
    not_opened: dict[str, str] = {}
    described: dict[str, SourceHeader] = {}
    for name in table.sources if sources is None else sources:
        found = _fuel_dataset(builder, table, name)
        if isinstance(found, Found):
            try:
                described[name] = builder.describe(name, found)
            except UnsafeFileError as error:
                raise UnsafeFileError(f"{error}, or open the others with sources=[...]") from None
        elif sources is None:
            not_opened[name] = found
        else:
            raise FileFormatError(
                f"{name!r} in file {builder.stamp.path!r} cannot be a source: {found}"
            )
    _check_example_dim(builder, described, example_dim)
    headers = builder.with_coordinates(described)
    splits = splits_of(
        table, headers, builder.base.file, builder.stamp, allow_external=builder.allow_external
    )
    return FileHeader(
        stamp=builder.stamp,
        fingerprint=fingerprint(headers, splits),
        attrs=builder.attrs_of(builder.base, "the file", {TABLE}),
        sources=headers,
        variables=builder.variables,
        splits=splits,
        not_opened=not_opened,
        kind="fuel",
        coordinates=frozenset(builder.variables),
    )


def _decoded(header: FileHeader) -> FileHeader:
    """Let values be decoded beside splits: who writes such files otherwise means no CF."""

    def decoded(each: SourceHeader) -> SourceHeader:
        if each.ragged is not None and "values" not in each.parts:
            return each
        cf, used = cf_of(each.name, each.dtype, each.attrs, [])
        return with_cf(each, cf, used) if used else each

    return replace(
        header,
        sources={name: decoded(each) for name, each in header.sources.items()},
        variables={name: decoded(each) for name, each in header.variables.items()},
    )


def _check_known(builder: Builder, table: Table, sources: Sequence[str] | None) -> None:
    for argument, names in (("sources=", sources or ()), ("dims=", builder.given_dims)):
        for name in names:
            if name not in table.sources:
                raise UnknownNameError(
                    f"{argument} names no source {name!r} of file {builder.stamp.path!r}; "
                    f"{did_you_mean(name, table.sources)}"
                )


def _fuel_dataset(builder: Builder, table: Table, name: str) -> Found | str:
    """Return the dataset of a source, or why it cannot be one."""
    try:
        found = resolve(builder.base, name, allow_external=builder.allow_external)
    except NotThereError as error:
        if name in table.unavailable:
            return "it is not in the file, and no split provides it"
        names = [to_text(each) for each in builder.base.id]
        raise SplitError(
            f"the split table of file {builder.stamp.path!r} names source {name!r}, but there is "
            f"no such dataset ({error}); {did_you_mean(name, names)}. Correct the table, or open "
            f"the other sources with sources=[...]"
        ) from error
    if not isinstance(found.thing, h5py.Dataset):
        raise SplitError(
            f"the split table of file {builder.stamp.path!r} names source {name!r}, which is a "
            f"group or a type, not a dataset; name the dataset in it ({name + '/...'!r})"
        )
    reason = why_not_a_source(found.thing)
    if reason is None and found.thing.shape == ():
        reason = "it is a single value (no axis)"
    return found if reason is None else reason


def _check_example_dim(
    builder: Builder, described: Mapping[str, SourceHeader], example_dim: str | None
) -> None:
    for name, each in described.items():
        if example_dim is not None and each.dims[0] != example_dim:
            raise DimsError(
                f"example_dim={example_dim!r} is not axis 0 of source {name!r} in file "
                f"{builder.stamp.path!r}, whose dims are {each.dims}; in a file with a "
                f"split table axis 0 always counts the examples, so leave example_dim out"
            )
