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

``ArrayDataProvider`` of the Julia package has samples along the last axis, float32, one buffer.
Positions count from 0 and slices are half-open, as everywhere in Python; the rest is as it was.
The old permutations came from Julia's own generator; here they come from the one handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from labeled._validation import integer
from labeled.compat.errors import require
from labeled.compat.mxnet.parameters import Version
from labeled.errors import ArrayError, FileFormatError, LoaderError, check_known

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]
Named = list[tuple[str, FloatArray]]


class DataDesc(NamedTuple("_NameAndShape", [("name", str), ("shape", tuple[int, ...])])):
    """Name and shape of an array, batch axis included; a pair, with two attributes besides.

    Examples
    --------
    >>> name, shape = DataDesc("data", (32, 3, 28, 28))
    >>> DataDesc.get_batch_axis("TNC"), DataDesc.get_batch_axis(None)
    (1, 0)
    """

    dtype: Any
    layout: str | None

    def __new__(
        cls, name: str, shape: tuple[int, ...], dtype: Any = np.float32, layout: str | None = "NCHW"
    ) -> DataDesc:
        made = super().__new__(cls, name, shape)
        made.dtype, made.layout = dtype, layout
        return made

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Return where a layout has its batch axis: -1 where it has none, 0 without a layout."""
        return 0 if layout is None else layout.find("N")


@dataclass(eq=False)
class DataBatch:
    """Arrays of one batch, how many rows at its end do not count, and which rows it holds.

    `data` and `label` are lists or tuples of arrays, or None.
    """

    data: Any
    label: Any = None
    pad: Any = None
    index: npt.NDArray[Any] | None = None
    bucket_key: Any = None
    provide_data: list[DataDesc] | None = None
    provide_label: list[DataDesc] | None = None

    def __post_init__(self) -> None:
        for name in ("data", "label"):
            given = getattr(self, name)
            require(given is None or isinstance(given, list | tuple), f"{name} is a list of arrays")


class AbstractDataProvider(Iterator[Any]):
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
    _samples_last = False

    def get_batch_size(self) -> int:
        """Return the batch size."""
        return self.batch_size

    def eachbatch(self) -> AbstractDataProvider:
        """Return what is looped over: the provider itself."""
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
        return self.batch_size - int(batch.pad or 0)

    def get_data(self, batch: Any) -> Any:
        """Return the data of a batch, in the order of `provide_data`."""
        return batch.data

    def get_label(self, batch: Any) -> Any:
        """Return the labels of a batch, in the order of `provide_label`."""
        return batch.label

    def get(self, batch: Any, name: str) -> Any:
        """Return the array of a name; data come before labels.

        Raises
        ------
        UnknownNameError
            If neither has it.
        """
        known = [one for one, _ in (*self.provide_data, *self.provide_label)]
        check_known("asked for is", [name], known, "provided by this data provider")
        return [*self.get_data(batch), *self.get_label(batch)][known.index(name)]

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
                samples = slice(which.start, which.stop)
                part = array[..., samples] if self._samples_last else array[samples]
                if part.size != place.size:
                    raise ArrayError(f"samples have shape {part.shape}, their target {place.shape}")
                place[...] = part.reshape(place.shape)

    def __repr__(self) -> str:
        data, labels = (
            ", ".join(f"{name} {shape}" for name, shape in some) or "none"
            for some in (self.provide_data, self.provide_label)
        )
        return f"<labeled.compat.mxnet.{type(self).__name__}: data {data}; labels {labels}>"


AHEAD = 16  # batches that the thread could be ahead


class Row(NamedTuple):
    """One example: its number, its data and its label."""

    number: int
    data: Array
    label: Array


class MXDataProvider(AbstractDataProvider):
    """An iterator of libmxnet over a source that restarts for ever.

    With ``version="seed"`` a loop begins the next epoch, too, unless nothing was taken of this
    one: so the Julia package looped. In other versions a loop goes on where the last one stopped.
    What fails once fails for ever: an epoch that broke off has no end.
    """

    _ahead = AHEAD
    _tells_pad = True

    def __init__(self, version: Version, asked: SimpleNamespace) -> None:
        self._asked, self._loop_resets = asked, version == "seed"
        self._failure: Exception | None = None
        self._rows: Iterator[Row] = iter(())
        self._epoch: Iterator[DataBatch] = iter(())
        self._filled_up = False
        self._last = list[Array]()  # numbers, data and labels of the batch before
        self._taken = list[Row]()  # the rows of the batch under construction
        self.reset()
        if not self.iter_next():
            raise LoaderError(f"{type(self).__name__} has no first batch: the part is too small")
        self._held, self._begun = True, False
        self.batch_size, name = asked.batch_size, asked.label_name
        data, label = self._now.data[0], self._now.label[0]
        self.provide_data = [DataDesc(asked.data_name, data.shape, data.dtype.type)]
        self.provide_label = [DataDesc(name, label.shape, label.dtype.type)] if name else []

    # what the old iterators had

    def __iter__(self) -> Iterator[Any]:
        if self._loop_resets and self._begun:
            self.reset()
        return self

    def next(self) -> DataBatch:
        self._begun = True
        if not self.iter_next():
            raise StopIteration
        self._held = False
        return self._now

    def reset(self) -> None:
        """End this epoch where the thread had reached, and begin the next one."""
        self._held = self._begun = False
        self._tried(self._begin_epoch)

    def iter_next(self) -> bool:
        """Go to the next batch; True for ever, without moving, before the first :meth:`next`."""
        if self._held:
            return True
        self._begun = True
        batch = self._tried(lambda: next(self._epoch, None))
        if batch is not None:
            self._now: DataBatch = batch
        return batch is not None

    def getdata(self) -> Any:
        """Return the data of the current batch."""
        return self._now.data

    def getlabel(self) -> Any:
        """Return the labels of the current batch."""
        return self._now.label

    def getpad(self) -> Any:
        """Return how many rows at the end of the current batch do not count."""
        return self._now.pad

    def getindex(self) -> npt.NDArray[Any] | None:
        """Return which rows the current batch holds."""
        return self._now.index

    # epochs

    def _pass(self) -> Iterator[Row]:
        """Begin a pass over the rows, with the first epoch and at every restart.

        There are none where :meth:`_batches` cuts whole batches out of arrays.
        """
        return iter(())

    def _begin_epoch(self) -> None:
        for _ in islice(self._epoch, self._ahead):
            pass
        if not self._filled_up:
            self._rows = self._pass()
        self._filled_up = False
        self._epoch = self._batches()

    def _tried(self, act: Callable[[], Any]) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            return act()
        except Exception as error:
            self._failure = error
            raise

    def _batches(self) -> Iterator[DataBatch]:
        size, missing = self._asked.batch_size, 0
        while not missing:
            self._taken = []
            self._take()
            if not self._taken:
                return
            missing = size - len(self._taken)
            if missing and self._asked.round_batch:
                self._rows, self._filled_up = self._pass(), True
                self._take()
                if len(self._taken) < size:
                    wrong = f"a batch takes {missing} rows of the next pass, which has fewer; "
                    wrong += "the number of inputs must be bigger than the batch size"
                    raise LoaderError(wrong)
            yield self._stacked(missing)

    def _take(self) -> None:
        """Take rows of this pass until the batch is full; `_taken` shows each at once."""
        for row in islice(self._rows, self._asked.batch_size - len(self._taken)):
            self._taken.append(row)

    def _stacked(self, pad: int) -> DataBatch:
        """Put rows together; what they lack is what the batch before had in its place.

        Raises
        ------
        FileFormatError
            If they differ in shape, as pictures of unlike channels did in the oldest version.
        """
        if not self._last:
            first = np.zeros((), np.uint64), self._taken[0].data, self._taken[0].label
            size = self._asked.batch_size
            self._last = [np.zeros((size, *one.shape), one.dtype) for one in first]
        numbers, data, labels = self._last = [array.copy() for array in self._last]
        for place, row in enumerate(self._taken):
            if row.data.shape != data.shape[1:]:
                shapes = f"{row.data.shape}, those before it {data.shape[1:]}"
                raise FileFormatError(f"the row with index {row.number} has shape {shapes}")
            numbers[place], data[place], labels[place] = row
        return DataBatch([data], [old_label(labels)], pad if self._tells_pad else 0, numbers)


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


# arrays


@dataclass(frozen=True, eq=False)
class ArrayDataBatch:
    """Samples ``start`` to ``stop`` of a provider; its arrays are asked of the provider."""

    provider: ArrayDataProvider
    start: int
    stop: int

    @property
    def data(self) -> list[FloatArray]:
        """The provider's buffers, filled with this batch: overwritten when asked again."""
        return self.provider.filled(0, self)

    @property
    def label(self) -> list[FloatArray]:
        """The same for labels."""
        return self.provider.filled(1, self)

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

    _samples_last = True

    def __init__(
        self,
        data: Any,
        label: Any = (),
        *,
        batch_size: int = 0,
        shuffle: bool = False,
        data_padding: float = 0,
        label_padding: float = 0,
        rng: np.random.Generator | None = None,
    ) -> None:
        named = _named(data, "data", "data"), _named(label, "softmax_label", "label")
        if not named[0]:
            raise ArrayError("at least one array of data is needed")
        first, n = named[0][0][0], named[0][0][1].shape[-1]
        for name, one in (*named[0], *named[1]):
            if one.shape[-1] != n:
                raise ArrayError(f"{name!r} has {one.shape[-1]} samples, {first!r} has {n}")
        if not 0 <= integer("batch_size", batch_size) <= n:
            raise LoaderError(f"batch_size={batch_size} must be from 0 to {n} samples")
        self.n_samples, self.batch_size = n, batch_size or n
        self._shuffle = shuffle
        self._rng = np.random.default_rng() if rng is None else rng
        self._entries = named
        self._buffers = [[one[..., : self.batch_size].copy() for _, one in some] for some in named]
        self.provide_data, self.provide_label = (
            [DataDesc(name, (*one.shape[:-1], self.batch_size)) for name, one in some]
            for some in named
        )
        self._padding = data_padding, label_padding
        self._place = -1

    # passes; one at a time

    def reset(self) -> None:
        """Begin a pass: shuffle if wanted, go to the first sample."""
        self._place = 0
        if self._shuffle:
            order = self._rng.permutation(self.n_samples)
            for entries in self._entries:
                entries[:] = [(name, one.take(order, -1)) for name, one in entries]

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

    def filled(self, which: int, batch: ArrayDataBatch) -> list[FloatArray]:
        """Return the buffers of data (0) or labels (1), filled with a batch.

        There is one buffer an entry, for all batches.
        """
        n = self.count_samples(batch)
        for buffer, (_, array) in zip(self._buffers[which], self._entries[which], strict=True):
            buffer[..., :n] = array[..., batch.start : batch.stop]
            buffer[..., n:] = self._padding[which]
        return self._buffers[which]


def _named(given: Any, name: str, what: str) -> Named:
    """Return (name, float32 array) pairs of one of the forms that were taken."""
    pairs = given
    if _is_array(given):
        pairs = ((name, given),)
    elif _is_pair(given):
        pairs = (given,)
    if not isinstance(pairs, list | tuple) or not all(map(_is_pair, pairs)):
        wrong = f"Invalid {what} argument type: {type(given).__name__}; give an array"
        raise ArrayError(f"{wrong}, a (name, array) pair or a list of pairs, of real numbers")
    return [(key, np.asarray(array, np.float32)) for key, array in pairs]


def _is_array(given: Any) -> bool:
    """Whether something is an array of real numbers, or a list of them."""
    if isinstance(given, list):
        return bool(given) and all(isinstance(n, int | float | np.number | np.bool_) for n in given)
    return isinstance(given, np.ndarray) and given.ndim > 0 and given.dtype.kind in "biuf"


def _is_pair(given: Any) -> bool:
    pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
    return pair and _is_array(given[1])
