"""Axes that NeXus names: those of the arrays of a group of class NXdata.

The attributes `signal` and `axes` of the group name an array and its axes, one name an axis,
``"."`` for none; `<field>_indices` tells which axis a field lies along. Older files keep
``axes="a:b"`` at the array itself. A field as long as its axis becomes a coordinate; one that is
longer by one (edges of bins) names the axis, and stays a source.

Vigra and ilastik keep one name an axis in the attribute `axistags`, as JSON. Files of EMD have
``dim1`` and so on beside the array ``data``, and frames of pandas see :mod:`.frames`.

Nothing is guessed: where a group contradicts itself, its axes have no names, and a note says
so. One name for different fields becomes the path of each, since the values of one would be
taken for those of the other.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from labeled.formats.hdf5.attributes import plain_value
from labeled.formats.hdf5.frames import named_by_pandas
from labeled.formats.hdf5.labels import Axis, Notes, Scale, short_attribute
from labeled.formats.hdf5.safety import Address, Found, address

NAMELESS = ("", ".")
Fields = Mapping[str, Found]
"""The datasets of one group, by name."""


@dataclass(frozen=True, slots=True)
class Plot:
    """An array of a group: the name of each axis, and the fields that lie along it."""

    group: str
    array: str
    names: tuple[str, ...]
    along: tuple[tuple[str, ...], ...]

    def path(self, field: str) -> str:
        return f"{self.group}/{field}" if self.group else field


def named_axes(
    base: h5py.Group, datasets: Mapping[str, Found], notes: Notes
) -> dict[str, tuple[Axis, ...]]:
    """Return the axes that groups name, by the path of the array.

    Parameters
    ----------
    base : h5py.Group
        What paths are relative to.
    datasets : mapping of path to Found
        All that are there, under all their names.
    notes : Notes
        Is told of groups that contradict themselves.
    """
    groups: dict[str, dict[str, Found]] = defaultdict(dict)
    for path, found in datasets.items():
        group, _, name = path.rpartition("/")
        groups[group][name] = found
    plots: list[Plot] = []
    for group, fields in groups.items():
        try:
            plots += _plots(base[group] if group else base, group, fields)
        except Exception as error:  # damage surfaces as nearly any exception
            notes.odd.append(f"what group {group or '/'!r} tells of axes is left out: {error}")
    shared = _shared(plots, datasets)
    first: dict[Address, str] = {}
    return {
        plot.path(plot.array): tuple(_axes(base, plot, groups[plot.group], shared, first))
        for plot in plots
    }


def _plots(group: h5py.Group, path: str, fields: Fields) -> Iterator[Plot]:
    """Yield what a group says of its arrays; raise ValueError where it contradicts itself."""
    for array, names in _named_by_fields(group, fields):
        if array in fields and set(names) <= fields.keys():
            yield _plot(group, path, fields, array, names)
    signal = short_attribute(group, "signal")
    names = _texts(group, "axes") if signal in fields else ()
    if names:
        shape = fields[signal].thing.shape
        others = (*_texts(group, "auxiliary_signals"), "errors", f"{signal}_errors")
        alike = [n for n in others if n in fields and fields[n].thing.shape == shape]
        names = _one_an_axis(group, names, len(shape))
        for array in (signal, *alike):
            yield _plot(group, path, fields, array, names)
        return
    is_plot = short_attribute(group, "NX_class") == "NXdata"
    for array, found in fields.items():
        if names := _texts(found.thing, "axes") if is_plot else _tags(found.thing):
            yield _plot(group, path, fields, array, names)


def _named_by_fields(group: h5py.Group, fields: Fields) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield arrays whose axes fields name by what these are called, and the fields."""
    yield from named_by_pandas(group, fields)
    if h5py.h5a.exists(group.id, b"emd_group_type") and "data" in fields:
        first = 0 if "dim0" in fields else 1
        n_axes = len(fields["data"].thing.shape)
        yield "data", tuple(f"dim{first + axis}" for axis in range(n_axes))


def _tags(dataset: h5py.Dataset) -> tuple[str, ...]:
    """Return the names of axes as vigra and ilastik keep them."""
    text = short_attribute(dataset, "axistags")
    return tuple(str(axis["key"]) for axis in json.loads(text)["axes"]) if text else ()


def _texts(thing: h5py.Group | h5py.Dataset, key: str) -> tuple[str, ...]:
    """Return the names in an attribute; older files put them into one text, between colons."""
    if not h5py.h5a.exists(thing.id, key.encode()):
        return ()
    value = plain_value(thing.attrs[key])
    names: Any = re.split("[:,]", value.strip("[]")) if isinstance(value, str) else np.ravel(value)
    return tuple(str(name).strip() for name in names)


def _one_an_axis(group: h5py.Group, names: Sequence[str], n_axes: int) -> tuple[str, ...]:
    """Return a name for each axis, where fewer are given those that tell which axis they mean."""
    if len(names) == n_axes:
        return tuple(names)
    placed = [""] * n_axes
    for name in names:
        place = _indices(group, name)
        if len(place) != 1 or not 0 <= place[0] < n_axes:
            raise ValueError(f"{len(names)} names {tuple(names)} stand for {n_axes} axes")
        placed[place[0]] = name
    return tuple(placed)


def _indices(group: h5py.Group, field: str) -> tuple[int, ...]:
    """Return the axes that a field is said to lie along; none where nothing is said."""
    key = f"{field}_indices".encode("utf-8", "surrogateescape")
    return tuple(map(int, np.ravel(group.attrs[key]))) if h5py.h5a.exists(group.id, key) else ()


def _plot(group: h5py.Group, path: str, fields: Fields, array: str, names: tuple[str, ...]) -> Plot:
    shape = fields[array].thing.shape
    named = [name for name in names if name not in NAMELESS]
    if len(names) != len(shape) or len(set(named)) < len(named):
        raise ValueError(f"{array!r} has {len(shape)} axes, and their names are {names}")
    places = {name: _indices(group, name) for name in {*fields, *named} - {array}}
    for axis, name in enumerate(names):
        if name in named and axis not in (places[name] or (axis,)):
            raise ValueError(f"{name!r} names axis {axis}, and its indices are {places[name]}")
        places[name] = places.get(name) or (axis,)
    said = tuple(_name(fields, name, n) for name, n in zip(names, shape, strict=True))
    along = tuple(
        tuple(n for n in fields if places.get(n) == (axis,) and fields[n].thing.shape == (length,))
        for axis, length in enumerate(shape)
    )
    return Plot(path, array, said, along)


def _name(fields: Fields, name: str, length: int) -> str:
    """Return how an axis is called: not at all by a field that lies along several axes."""
    shape = fields[name].thing.shape if name in fields else (length,)
    if name in NAMELESS or len(shape) > 1:
        return ""
    if shape not in ((length,), (length + 1,)):
        raise ValueError(f"{name!r} has shape {shape} along an axis of {length}")
    return name


def _shared(plots: Sequence[Plot], datasets: Mapping[str, Found]) -> frozenset[str]:
    """Return the names that mean different fields in different groups."""
    meant: dict[str, set[Any]] = defaultdict(set)
    for plot in plots:
        for name in {*plot.names}.union(*plot.along):
            path = plot.path(name)
            meant[name].add(address(datasets[path].thing) if path in datasets else path)
    return frozenset(name for name, things in meant.items() if len(things) > 1)


def _axes(
    base: h5py.Group,
    plot: Plot,
    fields: Fields,
    shared: frozenset[str],
    first: dict[Address, str],
) -> Iterator[Axis]:
    """Yield the axes of an array; `first` are the names by which fields were met first."""

    def path_of(name: str) -> str:
        path = plot.path(name)
        return first.setdefault(address(fields[name].thing), path) if name in fields else path

    def called(name: str) -> str:
        return path_of(name) if name in shared else name

    def scale(name: str) -> Scale:
        where = f"{base.name.rstrip('/')}/{path_of(name)}"
        return Scale(called(name), fields[name].thing, where)

    shape = fields[plot.array].thing.shape
    for length, name, along in zip(shape, plot.names, plot.along, strict=True):
        inside = [n for n in along if name and not fields[n].outside]  # others: through a source
        yield Axis(length, called(name) if name else "", tuple(map(scale, inside)))
