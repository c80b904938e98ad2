"""Contiguous memory on demand: conversions give views until somebody asks for more."""

from __future__ import annotations

from typing import Any

import numpy as np

from labeled import permute
from labeled.device import is_array
from labeled.spaces.checks import has_names, is_dask


def compact(batch: Any) -> Any:
    """Return `batch` with every array C-contiguous: itself where it is so already.

    Parameters
    ----------
    batch : batch
        Numeric, lazy (its chunks become contiguous when computed), a DataArray, sparse
        (left alone), None, or a tuple of those.

    Examples
    --------
    >>> compact(np.zeros((2, 3)).T).flags.c_contiguous
    True
    """
    if isinstance(batch, tuple):
        return tuple(compact(part) for part in batch)
    if isinstance(batch, np.ndarray) and batch.flags.c_contiguous:
        return batch
    if is_array(batch):
        return permute.copy(batch, tuple(range(batch.ndim)))
    if has_names(batch):
        return batch.copy(data=compact(batch.data))
    if is_dask(batch):
        return batch.map_blocks(compact, dtype=batch.dtype, meta=batch._meta)
    return batch
