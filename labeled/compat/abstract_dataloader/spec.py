"""The old protocols: structural, so that a check at run time looks at the members alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

Index = int | np.integer[Any]
Times = npt.NDArray[np.floating[Any]]

TSample = TypeVar("TSample", covariant=True)
TMetadata = TypeVar("TMetadata", bound="Metadata")

TRaw = TypeVar("TRaw", contravariant=True)
TTransformed = TypeVar("TTransformed")
TCollated = TypeVar("TCollated")
TMade = TypeVar("TMade", covariant=True)


@runtime_checkable
class Transform(Protocol[TRaw, TMade]):
    """A step from one sample to one sample, or from one batch to one batch."""

    def __call__(self, data: TRaw, /) -> TMade: ...


@runtime_checkable
class Collate(Protocol[TRaw, TMade]):
    """The step that makes a batch of samples."""

    def __call__(self, data: Sequence[TRaw], /) -> TMade: ...


@runtime_checkable
class Pipeline(Protocol[TRaw, TTransformed, TCollated, TMade]):
    """The way from stored samples to a batch as it is used."""

    def sample(self, data: TRaw, /) -> TTransformed: ...

    def collate(self, data: Sequence[TTransformed], /) -> TCollated: ...

    def batch(self, data: TCollated, /) -> TMade: ...


@runtime_checkable
class Dataset(Protocol[TSample]):
    """Samples by number."""

    def __getitem__(self, index: Index, /) -> TSample: ...

    def __len__(self) -> int: ...


@runtime_checkable
class Metadata(Protocol):
    """What is kept in memory of a sensor: at least a timestamp, in seconds, of each sample."""

    timestamps: Times


@runtime_checkable
class Sensor(Dataset[TSample], Protocol[TSample, TMetadata]):
    """Samples of one kind over time."""

    metadata: TMetadata

    def stream(self) -> Iterator[TSample]: ...


@runtime_checkable
class Synchronization(Protocol):
    """Says which sample of each sensor belongs to each index of a trace."""

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, npt.NDArray[np.integer[Any]]]: ...


@runtime_checkable
class Trace(Dataset[TSample], Protocol[TSample]):
    """Samples of several sensors recorded together, and the sensors by name."""

    @overload
    def __getitem__(self, index: Index, /) -> TSample: ...

    @overload
    def __getitem__(self, index: str, /) -> Sensor[Any, Any]: ...
