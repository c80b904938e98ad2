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

BUILT_IN = (
    "Adult", "BinarizedMNIST", "CIFAR10", "CIFAR100", "CalTech101Silhouettes", "CelebA",
    "DogsVsCats", "Iris", "MNIST", "OneBillionWord", "SVHN", "YouTubeAudio",
)  # fmt: skip
"""Data sets that the old package knew where to download."""


def __getattr__(name: str) -> object:
    if name in BUILT_IN:  # an AttributeError would lose its words in "from ... import"
        raise ImportError(
            f"no data set is built in, {name} neither; open its file by H5PYDataset(path, "
            "which_sets=('train',)). `labeled convert FOLDER mnist.hdf5` makes one of IDX files, "
            "with sources images and labels; `labeled convert --help` tells what else it takes"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
