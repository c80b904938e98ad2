"""Data providers: data from anywhere, split into mini-batches that are consumed in one way.

A provider has a `batch_size`, declares the names and shapes of its data and labels, and is
looped over again and again, each loop a pass of its own. Arrays are always whole batches;
``batch.count_samples`` is the number of samples that are real. Data and labels differ in use alone:
both are fed in training, data alone in prediction. Unlike those of older libraries, a
batch stays what it was, every epoch is complete, and a seed governs all randomness. The old
iterators, with their behaviour to the letter, are in :mod:`labeled.compat.mxnet`. What may be given
is in `arrays.py`, what is handed out in `batch.py`.

Over a loader, one plan is made, and each loop runs a loader of its own over it, so that loops may
be nested or run side by side. Loop number k, counted from the first one begun, is epoch k. What
others iterate is turned into batches of the names and shapes that the first one had: copied,
because foreign iterators like to fill the same memory again, and padded where it is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from labeled import permute
from labeled._validation import check_arguments, check_keywords, integer
from labeled.device import Array, dtype_of, is_array, namespace, owned_copy, permute_dims
from labeled.errors import ArrayError, LoaderError, check_known
from labeled.loader.batch import Batch
from labeled.loader.layout import can_hold, padding_of
from labeled.loader.loader import Loader
from labeled.loader.options import BatchOptions, Shuffle
from labeled.loader.plan import LoaderPlan
from labeled.providers.arrays import named_arrays, numbered_arrays, samples_of, source_of
from labeled.providers.batch import ALL, BatchAxis, DataBatch, device_slices
from labeled.samplers.permutation import key_of
from labeled.samplers.windows import shard_bounds
from labeled.selection import Selection

__all__ = [
    "ArrayDataProvider",
    "DataBatch",
    "DataProvider",
    "IteratorProvider",
    "device_slices",
    "provider",
]

Lengths = dict[str, tuple[int, ...]]  # lengths of the axes of one sample, by the name of the array

Arrays = Mapping[str, Array]

BatchMaker = Callable[..., Iterable[Any]]  # called for each pass


class DataProvider:
    """Mini-batches of named arrays; each loop over it is a pass of its own.

    Every array of every batch has the shape declared, also where
    :attr:`~labeled.providers.DataBatch.count_samples` is less than the batch size.
    """

    # the batch size, data and labels; None before the first batch
    _shapes: tuple[int, Lengths, Lengths] | None = None
    # a pass that was begun to learn the shapes; the next loop takes it
    _waiting: Iterator[DataBatch] | None = None
    _n_begun = 0

    def __init__(self, axes: Any, data_padding: Any, label_padding: Any, size: int | None) -> None:
        self._axes = axes
        self._padding = data_padding, label_padding
        self._size = size

    def _begin(self, number: int) -> Iterator[DataBatch]:
        """Begin the pass of a number, from 0 on; batch axes of what it yields are first."""
        raise NotImplementedError

    def _next_pass(self) -> Iterator[DataBatch]:
        begun, self._waiting = self._waiting, None
        if begun is None:
            begun = self._begin(self._n_begun)
            self._n_begun += 1
        return begun

    def eachbatch(self) -> Iterator[DataBatch]:
        """Begin a pass; loops that are still running go on."""
        return self._whole_batches(self._next_pass())

    __iter__ = eachbatch

    def __getstate__(self) -> dict[str, Any]:
        n_begun = self._n_begun - (self._waiting is not None)
        return {**vars(self), "_waiting": None, "_n_begun": n_begun}

    def _declared(self, batch: DataBatch | None = None) -> tuple[int, Lengths, Lengths]:
        """Return the batch size, data and labels, those of the first batch where none was seen."""
        if self._shapes is None:
            if batch is None:
                batches = self._next_pass()
                batch = next(batches, None)
                if batch is None:
                    raise LoaderError("this provider yields no batch, so its shapes are unknown")
                self._waiting = chain([batch], batches)
            self._shapes = self._size or batch.batch_size, *_lengths_of(batch)
        return self._shapes

    def _whole_batches(self, batches: Iterator[DataBatch]) -> Iterator[DataBatch]:
        for number, batch in enumerate(batches):
            size, *first = self._declared(batch)
            found = data, label = _lengths_of(batch)
            if found != tuple(first):
                wrong = f"batch {number} holds data {data} and labels {label}, the first one "
                raise ArrayError(f"{wrong}{first[0]} and {first[1]} (lengths of one sample)")
            n, missing = batch.batch_size, size - batch.batch_size
            if missing < 0:
                most = f"give at most the batch size {size}"
                raise ArrayError(f"batch {number} holds {n} samples; {most}")
            rows = None if batch.rows is None else np.append(batch.rows, np.full(missing, -1))
            data, label = (
                {name: self._whole(array, missing, padding) for name, array in arrays.items()}
                for arrays, padding in zip(
                    (batch.named_data, batch.named_label), self._padding, strict=True
                )
            )
            yield DataBatch(data, label, batch.count_samples, rows, self._axes)

    def _whole(self, array: Array, missing: int, padding: Any) -> Array:
        """Return an array with so many samples more, its batch axis where it is wanted."""
        if missing:
            dtype, n = dtype_of(array), int(array.shape[0])
            if not can_hold(dtype, padding):
                wrong = f"a short batch of dtype {dtype} cannot be padded with {padding!r}"
                raise LoaderError(f"{wrong}; give a data_padding or label_padding that it holds")
            shape, value = (n + missing, *array.shape[1:]), padding_of(dtype, padding)
            padded = namespace(array).full(shape, value, dtype=array.dtype)
            padded[:n, ...] = array
            array = padded
        if self._axes == "last" and len(array.shape) > 1:
            return permute.copy(array, (*range(1, len(array.shape)), 0))
        return array

    @property
    def batch_size(self) -> int:
        """Samples of every batch, padding counted."""
        return self._declared()[0]

    @property
    def provide_data(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the data, batch axis included, in the order of ``batch.data``."""
        return self._provided(self._declared()[1])

    @property
    def provide_label(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the labels, batch axis included; may be empty."""
        return self._provided(self._declared()[2])

    def _provided(self, lengths: Lengths) -> list[tuple[str, tuple[int, ...]]]:
        size, first = (self.batch_size,), self._axes == "first"
        return [(name, size + own if first else own + size) for name, own in lengths.items()]

    def __repr__(self) -> str:
        title = f"<labeled.providers.{type(self).__name__}"
        if self._shapes is None:
            return f"{title}, its shapes not known yet>"
        data = ", ".join(f"{name} {shape}" for name, shape in self.provide_data)
        labels = ", ".join(f"{name} {shape}" for name, shape in self.provide_label) or "none"
        return f"{title}: batches of {self.batch_size} samples; data {data}; labels {labels}>"


def _lengths_of(batch: DataBatch) -> tuple[Lengths, Lengths]:
    """Return the lengths of one sample of data and labels; the batch axis is first."""
    return (
        {name: tuple(array.shape[1:]) for name, array in batch.named_data.items()},
        {name: tuple(array.shape[1:]) for name, array in batch.named_label.items()},
    )


# over a loader


# sources that are labels where nobody says which are
LABEL_NAMES = frozenset({"label", "labels", "target", "targets", "y"})

# what a caller of `as_provider` may name; all but the first five are options of `batches`
OPTIONS = (
    *("batch_size", "data_padding", "label_padding", "roll_over", "axes", "shuffle", "seed"),
    *("shard", "window_rows", "memory", "threads", "prefetch", "dtype", "scale", "shift"),
    *("errors", "max_lost", "device"),
)

Names = str | Sequence[str] | Mapping[str, str]


class LoaderProvider(DataProvider):
    """Sources served by a loader, under other names if wanted; loop number k is epoch k."""

    def __init__(
        self, plan: LoaderPlan, data: Mapping[str, str], label: Mapping[str, str], *how: Any
    ) -> None:
        super().__init__(*how)
        self._plan, self._data, self._label = plan, data, label

    @property
    def seed(self) -> int:
        """What every epoch's order is drawn from; chosen once when not given."""
        return self._plan.epoch_plan.order.seed

    @property
    def n_samples(self) -> int:
        """Samples of an epoch of this shard."""
        plan = self._plan.epoch_plan
        start, stop = shard_bounds(plan.order.n_rows, *plan.shard)
        return stop - start

    def __len__(self) -> int:
        """Batches of an epoch of this shard; those that ``errors="skip"`` empties are left out."""
        plan = self._plan.epoch_plan
        return plan.n_batches if plan.last == "wrap" else -(-self.n_samples // self.batch_size)

    def _begin(self, number: int) -> Iterator[DataBatch]:
        loader, left = Loader(self._plan), self.n_samples
        loader.set_epoch(number)
        with iter(loader) as batches:
            for batch in batches:
                if batch.count:
                    data = {name: batch.arrays[source] for name, source in self._data.items()}
                    label = {name: batch.arrays[source] for name, source in self._label.items()}
                    yield DataBatch(data, label, max(0, min(left, batch.count)), batch.rows)
                left -= loader.batch_size


@check_arguments(LoaderError, but=("names",))
def provider_of(
    served: Callable[..., Loader],
    shapes: Mapping[str, tuple[int, ...]],
    names: Sequence[Names | None],
    *,
    batch_size: int = 0,
    data_padding: Any = 0,
    label_padding: Any = 0,
    roll_over: bool = False,
    axes: BatchAxis = "first",
    **loading: Any,
) -> LoaderProvider:
    """Provide what a function makes a loader of; see :meth:`labeled.Dataset.as_provider`.

    Parameters
    ----------
    served : callable
        Makes the loader: ``served(sources, batch_size, last=, pad_value=, **loading)``.
    shapes : mapping of str to tuple
        The full shape of every source.
    names : data and labels
        Sources, or a mapping from names to sources; None where their names decide.
    """
    check_keywords("as_provider", loading, OPTIONS)
    label = _by_name("label", names[1], shapes, [name for name in shapes if name in LABEL_NAMES])
    others = [name for name in shapes if name not in label.values()]
    data = _by_name("data", names[0], shapes, others)
    if not data:
        raise LoaderError("a provider needs at least one array of data")
    for name in data.keys() & label.keys():
        raise LoaderError(f"the name {name!r} is given twice among data and labels")
    if roll_over and loading.get("errors") == "skip":
        wrong = "errors='skip' leaves rows out, so that a last batch is not filled up with others"
        raise LoaderError(f"{wrong}: pad it instead (roll_over=False)")
    used = list(dict.fromkeys([*data.values(), *label.values()]))
    size = integer("batch_size", batch_size, least=0) or shapes[used[0]][0]
    if not size:
        raise LoaderError("there are no samples to take at once; give a batch_size")
    padding = dict.fromkeys(label.values(), label_padding)
    padding |= dict.fromkeys(data.values(), data_padding)
    last = {"last": "wrap"} if roll_over else {"last": "pad", "pad_value": padding}
    plan = served(used, size, **loading, **last).plan
    made = LoaderProvider(plan, data, label, axes, data_padding, label_padding, size)
    inner = [{n: shapes[source][1:] for n, source in some.items()} for some in (data, label)]
    made._shapes = size, inner[0], inner[1]
    return made


def _by_name(
    option: str, asked: Names | None, sources: Mapping[str, Any], default: Sequence[str]
) -> dict[str, str]:
    """Return the source behind each name to provide."""
    names = default if asked is None else (asked,) if isinstance(asked, str) else asked
    found = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    if len(found) < len(names):
        again = next(name for name in found if list(names).count(name) > 1)
        remedy = "give it two names by a mapping from name to source"
        raise LoaderError(f"{option}= names {again!r} twice; {remedy}")
    check_known(f"{option}= names", found.values(), sources, "a source")
    return found


def ArrayDataProvider(
    data: Any,
    label: Any = None,
    batch_size: int = 0,
    shuffle: Shuffle = False,
    data_padding: Any = 0,
    label_padding: Any = 0,
    **options: Any,
) -> LoaderProvider:
    """Batches of arrays; a :class:`~labeled.providers.DataProvider`.

    Arrays are not copied as a whole, and keep their dtype.

    Parameters
    ----------
    data : array, ``(name, array)`` pair, list of pairs or mapping
        Examples lie along axis 0 of a NumPy or dask array, along the dim ``batch`` (else the
        first) of a DataArray. An array alone is called ``data``.
    label : the same, optional
        An array alone is called ``softmax_label``. Without it no labels are provided.
    batch_size : int
        0 takes the whole arrays as one batch. A size larger than the arrays is padded.
    shuffle : bool, "full" or "window"
        Another order every epoch; data and labels stay together.
    data_padding, label_padding : scalar
        Fill the samples that the last batch lacks.
    **options
        `roll_over`: fill them with samples of the same epoch instead, beginning at its first one.
        ``count_samples`` tells the real ones either way. All parts then have as many batches,
        also one that has no sample of its own, where none is real. `axes` ("first" or "last") is
        where the batch axis of what is handed out stands. `seed`, `shard`, `memory` and `device`
        are those of :meth:`labeled.Dataset.batches`, as are the others that
        :meth:`labeled.Dataset.as_provider` takes.

    Raises
    ------
    LoaderError
        If names repeat, lengths differ or a padding does not fit; at once.
    ArrayError
        If a value is not an array.

    Examples
    --------
    >>> import numpy as np
    >>> provider = ArrayDataProvider(np.arange(10.0), np.arange(10), batch_size=4)
    >>> provider.provide_data, provider.provide_label
    ([('data', (4,))], [('softmax_label', (4,))])
    >>> for batch in provider:
    ...     print(batch.data[0], batch.count_samples)
    [0. 1. 2. 3.] 4
    [4. 5. 6. 7.] 4
    [8. 9. 0. 0.] 2
    """
    check_keywords("ArrayDataProvider", options, OPTIONS)
    named = named_arrays(data, "data"), named_arrays(label, "softmax_label")
    arrays = {**named[0], **named[1]}
    sources = {name: source_of(name, array) for name, array in arrays.items()}
    counts = {name: source.n_rows for name, source in sources.items()}
    if len(set(counts.values())) > 1:
        raise LoaderError(f"data and labels hold different numbers of samples: {counts}")

    def served(used: list[str], size: int, **loading: Any) -> Loader:
        rows = {name: Selection.all(n) for name, n in counts.items()}
        return Loader(LoaderPlan(sources, rows, {}, counts[used[0]], BatchOptions(size, **loading)))

    return provider_of(
        served,
        {name: (source.n_rows, *source.row_shape) for name, source in sources.items()},
        [list(some) for some in named],
        batch_size=batch_size,
        data_padding=data_padding,
        label_padding=label_padding,
        shuffle=shuffle,
        **options,
    )


# over what others iterate


class IteratorProvider(DataProvider):
    """Provide what a foreign iterable yields.

    Each loop asks the iterable for a new iterator, so loops over a list or a loader are
    independent. An iterator that is its own iterable is looped over once, or as often as its
    ``reset()`` allows, by one loop at a time. Arrays are copied, so that batches stay what they
    were, but for those of our own batches, which do anyway.

    Parameters
    ----------
    iterable : iterable
        Of :class:`DataBatch`, of objects with ``data``, ``label`` and ``pad``, of mappings
        from name to array, of ``(data, label)`` pairs, or of arrays; examples along axis 0, of
        a DataArray along its dim ``batch`` if it has one. What holds no sample is left out.
    batch_size : int, optional
        The length of the first batch when not given. Shorter batches are padded.
    label : str or sequence of str
        Which names of a mapping are labels; ``label_name`` when not given.
    data_name, label_name : str
        What an array without a name is called.
    data_padding, label_padding : scalar
        Fill short batches.
    axes : {"first", "last"}
        Where the batch axis of what is handed out stands.

    Examples
    --------
    >>> pairs = [(np.ones((2, 3)), np.array([0, 1])), (np.ones((1, 3)), np.array([1]))]
    >>> provider = IteratorProvider(pairs)
    >>> provider.provide_data, provider.provide_label
    ([('data', (2, 3))], [('softmax_label', (2,))])
    >>> [batch.count_samples for batch in provider]
    [2, 1]
    """

    @check_arguments(LoaderError)
    def __init__(
        self,
        iterable: Iterable[Any],
        *,
        batch_size: int | None = None,
        label: str | Sequence[str] = (),
        data_name: str = "data",
        label_name: str = "softmax_label",
        data_padding: Any = 0,
        label_padding: Any = 0,
        axes: BatchAxis = "first",
    ) -> None:
        size = None if batch_size is None else integer("batch_size", batch_size, least=1)
        super().__init__(axes, data_padding, label_padding, size)
        once = _Once(iterable).begin if isinstance(iterable, Iterator) else None
        self._passes: Callable[[int], Iterator[Any]] = once or partial(_again, iterable)
        self._names = data_name, label_name
        self._labels = (label,) if isinstance(label, str) else tuple(label)

    def _begin(self, number: int) -> Iterator[DataBatch]:
        return (one for one in map(self._batch, self._passes(number)) if one.count_samples)

    def _batch(self, item: Any) -> DataBatch:
        """Return an item as a batch whose batch axis is first, and which nobody fills again."""
        if isinstance(item, Batch):
            return self._divided(item.examples_first().arrays, item.count)
        if isinstance(item, DataBatch):
            data, label = (
                {name: _axis_first(array, item.axes) for name, array in arrays.items()}
                for arrays in (item.named_data, item.named_label)
            )
            return DataBatch(data, label, item.count_samples)
        if isinstance(item, Mapping):
            return self._divided(
                {str(name): owned_copy(samples_of(str(name), one)) for name, one in item.items()}
            )
        parts, pad = (item, None), 0
        if hasattr(item, "data") and hasattr(item, "label") and not is_array(item):
            parts, pad = (item.data, item.label), int(getattr(item, "pad", None) or 0)
        elif isinstance(item, tuple | list) and len(item) == 2 and not isinstance(item[0], str):
            parts = tuple(item)
        data, label = (
            {n: owned_copy(samples_of(n, one)) for n, one in numbered_arrays(part, name).items()}
            for part, name in zip(parts, self._names, strict=True)
        )
        batch = DataBatch(data, label)
        n = batch.batch_size
        if not 0 <= pad <= n:
            raise ArrayError(f"a batch of {n} samples cannot have pad={pad} padded ones")
        return DataBatch(data, label, n - pad)

    def _divided(self, arrays: Arrays, count: int = ALL) -> DataBatch:
        """Divide arrays by name into data and labels."""
        check_known("label= names", self._labels, arrays, "an array of the batch")
        labels = self._labels or self._names[1:]
        data = {name: array for name, array in arrays.items() if name not in labels}
        return DataBatch(data, {n: a for n, a in arrays.items() if n in labels}, count)


def _axis_first(array: Array, axes: BatchAxis) -> Array:
    last = len(array.shape) - 1
    return array if axes == "first" else permute_dims(array, (last, *range(last)))


class _Once:
    """Passes of one iterator: the first one, and one after each ``reset()`` it may have."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items, self._number = items, 0

    def begin(self, number: int) -> Iterator[Any]:
        remedy = "give a list, a loader, or the function that makes the iterator to provider()"
        if number:
            reset = getattr(self._items, "reset", None)
            if reset is None:
                raise LoaderError(f"an iterator without reset() is looped over once; {remedy}")
            reset()
        self._number = number
        for item in self._items:
            yield item
            if number != self._number:
                wrong = "this loop ended when another one over the same iterator began"
                raise LoaderError(f"{wrong}; {remedy}")


def _again(items: Iterable[Any], _number: int) -> Iterator[Any]:
    """Begin a pass over what can be looped over again and again."""
    return iter(items)


def _called(function: BatchMaker, seed: int | None, number: int) -> Iterator[Any]:
    """Begin a pass over what a function yields."""
    drawn = []
    if seed is not None:
        drawn = [np.random.Generator(np.random.Philox(key=key_of(seed, number, "provider")))]
    made = function(*drawn)
    if not hasattr(made, "__iter__"):
        title, found = getattr(function, "__qualname__", function), type(made).__name__
        wrong = f"{title} returned {found}, which yields no batches"
        raise LoaderError(f"{wrong}; let it yield them, or return an iterable")
    return iter(made)


def provider(
    function: BatchMaker | None = None, /, *, seed: int | None = None, **options: Any
) -> Any:
    """Make a provider of a function that yields batches; also as a decorator.

    The function is called for each loop anew, so loops are independent.

    Parameters
    ----------
    function : generator function
        Yields what :class:`IteratorProvider` takes.
    seed : int, optional
        The function is then called with a :class:`numpy.random.Generator` that is a function
        of the seed and the number of the loop.
    **options
        As for :class:`IteratorProvider`.

    Returns
    -------
    DataProvider

    Examples
    --------
    >>> @provider(seed=7)
    ... def noise(rng):
    ...     for _ in range(2):
    ...         yield rng.random((3, 4)), rng.integers(0, 2, 3)
    >>> noise.provide_data, len(list(noise))
    ([('data', (3, 4))], 2)
    """
    if function is None:
        return lambda made: provider(made, seed=seed, **options)
    if not callable(function):
        raise LoaderError(
            f"provider() takes a function that yields batches, not {type(function).__name__}; "
            "an iterable goes into IteratorProvider"
        )
    seed = None if seed is None else integer("seed", seed)
    found = IteratorProvider((), **options)
    found._passes = partial(_called, function, seed)
    return found
