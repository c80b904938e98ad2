"""Ragged arrays: examples of different shapes, lazily, as one labelled value.

A :class:`Ragged` is to a source of ragged examples what a lazy DataArray is to a dense
one. It decides how examples are cut out of flat values, padded and handed over. It refuses to know
where values are stored: anything that follows :class:`RaggedReader` will do, and readers of files
stand above this module.

The trade-off: whatever is computed runs over *flat values* (all examples one after
another, each in row-major order), with `offsets` and `shapes` beside them. That is the
layout of fast files, of awkward arrays and of GPU kernels, and one copy away from a list.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from dask.utils import format_bytes

from labeled._validation import check_arguments
from labeled.display.text import Summary, Viewed
from labeled.errors import ArrayError, DimsError
from labeled.ragged.flat import Flat, FlatRows, RaggedReader, block_cuts, copy_segments, elements_of
from labeled.selection import Request, Selection

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]

BLOCK_BYTES = 4 << 20  # what iteration reads at once, unless one example is larger


@dataclass(frozen=True, eq=False, repr=False)
class Ragged(Viewed):
    """A lazy array of examples that differ in shape.

    Made by ``ds["name"]`` for a ragged source, or by :meth:`of` or :meth:`from_flat`. Selecting
    rows reads nothing; the shapes are read when they are first needed, values by :meth:`load`,
    :meth:`flat`, :meth:`pad`, :meth:`to_objects`, iteration or ``r[i]``.

    Parameters
    ----------
    reader : RaggedReader
        Where examples come from.
    selection : Selection
        Which of its rows, and in which order.
    dims : tuple of str
        The example dim, then one name for each axis of an example.
    name : str
    attrs : mapping

    Examples
    --------
    >>> words = Ragged.of([np.array([1, 2, 3]), np.array([7])], dims=("batch", "time"))
    >>> len(words), words.shapes.tolist()
    (2, [[3], [1]])
    >>> words.pad(value=-1).values.tolist()
    [[1, 2, 3], [7, -1, -1]]
    >>> words[[1, 1, 0]].flat().values.tolist()
    [7, 7, 1, 2, 3]
    """

    reader: RaggedReader
    selection: Selection
    dims: tuple[str, ...]
    name: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    @check_arguments()
    def of(
        cls, examples: Sequence[npt.ArrayLike], dims: Sequence[str] | None = None, name: str = ""
    ) -> Ragged:
        """Make a ragged array in memory from arrays with the same number of axes; copies them.

        Raises
        ------
        ArrayError, DimsError
            If the examples differ in their number of axes or kind, or `dims` do not fit.
        """
        return cls._of_flat(Flat.of(examples), dims, name)

    @classmethod
    @check_arguments()
    def from_flat(
        cls,
        values: npt.ArrayLike,
        offsets: npt.ArrayLike,
        shapes: npt.ArrayLike | None = None,
        dims: Sequence[str] | None = None,
        name: str = "",
    ) -> Ragged:
        """Make a ragged array from flat values, without a copy.

        Parameters
        ----------
        values : array (n_values,)
            The elements of all examples, one example after another, each in row-major order.
        offsets : int array (n + 1,)
            Example i is ``values[offsets[i]:offsets[i + 1]]``.
        shapes : int array (n, axes of an example), optional
            The shape of each example; if not given, examples have one axis.

        Raises
        ------
        ArrayError, DimsError
            If the arrays do not belong together, or `dims` do not fit.

        Examples
        --------
        >>> Ragged.from_flat(np.arange(5), [0, 2, 5]).pad().values.tolist()
        [[0, 1, 0], [2, 3, 4]]
        """
        flat = np.asarray(values)
        ends = np.asarray(offsets, np.int64)
        if flat.ndim != 1 or ends.ndim != 1 or not len(ends):
            raise ArrayError(f"values {flat.shape}, offsets {ends.shape} must have one axis each")
        sizes = np.diff(ends)
        if ends[0] != 0 or ends[-1] > len(flat) or (sizes < 0).any():
            raise ArrayError(f"offsets must ascend from 0 to at most {len(flat)}, all values")
        each = sizes[:, np.newaxis] if shapes is None else np.asarray(shapes, np.int64)
        fits = each.ndim == 2 and len(each) == len(sizes) and (each >= 0).all()
        if not fits or not np.array_equal(each.prod(axis=1), sizes):
            raise ArrayError(
                f"shapes {each.shape} must hold one row for each of {len(sizes)} examples, of "
                "lengths whose product is its number of values"
            )
        return cls._of_flat(Flat(flat, ends, each), dims, name)

    @classmethod
    def _of_flat(cls, flat: Flat, dims: Sequence[str] | None, name: str) -> Ragged:
        n_axes = flat.shapes.shape[1]
        own = name or "example"
        named = tuple(dims or ("batch", *(f"{own}_axis_{i + 1}" for i in range(n_axes))))
        if len(named) != n_axes + 1 or len(set(named)) < len(named):
            raise DimsError(
                f"dims={named} do not fit examples of {n_axes} axes: one more, all different"
            )
        return cls(FlatRows(flat), Selection.all(len(flat.shapes)), named, name)

    # what is there

    def __len__(self) -> int:
        return len(self.selection)

    def __bool__(self) -> bool:
        return True  # no examples are still a ragged array

    @property
    def dtype(self) -> np.dtype[Any]:
        """Dtype of the elements."""
        return self.reader.dtype

    @property
    def where(self) -> str:
        """How messages name the source and its file."""
        return self.reader.where

    @cached_property
    def shapes(self) -> Rows:
        """The shape of each example, int64 (n, axes); read once, without values.

        Raises
        ------
        FileFormatError
            If a shape is negative, too large, or not that of the stored values.
        """
        return self.reader.shapes(self.selection.compact)

    @cached_property
    def sizes(self) -> Rows:
        """How many elements each example has, int64 (n,)."""
        if "shapes" in self.__dict__:
            return elements_of(self.shapes)
        return self.reader.sizes(self.selection.compact)

    @property
    def nbytes(self) -> int:
        """Bytes of all values; reads the shapes."""
        return int(self.sizes.sum()) * self.dtype.itemsize

    # which examples

    def __getitem__(self, request: int | Request) -> Any:
        """Return one example as a DataArray (an integer), or some as a lazy Ragged.

        Raises
        ------
        SelectionError, SelectionTypeError
            If a row is out of range, or `request` names no rows.
        """
        if isinstance(request, int | np.integer):  # True and False too, as rows 1 and 0
            (one,) = self.reader.read_flat(self.selection[[int(request)]].rows).examples()
            return self._example(one)
        return replace(self, selection=self.selection[request])

    def __iter__(self) -> Iterator[xr.DataArray]:
        """Go through the examples, read in blocks of about 4 MiB."""
        cuts = block_cuts(self.sizes * max(1, self.dtype.itemsize), BLOCK_BYTES)
        for start, stop in pairwise(cuts):
            yield from map(self._example, self[start:stop].flat().examples())

    def _example(self, values: Array) -> xr.DataArray:
        name, attrs = self.name or None, dict(self.attrs)
        return xr.DataArray(values, dims=self.dims[1:], name=name, attrs=attrs)

    # what is in them

    def load(self) -> Ragged:
        """Read all examples into memory; returns them as another ragged array."""
        reader = FlatRows(self.flat(), self.where)
        return replace(self, reader=reader, selection=Selection.all(reader.n_rows))

    def flat(self, threads: int | None = None) -> Flat:
        """Read all examples as (values, offsets, shapes): fresh arrays, at most one copy.

        Parameters
        ----------
        threads : int, optional
            Threads that decode compressed chunks; by default one per core.
        """
        return self.reader.read_flat(self.selection.compact, threads or os.cpu_count() or 1)

    def to_objects(self) -> Array:
        """Read all examples as an object array (n,) of NumPy arrays that share one buffer."""
        return self.flat().examples()

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Read all examples into a dense array if they have one shape.

        Raises
        ------
        ArrayError
            If shapes differ and `dtype` is not object, or if `copy` is False: reading always
            copies.
        """
        if copy is False:
            raise ArrayError(f"{self.where} is read from its file; leave out copy=False")
        if dtype is not None and np.dtype(dtype) == object:
            return self.to_objects()
        different = np.flatnonzero((self.shapes != self.shapes[:1]).any(axis=1))
        if len(different):
            first, other = (tuple(self.shapes[i].tolist()) for i in (0, different[0]))
            raise ArrayError(
                f"{self.where}: example 0 is {first} and example {different[0]} is {other}, "
                "which no dense array holds; use ragged.pad().values, .flat() or .to_objects()"
            )
        dense: Array = self.pad().values
        return dense if dtype is None else dense.astype(dtype, copy=False)

    @check_arguments(but=("to",))
    def pad(
        self, to: int | Mapping[str, int] | None = None, *, value: Any = 0, mask: bool = False
    ) -> Any:
        """Read all examples into one dense array, each starting at index 0 of every axis.

        Parameters
        ----------
        to : int, mapping of dim to int, optional
            Length of each padded axis; by default that of the longest example. A single integer is
            for examples with one axis.
        value : scalar
            Fills what no example covers; among times, 0 becomes NaT, among texts an empty one.
        mask : bool
            Also return a boolean array with the same dims, True where examples have values.

        Returns
        -------
        xarray.DataArray, dims ``self.dims``; or two of them

        Raises
        ------
        ArrayError
            If an example is longer than `to` (the message names its row), or `value` does not fit
            the dtype.
        DimsError
            If `to` names a dim that examples do not have.
        """
        shapes, dims = self.shapes, self.dims[1:]
        lengths = _wanted_lengths(to, dims, shapes.max(axis=0, initial=0).tolist())
        longer = shapes > np.array(lengths, np.int64)
        if longer.any():
            place, axis = np.argwhere(longer)[0].tolist()
            row = self.selection.take(np.array([place]))[0]
            raise ArrayError(
                f"{self.where}, row {row}: its {dims[axis]!r} has length {shapes[place, axis]}, "
                f"more than to={lengths[axis]}; pad to {int(shapes[:, axis].max())}"
            )
        dense, inside = padded(self.flat(), lengths, value, mask=mask)
        name = self.name or None
        array = xr.DataArray(dense, dims=self.dims, name=name, attrs=dict(self.attrs))
        if not mask:
            return array
        return array, xr.DataArray(inside, dims=self.dims, name=f"{name}_mask" if name else None)

    # looks

    def _summary(self) -> Summary:
        """Describe it; lengths of the inner dims only where the shapes were read already."""
        lengths, size = ["*"] * (len(self.dims) - 1), "not read yet"
        if "shapes" in self.__dict__:
            size = format_bytes(self.nbytes)
            if len(self):
                ends = zip(self.shapes.min(axis=0), self.shapes.max(axis=0), strict=True)
                lengths = [f"{a}" if a == b else f"{a}..{b}" for a, b in ends]
        inner = [f"{dim}: {n}" for dim, n in zip(self.dims[1:], lengths, strict=True)]
        name = f"{self.name!r} " if self.name else ""
        sizes = ", ".join([f"{self.dims[0]}: {len(self):,}", *inner])
        about = f"{name}({sizes}) {self.dtype}, {size}, {self.selection.describe()}"
        reads = "pad(), flat(), to_objects() read it; shapes reads the shapes alone"
        return Summary("labeled.Ragged", about, more=(f"of {self.where}", reads))


# ---------------------------------------------------------------- padding
def _wanted_lengths(to: Any, dims: Sequence[str], longest: Sequence[int]) -> list[int]:
    """Read what a user gives as `to`: a length for each of `dims`, else the longest."""
    given = dict.fromkeys(dims, to) if to is not None and not isinstance(to, Mapping) else to or {}
    if given is not to and len(given) > 1:
        raise DimsError(
            f"to={to!r} names none of the {len(dims)} axes of an example; give a mapping, as "
            f"to={dict(zip(dims, longest, strict=True))}"
        )
    for dim, length in given.items():
        if dim not in dims:
            raise DimsError(f"to= names {dim!r}; an example has the dims {tuple(dims)}")
        if not isinstance(length, int | np.integer) or length < 0:
            raise ArrayError(f"to={to!r}: a length must be a whole number, 0 or more")
    return [int(given.get(dim, most)) for dim, most in zip(dims, longest, strict=True)]


def padded(
    flat: Flat, lengths: Sequence[int], value: Any = 0, *, mask: bool = False
) -> tuple[Array, Array | None]:
    """Lay flat values out densely: (n, *lengths), and where the values are.

    Raises
    ------
    ArrayError
        If `value` cannot be held by the dtype.
    """
    n, dtype, fill = len(flat.shapes), flat.values.dtype, fill_of(value, flat.values.dtype)
    small = math.prod(lengths) <= 1024  # then all are filled together, else one by one
    inside = covered(flat.shapes, lengths) if mask or small else None
    out = np.full((n, *lengths), fill, dtype)
    if small and inside is not None:
        out[inside] = flat.values
    elif len(lengths) == 1:
        starts, sizes = flat.offsets[:-1], np.diff(flat.offsets)
        copy_segments(out.reshape(-1), np.arange(n) * lengths[0], flat.values, starts, sizes)
    else:
        for place, example in zip(out, flat.examples(), strict=True):
            place[tuple(map(slice, example.shape))] = example
    return out, inside if mask else None


def covered(shapes: Rows, lengths: Sequence[int]) -> Array:
    """Return where examples lie in their padded places: bool (n, *lengths)."""
    out = np.ones((len(shapes), *lengths), bool)
    for axis, length in enumerate(lengths):
        narrow = np.min_scalar_type(length)  # small numbers are compared several times as fast
        stops = np.minimum(shapes[:, axis, None], length).astype(narrow)
        inside = np.arange(length, dtype=narrow) < stops
        out &= np.expand_dims(inside, [i for i in range(1, len(lengths) + 1) if i != axis + 1])
    return out


def fill_of(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return `value` in `dtype`, or refuse it; the number 0 is NaT or an empty text."""
    given = np.asarray(value)
    if dtype.kind in "mMSU" and given.dtype.kind in "biuf" and given.shape == () and not given:
        return np.array("NaT" if dtype.kind in "mM" else "", dtype)
    try:
        with np.errstate(all="ignore"):
            held = given.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        held = np.zeros(1, dtype)  # so that it is refused
    same = held.shape == () and bool((held == given) | ((held != held) & (given != given)))
    if not same and not (dtype.kind in "fc" and held.shape == () and np.isfinite(held)):
        raise ArrayError(f"value={value!r} cannot fill an array of {dtype}; give one it can hold")
    return held
