"""The data iterators of MXNet and of its Julia package, with the old behaviour to the letter.

Iterators take the old keywords and ``version="seed"``, ``"0.9.5"`` or ``"1.9.1"``; where they
differ from :mod:`labeled.providers` is told in docs/traps_mxnet.md.
"""

from labeled.compat.mxnet.arrays import ArrayDataProvider
from labeled.compat.mxnet.csviter import CSVIter
from labeled.compat.mxnet.imageiter import ImageRecordIter, ImageRecordIter_v1
from labeled.compat.mxnet.iterators import DataBatch, DataDesc
from labeled.compat.mxnet.mnistiter import MNISTIter
from labeled.compat.mxnet.recordio import (
    IRHeader,
    MXIndexedRecordIO,
    MXRecordIO,
    pack,
    pack_img,
    unpack,
    unpack_img,
)

__all__ = [
    "ArrayDataProvider",
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "IRHeader",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "MNISTIter",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]
