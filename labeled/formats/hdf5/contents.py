"""What lies in a file without a split table, sorted by what it can be.

A walk meets every dataset once. What pandas and PyTables keep for themselves is put aside with
the reason, further names of one dataset are reported, groups that hold a sparse matrix become one
source, and the axes of frames of pandas and of cells get their names. Nothing is read but headers
and names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import h5py

from labeled.errors import LabeledError, UnsafeFileError
from labeled.formats.hdf5.columns import Column, columns_of, item_of, varies
from labeled.formats.hdf5.frames import (
    axes_of_frames,
    is_index_of_pytables,
    why_no_examples,
    why_no_table,
)
from labeled.formats.hdf5.labels import (
    NON_COORDINATE,
    SHAPE_LABELS,
    SHAPES,
    Axis,
    Scale,
    is_scale,
    scale_of,
)
from labeled.formats.hdf5.layout import why_not_a_source
from labeled.formats.hdf5.own import OWN
from labeled.formats.hdf5.safety import Address, Found, GoneError, address, walk
from labeled.formats.hdf5.sources import Builder
from labeled.formats.hdf5.sparse import PARTS, Matrix, axes_of_cells, is_by_columns, matrix_of


@dataclass(slots=True)
class Contents:
    """What a walk through a file found, sorted by what it can be."""

    datasets: dict[str, Found] = field(default_factory=dict)
    scales: dict[str, Scale] = field(default_factory=dict)
    not_opened: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, LabeledError] = field(default_factory=dict)
    """What would be sources if it could be opened."""
    matrices: dict[str, Matrix] = field(default_factory=dict)
    axes: dict[Address, tuple[Axis, ...]] = field(default_factory=dict)
    """Axes of datasets that pandas or programs for cells name."""
    along: dict[Address, str] = field(default_factory=dict)
    """The datasets that lie along these, and their paths."""
    matrix_axes: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    """Axes of sparse matrices of cells."""
    example_dim: str | None = None
    """The dim of cells, in files of cells."""

    @property
    def kind(self) -> str:
        return "netcdf" if self.scales else "plain"


BY_COLUMNS = (
    "the sparse matrix %r is stored by columns (CSC), where no row can be read alone, and opens as "
    "the arrays it is made of; write it by rows: with AnnData, a.X = a.X.tocsr() and "
    "a.write_h5ad(NEW)"
)


def contents_of(builder: Builder, wanted: Sequence[str] | None) -> Contents:
    """Sort what lies below the builder's group.

    Raises
    ------
    UnsafeFileError
        If a source in `wanted` lies behind a link out of the file.
    """
    contents, asked = Contents(), {*(wanted or ()), *builder.given_dims}
    for path, found in walk(builder.base, allow_external=builder.allow_external):
        name = _visible(path)
        if path.startswith(f"{OWN}/") and builder.base.name == "/":
            continue  # checksums that this library wrote
        if is_index_of_pytables(path):
            contents.not_opened[name] = "it is part of an index of PyTables"
        elif isinstance(found, UnsafeFileError):
            if any(w == name or w.startswith(f"{name}/") for w in wanted or ()):
                raise found
            leave_out(contents, name, found, wanted)
        elif isinstance(found, GoneError) and not asked:
            leave_out(contents, name, found, None)
        elif isinstance(found, LabeledError):
            contents.not_opened[name] = str(found)
        else:
            _sort_in(contents, name, found)
    _find_matrices(builder, contents)
    walked = dict(contents.datasets)
    _put_aliases_aside(contents, asked)
    _put_axes_aside(builder, contents, walked, asked)
    return contents


def _put_aliases_aside(contents: Contents, asked: Set[str]) -> None:
    """Keep one name of each dataset, the least deep and then the first, and those asked for."""
    firsts: dict[Any, str] = {}
    for name in sorted(contents.datasets, key=lambda n: (n not in asked, n.count("/"), n)):
        found = contents.datasets[name]
        first = firsts.setdefault((address(found.thing), found.column), name)
        if name not in {first, *asked}:
            contents.not_opened[name] = f"it is another name of {first!r}"
            del contents.datasets[name]


def _put_axes_aside(
    builder: Builder, contents: Contents, walked: Mapping[str, Found], asked: Set[str]
) -> None:
    """Name axes as pandas does, and take the datasets along them for coordinates."""
    arrays = {name: found for name, found in walked.items() if found.column is None}
    sources = {address(arrays[name].thing) for name in asked if name in arrays}
    for path, axes in axes_of_frames(builder.base, arrays).items():
        for axis in axes:
            for scale in axis.scales:
                here = address(scale.dataset)
                contents.along[here] = str(scale.path)
                if here in sources:
                    contents.axes[here] = (replace(axis, scales=()),)
        contents.axes[address(arrays[path].thing)] = tuple(
            replace(axis, scales=tuple(s for s in axis.scales if address(s.dataset) not in sources))
            for axis in axes
        )
    _name_axes_of_cells(builder, contents, arrays, asked)
    for name, found in [*contents.datasets.items()] if contents.along else ():
        if address(found.thing) in contents.along.keys() - sources:
            del contents.datasets[name]


def _name_axes_of_cells(
    builder: Builder, contents: Contents, arrays: Mapping[str, Found], asked: Set[str]
) -> None:
    """Name the axes of AnnData and 10x Genomics that have no names."""
    shapes = {name: found.thing.shape for name, found in arrays.items()}
    shapes |= {name: matrix.shape for name, matrix in contents.matrices.items()}
    told = axes_of_cells(builder.base, shapes)
    if told is None:
        return
    scales = {
        dim: Scale(dim, arrays[path].thing, f"{builder.base.name.rstrip('/')}/{path}")
        for dim, path in told.scales.items()
        if path not in asked
    }
    for path, names in told.names.items():
        axes = tuple(map(Axis, shapes[path], names))
        if len(names) > 1:
            axes = tuple(_with_scale(axis, scales, contents.along) for axis in axes)
        if path in contents.matrices:
            contents.matrix_axes[path] = axes
        else:
            contents.axes.setdefault(address(arrays[path].thing), axes)
    contents.example_dim = told.example_dim
    if any(told.names.get(name, [None])[0] == told.example_dim for name in builder.given_dims):
        contents.example_dim = None  # the user has another name for it


def _with_scale(axis: Axis, scales: Mapping[str, Scale], along: dict[Address, str]) -> Axis:
    """Return an axis with the names of its positions, where there is one for each."""
    scale = scales.get(axis.label)
    if scale is None or scale.dataset.shape != (axis.length,):
        return axis
    along[address(scale.dataset)] = str(scale.path)
    return replace(axis, scales=(scale,))


def _find_matrices(builder: Builder, contents: Contents) -> None:
    """Take groups that hold a sparse matrix for a source each, and their arrays out."""
    for path in [name for name in contents.datasets if name.endswith("/indptr")]:
        name = path.removesuffix("/indptr")
        group = builder.base.get(name)
        matrix = matrix_of(group) if isinstance(group, h5py.Group) else None
        if matrix is not None:
            contents.matrices[name] = matrix
            for part in PARTS:
                if contents.datasets.pop(f"{name}/{part}", None) is not None:
                    contents.not_opened[f"{name}/{part}"] = f"it is part of sparse matrix {name!r}"
        elif isinstance(group, h5py.Group) and is_by_columns(group):
            builder.notes.odd.append(BY_COLUMNS % name)


def _visible(path: str) -> str:
    """Return the name a netCDF user knows; a variable named like another's dim is marked."""
    prefix, slash, last = path.rpartition("/")
    return prefix + slash + last.removeprefix(NON_COORDINATE)


def _sort_in(contents: Contents, name: str, found: Found) -> None:
    dataset, item = found.thing, item_of(found.thing)
    reason = why_not_a_source(dataset)
    if is_scale(dataset):
        scale = scale_of(dataset)
        if scale.name in (SHAPES, SHAPE_LABELS):
            contents.not_opened[name] = f"it tells the {scale.name!r} of a ragged source"
        elif not scale.has_values:
            contents.scales[name] = scale
        elif reason is not None or dataset.shape == ():
            contents.not_opened[name] = reason or "it is a scale of a single value"
        else:
            contents.scales[name] = scale
    elif reason is None:
        reason = why_no_examples(dataset, name)
        if reason is None:
            contents.datasets[name] = found
        else:
            contents.not_opened[name] = reason
    elif dataset.shape and item.subdtype is not None:
        contents.datasets[name] = replace(found, column=Column())
    elif dataset.shape and item.names is not None and not varies(item):
        kept = why_no_table(dataset, name)
        if kept is None:
            _sort_in_columns(contents, name, found)
        else:
            contents.not_opened[name] = kept
    else:
        contents.not_opened[name] = reason


def _sort_in_columns(contents: Contents, name: str, found: Found) -> None:
    """Take each field of a table for a source of its own."""
    for column, why_not in columns_of(item_of(found.thing)):
        path = "/".join((name, *column.fields))
        if why_not is None:
            contents.datasets[path] = replace(found, column=column)
        else:
            contents.not_opened[path] = why_not


def leave_out(
    contents: Contents, name: str, error: LabeledError, wanted: Sequence[str] | None
) -> None:
    """Put aside what cannot be opened, to be told of where nobody asked for others only."""
    contents.not_opened[name] = str(error)
    if wanted is None:
        contents.left_out[name] = error
