"""Names in, names out: what holds pictures, as plain arrays (height, width, channel) and back.

A labelled array names its axes by its dims; of plain arrays the caller passes them. What comes
back is of the same kind, with the axes in the same order unless another one is asked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from labeled.dims import EXAMPLE_DIMS, Axis, find_axes, name_of
from labeled.errors import AugmentError, DimsError
from labeled.ragged import Ragged
from labeled.transforms.pictures import Array, Plan

Dims = Sequence[Hashable]

INNER: tuple[Axis, ...] = (0, 1, "c")
"""Axes of a picture on its way."""


@dataclass(frozen=True, eq=False)
class Opened:
    """Pictures, and what they were before they were opened.

    Parameters
    ----------
    pictures : array (n, height, width, channel), or list of arrays (height, width, channel)
        Views of the source.
    source : object
        What was given.
    dims : tuple of names
        Of all pictures together, or of each picture of a list.
    axes : tuple
        Which axis each dim is: ``'b'``, ``'c'``, 0 or 1.
    listed : bool
        Whether they came one by one, in a list or an array of objects.
    """

    pictures: Array | list[Array]
    source: Any
    dims: tuple[Hashable, ...]
    axes: tuple[Axis, ...]
    listed: bool = False

    def plan(self, rows: Any) -> Plan:
        """Return a plan that changes nothing yet."""
        sizes = np.array([one.shape[:2] for one in self.pictures], np.int64)
        first = self.pictures[0]
        numbers, dtype = np.asarray(rows, np.int64), first.dtype.newbyteorder("=")
        return Plan(numbers, sizes, int(first.shape[2]), dtype)

    def made(self, plan: Plan, axes: Sequence[Axis] | None, dtype: Any, *, always_one: bool) -> Any:
        """Carry a plan out: return changed pictures as what was given, labels and all.

        Parameters
        ----------
        axes : sequence, optional
            Another order; may add ``'c'``.
        always_one : bool
            Whether pictures of any sizes would have come out as one array.
        """
        wanted = self._order(axes)
        if "c" not in wanted and plan.n_channels != 1:
            raise DimsError(
                f"dims {self.dims} have no place for {plan.n_channels} channels; name a channel dim"
            )
        objects = self.listed and isinstance(self.source, xr.DataArray) and not always_one
        if objects or (self.listed and plan.size is None):
            return self._one_by_one(plan, wanted, dtype, objects)
        every: tuple[Axis, ...] = ("b", *INNER)
        left_out = [axis for axis in every if axis not in wanted]
        order = [every.index(axis) for axis in (*left_out, *wanted)]
        array = plan.batch(self.pictures, order, dtype)[(0,) * len(left_out)]
        return self._labelled(array, wanted)

    def _one_by_one(self, plan: Plan, wanted: tuple[Axis, ...], dtype: Any, objects: bool) -> Any:
        inner = tuple(axis for axis in wanted if axis != "b")
        order = [INNER.index(axis) for axis in (*{*INNER}.difference(inner), *inner)]
        found = plan.pictures(self.pictures, order, dtype)
        made = [one if len(inner) == 3 else one[0] for one in found]
        if not objects:
            return [self._labelled(one, inner) for one in made]
        array = np.empty(len(made), object)
        for at, one in enumerate(made):
            array[at] = one
        closed = self.source.copy(data=array)
        closed.encoding = {**closed.encoding, EXAMPLE_DIMS: self._names(inner)}
        return closed

    def _order(self, axes: Sequence[Axis] | None) -> tuple[Axis, ...]:
        given = ("b", *self.axes) if self.listed else self.axes
        if axes is None:
            return given
        wanted = tuple(axis for axis in axes if axis != "b" or "b" in given)
        if not set(given) <= set(wanted) <= {*given, "c"} or len(set(wanted)) != len(wanted):
            raise DimsError(f"axes={tuple(axes)} are not an order of {given}")
        return wanted

    def _names(self, axes: Sequence[Axis]) -> tuple[Hashable, ...]:
        named = dict(zip(self.axes, self.dims, strict=True))
        if self.listed and isinstance(self.source, xr.DataArray):
            named["b"] = self.source.dims[0]
        return tuple(named.get(axis, name_of(axis, 2)) for axis in axes)

    def _labelled(self, array: Array, wanted: tuple[Axis, ...]) -> Any:
        """Return an array with the labels of the source that are still true; plain without any."""
        like = self.source[0] if isinstance(self.source, list | tuple) else self.source
        if not isinstance(like, xr.DataArray):
            return array
        moved = {dim for dim, axis in zip(self.dims, self.axes, strict=True) if axis in (0, 1)}
        dims = self._names(wanted)
        sizes = dict(zip(dims, array.shape, strict=True))
        coords = {
            name: coord for name, coord in like.coords.items()
            if all(sizes.get(dim) == coord.sizes[dim] for dim in coord.dims)
            and not moved & set(coord.dims)
        }  # fmt: skip
        return xr.DataArray(array, coords, dims, like.name, like.attrs)


def open_pictures(images: Any, dims: Dims | None, *, batch: bool = False) -> Opened:
    """Take pictures out of what holds them.

    Parameters
    ----------
    images : DataArray, array, or list of either
        One picture or a batch. A DataArray of objects, a Ragged and a list hold pictures of
        different sizes.
    dims : sequence of names, optional
        Of plain arrays; of the pictures of a list.
    batch : bool
        There are several, so that the one dim that means nothing else counts them, whatever its
        name.

    Raises
    ------
    DimsError
        If dims are missing, or are not those of pictures.
    AugmentError
        If the values are not numbers in this machine's memory.
    """
    if isinstance(images, Ragged | list | tuple):
        source = list(images)
        return _open_list(source, source, dims)
    if not isinstance(images, xr.DataArray):
        return _open_array(images, images, dims, batch=batch)
    if images.dtype == object and images.ndim == 1:
        known = images.encoding.get(EXAMPLE_DIMS) if dims is None else dims
        return _open_list(images, list(images.data), known)
    return _open_array(images, images.data, images.dims, batch=batch)


def _open_array(source: Any, array: Any, dims: Dims | None, *, batch: bool = False) -> Opened:
    found, axes = _axes(array, dims, batch=batch)
    every: tuple[Axis, ...] = ("b", *INNER)
    view = array.transpose([axes.index(axis) for axis in every if axis in axes])
    missing = [at for at, axis in enumerate(every) if axis not in axes]
    return Opened(np.expand_dims(view, missing), source, found, axes)


def _open_list(source: Any, images: Sequence[Any], dims: Dims | None) -> Opened:
    if len(images) == 0:
        raise AugmentError("an empty list does not show how many channels pictures have")
    opened = [
        _open_array(one, one.data, one.dims) if isinstance(one, xr.DataArray) else
        _open_array(one, one, dims) for one in images
    ]  # fmt: skip
    first = opened[0]
    if "b" in first.axes or any(one.axes != first.axes for one in opened):
        raise DimsError("pictures of a list have one order of dims, without a batch dim")
    pictures = [one.pictures[0] for one in opened]
    kinds = sorted({f"{one.shape[2]} of {one.dtype}" for one in pictures})
    if len(kinds) > 1:
        raise AugmentError(
            f"pictures have channels {' and '.join(kinds)}; give all one dtype and the same number "
            "of channels, encoded ones when they are opened (channels=3)"
        )
    return Opened(pictures, source, first.dims, first.axes, listed=True)


def _axes(
    array: Any, dims: Dims | None, *, batch: bool
) -> tuple[tuple[Hashable, ...], tuple[Axis, ...]]:
    """Find which axis each dim is; in a `batch` a dim of any name may be the one of examples."""
    if not isinstance(array, np.ndarray):
        what = type(array).__name__
        hint = "pass a NumPy array, a DataArray or a list of them; copy others to the host first"
        if hasattr(array, "dask"):
            what, hint = "lazy", "load them, or use batches(pipeline=...)"
        raise AugmentError(f"pictures must be arrays in memory; these are {what}: {hint}")
    if array.dtype.kind not in "uif":
        raise AugmentError(f"pictures of dtype {array.dtype} cannot be augmented; cast first")
    if dims is None:
        raise DimsError(
            f"an array of rank {array.ndim} does not name its axes; pass dims=('batch', "
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
