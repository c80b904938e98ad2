"""Batches taken apart into samples, and samples stacked into batches; names go along.

A sample of a labelled batch is a mapping from source to DataArray, without the example
dim. Arrays nested in tuples (what specs make) are taken apart along the axis of each that
counts examples, and stacked along the same. How many bytes rows take is known from their
:class:`RowSpec` before there are any.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import check_fields
from labeled.dims import EXAMPLE_DIMS
from labeled.errors import PipelineError, PipelineTypeError, UnknownNameError, did_you_mean
from labeled.spaces.arrays import is_sparse, vstack

Array = npt.NDArray[Any]
Dims = tuple[str, ...]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class RowSpec:
    """Dims, dtype and shape of the rows of a source.

    Parameters
    ----------
    dims : tuple of str
        Without the one that counts examples.
    shapes : tuple of shapes
        The one shape that all rows have; of rows that differ, those that whatever is made of
        them is largest for: see :func:`extreme_shapes`.
    dtype : dtype
    """

    dims: tuple[str, ...]
    shapes: tuple[Shape, ...]
    dtype: np.dtype[Any]

    @property
    def row_bytes(self) -> int:
        """Bytes of the largest row."""
        return max(map(math.prod, self.shapes), default=0) * self.dtype.itemsize


def extreme_shapes(shapes: npt.NDArray[np.int64]) -> tuple[Shape, ...]:
    """Choose the shapes that results are largest for, however lengths are changed.

    Those are the longest and the shortest along each axis, the most and the least stretched, and
    the one with most values.

    Parameters
    ----------
    shapes : int64 array (n, axis)

    Examples
    --------
    >>> extreme_shapes(np.array([[4, 4], [2, 9], [3, 3], [9, 2]]))
    ((2, 9), (9, 2))
    """
    if not len(shapes):
        return ()
    stretched = [one / np.maximum(other, 1) for one, other in combinations(shapes.T, 2)]
    places = {int(shapes.prod(axis=1).argmax())}
    for column in (*shapes.T, *stretched):
        places |= {int(column.argmax()), int(column.argmin())}
    return tuple(sorted({tuple(shapes[at].tolist()) for at in places}))


def data_array(array: Array, dims: Dims, name: str | None) -> xr.DataArray:
    """Wrap an array whose dims are known to fit; ten times faster than checking again."""
    try:
        variable = xr.Variable(dims, array, fastpath=True)
        return xr.DataArray(variable, coords={}, name=name, indexes={}, fastpath=True)
    except TypeError:  # the shortcut is not part of xarray's promise
        return xr.DataArray(array, dims=dims, name=name)


class Sample(Mapping[str, xr.DataArray]):
    """One example: source -> DataArray, with the row it is.

    Parameters
    ----------
    arrays : mapping of str to array
    dims : mapping of str to tuple of str
        Without the example dim.
    row : int
        Position in the dataset that ``batches`` was called on; -1 where it pads a batch.
    """

    __slots__ = ("arrays", "dims", "row")

    def __init__(
        self, arrays: Mapping[str, Array], dims: Mapping[str, Dims], row: int = -1
    ) -> None:
        self.arrays = arrays
        self.dims = dims
        self.row = row

    def __getitem__(self, name: str) -> xr.DataArray:
        try:
            array = self.arrays[name]
        except KeyError:
            hint = did_you_mean(str(name), self.arrays)
            raise UnknownNameError(f"no source {name!r} in this sample; {hint}") from None
        return data_array(array, self.dims[name], name)

    def __contains__(self, name: object) -> bool:
        return name in self.arrays  # a mapping's own would make the array

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrays)

    def __len__(self) -> int:
        return len(self.arrays)

    def __repr__(self) -> str:
        lines = [f"<labeled.Sample, row {self.row}>"]
        for name, array in self.arrays.items():
            sizes = ", ".join(map("{}: {}".format, self.dims[name], array.shape))
            value = "" if array.ndim else f"  {array}"
            lines.append(f"  {name}  ({sizes})  {array.dtype}{value}")
        return "\n".join(lines)


def labelled_samples(
    batch: Any, rows: Sequence[int], inner: Mapping[str, Dims], stacked: Stack
) -> list[Sample]:
    """Take a batch of labelled arrays apart, without a copy.

    Parameters
    ----------
    batch : mapping of str to DataArray
        The dim of each that counts the examples is known by its name, or comes first.
    rows : sequence of int
        The row of each example.
    inner : mapping of str to tuple of str
        Dims of the examples of a source that holds them as objects.
    stacked : Stack
        Knows the dims that count examples.

    Raises
    ------
    PipelineError
        If something else is given, or something in the batch has no example for every row.
    """
    if not isinstance(batch, Mapping):
        wrong = f"a whole-batch transform made {type(batch).__name__}, which cannot be taken apart"
        remedy = "let it return a mapping of labelled arrays, or give it as batch="
        raise PipelineError(f"{wrong} into samples; {remedy}")
    arrays, dims, ragged = dict[str, Array](), dict[str, Dims](), set[str]()
    for name, value in batch.items():
        if isinstance(value, xr.DataArray) and stacked.dim_of(name) in value.dims[1:]:
            value = value.transpose(stacked.dim_of(name), ...)
        if not isinstance(value, xr.DataArray) or not value.ndim or len(value) != len(rows):
            shape = getattr(value, "shape", "no shape")
            wrong = f"{name!r} of a batch of {len(rows)} rows cannot be taken apart into samples"
            found = f"it is of type {type(value).__name__} with {shape}; a whole-batch transform"
            wanted = "labelled arrays whose first dim counts the examples"
            raise PipelineError(f"{wrong}: {found} before per-sample ones must keep {wanted}")
        arrays[name], dims[name] = value.data, tuple(map(str, value.dims[1:]))
        if value.dtype == object and name in inner and value.ndim == 1:
            dims[name] = value.encoding.get(EXAMPLE_DIMS, inner[name])
            ragged.add(name)
    samples = list[Sample]()
    for i, row in enumerate(rows):  # their dtype stays, also that of texts
        own = {name: np.asarray(a[i if name in ragged else (i, ...)]) for name, a in arrays.items()}
        samples.append(Sample(own, dims, row))
    return samples


def some_of(batch: Any, axes: Any, places: int | npt.NDArray[np.int64]) -> Any:
    """Return some examples of a batch, or of arrays nested in tuples.

    Parameters
    ----------
    axes : nested tuple of int, optional
        Of arrays: the axis that counts examples.
    places : int or array of int
        Which examples: of several, copies; of one, without that axis, arrays are views.
    """
    if isinstance(axes, tuple):
        return tuple(some_of(part, axis, places) for part, axis in zip(batch, axes, strict=True))
    if isinstance(axes, int):
        whole = (slice(None),) * axes
        one = isinstance(places, int) or is_sparse(batch)
        return batch[(*whole, places)] if one else np.take(batch, places, axis=axes)
    if batch is None:  # made for a space that holds nothing
        return None
    some = batch.part(places)
    for name, one in some.arrays.items():  # whose objects are the batch's own
        some.arrays[name] = deepcopy(one) if one.dtype == object else one
    return some


@dataclass(frozen=True)
class Stack:
    """The ordinary collate: samples alike in structure, stacked part by part.

    Mappings, tuples and lists are stacked within; labelled arrays keep their dims after a
    new first one; arrays and numbers become arrays, tensors tensors, anything else a list.

    Parameters
    ----------
    dim : str
        Name of the new dim of labelled arrays.
    dims : mapping of str to str
        The same by the name of a source.
    axes : nested tuple of int, optional
        The axis that counts samples in each array of a nested tuple, where it is not the first.
    own : mapping of str to callable, optional
        What makes a batch of some parts of samples, instead.

    Raises
    ------
    PipelineError
        If samples differ in structure, dims or shape; names the part.

    Examples
    --------
    >>> samples = [{"x": xr.DataArray([i, i + 1], dims="feature"), "y": i} for i in range(3)]
    >>> batch = stack(samples)
    >>> batch["x"].dims, batch["x"].shape, batch["y"]
    (('batch', 'feature'), (3, 2), array([0, 1, 2]))
    >>> Stack(own={"x": list})([{"x": 1, "y": 2}, {"x": 3, "y": 4}])
    {'x': [1, 3], 'y': array([2, 4])}
    """

    dim: str = "batch"
    dims: Mapping[str, str] = field(default_factory=dict)
    axes: Any = None
    own: Mapping[str, Callable[..., Any]] | None = None

    def __post_init__(self) -> None:
        check_fields(self, PipelineError)

    def __call__(self, data: Sequence[Any]) -> Any:
        if not len(data):
            raise PipelineError("there are no samples to stack")
        if not self.own:
            return self._stacked(list(data), self.dim, "", self.axes)
        check_alike(data)
        for name in self.own:
            part_of(data[0], name)
        made = {}
        for name in data[0]:
            make = self.own.get(name, stack)
            make = Stack(self.dim_of(name)) if make is stack else make
            made[name] = make([sample[name] for sample in data])
        return made

    def dim_of(self, name: str) -> str:
        """Return the dim that counts the examples of a source."""
        return self.dims.get(name, self.dim)

    def _stacked(self, parts: list[Any], dim: str, where: str, axes: Any = None) -> Any:
        first = parts[0]
        check_alike(parts, where)
        if isinstance(first, Sample):
            return {name: self._of_source(parts, name) for name in first.arrays}
        if isinstance(first, Mapping):
            batch = {}
            for name in first:
                own, column = self.dims.get(name, dim), [part[name] for part in parts]
                batch[name] = self._stacked(column, own, f"{where}[{name!r}]")
            return batch
        if isinstance(first, xr.DataArray):
            return _stacked_labelled(parts, dim, where)
        if isinstance(first, tuple | list):
            own_axes = isinstance(axes, tuple) and len(axes) == len(first)
            inner = axes if own_axes else [None] * len(first)
            made = [
                self._stacked(list(alike), dim, f"{where}[{i}]", inner[i])
                for i, alike in enumerate(zip(*parts, strict=True))
            ]
            return type(first)(*made) if hasattr(first, "_fields") else type(first)(made)
        torch = sys.modules.get("torch")  # not imported for this
        if torch is not None and isinstance(first, torch.Tensor):
            return torch.stack(parts)
        if is_sparse(first) and isinstance(axes, int):  # a row of what specs have laid out
            return vstack(parts)
        if isinstance(first, np.ndarray | np.generic | bool | int | float | complex):
            axis = axes if isinstance(axes, int) and axes <= np.ndim(first) else 0
            return _np_stack([np.asarray(part) for part in parts], where, axis)
        return None if first is None and self.axes is not None else parts

    def _of_source(self, samples: list[Sample], name: str) -> xr.DataArray:
        array = _np_stack([sample.arrays[name] for sample in samples], repr(name))
        return data_array(array, (self.dim_of(name), *samples[0].dims[name]), name)


stack: Callable[[Sequence[Any]], Any] = Stack()
"""Stack samples part by part; see :class:`Stack`."""


def part_of(data: Any, part: str) -> Any:
    """Return a part of a sample or batch; raise a `PipelineError` where there is none."""
    if not isinstance(data, Mapping):
        raise PipelineTypeError(f"a transform for {part!r} needs a mapping, found {data!r:.40}")
    if part not in data:
        hint = did_you_mean(str(part), map(str, data))
        raise PipelineError(f"a transform is for {part!r}, which is not a source; {hint}")
    return data[part]


def check_alike(parts: Sequence[Any], where: str = "") -> None:
    """Raise :class:`PipelineError` where samples differ in type, names, length or dims."""
    first = _structure(parts[0])
    for number, part in enumerate(parts):
        if _structure(part) != first:
            found, expected = (
                f"{kind.__name__} of {sorted(map(str, inner)) if isinstance(inner, set) else inner}"
                for kind, inner in (_structure(part), first)
            )
            wrong = f"samples differ{' at ' + where if where else ''}: sample {number} of the batch"
            remedy = "make all alike, or give a collate= of your own"
            raise PipelineError(f"{wrong} is {found}, the first one {expected}; {remedy}")


def _structure(part: Any) -> tuple[type, Any]:
    """Return what has to be the same in all samples: type, and names, length or dims."""
    if isinstance(part, Mapping):
        return type(part), set(part)
    if isinstance(part, tuple | list):
        return type(part), len(part)
    return type(part), part.dims if isinstance(part, xr.DataArray) else 1


def _stacked_labelled(parts: list[xr.DataArray], dim: str, where: str) -> xr.DataArray:
    """Stack labelled arrays; coordinates that differ get the new dim, those of an index may not."""
    first = parts[0]
    if dim in first.dims:
        raise PipelineError(f"samples{where} have a dim {dim!r} already, which a batch adds")
    if not len(first.coords):
        array = _np_stack([part.data for part in parts], where)
        name = None if first.name is None else str(first.name)
        made = data_array(array, (dim, *map(str, first.dims)), name)
        made.attrs = dict(first.attrs)
        return made
    try:
        return xr.concat(parts, dim, coords="different", compat="equals", join="exact")
    except ValueError as error:
        wrong = f"the coordinates of samples{where} do not agree: {error}"
        raise PipelineError(f"{wrong}; drop_vars() them first") from None


def _np_stack(arrays: list[Array], where: str, axis: int = 0) -> Array:
    try:
        return np.stack(arrays, axis)
    except ValueError:
        shapes = sorted({array.shape for array in arrays})
        wrong = f"samples{' ' if where else ''}{where} have different shapes, {shapes[0]} and"
        remedy = "pad or crop them first, or give your own collate="
        raise PipelineError(f"{wrong} {shapes[1]}, and make no array; {remedy}") from None
