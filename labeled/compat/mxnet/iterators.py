"""What the old iterators look like: batches, names and shapes, ``reset``, and providers of Julia.

An iterator fetches its first batch when it is made, to learn the shapes; so files that cannot
be read fail at once. Batches are arrays of their own here: the old ones were views of memory that
was used again, and changed under whoever kept them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy.typing as npt

from labeled.compat.mxnet.parameters import Parameter, Version, text_of
from labeled.errors import ArrayError, LoaderError, UnknownNameError, did_you_mean

Array = npt.NDArray[Any]

NAMES = {
    "data_name": Parameter(text_of, "data"),
    "label_name": Parameter(text_of, "softmax_label", optional=True),
}
"""Parameters of every iterator."""


class DataDesc(NamedTuple):
    """Name and shape of an array, batch axis included.

    Examples
    --------
    >>> name, shape = DataDesc("data", (32, 3, 28, 28))
    """

    name: str
    shape: tuple[int, ...]


@dataclass(eq=False)
class DataBatch:
    """Arrays of one batch, how many rows at its end do not count, and which rows it holds."""

    data: list[Array]
    label: list[Array] = field(default_factory=list)
    pad: int = 0
    index: npt.NDArray[Any] | None = None


class AbstractDataBatch(Protocol):
    """What providers hand out: arrays, how many samples do not count, and which they are."""

    @property
    def data(self) -> list[Array]: ...

    @property
    def label(self) -> list[Array]: ...

    @property
    def pad(self) -> int: ...

    @property
    def index(self) -> npt.NDArray[Any] | None: ...


class AbstractDataProvider:
    """Batches of named data and labels; the base of all iterators.

    Functions of the Julia package are methods here, and slices are half-open from 0.

    Attributes
    ----------
    batch_size : int
    provide_data, provide_label : list of DataDesc
    """

    batch_size: int
    provide_data: list[DataDesc]
    provide_label: list[DataDesc]
    _batch_axis = 0

    def get_batch_size(self) -> int:
        """Return the batch size."""
        return self.batch_size

    def eachbatch(self) -> AbstractDataProvider:
        """Return what is looped over: the provider itself."""
        return self

    def __iter__(self) -> Iterator[AbstractDataBatch]:
        return self

    def __next__(self) -> AbstractDataBatch:
        return self.next()

    def next(self) -> AbstractDataBatch:
        """Return the next batch.

        Raises
        ------
        StopIteration
            At the end of the epoch, and until :meth:`reset`.
        """
        raise NotImplementedError

    def reset(self) -> None:
        """Begin the next epoch."""
        raise NotImplementedError

    def count_samples(self, batch: AbstractDataBatch) -> int:
        """Return how many samples of a batch are real."""
        return self.batch_size - batch.pad

    def get_data(self, batch: AbstractDataBatch) -> list[Array]:
        """Return the data of a batch, in the order of `provide_data`."""
        return batch.data

    def get_label(self, batch: AbstractDataBatch) -> list[Array]:
        """Return the labels of a batch, in the order of `provide_label`."""
        return batch.label

    def get(self, batch: AbstractDataBatch, name: str) -> Array:
        """Return the array of a name; data come before labels.

        Raises
        ------
        UnknownNameError
            If neither has it.
        """
        for described, arrays_of in (
            (self.provide_data, self.get_data),
            (self.provide_label, self.get_label),
        ):
            for place, (known, _) in enumerate(described):
                if known == name:
                    return arrays_of(batch)[place]
        hint = did_you_mean(name, [known for known, _ in self.provide_data + self.provide_label])
        raise UnknownNameError(f"{name} is not provided by this data provider; {hint}")

    def load_data(self, batch: AbstractDataBatch, targets: Sequence[Any]) -> None:
        """Copy the data into arrays, or into lists of ``(slice, array)`` pairs.

        Surplus entries on either side are passed over.

        Raises
        ------
        ArrayError
            If a slice is not within a batch, or an array has not the shape of its samples.
        """
        self._load(self.get_data(batch), targets)

    def load_label(self, batch: AbstractDataBatch, targets: Sequence[Any]) -> None:
        """Copy the labels; see :meth:`load_data`."""
        self._load(self.get_label(batch), targets)

    def _load(self, arrays: list[Array], targets: Sequence[Any]) -> None:
        for array, target in zip(arrays, targets, strict=False):
            whole = not isinstance(target, list | tuple)
            for which, place in [(slice(0, self.batch_size), target)] if whole else target:
                if not 0 <= which.start < which.stop <= self.batch_size:
                    raise ArrayError(f"{which} is not within a batch of {self.batch_size}")
                part = array[self._at(which.start, which.stop)]
                if part.size != place.size:
                    raise ArrayError(
                        f"samples {which} have the shape {part.shape}, their target {place.shape}; "
                        "give an array of the same number of elements"
                    )
                place[...] = part.reshape(place.shape)

    def _at(self, start: int, stop: int) -> Any:
        """Return what picks samples out of an array."""
        samples = slice(start, stop)
        return samples if self._batch_axis == 0 else (..., samples)

    def __repr__(self) -> str:
        data, labels = (
            ", ".join(f"{name} {shape}" for name, shape in some) or "none"
            for some in (self.provide_data, self.provide_label)
        )
        return f"<labeled.compat.mxnet.{type(self).__name__}: data {data}; labels {labels}>"


class Batches(Protocol):
    """What makes the batches of an epoch."""

    def next(self) -> DataBatch | None: ...

    def reset(self) -> None: ...


class MXDataProvider(AbstractDataProvider):
    """An iterator of libmxnet; ``reset()`` begins the next epoch.

    With ``version="seed"`` a loop begins the next epoch, too, unless nothing was taken of this
    one: so the Julia package looped. In other versions a loop goes on where the last one stopped.
    """

    def __init__(self, batches: Batches, version: Version, asked: dict[str, Any]) -> None:
        self._batches, self._loop_resets = batches, version == "seed"
        first = batches.next()
        if first is None:
            raise LoaderError(
                f"{type(self).__name__} has no first batch: the part is empty, or smaller than a "
                "batch"
            )
        self._now, self._held, self._begun = _handed_out(first), True, False
        self.batch_size = len(self._now.data[0])
        self.provide_data = [DataDesc(asked["data_name"], self._now.data[0].shape)]
        name = asked["label_name"]
        self.provide_label = [] if name is None else [DataDesc(name, self._now.label[0].shape)]

    def __iter__(self) -> Iterator[AbstractDataBatch]:
        if self._loop_resets and self._begun:
            self.reset()
        return self

    def next(self) -> DataBatch:
        if not self._advance():
            raise StopIteration
        return replace(self._now)

    def reset(self) -> None:
        self._held = self._begun = False
        self._batches.reset()

    def iter_next(self) -> bool:
        """Go to the next batch; True for ever, without moving, before the first :meth:`next`."""
        return self._held or self._advance()

    def _advance(self) -> bool:
        self._begun = True
        if self._held:
            self._held = False
            return True
        found = self._batches.next()
        self._now = self._now if found is None else _handed_out(found)
        return found is not None

    def getdata(self) -> list[Array]:
        """Return the data of the current batch."""
        return self._now.data

    def getlabel(self) -> list[Array]:
        """Return the labels of the current batch."""
        return self._now.label

    def getpad(self) -> int:
        """Return how many rows at the end of the current batch do not count."""
        return self._now.pad

    def getindex(self) -> npt.NDArray[Any] | None:
        """Return which rows the current batch holds."""
        return self._now.index


def _handed_out(batch: DataBatch) -> DataBatch:
    return replace(batch, label=[old_label(label) for label in batch.label])


def old_label(label: Array) -> Array:
    """Return a batch of labels as it was handed out: flat where the second axis has length 1.

    Of labels of more axes that keeps the first of the values, and so the wrong ones.

    Examples
    --------
    >>> import numpy as np
    >>> old_label(np.zeros((4, 1))).shape, old_label(np.zeros((4, 3))).shape
    ((4,), (4, 3))
    """
    if label.ndim > 1 and label.shape[1] == 1:
        return label.reshape(-1)[: len(label)]
    return label
