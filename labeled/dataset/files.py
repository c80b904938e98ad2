"""Which files are open: paths and options that pickle, and what they were when opened.

:class:`Files` is the recipe: it travels. :class:`~.joining.Catalog` is what scanning the files
gives: it is made where it is needed, and kept once a process. When a recipe arrives
in another process, sizes and header fingerprints are compared, so that nobody reads
rows of a file that is no longer the one that was opened. A file that was replaced by one
alike, or a copy, differs in its time alone; who reads a file together with others asks
for that, too (:meth:`Files.check_times`).
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from io import IOBase
from pathlib import Path
from typing import Any

from labeled.dataset.joining import Catalog, Mark, join, scan_named
from labeled.errors import FileChangedError, FileFormatError
from labeled.formats.bytesource import is_address, modified, stamp_of, unreadable
from labeled.formats.format import Options
from labeled.formats.header import FileHeader
from labeled.formats.registry import all_formats, describe_folder, format_named, format_of_folder


@dataclass(frozen=True)
class Files:
    """Paths, options, and what each file was when it was opened.

    With `names`, each path holds one source, which is called by the name given to it.
    """

    paths: tuple[str, ...]
    options: Options
    marks: tuple[Mark, ...] = ()
    names: tuple[str, ...] = ()
    addresses: tuple[tuple[int, int] | None, ...] = ()
    """For each path that is not local, which file was there; asking again takes requests."""

    @classmethod
    def open(cls, paths: Iterable[str], options: Options, names: Iterable[str] = ()) -> Files:
        """Scan the files once and remember what they were."""
        paths, names = tuple(paths), tuple(names)
        stamps, addresses = tuple(map(_stamp, paths)), []
        for path, stamp in zip(paths, stamps, strict=True):
            addresses.append(stamp if is_address(path) else None)
        catalog = _scan_all(paths, options, stamps, names)
        files = cls(paths, options, catalog.marks, names, tuple(addresses))
        files.__dict__["_seen"] = catalog
        return files

    @property
    def catalog(self) -> Catalog:
        """What the headers say; scanned again only when a file or the process changed.

        Raises
        ------
        FileChangedError
            If a file is not the one that was opened.
        """
        stamps = []
        for path, known in zip(self.paths, self.addresses, strict=True):
            stamps.append(_stamp(path) if known is None else known)
        catalog = _scan_all(self.paths, self.options, tuple(stamps), self.names)
        for header, was, now in zip(catalog.headers, self.marks, catalog.marks, strict=True):
            if was[:2] != now[:2]:
                raise FileChangedError(
                    f"{header.stamp.path!r} changed since it was opened: it had {was.n_bytes} "
                    f"bytes and headers {was.fingerprint[:8]}, now {now.n_bytes} bytes and "
                    f"{now.fingerprint[:8]}; open it again"
                )
        seen: Catalog | None = self.__dict__.get("_seen")
        if (
            seen is not None and seen is not catalog
        ):  # within one open no file may be replaced, be it by one alike
            _check_times(catalog.headers, seen.marks)
        self.__dict__["_seen"] = catalog
        return catalog

    def check_times(self) -> None:
        """Raise unless the files here are those that were opened, no copies, and not replaced.

        Raises
        ------
        FileChangedError
            If a file has another size, other headers or another modification time.
        """
        _check_times(self.catalog.headers, self.marks)

    @property
    def known(self) -> Catalog:
        """What the headers said when the files were last looked at, without looking again.

        Enough to choose rows by; whoever reads them finds out if a file has changed. Of a
        thousand files on a server, looking takes long.
        """
        seen: Catalog | None = self.__dict__.get("_seen")
        return self.catalog if seen is None else seen

    def __getstate__(self) -> dict[str, Any]:
        """Travel without headers: they are scanned where the recipe arrives."""
        return {name: value for name, value in self.__dict__.items() if name != "_seen"}


def _check_times(headers: Iterable[FileHeader], marks: Iterable[Mark]) -> None:
    for header, mark in zip(headers, marks, strict=True):
        for stamp, then in zip(header.stamps, mark.times, strict=True):
            if then and stamp.mtime_ns and stamp.mtime_ns != then:
                when = modified(then, stamp.mtime_ns)
                raise FileChangedError(
                    f"{stamp.path!r} has changed since it was opened: {when}. "
                    "Open it again; if it is a copy, keep its time when copying "
                    "(cp -p, rsync -t), or set it (touch -r)"
                )


def find_files(
    path: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], format: str | None = None
) -> tuple[str, ...]:
    """Turn a path, a list of paths, a glob or a folder into absolute paths, sorted where found.

    A leading ``~`` is the home folder; addresses (``s3://``) stay as they are. Of a folder come
    the files of one format: of `format`, else of the first one known that any of them is named
    after.

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
    if os.path.isdir(text) and format_of_folder(text) is None:
        return tuple(map(os.path.abspath, _in_folder(text, format)))
    if not os.path.exists(text) and glob.has_magic(text):
        found = glob.glob(text)
        if not found:
            raise FileFormatError(
                f"no file matches {text!r}; check the path (looked for {os.path.abspath(text)!r})"
            )
        order = next((one.order for one in all_formats() if one.claims(min(found))), str)
        return tuple(map(os.path.abspath, sorted(found, key=order)))
    return (os.path.abspath(text),)


def find_named(
    path: Mapping[Any, Any], format: str | None = None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths that a mapping names, and the source each of them holds.

    Raises
    ------
    FileFormatError
        As :func:`find_files`, or if a mapping holds something else than paths by name.
    """
    plain = (str, os.PathLike, list, tuple)
    if not path or not all(isinstance(one, plain) for one in path.values()):
        _check_listed(path)
    found = [(str(name), one) for name, where in path.items() for one in find_files(where, format)]
    return tuple(one for _, one in found), tuple(name for name, _ in found)


def _in_folder(folder: str, format: str | None) -> list[str]:
    try:
        names = {str(path) for path in Path(folder).iterdir() if path.is_file()}
    except OSError as error:
        raise unreadable(folder, error) from error
    formats = tuple(all_formats()) if format is None else (format_named(format),)
    for one in formats:
        found = {name for name in names if one.claims(name)}
        if found:  # a file that is there unpacked too is meant once
            twice = {name for name in found if name.endswith(".gz") and name[:-3] in found}
            return sorted(found - twice, key=one.order)
    endings = "" if format is None else f" (endings: {', '.join(formats[0].suffixes)})"
    raise FileFormatError(f"folder {folder!r} {describe_folder(folder)}{endings}")


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


def _stamp(path: str) -> tuple[int, int] | None:
    if is_address(path):
        there = stamp_of(path)
        return there.size, there.mtime_ns
    try:
        status = os.stat(path)
    except OSError:  # the scan says what is wrong
        return None
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=64)
def _scan_all(
    paths: tuple[str, ...], options: Options, stamps: Any, names: tuple[str, ...]
) -> Catalog:
    """Scan files; `stamps` is there so that a changed file is scanned again."""
    assert options.format is not None
    scan = format_named(options.format).scan
    headers = scan_named(scan, paths, names, options) if names else scan(paths, options)
    return join(headers, options.io)
