"""Which files are open, and what their headers say together.

:class:`Files` is the recipe, paths and options, and travels. :class:`Catalog` is what scanning the
files gives: it is made where it is needed, and kept once a process. When a recipe arrives
in another process, sizes and header fingerprints are compared, so that nobody reads
rows of a file that is no longer the one that was opened. A file that was replaced by one
alike, or a copy, differs in its time alone; who reads a file together with others asks
for that, too (:meth:`Files.check_times`).

Rows of one file follow those of another, so everything along the example dim must agree
in name, dims, dtype and row shape. Packing may differ (each file is then decoded by its
own conventions) as long as the decoded dtype is the same. Variables without the example
dim stand once for all files: the first file's are used, and a warning reports files that differ.
"""

from __future__ import annotations

import glob
import math
import os
import pathlib
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from io import IOBase
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from labeled.display.text import class_names_of
from labeled.errors import (
    FileChangedError,
    FileFormatError,
    SplitError,
    UnknownNameError,
    listed,
    warn,
)
from labeled.formats.bytesource import is_address, modified, stamp_of, unreadable
from labeled.formats.format import Options, chosen_sources, dims_of
from labeled.formats.header import FileHeader, SourceHeader, vlen_base
from labeled.formats.pictures import SUFFIXES as PICTURES
from labeled.formats.registry import all_formats, describe_folder, format_named, format_of_folder
from labeled.selection import Selection
from labeled.sources.source import Source, decoded_dtype

Path = str | os.PathLike[str]
Names = tuple[str, ...]
Stamp = tuple[int, ...]  # size and time of a file, and when it was opened if these do not tell
Stamps = tuple[Stamp | None, ...]

CONVERTED = (".npy", ".npz", ".parquet", ".pq")  # what labeled.convert takes besides


class Mark(NamedTuple):
    """What one file, or one of its groups, was when it was opened."""

    n_bytes: int
    fingerprint: str
    # when the files behind it were modified, or a hash over their versions; 0 if not known
    times: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Catalog:
    """What the headers of the files say, joined along the example axis."""

    headers: tuple[FileHeader, ...]
    marks: tuple[Mark, ...]
    sources: Mapping[str, Source]
    # coordinates and variables carried whole; those along the example dim are joined
    variables: Mapping[str, Source]
    splits: Mapping[str, Mapping[str, Selection]]


# ---------------------------------------------------------------- the recipe
@dataclass(frozen=True)
class Files:
    """Paths, options, and what each file was when it was opened.

    With `names`, each path holds one source, which is called by the name given to it. What the
    files are is marked when they are first asked for.
    """

    paths: Names
    options: Options
    names: Names = ()
    marks: tuple[Mark, ...] = field(init=False, default=())
    # which file was at each path that is not local; asking again takes requests
    addresses: dict[str, Stamp] = field(init=False, default_factory=dict, compare=False)
    opened_ns: int = field(init=False, default_factory=time.time_ns, compare=False)

    @property
    def catalog(self) -> Catalog:
        """What the headers say; scanned again only when a file or the process changed.

        Raises
        ------
        FileChangedError
            If a file is not the one that was opened.
        """
        stamps: list[Stamp | None] = []
        for path in self.paths:
            stamp = self.addresses.get(path)
            if stamp is None and is_address(path):
                there = stamp_of(path)
                stamp = self.addresses[path] = (there.size, there.mtime_ns)
            elif stamp is None:
                with suppress(OSError):  # the scan says what is wrong
                    status = os.stat(path)
                    stamp = status.st_size, status.st_mtime_ns
                    # files in a folder, or behind links, change without the path's own size and
                    # time: each open_dataset looks for itself
                    if stat.S_ISDIR(status.st_mode) or self.options.allow_external:
                        stamp = (*stamp, self.opened_ns)
            stamps.append(stamp)
        catalog = _scanned(self.paths, self.options, tuple(stamps), self.names)
        seen: Catalog | None = self.__dict__.get("known")
        if catalog is not seen:  # within one open no file may be replaced, be it by one alike
            marks = self.marks if seen is None else seen.marks
            if marks:
                _check_same(catalog, marks, times=seen is not None)
            self.__dict__.update(known=catalog, marks=self.marks or catalog.marks)
        return catalog

    def check_times(self) -> None:
        """Raise unless the files here are those that were opened, no copies, and not replaced.

        Raises
        ------
        FileChangedError
            If a file has another size, other headers or another modification time.
        """
        _check_same(self.catalog, self.marks, times=True)

    @cached_property
    def known(self) -> Catalog:
        """What the headers said when the files were last looked at, without looking again.

        Enough to choose rows by; whoever reads them finds out if a file has changed. Of a
        thousand files on a server, looking takes long.
        """
        return self.catalog

    def __getstate__(self) -> dict[str, Any]:
        """Travel without headers: they are scanned where the recipe arrives."""
        return {name: value for name, value in self.__dict__.items() if name != "known"}


def _check_same(catalog: Catalog, marks: Sequence[Mark], *, times: bool) -> None:
    """Raise where a file is not the one that left a mark."""
    for header, was, now in zip(catalog.headers, marks, catalog.marks, strict=True):
        if was[:2] != now[:2]:
            raise FileChangedError(
                f"{header.stamp.path!r} changed since it was opened: it had {was.n_bytes} bytes "
                f"and headers {was.fingerprint[:8]}, now {now.n_bytes} bytes and "
                f"{now.fingerprint[:8]}; open it again"
            )
        for stamp, then in zip(header.stamps, was.times, strict=True):
            if times and then and stamp.mtime_ns and stamp.mtime_ns != then:
                when = modified(then, stamp.mtime_ns)
                raise FileChangedError(
                    f"{stamp.path!r} has changed since it was opened: {when}. Open it again; if it "
                    "is a copy, keep its time when copying (cp -p, rsync -t), or set it (touch -r)"
                )


# ---------------------------------------------------------------- which files are meant
def find_files(path: Path | Iterable[Path], format: str | None = None) -> Names:
    """Turn a path, a list of paths, a glob or a folder into absolute paths, sorted where found.

    A leading ``~`` is the home folder; addresses (``s3://``) stay as they are. Of a folder come
    the files of one format: of `format`, else of the first one known that any of them is named
    after; a warning names other data that lies beside them.

    Raises
    ------
    FileFormatError
        If a glob or a folder holds no file of examples, the list is empty, or it is not a path.
    """
    if not isinstance(path, str | os.PathLike):
        _check_listed(path)
        paths = tuple(p for one in path for p in find_files(one, format))
        if not paths:
            raise FileFormatError("the list of files to open is empty")
        return paths
    text = os.path.expanduser(os.fsdecode(path))
    if not text or "\0" in text:
        raise FileFormatError(f"{text!r} is not a path; pass a file, a folder or a glob")
    if is_address(text):
        return (text,)
    found = [text]
    if os.path.isdir(text) and format_of_folder(text) is None:
        found = _in_folder(text, format)
    elif not os.path.exists(text) and glob.has_magic(text):
        found = glob.glob(text)
        if not found:
            looked = os.path.abspath(text)
            raise FileFormatError(f"no file matches {text!r}; check the path ({looked!r})")
        found.sort(key=next((one.order for one in all_formats() if one.claims(min(found))), str))
    return tuple(map(os.path.abspath, found))


def find_named(path: Mapping[Any, Any], format: str | None = None) -> tuple[Names, Names]:
    """Return the paths that a mapping names, and the source each of them holds.

    Raises
    ------
    FileFormatError
        As :func:`find_files`, or if a mapping holds something else than paths by name.
    """
    plain = (str, os.PathLike, list, tuple)
    if not path or not all(isinstance(one, plain) for one in path.values()):
        _check_listed(path)
    found = [(one, str(name)) for name, where in path.items() for one in find_files(where, format)]
    paths, names = zip(*found, strict=True)
    return paths, names


def _in_folder(folder: str, format: str | None) -> list[str]:
    try:
        names = {str(path) for path in pathlib.Path(folder).iterdir() if path.is_file()}
    except OSError as error:
        raise unreadable(folder, error) from error
    formats = tuple(all_formats()) if format is None else (format_named(format),)
    for one in formats:
        found = {name for name in names if one.claims(name)}
        if found:  # a file that is there unpacked too is meant once
            twice = {name for name in found if name.endswith(".gz") and name[:-3] in found}
            others = sorted(map(os.path.basename, names - found)) if format is None else ()
            rest = [name for name in others if name[0] not in "._"]
            left = list(filter(_is_data, rest))
            pictures = [name for name in rest if name.lower().endswith(PICTURES)]
            words = "name the files that are meant"
            if one.name == "csv" and len(pictures) > len(found):  # convert would take these
                left, words = [*left, *pictures], f"{words} (labeled convert takes the pictures)"
            if left:
                text = f"{listed(left)} beside the {one.title} of {folder!r} are left out"
                warn(f"{text}; {words}, or pass format={one.name!r}")
            return sorted(found - twice, key=one.order)
    endings = "" if format is None else f" (endings: {', '.join(formats[0].suffixes)})"
    raise FileFormatError(f"folder {folder!r} {describe_folder(folder)}{endings}")


def _is_data(name: str) -> bool:
    """Whether a file beside those of another kind is likely to be data, and no note (.txt)."""
    known = any(one.claims(name) for one in all_formats())
    ending = name.lower().removesuffix(".gz")
    return ending.endswith(CONVERTED) or (known and not ending.endswith(".txt"))


def _check_listed(path: Any) -> None:
    """Refuse what holds no paths; an open file is a mapping of what is in it."""
    if isinstance(path, bytes | Mapping | IOBase) or not isinstance(path, Iterable):
        name = None
        with suppress(ValueError):  # of a closed h5py.File
            name = getattr(path, "filename", None) or getattr(path, "name", None)
        hint = f"; close it and pass its path, {name!r}" if isinstance(name, str) else ""
        raise FileFormatError(
            f"open_dataset() takes a path, a list of paths, a glob or a folder, not "
            f"{type(path).__name__}{hint}"
        )


# ---------------------------------------------------------------- headers joined
@lru_cache(maxsize=64)
def _scanned(paths: Names, options: Options, stamps: Stamps, names: Names = ()) -> Catalog:
    """Scan files and join what their headers say along the example axis.

    `stamps` are there so that a changed file is scanned again.

    Raises
    ------
    SplitError, UnknownNameError, DimsError, FileFormatError
        If a file lacks a source or a split of the first file, or has other dims, row
        shape or dtype; the message names both files.
    """
    if names:
        return _side_by_side(paths, options, stamps, names)
    assert options.format is not None
    headers, io, marks = format_named(options.format).scan(paths, options), options.io, []
    first = headers[0]
    for header in headers:
        if header is not first:
            _check_compatible(first, header)
        n_bytes = sum(map(attrgetter("size"), header.stamps))
        times = tuple(map(attrgetter("mtime_ns"), header.stamps))
        marks.append(Mark(n_bytes, header.fingerprint, times))
    by_file = list(map(attrgetter("sources"), headers))
    sources: dict[str, Source] = {}
    variables: dict[str, Source] = {}
    splits: dict[str, dict[str, Selection]] = {}
    for name in first.sources:
        sources[name] = Source.of(tuple(map(itemgetter(name), by_file)), io)
    for name, variable in first.variables.items():  # without the example dim, of the first file
        many = headers if _is_along(variable, first) else headers[:1]
        variables[name] = Source.of(tuple(header.variables[name] for header in many), io)
    for split, provided in first.splits.items():
        rows = splits[split] = {}
        for name in provided:
            rows[name] = Selection.of(provided[name])
            if len(headers) > 1:
                each = [
                    (Selection.of(h.splits[split][name]), h.sources[name].n_rows) for h in headers
                ]
                rows[name] = joined_rows(each)
    return Catalog(headers, tuple(marks), sources, variables, splits)


def _is_along(variable: SourceHeader, file: FileHeader) -> bool:
    """Whether a variable lies along the example dim, so that it is joined like sources."""
    return variable.dims[:1] in {source.dims[:1] for source in file.sources.values()}


def joined_rows(parts: Iterable[tuple[Selection, int]]) -> Selection:
    """Join rows of files, each given with how many its file has, one after another."""
    begin, shifted = 0, []
    for rows, n_rows in parts:
        shifted.append(rows.shift(begin) if begin else rows)  # long lists are not copied
        begin += n_rows
    return Selection.concat(shifted)


def _side_by_side(paths: Names, options: Options, stamps: Stamps, names: Names) -> Catalog:
    """Scan files with one source each, and put these beside one another by the names given.

    Raises
    ------
    FileFormatError
        If files hold several sources, or names have different numbers of files or rows.
    SplitError
        If the files do not agree in their splits.
    """
    asked, found = replace(options, sources=None, dims=()), {}
    for name in dict.fromkeys(names):
        mine = [one for one in zip(paths, stamps, names, strict=True) if one[2] == name]
        own, there, _ = zip(*mine, strict=True)
        found[name] = _scanned(own, asked, there)
    chosen = chosen_sources(found, options, repr(paths[0]))
    headers: list[FileHeader] = []
    sources: dict[str, Source] = {}
    splits: dict[str, dict[str, Selection]] = {}
    rows: dict[str, list[int]] = {}
    counts = {name: len(found[name].headers) for name in chosen}
    if len(set(counts.values())) > 1:
        raise FileFormatError(f"each source needs as many files as the others, found {counts}")
    for name in chosen:
        catalog = found[name]
        path = catalog.headers[0].stamp.path
        if len(catalog.sources) != 1:
            raise FileFormatError(
                f"{path!r} was given as source {name!r}, but holds the sources "
                f"{sorted(catalog.sources)}; name files with one source each, or open it by itself"
            )
        (source,) = catalog.sources.values()
        dims = dims_of(name, source.file_dims, replace(options, example_dim=None), path)
        renamed = tuple(replace(one, name=name, dims=dims, coords=()) for one in source.headers)
        sources[name], rows[name] = Source.of(renamed, options.io), [one.n_rows for one in renamed]
        if headers and catalog.splits.keys() != splits.keys():
            raise SplitError(
                f"{path!r} has the splits {sorted(catalog.splits)}, but {headers[0].stamp.path!r}, "
                f"which stands beside it, has {sorted(splits)}"
            )
        for split, provided in catalog.splits.items():
            splits.setdefault(split, {})[name] = next(iter(provided.values()))
        headers += catalog.headers
    if len(set(map(tuple, rows.values()))) > 1:
        raise FileFormatError(f"files side by side hold different numbers of rows: {rows}")
    marks = tuple(mark for name in chosen for mark in found[name].marks)
    return Catalog(tuple(headers), marks, sources, {}, splits)


def _check_compatible(first: FileHeader, other: FileHeader) -> None:
    """Refuse to join two files that do not fit; warn where the first file's word is taken.

    Raises
    ------
    UnknownNameError, SplitError
        If one lacks a source, a split or a coordinate along the example dim of the other.
    FileFormatError
        If one of them has other dims, another row shape or another dtype.
    """
    here, there = first.where, other.where
    cannot = f"{there!r} cannot be joined to {here!r}"
    pairs = zip(_facts(first, first), _facts(other, first), strict=True)
    for (what, mine), (_, theirs) in pairs:
        if mine == theirs:
            continue
        remedy = "write one of them again, or open them apart"
        if not isinstance(mine, frozenset):
            found = f"{theirs} in {there!r}, but {mine} in {here!r}"
            if what.endswith("all examples"):
                alike, apart = (here, there) if mine == "all alike" else (there, here)
                found = f"in {alike!r} have one shape, those in {apart!r} differ"
                again = "labeled.Ragged.of(examples), which stays ragged, or open them apart"
                remedy = f"write {alike!r} again from {again}"
            raise FileFormatError(f"{cannot}: {what} {found}; {remedy}")
        missing, extra = sorted(mine - theirs), sorted(theirs - mine)
        if what == "sources":
            remedy = "name what both have with sources=[...], or open them apart"
            if len(missing) == len(mine) == len(extra) == 1:
                beside = {missing[0]: here, extra[0]: there}
                remedy = f"if their rows belong together: open_dataset({beside})"
        error = SplitError if "split" in what else UnknownNameError
        raise error(
            f"{cannot}: it lacks {what} [{listed(missing)}] and has others [{listed(extra)}]; "
            f"{remedy}"
        )
    differing = sorted(other.variables.keys() - first.variables.keys())
    for name, variable in first.variables.items():
        match = other.variables.get(name)
        if not _is_along(variable, first) and (match is None or _differ(variable, match)):
            differing.append(name)
    if differing:
        warn(
            f"variables {differing} in {there!r} are not as in {here!r}, which stands for all "
            "files joined where it has them; open the files apart to see each one's own"
        )
    match_of = _joined_arrays(other, first)
    for what, one in _joined_arrays(first, first).items():
        units = [repr(header.attrs.get("units")) for header in (one, match_of[what])]
        if units[0] != units[1]:
            warn(
                f"{what} has the units {units[1]} in {there!r}, but {units[0]} in {here!r}; its "
                "values are joined as they are"
            )
        names, others = (class_names_of(header.attrs) for header in (one, match_of[what]))
        for number in sorted(n for n in names.keys() & others.keys() if names[n] != others[n])[:1]:
            warn(
                f"{what} names class {number} {others[number]!r} in {there!r}, but "
                f"{names[number]!r} in {here!r}; numbers are joined as they are: make them agree"
            )


def _joined_arrays(file: FileHeader, first: FileHeader) -> dict[str, SourceHeader]:
    """Return what is joined along the example dim of the first file, as another one has it."""
    arrays = {f"source {name!r}": file.sources[name] for name in sorted(first.sources)}
    for name, one in sorted(first.variables.items()):
        if _is_along(one, first):
            arrays[f"coordinate {name!r}"] = file.variables[name]
    return arrays


def _facts(file: FileHeader, first: FileHeader) -> Iterator[tuple[str, Any]]:
    """Yield what joined files must agree in; names come before what is of that name."""
    yield "sources", frozenset(file.sources)
    yield "splits", frozenset(file.splits)
    along = {name for name, one in first.variables.items() if _is_along(one, first)}
    yield "coordinates", frozenset(along & file.variables.keys())
    for split, rows in sorted(file.splits.items()):
        yield f"sources in split {split!r}", frozenset(rows)
    for what, one in _joined_arrays(file, first).items():
        yield f"{what}: all examples", "all alike" if one.ragged is None else "different"
        yield f"{what}: dims", one.dims
        yield f"{what}: row shape", one.row_shape
        yield f"{what}: dtype", vlen_base(one.dtype) or one.dtype
        yield f"{what}: decoded dtype", decoded_dtype(one)
        if one.ragged is not None:
            yield f"{what}: scale, offset, fill value or units", repr(one.cf)


def _differ(one: SourceHeader, two: SourceHeader) -> bool:
    """Whether two variables carried whole differ; values are compared where they are few."""
    for name in ("dims", "shape", "dtype", "cf", "attrs"):
        if repr(getattr(one, name)) != repr(getattr(two, name)):
            return True
    if math.prod(one.shape) * one.dtype.itemsize > 1 << 20:
        return False
    mine, theirs = Source.of((one,)).whole(), Source.of((two,)).whole()
    return not np.array_equal(mine, theirs, equal_nan=mine.dtype.kind in "fcmM")
