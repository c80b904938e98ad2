"""The old implementations that know nothing of their data.

Compositions drop parts that are not named, windows and sequences are cut short in silence, and
synchronizations count as they always did: what differs from :mod:`labeled.transforms` is here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from labeled._threads import in_threads
from labeled.compat.abstract_dataloader import abstract, spec
from labeled.compat.abstract_dataloader.abstract import (
    NO_MARGIN,
    Indices,
    Margins,
    TProcessed,
    TRaw,
    TSample,
)
from labeled.compat.abstract_dataloader.spec import Index, TCollated, Times, TMetadata, TTransformed
from labeled.loader.handover import map_nest

TStack = TypeVar("TStack")


class _Parallel:
    """What is applied by the name of its part."""

    def __init__(self, **transforms: Any) -> None:
        self.transforms = transforms

    def children(self) -> Iterable[Any]:
        return self.transforms.values()


class ParallelTransforms(_Parallel, Generic[TRaw, TTransformed]):
    """Transforms by the name of their part; parts that are not named are dropped."""

    def __call__(self, data: Any) -> dict[str, Any]:
        return {name: transform(data[name]) for name, transform in self.transforms.items()}


class ParallelPipelines(_Parallel, Generic[TRaw, TTransformed, TCollated, TProcessed]):
    """Pipelines by the name of their part; parts that are not named are dropped."""

    def sample(self, data: Any) -> dict[str, Any]:
        return {name: one.sample(data[name]) for name, one in self.transforms.items()}

    def collate(self, data: Sequence[Any]) -> dict[str, Any]:
        return {
            name: one.collate([sample[name] for sample in data])
            for name, one in self.transforms.items()
        }

    def batch(self, data: Any) -> dict[str, Any]:
        return {name: one.batch(data[name]) for name, one in self.transforms.items()}


class ComposedPipeline:
    """A pipeline with transforms before its samples and after its batches (releases up to 0.3)."""

    def __init__(
        self,
        pipeline: spec.Pipeline[Any, Any, Any, Any],
        pre: spec.Transform[Any, Any] | None = None,
        post: spec.Transform[Any, Any] | None = None,
    ) -> None:
        self.pipeline, self.pre, self.post = pipeline, pre, post
        self.collate = pipeline.collate

    def sample(self, data: Any) -> Any:
        return self.pipeline.sample(data if self.pre is None else self.pre(data))

    def batch(self, data: Any) -> Any:
        made = self.pipeline.batch(data)
        return made if self.post is None else self.post(made)

    def children(self) -> Iterable[Any]:
        return [one for one in (self.pipeline, self.pre, self.post) if one is not None]


class DatasetMeta(Generic[TSample]):
    """A dataset whose items carry one ``"meta"`` in common, unless they have their own."""

    def __init__(self, dataset: spec.Dataset[Any], meta: Any) -> None:
        self.dataset, self.meta = dataset, meta

    def __getitem__(self, index: Index) -> dict[str, Any]:
        return {"meta": self.meta, **self.dataset[index]}

    def __len__(self) -> int:
        return len(self.dataset)


@dataclass
class Metadata:
    """Timestamps and nothing else."""

    timestamps: Times


class Window(abstract.Sensor[TStack, Any], Generic[TStack, TSample, TMetadata]):
    """Each sample of a sensor together with those around it.

    Cropped, windows are numbered from the first whole one; otherwise by their own sample, and
    those that are not whole are out of range.
    """

    def __init__(
        self,
        sensor: spec.Sensor[Any, Any],
        collate_fn: Callable[[list[Any]], Any] | None = None,
        past: int = 0,
        future: int = 0,
        crop: bool = True,
        parallel: int | None = None,
    ) -> None:
        self.sensor = sensor
        self.collate_fn = collate_fn
        self.past, self.future = past, future
        self.cropped, self.parallel = crop, parallel
        self.metadata = sensor.metadata
        if crop:
            times = sensor.metadata.timestamps
            self.metadata = Metadata(times[past : max(past, len(times) - future)])

    @classmethod
    def from_partial_sensor(
        cls, sensor: Callable[[str], spec.Sensor[Any, Any]], *args: Any, **options: Any
    ) -> Callable[[str], Window[Any, Any, Any]]:
        """Return what makes a window of a path, given what makes a sensor of one."""
        return lambda path: cls(sensor(path), *args, **options)

    def __getitem__(self, index: Index) -> Any:
        start = int(index) if self.cropped else int(index) - self.past
        stop = start + self.past + self.future + 1
        if index < 0 or start < 0 or stop > len(self.sensor):
            raise IndexError(f"window {index} is not whole: it needs {start} to {stop}")
        window = list(in_threads(self.sensor.__getitem__, range(start, stop), self.parallel or 1))
        return window if self.collate_fn is None else self.collate_fn(window)

    def __repr__(self) -> str:
        return f"{self.sensor!r} x [-{self.past}:+{self.future}]"


class SequencePipeline(Generic[TRaw, TTransformed, TCollated, TProcessed]):
    """A pipeline applied to each step of time; sequences are cut to the shortest."""

    def __init__(self, pipeline: spec.Pipeline[Any, Any, Any, Any]) -> None:
        self.pipeline = pipeline

    def sample(self, data: Sequence[Any]) -> list[Any]:
        return [self.pipeline.sample(step) for step in data]

    def collate(self, data: Sequence[Sequence[Any]]) -> list[Any]:
        return [self.pipeline.collate(step) for step in zip(*data, strict=False)]

    def batch(self, data: Sequence[Any]) -> list[Any]:
        return [self.pipeline.batch(step) for step in data]

    def children(self) -> Iterable[Any]:
        return [self.pipeline]


class StackedSequencePipeline(SequencePipeline[TRaw, TTransformed, TCollated, TProcessed]):
    """The same over all steps of all samples as one batch, axes (sample, step) (up to 0.3)."""

    def collate(self, data: Sequence[Sequence[Any]]) -> Any:
        made = self.pipeline.collate([step for sequence in data for step in sequence])
        steps = len(data), len(data[0])
        return map_nest(made, lambda x: x.reshape(*steps, *x.shape[1:]))

    def batch(self, data: Any) -> Any:
        lengths: list[tuple[int, int]] = []

        def flat(x: Any) -> Any:
            lengths.append(x.shape[:2])
            return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])

        made = self.pipeline.batch(map_nest(data, flat))
        return map_nest(made, lambda x: x.reshape(*lengths[0], *x.shape[1:]))


class Empty:
    """Nothing at all, for sensors that are only used one by one."""

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, npt.NDArray[np.uint32]]:
        return {name: np.array([], dtype=np.uint32) for name in timestamps}


class Next(abstract.Synchronization):
    """Of each sensor the first sample at or after each of the reference's."""

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, Indices]:
        queries = self.get_reference(timestamps)
        return {
            name: np.searchsorted(times, queries, side="left").astype(np.uint32)
            for name, times in timestamps.items()
        }


class Nearest(abstract.Synchronization):
    """Of each sensor the sample nearest to each of the reference's, all nearer than `tol`."""

    def __init__(self, reference: str, margin: Margins = NO_MARGIN, tol: float = 0.1) -> None:
        if tol < 0:
            raise ValueError(f"tol={tol} must not be negative")
        super().__init__(reference, margin)
        self.tol = tol

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, Indices]:
        queries = self.get_reference(timestamps)
        found = {
            name: np.searchsorted((times[1:] + times[:-1]) / 2, queries, side="left")
            for name, times in timestamps.items()
        }
        near = np.ones(len(queries), bool)
        for name, times in timestamps.items():
            near &= np.abs(times[found[name]] - queries) < self.tol
        return {name: one[near].astype(np.uint32) for name, one in found.items()}


class Decimate(spec.Synchronization):
    """One index out of so many of another synchronization, or of its reference's timestamps.

    With a reference, its indices count in the thinned series (as they always did).
    """

    def __init__(
        self, sync: spec.Synchronization, factor: int, reference: str | None = None
    ) -> None:
        self.sync, self.factor, self.reference = sync, factor, reference

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, Any]:
        if self.reference is None:
            return {name: one[:: self.factor] for name, one in self.sync(timestamps).items()}
        thinned = timestamps[self.reference][:: self.factor]
        return self.sync({**timestamps, self.reference: thinned})
