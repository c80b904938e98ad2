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
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import h5py
import numpy as np

from labeled.dims import likely_axis, likely_image
from labeled.errors import DimsError, FileFormatError
from labeled.formats.cf import FILLS
from labeled.formats.hdf5.dtypes import numpy_type, refers, why_not_a_source
from labeled.formats.hdf5.safety import Address, address, check_dataset, to_bytes, to_text
from labeled.formats.header import SourceHeader

Names = Sequence[str | None]
"""Names that a user gives to axes; None leaves an axis to the file."""

SHAPES, SHAPE_LABELS = "shapes", "shape_labels"
MAX_EXAMPLE_AXES = 32
TO_WRITE = "the file to write"
"""What messages call a file that is not there yet."""

MAX_LISTED, MAX_SUGGESTED = 12, 4
"""Sources that a warning lists, and those whose names it spells out."""

NOT_A_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
NON_COORDINATE = "_nc4_non_coord_"


@dataclass(frozen=True, slots=True)
class Scale:
    """A dimension scale: its name, the dataset it is, and whether it holds values."""

    name: str
    dataset: h5py.Dataset
    path: str | None
    """None for a dataset without a name in the file, which cannot be opened again."""
    has_values: bool = True


Scales = dict[Address, Scale]
"""The scales of an open file by their addresses: hundreds of variables share a few."""


@dataclass(frozen=True, slots=True)
class Axis:
    """The label and scales of one axis of a dataset."""

    length: int
    label: str = ""
    scales: tuple[Scale, ...] = ()
    counts_examples: bool = False
    """Whether a convention says that examples lie along it, though other axes come first."""

    @property
    def name(self) -> str:
        """The label, else the last scale's name (as netCDF libraries take it), else ``""``."""
        if not self.label:
            for scale in reversed(self.scales):
                if scale.name not in ("", SHAPES, SHAPE_LABELS):
                    return scale.name
        return self.label


class Unnamed(NamedTuple):
    """A source some of whose axes have no name in the file, and the names they get."""

    axes: tuple[int, ...]
    header: SourceHeader

    @property
    def likely(self) -> tuple[str, ...]:
        """What the axes probably are: a single one behind the first, or those of pictures.

        Nothing is guessed where an axis behind the first has a name.
        """
        header, dims = self.header, self.header.dims
        for axis, dim in enumerate(dims):
            if axis and axis not in self.axes and dim != default_name(header.name, axis):
                return dims
        guess: tuple[str, ...] | None = None
        if len(dims) == 2:
            length = None if header.ragged is not None else header.shape[1]
            guess = (likely_axis(length, header.dtype.kind),)
        elif header.ragged is None:
            guess = likely_image(header.shape[1:])
        return dims if guess is None else ("batch" if 0 in self.axes else dims[0], *guess)


def how_to_name_axes(unnamed: Mapping[str, Unnamed]) -> str:
    """Return the warning about sources some of whose axes have no names, with the remedies."""

    def dims_of(name: str) -> tuple[str, ...]:
        return unnamed[name].header.dims

    named = [
        f"{name!r} (axis {', '.join(map(str, one.axes))})"
        for name, one in islice(unnamed.items(), MAX_LISTED)
    ]
    if len(unnamed) > MAX_LISTED:
        named.append(f"... ({len(unnamed):,} sources in all)")
    few = sorted(unnamed, key=lambda name: (-len(unnamed[name].axes), -len(dims_of(name))))
    few = few[:MAX_SUGGESTED]
    axes, dims = unnamed[few[0]].axes, dims_of(few[0])
    likely = {name: unnamed[name].likely for name in few}
    pictures = any(len(dims_of(name)) > 2 and likely[name] != dims_of(name) for name in few)
    return (
        f" does not name every axis: {', '.join(named)}. Those of {few[0]!r} are called "
        f"{', '.join(dims[axis] for axis in axes)}. Set f[{few[0]!r}].dims[{axes[0]}].label in "
        f"the file, or pass {'(if these are pictures) ' if pictures else ''}dims={likely} when "
        "opening it"
    )


def default_name(source: str, axis: int) -> str:
    """Return the name of an axis that has none in the file.

    Examples
    --------
    >>> default_name("features", 0), default_name("camera/left", 2)
    ('batch', 'left_axis_2')
    """
    return "batch" if axis == 0 else f"{source.rpartition('/')[2]}_axis_{axis}"


def axes_of(
    dataset: h5py.Dataset, name: str, known: Scales | None = None, faults: list[str] | None = None
) -> tuple[Axis, ...]:
    """Return the labels and scales of every axis.

    Scales in `known` are not read again, and those read are added to it. What cannot be read is
    added to `faults`, not raised.

    HDF5's own functions for this trust what they read and crash on damaged files, so the
    attributes they keep are read here instead, and checked.
    """
    shape = dataset.shape or ()
    labels: Sequence[str] = [""] * len(shape)
    scales: Sequence[tuple[Scale, ...]] = [()] * len(shape)
    known, faults = {} if known is None else known, [] if faults is None else faults
    if h5py.h5a.exists(dataset.id, b"DIMENSION_LABELS"):
        try:
            labels = list(map(_text, _entries(dataset, "DIMENSION_LABELS")))
        except Exception as error:  # damage surfaces as nearly any exception
            faults.append(f"the labels of the axes of {name!r} cannot be read ({error})")
    if h5py.h5a.exists(dataset.id, b"DIMENSION_LIST"):
        try:
            file, found = dataset.file, _entries(dataset, "DIMENSION_LIST")
            scales = [_scales(file, references, known) for references in found]
        except Exception as error:
            faults.append(f"the scales of the axes of {name!r} cannot be read ({error})")
    return tuple(map(Axis, shape, labels, scales))


def _entries(dataset: h5py.Dataset, key: str) -> Sequence[Any]:
    """Return the values of an attribute that has one for every axis."""
    kept = h5py.h5a.open(dataset.id, key.encode())
    shape = kept.shape
    if shape != (len(dataset.shape),):
        raise ValueError(f"attribute {key} has shape {shape}")
    values = np.empty(shape, kept.dtype)
    kept.read(values)
    entries: Sequence[Any] = values.tolist()
    return entries


def _text(value: Any) -> str:
    """Return an attribute's text; HDF5 marks an axis without a label by a null pointer."""
    if isinstance(value, bytes):
        return to_text(value).rstrip("\0")
    return value if isinstance(value, str) else ""


def _scales(file: h5py.File, references: Any, known: Scales) -> tuple[Scale, ...]:
    things = [file[reference] for reference in references if reference]
    found = {address(thing): thing for thing in things if isinstance(thing, h5py.Dataset)}
    known.update({at: scale_of(thing) for at, thing in found.items() if at not in known})
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


def is_scale(dataset: h5py.Dataset) -> bool:
    """Whether a dataset is a dimension scale, by its attribute."""
    return short_attribute(dataset, "CLASS") == "DIMENSION_SCALE"


def short_attribute(dataset: h5py.Dataset, key: str) -> str:
    """Return a text attribute; ``""`` if there is none."""
    if not h5py.h5a.exists(dataset.id, key.encode()):
        return ""
    values = np.reshape(dataset.attrs[key], -1).tolist()
    return _text(values[0]) if values else ""


def name_dims(
    where: str,
    source: str,
    found: Sequence[str],
    given: Sequence[Any] | None = None,
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Name every axis of a source, and return which axes had no name.

    Parameters
    ----------
    where : str
        The file, for messages.
    source : str
        Its name, for messages and for the names of unnamed axes.
    found : names, one an axis
        What the file says; ``""`` for an axis it does not name.
    given : names, one an axis, optional
        What the user says; goes first, and None leaves an axis to the file.

    Returns
    -------
    dims : tuple of str
        All different.
    unnamed : tuple of int
        Axes that were named here.

    Raises
    ------
    DimsError
        If names repeat, or `given` does not fit the number of axes.

    Examples
    --------
    >>> name_dims("cifar10.hdf5", "features", ("batch", "", "height"))
    (('batch', 'features_axis_1', 'height'), (1,))
    """
    names = list(found)
    if given is not None:
        if isinstance(given, str) or len(given) != len(found):
            of = "" if where == TO_WRITE else f" of file {where!r}"
            raise DimsError(
                f"dims={{{source!r}: {given!r}}} does not fit source {source!r}{of}, "
                f"which has {len(found)} axes; pass one name per axis"
            )
        for axis, name in enumerate(given):
            if not isinstance(name, str | None):
                raise DimsError(
                    f"dims={{{source!r}: ...}}: {name!r} is not a name; give a str or None"
                )
            names[axis] = names[axis] if name is None else name
    dims = list(names)
    unnamed: list[int] = []
    for axis, name in enumerate(names):
        if not name:
            dims[axis] = default_name(source, axis)
            unnamed.append(axis)
    for axis, name in enumerate(dims):
        first = dims.index(name)
        if first < axis:
            proposed = (*dims[:axis], default_name(source, axis), *dims[axis + 1 :])
            twice = f"has the dim {name!r} twice, as axis {first} and axis {axis}"
            remedy = f"dims={{{source!r}: {proposed}}}"
            if where == TO_WRITE:
                raise DimsError(f"source {source!r} {twice}; rename one, with {remedy}")
            raise DimsError(
                f"source {source!r} in {where!r} {twice}; its labels are {tuple(names)}. Set "
                f"f[{source!r}].dims[{axis}].label in the file, or pass {remedy} when opening it"
            )
    return tuple(dims), tuple(unnamed)


class ExampleAxes(NamedTuple):
    """The axes of the examples of a source with the scale `shapes` (Fuel's ragged layout)."""

    shapes: Scale
    names: tuple[str, ...]
    """One an axis; all ``""`` where the file does not name them."""
    fault: str | None = None
    """Why the file does not name them."""


def example_axes_of(dataset: h5py.Dataset, name: str, axes: Sequence[Axis]) -> ExampleAxes | None:
    """Return what the scales `shapes` and `shape_labels` of axis 0 say; None without `shapes`.

    A table of shapes without two axes is refused when it is read: the number of names is unknown.

    Raises
    ------
    FileFormatError
        If examples have more axes than arrays can have.
    """
    scales = {scale.name: scale for scale in reversed(axes[0].scales)}
    if SHAPES not in scales:
        return None
    shapes, labels = scales[SHAPES], scales.get(SHAPE_LABELS)
    lengths: Sequence[int] = shapes.dataset.shape or ()
    if len(lengths) != 2:
        return ExampleAxes(shapes, ())
    n_axes = lengths[1]
    if n_axes > MAX_EXAMPLE_AXES:
        raise FileFormatError(
            f"ragged source {name!r} of file {dataset.file.filename!r} claims {n_axes} axes an "
            f"example (scale {SHAPES!r})"
        )
    fault, found = f"no scale {SHAPE_LABELS!r} is attached to its axis 0", None
    if labels is not None:
        found = texts_of(labels.dataset, labels.path or SHAPE_LABELS, MAX_EXAMPLE_AXES)
        if len(found) == n_axes:
            return ExampleAxes(shapes, found)
        fault = f"its scale {SHAPE_LABELS!r} names {len(found)} axes"
    return ExampleAxes(shapes, ("",) * n_axes, fault)


def texts_of(dataset: h5py.Dataset, path: str, most: int) -> tuple[str, ...]:
    """Return what a dataset of a few texts holds; nothing where it is something else."""
    shape, why_not = dataset.shape, why_not_a_source(dataset)
    texts = why_not is None and dataset.dtype.kind in "SO"
    if not texts or len(shape) != 1 or shape[0] > most:
        return ()
    check_dataset(dataset, path)
    values = dataset[()].tolist()
    return tuple(to_text(v) if isinstance(v, bytes) else str(v) for v in values)


def how_to_name_examples(where: str, source: str, axes: ExampleAxes) -> str:
    """Return the message that refuses examples whose axes have no names, with the remedies."""
    n_axes = len(axes.names)
    names = ("batch", *(default_name(source, axis) for axis in range(1, n_axes + 1)))
    return (
        f"source {source!r} of file {where!r} holds examples with {n_axes} axes each (scale "
        f"{SHAPES!r}) that have no names: {axes.fault}. Attach one with {n_axes} names to "
        f"f[{source!r}].dims[0], or pass dims={{{source!r}: {names}}} with names of your own when "
        f"opening it; labeled repack FILE NEW --dims {source}={','.join(names)} writes them into "
        f"a new file. To open the other sources only, pass sources=[...]"
    )


# attributes


INTERNAL = frozenset(
    {
        "CLASS",
        "NAME",
        "DIMENSION_LIST",
        "DIMENSION_LABELS",
        "REFERENCE_LIST",
        "_NCProperties",
        "_Netcdf4Coordinates",
        "_Netcdf4Dimid",
        "_nc3_strict",
        "labeled_incomplete",
    }
)


def attrs_of(
    thing: h5py.Group | h5py.Dataset,
    what: str,
    faults: list[str],
    *,
    leave_out: Collection[str] = (),
    scalars: bool = False,
) -> dict[str, Any]:
    """Return the attributes of an object, in the order that they were made where it is known.

    Parameters
    ----------
    what : str
        The object, for messages.
    faults : list of str
        Receives what cannot be read.
    leave_out : names
        Further attributes to leave out, such as the split table.
    scalars : bool
        Turn arrays of one value into that value, as netCDF means them.

    References, and compounds that hold them, mean nothing outside an open file; they
    are left out like HDF5's own.
    """
    values: dict[str, Any] = {}
    unreadable: list[str] = []
    attributes = thing.attrs if h5py.h5a.get_num_attrs(thing.id) else {}
    for name in attributes:
        text = to_text(name)
        if text in INTERNAL or text in leave_out:
            continue
        try:
            value = _numbers(thing, to_bytes(text))
            if value is None:
                value = attributes[name]
                dtype = getattr(value, "dtype", None)
                if isinstance(value, h5py.Reference | h5py.RegionReference):
                    continue
                if isinstance(dtype, np.dtype) and refers(dtype):
                    continue
        except Exception:  # any exception may come of a foreign or damaged type
            unreadable.append(text)
            continue
        fill = text in FILLS and isinstance(value, bytes)  # one of the values, so no text either
        values[text] = value if fill else plain_value(value, scalars=scalars)
    if unreadable:
        faults.append(f"attributes of {what} cannot be read: {', '.join(map(repr, unreadable))}")
    return values


def _numbers(thing: h5py.Group | h5py.Dataset, name: bytes) -> Any:
    """Return an attribute of integers or floats as NumPy has them; None for any other."""
    kept = h5py.h5a.open(thing.id, name)
    kind = kept.get_type()
    if not isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID):
        return None
    shape, dtype = kept.shape, kind.dtype
    if shape is None:
        return None
    values = np.empty(shape, dtype)
    kept.read(values, mtype=numpy_type(dtype))
    return values[()]


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
    if isinstance(value, bytes):
        return to_text(bytes(value))
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list):  # rows of a variable-length attribute are arrays
        return [e.tolist() if isinstance(e, np.ndarray) else plain_value(e) for e in value]
    if not isinstance(value, np.ndarray):
        return value
    if scalars and value.shape == (1,):
        return plain_value(value[0])
    return plain_value(value.tolist()) if value.dtype.kind in "SO" else np.array(value)
