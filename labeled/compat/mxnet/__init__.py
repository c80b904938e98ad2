"""The data iterators of MXNet and of its Julia package, with the old behaviour to the letter."""

from labeled.compat.mxnet.arrays import ArrayDataProvider
from labeled.compat.mxnet.csviter import CSVIter
from labeled.compat.mxnet.imageiter import ImageRecordIter, ImageRecordIter_v1
from labeled.compat.mxnet.iterators import DataBatch, DataDesc
from labeled.compat.mxnet.mnistiter import MNISTIter

__all__ = [
    "ArrayDataProvider",
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "MNISTIter",
]
