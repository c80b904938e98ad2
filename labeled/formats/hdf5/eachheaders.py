"""Headers of sources whose examples are objects of their own; see :mod:`.each`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import h5py
import numpy as np

from labeled.errors import UnknownNameError, did_you_mean, listed
from labeled.formats.bytesource import stamp_of
from labeled.formats.hdf5.attributes import attrs_of
from labeled.formats.hdf5.columns import item_of
from labeled.formats.hdf5.door import check_unchanged, opened
from labeled.formats.hdf5.each import Each, Things, Told, things_of, values_of
from labeled.formats.hdf5.fallback import told_of_filters
from labeled.formats.hdf5.groups import name_of
from labeled.formats.hdf5.labels import (
    MOST_SUGGESTED,
    Notes,
    Unnamed,
    axes_of,
    default_name,
    name_dims,
)
from labeled.formats.hdf5.layout import class_attrs, filters_of
from labeled.formats.hdf5.sources import Names
from labeled.formats.header import ALL, FileHeader, FileStamp, SourceHeader, fingerprint
from labeled.formats.objects import TEXT

NAME, ATTRIBUTES = "name", "attrs/"
"""What the source of names is called, and how those of attributes begin."""

TOLD = "told of each example; name it in sources= to have it"
"""Why names and attributes are no sources: an epoch seldom wants all of them."""

RAGGED = "every example is a dataset of its own shape"

EXAMPLE = "example"
"""The example dim, where an axis of the examples has its usual name."""


def noted_examples(
    path: str | os.PathLike[str],
    pattern: str,
    *,
    sources: Sequence[str] | None,
    dims: Mapping[str, Names],
    allow_external: bool,
) -> tuple[FileHeader, Notes]:
    """Return the header of a file in which everything that `pattern` matches is an example.

    Parameters
    ----------
    path : str or path-like
    pattern : str
        From the root of the file: ``data/*``.
    sources, dims, allow_external
        As :func:`.scan` takes them.

    Returns
    -------
    FileHeader
    Notes
        What is worth a warning.

    Raises
    ------
    FileFormatError, UnsafeFileError
        As :func:`.things_of` raises them.
    UnknownNameError
        If the pattern matches nothing of use, or `sources` or `dims` name what is not there.
    DimsError
        If names of axes repeat, or do not fit.
    FileChangedError
        If somebody wrote to the file meanwhile.
    """
    stamp = stamp_of(path)
    things = things_of(stamp, pattern, allow_external)
    datasets = {name_of(part, pattern): part for part in sorted(things.parts)}
    wanted = [*datasets] if sources is None else sources
    not_opened = {name_of(part, pattern): why for part, why in things.left_out.items()}
    notes = Notes()
    with opened(path, headers=True) as file:
        keys = _attributes_of(file[things.names[0]])
        told = {f"{ATTRIBUTES}{key}": Told(pattern, key, allow_external) for key in keys}
        told = {NAME: Told(pattern, None, allow_external), **told}
        told = {name: one for name, one in told.items() if name not in datasets}
        for argument, names in (("sources=", wanted), ("dims=", dims)):
            _check_known(argument, names, (*told, *datasets), not_opened, stamp)
        headers = {
            name: _told(stamp, name, told[name], dims)
            if name in told
            else _dataset(
                file, stamp, name, Each(pattern, datasets[name], allow_external), things, dims,
                notes,
            )
            for name in wanted
        }  # fmt: skip
    not_opened |= {name: TOLD for name in told if name not in wanted}
    check_unchanged(path, stamp)
    splits = {ALL: {name: range(len(things.names)) for name in headers}}
    header = FileHeader(
        stamp=stamp,
        fingerprint=fingerprint(headers, splits),
        attrs={},
        sources=headers,
        variables={},
        splits=splits,
        not_opened=not_opened,
    )
    return header, Notes(odd=[*_unnamed(notes.unnamed), *told_of_filters(headers.values())])


def _check_known(
    argument: str,
    names: Iterable[str],
    known: Sequence[str],
    left_out: Mapping[str, str],
    stamp: FileStamp,
) -> None:
    for name in names:
        if name in known:
            continue
        there = f"is not in the examples of file {stamp.path!r}; {did_you_mean(name, known)}"
        cannot = f"cannot be a source of file {stamp.path!r}: {left_out.get(name)}"
        what = cannot if name in left_out else there
        raise UnknownNameError(f"{argument} names {name!r}, which {what}")


def _attributes_of(example: h5py.Group | h5py.Dataset) -> list[str]:
    """Return the attributes of an example that may be sources: numbers, and single texts."""
    values, _ = attrs_of(example)
    return sorted(key for key, value in values.items() if _is_plain(value))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str) or np.asarray(value).dtype.kind in "biufc"


def _told(stamp: FileStamp, name: str, told: Told, given: Mapping[str, Names]) -> SourceHeader:
    """Return the header of names, or of an attribute."""
    values = values_of(stamp, told)
    found = [default_name(name, 0), *[""] * (values.ndim - 1)]
    dims, _ = name_dims(stamp.path, name, found, given.get(name))
    return SourceHeader(
        file=stamp,
        name=name,
        key=f"{told.pattern} ({name})",
        shape=values.shape,
        dtype=TEXT if values.dtype.kind == "O" else values.dtype,
        dims=dims,
        storage="records",
        detail=told,
    )


def _dataset(
    file: h5py.File,
    stamp: FileStamp,
    name: str,
    each: Each,
    things: Things,
    given: Mapping[str, Names],
    notes: Notes,
) -> SourceHeader:
    """Return the header of a source, whose axes are those of the first example."""
    part = things.parts[each.part]
    shape = (len(part.shapes), *(part.shape or ()))
    dataset = file[things.path(0, each.part)]
    inner = [axis.name for axis in axes_of(dataset, name, Notes())] or [""] * part.shapes.shape[1]
    usual = default_name(name, 0)
    found = [EXAMPLE if usual in inner else usual, *inner]
    dims, unnamed = name_dims(stamp.path, name, found, given.get(name))
    if unnamed:
        notes.unnamed[name] = Unnamed((0, *unnamed), dims, shape)
    return SourceHeader(
        file=stamp,
        name=name,
        key="/".join(filter(None, (each.pattern, each.part))),
        shape=shape,
        dtype=part.dtype,
        dims=dims,
        attrs=class_attrs(item_of(dataset)),
        storage="records",
        filters=filters_of(dataset.id.get_create_plist()),
        stored_bytes=part.stored_bytes,
        ragged=RAGGED if part.shape is None else None,
        detail=each,
    )


def _unnamed(unnamed: Mapping[str, Unnamed]) -> list[str]:
    """Return what to say of axes without names."""
    few = dict(islice(unnamed.items(), MOST_SUGGESTED))
    if not few:
        return []
    dims = {name: each.likely for name, each in few.items()}
    more = ", ..." * (len(unnamed) > len(few))
    return [
        f"axes of the examples of {listed([*unnamed], MOST_SUGGESTED)} have no names; pass "
        f"dims={{{str(dims)[1:-1]}{more}}} when opening it"
    ]
