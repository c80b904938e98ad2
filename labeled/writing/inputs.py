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
from itertools import chain, count, pairwise
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr
from dask.base import is_dask_collection

from labeled.device import adopted, has_dlpack
from labeled.display.text import as_text, class_names_of
from labeled.errors import ArrayError, DimsError, UnknownNameError, did_you_mean, warn
from labeled.formats.cf import time_attrs
from labeled.formats.hdf5.labels import TO_WRITE, name_dims
from labeled.formats.hdf5.metadata import OWN
from labeled.formats.hdf5.safety import to_bytes
from labeled.formats.hdf5.writing import Coordinate, Names, storable
from labeled.formats.region import Array
from labeled.ragged.flat import block_cuts, offsets_of
from labeled.writing.layouts import RaggedAs
from labeled.writing.source import (
    Block,
    Examples,
    RaggedToWrite,
    SourceToWrite,
    check_integers,
    examples_of,
    is_ragged,
    ragged_to_write,
    read_by,
    texts,
    times,
    with_fills,
    without_mask,
)
from labeled.writing.tables import frame_column, frame_sources, is_column, is_frame

KINDS = "biufcSO"
MAX_AXES = 32

Dims = Mapping[str, Sequence[str | None]]


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
    """All datasets to write, the file's attributes, and batches with all rows (or None).

    `sources` are those of one shape, and every dataset that ragged ones become.
    """

    sources: dict[str, SourceToWrite]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    batches: Iterator[Inputs] | None = None
    ragged: Mapping[str, RaggedToWrite] = field(default_factory=dict)

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
        encode: dict[str, Any] = {}
        for number, batch in enumerate(self.batches):
            if batch.n_rows.keys() != self.n_rows.keys():
                raise ArrayError(
                    f"batch {number} has sources {sorted(batch.n_rows)}, but the first had "
                    f"{sorted(self.n_rows)}; give every batch the same"
                )
            for name in batch.n_rows:
                check_alike(f"batch {number}", batch, "the first one", self, name)
                if name in self.ragged:
                    datasets = self.ragged[name].datasets(batch.ragged[name].examples, done)
                else:
                    more = batch.sources[name]
                    encode[name] = encode.get(name) or more.encode
                    datasets = {name: replace(more, encode=encode[name])}
                for given in datasets.values():
                    yield given, done[given.name]
                    done[given.name] += int(given.shape[0] or 0)


def check_alike(what: str, more: Inputs, base: str, first: Inputs, name: str) -> None:
    """Refuse rows of a source that do not go with the first ones.

    Raises
    ------
    ArrayError, DimsError
        If shapes, dims, units, dtypes, or the names of classes or positions differ.
    """
    ragged, was_ragged = more.ragged.get(name), first.ragged.get(name)
    given, stored = more.sources[name], first.sources[name]
    new: SourceToWrite | Examples = given
    old: SourceToWrite | Examples = stored
    shapes: tuple[Any, ...] = given.row_shape, stored.row_shape
    dims, times = (given.names.dims, stored.names.dims), bool(given.encode or stored.encode)
    if ragged is not None and was_ragged is not None:
        new, old, dims = ragged.examples, was_ragged.examples, (ragged.dims, was_ragged.dims)
        shapes, times = tuple(f"{len(d) - 1} axes" for d in dims), new.are_times or old.are_times
    units, was_in = (as_text(one.attrs.get("units")) for one in (new, old))
    classes, were = class_names_of(new.attrs), class_names_of(old.attrs)
    odd = sorted(n for n in classes.keys() & were.keys() if classes[n] != were[n])
    error: type[ArrayError | DimsError] = ArrayError
    why = None
    if (ragged is None) != (was_ragged is None):
        kinds = "examples of different shapes", f"rows of one shape, {shapes[ragged is not None]}"
        now, then = kinds if was_ragged is None else kinds[::-1]
        fix = "give labeled.Ragged.of(examples) where shapes differ, else an array"
        why = f"has {now}, but {base} has {then}; {fix}"
    elif shapes[0] != shapes[1]:
        fix = "where shapes differ, give labeled.Ragged.of(examples) for all"
        why = f"has rows of shape {shapes[0]}, but {base} {shapes[1]}; {fix}"
    elif dims[0][1:] != dims[1][1:] and sorted(dims[0][1:]) == sorted(dims[1][1:]):
        error = DimsError
        why = f"has rows with dims {dims[0][1:]}, but {base} {dims[1][1:]}; transpose them"
    elif units != was_in and (times or "None" not in (units, was_in)):
        why = f"has rows in {units!r}, but {base} in {was_in!r}; convert them"
    elif not _goes_into(new.dtype, old.dtype):
        cast = f".astype({str(old.dtype)!r})"
        why = f"has rows of {new.dtype}, but {base} of {old.dtype}; cast them with {cast}"
    elif odd:
        name_of = f"{classes[odd[0]]!r} for class {odd[0]}, but {base} {were[odd[0]]!r}"
        why = f"has {name_of}; give them the same numbers"
    else:
        known = {one.name: one for one in stored.names.coords if one.dim in dims[1][1:]}
        for one in given.names.coords:
            if one.values.dtype.kind in "OSU" and one.dim in dims[0][1:] and one.name in known:
                both = map(as_text, one.values), map(as_text, known[one.name].values)
                for at, (now, then) in enumerate(zip(*both, strict=False)):
                    if now != then and why is None:
                        place = f"{now!r} at position {at} of dim {one.dim!r}, but {base} {then!r}"
                        why = f"has {place}; bring them into one order with .sel({one.name}=[...])"
    if why is not None:
        raise error(f"{what}: source {name!r} {why}")


def _goes_into(new: np.dtype[Any], old: np.dtype[Any]) -> bool:
    texts = new.kind == "O", old.kind == "O"
    return texts[0] == texts[1] and np.can_cast(new, old, "same_kind")


def inputs_of(
    sources: Any,
    dims: Dims | None = None,
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
    whole: Mapping[str, Any]
    attrs: Mapping[Any, Any] = {}
    if isinstance(sources, RowsLike):
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
        return _of_batches(sources, dims or {}, ragged, uneven)
    else:
        raise ArrayError(
            f"cannot write {type(sources).__name__}; give {{name: array}}, an xarray.Dataset, a "
            f"pandas.DataFrame, a labeled.Dataset, or an iterable of batches {{name: array}}"
        )
    own = sources if isinstance(sources, RowsLike) else None
    given = _all_given(whole, dims or {}, ragged, uneven, own)
    if own is not None:
        given = replace(
            given, sources={n: _read_from(own, one, here) for n, one in given.sources.items()}
        )
    kept = {key: value for key, value in attrs.items() if not str(key).startswith("labeled_")}
    return replace(given, attrs=storable("the file", kept))


def _of_batches(
    sources: Iterable[Any], dims: Dims, ragged: RaggedAs, uneven: Container[str]
) -> Inputs:
    """Return sources that come in batches, the first of which tells what they are."""
    batches = map(_batch, count(), sources)
    first = next(batches, None)
    if first is None:
        raise ArrayError("the batches to write are empty; give at least one")
    given = _all_given(first, dims, ragged, uneven)
    made = not isinstance(sources, Sequence)  # a list of batches is in memory already
    open_ended = {}
    for name, one in given.sources.items():
        n_bytes = made * one.row_bytes * (one.shape[0] or 0)
        open_ended[name] = replace(one, shape=(None, *one.shape[1:]), batch_bytes=n_bytes)
    raggeds = {name: one.open_ended() for name, one in given.ragged.items()}
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


def _read_from(dataset: RowsLike, one: SourceToWrite, here: bool) -> SourceToWrite:
    """Return a dense source of a Dataset, read in the packing threads, past dask, if `here`.

    How long texts are is looked at in any case: files are the same wherever they are packed.
    """
    array = dataset[one.name] if one.name in dataset.sources else None
    if not isinstance(array, xr.DataArray) or array.chunks is None:
        return one
    step = dataset.chunk_rows(one.name)
    read = read_by(one, partial(dataset.read_rows, one.name), len(array), step)
    if not here:
        return replace(one, mean_bytes=read.mean_bytes)
    return replace(read, least_bytes=step * read.row_bytes)


def _all_given(
    sources: Mapping[str, Any],
    dims: Dims,
    kind: RaggedAs,
    uneven: Container[str],
    own: RowsLike | None = None,
) -> Inputs:
    """Return sources as they will be written; the DataArrays of a Dataset hold no examples."""
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
        dense = own is not None and isinstance(value, xr.DataArray)
        listed = name in uneven and isinstance(value, list | tuple)
        if listed or (not dense and is_ragged(value)):
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
    parts, why = name.split("/") if isinstance(name, str) else [], None
    if not isinstance(name, str):
        why = "give it a text for a name"
    elif any(part in ("", ".", "..") for part in parts) or "\0" in name or parts[0] == OWN:
        why = f"HDF5 takes '/' for groups; use names like 'images' or 'camera/left', not {OWN!r}"
    elif not name.isprintable() and name.encode(errors="replace").decode() != name:
        why = "it is not valid Unicode"
    for depth in range(1, len(parts)):
        if "/".join(parts[:depth]) in others:
            why = f"it would lie inside source {'/'.join(parts[:depth])!r}; rename one"
    if why is not None:
        raise ArrayError(f"{name!r} cannot name a source: {why}")


def source_to_write(name: str, value: Any, dims: Sequence[str | None] | None) -> SourceToWrite:
    """Return one source as it will be written."""
    array = _as_array(name, value)
    dtype, encode, decoding = _stored(name, np.dtype(array.dtype))
    shape, why = tuple(array.shape), None
    if len(shape) == 0:
        why = "is a single value; a source needs an axis of examples"
    elif len(shape) > MAX_AXES:
        why = f"has {len(shape)} axes, and HDF5 knows {MAX_AXES}; reshape it"
    elif any(isinstance(n, float) for n in shape):  # dask writes unknown lengths as nan
        why = f"has a length that dask does not know yet: {shape}; call compute_chunk_sizes() on it"
    if why is not None:
        raise ArrayError(f"source {name!r} {why}")
    labelled = isinstance(array, xr.DataArray)
    found = [str(dim) for dim in array.dims] if labelled else [""] * len(shape)
    axis_names, _ = name_dims(TO_WRITE, name, found, dims)
    for dim in axis_names:
        with suppress(UnicodeEncodeError):
            if b"\0" not in to_bytes(dim):
                continue
        raise DimsError(f"source {name!r} has a dim called {dim!r}; use letters and digits")
    coords = _coordinates(name, array, axis_names) if labelled else ()
    attrs = with_fills(storable(f"source {name!r}", array.attrs), dtype) if labelled else {}
    names, blocks = Names(axis_names, coords), partial(_dask_blocks, array)
    made = SourceToWrite(name, dtype, shape, names, {**attrs, **decoding}, blocks, encode)
    if not is_dask_collection(array):
        return read_by(made, partial(_rows, array), shape[0])
    data = array.data if labelled else array
    apart = any(len(lengths) > 1 for lengths in data.chunks[1:])  # are put together first
    largest = max(data.chunks[0], default=0)
    least = (1 + apart) * largest * made.row_bytes
    return replace(made, blocks=partial(_dask_blocks, data), least_bytes=least)


def _rows(array: Any, start: int, stop: int) -> Any:
    """Read consecutive rows of something that is not a dask array."""
    if isinstance(array, xr.DataArray):
        return array.isel({array.dims[0]: slice(start, stop)}).values
    return array[start:stop]


def _dask_blocks(array: Any, rows: int) -> Iterator[Block]:
    """Yield dask's own blocks of whole rows, small ones joined, so that each is computed once."""
    edges = offsets_of(np.array(array.chunks[0], np.int64))
    ends = edges[block_cuts(np.diff(edges), rows)]
    lengths = dict.fromkeys(range(1, array.ndim), -1) | {0: tuple(np.diff(ends).tolist())}
    # by tasks: only some blocks are computed at a time, and dask's p2p method starts with all
    whole = array.rechunk(lengths, method="tasks").to_delayed().reshape(-1)
    for block, (start, stop) in zip(whole, pairwise(ends.tolist()), strict=True):
        yield Block(start, stop, delayed=block)


def _as_array(name: str, value: Any) -> Any:
    """Return something with dtype, shape and slices."""
    where, why = f"source {name!r}", f"is {type(value).__name__}, not an array"
    if has_dlpack(value):
        try:
            return adopted(value)
        except ArrayError as error:
            raise ArrayError(f"{where}: {error}") from error
    if isinstance(value, xr.Variable):
        return xr.DataArray(value)
    if isinstance(value, np.ma.MaskedArray):
        return without_mask(where, value)
    if isinstance(value, xr.DataArray | np.ndarray):
        return value
    if is_column(value):
        return frame_column(name, value)
    if is_dask_collection(value):
        if isinstance(getattr(value, "chunks", None), tuple):
            return value
        why = f"is dask's {type(value).__name__}, not an array; make one of it, with "
        why += ".to_dask_array(lengths=True), dask.array.from_delayed, or .compute()"
    elif hasattr(value, "toarray"):
        why = f"is a sparse {type(value).__name__}; write .toarray(), or its data, indices, indptr"
    elif all(hasattr(value, each) for each in ("dtype", "shape", "__getitem__")):
        # columns of a table have dtypes of their own
        return value if isinstance(value.dtype, np.dtype) else np.asarray(value)
    elif isinstance(value, str | bytes) or not isinstance(value, Sequence):
        why += "; for batches give one iterable of mappings {name: array} in place of all sources"
    else:
        for row, one in enumerate(value):
            if isinstance(one, np.ma.MaskedArray):
                without_mask(f"{where}, row {row}", one)
        check_integers(where, {one.dtype for one in value if isinstance(one, np.ndarray)})
        try:
            return np.asarray(value)
        except ValueError as error:
            why = f"is a list that is neither an array ({error}) nor one of arrays; give an array"
    raise ArrayError(f"{where} {why}")


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
