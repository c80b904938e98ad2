"""NumPy's own files: ``.npy`` and ``.npz``, read without being in memory.

A plain member of an archive lies in it as it would in a file of its own, so it is mapped;
a compressed one passes from its beginning. Pickled objects are refused: reading them could
run anything.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Literal

import numpy as np

from labeled.errors import FileFormatError, UnsafeFileError
from labeled.formats.region import Array
from labeled.writing.given import Passing

_LOCAL_HEADER = 30
_READ_BYTES = 256 << 10
"""What is inflated at a time."""


@dataclass(frozen=True, slots=True)
class _Header:
    """What the head of a ``.npy`` says."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    begin: int
    """Where the values begin."""


def open_npy(path: str) -> Array:
    """Map the one array of a file.

    Raises
    ------
    FileFormatError, UnsafeFileError
        If it is damaged, or holds Python objects.
    """
    with open(path, "rb") as file:
        header = _header(path, file)
    return _mapped(path, header, header.begin)


def open_npz(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays of an archive by name, and why others are left out: they hold objects.

    Arrays are mapped, or passing where compressed.

    Raises
    ------
    FileFormatError
        If it is damaged.
    """
    arrays: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            names = [member.filename for member in members]
            if len(set(names)) < len(names):
                raise FileFormatError(
                    f"{path!r} has members of the same name: {names}; rename them"
                )
            for member in members:
                name = member.filename.removesuffix(".npy")
                try:
                    arrays[name] = _member(path, archive, member)
                except UnsafeFileError as error:
                    left_out[name] = str(error)
            return arrays, left_out
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise FileFormatError(f"{path!r} is no sound .npz archive: {error}") from error


def _member(path: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    where = f"{path}, member {member.filename}"
    with archive.open(member) as file:
        header = _header(where, file)
    if member.compress_type == zipfile.ZIP_STORED:
        return _mapped(where, header, _offset(path, member) + header.begin, path)
    if header.fortran and len(header.shape) > 1:
        raise FileFormatError(
            f"{where} is compressed and stored column by column, so its rows cannot be read one "
            f"after another; save it again with numpy.ascontiguousarray"
        )
    begin = partial(_inflated, path, member.filename, header)
    return Passing(header.dtype, header.shape, begin)


def _offset(path: str, member: zipfile.ZipInfo) -> int:
    """Return where the bytes of a member begin; its local header has lengths of its own."""
    with open(path, "rb") as file:
        file.seek(member.header_offset)
        head = file.read(_LOCAL_HEADER)
    if len(head) < _LOCAL_HEADER or head[:4] != b"PK\x03\x04":
        raise FileFormatError(f"{path!r} has no member {member.filename!r} where it says so")
    name, extra = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
    return member.header_offset + _LOCAL_HEADER + name + extra


def _header(where: str, file: IO[bytes]) -> _Header:
    try:
        version = np.lib.format.read_magic(file)
        read = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, fortran, dtype = read(file)
    except (ValueError, EOFError, OSError) as error:
        raise FileFormatError(f"{where} is no sound .npy file: {error}") from error
    if dtype.hasobject:
        raise UnsafeFileError(
            f"{where} holds Python objects ({dtype}), which only unpickling could read; save it "
            f"again as numbers, or texts of one width (dtype 'U20')"
        )
    return _Header(dtype, shape, fortran, file.tell())


def _mapped(where: str, header: _Header, begin: int, path: str | None = None) -> Array:
    path = where if path is None else path
    n_bytes = math.prod(header.shape) * header.dtype.itemsize
    if begin + n_bytes > os.path.getsize(path):
        raise FileFormatError(
            f"{where} claims {n_bytes:,} bytes of {header.dtype} {header.shape}, more than there "
            f"are; it is cut short, so get it again"
        )
    if not n_bytes or not header.shape:
        return np.zeros(header.shape, header.dtype) if not n_bytes else _scalar(path, header, begin)
    order: Literal["F", "C"] = "F" if header.fortran else "C"
    mapped: Array = np.memmap(path, header.dtype, "r", begin, header.shape, order)
    return mapped


def _scalar(path: str, header: _Header, begin: int) -> Array:
    return np.fromfile(path, header.dtype, 1, offset=begin).reshape(())


def _inflated(path: str, name: str, header: _Header, rows: int) -> Iterator[Array]:
    """Read a compressed member from its beginning, so many rows at a time."""
    n_rows, *rest = header.shape
    row_bytes = math.prod(rest) * header.dtype.itemsize
    where = f"{path}, member {name}"
    with zipfile.ZipFile(path) as archive, archive.open(name) as file:
        file.read(header.begin)
        for start in range(0, n_rows, rows):
            size = min(rows, n_rows - start)
            raw = np.empty(size * row_bytes, np.uint8)
            try:
                done = _filled(raw, file)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
                raise FileFormatError(
                    f"{where}, rows {start} to {start + size - 1}: {error}"
                ) from error
            if done < len(raw):
                raise FileFormatError(f"{where} ends within row {start + done // row_bytes}")
            yield raw.view(header.dtype).reshape(size, *rest)


def _filled(out: Array, file: IO[bytes]) -> int:
    """Read until an array is full; return how many bytes came."""
    done = 0
    while done < len(out):
        some = file.read(min(_READ_BYTES, len(out) - done))
        if not some:
            break
        out[done : done + len(some)] = np.frombuffer(some, np.uint8)
        done += len(some)
    return done
