"""Arrays in memory, or lazy ones, as a provider."""

from __future__ import annotations

from typing import Any

import xarray as xr
from dask.base import is_dask_collection

from labeled._validation import check_arguments
from labeled.catalog.blocks import BlockSource
from labeled.catalog.region import whole
from labeled.catalog.source import AnySource, Source
from labeled.device import Device, to_host
from labeled.errors import ArrayError, LoaderError
from labeled.loader.request.options import Shuffle
from labeled.providers.batch import BatchAxis
from labeled.providers.samples import check_unmasked, named_arrays, sample_dim, samples_of
from labeled.providers.served import Feed, LoaderProvider, Serving
from labeled.selection import Selection


class ArrayDataProvider(LoaderProvider):
    """Batches of arrays; a :class:`~labeled.providers.DataProvider`.

    Arrays are not copied as a whole, and keep their dtype.

    Parameters
    ----------
    data : array, ``(name, array)`` pair, list of pairs or mapping
        Examples lie along axis 0 of a NumPy or dask array, along the dim ``batch`` (else the
        first) of a DataArray. An array alone is called ``data``.
    label : the same, optional
        An array alone is called ``softmax_label``. Without it no labels are provided.
    batch_size : int
        0 takes the whole arrays as one batch. A size larger than the arrays is padded.
    shuffle : bool, "full" or "window"
        Another order every epoch; data and labels stay together.
    data_padding, label_padding : scalar
        Fill the samples that the last batch lacks.
    roll_over : bool
        Fill them with samples of the same epoch instead, beginning at its first one.
        ``count_samples`` tells the real ones either way. All parts then have as many batches,
        also one that has no sample of its own, where none is real.
    seed : int, optional
        Every order is a function of it and the epoch; drawn once when not given.
    axes : {"first", "last"}
        Where the batch axis of what is handed out stands.
    part : (index, count)
        Which share of every epoch is served.
    memory : size
        The most that a loop over lazy arrays adds to the memory of the process.
    device : "cpu", "cuda", "cuda:<n>" or Device
        Where batches are made; as for :meth:`labeled.Dataset.batches`.

    Raises
    ------
    LoaderError
        If names repeat, lengths differ or a padding does not fit; at once.
    ArrayError
        If something is no array.

    Examples
    --------
    >>> import numpy as np
    >>> provider = ArrayDataProvider(np.arange(10.0), np.arange(10), batch_size=4)
    >>> provider.provide_data, provider.provide_label
    ([('data', (4,))], [('softmax_label', (4,))])
    >>> for batch in provider:
    ...     print(batch.data[0], batch.count_samples)
    [0. 1. 2. 3.] 4
    [4. 5. 6. 7.] 4
    [8. 9. 0. 0.] 2
    """

    @check_arguments(LoaderError)
    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 0,
        shuffle: Shuffle = False,
        data_padding: Any = 0,
        label_padding: Any = 0,
        *,
        roll_over: bool = False,
        seed: int | None = None,
        axes: BatchAxis = "first",
        part: tuple[int, int] = (0, 1),
        memory: float | str | None = None,
        device: str | Device = "cpu",
    ) -> None:
        sources: dict[str, AnySource] = {}
        feeds = []
        for name, array in named_arrays(data, "data"):
            feeds.append(Feed(name, name))
            sources.setdefault(name, source_of(name, array))
        for name, array in [] if label is None else named_arrays(label, "softmax_label"):
            feeds.append(Feed(name, name, is_label=True))
            sources.setdefault(name, source_of(name, array))
        serving = Serving(
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            part=part,
            data_padding=data_padding,
            label_padding=label_padding,
            roll_over=roll_over,
            axes=axes,
            memory=memory,
            device=device,
        )
        selections = {name: Selection.all(source.n_rows) for name, source in sources.items()}
        super().__init__(sources, selections, feeds, serving)


def source_of(name: str, array: Any) -> AnySource:
    """Return an array as a source of the loader, examples first."""
    if is_dask_collection(array) and not isinstance(array, xr.DataArray):
        check_unmasked(name, array._meta)
        array = xr.DataArray(array, dims=_dim_names(name, array.ndim))
    if isinstance(array, xr.DataArray):
        if not array.dims:
            raise ArrayError(f"array {name!r} has no axis that counts examples")
        dim = sample_dim(array)
        if is_dask_collection(array.data):
            return BlockSource.of(array, dim, name)
        array = array.transpose(dim, ...)
    values = to_host(samples_of(name, array))
    dims = array.dims if isinstance(array, xr.DataArray) else _dim_names(name, values.ndim)
    return _in_memory(name, tuple(map(str, dims)), values)


def _dim_names(name: str, ndim: int) -> tuple[str, ...]:
    return ("batch", *(f"{name}_{axis}" for axis in range(1, ndim)))[:ndim]


def _in_memory(name: str, dims: tuple[str, ...], values: Any) -> Source:
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return Source(name, (), dims, whole(native.shape[1:]), loaded=native)
