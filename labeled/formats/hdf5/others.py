"""What a file holds besides its sources, carried over into the file that is written anew.

Sources, their coordinates along one axis, names of axes and splits are written by whoever
writes. Everything else is copied here as HDF5 has it (layout, codec, attributes): datasets
that no split names, variables and coordinates of several axes, compound types, groups and
soft links. What points at other objects is restored by hand, since HDF5 does not carry
references from file to file: the scales of copied datasets, and those that copied datasets
are to sources. Afterwards each copy is compared with its original.

Where rows change places, so do those of datasets along the example dim; other datasets stay
as they are, and one that is just as long is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from labeled.errors import NotYetError, WriteError, warn
from labeled.formats.hdf5.dtypes import columns_of, item_of, refers, why_not_read
from labeled.formats.hdf5.fuel import comments_of, read_table
from labeled.formats.hdf5.labels import (
    SHAPE_LABELS,
    SHAPES,
    Scale,
    axes_of,
    is_scale,
    scale_of,
)
from labeled.formats.hdf5.own import OWN
from labeled.formats.hdf5.safety import Address, address, opened, to_text
from labeled.formats.hdf5.writing import check_room, heap_bytes
from labeled.formats.header import FileHeader
from labeled.formats.region import Array

BLOCK_BYTES = 4 << 20
"""Values compared at a time."""

LINKS = ("DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates")
"""Attributes that hold references, or numbers that other objects of the old file have."""

Moved = Callable[[Array], Array]
"""Positions in a new order to rows of the old one."""


@dataclass(frozen=True, slots=True)
class Others:
    """What of a file is carried over, by path."""

    path: str
    datasets: tuple[str, ...]
    groups: tuple[str, ...]
    soft: Mapping[str, str]
    """Soft links, and where they lead."""
    again: Mapping[str, str]
    """Further names of datasets, and the first."""
    along: frozenset[str]
    """Datasets whose first axis counts examples, by their names of axes."""
    told: Mapping[str, tuple[str, ...]]
    """Coordinates of each source that are carried over."""


def others_of(header: FileHeader) -> Others:
    """Look for what a file holds besides its sources.

    Raises
    ------
    NotYetError
        If something cannot be carried over; the message names it.
    """
    where = header.stamp.path
    sparse = [name for name, source in header.sources.items() if source.storage == "sparse"]
    if sparse:
        raise NotYetError(
            f"{where!r} holds sparse matrices ({', '.join(map(repr, sparse))}), which would become "
            f"dense; if you want that, labeled.convert with sources=[...] writes what you name"
        )
    with opened(where) as file:
        datasets: list[str] = []
        groups: list[str] = []
        soft: dict[str, str] = {}
        again: dict[str, str] = {}
        first: dict[Address, str] = {}
        keys = {source.key.strip("/") for source in header.sources.values()}
        sources = {address(file[s.key]): s.key.strip("/") for s in header.sources.values()}
        rewritten = set(_rewritten(file, header))
        obstacles = _obstacles(file, header)
        for path, kind, thing in _everything(file):
            if kind == "soft":
                soft[path] = thing
            elif kind == "group":
                groups.append(path)
            elif kind == "outside":
                if path not in keys:  # else a source, which is written into the new file
                    obstacles[path] = "it leads out of the file, see allow_external=True"
            elif (here := address(thing)) in rewritten:
                if path != sources.get(here, path):
                    again[path] = sources[here]
            elif here in first:
                again[path] = first[here]
            else:
                first[here] = path
                datasets.append(path)
                why_not = _why_not(thing)
                if why_not is not None:
                    obstacles[path] = why_not
        if obstacles:
            named = "; ".join(f"{path!r}: {why}" for path, why in obstacles.items())
            raise NotYetError(
                f"{where!r} also holds what cannot be carried over into a new file ({named}); take "
                f"it out of a copy, or use labeled.convert, which leaves it out"
            )
        return Others(
            where,
            tuple(datasets),
            tuple(groups),
            {path: to for path, to in soft.items() if path not in header.sources},
            {path: to for path, to in again.items() if path not in header.sources},
            frozenset(path for path in datasets if _is_along(file, header, path)),
            _coordinates(header, set(datasets)),
        )


def _obstacles(file: h5py.File, header: FileHeader) -> dict[str, str]:
    """Return sources that cannot be opened, and tables only some columns of which are sources."""
    named = header.not_opened if header.kind == "fuel" else ()
    columns = Counter(source.key for source in header.sources.values() if source.is_column)
    return dict.fromkeys(named, "the split table names it, and it cannot be opened") | {
        key.strip("/"): "not all columns of this table are sources"
        for key, n_opened in columns.items()
        if n_opened < sum(1 for _ in columns_of(item_of(file[key])))
    }


def _rewritten(file: h5py.File, header: FileHeader) -> Iterator[Address]:
    """Yield the objects that are written anew."""
    for source in header.sources.values():
        yield address(file[source.key])
        yield from (address(file[part.key]) for part in source.parts.values())
        for name in source.coords:
            if len(header.variables[name].dims) == 1:
                yield address(file[header.variables[name].key])
    for name, _, scale in _scales_of_sources(file, header):
        is_ragged = header.sources[name].ragged is not None
        if not scale.has_values or (is_ragged and scale.name in (SHAPES, SHAPE_LABELS)):
            yield address(scale.dataset)
    table = read_table(file["/"]) if header.kind == "fuel" else None
    for row in () if table is None else table.rows:
        if not isinstance(row.rows, range) and row.available:
            yield address(file[row.rows])


def _is_along(file: h5py.File, header: FileHeader, path: str) -> bool:
    """Whether the first axis of a dataset has a source's example dim, or is its scale."""
    thing = file[path]
    if not isinstance(thing, h5py.Dataset) or not thing.shape:
        return False
    if is_scale(thing):
        here = address(thing)
        return any(
            axis == 0
            and header.sources[name].n_rows == thing.shape[0]
            and address(scale.dataset) == here
            for name, axis, scale in _scales_of_sources(file, header)
        )
    firsts = {source.dims[0]: source.n_rows for source in header.sources.values()}
    return bool(firsts.get(axes_of(thing, path)[0].name) == thing.shape[0])


def _coordinates(header: FileHeader, carried: set[str]) -> dict[str, tuple[str, ...]]:
    """Return the coordinates of each source that are carried over."""
    keys = {name: variable.key.strip("/") for name, variable in header.variables.items()}
    return {
        name: tuple(keys[c] for c in source.coords if keys[c] in carried)
        for name, source in header.sources.items()
    }


def _everything(group: h5py.Group) -> Iterator[tuple[str, str, Any]]:
    """Yield all that hangs below a group: (path, kind, object or where a link leads)."""
    entered: set[Address] = {address(group)}
    pending = [("", group)]
    while pending:
        prefix, group = pending.pop()
        for raw in sorted(group.id):
            path = prefix + to_text(raw)
            kind = group.id.links.get_info(raw).type
            if path == OWN:
                continue
            if kind == h5py.h5l.TYPE_SOFT:
                yield path, "soft", to_text(group.id.links.get_val(raw))
            elif kind != h5py.h5l.TYPE_HARD:
                yield path, "outside", None
            else:
                thing = group[raw]
                if isinstance(thing, h5py.Group):
                    yield path, "group", thing
                    if address(thing) not in entered:
                        entered.add(address(thing))
                        pending.append((path + "/", thing))
                else:
                    yield path, "object", thing


def _why_not(thing: Any) -> str | None:
    """Return why an object cannot be copied; None if it can."""
    for name in thing.attrs:
        if name not in LINKS and refers(h5py.h5a.open(thing.id, name.encode()).dtype):
            return f"its attribute {name!r} holds references"
    if not isinstance(thing, h5py.Dataset):
        return None
    plist = thing.id.get_create_plist()
    if plist.get_external_count() or plist.get_layout() == h5py.h5d.VIRTUAL:
        return "its data lies elsewhere (external or virtual)"
    if refers(item_of(thing)):
        return "it holds references"
    unknown = why_not_read(item_of(thing))
    if unknown is not None:
        return unknown
    if is_scale(thing) and h5py.h5a.exists(thing.id, b"_Netcdf4Coordinates"):
        return "a coordinate of several axes that is called like one of them"
    return None


# into the new file


@dataclass(frozen=True, slots=True)
class Carrier:
    """Carries what a file holds besides its sources into a new one.

    Parameters
    ----------
    header : FileHeader
        Of the old file.
    others : Others
    order : callable, optional
        Where rows change places: which old rows come to new positions.
    budget : int
        Bytes of a dataset along the example dim that may be in memory.
    """

    header: FileHeader
    others: Others
    order: Moved | None = None
    budget: int = BLOCK_BYTES

    def copy(self, file: h5py.File) -> None:
        """Copy everything into a file that has its sources, whose axes have no names yet."""
        others = self.others
        with opened(others.path) as old:
            for path in others.groups:
                _copy_attributes(old[path], file.require_group(path))
            for path in others.datasets:
                _copy(old, file, path)
                self._mend(old[path], file[path], path)
            for path, first in others.again.items():
                file[path] = file[first]
            for path, to in others.soft.items():
                if path not in file:
                    file[path] = h5py.SoftLink(to)
            carried = {address(old[path]): path for path in others.datasets}
            for name, axis, scale in _scales_of_sources(old, self.header):
                if address(scale.dataset) in carried:
                    ours = file[carried[address(scale.dataset)]]
                    file[name].dims[axis].attach_scale(ours)
            self._warn_of_lengths(old)

    def _mend(self, old: Any, new: Any, path: str) -> None:
        """Take out what refers to other objects; put rows in their new places."""
        for name in LINKS:
            if h5py.h5a.exists(new.id, name.encode()):
                h5py.h5a.delete(new.id, name.encode())
        if self.order is not None and path in self.others.along:
            for start, stop, values in _blocks(old, self.order, self.budget):
                if _by_reference(old.dtype):
                    check_room(new.file, heap_bytes(values))
                new[start:stop] = values

    def tie(self, file: h5py.File) -> None:
        """Give copies their scales, and sources their coordinates, once sources have names."""
        with opened(self.others.path) as old:
            ours = {address(old[path]): file[path] for path in self.others.datasets}
            for name, place, scale in _scales_of_sources(old, self.header):
                there = _like(file[name].dims[place], scale)
                if there is not None:
                    ours.setdefault(address(scale.dataset), there)
            for path in self.others.datasets:
                if not isinstance(old[path], h5py.Dataset):
                    continue
                for number, axis in enumerate(axes_of(old[path], path)):
                    for scale in axis.scales:
                        if address(scale.dataset) in ours:
                            file[path].dims[number].attach_scale(ours[address(scale.dataset)])
            self._name_again(old, file)
        for name, coordinates in self.others.told.items():
            if coordinates:
                said = str(file[name].attrs.get("coordinates", "")).split()
                file[name].attrs["coordinates"] = " ".join(dict.fromkeys([*said, *coordinates]))

    def _name_again(self, old: h5py.File, file: h5py.File) -> None:
        """Give coordinates, written at the root, the places beside them that they had as well."""
        for name, variable in self.header.variables.items():
            new = name not in old and variable.key not in file and name in file
            if new and is_scale(file[name]) and file[name].shape == variable.shape:
                file[variable.key] = file[name]

    def comments(self) -> dict[tuple[str, str], str]:
        """Return the comments of the old split table."""
        if self.header.kind != "fuel":
            return {}
        with opened(self.others.path) as old:
            return comments_of(old)

    def check(self, part: str) -> None:
        """Compare every copy with its original.

        Raises
        ------
        WriteError
            If one differs; names it.
        """
        with opened(self.others.path) as old, opened(part) as new:
            for path in self.others.datasets:
                moved = self.order if path in self.others.along else None
                if path not in new or not _equal(old[path], new[path], moved, self.budget):
                    raise WriteError(
                        f"{path!r} of {self.others.path!r} did not arrive as it was; the disk or "
                        f"memory may be damaged, and the original is untouched"
                    )

    def _warn_of_lengths(self, old: h5py.File) -> None:
        n_rows = {source.n_rows for source in self.header.sources.values()}
        kept = [
            path
            for path in self.others.datasets
            if path not in self.others.along
            and (getattr(old[path], "shape", None) or (-1,))[0] in n_rows
            and scale_of(old[path]).has_values  # else it names a dim, and says how long that is
        ]
        if self.order is not None and kept:
            warn(
                f"{kept} of {self.others.path!r} are as long as the sources, but belong to none: "
                f"they keep their order, while rows of sources change places"
            )


def _copy(old: h5py.File, new: h5py.File, path: str) -> None:
    """Copy what lies at a path; HDF5 itself damages fill values that are text, as of netCDF."""
    thing = old[path]
    if not isinstance(thing, h5py.Dataset) or not _by_reference(thing.dtype):
        old.copy(thing, new, path)
        return
    stored = _blocks(thing, None, 0) if thing.shape else [(0, 0, thing[()])]
    check_room(new, sum(heap_bytes(np.asarray(values)) for _, _, values in stored))
    plist = thing.id.get_create_plist()
    if plist.fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        old.copy(thing, new, path)
        new.flush()  # while there is room: see check_room
        return
    new.require_group(path.rpartition("/")[0] or "/")
    space, kind = thing.id.get_space(), thing.id.get_type()
    made = h5py.Dataset(h5py.h5d.create(new.id, path.encode(), kind, space, dcpl=plist))
    for start, stop, values in _blocks(thing, None, 0) if thing.size else ():
        made[start:stop] = values
    new.flush()
    _copy_attributes(thing, made)


def _copy_attributes(old: h5py.Group, new: h5py.Group) -> None:
    """Copy attributes; texts keep the encoding that they are said to have."""
    for name in old.attrs:
        if name in new.attrs or name in LINKS:
            continue
        kept = h5py.h5a.open(old.id, name.encode())
        kind, space = kept.get_type(), kept.get_space()
        fixed = isinstance(kind, h5py.h5t.TypeStringID) and not kind.is_variable_str()
        if not fixed or space.get_simple_extent_type() == h5py.h5s.NULL:
            new.attrs[name] = old.attrs[name]
            continue
        values = np.empty(kept.shape, f"S{kind.get_size()}")
        kept.read(values, mtype=kind)
        h5py.h5a.create(new.id, name.encode(), kind, space).write(values, mtype=kind)


def _scales_of_sources(old: h5py.File, header: FileHeader) -> Iterator[tuple[str, int, Scale]]:
    """Yield every scale of every axis of a source."""
    for name, source in header.sources.items():
        for number, axis in enumerate(axes_of(old[source.key], name)):
            for scale in axis.scales:
                yield name, number, scale


def _like(axis: Any, scale: Scale) -> h5py.Dataset | None:
    """Return the scale of a new axis that stands for an old one: of its name, else the last."""
    found = [axis[i] for i in range(len(axis))]
    named = [each for each in found if scale_of(each).name == scale.name]
    return (named or found or [None])[-1]


def _blocks(
    dataset: h5py.Dataset, order: Moved | None, budget: int
) -> Iterator[tuple[int, int, Any]]:
    """Yield the rows of a dataset in their new places: (start, stop, values)."""
    n_rows = dataset.shape[0]
    step = max(BLOCK_BYTES * n_rows // max(dataset.nbytes, 1), 1)
    whole = dataset[...] if order is not None and dataset.nbytes <= budget else None
    for start in range(0, n_rows, step):
        stop = min(start + step, n_rows)
        if order is None:
            yield start, stop, dataset[start:stop]
            continue
        rows = order(np.arange(start, stop))
        if whole is not None:
            yield start, stop, whole[rows]
        else:
            ascending, places = np.unique(rows, return_inverse=True)
            yield start, stop, dataset[ascending][places]


def _equal(old: Any, new: Any, order: Moved | None, budget: int) -> bool:
    if not isinstance(old, h5py.Dataset):
        return type(old) is type(new)
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        return False
    if not old.shape:
        return old.shape is None or _same(np.asarray(old[()]), np.asarray(new[()]))
    if order is None and old.chunks is not None and not _by_reference(old.dtype):
        return _same_chunks(old, new)
    return all(
        _same(np.asarray(values), np.asarray(new[start:stop]))
        for start, stop, values in _blocks(old, order, budget)
    )


def _by_reference(dtype: np.dtype[Any]) -> bool:
    """Whether what is stored are places of values, which differ from file to file."""
    return bool(dtype.hasobject)


def _same_chunks(old: h5py.Dataset, new: h5py.Dataset) -> bool:
    """Compare chunks as they are stored, whatever codec they need."""
    here: list[Any] = []
    old.id.chunk_iter(lambda info: here.append(info.chunk_offset))
    return old.id.get_num_chunks() == new.id.get_num_chunks() and all(
        old.id.read_direct_chunk(at) == new.id.read_direct_chunk(at) for at in here
    )


def _same(one: Array, two: Array) -> bool:
    if one.shape != two.shape:
        return False
    if not one.dtype.hasobject:
        return one.tobytes() == two.tobytes()
    if one.dtype.names is not None:
        return all(_same(one[name], two[name]) for name in one.dtype.names)
    pairs = zip(one.reshape(-1).tolist(), two.reshape(-1).tolist(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)
