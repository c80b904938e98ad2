"""Which format a file is of: by its first bytes, then by its name.

First bytes that no format knows leave the name to decide, so that a damaged file is
still called by what it was meant to be. What a format offers, and how one is added, is
described in :mod:`.format`.
"""

from __future__ import annotations

import importlib
import logging
import os
import shlex
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from labeled.errors import ArgumentError, FileFormatError, OptionError, did_you_mean
from labeled.formats.bytesource import is_address, is_remote, stamp_of, stored_bytes, unreadable
from labeled.formats.format import Format, Head
from labeled.formats.hdf5.format import FORMAT as HDF5

log = logging.getLogger(__name__)

FORMATS = {
    "hdf5": "hdf5.format",
    "idx": "idx",
    "recordio": "recordio",
    "csv": "csv",
    "zarr": "zarr",
}
"""The module of every format, imported when it is asked. If a folder holds files of several
formats, the first of these is meant."""

HEAD_BYTES = 4096
GZIP = b"\x1f\x8b\x08"


def format_named(name: str) -> Format:
    """Return the format that ``format=`` or a header names.

    Raises
    ------
    ArgumentError
        If no format has that name.
    """
    if name not in FORMATS:
        raise ArgumentError(f"format={name!r} is not a format; {did_you_mean(str(name), FORMATS)}")
    found: Format = importlib.import_module(f"labeled.formats.{FORMATS[name]}").FORMAT
    return found


def all_formats() -> Iterator[Format]:
    """Yield every format, in the order in which they are asked."""
    return map(format_named, FORMATS)


def option_names() -> frozenset[str]:
    """Return what only some format has an option for."""
    return frozenset(name for one in all_formats() for name in one.option_names)


def format_of(path: str) -> Format:
    """Return the format of a file.

    Raises
    ------
    FileFormatError
        If it is missing or empty, or neither its first bytes nor its name tell.
    """
    found = (format_of_folder(path) if os.path.isdir(path) else None) or _known(_head_of(path))
    if found is not None:
        return found
    there = "; ".join(f"{one.name!r} ({', '.join(one.suffixes)})" for one in all_formats())
    raise FileFormatError(
        f"neither the first bytes of {path!r} nor its name tell its format; check the path, or "
        f"pass format= if you know it: {there}. If xarray opens it, use "
        f"labeled.batches(xr.open_dataset({path!r}), 64, dim=...)"
    )


def format_of_folder(path: str) -> Format | None:
    """Return the format of a folder that is one file of its format, such as a zarr store."""
    if not os.path.isdir(path):  # no format is imported to find that out
        return None

    def is_marked(one: Format) -> bool:
        return any(os.path.exists(os.path.join(path, mark)) for mark in one.marks)

    return next(filter(is_marked, all_formats()), None)


def _known(head: Head) -> Format | None:
    """Return the format of a file; None if nothing is known of it.

    Raises
    ------
    FileFormatError
        If it is known to be something that is not opened; says what helps.
    """
    if head.packed and HDF5.recognises(head):
        raise FileFormatError(
            f"{head.path!r} is gzip-compressed HDF5, whose rows cannot be reached; unpack it "
            "(gunzip)"
        )
    for one in all_formats():
        if one.recognises(head):
            return one
    foreign = describe_foreign_file(head.path, head.data)
    if foreign is not None:
        raise FileFormatError(f"{head.path!r} is {foreign}")
    return next((one for one in all_formats() if one.claims(head.path)), None)


def common_format(paths: Iterable[str]) -> Format:
    """Return the format that all of these files have.

    Raises
    ------
    FileFormatError
        If they are of different formats.
    """
    first, *others = paths
    found = format_of(first)
    for path in others:
        one = format_of(path)
        if one is not found:
            raise FileFormatError(
                f"{path!r} is {one.title}, but {first!r} is {found.title}: files of different "
                "formats are not joined; open them apart"
            )
    log.debug("%r is opened as %s", first, found.title)
    return found


def check_reachable(chosen: Format, paths: Iterable[str]) -> None:
    """Refuse addresses of files whose format is read from this machine only.

    Raises
    ------
    FileFormatError
    """
    for path in paths:
        if not chosen.remote and is_address(path):
            raise FileFormatError(
                f"{path!r} is an address, and {chosen.title} is read from local files only; copy "
                "it here first"
            )


def check_hdf5(path: str | os.PathLike[str], what: str) -> None:
    """Refuse a file of another format than HDF5; one that is nothing known may try.

    Parameters
    ----------
    path : path
    what : str
        Who can do nothing with it, for the message.

    Raises
    ------
    FileFormatError
        Says what it is, and what makes HDF5 of it.
    """
    if not isinstance(path, str | os.PathLike):
        raise FileFormatError(f"{what} takes the path of one file, not {type(path).__name__}")
    name = os.fspath(path)
    try:
        head = _head_of(name)
    except FileFormatError:  # what reads HDF5 tells better what is wrong with it
        return
    found = _known(head)
    if found not in (None, HDF5):
        raise FileFormatError(
            f"{name!r} is {found.title}, and {what} is for HDF5 files; make one of it: "
            f"{convert_command(name)}"
        )


def _head_of(path: str) -> Head:
    """Read the beginning of a file; it is closed again, but for what a format asks of it."""
    stamp = stamp_of(path)
    at = partial(stored_bytes, stamp) if is_remote(stamp.path) else partial(_bytes_at, path)
    data = at(0, HEAD_BYTES)
    packed = data.startswith(GZIP)
    return Head(path, _inflated(data) if packed else data, at, packed)


def _bytes_at(path: str, offset: int, n: int) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            return file.read(n)
    except OSError as fault:
        raise unreadable(path, fault) from fault


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(data, HEAD_BYTES)
    except zlib.error:
        return data


def own_options(
    chosen: Format, path: str, given: Mapping[str, Any], shared: Mapping[str, Any]
) -> Any:
    """Return the options of a format, made of what was given.

    Parameters
    ----------
    chosen : Format
    path : str
        A file of that format, for messages.
    given : mapping
        Options that only some format has.
    shared : mapping
        Options that several formats accept, but not all; None where one is not given.

    Raises
    ------
    OptionError
        If they mean nothing in that format.
    LoaderError
        If a value is none that it takes.
    """
    for name in (*given, *shared):
        is_given = name in given or shared[name] is not None
        if is_given and name not in chosen.option_names and name not in chosen.accepts:
            raise OptionError(
                f"{name}= means nothing for {path!r}, which is {chosen.title}; "
                f"{did_you_mean(name, {*chosen.option_names, *chosen.accepts})}"
            )
    return chosen.options(**given)


# files that are not opened but known, by their first bytes, whatever their name says

_CONVERT = "convert it to HDF5 first"
_ENGINES = ("cfgrib", "rasterio", "scipy")
"""Of xarray, for files that it opens and this library does not."""

_KNOWN: tuple[tuple[bytes, str, str], ...] = (
    (b"\x93NUMPY", "a NumPy array", _CONVERT),
    (b"PAR1", "a parquet table", _CONVERT),
    (b"CDF", "netCDF-3, not netCDF-4", "scipy"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"MATLAB 5.0", "a MATLAB file before v7.3", "save it again in MATLAB with '-v7.3'"),
    (b"\x0e\x03\x13\x01", "HDF4, not HDF5", "h4toh5 converts it to HDF5"),
    (b"version https://git-lfs", "a pointer of Git LFS", "`git lfs pull` fetches the file itself"),
    (b"<!doctype html", "a web page", "the download failed; download the file again"),
    (b"<html", "a web page", "the download failed; download the file again"),
    (b"GRIB", "a GRIB file", "cfgrib"),
    (b"II*\0", "a TIFF file", "rasterio"),
    (b"MM\0*", "a TIFF file", "rasterio"),
    (b"\x89PNG", "a picture", "put pictures into a folder and convert that to HDF5"),
    (b"\xff\xd8\xff", "a picture", "put pictures into a folder and convert that to HDF5"),
    (b"\x80\x04\x95", "a pickle, which may run any code", "labeled.write stores what it holds"),
    (b"\x80\x05\x95", "a pickle, which may run any code", "labeled.write stores what it holds"),
)


def describe_foreign_file(path: str, data: bytes) -> str | None:
    """Return what a file is and what to do with it, by its first bytes; None if not known.

    Examples
    --------
    >>> describe_foreign_file("digits.npy", b"\\x93NUMPY\\x01\\x00")
    'a NumPy array; convert it to HDF5 first: labeled convert digits.npy digits.hdf5'
    >>> describe_foreign_file("digits.hdf5", b"\\x89HDF\\r\\n\\x1a\\n")
    """
    if path.endswith(".npz") and data.startswith(b"PK\x03\x04"):
        return f"a NumPy archive; {_CONVERT}: {convert_command(path)}"
    for magic, what, remedy in _KNOWN:
        if data[: len(magic)].lower() == magic.lower():
            if remedy in _ENGINES:
                opened = f"xr.open_dataset({path!r}, engine={remedy!r})"
                return f"{what}, which xarray opens: labeled.batches({opened}, 64, dim=...)"
            command = f": {convert_command(path)}" if remedy is _CONVERT else ""
            return f"{what}; {remedy}{command}"
    return None


def describe_folder(path: str) -> str:
    """Return what to do with a folder that has no file to open."""
    command = convert_command(path.rstrip("/") or path)
    return (
        "has no file that labeled opens; convert pictures, .npy or parquet files to HDF5 first: "
        f"{command}"
    )


def convert_command(path: str) -> str:
    """Return the command that makes HDF5 of a file or a folder.

    Examples
    --------
    >>> convert_command("my digits.csv")
    "labeled convert 'my digits.csv' 'my digits.hdf5'"
    """
    target = os.path.splitext(path)[0] + ".hdf5"
    return f"labeled convert {shlex.quote(path)} {shlex.quote(target)}"
