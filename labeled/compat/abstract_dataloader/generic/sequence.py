"""The old windows over a sensor, and pipelines over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from labeled.compat.abstract_dataloader import abstract, spec
from labeled.compat.abstract_dataloader.spec import Index, Times


@dataclass
class Metadata:
    """Timestamps and nothing else."""

    timestamps: Times


class Window(abstract.Sensor[Any, Any]):
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
        cls,
        sensor: Callable[[str], spec.Sensor[Any, Any]],
        collate_fn: Callable[[list[Any]], Any] | None = None,
        past: int = 0,
        future: int = 0,
        crop: bool = True,
        parallel: int | None = None,
    ) -> Callable[[str], Window]:
        """Return what makes a window of a path, given what makes a sensor of one."""

        def made(path: str) -> Window:
            return cls(sensor(path), collate_fn, past, future, crop, parallel)

        return made

    def __getitem__(self, index: Index) -> Any:
        start = int(index) if self.cropped else int(index) - self.past
        stop = start + self.past + self.future + 1
        if index < 0 or start < 0 or stop > len(self.sensor):
            raise IndexError(f"window {index} is not whole: it needs {start} to {stop}")
        numbers = range(start, stop)
        if self.parallel is None:
            window = [self.sensor[number] for number in numbers]
        else:
            with ThreadPoolExecutor(min(len(numbers), self.parallel)) as pool:
                window = list(pool.map(self.sensor.__getitem__, numbers))
        return window if self.collate_fn is None else self.collate_fn(window)

    def __repr__(self) -> str:
        return f"{self.sensor!r} x [-{self.past}:+{self.future}]"


class SequencePipeline:
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
