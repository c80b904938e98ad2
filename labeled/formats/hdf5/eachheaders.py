"""Headers of sources whose examples are objects of their own; see :mod:`.eachplaces`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import h5py

from labeled.errors import FileChangedError, UnknownNameError, did_you_mean, listed
from labeled.formats.bytesource import stamp_of
from labeled.formats.hdf5.columns import item_of
from labeled.formats.hdf5.door import opened
from labeled.formats.hdf5.eachplaces import Each, Things, things_of
from labeled.formats.hdf5.eachtold import (
    ATTRIBUTES,
    NAME,
    Told,
    attributes_of,
    dtype_of_values,
    values_of,
)
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
from labeled.formats.hdf5.layout import class_attrs
from labeled.formats.hdf5.safety import to_text
from labeled.formats.header import ALL, FileHeader, FileStamp, SourceHeader, fingerprint

Names = Sequence[str | None]

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
    parts: dict[str, Each | Told] = {
        name_of(part, pattern): Each(pattern, part, allow_external) for part in sorted(things.parts)
    }
    wanted = [*parts] if sources is None else sources
    not_opened = {name_of(part, pattern): why for part, why in things.left_out.items()}
    with opened(path, headers=True) as file:
        keys = attributes_of(file, to_text(things.names[0]))
        told = {f"{ATTRIBUTES}{key}": Told(pattern, key, allow_external) for key in keys}
        parts = {NAME: Told(pattern, None, allow_external), **told, **parts}
        for argument, names in (("sources=", wanted), ("dims=", dims)):
            _check_known(argument, names, parts, not_opened, stamp)
        look = _Headers(file, stamp, things, dims)
        headers = {name: look.of(name, parts[name]) for name in wanted}
    not_opened |= {name: TOLD for name in parts if name not in wanted and name in (NAME, *told)}
    if stamp_of(path) != stamp:
        raise FileChangedError(f"file {stamp.path!r} changed while it was opened; open it again")
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
    notes = look.notes()
    notes.odd += told_of_filters(headers.values())
    return header, notes


def _check_known(
    argument: str,
    names: Iterable[str],
    parts: Mapping[str, Each | Told],
    left_out: Mapping[str, str],
    stamp: FileStamp,
) -> None:
    for name in names:
        if name in parts:
            continue
        there = f"is not in the examples of file {stamp.path!r}; {did_you_mean(name, parts)}"
        cannot = f"cannot be a source of file {stamp.path!r}: {left_out.get(name)}"
        what = cannot if name in left_out else there
        raise UnknownNameError(f"{argument} names {name!r}, which {what}")


class _Headers:
    """Makes headers for one open file; remembers which axes nobody named."""

    def __init__(
        self, file: h5py.File, stamp: FileStamp, things: Things, given: Mapping[str, Names]
    ) -> None:
        self.file, self.stamp, self.things, self.given = file, stamp, things, given
        self.unnamed: dict[str, Unnamed] = {}

    def of(self, name: str, each: Each | Told) -> SourceHeader:
        """Return the header of a source."""
        return self._told(name, each) if isinstance(each, Told) else self._each(name, each)

    def _told(self, name: str, told: Told) -> SourceHeader:
        values = values_of(self.stamp, told)
        inner = [""] * (values.ndim - 1)
        found = [default_name(name, 0), *inner]
        dims, _ = name_dims(self.stamp.path, name, found, self.given.get(name))
        return SourceHeader(
            file=self.stamp,
            name=name,
            key=f"{told.pattern} ({name})",
            shape=values.shape,
            dtype=dtype_of_values(values),
            dims=dims,
            storage="records",
            detail=told,
        )

    def _each(self, name: str, each: Each) -> SourceHeader:
        """Return the header of a source, whose axes are those of the first example."""
        places = self.things.parts[each.part]
        shape = (len(places.offsets), *(places.shape or ()))
        first = "/".join(filter(None, (to_text(self.things.names[0]), each.part)))
        dataset = self.file[first]
        inner = [axis.name for axis in axes_of(dataset, name, Notes())]
        inner = inner or [""] * places.shapes.shape[1]
        usual = default_name(name, 0)
        found = [EXAMPLE if usual in inner else usual, *inner]
        dims, unnamed = name_dims(self.stamp.path, name, found, self.given.get(name))
        if unnamed:
            self.unnamed[name] = Unnamed((0, *unnamed), dims, shape)
        return SourceHeader(
            file=self.stamp,
            name=name,
            key="/".join(filter(None, (each.pattern, each.part))),
            shape=shape,
            dtype=places.dtype,
            dims=dims,
            attrs=class_attrs(item_of(dataset)),
            storage="records",
            filters=places.chunks.filters,
            stored_bytes=places.stored_bytes,
            ragged=RAGGED if places.shape is None else None,
            detail=each,
        )

    def notes(self) -> Notes:
        """Return what to say of axes without names."""
        few = dict(islice(self.unnamed.items(), MOST_SUGGESTED))
        if not few:
            return Notes()
        told = {name: each.likely for name, each in few.items()}
        more = ", ..." * (len(self.unnamed) > len(few))
        what = listed([*self.unnamed], MOST_SUGGESTED)
        return Notes(
            odd=[
                f"axes of the examples of {what} have no names; pass "
                f"dims={{{str(told)[1:-1]}{more}}} when opening it"
            ]
        )
