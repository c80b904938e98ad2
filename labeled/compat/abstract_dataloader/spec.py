"""The old protocols. Those of transforms and pipelines are the native ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

import numpy as np
import numpy.typing as npt

from labeled.transforms.compose import Collate, Pipeline, Transform

__all__ = [
    "Collate",
    "Dataset",
    "Metadata",
    "Pipeline",
    "Sensor",
    "Synchronization",
    "Trace",
    "Transform",
]

Index = int | np.integer[Any]
Times = npt.NDArray[np.floating[Any]]

TSample = TypeVar("TSample", covariant=True)
TMetadata = TypeVar("TMetadata", bound="Metadata")


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
class Sensor(Protocol[TSample, TMetadata]):
    """Samples of one kind over time."""

    metadata: TMetadata

    def stream(self) -> Iterator[TSample]: ...

    def __getitem__(self, index: Index) -> TSample: ...

    def __len__(self) -> int: ...


@runtime_checkable
class Synchronization(Protocol):
    """Says which sample of each sensor belongs to each index of a trace."""

    def __call__(self, timestamps: dict[str, Times]) -> dict[str, npt.NDArray[np.integer[Any]]]: ...


@runtime_checkable
class Trace(Protocol[TSample]):
    """Samples of several sensors recorded together, and the sensors by name."""

    @overload
    def __getitem__(self, index: Index) -> TSample: ...

    @overload
    def __getitem__(self, index: str) -> Sensor[Any, Any]: ...

    def __len__(self) -> int: ...
