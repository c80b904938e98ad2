"""The old base classes: what a protocol needs at the least, the rest filled in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from labeled.compat.abstract_dataloader import spec
from labeled.compat.abstract_dataloader.spec import Index, TCollated, Times, TMetadata, TTransformed
from labeled.compat.abstract_dataloader.spec import Metadata as Metadata

TSample = TypeVar("TSample")
TRaw = TypeVar("TRaw")
TProcessed = TypeVar("TProcessed")

Indices = npt.NDArray[np.integer[Any]]
Margin = Sequence[int | float]
Margins = Mapping[str, Margin] | Margin

NO_MARGIN: Mapping[str, Margin] = MappingProxyType({})


class Sensor(ABC, Generic[TSample, TMetadata]):
    """A sensor for which reading one sample is left to be defined."""

    def __init__(self, metadata: TMetadata, name: str = "sensor") -> None:
        self.metadata = metadata
        self.name = name

    @abstractmethod
    def __getitem__(self, index: Index) -> TSample: ...

    def __len__(self) -> int:
        return len(self.metadata.timestamps)

    def stream(self, batch: int | None = None) -> Iterator[TSample | list[TSample]]:
        """Yield samples, or lists of exactly `batch` of them: what is left over is dropped."""
        if batch is None:
            yield from map(self.__getitem__, range(len(self)))
        else:
            for i in range(len(self) // batch):
                yield [self[j] for j in range(i * batch, (i + 1) * batch)]

    @property
    def duration(self) -> float:
        """Seconds from the first sample to the last."""
        times = self.metadata.timestamps
        return times[-1] - times[0] if len(times) else 0.0

    @property
    def framerate(self) -> float:
        """Samples a second."""
        with np.errstate(invalid="ignore"):
            return (len(self) - 1) / self.duration

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, n={len(self)})"


class Trace(Generic[TSample]):
    """Sensors, and which of their samples belong together."""

    def __init__(
        self,
        sensors: Mapping[str, spec.Sensor[Any, Any]],
        sync: spec.Synchronization | Mapping[str, Indices] | None = None,
        name: str = "trace",
    ) -> None:
        self.sensors = sensors
        self.name = name
        self.indices: Mapping[str, Indices] | None = None
        if isinstance(sync, Mapping):
            self.indices = sync
        elif sync is not None:
            self.indices = sync({k: v.metadata.timestamps for k, v in sensors.items()})

    def __getitem__(self, index: Index | str) -> Any:
        if isinstance(index, str):
            return self.sensors[index]
        if self.indices is None:
            return {name: sensor[index] for name, sensor in self.sensors.items()}
        return {
            name: sensor[self.indices[name][index].item()] for name, sensor in self.sensors.items()
        }

    def __len__(self) -> int:
        """Count the indices; without any, the samples of the first sensor."""
        counted: Mapping[str, Any] = self.sensors if self.indices is None else self.indices
        return len(list(counted.values())[0])  # noqa: RUF015  # an IndexError, as it was

    def children(self) -> Iterable[Any]:
        return self.sensors.values()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {len(self)}x[{', '.join(self.sensors)}])"


class Dataset(Generic[TSample]):
    """Traces, one after another."""

    def __init__(self, traces: Sequence[spec.Trace[TSample]]) -> None:
        self.traces = traces

    @cached_property
    def indices(self) -> npt.NDArray[np.int64]:
        """Where each trace ends."""
        return np.cumsum([len(trace) for trace in self.traces], dtype=np.int64)

    def __getitem__(self, index: Index) -> TSample:
        if isinstance(index, np.integer):
            index = np.int64(index)
        if index < 0 or index >= len(self):
            raise IndexError(f"index {index} of {len(self)} samples")
        number = int(np.searchsorted(self.indices, index, side="right"))
        start = self.indices[number - 1] if number else 0
        return self.traces[number][index - start]

    def __len__(self) -> int:
        return int(self.indices[-1]) if len(self.traces) else 0

    def children(self) -> Iterable[Any]:
        return self.traces

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.traces)} traces, n={len(self)})"


class Transform(Generic[TRaw, TTransformed]):
    """Transforms one after another; none of them is checked."""

    def __init__(self, transforms: Sequence[spec.Transform[Any, Any]]) -> None:
        self.transforms = transforms

    def __call__(self, data: TRaw) -> TTransformed:
        made: Any = data
        for transform in self.transforms:
            made = transform(made)
        return made  # type: ignore[no-any-return]  # whatever the last one makes

    def children(self) -> Iterable[Any]:
        return self.transforms


class Collate(Generic[TTransformed, TCollated]):
    """A collate that leaves the samples as they are."""

    def __call__(self, data: Sequence[TTransformed]) -> TCollated:
        return data  # type: ignore[return-value]  # which a sub-class must correct


class Pipeline(Generic[TRaw, TTransformed, TCollated, TProcessed]):
    """A pipeline of what is given; any stage that is not leaves the data as they are."""

    def __init__(
        self,
        sample: spec.Transform[TRaw, TTransformed] | None = None,
        collate: spec.Collate[TTransformed, TCollated] | None = None,
        batch: spec.Transform[TCollated, TProcessed] | None = None,
    ) -> None:
        stages: dict[str, Any] = {"sample": sample, "collate": collate, "batch": batch}
        self._given = {name: stage for name, stage in stages.items() if stage is not None}
        for name, stage in self._given.items():
            setattr(self, name, stage)

    def sample(self, data: TRaw) -> TTransformed:
        return data  # type: ignore[return-value]

    def collate(self, data: Sequence[TTransformed]) -> TCollated:
        return data  # type: ignore[return-value]

    def batch(self, data: TCollated) -> TProcessed:
        return data  # type: ignore[return-value]

    def children(self) -> Iterable[Any]:
        return list(self._given.values())


class Synchronization(ABC):
    """A synchronization on the timestamps of one sensor, away from the ends of all.

    A margin is how much of a sensor's beginning and end is left alone: an ``int`` is samples,
    anything else seconds.
    """

    def __init__(self, reference: str, margin: Margins = NO_MARGIN) -> None:
        self.reference = reference
        for pair in margin.values() if isinstance(margin, Mapping) else [margin]:
            if len(pair) != 2:
                raise TypeError(f"a margin is a pair of start and end, not {pair}")
        self.margin = margin

    def apply_margin(
        self, timestamps: Mapping[str, Times]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Return the first and last sample of each sensor within its margin."""
        first, last, margin = dict[str, int](), dict[str, int](), self.margin
        for name, times in timestamps.items():
            left, right = margin.get(name, (0, 0)) if isinstance(margin, Mapping) else margin
            if not isinstance(left, int):
                left = int(np.searchsorted(times, times[0] + left, side="left"))
            if not isinstance(right, int):
                right = len(times) - int(np.searchsorted(times, times[-1] - right, side="right"))
            first[name], last[name] = left, len(times) - 1 - right
        return first, last

    def get_reference(self, timestamps: Mapping[str, Times]) -> Times:
        """Return the timestamps of the reference sensor at which all others have samples."""
        if self.reference not in timestamps:
            raise KeyError(f"reference {self.reference!r} is not among {list(timestamps)}")
        first, last = self.apply_margin(timestamps)
        start = max(times[first[name]] for name, times in timestamps.items())
        end = min(times[last[name]] for name, times in timestamps.items())
        times = timestamps[self.reference]
        inside: Times = times[np.searchsorted(times, start) : np.searchsorted(times, end, "right")]
        return inside

    @abstractmethod
    def __call__(self, timestamps: dict[str, Times]) -> dict[str, Indices]: ...
