"""Everything in a file besides its sources, copied into the file that is written anew.

Sources, their coordinates along one axis, names of axes and splits are written by the caller.
Everything else is copied here as HDF5 has it (layout, codec, attributes): datasets that no split
names, variables and coordinates of several axes, compound types, groups and soft links. HDF5 does
not carry references from file to file, so these are restored by hand: the scales of copied
datasets, and copied datasets that are scales of sources. Then each copy is compared with its
original.

If rows change places, so do those of datasets along the example dim; other datasets stay
as they are, and a warning names those that are just as long.
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
from labeled.formats.hdf5.fuel import read_table
from labeled.formats.hdf5.labels import SHAPE_LABELS, SHAPES, Scale, axes_of, is_scale, scale_of
from labeled.formats.hdf5.metadata import OWN
from labeled.formats.hdf5.safety import Address, address, opened, to_text
from labeled.formats.hdf5.writing import check_room, heap_bytes
from labeled.formats.header import FileHeader
from labeled.formats.region import Array

BLOCK_BYTES = 4 << 20
"""Values copied or compared at a time."""

LINKS = ("DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates")
"""Attributes that hold references, or numbers of other objects of the old file."""

Moved = Callable[[Array], Array]
"""Positions in a new order to rows of the old one."""


@dataclass(frozen=True, slots=True)
class Extras:
    """What of a file is copied into a new one, by path."""

    header: FileHeader
    datasets: tuple[str, ...]
    groups: tuple[str, ...]
    links: Mapping[str, str]
    """Soft links, and where they lead."""
    other_names: Mapping[str, str]
    """Further names of datasets, and the first."""
    along: frozenset[str]
    """Datasets whose first axis counts examples."""
    order: Moved | None = None
    """If rows change places: which old rows come to new positions."""
    budget: int = BLOCK_BYTES
    """Bytes of a dataset along the example dim that may be in memory."""

    @property
    def path(self) -> str:
        return self.header.stamp.path

    def copy(self, file: h5py.File) -> None:
        """Copy everything into a file that has its sources, whose axes have no names yet."""
        with opened(self.path) as old:
            for path in self.groups:
                _copy_attributes(old[path], file.require_group(path))
            for path in self.datasets:
                _copy(old, file, path)
                for name in LINKS:
                    if h5py.h5a.exists(file[path].id, name.encode()):
                        h5py.h5a.delete(file[path].id, name.encode())
                if self.order is not None and path in self.along:
                    _store(file[path], _blocks(old[path], self.order, self.budget))
            for path, first in self.other_names.items():
                file[path] = file[first]
            for path, to in self.links.items():
                if path not in file:
                    file[path] = h5py.SoftLink(to)
            copied = {address(old[path]): path for path in self.datasets}
            for name, axis, scale in _scales_of_sources(old, self.header):
                if address(scale.dataset) in copied:
                    file[name].dims[axis].attach_scale(file[copied[address(scale.dataset)]])
            if self.order is not None:
                self._warn_of_lengths(old)

    def tie(self, file: h5py.File) -> None:
        """Give copies their scales, and sources their coordinates, once sources have names."""
        variables = self.header.variables
        with opened(self.path) as old:
            new = {address(old[path]): file[path] for path in self.datasets}
            for name, number, scale in _scales_of_sources(old, self.header):
                scales = [*file[name].dims[number].values()]
                named = [each for each in scales if scale_of(each).name == scale.name]
                for each in (named or scales)[-1:]:
                    new.setdefault(address(scale.dataset), each)
            for path in self.datasets:
                axes = axes_of(old[path], path) if isinstance(old[path], h5py.Dataset) else ()
                for number, axis in enumerate(axes):
                    for scale in axis.scales:
                        if address(scale.dataset) in new:
                            file[path].dims[number].attach_scale(new[address(scale.dataset)])
            for name, variable in variables.items():  # coordinates are written at the root
                fresh = name not in old and variable.key not in file and name in file
                if fresh and is_scale(file[name]) and file[name].shape == variable.shape:
                    file[variable.key] = file[name]
        for name, source in self.header.sources.items():
            keys = [variables[coordinate].key.strip("/") for coordinate in source.coords]
            copies = [key for key in keys if key in self.datasets]
            if copies:
                names = str(file[name].attrs.get("coordinates", "")).split()
                file[name].attrs["coordinates"] = " ".join(dict.fromkeys([*names, *copies]))

    def comments(self) -> dict[tuple[str, str], str]:
        """Return the comments of the old split table."""
        if self.header.kind != "fuel":
            return {}
        with opened(self.path) as old:
            table = read_table(old["/"])
        return {} if table is None else table.comments

    def check(self, part: str) -> None:
        """Compare every copy with its original.

        Raises
        ------
        WriteError
            If one differs; names it.
        """
        with opened(self.path) as old, opened(part) as new:
            for path in self.datasets:
                order = self.order if path in self.along else None
                if path not in new or not _equal(old[path], new[path], order, self.budget):
                    raise WriteError(
                        f"{path!r} of {self.path!r} did not arrive as it was; the disk or "
                        f"memory may be damaged, and the original is untouched"
                    )

    def _warn_of_lengths(self, old: h5py.File) -> None:
        n_rows = {source.n_rows for source in self.header.sources.values()}
        kept = [
            path
            for path in self.datasets
            if path not in self.along
            and (getattr(old[path], "shape", None) or (-1,))[0] in n_rows
            and scale_of(old[path]).has_values  # else it names a dim, and says how long that is
        ]
        if kept:
            warn(
                f"{kept} of {self.path!r} are as long as the sources, but belong to none: "
                f"they keep their order, while rows of sources change places"
            )


# what there is


def extras_of(header: FileHeader) -> Extras:
    """Look for what a file holds besides its sources.

    Raises
    ------
    NotYetError
        If something cannot be copied; the message names it.
    """
    where = header.stamp.path
    sparse = [name for name, source in header.sources.items() if source.storage == "sparse"]
    if sparse:
        raise NotYetError(
            f"{where!r} holds sparse matrices ({', '.join(map(repr, sparse))}), which would become "
            f"dense; if you want that, labeled.convert with sources=[...] writes what you name"
        )
    with opened(where) as file:
        datasets: dict[Address, str] = {}
        groups: list[str] = []
        links: dict[str, str] = {}
        other_names: dict[str, str] = {}
        sources = {address(file[s.key]): s.key.strip("/") for s in header.sources.values()}
        written = {*sources, *_written_anew(file, header)}
        obstacles = _obstacles(file, header)
        for path, kind, thing in _everything(file):
            if kind == "soft":
                links[path] = thing
            elif kind == "group":
                groups.append(path)
            elif kind == "outside":
                if path not in sources.values():  # else a source, which is written anew
                    obstacles[path] = "it leads out of the file, see allow_external=True"
            elif (here := address(thing)) in written:
                if path != sources.get(here, path):
                    other_names[path] = sources[here]
            elif here in datasets:
                other_names[path] = datasets[here]
            else:
                datasets[here] = path
                why_not = _why_not(thing)
                if why_not is not None:
                    obstacles[path] = why_not
        if obstacles:
            named = "; ".join(f"{path!r}: {why}" for path, why in obstacles.items())
            raise NotYetError(
                f"{where!r} also holds what cannot be carried over into a new file ({named}); take "
                f"it out of a copy, or use labeled.convert, which leaves it out"
            )
        return Extras(
            header,
            tuple(datasets.values()),
            tuple(groups),
            {path: to for path, to in links.items() if path not in header.sources},
            {path: to for path, to in other_names.items() if path not in header.sources},
            frozenset(path for path in datasets.values() if _is_along(file, header, path)),
        )


def _obstacles(file: h5py.File, header: FileHeader) -> dict[str, str]:
    """Return sources that cannot be opened, and tables only some columns of which are sources."""
    named = header.not_opened if header.kind == "fuel" else ()
    obstacles = dict.fromkeys(named, "the split table names it, and it cannot be opened")
    columns = Counter(source.key for source in header.sources.values() if source.is_column)
    for key, n_opened in columns.items():
        if n_opened < sum(1 for _ in columns_of(item_of(file[key]))):
            obstacles[key.strip("/")] = "not all columns of this table are sources"
    return obstacles


def _written_anew(file: h5py.File, header: FileHeader) -> Iterator[Address]:
    """Yield the objects besides sources that are written anew."""
    for source in header.sources.values():
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
    thing, sources = file[path], header.sources
    if not isinstance(thing, h5py.Dataset) or not thing.shape:
        return False
    if is_scale(thing):
        return any(
            (axis, sources[name].n_rows) == (0, thing.shape[0])
            and address(scale.dataset) == address(thing)
            for name, axis, scale in _scales_of_sources(file, header)
        )
    lengths = {source.dims[0]: source.n_rows for source in sources.values()}
    return bool(lengths.get(axes_of(thing, path)[0].name) == thing.shape[0])


def _scales_of_sources(old: h5py.File, header: FileHeader) -> Iterator[tuple[str, int, Scale]]:
    """Yield every scale of every axis of a source."""
    for name, source in header.sources.items():
        for number, axis in enumerate(axes_of(old[source.key], name)):
            for scale in axis.scales:
                yield name, number, scale


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
            elif not isinstance(thing := group[raw], h5py.Group):
                yield path, "object", thing
            else:
                yield path, "group", thing
                if address(thing) not in entered:
                    entered.add(address(thing))
                    pending.append((path + "/", thing))


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
    if is_scale(thing) and h5py.h5a.exists(thing.id, b"_Netcdf4Coordinates"):
        return "a coordinate of several axes that is called like one of them"
    return why_not_read(item_of(thing))


# into the new file


def _copy(old: h5py.File, new: h5py.File, path: str) -> None:
    """Copy what lies at a path; HDF5 itself damages fill values that are text, as of netCDF."""
    thing = old[path]
    if not isinstance(thing, h5py.Dataset) or not thing.dtype.hasobject:
        old.copy(thing, new, path)
        return
    blocks = _blocks(thing, None, 0) if thing.shape else [(0, 0, thing[()])]
    check_room(new, sum(heap_bytes(np.asarray(values)) for _, _, values in blocks))
    plist = thing.id.get_create_plist()
    if plist.fill_value_defined() != h5py.h5d.FILL_VALUE_USER_DEFINED:
        old.copy(thing, new, path)
        new.flush()  # while there is room: see check_room
        return
    new.require_group(path.rpartition("/")[0] or "/")
    space, kind = thing.id.get_space(), thing.id.get_type()
    made = h5py.Dataset(h5py.h5d.create(new.id, path.encode(), kind, space, dcpl=plist))
    _store(made, _blocks(thing, None, 0) if thing.size else [])
    new.flush()
    _copy_attributes(thing, made)


def _store(new: h5py.Dataset, blocks: Any) -> None:
    for start, stop, values in blocks:
        if new.dtype.hasobject:
            check_room(new.file, heap_bytes(values))
        new[start:stop] = values


def _copy_attributes(old: h5py.Group, new: h5py.Group) -> None:
    """Copy attributes; texts keep the encoding that they claim to have."""
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
        elif whole is not None:
            yield start, stop, whole[order(np.arange(start, stop))]
        else:
            rows, places = np.unique(order(np.arange(start, stop)), return_inverse=True)
            yield start, stop, dataset[rows][places]


# afterwards


def _equal(old: Any, new: Any, order: Moved | None, budget: int) -> bool:
    if not isinstance(old, h5py.Dataset):
        return type(old) is type(new)
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        return False
    if not old.shape:
        return old.shape is None or _same(np.asarray(old[()]), np.asarray(new[()]))
    if order is None and old.chunks is not None and not old.dtype.hasobject:
        chunks: list[Any] = []  # compared as they are stored, whatever codec they need
        old.id.chunk_iter(lambda info: chunks.append(info.chunk_offset))
        return len(chunks) == new.id.get_num_chunks() and all(
            old.id.read_direct_chunk(at) == new.id.read_direct_chunk(at) for at in chunks
        )
    return all(
        _same(np.asarray(values), np.asarray(new[start:stop]))
        for start, stop, values in _blocks(old, order, budget)
    )


def _same(one: Array, two: Array) -> bool:
    if one.dtype.names is not None:
        return all(_same(one[name], two[name]) for name in one.dtype.names)
    if one.shape != two.shape or not one.dtype.hasobject:
        return one.shape == two.shape and one.tobytes() == two.tobytes()
    return all(map(np.array_equal, one.reshape(-1).tolist(), two.reshape(-1).tolist()))
