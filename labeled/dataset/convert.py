"""``labeled.convert``: what opens, or is in memory, becomes a labelled file or a file of records.

What is given is opened (:mod:`labeled.writing.importers` tells pictures, tables and arrays, and
``open_dataset`` opens the rest), its rows are divided among splits, and one writer takes both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import check_arguments, check_keywords, keywords_of
from labeled.dataset.dataset import Dataset
from labeled.dataset.files import find_files
from labeled.dataset.opening import GENERAL, open_dataset
from labeled.errors import (
    ArrayError,
    OptionError,
    SplitError,
    UnknownNameError,
    WriteError,
    did_you_mean,
    listed,
    warn,
)
from labeled.formats.registry import format_named, format_of, option_names
from labeled.formats.replacing import check_target, part_folder
from labeled.ragged import Ragged
from labeled.writing.importers import Imported, Importer
from labeled.writing.pictures import copy_pictures, write_pictures
from labeled.writing.source import with_fields
from labeled.writing.splits import splits_by_rules
from labeled.writing.write import (
    DEFAULTS,
    RECORDS,
    Path,
    WriteOptions,
    check_ending,
    checked_effort,
    write_with,
)

MAX_NAMED = 12
"""Datasets that a warning names."""

OF_RAGGED = "it holds the "
"""Why datasets that ragged sources are made of are no sources themselves."""

MEANT_FOR = {
    "columns": ("table", "parquet"),
    "example_dim": ("xarray", "zarr", "netcdf3"),
}
"""Kinds of origins that an option means something for, besides files that are opened."""

LABELS = "iubUSO"
"""Kinds of dtypes that labels have: integers and texts."""

BLOCKS = 32
"""Blocks of lazy arrays that fit into the memory given: several are on their way at a time."""


@dataclass(frozen=True, eq=False)
class SplitRules:
    """How rows are divided among splits; :func:`convert` documents each field."""

    split: Mapping[str, Any] | None
    stratify: Any
    group: Any
    seed: int
    in_order: bool


@check_arguments(options=DEFAULTS)
def convert(
    origin: Any,
    target: Path,
    *,
    split: Mapping[str, Any] | None = None,
    stratify: Any = None,
    group: Any = None,
    seed: int = 0,
    in_order: bool = False,
    only: str | Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    example_dim: str | None = None,
    **options: Any,
) -> str:
    """Make a labelled file of something else, or records of a labelled file of pictures.

    Rows pass through memory in blocks, whatever the size of the file. The target appears
    under its name only once it is complete, so a conversion that was cut short is simply
    begun again.

    Parameters
    ----------
    origin : path or paths, xarray.Dataset, pandas.DataFrame, labeled.Dataset, mapping of arrays
        Paths: ``.npy`` and ``.npz`` (unpacked beside the target meanwhile), ``.parquet``, zarr
        stores, netCDF, a folder of pictures by class, and all that
        :func:`labeled.open_dataset` opens (HDF5, CSV, IDX, record files). Several ``.npy`` files
        (a list, a folder, a glob) that are named after splits, or lie in folders that are,
        become these: ``train_x.npy`` and ``test_x.npy``, ``train/x.npy`` and ``test/x.npy``.
    target : path
        A labelled HDF5 file, unless it ends in ``.rec``. For other kinds of files see
        ``open_dataset(...).to_xarray()``.
    split : mapping of split to rule, optional
        ``"0:50000"`` (a stretch), ``0.8`` or ``"80%"`` (a share of the rows that no stretch
        names, drawn at random), ``1000`` (so many of them), ``"rest"``; or rows, as for
        :func:`labeled.write`. Default: the splits that `origin` has.
    stratify : str or array, optional
        A source of classes, one a row, or a column of a table: every split gets its share of
        each.
    group : str or array, optional
        A source, or a column, that tells what belongs together: no group is cut.
    seed : int
        Of what is drawn.
    in_order : bool
        Take shares in the order of rows.
    only : str or list of str, optional
        Take the rows of these splits of `origin`.
    sources : sequence of str, optional
        Take only these.
    columns : mapping of source to column names, optional
        Columns of a table that become one source, side by side.
    example_dim : str, optional
        The dim of an xarray dataset, netCDF file or zarr store that counts examples.
    **options
        How the target is written, as for :func:`labeled.write`: `dims` in place of those found,
        `attrs`, `layout`, `compression`, `level`, `chunks`, `ragged`, `overwrite`, `progress`,
        `memory`, `threads`, and the others. `provenance` is stored beside the defaults: the
        name and kind of `origin`, and how splits were drawn.

        How `origin` is opened: options of its format, as for :func:`labeled.open_dataset`. For
        a folder of pictures those of record files: `channels` (3), `resize`, `shape`,
        `upright`, `max_pixels`.

    Returns
    -------
    str
        The absolute path of the target.

    Raises
    ------
    LabeledError
        Before anything is written, if `origin` is damaged or cannot be held by the target;
        if splits cannot be made; if the target may not be written.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> folder = tempfile.mkdtemp()
    >>> np.savez(os.path.join(folder, "a.npz"), x=np.arange(20).reshape(10, 2), y=np.arange(10) % 2)
    >>> path = labeled.convert(os.path.join(folder, "a.npz"), os.path.join(folder, "a.hdf5"),
    ...                        split={"train": 0.8, "test": 0.2}, stratify="y")
    >>> {name: counts["x"] for name, counts in labeled.open_dataset(path).splits.items()}
    {'train': 8, 'test': 2}
    """
    target = os.fsdecode(target)
    rules = SplitRules(split, stratify, group, seed, in_order)
    how = {one.name for one in fields(WriteOptions)}
    written = replace(DEFAULTS, **{name: v for name, v in options.items() if name in how})
    opened = {name: v for name, v in options.items() if name not in how}
    if "splits" in opened:
        raise OptionError("convert() has no option 'splits'; did you mean 'split'?")
    check_keywords("convert", opened, keywords_of(convert), GENERAL, option_names())
    where = check_target(target, overwrite=written.overwrite)
    is_records = os.path.splitext(target)[1].lower() == RECORDS
    if not is_records:
        check_ending(target)
    budget, _ = checked_effort(written.memory, written.threads)
    with ExitStack() as folders, dask.config.set({"array.chunk-size": f"{budget // BLOCKS}B"}):
        importer = Importer(
            _opener(opened, written, is_records, only, sources, columns, example_dim),
            lambda: folders.enter_context(part_folder(where)),
            sources,
            example_dim,
            columns,
            opened,
        )
        found = importer.sources_of(origin)
        _check_meant(found, {**opened, "columns": columns, "example_dim": example_dim})
        if isinstance(found.sources, Mapping) and not isinstance(found.sources, xr.Dataset):
            found = replace(found, sources=with_fields(found.sources))
        if only is not None and found.kind != "labeled":
            raise SplitError(f"only={only!r} takes rows of a split, and {found.where} has none")
        found = found if sources is None else found.chosen(sources)
        if not found.names:
            raise ArrayError(f"{found.where} holds no source to convert")
        if isinstance(found.sources, Dataset) and sources is None:
            _warn_of_left_out(found.sources)
        if is_records and split is not None:
            raise SplitError(".rec files get no splits; convert to a labelled file first")
        if is_records and found.kind == "pictures" and not opened:
            return copy_pictures(found.sources, target, written)
        if is_records:
            return _exported(found, target, written)
        splits, provenance = found.splits, {**_origin(found, rules), **(written.provenance or {})}
        if split is not None:
            splits = _splits(found, rules)
        elif stratify is not None or group is not None or in_order:
            raise SplitError("stratify, group and in_order need splits: give split={'train': 0.8}")
        made = _with_names(replace(written, provenance=provenance), found)
        return write_with(target, found.sources, splits, made)


def _with_names(written: WriteOptions, found: Imported) -> WriteOptions:
    """Add the names and attributes that were found, where none are given for a source."""
    dims: dict[str, Any] = {n: dims for n, dims in found.dims.items() if n in found.names}
    if found.kind != "labeled":  # else its sources were opened with them
        dims |= written.dims or {}
    return replace(
        written, dims=dims, source_attrs={**found.source_attrs, **(written.source_attrs or {})}
    )


def _opener(
    opened: Mapping[str, Any],
    written: WriteOptions,
    is_records: bool,
    only: str | Sequence[str] | None,
    sources: Sequence[str] | None,
    columns: Mapping[str, Sequence[str]] | None,
    example_dim: str | None,
) -> Callable[[Any], Dataset]:
    """Return what opens files, with their values as they are stored if these are to be kept."""
    own = dict(opened)
    if sources is not None:
        own["sources"] = tuple(sources)
    if columns is not None:
        own["columns"] = columns

    def opener(path: Any) -> Dataset:
        named = own.get("format")
        found = format_of(find_files(path)[0]) if named is None else format_named(named)
        if not is_records and "decode_cf" in found.accepts:
            own.setdefault("decode_cf", False)
        dataset = open_dataset(path, dims=written.dims, example_dim=example_dim, **own)
        if only is None:
            return dataset
        return dataset.split(*([only] if isinstance(only, str) else only))

    return opener


def _check_meant(found: Imported, given: Mapping[str, Any]) -> None:
    """Refuse options without a meaning for an origin; files that are opened have checked theirs."""
    if found.kind == "labeled" and found.name:
        return
    for name, value in given.items():
        if value is not None and found.kind not in MEANT_FOR.get(name, ("pictures",)):
            raise OptionError(f"{name}= means nothing for {found.where}, which is {found.kind}")


def _warn_of_left_out(dataset: Dataset) -> None:
    """Report variables without the example dim, and datasets that are not sources."""
    header = dataset.files.catalog.headers[0]
    along = {name for source in header.sources.values() for name in source.coords}
    lost = [name for name in header.variables if name not in along]
    lost += [n for n, why in header.not_opened.items() if not why.startswith(OF_RAGGED)]
    if lost and header.format == "hdf5" and len(dataset.sources) == len(header.sources):
        carried = "labeled.repack carries them over"
        named = "names and attributes of examples are kept where sources= names them, too"
        warn(
            f"{listed(sorted(lost), MAX_NAMED)} of {header.stamp.path!r} are no sources of "
            f"examples, and are left out; "
            f"{carried if dataset.files.options.examples is None else named}"
        )


def _exported(found: Imported, target: Path, written: WriteOptions) -> str:
    """Write records; other inputs become a labelled file first."""
    if isinstance(found.sources, Dataset):
        return write_pictures(found.sources, target, written)
    plain = replace(_with_names(written, found), statistics=False, checksums=False)
    with part_folder(check_target(target, overwrite=written.overwrite)) as between:
        try:
            path = os.path.join(between, "labelled.hdf5")
            labelled = write_with(path, found.sources, found.splits, plain)
        except WriteError as error:
            raise WriteError(
                f"cannot write {os.fspath(target)!r}: its rows go into a labelled file first "
                f"({error})"
            ) from error
        return _exported(replace(found, sources=open_dataset(labelled)), target, written)


def _splits(found: Imported, rules: SplitRules) -> dict[str, Any]:
    assert rules.split is not None
    counts = {name: _n_rows(found.sources[name]) for name in found.names}
    if len(set(counts.values())) > 1:
        raise SplitError(
            f"the sources of {found.where} differ in length: {counts}; choose some that agree "
            f"with sources=[...]"
        )
    return splits_by_rules(
        rules.split,
        next(iter(counts.values())),
        seed=rules.seed,
        in_order=rules.in_order,
        classes=_labels(found, "stratify", rules.stratify),
        groups=_labels(found, "group", rules.group),
    )


def _n_rows(value: Any) -> int:
    return int(value.shape[0]) if hasattr(value, "shape") else len(value)


def _labels(found: Imported, option: str, given: Any) -> npt.NDArray[Any] | None:
    """Return one value a row: those of a source, or given outright."""
    if given is None:
        return None
    value = _called(found, option, given) if isinstance(given, str) else given
    if isinstance(value, Ragged):
        raise SplitError(f"{option}={given!r} is ragged; it must have one value a row")
    n_rows = _n_rows(found.sources[found.names[0]])
    labels = np.asarray(value.values if isinstance(value, xr.DataArray) else value[:])
    if labels.shape not in ((n_rows,), (n_rows, 1)) or labels.dtype.kind not in LABELS:
        raise SplitError(
            f"{option}={given if isinstance(given, str) else 'array'!r} has shape {labels.shape} "
            f"and dtype {labels.dtype}; it must be {n_rows} integers or texts, one a row"
        )
    return labels.reshape(n_rows)


def _called(found: Imported, option: str, name: str) -> Any:
    """Return the source of a name, or else the column of a table."""
    if name in found.names:
        return found.sources[name]
    columns: list[str] = []
    for source in map(found.sources.__getitem__, found.names):
        if isinstance(source, xr.DataArray) and "columns" in source.attrs:
            here = list(source.attrs["columns"])
            if name in here:
                return _whole_numbers(source[:, here.index(name)].values)
            columns += here
    able = columns + [one for one in found.names if _is_one_label_a_row(found.sources[one])]
    what = "source of one label a row in" if able else "source of"
    hint = did_you_mean(name, dict.fromkeys(able or found.names))
    raise UnknownNameError(f"{option}={name!r} is not a {what} {found.where}; {hint}")


def _is_one_label_a_row(value: Any) -> bool:
    shape, dtype = getattr(value, "shape", ()), getattr(value, "dtype", None)
    return shape[1:] in ((), (1,)) and getattr(dtype, "kind", "") in LABELS


def _whole_numbers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values as integers if they are; columns side by side have one dtype."""
    if values.dtype.kind != "f" or not np.isfinite(values).all() or (values % 1).any():
        return values
    return values.astype(np.int64)


def _origin(found: Imported, rules: SplitRules) -> dict[str, Any]:
    """Return where the data comes from, as it is kept in the file."""
    record: dict[str, Any] = {"from": found.name, "kind": found.kind}
    if rules.split is None:
        return record
    record["split"] = {
        name: rule if isinstance(rule, str | int | float) else "rows given one by one"
        for name, rule in rules.split.items()
    }
    record["seed"] = rules.seed
    for option, given in (("stratify", rules.stratify), ("group", rules.group)):
        if given is not None:
            record[option] = given if isinstance(given, str) else "values given one by one"
    return record
