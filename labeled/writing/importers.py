"""What :func:`labeled.convert` takes besides files that open: arrays, tables, pictures, xarray.

What is given is recognised by its type, its first bytes and its name. Everything becomes an
:class:`Imported`: sources as :func:`labeled.write` takes them, and what else is known of them.
Files that ``open_dataset`` opens are opened by the function handed in, so that this module
stands below it.

``.npy`` files are mapped, those in a ``.npz`` once they are unpacked into a temporary folder;
pickled objects are refused, since reading them could run anything. What is called alike but for a
number (``x_0.npy``, ``x_1.npy``, ...) is one source, joined along the rows in the order of the
numbers. Arrays whose names or folders name splits (``train_x.npy`` and ``test_x.npy``,
``train/x.npy`` and ``test/x.npy``) become these. Files of tables have the same columns and are
joined column by column.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import dask.array as da
import numpy as np
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
    WriteError,
    did_you_mean,
    warn,
)
from labeled.formats.bytesource import is_address, stamp_of, unreadable
from labeled.formats.recordio.format import Decoding
from labeled.formats.region import Array
from labeled.formats.registry import NETCDF3_MAGIC, all_formats, format_of_folder
from labeled.ragged import Ragged
from labeled.writing.inputs import RowsLike
from labeled.writing.pictures import DIMS, SPLITS, list_pictures, more_pictures, picture_sources
from labeled.writing.source import in_blocks
from labeled.writing.tables import frame_sources, grouped, is_frame, open_parquet

TEXTS = (".txt", ".csv", ".tsv", ".tab")
"""Files that may stand beside pictures: notes, class names, licences."""

KINDS = {"npy": (".npy",), "parquet": (".parquet", ".pq")}
"""Files several of which are joined, and how their names end."""

_NUMBER = re.compile(r"(\d+)")
_COUNTED = re.compile(r"[-_.]?\d+([-_]of[-_]\d+)?$")


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """Sources of another kind of file or object, ready to be written.

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
    source_attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The sources, as they are called."""
        return [str(name) for name in getattr(self.sources, "sources", self.sources)]

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"{self.name!r}" if self.name else f"what to convert ({self.kind})"

    def chosen(self, names: Sequence[str]) -> Imported:
        """Return some of the sources only.

        Raises
        ------
        UnknownNameError
            If one is not there.
        """
        for name in names:
            if name not in self.names:
                raise UnknownNameError(
                    f"{self.where} has no source {name!r}; {did_you_mean(name, self.names)}"
                )
        kept: Any = {name: self.sources[name] for name in names}
        if isinstance(self.sources, RowsLike | xr.Dataset):
            kept = self.sources[list(names)]
        splits = {
            split: {n: by[n] for n in by if n in names} if isinstance(by, Mapping) else by
            for split, by in (self.splits or {}).items()
        }
        return replace(
            self,
            sources=kept,
            dims={name: dims for name, dims in self.dims.items() if name in names},
            source_attrs={n: attrs for n, attrs in self.source_attrs.items() if n in names},
            splits=splits or None,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Importer:
    """How what is to be converted is opened.

    Parameters
    ----------
    opener : callable
        Opens a path, or several, that are nothing else, as a labeled.Dataset.
    folder : callable
        Returns a folder for temporary files.
    names : sequence of str, optional
        The sources that are wanted.
    example_dim : str, optional
        The dim of a netCDF or zarr file that counts examples.
    columns : mapping of source to names, optional
        Columns of a table to put side by side.
    options : mapping
        How pictures in a folder are decoded: the fields of
        :class:`~labeled.formats.recordio.format.Decoding`.
    """

    opener: Callable[[Any], Any]
    folder: Callable[[], str]
    names: Sequence[str] | None
    example_dim: str | None
    columns: Mapping[str, Sequence[str]] | None
    options: Mapping[str, Any]

    def sources_of(self, given: Any) -> Imported:
        """Return the sources of paths, an xarray.Dataset, a DataFrame, a Dataset or arrays.

        Raises
        ------
        LabeledError
            If there is nothing to convert, or it is damaged.
        """
        if isinstance(given, str | os.PathLike):
            given = [given]
        if isinstance(given, list | tuple) and all(isinstance(p, str | os.PathLike) for p in given):
            return self._of_paths([os.path.expanduser(os.fspath(path)) for path in given])
        if isinstance(given, xr.Dataset):
            return _of_xarray(given, self.example_dim)
        if isinstance(given, RowsLike):
            return Imported("labeled", given)
        if is_frame(given):
            return Imported("table", frame_sources(given, self.columns))
        if isinstance(given, Mapping):
            return Imported("arrays", dict(given))
        raise ArrayError(
            f"cannot convert {type(given).__name__}; give a path, an xarray.Dataset, a "
            f"pandas.DataFrame, a labeled.Dataset or a mapping of arrays"
        )

    def _of_paths(self, paths: list[str]) -> Imported:
        if "" in paths:
            raise FileFormatError("'' is not a path; pass what to convert")
        found: Imported | None = None
        if not any(map(is_address, paths)):
            paths = [os.path.abspath(path) for path in paths]
            try:
                if len(paths) == 1:
                    found = self._of_one_path(paths[0])
                found = found or self._of_files(paths)
            except OSError as error:
                if isinstance(error, LabeledError):
                    raise
                raise unreadable(error.filename or paths[0], error) from error
        found = found or Imported("labeled", self.opener(paths[0] if len(paths) == 1 else paths))
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return replace(found, name=os.path.basename(paths[0]) + more if paths else "")

    def _of_one_path(self, path: str) -> Imported | None:
        """Return what is one file or folder and no more; None where it may be several files."""
        if not os.path.exists(path):
            if glob.has_magic(path):
                return None
            raise FileFormatError(f"file or folder {path!r} does not exist; check the path")
        if os.path.isdir(path):
            return self._of_folder(path)
        stamp_of(path)  # refuses pipes, which would block
        if path.lower().endswith(".npz"):
            return self._of_npz(path)
        with open(path, "rb") as file:
            if file.read(len(NETCDF3_MAGIC)) == NETCDF3_MAGIC:
                return self._of_store(path, "netcdf3", "scipy")
        return None

    def _of_folder(self, path: str) -> Imported | None:
        if format_of_folder(path) is not None:
            return self._of_store(path, "zarr", "zarr")
        known = [
            name for name in os.listdir(path) if any(one.claims(name) for one in all_formats())
        ]
        notes = all(name.lower().endswith(TEXTS) for name in known)
        if notes and more_pictures(path, len(known)):
            if known:
                warn(f"{known} beside the pictures of {path!r} are left out")
            return self._of_pictures(path)
        if not known and _files_alike([path]) is None:
            raise FileFormatError(
                f"folder {path!r} holds nothing to convert: no pictures, no files that "
                f"open_dataset knows, and not .npy or parquet files alone; name some of its files, "
                f"as in '{path}/*.npy'"
            )
        return None

    def _of_pictures(self, path: str) -> Imported:
        known = [one.name for one in fields(Decoding)]
        for name in self.options:
            if name not in known:
                raise OptionError(
                    f"{name}= means nothing for pictures in a folder; {did_you_mean(name, known)}"
                )
        found = list_pictures(path)
        decoding = Decoding(**{"channels": 3, **self.options})
        sources, attrs = picture_sources(found, decoding)
        dims = {} if isinstance(sources["images"], Ragged) else {"images": DIMS}
        splits = found.splits or None
        return Imported("pictures", sources, dims=dims, splits=splits, source_attrs=attrs)

    def _of_store(self, path: str, kind: str, engine: str) -> Imported:
        """Return what xarray opens."""
        try:
            with warnings.catch_warnings():  # of zarr, about stores whose metadata are apart
                warnings.simplefilter("ignore")
                dataset = xr.open_dataset(path, engine=engine, chunks={}, decode_cf=False)
        except (ImportError, OSError, KeyError, ValueError) as error:
            if isinstance(error, ImportError) or "engine" in str(error):
                raise MissingExtraError(f"{path!r} needs {engine}: pip install {engine}") from error
            raise FileFormatError(f"xarray cannot open {path!r}: {error}") from error
        listed = [str(dataset.attrs.get("coordinates", ""))]  # read only where xarray decodes
        listed += [str(each.attrs.get("coordinates", "")) for each in dataset.variables.values()]
        named = [name for name in " ".join(listed).split() if name in dataset.variables]
        return replace(_of_xarray(dataset.set_coords(named), self.example_dim), kind=kind)

    def _of_files(self, paths: Sequence[str]) -> Imported | None:
        """Return arrays or tables in several files, if there is nothing else."""
        kind, found = _files_alike(paths) or ("", [])
        if kind == "npy":
            return _of_npy(found)
        if kind == "parquet":
            return Imported("parquet", self._of_tables(found))
        return None

    def _of_tables(self, paths: Sequence[str]) -> dict[str, Any]:
        tables = {path: open_parquet(path) for path in paths}
        first = tables[paths[0]]
        for path, table in tables.items():
            if list(table) != list(first):
                raise ArrayError(
                    f"{path!r} has the columns {list(table)}, and {paths[0]!r} {list(first)}; "
                    f"convert them one by one"
                )
        columns = {
            name: _joined(name, {path: table[name] for path, table in tables.items()})
            for name in first
        }
        return grouped(columns, self.columns)

    def _of_npz(self, path: str) -> Imported:
        """Return the arrays of an archive, unpacked and mapped."""
        folder, arrays, single = self.folder(), {}, []
        try:
            with zipfile.ZipFile(path) as archive:
                members = [one for one in archive.infolist() if one.filename.endswith(".npy")]
                if len({one.filename for one in members}) < len(members):
                    raise FileFormatError(f"{path!r} has members of the same name; rename them")
                n_bytes = sum(one.file_size for one in members)
                if n_bytes > shutil.disk_usage(folder).free:
                    raise WriteError(
                        f"{path!r} takes {n_bytes:,} bytes unpacked, which are not free beside the "
                        f"target; write elsewhere"
                    )
                for one in members:
                    where = f"{path}, member {one.filename}"
                    try:
                        array = _open_npy(archive.extract(one, folder), where)
                    except UnsafeFileError:
                        if self.names is None or one.filename[:-4] in self.names:
                            raise
                        continue
                    if array.shape:
                        arrays[one.filename[:-4]] = array
                    else:
                        single.append(one.filename[:-4])
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise FileFormatError(f"{path!r} is not a sound .npz archive: {error}") from error
        if single:
            warn(f"members {single} of {path!r} are single values, no sources, and are left out")
        return Imported("npz", arrays)


def _of_xarray(dataset: xr.Dataset, example_dim: str | None = None) -> Imported:
    """Put the example dim first, and leave out variables that do not have it.

    By default that is the only unlimited dim, else ``batch``, else the first of the first variable.

    Raises
    ------
    DimsError
        If no variable has the dim.
    """
    dims = [str(dim) for array in dataset.data_vars.values() for dim in array.dims]
    if example_dim is not None and example_dim not in dims:
        hint = did_you_mean(example_dim, set(dims))
        raise DimsError(f"no variable has a dim {example_dim!r}; {hint}")
    if not dims:
        raise ArrayError("there is no variable with an axis to convert")
    if example_dim is None:
        unlimited = [dim for dim in dataset.encoding.get("unlimited_dims", ()) if dim in dims]
        usual = "batch" if "batch" in dims else dims[0]
        example_dim = str(unlimited[0]) if len(unlimited) == 1 else usual
    having = [name for name, array in dataset.data_vars.items() if example_dim in array.dims]
    without = sorted(str(name) for name in dataset.data_vars if name not in having)
    if without:
        warn(
            f"variables {without} do not have the dim {example_dim!r} of examples and are left out"
        )
    kept = dataset[having].transpose(example_dim, ...)
    for each in (kept, *(kept[name] for name in having)):
        each.attrs.pop("coordinates", None)
    return Imported("xarray", kept)


# several files of one kind


def _files_alike(paths: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the kind and the files of paths that hold nothing else of either kind.

    Of a folder come its files, or else those in folders below it that are named after splits.
    Files whose names begin with a dot or an underscore are left aside, as programs that write
    such folders put notes there.
    """
    found = [one for path in paths for one in _files(path) if os.path.basename(one)[0] not in "._"]
    for kind, endings in KINDS.items():
        if found and all(one.lower().endswith(endings) for one in found):
            return kind, sorted(found, key=_in_order)
    return None


def _files(path: str) -> list[str]:
    if os.path.isdir(path):
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        splits = [e.path for e in entries if e.is_dir() and e.name.lower() in SPLITS]
        return [e.path for e in entries if e.is_file()] or [
            one for below in splits for one in _files(below)
        ]
    return [path] if os.path.exists(path) else glob.glob(path, recursive=True)


def _in_order(path: str) -> list[tuple[int, int, str]]:
    """Return what sorts numbers within names as numbers."""
    parts = _NUMBER.split(path)
    return [(0, int(one), "") if i % 2 else (1, 0, one) for i, one in enumerate(parts)]


def _of_npy(paths: Sequence[str]) -> Imported:
    """Return the arrays of several ``.npy`` files, and the rows of the splits they name."""
    named = {path: _split_and_stem(path) for path in paths}
    splits = [split for split in SPLITS.values() if any(split == one for one, _ in named.values())]
    if len(set(splits)) < 2 or not all(split for split, _ in named.values()):
        named = {path: ("", _stem(path)) for path in paths}
        splits = [""]
    groups: dict[str, list[str]] = {}
    for path, (_, stem) in sorted(named.items(), key=lambda item: splits.index(item[1][0])):
        groups.setdefault(_COUNTED.sub("", stem) or "data", []).append(path)
    out: dict[str, Any] = {}
    table: dict[str, dict[str, tuple[int, int]]] = {split: {} for split in splits}
    for name, members in groups.items():
        arrays = {path: _open_npy(path, path) for path in members}
        name = name if len(members) > 1 else named[members[0]][1] or "data"
        stop = 0
        for path, array in arrays.items():
            if not array.shape:
                raise ArrayError(f"{path} holds a single value; a source needs an axis of examples")
            start, _ = table[named[path][0]].get(name, (stop, stop))
            stop += len(array)
            table[named[path][0]][name] = (start, stop)
        out[name] = _joined(name, arrays)
    return Imported("npy", out, splits=None if splits == [""] else table)


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _split_and_stem(path: str) -> tuple[str, str]:
    """Return the split that a name, or else its folder, tells, and the rest of the name.

    Examples
    --------
    >>> _split_and_stem("train_x.npy"), _split_and_stem("x-test.npy"), _split_and_stem("val/x.npy")
    (('train', 'x'), ('test', 'x'), ('valid', 'x'))
    """
    stem = _stem(path)
    for word in sorted(SPLITS, key=len, reverse=True):
        for pattern in (rf"{word}(?:[-_.](.*))?", rf"(.*)[-_.]{word}"):
            found = re.fullmatch(pattern, stem, re.IGNORECASE)
            if found is not None:
                return SPLITS[word], found[1] or ""
    return SPLITS.get(os.path.basename(os.path.dirname(path)).lower(), ""), stem


def _open_npy(path: str, where: str) -> Array:
    """Map the one array of a file."""
    try:
        mapped: Array = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        if "Python objects" in str(error):
            raise UnsafeFileError(
                f"{where} holds Python objects, which only unpickling could read; save it again as "
                f"numbers, or texts of one width (dtype 'U20'), or leave it out with sources=[...]"
            ) from None
        raise FileFormatError(f"{where} is cut short, or not a sound .npy file: {error}") from error
    return mapped


def _joined(name: str, parts: Mapping[str, Any]) -> Any:
    """Join arrays, or lists of arrays, along their rows; one alone stays what it is."""
    (first, one), *others = parts.items()
    if not others:
        return one
    for path, other in others:
        if isinstance(one, list) and isinstance(other, list):
            continue
        kinds = {one.dtype.kind, other.dtype.kind}  # texts of two widths, numbers with some missing
        alike = kinds in ({"U"}, {"S"}, {"i", "f"}, {"u", "f"}, {"f"}) or one.dtype == other.dtype
        if not alike or other.shape[1:] != one.shape[1:]:
            raise ArrayError(
                f"source {name!r}: {path!r} has rows of {other.dtype} {other.shape[1:]}, and "
                f"{first!r} of {one.dtype} {one.shape[1:]}; give files other names where they do "
                f"not belong together, or convert them one by one"
            )
    if isinstance(one, list):
        return [example for part in parts.values() for example in part]
    return da.concatenate([in_blocks(part) for part in parts.values()])
