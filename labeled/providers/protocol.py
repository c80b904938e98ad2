"""What a data provider is: names, shapes, one batch size, and loops that start anew.

A provider wraps data from anywhere and splits it into mini-batches that are consumed in one
way. Data and labels differ in use alone: both are fed in training, data alone in prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from labeled.providers.batch import DataBatch

Provided = tuple[str, tuple[int, ...]]
"""Name and full shape of an array, batch axis included."""


@runtime_checkable
class DataProvider(Protocol):
    """Mini-batches of named arrays; each loop over it is a pass of its own.

    Every array of every batch has the shape declared, also where
    :attr:`~labeled.providers.DataBatch.count_samples` is less than the batch size.
    """

    @property
    def batch_size(self) -> int:
        """Samples of every batch, padding counted."""

    @property
    def provide_data(self) -> list[Provided]:
        """Names and shapes of the data, in the order of ``batch.data``."""

    @property
    def provide_label(self) -> list[Provided]:
        """Names and shapes of the labels; may be empty."""

    def eachbatch(self) -> Iterable[DataBatch]:
        """Begin a pass: what a consumer loops over."""

    def __iter__(self) -> Iterator[DataBatch]:
        """Begin a pass."""
