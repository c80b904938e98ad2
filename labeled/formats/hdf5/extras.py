"""Everything in a file besides its sources, copied into the file that is written anew.

Sources, their coordinates along one axis, names of axes and splits are written by the caller.
Everything else is copied here as HDF5 has it (layout, codec, attributes): datasets that no split
names, variables and coordinates of several axes, compound types, groups and soft links. HDF5 does
not carry references from file to file, so these are restored by hand: the scales of copied
datasets, and copied datasets that are scales of sources.

If rows change places, so do those of datasets along the example dim; other datasets stay
as they are, and a warning names those that are just as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from labeled.errors import NotYetError, warn
from labeled.formats.bytesource import open_bytes
from labeled.formats.hdf5.dtypes import item_of, refers, why_not_read
from labeled.formats.hdf5.fuel import TABLE, SplitTable, read_table
from labeled.formats.hdf5.labels import INTERNAL, SHAPE_LABELS, SHAPES, Scale, axes_of, scale_of
from labeled.formats.hdf5.metadata import OWN
from labeled.formats.hdf5.safety import address, opened, to_bytes
from labeled.formats.hdf5.writing import store_objects
from labeled.formats.header import FileHeader, vlen_base
from labeled.formats.region import Array

BLOCK_BYTES = 4 << 20  # values copied at a time

# attributes that hold references, or numbers of other objects of the old file
LINKS = ("DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates")
# what PyTables says of a table, whose columns become datasets of a group
OF_TABLES = re.compile("|".join(INTERNAL) + "|VERSION|NROWS|FIELD_[0-9]+_.*")

Moved = Callable[[Array], Array]  # positions in a new order to rows of the old one


@dataclass(frozen=True, slots=True)
class Extras:
    """What of a file is copied into a new one, by path."""

    header: FileHeader
    objects: Sequence[str]  # groups, datasets and named types; what lies in a group comes after it
    # soft links, and further names of groups and datasets with the first
    links: Mapping[str, str | h5py.SoftLink]
    comments: Mapping[tuple[str, str], str]  # those of the split table
    along: Collection[str]  # datasets whose first axis counts examples
    order: Moved | None  # if rows change places: which old rows come to new positions
    budget: int  # bytes of a dataset along the example dim that may be in memory
    has_scales: bool  # on axes of sources, as netCDF has them
    unlimited: Collection[str]  # dims of sources whose scales may grow
    user_block: bytes  # what the file begins with, as those of MATLAB do; HDF5 leaves it alone

    def copy(self, file: h5py.File) -> None:
        """Copy everything into a file that has its sources, whose axes have no names yet."""
        with opened(self.header.stamp.path) as old:
            copied = {}
            for path in self.objects:
                self._copy(old[path], file, path)
                copied[address(old[path])] = file[path]
            for source in self.header.sources.values():
                if source.is_column:
                    table = old[source.key]
                    but = {name for name in table.attrs if OF_TABLES.fullmatch(name)}
                    _copy_attributes(table, file[source.key], but.union(_referring(table)))
            self._link(file)
            for name, axis, scale in _scales_of_sources(old, self.header):
                new = copied.get(address(scale.dataset))
                # examples that now lie end to end have an axis of values instead of one of rows
                rows = vlen_base(old[self.header.sources[name].key].dtype) is not None
                flat = rows and vlen_base(file[name].dtype) is None
                if new is not None and not flat:
                    file[name].dims[axis].attach_scale(new)

    def _link(self, file: h5py.File) -> None:
        """Make the links to what the file has by now."""
        for path, to in self.links.items():
            if path in file:
                continue
            if not isinstance(to, str):
                file[path] = to
            elif to in file:
                file[path] = file[to]

    def _copy(self, thing: Any, new: h5py.File, path: str) -> None:
        """Copy an object to a path, with its rows in their new places.

        HDF5 itself damages fill values that are text, as of netCDF, and ends the process where
        there is no room for texts.
        """
        order = self.order if path in self.along else None
        by_hand = isinstance(thing, h5py.Dataset) and thing.dtype.hasobject
        if isinstance(thing, h5py.Group):
            new.require_group(path)
        elif by_hand:
            plist, space = thing.id.get_create_plist(), thing.id.get_space()
            h5py.h5d.create(new.id, to_bytes(path), thing.id.get_type(), space, dcpl=plist)
        else:
            new.copy(thing, new, path, without_attrs=True)
        _copy_attributes(thing, new[path], _referring(thing))
        if by_hand and thing.shape == ():
            new[path][()] = thing[()]
        elif order is not None or (by_hand and thing.shape):
            for start, values in _blocks(thing, order, self.budget):
                if by_hand:
                    store_objects(new[path], start, values)
                else:
                    new[path][start : start + len(values)] = values

    def tie(self, file: h5py.File) -> None:
        """Give copies their scales, and sources their coordinates, once sources have names."""
        variables = self.header.variables
        with opened(self.header.stamp.path) as old:
            new = {address(old[path]): file[path] for path in self.objects}
            for name, number, scale in _scales_of_sources(old, self.header):
                scales = [*file[name].dims[number].values()]
                named = [each for each in scales if scale_of(each).name == scale.name]
                for each in (named or scales)[-1:]:
                    new.setdefault(address(scale.dataset), each)
            for path in self.objects:
                axes = axes_of(old[path], path) if isinstance(old[path], h5py.Dataset) else ()
                for number, axis in enumerate(axes):
                    for scale in axis.scales:
                        if address(scale.dataset) in new:
                            file[path].dims[number].attach_scale(new[address(scale.dataset)])
            for name, variable in variables.items():  # coordinates are written at the root
                fresh = name not in old and variable.key not in file and name in file
                if fresh and file[name].shape == variable.shape:
                    file[variable.key] = file[name]
        self._link(file)
        for name, source in self.header.sources.items():
            keys = [variables[coordinate].key.strip("/") for coordinate in source.coords]
            copies = [key for key in keys if key in self.objects]
            if copies:
                names = str(file[name].attrs.get("coordinates", "")).split()
                file[name].attrs["coordinates"] = " ".join(dict.fromkeys([*names, *copies]))
        of_sources = {key for source in self.header.sources.values() for key in source.coords}
        others = [n for n in sorted(self.header.coordinates - of_sources) if n in self.objects]
        others = [name for name in others if variables[name].dims != (name,)]
        if others:  # no source has all their dims
            file.attrs["coordinates"] = " ".join(others)


# what there is


def extras_of(header: FileHeader, order: Moved | None = None, budget: int = BLOCK_BYTES) -> Extras:
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
    links: dict[str, str | h5py.SoftLink] = {}
    objects: dict[str, Any] = {}
    with opened(where) as file:
        user_block = np.empty(file.userblock_size, np.uint8)
        open_bytes(header.stamp).read_into(user_block, 0)
        table = (read_table(file["/"]) if header.kind == "fuel" else None) or SplitTable()
        scales = [*_scales_of_sources(file, header)]
        sources = {address(file[s.key]): s.key.strip("/") for s in header.sources.values()}
        written = {*_written_anew(file, header, scales, table)} - sources.keys()
        names = {address(file): "/"} | sources  # the first of each object
        keys = [variable.key.strip("/") for variable in header.variables.values()]
        names |= {here: key for key in keys if (here := address(file[key])) in written}
        obstacles = _obstacles(header)
        everything: dict[str, Any] = {}
        file.visititems_links(everything.__setitem__)
        for path, link in everything.items():
            if path.partition("/")[0] == OWN or path in header.sources:
                continue
            if isinstance(link, h5py.SoftLink):
                links[path] = link
            elif not isinstance(link, h5py.HardLink):
                if any(name.startswith(f"{path}/") for name in header.sources):
                    objects[path] = file[path]  # a group whose sources were asked for
                    obstacles |= _lost(header, f"{path}/")
                else:
                    why = header.not_opened.get(path, "no source is read there")
                    obstacles[path] = f"it leads out of the file: {why}"
            elif (here := address(thing := file[path])) in names:
                if path != names[here]:
                    links[path] = names[here]
            elif here not in written:
                names[here] = path
                objects[path] = thing
                if (why_not := _why_not(thing)) is not None:
                    obstacles[path] = why_not
        if obstacles:
            named = "; ".join(f"{path!r}: {why}" for path, why in obstacles.items())
            raise NotYetError(
                f"{where!r} also holds what cannot be carried over into a new file ({named}); take "
                f"it out of a copy, or use labeled.convert, which leaves it out"
            )
        groups = (thing for thing in objects.values() if isinstance(thing, h5py.Group))
        of_sources = (file[source.key] for source in header.sources.values())
        for thing in dict.fromkeys((file, *groups, *of_sources)):
            lost = [n for n in _referring(thing) if n != TABLE]
            if lost:
                warn(f"attributes {lost} of {thing.name!r} in {where!r} hold references: left out")
        of_dims = [one for one in scales if one[2].name not in (SHAPES, SHAPE_LABELS)]
        unlimited = {
            header.sources[name].dims[axis]
            for name, axis, scale in of_dims
            if (scale.dataset.maxshape or ())[:1] == (None,)
        }
        along: set[str] = set()
        as_long: list[str] = []
        lengths = {source.dims[0]: source.n_rows for source in header.sources.values()}
        first = ((name, scale) for name, axis, scale in scales if axis == 0)
        of_rows = {address(scale.dataset): header.sources[name].n_rows for name, scale in first}
        for path, thing in objects.items() if order is not None else ():
            if isinstance(thing, h5py.Dataset) and thing.shape:
                n_rows = of_rows.get(address(thing), lengths.get(axes_of(thing, path)[0].name))
                if n_rows == thing.shape[0]:
                    along.add(path)
                elif thing.shape[0] in lengths.values() and scale_of(thing).has_values:
                    as_long.append(path)  # one without values only says how long a dim is
    if as_long:
        warn(
            f"{as_long} of {where!r} are as long as the sources, but belong to none: they keep "
            "their order, while rows of sources change places"
        )
    others = along, order, budget, bool(of_dims), unlimited, user_block.tobytes()
    return Extras(header, [*objects], links, table.comments, *others)


def _obstacles(header: FileHeader) -> dict[str, str]:
    """Return sources that cannot be opened, and tables only some columns of which are sources."""
    named = header.not_opened if header.kind == "fuel" else ()
    obstacles = dict.fromkeys(named, "the split table names it, and it cannot be opened")
    for source in header.sources.values():
        key = source.key.strip("/")
        if source.is_column and any(name.startswith(f"{key}/") for name in header.not_opened):
            obstacles[key] = "not all columns of this table are sources"
    return obstacles


def _lost(header: FileHeader, group: str) -> dict[str, str]:
    """Return what lies in a group of another file and is not written with the sources."""
    written = {key for source in header.sources.values() for key in source.coords}
    lost = dict.fromkeys(header.variables.keys() - written, "no source has it")
    lost |= header.not_opened
    names = (name for name in lost if name.startswith(group))
    return {name: f"it lies in another file, and is not a source: {lost[name]}" for name in names}


def _written_anew(
    file: h5py.File, header: FileHeader, scales: list[ScaleOf], table: SplitTable
) -> Iterator[int]:
    """Yield the objects besides sources that are written anew."""
    for source in header.sources.values():
        for part in source.parts.values():
            yield address(file[part.key])
            scales_of_part = (s for axis in axes_of(file[part.key], part.key) for s in axis.scales)
            yield from (address(s.dataset) for s in scales_of_part if not s.has_values)
        for name in source.coords if source.ragged is None else ():
            if len(header.variables[name].dims) == 1:
                yield address(file[header.variables[name].key])
    for name, _, scale in scales:
        is_ragged = header.sources[name].ragged is not None
        if not scale.has_values or (is_ragged and scale.name in (SHAPES, SHAPE_LABELS)):
            yield address(scale.dataset)
    for row in table.rows:
        if not isinstance(row.rows, range) and row.available:
            yield address(file[row.rows])


ScaleOf = tuple[str, int, Scale]  # a source, the number of one of its axes, and a scale of that


def _scales_of_sources(old: h5py.File, header: FileHeader) -> Iterator[ScaleOf]:
    """Yield every scale of every axis of a source."""
    for name, source in header.sources.items():
        for number, axis in enumerate(axes_of(old[source.key], name)):
            for scale in axis.scales:
                yield name, number, scale


def _referring(thing: Any) -> list[str]:
    """Return the attributes that hold references, but for those that are made anew."""
    names = [name for name in thing.attrs if name not in LINKS]
    return [n for n in names if refers(item_of(h5py.h5a.open(thing.id, to_bytes(n)).get_type()))]


def _why_not(thing: Any) -> str | None:
    """Return why an object cannot be copied; None if it can."""
    if isinstance(thing, h5py.Group):
        return None
    for name in _referring(thing):
        return f"its attribute {name!r} holds references"
    if not isinstance(thing, h5py.Dataset):
        return None
    plist = thing.id.get_create_plist()
    if plist.get_external_count() or plist.get_layout() == h5py.h5d.VIRTUAL:
        return "its data lies elsewhere (external or virtual)"
    if refers(item_of(thing)):
        return "it holds references"
    if thing.is_scale and thing.ndim > 1 and "_Netcdf4Coordinates" in thing.attrs:
        return "a coordinate of several axes that is called like one of them"
    return why_not_read(item_of(thing))


# into the new file


def _copy_attributes(old: h5py.Group, new: h5py.Group, but: Collection[str]) -> None:
    """Copy attributes `but` some, of any type; texts keep the encoding that they claim to have."""
    for name in old.attrs:
        if name in new.attrs or name in LINKS or name in but:
            continue
        kept = h5py.h5a.open(old.id, to_bytes(name))
        kind, space = kept.get_type().copy(), kept.get_space()
        if item_of(kind).hasobject or space.get_simple_extent_type() == h5py.h5s.NULL:
            new.attrs[name] = old.attrs[name]
            continue
        values = np.empty(kept.shape, f"V{kind.get_size()}")
        kept.read(values, mtype=kind)
        h5py.h5a.create(new.id, to_bytes(name), kind, space).write(values, mtype=kind)


def _blocks(dataset: h5py.Dataset, order: Moved | None, budget: int) -> Iterator[tuple[int, Array]]:
    """Yield the rows of a dataset in their new places, each time with the first of these."""
    n_rows, values = dataset.shape[0], dataset
    step = max(BLOCK_BYTES * n_rows // max(dataset.nbytes, 1), 1)
    if order is not None and dataset.nbytes <= budget:
        values = dataset[...]
    for start in range(0, n_rows, step):
        rows = slice(start, min(start + step, n_rows))
        if order is None:
            yield start, values[rows]
        else:
            listed, places = np.unique(order(np.arange(rows.start, rows.stop)), return_inverse=True)
            yield start, values[listed][places]
