"""Pipelines over time: a sample is a sequence, and each of its steps goes through the inner one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import xarray as xr

from labeled.errors import PipelineError
from labeled.transforms.pipelines import Stages, stages_of
from labeled.transforms.place import Bound, Place

SHORT = ("refuse", "cut")


class EachStep:
    """A transform applied to every item of a sequence."""

    def __init__(self, transform: Callable[..., Any]) -> None:
        self._bound = Bound(transform)

    @property
    def children(self) -> tuple[Any, ...]:
        return (self._bound.transform,)

    def __call__(self, data: Sequence[Any], *, place: Place | None = None) -> list[Any]:
        if place is None or not self._bound.asks:
            return [self._bound(one) for one in data]
        return [self._bound(one, place.into(number)) for number, one in enumerate(data)]


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

    def __init__(self, pipeline: Any, *, short: str = "refuse") -> None:
        if short not in SHORT:
            raise PipelineError(f"short={short!r} must be one of {', '.join(map(repr, SHORT))}")
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

    @property
    def children(self) -> tuple[Any, ...]:
        return (self._bound.transform,)

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
