"""Files of examples as labelled, lazy, larger-than-memory datasets, fed in any axis order.

>>> import labeled
>>> ds = labeled.open_dataset("digits.hdf5")  # doctest: +SKIP
>>> for batch in ds.split("train").batches(256, shuffle=True, seed=7):  # doctest: +SKIP
...     print(batch["features"].dims)
"""

import logging

from labeled.api.accessor import LabeledArray, LabeledDataset, batches
from labeled.api.converting import convert
from labeled.api.dataset import Dataset
from labeled.api.doctoring import Diagnosis, doctor
from labeled.api.opening import concat, open_dataset
from labeled.convert.append import append
from labeled.convert.repack import repack
from labeled.convert.verify import verify
from labeled.convert.write import write
from labeled.errors import LabeledError, LabeledWarning
from labeled.loader.batch import Batch
from labeled.loader.loader import Loader
from labeled.ragged import Ragged
from labeled.samplers.state import merge_states
from labeled.selection import Selection

__all__ = [
    "Batch",
    "Dataset",
    "Diagnosis",
    "LabeledArray",
    "LabeledDataset",
    "LabeledError",
    "LabeledWarning",
    "Loader",
    "Ragged",
    "Selection",
    "append",
    "batches",
    "concat",
    "convert",
    "doctor",
    "merge_states",
    "open_dataset",
    "repack",
    "verify",
    "write",
]

__version__ = "0.1.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())
