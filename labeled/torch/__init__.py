"""Batches for torch: an ``IterableDataset`` whose workers are parts, and a loader that resumes.

``labeled.torch.IterableDataset`` is a class of torch's, so it is made when it is first
asked for; nothing here imports torch before.
"""

from __future__ import annotations

from typing import Any

from labeled.torch.loader import DataLoader, data_loader
from labeled.torch.rows import iterable_dataset

__all__ = ["DataLoader", "IterableDataset", "data_loader"]  # made by __getattr__


def __getattr__(name: str) -> Any:
    if name == "IterableDataset":
        return iterable_dataset()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
