"""Data providers: a class over passes of batches, and functions that make it of anything.

A provider wraps data from anywhere and splits it into mini-batches that are consumed in one
way. Data and labels differ in use alone: both are fed in training, data alone in prediction.

Over a loader, one plan is made, and each loop runs a loader of its own over it: loops share
readers, and nothing that moves, so they may be nested or run side by side (each within the `memory`
given). Loop number k, counted from the first one begun, is epoch k. What others iterate is turned
into batches of the names and shapes that the first one had: copied, because foreign iterators like
to fill the same memory again, and padded where it is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
from labeled.loader.plan import plan_batches
from labeled.providers.batch import ALL, BatchAxis, DataBatch, batch_axis_of, moved_order
from labeled.samplers.permutation import key_of
from labeled.samplers.windows import shard_bounds
from labeled.selection import Selection
from labeled.sources.blocks import BlockSource
from labeled.sources.source import AnySource, Source

Provided = tuple[str, tuple[int, ...]]
"""Name and full shape of an array, batch axis included."""

COUNTING = Lock()
"""Held while the number of a loop is taken, by whoever begins one."""


@dataclass(frozen=True)
class Shapes:
    """The batch size, and the names and lengths of one sample of data and labels."""

    batch_size: int
    data: Mapping[str, tuple[int, ...]]
    label: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, batch: DataBatch, size: int | None) -> Shapes:
        """Return the shapes of a batch whose batch axis is first."""
        data, label = (
            {name: tuple(array.shape[1:]) for name, array in arrays.items()}
            for arrays in (batch.named_data, batch.named_label)
        )
        return cls(batch.batch_size if size is None else size, data, label)


class DataProvider:
    """Mini-batches of named arrays; each loop over it is a pass of its own.

    Every array of every batch has the shape declared, also where
    :attr:`~labeled.providers.DataBatch.count_samples` is less than the batch size.

    Parameters
    ----------
    passes : iterable of DataBatch
        Each ``iter()`` begins a pass; batch axes are first. Batches without samples are left out.
    axes : {"first", "last"}
        Where the batch axis of what is handed out stands.
    data_padding, label_padding : scalar
        Fill the samples that a batch lacks.
    shapes : Shapes, optional
        Learnt from the first batch when not given.
    batch_size : int, optional
        That of the first batch when not given.
    copy : bool
        Copy arrays, so that batches stay what they were.
    """

    def __init__(
        self,
        passes: Iterable[DataBatch],
        axes: BatchAxis = "first",
        data_padding: Any = 0,
        label_padding: Any = 0,
        *,
        shapes: Shapes | None = None,
        batch_size: int | None = None,
        copy: bool = False,
    ) -> None:
        self._passes = passes
        self._axes = batch_axis_of(axes)
        self._padding = data_padding, label_padding
        self._asked_size, self._copy = batch_size, copy
        if shapes is not None:
            self._shapes = shapes

    @cached_property
    def _shapes(self) -> Shapes:
        """Names and shapes, learnt from the first batch of a pass that is begun for it."""
        peek = getattr(self._passes, "peek", self._passes.__iter__)
        found = next((one for one in peek() if one.count_samples), None)
        if found is None:
            raise LoaderError("this provider yields no batch, so its shapes are unknown")
        return Shapes.of(found, self._asked_size)

    def eachbatch(self) -> Iterator[DataBatch]:
        """Begin a pass; loops that are still running go on."""
        return self._batches(iter(self._passes))

    def __iter__(self) -> Iterator[DataBatch]:
        return self.eachbatch()

    def _batches(self, batches: Iterator[DataBatch]) -> Iterator[DataBatch]:
        for number, batch in enumerate(batches):
            if not batch.count_samples:
                continue
            first = self.__dict__.setdefault("_shapes", Shapes.of(batch, self._asked_size))
            found = Shapes.of(batch, None)
            if (found.data, found.label) != (first.data, first.label):
                raise ArrayError(
                    f"batch {number} holds data {found.data} and labels {found.label}, the first "
                    f"one {first.data} and {first.label} (lengths of one sample)"
                )
            if batch.batch_size > first.batch_size:
                raise ArrayError(
                    f"batch {number} holds {batch.batch_size} samples; give at most the batch size "
                    f"{first.batch_size}"
                )
            yield self._finished(batch)

    @property
    def batch_size(self) -> int:
        """Samples of every batch, padding counted."""
        return self._shapes.batch_size

    @property
    def provide_data(self) -> list[Provided]:
        """Names and shapes of the data, batch axis included, in the order of ``batch.data``."""
        return self._provided(self._shapes.data)

    @property
    def provide_label(self) -> list[Provided]:
        """Names and shapes of the labels, batch axis included; may be empty."""
        return self._provided(self._shapes.label)

    def _provided(self, shapes: Mapping[str, tuple[int, ...]]) -> list[Provided]:
        return [
            (name, moved_order((self.batch_size, *shape), self._axes))
            for name, shape in shapes.items()
        ]

    def _finished(self, batch: DataBatch) -> DataBatch:
        """Pad a batch whose batch axis is first, and put that axis where it is wanted."""
        data, label = (
            {name: self._whole(array, padding) for name, array in arrays.items()}
            for arrays, padding in zip(
                (batch.named_data, batch.named_label), self._padding, strict=True
            )
        )
        rows, missing = batch.rows, self.batch_size - batch.batch_size
        if rows is not None and missing:
            rows = np.append(rows, np.full(missing, -1))
        dims = {name: moved_order(one, self._axes) for name, one in batch.dims.items()}
        return DataBatch(data, label, batch.count_samples, rows, self._axes, dims)

    def _whole(self, array: Array, padding: Any) -> Array:
        """Return an array padded to the batch size, its batch axis where it is wanted."""
        n, size, given = int(array.shape[0]), self.batch_size, array
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
        return owned_copy(array) if self._copy and array is given else array

    def __repr__(self) -> str:
        if "_shapes" not in self.__dict__:
            return f"<labeled.providers.{type(self).__name__}, its shapes not known yet>"
        data = ", ".join(f"{name} {shape}" for name, shape in self.provide_data)
        labels = ", ".join(f"{name} {shape}" for name, shape in self.provide_label) or "none"
        return (
            f"<labeled.providers.{type(self).__name__}: batches of {self.batch_size} samples; "
            f"data {data}; labels {labels}>"
        )


# over a loader


class Epochs:
    """Passes over sources that a loader serves.

    Parameters
    ----------
    loader : Loader
    data, label : mapping of str to str
        The source behind each name to provide.
    """

    def __init__(self, loader: Loader, data: Mapping[str, str], label: Mapping[str, str]) -> None:
        self.plan, self._data, self._label, self._epoch = loader.plan, data, label, 0

    @property
    def n_samples(self) -> int:
        """Samples of an epoch of this shard."""
        plan = self.plan.epoch_plan
        start, stop = shard_bounds(plan.order.n_rows, *plan.shard)
        return stop - start

    def __iter__(self) -> Iterator[DataBatch]:
        with COUNTING:
            epoch, self._epoch = self._epoch, self._epoch + 1
        plan = self.plan.epoch_plan.at_epoch(epoch)
        return self._batches(Loader(replace(self.plan, epoch_plan=plan)))

    def _batches(self, loader: Loader) -> Iterator[DataBatch]:
        skips, size = self.plan.options.skips, loader.batch_size
        with iter(loader) as batches:
            for number, batch in enumerate(batches):
                left = max(self.n_samples - number * size, 0)
                if not batch.count and (skips or not left):
                    continue
                data, label = (
                    {name: batch.arrays[source] for name, source in names.items()}
                    for names in (self._data, self._label)
                )
                named = {**self._data, **self._label}
                dims = {name: tuple(batch[source].dims) for name, source in named.items()}
                yield DataBatch(data, label, min(left, batch.count), batch.rows, dims=dims)


class LoaderProvider(DataProvider):
    """Sources served by a loader; loop number k is epoch k."""

    _passes: Epochs

    @property
    def seed(self) -> int:
        """What every epoch's order is drawn from; chosen once when not given."""
        return self._passes.plan.epoch_plan.order.seed

    @property
    def n_samples(self) -> int:
        """Samples of an epoch of this shard."""
        return self._passes.n_samples

    def __len__(self) -> int:
        """Batches of an epoch of this shard; those that ``errors="skip"`` empties are left out."""
        if self._passes.plan.epoch_plan.last == "wrap":
            return self._passes.plan.epoch_plan.n_batches
        return -(-self.n_samples // self.batch_size)


LABEL_NAMES = frozenset({"label", "labels", "target", "targets", "y"})
"""Sources that are labels where nobody says which are."""

OPTIONS = (
    *("batch_size", "data_padding", "label_padding", "roll_over", "axes", "shuffle", "seed"),
    *("shard", "window_rows", "memory", "threads", "prefetch", "dtype", "scale", "shift"),
    *("errors", "max_lost", "device"),
)
"""What a caller of ``as_provider`` may name; all but the first five are options of ``batches``."""

Names = str | Sequence[str] | Mapping[str, str]


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
    if roll_over:
        loading |= {"last": "wrap"}
    else:
        padding = dict.fromkeys(label.values(), label_padding)
        loading |= {
            "last": "pad",
            "pad_value": padding | dict.fromkeys(data.values(), data_padding),
        }
    loader = served(used, size, **loading)
    known = Shapes(size, *({n: shapes[s][1:] for n, s in some.items()} for some in (data, label)))
    passes = Epochs(loader, data, label)
    return LoaderProvider(passes, axes, data_padding, label_padding, shapes=known)


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
        return Loader(
            plan_batches(sources, rows, {}, counts[used[0]], BatchOptions(size, **options))
        )

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


def _source_of(name: str, array: Any) -> AnySource:
    """Return an array as a source of the loader, samples first."""
    dims: tuple[Any, ...] = ()
    if isinstance(array, xr.DataArray) and array.dims:
        array = array.transpose("batch" if "batch" in array.dims else array.dims[0], ...)
        dims, array = array.dims, array.data
    is_lazy = is_dask_collection(array)
    values = array if is_lazy else to_host(samples_of(name, array))
    inner = dims[1:] or tuple(f"{name}_{axis}" for axis in range(1, values.ndim))
    dims = ("batch", *map(str, inner))
    if is_lazy:
        _check_unmasked(name, array._meta)
        return BlockSource.of(xr.DataArray(array, dims=dims), "batch", name)
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
    copy: bool = True,
) -> DataProvider:
    """Provide what a foreign iterable yields.

    Each loop asks the iterable for a new iterator, so loops over a list or a loader are
    independent. An iterator that is its own iterable is looped over once, or as often as its
    ``reset()`` allows, by one loop at a time.

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
    copy : bool
        Copy what is yielded, so that batches stay what they were. False where the iterable
        makes new arrays each time.

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
    passes = Taken(items, labels, data_name, label_name)
    return DataProvider(passes, axes, data_padding, label_padding, batch_size=size, copy=copy)


@dataclass(frozen=True)
class Taken:
    """What was yielded, as batches whose batch axis is first."""

    items: Iterable[Any]
    label: tuple[str, ...]
    data_name: str
    label_name: str

    def __iter__(self) -> Iterator[DataBatch]:
        return map(self._taken, iter(self.items))

    def peek(self) -> Iterator[DataBatch]:
        """Begin a pass that does not count."""
        return map(self._taken, getattr(self.items, "peek", self.items.__iter__)())

    def _taken(self, item: Any) -> DataBatch:
        if isinstance(item, Batch):
            return self._by_name(item.arrays, item.count)
        if isinstance(item, DataBatch):
            data, label = (
                {name: _batch_first(array, item.axes) for name, array in arrays.items()}
                for arrays in (item.named_data, item.named_label)
            )
            return DataBatch(data, label, item.count_samples)
        if isinstance(item, Mapping):
            return self._by_name(item)
        if hasattr(item, "data") and hasattr(item, "label") and not is_array(item):
            batch, pad = self._listed(item.data, item.label), getattr(item, "pad", None)
            if pad is not None and not 0 <= pad <= batch.batch_size:
                raise ArrayError(
                    f"a batch of {batch.batch_size} samples cannot have pad={pad} padded ones"
                )
            return replace(batch, count_samples=batch.batch_size - int(pad or 0))
        if isinstance(item, tuple | list) and len(item) == 2 and not isinstance(item[0], str):
            return self._listed(item[0], item[1])
        return self._listed(item, None)

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

    def _listed(self, data: Any, label: Any) -> DataBatch:
        labels = {} if label is None else _named(label, self.label_name)
        return DataBatch(_named(data, self.data_name), labels)


class _Once:
    """Passes of one iterator: the first one, and one after each ``reset()`` it may have."""

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self._held: list[Any] = []
        self._begun = 0

    def peek(self) -> Iterator[Any]:
        """Yield what the coming pass is still to hand out."""
        for item in self._items:
            self._held.append(item)
            yield item

    def __iter__(self) -> Iterator[Any]:
        if self._begun:
            reset = getattr(self._items, "reset", None)
            if reset is None:
                raise LoaderError(
                    "an iterator without reset() is looped over once; give a list, a loader, or "
                    "the function that makes the iterator to provider()"
                )
            self._held = []
            reset()
        self._begun += 1
        return self._pass(self._begun)

    def _pass(self, number: int) -> Iterator[Any]:
        held, self._held = self._held, []
        for item in chain(held, self._items):
            yield item
            if number != self._begun:
                raise LoaderError(
                    "this loop ended when another one over the same iterator began; give a "
                    "list, a loader, or the function that makes the iterator to provider()"
                )


class _Calls:
    """Passes of a function that is called for each of them."""

    def __init__(self, function: Callable[..., Iterable[Any]], seed: int | None) -> None:
        self._function, self._seed, self._begun = function, seed, 0
        self._title = getattr(function, "__qualname__", type(function).__name__)
        try:
            signature(function).bind(*([] if seed is None else [None]))
        except TypeError as error:
            raise LoaderError(
                f"{self._title}: {error}; a provider calls its function with nothing, or, given a "
                "seed=, with a generator"
            ) from None
        except ValueError:  # written in C, without a signature
            pass

    def peek(self) -> Iterator[Any]:
        """Begin a pass that does not count."""
        return self._call(0)

    def __iter__(self) -> Iterator[Any]:
        with COUNTING:
            number, self._begun = self._begun, self._begun + 1
        return self._call(number)

    def _call(self, number: int) -> Iterator[Any]:
        given = []
        if self._seed is not None:
            bits = np.random.Philox(key=key_of(self._seed, number, "provider"))
            given = [np.random.Generator(bits)]
        made = self._function(*given)
        if not hasattr(made, "__iter__"):
            raise LoaderError(
                f"{self._title} returned {type(made).__name__}, which yields no batches; let it "
                "yield them, or return an iterable"
            )
        return iter(made)


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
    return IteratorProvider(_Calls(function, key), **options)


# arrays and their names


def _batch_first(array: Array, axes: BatchAxis) -> Array:
    if axes == "first" or len(array.shape) < 2:
        return array
    last = len(array.shape) - 1
    return permute_dims(array, (last, *range(last)))


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
        value = value.transpose("batch" if "batch" in value.dims else value.dims[0], ...)
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
