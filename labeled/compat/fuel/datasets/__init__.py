"""The datasets, by their old names."""

from labeled.compat.fuel.datasets.base import Dataset as Dataset
from labeled.compat.fuel.datasets.base import IndexableDataset as IndexableDataset
from labeled.compat.fuel.datasets.base import IterableDataset as IterableDataset
from labeled.compat.fuel.datasets.base import Spiral as Spiral
from labeled.compat.fuel.datasets.base import SwissRoll as SwissRoll
from labeled.compat.fuel.datasets.base import TextFile as TextFile
from labeled.compat.fuel.datasets.hdf5 import H5PYDataset as H5PYDataset
from labeled.compat.fuel.datasets.hdf5 import PytablesDataset as PytablesDataset
