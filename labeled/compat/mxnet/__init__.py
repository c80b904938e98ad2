"""The data iterators of MXNet and of its Julia package, with the old behaviour to the letter.

Iterators take the old keywords and ``version="seed"``, ``"0.9.5"`` or ``"1.9.1"``, and have the
functions of the Julia package as methods: ``eachbatch``, ``get``, ``load_data`` and others. The
page docs/traps_mxnet.md shows where they differ from :mod:`labeled.providers`.
"""

from labeled.compat.mxnet.fileiters import CSVIter, MNISTIter
from labeled.compat.mxnet.imageiter import ImageRecordIter, ImageRecordIter_v1
from labeled.compat.mxnet.iterators import (
    AbstractDataProvider,
    ArrayDataProvider,
    DataBatch,
    DataDesc,
    MXDataProvider,
)
from labeled.compat.mxnet.recordio import (
    IRHeader,
    MXIndexedRecordIO,
    MXRecordIO,
    pack,
    pack_img,
    unpack,
    unpack_img,
)

CSVProvider = CSVIter
ImageRecordProvider = ImageRecordIter
MNISTProvider = MNISTIter
"""The names of the Julia package for the same iterators."""

__all__ = [
    "AbstractDataProvider",
    "ArrayDataProvider",
    "CSVIter",
    "CSVProvider",
    "DataBatch",
    "DataDesc",
    "IRHeader",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordProvider",
    "MNISTIter",
    "MNISTProvider",
    "MXDataProvider",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]
