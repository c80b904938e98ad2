"""Data providers: data from anywhere, split into mini-batches that are consumed in one way.

A provider has a `batch_size`, declares the names and shapes of its data and labels, and is
looped over again and again, each loop a pass of its own. Arrays are always whole batches;
``batch.count_samples`` tells how many samples are real. Unlike those of older libraries, a
batch stays what it was, every epoch is complete, and a seed governs all randomness.
"""

from labeled.providers.arrays import ArrayDataProvider
from labeled.providers.batch import DataBatch, device_slices
from labeled.providers.foreign import IteratorProvider, provider
from labeled.providers.images import ImageRecordProvider
from labeled.providers.look import Look
from labeled.providers.mnist import MNISTProvider
from labeled.providers.protocol import DataProvider
from labeled.providers.text import CSVProvider

CSVIter = CSVProvider
ImageRecordIter = ImageRecordProvider
MNISTIter = MNISTProvider
"""The same by the names of iterators; their old behaviour is in :mod:`labeled.compat.mxnet`."""

__all__ = [
    "ArrayDataProvider",
    "CSVIter",
    "CSVProvider",
    "DataBatch",
    "DataProvider",
    "ImageRecordIter",
    "ImageRecordProvider",
    "IteratorProvider",
    "Look",
    "MNISTIter",
    "MNISTProvider",
    "device_slices",
    "provider",
]
