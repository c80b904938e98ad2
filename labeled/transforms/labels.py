"""Names in, names out: pictures of any kind as plain stacks of (channel, height, width).

A labelled array tells its axes by its dims; of plain arrays the caller says them. What comes
back is of the same kind, with the axes in the same order unless another one is asked for.
Nothing is copied on the way in.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import xarray as xr

from labeled.device import dtype_of, is_array, namespace, permute_dims
from labeled.dims import EXAMPLE_DIMS, Axis, find_axes, name_of
from labeled.errors import AugmentError, DimsError
from labeled.ragged import Ragged
from labeled.transforms.groups import in_one_array
from labeled.transforms.pictures import Pictures, pictures_of

Array = Any
Dims = Sequence[Hashable]

INNER: tuple[Axis, ...] = ("c", 0, 1)


@dataclass(frozen=True, eq=False)
class Labels:
    """What pictures were before they were opened.

    Parameters
    ----------
    source : object
        What was given.
    dims : tuple of names
        Of all pictures together, or of each picture of a list.
    axes : tuple
        Which axis each dim is: ``'b'``, ``'c'``, 0 or 1.
    single : bool
        Whether one picture was given.
    listed : bool
        Whether they came one by one, in a list or an array of objects.
    """

    source: Any
    dims: tuple[Hashable, ...]
    axes: tuple[Axis, ...]
    single: bool
    listed: bool

    @property
    def _labelled_source(self) -> xr.DataArray | None:
        """A DataArray that tells names and attributes."""
        first = self.source[0] if isinstance(self.source, list | tuple) else self.source
        return first if isinstance(first, xr.DataArray) else None

    @property
    def _example(self) -> Hashable:
        """Name of the dim that counts pictures which came one by one."""
        objects = isinstance(self.source, xr.DataArray)
        return self.source.dims[0] if objects else name_of("b", 2)

    def values(
        self,
        pieces: Iterator[tuple[slice, Pictures]],
        n: int,
        axes: Sequence[Axis] | None,
        dtype: Any,
        *,
        alike: bool,
    ) -> Array | list[Array]:
        """Carry changes out: one array of pictures of one size, else a list.

        Parameters
        ----------
        pieces : iterator of (slice, Pictures)
            Which of the `n` pictures, and they; in order.
        axes : sequence, optional
            Another order; may add ``'c'``.
        alike : bool
            Whether any pictures would have come out in one size.
        """
        first = next(pieces)
        wanted, n_channels = self._order(axes), first[1].n_channels
        if "c" not in wanted and n_channels != 1:
            raise DimsError(
                f"dims {self.dims} have no place for {n_channels} channels; name a channel dim"
            )
        every = chain([first], pieces)
        if self.joins(alike) or (self.listed and first[1].size is None):
            return [one for _, some in every for one in self._as_list(some, wanted, dtype)]
        numbers: Mapping[Axis, int] = {"b": 0, "c": 1, 0: 2, 1: 3}
        order = [numbers[axis] for axis in wanted]
        left_out = [number for number in range(4) if number not in order]
        array = in_one_array(every, n, (*left_out, *order), dtype)
        return array[(0,) * len(left_out)] if left_out else array

    def joins(self, alike: bool) -> bool:
        """Whether a list is made of pictures in any case."""
        return self.listed and isinstance(self.source, xr.DataArray) and not alike

    def named(self, made: Array | list[Array], axes: Sequence[Axis] | None) -> Any:
        """Return values as what was given, labels and all."""
        wanted, like = self._order(axes), self._labelled_source
        if not isinstance(made, list):
            return made if like is None else self._labelled(made, wanted, like)
        inner = tuple(axis for axis in wanted if axis != "b")
        if isinstance(self.source, xr.DataArray):
            objects = np.empty(len(made), object)
            for number, one in enumerate(made):
                objects[number] = one
            closed = self.source.copy(data=objects)
            closed.encoding = {**closed.encoding, EXAMPLE_DIMS: self._names(inner)}
            return closed
        return made if like is None else [self._labelled(one, inner, like) for one in made]

    def blank(self) -> Any:
        """Return a batch of one black picture, like a batch that has none."""
        labelled = isinstance(self.source, xr.DataArray)
        array = self.source.data if labelled else self.source
        at = self.axes.index("b")
        shape = (*array.shape[:at], 1, *array.shape[at + 1 :])
        zeros = namespace(array).zeros(shape, dtype=array.dtype)
        if not labelled:
            return zeros
        return xr.DataArray(zeros, None, self.dims, self.source.name, self.source.attrs)

    def none_of(self, made: Any, axes: Sequence[Axis] | None) -> Any:
        """Return none of the pictures that were made."""
        before = self._order(axes).index("b")
        return made[(*(slice(None),) * before, slice(0, 0))]

    def _order(self, axes: Sequence[Axis] | None) -> tuple[Axis, ...]:
        given = ("b", *self.axes) if self.listed else self.axes
        if axes is None:
            return given
        wanted = tuple(axis for axis in axes if not (self.single and axis == "b"))
        if not set(given) <= set(wanted) <= {*given, "c"} or len(set(wanted)) != len(wanted):
            raise DimsError(f"axes={tuple(axes)} are no order of {given}")
        return wanted

    def _as_list(self, pictures: Pictures, wanted: tuple[Axis, ...], dtype: Any) -> list[Array]:
        numbers: Mapping[Axis, int] = {"c": 0, 0: 1, 1: 2}
        order = [numbers[axis] for axis in wanted if axis != "b"]
        made = pictures.arrays((*({0, 1, 2} - {*order}), *order), dtype)
        return made if len(order) == 3 else [one[0, ...] for one in made]

    def _names(self, axes: Sequence[Axis]) -> tuple[Hashable, ...]:
        named = dict(zip(self.axes, self.dims, strict=True))
        if self.listed:
            named["b"] = self._example
        return tuple(named.get(axis, name_of(axis, 2)) for axis in axes)

    def _labelled(self, array: Array, wanted: tuple[Axis, ...], like: xr.DataArray) -> xr.DataArray:
        named = dict(zip(self.axes, self.dims, strict=True))
        dims = self._names(wanted)
        sizes = dict(zip(dims, array.shape, strict=True))
        coords = {
            name: coord for name, coord in like.coords.items()
            if all(sizes.get(dim) == coord.sizes[dim] for dim in coord.dims)
            and not {named.get(0), named.get(1)} & set(coord.dims)
        }  # fmt: skip
        return xr.DataArray(array, coords, dims, like.name, like.attrs)


def opened(images: Any, dims: Dims | None, *, batch: bool = False) -> tuple[Pictures, Labels]:
    """Take pictures out of what holds them.

    Parameters
    ----------
    images : DataArray, array, or list of either
        One picture or a batch. A DataArray of objects, a Ragged and a list hold pictures of
        different sizes.
    dims : sequence of names, optional
        Of plain arrays; of the pictures of a list.
    batch : bool
        They are said to be several, so that the one dim that means nothing else counts them,
        whatever its name.

    Raises
    ------
    DimsError
        If dims are missing, or are not those of pictures.
    AugmentError
        If the values are no numbers, or lazy.
    """
    if isinstance(images, Ragged):
        images = list(images)
    if isinstance(images, list | tuple):
        return _opened_list(images, images, dims)
    if isinstance(images, xr.DataArray):
        if images.dtype == object and images.ndim == 1:
            told = images.encoding.get(EXAMPLE_DIMS)
            return _opened_list(images, list(images.data), told if dims is None else dims)
        return _opened_array(images, images.data, images.dims, batch=batch)
    return _opened_array(images, images, dims, batch=batch)


def _opened_array(
    source: Any, array: Any, dims: Dims | None, *, batch: bool = False
) -> tuple[Pictures, Labels]:
    found, axes = _axes(array, dims, batch=batch)
    order = [axes.index(axis) for axis in ("b", *INNER) if axis in axes]
    view = permute_dims(array, tuple(order))
    for place, axis in enumerate(("b", *INNER)):
        if axis not in axes:
            view = namespace(view).expand_dims(view, axis=place)
    return pictures_of(view), Labels(source, found, axes, "b" not in axes, listed=False)


def _opened_list(source: Any, images: Sequence[Any], dims: Dims | None) -> tuple[Pictures, Labels]:
    if len(images) == 0:
        raise AugmentError("an empty list has no pictures, and tells nothing of their channels")
    opened_each = [
        _opened_array(one, one.data, one.dims) if isinstance(one, xr.DataArray) else
        _opened_array(one, one, dims) for one in images
    ]  # fmt: skip
    first = opened_each[0][1]
    if not first.single or any(labels.axes != first.axes for _, labels in opened_each):
        raise DimsError("pictures of a list have one order of dims, without a batch dim")
    kinds = sorted({f"{one.n_channels} of {one.dtype}" for one, _ in opened_each})
    if len(kinds) > 1:
        raise AugmentError(
            f"pictures have channels {' and '.join(kinds)}; give them one dtype and as many "
            "channels as another, encoded ones when they are opened (channels=3)"
        )
    pictures = pictures_of([one.first[0, ...] for one, _ in opened_each])
    return pictures, Labels(source, first.dims, first.axes, single=False, listed=True)


def _axes(
    array: Any, dims: Dims | None, *, batch: bool
) -> tuple[tuple[Hashable, ...], tuple[Axis, ...]]:
    """Tell which axis each dim is; in a `batch` a dim of any name may be the one of examples."""
    if not is_array(array):
        what = (
            "lazy; load it, or use batches(pipeline=...)"
            if hasattr(array, "dask")
            else (f"{type(array).__name__}; pass an array, a DataArray or a list of them")
        )
        raise AugmentError(f"pictures are arrays at hand; these are {what}")
    if dtype_of(array).kind not in "uif":
        raise AugmentError(f"pictures of dtype {dtype_of(array)} cannot be augmented; cast first")
    if dims is None:
        raise DimsError(
            f"an array of rank {array.ndim} does not tell its axes; pass dims=('batch', "
            "'channel', 'height', 'width'), in its order, or a DataArray"
        )
    if len(dims) != array.ndim:
        raise DimsError(f"dims {tuple(dims)} do not fit an array of shape {tuple(array.shape)}")
    found = find_axes(dims, 2)
    if batch and "b" not in found.dim_of_axis and len(found.others) == 1:
        found = find_axes(dims, 2, {"b": found.others[0]})
    axis_of = {dim: axis for axis, dim in found.dim_of_axis.items()}
    if found.others or not {0, 1} <= set(axis_of.values()) <= {"b", *INNER}:
        raise DimsError(
            f"dims {tuple(dims)} are not those of pictures: height and width, and at most batch "
            "and channel; rename the others, or select one of them"
        )
    return tuple(dims), tuple(axis_of[dim] for dim in dims)
