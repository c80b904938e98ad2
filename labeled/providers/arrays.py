"""Whatever holds samples, as arrays with names, and the provider of arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from labeled._validation import check_arguments
from labeled.device import Array, Device, adopted, dtype_of, is_array, is_foreign, to_host
from labeled.errors import ArrayError, LoaderError
from labeled.loader.options import Shuffle
from labeled.providers.batch import BatchAxis
from labeled.providers.provider import Feed, LoaderProvider
from labeled.sources.blocks import BlockSource
from labeled.sources.source import AnySource, Source


@check_arguments(LoaderError)
def ArrayDataProvider(
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
    shard: tuple[int, int] = (0, 1),
    memory: float | str | None = None,
    device: str | Device = "cpu",
) -> LoaderProvider:
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
    shard : (index, count)
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

    feeds: list[Feed] = []
    sources: dict[str, AnySource] = {}
    pairs = [(False, *pair) for pair in named_arrays(data, "data")]
    pairs += [
        (True, *pair) for pair in named_arrays([] if label is None else label, "softmax_label")
    ]
    for is_label, name, array in pairs:
        feeds.append(Feed(name, name, is_label))
        sources.setdefault(name, source_of(name, array))
    return LoaderProvider(
        sources,
        None,
        feeds,
        batch_size=batch_size,
        data_padding=data_padding,
        label_padding=label_padding,
        roll_over=roll_over,
        axes=axes,
        title="ArrayDataProvider",
        shuffle=shuffle,
        seed=seed,
        shard=shard,
        memory=memory,
        device=device,
    )


def source_of(name: str, array: Any) -> AnySource:
    """Return an array as a source of the loader, examples first."""
    if is_dask_collection(array) and not isinstance(array, xr.DataArray):
        _check_unmasked(name, array._meta)
        array = xr.DataArray(array, dims=_dim_names(name, array.ndim))
    if isinstance(array, xr.DataArray) and array.dims:
        dim = _sample_dim(array)
        if is_dask_collection(array.data):
            return BlockSource.of(array, dim, name)
        array = array.transpose(dim, ...)
    values = to_host(samples_of(name, array))
    dims = array.dims if isinstance(array, xr.DataArray) else _dim_names(name, values.ndim)
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    return Source.of_array(name, tuple(map(str, dims)), native)


def _dim_names(name: str, ndim: int) -> tuple[str, ...]:
    return ("batch", *(f"{name}_{axis}" for axis in range(1, ndim)))[:ndim]


def named_arrays(given: Any, name: str) -> list[tuple[str, Any]]:
    """Return (name, array) pairs: of one array, one pair, a list of pairs or a mapping.

    Examples
    --------
    >>> [n for n, _ in named_arrays([("x", np.zeros(3)), ("y", np.zeros(3))], "data")]
    ['x', 'y']
    >>> [n for n, _ in named_arrays([1.0, 2.0], "data")]
    ['data']
    """
    if isinstance(given, Mapping):
        return [_pair(pair) for pair in given.items()]
    if _is_pair(given):
        return [_pair(given)]
    if isinstance(given, list | tuple) and any(_is_pair(pair) for pair in given):
        return [_pair(pair) for pair in given]
    if isinstance(given, list | tuple) and not given:
        return []
    return [(name, given)]


def _is_pair(given: Any) -> bool:
    """Whether a name stands beside an array; a key of another type is still meant as a name."""
    if not isinstance(given, tuple) or len(given) != 2:
        return False
    return isinstance(given[0], str) or (_has_axes(given[1]) and not _has_axes(given[0]))


def _has_axes(value: Any) -> bool:
    return isinstance(value, list | tuple) or bool(getattr(value, "shape", ()))


def _pair(pair: Any) -> tuple[str, Any]:
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ArrayError(f"{pair!r:.60} must be a (name, array) pair")
    if not isinstance(pair[0], str):
        raise ArrayError(f"the name {pair[0]!r:.60} of an array must be text")
    return pair


def _sample_dim(array: xr.DataArray) -> Hashable:
    """Return the dim of a DataArray that counts samples: ``batch``, else the first one."""
    return "batch" if "batch" in array.dims else array.dims[0]


def samples_of(name: str, value: Any) -> Array:
    """Return what was given as an array at hand whose first axis counts samples.

    Parameters
    ----------
    name : str
        What errors call it.
    value : array of any library, DataArray, or nested lists of numbers
        Lazy ones are computed.

    Returns
    -------
    array
        Of NumPy, CuPy or the array-API standard: `value` itself or its memory where it has some.

    Raises
    ------
    ArrayError
        If it makes no array, or one of objects, without axes, or with a mask that would be lost.

    Examples
    --------
    >>> samples_of("x", [[1, 2], [3]])
    Traceback (most recent call last):
    labeled.errors.ArrayError: 'x' must be an array of samples: ... inhomogeneous shape ...
    """
    if isinstance(value, xr.DataArray) and value.dims:
        value = value.transpose(_sample_dim(value), ...)
    if is_dask_collection(value):
        value = value.compute()
    _check_unmasked(name, value)
    try:
        found = _at_hand(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArrayError(f"{name!r} must be an array of samples: {error}") from None
    if dtype_of(found).kind == "O" or not found.shape:
        raise ArrayError(
            f"{name!r} must be an array of samples: {type(value).__name__} {value!r:.60} makes "
            f"one of shape {tuple(found.shape)} and dtype {found.dtype}"
        )
    return found


def _check_unmasked(name: str, value: Any) -> None:
    """Raise :class:`ArrayError` for a masked array, whose mask nobody would see."""
    if isinstance(value, np.ma.MaskedArray):
        raise ArrayError(
            f"{name!r} is a masked array, whose mask would be lost; give it with its gaps filled"
        )


def _at_hand(value: Any) -> Array:
    if is_array(value):
        return value
    if is_foreign(value):
        return adopted(value)
    return value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)
