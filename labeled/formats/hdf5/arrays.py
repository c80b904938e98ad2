"""What lies in a file, found in one walk over its links: a plain list of its datasets.

Every link is looked at before it is followed, so that nothing outside the file is opened unless
that is allowed. What cannot be reached is in the list too, with the reason.

Attributes come as plain values: text as str, numbers as NumPy has them, nothing of HDF5's own.
One that cannot be read costs only itself. HDF5's bookkeeping is not even read: in damaged files,
reading its reference lists is known to hang. Files may have tens of thousands of attributes, and
most of the time that opening a file takes goes there, so numbers, which most of them are, are
read by the shortest way that h5py has.

Groups: a pattern such as ``data/demo_*`` means every group that it matches, a demonstration,
episode or molecule each; their rows follow one another like those of several files, in the order
of the numbers in their names. If a file looks like that, and no pattern was given, a note says
which pattern fits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import has_magic
from typing import Any

import h5py
import numpy as np

from labeled.errors import LabeledError, UnsafeFileError
from labeled.formats.cf import FILLS
from labeled.formats.format import Options
from labeled.formats.hdf5.dtypes import Column, item_of, numpy_type, refers
from labeled.formats.hdf5.labels import NON_COORDINATE, Axis, Names, Scale, Scales
from labeled.formats.hdf5.metadata import OWN
from labeled.formats.hdf5.safety import (
    Address,
    NotThereError,
    address,
    find,
    open_object,
    resolve,
    to_bytes,
    to_text,
)
from labeled.formats.header import FileStamp, SourceHeader


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
    """Why it is not a source."""
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


# attributes


INTERNAL = frozenset(
    {
        "CLASS",
        "NAME",
        "DIMENSION_LIST",
        "DIMENSION_LABELS",
        "REFERENCE_LIST",
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_nc3_strict",
    }
)


def attrs_of(
    thing: h5py.Group | h5py.Dataset,
    what: str,
    faults: list[str],
    *,
    leave_out: Collection[str] = (),
    scalars: bool = False,
) -> dict[str, Any]:
    """Return the attributes of an object, in the order that they were made where it is known.

    Parameters
    ----------
    what : str
        The object, for messages.
    faults : list of str
        Receives what cannot be read.
    leave_out : names
        Further attributes to leave out, such as the split table.
    scalars : bool
        Turn arrays of one value into that value, as netCDF means them.

    References, and compounds that hold them, mean nothing outside an open file; they
    are left out like HDF5's own.
    """
    values: dict[str, Any] = {}
    unreadable: list[str] = []
    attributes = thing.attrs if h5py.h5a.get_num_attrs(thing.id) else {}
    for name in attributes:
        text = to_text(name)
        if text in INTERNAL or text in leave_out:
            continue
        try:
            value = _numbers(thing, to_bytes(text))
            if value is None:
                value = attributes[name]
                if _holds_references(value):
                    continue
        except Exception:  # any exception may come of a foreign or damaged type
            unreadable.append(text)
            continue
        fill = text in FILLS and isinstance(value, bytes)  # one of the values, so no text either
        values[text] = value if fill else plain_value(value, scalars=scalars)
    if unreadable:
        faults.append(f"attributes of {what} cannot be read: {', '.join(map(repr, unreadable))}")
    return values


def _numbers(thing: h5py.Group | h5py.Dataset, name: bytes) -> Any:
    """Return an attribute of integers or floats as NumPy has them; None for any other."""
    kept = h5py.h5a.open(thing.id, name)
    kind = kept.get_type()
    if not isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        return None
    shape, dtype = kept.shape, kind.dtype
    if shape is None:
        return None
    values = np.empty(shape, dtype)
    kept.read(values, mtype=numpy_type(dtype))
    return values[()]


def plain_value(value: Any, *, scalars: bool = False) -> Any:
    """Return an attribute value as something that pickles and prints.

    Examples
    --------
    >>> plain_value(b"metres"), plain_value(np.array([b"a", b"b"]))
    ('metres', ['a', 'b'])
    >>> plain_value(np.array([0.5]), scalars=True)
    np.float64(0.5)
    """
    if isinstance(value, h5py.Empty):
        return "" if value.dtype.kind in "SO" else None
    if isinstance(value, bytes | np.bytes_):
        return to_text(bytes(value))
    if isinstance(value, str):
        return str(value)
    if isinstance(value, np.ndarray):
        if scalars and value.shape == (1,):
            return plain_value(value[0])
        if value.dtype.kind in "SO":
            return _plain_list(value.tolist())
        return np.array(value)
    return value


def _plain_list(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain_list(each) for each in value]
    if isinstance(value, np.ndarray):  # a row of a variable-length attribute
        return value.tolist()
    return to_text(value) if isinstance(value, bytes) else value


def _holds_references(value: Any) -> bool:
    if isinstance(value, h5py.Reference | h5py.RegionReference):
        return True
    dtype = getattr(value, "dtype", None)
    return isinstance(dtype, np.dtype) and refers(dtype)


# groups and datasets that are alike


MIN_ALIKE = 3
"""Groups with the same sources that are taken for examples of one kind."""

MIN_DATASETS = 50
"""Datasets side by side that are taken for one example each; a table has fewer columns."""

MAX_NAMED = 4
"""Sources of such groups that a note names."""

ROOT_NAME = "x"
"""What the source is called whose examples are datasets at the root of the file."""


def is_pattern(base: h5py.Group, group: str) -> bool:
    """Whether a name means groups by a pattern; one that is there is meant as it is."""
    return has_magic(group) and group not in base


def matching(base: h5py.Group, pattern: str, *, allow_external: bool) -> dict[str, h5py.Group]:
    """Return the groups that a pattern matches, level by level, by path in natural order."""
    found = {"": base}
    for part in filter(None, pattern.split("/")):
        found = {
            f"{path}/{name}".lstrip("/"): thing
            for path, group in found.items()
            for name in sorted(map(to_text, group.id), key=natural)
            if fnmatchcase(name, part)
            and isinstance(
                thing := find(group, name, allow_external=allow_external).thing, h5py.Group
            )
        }
    return found


def natural(name: str) -> list[Any]:
    """Return a key that sorts by the numbers in names.

    Examples
    --------
    >>> sorted(["demo_10", "demo_9", "demo"], key=natural)
    ['demo', 'demo_9', 'demo_10']
    """
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


Children = dict[str, dict[str, SourceHeader]]
"""The sources of each group, by what their names end in; a dataset has the end ``""``."""


def how_to_join(sources: Mapping[str, SourceHeader], nameless: Collection[str]) -> str | None:
    """Return advice where most sources are alike: in groups, or side by side; None elsewhere.

    An axis 0 that has a name counts examples, so that datasets are examples only among the
    `nameless`.
    """
    for parent, children in _alike(sources):
        if all("" not in one for one in children.values()):
            return _of_groups(parent, children)
    found = _datasets_alike({name: sources[name] for name in sources if name in nameless})
    if found is None:
        return None
    parent, names = found
    return (
        f" holds {len(names):,} datasets alike, {names[0]!r} to {names[-1]!r}. If each of them is "
        f"one example: examples={_pattern(parent, names)!r} when opening it"
    )


def pattern_of_datasets(sources: Mapping[str, SourceHeader]) -> str | None:
    """Return what matches the datasets alike that most sources are; None where they are not."""
    found = _datasets_alike(sources)
    return None if found is None else _pattern(*found)


def _datasets_alike(sources: Mapping[str, SourceHeader]) -> tuple[str, list[str]] | None:
    """Return the group that holds most sources as datasets alike, and what they are called."""
    for parent, children in _alike(sources):
        if len(children) >= MIN_DATASETS and any("" in one for one in children.values()):
            return parent, sorted(children, key=natural)
    return None


def _alike(sources: Mapping[str, SourceHeader]) -> Iterator[tuple[str, Children]]:
    """Yield what lies side by side and holds sources of the same names and kinds, where that
    makes most of the sources.

    Datasets of one axis, which may be columns, are alike only if their names differ by digits
    alone.
    """
    deepest = max((name.count("/") for name in sources), default=0)
    for depth in range(deepest + 1):
        below: dict[str, Children] = {}
        for name, header in sources.items():
            parts = name.split("/")
            if len(parts) > depth:
                group = below.setdefault("/".join(parts[:depth]), {})
                group.setdefault(parts[depth], {})["/".join(parts[depth + 1 :])] = header
        for parent, children in sorted(below.items()):
            kinds: dict[Any, Children] = {}
            for child, held in children.items():
                is_column = "" in held and len(held[""].shape) == 1
                stem = re.sub("[0-9]+", "", child) if is_column else None
                kind = frozenset((n, h.dtype.str, len(h.shape)) for n, h in held.items())
                kinds.setdefault((stem, kind), {})[child] = held
            alike = max(kinds.values(), key=len)
            if len(alike) >= MIN_ALIKE and 2 * sum(map(len, alike.values())) > len(sources):
                yield parent, alike


def _of_groups(parent: str, children: Children) -> str:
    first, *others = children.values()
    names, pattern = sorted(first), _pattern(parent, children)
    even = [n for n in names if all(o[n].row_shape == first[n].row_shape for o in others)]
    few = ", ".join(map(repr, names[:MAX_NAMED])) + ", ..." * (len(names) > MAX_NAMED)
    advice = f" holds the same sources ({few}) in {len(children):,} groups"
    if even:
        some = "" if even == names else f", sources={even}"
        advice += (
            f"; group={pattern!r}{some} joins them, rows after rows, as if they were files, and "
            "leaves single values out"
        )
    one = "/".join(filter(None, (parent, next(iter(children)))))
    return (
        f"{advice}; group={one!r} opens one of them. If each group is one example: "
        f"examples={pattern!r} when opening it"
    )


def name_of(part: str, pattern: str) -> str:
    """Return what a source is called whose examples a pattern matches, or a part of each.

    Examples
    --------
    >>> name_of("obs/image", "demo_*"), name_of("", "data/*"), name_of("", "*")
    ('obs/image', 'data', 'x')
    """
    above = pattern.strip("/").rpartition("/")[0].rpartition("/")[2]
    return part or (ROOT_NAME if not above or has_magic(above) else above)


def _pattern(parent: str, names: Iterable[str]) -> str:
    """Return a pattern of how all names begin, up to the first digit."""
    same = os.path.commonprefix([*names])  # noqa: RUF071 (of characters)
    begin = re.split("[0-9]", same)[0]
    return f"{parent}/{begin}*" if parent else f"{begin}*"
