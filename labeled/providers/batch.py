"""A mini-batch of named arrays, told apart into data and labels.

A batch knows how many of its samples are real, which rows they were, and how to copy
slices of itself into arrays that live elsewhere: the shares of data-parallel devices. It
knows nothing of where it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled import permute
from labeled.device import (
    Array,
    adopted,
    check_copy,
    copy_into,
    dtype_of,
    is_array,
    is_foreign,
    namespace,
    permute_dims,
    to_host,
)
from labeled.errors import ArrayError, LoaderError, UnknownNameError, did_you_mean
from labeled.loader.batches.finish import padding_of
from labeled.loader.request.arguments import integer
from labeled.loader.request.casts import can_hold

Rows = npt.NDArray[np.int64]

BatchAxis = Literal["first", "last"]
"""Where the batch axis of every array stands."""

NOT_TOLD = -1

T = TypeVar("T")

Target: TypeAlias = Any
"""An array to fill whole, or a list of ``(slice of samples, array)`` pairs."""


@dataclass(frozen=True, eq=False)
class DataBatch:
    """Samples handed out together. It stays what it was as long as anybody holds it.

    Parameters
    ----------
    named_data, named_label : mapping of str to array
        In the order in which the provider declares them; every batch axis of one length.
    count_samples : int, optional
        How many samples are real: less than the batch size only where data ran out, and
        then the first ones. All of them when not given.
    rows : int64 array, optional
        Which samples of the data set these are; -1 where padded.
    axes : {"first", "last"}
        Where the batch axis stands.
    dims : mapping of str to tuple of str
        Names of the axes, where they have any.

    Examples
    --------
    >>> batch = DataBatch({"data": np.arange(8.0).reshape(4, 2)}, {"label": np.arange(4)})
    >>> batch.count_samples, batch.get("label")
    (4, array([0, 1, 2, 3]))
    """

    named_data: Mapping[str, Array]
    named_label: Mapping[str, Array] = field(default_factory=dict)
    count_samples: int = NOT_TOLD
    rows: Rows | None = None
    axes: BatchAxis = "first"
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.named_data:
            raise ArrayError("a batch needs at least one array of data")
        for name, array in self._arrays():
            if not (is_array(array) or is_foreign(array)):
                raise ArrayError(f"{name!r} of a batch is no array but {type(array).__name__}")
        twice = sorted(set(self.named_data) & set(self.named_label))
        if twice:
            raise ArrayError(f"the name {twice[0]!r} stands among data and labels of a batch")
        batch_axis_of(self.axes)
        sizes = {name: self._samples(array) for name, array in self._arrays()}
        if len(set(sizes.values())) > 1:
            raise ArrayError(
                f"the arrays of a batch hold different numbers of samples: {sizes} (batch axis "
                f"{self.axes!r})"
            )
        if self.count_samples == NOT_TOLD:
            object.__setattr__(self, "count_samples", self.batch_size)
        if integer("count_samples", self.count_samples, least=0) > self.batch_size:
            raise ArrayError(
                f"count_samples={self.count_samples} is more than the {self.batch_size} samples of "
                "the batch"
            )
        if self.rows is not None and len(self.rows) != self.batch_size:
            raise ArrayError(f"{len(self.rows)} rows are told of {self.batch_size} samples")

    def _arrays(self) -> Iterator[tuple[str, Array]]:
        yield from self.named_data.items()
        yield from self.named_label.items()

    def _samples(self, array: Array) -> int:
        if not array.shape:
            raise ArrayError("an array of a batch needs an axis that counts samples")
        return int(array.shape[self.batch_axis])

    @property
    def batch_axis(self) -> int:
        """Number of the batch axis: 0 or -1."""
        return 0 if self.axes == "first" else -1

    @property
    def batch_size(self) -> int:
        """Length of the batch axis, padding counted."""
        return self._samples(next(iter(self.named_data.values())))

    @property
    def data(self) -> list[Array]:
        """Arrays of data, in the order of ``provider.provide_data``."""
        return list(self.named_data.values())

    @property
    def label(self) -> list[Array]:
        """Arrays of labels, in the order of ``provider.provide_label``."""
        return list(self.named_label.values())

    def get(self, name: str) -> Array:
        """Return the array of this name; data come before labels.

        Raises
        ------
        UnknownNameError
            If there is none.
        """
        for arrays in (self.named_data, self.named_label):
            if name in arrays:
                return arrays[name]
        hint = did_you_mean(name, dict(self._arrays()))
        raise UnknownNameError(f"no array {name!r} in this batch; {hint}")

    def load_data(self, targets: Sequence[Target]) -> None:
        """Copy the data into `targets`, whole or sliced for several devices.

        Parameters
        ----------
        targets : sequence
            One entry an array of `data`: either an array of its shape, or a list of
            ``(slice, array)`` pairs. The slice counts samples, in steps of one; the array
            (NumPy, CuPy, array-API or a torch tensor) has the shape of those samples. Slices
            may overlap, repeat, or leave samples out.

        Raises
        ------
        ArrayError
            If targets are too many or too few, or one does not fit or hold the values; nothing
            is copied then.

        Examples
        --------
        >>> batch = DataBatch({"data": np.arange(10)})
        >>> parts = [(s, np.zeros(s.stop - s.start, np.int64)) for s in device_slices(10, 4)]
        >>> batch.load_data([parts])
        >>> [part.tolist() for _, part in parts]
        [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
        """
        self._load(self.named_data, targets, "data")

    def load_label(self, targets: Sequence[Target]) -> None:
        """Copy the labels into `targets`; see :meth:`load_data`."""
        self._load(self.named_label, targets, "label")

    def _load(self, arrays: Mapping[str, Array], targets: Sequence[Target], what: str) -> None:
        if not isinstance(targets, Sequence):
            raise ArrayError(
                f"load_{what} takes a list of targets, one for each of {list(arrays)}, not "
                f"{type(targets).__name__}"
            )
        if len(targets) != len(arrays):
            raise ArrayError(
                f"load_{what} was given {len(targets)} targets for {len(arrays)} arrays of "
                f"{what}: {list(arrays)}"
            )
        copies = [
            copy
            for (name, array), target in zip(arrays.items(), targets, strict=True)
            for copy in self._copies(name, array, target)
        ]
        for target, part in copies:
            check_copy(target, part)
        for target, part in copies:
            copy_into(target, part)

    def _copies(self, name: str, array: Array, target: Target) -> list[tuple[Array, Array]]:
        """Return (target, what goes there) pairs that fit."""
        pairs = target if isinstance(target, list | tuple) else [(slice(None), target)]
        copies = []
        for pair in pairs:
            which, place = _pair_of(name, pair)
            part = array[self._index(name, which)]
            part = adopted(part) if is_foreign(part) else part
            if tuple(place.shape) != tuple(part.shape):
                raise ArrayError(
                    f"samples {which} of {name!r} have shape {tuple(part.shape)}, their target "
                    f"{tuple(place.shape)}"
                )
            copies.append((place, part))
        return copies

    def _index(self, name: str, which: slice | range) -> Any:
        start, stop, step = which.start, which.stop, which.step
        start = 0 if start is None else integer("start of a slice", start)
        stop = self.batch_size if stop is None else integer("stop of a slice", stop)
        if step not in (None, 1) or not 0 <= start <= stop <= self.batch_size:
            raise ArrayError(
                f"{which} of {name!r} is no stretch of the {self.batch_size} samples of a batch"
            )
        samples = slice(start, stop)
        return samples if self.axes == "first" else (..., samples)

    def to_xarray(self) -> xr.Dataset:
        """Return the batch as an in-memory xarray.Dataset; arrays on the host are not copied."""
        return xr.Dataset(
            {name: (self._dims_of(name, a), to_host(a)) for name, a in self._arrays()}
        )

    def _dims_of(self, name: str, array: Array) -> tuple[str, ...]:
        if name in self.dims:
            return self.dims[name]
        inner = tuple(f"{name}_{axis}" for axis in range(1, len(array.shape)))
        return ("batch", *inner) if self.axes == "first" else (*inner, "batch")

    def __repr__(self) -> str:
        lines = [f"<labeled.providers.DataBatch, {self.count_samples} samples>"]
        lines += [f"  {name}  {tuple(a.shape)}  {a.dtype}" for name, a in self._arrays()]
        return "\n".join(lines)


def _pair_of(name: str, pair: Any) -> tuple[slice | range, Array]:
    """Return a slice and the array to fill, which must let itself be written to."""
    which, place = pair if isinstance(pair, list | tuple) and len(pair) == 2 else (None, None)
    if is_foreign(place):
        place = adopted(place)
    if not isinstance(which, slice | range) or not is_array(place):
        raise ArrayError(
            f"{pair!r:.60} is no target for {name!r}: give an array, or a list of (slice, array) "
            "pairs"
        )
    if isinstance(place, np.ndarray) and not place.flags.writeable:
        raise ArrayError(f"a target for {name!r} is not to be written to; give a copy of it")
    return which, place


def device_slices(batch_size: int, n_devices: int) -> list[slice]:
    """Cut a batch for data-parallel devices: contiguous, the first ones one sample longer.

    Raises
    ------
    LoaderError
        If there are fewer samples than devices.

    Examples
    --------
    >>> device_slices(10, 4)
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None), slice(8, 10, None)]
    """
    if integer("n_devices", n_devices, least=1) > integer("batch_size", batch_size):
        raise LoaderError(f"a batch of {batch_size} samples is not shared by {n_devices} devices")
    each, more = divmod(batch_size, n_devices)
    edges = [index * each + min(index, more) for index in range(n_devices + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def filled(array: Array, batch_size: int, padding: Any) -> Array:
    """Return a batch, its batch axis first, padded where it is short; else the array itself.

    Raises
    ------
    LoaderError
        If the dtype of the array does not hold the padding.
    """
    n = int(array.shape[0])
    if n == batch_size:
        return array
    if not can_hold(dtype_of(array), padding):
        raise LoaderError(
            f"{padding!r} is no value of dtype {array.dtype}, and a short batch is padded with it; "
            "give data_padding or label_padding"
        )
    value = padding_of(dtype_of(array), padding)
    out = namespace(array).full((batch_size, *array.shape[1:]), value, dtype=array.dtype)
    out[:n, ...] = array
    return out


def moved_axis(array: Array, axes: BatchAxis) -> Array:
    """Return an array whose batch axis is first in the order wanted, C-contiguous if moved."""
    if axes == "first" or len(array.shape) < 2:
        return array
    return permute.copy(array, (*range(1, len(array.shape)), 0))


def sample_first(array: Array, axes: BatchAxis) -> Array:
    """Return an array whose batch axis stands as `axes` says with it first: a view."""
    if axes == "first" or len(array.shape) < 2:
        return array
    last = len(array.shape) - 1
    return permute_dims(array, (last, *range(last)))


def moved_order(order: tuple[T, ...], axes: BatchAxis) -> tuple[T, ...]:
    """Return the names or lengths that belong to such an array."""
    return order if axes == "first" else (*order[1:], order[0])


def batch_axis_of(axes: Any) -> BatchAxis:
    """Return `axes` checked."""
    if axes not in ("first", "last"):
        raise LoaderError(f"axes={axes!r} must be 'first' or 'last': where the batch axis stands")
    found: BatchAxis = axes
    return found
