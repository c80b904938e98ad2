"""Headers of sources and of their coordinates, built from datasets of an open file.

First every source is described (:meth:`Builder.describe`), then coordinates are made from
the scales attached to them, because a coordinate may not take the name of a dim that it
does not lie along, and that needs all dims. What a source *is* is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

import h5py
import numpy as np

from labeled.display.classes import class_names_of
from labeled.errors import FileFormatError
from labeled.formats.hdf5.attributes import attrs_of
from labeled.formats.hdf5.columns import Column, item_of
from labeled.formats.hdf5.flatlayout import (
    ATTRIBUTES,
    check_parts,
    example_dims,
    is_flat,
    part_paths,
)
from labeled.formats.hdf5.frames import meant_by_array, meant_by_column
from labeled.formats.hdf5.labels import (
    SHAPE_LABELS,
    SHAPES,
    Axis,
    Notes,
    Scale,
    Scales,
    Unnamed,
    axes_of,
    example_axes_of,
    how_to_name_examples,
    name_dims,
    short_attribute,
    texts_of,
)
from labeled.formats.hdf5.layout import class_attrs, dtype_of, layout_of, why_not_a_source
from labeled.formats.hdf5.safety import Found, NotThereError, resolve
from labeled.formats.hdf5.sparse import PARTS, Matrix, member
from labeled.formats.header import CF, FileStamp, SourceHeader
from labeled.formats.objects import vlen_base

Names = Sequence[str | None]

COMPARED_BYTES = 1 << 20
"""Values of scales are compared up to this size."""

MOST_CLASSES = 256
"""Names of classes that are read while a file is opened; of more, none are."""


@dataclass(slots=True)
class Builder:
    """Makes headers for one open file; remembers what deserves a warning."""

    base: h5py.Group
    stamp: FileStamp
    given_dims: Mapping[str, Names] = field(default_factory=dict)
    allow_external: bool = False
    in_turn: bool = False
    """Whether the base is one of several groups that are joined."""
    scalar_attrs: bool = False
    notes: Notes = field(default_factory=Notes)
    variables: dict[str, SourceHeader] = field(default_factory=dict)
    scales: Scales = field(default_factory=dict)
    axes: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    """What the file says of the axes of each source."""
    overruled: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Sources with values of their own along a dim that others label: the dim, and the values."""

    def describe(
        self,
        name: str,
        found: Found,
        *,
        own_dims: Sequence[str] | None = None,
        told: Sequence[Axis] = (),
    ) -> SourceHeader:
        """Return the header of a dataset that :func:`why_not_a_source` lets through.

        `own_dims` are the dims of a scale, which has none attached; `told` are axes as the
        dataset's group names them.
        """
        dataset = found.thing
        if is_flat(dataset):
            try:
                return self._flat(name, found)
            except FileFormatError as error:
                raise FileFormatError(
                    f"file {self.stamp.path!r}: {error}. Write the source again, or open the "
                    f"others with sources=[...]"
                ) from error
        axes = axes_of(dataset, name, self.notes, self.scales)
        axes = tuple(map(_completed, axes, told)) if told else axes
        found_names = [axis.name for axis in axes]
        if own_dims is not None:
            found_names = [axis.label or own for axis, own in zip(axes, own_dims, strict=True)]
        reason, inner, shapes = self._ragged(name, dataset, axes)
        if found.column is not None:
            inner = ("",) * len(dtype_of(dataset, found.column).shape)
        given = self.given_dims.get(name)
        dims, unnamed = name_dims(self.stamp.path, name, [*found_names, *inner], given)
        header = self._header(name, found, dims)
        unnamed = tuple(axis for axis in unnamed if axis < len(header.shape))
        if unnamed:
            self.notes.unnamed[name] = Unnamed(unnamed, dims, header.shape)
        if reason is not None:
            header = replace(
                header,
                ragged=reason,
                shapes_path=None if shapes is None else shapes.path,
                parts={} if shapes is None else self._shapes_part(name, shapes),
            )
        self.axes[name] = axes
        return header

    def _header(self, name: str, found: Found, dims: tuple[str, ...]) -> SourceHeader:
        dataset, column = found.thing, found.column
        placement = layout_of(
            dataset,
            name,
            column=column,
            allow_external=self.allow_external,
            outside=found.outside,
        )
        dtype = dtype_of(dataset, column)
        item = item_of(dataset) if column is None else column.dtype_in(item_of(dataset))
        told = self._told(dataset, name, column)
        return SourceHeader(
            file=self.stamp,
            name=name,
            key=self._h5path(found.path or name),
            shape=(*dataset.shape, *dtype.shape),
            dtype=dtype.base,
            dims=dims,
            attrs=told if class_names_of(told) else {**told, **self._classes(found, item)},
            detail=column,
            **placement,
        )

    def _classes(self, found: Found, item: np.dtype[Any]) -> dict[str, Any]:
        """Return names of classes that an enumeration has, or a categorical of AnnData."""
        dataset = found.thing
        if not found.path.endswith("/codes") or found.column is not None or found.outside:
            return class_attrs(item)
        if short_attribute(dataset.parent, "encoding-type") != "categorical":
            return class_attrs(item)
        categories = member(dataset.parent, "categories")
        names = () if categories is None else texts_of(categories, found.path, MOST_CLASSES)
        return {"class_names": [*names]} if names else {}

    def _h5path(self, path: str) -> str:
        return path if path[:1] == "/" else f"{self.base.name.rstrip('/')}/{path}"

    def _ragged(
        self, name: str, dataset: h5py.Dataset, axes: Sequence[Axis]
    ) -> tuple[str | None, tuple[str, ...], Scale | None]:
        """Return why a source is ragged, names of its examples' axes, and where shapes are."""
        examples, base = example_axes_of(dataset, name, axes), vlen_base(item_of(dataset))
        if examples is not None:
            given = self.given_dims.get(name)
            unnamed = given is None or None in [*given][1:]
            if examples.fault is not None and unnamed and base is not None:
                told = how_to_name_examples(self.stamp.path, name, examples)
                self.notes.unnamed_examples[name] = told
            why = "every example has its own shape (scale 'shapes')"
            return why, examples.names, examples.shapes
        if base is None:
            return None, (), None
        reason = f"every example is a row of {base} of its own length (vlen dtype)"
        inner = ("",) if len(dataset.shape) == 1 else ()
        return reason, inner, None

    def _shapes_part(self, name: str, shapes: Scale) -> dict[str, SourceHeader]:
        if shapes.path is None or why_not_a_source(shapes.dataset) is not None:
            return {}
        header = self.coordinate_header(f"{name} (its scale 'shapes')", shapes, ())
        return {"shapes": header}

    def _flat(self, name: str, found: Found) -> SourceHeader:
        """Return the header of a source in the flat layout; see :mod:`.flatlayout`."""
        parts = {"values": found}
        for role, path in part_paths(found.thing, name).items():
            parts[role] = self._dataset(name, role, path)
        shapes = parts["shapes"].thing if "shapes" in parts else None
        n_axes = check_parts(name, found.thing, parts["offsets"].thing, shapes)
        dims, unnamed = name_dims(
            self.stamp.path, name, example_dims(found.thing, n_axes), self.given_dims.get(name)
        )
        if unnamed:
            self.notes.odd.append(f"ragged source {name!r} does not name its axes {unnamed}")
        headers = {role: self._header(name, part, ()) for role, part in parts.items()}
        values = headers["values"]
        attrs = {key: value for key, value in values.attrs.items() if key not in ATTRIBUTES}
        return replace(
            values,
            shape=(headers["offsets"].n_rows - 1,),
            dims=dims,
            attrs=attrs,
            ragged="every example has its own shape (flat layout)",
            parts=headers,
        )

    def _dataset(self, name: str, role: str, path: str) -> Found:
        """Return a dataset that a ragged source is made of."""
        try:
            found = resolve(self.base, path, allow_external=self.allow_external)
        except NotThereError as error:
            told = f"the {role} of ragged source {name!r} are missing ({error})"
            raise FileFormatError(told) from None
        if not isinstance(found.thing, h5py.Dataset) or why_not_a_source(found.thing) is not None:
            raise FileFormatError(f"the {role} of ragged source {name!r}, {path!r}, are no numbers")
        return found

    def matrix(self, name: str, matrix: Matrix, axes: tuple[Axis, ...] = ()) -> SourceHeader:
        """Return the header of a sparse matrix, whose axes may be known; its rows come dense."""
        headers = {
            role: self._header(
                f"{name}/{role}", Found(matrix.group[role], path=f"{name}/{role}"), ()
            )
            for role in PARTS
        }
        said = [axis.name for axis in axes] or ["", ""]
        dims, unnamed = name_dims(self.stamp.path, name, said, self.given_dims.get(name))
        if unnamed:
            self.notes.unnamed[name] = Unnamed(unnamed, dims, matrix.shape)
        data = headers["data"]
        chunk_rows = (data.chunks or (0,))[0] * matrix.shape[0] // max(data.n_rows, 1)
        self.axes[name] = axes
        return SourceHeader(
            file=self.stamp,
            name=name,
            key=self._h5path(name),
            shape=matrix.shape,
            dtype=data.dtype,
            dims=dims,
            storage="sparse",
            chunks=(max(chunk_rows, 1), matrix.shape[1]) if data.chunks else None,
            filters=data.filters,
            fill_value=np.zeros((), data.dtype)[()],
            stored_bytes=None,
            parts=headers,
        )

    def attrs_of(
        self, thing: h5py.Group | h5py.Dataset, what: str, leave_out: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return the attributes of an object, noting those that cannot be read."""
        values, unreadable = attrs_of(thing, leave_out=leave_out, scalars=self.scalar_attrs)
        if unreadable:
            listed = ", ".join(map(repr, unreadable))
            self.notes.odd.append(f"attributes of {what} cannot be read: {listed}")
        return values

    def _told(
        self, dataset: h5py.Dataset, name: str, column: Column | None = None
    ) -> dict[str, Any]:
        """Return the attributes of a source or coordinate, and what its numbers mean."""
        if column is not None and column.fields:
            return meant_by_column(dataset, column)
        attrs = self.attrs_of(dataset, repr(name))
        return {**attrs, **meant_by_array(dataset, attrs)}

    def with_coordinates(self, headers: Mapping[str, SourceHeader]) -> dict[str, SourceHeader]:
        """Return the headers with the coordinates that their attached scales make."""
        dims = {dim for each in headers.values() for dim in each.dims}
        found = {
            name: self._with_coordinates(each, dims, headers.keys())
            for name, each in headers.items()
        }
        if self.overruled:
            self.notes.odd.append(_told_of_overruled(self.overruled))
        return found

    def _with_coordinates(
        self, header: SourceHeader, all_dims: set[str], taken: Collection[str]
    ) -> SourceHeader:
        keys: list[str] = []
        for dim, axis in zip(header.dims, self.axes.get(header.name, ()), strict=False):
            for scale in axis.scales:
                if scale.name in (SHAPES, SHAPE_LABELS) or not scale.has_values:
                    continue
                problem = _why_no_coordinate(scale, axis)
                if problem is None:
                    keys.append(self._coordinate(scale, dim, header.name, all_dims, taken))
                elif problem:
                    self.notes.odd.append(
                        f"scale {scale.name!r} of source {header.name!r} (dim {dim!r}) is left "
                        f"out: {problem}"
                    )
        return replace(header, coords=tuple(dict.fromkeys(keys))) if keys else header

    def _coordinate(
        self, scale: Scale, dim: str, source: str, all_dims: set[str], taken: Collection[str]
    ) -> str:
        """Return the key of the coordinate that a scale makes along `dim`, adding it once.

        Scales of several groups that are called alike are told apart by their paths.
        """
        place = (scale.path or scale.name).removeprefix(self.base.name).lstrip("/")
        first = (scale.name, place) if "/" in place else (scale.name,)
        again = (f"{source}_{scale.name}{'' if n == 1 else f'_{n}'}" for n in count(1))
        for key in chain(first, again):
            known = self.variables.get(key)
            if known is not None and known.key == scale.path and known.dims == (dim,):
                return key
            if known is None and key not in taken and (key == dim or key not in all_dims):
                break
            if key == dim and known is not None and _differs(scale.dataset, self.base[known.key]):
                self.overruled[source] = (dim, place)
        self.variables[key] = self.coordinate_header(key, scale, (dim,))
        return key

    def coordinate_header(self, key: str, scale: Scale, dims: tuple[str, ...]) -> SourceHeader:
        """Return the header of a scale read as a variable."""
        dataset, path = scale.dataset, scale.path or key
        return SourceHeader(
            file=self.stamp,
            name=key,
            key=path,
            shape=dataset.shape,
            dtype=dtype_of(dataset),
            dims=dims,
            attrs=self._told(dataset, key),
            **layout_of(dataset, path, allow_external=self.allow_external),
        )


def _differs(one: h5py.Dataset, two: h5py.Dataset) -> bool:
    """Whether two scales of one length hold other values; long ones are taken to be alike."""
    if one.shape != two.shape or one.size * one.dtype.itemsize > COMPARED_BYTES:
        return False
    mine, theirs = one[()], two[()]
    floats = mine.dtype.kind == theirs.dtype.kind == "f"
    return not np.array_equal(mine, theirs, equal_nan=floats)


def _told_of_overruled(overruled: Mapping[str, tuple[str, str]]) -> str:
    source, (dim, place) = next(iter(overruled.items()))
    more = f" (and {len(overruled) - 1:,} more)" if len(overruled) > 1 else ""
    return (
        f"source {source!r} has values of its own along dim {dim!r}, those of {place!r}{more}, but "
        f"positions are selected by those of an earlier source; open it alone, "
        f"sources=[{source!r}], or give its axis another name with dims="
    )


def _completed(own: Axis, told: Axis) -> Axis:
    """Return an axis as its group names it, where the dataset itself does not say otherwise."""
    return told if own.name in ("", told.name) and not own.scales else own


def with_cf(header: SourceHeader, cf: CF | None, used: frozenset[str]) -> SourceHeader:
    """Return a header that decodes by `cf`, without the attributes that it uses up."""
    if cf is None and used.isdisjoint(header.attrs):
        return header
    attrs = {key: value for key, value in header.attrs.items() if key not in used}
    taken = {key: value for key, value in header.attrs.items() if key in used}
    return replace(header, cf=cf, attrs=attrs, used_attrs=taken)


def _why_no_coordinate(scale: Scale, axis: Axis) -> str | None:
    """Return why a scale makes no coordinate; ``""`` if nobody would expect one."""
    reason = why_not_a_source(scale.dataset)
    if reason is not None:
        return reason
    shape = scale.dataset.shape
    if scale.path is None:
        return "it has no name in the file"
    if len(shape) == 0:
        return "it is a single value"
    if len(shape) > 1:
        netcdf = h5py.h5a.exists(scale.dataset.id, b"_Netcdf4Coordinates")
        return "" if netcdf else f"it has {len(shape)} axes"
    if shape[0] != axis.length:
        return f"it has {shape[0]} values for {axis.length} positions"
    if vlen_base(scale.dataset.dtype) is not None:
        return "its values are rows of numbers (vlen dtype)"
    return None
