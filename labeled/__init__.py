"""Files of examples as labelled, lazy, larger-than-memory datasets, fed in any axis order.

>>> import labeled
>>> ds = labeled.open_dataset("digits.hdf5")  # doctest: +SKIP
>>> for batch in ds.split("train").batches(256, shuffle=True, seed=7):  # doctest: +SKIP
...     print(batch["features"].dims)
"""

import importlib
import logging
from typing import TYPE_CHECKING

from labeled.dataset.accessor import LabeledArray, LabeledDataset, batches
from labeled.dataset.dataset import Dataset
from labeled.dataset.opening import concat, open_dataset
from labeled.errors import LabeledError, LabeledWarning, UnknownAttributeError, suggestion
from labeled.loader.batch import Batch
from labeled.loader.loader import Loader
from labeled.ragged import Ragged
from labeled.samplers.state import merge_states
from labeled.selection import Selection
from labeled.version import VERSION

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
    "write_splits",
]

# packages inside that are imported when they are asked for
_PARTS = ("cluster", "compat", "providers", "samplers", "spaces", "torch", "transforms")

__version__ = VERSION

logging.getLogger(__name__).addHandler(logging.NullHandler())


def __dir__() -> list[str]:
    return sorted([*__all__, *_PARTS, *(name for name in globals() if name.startswith("__"))])


if TYPE_CHECKING:  # which leaves out __getattr__, so that what is not there is still refused
    from labeled.dataset.convert import convert
    from labeled.writing.append import append, write_splits
    from labeled.writing.doctor import Diagnosis, doctor
    from labeled.writing.repack import repack
    from labeled.writing.verify import verify
    from labeled.writing.write import write
else:
    # what stands in a module of another name, or outside of `writing`
    _HOMES = {
        "write_splits": "writing.append",
        "convert": "dataset.convert",
        "Diagnosis": "writing.doctor",
    }

    def __getattr__(name):
        """Import a part of the package at its first use; suggest what an unknown name means."""
        if name in _PARTS:
            return importlib.import_module(f"labeled.{name}")
        if name in __all__:
            home = _HOMES.get(name, f"writing.{name}")
            return getattr(importlib.import_module(f"labeled.{home}"), name)
        plain = f"module 'labeled' has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(plain)
        raise UnknownAttributeError(f"{plain}; {suggestion(name, (*__all__, *_PARTS))}")
