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
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
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
    Block,
    SourceToWrite,
    check_integers,
    slices,
    times,
    without_mask,
)

BLOCK_BYTES = 4 << 20
"""Values of examples read at a time, where rows of variable length are written."""


_ARRAYS = (np.ndarray, xr.DataArray, xr.Variable, list, tuple)


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Examples of different shapes, wherever they are."""

    dtype: np.dtype[Any]
    shapes: Rows
    """int64 (n, axes of an example)."""
    dims: tuple[str, ...]
    """The example dim, then one an axis; ``""`` for an axis without a name."""
    attrs: Mapping[str, Any]
    values: Callable[[int, int], Array]
    """Returns the elements of examples start to stop, end to end."""
    are_times: bool = False
    """Whether values are times, given as the nanoseconds that are stored."""


def _listed_examples(
    arrays: Sequence[Array], dims: tuple[str, ...], attrs: Mapping[str, Any]
) -> Examples:
    kinds = {array.dtype for array in arrays}
    dtype = np.result_type(*kinds) if kinds else np.dtype(np.float64)
    n, n_axes = len(arrays), len(dims) - 1
    lengths = chain.from_iterable(array.shape for array in arrays)
    shapes = np.fromiter(lengths, np.int64, n * n_axes).reshape(n, n_axes)

    def values(start: int, stop: int) -> Array:
        pieces = [array.reshape(-1) for array in arrays[start:stop]]
        return np.concatenate(pieces).astype(dtype, copy=False)

    return Examples(dtype, shapes, dims, attrs, values)


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
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return False
    if not _holds_arrays(value):
        return False
    try:
        first = np.shape(_taken(value[0]))
        return any(np.shape(_taken(one)) != first for one in value)
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
    found = _examples_of(name, value)
    kind = found.dtype.kind
    if kind not in "mM":
        return found

    def values(start: int, stop: int) -> Array:
        return times(found.values(start, stop), kind, f"source {name!r}")

    attrs = {**found.attrs, **time_attrs(kind)}
    return Examples(np.dtype(np.int64), found.shapes, found.dims, attrs, values, are_times=True)


def _examples_of(name: str, value: Any) -> Examples:
    if isinstance(value, Ragged):

        def lazy(start: int, stop: int) -> Array:
            some: Ragged = value[start:stop]
            return some.flat(threads=1).values

        return Examples(value.dtype, value.shapes, value.dims, value.attrs, lazy)
    outer, attrs = "", {}
    if isinstance(value, xr.DataArray):
        outer, attrs, value = str(value.dims[0]), dict(value.attrs), value.values
    arrays = [_example(name, row, one) for row, one in enumerate(value)]
    n_axes = arrays[0].ndim if arrays else 1
    kinds = {array.dtype.kind for array in arrays}
    if kinds & {"m", "M"} and len(kinds) > 1:
        raise ArrayError(
            f"source {name!r} has examples of {sorted({str(array.dtype) for array in arrays})}; "
            f"give all of them times of one kind, or numbers"
        )
    check_integers(f"source {name!r}", {array.dtype for array in arrays})
    for row, array in enumerate(arrays):
        if array.ndim != n_axes:
            raise ArrayError(
                f"source {name!r}, row {row}: an example of {array.ndim} axes among others of "
                f"{n_axes}; examples may differ in lengths only"
            )
    return _listed_examples(arrays, (outer, *_inner_dims(name, value, n_axes)), attrs)


def _example(name: str, row: int, one: Any) -> Array:
    if isinstance(one, np.ma.MaskedArray):
        one = without_mask(f"source {name!r}, row {row}", one)
    try:
        array = np.asarray(_taken(one))
    except ValueError as error:
        raise ArrayError(f"source {name!r}, row {row}: no array ({error}); correct it") from None
    if array.dtype.kind not in "biufcmM":
        raise ArrayError(
            f"source {name!r}, row {row}: an example of {array.dtype}; examples of different "
            f"shapes must be arrays of numbers or times"
        )
    if array.ndim == 0:
        raise ArrayError(
            f"source {name!r}, row {row}: a single number; give it an axis: [{array.item()!r}]"
        )
    return array


def _inner_dims(name: str, value: Any, n_axes: int) -> tuple[str, ...]:
    found = [tuple(map(str, one.dims)) for one in value if hasattr(one, "dims")]
    for dims in found:
        if dims != found[0]:
            raise DimsError(
                f"source {name!r} has examples with dims {found[0]} and with {dims}; transpose "
                f"them alike"
            )
    return found[0] if found else ("",) * n_axes


@dataclass(frozen=True, slots=True, eq=False)
class RaggedToWrite:
    """A ragged source, and the datasets that it becomes.

    Parameters
    ----------
    name : str
    dims : tuple of str
        The example dim, then one an axis of examples.
    n_rows : int or None
        Of examples; None where they come in batches.
    kind : {"flat", "fuel"}
    examples : Examples, optional
        None where they come in batches.
    shapes : list of array
        Of the examples, as they come, where Fuel's scale is to be made of them.
    """

    name: str
    dims: tuple[str, ...]
    n_rows: int | None
    kind: RaggedAs
    examples: Examples | None = None
    shapes: list[Rows] = field(default_factory=list)
    units: Any = None
    are_times: bool = False

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the datasets besides the one of values."""
        return member_names(self.name, len(self.dims) - 1) if self.kind == "flat" else ()

    def counted(self, lengths: Mapping[str, int]) -> int:
        """Return the number of examples, given the lengths of all datasets."""
        return lengths[self.members[0]] - 1 if self.members else lengths[self.name]

    def batch(self, more: RaggedToWrite, done: Mapping[str, int]) -> dict[str, SourceToWrite]:
        """Return the datasets of one more batch of examples.

        `done` are the rows that each dataset has from earlier batches.
        """
        examples = more.examples
        assert examples is not None
        units_differ = examples.attrs.get("units") != self.units
        if units_differ if examples.are_times else self.are_times:
            raise ArrayError(
                f"source {self.name!r} has examples in units {examples.attrs.get('units')!r} in a "
                f"later batch, and {self.units!r} in the first; give times, or numbers, in all"
            )
        if examples.shapes.shape[1] != len(self.dims) - 1:
            raise ArrayError(
                f"source {self.name!r} has examples of {examples.shapes.shape[1]} axes in a later "
                f"batch, and of {len(self.dims) - 1} in the first"
            )
        if self.kind == "fuel":
            self.shapes.append(examples.shapes)
            return {self.name: _variable_rows(self.name, examples, self.dims)}
        n_offsets = done[self.members[0]]
        return _flat(
            self.name,
            examples,
            self.dims,
            done[self.name],
            n_before=max(n_offsets - 1, 0),
            first=n_offsets == 0,
        )


def ragged_to_write(
    name: str, examples: Examples, dims: Sequence[str | None] | None, kind: RaggedAs
) -> tuple[RaggedToWrite, dict[str, SourceToWrite]]:
    """Return a ragged source, and its datasets as they will be written."""
    names, _ = name_dims(TO_WRITE, name, examples.dims, dims)
    units = examples.attrs.get("units")
    given = RaggedToWrite(
        name,
        names,
        len(examples.shapes),
        kind,
        examples,
        units=units,
        are_times=examples.are_times,
    )
    if kind == "fuel" and examples.are_times:
        raise ArrayError(
            f"source {name!r} has examples of times, and Fuel's rows of variable length hold "
            f"numbers; store them flat, with ragged='flat'"
        )
    if kind == "flat":
        return given, _flat(name, examples, names)
    given.shapes.append(examples.shapes)
    return given, {name: _variable_rows(name, examples, names)}


def _flat(
    name: str,
    examples: Examples,
    dims: tuple[str, ...],
    base: int = 0,
    *,
    n_before: int = 0,
    first: bool = True,
) -> dict[str, SourceToWrite]:
    """Return values, offsets and, for several axes, shapes.

    `n_before` examples with `base` values come before these; only the `first` offsets begin
    with where example 0 does.
    """
    sizes = elements_of(examples.shapes)
    attrs = storable(f"source {name!r}", examples.attrs)
    values = SourceToWrite(
        name,
        examples.dtype,
        (int(sizes.sum()),),
        Names((f"{name}_value",)),
        {**attrs, **ragged_attrs(name, dims)},
        partial(_value_blocks, examples, n_before),
        least_bytes=_largest(examples),
        example_dims=dims,
    )
    out = {name: values}
    n = len(sizes)
    reads: list[Any] = [partial(_offset_blocks, examples, base, 1 - first)]
    reads.append(partial(slices, partial(_sliced, examples.shapes), n))
    shapes = (n + first,), examples.shapes.shape
    labels = ((f"{name}_offset",), (dims[0], f"{name}_axis"))
    members = member_names(name, len(dims) - 1)
    for member, shape, axes, blocks in zip(members, shapes, labels, reads, strict=False):
        out[member] = SourceToWrite(member, np.dtype(np.int64), shape, Names(axes), {}, blocks)
    return out


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
        least_bytes=_largest(examples),
        mean_bytes=16 + n_bytes // max(n_rows, 1),
        example_dims=dims,
    )


def _largest(examples: Examples) -> int:
    return int(elements_of(examples.shapes).max(initial=0)) * examples.dtype.itemsize


def _value_blocks(examples: Examples, n_before: int, rows: int) -> Iterator[Block]:
    """Cut values where examples end; one long example may exceed `rows` values."""
    shapes, sizes = examples.shapes, elements_of(examples.shapes)
    edges = offsets_of(sizes)
    for a, b in pairwise(block_cuts(sizes, rows)):
        read = partial(examples.values, a, b)
        yield Block(int(edges[a]), int(edges[b]), read, None, shapes[a:b], n_before + a)


def _offset_blocks(examples: Examples, base: int, first: int, rows: int) -> Iterator[Block]:
    offsets = (offsets_of(elements_of(examples.shapes)) + base)[first:]
    return slices(partial(_sliced, offsets), len(offsets), rows)


def _row_blocks(examples: Examples, rows: int) -> Iterator[Block]:
    sizes = elements_of(examples.shapes) * examples.dtype.itemsize
    for a, b in pairwise(block_cuts(sizes, BLOCK_BYTES)):
        for start in range(a, b, rows):
            stop = min(start + rows, b)
            read = partial(_rows, examples, start, stop)
            yield Block(start, stop, read, None, examples.shapes[start:stop])


def _rows(examples: Examples, start: int, stop: int) -> Array:
    offsets = offsets_of(elements_of(examples.shapes[start:stop]))
    return rows_of_values(examples.values(start, stop), offsets)


def rows_of_values(values: Array, offsets: Rows) -> Array:
    """Return values that lie end to end as an array of the arrays they make."""
    out = np.empty(len(offsets) - 1, object)
    for row, (a, b) in enumerate(pairwise(offsets.tolist())):
        out[row] = values[a:b]
    return out


def _sliced(array: Array, start: int, stop: int) -> Array:
    return array[start:stop]
