"""Transforms put together: one after another, or side by side on parts of the data.

A step is any callable of one argument. A composition checks when it is made that samples become
a batch only once (a collate has no place among transforms). Every composition hands on where a
sample stands (:mod:`labeled.transforms.place`), each step with a path of its own, so that two equal
random steps draw different numbers.

The protocols are structural: nothing has to inherit from them, and a check at run time looks at the
members alone. What flows through (arrays, labelled arrays, tensors, anything) is a type parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import EllipsisType
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import xarray as xr

from labeled.errors import DimsError, PipelineError, PipelineTypeError, did_you_mean
from labeled.transforms.place import Bound, Place, asked_by_all
from labeled.transforms.sample import data_array

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
class Wrapped:
    """A transform with something stated about it; called as it is."""

    transform: Callable[..., Any]

    def __post_init__(self) -> None:
        as_transform(self.transform)

    @cached_property
    def _bound(self) -> Bound:
        return Bound(as_transform(self.transform))

    @property
    def asks(self) -> frozenset[str]:
        return self._bound.asks

    def __call__(self, data: Any, *, place: Place | None = None) -> Any:
        return self._bound(data, place)


class Whole(Wrapped):
    """A transform that takes whole batches, in the loader's workers. Made by :func:`whole`."""

    @property
    def asks(self) -> frozenset[str]:
        return self._bound.asks | {"rows"}


def whole(transform: Any) -> Whole:
    """Mark a transform as one that takes whole batches rather than samples.

    It runs in the loader's workers like one of samples, but once a batch, before rows are
    taken apart. Transforms with a parameter ``rows`` need no mark.
    """
    return Whole(transform)


@dataclass(frozen=True)
class Needs(Wrapped):
    """A transform of arrays whose axes must come in a certain order. Made by :func:`needs`."""

    dims: tuple[str | EllipsisType, ...]
    gives: tuple[str | EllipsisType, ...] | None = None
    plain: bool = False

    def __call__(self, data: xr.DataArray, *, place: Place | None = None) -> Any:
        if not isinstance(data, xr.DataArray):
            raise DimsError(
                f"{name_of(self.transform)} needs dims {_shown(self.dims)}, but is given "
                f"{type(data).__name__} without names; put it where arrays are still labelled"
            )
        named = [dim for dim in self.dims if isinstance(dim, str)]
        missing = [dim for dim in named if dim not in data.dims]
        if missing or (... not in self.dims and len(named) != data.ndim):
            raise DimsError(
                f"{name_of(self.transform)} needs dims {_shown(self.dims)}, but {data.name!r} has "
                f"{data.dims}; rename() them, or leave others in place with ... among the needed"
            )
        turned = data.transpose(*self.dims)
        if not (self.plain or self._bound.tensors):
            return self._bound(turned, place)
        made = self._bound(turned.data, place)
        return self._named(made, turned)

    def _named(self, made: Any, turned: xr.DataArray) -> Any:
        """Name the axes of what the transform made, where that is stated or nothing has moved."""
        others = [dim for dim in turned.dims if dim not in self.dims]
        wanted = self.dims if self.gives is None else self.gives
        dims: list[str] = []
        for dim in wanted:
            dims += map(str, others) if isinstance(dim, EllipsisType) else [dim]
        if self.gives is None and np.shape(made) != turned.shape:
            return made
        if np.ndim(made) != len(dims):
            raise DimsError(
                f"{name_of(self.transform)} states to give dims {tuple(dims)}, but made an array "
                f"of shape {np.shape(made)}"
            )
        return data_array(
            np.asarray(made), tuple(dims), None if turned.name is None else str(turned.name)
        )


def needs(
    *dims: str | EllipsisType,
    gives: Sequence[str | EllipsisType] | None = None,
    plain: bool = False,
) -> Callable[[Callable[..., Any]], Needs]:
    """State the dims that a transform of one labelled array needs, in their order.

    Parameters
    ----------
    *dims : str or ...
        The array is transposed to them, as a view. ``...`` stands for any other dims, such as
        that of the examples, so that one transform serves samples and whole batches.
    gives : sequence of str or ..., optional
        Dims of the result, where `plain` and not the same.
    plain : bool
        Call the transform with the array itself, and name the axes of what it returns: as
        `gives` says, or as before where the shape has not changed.

    Raises
    ------
    DimsError
        When called: if a dim is missing, or one is there that nothing stands for.

    Examples
    --------
    >>> @needs(..., "height", "width", plain=True)
    ... def flipped(image):
    ...     return image[..., ::-1]
    >>> image = xr.DataArray(np.arange(6).reshape(3, 2), dims=("width", "height"))
    >>> flipped(image).dims, flipped(image).values.tolist()
    (('height', 'width'), [[4, 2, 0], [5, 3, 1]])
    """

    def stated(transform: Callable[..., Any]) -> Needs:
        return Needs(transform, dims, None if gives is None else tuple(gives), plain)

    return stated


def _shown(dims: Sequence[str | EllipsisType]) -> str:
    return (
        "(" + ", ".join("..." if isinstance(dim, EllipsisType) else repr(dim) for dim in dims) + ")"
    )
