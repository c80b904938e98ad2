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
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled.dims import default_name
from labeled.display.text import class_names_of
from labeled.errors import FileFormatError
from labeled.formats.cf import cf_of, time_attrs, with_bounds_units
from labeled.formats.format import name_dims
from labeled.formats.hdf5 import dtypes, labels, metadata
from labeled.formats.hdf5.arrays import PARTS, ArrayInfo, Opening, member
from labeled.formats.hdf5.labels import SHAPE_LABELS, SHAPES, Axis, Scale
from labeled.formats.hdf5.safety import address, check_dataset, find, opened
from labeled.formats.header import FilterInfo, SourceHeader, Storage, is_text, vlen_base

COMPARED_BYTES = 1 << 20  # values of scales are compared up to this size

MAX_CLASSES = 256  # names of classes that are read while a file is opened; of more, none are

# as HDF5 numbers them
_LAYOUTS: tuple[Storage, ...] = ("compact", "contiguous", "chunked", "virtual")

# what PyTables calls datasets whose fields of bits are booleans
PYTABLES = ("ARRAY", "CARRAY", "EARRAY", "TABLE")

_TIME = re.compile(r"(datetime|timedelta)64(?:\[(s|ms|us|ns)\b[^]]*\])?")
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


Headers = dict[str, SourceHeader]


class Described(NamedTuple):
    """The header of a dataset, what the file says of its axes, and those that nobody named."""

    header: SourceHeader
    axes: tuple[Axis, ...] = ()
    unnamed: tuple[int, ...] = ()


# one dataset: where its bytes are, and what they mean


def header_of(opening: Opening, info: ArrayInfo, dims: Sequence[str] = ()) -> SourceHeader:
    """Return the header of a dataset, refusing one whose bytes lie outside its file.

    Those of a column lie among others, where only HDF5 finds them.
    """
    dataset, column, allowed = info.dataset, info.column, opening.options.allow_external
    plist, kind = dataset.id.get_create_plist(), dataset.id.get_type()
    items, layout = dtypes.item_of(dataset), plist.get_layout()
    beyond = check_dataset(dataset, info.name, allow_external=allowed)
    attrs: dict[str, Any] = {}
    if column is None or not column.fields:  # attributes of a table are of no column
        attrs = labels.attrs_of(dataset, repr(info.name), opening.faults, scalars=opening.netcdf)
    attrs |= _meaning_of(info, attrs)
    dtype = dtypes.numbers_of(info.item)
    storage = beyond or ("external" if info.outside else _LAYOUTS[layout])
    offset = dataset.id.get_offset() if storage == "contiguous" else None
    if storage == "contiguous" and (offset is None or dataset.id.get_storage_size() == 0):
        storage, offset = "empty", None  # in files with a user block the offset is not None
    stored: int | None = 0
    if storage in ("contiguous", "compact"):
        stored = math.prod(dataset.shape) * kind.get_size()
        stored = stored if column is None else int(stored * column.share_of(items))
    elif storage == "chunked":
        stored = None
        most = dataset.id.get_space().get_simple_extent_dims(True)
        if most.count(h5py.h5s.UNLIMITED) == 1 and most[0] != h5py.h5s.UNLIMITED:
            storage = "misplaced"  # HDF5 2.0 swaps the axes of such chunks when asked for them
    is_foreign = column is not None or not dtypes.bytes_are_numpy(items, kind)
    if is_foreign and storage in ("contiguous", "chunked", "compact"):
        storage, offset = "foreign", None
    fill_value: Any = np.zeros((), dtype.base)[()]
    # Asked for only where one was set: HDF5 converts it, and in a damaged file may crash.
    is_set = plist.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED
    if dtype.kind == "O":
        fill_value = b"" if is_text(dtype) else None
    elif is_set and column is None:  # one value cannot stand for the axes a column adds
        fill_value = dataset.fillvalue
    return SourceHeader(
        file=opening.stamp,
        name=info.name,
        key=opening.path_of(info.path),
        shape=(*dataset.shape, *dtype.shape),
        dtype=dtype.base,
        dims=tuple(dims),
        attrs=attrs,
        storage=storage,
        offset=offset,
        chunks=(*plist.get_chunk(), *dtype.shape) if layout == h5py.h5d.CHUNKED else None,
        filters=filters_of(plist),
        fill_value=fill_value,
        stored_bytes=stored,
        detail=column,
    )


def stored_dtype(source: SourceHeader) -> np.dtype[Any]:
    """Return the dtype of a source with the names that an enumeration gives to its values."""
    if source.dtype.kind in "iu" and source.detail is None and class_names_of(source.attrs):
        with opened(source.file.path, headers=True) as file:
            names = h5py.check_enum_dtype(dtypes.item_of(file[source.key]).base)
        if names is not None:
            named: np.dtype[Any] = h5py.enum_dtype(names, source.dtype)
            return named
    return source.dtype


def filters_of(plist: Any) -> tuple[FilterInfo, ...]:
    """Return the filters that a creation property list names, in the order they are applied."""
    found: tuple[FilterInfo, ...] = ()
    for code, _, options, name in map(plist.get_filter, range(plist.get_nfilters())):
        found += (FilterInfo(int(code), name.decode("ascii", "replace"), tuple(map(int, options))),)
    return found


def scale_header(opening: Opening, key: str, scale: Scale, dims: Sequence[str]) -> SourceHeader:
    """Return the header of a scale read as a variable."""
    outside = scale.dataset.file != opening.base.file  # reached by a link
    info = ArrayInfo(key, scale.path or key, scale.dataset, outside=outside)
    return header_of(opening, info, dims)


def _meaning_of(info: ArrayInfo, attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes that say what numbers mean: times, booleans, or names of classes.

    Names of classes among `attrs`, those that it has, go before others.
    """
    dataset, item = info.dataset, info.item
    fields = () if info.column is None else info.column.fields
    stored, words = dataset.id.get_type(), [attrs.get("value_type", attrs.get("kind"))]
    if len(fields) == 1:
        words = [labels.short_attribute(dataset, f"{fields[0]}_{key}") for key in ("dtype", "kind")]
        stored = stored.get_member_type(stored.get_member_index(fields[0].encode()))
    stored = stored.get_super() if isinstance(stored, h5py.h5t.TypeArrayID) else stored
    found: dict[str, Any] = {}
    if item.base == np.int64:
        found = next(filter(None, map(times_meant, words)), {})
    elif isinstance(stored, h5py.h5t.TypeBitfieldID):
        found = {"dtype": "bool"} if labels.short_attribute(dataset, "CLASS") in PYTABLES else {}
    if attrs and class_names_of(attrs):
        return found
    if info.path.endswith("/codes") and info.column is None and not info.outside:
        group = dataset.parent  # of AnnData
        if labels.short_attribute(group, "encoding-type") == "categorical":
            categories = member(group, "categories")
            texts = () if categories is None else labels.texts_of(categories, MAX_CLASSES)
            return {**found, "class_names": [*texts]} if texts else found
    return {**found, **dtypes.class_attrs(item)} if item.base.metadata is not None else found


def times_meant(words: object) -> dict[str, Any]:
    """Return attributes of times for what pandas calls the dtype of whole numbers.

    Examples
    --------
    >>> times_meant("datetime64[us, UTC]")["units"], times_meant("timedelta64")["units"]
    ('microseconds since 1970-01-01', 'nanoseconds')
    >>> times_meant("int64")
    {}
    """
    found = _TIME.fullmatch(words) if isinstance(words, str) else None
    if found is None:
        return {}
    unit = found[2] or "ns"
    attrs = time_attrs("M" if found[1] == "datetime" else "m")
    attrs["units"] = str(attrs["units"]).replace("nanoseconds", _UNITS[unit])
    return attrs if found[1] == "datetime" else {**attrs, "dtype": f"timedelta64[{unit}]"}


# what a source is


def describe(opening: Opening, info: ArrayInfo) -> Described:
    """Return the header of a dataset that may be a source.

    Raises
    ------
    FileFormatError
        If the datasets that it is made of are missing or do not fit.
    DimsError, UnsafeFileError
    """
    if info.matrix is not None:
        return _sparse(opening, info, info.matrix)
    if metadata.is_flat(info.dataset):
        return _flat(opening, info)
    name, given, base = info.name, opening.dims.get(info.name), vlen_base(info.item)
    axes = labels.axes_of(info.dataset, name, opening.scales, opening.faults, outside=info.outside)
    if len(set(map(attrgetter("name"), axes))) < len(axes):
        axes = labels.with_numbers(axes)
    if info.axes:
        axes = tuple(
            by_group if own.name in ("", by_group.name) and not own.scales else own
            for own, by_group in zip(axes, info.axes, strict=False)
        )
    names = list(map(attrgetter("name"), axes))
    if info.column is not None:
        names += [""] * len(info.item.shape)
    scales: dict[str, labels.Scale] = {}
    for scale in reversed(axes[0].scales) if axes else ():
        scales[scale.name] = scale
    ragged: dict[str, Any] = {}
    if SHAPES in scales:
        required = base is not None and not opening.name_all and None in (given or (None, None))[1:]
        names += labels.example_names(info.dataset, name, scales, required=required)
        shapes = scales[SHAPES]
        ragged["ragged"] = "every example has its own shape (scale 'shapes')"
        if shapes.path is not None and dtypes.why_not_a_source(shapes.dataset) is None:
            ragged["parts"] = {"shapes": scale_header(opening, f"{name} (shapes)", shapes, ())}
    elif base is not None:
        names += [""] if len(axes) == 1 else []
        ragged["ragged"] = f"every example is a row of {base} of its own length (vlen dtype)"
    dims, unnamed = name_dims(opening.stamp.path, name, names, given)
    header = replace(header_of(opening, info, dims), **ragged)
    if ragged:
        unnamed = tuple(axis for axis in unnamed if axis < len(axes))
    return Described(header, axes, unnamed)


def _flat(opening: Opening, info: ArrayInfo) -> Described:
    """Describe a source in the flat layout; see :mod:`.metadata`."""
    name, parts = info.name, {"values": info}
    allowed = opening.options.allow_external
    try:
        for role, path in metadata.part_paths(info.dataset, name).items():
            found, outside = find(opening.base, path, allow_external=allowed)
            if not isinstance(found, h5py.Dataset):
                raise FileFormatError(
                    f"the {role} of ragged source {name!r} are missing ({path!r} names no dataset)"
                )
            parts[role] = ArrayInfo(name, path, found, outside=outside)
        n_axes = metadata.check_parts(name, {role: part.dataset for role, part in parts.items()})
    except FileFormatError as error:
        raise FileFormatError(
            f"file {opening.stamp.path!r}: {error}. Write the source again, or open the others "
            "with sources=[...]"
        ) from error
    names = metadata.example_dims(info.dataset, n_axes)
    dims, unnamed = name_dims(opening.stamp.path, name, names, opening.dims.get(name))
    if unnamed:
        opening.faults.append(f"ragged source {name!r} does not name its axes {unnamed}")
    headers = {role: header_of(opening, part) for role, part in parts.items()}
    values = headers["values"]
    header = replace(
        values,
        shape=(headers["offsets"].n_rows - 1,),
        dims=dims,
        attrs={key: value for key, value in values.attrs.items() if key not in metadata.ATTRIBUTES},
        ragged="every example has its own shape (flat layout)",
        parts=headers,
    )
    return Described(header)


def _sparse(opening: Opening, info: ArrayInfo, shape: tuple[int, int]) -> Described:
    """Describe a sparse matrix, whose rows come dense."""
    name, headers = info.name, {}
    for role in PARTS:
        path = f"{name}/{role}"
        part = ArrayInfo(path, path, info.dataset[role], outside=info.outside)
        headers[role] = header_of(opening, part)
    names = [axis.name for axis in info.axes] or ["", ""]
    dims, unnamed = name_dims(opening.stamp.path, name, names, opening.dims.get(name))
    data = headers["data"]
    chunk_rows = (data.chunks or (0,))[0] * shape[0] // max(data.n_rows, 1)
    header = replace(
        data,
        name=name,
        key=opening.path_of(name),
        shape=shape,
        dims=dims,
        attrs={},
        storage="sparse",
        offset=None,
        chunks=(max(chunk_rows, 1), shape[1]) if data.chunks else None,
        fill_value=np.zeros((), data.dtype)[()],
        stored_bytes=None,
        parts=headers,
    )
    return Described(header, info.axes, unnamed)


# coordinates


def with_coordinates(
    opening: Opening, described: Mapping[str, Described], variables: Headers
) -> Headers:
    """Return sources that name the scales attached to them as coordinates, which become variables.

    Scales of several groups with the same name are distinguished by their paths.
    """
    overruled: list[str] = []
    sources: Headers = {}
    for name, each in described.items():
        keys: dict[str, None] = {}
        for dim, axis in zip(each.header.dims, each.axes, strict=False):
            for scale in axis.scales:
                problem = _why_no_coordinate(scale, axis.length)
                if problem:
                    what = f"scale {scale.name!r} of source {name!r} (dim {dim!r})"
                    opening.faults.append(f"{what} is left out: {problem}")
                if problem is not None:
                    continue
                place = (scale.path or scale.name).removeprefix(opening.base.name).lstrip("/")
                nested = (place.replace("/", "_"),) if "/" in place else ()
                nearer = _nearer_values(opening, described, variables, name, dim, scale)
                if nearer is not None and nearer.name == dim:
                    keys[dim] = None
                    continue
                if nearer is not None and _differs(scale.dataset, opening.base[nearer.key]):
                    overruled.append(
                        f"source {name!r} has values of its own along dim {dim!r}, those of "
                        f"{nearer.name!r}, but positions are selected by those of {scale.path!r}; "
                        f"open its group alone, group={name.rpartition('/')[0]!r}"
                    )
                longer = f"{name}_{scale.name}".replace("/", "_")
                for key in (scale.name, *nested, longer, place):
                    known = variables.get(key)
                    free = known is None and key not in described
                    if free and key != dim:  # it may not be called like a dim of others
                        free = not any(key in one.header.dims for one in described.values())
                    if free:
                        known = variables[key] = scale_header(opening, key, scale, (dim,))
                    if known is not None and (known.key, known.dims) == (scale.path, (dim,)):
                        keys[key] = None
                        break
                    rival = opening.base[known.key] if key == dim and known is not None else None
                    if rival is not None and _differs(scale.dataset, rival):
                        overruled.append(
                            f"source {name!r} has values of its own along dim {dim!r}, those of "
                            f"{place!r}, but positions are selected by those of an earlier source; "
                            f"open it alone, sources=[{name!r}], or rename its axis with dims="
                        )
        sources[name] = replace(each.header, coords=tuple(keys)) if keys else each.header
    opening.faults.extend(overruled[:1])
    return sources


def _nearer_values(
    opening: Opening,
    described: Mapping[str, Described],
    variables: Headers,
    source: str,
    dim: str,
    scale: Scale,
) -> SourceHeader | None:
    """Return what has the values along a dim in the group of a source, if its scale lies above."""
    name = f"{source.rpartition('/')[0]}/{dim}".lstrip("/")
    found = variables.get(name)
    if found is None and name in described and name != source:
        found = described[name].header
    if found is None or found.is_column or found.key == scale.path or found.dims != (dim,):
        return None
    dataset, has = opening.base[found.key], False
    if isinstance(dataset, h5py.Dataset):
        axes = labels.axes_of(dataset, name, opening.scales)
        has = any(scale in axis.scales for axis in axes)
    return found if has else None


def add_scales(
    opening: Opening, sources: Headers, variables: Headers, scales: dict[str, Scale], also: Set[str]
) -> set[str]:
    """Carry also the scales that label no axis of a source, such as those of carried variables.

    Sources get every coordinate whose dims they have, at the same lengths. Return what is a
    coordinate, as xarray sees it: scales, and variables named in `also`.
    """
    there = {header.key for header in variables.values()}
    seen = {address(scale.dataset) for scale in scales.values() if scale.path in there}
    numbers_of = labels.attribute_numbers
    ids = {n: s.name for s in scales.values() for n in numbers_of(s.dataset, "_Netcdf4Dimid")}
    for name, scale in scales.items():
        if scale.has_values and address(scale.dataset) not in seen:
            seen.add(address(scale.dataset))  # it may have several names
            n_axes, dims = len(scale.dataset.shape), [scale.name]
            if n_axes > 1:  # it has no scales itself
                numbers = numbers_of(scale.dataset, "_Netcdf4Coordinates")
                dims = [*dict.fromkeys(ids[number] for number in numbers if number in ids)]
            if len(dims) != n_axes:
                dims = [scale.name, *(default_name(scale.name, i) for i in range(1, n_axes))]
            key = scale.name if scale.name not in variables else name
            if key not in variables:  # those that label sources stay
                variables[key] = scale_header(opening, key, scale, tuple(dims))
    paths = {scale.path for scale in scales.values()}
    found: dict[str, set[tuple[str, int]]] = {}
    for key, header in variables.items():
        # xarray has no place for a coordinate of several dims named like one of them
        alone = header.dims == (key,) or key not in header.dims
        if alone and (key in also or header.key in paths):
            found[key] = set(zip(header.dims, header.shape, strict=True))
    for name, header in sources.items():
        if header.ragged is None:
            sizes = set(zip(header.dims, header.shape, strict=True))
            more = [key for key, own in found.items() if own <= sizes and key not in header.coords]
            sources[name] = replace(header, coords=(*header.coords, *more))
    return set(found)


def _differs(one: h5py.Dataset, two: h5py.Dataset) -> bool:
    """Whether two scales of one length hold other values; long ones are taken to be alike."""
    if one.shape != two.shape or one.size * one.dtype.itemsize > COMPARED_BYTES:
        return False
    mine, theirs = one[()], two[()]
    floats = mine.dtype.kind == theirs.dtype.kind == "f"
    return not np.array_equal(mine, theirs, equal_nan=floats)


def _why_no_coordinate(scale: Scale, length: int) -> str | None:
    """Return why a scale makes no coordinate; ``""`` if nobody would expect one."""
    shape, why_not = scale.dataset.shape, dtypes.why_not_a_source(scale.dataset)
    if scale.name in (SHAPES, SHAPE_LABELS) or not scale.has_values:
        return ""
    if why_not is not None:
        return why_not
    if len(shape) > 1 and h5py.h5a.exists(scale.dataset.id, b"_Netcdf4Coordinates"):
        return ""
    if shape != (length,):
        return f"it has shape {shape} for {length} positions"
    if vlen_base(scale.dataset.dtype) is not None:
        return "its values are rows of numbers (vlen dtype)"
    return "it has no name in the file" if scale.path is None else None


# values


def decoded(opening: Opening, headers: Headers, *, decode_cf: bool) -> Headers:
    """Return headers of one file that decode CF values, if wanted.

    The attribute `coordinates` of netCDF goes either way: `coords` stand for it.
    """
    attrs: Mapping[str, Mapping[str, Any]] = {name: one.attrs for name, one in headers.items()}
    if not opening.netcdf and (not decode_cf or not any(attrs.values())):
        return headers
    attrs, out = with_bounds_units(attrs) if decode_cf else attrs, {}
    for name, header in headers.items():
        cf, used, found = None, frozenset({"coordinates"} if opening.netcdf else ()), attrs[name]
        if decode_cf and (opening.netcdf or found):
            cf, used_up = cf_of(name, header.dtype, found, opening.faults)
            cf = cf if opening.netcdf or used_up else None  # plain files keep their byte order
            used |= used_up
        kept = {key: value for key, value in found.items() if key not in used}
        taken = {key: value for key, value in found.items() if key in used}
        out[name] = replace(header, cf=cf, attrs=kept, used_attrs=taken)
    return out
