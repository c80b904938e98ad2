"""A mini-batch of named arrays, divided into data and labels.

A batch knows how many of its samples are real, which rows they were, and how to copy
slices of itself into arrays that live elsewhere: the shares of data-parallel devices. It
knows nothing of where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from labeled._validation import integer
from labeled.device import Array, adopted, check_copy, copy_into, is_array, is_foreign
from labeled.errors import ArrayError, LoaderError, check_known

BatchAxis = Literal["first", "last"]  # where the batch axis of every array stands

ALL = -1


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

    Examples
    --------
    >>> batch = DataBatch({"data": np.arange(8.0).reshape(4, 2)}, {"label": np.arange(4)})
    >>> batch.count_samples, batch.get("label")
    (4, array([0, 1, 2, 3]))
    """

    named_data: Mapping[str, Array]
    named_label: Mapping[str, Array] = field(default_factory=dict)
    count_samples: int = ALL
    rows: npt.NDArray[np.int64] | None = None
    axes: BatchAxis = "first"

    def __post_init__(self) -> None:
        given: tuple[Any, Any] = (self.named_data, self.named_label)
        if not all(isinstance(named, Mapping) for named in given):
            raise ArrayError(f"a batch takes mappings from name to array, found {given!r:.60}")
        if not self.named_data:
            raise ArrayError("a batch needs at least one array of data")
        for name in self.named_data.keys() & self.named_label.keys():
            raise ArrayError(f"the name {name!r} is both among the data and the labels")
        axis = batch_axis_of(self.axes)
        for name, array in self._arrays.items():
            if not (is_array(array) or is_foreign(array)) or not array.shape:
                raise ArrayError(f"{name!r} must be an array of samples, not {array!r:.60}")
        sizes = {name: int(array.shape[axis]) for name, array in self._arrays.items()}
        if len(set(sizes.values())) > 1:
            wrong = f"the arrays of a batch hold different numbers of samples: {sizes}"
            raise ArrayError(f"{wrong} (batch axis {self.axes!r})")
        n = self.batch_size
        if self.count_samples == ALL:
            object.__setattr__(self, "count_samples", n)
        if integer("count_samples", self.count_samples, least=0) > n:
            raise ArrayError(f"count_samples={self.count_samples} is more than the batch size, {n}")

    @property
    def _arrays(self) -> dict[str, Array]:
        return {**self.named_data, **self.named_label}

    @property
    def batch_size(self) -> int:
        """Length of the batch axis, padding counted."""
        first = next(iter(self.named_data.values()))
        return int(first.shape[batch_axis_of(self.axes)])

    @property
    def data(self) -> list[Array]:
        """Arrays of data, in the order of ``provider.provide_data``."""
        return list(self.named_data.values())

    @property
    def label(self) -> list[Array]:
        """Arrays of labels, in the order of ``provider.provide_label``."""
        return list(self.named_label.values())

    def get(self, name: str) -> Array:
        """Return the array of this name.

        Raises
        ------
        UnknownNameError
            If there is none.
        """
        check_known("asked for is", [name], self._arrays, "an array of this batch")
        return self._arrays[name]

    def load_data(self, targets: Sequence[Any]) -> None:
        """Copy the data into `targets`, whole or sliced for several devices.

        Parameters
        ----------
        targets : sequence
            One entry an array of `data`: either an array of its shape, or a list of
            ``(slice, array)`` pairs. The slice counts samples; the array (NumPy, CuPy, array-API
            or a torch tensor) has the shape of those samples. Slices may overlap, repeat, or
            leave samples out.

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

    def load_label(self, targets: Sequence[Any]) -> None:
        """Copy the labels into `targets`; see :meth:`load_data`."""
        self._load(self.named_label, targets, "label")

    def _load(self, arrays: Mapping[str, Array], targets: Sequence[Any], what: str) -> None:
        if not isinstance(targets, list | tuple) or len(targets) != len(arrays):
            listed = isinstance(targets, list | tuple)
            found = len(targets) if listed else type(targets).__name__
            wanted = f"a list of targets, one for each of {list(arrays)}"
            raise ArrayError(f"load_{what} takes {wanted}; found {found}")
        copies = [
            self._copy(name, array, pair)
            for (name, array), target in zip(arrays.items(), targets, strict=True)
            for pair in (target if isinstance(target, list | tuple) else [(slice(None), target)])
        ]
        for place, part in copies:
            check_copy(place, part)
        for place, part in copies:
            copy_into(place, part)

    def _copy(self, name: str, array: Array, pair: Any) -> tuple[Array, Array]:
        """Return (target, samples that go there)."""
        nothing: tuple[Any, Any] = (None, None)
        which, place = pair if isinstance(pair, list | tuple) and len(pair) == 2 else nothing
        place = adopted(place) if is_foreign(place) else place
        if not isinstance(which, slice | range) or not is_array(place):
            remedy = "give an array, or a list of (slice, array) pairs"
            raise ArrayError(f"{pair!r:.60} cannot be filled with {name!r}: {remedy}")
        if isinstance(place, np.ndarray) and not place.flags.writeable:
            raise ArrayError(f"the target for {name!r} is read-only; give a copy of it")
        samples = slice(which.start, which.stop, which.step)
        part = array[samples if self.axes == "first" else (..., samples)]
        part = adopted(part) if is_foreign(part) else part
        shape, wanted = tuple(place.shape), tuple(part.shape)
        if shape != wanted:
            wrong = f"samples {which} of {name!r} have shape {wanted}"
            raise ArrayError(f"{wrong}, their target {shape}")
        return place, part

    def __repr__(self) -> str:
        lines = [f"<labeled.providers.DataBatch, {self.count_samples} samples>"]
        lines += [f"  {name}  {tuple(a.shape)}  {a.dtype}" for name, a in self._arrays.items()]
        return "\n".join(lines)


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
        raise LoaderError(f"a batch of {batch_size} samples is too small for {n_devices} devices")
    each, more = divmod(batch_size, n_devices)
    edges = [index * each + min(index, more) for index in range(n_devices + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def batch_axis_of(axes: Any) -> int:
    """Return the number of the batch axis: 0 or -1."""
    if axes not in ("first", "last"):
        raise LoaderError(f"axes={axes!r} must be 'first' or 'last': where the batch axis stands")
    return 0 if axes == "first" else -1
