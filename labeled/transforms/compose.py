"""Transforms and pipelines put together: in turn, side by side, around one another, over time.

A step is any callable of one argument. A composition checks when it is made that samples become
a batch only once (a collate has no place among transforms).

Every composition hands each of its steps a :class:`Place` with a path of its own, so that two equal
random steps draw different numbers.

A pipeline holds a collate, so two of them never follow one another; side by side, each takes its
own part of a sample to its own part of a batch. Over time, a sample is a sequence, and each of its
steps goes through the inner pipeline.

The protocols are structural: nothing has to inherit from them, and a check at run time looks at the
members alone. What flows through (arrays, labelled arrays, tensors, anything) is a type parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import xarray as xr

from labeled._validation import check_arguments
from labeled.errors import PipelineError, PipelineTypeError, did_you_mean
from labeled.transforms.context import Bound, Place, context_of_all
from labeled.transforms.sample import stack

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


Others = Literal["keep", "drop", "refuse"]


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
        self.context = context_of_all(self.steps)
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

    @check_arguments(PipelineError, but=("transforms", "named"))
    def __init__(
        self,
        transforms: Mapping[str, Any] | None = None,
        /,
        *,
        others: Others = "keep",
        **named: Any,
    ) -> None:
        self.others = others
        self.steps = {
            name: as_transform(t) for name, t in ({**(transforms or {}), **named}).items()
        }
        self.context = context_of_all(self.steps.values())
        self._bound = {name: Bound(step) for name, step in self.steps.items()}

    def __call__(self, data: Mapping[str, Any], *, place: Place | None = None) -> dict[str, Any]:
        return routed(self._bound, data, self.others, place)

    def __repr__(self) -> str:
        steps = ", ".join(f"{name}={name_of(step)}" for name, step in self.steps.items())
        return f"{type(self).__name__}({steps}, others={self.others!r})"


def check_parts(steps: Iterable[str], parts: Collection[str]) -> None:
    """Raise :class:`PipelineError` where a step is named for a part that is not there."""
    for name in steps:
        if name not in parts:
            hint = did_you_mean(str(name), map(str, parts))
            raise PipelineError(f"a transform is for {name!r}, which is not a source; {hint}")


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
    def context(self) -> frozenset[str]:
        return self._bound.context | {"rows"} if self.whole else self._bound.context

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


# pipelines


class Stages:
    """A pipeline of three callables.

    Parameters
    ----------
    sample : transform, optional
        Applied to each sample; a mapping routes by source, a list runs in order. A transform
        marked with :func:`whole`, or with a parameter ``rows``, takes a whole batch of
        samples at once.
    collate : callable, optional
        Makes a batch of samples; :func:`labeled.transforms.stack` when not given.
    batch : transform, optional
        Applied to each batch.

    Raises
    ------
    PipelineError
        If a collate or a pipeline is given where a transform belongs.
    PipelineTypeError
        If a stage cannot be called.

    Examples
    --------
    >>> mean = Stages(sample=lambda x: x / 10, collate=sum, batch=lambda total: total / 3)
    >>> mean.batch(mean.collate([mean.sample(x) for x in (10, 20, 30)]))
    2.0
    """

    def __init__(
        self,
        sample: Any = None,
        collate: Callable[..., Any] | None = None,
        batch: Any = None,
    ) -> None:
        self.sample: Callable[..., Any] = identity if sample is None else as_transform(sample)
        self.collate: Callable[..., Any] = stack if collate is None else checked_collate(collate)
        self.batch: Callable[..., Any] = identity if batch is None else as_transform(batch)

    def __repr__(self) -> str:
        stages = {"sample": self.sample, "collate": self.collate, "batch": self.batch}
        default = (identity, stack)
        words = [f"{n}={name_of(s)}" for n, s in stages.items() if s not in default]
        return f"{type(self).__name__}({', '.join(words)})"


def checked_collate(collate: Any) -> Callable[..., Any]:
    """Return a collate as a callable; a mapping routes, as in :class:`ParallelCollate`."""
    if isinstance(collate, Mapping):
        return ParallelCollate(collate)
    if isinstance(collate, list | tuple):
        raise PipelineError(
            "samples become a batch once: collates do not follow one another; give one, and what "
            "comes after it as batch="
        )
    if is_pipeline(collate) or not callable(collate):
        raise PipelineTypeError(f"{collate!r} is not a collate: give a callable that takes samples")
    made: Callable[..., Any] = collate
    return made


class ParallelCollate:
    """Collates side by side, each on its part of the samples.

    Parameters
    ----------
    collates : mapping of str to callable
        By the name of the part.
    others : {"keep", "drop", "refuse"}
        What becomes of parts that no collate is named for; kept ones are stacked.

    Examples
    --------
    >>> ParallelCollate({"x": list})([{"x": 1, "y": 2}, {"x": 3, "y": 4}])
    {'x': [1, 3], 'y': array([2, 4])}
    """

    collates = True

    @check_arguments(PipelineError, but=("collates", "named"))
    def __init__(
        self, collates: Mapping[str, Any] | None = None, /, *, others: Others = "keep", **named: Any
    ) -> None:
        self.others = others
        given = {**(collates or {}), **named}
        self.parts = {name: checked_collate(one) for name, one in given.items()}

    def __call__(self, data: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        data = list(data)
        names = (
            list(self.parts) if not data else list(dict.fromkeys(n for one in data for n in one))
        )
        columns = {name: [_part(one, name, n) for n, one in enumerate(data)] for name in names}
        steps = {name: Bound(collate) for name, collate in self.parts.items()}
        if self.others == "keep":
            steps |= {name: Bound(stack) for name in names if name not in steps}
        return routed(steps, columns, self.others)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}={name_of(one)}" for name, one in self.parts.items())
        return f"{type(self).__name__}({parts}, others={self.others!r})"


def _part(sample: Mapping[str, Any], name: str, number: int) -> Any:
    try:
        return sample[name]
    except KeyError:
        raise PipelineError(
            f"sample {number} of the batch has no {name!r}, which others have"
        ) from None


def stages_of(pipeline: Any) -> Stages:
    """Return what was given for a pipeline as three stages.

    Parameters
    ----------
    pipeline : pipeline, callable, mapping or sequence of callables
        Anything but a pipeline is a transform of samples.
    """
    if isinstance(pipeline, Stages):
        return pipeline
    if not is_pipeline(pipeline):
        return Stages(sample=pipeline)
    stages: Stages = Stages()
    stages.sample, stages.collate, stages.batch = pipeline.sample, pipeline.collate, pipeline.batch
    return stages


class ParallelPipelines(Stages):
    """Pipelines side by side, each on its part of a sample and of a batch.

    Parameters
    ----------
    pipelines : mapping of str to pipeline
        By the name of the part.
    others : {"keep", "drop", "refuse"}
        What becomes of parts that no pipeline is named for; kept ones are stacked.

    Examples
    --------
    >>> both = ParallelPipelines(x=Stages(sample=abs), y=Stages(collate=max))
    >>> both.collate([both.sample({"x": -1, "y": 5}), both.sample({"x": 2, "y": 4})])
    {'x': array([1, 2]), 'y': 5}
    """

    @check_arguments(PipelineError, but=("pipelines", "named"))
    def __init__(
        self,
        pipelines: Mapping[str, Any] | None = None,
        /,
        *,
        others: Others = "keep",
        **named: Any,
    ) -> None:
        given = {**(pipelines or {}), **named}
        self.pipelines = {name: stages_of(one) for name, one in given.items()}
        self.others = others
        after: Others = "keep" if others == "drop" else others
        super().__init__(
            ParallelTransforms(self._stage("sample"), others=others),
            ParallelCollate(self._stage("collate"), others=after),
            ParallelTransforms(self._stage("batch"), others=after),
        )

    def _stage(self, name: str) -> dict[str, Any]:
        return {part: getattr(pipeline, name) for part, pipeline in self.pipelines.items()}


class ComposedPipeline(Stages):
    """A pipeline with a transform before its samples, and one after its batches.

    Parameters
    ----------
    pre : transform, optional
        Applied to each sample before the pipeline's own.
    pipeline : pipeline
    post : transform, optional
        Applied to each batch after the pipeline's own.

    Raises
    ------
    PipelineTypeError
        If `pre` or `post` cannot be called.

    Examples
    --------
    >>> inner = Stages(sample=lambda x: 10 * x)
    >>> outer = ComposedPipeline(pre=lambda x: x + 1, pipeline=inner, post=lambda a: a.sum())
    >>> int(outer.batch(outer.collate([outer.sample(x) for x in (1, 2)])))
    50
    """

    def __init__(self, pre: Any = None, pipeline: Any = None, post: Any = None) -> None:
        if pipeline is None:
            raise PipelineError("pipeline= is missing: say what stands between pre= and post=")
        inner = stages_of(pipeline)
        super().__init__(
            inner.sample if pre is None else _after(pre, inner.sample),
            None if inner.collate is stack else inner.collate,
            inner.batch if post is None else _after(inner.batch, post),
        )


def _after(first: Any, second: Any) -> Any:
    """Run two transforms in order; one that changes nothing is left out."""
    steps = [step for step in (first, second) if step is not identity]
    return SequentialTransforms(*steps)


class EachStep:
    """A transform applied to every item of a sequence."""

    def __init__(self, transform: Callable[..., Any]) -> None:
        self._bound = Bound(transform)
        self.context = self._bound.context

    def __call__(self, data: Sequence[Any], *, place: Place | None = None) -> list[Any]:
        return [self._bound(one, place, number) for number, one in enumerate(data)]


class SequencePipeline(Stages):
    """A pipeline for sequences: every stage is applied to each step of time.

    Samples are sequences; a batch is a list over time of the inner pipeline's batches.

    Parameters
    ----------
    pipeline : pipeline
        For one step of time.
    short : {"refuse", "cut"}
        What becomes of samples of different lengths: an error, or all are cut to the
        shortest of their batch.

    Raises
    ------
    PipelineError
        When collating, if lengths differ and `short` is "refuse".

    Examples
    --------
    >>> steps = SequencePipeline(Stages(sample=abs))
    >>> steps.collate([steps.sample([1, -2]), steps.sample([-3, 4])])
    [array([1, 3]), array([2, 4])]
    """

    @check_arguments(PipelineError)
    def __init__(self, pipeline: Any, *, short: Literal["refuse", "cut"] = "refuse") -> None:
        inner = stages_of(pipeline)
        super().__init__(
            EachStep(inner.sample),
            partial(_over_time, inner.collate, short == "cut"),
            EachStep(inner.batch),
        )


class StackedSequencePipeline(Stages):
    """A pipeline for sequences that sees all steps of all samples as one batch.

    The inner pipeline collates ``samples x steps`` items at once; leading axes of arrays are
    then (sample, step), and its batch stage again sees them as one.

    Parameters
    ----------
    pipeline : pipeline
        For one step of time; its batches hold arrays, tensors or labelled arrays in mappings,
        tuples and lists.
    dim : str
        Name of the axis over time of labelled arrays.

    Raises
    ------
    PipelineError
        When collating, if lengths differ.

    Examples
    --------
    >>> steps = StackedSequencePipeline(Stages(batch=lambda x: x.reshape(len(x), -1)))
    >>> batch = steps.collate([[1, 2, 3], [4, 5, 6]])
    >>> batch.shape, steps.batch(batch).shape
    ((2, 3), (2, 3, 1))
    """

    @check_arguments(PipelineError)
    def __init__(self, pipeline: Any, *, dim: str = "time") -> None:
        inner = stages_of(pipeline)
        super().__init__(
            EachStep(inner.sample),
            partial(_all_steps, inner.collate, dim),
            _Folded(inner.batch, dim),
        )


def _over_time(collate: Any, cut: bool, data: Sequence[Sequence[Any]]) -> list[Any]:
    length = _common_length(data, cut=cut)
    return [collate([one[step] for one in data]) for step in range(length)]


def _all_steps(collate: Any, dim: str, data: Sequence[Sequence[Any]]) -> Any:
    length = _common_length(data, cut=False)
    return _unfolded(collate([step for one in data for step in one]), len(data), length, dim)


def _common_length(data: Sequence[Sequence[Any]], *, cut: bool) -> int:
    lengths = sorted({len(one) for one in data})
    if len(lengths) > 1 and not cut:
        raise PipelineError(
            f"the sequences of a batch have between {lengths[0]} and {lengths[-1]} steps; bring "
            "them to one length in the sample transform, or let SequencePipeline(short='cut') "
            "leave out the last steps"
        )
    return lengths[0] if lengths else 0


class _Folded:
    """A batch transform that sees (sample, step) as one leading axis."""

    def __init__(self, transform: Callable[..., Any], dim: str) -> None:
        self._bound, self._dim = Bound(transform), dim
        self.context = self._bound.context

    def __call__(self, data: Any, *, place: Place | None = None) -> Any:
        found: list[tuple[int, int]] = []
        flat = _mapped(lambda x: _fold(x, found), data)
        n, length = found[0] if found else (0, 0)
        return _unfolded(self._bound(flat, place), n, length, self._dim)


def _fold(x: Any, found: list[tuple[int, int]]) -> Any:
    found.append(tuple(x.shape[:2]))
    if isinstance(x, xr.DataArray):
        return xr.DataArray(_fold(x.data, []), dims=(x.dims[0], *x.dims[2:]), name=x.name)
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def _unfolded(data: Any, n: int, length: int, dim: str) -> Any:
    return _mapped(lambda x: _unfold(x, n, length, dim), data)


def _unfold(x: Any, n: int, length: int, dim: str) -> Any:
    if isinstance(x, xr.DataArray):
        values = _unfold(x.data, n, length, dim)
        return xr.DataArray(values, dims=(x.dims[0], dim, *x.dims[1:]), name=x.name)
    return x.reshape(n, length, *x.shape[1:])


def _mapped(function: Callable[[Any], Any], data: Any) -> Any:
    """Apply a function to every array of a structure."""
    if isinstance(data, xr.DataArray) or hasattr(data, "reshape"):
        return function(data)
    if isinstance(data, Mapping):
        return {name: _mapped(function, value) for name, value in data.items()}
    if isinstance(data, tuple | list):
        made = [_mapped(function, one) for one in data]
        return type(data)(*made) if hasattr(data, "_fields") else type(data)(made)
    raise PipelineError(
        f"a stacked sequence is made of arrays, found {type(data).__name__}; let the collate make "
        "arrays, or use SequencePipeline"
    )
