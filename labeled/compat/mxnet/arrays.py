"""``ArrayDataProvider`` of the Julia package: samples along the last axis, float32, one buffer.

Positions count from 0 and slices are half-open, as everywhere in Python; the rest is as it was.
The old permutations came from Julia's own generator; here they come from the one handed in.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.compat.mxnet.iterators import AbstractDataProvider, DataDesc
from labeled.errors import ArrayError, LoaderError
from labeled.providers.batch import BatchAxis, batch_axis_of

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class ArrayDataBatch:
    """Samples ``start`` to ``stop`` of a provider; its arrays are asked of the provider."""

    provider: ArrayDataProvider
    start: int
    stop: int

    @property
    def data(self) -> list[FloatArray]:
        """The provider's buffers, filled with this batch: overwritten when asked again."""
        return self.provider.get_data(self)

    @property
    def label(self) -> list[FloatArray]:
        """The same for labels."""
        return self.provider.get_label(self)

    @property
    def pad(self) -> int:
        """Samples at the end that do not count."""
        return self.provider.batch_size - (self.stop - self.start)

    @property
    def index(self) -> npt.NDArray[np.int64]:
        """Positions of the samples, after all shuffles."""
        return np.arange(self.start, self.stop)


class ArrayDataProvider(AbstractDataProvider):
    """Batches of arrays, converted to float32.

    Parameters
    ----------
    data : array, ``(name, array)`` pair, or list or tuple of pairs
        Called ``data`` without a name. A float32 array is used as it is until it is shuffled.
    label : the same, optional
        Called ``softmax_label`` without a name.
    batch_size : int
        0 takes everything at once; more than there are samples is an error.
    shuffle : bool
        Permute all arrays before every pass, each time what the time before left.
    data_padding, label_padding : float
        Fill what the last batch lacks.
    axes : {"last", "first"}
        Where samples lie: the last axis, as it was, or the first.
    rng : numpy.random.Generator, optional
        Where permutations come from.

    Raises
    ------
    ArrayError
        If something is not of these forms, or lengths differ.
    LoaderError
        If the batch size is impossible.

    Examples
    --------
    >>> provider = ArrayDataProvider(np.arange(6).reshape(2, 3), batch_size=2)
    >>> provider.provide_data
    [DataDesc(name='data', shape=(2, 2))]
    >>> for batch in provider:
    ...     print(batch.data[0].tolist(), batch.pad)
    [[0.0, 1.0], [3.0, 4.0]] 0
    [[2.0, 0.0], [5.0, 0.0]] 1
    """

    def __init__(
        self,
        data: Any,
        label: Any = (),
        *,
        batch_size: int = 0,
        shuffle: bool = False,
        data_padding: float = 0,
        label_padding: float = 0,
        axes: BatchAxis = "last",
        rng: np.random.Generator | None = None,
    ) -> None:
        self._batch_axis = 0 if batch_axis_of(axes) == "first" else -1
        self._data = _named(data, "data", "data")
        self._label = _named(label, "softmax_label", "label")
        if not self._data:
            raise ArrayError("at least one array of data is needed")
        self.n_samples = self._check_lengths()
        if not 0 <= batch_size <= self.n_samples:
            raise LoaderError(
                f"batch_size={batch_size} must be from 0 to the number of samples, {self.n_samples}"
            )
        self.batch_size = batch_size or self.n_samples
        self._shuffle = shuffle
        self._padding = np.float32(data_padding), np.float32(label_padding)
        self._rng = np.random.default_rng() if rng is None else rng
        self._buffers = {
            id(entries): [np.empty(self._shape(array), np.float32) for _, array in entries]
            for entries in (self._data, self._label)
        }
        self.provide_data, self.provide_label = (
            [DataDesc(name, self._shape(array)) for name, array in entries]
            for entries in (self._data, self._label)
        )
        self._place = -1

    def _check_lengths(self) -> int:
        first, array = self._data[0]
        axis = self._batch_axis
        n = int(array.shape[axis])
        for name, other in (*self._data, *self._label):
            if other.shape[axis] != n:
                raise ArrayError(
                    f"{name!r} has {other.shape[axis]} samples, {first!r} has {n} (axis {axis})"
                )
        return n

    def _shape(self, array: FloatArray) -> tuple[int, ...]:
        inner = array.shape[1:] if self._batch_axis == 0 else array.shape[:-1]
        return (self.batch_size, *inner) if self._batch_axis == 0 else (*inner, self.batch_size)

    # passes; one at a time

    def reset(self) -> None:
        """Begin a pass: shuffle if wanted, go to the first sample."""
        self._place = 0
        if self._shuffle:
            order = self._rng.permutation(self.n_samples)
            self._data[:] = [(name, a.take(order, self._batch_axis)) for name, a in self._data]
            self._label[:] = [(name, a.take(order, self._batch_axis)) for name, a in self._label]

    def next(self) -> ArrayDataBatch:
        """Return the next batch of the pass; begin the first one where none was begun.

        Raises
        ------
        StopIteration
            At the end of the pass.
        """
        if self._place < 0:
            self.reset()
        if self._place >= self.n_samples:
            raise StopIteration
        start = self._place
        self._place = min(start + self.batch_size, self.n_samples)
        return ArrayDataBatch(self, start, self._place)

    def __iter__(self) -> Iterator[ArrayDataBatch]:
        self.reset()
        return self

    # batches

    def get_data(self, batch: ArrayDataBatch) -> list[FloatArray]:
        """Return the buffers of data, filled with a batch: one buffer an entry, for all batches."""
        return self._filled(self._data, batch, self._padding[0])

    def get_label(self, batch: ArrayDataBatch) -> list[FloatArray]:
        """Return the buffers of labels, filled with a batch."""
        return self._filled(self._label, batch, self._padding[1])

    def _filled(
        self, entries: list[tuple[str, FloatArray]], batch: ArrayDataBatch, padding: np.float32
    ) -> list[FloatArray]:
        buffers, n = self._buffers[id(entries)], self.count_samples(batch)
        for buffer, (_, array) in zip(buffers, entries, strict=True):
            buffer[self._at(0, n)] = array[self._at(batch.start, batch.stop)]
            buffer[self._at(n, self.batch_size)] = padding
        return buffers


def _named(given: Any, name: str, what: str) -> list[tuple[str, FloatArray]]:
    """Return (name, float32 array) pairs of one of the forms that were taken."""
    if isinstance(given, np.ndarray) or _is_numbers(given):
        given = ((name, given),)
    elif _is_pair(given):
        given = (given,)
    if not isinstance(given, list | tuple):
        raise ArrayError(f"Invalid {what} argument type: {type(given).__name__}")
    for pair in given:
        if not _is_pair(pair):
            raise ArrayError(
                f"Invalid {what} argument type: {pair!r:.60} is not a (name, array) pair"
            )
    return [(key, np.asarray(array, np.float32)) for key, array in given]


def _is_numbers(given: Any) -> bool:
    numbers = isinstance(given, list) and len(given) > 0
    return numbers and all(isinstance(n, int | float | np.number | np.bool_) for n in given)


def _is_pair(given: Any) -> bool:
    pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
    return pair and (isinstance(given[1], np.ndarray) or _is_numbers(given[1]))
