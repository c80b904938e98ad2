"""What the old iterators look like: batches, names and shapes, ``reset``, and providers of Julia.

An iterator fetches its first batch when it is made, to learn the shapes; so files that cannot
be read fail at once. Batches are arrays of their own here: the old ones were views of memory that
was used again, and changed under whoever kept them.

The source of rows restarts for ever. With ``round_batch`` a short last batch is filled up with the
first rows of the pass that follows, and the next epoch goes on behind them: epochs are shifted
against the data, and may even be empty. Without it the surplus rows keep what the batch before had
there.

Batches were made by a thread that ran ahead. A ``reset()`` in mid-epoch therefore acts on the
place that the thread had reached: if that was the end of the epoch, the next one begins behind
the rows that filled it up. The model here is a thread that always is as far ahead as it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.parameters import Version
from labeled.errors import ArrayError, FileFormatError, LoaderError, UnknownNameError, did_you_mean

Array = npt.NDArray[Any]


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

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self) -> Any:
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

    def count_samples(self, batch: Any) -> int:
        """Return how many samples of a batch are real."""
        pad: int = batch.pad
        return self.batch_size - pad

    def get_data(self, batch: Any) -> list[Array]:
        """Return the data of a batch, in the order of `provide_data`."""
        data: list[Array] = batch.data
        return data

    def get_label(self, batch: Any) -> list[Array]:
        """Return the labels of a batch, in the order of `provide_label`."""
        label: list[Array] = batch.label
        return label

    def get(self, batch: Any, name: str) -> Array:
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

    def load_data(self, batch: Any, targets: Sequence[Any]) -> None:
        """Copy the data into arrays, or into lists of ``(slice, array)`` pairs.

        Surplus entries on either side are passed over.

        Raises
        ------
        ArrayError
            If a slice is not within a batch, or an array has not the shape of its samples.
        """
        self._load(self.get_data(batch), targets)

    def load_label(self, batch: Any, targets: Sequence[Any]) -> None:
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


class MXDataProvider(AbstractDataProvider):
    """An iterator of libmxnet; ``reset()`` begins the next epoch.

    With ``version="seed"`` a loop begins the next epoch, too, unless nothing was taken of this
    one: so the Julia package looped. In other versions a loop goes on where the last one stopped.
    """

    _tells_pad = _tells_index = True

    def __init__(self, batches: Any, version: Version, asked: dict[str, Any]) -> None:
        self._batches, self._loop_resets = batches, version == "seed"
        first = batches.next()
        if first is None:
            raise LoaderError(
                f"{type(self).__name__} has no first batch: the part is empty, or smaller than a "
                "batch"
            )
        self._now, self._held, self._begun = self._handed_out(first), True, False
        self.batch_size = len(self._now.data[0])
        self.provide_data = [DataDesc(asked["data_name"], self._now.data[0].shape)]
        name = asked["label_name"]
        self.provide_label = [] if name is None else [DataDesc(name, self._now.label[0].shape)]

    def _handed_out(self, batch: DataBatch) -> DataBatch:
        """Return a batch as it looked: flat labels; pad and index if they were given."""
        index = batch.index if self._tells_index else np.zeros(len(batch.data[0]), np.uint64)
        labels = [old_label(label) for label in batch.label]
        return DataBatch(batch.data, labels, batch.pad if self._tells_pad else 0, index)

    def __iter__(self) -> Iterator[Any]:
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
        self._now = self._now if found is None else self._handed_out(found)
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


AHEAD = 16
"""Batches that the thread could be ahead."""


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """One example: its number, its data and its label."""

    index: int
    data: Array
    label: Array


@dataclass(eq=False)
class RoundBatches:
    """Batches of a source that restarts for ever.

    Parameters
    ----------
    begin_pass : callable
        Begins a pass over the rows; called at once, and at every restart.
    batch_size : int
    round_batch : bool
    ahead : int
        Batches that were made before they were asked for.

    Examples
    --------
    >>> def rows():
    ...     return iter([Row(i, np.array([i]), np.array(0.0)) for i in range(3)])
    >>> batches = RoundBatches(rows, batch_size=2)
    >>> for epoch in range(2):
    ...     while (batch := batches.next()) is not None:
    ...         print(epoch, batch.data[0].ravel(), batch.pad)
    ...     batches.reset()
    0 [0 1] 0
    0 [2 0] 1
    1 [1 2] 0
    """

    begin_pass: Callable[[], Iterator[Row]]
    batch_size: int
    round_batch: bool = True
    ahead: int = AHEAD
    _rows: Iterator[Row] = field(init=False, repr=False)
    _overflow: int = field(default=0, init=False)
    _last: DataBatch | None = field(default=None, init=False, repr=False)
    _ended: bool = field(default=False, init=False)
    _taken: list[Row] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = self.begin_pass()

    @property
    def n_filled(self) -> int:
        """Rows that the batch under construction has."""
        return len(self._taken)

    def next(self) -> DataBatch | None:
        """Return the next batch of the epoch; None at its end, and until it is reset.

        Raises
        ------
        LoaderError
            If a batch would take rows from more than two passes.
        """
        self._taken = []
        if not (self._overflow or self._ended):
            self._take()
        if not self._taken:
            self._ended = True
            return None
        missing = self.batch_size - len(self._taken)
        if missing and self.round_batch:
            self._fill_up(missing)
        self._last = _stacked(self._taken, missing, self.batch_size, self._last)
        return self._last

    def reset(self) -> None:
        """Begin the next epoch."""
        for _ in range(self.ahead):
            if self.next() is None:
                break
        if not self._overflow:
            self._rows = self.begin_pass()
        self._overflow = 0
        self._ended = False

    def _take(self) -> None:
        """Take rows of this pass until the batch is full."""
        try:
            while len(self._taken) < self.batch_size:
                self._taken.append(next(self._rows))
        except StopIteration:
            pass
        except Exception as error:
            self._rows = _failing(error)  # an epoch that broke off has no end
            raise

    def _fill_up(self, missing: int) -> None:
        """Take the rows that are missing from the next pass."""
        self._rows = self.begin_pass()
        self._take()
        still = self.batch_size - len(self._taken)
        if still:
            raise LoaderError(
                f"a batch of {self.batch_size} rows takes {missing} rows of the next pass, which "
                f"has {missing - still}; the number of inputs must be bigger than the batch size"
            )
        self._overflow = missing


def _failing(error: Exception) -> Iterator[Row]:
    """Raise the same error whenever a row is asked for."""
    return iter(partial(_raise, error), None)


def _raise(error: Exception) -> Row:
    raise error


def _stacked(rows: list[Row], pad: int, batch_size: int, last: DataBatch | None) -> DataBatch:
    """Put rows together; what they lack is what the batch before had in its place.

    Raises
    ------
    FileFormatError
        If they differ in shape, as pictures of unlike channels did in the oldest version.
    """
    data, labels, index = (None, None, None) if last is None else (
        last.data[0], last.label[0], last.index
    )  # fmt: skip
    shape = rows[0].data.shape if data is None else data[0].shape
    for row in rows:
        if row.data.shape != shape:
            raise FileFormatError(
                f"the row with index {row.index} has shape {row.data.shape}, those before it have "
                f"{shape}: they make no batch; give files whose rows are alike"
            )
    numbers = np.zeros(batch_size, np.uint64) if index is None else index.copy()
    numbers[: len(rows)] = [row.index for row in rows]
    return DataBatch(
        [_column([row.data for row in rows], batch_size, data)],
        [_column([row.label for row in rows], batch_size, labels)],
        pad,
        numbers,
    )


def _column(arrays: list[Array], batch_size: int, last: Array | None) -> Array:
    if len(arrays) == batch_size:
        return np.stack(arrays)
    first = arrays[0]
    out = np.zeros((batch_size, *first.shape), first.dtype) if last is None else last.copy()
    out[: len(arrays)] = arrays
    return out
