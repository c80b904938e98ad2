"""``labeled.convert``: from other files to a labelled one with splits, and back.

Sorting out what is given, drawing splits and writing are done below, in
:mod:`labeled.writing`; this is the door where they meet ``open_dataset``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
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
from labeled.writing.importers import Imported, import_sources
from labeled.writing.layouts import Chunks, PerSource
from labeled.writing.pictures import export, pass_on
from labeled.writing.ragged import RaggedAs
from labeled.writing.source import with_fields
from labeled.writing.splits import splits_by_rules
from labeled.writing.write import RECORDS, check_ending, checked_effort, write

Path = str | os.PathLike[str]

MOST_LOST = 12
"""Datasets that a warning names."""

OF_RAGGED = "it holds the "
"""Why datasets that ragged sources are made of are no sources themselves."""

HEEDED_BY = {
    "columns": ("table", "parquet"),
    "example_dim": ("xarray", "zarr", "netcdf3"),
}
"""What origins an option means something for, besides files that are opened."""

BLOCKS = 32
"""Blocks of lazy arrays that fit into the memory given: several are on their way at a time."""


@check_arguments()
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
    dims: Mapping[str, Sequence[str | None]] | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    example_dim: str | None = None,
    attrs: Mapping[str, Any] | None = None,
    layout: PerSource[str] = "auto",
    compression: PerSource[str | None] = None,
    level: PerSource[int | None] = None,
    chunks: PerSource[Chunks] = None,
    ragged: RaggedAs = "flat",
    overwrite: bool = False,
    provenance: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    memory: float | str | None = None,
    threads: int | None = None,
    **options: Any,
) -> str:
    """Make a labelled file of something else, or records of a labelled file of pictures.

    Rows pass through memory in blocks, whatever the size of the file. The target appears
    under its name only once it is complete, so a conversion that was cut short is simply
    begun again.

    Parameters
    ----------
    origin : path or paths, xarray.Dataset, pandas.DataFrame, labeled.Dataset, mapping of arrays
        Paths: ``.npy`` and ``.npz`` (mapped where they are not compressed), ``.parquet``,
        zarr stores, netCDF, a folder of pictures by class, and all that
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
    dims : mapping of source to names, optional
        Names of all axes, in place of those found.
    columns : mapping of source to column names, optional
        Columns of a table that become one source, side by side.
    example_dim : str, optional
        The dim of an xarray dataset, netCDF file or zarr store that counts examples.
    attrs, layout, compression, level, chunks, ragged, overwrite, progress, memory, threads
        As for :func:`labeled.write`.
    **options
        How `origin` is opened: options of its format, as for :func:`labeled.open_dataset`. For
        a folder of pictures those of record files: `channels` (3), `resize`, `shape`,
        `upright`, `max_pixels`.
    provenance : mapping, optional
        Kept beside what is told anyway: the name and kind of `origin`, and how splits were
        drawn.

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
    if "splits" in options:
        raise OptionError("convert() has no option 'splits'; did you mean 'split'?")
    check_keywords("convert", options, keywords_of(convert), GENERAL, option_names())
    target = os.fsdecode(target)
    check_target(target, overwrite=overwrite)
    is_records = os.path.splitext(target)[1].lower() == RECORDS
    if not is_records:
        check_ending(target)
    own = options if is_records else {"decode_cf": False, **options}
    own = own if sources is None else {**own, "sources": tuple(sources)}
    own = own if columns is None else {**own, "columns": columns}
    opener = partial(_opened, only=only, example_dim=example_dim, dims=dims, own=own)
    found = import_sources(
        origin, opener, names=sources, example_dim=example_dim, columns=columns, options=options
    )
    _check_heeded(found, options, columns, example_dim)
    if isinstance(found.sources, Mapping) and not isinstance(found.sources, xr.Dataset):
        found = replace(found, sources=with_fields(found.sources))
    if only is not None and found.kind != "labeled":
        raise SplitError(f"only={only!r} takes rows of a split, and {found.where} has no splits")
    found = found if sources is None else found.chosen(sources)
    if not found.names:
        raise ArrayError(f"{found.where} holds no source to convert")
    if isinstance(found.sources, Dataset) and sources is None:
        _warn_of_left_out(found.sources)
    if is_records and split is not None:
        raise SplitError(".rec files get no splits; convert to a labelled file first")
    if is_records and found.kind == "pictures" and not options:
        return pass_on(found.sources, target, overwrite=overwrite, progress=progress)
    if is_records:
        return _exported(found, target, dims, overwrite, progress, memory)
    table = found.splits
    if split is not None:
        table = _splits(found, split, stratify, group, seed, in_order)
    elif stratify is not None or group is not None or in_order:
        raise SplitError("stratify, group and in_order need splits: give split={'train': 0.8}")
    kept_dims = {name: names for name, names in found.dims.items() if name in found.names}
    budget, threads = checked_effort(memory, threads)
    with dask.config.set({"array.chunk-size": f"{budget // BLOCKS}B"}):
        return write(
            target,
            found.sources,
            table,
            dims={**kept_dims, **({} if found.kind == "labeled" else dims or {})},
            attrs=attrs,
            source_attrs=found.source_attrs,
            layout=layout,
            compression=compression,
            level=level,
            chunks=chunks,
            ragged=ragged,
            overwrite=overwrite,
            provenance={**_told(found, split, stratify, group, seed), **(provenance or {})},
            progress=progress,
            memory=memory,
            threads=threads,
        )


def _opened(
    path: str, *, only: Any, example_dim: str | None, dims: Any, own: Mapping[str, Any]
) -> Dataset:
    """Open a file, with its values as they are stored where a labelled file is to have them."""
    said = own.get("format")
    found = format_of(find_files(path)[0]) if said is None else format_named(said)
    if "decode_cf" not in found.accepts:
        own = {name: value for name, value in own.items() if name != "decode_cf"}
    dataset = open_dataset(path, dims=dims, example_dim=example_dim, **own)
    if only is None:
        return dataset
    return dataset.split(*([only] if isinstance(only, str) else only))


def _check_heeded(
    found: Imported, options: Mapping[str, Any], columns: Any, example_dim: str | None
) -> None:
    """Refuse what has no meaning for an origin; files that are opened have been asked already."""
    if found.kind == "labeled" and found.name:
        return
    given = {**options, "columns": columns, "example_dim": example_dim}
    for name, value in given.items():
        if value is not None and found.kind not in HEEDED_BY.get(name, ("pictures",)):
            raise OptionError(f"{name}= means nothing for {found.where}, which is {found.kind}")


def _warn_of_left_out(dataset: Dataset) -> None:
    """Tell of variables without the example dim, and of datasets that are no sources."""
    header = dataset.files.catalog.headers[0]
    along = {name for source in header.sources.values() for name in source.coords}
    lost = [name for name in header.variables if name not in along]
    lost += [n for n, why in header.not_opened.items() if not why.startswith(OF_RAGGED)]
    if lost and header.format == "hdf5" and len(dataset.sources) == len(header.sources):
        carried = "labeled.repack carries them over"
        named = "names and attributes of examples are kept where sources= names them, too"
        warn(
            f"{listed(sorted(lost), MOST_LOST)} of {header.stamp.path!r} are no sources of "
            f"examples, and are left out; "
            f"{carried if dataset.files.options.examples is None else named}"
        )


def _exported(
    found: Imported,
    target: Path,
    dims: Mapping[str, Sequence[str | None]] | None,
    overwrite: bool,
    progress: bool | None,
    memory: float | str | None,
) -> str:
    """Write records; what is no labelled file becomes one on the way."""
    if not isinstance(found.sources, Dataset):
        with part_folder(check_target(target, overwrite=overwrite)) as between, _made_for(target):
            labelled = write(
                os.path.join(between, "labelled.hdf5"),
                found.sources,
                found.splits,
                dims={**found.dims, **(dims or {})},
                source_attrs=found.source_attrs,
                statistics=False,
                checksums=False,
                progress=progress,
                memory=memory,
            )
            whole = replace(found, sources=open_dataset(labelled))
            return _exported(whole, target, None, overwrite, progress, memory)
    return export(found.sources, target, overwrite=overwrite, memory=memory, progress=progress)


@contextmanager
def _made_for(target: Path) -> Iterator[None]:
    """Name the target in errors about a file that is written on the way to it."""
    try:
        yield
    except WriteError as error:
        raise WriteError(
            f"cannot write {os.fspath(target)!r}, of whose rows a labelled file is made first: "
            f"{error}"
        ) from error


def _splits(
    found: Imported, rules: Mapping[str, Any], stratify: Any, group: Any, seed: int, in_order: bool
) -> dict[str, Any]:
    counts = {name: _n_rows(found.sources[name]) for name in found.names}
    if len(set(counts.values())) > 1:
        raise SplitError(
            f"the sources of {found.where} differ in length: {counts}; choose some that agree "
            f"with sources=[...]"
        )
    return splits_by_rules(
        rules,
        next(iter(counts.values())),
        seed=seed,
        in_order=in_order,
        classes=_labels(found, "stratify", stratify),
        groups=_labels(found, "group", group),
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
    if labels.shape not in ((n_rows,), (n_rows, 1)) or labels.dtype.kind not in "iubUSO":
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
    hint = did_you_mean(name, dict.fromkeys([*found.names, *columns]))
    raise UnknownNameError(f"{option}={name!r} is not a source of {found.where}; {hint}")


def _whole_numbers(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return values as integers if they are; columns side by side have one dtype."""
    if values.dtype.kind != "f" or not np.isfinite(values).all() or (values % 1).any():
        return values
    return values.astype(np.int64)


def _told(
    found: Imported, split: Mapping[str, Any] | None, stratify: Any, group: Any, seed: int
) -> dict[str, Any]:
    """Return where the data comes from, as it is kept in the file."""
    told: dict[str, Any] = {"from": found.name, "kind": found.kind}
    if split is not None:
        told["split"] = {
            name: rule if isinstance(rule, str | int | float) else "rows given one by one"
            for name, rule in split.items()
        }
        told["seed"] = seed
        for option, given in (("stratify", stratify), ("group", group)):
            if given is not None:
                told[option] = given if isinstance(given, str) else "values given one by one"
    return told
