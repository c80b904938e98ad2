"""``labeled.convert``: what opens, or is in memory, becomes a labelled file or a file of records.

Every file that ``open_dataset`` opens is read by its reader. Besides these there are folders of
pictures (:mod:`labeled.writing.pictures`), tables (:mod:`labeled.writing.tables`), and NumPy's own
files, recognised by their names. ``.npy`` files are mapped, those in a ``.npz`` once they are
unpacked into a temporary folder; pickled objects are refused, since reading them could run
anything.

What is called alike but for a number (``x_0.npy``, ``x_1.npy``, ...) is one source, joined along
the rows: in the order of a list, and of a folder or a glob in that of the numbers. Arrays whose
names or folders name splits (``train_x.npy`` and ``test_x.npy``, ``train/x.npy`` and
``test/x.npy``) become these. Files of tables have the same columns and are joined column by column.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import partial
from tokenize import TokenError
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
import xarray as xr

from labeled._validation import check_arguments, check_classes, check_keywords, keywords_of
from labeled.dataset.dataset import Dataset
from labeled.dataset.files import find_files
from labeled.dataset.opening import open_dataset
from labeled.dataset.selecting import one_value_a_row
from labeled.errors import (
    ArrayError,
    DimsError,
    FileFormatError,
    LabeledError,
    LabeledWarning,
    OptionError,
    SplitError,
    UnknownNameError,
    UnsafeFileError,
    check_known,
    did_you_mean,
    listed,
    warn,
)
from labeled.formats import registry
from labeled.formats.bytesource import is_address, stamp_of, unreadable
from labeled.formats.format import SPLITS, natural
from labeled.formats.region import Array
from labeled.formats.replacing import check_target, explained, part_folder
from labeled.writing import pictures, tables
from labeled.writing.inputs import warn_of_left_out
from labeled.writing.layouts import Storage
from labeled.writing.source import BLOCK_BYTES
from labeled.writing.splits import splits_by_rules
from labeled.writing.write import DEFAULTS, RECORDS, Path, WriteOptions, check_ending, write

BLOCKS = 32  # of lazy arrays that fit into the memory given: several are on their way at a time
TEXTS = (".txt", ".csv", ".tsv", ".tab")  # notes, class names, licences beside pictures

_COUNTED = re.compile(r"[-_.]?\d+([-_]of[-_]\d+)?$")


@check_arguments(options=DEFAULTS)
def convert(
    origin: Any,
    target: Path,
    *,
    split: Mapping[str, Any] | None = None,
    stratify: Any = None,
    groups: Any = None,
    seed: int = 0,
    in_order: bool = False,
    only: str | Sequence[str] | None = None,
    sources: Sequence[str] | None = None,
    columns: str | Mapping[str, Sequence[str]] | None = None,
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
        Paths: all that :func:`labeled.open_dataset` opens (HDF5, netCDF-4, zarr, CSV, IDX, record
        files), a folder of pictures by class, ``.parquet``, ``.npy`` and ``.npz`` (pictures are
        copied, and archives unpacked, beside the target meanwhile). A list keeps its order; files
        of a folder or a glob follow the numbers in their names. Several ``.npy`` files that are
        named after splits, or lie in folders that are, become these: ``train_x.npy`` and
        ``test_x.npy``, ``train/x.npy`` and ``test/x.npy``; so do folders of pictures,
        ``train/cat/1.jpg``. ``val`` and ``validation`` become the split ``valid``, ``training``
        ``train``, ``testing`` ``test``. Parquet files get no splits so: give `split`.
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
    groups : str or array, optional
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
        Columns of a table that become one source, side by side. Of delimited text also
        ``"separate"`` or ``"matrix"``, as for :func:`labeled.open_dataset`.
    example_dim : str, optional
        The dim of an xarray dataset, netCDF-4 file or zarr store that counts examples.
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
    how = {one.name for one in fields(WriteOptions)}
    written = replace(DEFAULTS, **{name: v for name, v in options.items() if name in how})
    opened = {name: v for name, v in options.items() if name not in how}
    if isinstance(columns, str):  # a word is an option of delimited text
        opened, columns = {**opened, "columns": columns}, None
    check_keywords(
        "convert", opened, keywords_of(convert), keywords_of(open_dataset), registry.option_names()
    )
    where = check_target(target, overwrite=written.overwrite)
    records = os.path.splitext(target)[1].lower() == RECORDS
    if not records:
        check_ending(target)
    elif split is not None:
        raise SplitError(".rec files get no splits; convert to a labelled file first")
    given = {"stratify": stratify, "groups": groups}
    labels = {name: value for name, value in given.items() if value is not None}
    if split is None and (in_order or labels):
        raise SplitError("stratify=, groups= and in_order= need split={'train': 0.8} or the like")
    budget, _ = written.effort()
    names = None if sources is None else list(sources)
    with ExitStack() as folders, dask.config.set({"array.chunk-size": f"{budget // BLOCKS}B"}):
        decoded = records or written.ragged == "fuel"  # neither keeps how values are to be decoded
        rest = example_dim, where, records, decoded, folders
        asked = _ConvertOptions(opened, written.dims, names, columns, *rest)
        found = _chosen(_origin(origin, asked), asked, only)
        if records:
            return _records(found, asked, written)
        provenance: dict[str, Any] = {"from": found.name, "kind": found.kind}
        splits = found.splits
        if split is not None:
            splits = _drawn(found, split, seed, in_order, labels)
            rules = {name: _said(rule, "rows") for name, rule in split.items()}
            by = {name: _said(one, "values") for name, one in labels.items()}
            provenance |= {"split": rules, "seed": seed, **by}
        provenance |= written.provenance or {}
        if isinstance(found.sources, Dataset):  # its sources were opened with the names of dims=
            written = replace(written, dims=None)
        options = vars(replace(written, provenance=provenance))
        return write(target, found.sources, splits, **options)


@dataclass(frozen=True, eq=False)
class _ConvertOptions:
    """What of an origin is asked for, and how files are opened.

    Parameters
    ----------
    names : list of str, optional
        The sources that are wanted.
    target : str
        Beside which files are unpacked; `folders` removes them.
    records : bool
        Whether the target is a file of records.
    decoded : bool
        Whether values are wanted, in place of what is stored of them.
    """

    opened: Mapping[str, Any]
    dims: Mapping[str, Any] | None
    names: list[str] | None
    columns: Mapping[str, Sequence[str]] | None
    example_dim: str | None
    target: str
    records: bool
    decoded: bool
    folders: ExitStack

    def dataset(self, path: Any) -> Dataset:
        """Open files, with values as they are stored, unless files store them differently."""
        own = {"sources": self.names, "columns": self.columns, **self.opened}
        own = {name: value for name, value in own.items() if value is not None}
        paths = find_files(path, own.get("format"))
        opened = partial(open_dataset, paths, dims=self.dims, example_dim=self.example_dim, **own)
        found = registry.common_format(paths, own.get("format"))
        if self.decoded or "decode_cf" in own or "decode_cf" not in found.accepts:
            return opened()
        if len(paths) == 1 and "group" not in own:
            return opened(decode_cf=False)
        decoded = opened()
        catalog = decoded.files.catalog
        joined = (*catalog.sources.values(), *catalog.variables.values())
        if any(source.packed_differently for source in joined):
            return decoded
        with warnings.catch_warnings():  # of the same files
            warnings.simplefilter("ignore", LabeledWarning)
            return opened(decode_cf=False)


@dataclass(frozen=True, eq=False)
class _Origin:
    """What is converted: sources as :func:`labeled.write` takes them, and what it was.

    Parameters
    ----------
    kind : str
        "npz", "parquet", ..., or the format of files that are opened; "labeled" for a Dataset.
    name : str
        Of the file or folder; empty for what is in memory.
    listed : pictures that become records as they are encoded, optional
    """

    kind: str
    sources: Any
    name: str = ""
    splits: Mapping[str, Any] | None = None
    listed: pictures.PictureFiles | None = None

    @property
    def names(self) -> list[str]:
        return [str(name) for name in getattr(self.sources, "sources", self.sources)]

    @property
    def where(self) -> str:
        """How messages name it."""
        return f"{self.name!r}" if self.name else f"what to convert ({self.kind})"


def _chosen(found: _Origin, asked: _ConvertOptions, only: str | Sequence[str] | None) -> _Origin:
    """Return the splits and the sources that are wanted, once options are checked."""
    is_opened = isinstance(found.sources, Dataset) and found.name != ""
    if not is_opened:  # files that are opened have checked theirs
        given: list[tuple[str, Any, tuple[str, ...]]]
        given = [(option, value, ("pictures",)) for option, value in asked.opened.items()]
        given.append(("columns", asked.columns, ("table", "parquet")))
        given.append(("example_dim", asked.example_dim, ("xarray",)))
        for option, value, kinds in given:
            if value is not None and found.kind not in kinds:
                words = f"{option}={value!r} means nothing for {found.where}, which is {found.kind}"
                raise OptionError(words)
    sources, splits, names = found.sources, found.splits or {}, asked.names
    if only is not None:
        if not isinstance(sources, Dataset):
            raise SplitError(f"only={only!r} takes rows of a split, and {found.where} has none")
        sources = sources.split(only)
    known = replace(found, sources=sources).names
    check_known("sources= names", names or (), known, f"in {found.where}")
    if not known or names == []:
        raise ArrayError(f"{found.where} holds no source to convert")
    if names is not None:
        whole = isinstance(sources, Dataset | xr.Dataset)
        sources = sources[names] if whole else {name: sources[name] for name in names}
        for split, by in splits.items():
            if isinstance(by, Mapping):
                splits = {**splits, split: {n: by[n] for n in by if n in names}}
    return replace(found, sources=sources, splits=splits or None)


def _records(found: _Origin, asked: _ConvertOptions, written: WriteOptions) -> str:
    """Write records; what is not a Dataset becomes a labelled file first."""
    target = asked.target
    if found.listed is not None:
        return pictures.copy_pictures(found.listed, target, written)
    dataset = found.sources
    if not isinstance(dataset, Dataset):
        plain = vars(replace(written, statistics=False, checksums=False))
        path = os.path.join(asked.folders.enter_context(part_folder(target)), "labelled.hdf5")
        dataset = open_dataset(write(path, found.sources, found.splits, **plain))
    else:
        warn_of_left_out(dataset)
    return pictures.write_pictures(dataset, target, written)


# splits


def _said(given: Any, what: str) -> Any:
    """Return what is kept in the file of how rows were divided."""
    return given if isinstance(given, str | int | float) else f"{what} given one by one"


def _drawn(
    found: _Origin, rules: Mapping[str, Any], seed: int, in_order: bool, labels: Mapping[str, Any]
) -> dict[str, Any]:
    """Divide rows among splits by rules."""
    counts = {name: len(found.sources[name]) for name in found.names}
    if len(set(counts.values())) > 1:
        words = f"the sources of {found.where} differ in length: {counts}"
        raise SplitError(f"{words}; choose some that agree with sources=[...] or example_dim=")
    n_rows = next(iter(counts.values()))
    by: dict[str, npt.NDArray[Any]] = {}
    for option, given in labels.items():
        where, values = option, given
        if isinstance(given, str):
            where, values = f"{option}={given!r}", _called(found, option, given)
        by[option] = one_value_a_row(where, values, n_rows)
        if option == "stratify":
            check_classes(where, by[option], "labels", SplitError)
    how: Any = {"seed": seed, "in_order": in_order, "groups": by.get("groups")}
    return splits_by_rules(rules, n_rows, **how, classes=by.get("stratify"))


def _called(found: _Origin, option: str, name: str) -> Any:
    """Return the source of a name, or else the column of a table."""
    if name in found.names:
        return found.sources[name]
    known = found.names
    for source in map(found.sources.__getitem__, found.names):
        columns = np.atleast_1d(getattr(source, "attrs", {}).get("columns", ())).tolist()
        if name in columns:
            return source[:, columns.index(name)].values
        known = [*dict.fromkeys([*known, *columns])]
    hint = did_you_mean(name, known)
    raise UnknownNameError(f"{option}={name!r} is not a source of {found.where}; {hint}")


# what is given


def _origin(given: Any, asked: _ConvertOptions) -> _Origin:
    """Return the sources of paths, an xarray.Dataset, a DataFrame, a Dataset or arrays."""
    paths = [given] if isinstance(given, str | os.PathLike) else given
    if isinstance(paths, list | tuple) and all(isinstance(p, str | os.PathLike) for p in paths):
        return _of_paths([os.path.expanduser(os.fspath(path)) for path in paths], asked)
    if isinstance(given, xr.Dataset):
        return _of_xarray(given, asked.example_dim)
    if isinstance(given, Dataset):
        return _Origin("labeled", given)
    if tables.is_frame(given):
        tables.warn_of_index(given)
        return _Origin("table", tables.frame_sources(given, asked.columns))
    if isinstance(given, Mapping):
        return _Origin("arrays", dict(given))
    raise ArrayError(
        f"cannot convert {type(given).__name__}; give a path, an xarray.Dataset, a "
        f"pandas.DataFrame, a labeled.Dataset or a mapping of arrays"
    )


def _of_paths(paths: list[str], asked: _ConvertOptions) -> _Origin:
    """Return what is in files; open_dataset opens all but pictures, NumPy's files and parquet."""
    found = None
    try:
        if "" not in paths and not any(map(is_address, paths)):
            paths = [os.path.abspath(path) for path in paths]
            found = _of_files(paths, asked)
    except LabeledError:
        raise
    except OSError as error:
        raise unreadable(error.filename or paths[0], error) from error
    if found is None:
        dataset = asked.dataset(paths)
        found = _Origin(dataset.files.options.format or "", dataset)
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return replace(found, name=os.path.basename(paths[0]) + more if paths else "")


def _of_files(paths: list[str], asked: _ConvertOptions) -> _Origin | None:
    """Return what open_dataset does not open; None for what it does."""
    path, known = paths[0] if len(paths) == 1 else "", list[str]()
    if registry.format_of_folder(path) is not None:
        return None
    if os.path.isdir(path):
        formats = [*registry.all_formats()]
        known = [name for name in os.listdir(path) if any(one.claims(name) for one in formats)]
        notes = all(name.lower().endswith(TEXTS) for name in known)
        found = pictures.picture_paths(path) if notes else []
        if known and len(found) > len(known):
            warn(f"{listed(sorted(known))} beside the pictures of {path!r} are left out")
        if len(found) > len(known):
            return _of_pictures(path, found, asked)
    elif path and (os.path.exists(path) or not glob.has_magic(path)):
        stamp_of(path)  # refuses what is not there, and pipes, which would block
        if path.lower().endswith(".npz"):
            return _of_npz(path, asked)
    files = [file for one in paths for file in _files(one)]
    endings = {os.path.splitext(one)[1].lower() for one in files}
    if endings == {".npy"}:
        return _of_npy(files)
    if endings and endings <= {".parquet", ".pq"}:
        names, parts = asked.names, (asked.columns or {}).values()
        wanted = None if names is None else {*names, *itertools.chain(*parts)}
        return _Origin("parquet", tables.grouped(tables.open_parquet(files, wanted), asked.columns))
    if os.path.isdir(path) and not known:
        raise FileFormatError(
            f"folder {path!r} holds nothing to convert: no pictures, no files of a known format, "
            f"not .npy or parquet files alone; name some of its files, as in '{path}/*.npy'"
        )
    return None


def _of_pictures(path: str, names: Sequence[str], asked: _ConvertOptions) -> _Origin:
    """Return the pictures of a folder, decoded from a copy in records."""
    own, found = pictures.decoding_of(asked.opened), pictures.list_pictures(path, names)
    if asked.records and not asked.opened:
        return _Origin("pictures", found.sources(None), splits=found.splits or None, listed=found)
    folder = asked.folders.enter_context(part_folder(asked.target))
    copy = pictures.copy_pictures(found, os.path.join(folder, "pictures.rec"), Storage())
    images = open_dataset(copy, content="images", sources=["images"], **own)["images"]
    asked.folders.enter_context(found.naming())
    return _Origin("pictures", found.sources(images), splits=found.splits or None)


def _files(path: str) -> list[str]:
    """Return a file, or those of a glob or a folder in the order of the numbers in their names.

    Those of a folder are its own, or else those of folders named after splits. Files whose names
    begin with a dot or an underscore are notes of programs, and left aside.
    """
    found = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
    if os.path.isdir(path):
        inside = [os.path.join(path, name) for name in os.listdir(path)]
        splits = [one for one in inside if os.path.basename(one).lower() in SPLITS]
        found = [*filter(os.path.isfile, inside)]
        found = found or [file for one in filter(os.path.isdir, splits) for file in _files(one)]
    return sorted((one for one in found if os.path.basename(one)[0] not in "._"), key=natural)


def _of_xarray(dataset: xr.Dataset, example_dim: str | None = None) -> _Origin:
    """Put the example dim first, and leave out variables that do not have it.

    By default that is the only unlimited dim, else ``batch``, else the first of the first variable.
    """
    dims = [str(dim) for array in dataset.data_vars.values() for dim in array.dims]
    if not dims:
        raise ArrayError("there is no variable with an axis to convert")
    if example_dim is None:
        unlimited = [dim for dim in dataset.encoding.get("unlimited_dims", ()) if dim in dims]
        usual = "batch" if "batch" in dims else dims[0]
        example_dim = str(unlimited[0]) if len(unlimited) == 1 else usual
    check_known("example_dim= names", [example_dim], dims, "a dim of any variable", DimsError)
    without = [name for name, array in dataset.data_vars.items() if example_dim not in array.dims]
    if without:
        names = sorted(map(str, without))
        warn(f"variables {names} do not have the dim {example_dim!r} of examples: left out")
    kept = dataset.drop_vars(without).transpose(example_dim, ...)
    for each in (kept, *kept.data_vars.values()):
        each.attrs.pop("coordinates", None)
    return _Origin("xarray", kept)


# files of one kind


def _of_npz(path: str, asked: _ConvertOptions) -> _Origin:
    """Return the arrays of an archive, unpacked and mapped."""
    folder, arrays = asked.folders.enter_context(part_folder(asked.target)), {}
    try:
        with zipfile.ZipFile(path) as archive, explained(asked.target):
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            if len(set(members)) < len(members):
                raise FileFormatError(f"{path!r} has members of the same name; rename them")
            archive.extractall(folder, members)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise FileFormatError(f"{path!r} is not a sound .npz archive: {error}") from error
    for name in members:
        try:
            arrays[name[:-4]] = _open_npy(os.path.join(folder, name), f"{path}, member {name}")
        except UnsafeFileError:
            if asked.names is None or name[:-4] in asked.names:
                raise
    single = [name for name in arrays if not arrays[name].shape]
    if single:
        warn(f"members {single} of {path!r} are single values, no sources, and are left out")
    return _Origin("npz", {name: arrays[name] for name in arrays if arrays[name].shape})


def _of_npy(paths: Sequence[str]) -> _Origin:
    """Return the arrays of several ``.npy`` files, and the rows of the splits they name."""
    named = {path: _split_and_stem(path) for path in paths}
    given = {split for split, _ in named.values()}
    splits = [split for split in dict.fromkeys(SPLITS.values()) if split in given]
    if len(splits) < 2 or "" in given:
        named = {path: ("", os.path.splitext(os.path.basename(path))[0]) for path in paths}
        splits = [""]
    groups: dict[str, dict[str, Array]] = {}
    for path in sorted(paths, key=lambda path: splits.index(named[path][0])):
        array = _open_npy(path, path)
        if not array.shape:
            raise ArrayError(f"{path} holds a single value; a source needs an axis of examples")
        groups.setdefault(_COUNTED.sub("", named[path][1]) or "data", {})[path] = array
    out: dict[str, Any] = {}
    table: dict[str, dict[str, tuple[int, int]]] = {split: {} for split in splits}
    for name, arrays in groups.items():
        first, *others = arrays
        name, stop = name if others else named[first][1] or "data", 0
        for path, array in arrays.items():
            by_source, start = table[named[path][0]], stop
            stop += len(array)
            by_source[name] = (by_source.get(name, (start,))[0], stop)
        out[name] = _joined(name, arrays)
    return _Origin("npy", out, splits=None if splits == [""] else table)


def _split_and_stem(path: str) -> tuple[str, str]:
    """Return the split that a name, or else its folder, tells, and the rest of the name.

    Examples
    --------
    >>> _split_and_stem("train_x.npy"), _split_and_stem("x-test.npy"), _split_and_stem("val/x.npy")
    (('train', 'x'), ('test', 'x'), ('valid', 'x'))
    """
    stem = os.path.splitext(os.path.basename(path))[0]
    for word in sorted(SPLITS, key=len, reverse=True):
        for pattern in (rf"{word}(?:[-_.](.*))?", rf"(.*)[-_.]{word}"):
            found = re.fullmatch(pattern, stem, re.IGNORECASE)
            if found is not None:
                return SPLITS[word], found[1] or ""
    return SPLITS.get(os.path.basename(os.path.dirname(path)).lower(), ""), stem


def _open_npy(path: str, where: str) -> Array:
    """Map the one array of a file."""
    try:
        mapped: Array = np.lib.format.open_memmap(path, mode="r")  # np.load would open archives
    except (ValueError, TokenError) as error:
        if "Python objects" in str(error):
            how = "save it again as numbers, or texts of one width (dtype 'U20'), or leave it out"
            words = f"{where} holds Python objects, which only unpickling could read"
            raise UnsafeFileError(f"{words}; {how} with sources=[...]") from None
        raise FileFormatError(f"{where} is cut short, or not a sound .npy file: {error}") from error
    return mapped


def _joined(name: str, parts: Mapping[str, Any]) -> Any:
    """Join arrays along their rows; one alone stays what it is."""
    (first, one), *others = parts.items()
    for path, other in others:
        kinds = {one.dtype.kind, other.dtype.kind}  # texts of two widths are joined
        alike = one.dtype == other.dtype or kinds in ({"U"}, {"S"})
        if not alike or other.shape[1:] != one.shape[1:]:
            raise ArrayError(
                f"source {name!r}: {path!r} has rows of {other.dtype} {other.shape[1:]}, and "
                f"{first!r} of {one.dtype} {one.shape[1:]}; convert them one by one"
            )
    if not others:
        return one
    rows = max(BLOCK_BYTES // max(math.prod(one.shape[1:]) * one.dtype.itemsize, 1), 1)
    cut = (rows, *one.shape[1:])
    return da.concatenate([da.from_array(part, cut, name=False) for part in parts.values()])
