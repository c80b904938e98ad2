"""Pipelines: three stages put together, pipelines side by side, and transforms around one.

A pipeline holds a collate, so two of them never follow one another; side by side, each
takes its own part of a sample to its own part of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from labeled.errors import PipelineError, PipelineTypeError
from labeled.transforms.compose import (
    Others,
    ParallelTransforms,
    SequentialTransforms,
    as_transform,
    checked_others,
    identity,
    is_pipeline,
    name_of,
    routed,
)
from labeled.transforms.place import Bound
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
        raise PipelineTypeError(f"{collate!r} is no collate: give a callable that takes samples")
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
        given = {**({} if collates is None else collates), **named}
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
        given = {**({} if pipelines is None else pipelines), **named}
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
