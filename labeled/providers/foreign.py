"""Providers over what others iterate: generator functions, loaders of other libraries.

Whatever is yielded is turned into a :class:`~labeled.providers.DataBatch` of the names and
shapes that the first one had: copied, because foreign iterators like to fill the same memory
again, and padded where it is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import signature
from itertools import chain
from threading import Lock
from typing import Any, overload

import numpy as np

from labeled._validation import check_arguments, check_keywords, keywords_of
from labeled.device import Array, owned_copy
from labeled.errors import ArrayError, LoaderError
from labeled.loader.request.arguments import flag, integer, integer_or_none
from labeled.providers.batch import (
    BatchAxis,
    DataBatch,
    batch_axis_of,
    filled,
    moved_axis,
    moved_order,
)
from labeled.providers.protocol import Provided
from labeled.providers.yielded import Naming, Parts, label_names
from labeled.samplers.permutation import key_of


@dataclass(frozen=True)
class _Shapes:
    """Names and lengths of a sample, as the first batch had them."""

    batch_size: int
    data: dict[str, tuple[int, ...]]
    label: dict[str, tuple[int, ...]]

    @classmethod
    def of(cls, parts: Parts, batch_size: int | None) -> _Shapes:
        if not parts.data:
            raise ArrayError(f"a batch with the labels {list(parts.label)} holds no data")
        size = next(iter(parts.data.values())).shape[0] if batch_size is None else batch_size
        shapes = [{name: tuple(a.shape[1:]) for name, a in part.items()} for part in parts[:2]]
        return cls(size, *shapes)

    def check(self, parts: Parts, number: int) -> None:
        """Raise :class:`ArrayError` where batch `number` differs from the first one."""
        found = _Shapes.of(parts, self.batch_size)
        if (found.data, found.label) != (self.data, self.label):
            raise ArrayError(
                f"batch {number} holds data {found.data} and labels {found.label}, the first one "
                f"{self.data} and {self.label} (lengths of one sample)"
            )
        counts = parts.lengths.values()
        if len(set(counts)) > 1 or max(counts) > self.batch_size:
            raise ArrayError(
                f"batch {number} holds {parts.lengths} samples; all must be of one length, at most "
                f"the batch size {self.batch_size}"
            )


Wanted = Callable[[Any], bool]
COUNTING = Lock()
"""Held while the number of a pass is taken, by whoever begins one."""


class _Again:
    """Passes that are begun anew, as many at a time as wanted."""

    def __init__(self, make: Callable[[int], Iterable[Any]], title: str = "an iterable") -> None:
        self._make = make
        self._begun = 0
        self.title = title

    def begin(self) -> Iterator[Any]:
        with COUNTING:
            number, self._begun = self._begun, self._begun + 1
        return self._pass(number)

    def _pass(self, number: int) -> Iterator[Any]:
        made = self._make(number)
        if not hasattr(made, "__iter__"):
            raise LoaderError(
                f"{self.title} returned {type(made).__name__}, which yields no batches; let it "
                "yield them, or return an iterable"
            )
        return iter(made)

    def peek(self, wanted: Wanted) -> Any:
        """Return the first batch wanted of a pass that is given up again."""
        items = self._pass(0)
        try:
            return next(filter(wanted, items))
        except StopIteration:
            raise LoaderError(f"{self.title} yields no batch, so there are no shapes") from None
        finally:
            getattr(items, "close", lambda: None)()


class _Once:
    """Passes of one iterator: the first one, and one after each ``reset()`` it may have."""

    title = "an iterator"

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self._held: list[Any] = []
        self._begun = 0

    def peek(self, wanted: Wanted) -> Any:
        """Return the first batch wanted, which the pass is still to hand out."""
        for item in self._items:
            self._held.append(item)
            if wanted(item):
                return item
        raise LoaderError("the iterator yields no batch, so there are no shapes")

    def begin(self) -> Iterator[Any]:
        if self._begun:
            self._reset()
        self._begun += 1
        return self._pass(self._begun)

    def _reset(self) -> None:
        reset = getattr(self._items, "reset", None)
        if reset is None:
            raise LoaderError(
                "an iterator without reset() is looped over once; give a list, a loader, or the "
                "function that makes the iterator to provider()"
            )
        self._held = []
        reset()

    def _pass(self, number: int) -> Iterator[Any]:
        held, self._held = self._held, []
        for item in chain(held, self._items):
            yield item
            if number != self._begun:
                raise LoaderError(
                    "this loop ended when another one over the same iterator began; give a "
                    "list, a loader, or the function that makes the iterator to provider()"
                )


def _itself(iterable: Iterable[Any], epoch: int) -> Iterable[Any]:
    return iterable


class IteratorProvider:
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
        if not hasattr(iterable, "__iter__"):
            raise LoaderError(
                f"{type(iterable).__name__} is not iterable; a function that yields batches "
                "goes into provider()"
            )
        self._passes: _Again | _Once = (
            _Once(iterable)
            if isinstance(iterable, Iterator)
            else _Again(partial(_itself, iterable))
        )
        self._asked_size = integer_or_none("batch_size", batch_size, least=1)
        self._naming = Naming(data_name, label_name, label_names(label))
        self._padding = data_padding, label_padding
        self._axes = batch_axis_of(axes)
        self._copy = flag("copy", copy)

    # what is provided

    @cached_property
    def _first(self) -> _Shapes:
        """Names and shapes, learnt from the first batch of a pass that is begun for it."""
        item = self._passes.peek(lambda item: self._naming.parts_of(item).holds_samples)
        return _Shapes.of(self._naming.parts_of(item), self._asked_size)

    @property
    def batch_size(self) -> int:
        """Samples of every batch, padding counted."""
        return self._first.batch_size

    @property
    def provide_data(self) -> list[Provided]:
        """Names and shapes of the data, batch axis included."""
        return self._provided(self._first.data)

    @property
    def provide_label(self) -> list[Provided]:
        """Names and shapes of the labels, batch axis included."""
        return self._provided(self._first.label)

    def _provided(self, shapes: Mapping[str, tuple[int, ...]]) -> list[Provided]:
        return [
            (name, moved_order((self.batch_size, *shape), self._axes))
            for name, shape in shapes.items()
        ]

    # loops

    def eachbatch(self) -> Iterator[DataBatch]:
        """Begin a pass."""
        return self._batches(self._passes.begin())

    def __iter__(self) -> Iterator[DataBatch]:
        return self.eachbatch()

    def _batches(self, items: Iterator[Any]) -> Iterator[DataBatch]:
        for number, item in enumerate(items):
            parts = self._naming.parts_of(item)
            if parts.holds_samples:
                self.__dict__.setdefault("_first", _Shapes.of(parts, self._asked_size))
                self._first.check(parts, number)
                yield self._handed_out(parts)

    def _handed_out(self, parts: Parts) -> DataBatch:
        found = next(iter(parts.data.values())).shape[0]
        for_data, for_label = self._padding
        return DataBatch(
            {name: self._filled(array, for_data) for name, array in parts.data.items()},
            {name: self._filled(array, for_label) for name, array in parts.label.items()},
            found if parts.n_real is None else parts.n_real,
            axes=self._axes,
        )

    def _filled(self, array: Array, padding: Any) -> Array:
        """Return a whole batch: padded if short, and no array that was yielded, if not wanted."""
        whole = moved_axis(filled(array, self.batch_size, padding), self._axes)
        return owned_copy(whole) if self._copy and whole is array else whole

    def __repr__(self) -> str:
        return f"<labeled.providers.{type(self).__name__} over {self._passes.title}>"


PASSED_ON = [name for name in keywords_of(IteratorProvider.__init__) if name != "iterable"]


class CoroutineProvider(IteratorProvider):
    """What a generator function yields, called anew for each loop. Made by :func:`provider`."""

    def __init__(self, function: Callable[..., Iterable[Any]], seed: int | None, **options: Any):
        title = getattr(function, "__qualname__", type(function).__name__)
        key = None if seed is None else integer("seed", seed)
        _check_call(function, title, drawn=key is not None)
        super().__init__((), **options)
        self._passes = _Again(partial(_called, function, key), title)


def _called(function: Callable[..., Iterable[Any]], key: int | None, epoch: int) -> Iterable[Any]:
    if key is None:
        return function()
    bits = np.random.Philox(key=key_of(key, epoch, "provider"))
    return function(np.random.Generator(bits))


def _check_call(function: Callable[..., Any], title: str, *, drawn: bool) -> None:
    """Raise :class:`LoaderError` for a function that is not called as it wants to be."""
    try:
        signature(function).bind(*([None] if drawn else []))
    except TypeError as error:
        how = "with a generator" if drawn else "with nothing, or, given a seed=, with a generator"
        raise LoaderError(f"{title}: {error}; a provider calls its function {how}") from None
    except ValueError:  # written in C, and says nothing
        return


@overload
def provider(function: Callable[..., Iterable[Any]], /, **options: Any) -> CoroutineProvider: ...
@overload
def provider(
    function: None = None, /, **options: Any
) -> Callable[[Callable[..., Iterable[Any]]], CoroutineProvider]: ...
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
    CoroutineProvider

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
    return CoroutineProvider(function, seed, **options)
