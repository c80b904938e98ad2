"""What a pipeline is made of: protocols that any callable or container can satisfy.

They are structural: nothing has to inherit from them, and a check at run time looks at
the members alone. What flows through (arrays, labelled arrays, tensors, anything) is a
type parameter. There are three kinds of step: sample to sample and batch to batch, which
are both a :class:`Transform`, and samples to a batch, a :class:`Collate`, of which a
pipeline has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

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
