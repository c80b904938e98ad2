"""Several files of one kind as one origin: folders and globs of ``.npy`` or parquet files.

What is called alike but for a number (``x_0.npy``, ``x_1.npy``, ...) is one source, joined along
the rows in the order of the numbers. Arrays whose names or folders name splits (``train_x.npy``
and ``test_x.npy``, ``train/x.npy`` and ``test/x.npy``) become these. Files of tables have the
same columns and are joined column by column.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from labeled.errors import ArrayError, warn
from labeled.formats.region import Array
from labeled.ragged import Ragged
from labeled.writing.folders import SPLITS
from labeled.writing.given import Passing
from labeled.writing.numpyfiles import open_npy
from labeled.writing.tables import open_parquet

PARQUET = (".parquet", ".pq")

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
