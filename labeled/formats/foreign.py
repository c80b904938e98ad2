"""Files that are not opened but known: what each is, and what makes examples of it.

Recognised by their first bytes, whatever their name says, so that a message can tell the
next step. What none of the formats and nobody here knows is left to its name.
"""

from __future__ import annotations

import os
import shlex

ZARR_MARKS = (".zgroup", ".zarray", ".zmetadata", "zarr.json")
"""A folder with one of these in it is a zarr store."""

NETCDF3_MAGIC = b"CDF"

_CONVERT = "make HDF5 of it"
_ENGINES = ("cfgrib", "rasterio")
"""Of xarray, for files that it opens and this library does not."""

_KNOWN: tuple[tuple[bytes, str, str], ...] = (
    (b"\x93NUMPY", "a NumPy array", _CONVERT),
    (b"PAR1", "a parquet table", _CONVERT),
    (NETCDF3_MAGIC, "netCDF-3, not netCDF-4", _CONVERT),
    (b"PK\x03\x04", "a zip archive", "unpack it first"),
    (b"MATLAB 5.0", "a MATLAB file before v7.3", "save it again in MATLAB with '-v7.3'"),
    (b"\x0e\x03\x13\x01", "HDF4, not HDF5", "h4toh5 makes HDF5 of it"),
    (b"version https://git-lfs", "a pointer of Git LFS", "`git lfs pull` fetches the file itself"),
    (b"<!doctype html", "a web page", "the download went wrong, so download the file again"),
    (b"<html", "a web page", "the download went wrong, so download the file again"),
    (b"GRIB", "a GRIB file", "cfgrib"),
    (b"II*\0", "a TIFF file", "rasterio"),
    (b"MM\0*", "a TIFF file", "rasterio"),
    (b"\x89PNG", "a picture", "put pictures into a folder, and make HDF5 of that"),
    (b"\xff\xd8\xff", "a picture", "put pictures into a folder, and make HDF5 of that"),
    (b"\x80\x04\x95", "a pickle, which may run any code", "labeled.write stores what it holds"),
    (b"\x80\x05\x95", "a pickle, which may run any code", "labeled.write stores what it holds"),
)


def told_of(path: str, data: bytes) -> str | None:
    """Return what a file is and what to do with it, by its first bytes; None if not known.

    Examples
    --------
    >>> told_of("digits.npy", b"\\x93NUMPY\\x01\\x00")
    'a NumPy array; make HDF5 of it: labeled convert digits.npy digits.hdf5'
    >>> told_of("digits.hdf5", b"\\x89HDF\\r\\n\\x1a\\n")
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


def told_of_folder(path: str) -> str:
    """Return what to do with a folder that holds no file of examples."""
    command = convert_command(path.rstrip("/") or path)
    if any(os.path.exists(os.path.join(path, mark)) for mark in ZARR_MARKS):
        return (
            f"is a zarr store; make HDF5 of it: {command}, or serve it as it is: "
            f"labeled.batches(xr.open_zarr({path!r}), 64, dim=...)"
        )
    return (
        "holds no file of examples; if it holds pictures, .npy or parquet files, make HDF5 of it: "
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
