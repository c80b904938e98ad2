"""What conventions say of the datasets of a file: a list of functions, applied in order.

Each takes what a walk found and gives it back, saying more of what it recognises: what is put
aside and why, which fields of tables are sources, what names the axes. None of them reads more
than headers, attributes and names, and none changes what it was given.

PyTables and pandas (``DataFrame.to_hdf``)
    Times of pandas are whole numbers, and an attribute says of what; booleans of PyTables are
    fields of eight bits. Names of the columns of a "table" are pickles, and so are texts in the
    format "fixed": they are left alone, because unpickling runs whatever the file says.
Sparse matrices by rows: CSR groups of AnnData, and the matrices of 10x Genomics
    Such a group holds ``data`` and ``indices`` (the values that are not zero, and their columns)
    one row after another, and ``indptr``, where each row begins. Here it is one dense source of
    (n_rows, n_columns). The matrices of 10x Genomics are stored by columns, one for each cell,
    so that cells are rows here too.
Files of cells (AnnData, 10x Genomics)
    Cells are the examples, so what describes genes is carried whole: AnnData's own words for
    the dims are `obs_names` and `var_names`, those of 10x Genomics barcodes and features.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

import h5py
import numpy as np

from labeled.display.classes import class_names_of
from labeled.formats.cf import time_attrs
from labeled.formats.hdf5.arrays import ArrayInfo, Opening
from labeled.formats.hdf5.dtypes import (
    Column,
    class_attrs,
    columns_of,
    item_of,
    varies,
    why_not_a_source,
)
from labeled.formats.hdf5.labels import (
    SHAPE_LABELS,
    SHAPES,
    Axis,
    Scale,
    is_scale,
    scale_of,
    short_attribute,
    texts_of,
)
from labeled.formats.hdf5.safety import Address

Infos = list[ArrayInfo]

MAX_CLASSES = 256
"""Names of classes that are read while a file is opened; of more, none are."""

_TIME = re.compile(r"(datetime|timedelta)64(?:\[(s|ms|us|ns)\b[^]]*\])?")
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_ARRAYS = ("ARRAY", "CARRAY", "EARRAY")
_CATEGORIES = re.compile(r"(?:.*/)?meta/[^/]+/meta/table")

PARTS = ("data", "indices", "indptr")
"""Datasets of a sparse matrix."""

BY_COLUMNS = (
    "the sparse matrix %r is stored by columns (CSC), where no row can be read alone, and opens as "
    "the arrays it is made of; write it by rows: with AnnData, a.X = a.X.tocsr() and "
    "a.write_h5ad(NEW)"
)


def kinds_of_datasets(_: Opening, infos: Infos) -> Infos:
    """Put aside bookkeeping of PyTables and pandas; set scales apart; take each field of a table
    for itself; say which datasets hold no examples, and why."""
    found = []
    for info in infos:
        why_not = _why_bookkeeping(info)
        if why_not is not None:
            found.append(replace(info, why_not=why_not, error=None))
        elif not info.is_array:
            found.append(info)
        elif is_scale(info.dataset):
            found.append(_scale(info))
        else:
            found += _fields(info)
    return found


def _scale(info: ArrayInfo) -> ArrayInfo:
    scale, why_not = scale_of(info.dataset), None
    if scale.name in (SHAPES, SHAPE_LABELS):
        why_not = f"it holds the {scale.name!r} of a ragged source"
    elif scale.has_values:
        why_not = why_not_a_source(info.dataset)
        if why_not is None and info.dataset.shape == ():
            why_not = "it is a scale of a single value"
    return replace(info, scale=scale, why_not=why_not)


def _fields(info: ArrayInfo) -> Infos:
    """Return each field of a table, or the dataset itself if it is none."""
    why_not = why_not_a_source(info.dataset)
    if why_not is None:
        return [info]
    item = item_of(info.dataset)
    if info.dataset.shape and item.subdtype is not None:
        return [replace(info, column=Column())]
    if info.dataset.shape and item.names is not None and not varies(item):
        found = []
        for column, fault in columns_of(item):
            name = "/".join((info.name, *column.fields))
            found.append(replace(info, name=name, column=column, why_not=fault))
        return found
    return [replace(info, why_not=why_not)]


def _why_bookkeeping(info: ArrayInfo) -> str | None:
    above, _, last = info.path.rpartition("/")
    if "/_i_" in f"/{above}":
        return "it is part of an index of PyTables"
    if info.dataset is None:
        return None
    if short_attribute(info.dataset, "PSEUDOATOM") == "object":
        return "PyTables keeps pickled objects there, which may run code when they are read"
    if last == "table" and _CATEGORIES.fullmatch(info.path):
        return "it names categories of a column of pandas"
    return None


def sparse_matrices(opening: Opening, infos: Infos) -> Infos:
    """Take each group that holds a sparse matrix for one source, and put its arrays aside."""
    matrices, parts, by_columns = [], {}, {}
    for info in infos:
        if not info.is_array or not info.name.endswith("/indptr"):
            continue
        name = info.name.removesuffix("/indptr")
        group = opening.base[name]
        shape = _shape_of_matrix(group)
        if shape is not None:
            matrices.append(ArrayInfo(name, name, group, matrix=shape))
            for part in PARTS:
                parts[f"{name}/{part}"] = f"it is part of sparse matrix {name!r}"
        elif _is_by_columns(group):
            by_columns[info.name] = BY_COLUMNS % name
    if not matrices and not by_columns:
        return infos
    return matrices + [
        replace(info, why_not=parts.get(info.name), warning=by_columns.get(info.name))
        if info.is_array
        else info
        for info in infos
    ]


def _shape_of_matrix(group: h5py.Group) -> tuple[int, int] | None:
    """Return the shape of the matrix that a group holds by rows; None where it holds none."""
    parts = [member(group, name) for name in PARTS]
    if any(part is None or len(part.shape or ()) != 1 for part in parts):
        return None
    shape = _shape_written(group)
    data, indices, indptr = parts
    kinds = (data, "biuf"), (indices, "iu"), (indptr, "iu")
    if shape is None or any(part.dtype.kind not in kind for part, kind in kinds):
        return None
    return shape if indptr.shape[0] == shape[0] + 1 and data.shape == indices.shape else None


def _shape_written(group: h5py.Group) -> tuple[int, int] | None:
    """Return the shape of a matrix with what is stored together first; None where none is."""
    for kind, shape in (("encoding-type", "shape"), ("h5sparse_format", "h5sparse_shape")):
        if kind in group.attrs and shape in group.attrs:
            lengths = np.ravel(group.attrs[shape]).tolist()
            if short_attribute(group, kind).removesuffix("_matrix") == "csr" and len(lengths) == 2:
                return int(lengths[0]), int(lengths[1])
            return None
    written, barcodes = member(group, "shape"), member(group, "barcodes")
    if written is None or barcodes is None or written.shape != (2,):
        return None
    if written.dtype.kind not in "iu":
        return None
    n_features, n_cells = written[()].tolist()
    return (n_cells, n_features) if barcodes.shape == (n_cells,) else None


def _is_by_columns(group: h5py.Group) -> bool:
    kinds = (short_attribute(group, key) for key in ("encoding-type", "h5sparse_format"))
    return any(kind.removesuffix("_matrix") == "csc" for kind in kinds)


def member(group: h5py.Group, name: str, kind: type = h5py.Dataset) -> Any:
    """Return what lies in a group itself; None behind links, which may lead out of the file."""
    raw = name.encode()
    if raw not in group.id or group.id.links.get_info(raw).type != h5py.h5l.TYPE_HARD:
        return None
    thing = group[name]
    return thing if isinstance(thing, kind) else None


def _by_name(infos: Infos) -> dict[str, ArrayInfo]:
    """Return the whole arrays by name."""
    return {info.name: info for info in infos if info.is_array and info.column is None}


def _named(infos: Infos, axes: Mapping[Address, tuple[Axis, ...]], along: set[Address]) -> Infos:
    """Return infos with names of axes; those along axes are coordinates from now on."""
    return [
        replace(info, axes=info.axes or axes.get(info.address, ()), along=info.address in along)
        if info.is_array and info.column is None
        else info
        for info in infos
    ]


def cells(opening: Opening, infos: Infos) -> Infos:
    """Name the axes of AnnData and 10x Genomics, known by what is at the root."""
    if b"obs" not in opening.base.id and not any(map(attrgetter("matrix"), infos)):
        return infos
    arrays = _by_name(infos)
    shapes = {name: info.matrix or info.dataset.shape for name, info in arrays.items()}
    found = _anndata(opening.base, shapes) or _tenx(shapes)
    if found is None:
        return infos
    names, example_dim, values = found
    names = {name: dims for name, dims in names.items() if len(dims) == len(shapes[name])}
    _check_lengths(names, example_dim, shapes)
    scales = {
        dim: Scale(dim, arrays[name].dataset, opening.path_of(name))
        for dim, name in values.items()
        if name not in opening.asked
    }
    by_address: dict[Address, tuple[Axis, ...]] = {}
    along: set[Address] = set()
    for name, dims in names.items():
        own = []
        for length, dim in zip(shapes[name], dims, strict=True):
            axis = Axis(length, dim, counts_examples=dim == example_dim)
            if len(dims) > 1 and dim in scales and scales[dim].dataset.shape == (length,):
                axis = replace(axis, scales=(scales[dim],))
                along.add(arrays[values[dim]].address)
            own.append(axis)
        by_address.setdefault(arrays[name].address, tuple(own))
    return _named(infos, by_address, along)


Cells = tuple[dict[str, tuple[str, ...]], str, dict[str, str]]
"""Names of axes by array, the example dim, and the arrays that hold the values of dims."""


def _check_lengths(
    names: dict[str, tuple[str, ...]], example_dim: str, shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Take the example dim from arrays that are not as long as most that have it."""
    lengths = {name: shapes[name][0] for name, dims in names.items() if dims[:1] == (example_dim,)}
    usual = Counter(lengths.values()).most_common(1)
    for name, length in lengths.items():
        if length != usual[0][0]:
            names[name] = (f"{name.rpartition('/')[2]}_axis_0", *names[name][1:])


def _anndata(base: h5py.Group, shapes: Mapping[str, tuple[int, ...]]) -> Cells | None:
    """Return what AnnData means: `obs` describes cells, `var` genes."""
    obs, var = (member(base, name, h5py.Group) for name in ("obs", "var"))
    if obs is None or var is None:
        return None
    kind = short_attribute(base, "encoding-type")
    if kind != "anndata" and (kind or not all(short_attribute(t, "_index") for t in (obs, var))):
        return None
    index = f"var/{short_attribute(var, '_index') or '_index'}"
    there = [one for one in (index, f"{index}/values") if len(shapes.get(one, ())) == 1]
    values = {"var_names": there[0]} if there else {}  # texts that may be missing are a group
    names = {name: _anndata_names(name.split("/"), len(shape)) for name, shape in shapes.items()}
    return names, "obs_names", values


def _anndata_names(parts: list[str], n_axes: int) -> tuple[str, ...]:
    """Return what the axes of an array in a file of AnnData are."""
    match parts:
        case ["X"] | ["layers", _]:
            return ("obs_names", "var_names")
        case ["raw", "X"]:
            return ("obs_names", "raw_var_names")
        case [*_, column, "categories"] | [*_, "__categories", column]:
            return (column,)
        case ["raw", "var", *_]:
            return ("raw_var_names",)
        case ["obs" | "var" as along, *_]:
            return (f"{along}_names",)
        case ["obsm" | "varm" as kind, *_, last]:
            return (f"{kind[:3]}_names", *(f"{last}_axis_{axis}" for axis in range(1, n_axes)))
        case ["obsp" | "varp" as kind, _]:
            return (f"{kind[:3]}_names", f"{kind[:3]}_names_2")
        case _:
            return tuple(f"{parts[-1]}_axis_{axis}" for axis in range(n_axes))


def _tenx(shapes: Mapping[str, tuple[int, ...]]) -> Cells | None:
    """Return what 10x Genomics means: one group with barcodes, features and a matrix."""
    for path, shape in shapes.items():
        barcodes, begin = f"{path}/barcodes", f"{path}/"
        if len(shape) == 2 and shapes.get(barcodes) == shape[:1]:
            kind = "feature" if f"{begin}features/id" in shapes else "gene"
            ids = f"{begin}features/id" if kind == "feature" else f"{begin}genes"
            names: dict[str, tuple[str, ...]] = {
                name: (kind if length == shape[1:] else f"{name.rpartition('/')[2]}_axis_0",)
                for name, length in shapes.items()
                if name.startswith(begin)
            }
            names |= {path: ("barcode", kind), barcodes: ("barcode",)}
            return names, "barcode", {kind: ids} if shapes.get(ids) == shape[1:] else {}
    return None


def one_name_each(opening: Opening, infos: Infos) -> Infos:
    """Keep one name of each dataset, the least deep and then the first, and those asked for."""
    asked = opening.asked
    arrays: dict[tuple[Address, Column | None], Infos] = {}
    for info in infos:
        if info.is_array and info.matrix is None:
            arrays.setdefault((info.address, info.column), []).append(info)
    if len(arrays) == len(infos):
        return infos
    again: dict[str, str] = {}
    for alike in arrays.values():
        if len(alike) > 1:
            names = sorted((i.name not in asked, i.name.count("/"), i.name) for i in alike)
            again |= {name: names[0][2] for *_, name in names[1:] if name not in asked}
    return [
        replace(info, why_not=f"it is another name of {again[info.name]!r}")
        if info.name in again
        else info
        for info in infos
    ]


CONVENTIONS: tuple[Callable[[Opening, Infos], Infos], ...] = (
    kinds_of_datasets,
    sparse_matrices,
    cells,
    one_name_each,
)
"""All there are, in the order in which they are asked."""


def meaning_of(
    info: ArrayInfo, attrs: Mapping[str, Any], *, classes: bool = True
) -> dict[str, Any]:
    """Return attributes that say what numbers mean: times, booleans, or names of `classes`.

    Parameters
    ----------
    attrs : mapping
        Those that it has; names of classes among them go before others.
    """
    dataset, column, item = info.dataset, info.column, info.item
    found: dict[str, Any] = {}
    if column is None or not column.fields:
        if item == np.int64:
            found = times_meant(attrs.get("value_type", attrs.get("kind")))
        elif item == np.uint8 and short_attribute(dataset, "CLASS") in _ARRAYS:
            found = _booleans(dataset.id.get_type())
    elif len(column.fields) == 1 and short_attribute(dataset, "CLASS") == "TABLE":
        (name,) = column.fields
        if item.base == np.int64:
            kinds = (short_attribute(dataset, f"{name}_{key}") for key in ("dtype", "kind"))
            found = next(filter(None, map(times_meant, kinds)), {})
        else:
            table = dataset.id.get_type()
            found = _booleans(table.get_member_type(table.get_member_index(name.encode())))
    if not classes or (attrs and class_names_of(attrs)):
        return found
    if info.path.endswith("/codes") and column is None and not info.outside:
        group = dataset.parent  # of AnnData
        if short_attribute(group, "encoding-type") == "categorical":
            categories = member(group, "categories")
            texts = texts_of(categories, info.path, MAX_CLASSES) if categories is not None else ()
            return {**found, "class_names": [*texts]} if texts else found
    return {**found, **class_attrs(item)} if item.base.metadata is not None else found


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
    units = str(attrs["units"]).replace("nanoseconds", _UNITS[unit])
    dtype = {"dtype": f"timedelta64[{unit}]"} if found[1] == "timedelta" else {}
    return {**attrs, "units": units, **dtype}


def _booleans(kind: Any) -> dict[str, Any]:
    if isinstance(kind, h5py.h5t.TypeArrayID):
        kind = kind.get_super()
    return {"dtype": "bool"} if isinstance(kind, h5py.h5t.TypeBitfieldID) else {}
