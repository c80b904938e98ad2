"""Providers over what others iterate: generator functions, loaders of other libraries.

Whatever is yielded is turned into a :class:`~labeled.providers.DataBatch` of the names and
shapes that the first one had: copied, because foreign iterators like to fill the same memory
again, and padded where it is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from inspect import signature
from itertools import chain
from typing import Any, cast, overload

import numpy as np

from labeled._validation import check_arguments, check_keywords, keywords_of
from labeled.device import Array, is_array, owned_copy, permute_dims
from labeled.errors import ArrayError, LoaderError, UnknownNameError, did_you_mean
from labeled.loader.batch import Batch
from labeled.loader.options import integer
from labeled.providers.batch import ALL, BatchAxis, DataBatch
from labeled.providers.provider import COUNTING, DataProvider, Shapes, named_arrays, samples_of
from labeled.samplers.permutation import key_of


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
        self.title = getattr(function, "__qualname__", type(function).__name__)
        try:
            signature(function).bind(*([] if seed is None else [None]))
        except TypeError as error:
            raise LoaderError(
                f"{self.title}: {error}; a provider calls its function with nothing, or, given a "
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
        if self._seed is None:
            made = self._function()
        else:
            bits = np.random.Philox(key=key_of(self._seed, number, "provider"))
            made = self._function(np.random.Generator(bits))
        if not hasattr(made, "__iter__"):
            raise LoaderError(
                f"{self.title} returned {type(made).__name__}, which yields no batches; let it "
                "yield them, or return an iterable"
            )
        return iter(made)


class IteratorProvider(DataProvider):
    """What a foreign iterable yields; a :class:`~labeled.providers.DataProvider`.

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
        copy: bool = True,
    ) -> None:
        super().__init__(axes, data_padding, label_padding)
        once = isinstance(iterable, Iterator)
        self._passes: Any = _Once(cast("Iterator[Any]", iterable)) if once else iterable
        self._asked_size = (
            None if batch_size is None else integer("batch_size", batch_size, least=1)
        )
        self._label = (label,) if isinstance(label, str) else tuple(label)
        self._data_name, self._label_name, self._copy = data_name, label_name, copy

    @cached_property
    def _shapes(self) -> Shapes:
        """Names and shapes, learnt from the first batch of a pass that is begun for it."""
        peek = getattr(self._passes, "peek", self._passes.__iter__)
        items = peek()
        found = next((one for one in map(self._taken, items) if one.count_samples), None)
        if not isinstance(self._passes, _Once):
            getattr(items, "close", lambda: None)()
        if found is None:
            raise LoaderError("this provider yields no batch, so its shapes are unknown")
        return self._shapes_of(found)

    def _shapes_of(self, batch: DataBatch) -> Shapes:
        size = batch.batch_size if self._asked_size is None else self._asked_size
        data, label = (
            {name: tuple(array.shape[1:]) for name, array in arrays.items()}
            for arrays in (batch.named_data, batch.named_label)
        )
        return Shapes(size, data, label)

    def eachbatch(self) -> Iterator[DataBatch]:
        """Begin a pass."""
        return self._batches(iter(self._passes))

    def _batches(self, items: Iterator[Any]) -> Iterator[DataBatch]:
        for number, batch in enumerate(map(self._taken, items)):
            if batch.count_samples:
                self.__dict__.setdefault("_shapes", self._shapes_of(batch))
                self._check(batch, number)
                yield self._finished(batch)

    def _check(self, batch: DataBatch, number: int) -> None:
        """Raise :class:`ArrayError` where batch `number` differs from the first one."""
        first, found = self._shapes, self._shapes_of(batch)
        if (found.data, found.label) != (first.data, first.label):
            raise ArrayError(
                f"batch {number} holds data {found.data} and labels {found.label}, the first one "
                f"{first.data} and {first.label} (lengths of one sample)"
            )
        if batch.batch_size > first.batch_size:
            raise ArrayError(
                f"batch {number} holds {batch.batch_size} samples; give at most the batch size "
                f"{first.batch_size}"
            )

    def _whole(self, array: Array, padding: Any) -> Array:
        whole = super()._whole(array, padding)
        return owned_copy(whole) if self._copy and whole is array else whole

    def _taken(self, item: Any) -> DataBatch:
        """Return what was yielded as a batch whose batch axis is first."""
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
        for name in self._label:
            if name not in given:
                hint = did_you_mean(name, map(str, given))
                raise UnknownNameError(f"a batch has no array {name!r} for a label; {hint}")
        labels = self._label or (self._label_name,)
        arrays = {str(name): samples_of(str(name), array) for name, array in given.items()}
        return DataBatch(
            {name: array for name, array in arrays.items() if name not in labels},
            {name: array for name, array in arrays.items() if name in labels},
            count,
        )

    def _listed(self, data: Any, label: Any) -> DataBatch:
        labels = {} if label is None else _named(label, self._label_name)
        return DataBatch(_named(data, self._data_name), labels)

    def __repr__(self) -> str:
        title = getattr(self._passes, "title", "an iterable")
        return f"<labeled.providers.{type(self).__name__} over {title}>"


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


PASSED_ON = [name for name in keywords_of(IteratorProvider.__init__) if name != "iterable"]


@overload
def provider(function: Callable[..., Iterable[Any]], /, **options: Any) -> IteratorProvider: ...
@overload
def provider(
    function: None = None, /, **options: Any
) -> Callable[[Callable[..., Iterable[Any]]], IteratorProvider]: ...
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
        Yields what :class:`IteratorProvider` takes.
    seed : int, optional
        The function is then called with a :class:`numpy.random.Generator` that is a function
        of the seed and the number of the loop.
    **options
        As for :class:`IteratorProvider`.

    Returns
    -------
    IteratorProvider

    Examples
    --------
    >>> @provider(seed=7)
    ... def noise(rng):
    ...     for _ in range(2):
    ...         yield rng.random((3, 4)), rng.integers(0, 2, 3)
    >>> noise.provide_data, len(list(noise))
    ([('data', (3, 4))], 2)
    """
    check_keywords("provider", options, PASSED_ON, ["seed"])
    if function is None:
        return lambda made: provider(made, seed=seed, **options)
    if not callable(function):
        raise LoaderError(
            f"provider() takes a function that yields batches, not {type(function).__name__}; "
            "an iterable goes into IteratorProvider"
        )
    key = None if seed is None else integer("seed", seed)
    return IteratorProvider(_Calls(function, key), **options)
