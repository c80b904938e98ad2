"""Examples of different shapes: the datasets they become in a file, and their blocks.

A ragged source is stored as several datasets, each written like any other source: flat
values with offsets and shapes (:mod:`labeled.formats.hdf5.metadata`), or, as Fuel has
them, rows of variable length with two scales. This module says which datasets these are,
and cuts them into blocks at the borders of examples; it opens no file.

The flat layout is the default: it reads many times faster, is compressed, has checksums and
statistics, and netCDF libraries open it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr

from labeled.device import adopted, has_dlpack
from labeled.errors import ArrayError, DimsError
from labeled.formats.cf import time_attrs
from labeled.formats.hdf5.labels import TO_WRITE, name_dims
from labeled.formats.hdf5.metadata import member_names, ragged_attrs
from labeled.formats.hdf5.writing import Names, storable, vlen_dtype
from labeled.formats.region import Array
from labeled.ragged import Ragged
from labeled.ragged.flat import Rows, block_cuts, elements_of, offsets_of
from labeled.writing.layouts import RaggedAs
from labeled.writing.source import (
    BLOCK_BYTES,
    Block,
    SourceToWrite,
    check_integers,
    slices,
    times,
    without_mask,
)

_ARRAYS = (np.ndarray, xr.DataArray, xr.Variable, list, tuple)


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Examples of different shapes, wherever they are.

    Parameters
    ----------
    shapes : int64 (n, axes of an example)
    dims : tuple of str
        The example dim, then one an axis; ``""`` for an axis without a name.
    values : callable
        Returns the elements of examples start to stop, end to end.
    are_times : bool
        Whether values are times, given as the nanoseconds that are stored.
    """

    dtype: np.dtype[Any]
    shapes: Rows
    dims: tuple[str, ...]
    attrs: Mapping[str, Any]
    values: Callable[[int, int], Array]
    are_times: bool = False

    @property
    def largest_bytes(self) -> int:
        return int(elements_of(self.shapes).max(initial=0)) * self.dtype.itemsize


def is_ragged(value: Any) -> bool:
    """Whether a value is examples of different shapes: a Ragged, or a list of arrays.

    Examples
    --------
    >>> is_ragged([[1, 2], [3]]), is_ragged([[1, 2], [3, 4]]), is_ragged(["a", "bc"])
    (True, False, False)
    """
    if isinstance(value, Ragged):
        return True
    if isinstance(value, np.ndarray | xr.DataArray):
        if value.dtype != object or value.ndim != 1:
            return False
        if isinstance(value, xr.DataArray):
            if value.chunks is not None and not _holds_arrays(value[:1].values):
                return False  # texts; computing them to find out would cost too much
            value = value.values
        return _holds_arrays(value)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return False
    try:
        return _holds_arrays(value) and len({np.shape(_taken(one)) for one in value}) > 1
    except ValueError:  # an example that is not an array itself: named when it is written
        return True


def _taken(one: Any) -> Any:
    """Return an example; of another library by its memory."""
    return adopted(one) if has_dlpack(one) else one


def _holds_arrays(values: Any) -> bool:
    return len(values) > 0 and all(isinstance(one, _ARRAYS) or has_dlpack(one) for one in values)


def examples_of(name: str, value: Any) -> Examples:
    """Return the examples of a ragged source, checked; times as they are stored.

    Raises
    ------
    ArrayError
        If an example is not an array of numbers, or has another number of axes; names the row.
    DimsError
        If labelled examples have different dims.
    """
    where = f"source {name!r}"
    if isinstance(value, Ragged):
        ragged: Ragged = value

        def lazy(start: int, stop: int) -> Array:
            some: Ragged = ragged[start:stop]
            return some.flat(threads=1).values

        found = Examples(value.dtype, value.shapes, value.dims, value.attrs, lazy)
    else:
        found = _listed(where, value)
    kind = found.dtype.kind
    if kind not in "mM":
        return found

    def encoded(start: int, stop: int) -> Array:
        return times(found.values(start, stop), kind, where)

    attrs = {**found.attrs, **time_attrs(kind)}
    return Examples(np.dtype(np.int64), found.shapes, found.dims, attrs, encoded, are_times=True)


def _listed(where: str, value: Any) -> Examples:
    """Return the examples of a list or an object array."""
    outer, attrs = "", {}
    if isinstance(value, xr.DataArray):
        outer, attrs, value = str(value.dims[0]), dict(value.attrs), value.values
    arrays = [_example(f"{where}, row {row}", one) for row, one in enumerate(value)]
    dtypes = {array.dtype for array in arrays}
    kinds = {dtype.kind for dtype in dtypes}
    if kinds & {"m", "M"} and len(kinds) > 1:
        raise ArrayError(
            f"{where} has examples of {sorted(map(str, dtypes))}; give all of them times of one "
            f"kind, or numbers"
        )
    check_integers(where, dtypes)
    n_axes = arrays[0].ndim if arrays else 1
    for row, array in enumerate(arrays):
        if array.ndim != n_axes:
            raise ArrayError(
                f"{where}, row {row}: an example of {array.ndim} axes among others of {n_axes}; "
                f"examples may differ in lengths only"
            )
    labelled = {tuple(map(str, one.dims)) for one in value if hasattr(one, "dims")}
    if len(labelled) > 1:
        raise DimsError(
            f"{where} has examples with dims {' and with '.join(map(str, sorted(labelled)))}; "
            f"transpose them alike"
        )
    inner = labelled.pop() if labelled else ("",) * n_axes
    dtype = np.result_type(*dtypes) if dtypes else np.dtype(np.float64)
    shapes = np.array([array.shape for array in arrays], np.int64).reshape(-1, n_axes)

    def values(start: int, stop: int) -> Array:
        pieces = [array.reshape(-1) for array in arrays[start:stop]]
        return np.concatenate(pieces).astype(dtype, copy=False)

    return Examples(dtype, shapes, (outer, *inner), attrs, values)


def _example(where: str, one: Any) -> Array:
    if isinstance(one, np.ma.MaskedArray):
        one = without_mask(where, one)
    try:
        array = np.asarray(_taken(one))
    except ValueError as error:
        raise ArrayError(f"{where}: no array ({error}); correct it") from None
    if array.dtype.kind not in "biufcmM":
        raise ArrayError(
            f"{where}: an example of {array.dtype}; examples of different shapes must be arrays of "
            f"numbers or times"
        )
    if array.ndim == 0:
        raise ArrayError(f"{where}: a single number; give it an axis: [{array.item()!r}]")
    return array


@dataclass(frozen=True, slots=True, eq=False)
class RaggedToWrite:
    """A ragged source, and the datasets that it becomes.

    Parameters
    ----------
    name : str
    dims : tuple of str
        The example dim, then one an axis of examples.
    kind : {"flat", "fuel"}
    examples : Examples
        Without rows where they come in batches.
    n_rows : int or None
        Of examples; None where they come in batches.
    shapes : list of array
        Of the examples, as they come, where Fuel's scale is to be made of them.
    """

    name: str
    dims: tuple[str, ...]
    kind: RaggedAs
    examples: Examples
    n_rows: int | None
    shapes: list[Rows] = field(default_factory=list)

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the datasets besides the one of values."""
        return member_names(self.name, len(self.dims) - 1) if self.kind == "flat" else ()

    def counted(self, lengths: Mapping[str, int]) -> int:
        """Return the number of examples, given the lengths of all datasets."""
        return lengths[self.members[0]] - 1 if self.members else lengths[self.name]

    def open_ended(self) -> RaggedToWrite:
        """Return the same source before its first batch."""
        none = replace(self.examples, shapes=self.examples.shapes[:0], values=_no_values)
        return replace(self, examples=none, n_rows=None, shapes=[])

    def datasets(
        self, examples: Examples, done: Mapping[str, int] | None = None
    ) -> dict[str, SourceToWrite]:
        """Return the datasets of some examples; `done` are the rows that each has from others."""
        if self.kind == "fuel":
            self.shapes.append(examples.shapes)
            return {self.name: _variable_rows(self.name, examples, self.dims)}
        done = done or {}
        n_offsets = done.get(self.members[0], 0)
        return _flat(self.name, examples, self.dims, done.get(self.name, 0), n_offsets)


def _no_values(start: int, stop: int) -> Array:
    raise AssertionError("there are no examples")


def ragged_to_write(
    name: str, examples: Examples, dims: Sequence[str | None] | None, kind: RaggedAs
) -> tuple[RaggedToWrite, dict[str, SourceToWrite]]:
    """Return a ragged source, and its datasets as they will be written."""
    if kind == "fuel" and examples.are_times:
        raise ArrayError(
            f"source {name!r} has examples of times, and Fuel's rows of variable length hold "
            f"numbers; store them flat, with ragged='flat'"
        )
    names, _ = name_dims(TO_WRITE, name, examples.dims, dims)
    given = RaggedToWrite(name, names, kind, examples, len(examples.shapes))
    return given, given.datasets(examples)


def _flat(
    name: str, examples: Examples, dims: tuple[str, ...], n_values: int, n_offsets: int
) -> dict[str, SourceToWrite]:
    """Return values, offsets and, for several axes, shapes; so many lie before them.

    Only the first offsets begin with where example 0 does.
    """
    edges = offsets_of(elements_of(examples.shapes))
    n_before = max(n_offsets - 1, 0)
    values = SourceToWrite(
        name,
        examples.dtype,
        (int(edges[-1]),),
        Names((f"{name}_value",)),
        {**storable(f"source {name!r}", examples.attrs), **ragged_attrs(name, dims)},
        partial(_value_blocks, examples, edges, n_before),
        least_bytes=examples.largest_bytes,
        example_dims=dims,
    )
    out = {name: values}
    offsets = (edges + n_values)[1 if n_offsets else 0 :]
    parts = ((offsets, (f"{name}_offset",)), (examples.shapes, (dims[0], f"{name}_axis")))
    for member, (array, axes) in zip(member_names(name, len(dims) - 1), parts, strict=False):
        blocks = partial(slices, partial(_sliced, array), len(array))
        out[member] = SourceToWrite(member, array.dtype, array.shape, Names(axes), {}, blocks)
    return out


def _sliced(array: Array, start: int, stop: int) -> Array:
    return array[start:stop]


def _value_blocks(examples: Examples, edges: Rows, n_before: int, rows: int) -> Iterator[Block]:
    """Cut values where examples end; one long example may exceed `rows` values."""
    for a, b in pairwise(block_cuts(np.diff(edges), rows)):
        read = partial(examples.values, a, b)
        yield Block(int(edges[a]), int(edges[b]), read, None, examples.shapes[a:b], n_before + a)


def _variable_rows(name: str, examples: Examples, dims: tuple[str, ...]) -> SourceToWrite:
    """Return examples as rows of variable length."""
    n_rows = len(examples.shapes)
    n_bytes = int(elements_of(examples.shapes).sum()) * examples.dtype.itemsize
    return SourceToWrite(
        name,
        vlen_dtype(examples.dtype),
        (n_rows,),
        Names(dims[:1]),
        storable(f"source {name!r}", examples.attrs),
        partial(_row_blocks, examples),
        least_bytes=examples.largest_bytes,
        mean_bytes=16 + n_bytes // max(n_rows, 1),
        example_dims=dims,
    )


def _row_blocks(examples: Examples, rows: int) -> Iterator[Block]:
    sizes = elements_of(examples.shapes) * examples.dtype.itemsize
    for a, b in pairwise(block_cuts(np.maximum(sizes, -(-BLOCK_BYTES // rows)), BLOCK_BYTES)):
        yield Block(a, b, partial(_rows, examples, a, b), None, examples.shapes[a:b])


def _rows(examples: Examples, start: int, stop: int) -> Array:
    offsets = offsets_of(elements_of(examples.shapes[start:stop]))
    return rows_of_values(examples.values(start, stop), offsets)


def rows_of_values(values: Array, offsets: Rows) -> Array:
    """Return values that lie end to end as an array of the arrays they make."""
    out = np.empty(len(offsets) - 1, object)
    for row, (a, b) in enumerate(pairwise(offsets.tolist())):
        out[row] = values[a:b]
    return out
