"""Headers of sources and of their coordinates, built from datasets of an open file.

First every source is described, then coordinates are made from the scales attached to them,
because a coordinate may not take the name of a dim that it does not lie along, and that needs
all dims. What a source *is* is decided elsewhere.

No header is made of a dataset before it is known to lie inside the file (:func:`header_of`).
The dtype in a header is the one in the file. A type whose bytes NumPy would misread (odd bit
widths, strings padded with spaces) is marked "foreign", so nobody reads it by byte range.
Nothing here costs more for more chunks: chunks are neither counted nor visited.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from operator import attrgetter
from typing import Any

import h5py
import numpy as np

from labeled.errors import DimsError, FileFormatError
from labeled.formats.cf import cf_of, with_bounds_units
from labeled.formats.hdf5.arrays import ArrayInfo, Opening, attrs_of
from labeled.formats.hdf5.conventions import PARTS, meaning_of
from labeled.formats.hdf5.dtypes import (
    Column,
    bytes_are_numpy,
    item_of,
    numbers_of,
    why_not_a_source,
)
from labeled.formats.hdf5.filters import describe_missing
from labeled.formats.hdf5.labels import (
    SHAPE_LABELS,
    SHAPES,
    Axis,
    Scale,
    Unnamed,
    axes_of,
    example_axes_of,
    how_to_name_axes,
    how_to_name_examples,
    name_dims,
)
from labeled.formats.hdf5.metadata import (
    ATTRIBUTES,
    OFFSETS,
    check_parts,
    example_dims,
    part_paths,
)
from labeled.formats.hdf5.safety import NotThereError, check_dataset, resolve
from labeled.formats.header import (
    FileHeader,
    FileStamp,
    Filter,
    Rows,
    SourceHeader,
    Storage,
    fingerprint,
    is_text,
    vlen_base,
)

COMPARED_BYTES = 1 << 20
"""Values of scales are compared up to this size."""

_LAYOUTS: dict[int, Storage] = {
    h5py.h5d.COMPACT: "compact",
    h5py.h5d.CONTIGUOUS: "contiguous",
    h5py.h5d.CHUNKED: "chunked",
    h5py.h5d.VIRTUAL: "virtual",
}


@dataclass(frozen=True, slots=True)
class Described:
    """The header of a dataset, what the file says of its axes, and what is worth a warning."""

    header: SourceHeader
    info: ArrayInfo
    axes: tuple[Axis, ...] = ()
    unnamed: tuple[int, ...] = ()
    """Axes that nobody named."""
    faults: tuple[str, ...] = ()
    refusal: str | None = None
    """Why it may not be a source: it is ragged, and nobody names the axes of its examples."""


# where the bytes are


def header_of(
    stamp: FileStamp,
    dataset: h5py.Dataset,
    name: str,
    dims: Sequence[str],
    *,
    key: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    column: Column | None = None,
    allow_external: bool = False,
    outside: bool = False,
) -> SourceHeader:
    """Return the header of a dataset, refusing one whose bytes lie outside its file.

    Those of a `column` lie among others, where only HDF5 finds them.
    """
    plist = dataset.id.get_create_plist()
    beyond = check_dataset(
        dataset, name, allow_external=allow_external, outside=outside, plist=plist
    )
    items = item_of(dataset)
    item = items if column is None else column.dtype_in(items)
    dtype = numbers_of(item)
    layout, kind = plist.get_layout(), dataset.id.get_type()
    storage = beyond or _LAYOUTS.get(layout, "foreign")
    offset = dataset.id.get_offset() if storage == "contiguous" else None
    if storage == "contiguous" and (offset is None or dataset.id.get_storage_size() == 0):
        storage, offset = "empty", None  # in files with a user block the offset is not None
    n_bytes = math.prod(dataset.shape) * kind.get_size()
    stored: int | None = n_bytes if storage in ("contiguous", "compact") else 0
    if storage == "chunked":
        stored = None
        most = dataset.id.get_space().get_simple_extent_dims(True)
        if most.count(h5py.h5s.UNLIMITED) == 1 and most[0] != h5py.h5s.UNLIMITED:
            storage = "misplaced"  # HDF5 2.0 swaps the axes of such chunks when asked for them
    if column is not None and stored is not None:
        stored = int(stored * column.share_of(items))
    is_foreign = column is not None or not bytes_are_numpy(items, kind)
    if is_foreign and storage in ("contiguous", "chunked", "compact"):
        storage, offset = "foreign", None
    chunks = (*plist.get_chunk(), *dtype.shape) if layout == h5py.h5d.CHUNKED else None
    return SourceHeader(
        file=stamp,
        name=name,
        key=dataset.name if key is None else key,
        shape=(*dataset.shape, *dtype.shape),
        dtype=dtype.base,
        dims=tuple(dims),
        attrs={} if attrs is None else attrs,
        storage=storage,
        offset=offset,
        chunks=chunks,
        filters=filters_of(plist),
        fill_value=_fill_value(dataset, plist, dtype.base, column),
        stored_bytes=stored,
        detail=column,
    )


def filters_of(plist: Any) -> tuple[Filter, ...]:
    """Return the filters that a creation property list names, in the order they are applied."""
    steps = []
    for number in range(plist.get_nfilters()):
        code, _flags, options, name = plist.get_filter(number)
        steps.append(Filter(int(code), name.decode("ascii", "replace"), tuple(map(int, options))))
    return tuple(steps)


def _fill_value(
    dataset: h5py.Dataset, plist: Any, dtype: np.dtype[Any], column: Column | None
) -> Any:
    if dtype.kind == "O":
        return b"" if is_text(dtype) else None
    # Asked for only where one was set: HDF5 converts it, and in a damaged file may crash.
    is_set = plist.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    if not is_set or column is not None:  # one value cannot stand for the axes a column adds
        return np.zeros((), dtype)[()]
    if dataset.dtype.names is not None:
        return np.asarray(dataset.fillvalue, dataset.dtype).view(dtype)[()]
    return dataset.fillvalue


# what a source is


def describe_array(opening: Opening, info: ArrayInfo, own_dims: Sequence[str] = ()) -> Described:
    """Return the header of a dataset that may be a source.

    `own_dims` are the dims of a scale of several axes, which has none attached.

    Raises
    ------
    FileFormatError
        If the datasets that it is made of are missing or do not fit.
    DimsError, UnsafeFileError
    """
    if info.matrix is not None:
        return _describe_matrix(opening, info, info.matrix)
    if h5py.h5a.exists(info.dataset.id, OFFSETS.encode()):
        try:
            return _describe_flat(opening, info)
        except FileFormatError as error:
            raise FileFormatError(
                f"file {opening.stamp.path!r}: {error}. Write the source again, or open the "
                f"others with sources=[...]"
            ) from error
    dataset, name = info.dataset, info.name
    faults: list[str] = []
    axes = axes_of(dataset, name, opening.scales, faults)
    if info.axes:
        axes = tuple(
            by_group if own.name in ("", by_group.name) and not own.scales else own
            for own, by_group in zip(axes, info.axes, strict=False)
        )
    names = list(map(attrgetter("name"), axes))
    if own_dims:
        names = [axis.label or own for axis, own in zip(axes, own_dims, strict=True)]
    if info.column is not None:
        names += [""] * len(info.item.shape)
    n_axes, refusal = len(names), None
    ragged: dict[str, Any] = {}
    if info.item.kind == "O" or (axes and axes[0].scales):
        ragged, inner, refusal = _raggedness(opening, info, axes, faults)
        names += inner
    dims, unnamed = name_dims(opening.stamp.path, name, names, opening.dims.get(name))
    header = _header(opening, info, dims, faults)
    return Described(
        replace(header, **ragged) if ragged else header,
        info,
        axes,
        tuple(axis for axis in unnamed if axis < n_axes) if ragged else unnamed,
        tuple(faults),
        refusal,
    )


def _header(
    opening: Opening,
    info: ArrayInfo,
    dims: Sequence[str],
    faults: list[str],
    *,
    classes: bool = True,
) -> SourceHeader:
    """Return the header of a dataset with its attributes, and what its numbers mean."""
    dataset, attrs, single = info.dataset, {}, opening.single_values
    if info.column is None or not info.column.fields:
        attrs = attrs_of(dataset, repr(info.name), faults, scalars=single)
    attrs |= meaning_of(info, attrs, classes=classes)
    return header_of(
        opening.stamp,
        dataset,
        info.name,
        dims,
        key=opening.path_of(info.path),
        attrs=attrs,
        column=info.column,
        allow_external=opening.options.allow_external,
        outside=info.outside,
    )


def _raggedness(
    opening: Opening, info: ArrayInfo, axes: Sequence[Axis], faults: list[str]
) -> tuple[dict[str, Any], tuple[str, ...], str | None]:
    """Return the fields of a header that tell why examples are ragged, names of their axes,
    and why it may not be a source."""
    name, base = info.name, vlen_base(info.item)
    examples = example_axes_of(info.dataset, name, axes)
    if examples is None:
        if base is None:
            return {}, (), None
        why = f"every example is a row of {base} of its own length (vlen dtype)"
        return {"ragged": why}, ("",) if len(axes) == 1 else (), None
    given = opening.dims.get(name)
    refusal = None
    if examples.fault is not None and base is not None and (given is None or None in given[1:]):
        refusal = how_to_name_examples(opening.stamp.path, name, examples)
    shapes, parts = examples.shapes, {}
    if shapes.path is not None and why_not_a_source(shapes.dataset) is None:
        what = f"{name} (its scale 'shapes')"
        parts["shapes"] = coordinate_header(opening, what, shapes, (), faults)
    why = "every example has its own shape (scale 'shapes')"
    found = {"ragged": why, "shapes_path": shapes.path, "parts": parts}
    return found, examples.names, refusal


def _describe_flat(opening: Opening, info: ArrayInfo) -> Described:
    """Describe a source in the flat layout; see :mod:`.metadata`."""
    name = info.name
    faults: list[str] = []
    parts = {"values": info}
    for role, path in part_paths(info.dataset, name).items():
        parts[role] = _part(opening, name, role, path)
    shapes = parts["shapes"].dataset if "shapes" in parts else None
    n_axes = check_parts(name, info.dataset, parts["offsets"].dataset, shapes)
    names = example_dims(info.dataset, n_axes)
    dims, unnamed = name_dims(opening.stamp.path, name, names, opening.dims.get(name))
    if unnamed:
        faults.append(f"ragged source {name!r} does not name its axes {unnamed}")
    headers = {}
    for role, part in parts.items():
        headers[role] = _header(opening, part, (), faults)
    values = headers["values"]
    header = replace(
        values,
        shape=(headers["offsets"].n_rows - 1,),
        dims=dims,
        attrs={key: value for key, value in values.attrs.items() if key not in ATTRIBUTES},
        ragged="every example has its own shape (flat layout)",
        parts=headers,
    )
    return Described(header, info, faults=tuple(faults))


def _part(opening: Opening, name: str, role: str, path: str) -> ArrayInfo:
    """Return a dataset that a ragged source is made of."""
    try:
        found, outside = resolve(opening.base, path, allow_external=opening.options.allow_external)
    except NotThereError as error:
        message = f"the {role} of ragged source {name!r} are missing ({error})"
        raise FileFormatError(message) from None
    if not isinstance(found, h5py.Dataset) or why_not_a_source(found) is not None:
        raise FileFormatError(f"the {role} of ragged source {name!r}, {path!r}, are not numbers")
    return ArrayInfo(name, path, found, outside=outside)


def _describe_matrix(opening: Opening, info: ArrayInfo, shape: tuple[int, int]) -> Described:
    """Describe a sparse matrix, whose rows come dense."""
    name, headers = info.name, {}
    for role in PARTS:
        path = f"{name}/{role}"
        headers[role] = _header(opening, ArrayInfo(path, path, info.dataset[role]), (), [])
    names = [axis.name for axis in info.axes] or ["", ""]
    dims, unnamed = name_dims(opening.stamp.path, name, names, opening.dims.get(name))
    data = headers["data"]
    chunk_rows = (data.chunks or (0,))[0] * shape[0] // max(data.n_rows, 1)
    header = SourceHeader(
        file=opening.stamp,
        name=name,
        key=opening.path_of(name),
        shape=shape,
        dtype=data.dtype,
        dims=dims,
        storage="sparse",
        chunks=(max(chunk_rows, 1), shape[1]) if data.chunks else None,
        filters=data.filters,
        fill_value=np.zeros((), data.dtype)[()],
        stored_bytes=None,
        parts=headers,
    )
    return Described(header, info, info.axes, unnamed)


# coordinates


@dataclass(frozen=True, slots=True)
class Carried:
    """Variables that come along with the sources, and what is worth a warning of them."""

    sources: dict[str, SourceHeader]
    """The sources, which name their coordinates."""
    variables: dict[str, SourceHeader]
    faults: list[str]


def with_coordinates(
    opening: Opening,
    described: Mapping[str, Described],
    variables: Mapping[str, SourceHeader],
    faults: Iterable[str],
) -> Carried:
    """Make coordinates of the scales that are attached to sources, beside other variables.

    Scales of several groups with the same name are distinguished by their paths.
    """
    attached = []
    for name, each in described.items():
        for dim, axis in zip(each.header.dims, each.axes, strict=False):
            attached += [(name, dim, axis, scale) for scale in axis.scales] if axis.scales else []
    dims: set[str] = set()
    for each in described.values():
        dims.update(each.header.dims)
    made, problems = dict(variables), list(faults)
    keys: dict[str, list[str]] = {}
    overruled: dict[str, tuple[str, str]] = {}
    for name, dim, axis, scale in attached:
        problem = _why_no_coordinate(scale, axis)
        if problem:
            problems.append(
                f"scale {scale.name!r} of source {name!r} (dim {dim!r}) is left out: {problem}"
            )
        if problem is not None:
            continue
        place = (scale.path or scale.name).removeprefix(opening.base.name).lstrip("/")
        first = (scale.name, place) if "/" in place else (scale.name,)
        again = (f"{name}_{scale.name}{'' if n == 1 else f'_{n}'}" for n in count(1))
        for key in chain(first, again):
            known = made.get(key)
            if known is not None and known.key == scale.path and known.dims == (dim,):
                break
            if known is None and key not in described and (key == dim or key not in dims):
                made[key] = coordinate_header(opening, key, scale, (dim,), problems)
                break
            rival = opening.base[known.key] if key == dim and known is not None else None
            if rival is not None and _differs(scale.dataset, rival):
                overruled[name] = (dim, place)
        keys.setdefault(name, []).append(key)
    for name, (dim, place) in [*overruled.items()][:1]:
        more = f" (and {len(overruled) - 1:,} more)" if len(overruled) > 1 else ""
        problems.append(
            f"source {name!r} has values of its own along dim {dim!r}, those of {place!r}{more}, "
            "but positions are selected by those of an earlier source; open it alone, "
            f"sources=[{name!r}], or give its axis another name with dims="
        )
    sources: dict[str, SourceHeader] = {}
    for name, each in described.items():
        coords = tuple(dict.fromkeys(keys.get(name, ())))
        sources[name] = replace(each.header, coords=coords) if coords else each.header
    return Carried(sources, made, problems)


def coordinate_header(
    opening: Opening, key: str, scale: Scale, dims: tuple[str, ...], faults: list[str]
) -> SourceHeader:
    """Return the header of a scale read as a variable."""
    info = ArrayInfo(key, scale.path or key, scale.dataset)
    return _header(opening, info, dims, faults, classes=False)


def _differs(one: h5py.Dataset, two: h5py.Dataset) -> bool:
    """Whether two scales of one length hold other values; long ones are taken to be alike."""
    if one.shape != two.shape or one.size * one.dtype.itemsize > COMPARED_BYTES:
        return False
    mine, theirs = one[()], two[()]
    floats = mine.dtype.kind == theirs.dtype.kind == "f"
    return not np.array_equal(mine, theirs, equal_nan=floats)


def _why_no_coordinate(scale: Scale, axis: Axis) -> str | None:
    """Return why a scale makes no coordinate; ``""`` if nobody would expect one."""
    if scale.name in (SHAPES, SHAPE_LABELS) or not scale.has_values:
        return ""
    shape, why_not = scale.dataset.shape, why_not_a_source(scale.dataset)
    if why_not is not None:
        return why_not
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


# values


def decoded(carried: Carried, *, decode_cf: bool = True, netcdf: bool = False) -> Carried:
    """Return headers that decode CF values, if wanted.

    The attribute `coordinates` of netCDF goes either way: `coords` stand for it.
    """
    attrs: dict[str, Mapping[str, Any]] = {}
    for name, header in [*carried.variables.items(), *carried.sources.items()]:
        attrs[name] = header.attrs
    if not netcdf and (not decode_cf or not any(attrs.values())):
        return carried
    attrs |= with_bounds_units(attrs) if decode_cf else {}
    made: list[dict[str, SourceHeader]] = []
    faults = list(carried.faults)
    for headers in (carried.sources, carried.variables):
        made.append({})
        for name, header in headers.items():
            cf, used, found = None, frozenset({"coordinates"} if netcdf else ()), attrs[name]
            if decode_cf and (netcdf or found):
                cf, used_up = cf_of(name, header.dtype, found, faults)
                cf = cf if netcdf or used_up else None  # plain files keep their byte order
                used |= used_up
            if cf is not None or len(found) != len(header.attrs) or not used.isdisjoint(found):
                kept = {key: value for key, value in found.items() if key not in used}
                taken = {key: value for key, value in found.items() if key in used}
                header = replace(header, cf=cf, attrs=kept, used_attrs=taken)
            made[-1][name] = header
    return Carried(made[0], made[1], faults)


# the whole file


def file_header(
    opening: Opening,
    described: Mapping[str, Described],
    carried: Carried,
    *,
    splits: Mapping[str, Mapping[str, Rows]],
    advice: str | None = None,
    **fields: Any,
) -> FileHeader:
    """Return the header of a file, with what is worth a warning.

    Parameters
    ----------
    advice : str, optional
        What to say in place of which axes nobody named.

    Raises
    ------
    DimsError
        If nobody names the axes of ragged examples.
    """
    unnamed: dict[str, Unnamed] = {}
    for name, each in described.items():
        if each.refusal is not None and not opening.name_all:
            raise DimsError(each.refusal)
        if each.unnamed and len(each.header.dims) > 1:  # a single axis counts examples
            unnamed[name] = Unnamed(each.unnamed, each.header)
    if advice is None and unnamed:
        advice = how_to_name_axes(unnamed)
    faults = dict.fromkeys([*carried.faults, *describe_missing(carried.sources.values())])
    warnings = [] if advice is None else [advice]
    if faults:
        warnings.append(": " + "; ".join(faults))
    return FileHeader(
        stamp=opening.stamp,
        fingerprint=fingerprint(carried.sources, splits),
        sources=carried.sources,
        variables=carried.variables,
        splits=splits,
        group=opening.base.name.strip("/") if opening.one_of_many else "",
        warnings=tuple(warnings),
        **fields,
    )
