"""What a data provider is, and the provider of whatever a loader can read.

A provider wraps data from anywhere and splits it into mini-batches that are consumed in one
way. Data and labels differ in use alone: both are fed in training, data alone in prediction.

The provider over a loader makes one plan, and each loop runs a loader of its own over it: loops
share readers, and nothing that moves, so they may be nested or run side by side (each within the
`memory` given). Loop number k, counted from the first one begun, is epoch k.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from labeled import permute
from labeled._validation import check_arguments, check_keywords, flag
from labeled.device import (
    Array,
    Device,
    adopted,
    dtype_of,
    is_array,
    is_foreign,
    namespace,
    to_host,
)
from labeled.errors import ArrayError, LoaderError, UnknownNameError, did_you_mean
from labeled.loader.layout import can_hold, padding_of
from labeled.loader.loader import Loader
from labeled.loader.options import BatchOptions, Shuffle, integer
from labeled.loader.plan import plan_batches
from labeled.providers.batch import BatchAxis, DataBatch, batch_axis_of, moved_order
from labeled.samplers.windows import shard_bounds
from labeled.selection import Selection
from labeled.sources.blocks import BlockSource
from labeled.sources.ragged import RaggedSource
from labeled.sources.source import AnySource, Source
from labeled.spaces import space_of

Provided = tuple[str, tuple[int, ...]]
"""Name and full shape of an array, batch axis included."""

COUNTING = Lock()
"""Held while the number of a loop is taken, by whoever begins one."""


@dataclass(frozen=True)
class Shapes:
    """The batch size, and the names and lengths of one sample of data and labels."""

    batch_size: int
    data: dict[str, tuple[int, ...]]
    label: dict[str, tuple[int, ...]]


class DataProvider:
    """Mini-batches of named arrays; each loop over it is a pass of its own.

    Every array of every batch has the shape declared, also where
    :attr:`~labeled.providers.DataBatch.count_samples` is less than the batch size.

    Parameters
    ----------
    axes : {"first", "last"}
        Where the batch axis of what is handed out stands.
    data_padding, label_padding : scalar
        Fill the samples that a batch lacks.
    """

    def __init__(self, axes: BatchAxis, data_padding: Any, label_padding: Any) -> None:
        self._axes = batch_axis_of(axes)
        self._padding = data_padding, label_padding

    @cached_property
    def _shapes(self) -> Shapes:
        raise NotImplementedError

    def eachbatch(self) -> Iterator[DataBatch]:
        """Begin a pass."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[DataBatch]:
        return self.eachbatch()

    @property
    def batch_size(self) -> int:
        """Samples of every batch, padding counted."""
        return self._shapes.batch_size

    @property
    def provide_data(self) -> list[Provided]:
        """Names and shapes of the data, batch axis included, in the order of ``batch.data``."""
        return self._provided(self._shapes.data)

    @property
    def provide_label(self) -> list[Provided]:
        """Names and shapes of the labels, batch axis included; may be empty."""
        return self._provided(self._shapes.label)

    def _provided(self, shapes: Mapping[str, tuple[int, ...]]) -> list[Provided]:
        return [
            (name, moved_order((self.batch_size, *shape), self._axes))
            for name, shape in shapes.items()
        ]

    def _finished(self, batch: DataBatch) -> DataBatch:
        """Pad a batch whose batch axis is first, and put that axis where it is wanted."""
        whole = (
            {name: self._whole(array, padding) for name, array in arrays.items()}
            for arrays, padding in zip(
                (batch.named_data, batch.named_label), self._padding, strict=True
            )
        )
        rows, missing = batch.rows, self.batch_size - batch.batch_size
        if rows is not None and missing:
            rows = np.append(rows, np.full(missing, -1))
        dims = {name: moved_order(one, self._axes) for name, one in batch.dims.items()}
        return DataBatch(next(whole), next(whole), batch.count_samples, rows, self._axes, dims)

    def _whole(self, array: Array, padding: Any) -> Array:
        """Return an array padded to the batch size, its batch axis where it is wanted."""
        n, size = int(array.shape[0]), self.batch_size
        if n < size:
            dtype = dtype_of(array)
            if not can_hold(dtype, padding):
                raise LoaderError(
                    f"a short batch of dtype {dtype} cannot be padded with {padding!r}; give "
                    "data_padding or label_padding"
                )
            shape, value = (size, *array.shape[1:]), padding_of(dtype, padding)
            padded = namespace(array).full(shape, value, dtype=array.dtype)
            padded[:n, ...] = array
            array = padded
        if self._axes == "first" or len(array.shape) < 2:
            return array
        return permute.copy(array, (*range(1, len(array.shape)), 0))


OPTIONS = (
    *("batch_size", "data_padding", "label_padding", "roll_over", "axes", "shuffle", "seed"),
    *("shard", "window_rows", "memory", "threads", "prefetch", "dtype", "scale", "shift"),
    *("errors", "max_lost", "device"),
)
"""What a caller of ``as_provider`` may name; all but the first five are options of ``batches``."""


class LoaderProvider(DataProvider):
    """Sources served by a loader.

    Parameters
    ----------
    sources : mapping of str to source
    selections : mapping of str to Selection
        The rows of each source.
    data, label : mapping of str to str
        The source behind each name to provide.
    batch_size : int
        0 takes all samples at once.
    data_padding, label_padding, axes
        As for :class:`DataProvider`.
    roll_over : bool
        Fill the last batch with samples of the same epoch, beginning at its first one.
    title : str
        What messages call it.
    **loading
        Other options of :meth:`labeled.Dataset.batches`.
    """

    def __init__(
        self,
        sources: Mapping[str, AnySource],
        selections: Mapping[str, Selection],
        data: Mapping[str, str],
        label: Mapping[str, str],
        *,
        batch_size: int = 0,
        data_padding: Any = 0,
        label_padding: Any = 0,
        roll_over: bool = False,
        axes: BatchAxis = "first",
        title: str = "as_provider",
        **loading: Any,
    ) -> None:
        super().__init__(axes, data_padding, label_padding)
        self._title, self._skips = title, loading.get("errors") == "skip"
        self._rolls_over = flag("roll_over", roll_over, error=LoaderError)
        if self._skips and roll_over:
            raise LoaderError(
                "errors='skip' leaves rows out, so that a last batch is not filled up with others: "
                "pad it instead (roll_over=False)"
            )
        self._names = dict(data), dict(label)
        _check_names(data, label)
        used = {name: sources[name] for name in (*data.values(), *label.values())}
        rows = {name: selections[name] for name in used}
        counts = {name: len(some) for name, some in rows.items()}
        if len(set(counts.values())) > 1:
            raise LoaderError(f"data and labels hold different numbers of samples: {counts}")
        self._n_rows = next(iter(counts.values()))
        size = integer("batch_size", batch_size, least=0) or self._n_rows
        if not size:
            raise LoaderError("there are no samples to take at once; give a batch_size")
        shapes = ({n: _shape_of(used[s]) for n, s in names.items()} for names in self._names)
        self._shapes = Shapes(size, next(shapes), next(shapes))
        self._dims = {name: used[source].dims for name, source in {**data, **label}.items()}
        spaces = {
            name: space_of(one.dims, (self._n_rows, *one.row_shape), one.dtype, name=name)
            for name, one in used.items()
            if one.dtype.kind not in "OSU" and not isinstance(one, RaggedSource)
        }
        options = BatchOptions(size, last="wrap" if roll_over else "keep", **loading)
        self._plan = plan_batches(used, rows, spaces, self._n_rows, options)
        if not roll_over and self.n_samples % size:
            for names, padding in zip(self._names, self._padding, strict=True):
                for name in names.values():
                    self._check_padding(used[name], name, padding)
        self._epoch = 0

    def _check_padding(self, source: AnySource, name: str, padding: Any) -> None:
        """Refuse a padding that the dtype handed out cannot hold."""
        change = self._plan.finish.casts.get(name)
        made = None if change is None else np.float64 if change.scaled else change.dtype
        dtype = source.dtype if made is None else np.dtype(made)
        if not can_hold(dtype, padding):
            raise LoaderError(
                f"{source.where}: a last batch of dtype {dtype} cannot be padded with {padding!r}; "
                "give data_padding or label_padding"
            )

    @property
    def seed(self) -> int:
        """What every epoch's order is drawn from; chosen once when not given."""
        return self._plan.epoch_plan.order.seed

    @property
    def n_samples(self) -> int:
        """Samples of an epoch of this shard."""
        start, stop = shard_bounds(self._n_rows, *self._plan.epoch_plan.shard)
        return stop - start

    def __len__(self) -> int:
        """Batches of an epoch of this shard; those that ``errors="skip"`` empties are left out."""
        if self._rolls_over:
            return self._plan.epoch_plan.n_batches
        return -(-self.n_samples // self.batch_size)

    def eachbatch(self) -> Iterator[DataBatch]:
        """Begin the next epoch; loops that are still running go on."""
        with COUNTING:
            epoch, self._epoch = self._epoch, self._epoch + 1
        plan = self._plan.epoch_plan.at_epoch(epoch)
        return self._batches(Loader(replace(self._plan, epoch_plan=plan)))

    def _batches(self, loader: Loader) -> Iterator[DataBatch]:
        with iter(loader) as batches:
            for number, batch in enumerate(batches):
                if not batch.count and self._skips:
                    continue
                left = max(self.n_samples - number * self.batch_size, 0)
                named = (
                    {name: batch.arrays[source] for name, source in names.items()}
                    for names in self._names
                )
                count = min(left, batch.count)
                made = DataBatch(next(named), next(named), count, batch.rows, dims=self._dims)
                yield self._finished(made)

    def __repr__(self) -> str:
        data = ", ".join(f"{name} {shape}" for name, shape in self.provide_data)
        labels = ", ".join(f"{name} {shape}" for name, shape in self.provide_label) or "none"
        return (
            f"<labeled.providers.{self._title}: {len(self)} batches of "
            f"{self.batch_size} samples; data {data}; labels {labels}>"
        )


def _shape_of(source: AnySource) -> tuple[int, ...]:
    """Return the lengths of one sample."""
    if isinstance(source, RaggedSource):
        raise LoaderError(
            f"{source.where}: {source.ragged}; a provider has one shape for all: give batches() a "
            "pipeline that makes it, and its loader to IteratorProvider"
        )
    return source.row_shape


def _check_names(data: Iterable[Any], label: Iterable[Any]) -> None:
    names = [*data, *label]
    for name in names:
        if not isinstance(name, str):
            raise LoaderError(f"the name {name!r} of an array must be text")
        if names.count(name) > 1:
            raise LoaderError(f"the name {name!r} is given twice among data and labels {names}")
    if not [*data]:
        raise LoaderError("a provider needs at least one array of data")


LABEL_NAMES = frozenset({"label", "labels", "target", "targets", "y"})
"""Sources that are labels where nobody says which are."""

Names = str | Sequence[str] | Mapping[str, str]


def provider_of(
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    data: Names | None,
    label: Names | None,
    options: Mapping[str, Any],
) -> LoaderProvider:
    """Serve the sources that `data` and `label` name; see :meth:`labeled.Dataset.as_provider`."""
    check_keywords("as_provider", options, OPTIONS)
    labels = _by_name("label", label, sources, [name for name in sources if name in LABEL_NAMES])
    others = [name for name in sources if name not in labels.values()]
    named = _by_name("data", data, sources, others)
    return LoaderProvider(sources, selections, named, labels, **options)


def _by_name(
    option: str, asked: Names | None, sources: Mapping[str, Any], default: Sequence[str]
) -> dict[str, str]:
    """Return the source behind each name to provide."""
    names = default if asked is None else (asked,) if isinstance(asked, str) else asked
    found = dict(names) if isinstance(names, Mapping) else {name: name for name in names}
    if len(found) < len(names):
        again = next(name for name in found if list(names).count(name) > 1)
        raise LoaderError(
            f"{option}= names {again!r} twice; give it two names by a mapping from name to source"
        )
    for name in found.values():
        if name not in sources:
            raise UnknownNameError(f"no source {name!r} to provide; {did_you_mean(name, sources)}")
    return found


# ---------------------------------------------------------------- arrays
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
        If a value is not an array.

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

    given = (
        named_arrays(data, "data"),
        named_arrays([] if label is None else label, "softmax_label"),
    )
    names = [[name for name, _ in pairs] for pairs in given]
    _check_names(*names)
    sources = {name: source_of(name, array) for pairs in given for name, array in pairs}
    return LoaderProvider(
        sources,
        {name: Selection.all(source.n_rows) for name, source in sources.items()},
        *({name: name for name in some} for some in names),
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
