"""Whether files can be joined: what must agree, and what is only worth a warning.

Rows of one file follow those of another, so everything along the example dim must agree
in name, dims, dtype and row shape. Packing may differ (each file is then decoded by its
own conventions) as long as the decoded dtype is the same. Variables without the example
dim stand once for all files: the first file's are taken, and a warning tells of others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled.dataset.files import is_along
from labeled.display.classes import class_names_of
from labeled.errors import FileFormatError, SplitError, UnknownNameError, listed, warn
from labeled.formats.header import FileHeader, SourceHeader, vlen_base
from labeled.sources.source import Source, decoded_dtype

MAX_LISTED = 6
"""Names that a message lists."""

COMPARED_BYTES = 1 << 20
"""Variables carried whole are compared value by value up to this size."""


def check_compatible(first: FileHeader, other: FileHeader) -> None:
    """Refuse to join two files that do not fit; warn where the first file's word is taken.

    Raises
    ------
    UnknownNameError, SplitError
        If one lacks a source, a split or a coordinate along the example dim of the other.
    FileFormatError
        If one of them has other dims, another row shape or another dtype.
    """
    _check_names("source", first.sources, other.sources, first.where, other.where)
    _check_names("split", first.splits, other.splits, first.where, other.where)
    for name, source in first.sources.items():
        _Pair(f"source {name!r}", source, other.sources[name], first.where, other.where).check()
    for split, rows in first.splits.items():
        if set(rows) != set(other.splits[split]):
            raise SplitError(
                f"{other.where!r} cannot be joined to {first.where!r}: split {split!r} provides "
                f"{sorted(other.splits[split])}, not {sorted(rows)}"
            )
    _check_variables(first, other)


def _check_names(
    kind: str, mine: Mapping[str, Any], theirs: Mapping[str, Any], here: str, there: str
) -> None:
    if set(mine) == set(theirs):
        return
    missing, extra = sorted(set(mine) - set(theirs)), sorted(set(theirs) - set(mine))
    error = UnknownNameError if kind == "source" else SplitError
    remedy = "name what both have with sources=[...], or open them apart"
    pattern = _numbered_otherwise(mine, theirs) if kind == "source" else None
    if pattern is not None:
        remedy = f"their groups differ by a number: group={pattern!r} joins what lies in them"
    elif kind == "source" and len(missing) == len(mine) == len(extra) == 1:
        beside = {missing[0]: here, extra[0]: there}
        remedy = f"if their rows belong together, open them side by side: open_dataset({beside})"
    raise error(
        f"{there!r} cannot be joined to {here!r}: it lacks {kind}s "
        f"[{listed(missing, MAX_LISTED)}] and has others [{listed(extra, MAX_LISTED)}]; {remedy}"
    )


def _numbered_otherwise(mine: Collection[str], theirs: Collection[str]) -> str | None:
    """Return what matches one group in either file, if their names differ by its number alone.

    Examples
    --------
    >>> _numbered_otherwise(["data/0/E/x", "data/0/E/y"], ["data/100/E/x", "data/100/E/y"])
    'data/*'
    >>> _numbered_otherwise(["data/0/E/x"], ["data/100/B/x"])
    """
    parts = [[name.split("/") for name in names] for names in (mine, theirs)]
    for depth in range(min(len(name) for each in parts for name in each)):
        one, two = ({name[depth] for name in each} for each in parts)
        if one == two:
            continue
        inside, others = ({tuple(name[depth + 1 :]) for name in each} for each in parts)
        stems = {re.split("[0-9]", name)[0] for name in one | two}
        if len(one) == len(two) == len(stems) == 1 and inside == others and () not in inside:
            return "/".join([*parts[0][0][:depth], f"{stems.pop()}*"])
        return None
    return None


@dataclass(frozen=True)
class _Pair:
    """The same array in two files."""

    what: str
    one: SourceHeader
    two: SourceHeader
    here: str
    there: str

    def check(self) -> None:
        one, two, here, there = self.one, self.two, self.here, self.there
        cannot = f"{self.what} cannot be joined"
        if (one.ragged is None) != (two.ragged is None):
            path, shape = (here, one.row_shape) if one.ragged is None else (there, two.row_shape)
            raise FileFormatError(
                f"{cannot}: all its examples in {path!r} have shape {shape}, "
                f"those in {here if path == there else there!r} differ; write {path!r} again from "
                f"{{{one.name!r}: labeled.Ragged.of(examples)}}, which stays ragged, or open them "
                "apart"
            )
        for what, mine, theirs in (
            ("dims", one.dims, two.dims),
            ("row shape", one.row_shape, two.row_shape),
            ("dtype", one.dtype, two.dtype),
            ("dtype of rows", vlen_base(one.dtype), vlen_base(two.dtype)),
            ("decoded dtype", decoded_dtype(one), decoded_dtype(two)),
        ):
            if mine != theirs:
                raise FileFormatError(
                    f"{cannot}: {what} {theirs} in {there!r}, "
                    f"but {mine} in {here!r}; write one of them again, or open them apart"
                )
        if one.ragged is not None and repr(one.cf) != repr(two.cf):
            raise FileFormatError(
                f"ragged {cannot}: its scale, offset, fill value or units in "
                f"{there!r} are not those in {here!r}; write it again with the same, "
                "or open both with decode_cf=False"
            )
        self.warn()

    def warn(self) -> None:
        """Say so where units differ, or numbers of classes, which nothing converts."""
        mine, theirs = self.one.attrs.get("units"), self.two.attrs.get("units")
        if repr(mine) != repr(theirs):
            warn(
                f"{self.what} has the units {theirs!r} in {self.there!r}, but {mine!r} in "
                f"{self.here!r}; its values are joined as they are"
            )
        names, others = class_names_of(self.one.attrs), class_names_of(self.two.attrs)
        odd = sorted(n for n in names.keys() & others.keys() if names[n] != others[n])
        if odd:
            warn(
                f"{self.what} names its classes otherwise in {self.there!r} than in {self.here!r} "
                f"({odd[0]} is {others[odd[0]]!r} there, {names[odd[0]]!r} here); numbers are "
                "joined as they are, and the first file's names stand for all: make the numbers "
                "agree first"
            )


def _check_variables(first: FileHeader, other: FileHeader) -> None:
    differing: list[str] = []
    for name, variable in first.variables.items():
        match = other.variables.get(name)
        if not is_along(variable, first):
            if match is None or _differ(variable, match):
                differing.append(name)
        elif match is None:
            raise UnknownNameError(
                f"{other.where!r} cannot be joined to {first.where!r}: it lacks the "
                f"coordinate {name!r} along {variable.dims[0]!r}; write it there too, or open "
                "the files apart"
            )
        else:
            _Pair(f"coordinate {name!r}", variable, match, first.where, other.where).check()
    differing += sorted(set(other.variables) - set(first.variables))
    if differing:
        warn(
            f"variables {differing} in {other.where!r} are not as in {first.where!r}, "
            "which stands for all files joined: its are taken where it has them; open the files "
            "apart to see each one's own"
        )


def _differ(one: SourceHeader, two: SourceHeader) -> bool:
    """Whether two variables carried whole differ; values are compared where they are few."""
    if (one.dims, one.shape, one.dtype) != (two.dims, two.shape, two.dtype):
        return True
    if repr(one.cf) != repr(two.cf) or repr(dict(one.attrs)) != repr(dict(two.attrs)):
        return True
    if math.prod(one.shape) * one.dtype.itemsize > COMPARED_BYTES:
        return False
    mine, theirs = Source.of((one,)).whole(), Source.of((two,)).whole()
    return not np.array_equal(mine, theirs, equal_nan=mine.dtype.kind in "fcmM")
