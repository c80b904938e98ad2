"""The mean of many pictures, one batch in memory at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from labeled.device import to_host
from labeled.errors import AugmentError
from labeled.transforms.labels import opened

BLOCK_BYTES = 1 << 24


def mean_image(
    pictures: Any, source: str | None = None, *, dims: Sequence[Hashable] | None = None
) -> xr.DataArray:
    """Compute the mean picture of a dataset, out of core.

    Parameters
    ----------
    pictures : DataArray, loader, or iterable of batches
        A DataArray may be lazy; it is read some rows at a time. Batches are DataArrays, arrays,
        or mappings of them, as loaders hand them out; rows that only pad a batch do not count.
    source : str, optional
        Which of the arrays of a mapping.
    dims : sequence of names, optional
        Of batches that are plain arrays.

    Returns
    -------
    DataArray (channel, height, width), float32
        Summed up in float64. :func:`write_mean_file` saves it, ``Normalize(mean=...)`` takes it.

    Raises
    ------
    AugmentError
        If there is no picture, they have different sizes, or a mapping holds several sources
        and none is named.

    Examples
    --------
    >>> images = xr.DataArray(np.arange(8.0).reshape(2, 1, 2, 2), dims=("b", "c", "y", "x"))
    >>> mean_image(images).values.tolist()
    [[[2.0, 3.0], [4.0, 5.0]]]
    """
    total: Any = None
    count = 0
    for batch, real in _batches(pictures, source):
        found, _ = opened(batch, dims)
        if found.size is None:
            raise AugmentError("pictures of different sizes have no mean; crop or resize them")
        block = np.asarray(to_host(found.array((0, 1, 2, 3))))[:real]
        if total is not None and total.shape != block.shape[1:]:
            raise AugmentError(
                f"pictures of sizes {total.shape} and {block.shape[1:]} have no mean; crop or "
                "resize them"
            )
        summed = block.sum(axis=0, dtype=np.float64)
        total = summed if total is None else total + summed
        count += len(block)
    if not count:
        raise AugmentError("there is no picture, and so no mean")
    return xr.DataArray((total / count).astype(np.float32), dims=("channel", "height", "width"))


def _batches(pictures: Any, source: str | None) -> Iterable[tuple[Any, int | None]]:
    """Return batches of pictures, and how many of each count (None: all)."""
    if isinstance(pictures, xr.DataArray):
        dim = pictures.dims[0]
        row_bytes = max(1, pictures.nbytes // max(1, pictures.sizes[dim]))
        step = max(1, BLOCK_BYTES // row_bytes)
        for start in range(0, pictures.sizes[dim], step):
            yield pictures.isel({dim: slice(start, start + step)}).load(), None
        return
    for batch in pictures:
        if not isinstance(batch, Mapping):
            yield batch, None
            continue
        if source is None and len(batch) != 1:
            raise AugmentError(f"batches hold {sorted(batch)}; say which with source=")
        yield batch[next(iter(batch)) if source is None else source], getattr(batch, "count", None)
