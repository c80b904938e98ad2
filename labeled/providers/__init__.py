"""Data providers: data from anywhere, split into mini-batches that are consumed in one way.

A provider has a `batch_size`, declares the names and shapes of its data and labels, and is
looped over again and again, each loop a pass of its own. Arrays are always whole batches;
``batch.count_samples`` is the number of samples that are real. Data and labels differ in use alone:
both are fed in training, data alone in prediction. Unlike those of older libraries, a
batch stays what it was, every epoch is complete, and a seed governs all randomness. The old
iterators, with their behaviour to the letter, are in :mod:`labeled.compat.mxnet`.

Over a loader, one plan is made, and each loop runs a loader of its own over it, so that loops may
be nested or run side by side. Loop number k, counted from the first one begun, is epoch k. What
others iterate is turned into batches of the names and shapes that the first one had: copied,
because foreign iterators like to fill the same memory again, and padded where it is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from itertools import chain
from threading import Lock
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from labeled import permute
from labeled._validation import check_arguments, check_keywords, flag, keywords_of
from labeled.device import (
    Array,
    Device,
    adopted,
    dtype_of,
    is_array,
    is_foreign,
    namespace,
    owned_copy,
    permute_dims,
    to_host,
)
from labeled.errors import ArrayError, LoaderError, UnknownNameError, did_you_mean
from labeled.loader.batch import Batch
from labeled.loader.layout import can_hold, padding_of
from labeled.loader.loader import Loader
from labeled.loader.options import BatchOptions, Shuffle, integer
from labeled.loader.plan import LoaderPlan
from labeled.providers.batch import (
    ALL,
    BatchAxis,
    DataBatch,
    batch_axis_of,
    device_slices,
    moved_order,
)
from labeled.samplers.permutation import key_of
from labeled.samplers.windows import shard_bounds
from labeled.selection import Selection
from labeled.sources.source import Source

__all__ = [
    "ArrayDataProvider",
    "DataBatch",
    "DataProvider",
    "IteratorProvider",
    "device_slices",
    "provider",
]

Lengths = Mapping[str, tuple[int, ...]]
"""Lengths of the axes of one sample, by the name of the array."""

COUNTING = Lock()
"""Held while the number of a loop is taken."""


# providers


def lengths_of(batch: DataBatch) -> tuple[Lengths, Lengths]:
    """Return the lengths of one sample of data and labels; the batch axis is first."""
    return (
        {name: tuple(array.shape[1:]) for name, array in batch.named_data.items()},
        {name: tuple(array.shape[1:]) for name, array in batch.named_label.items()},
    )


class DataProvider:
    """Mini-batches of named arrays; each loop over it is a pass of its own.

    Every array of every batch has the shape declared, also where
    :attr:`~labeled.providers.DataBatch.count_samples` is less than the batch size.

    Parameters
    ----------
    begin : callable
        Begins the pass of a number, from 0 on; given None, one that does not count. Batch axes of
        what it yields are first. Batches without samples are left out.
    axes : {"first", "last"}
        Where the batch axis of what is handed out stands.
    data_padding, label_padding : scalar
        Fill the samples that a batch lacks.
    batch_size : int, optional
        That of the first batch when not given.
    """

    def __init__(
        self,
        begin: Callable[[int | None], Iterator[DataBatch]],
        axes: BatchAxis = "first",
        data_padding: Any = 0,
        label_padding: Any = 0,
        batch_size: int | None = None,
    ) -> None:
        self._begin, self._n_begun = begin, 0
        self._axes = batch_axis_of(axes)
        self._padding = data_padding, label_padding
        self._asked_size = batch_size

    @cached_property
    def _declared(self) -> tuple[int, Lengths, Lengths]:
        """The batch size, data and labels, learnt from the first batch of a pass begun for it."""
        for batch in self._begin(None):
            if batch.count_samples:
                return self._asked_size or batch.batch_size, *lengths_of(batch)
        raise LoaderError("this provider yields no batch, so its shapes are unknown")

    def eachbatch(self) -> Iterator[DataBatch]:
        """Begin a pass; loops that are still running go on."""
        with COUNTING:
            number, self._n_begun = self._n_begun, self._n_begun + 1
        return self._batches(self._begin(number))

    def __iter__(self) -> Iterator[DataBatch]:
        return self.eachbatch()

    def _batches(self, batches: Iterator[DataBatch]) -> Iterator[DataBatch]:
        for number, batch in enumerate(batches):
            if not batch.count_samples:
                continue
            found = data, label = lengths_of(batch)
            size = self._asked_size or batch.batch_size
            size, *first = self.__dict__.setdefault("_declared", (size, data, label))
            if found != tuple(first):
                raise ArrayError(
                    f"batch {number} holds data {data} and labels {label}, the first one "
                    f"{first[0]} and {first[1]} (lengths of one sample)"
                )
            if batch.batch_size > size:
                raise ArrayError(
                    f"batch {number} holds {batch.batch_size} samples; give at most the batch size "
                    f"{size}"
                )
            yield self._finished(batch)

    @property
    def batch_size(self) -> int:
        """Samples of every batch, padding counted."""
        return self._declared[0]

    @property
    def provide_data(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the data, batch axis included, in the order of ``batch.data``."""
        return self._provided(self._declared[1])

    @property
    def provide_label(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the labels, batch axis included; may be empty."""
        return self._provided(self._declared[2])

    def _provided(self, lengths: Lengths) -> list[tuple[str, tuple[int, ...]]]:
        size = self.batch_size
        return [(name, moved_order((size, *one), self._axes)) for name, one in lengths.items()]

    def _finished(self, batch: DataBatch) -> DataBatch:
        """Pad a batch whose batch axis is first, and put that axis where it is wanted."""
        data_padding, label_padding = self._padding
        data = {n: self._whole(array, data_padding) for n, array in batch.named_data.items()}
        label = {n: self._whole(array, label_padding) for n, array in batch.named_label.items()}
        rows, missing = batch.rows, self.batch_size - batch.batch_size
        if rows is not None and missing:
            rows = np.append(rows, np.full(missing, -1))
        return DataBatch(data, label, batch.count_samples, rows, self._axes)

    def _whole(self, array: Array, padding: Any) -> Array:
        """Return an array padded to the batch size, its batch axis where it is wanted."""
        n, size = int(array.shape[0]), self.batch_size
        if n < size:
            dtype = dtype_of(array)
            if not can_hold(dtype, padding):
                raise LoaderError(
                    f"a short batch of dtype {dtype} cannot be padded with {padding!r}; give "
                    "data_padding or label_padding"
                )
            shape, value = (size, *array.shape[1:]), padding_of(dtype, padding)
            padded = namespace(array).full(shape, value, dtype=array.dtype)
            padded[:n, ...] = array
            array = padded
        if self._axes == "last" and len(array.shape) > 1:
            return permute.copy(array, (*range(1, len(array.shape)), 0))
        return array

    def __repr__(self) -> str:
        if "_declared" not in self.__dict__:
            return f"<labeled.providers.{type(self).__name__}, its shapes not known yet>"
        data = ", ".join(f"{name} {shape}" for name, shape in self.provide_data)
        labels = ", ".join(f"{name} {shape}" for name, shape in self.provide_label) or "none"
        return (
            f"<labeled.providers.{type(self).__name__}: batches of {self.batch_size} samples; "
            f"data {data}; labels {labels}>"
        )


# over a loader


LABEL_NAMES = frozenset({"label", "labels", "target", "targets", "y"})
"""Sources that are labels where nobody says which are."""

OPTIONS = (
    *("batch_size", "data_padding", "label_padding", "roll_over", "axes", "shuffle", "seed"),
    *("shard", "window_rows", "memory", "threads", "prefetch", "dtype", "scale", "shift"),
    *("errors", "max_lost", "device"),
)
"""What a caller of ``as_provider`` may name; all but the first five are options of ``batches``."""

Names = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True)
class _Epochs:
    """Passes over sources that a loader serves, by the name that each is provided under."""

    loader: Loader
    data: Mapping[str, str]
    label: Mapping[str, str]

    @property
    def n_samples(self) -> int:
        plan = self.loader.plan.epoch_plan
        start, stop = shard_bounds(plan.order.n_rows, *plan.shard)
        return stop - start

    def __call__(self, epoch: int | None) -> Iterator[DataBatch]:
        loader = Loader(self.loader.plan)
        loader.set_epoch(epoch or 0)
        return self._batches(loader)

    def _batches(self, loader: Loader) -> Iterator[DataBatch]:
        skips = loader.plan.options.skips
        with iter(loader) as batches:
            for number, batch in enumerate(batches):
                left = max(self.n_samples - number * loader.batch_size, 0)
                if not batch.count and (skips or not left):
                    continue
                data, label = (
                    {name: batch.arrays[source] for name, source in names.items()}
                    for names in (self.data, self.label)
                )
                yield DataBatch(data, label, min(left, batch.count), batch.rows)


class LoaderProvider(DataProvider):
    """Sources served by a loader; loop number k is epoch k."""

    _begin: _Epochs

    @property
    def seed(self) -> int:
        """What every epoch's order is drawn from; chosen once when not given."""
        return self._begin.loader.plan.epoch_plan.order.seed

    @property
    def n_samples(self) -> int:
        """Samples of an epoch of this shard."""
        return self._begin.n_samples

    def __len__(self) -> int:
        """Batches of an epoch of this shard; those that ``errors="skip"`` empties are left out."""
        plan = self._begin.loader.plan.epoch_plan
        return plan.n_batches if plan.last == "wrap" else -(-self.n_samples // self.batch_size)


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
    label_names = [name for name in shapes if name in LABEL_NAMES]
    label = _by_name("label", names[1], shapes, label_names)
    others = [name for name in shapes if name not in label.values()]
    data = _by_name("data", names[0], shapes, others)
    if not data:
        raise LoaderError("a provider needs at least one array of data")
    for name in data.keys() & label.keys():
        raise LoaderError(f"the name {name!r} is given twice among data and labels")
    if flag("roll_over", roll_over, error=LoaderError) and loading.get("errors") == "skip":
        raise LoaderError(
            "errors='skip' leaves rows out, so that a last batch is not filled up with others: "
            "pad it instead (roll_over=False)"
        )
    used = list(dict.fromkeys([*data.values(), *label.values()]))
    size = integer("batch_size", batch_size, least=0) or shapes[used[0]][0]
    if not size:
        raise LoaderError("there are no samples to take at once; give a batch_size")
    padding = dict.fromkeys(label.values(), label_padding)
    padding |= dict.fromkeys(data.values(), data_padding)
    last = {"last": "wrap"} if roll_over else {"last": "pad", "pad_value": padding}
    loader = served(used, size, **loading, **last)
    made = LoaderProvider(_Epochs(loader, data, label), axes, data_padding, label_padding)
    inner = [{n: shapes[source][1:] for n, source in some.items()} for some in (data, label)]
    made._declared = size, inner[0], inner[1]
    return made


def _by_name(
    option: str, asked: Names | None, sources: Mapping[str, Any], default: Sequence[str]
) -> dict[str, str]:
    """Return the source behind each name to provide."""
    names = default if asked is None else (asked,) if isinstance(asked, str) else asked
    found = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    if len(found) < len(names):
        again = next(name for name in found if list(names).count(name) > 1)
        raise LoaderError(
            f"{option}= names {again!r} twice; give it two names by a mapping from name to source"
        )
    for name in found.values():
        if name not in sources:
            raise UnknownNameError(f"no source {name!r} to provide; {did_you_mean(name, sources)}")
    return found


@check_arguments(LoaderError)
def ArrayDataProvider(
    data: Any,
    label: Any = None,
    batch_size: int = 0,
    shuffle: Shuffle = False,
    data_padding: Any = 0,
    label_padding: Any = 0,
    *,
    roll_over: bool = False,
    seed: int | None = None,
    axes: BatchAxis = "first",
    shard: tuple[int, int] = (0, 1),
    memory: float | str | None = None,
    device: str | Device = "cpu",
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
    roll_over : bool
        Fill them with samples of the same epoch instead, beginning at its first one.
        ``count_samples`` tells the real ones either way. All parts then have as many batches,
        also one that has no sample of its own, where none is real.
    seed : int, optional
        Every order is a function of it and the epoch; drawn once when not given.
    axes : {"first", "last"}
        Where the batch axis of what is handed out stands.
    shard : (index, count)
        Which share of every epoch is served.
    memory : size
        The most that a loop over lazy arrays adds to the memory of the process.
    device : "cpu", "cuda", "cuda:<n>" or Device
        Where batches are made; as for :meth:`labeled.Dataset.batches`.

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
    given = (
        named_arrays(data, "data"),
        named_arrays([] if label is None else label, "softmax_label"),
    )
    names = [[name for name, _ in pairs] for pairs in given]
    for name in (all_names := [*names[0], *names[1]]):
        if all_names.count(name) > 1:
            raise LoaderError(f"the name {name!r} is given twice among data and labels {all_names}")
    sources = {name: _source_of(name, array) for pairs in given for name, array in pairs}
    counts = {name: source.n_rows for name, source in sources.items()}
    if len(set(counts.values())) > 1:
        raise LoaderError(f"data and labels hold different numbers of samples: {counts}")

    def served(used: list[str], size: int, **options: Any) -> Loader:
        rows = {name: Selection.all(n) for name, n in counts.items()}
        return Loader(LoaderPlan(sources, rows, {}, counts[used[0]], BatchOptions(size, **options)))

    return provider_of(
        served,
        {name: (source.n_rows, *source.row_shape) for name, source in sources.items()},
        names,
        batch_size=batch_size,
        data_padding=data_padding,
        label_padding=label_padding,
        roll_over=roll_over,
        axes=axes,
        shuffle=shuffle,
        seed=seed,
        shard=shard,
        memory=memory,
        device=device,
    )


def _source_of(name: str, array: Any) -> Source:
    """Return an array as a source of the loader, samples first."""
    dims: tuple[Any, ...] = ()
    if isinstance(array, xr.DataArray) and array.dims:
        array = _batch_first(array)
        dims, array = array.dims, array.data
    is_lazy = is_dask_collection(array)
    values = array if is_lazy else samples_of(name, array)
    inner = dims[1:] or tuple(f"{name}_{axis}" for axis in range(1, values.ndim))
    dims = ("batch", *map(str, inner))
    if is_lazy:
        _check_unmasked(name, array._meta)
        return Source.of_lazy(xr.DataArray(array, dims=dims), "batch", name)
    values = to_host(values)
    return Source.of_array(name, dims, values.astype(values.dtype.newbyteorder("="), copy=False))


# over what others iterate


@check_arguments(LoaderError)
def IteratorProvider(
    iterable: Iterable[Any],
    *,
    batch_size: int | None = None,
    label: str | Sequence[str] = (),
    data_name: str = "data",
    label_name: str = "softmax_label",
    data_padding: Any = 0,
    label_padding: Any = 0,
    axes: BatchAxis = "first",
) -> DataProvider:
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
    labels = (label,) if isinstance(label, str) else tuple(label)
    items = _Once(iterable) if isinstance(iterable, Iterator) else iterable
    size = None if batch_size is None else integer("batch_size", batch_size, least=1)
    begin = _Foreign(items, labels, data_name, label_name)
    return DataProvider(begin, axes, data_padding, label_padding, size)


@dataclass(frozen=True)
class _Foreign:
    """Passes over what others iterate, as batches whose batch axis is first."""

    items: Iterable[Any]
    label: tuple[str, ...]
    data_name: str
    label_name: str

    def __call__(self, number: int | None) -> Iterator[DataBatch]:
        items = self.items
        begun = items.begin(number) if isinstance(items, _Once | _Calls) else iter(items)
        return map(self._batch, begun)

    def _batch(self, item: Any) -> DataBatch:
        if isinstance(item, Batch):
            return self._by_name(item.arrays, item.count)
        if isinstance(item, DataBatch):
            given = (item.named_data, item.named_label)
            first = [{n: _axis_first(a, item.axes) for n, a in arrays.items()} for arrays in given]
            return DataBatch(first[0], first[1], item.count_samples)
        if isinstance(item, Mapping):
            return self._copied(self._by_name(item))
        data: Any = item
        label: Any = None
        pad = 0
        if hasattr(item, "data") and hasattr(item, "label") and not is_array(item):
            data, label, pad = item.data, item.label, int(getattr(item, "pad", None) or 0)
        elif isinstance(item, tuple | list) and len(item) == 2 and not isinstance(item[0], str):
            data, label = item
        labels = {} if label is None else _named(label, self.label_name)
        return self._copied(DataBatch(_named(data, self.data_name), labels), pad)

    def _copied(self, batch: DataBatch, pad: int = 0) -> DataBatch:
        """Return a batch whose arrays nobody fills again."""
        n = batch.batch_size
        if not 0 <= pad <= n:
            raise ArrayError(f"a batch of {n} samples cannot have pad={pad} padded ones")
        data = {name: owned_copy(array) for name, array in batch.named_data.items()}
        label = {name: owned_copy(array) for name, array in batch.named_label.items()}
        return DataBatch(data, label, n - pad)

    def _by_name(self, given: Mapping[str, Any], count: int = ALL) -> DataBatch:
        for name in self.label:
            if name not in given:
                hint = did_you_mean(name, map(str, given))
                raise UnknownNameError(f"a batch has no array {name!r} for a label; {hint}")
        labels = self.label or (self.label_name,)
        arrays = {str(name): samples_of(str(name), array) for name, array in given.items()}
        return DataBatch(
            {name: array for name, array in arrays.items() if name not in labels},
            {name: array for name, array in arrays.items() if name in labels},
            count,
        )


class _Once:
    """Passes of one iterator: the first one, and one after each ``reset()`` it may have."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items, self._number = items, -1
        self._held: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        return self.begin(None)

    def begin(self, number: int | None) -> Iterator[Any]:
        if number is None:
            return self._looked_at()
        if number:
            reset = getattr(self._items, "reset", None)
            if reset is None:
                raise LoaderError(
                    "an iterator without reset() is looped over once; give a list, a loader, or "
                    "the function that makes the iterator to provider()"
                )
            self._held = []
            reset()
        self._number = number
        return self._pass(number)

    def _looked_at(self) -> Iterator[Any]:
        """Yield what the coming pass is still to hand out."""
        for item in self._items:
            self._held.append(item)
            yield item

    def _pass(self, number: int) -> Iterator[Any]:
        held, self._held = self._held, []
        for item in chain(held, self._items):
            yield item
            if number != self._number:
                raise LoaderError(
                    "this loop ended when another one over the same iterator began; give a "
                    "list, a loader, or the function that makes the iterator to provider()"
                )


@dataclass(frozen=True)
class _Calls:
    """Passes of a function that is called for each of them."""

    function: Callable[..., Iterable[Any]]
    seed: int | None

    def __iter__(self) -> Iterator[Any]:
        return self.begin(None)

    def begin(self, number: int | None) -> Iterator[Any]:
        if self.seed is None:
            made = self.function()
        else:
            bits = np.random.Philox(key=key_of(self.seed, number or 0, "provider"))
            made = self.function(np.random.Generator(bits))
        if not hasattr(made, "__iter__"):
            raise LoaderError(
                f"{_title(self.function)} returned {type(made).__name__}, which yields no batches; "
                "let it yield them, or return an iterable"
            )
        return iter(made)


def _title(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def provider(
    function: Callable[..., Iterable[Any]] | None = None,
    /,
    *,
    seed: int | None = None,
    **options: Any,
) -> Any:
    """Make a provider of a function that yields batches; also as a decorator.

    The function is called for each loop anew, so loops are independent, and once more when
    names and shapes are asked for before the first loop.

    Parameters
    ----------
    function : generator function
        Yields what :func:`IteratorProvider` takes.
    seed : int, optional
        The function is then called with a :class:`numpy.random.Generator` that is a function
        of the seed and the number of the loop.
    **options
        As for :func:`IteratorProvider`.

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
    known = [name for name in keywords_of(IteratorProvider) if name != "iterable"]
    check_keywords("provider", options, known, ["seed"])
    if function is None:
        return lambda made: provider(made, seed=seed, **options)
    if not callable(function):
        raise LoaderError(
            f"provider() takes a function that yields batches, not {type(function).__name__}; "
            "an iterable goes into IteratorProvider"
        )
    key = None if seed is None else integer("seed", seed)
    try:
        signature(function).bind(*([] if seed is None else [None]))
    except TypeError as error:
        raise LoaderError(
            f"{_title(function)}: {error}; a provider calls its function with nothing, or, given a "
            "seed=, with a generator"
        ) from None
    except ValueError:  # written in C, without a signature
        pass
    return IteratorProvider(_Calls(function, key), **options)


# arrays and their names


def _axis_first(array: Array, axes: BatchAxis) -> Array:
    if axes == "first" or len(array.shape) < 2:
        return array
    last = len(array.shape) - 1
    return permute_dims(array, (last, *range(last)))


def _batch_first(array: xr.DataArray) -> xr.DataArray:
    return array.transpose("batch" if "batch" in array.dims else array.dims[0], ...)


def _named(given: Any, name: str) -> dict[str, Array]:
    """Name arrays that have no name: one by `name`, several by ``_0_name``, ``_1_name``."""
    pairs = named_arrays(given, name)
    if isinstance(given, list | tuple) and given and all(map(_is_one, given)):
        names = [name] if len(given) == 1 else [f"_{i}_{name}" for i in range(len(given))]
        pairs = list(zip(names, given, strict=True))
    arrays = {n: samples_of(n, one) for n, one in pairs}
    if len(arrays) < len(pairs):
        raise ArrayError(f"a batch has two arrays of one name: {[n for n, _ in pairs]}")
    return arrays


def _is_one(value: Any) -> bool:
    return is_array(value) or hasattr(value, "asnumpy") or hasattr(value, "__array__")


def named_arrays(given: Any, name: str) -> list[tuple[str, Any]]:
    """Return (name, array) pairs: of one array, one pair, a list of pairs or a mapping.

    Examples
    --------
    >>> [n for n, _ in named_arrays([("x", np.zeros(3)), ("y", np.zeros(3))], "data")]
    ['x', 'y']
    >>> [n for n, _ in named_arrays([1.0, 2.0], "data")]
    ['data']
    """
    if isinstance(given, Mapping):
        pairs: list[Any] = list(given.items())
    elif _is_pair(given):
        pairs = [given]
    elif isinstance(given, list | tuple) and any(map(_is_pair, given)):
        pairs = list(given)
    else:
        return [] if isinstance(given, list | tuple) and not given else [(name, given)]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ArrayError(f"{pair!r:.60} must be a (name, array) pair")
        if not isinstance(pair[0], str):
            raise ArrayError(f"the name {pair[0]!r:.60} of an array must be text")
    return pairs


def _is_pair(given: Any) -> bool:
    """Whether a name stands beside an array; a key of another type is still meant as a name."""
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    return isinstance(given[0], str) or (_has_axes(given[1]) and not _has_axes(given[0]))


def _has_axes(value: Any) -> bool:
    return isinstance(value, list | tuple) or bool(getattr(value, "shape", ()))


def samples_of(name: str, value: Any) -> Array:
    """Return what was given as an array at hand whose first axis counts samples.

    Parameters
    ----------
    name : str
        What errors call it.
    value : array of any library, DataArray, or nested lists of numbers
        Lazy ones are computed.

    Returns
    -------
    array
        Of NumPy, CuPy or the array-API standard: `value` itself or its memory where it has some.

    Raises
    ------
    ArrayError
        If it makes no array, or one of objects, without axes, or with a mask that would be lost.

    Examples
    --------
    >>> samples_of("x", [[1, 2], [3]])
    Traceback (most recent call last):
    labeled.errors.ArrayError: 'x' must be an array of samples: ... inhomogeneous shape ...
    """
    if isinstance(value, xr.DataArray) and value.dims:
        value = _batch_first(value)
    if is_dask_collection(value):
        value = value.compute()
    _check_unmasked(name, value)
    try:
        found = adopted(value) if is_foreign(value) else value
        if not is_array(found):
            found = found.asnumpy() if hasattr(found, "asnumpy") else np.asarray(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArrayError(f"{name!r} must be an array of samples: {error}") from None
    if dtype_of(found).kind == "O" or not found.shape:
        raise ArrayError(
            f"{name!r} must be an array of samples: {type(value).__name__} {value!r:.60} makes "
            f"one of shape {tuple(found.shape)} and dtype {found.dtype}"
        )
    return found


def _check_unmasked(name: str, value: Any) -> None:
    """Raise :class:`ArrayError` for a masked array, whose mask nobody would see."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArrayError(
            f"{name!r} is a masked array, whose mask would be lost; give it with its gaps filled"
        )
