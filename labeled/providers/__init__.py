"""Data providers: data from anywhere, split into mini-batches that are consumed in one way.

A provider has a `batch_size`, declares the names and shapes of its data and labels, and is
looped over again and again, each loop a pass of its own. Arrays are always whole batches;
``batch.count_samples`` is the number of samples that are real. Unlike those of older libraries, a
batch stays what it was, every epoch is complete, and a seed governs all randomness. The old
iterators, with their behaviour to the letter, are in :mod:`labeled.compat.mxnet`.
"""

from labeled.providers.batch import DataBatch, device_slices
from labeled.providers.data_provider import (
    ArrayDataProvider,
    DataProvider,
    IteratorProvider,
    provider,
)

__all__ = [
    "ArrayDataProvider",
    "DataBatch",
    "DataProvider",
    "IteratorProvider",
    "device_slices",
    "provider",
]
