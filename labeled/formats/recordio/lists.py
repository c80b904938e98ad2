"""Lists of examples (``.lst``): an id, labels and a path a line, apart by tabs.

Such a list gives labels by id, or names the examples of a split. Lists of other programs
round labels to six decimals, and some have no path; both are read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from labeled.errors import FileFormatError, UnknownNameError
from labeled.formats.bytesource import check_path
from labeled.formats.header import FileStamp
from labeled.formats.recordio.records import KEPT_FILES, RecordFile, table_of

Ids = npt.NDArray[np.uint64]
Labels = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

SHOWN = 3


@dataclass(frozen=True, eq=False)
class ExampleList:
    """What a list says, by line.

    Parameters
    ----------
    path : str
    ids : uint64 (n,)
    labels : float32 (n, width)
    """

    path: str
    ids: Ids
    labels: Labels

    @cached_property
    def _order(self) -> Rows:
        return np.argsort(self.ids, kind="stable")

    def lines_of(self, ids: Ids) -> Rows:
        """Return the line (from 0) of each id, the last one where it is listed twice; -1: none."""
        order = self._order
        if not len(order):
            return np.full(len(ids), -1, np.int64)
        place = np.searchsorted(self.ids[order], ids, side="right") - 1
        lines = order[np.maximum(place, 0)]
        return np.where((place >= 0) & (self.ids[lines] == ids), lines, -1)

    def labels_of(self, ids: Ids, where: str) -> Labels:
        """Return the labels of ids (len(ids), width).

        Raises
        ------
        UnknownNameError
            If an id is not listed; the message names some.
        """
        lines = self.lines_of(ids)
        if (lines < 0).any():
            missing = ids[lines < 0]
            some = ", ".join(map(str, missing[:SHOWN].tolist()))
            raise UnknownNameError(
                f"{len(missing):,} of {len(ids):,} records of {where} are not in the list "
                f"{self.path!r}: ids {some}{', ...' if len(missing) > SHOWN else ''}; list them, "
                "or take the listed ones alone as a split"
            )
        return self.labels[lines]


def read_list(path: str | os.PathLike[str], label_width: int | None = None) -> ExampleList:
    """Read a list of examples.

    Parameters
    ----------
    label_width : int, optional
        Labels a line; more are left out. All that stand between id and path by default.

    Raises
    ------
    FileFormatError
        If a line has no id, too few labels, or another number of them; names the line.
    """
    name = os.path.abspath(os.fspath(path))
    ids, labels = list[int](), list[list[float]]()
    try:
        with open(name, encoding="utf-8-sig") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"cannot read the list {name!r}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            id, values = _parsed(line, label_width)
            if labels and len(values) != len(labels[0]):
                raise ValueError(f"it has {len(values)} labels, those before it {len(labels[0])}")
        except ValueError as fault:
            raise FileFormatError(
                f"line {number} of the list {name!r}, {line.strip()[:60]!r}: {fault}; each line is "
                "an id, labels and a path, apart by tabs"
            ) from None
        ids.append(id)
        labels.append(values)
    width = len(labels[0]) if labels else label_width or 1
    values32 = np.array(labels, np.float64).astype(np.float32).reshape(len(ids), width)
    return ExampleList(name, np.array(ids, np.uint64), values32)


def _parsed(line: str, label_width: int | None) -> tuple[int, list[float]]:
    """Return the id and the labels of a line; the last field is a path unless it is a number."""
    first, *fields = line.strip("\r\n").split("\t") if "\t" in line else line.split()
    id = int(first) if first.strip().isdecimal() else -1
    if not 0 <= id < 1 << 64:
        raise ValueError(f"{first[:20]!r} is not an id (0 to 2**64 - 1)")
    values = list[float]()
    for field in fields[:label_width]:
        try:
            values.append(float(field))
        except ValueError:
            break
    if label_width is not None and len(values) < label_width:
        raise ValueError(f"it has fewer than {label_width} labels")
    if label_width is None and len(values) < len(fields) - 1:
        raise ValueError(f"{fields[len(values)][:20]!r} is not a label")
    if not values:
        raise ValueError("it has no label")
    return id, values


@lru_cache(maxsize=KEPT_FILES)
def listed_labels(file: RecordFile, stamp: FileStamp, width: int | None) -> Labels:
    """Return the labels that a list gives the records: (n, width), or (n,) for one each.

    Raises
    ------
    UnknownNameError
        If a record is not listed.
    """
    found = list_of(stamp, width).labels_of(table_of(file).ids, repr(file.stamp.path))
    return found[:, 0] if found.shape[1] == 1 else found


@lru_cache(maxsize=KEPT_FILES)
def list_of(stamp: FileStamp, width: int | None = None) -> ExampleList:
    """Read a list, if it is still the one that was named; kept once a process."""
    check_path(stamp)
    return read_list(stamp.path, width)
