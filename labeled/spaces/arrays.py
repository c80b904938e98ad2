"""What a batch's arrays can be asked for: contiguous memory, lazy zeros, and a way by DLPack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labeled import permute
from labeled.device import adopted, brought_back, is_array, is_foreign, library_of
from labeled.later import Later
from labeled.spaces.checks import has_names, is_dask

da: Any = Later("dask.array")


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


def lazy_zeros(
    sizes: Callable[[int], tuple[int, ...]],
    n: int | None,
    batch_axis: int,
    dtype: np.dtype[Any],
    chunks: Any = "auto",
) -> Any:
    """Return a dask array of zeros of shape ``sizes(n)``, chunked along the batch axis only.

    Without `n` the length is unknown (NaN) and computes to no rows.
    """
    shape = sizes(0 if n is None else n)
    per_axis = tuple(chunks if i == batch_axis else -1 for i in range(len(shape)))
    zeros = da.zeros(shape, dtype=dtype, chunks=per_axis)
    if n is not None:
        return zeros
    unknown = tuple((np.nan,) if i == batch_axis else c for i, c in enumerate(zeros.chunks))
    return da.Array(zeros.dask, zeros.name, unknown, meta=zeros._meta)


def foreign_library(batch: Any) -> str | None:
    """Return the library of a batch's arrays, if it is one that only DLPack knows."""
    if isinstance(batch, tuple):
        found = (foreign_library(part) for part in batch)
        return next((library for library in found if library is not None), None)
    return library_of(batch) if is_foreign(batch) else None


def by_dlpack(convert: Callable[[Any], Any], batch: Any, library: str) -> Any:
    """Convert a batch of another library as NumPy's or CuPy's; return that library's arrays."""
    made = convert(_each(is_foreign, adopted, batch))
    return _each(is_array, lambda x: brought_back(x, library), made)


def _each(which: Callable[[Any], bool], change: Callable[[Any], Any], batch: Any) -> Any:
    if isinstance(batch, tuple):
        return tuple(_each(which, change, part) for part in batch)
    return change(batch) if which(batch) else batch
