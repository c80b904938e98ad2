"""Transforms put together: one after another, or side by side on parts of the data.

A step is any callable of one argument. A composition checks when it is made that samples become
a batch only once (a collate has no place among transforms).

Results are to be the same for any number of threads, any order, shard or resumed run. A
transform therefore never keeps a generator of its own; it *asks*, by the names of its
parameters, for what is random about a row:

``rng``
    A fresh generator for this row, of this epoch, at this step of the pipeline.
``seed``, ``epoch``, ``row``
    The plain numbers, for transforms that draw in their own way.
``rows``
    The numbers of all rows: the transform then works on whole batches.
``place``
    All of these, as a :class:`Place`.

A parameter that a caller has bound already (``functools.partial``) is left alone, and so is the
first one, which takes the data. Every composition hands each of its steps a place with a path of
its own, so that two equal random steps draw different numbers.

The protocols are structural: nothing has to inherit from them, and a check at run time looks at the
members alone. What flows through (arrays, labelled arrays, tensors, anything) is a type parameter.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import check_arguments
from labeled.errors import PipelineError, PipelineTypeError, did_you_mean
from labeled.samplers.permutation import key_of

Rows = npt.NDArray[np.int64]

Raw = TypeVar("Raw", contravariant=True)
Made = TypeVar("Made", covariant=True)

PRaw = TypeVar("PRaw", contravariant=True)
PSample = TypeVar("PSample")
PBatch = TypeVar("PBatch")
PMade = TypeVar("PMade", covariant=True)


@runtime_checkable
class Transform(Protocol[Raw, Made]):
    """A step from one sample to one sample, or from one batch to one batch."""

    def __call__(self, data: Raw, /) -> Made: ...


@runtime_checkable
class Collate(Protocol[Raw, Made]):
    """The step that makes a batch of samples."""

    def __call__(self, data: Sequence[Raw], /) -> Made: ...


@runtime_checkable
class Pipeline(Protocol[PRaw, PSample, PBatch, PMade]):
    """The way from stored samples to a batch as it is used.

    `sample` is applied to each sample by itself, `collate` makes a batch of the results,
    `batch` works on whole batches, where they live.
    """

    def sample(self, data: PRaw, /) -> PSample: ...

    def collate(self, data: Sequence[PSample], /) -> PBatch: ...

    def batch(self, data: PBatch, /) -> PMade: ...


@runtime_checkable
class Dataset(Protocol[Made]):
    """Samples by number."""

    def __getitem__(self, index: int | np.integer[Any], /) -> Made: ...

    def __len__(self) -> int: ...


@runtime_checkable
class Trace(Protocol[Made]):
    """Samples by number, and what they are made of by name."""

    def __getitem__(self, index: Any, /) -> Any: ...

    def __len__(self) -> int: ...


ASKABLE = frozenset({"rng", "seed", "epoch", "row", "rows", "place"})


@dataclass(frozen=True, slots=True)
class Place:
    """Which row of which epoch, and which step of the pipeline.

    Parameters
    ----------
    seed, epoch : int
        Of the loader.
    row : int, optional
        Position in the dataset that ``batches`` was called on; -1 for rows that pad.
    rows : int64 array, optional
        The same for every row of a batch.
    path : tuple
        The steps that lead to the transform, numbers and names.

    Examples
    --------
    >>> place = Place(seed=7, epoch=0, row=3)
    >>> bool(place.rng().random() == Place(seed=7, epoch=0, row=3).rng().random())
    True
    >>> bool(place.rng().random() == place.into(1).rng().random())
    False
    """

    seed: int
    epoch: int
    row: int | None = None
    rows: Rows | None = None
    path: tuple[int | str, ...] = ()

    def into(self, step: int | str) -> Place:
        """Return the place of a step within this one."""
        return Place(self.seed, self.epoch, self.row, self.rows, (*self.path, step))

    def rng(self) -> np.random.Generator:
        """Return a new generator, which draws the same wherever and whenever it is made."""
        key = key_of("pipeline", self.seed, self.epoch, -1 if self.row is None else self.row)
        if self.path:
            key = key_of(str(key), *self.path)
        return np.random.Generator(np.random.Philox(key=key))


class Bound:
    """A transform as a step: what it asks for is worked out once, and passed to it.

    Parameters
    ----------
    transform : callable
        One with an attribute ``asks`` (a frozenset of str) hands places on to steps of its own,
        and takes ``place=``. A torch module is given tensors that share memory with the arrays.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform
        self.asks = asked_by(transform)
        self._composed = isinstance(getattr(transform, "asks", None), frozenset)
        torch = sys.modules.get("torch")  # not imported for this
        self.tensors = torch is not None and isinstance(transform, torch.nn.Module)

    def __call__(self, data: Any, place: Place | None = None, step: int | str | None = None) -> Any:
        """Apply the transform; without a place it is called with the data alone.

        Parameters
        ----------
        step : int or str, optional
            Which step within the place this is.
        """
        if self.tensors:
            data = as_tensors(data)
        if place is None or not self.asks:
            return self.transform(data)
        here = place if step is None else place.into(step)
        if self._composed:
            return self.transform(data, place=here)
        return self.transform(data, **{n: _given(n, here, self.transform) for n in self.asks})


def _given(name: str, place: Place, transform: Any) -> Any:
    if name == "place":
        return place
    if name in ("rng", "row") and place.row is None:
        raise PipelineError(
            f"{transform!r} asks for {name!r} of one row, but is given whole batches: let it take "
            "rows, seed and epoch and draw for each row, so that no result depends on its batch"
        )
    if name == "rows" and place.rows is None:
        raise PipelineError(
            f"{transform!r} asks for the rows of a whole batch, but stands where samples come one "
            "by one: put it before transforms of samples, or let it take row"
        )
    return place.rng() if name == "rng" else getattr(place, name)


def asked_by(transform: Any) -> frozenset[str]:
    """Return what a transform asks for by the names of its parameters.

    ``seed`` by itself, with a default, is taken for an option of the transform's own.

    Examples
    --------
    >>> sorted(asked_by(lambda image, rows, seed, epoch: image))
    ['epoch', 'rows', 'seed']
    >>> asked_by(lambda row: row), asked_by(partial(lambda x, rng: x, rng=None)), asked_by(abs)
    (frozenset(), frozenset(), frozenset())
    """
    asks = getattr(transform, "asks", None)
    if isinstance(asks, frozenset):
        return asks
    bound = transform.keywords if isinstance(transform, partial) else {}
    try:
        parameters = list(inspect.signature(transform).parameters.values())[1:]
    except (TypeError, ValueError):  # written in C, and says nothing
        return frozenset()
    by_name = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    found = (ASKABLE & set(by_name)) - set(bound)
    if "seed" in found and not found & {"epoch", "row", "rows"}:
        return found if by_name["seed"].default is inspect.Parameter.empty else found - {"seed"}
    return found


def asked_by_all(steps: Iterable[Callable[..., Any]]) -> frozenset[str]:
    """Return what any of some steps asks for."""
    return frozenset().union(*map(asked_by, steps))


def as_tensors(data: Any) -> Any:
    """Return arrays, and arrays in mappings and tuples, as tensors on the same memory."""
    torch = sys.modules["torch"]
    if hasattr(data, "items") and not isinstance(data, xr.DataArray):
        return {name: as_tensors(value) for name, value in data.items()}
    if isinstance(data, tuple | list):
        made = list(map(as_tensors, data))
        return type(data)(*made) if hasattr(data, "_fields") else type(data)(made)
    plain = data.data if isinstance(data, xr.DataArray) else data
    return torch.as_tensor(plain) if isinstance(plain, np.ndarray | np.generic) else plain


Others = Literal["keep", "drop", "refuse"]
OTHERS = ("keep", "drop", "refuse")


def identity(data: Any) -> Any:
    """Return the data as they are."""
    return data


def name_of(step: Any) -> str:
    """Return how messages name a step."""
    name = getattr(step, "__qualname__", None)
    if name is None or isinstance(step, partial):
        return repr(step)
    return f"{name.rpartition('.<locals>.')[2]}()" if not isinstance(step, type) else name


def collates(step: Any) -> bool:
    """Whether a step is known to make a batch of samples."""
    return bool(getattr(step, "collates", False))


def is_pipeline(step: Any) -> bool:
    """Whether something has the three stages of a pipeline."""
    return all(callable(getattr(step, name, None)) for name in ("sample", "collate", "batch"))


def as_transform(step: Any) -> Callable[..., Any]:
    """Return a step as one callable: a mapping routes, a sequence is run in order.

    Raises
    ------
    PipelineError
        If it is a collate or a pipeline.
    PipelineTypeError
        If it is nothing that can be called.
    """
    if isinstance(step, Mapping):
        return ParallelTransforms(step)
    if isinstance(step, list | tuple):
        return SequentialTransforms(*step)
    if collates(step):
        raise PipelineError(
            f"{name_of(step)} makes a batch of samples, which happens once in a pipeline: give it "
            "as collate=, not among transforms"
        )
    if is_pipeline(step):
        raise PipelineError(
            f"{name_of(step)} is a pipeline, which holds a collate and is not a transform: put "
            "transforms around it with ComposedPipeline, or pipelines side by side with "
            "ParallelPipelines"
        )
    if not callable(step):
        raise PipelineTypeError(
            f"{step!r} is not a transform: give a callable of one argument, a mapping from source "
            "to one, or a list of them"
        )
    made: Callable[..., Any] = step
    return made


class SequentialTransforms:
    """Transforms one after another.

    Parameters
    ----------
    *transforms : callable
        None at all changes nothing. A mapping routes, as in :class:`ParallelTransforms`.

    Raises
    ------
    PipelineError
        If one of them is a collate or a pipeline.
    PipelineTypeError
        If one of them cannot be called.

    Examples
    --------
    >>> SequentialTransforms(abs, str)(-3)
    '3'
    """

    def __init__(self, *transforms: Any) -> None:
        self.steps = tuple(as_transform(step) for step in transforms)
        self.asks = asked_by_all(self.steps)
        self._bound = tuple(map(Bound, self.steps))

    def __call__(self, data: Any, *, place: Place | None = None) -> Any:
        for number, step in enumerate(self._bound):
            data = step(data, place, number)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(name_of, self.steps))})"


class ParallelTransforms:
    """Transforms side by side, each on its part of a mapping.

    Parameters
    ----------
    transforms : mapping of str to callable, optional
        By the name of the part; names may be given as keywords too.
    others : {"keep", "drop", "refuse"}
        What becomes of parts that no transform is named for.

    Raises
    ------
    PipelineError
        When called: if a part is missing, or one is there that is refused.

    Examples
    --------
    >>> ParallelTransforms(x=abs)({"x": -1, "y": 2})
    {'x': 1, 'y': 2}
    >>> ParallelTransforms({"x": abs}, others="drop")({"x": -1, "y": 2})
    {'x': 1}
    """

    def __init__(
        self,
        transforms: Mapping[str, Any] | None = None,
        /,
        *,
        others: Others = "keep",
        **named: Any,
    ) -> None:
        self.others = checked_others(others)
        self.steps = {
            name: as_transform(t) for name, t in ({**(transforms or {}), **named}).items()
        }
        self.asks = asked_by_all(self.steps.values())
        self._bound = {name: Bound(step) for name, step in self.steps.items()}

    def __call__(self, data: Mapping[str, Any], *, place: Place | None = None) -> dict[str, Any]:
        return routed(self._bound, data, self.others, place)

    def __repr__(self) -> str:
        steps = ", ".join(f"{name}={name_of(step)}" for name, step in self.steps.items())
        return f"{type(self).__name__}({steps}, others={self.others!r})"


def checked_others(others: Any) -> Others:
    """Return what is to become of unnamed parts, or raise :class:`PipelineError`."""
    if others not in OTHERS:
        raise PipelineError(f"others={others!r} must be one of {', '.join(map(repr, OTHERS))}")
    checked: Others = others
    return checked


def check_parts(steps: Iterable[str], parts: Collection[str]) -> None:
    """Raise :class:`PipelineError` where a step is named for a part that is not there."""
    for name in steps:
        if name not in parts:
            hint = did_you_mean(str(name), map(str, parts))
            raise PipelineError(f"there is no {name!r} to transform; {hint}")


def first_named(step: Any) -> tuple[str, ...]:
    """Return which parts the first transform of a step is named for; none if it takes all.

    Examples
    --------
    >>> first_named(SequentialTransforms({"x": abs}, {"y": abs})), first_named(abs)
    (('x',), ())
    """
    if isinstance(step, SequentialTransforms):
        return first_named(step.steps[0]) if step.steps else ()
    return tuple(step.steps) if isinstance(step, ParallelTransforms) else ()


def all_named(step: Any) -> frozenset[str] | None:
    """Return which parts the transforms of a step are named for, where they keep the others.

    Examples
    --------
    >>> sorted(all_named(SequentialTransforms({"x": abs}, {"y": abs})))
    ['x', 'y']
    >>> all_named(SequentialTransforms({"x": abs}, abs)) is None
    True
    """
    if isinstance(step, ParallelTransforms):
        return frozenset(step.steps) if step.others == "keep" else None
    if not isinstance(step, SequentialTransforms):
        return None
    found = [all_named(one) for one in step.steps]
    named = [one for one in found if one is not None]
    return frozenset().union(*named) if len(named) == len(found) else None


def routed(
    steps: Mapping[str, Bound],
    data: Mapping[str, Any],
    others: Others,
    place: Place | None = None,
) -> dict[str, Any]:
    """Apply each step to its part of a mapping; the order of the parts stays."""
    if not isinstance(data, Mapping):
        raise PipelineTypeError(
            f"transforms by name ({', '.join(map(repr, steps))}) need a mapping from name to part, "
            f"found {type(data).__name__}"
        )
    check_parts(steps, data)
    out: dict[str, Any] = {}
    for name in data:
        step = steps.get(name)
        if step is not None:
            out[name] = step(data[name], place, name)
        elif others == "keep":
            out[name] = data[name]
        elif others == "refuse":
            raise PipelineError(
                f"no transform is named for {name!r}; name one, or let others= be 'keep' or 'drop'"
            )
    return out


@dataclass(frozen=True)
class Marked:
    """A transform with something stated about it; called as it is.

    Parameters
    ----------
    transform : callable
    whole : bool
        It takes whole batches.
    row_bytes, beside_bytes : int, optional
        Memory that it takes, where that is stated: of what it makes of a row, and besides.
    """

    transform: Any
    whole: bool = False
    row_bytes: int | None = None
    beside_bytes: int = 0

    @cached_property
    def _bound(self) -> Bound:
        return Bound(as_transform(self.transform))

    def __post_init__(self) -> None:
        _ = self._bound

    @property
    def asks(self) -> frozenset[str]:
        return self._bound.asks | {"rows"} if self.whole else self._bound.asks

    def __call__(self, data: Any, *, place: Place | None = None) -> Any:
        return self._bound(data, place)


def whole(transform: Any) -> Marked:
    """Mark a transform as one that takes whole batches rather than samples.

    It runs in the loader's workers like one of samples, but once a batch, before rows are
    taken apart. Transforms with a parameter ``rows`` need no mark.
    """
    return Marked(transform, whole=True)


@check_arguments(PipelineError)
def takes(row_bytes: int, work_bytes: int = 0) -> Callable[[Callable[..., Any]], Marked]:
    """State how much memory a transform takes, so that ``memory=`` of a loader counts it.

    Parameters
    ----------
    row_bytes : int
        Of what it makes of one row.
    work_bytes : int
        What it takes besides, while it works on a batch.

    Examples
    --------
    >>> @takes(row_bytes=8 * 100)
    ... def spectrum(wave): ...
    """
    for name, value in (("row_bytes", row_bytes), ("work_bytes", work_bytes)):
        if value < 0:
            raise PipelineError(f"{name}={value!r} must be a number of bytes, 0 or more")
    return lambda transform: Marked(transform, False, int(row_bytes), int(work_bytes))
