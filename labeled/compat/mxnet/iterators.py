"""What the old iterators looked like from Python: batches, names and shapes, ``reset``.

An iterator fetches its first batch when it is made, to learn the shapes; so files that cannot
be read fail at once. Batches are arrays of their own here: the old ones were views of memory that
was used again, and changed under whoever kept them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.batching import Filled
from labeled.compat.mxnet.parameters import Parameter, text_of
from labeled.errors import LoaderError

Array = npt.NDArray[Any]

NAMES = {
    "data_name": Parameter(text_of, "data"),
    "label_name": Parameter(text_of, "softmax_label"),
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
    index: npt.NDArray[np.uint64] | None = None


class Batches(Protocol):
    """What makes the batches."""

    def next(self) -> Filled | None: ...

    def reset(self) -> None: ...


class MXDataIter:
    """An iterator over batches; ``reset()`` begins the next epoch.

    Attributes
    ----------
    batch_size : int
    provide_data, provide_label : list of DataDesc
    """

    def __init__(self, batches: Batches, data_name: str, label_name: str | None) -> None:
        self._batches = batches
        self._now = batches.next()
        self._held = True
        if self._now is None:
            raise LoaderError(
                f"{type(self).__name__} has no first batch: the part is empty, or smaller than a "
                "batch"
            )
        self.batch_size = len(self._now.data)
        self.provide_data = [DataDesc(data_name, self._now.data.shape)]
        self.provide_label = (
            [] if label_name is None else [DataDesc(label_name, self._now.label.shape)]
        )

    def __repr__(self) -> str:
        return repr_of(self, self.provide_data, self.provide_label)

    def __iter__(self) -> MXDataIter:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def next(self) -> DataBatch:
        """Return the next batch.

        Raises
        ------
        StopIteration
            At the end of the epoch, and until :meth:`reset`.
        """
        if not self._advance():
            raise StopIteration
        return DataBatch(self.getdata(), self.getlabel(), self.getpad(), self.getindex())

    def reset(self) -> None:
        """Begin the next epoch."""
        self._held = False
        self._batches.reset()

    def iter_next(self) -> bool:
        """Go to the next batch; True for ever, without moving, before the first :meth:`next`."""
        return self._held or self._advance()

    def _advance(self) -> bool:
        if self._held:
            self._held = False
            return True
        found = self._batches.next()
        self._now = self._now if found is None else found
        return found is not None

    @property
    def _current(self) -> Filled:
        assert self._now is not None, "there was a first batch"
        return self._now

    def getdata(self) -> list[Array]:
        """Return the data of the current batch."""
        return [self._current.data]

    def getlabel(self) -> list[Array]:
        """Return the labels of the current batch."""
        return [self._current.label]

    def getpad(self) -> int:
        """Return how many rows at the end of the current batch do not count."""
        return self._current.pad

    def getindex(self) -> npt.NDArray[np.uint64]:
        """Return which rows the current batch holds."""
        return self._current.index


def repr_of(provider: object, data: Iterable[DataDesc], labels: Iterable[DataDesc]) -> str:
    """Return what a notebook shows of an iterator: the names and shapes of its batches."""
    named, called = (", ".join(f"{n} {s}" for n, s in some) or "none" for some in (data, labels))
    return f"<labeled.compat.mxnet.{type(provider).__name__}: data {named}; labels {called}>"


def old_label(label: Array) -> Array:
    """Return a batch of labels as it was handed out: flat where the second axis has length 1.

    Of labels of more axes that keeps the first of the values, and so the wrong ones.

    Examples
    --------
    >>> old_label(np.zeros((4, 1))).shape, old_label(np.zeros((4, 3))).shape
    ((4,), (4, 3))
    """
    if label.ndim > 1 and label.shape[1] == 1:
        return label.reshape(-1)[: len(label)]
    return label
