"""Whatever is given to write (arrays, dask, xarray, tables, batches) as :class:`SourceToWrite`.

A given source tells its dtype, shape, names and attributes, and hands out its rows block
by block, either as something to be read in a thread or as a dask block. Everything that
can be refused is refused here, before a file is made.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from math import prod
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr
from dask.base import is_dask_collection
from dask.delayed import delayed

from labeled.device import adopted, has_dlpack
from labeled.errors import ArrayError, DimsError, UnknownNameError, did_you_mean, warn
from labeled.formats.cf import time_attrs
from labeled.formats.hdf5.labels import TO_WRITE, name_dims
from labeled.formats.hdf5.metadata import OWN
from labeled.formats.hdf5.safety import to_bytes
from labeled.formats.hdf5.writing import Coordinate, Names, storable
from labeled.formats.region import Array
from labeled.writing.layouts import RaggedAs
from labeled.writing.ragged import RaggedToWrite, examples_of, is_ragged, ragged_to_write
from labeled.writing.source import (
    TEXT_BYTES,
    Block,
    Blocks,
    SourceToWrite,
    check_integers,
    mean_of_texts,
    slices,
    text_blocks,
    texts,
    times,
    with_fills,
    without_mask,
)
from labeled.writing.tables import frame_column, frame_sources, is_column, is_frame

KINDS = "biufcSO"
MAX_AXES = 32


@runtime_checkable
class RowsLike(Protocol):
    """The part of :class:`labeled.Dataset` that writing needs."""

    sources: tuple[str, ...]

    def selection(self, name: str) -> Any: ...
    def to_xarray(self) -> xr.Dataset: ...
    def read_rows(self, name: str, start: int, stop: int) -> Array: ...
    def chunk_rows(self, name: str) -> int: ...
    def __getitem__(self, name: Any) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """All datasets to write, the file's attributes, and batches still to come (or None)."""

    sources: dict[str, SourceToWrite]
    """Sources of one shape, and every dataset that ragged ones become."""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    batches: Iterator[Inputs] | None = None
    ragged: Mapping[str, RaggedToWrite] = field(default_factory=dict)
    before: Mapping[str, SourceToWrite] = field(default_factory=dict)
    """The rows of a file that those in batches are appended to."""

    @property
    def n_rows(self) -> dict[str, int | None]:
        """Number of examples of each source; None if it is not known yet."""
        return {
            name: self.ragged[name].n_rows if name in self.ragged else given.shape[0]
            for name, given in self.sources.items()
            if not self.is_member(name)
        }

    @property
    def n_bytes(self) -> int | None:
        """Bytes of all rows in memory; None where it is not known how many there are."""
        if any(given.shape[0] is None for given in self.sources.values()):
            return None
        return sum(g.row_bytes * (g.shape[0] or 0) for g in self.sources.values())

    def is_member(self, name: str) -> bool:
        """Whether a dataset is part of a ragged source, and no source itself."""
        return any(name in each.members for each in self.ragged.values())

    def counted(self, lengths: Mapping[str, int]) -> dict[str, int]:
        """Return the number of examples of every source, given the lengths of all datasets."""
        return {
            name: self.ragged[name].counted(lengths) if name in self.ragged else lengths[name]
            for name in self.n_rows
        }

    def parts(self) -> Iterator[tuple[SourceToWrite, int]]:
        """Yield what is written one after another, and the row of the dataset it begins at.

        Raises
        ------
        ArrayError
            If a batch does not go with the first one.
        """
        if self.batches is None:
            yield from ((given, 0) for given in self.sources.values())
            return
        done = dict.fromkeys(self.sources, 0)
        for given in self.before.values():
            yield given, 0
            done[given.name] = int(given.shape[0] or 0)
        encode: dict[str, Any] = {}
        for number, batch in enumerate(self.batches):
            if batch.n_rows.keys() != self.n_rows.keys():
                raise ArrayError(
                    f"batch {number} has sources {sorted(batch.n_rows)}, but the first had "
                    f"{sorted(self.n_rows)}; give every batch the same"
                )
            for name in batch.n_rows:
                if name in self.ragged:
                    datasets = self.ragged[name].batch(batch.ragged[name], done)
                else:
                    more = _more_rows(number, self.sources[name], batch)
                    first = encode.setdefault(name, more.encode)
                    datasets = {name: replace(more, encode=first)}
                for given in datasets.values():
                    yield given, done[given.name]
                    done[given.name] += int(given.shape[0] or 0)


def _more_rows(number: int, first: SourceToWrite, batch: Inputs) -> SourceToWrite:
    """Return the rows of a batch, which must be of the shape of the first ones."""
    rest = f"the first had {first.row_shape}"
    if first.name in batch.ragged:
        raise ArrayError(
            f"batch {number} has examples of different shapes of source {first.name!r}, but all of "
            f"{rest}; give labeled.Ragged.of(examples) in every batch"
        )
    more = batch.sources[first.name]
    if more.row_shape != first.row_shape:
        raise ArrayError(
            f"batch {number} has rows of shape {more.row_shape} of source {first.name!r}, but "
            f"{rest}; where shapes differ, give labeled.Ragged.of(examples) in every batch"
        )
    return more


def inputs_of(
    sources: Any,
    dims: Mapping[str, Sequence[str | None]] | None = None,
    ragged: RaggedAs = "flat",
    *,
    here: bool = True,
    uneven: Container[str] = (),
) -> Inputs:
    """Return everything to write, checked.

    Parameters
    ----------
    sources : Dataset, xarray.Dataset, DataFrame, mapping of name to array, or iterable of these
    dims : mapping of source to names
        Go before the names that DataArrays have.
    ragged : {"flat", "fuel"}
        What examples of different shapes become.
    here : bool
        Read the rows of a Dataset in this process, past dask.
    uneven : names of sources
        Whose lists hold examples of different shapes, even if those given have one.

    Raises
    ------
    ArrayError, DimsError, UnknownNameError
        If something cannot be stored, or names do not fit.
    """
    dims = {} if dims is None else dims
    batches: Iterator[Mapping[str, Any]] = iter(())
    whole: Mapping[str, Any]
    attrs: Mapping[Any, Any] = {}
    own = isinstance(sources, RowsLike)
    is_batches = False
    if own:
        whole = {name: sources[name] for name in sources.sources}
        attrs = getattr(sources, "attrs", {})
    elif isinstance(sources, xr.Dataset):
        whole, attrs = _with_axes(sources), sources.attrs
    elif is_frame(sources):
        whole = frame_sources(sources)
    elif isinstance(sources, Mapping):
        whole = sources
    elif isinstance(sources, xr.DataArray) or is_dask_collection(sources):
        raise ArrayError(
            f"a {type(sources).__name__} alone has no source name here; give {{name: array}}"
        )
    elif isinstance(sources, Iterable) and not isinstance(sources, str | bytes | np.ndarray):
        is_batches, batches = True, map(_batch, count(), sources)
        first = next(batches, None)
        if first is None:
            raise ArrayError("the batches to write are empty; give at least one")
        whole = first
    else:
        raise ArrayError(
            f"cannot write {type(sources).__name__}; give {{name: array}}, an xarray.Dataset, a "
            f"pandas.DataFrame, a labeled.Dataset, or an iterable of batches {{name: array}}"
        )
    given = _all_given(whole, dims, ragged, uneven, dense=own)
    if own:
        given = replace(given, sources=_read_directly(sources, whole, given.sources, here=here))
    if not is_batches:
        kept = {key: value for key, value in attrs.items() if not str(key).startswith("labeled_")}
        return replace(given, attrs=storable("the file", kept))
    made = not isinstance(sources, Sequence)  # a list of batches is in memory already
    open_ended = {
        n: replace(
            g, shape=(None, *g.shape[1:]), batch_bytes=made * g.row_bytes * (g.shape[0] or 0)
        )
        for n, g in given.sources.items()
    }
    raggeds = {
        n: replace(g, n_rows=None, examples=None, shapes=[]) for n, g in given.ragged.items()
    }
    more = (_all_given(batch, {}, ragged, set(raggeds)) for batch in batches)
    return Inputs(open_ended, {}, chain([given], more), raggeds)


def _batch(number: int, given: Any) -> Mapping[str, Any]:
    """Return the sources of one batch."""
    if is_frame(given):
        return frame_sources(given)
    if not isinstance(given, Mapping):
        raise ArrayError(
            f"batch {number} is {type(given).__name__}; expected a mapping {{name: array}}, or a "
            f"pandas.DataFrame"
        )
    return given


def _with_axes(dataset: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return the variables that have axes; single values cannot be sources."""
    arrays = {str(name): array for name, array in dataset.data_vars.items()}
    single = sorted(name for name, array in arrays.items() if not array.dims)
    if single and len(single) < len(arrays):
        warn(f"variables {single} are single values, no sources, and are left out")
        arrays = {name: array for name, array in arrays.items() if array.dims}
    return arrays


def _read_directly(
    dataset: RowsLike, arrays: Mapping[str, Any], given: Mapping[str, SourceToWrite], *, here: bool
) -> dict[str, SourceToWrite]:
    """Read the rows of dense sources in the packing threads, past dask, if this process packs."""
    out = dict(given)
    for name, array in arrays.items():
        if not isinstance(array, xr.DataArray) or array.chunks is None:
            continue
        one, unit, read = given[name], dataset.chunk_rows(name), partial(dataset.read_rows, name)
        blocks: Blocks = partial(slices, read, len(array), step=unit)
        if array.dtype.kind == "O":
            one = replace(one, mean_bytes=mean_of_texts(read, len(array)))
            blocks = partial(text_blocks, read, len(array), one.row_bytes, step=unit)
        if here:
            one = replace(one, blocks=blocks, least_bytes=unit * one.row_bytes)
        out[name] = one
    return out


def _all_given(
    sources: Mapping[str, Any],
    dims: Mapping[str, Sequence[str | None]],
    kind: RaggedAs,
    uneven: Container[str],
    *,
    dense: bool = False,
) -> Inputs:
    """Return sources as they will be written; `dense` tells that DataArrays hold no examples."""
    if not sources:
        raise ArrayError("there is no source to write; give at least one {name: array}")
    for name in sources:
        check_name(name, sources)
    for name in dims:
        if name not in sources:
            raise UnknownNameError(
                f"dims= names {name!r}, which is not a source; {did_you_mean(name, sources)}"
            )
    given: dict[str, SourceToWrite] = {}
    raggeds: dict[str, RaggedToWrite] = {}
    for name, value in sources.items():
        listed = name in uneven and isinstance(value, list | tuple)
        if listed or (not (dense and isinstance(value, xr.DataArray)) and is_ragged(value)):
            examples = examples_of(name, value)
            raggeds[name], datasets = ragged_to_write(name, examples, dims.get(name), kind)
        else:
            datasets = {name: source_to_write(name, value, dims.get(name))}
        for each in datasets:
            if each in given or (each != name and each in sources):
                raise ArrayError(
                    f"ragged source {name!r} needs the name {each!r} for a part of its own; "
                    f"rename the other source"
                )
        given |= datasets
    return Inputs(given, ragged=raggeds)


def check_name(name: Any, others: Container[str]) -> None:
    """Refuse names that HDF5 cannot hold, or that lie inside another source."""
    if not isinstance(name, str):
        raise ArrayError(f"a source is called {name!r}; give it a text for a name")
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in name or parts[0] == OWN:
        raise ArrayError(
            f"{name!r} cannot name a source: HDF5 takes '/' for groups, so give names like "
            f"'images' or 'camera/left' (and not {OWN!r})"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ArrayError(f"the source name {name!r} is not valid Unicode") from None
    for depth in range(1, len(parts)):
        if "/".join(parts[:depth]) in others:
            raise ArrayError(
                f"source {name!r} would lie inside source {'/'.join(parts[:depth])!r}; rename one"
            )


def source_to_write(name: str, value: Any, dims: Sequence[str | None] | None) -> SourceToWrite:
    """Return one source as it will be written."""
    array = _as_array(name, value)
    dtype, encode, decoding = _stored(name, np.dtype(array.dtype))
    shape = tuple(array.shape)
    if len(shape) == 0:
        raise ArrayError(f"source {name!r} is a single value; a source needs an axis of examples")
    if len(shape) > MAX_AXES:
        raise ArrayError(
            f"source {name!r} has {len(shape)} axes, and HDF5 knows {MAX_AXES}; reshape it"
        )
    if any(isinstance(n, float) for n in shape):  # dask writes unknown lengths as nan
        raise ArrayError(
            f"source {name!r} has a length that dask does not know yet: {shape}; call "
            f"compute_chunk_sizes() on it first"
        )
    found = (
        [str(dim) for dim in array.dims] if isinstance(array, xr.DataArray) else [""] * len(shape)
    )
    axis_names, _ = name_dims(TO_WRITE, name, found, dims)
    for dim in axis_names:
        with suppress(UnicodeEncodeError):
            if b"\0" not in to_bytes(dim):
                continue
        raise DimsError(f"source {name!r} has a dim called {dim!r}; use letters and digits")
    coords = _coordinates(name, array, axis_names) if isinstance(array, xr.DataArray) else ()
    attrs = storable(f"source {name!r}", array.attrs) if isinstance(array, xr.DataArray) else {}
    made = SourceToWrite(
        name,
        dtype,
        shape,
        Names(axis_names, coords),
        {**with_fills(attrs, dtype), **decoding},
        partial(slices, partial(_rows, array), shape[0]),
        encode,
    )
    if is_dask_collection(array):
        data = array.data if isinstance(array, xr.DataArray) else array
        mean = TEXT_BYTES * prod(made.row_shape) if dtype.kind == "O" else None
        made = replace(made, mean_bytes=mean, blocks=partial(_dask_blocks, name, data))
        parts = any(len(lengths) > 1 for lengths in data.chunks[1:])  # are put together first
        largest = max(data.chunks[0], default=0)
        return replace(made, least_bytes=(1 + parts) * largest * made.row_bytes)
    if dtype.kind == "O":
        read = partial(_rows, array)
        mean = mean_of_texts(read, len(array))
        return replace(made, mean_bytes=mean, blocks=partial(text_blocks, read, len(array), mean))
    return made


def _rows(array: Any, start: int, stop: int) -> Any:
    """Read consecutive rows of something that is not a dask array."""
    if isinstance(array, xr.DataArray):
        return array.isel({array.dims[0]: slice(start, stop)}).values
    return array[start:stop]


def _as_array(name: str, value: Any) -> Any:
    """Return something with dtype, shape and slices."""
    if has_dlpack(value):
        try:
            return adopted(value)
        except ArrayError as error:
            raise ArrayError(f"source {name!r}: {error}") from error
    if isinstance(value, xr.Variable):
        return xr.DataArray(value)
    if isinstance(value, np.ma.MaskedArray):
        return without_mask(f"source {name!r}", value)
    if isinstance(value, xr.DataArray | np.ndarray):
        return value
    if is_dask_collection(value):
        if isinstance(getattr(value, "chunks", None), tuple):
            return value
        raise ArrayError(  # another of dask's collections, which has no chunks of rows
            f"source {name!r} is dask's {type(value).__name__}, not an array; make one of it, with "
            f".to_dask_array(lengths=True), dask.array.from_delayed, or .compute()"
        )
    if is_column(value):
        return frame_column(name, value)
    if hasattr(value, "toarray"):
        raise ArrayError(
            f"source {name!r} is a sparse {type(value).__name__}; write .toarray(), or its data, "
            f"indices and indptr as sources"
        )
    if all(hasattr(value, each) for each in ("dtype", "shape", "__getitem__")):
        # columns of a table have dtypes of their own
        return value if isinstance(value.dtype, np.dtype) else np.asarray(value)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ArrayError(
            f"source {name!r} is {type(value).__name__}, not an array; for batches give one "
            f"iterable of mappings {{name: array}} in place of all sources"
        )
    for row, one in enumerate(value):
        if isinstance(one, np.ma.MaskedArray):
            without_mask(f"source {name!r}, row {row}", one)
    check_integers(f"source {name!r}", {one.dtype for one in value if isinstance(one, np.ndarray)})
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ArrayError(
            f"source {name!r} is a list that is neither an array ({error}) nor one of arrays; "
            f"give an array, or a list of arrays"
        ) from None
    return array


def _stored(
    name: str, dtype: np.dtype[Any]
) -> tuple[np.dtype[Any], Callable[[Array], Array] | None, dict[str, Any]]:
    """Return the dtype in the file, what encodes values as it, and the attributes that say so."""
    if dtype.kind in "UT":
        return np.dtype(object), None, {}
    if dtype.kind in "Mm":
        encode = partial(times, kind=dtype.kind, where=f"source {name!r}")
        return np.dtype(np.int64), encode, time_attrs(dtype.kind)
    if dtype.kind not in KINDS or dtype.names is not None:
        how = "cast it to numbers or texts"
        if dtype.names:
            first = dtype.names[0]
            how = f"write its fields as sources of their own: '{name}/{first}': array[{first!r}]"
        raise ArrayError(f"source {name!r} has dtype {dtype}, which cannot be stored; {how}")
    return dtype, None, {}


def _coordinates(name: str, array: xr.DataArray, dims: Sequence[str]) -> tuple[Coordinate, ...]:
    """Return the coordinates along one dim; `dims` are the names in the file."""
    renamed = dict(zip(map(str, array.dims), dims, strict=True))
    out = []
    for key, coord in array.coords.items():
        if coord.ndim == 1:
            if isinstance(array.xindexes.get(key), xr.indexes.PandasMultiIndex):
                raise ArrayError(
                    f"coordinate {key!r} of source {name!r} is a MultiIndex, which a file cannot "
                    f"hold; .reset_index({key!r}) makes coordinates of its levels"
                )
            old = str(coord.dims[0])
            called = renamed[old] if str(key) == old else str(key)
            out.append(coordinate(called, renamed[old], coord.values, coord.attrs))
    return tuple(out)


def coordinate(name: str, dim: str, values: Any, attrs: Mapping[Any, Any]) -> Coordinate:
    """Return a coordinate whose values can be stored.

    Raises
    ------
    ArrayError
        If its dtype cannot be.
    """
    array = np.asarray(values)
    _, encode, decoding = _stored(name, array.dtype)
    if array.dtype.kind in "UTO":
        array = texts(array, f"coordinate {name!r}")
    if encode is not None:
        array = encode(array)
    kept = with_fills(storable(f"coordinate {name!r}", attrs), array.dtype)
    return Coordinate(name, dim, array, {**kept, **decoding})


def left_out(sources: Any) -> list[str]:
    """Return the coordinates of DataArrays that have no axis, or several, and are not written."""
    values = sources.data_vars if isinstance(sources, xr.Dataset) else sources
    arrays = values.values() if isinstance(values, Mapping) else ()
    coords = [one.coords.items() for one in arrays if isinstance(one, xr.DataArray)]
    return sorted({str(key) for each in coords for key, coord in each if coord.ndim != 1})


def _dask_blocks(name: str, array: Any, rows: int) -> Iterator[Block]:
    """Yield dask's own blocks of whole rows, small ones joined, so that each is computed once."""
    # By tasks: only some blocks are computed at a time, and dask's p2p method starts with all.
    whole = array.rechunk(dict.fromkeys(range(1, array.ndim), -1), method="tasks")
    start = stop = 0
    held: list[Any] = []
    announced: list[int] = []
    for block, n_rows in zip(whole.to_delayed().reshape(-1), whole.chunks[0], strict=True):
        if held and stop + n_rows - start > rows:
            yield Block(start, stop, delayed=_end_to_end(name, held, announced))
            start, held, announced = stop, [], []
        held.append(block)
        announced.append(n_rows)
        stop += n_rows
    yield Block(start, stop, delayed=_end_to_end(name, held, announced))


def _end_to_end(name: str, blocks: Sequence[Any], announced: Sequence[int]) -> Any:
    if len(blocks) == 1:
        return blocks[0]
    return delayed(_concatenated, pure=False)(name, blocks, announced)


def _concatenated(name: str, blocks: Sequence[Any], announced: Sequence[int]) -> Any:
    """Put blocks end to end, each of which must have the rows that dask says it has."""
    for block, n_rows in zip(blocks, announced, strict=True):
        if len(block) != n_rows:
            raise ArrayError(
                f"source {name!r} gave a block of shape {block.shape} where "
                f"{(n_rows, *block.shape[1:])} was announced; correct what computes it"
            )
    masked = any(isinstance(block, np.ma.MaskedArray) for block in blocks)
    module: Any = np.ma if masked else np
    return module.concatenate(blocks)
