"""What can be converted, told by its type, its first bytes and its name.

Everything becomes an :class:`Origin`: sources as :func:`labeled.write` takes them, and what
else is known of them. Files that this library opens itself (HDF5, and whatever
``open_dataset`` knows) are opened by the function handed in, so that this module stands
below it.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import xarray as xr

from labeled.errors import (
    ArrayError,
    DimsError,
    FileFormatError,
    LabeledError,
    MissingExtraError,
    OptionError,
    UnknownNameError,
    UnsafeFileError,
    did_you_mean,
    warn,
)
from labeled.formats.bytesource import is_address, stamp_of, unreadable
from labeled.formats.foreign import NETCDF3_MAGIC, ZARR_MARKS
from labeled.formats.recordio.options import Decoding, RecordOptions
from labeled.formats.registry import all_formats
from labeled.ragged import Ragged
from labeled.writing.folders import DIMS, listed, more_pictures, picture_sources
from labeled.writing.inputs import RowsLike
from labeled.writing.shards import PARQUET, npy_sources, open_npz, parquet_sources, shards_of
from labeled.writing.tables import frame_sources, is_frame, open_parquet

TEXTS = (".txt", ".csv", ".tsv", ".tab")
"""What may lie beside pictures: notes, names of classes, licences."""


@dataclass(frozen=True, slots=True, eq=False)
class Origin:
    """Sources somewhere else, ready to be written.

    Parameters
    ----------
    kind : str
        What it was: "npz", "parquet", ...
    sources : mapping of name to anything that :func:`labeled.write` takes, or a Dataset
    name : str
        Of the file or folder; empty for what is in memory.
    """

    kind: str
    sources: Any
    name: str = ""
    dims: Mapping[str, Sequence[str]] = field(default_factory=dict)
    splits: Mapping[str, Any] | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    source_attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why what else is there is no source, by name."""

    @property
    def names(self) -> list[str]:
        """The sources, as they are called."""
        if isinstance(self.sources, RowsLike):
            return list(self.sources.sources)
        return [str(name) for name in self.sources]

    def chosen(self, names: Sequence[str] | None) -> Origin:
        """Return an origin with some of the sources only; tell what is left out of all of them.

        Raises
        ------
        UnknownNameError
            If one is not there.
        UnsafeFileError
            If one cannot be read without running what it says.
        """
        if names is None:
            for why in self.left_out.values():
                warn(f"{why}; until then it is left out")
            return self
        for name in names:
            if name in self.left_out:
                raise UnsafeFileError(self.left_out[name])
            if name not in self.names:
                raise UnknownNameError(
                    f"{self.where} has no source {name!r}; {did_you_mean(name, self.names)}"
                )
        kept: Any
        if isinstance(self.sources, RowsLike | xr.Dataset):
            kept = self.sources[list(names)]
        else:
            kept = {name: self.sources[name] for name in names}
        return replace(
            self,
            sources=kept,
            dims={name: dims for name, dims in self.dims.items() if name in names},
            source_attrs={n: attrs for n, attrs in self.source_attrs.items() if n in names},
            splits=None if self.splits is None else _splits_of(self.splits, names),
        )

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"{self.name!r}" if self.name else f"what to convert ({self.kind})"


def _splits_of(splits: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {
        split: {n: rows for n, rows in by.items() if n in names} if isinstance(by, Mapping) else by
        for split, by in splits.items()
    }


def origin_of(
    given: Any,
    opener: Callable[[Any], Any],
    *,
    example_dim: str | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Origin:
    """Sort out what is to be converted.

    Parameters
    ----------
    given : path or paths, xarray.Dataset, pandas.DataFrame, labeled.Dataset, mapping of arrays
    opener : callable
        Opens a path as a labeled.Dataset: for all that is nothing else.
    example_dim : str, optional
        The dim of a netCDF or zarr file that counts examples.
    columns : mapping of source to names, optional
        Columns of a table to put side by side.
    options : mapping, optional
        How pictures in a folder are decoded: the fields of
        :class:`~labeled.formats.recordio.options.Decoding`.

    Raises
    ------
    LabeledError
        If there is nothing to convert, or it is damaged.
    """
    if isinstance(given, str | os.PathLike):
        text = os.path.expanduser(os.fspath(given))
        if not text:
            raise FileFormatError(f"{text!r} is no path; name what is to be converted")
        if is_address(text):
            return Origin("labeled", opener(text), name=os.path.basename(text))
        path = os.path.abspath(text)
        try:
            origin = _of_path(path, opener, example_dim, columns, options or {})
        except OSError as error:
            if isinstance(error, LabeledError):
                raise
            raise unreadable(error.filename or path, error) from error
        return replace(origin, name=os.path.basename(path))
    if isinstance(given, list | tuple) and all(isinstance(p, str | os.PathLike) for p in given):
        return _of_paths([os.path.expanduser(os.fspath(path)) for path in given], opener, columns)
    if isinstance(given, xr.Dataset):
        return of_xarray(given, example_dim)
    if isinstance(given, RowsLike):
        return Origin("labeled", given)
    if is_frame(given):
        return Origin("table", frame_sources(given, columns))
    if isinstance(given, Mapping):
        return Origin("arrays", dict(given))
    raise ArrayError(
        f"cannot convert {type(given).__name__}; give a path, an xarray.Dataset, a "
        f"pandas.DataFrame, a labeled.Dataset or a mapping of arrays"
    )


def _of_path(
    path: str,
    opener: Callable[[Any], Any],
    example_dim: str | None,
    columns: Mapping[str, Sequence[str]] | None,
    options: Mapping[str, Any],
) -> Origin:
    if not os.path.exists(path) and not glob.has_magic(path):
        raise FileFormatError(f"there is no file or folder {path!r} to convert")
    suffix = os.path.splitext(path)[1].lower()
    if os.path.isdir(path) or not os.path.exists(path):
        if any(os.path.exists(os.path.join(path, mark)) for mark in ZARR_MARKS):
            return _of_store(path, "zarr", example_dim)
        if _is_of_pictures(path):
            return _of_pictures(path, options)
        if os.path.isdir(path):
            _check_anything(path)
        return _of_shards([path], columns) or Origin("labeled", opener(path))
    stamp_of(path)  # pipes are refused before anybody waits for what comes out of them
    if suffix == ".npy":
        return Origin("npy", npy_sources([path])[0])
    if suffix == ".npz":
        return _of_npz(path)
    if suffix in PARQUET:
        return Origin("parquet", open_parquet(path, columns))
    with open(path, "rb") as file:
        magic = file.read(len(NETCDF3_MAGIC))
    if magic == NETCDF3_MAGIC:
        return _of_store(path, "netcdf3", example_dim)
    return Origin("labeled", opener(path))


def _of_paths(
    paths: Sequence[str],
    opener: Callable[[Any], Any],
    columns: Mapping[str, Sequence[str]] | None,
) -> Origin:
    """Return several files as one origin."""
    shards = None if any(map(is_address, paths)) else _of_shards(paths, columns)
    first = os.path.basename(paths[0]) if paths else ""
    name = f"{first} and {len(paths) - 1} more" if len(paths) > 1 else first
    return replace(shards or Origin("labeled", opener(paths)), name=name)


def _of_shards(paths: Sequence[str], columns: Mapping[str, Sequence[str]] | None) -> Origin | None:
    """Return arrays or tables in several files, if there is nothing else."""
    kind, found = shards_of(*paths) or ("", [])
    if kind == "npy":
        sources, splits = npy_sources(found)
        return Origin("npy", sources, splits=splits)
    return Origin("parquet", parquet_sources(found, columns)) if kind else None


def _check_anything(folder: str) -> None:
    """Refuse a folder of nothing that can be converted."""
    known = [one for one in os.listdir(folder) if any(each.claims(one) for each in all_formats())]
    if not known and shards_of(folder) is None:
        raise FileFormatError(
            f"folder {folder!r} holds nothing to convert: no pictures, no files that open_dataset "
            f"knows, and not .npy or parquet files alone; name some of its files, as in "
            f"'{folder}/*.npy'"
        )


def _is_of_pictures(path: str) -> bool:
    """Whether a folder holds pictures, and nothing that is opened as it is but fewer texts."""
    if not os.path.isdir(path):
        return False
    known = [name for name in os.listdir(path) if any(one.claims(name) for one in all_formats())]
    if any(not name.lower().endswith(TEXTS) for name in known) or not more_pictures(
        path, len(known)
    ):
        return False
    if known:
        warn(f"{known} beside the pictures of {path!r} are left out")
    return True


def _of_pictures(path: str, options: Mapping[str, Any]) -> Origin:
    known = [one.name for one in fields(Decoding)]
    for name in options:
        if name not in known:
            raise OptionError(
                f"{name}= means nothing for pictures in a folder; {did_you_mean(name, known)}"
            )
    found = listed(path)
    decoding = RecordOptions(**{"channels": 3, **options}).decoding
    sources, attrs = picture_sources(found, decoding)
    dims = {} if isinstance(sources["images"], Ragged) else {"images": DIMS}
    return Origin("pictures", sources, dims=dims, splits=found.splits or None, source_attrs=attrs)


def _of_npz(path: str) -> Origin:
    arrays, left_out = open_npz(path)
    single = sorted(name for name, array in arrays.items() if not array.shape)
    if single:
        warn(f"members {single} of {path!r} are single values, no sources, and are left out")
    sources = {name: array for name, array in arrays.items() if array.shape}
    if not sources and left_out:
        raise UnsafeFileError("; ".join(left_out.values()))
    if not sources:
        raise ArrayError(f"{path!r} has no array with an axis of examples")
    return Origin("npz", sources, left_out=left_out)


# xarray


def _of_store(path: str, kind: str, example_dim: str | None) -> Origin:
    engine = {"zarr": "zarr", "netcdf3": "scipy"}[kind]
    options: dict[str, Any] = {"consolidated": _consolidated(path)} if kind == "zarr" else {}
    try:
        dataset = xr.open_dataset(path, engine=engine, chunks={}, decode_cf=False, **options)
    except (ImportError, ModuleNotFoundError) as error:
        raise MissingExtraError(f"{path!r} needs {engine}: pip install {engine}") from error
    except ValueError as error:
        if "engine" in str(error):
            raise MissingExtraError(f"{path!r} needs {engine}: pip install {engine}") from error
        raise FileFormatError(f"xarray cannot open {path!r}: {error}") from error
    except (OSError, KeyError) as error:
        raise FileFormatError(f"xarray cannot open {path!r}: {error}") from error
    dataset = dataset.set_coords(_coordinate_names(dataset))
    return replace(of_xarray(dataset, example_dim), kind=kind)


def _consolidated(path: str) -> bool:
    """Whether a store keeps all its metadata in one place; asking zarr to find out warns."""
    if os.path.exists(os.path.join(path, ".zmetadata")):
        return True
    try:
        with open(os.path.join(path, "zarr.json"), encoding="utf-8") as file:
            return bool(json.load(file).get("consolidated_metadata"))
    except (OSError, ValueError):
        return False


def _coordinate_names(dataset: xr.Dataset) -> list[str]:
    """Return what CF calls a coordinate; xarray finds it only where it decodes."""
    told = [*dataset.attrs.get("coordinates", "").split()]
    for variable in dataset.variables.values():
        told += str(variable.attrs.get("coordinates", "")).split()
    return [name for name in told if name in dataset.variables]


def of_xarray(dataset: xr.Dataset, example_dim: str | None = None) -> Origin:
    """Put the example dim first, and leave out variables that do not have it.

    Parameters
    ----------
    example_dim : str, optional
        By default the only unlimited dim, else ``batch``, else the first of the first variable.

    Raises
    ------
    DimsError
        If no variable has the dim.
    """
    dim = _example_dim(dataset, example_dim)
    having = [name for name, array in dataset.data_vars.items() if dim in array.dims]
    without = sorted(str(name) for name in dataset.data_vars if name not in having)
    if without:
        warn(f"variables {without} do not have the dim {dim!r} of examples and are left out")
    kept = dataset[having].transpose(dim, ...)
    for name in having:
        kept[name].attrs.pop("coordinates", None)
    kept.attrs.pop("coordinates", None)
    return Origin("xarray", kept)


def _example_dim(dataset: xr.Dataset, asked: str | None) -> str:
    dims = [str(dim) for array in dataset.data_vars.values() for dim in array.dims]
    if asked is not None:
        if asked not in dims:
            raise DimsError(f"no variable has a dim {asked!r}; {did_you_mean(asked, set(dims))}")
        return asked
    if not dims:
        raise ArrayError("there is no variable with an axis to convert")
    unlimited = [str(dim) for dim in dataset.encoding.get("unlimited_dims", ()) if dim in dims]
    if len(unlimited) == 1:
        return unlimited[0]
    return "batch" if "batch" in dims else dims[0]
