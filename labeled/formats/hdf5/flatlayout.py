"""The flat layout: how ragged examples are stored so that they read like dense ones.

A source ``x`` of n examples with k axes each is three datasets side by side:

========================  ==============  =====================================================
dataset                   shape           holds
========================  ==============  =====================================================
``x``                     (n_values,)     the elements of all examples, one example after
                                          another, each in row-major order; any dtype of fixed
                                          size, contiguous or chunked, any filter
``x_offsets``             (n + 1,) int    example i is ``x[x_offsets[i]:x_offsets[i + 1]]``;
                                          ascending, 0 first, at most n_values last
``x_shapes``              (n, k) int      lengths of the axes of each example; their product is
                                          the difference of its offsets. Left out where k is 1
========================  ==============  =====================================================

``x`` has the attributes ``ragged_offsets`` and ``ragged_shapes`` (names of those datasets,
relative to the group of ``x``) and ``ragged_dims`` (k + 1 names: the example dim, then one
an axis). Every axis has a dimension scale without values and the label of the same name
(``x_value``, ``x_offset``, the example dim, ``x_axis``), so that netCDF libraries open the
file too and see the same dims. In a split table only ``x`` is named; its rows are examples.

The trade-off against HDF5's own variable length: an example cannot be replaced by a longer
one in place, but any stretch of examples is one stretch of bytes, and filters compress it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from labeled.errors import ArrayError, FileFormatError
from labeled.formats.hdf5.labels import MAX_EXAMPLE_AXES, NOT_A_VARIABLE
from labeled.formats.hdf5.safety import to_text
from labeled.ragged.flat import Flat, flat_of, sizes_of

OFFSETS, SHAPES, DIMS = "ragged_offsets", "ragged_shapes", "ragged_dims"
ATTRIBUTES = (OFFSETS, SHAPES, DIMS)


def is_flat(dataset: h5py.Dataset) -> bool:
    """Whether a dataset holds the values of a source in the flat layout."""
    return bool(h5py.h5a.exists(dataset.id, OFFSETS.encode()))


def part_paths(dataset: h5py.Dataset, name: str) -> dict[str, str]:
    """Return where offsets and shapes are, by role; paths relative to where `name` is."""
    out = {}
    for role, key in (("offsets", OFFSETS), ("shapes", SHAPES)):
        if h5py.h5a.exists(dataset.id, key.encode()):
            said = _texts(dataset, key)
            if len(said) != 1 or not said[0]:
                raise FileFormatError(f"attribute {key!r} of {name!r} names no dataset: {said}")
            out[role] = posixpath.join(posixpath.dirname(name), said[0])
    return out


def example_dims(dataset: h5py.Dataset, n_axes: int) -> tuple[str, ...]:
    """Return the dims that a source in the flat layout names; ``""`` where it does not."""
    said = _texts(dataset, DIMS) if h5py.h5a.exists(dataset.id, DIMS.encode()) else ()
    return said if len(said) == n_axes + 1 else ("",) * (n_axes + 1)


def check_parts(name: str, values: h5py.Dataset, offsets: h5py.Dataset, shapes: Any) -> int:
    """Check what the datasets of a source are, not yet what they hold; return n_axes.

    Raises
    ------
    FileFormatError
        If one of them has the wrong number of axes, rows or kind of number.
    """
    for role, dataset, n_dims in (("values", values, 1), ("offsets", offsets, 1)):
        if len(dataset.shape or ()) != n_dims:
            raise FileFormatError(
                f"the {role} of ragged source {name!r} have shape {dataset.shape}"
            )
    if offsets.dtype.kind not in "iu" or not len(offsets):
        raise FileFormatError(
            f"the offsets of ragged source {name!r} are {offsets.shape} {offsets.dtype}; they must "
            "be integers, one more than there are examples"
        )
    if shapes is None:
        return 1
    n = len(offsets) - 1
    if len(shapes.shape or ()) != 2 or shapes.shape[0] != n or shapes.dtype.kind not in "iu":
        raise FileFormatError(
            f"the shapes of ragged source {name!r} are {shapes.shape} {shapes.dtype}, but its "
            f"offsets tell of {n} examples; they must be integers, one row an example"
        )
    if shapes.shape[1] > MAX_EXAMPLE_AXES:
        raise FileFormatError(f"ragged source {name!r} claims {shapes.shape[1]} axes an example")
    return int(shapes.shape[1])


def _texts(dataset: h5py.Dataset, key: str) -> tuple[str, ...]:
    values = np.reshape(np.asarray(dataset.attrs[key]), -1).tolist()
    return tuple(to_text(v) if isinstance(v, bytes) else str(v) for v in values)


# writing


def write_flat(
    group: h5py.Group,
    name: str,
    examples: Sequence[npt.ArrayLike] | None = None,
    *,
    values: Any = None,
    offsets: npt.ArrayLike | None = None,
    shapes: npt.ArrayLike | None = None,
    dims: Sequence[str],
    **options: Any,
) -> h5py.Dataset:
    """Write a ragged source in the flat layout into an open file.

    Parameters
    ----------
    group : h5py.Group
        Where the datasets go; open for writing.
    name : str
        Of the source.
    examples : sequence of array, optional
        The examples, all with the same number of axes. Or give the next three.
    values, offsets, shapes : array
        Flat values (n_values,), offsets (n + 1,), shapes (n, k).
    dims : sequence of str
        The example dim, then one name for each of the k axes.
    **options
        For the dataset of values: ``chunks``, ``compression``, ... as h5py takes them.

    Returns
    -------
    h5py.Dataset
        Of the values.

    Raises
    ------
    ArrayError
        If the arrays do not belong together, or the file has one of the dims already at
        another length.
    """
    flat = flat_of(examples) if examples is not None else _given(values, offsets, shapes)
    k = flat.shapes.shape[1]
    if len(dims) != k + 1 or len(set(dims)) < len(dims):
        raise ArrayError(f"source {name!r}: dims={tuple(dims)} do not fit examples of {k} axes")
    dataset = group.create_dataset(name, data=flat.values, **options)
    own = group.create_dataset(f"{name}_offsets", data=flat.offsets)
    label(group, dataset, (f"{name}_value",))
    label(group, own, (f"{name}_offset",))
    last = name.rpartition("/")[2]
    dataset.attrs[OFFSETS] = f"{last}_offsets"
    if k != 1:
        lengths = group.create_dataset(f"{name}_shapes", data=flat.shapes)
        label(group, lengths, (dims[0], f"{name}_axis"))
        dataset.attrs[SHAPES] = f"{last}_shapes"
    dataset.attrs.create(DIMS, list(dims), dtype=h5py.string_dtype())
    return dataset


def _given(values: Any, offsets: Any, shapes: Any) -> Flat:
    if values is None or offsets is None or shapes is None:
        raise ArrayError("give examples, or values, offsets and shapes")
    flat = Flat(np.asarray(values), np.asarray(offsets, np.int64), np.asarray(shapes, np.int64))
    if flat.values.ndim != 1 or flat.offsets.ndim != 1 or flat.shapes.ndim != 2:
        raise ArrayError("values and offsets have one axis, shapes have two")
    if len(flat.offsets) != len(flat.shapes) + 1 or flat.offsets[0] != 0:
        raise ArrayError(f"{len(flat.offsets)} offsets do not fit {len(flat.shapes)} examples")
    sizes = sizes_of(flat.shapes, range(len(flat.shapes)), "shapes to write")
    if not np.array_equal(np.diff(flat.offsets), sizes) or flat.offsets[-1] > len(flat.values):
        raise ArrayError("the offsets are not those of the shapes, or reach past the values")
    return flat


def label(group: h5py.Group, dataset: h5py.Dataset, dims: Sequence[str]) -> None:
    """Name the axes of a dataset by label and by a scale without values, made where missing.

    Raises
    ------
    ArrayError
        If the group has something else of that name, or the dim at another length.
    """
    for axis, (dim, length) in enumerate(zip(dims, dataset.shape, strict=True)):
        if dim not in group:
            group.create_dataset(dim, (length,), dtype=">f4")
            group[dim].make_scale(f"{NOT_A_VARIABLE}.{length:>10}")
        elif not isinstance(group[dim], h5py.Dataset) or group[dim].shape != (length,):
            raise ArrayError(
                f"dim {dim!r} of {dataset.name!r} has length {length}, but the file has "
                f"{group[dim]!r} of that name; name the dim otherwise"
            )
        elif not group[dim].is_scale:
            group[dim].make_scale(dim)
        dataset.dims[axis].label = dim
        dataset.dims[axis].attach_scale(group[dim])
