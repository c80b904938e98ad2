"""NumPy's own files, and several files of one kind as one origin: ``.npy`` or parquet files.

``.npy`` and ``.npz`` are read without being in memory. A plain member of an archive lies in it as
it would in a file of its own, so it is mapped; a compressed one passes from its beginning. Pickled
objects are refused: reading them could run anything.

What is called alike but for a number (``x_0.npy``, ``x_1.npy``, ...) is one source, joined along
the rows in the order of the numbers. Arrays whose names or folders name splits (``train_x.npy``
and ``test_x.npy``, ``train/x.npy`` and ``test/x.npy``) become these. Files of tables have the
same columns and are joined column by column.
"""

from __future__ import annotations

import glob
import math
import os
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Literal

import numpy as np

from labeled.errors import ArrayError, FileFormatError, UnsafeFileError, warn
from labeled.formats.region import Array
from labeled.ragged import Ragged
from labeled.writing.folders import SPLITS
from labeled.writing.given import Passing
from labeled.writing.tables import open_parquet

PARQUET = (".parquet", ".pq")

_LOCAL_HEADER = 30
_READ_BYTES = 256 << 10
"""What is inflated at a time."""

_NUMBER = re.compile(r"(\d+)")
_COUNTED = re.compile(r"[-_.]?\d+([-_]of[-_]\d+)?$")


def shards_of(*paths: str) -> tuple[str, list[str]] | None:
    """Return the kind and the files of paths that hold nothing else of either kind.

    Of a folder come its files, or else those in folders below it that are named after splits.
    Files whose names begin with a dot or an underscore are left aside, as programs that write
    such folders put notes there.
    """
    found = [one for path in paths for one in _files(path)]
    found = [one for one in found if os.path.basename(one)[0] not in "._"]
    for kind, suffixes in {"npy": (".npy",), "parquet": PARQUET}.items():
        if found and all(one.lower().endswith(suffixes) for one in found):
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


def npy_sources(
    paths: Sequence[str],
) -> tuple[dict[str, Any], dict[str, dict[str, tuple[int, int]]] | None]:
    """Return the arrays of several ``.npy`` files, and the rows of the splits they name.

    Raises
    ------
    ArrayError
        If rows of files that belong together differ in shape or dtype.
    """
    named = {path: _split_and_stem(path) for path in paths}
    splits = [split for split in SPLITS.values() if any(split == one for one, _ in named.values())]
    if len(splits) < 2 or not all(split for split, _ in named.values()):
        named = {path: ("", _stem(path)) for path in paths}
        splits = []
    groups: dict[str, list[str]] = {}
    for path, (_, stem) in sorted(named.items(), key=lambda item: _place(splits, item[1][0])):
        groups.setdefault(_COUNTED.sub("", stem) or "data", []).append(path)
    out: dict[str, Any] = {}
    table: dict[str, dict[str, tuple[int, int]]] = {split: {} for split in splits}
    for name, members in groups.items():
        arrays = {path: open_npy(path) for path in members}
        alone = named[members[0]][1] or "data"
        name = name if len(members) > 1 else alone
        stop = 0
        for path, array in arrays.items():
            if not array.shape:
                raise ArrayError(f"{path} holds a single value; a source needs an axis of examples")
            if splits:
                start, _ = table[named[path][0]].get(name, (stop, stop))
                table[named[path][0]][name] = (start, stop + len(array))
            stop += len(array)
        out[name] = _joined(name, arrays)
    return out, table or None


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


def _place(splits: Sequence[str], split: str) -> int:
    return splits.index(split) if split else 0


def parquet_sources(
    paths: Sequence[str], columns: Mapping[str, Sequence[str]] | None
) -> dict[str, Any]:
    """Return the columns of several parquet files, joined; lists of many lengths are left out.

    Raises
    ------
    ArrayError
        If the files differ in their columns, or in what these hold.
    """
    tables = {path: open_parquet(path, columns) for path in paths}
    first = tables[paths[0]]
    for path, table in tables.items():
        if list(table) != list(first):
            raise ArrayError(
                f"{path!r} has the columns {list(table)}, and {paths[0]!r} {list(first)}; convert "
                f"them one by one, or take those that all have with sources=[...]"
            )
    ragged = [name for name in first if isinstance(first[name], Ragged)] if len(paths) > 1 else []
    if ragged:
        warn(
            f"columns {ragged} of {paths[0]!r} hold lists of different lengths, which are taken "
            f"from one file alone, and are left out; convert the files one by one to have them"
        )
    return {
        name: _joined(name, {path: table[name] for path, table in tables.items()})
        for name in first
        if name not in ragged
    }


def _joined(name: str, parts: Mapping[str, Any]) -> Any:
    """Join arrays along their rows; one alone stays what it is."""
    (first, one), *others = parts.items()
    if not others:
        return one
    for path, other in others:
        if not _alike(one.dtype, other.dtype) or other.shape[1:] != one.shape[1:]:
            raise ArrayError(
                f"source {name!r}: {path!r} has rows of {other.dtype} {other.shape[1:]}, and "
                f"{first!r} of {one.dtype} {one.shape[1:]}; give files other names where they do "
                f"not belong together, or convert them one by one"
            )
    dtype = np.result_type(*(part.dtype for part in parts.values()))
    begins = [_begin_of(part) for part in parts.values()]

    def begin(rows: int) -> Iterator[Array]:
        for each in begins:
            for block in each(rows):
                yield block.astype(dtype, copy=False)

    return Passing(dtype, (sum(part.shape[0] for part in parts.values()), *one.shape[1:]), begin)


def _alike(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Whether a dtype holds both: texts of two widths, or numbers of which some are missing."""
    return one == other or {one.kind, other.kind} in ({"U"}, {"S"}, {"i", "f"}, {"u", "f"}, {"f"})


def _begin_of(part: Any) -> Callable[[int], Iterator[Array]]:
    if isinstance(part, Passing):
        return part.begin

    def begin(rows: int) -> Iterator[Array]:
        for start in range(0, len(part), rows):
            yield np.array(part[start : start + rows])

    return begin


# NumPy's own files


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
    if not n_bytes:
        return np.zeros(header.shape, header.dtype)
    if not header.shape:
        return np.fromfile(path, header.dtype, 1, offset=begin).reshape(())
    order: Literal["F", "C"] = "F" if header.fortran else "C"
    mapped: Array = np.memmap(path, header.dtype, "r", begin, header.shape, order)
    return mapped


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
