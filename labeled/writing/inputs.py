"""Whatever is given to write (arrays, dask, xarray, tables, batches) as :class:`SourceToWrite`.

A given source tells its dtype, shape, names and attributes, and hands out its rows block
by block, either as something to be read in a thread or as a dask block. Everything that
can be refused is refused here, before a file is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import xarray as xr
from dask.base import DaskMethodsMixin, is_dask_collection

from labeled.device import adopted, has_dlpack, to_host
from labeled.display.text import as_text, class_names_of
from labeled.errors import ArrayError, DimsError, check_known, listed, warn
from labeled.formats.cf import FILLS, PACKED, cf_of, decode
from labeled.formats.format import TO_WRITE, name_dims
from labeled.formats.hdf5.metadata import OWN
from labeled.formats.hdf5.writing import Coordinate, check_name, storable
from labeled.formats.header import vlen_base
from labeled.formats.region import Array
from labeled.loader.batch import Batch
from labeled.ragged.flat import Rows, block_cuts, offsets_of
from labeled.ragged.value import Ragged
from labeled.writing import tables
from labeled.writing.layouts import RaggedAs
from labeled.writing.source import (
    Block,
    SourceToWrite,
    check_integers,
    examples_of,
    is_ragged,
    ragged_datasets,
    read_by,
    rows_of,
    stored_as,
    texts,
    with_fills,
    without_mask,
)

MAX_AXES = 32
MAX_NAMED = 12  # datasets that a warning names
FLOAT32_STEP = 2.0**-22  # relative; coordinates that differ by less are the same
NO_BATCHES = (str, bytes, np.ndarray, xr.DataArray, DaskMethodsMixin)  # though iterable

Dims = Mapping[str, Sequence[str | None]]


def is_dataset(given: Any) -> bool:
    """Whether something is a :class:`labeled.Dataset`, which stands above this module."""
    return hasattr(given, "read_rows")


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """All datasets to write, the file's attributes, and batches with all rows (or None).

    `sources` are those of one shape, and every dataset that ragged ones become. `shapes` are those
    of examples, as they come, of sources that Fuel's scales are to be made for, and `counts` the
    numbers of examples that came. `passing` is whether whoever made this batch may use its memory
    for the next one. `n_stored` are the rows of a file, where these are the first batch and those
    that were given come after it.
    """

    sources: dict[str, SourceToWrite]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    batches: Iterator[Inputs] | None = None
    shapes: dict[str, list[Rows]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    passing: bool = False
    n_stored: int | None = None

    @property
    def n_rows(self) -> dict[str, int | None]:
        """Number of examples of each source; None if it is not known yet."""
        return {name: one.n_rows for name, one in self.sources.items() if not one.is_part}

    @property
    def n_bytes(self) -> int | None:
        """Bytes of all rows in memory; None where it is not known how many there are."""
        if any(given.shape[0] is None for given in self.sources.values()):
            return None
        return sum(g.row_bytes * (g.shape[0] or 0) for g in self.sources.values())

    def parts(self) -> Iterator[tuple[SourceToWrite, int]]:
        """Yield what is written one after another, and the row of the dataset it begins at.

        Raises
        ------
        ArrayError
            If a batch does not go with the first one, or its rows would be paired wrongly.
        """
        done, first = dict.fromkeys(self.sources, 0), 0 if self.n_stored is None else -1
        for number, batch in enumerate([self] if self.batches is None else self.batches, first):
            check_alike(f"batch {number}", batch, "the first one", self)
            self._check_pairs(number, batch)
            for name, n_rows in batch.n_rows.items():
                self.counts[name] = self.counts.get(name, 0) + (n_rows or 0)
                given = batch.sources[name]
                datasets = {name: given}
                if given.examples is not None:
                    flat = vlen_base(self.sources[name].dtype) is None
                    kind: RaggedAs = "flat" if flat else "fuel"
                    datasets = ragged_datasets(name, given.examples, kind, done)
                    if not flat:
                        self.shapes.setdefault(name, []).append(given.examples.shapes)
                for one in datasets.values():
                    blocks = partial(_passing, one.blocks) if batch.passing else one.blocks
                    yield replace(one, blocks=blocks), done[one.name]
                    done[one.name] += int(one.shape[0] or 0)

    def _check_pairs(self, number: int, batch: Inputs) -> None:
        """Refuse rows of several sources if earlier batches gave more rows of one than another."""
        before = sorted((self.counts.get(name, 0), name) for name, n in batch.n_rows.items() if n)
        if before and before[0][0] != before[-1][0]:
            (n, one), (m, other) = before[0], before[-1]
            n, m = n - (self.n_stored or 0), m - (self.n_stored or 0)
            raise ArrayError(
                f"batch {number} comes after {n:,} rows of source {one!r} and {m:,} of {other!r}, "
                f"and would pair its rows wrongly; give equal numbers of rows of both in each batch"
            )


def _passing(blocks: Callable[[int], Iterator[Block]], rows: int) -> Iterator[Block]:
    return (replace(block, passing=True) for block in blocks(rows))


def check_alike(what: str, more: Inputs, base: str, first: Inputs) -> None:
    """Refuse rows that do not go with the first ones.

    Raises
    ------
    ArrayError, DimsError
        If sources, shapes, dims, units, packing or dtypes differ, or names of classes or positions.
    """
    if more.n_rows.keys() != first.n_rows.keys():
        words = f"{what} has sources {sorted(more.n_rows)}, but {base} has {sorted(first.n_rows)}"
        raise ArrayError(f"{words}; give the same sources")
    for name in more.n_rows if more is not first else ():
        _check_source(f"{what}: source {name!r}", more.sources[name], base, first.sources[name])


def _check_source(what: str, new: SourceToWrite, base: str, old: SourceToWrite) -> None:
    shapes, inner = (_shape_words(new), _shape_words(old)), (new.dims[1:], old.dims[1:])
    units, was_in = (as_text(one.attrs.get("units")) for one in (new, old))
    dtype, stored = (vlen_base(one.dtype) or one.dtype for one in (new, old))
    # Numbers that stand for others: what was decoded would be decoded once more.
    keys = (*PACKED, *FILLS) if dtype.kind == "f" and stored.kind != "f" else PACKED
    packing, was_packed = (_words_of(one.attrs, keys) for one in (new, old))
    error: type[ArrayError | DimsError] = ArrayError
    why = None
    if shapes[0] != shapes[1]:
        why = f"has {shapes[0]}, but {base} has {shapes[1]}; give labeled.Ragged.of(examples) for "
        why += "all where shapes differ"
        if old.examples is None and old.shape == (None,):  # or had no row to tell its shape
            why += ", or begin with a batch that has rows"
    elif old.dims[0] in inner[0] or (inner[0] != inner[1] and sorted(inner[0]) == sorted(inner[1])):
        error = DimsError
        why = f"has dims {new.dims}, but {base} {old.dims}; transpose them"
    elif units != was_in and (new.encode or old.encode or "None" not in (units, was_in)):
        why = f"has rows in {units!r}, but {base} in {was_in!r}; convert them"
        if new.encode and not old.encode and was_in != "None":  # times, and numbers of a file
            why += " to numbers in its unit; rows of a file are such if opened with decode_cf=False"
    elif packing != was_packed and (packing or dtype.kind == "f"):
        why = f"has rows with {packing or 'no packing'}, but {base} with {was_packed or 'none'}; "
        why += "give rows that are stored alike; those of a file are if opened with decode_cf=False"
    elif not np.can_cast(dtype, stored, "same_kind") or (
        stored.kind in "OS" and dtype.kind != stored.kind
    ):
        way = "write all rows with one dtype that holds them: a cast could change values"
        if stored.kind in "OS":  # these casts take the width that texts need, or raise
            way = f"cast them with .astype({'str' if stored.kind == 'O' else repr('S')})"
        here, there = ("texts" if one.kind == "O" else str(one) for one in (dtype, stored))
        why = f"has rows of {here}, but {base} of {there}; {way}"
    else:
        why = _odd_label(new, base, old)
    if why is not None:
        raise error(f"{what} {why}")


def _words_of(attrs: Mapping[str, Any], keys: Iterable[str]) -> str:
    return ", ".join(f"{key}={np.squeeze(attrs[key])}" for key in keys if key in attrs)


def _shape_words(given: SourceToWrite) -> str:
    if given.examples is None:
        return f"rows of shape {given.row_shape}"
    return f"examples of different shapes with {len(given.dims) - 1} axes"


def _odd_label(new: SourceToWrite, base: str, old: SourceToWrite) -> str | None:
    """Tell the first class, or position along an axis of rows, whose names differ."""
    names, were = class_names_of(new.attrs), class_names_of(old.attrs)
    for n, name in names.items():
        if were.get(n, name) != name:
            words = f"has {name!r} for class {n}, but {base} {were[n]!r}"
            return f"{words}; bring both into one order"
    known = {(coord.name, coord.dim): coord for coord in old.coords}
    for coord in new.coords:
        other, dim = known.get((coord.name, coord.dim)), coord.dim
        if other is None or dim not in new.dims[1:] or coord.values.shape != other.values.shape:
            continue
        here, there = _labels(coord), _labels(other)
        kinds = {here.dtype.kind, there.dtype.kind}
        if "f" in kinds and kinds <= set("biuf"):
            same = np.isclose(here, there, rtol=FLOAT32_STEP, atol=0, equal_nan=True)
        else:
            same = here.astype(object) == there.astype(object)
        for at in np.flatnonzero(~same)[:1]:
            one, two = (repr(x) if isinstance(x, str) else str(x) for x in (here[at], there[at]))
            words = f"has {one} at position {at} of {coord.name!r}, along dim {dim!r}, but {base}"
            return (
                f"{words} {two}; bring both into one order with .sel, or leave {coord.name!r} out "
                f"with .drop_vars, if it is not meant"
            )
    return None


def _labels(coord: Coordinate) -> Array:
    """Return the values of a coordinate as they are meant: texts, numbers or times."""
    values = coord.values
    if values.dtype.kind in "OSU":
        return np.array([as_text(value) for value in values], object)
    cf, _ = cf_of(coord.name, values.dtype, coord.attrs, [])
    return values if cf is None else decode(values, cf)


def inputs_of(
    sources: Any,
    dims: Dims | None = None,
    ragged: RaggedAs = "flat",
    *,
    here: bool = True,
    before: Mapping[str, SourceToWrite] | None = None,
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
    before : mapping of SourceToWrite, optional
        Whose rows these follow: they tell what a list without rows is, and where rows are examples
        of different shapes, even if those given have one.

    Raises
    ------
    ArrayError, DimsError, UnknownNameError
        If something cannot be stored, or names do not fit.
    """
    dims, own = dims or {}, sources if is_dataset(sources) else None
    whole: Mapping[str, Any]
    attrs: Mapping[Any, Any] = {}
    if own is not None:
        whole, attrs, lost = _of_files(own)
        if lost and not before:  # rows to append bring no attributes
            named = "; ".join(lost[:MAX_NAMED]) + "; ..." * (len(lost) > MAX_NAMED)
            warn(
                f"attributes that HDF5 cannot hold are left out: {named}. To keep them as texts "
                f"(of json.dumps, say), pass attrs= or source_attrs= in Python"
            )
    elif isinstance(sources, xr.Dataset):
        whole, attrs = _with_axes(sources), sources.attrs
    elif tables.is_frame(sources):
        if not before:  # batches after the first, or rows to append, lose no more
            tables.warn_of_index(sources)
        whole = tables.frame_sources(sources)
    elif isinstance(sources, Mapping):
        whole = _real_rows(sources) if isinstance(sources, Batch) else sources
    elif not isinstance(sources, Iterable) or isinstance(sources, NO_BATCHES):
        raise ArrayError(
            f"cannot write {type(sources).__name__}; give {{name: array}}, an xarray.Dataset, a "
            f"pandas.DataFrame, a labeled.Dataset, or an iterable of batches {{name: array}}"
        )
    else:
        return _of_batches(sources, dims, ragged, before or {})
    check_names(whole, dims)
    given: dict[str, SourceToWrite] = {}
    for name, value in whole.items():
        base = (before or {}).get(name)
        if base is not None and _has_no_rows(value):
            made = _without_rows(base, ragged)
        elif own is not None and isinstance(value, xr.DataArray):
            made = {name: _of_dataset(own, name, value, dims.get(name), here=here)}
        elif is_ragged(value) or _are_examples(base, value):
            made = ragged_datasets(name, examples_of(name, value, dims.get(name)), ragged)
        else:
            made = {name: source_to_write(name, value, dims.get(name))}
        for each in made:
            if each in given or (each != name and each in whole):
                raise ArrayError(
                    f"ragged source {name!r} needs the name {each!r} for itself; rename the other"
                )
        given |= made
    kept = {key: value for key, value in attrs.items() if not str(key).startswith("labeled_")}
    return Inputs(given, storable("the file", kept))


def _real_rows(batch: Batch) -> dict[str, Any]:
    """Return a batch with the example axes first, and without the rows that only fill it up.

    Flat values, offsets and shapes (``ragged="flat"``) are one source again.
    """
    first, n_rows = batch.examples_first(), batch.count
    rows: dict[str, Any] = {name: array[:n_rows] for name, array in first.items()}
    for name, info in first.info.items():
        offsets, shapes = f"{name}_offsets", f"{name}_shapes"
        flat = {name, offsets, shapes} <= rows.keys() and first[name].dims == (f"{name}_value",)
        if flat and info.example_dims:
            dims = str(first[shapes].dims[0]), *info.example_dims
            values, edges = (to_host(first.arrays[part]) for part in (name, offsets))
            lengths = to_host(rows.pop(shapes).data)
            rows[name] = Ragged.from_flat(values, edges[: n_rows + 1], lengths, dims, name)
            del rows[offsets]
    return rows


def _has_no_rows(value: Any) -> bool:
    """Whether a list or an array of Python objects is empty, so that it does not tell its kind."""
    if isinstance(value, list | tuple):
        return not value
    objects = isinstance(value, np.ndarray | xr.DataArray) and value.dtype.kind == "O"
    return objects and value.shape == (0,)


def _without_rows(base: SourceToWrite, ragged: RaggedAs) -> dict[str, SourceToWrite]:
    """Return a source like another, without any row."""
    if base.examples is not None:
        none = replace(base.examples, shapes=base.examples.shapes[:0])
        return ragged_datasets(base.name, none, ragged)
    return {base.name: replace(base, shape=(0, *base.shape[1:]), blocks=lambda _: iter(()))}


def _are_examples(base: SourceToWrite | None, value: Any) -> bool:
    """Whether an array or a list has as rows what `base` has as examples of different shapes."""
    listed = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 1)
    return base is not None and base.examples is not None and listed


def _of_batches(
    sources: Iterable[Any], dims: Dims, ragged: RaggedAs, before: Mapping[str, SourceToWrite]
) -> Inputs:
    """Return sources that come in batches, the first of which tells what they are."""
    batches = _checked_batches(sources)
    first = next(batches, None)
    if first is None:
        raise ArrayError("the batches to write are empty; give at least one")
    given, open_ended = inputs_of(first, dims, ragged, before=before), dict[str, SourceToWrite]()
    along: set[str] = set()
    for name, one in given.sources.items():
        # a list of batches is in memory already
        n_bytes = 0 if isinstance(sources, Sequence) else one.row_bytes * (one.shape[0] or 0)
        inner = tuple(coord for coord in one.coords if coord.dim != one.axes[0])
        along |= {coord.name for coord in one.coords if coord not in inner}
        shape = (None, *one.shape[1:])
        open_ended[name] = replace(one, coords=inner, shape=shape, batch_bytes=n_bytes)
    if along:  # they would be as long as the first batch, and netCDF libraries read no more rows
        warn(
            f"coordinates {sorted(along)} along the examples of batches are not written; make them "
            f"sources with reset_coords(), or give those of all rows with coords="
        )
    more = (inputs_of(batch, {}, ragged, before=open_ended) for batch in batches)
    passing = not isinstance(sources, Sequence)
    every = (replace(batch, passing=passing) for batch in chain([given], more))
    return Inputs(open_ended, {}, every)


def _checked_batches(batches: Iterable[Any]) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        if not (isinstance(batch, Mapping) or tables.is_frame(batch)):
            words = "expected a mapping {name: array}, or a pandas.DataFrame"
            raise ArrayError(f"batch {number} is {type(batch).__name__}; {words}")
        yield batch


def _with_axes(dataset: xr.Dataset) -> dict[str, xr.DataArray]:
    """Return the variables that have axes; single values cannot be sources."""
    arrays = {str(name): array for name, array in dataset.data_vars.items()}
    single = sorted(name for name, array in arrays.items() if not array.dims)
    if single and len(single) < len(arrays):
        warn(f"variables {single} are single values, no sources, and are left out")
        arrays = {name: array for name, array in arrays.items() if array.dims}
    return arrays


def _of_files(own: Any) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Return the sources and attributes of a Dataset, and which attributes HDF5 cannot hold.

    Those of zarr are any JSON. Who converts a file has not given them, so they are no error.
    """
    sources, attrs = {name: own[name] for name in own.sources}, dict(getattr(own, "attrs", {}))
    lost: dict[str, None] = {}  # a coordinate has many sources
    _keep_storable("the file", attrs, lost)
    for name, array in sources.items():
        if isinstance(array, xr.DataArray):
            sources[name] = copy = array.copy(deep=False)
            _keep_storable(f"source {name!r}", copy.attrs, lost)
            for key, coord in copy.coords.items():
                _keep_storable(f"coordinate {key!r}", coord.attrs, lost)
    return sources, attrs, [*lost]


def _keep_storable(where: str, attrs: dict[Any, Any], lost: dict[str, None]) -> None:
    for key, value in [*attrs.items()]:
        try:
            storable(where, {key: value})
        except ArrayError:
            lost[f"{key!r} of {where}"] = None
            del attrs[key]


def _of_dataset(
    own: Any, name: str, array: xr.DataArray, dims: Sequence[str | None] | None, *, here: bool
) -> SourceToWrite:
    """Return a source of a Dataset, read in the packing threads, past dask, if `here`.

    How long its texts are is looked at in any case: files are the same wherever they are packed.
    """
    made = source_to_write(name, array, dims)
    if array.chunks is None:
        return made
    step = own.chunk_rows(name)
    read = read_by(made, partial(own.read_rows, name), len(array), step)
    read = replace(read, least_bytes=step * read.row_bytes)
    return read if here else replace(made, mean_bytes=read.mean_bytes)


def check_names(sources: Mapping[Any, Any], dims: Dims) -> None:
    """Refuse names that HDF5 cannot hold, or that lie inside another source, and dims of none."""
    if not sources:
        raise ArrayError("there is no source to write; give at least one {name: array}")
    for name in sources:
        parts, why = name.split("/") if isinstance(name, str) else [], ""
        if not isinstance(name, str):
            why = "give it a text for a name"
        elif any(part in ("", ".", "..") for part in parts) or "\0" in name or parts[0] == OWN:
            why = f"HDF5 takes '/' for groups; use 'images' or 'camera/left', say, not {OWN!r}"
        elif not name.isprintable() and name.encode(errors="replace").decode() != name:
            why = "it is not valid Unicode; rename it"
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in sources:
                why = f"it would lie inside source {'/'.join(parts[:depth])!r}; rename one"
        if why:
            raise ArrayError(f"{name!r} cannot name a source: {why}")
    check_known("dims= names", dims, sources, "a source")


def source_to_write(name: str, value: Any, dims: Sequence[str | None] | None) -> SourceToWrite:
    """Return one source as it will be written."""
    array = _as_array(name, value)
    dtype, encode, decoding = stored_as(f"source {name!r}", np.dtype(array.dtype))
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
        check_name(f"source {name!r} has a dim called", dim, DimsError)
    coords = _coordinates(name, array, axis_names) if labelled else ()
    attrs = with_fills(storable(f"source {name!r}", array.attrs), dtype) if labelled else {}
    attrs, blocks = {**attrs, **decoding}, partial(_dask_blocks, array)
    made = SourceToWrite(name, dtype, shape, axis_names, attrs, blocks, encode, coords=coords)
    if not is_dask_collection(array):
        return read_by(made, partial(rows_of, array), shape[0])
    data = array.data if labelled else array
    apart = any(len(lengths) > 1 for lengths in data.chunks[1:])  # are put together first
    least = (1 + apart) * max(data.chunks[0], default=0) * made.row_bytes
    return replace(made, blocks=partial(_dask_blocks, data), least_bytes=least)


def _dask_blocks(array: Any, rows: int) -> Iterator[Block]:
    """Yield dask's own blocks of whole rows, small ones joined, so that each is computed once."""
    edges = offsets_of(np.array(array.chunks[0], np.int64))
    ends = edges[block_cuts(np.diff(edges), rows)]
    lengths = dict.fromkeys(range(1, array.ndim), -1) | {0: tuple(np.diff(ends).tolist())}
    # by tasks: only some blocks are computed at a time, and dask's p2p method starts with all;
    # blocks without any row stay several
    whole = array.rechunk(lengths, method="tasks").to_delayed().reshape(-1)
    for block, (start, stop) in zip(whole, pairwise(ends.tolist()), strict=False):
        yield Block(start, stop, delayed=block)


def _as_array(name: str, value: Any) -> Any:
    """Return something with dtype, shape and slices."""
    where, why = f"source {name!r}", f"is {type(value).__name__}, not an array"
    if has_dlpack(value):
        try:
            return adopted(value)
        except ArrayError as error:
            raise ArrayError(f"{where}: {error}") from error
    if isinstance(value, xr.Variable | xr.DataArray):
        labelled = xr.DataArray(value) if isinstance(value, xr.Variable) else value
        return tables.as_numpy(name, labelled)
    if isinstance(value, np.ma.MaskedArray):
        return without_mask(where, value)
    if isinstance(value, np.ndarray):
        return value
    if tables.is_column(value):
        return tables.frame_column(name, value)
    if is_dask_collection(value):
        if isinstance(getattr(value, "chunks", None), tuple):
            return value
        why = f"is dask's {type(value).__name__}, not an array; make one of it, with "
        why += ".to_dask_array(lengths=True), dask.array.from_delayed, or .compute()"
    elif hasattr(value, "toarray"):
        why = f"is a sparse {type(value).__name__}; write .toarray(), or its data, indices, indptr"
    elif all(hasattr(value, each) for each in ("dtype", "shape", "__getitem__")):
        if hasattr(value, "isna") and not isinstance(value.dtype, np.dtype):  # pandas' arrays
            return tables.plain_array(name, value)
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
            array = np.asarray(value)
        except ValueError as error:
            why = f"is a list that is neither an array ({error}) nor one of arrays; give an array"
        else:
            tables.check_listed(where, value, array)
            return array
    raise ArrayError(f"{where} {why}")


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
            values = tables.as_numpy(str(key), coord).values
            out.append(coordinate(called, renamed[old], values, coord.attrs))
    return tuple(out)


def coordinate(name: str, dim: str, values: Any, attrs: Mapping[Any, Any]) -> Coordinate:
    """Return a coordinate whose values can be stored.

    Raises
    ------
    ArrayError
        If its dtype cannot be.
    """
    check_name("a coordinate is called", name)
    array, where = np.asarray(values), f"coordinate {name!r}"
    _, encode, decoding = stored_as(where, array.dtype)
    if array.dtype.kind in "UTO":
        array = texts(array, where)
    if encode is not None:
        array = encode(array)
    kept = with_fills(storable(where, attrs), array.dtype)
    return Coordinate(name, dim, array, {**kept, **decoding})


def warn_of_left_out(sources: Any) -> None:
    """Report what is not among the sources and is not written.

    Of a Dataset these are variables without the example dim, and datasets that cannot be opened;
    of other arrays, coordinates along no axis of theirs, or several.
    """
    if is_dataset(sources):
        _warn_of_variables(sources)
        return
    values = sources.values() if isinstance(sources, Mapping) else ()
    arrays = [one for one in values if isinstance(one, xr.DataArray)]
    dims = {dim for one in arrays for dim in one.dims}
    having = [sources] if isinstance(sources, xr.Dataset) else arrays
    coords = dict(pair for each in having for pair in each.coords.items())
    names = [str(n) for n, one in coords.items() if one.ndim != 1 or not dims >= {*one.dims}]
    if names:
        warn(
            f"coordinates {sorted(names)} are along no axis of a source, or several, and are not "
            f"written; make them sources with reset_coords(), or attributes"
        )


def _warn_of_variables(dataset: Any) -> None:
    header = dataset.files.catalog.headers[0]
    along = {name for source in header.sources.values() for name in source.coords}
    lost = [n for n, one in header.variables.items() if n not in along or len(one.dims) != 1]
    part_of = ("it holds the ", "it is part of sparse matrix ")  # of what is written
    lost += [n for n, why in header.not_opened.items() if not why.startswith(part_of)]
    views = header.format == "recordio"  # what is not opened there is the same bytes once more
    if lost and not views and len(dataset.sources) == len(header.sources):
        way = "labeled.repack carries them over"
        if header.format != "hdf5" or any("indptr" in one.parts for one in header.sources.values()):
            way = "what could be opened of them is in ds.to_xarray()"
        if dataset.files.options.examples is not None:
            way = "names and attributes of examples are kept where sources= names them, too"
        warn(
            f"{listed(sorted(lost), MAX_NAMED)} of {header.stamp.path!r} are no sources of "
            f"examples, and are left out; {way}"
        )
