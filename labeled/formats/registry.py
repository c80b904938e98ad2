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
from contextlib import suppress
from functools import cache, partial
from typing import Any

from labeled.errors import ArgumentError, FileFormatError, OptionError, did_you_mean
from labeled.formats.bytesource import GZIP, is_address, stamp_of, stored_bytes
from labeled.formats.format import Format, Head
from labeled.formats.hdf5.format import FORMAT as HDF5

log = logging.getLogger(__name__)

# The module of every format, imported when it is asked. If a folder holds files of several formats,
# the first of these is meant.
FORMATS = {
    "hdf5": "hdf5.format",
    "idx": "idx",
    "recordio": "recordio",
    "csv": "csv",
    "zarr": "zarr",
}

HEAD_BYTES = 4096


@cache  # one is asked for with every file of thousands
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


def format_of_folder(path: str) -> Format | None:
    """Return the format of a folder that is one file of its format, such as a zarr store."""
    for one in all_formats() if os.path.isdir(path) else ():  # none is imported to find that out
        if any(os.path.exists(os.path.join(path, mark)) for mark in one.marks):
            return one
    return None


def format_of(path: str) -> Format:
    """Return the format of a file.

    Raises
    ------
    FileFormatError
        If it is missing or empty, or neither its first bytes nor its name tell, or if it is known
        to be something that is not opened; says what helps.
    """
    found = format_of_folder(path) if os.path.isdir(path) else None
    if found is not None:
        return found
    at = partial(stored_bytes, stamp_of(path))
    data = at(0, HEAD_BYTES)
    packed = data.startswith(GZIP)
    if packed:
        with suppress(zlib.error):
            data = zlib.decompressobj(wbits=31).decompress(data, HEAD_BYTES)
    head = Head(data, at, packed)
    if packed and HDF5.recognises(head):
        raise FileFormatError(
            f"{path!r} is gzip-compressed HDF5, whose rows cannot be reached; unpack it (gunzip)"
        )
    for one in all_formats():  # a format that is asked in vain is imported for it
        if one.recognises(head):
            return one
    foreign = describe_foreign_file(path, data)
    if foreign is not None:
        raise FileFormatError(f"{path!r} is {foreign}")
    for one in all_formats():
        if one.claims(path):
            return one
    there = "; ".join(f"{one.name!r} ({', '.join(one.suffixes)})" for one in all_formats())
    raise FileFormatError(
        f"neither the first bytes of {path!r} nor its name tell its format; check the path, or "
        f"pass format= if you know it: {there}. If xarray opens it, use "
        f"labeled.batches(xr.open_dataset({path!r}), 64, dim=...)"
    )


def common_format(paths: Iterable[str], name: str | None = None) -> Format:
    """Return the format that all of these files have, or the one of that name.

    Raises
    ------
    FileFormatError
        If they are of different formats, or addresses where it is read from this machine only.
    """
    first, *others = paths
    found = format_of(first) if name is None else format_named(name)
    for path in others if name is None else ():
        one = format_of(path)
        if one is not found:
            raise FileFormatError(
                f"{path!r} is {one.title}, but {first!r} is {found.title}: files of different "
                "formats are not joined; open them apart"
            )
    for path in paths:
        if not found.remote and is_address(path):
            raise FileFormatError(
                f"{path!r} is an address, and {found.title} is read from local files only; copy "
                "it here first"
            )
    log.debug("%r is opened as %s", first, found.title)
    return found


def check_hdf5(path: str | os.PathLike[str], what: str) -> None:
    """Refuse a file of another format than HDF5.

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
    found = format_of(name)
    if found is not HDF5:
        raise FileFormatError(
            f"{name!r} is {found.title}, and {what} is for HDF5 files; make one of it: "
            f"{convert_command(name)}"
        )


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
# of xarray, for files that it opens and this library does not
_ENGINES = ("cfgrib", "rasterio", "scipy")

# those in lower case stand for capitals, too; the others begin no line of text
_KNOWN: tuple[tuple[bytes | tuple[bytes, ...], str, str], ...] = (
    (b"\x93NUMPY", "a NumPy array", ".npy"),  # the ending by which convert knows them
    (b"PAR1\x15", "a parquet table", ".parquet"),
    ((b"CDF\x01", b"CDF\x02", b"CDF\x05"), "netCDF-3, not netCDF-4", "scipy"),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"MATLAB 5.0", "a MATLAB file before v7.3", "save it again in MATLAB with '-v7.3'"),
    (b"\x0e\x03\x13\x01", "HDF4, not HDF5", "h4toh5 converts it to HDF5"),
    (b"version https://git-lfs", "a pointer of Git LFS", "`git lfs pull` fetches the file itself"),
    ((b"<!doctype html", b"<html"), "a web page", "the download failed; download the file again"),
    (b"GRIB", "a GRIB file", "cfgrib"),
    ((b"II*\0", b"MM\0*"), "a TIFF file", "rasterio"),
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
        if data.startswith(magic) or data.lower().startswith(magic):
            if remedy in _ENGINES:
                opened = f"xr.open_dataset({path!r}, engine={remedy!r})"
                return f"{what}, which xarray opens: labeled.batches({opened}, 64, dim=...)"
            if remedy[0] == ".":
                how = f", unpacked, under a name that ends in {remedy}"
                if path.lower().endswith((remedy, ".pq")):
                    how = f": {convert_command(path)}"
                remedy = _CONVERT + how
            return f"{what}; {remedy}"
    return None


def describe_folder(path: str) -> str:
    """Return what to do with a folder that has no file to open."""
    return (
        "has no file that labeled opens; convert pictures, .npy or parquet files to HDF5 first: "
        + convert_command(path.rstrip("/") or path)
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
