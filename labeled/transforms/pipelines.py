"""Pipelines: three stages put together, side by side, around one another, and over time.

A pipeline holds a collate, so two of them never follow one another; side by side, each
takes its own part of a sample to its own part of a batch. Over time, a sample is a sequence, and
each of its steps goes through the inner pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import xarray as xr

from labeled._validation import check_arguments
from labeled.errors import PipelineError, PipelineTypeError
from labeled.transforms.compose import (
    Bound,
    Others,
    ParallelTransforms,
    Place,
    SequentialTransforms,
    as_transform,
    checked_others,
    identity,
    is_pipeline,
    name_of,
    routed,
)
from labeled.transforms.sample import stack

Raw = TypeVar("Raw")
Sampled = TypeVar("Sampled")
Batched = TypeVar("Batched")
Made = TypeVar("Made")


class Stages(Generic[Raw, Sampled, Batched, Made]):
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
        collate: Callable[[Sequence[Sampled]], Batched] | None = None,
        batch: Any = None,
    ) -> None:
        self.sample: Callable[..., Sampled] = identity if sample is None else as_transform(sample)
        self.collate: Callable[..., Batched] = (
            stack if collate is None else checked_collate(collate)
        )
        self.batch: Callable[..., Made] = identity if batch is None else as_transform(batch)

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

    def __init__(
        self, collates: Mapping[str, Any] | None = None, /, *, others: Others = "keep", **named: Any
    ) -> None:
        self.others = checked_others(others)
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


def stages_of(pipeline: Any) -> Stages[Any, Any, Any, Any]:
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
    stages: Stages[Any, Any, Any, Any] = Stages()
    stages.sample, stages.collate, stages.batch = pipeline.sample, pipeline.collate, pipeline.batch
    return stages


class ParallelPipelines(Stages[Any, Any, Any, Any]):
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
        self.others = checked_others(others)
        after: Others = "keep" if others == "drop" else others
        super().__init__(
            ParallelTransforms(self._stage("sample"), others=others),
            ParallelCollate(self._stage("collate"), others=after),
            ParallelTransforms(self._stage("batch"), others=after),
        )

    def _stage(self, name: str) -> dict[str, Any]:
        return {part: getattr(pipeline, name) for part, pipeline in self.pipelines.items()}


class ComposedPipeline(Stages[Any, Any, Any, Any]):
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
        self.asks = self._bound.asks

    def __call__(self, data: Sequence[Any], *, place: Place | None = None) -> list[Any]:
        return [self._bound(one, place, number) for number, one in enumerate(data)]


class SequencePipeline(Stages[Any, Any, Any, Any]):
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
    def __init__(self, pipeline: Any, *, short: str = "refuse") -> None:
        if short not in ("refuse", "cut"):
            raise PipelineError(f"short={short!r} must be one of 'refuse', 'cut'")
        inner = stages_of(pipeline)
        super().__init__(
            EachStep(inner.sample),
            partial(_over_time, inner.collate, short == "cut"),
            EachStep(inner.batch),
        )


class StackedSequencePipeline(Stages[Any, Any, Any, Any]):
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
        self.asks = self._bound.asks

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
