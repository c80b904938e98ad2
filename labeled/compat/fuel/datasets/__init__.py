"""The datasets, by their old names."""

from labeled.compat.fuel.datasets.base import (
    Dataset,
    IndexableDataset,
    IterableDataset,
    Spiral,
    SwissRoll,
    TextFile,
)
from labeled.compat.fuel.datasets.hdf5 import H5PYDataset, PytablesDataset

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
