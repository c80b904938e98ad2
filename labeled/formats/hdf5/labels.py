"""Names of axes: from the file's labels, its dimension scales, or the user.

An axis is named by its dimension label; without one, by the scale attached to it;
without either, axis 0 is ``batch`` and axis i is ``<source>_axis_<i>`` (of a source in a
group, the last part of its path), with one warning for all files that are alike. Names the
user gives go before all of these. Two axes never become one because they are equally long.

A scale that labels no axis is not lost: it becomes a coordinate. Fuel's ragged scales
(`shapes`, `shape_labels`) tell shapes, not positions, and are never coordinates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import h5py
import numpy as np

from labeled.dims import default_name, likely_axis, likely_image
from labeled.errors import DimsError, FileFormatError
from labeled.formats.cf import FILLS
from labeled.formats.hdf5.dtypes import refers, why_not_a_source
from labeled.formats.hdf5.safety import address, check_dataset, to_text
from labeled.formats.header import SourceHeader
from labeled.formats.region import Array

SHAPES, SHAPE_LABELS = "shapes", "shape_labels"
MAX_EXAMPLE_AXES = 32

MAX_SUGGESTED = 4  # sources for which a warning spells out names of axes

NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
NON_COORDINATE = "_nc4_non_coord_"


@dataclass(frozen=True, slots=True)
class Scale:
    """A dimension scale: its name, the dataset it is, and whether it holds values."""

    name: str
    dataset: h5py.Dataset
    path: str | None  # None for a dataset without a name in the file, which cannot be opened again
    has_values: bool = True


# the scales of an open file by their addresses: hundreds of variables share a few
Scales = dict[int, Scale]


@dataclass(frozen=True, slots=True)
class Axis:
    """The label and scales of one axis of a dataset."""

    length: int
    label: str = ""
    scales: tuple[Scale, ...] = ()
    # whether a convention says that examples lie along it, though other axes come first
    counts_examples: bool = False

    @property
    def name(self) -> str:
        """The label, else the last scale's name (as netCDF libraries take it), else ``""``."""
        if not self.label:
            for scale in reversed(self.scales):
                if scale.name not in ("", SHAPES, SHAPE_LABELS):
                    return scale.name
        return self.label


def likely_dims(header: SourceHeader, unnamed: Collection[int]) -> tuple[str, ...]:
    """Return dims with a guess for the unnamed ones: a single axis, or those of pictures.

    Nothing is guessed where an axis behind the first has a name.
    """
    dims, inner = header.dims, likely_image(header.shape[1:])
    for axis, name in enumerate(dims[1:], 1):
        if name != default_name(header.name, axis) and axis not in unnamed:
            return dims
    if len(dims) == 2:
        length = None if header.ragged is not None else header.shape[1]
        inner = (likely_axis(length, header.dtype.kind),)
    return dims if inner is None else ("batch" if 0 in unnamed else dims[0], *inner)


def axes_of(
    dataset: h5py.Dataset,
    name: str,
    known: Scales | None = None,
    faults: list[str] | None = None,
    *,
    outside: bool = False,
) -> tuple[Axis, ...]:
    """Return the labels and scales of every axis.

    Scales in `known` are not read again, and those read are added to it. What cannot be read is
    added to `faults`, not raised. Of a dataset `outside`, reached by a link to another file, scales
    that are not known have no path in this one.

    HDF5's own functions for this trust what they read and crash on damaged files, so the
    attributes they keep are read here instead, and checked.
    """
    known, faults = {} if known is None else known, [] if faults is None else faults
    shape = dataset.shape or ()
    labels, scales = [""] * len(shape), [tuple[Scale, ...]()] * len(shape)
    for key, what in (("DIMENSION_LABELS", "labels"), ("DIMENSION_LIST", "scales")):
        if not h5py.h5a.exists(dataset.id, key.encode()):
            continue
        try:
            kept = h5py.h5a.open(dataset.id, key.encode())
            values = np.empty(kept.shape, kept.dtype)
            if values.shape != (len(shape),):
                raise ValueError(f"attribute {key} has shape {values.shape}")
            kept.read(values)
            if what == "labels":
                labels = list(map(to_text, values.tolist()))
            else:
                file = dataset.file
                scales = [_scales(file, each, known, outside) for each in values.tolist()]
        except Exception as error:  # damage surfaces as nearly any exception
            faults.append(f"the {what} of the axes of {name!r} cannot be read ({error})")
    return tuple(map(Axis, shape, labels, scales))


def with_numbers(axes: Sequence[Axis]) -> tuple[Axis, ...]:
    """Number what names a later axis again: one scale is attached to both axes of covariances."""
    found: list[Axis] = []
    for axis in axes:
        name, n = axis.name, [one.name for one in axes[: len(found)]].count(axis.name)
        if n and name and not axis.label:
            scales = [replace(s, name=f"{name}_{n + 1}") for s in axis.scales if s.name == name]
            axis = replace(axis, scales=(*(s for s in axis.scales if s.name != name), *scales))
        found.append(axis)
    return tuple(found)


def _scales(file: h5py.File, references: Any, known: Scales, outside: bool) -> tuple[Scale, ...]:
    things = [file[reference] for reference in references if reference]
    found = {address(thing): thing for thing in things if isinstance(thing, h5py.Dataset)}
    new = {at: scale_of(thing) for at, thing in found.items() if at not in known}
    known.update({at: replace(s, path=None) for at, s in new.items()} if outside else new)
    return tuple(known[at] for at in found)


def scale_of(dataset: h5py.Dataset) -> Scale:
    """Return a dataset as a scale, called by its scale name, else by its name in the file."""
    raw = h5py.h5i.get_name(dataset.id)
    path = None if raw is None else to_text(raw)
    name = short_attribute(dataset, "NAME")
    has_values = not name.startswith(NOT_A_VARIABLE)
    if not name or not has_values:
        name = "" if path is None else path.rsplit("/", 1)[-1]
    return Scale(name.removeprefix(NON_COORDINATE), dataset, path, has_values)


def short_attribute(dataset: h5py.Dataset, key: str) -> str:
    """Return a text attribute, the first of several; ``""`` if there is none."""
    return next(iter(attribute_texts(dataset, key)), "")


def attribute_texts(dataset: h5py.Dataset, key: str) -> tuple[str, ...]:
    """Return the texts of an attribute; none where there is no such attribute."""
    return tuple(map(to_text, _values_of(dataset, key).tolist()))


def attribute_numbers(dataset: h5py.Dataset, key: str) -> tuple[int, ...]:
    """Return the whole numbers of an attribute; none where there are none, or it holds others."""
    values = _values_of(dataset, key)
    return tuple(map(int, values)) if values.dtype.kind in "biu" else ()


def _values_of(dataset: h5py.Dataset, key: str) -> Array:
    if not h5py.h5a.exists(dataset.id, key.encode()):
        return np.empty(0)
    try:
        return np.reshape(np.asarray(dataset.attrs[key]), -1)
    except (TypeError, ValueError):  # NumPy has no dtype for its type
        return np.empty(0)


def example_names(
    dataset: h5py.Dataset, source: str, scales: Mapping[str, Scale], *, required: bool
) -> tuple[str, ...]:
    """Return what the axes of examples in Fuel's ragged layout are called; ``""`` for unknown.

    `scales` are those of axis 0 by name, `shapes` among them. A table of shapes without two axes is
    refused when it is read: the number of names is unknown.

    Raises
    ------
    FileFormatError
        If examples have more axes than arrays can have.
    DimsError
        If the file does not name them, and they are `required`.
    """
    lengths: Sequence[int] = scales[SHAPES].dataset.shape or ()
    if len(lengths) != 2:
        return ()
    n_axes, labels = lengths[1], scales.get(SHAPE_LABELS)
    what = f"source {source!r} of file {dataset.file.filename!r}"
    if n_axes > MAX_EXAMPLE_AXES:
        raise FileFormatError(f"{what} claims {n_axes} axes an example (scale {SHAPES!r})")
    fault = f"no scale {SHAPE_LABELS!r} is attached to its axis 0"
    if labels is not None:
        texts = texts_of(labels.dataset, MAX_EXAMPLE_AXES)
        if len(texts) == n_axes:
            return texts
        fault = f"its scale {SHAPE_LABELS!r} names {len(texts)} axes"
    if required:
        names = ("batch", *(default_name(source, axis) for axis in range(1, n_axes + 1)))
        raise DimsError(
            f"{what} holds examples with {n_axes} axes each (scale {SHAPES!r}) that have no names: "
            f"{fault}. Pass dims={{{source!r}: {names}}} with names of your own when opening it, "
            f"or write them into a new file: labeled repack FILE NEW --dims "
            f"{source}={','.join(names)}. To open the other sources only, pass sources=[...]"
        )
    return ("",) * n_axes


def texts_of(dataset: h5py.Dataset, most: int) -> tuple[str, ...]:
    """Return what a dataset of a few texts holds; nothing where it is something else."""
    shape = dataset.shape
    is_text = why_not_a_source(dataset) is None and dataset.dtype.kind in "SO"
    if not is_text or len(shape) != 1 or shape[0] > most:
        return ()
    check_dataset(dataset, dataset.name)
    return tuple(map(to_text, dataset[()].tolist()))


# attributes


INTERNAL = frozenset(
    {"CLASS", "NAME", "DIMENSION_LIST", "DIMENSION_LABELS", "REFERENCE_LIST", "_NCProperties"}
    | {"_Netcdf4Coordinates", "_Netcdf4Dimid", "_nc3_strict", "labeled_incomplete"}
)


def attrs_of(
    thing: h5py.Group | h5py.Dataset, what: str, faults: list[str], *, scalars: bool = False
) -> dict[str, Any]:
    """Return the attributes of an object, in the order that they were made where it is known.

    Parameters
    ----------
    what : str
        The object, for messages.
    faults : list of str
        Receives what cannot be read.
    scalars : bool
        Turn arrays of one value into that value, as netCDF means them.

    References, and compounds that hold them, mean nothing outside an open file; they
    are left out like HDF5's own.
    """
    values: dict[str, Any] = {}
    attributes = thing.attrs if h5py.h5a.get_num_attrs(thing.id) else {}
    for name in attributes:
        text = to_text(name)
        if text in INTERNAL:
            continue
        try:
            value = attributes[name]
            has_fields = isinstance(value, np.ndarray | np.void)
            refers_to = isinstance(value, h5py.Reference) or (has_fields and refers(value.dtype))
        except Exception:  # any exception may come of a foreign or damaged type
            faults.append(f"attribute {text!r} of {what} cannot be read")
            continue
        if not refers_to:
            fill = text in FILLS and isinstance(value, bytes)  # one of the values, so no text
            single = scalars and text != "class_names"  # a list, however many there are
            values[text] = value if fill else plain_value(value, scalars=single)
    return values


def plain_value(value: Any, *, scalars: bool = False) -> Any:
    """Return an attribute value as something that pickles and prints.

    Examples
    --------
    >>> plain_value(b"metres"), plain_value(np.array([b"a", b"b"]))
    ('metres', ['a', 'b'])
    >>> plain_value(np.array([0.5]), scalars=True)
    np.float64(0.5)
    """
    if isinstance(value, h5py.Empty):
        return "" if value.dtype.kind in "SO" else None
    if isinstance(value, bytes | str):
        return str(to_text(value))
    if isinstance(value, list):  # rows of a variable-length attribute are arrays
        rows = [isinstance(e, np.ndarray) and e.dtype.names is None for e in value]
        return [e.tolist() if row else plain_value(e) for e, row in zip(value, rows, strict=True)]
    if not isinstance(value, np.ndarray):
        return value
    if scalars and value.shape == (1,):
        return plain_value(value[0])
    return plain_value(value.tolist()) if value.dtype.kind in "SO" else np.array(value)
