"""What lies in a file, found in one walk over its links: a plain list of its datasets.

Every link is looked at before it is followed, so that nothing outside the file is opened unless
that is allowed. What cannot be reached is in the list too, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np

from labeled.errors import LabeledError, UnsafeFileError
from labeled.formats.format import Options
from labeled.formats.hdf5.dtypes import Column, item_of
from labeled.formats.hdf5.labels import NON_COORDINATE, Axis, Names, Scale, Scales
from labeled.formats.hdf5.own import OWN
from labeled.formats.hdf5.safety import (
    Address,
    NotThereError,
    address,
    open_object,
    resolve,
    to_text,
)
from labeled.formats.header import FileStamp


@dataclass(frozen=True, slots=True)
class Opening:
    """A group of an open file, and how it is opened."""

    base: h5py.Group
    stamp: FileStamp
    options: Options
    dims: Mapping[str, Names] = field(default_factory=dict)
    one_of_many: bool = False
    """Whether the base is one of several groups that are joined."""
    name_all: bool = False
    """Whether axes of ragged examples are named by numbers where the file does not name them."""
    single_values: bool = False
    """Whether attributes of one value are that value, as netCDF means them."""
    scales: Scales = field(default_factory=dict)
    """Scales that were read before."""

    @property
    def asked(self) -> frozenset[str]:
        """Names that the user gives in `sources` or `dims`."""
        return frozenset(self.options.sources or ()) | self.dims.keys()

    def path_of(self, name: str) -> str:
        """Return the path from the root of what lies below the base."""
        return name if name[:1] == "/" else f"{self.base.name.rstrip('/')}/{name}"


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """A dataset of an open file, or one field of its items, as a walk meets it.

    Conventions tell more: they give out an info like this one with further fields set.
    """

    name: str
    """What users call it."""
    path: str
    """Where it is below the base; of a field, where the table is."""
    dataset: Any = None
    """Open as long as the file; None where it cannot be reached, a group for a sparse matrix."""
    address: Address = (b"", 0)
    outside: bool = False
    """Whether a link led out of the file."""
    why_not: str | None = None
    """Why it is no source."""
    error: LabeledError | None = None
    """Set where it would be a source if it could be opened."""
    column: Column | None = None
    """Which part of the items of a table is meant; None for whole items."""
    scale: Scale | None = None
    """Set for dimension scales."""
    matrix: tuple[int, int] | None = None
    """The shape of a sparse matrix."""
    axes: tuple[Axis, ...] = ()
    """Names of its axes that what lies around it tells."""
    along: bool = False
    """Whether it holds the values of an axis of other datasets, so that it is a coordinate."""
    warning: str | None = None

    @property
    def is_array(self) -> bool:
        """Whether it may become a source, as far as is known."""
        return self.why_not is None and self.scale is None and not self.along

    @property
    def item(self) -> np.dtype[Any]:
        """The dtype of an item, as far as it is meant."""
        items = item_of(self.dataset)
        return items if self.column is None else self.column.dtype_in(items)


def arrays_below(opening: Opening) -> list[ArrayInfo]:
    """Return every dataset below the base by its path, names in order; groups are entered once."""
    base, allow_external = opening.base, opening.options.allow_external
    entered, found = {address(base)}, []
    pending: list[tuple[str, h5py.Group, bool]] = [("", base, False)]
    while pending:
        prefix, group, outside = pending.pop()
        below: list[tuple[str, h5py.Group, bool]] = []
        file, links = h5py.h5f.get_name(group.id), group.id.links
        for raw in sorted(group.id):
            name = to_text(raw)
            path, beyond = prefix + name, outside
            link = links.get_info(raw)
            try:
                if link.type == h5py.h5l.TYPE_HARD:
                    thing, at = open_object(group, raw), (file, int(link.u))
                else:
                    thing, leads_out = resolve(group, name, allow_external=allow_external)
                    at, beyond = address(thing), outside or leads_out
            except (NotThereError, UnsafeFileError) as error:
                lost = None if type(error) is NotThereError else error
                found.append(ArrayInfo(_visible(path), path, why_not=str(error), error=lost))
                continue
            if isinstance(thing, h5py.Dataset):
                shown = _visible(path) if NON_COORDINATE in name else path
                found.append(ArrayInfo(shown, path, thing, at, beyond))
            elif isinstance(thing, h5py.Group) and at not in entered:
                entered.add(at)
                if path != OWN or base.name != "/":  # checksums that this library wrote
                    below.append((path + "/", thing, beyond))
        pending.extend(reversed(below))
    return found


def _visible(path: str) -> str:
    """Return the name a netCDF user knows; a variable named like another's dim is marked."""
    above, slash, last = path.rpartition("/")
    return above + slash + last.removeprefix(NON_COORDINATE)
