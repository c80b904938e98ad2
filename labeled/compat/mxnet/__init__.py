"""The data iterators of MXNet and of its Julia package, with the old behaviour to the letter.

Iterators take the old keywords and ``version="seed"``, ``"0.9.5"`` or ``"1.9.1"``, and have the
functions of the Julia package as methods: ``eachbatch``, ``get``, ``load_data`` and others. The
page docs/traps_mxnet.md shows where they differ from :mod:`labeled.providers`.
"""

from labeled.compat import aliases_of
from labeled.compat.mxnet.fileiters import CSVIter as CSVIter
from labeled.compat.mxnet.fileiters import MNISTIter as MNISTIter
from labeled.compat.mxnet.imageiter import ImageRecordIter as ImageRecordIter
from labeled.compat.mxnet.imageiter import ImageRecordIter_v1 as ImageRecordIter_v1
from labeled.compat.mxnet.iterators import AbstractDataProvider as AbstractDataProvider
from labeled.compat.mxnet.iterators import ArrayDataProvider as ArrayDataProvider
from labeled.compat.mxnet.iterators import DataBatch as DataBatch
from labeled.compat.mxnet.iterators import DataDesc as DataDesc
from labeled.compat.mxnet.iterators import MXDataProvider as MXDataProvider
from labeled.compat.mxnet.recordio import IRHeader as IRHeader
from labeled.compat.mxnet.recordio import MXIndexedRecordIO as MXIndexedRecordIO
from labeled.compat.mxnet.recordio import MXRecordIO as MXRecordIO
from labeled.compat.mxnet.recordio import pack as pack
from labeled.compat.mxnet.recordio import pack_img as pack_img
from labeled.compat.mxnet.recordio import unpack as unpack
from labeled.compat.mxnet.recordio import unpack_img as unpack_img
from labeled.errors import LabeledError

# the names of the Julia package for the same iterators
CSVProvider, ImageRecordProvider, MNISTProvider = CSVIter, ImageRecordIter, MNISTIter

MXNetError = LabeledError  # which old code catches

# the modules of this package, and the paths by which old code imports what is there
MODULES = {"": ("", ".base", ".io"), ".recordio": (".recordio",)}

install_aliases = aliases_of("mxnet", __name__, MODULES)
