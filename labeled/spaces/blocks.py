"""Lazy batches of zeros, their length known or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from labeled.later import Later

da: Any = Later("dask.array")


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
