"""The datasets, by their old names."""

from labeled.compat.fuel.datasets.base import Dataset, IndexableDataset, IterableDataset
from labeled.compat.fuel.datasets.hdf5 import H5PYDataset, PytablesDataset
from labeled.compat.fuel.datasets.text import TextFile
from labeled.compat.fuel.datasets.toy import Spiral, SwissRoll

__all__ = [
    "Dataset",
    "H5PYDataset",
    "IndexableDataset",
    "IterableDataset",
    "PytablesDataset",
    "Spiral",
    "SwissRoll",
    "TextFile",
]
