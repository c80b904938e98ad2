"""Opening a file: one pass over its headers, and everything known about it afterwards.

It reads attributes, shapes, dtypes and the lists of rows that splits refer to, but no example,
and it never counts chunks, so opening takes the same few milliseconds for a thousand chunks or
a million. The file is closed again before anything is returned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import h5py

from labeled.errors import DimsError, UnknownNameError, did_you_mean, warn
from labeled.formats.bytesource import stamp_of
from labeled.formats.format import Head, Options
from labeled.formats.hdf5.arrays import Opening
from labeled.formats.hdf5.door import check_unchanged, opened
from labeled.formats.hdf5.fuel import TABLE, read_table, scan_fuel
from labeled.formats.hdf5.generic import scan_generic
from labeled.formats.hdf5.groups import is_pattern, matching
from labeled.formats.hdf5.labels import Names
from labeled.formats.hdf5.per_object import scan_examples
from labeled.formats.hdf5.safety import NotThereError, resolve, to_text
from labeled.formats.header import FileHeader
from labeled.formats.naming import check_once

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
    name_all: bool = False,
    quiet: bool = False,
    **options: Any,
) -> FileHeader:
    """Read the headers of one HDF5 file.

    Parameters
    ----------
    path : str or path-like
        A local file, or an address.
    sources : sequence of str, optional
        Open only these, in this order; others are not even checked. Default: all, sorted.
    dims : mapping of source to names, optional
        Names of axes, before those in the file; None in place of a name keeps the file's.
    name_all : bool
        Name axes of ragged examples by numbers where the file has no `shape_labels`.
    quiet : bool
        Warn of nothing.
    **options
        Others of :class:`~labeled.formats.format.Options`: `example_dim`, `group`, `decode_cf`,
        `allow_external`. A pattern (``data/*``) as `group` must match one group here.

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
    if isinstance(sources, str):
        raise UnknownNameError(f"sources={sources!r} is one name; give a list, [{sources!r}]")
    check_once("sources=", sources or ())
    if dims is not None and not isinstance(dims, Mapping):
        raise DimsError(f"dims={dims!r} is no mapping; give {{source: (name, ...)}}")
    chosen = None if sources is None else tuple(sources)
    headers = _scan(path, Options(sources=chosen, **options), dims or {}, name_all=name_all)
    if not quiet:
        _warn_of(headers)
    if len(headers) > 1:
        raise UnknownNameError(f"group={options['group']!r} means {len(headers)} groups; name one")
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
            has_table = h5py.h5a.exists(base.id, TABLE.encode())
            table = read_table(base) if has_table else None
            headers.append(scan_generic(opening) if table is None else scan_fuel(opening, table))
    check_unchanged(path, stamp)
    return headers


def _group(root: h5py.Group, path: str, group: str, *, allow_external: bool) -> h5py.Group:
    try:
        found = resolve(root, group, allow_external=allow_external).thing
    except NotThereError:
        found = None
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
    """Warn of what files told, once for all that it holds for alike."""
    where: dict[str, list[str]] = {}
    for header in headers:
        for text in header.warnings:
            where.setdefault(text, []).append(header.where)
    for text, paths in where.items():
        more = f" (like {len(paths) - 1} of the others)" if len(paths) > 1 else ""
        warn(f"file {paths[0]!r}{more}{text}")
