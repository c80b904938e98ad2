"""``labeled.write``: sources and splits into a file that is whole or not there at all.

Arguments are checked before a file is made; rows then stream through
:mod:`.packing` into one writer, source after source; labels, splits, checksums and
statistics follow, and last of all the file takes the name it was asked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from labeled._validation import check_arguments
from labeled.display.progress import Advance, progress_bar
from labeled.errors import ArrayError, DimsError, LabeledError, WriteError, check_known, warn
from labeled.formats.hdf5 import writing as hdf5
from labeled.formats.hdf5.extras import Extras
from labeled.formats.hdf5.fuel import write_table
from labeled.formats.hdf5.metadata import write_own
from labeled.formats.replacing import check_target, replacing
from labeled.selection import Selection
from labeled.version import VERSION
from labeled.writing.inputs import Inputs, coordinate, inputs_of, is_dataset, warn_of_left_out
from labeled.writing.layouts import RaggedAs, Storage, StorageKeywords
from labeled.writing.packing import Begin, PackingPlan, fitting, store
from labeled.writing.source import SourceToWrite
from labeled.writing.splits import Splits, as_splits, check_inside, warn_of_overlaps

Path = str | os.PathLike[str]

# how the names of files end that are no HDF5: what `convert` writes; what NumPy, pandas and xarray
# write, of ``dataset.to_xarray()``; and others
RECORDS = ".rec"
XARRAY = (".npz", ".npy", ".parquet", ".csv", ".zarr")
FOREIGN = """
.arrow .avro .db .dcm .feather .fits .gz .jpeg .jpg .json .jsonl .lmdb .mat .orc .pickle .pkl
.png .pt .pth .safetensors .sqlite .tar .tfrecord .tfrecords .tif .tiff .tsv .txt .xlsx .xz
.zip .zst
"""


class WriteKeywords(StorageKeywords, total=False):
    """The fields of :class:`WriteOptions`, as keywords of :func:`write`."""

    ragged: RaggedAs
    dims: Mapping[str, Sequence[str | None]] | None
    coords: Mapping[str, Any] | None
    attrs: Mapping[str, Any] | None
    source_attrs: Mapping[str, Mapping[str, Any]] | None
    netcdf: bool
    statistics: bool
    checksums: bool
    provenance: Mapping[str, Any] | None


@dataclass(frozen=True, eq=False)
class WriteOptions(Storage):
    """What a file holds besides rows, and how these are stored; see :func:`write`."""

    ragged: RaggedAs = "flat"
    dims: Mapping[str, Sequence[str | None]] | None = None
    coords: Mapping[str, Any] | None = None
    attrs: Mapping[str, Any] | None = None
    source_attrs: Mapping[str, Mapping[str, Any]] | None = None
    netcdf: bool = True
    statistics: bool = True
    checksums: bool = True
    provenance: Mapping[str, Any] | None = None


DEFAULTS = WriteOptions()


@check_arguments(options=DEFAULTS)
def write(
    path: Path,
    sources: Any,
    splits: Mapping[str, Any] | None = None,
    **options: Unpack[WriteKeywords],
) -> str:
    """Write a file of examples. It appears under its name only once it is complete.

    Parameters
    ----------
    path : path
        A file in a folder that exists. A symbolic link is followed; ``~`` is the home.
    sources : mapping, xarray.Dataset, pandas.DataFrame, labeled.Dataset, or iterable of mappings
        ``{name: array}``; arrays are NumPy or dask arrays, DataArrays, or anything with `dtype`,
        `shape` and slicing. Their first axis counts examples. A dask array is computed block by
        block wherever dask runs, and compressed there; what several blocks share (a mean over all
        rows, say) is computed again for each group of blocks, so `persist` it first. An iterable
        gives batches ``{name: array}``, or DataFrames, of any number of rows, and may use the
        memory of one for the next; of a loader's batches, rows of padding are left out. Plain
        dicts (``output="numpy"``) do not say how many of their rows are real, so padding in them
        is stored: make them with ``last="keep"``. A labeled.Dataset gives its selected rows, and
        its splits if all rows are selected. A DataFrame gives its columns, not its index
        (``reset_index()`` makes columns of it); single values in an xarray.Dataset are left out.
        Times are stored as nanoseconds with CF attributes, those of a time zone in UTC; texts, and
        bytes in object arrays, as UTF-8 texts of any length. Examples of different shapes are a
        :class:`labeled.Ragged`, a list of arrays, or an object array of them, in batches, too; so
        are those in batches of a loader with ``ragged="flat"``, unless these are plain dicts.
    splits : mapping of split to rows, optional
        ``{"train": (0, 90), "test": slice(90, None)}``; rows are ``(start, stop)``, a slice
        or range, a list of integers or a boolean mask, or a mapping of source to these.
        Lists become index datasets; equal ones are written once. Without splits the file
        is netCDF-4 of the plainest kind; with them it has the Fuel layout.
    dims : mapping of source to names, optional
        One per axis; they take precedence over those of DataArrays. Default: ``batch``,
        ``<source>_axis_1``, ...
    coords : mapping of name to values, optional
        Values along the dim called so, or ``(dim, values)``, for every source with that dim.
    attrs, source_attrs : mapping, optional
        Attributes of the file, and ``{source: {name: value}}``; they take precedence over those of
        xarray.
    layout : {"auto", "contiguous", "chunked"}
        "auto" means contiguous if neither `compression` nor `chunks` is given, which reads best in
        any order. `layout`, `compression`, `level` and `chunks` may be mappings by source.
    compression : {None, "gzip", "zstd", "lz4"}
        zstd and lz4 need ``labeled[codecs]``, and readers a plugin (hdf5plugin).
    level : int, optional
        Compression level; by default 4 for gzip and 3 for zstd.
    chunks : int or tuple, optional
        Rows per chunk, or its full shape. Default: whole rows, of which a power of two makes 128 to
        256 KiB.
    ragged : {"flat", "fuel"}
        How examples of different shapes are stored: flat values with offsets and shapes,
        which read many times faster, or as Fuel does, rows of variable length with scales
        `shapes` and `shape_labels`. For flat values, `chunks` counts elements. Rows of variable
        length are not compressed (HDF5 would compress references to them), and make a file that
        netCDF libraries refuse.
    overwrite : bool
        Replace an existing file, which stays as it is until the new one is complete.
    netcdf : bool
        Write dimension scales, so that netCDF readers find the same dims.
    statistics, checksums : bool
        Store count, mean, std, min, max and class counts, gathered while writing; and a CRC-32 of
        every stretch of rows, for :func:`labeled.verify`. Both lie in the group ``_labeled``, which
        other readers do not enter.
    provenance : mapping, optional
        Where the data comes from; kept as JSON in the attribute `labeled_provenance`. No time stamp
        is written: equal input gives equal bytes.
    progress : bool, optional
        Show a bar. Default: on a terminal, once writing takes more than two seconds.
    memory : int or str, optional
        The most bytes that writing adds to the process: rows as they are read and as they are
        stored, and what compressing them takes. What dask needs to compute a block is not counted.
        Default: 128 MiB, or more where the largest piece that cannot be cut needs it (a chunk, a
        dask block, an example, a batch). At least 3 to 5 MiB, and 9 MiB for examples stored as Fuel
        stores them.
    threads : int, optional
        Blocks compressed at the same time. Default: one per core, at most 8.

    Returns
    -------
    str
        The absolute path of the file.

    Raises
    ------
    ArrayError, DimsError, LoaderError, UnknownNameError
        If arrays, names or options do not fit, or `memory` is too small.
    SplitError
        If rows lie outside their source or sources of a split differ in length. All of this before
        anything is written, unless only counting the rows of batches shows it.
    WriteError
        If the target exists, may not be written, or the disk is full. Whatever was there
        before is untouched, and nothing else stays behind.

    Warns
    -----
    LabeledWarning
        If splits overlap, sources differ in length without splits, or coordinates are left out:
        those along no axis or several, and those along the examples of batches. Of a Dataset, if
        its file holds more than its sources.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "digits.hdf5")
    >>> images = np.zeros((100, 8, 8), np.uint8)
    >>> names = {"images": ("batch", "height", "width")}
    >>> path = labeled.write(
    ...     path, {"images": images}, {"train": (0, 90), "test": (90, 100)}, dims=names)
    >>> labeled.open_dataset(path).split("test").shapes
    {'images': (10, 8, 8)}
    """
    asked = replace(DEFAULTS, **options)
    check_ending(path)
    with naming(f"nothing was written to {os.fspath(path)!r}"):
        return planned(sources, splits, asked).write(path, asked)


def check_ending(path: str | os.PathLike[str]) -> None:
    """Refuse to write HDF5 under a name that promises something else.

    Raises
    ------
    WriteError
        If it does, with another name.

    Examples
    --------
    >>> check_ending("a.hdf5"), check_ending("a"), check_ending("a.of_my_own")
    (None, None, None)
    >>> check_ending("a.json")
    Traceback (most recent call last):
    labeled.errors.WriteError: cannot write 'a.json': ... HDF5, ... another format; use 'a.hdf5'...
    """
    name = os.fsdecode(path)
    stem, ending = os.path.splitext(name)
    if ending.lower() in (RECORDS, *XARRAY, *FOREIGN.split()):
        xarray = "; open_dataset(...).to_xarray() has to_dataframe(), to_zarr() and to_netcdf()"
        ways = {RECORDS: "; labeled.convert makes record files", **dict.fromkeys(XARRAY, xarray)}
        raise WriteError(
            f"cannot write {name!r}: labeled.write makes HDF5, and a name in {ending} promises "
            f"another format; use {stem + '.hdf5'!r}{ways.get(ending.lower(), '')}"
        )


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Add to each error what happened to which file."""
    try:
        yield
    except WriteError:
        raise  # names it
    except LabeledError as error:
        error.args = (f"{error} ({file})", *error.args[1:])
        raise


Table = Callable[[Mapping[str, int]], Splits | None]  # splits, by numbers of rows


@dataclass(frozen=True, eq=False)
class Planned:
    """A file to be written, with everything checked that can be checked before.

    Parameters
    ----------
    table : callable
        Returns the splits, once all rows are counted: so many of each source.
    extras : Extras, optional
        Everything that an older file holds besides its sources.
    check : callable of a path, optional
        Has the last word on the file before it takes its name.
    """

    plan: PackingPlan
    table: Table
    file_attrs: Mapping[str, Any]
    netcdf: bool
    extras: Extras | None = None
    check: Callable[[str], None] | None = None

    @property
    def certain_bytes(self) -> int:
        """Bytes that the file takes at least."""
        return sum(
            given.row_bytes * (given.shape[0] or 0)
            for name, given in self.plan.inputs.sources.items()
            if not self.plan.recipes[name].layout.filters and given.dtype.kind != "O"
        )

    def bar(self, target: str, progress: bool | None) -> AbstractContextManager[Advance]:
        """Return a progress bar of the bytes written."""
        return progress_bar(progress, self.plan.inputs.n_bytes, f"write {os.path.basename(target)}")

    def write(self, path: Path, options: Storage) -> str:
        """Make the file here, once its target is checked; return where it lies."""
        target = check_target(path, overwrite=options.overwrite, n_bytes=self.certain_bytes)
        with self.bar(target, options.progress) as advance:
            self.create(target, advance, overwrite=options.overwrite)
        return target

    def begun_by(self, begin: Begin) -> Planned:
        """Return the same file with the work of dask done by `begin`."""
        return replace(self, plan=replace(self.plan, begin=begin))

    def create(self, target: str, advance: Advance, *, overwrite: bool) -> None:
        """Make the file and put it in its place, once `check` has seen the path of all of it."""
        user_block = b"" if self.extras is None else self.extras.user_block
        with replacing(target, overwrite=overwrite) as part:
            with hdf5.open_to_write(part, "w", user_block) as file:
                self._fill(file, advance)
            if self.check is not None:
                self.check(part)

    def _fill(self, file: Any, advance: Advance) -> None:
        """Write rows, names, splits and attributes into an open file."""
        plan, extras = self.plan, self.extras
        inputs = plan.inputs
        writers: dict[str, hdf5.SourceWriter] = {}
        for name, given in inputs.sources.items():
            layout = plan.recipes[name].layout
            writers[name] = hdf5.SourceWriter(file, name, given.dtype, given.shape, layout)
            hdf5.store_attrs(file[name], given.attrs)
        joiners = store(plan, writers, advance)
        counts = inputs.counts
        table = self.table(counts)
        if table is not None:
            check_inside(table, counts)
        if inputs.batches is not None:  # only now their rows are counted
            for name, given in inputs.sources.items():
                _check_coords(replace(given, shape=file[name].shape))
            _warn_of_lengths(table, counts)
        if extras is not None:
            extras.copy(file)
        unlimited, with_table = () if extras is None else extras.unlimited, table is not None
        scales = hdf5.ScaleWriter(file, with_table, self.netcdf, unlimited, inputs.sources)
        for name, given in inputs.sources.items():
            scales.name_axes(name, given.axes, given.coords)
        for name, shapes in inputs.shapes.items():
            hdf5.attach_shapes(file, name, np.concatenate(shapes), inputs.sources[name].dims[1:])
        if extras is not None:
            extras.tie(file)
        if table is not None:
            comments = None if extras is None else extras.comments
            write_table(file, table, counts, comments=comments, scales=self.netcdf)
        hdf5.store_attrs(file, self.file_attrs)
        sums = {n: one.checksums for n, one in joiners.items() if plan.recipes[n].checksums}
        write_own(file, plan.statistics(table), sums)


def planned(
    sources: Any, splits: Mapping[str, Any] | None, options: WriteOptions, *, here: bool = True
) -> Planned:
    """Check everything that :func:`write` is asked for, but the target.

    `here` is whether the rows of a Dataset are read in the process that writes.
    """
    o = options
    inputs = inputs_of(sources, o.dims, o.ragged, here=here)
    inputs = _with_extras(inputs, o)
    found = own_splits(sources) if splits is None and is_dataset(sources) else splits
    table = None if found is None else as_splits(found, inputs.n_rows)
    _check_fit(inputs, netcdf=o.netcdf)
    file_attrs = _file_attrs(inputs, o)
    kept: Any = {"statistics": o.statistics, "checksums": o.checksums}
    plan = PackingPlan.of(inputs, o, table, **kept)
    plan = fitting(plan, o.memory) if here else plan
    _warn_of_lengths(table, {name: n for name, n in inputs.n_rows.items() if n is not None})
    if table is not None and splits is not None:
        warn_of_overlaps(table)
    warn_of_left_out(sources)
    return Planned(plan, lambda _: table, file_attrs, o.netcdf)


def _with_extras(inputs: Inputs, options: WriteOptions) -> Inputs:
    """Add coordinates and attributes that were given apart from the arrays."""
    out, source_attrs = dict(inputs.sources), options.source_attrs or {}
    check_known("source_attrs= names", source_attrs, inputs.n_rows, "a source")
    for name, attrs in source_attrs.items():
        extra = hdf5.storable(f"source {name!r}", attrs)
        out[name] = replace(out[name], attrs={**out[name].attrs, **extra})
    for name, value in (options.coords or {}).items():
        dim, values = value if isinstance(value, tuple) and len(value) == 2 else (name, value)
        having = [given for given in out.values() if dim in given.axes]
        if not having:
            dims = sorted({each for given in out.values() for each in given.axes})
            raise DimsError(f"coords= has {name!r} along {dim!r}, which is none of the dims {dims}")
        made = coordinate(name, str(dim), values, getattr(values, "attrs", {}))
        for given in having:
            kept = (coord for coord in given.coords if coord.name != name)
            out[given.name] = replace(given, coords=(*kept, made))
    return replace(inputs, sources=out)


def _warn_of_lengths(table: Splits | None, counts: Mapping[str, int]) -> None:
    """Warn of sources of different lengths, unless splits tell which rows go together."""
    if table is None and len(set(counts.values())) > 1:
        (first, n), *others = counts.items()
        other, m = next(one for one in others if one[1] != n)
        warn(
            f"source {first!r} has {n:,} rows, and {other!r} has {m:,}: batches need equal "
            "numbers; take some that agree (sources=, or example_dim= of netCDF and zarr), correct "
            "the arrays, or name the rows of each source with splits= of labeled.write"
        )


def _check_coords(given: SourceToWrite) -> None:
    """Refuse coordinates of another length than their dim, where that is known."""
    lengths = dict(zip(given.axes, given.shape, strict=True))
    for coord in given.coords:
        length = lengths[coord.dim]
        if coord.values.ndim != 1 or length not in (None, len(coord.values)):
            raise DimsError(
                f"coordinate {coord.name!r} has shape {coord.values.shape}, but dim "
                f"{coord.dim!r} of source {given.name!r} has length {length}"
            )


def _check_fit(inputs: Inputs, *, netcdf: bool) -> None:
    """Refuse coordinates of another length than their dim, and names used for two things."""
    seen: dict[tuple[str, int | None], tuple[str, hdf5.Coordinate]] = {}
    # sources and the groups they lie in
    taken = {name[: cut.start()] for name in inputs.sources for cut in re.finditer("/|$", name)}
    for name, given in inputs.sources.items():
        lengths = dict(zip(given.axes, given.shape, strict=True))
        called = {dim.replace("/", "_"): "dim" for dim in lengths if netcdf}
        _check_coords(given)
        for coord in given.coords:
            length = lengths[coord.dim]
            called[coord.name] = "coordinate"
            if coord.name == coord.dim:  # with one length too, these would be taken for the same
                first, other = seen.setdefault((coord.dim, length), (name, coord))
                if not (np.array_equal(coord.values, other.values) or coord.key == other.key):
                    raise DimsError(
                        f"dim {coord.dim!r} has other coordinates in source {name!r} than in "
                        f"source {first!r}; rename it in one, or .drop_vars({coord.dim!r})"
                    )
        for one, what in called.items():
            if one in taken:
                remedy = "rename one with dims={source: (...)}"
                remedy += (
                    ", or write with labeled.write(..., netcdf=False)" if what == "dim" else ""
                )
                if what == "coordinate" and one not in lengths:  # it has a name of its own
                    remedy = "give the source or the coordinate another name"
                other_use = "source" if one in inputs.sources else "group of sources"
                raise DimsError(
                    f"{one!r} is both a {other_use} and a {what} of source {name!r}, and netCDF "
                    f"has one name for both; {remedy}"
                )


def _file_attrs(inputs: Inputs, options: WriteOptions) -> dict[str, Any]:
    out = {**inputs.attrs, **hdf5.storable("the file", options.attrs or {})}
    if "split" in out:
        raise ArrayError("attribute 'split' of the file has a meaning here; rename it")
    out["labeled_version"] = VERSION
    try:
        if options.provenance is not None:
            out["labeled_provenance"] = json.dumps(dict(options.provenance), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise ArrayError(f"provenance= does not fit into JSON: {error}") from None
    return out


def own_splits(dataset: Any) -> dict[str, dict[str, Any]] | None:
    """Return the splits of a labeled.Dataset that has every row of its file."""
    if getattr(dataset, "selections", None) is not None:
        return None
    catalog = dataset.files.catalog
    named = any(header.kind == "fuel" for header in catalog.headers)
    if list(catalog.splits) == ["all"] and not named:  # what a file without splits has
        return None
    out: dict[str, dict[str, Any]] = {}
    for split, by_source in catalog.splits.items():
        own = {n: Selection.concat([by_source[n]]) for n in dataset.sources if n in by_source}
        seen: dict[str, Selection] = {}  # sources with equal rows share one list
        out[split] = {name: seen.setdefault(one.token, one).compact for name, one in own.items()}
    return out if any(out.values()) else None
