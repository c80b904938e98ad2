"""Files joined: what their headers say together, and whether they can be joined.

Rows of one file follow those of another, so everything along the example dim must agree
in name, dims, dtype and row shape. Packing may differ (each file is then decoded by its
own conventions) as long as the decoded dtype is the same. Variables without the example
dim stand once for all files: the first file's are used, and a warning reports files that differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from labeled.display.text import class_names_of
from labeled.errors import FileFormatError, SplitError, UnknownNameError, listed, warn
from labeled.formats.format import Options, chosen_sources, dims_of
from labeled.formats.header import FileHeader, SourceHeader, vlen_base
from labeled.formats.reader import Io
from labeled.selection import Selection
from labeled.sources.source import Source, decoded_dtype

MAX_LISTED = 6
"""Names that a message lists."""

COMPARED_BYTES = 1 << 20
"""Variables carried whole are compared value by value up to this size."""


class Mark(NamedTuple):
    """What one file, or one of its groups, was when it was opened."""

    n_bytes: int
    fingerprint: str
    times: tuple[int, ...]
    """When the files behind it were modified, or a hash over their versions; 0 if not known."""


@dataclass(frozen=True, eq=False)
class Catalog:
    """What the headers of the files say, joined along the example axis."""

    headers: tuple[FileHeader, ...]
    marks: tuple[Mark, ...]
    sources: Mapping[str, Source]
    variables: Mapping[str, Source]
    """Coordinates and variables carried whole; those along the example dim are joined."""
    splits: Mapping[str, Mapping[str, Selection]]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    not_opened: Mapping[str, str] = field(default_factory=dict)
    coordinates: frozenset[str] = frozenset()
    """Which of the variables are coordinates, whether a source has their dims or not."""


def join(headers: tuple[FileHeader, ...], io: Io = "auto") -> Catalog:
    """Join the headers of files along the example axis.

    Raises
    ------
    SplitError, UnknownNameError, DimsError, FileFormatError
        If a file lacks a source or a split of the first file, or has other dims, row
        shape or dtype; the message names both files.
    """
    first, marks = headers[0], []
    for header in headers:
        if header is not first:
            _check_compatible(first, header)
        times = tuple(map(attrgetter("mtime_ns"), header.stamps))
        marks.append(Mark(header.n_bytes, header.fingerprint, times))
    sources: dict[str, Source] = {}
    variables: dict[str, Source] = {}
    splits: dict[str, dict[str, Selection]] = {}
    by_file = tuple(map(attrgetter("sources"), headers))
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
                rows[name] = joined_rows(
                    [(Selection.of(h.splits[split][name]), h.sources[name].n_rows) for h in headers]
                )
    named = first.attrs, first.not_opened, first.coordinates
    return Catalog(headers, tuple(marks), sources, variables, splits, *named)


def _is_along(variable: SourceHeader, file: FileHeader) -> bool:
    """Whether a variable lies along the example dim, so that it is joined like sources."""
    examples = {source.dims[0] for source in file.sources.values()}
    return bool(variable.dims) and variable.dims[0] in examples


def joined_rows(parts: Sequence[tuple[Selection, int]]) -> Selection:
    """Join rows of files, each given with how many its file has, one after another."""
    begin, shifted = 0, []
    for rows, n_rows in parts:
        shifted.append(rows.shift(begin))
        begin += n_rows
    return Selection.concat(shifted)


Scan = Callable[[tuple[str, ...], Options], tuple[FileHeader, ...]]


def scan_named(
    scan: Scan, paths: Sequence[str], names: Sequence[str], options: Options
) -> tuple[FileHeader, ...]:
    """Scan files by name; return one header for each set of files that stand side by side.

    Raises
    ------
    FileFormatError
        If a file holds several sources, or names have different numbers of files or rows.
    SplitError
        If files that stand side by side do not agree in their splits.
    """
    asked = replace(options, sources=None, dims=())
    by_name = {
        name: scan(tuple(p for p, n in zip(paths, names, strict=True) if n == name), asked)
        for name in dict.fromkeys(names)
    }
    counts = {name: len(headers) for name, headers in by_name.items()}
    if len(set(counts.values())) > 1:
        raise FileFormatError(f"each source needs as many files as the others, found {counts}")
    chosen = chosen_sources(by_name, options, repr(paths[0]))
    return tuple(
        _beside({name: by_name[name][number] for name in chosen}, options)
        for number in range(counts[chosen[0]])
    )


def _beside(headers: dict[str, FileHeader], options: Options) -> FileHeader:
    """Make one header of several files with one source each."""
    sources = {name: _renamed(name, header, options) for name, header in headers.items()}
    rows = {source.file.path: source.n_rows for source in sources.values()}
    if len(set(rows.values())) > 1:
        raise FileFormatError(f"files side by side hold different numbers of rows: {rows}")
    first = next(iter(headers.values()))
    for header in headers.values():
        if set(header.splits) != set(first.splits):
            raise SplitError(
                f"{header.stamp.path!r} has the splits {sorted(header.splits)}, but "
                f"{first.stamp.path!r}, which stands beside it, has {sorted(first.splits)}"
            )
    splits: dict[str, Any] = {split: {} for split in first.splits}
    for name, header in headers.items():
        for split, chosen in header.splits.items():
            splits[split][name] = next(iter(chosen.values()))
    return replace(first, sources=sources, splits=splits, variables={})


def _renamed(name: str, header: FileHeader, options: Options) -> SourceHeader:
    if len(header.sources) != 1:
        raise FileFormatError(
            f"{header.stamp.path!r} was given as source {name!r}, but holds the sources "
            f"{sorted(header.sources)}; name files with one source each, or open it by itself"
        )
    (source,) = header.sources.values()
    dims = dims_of(name, source.dims, replace(options, example_dim=None), repr(source.file.path))
    return replace(source, name=name, dims=dims, coords=())


def _check_compatible(first: FileHeader, other: FileHeader) -> None:
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
        _check_pair(f"source {name!r}", source, other.sources[name], first.where, other.where)
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
    if kind == "source" and len(missing) == len(mine) == len(extra) == 1:
        beside = {missing[0]: here, extra[0]: there}
        remedy = f"if their rows belong together, open them side by side: open_dataset({beside})"
    raise error(
        f"{there!r} cannot be joined to {here!r}: it lacks {kind}s "
        f"[{listed(missing, MAX_LISTED)}] and has others [{listed(extra, MAX_LISTED)}]; {remedy}"
    )


def _check_pair(what: str, one: SourceHeader, two: SourceHeader, here: str, there: str) -> None:
    """Refuse or warn of the same array in two files."""
    remedy = "write one of them again, or open them apart"
    if (one.ragged is None) != (two.ragged is None):
        alike, apart = (here, there) if one.ragged is None else (there, here)
        raise FileFormatError(
            f"{what} cannot be joined: all its examples in {alike!r} have one shape, those in "
            f"{apart!r} differ; write {alike!r} again from "
            f"{{{one.name!r}: labeled.Ragged.of(examples)}}, which stays ragged, or open them apart"
        )
    packed = (repr(one.cf), repr(two.cf)) if one.ragged is not None else ("", "")
    for property, mine, theirs in (
        ("dims", one.dims, two.dims),
        ("row shape", one.row_shape, two.row_shape),
        ("dtype", one.dtype, two.dtype),
        ("dtype of rows", vlen_base(one.dtype), vlen_base(two.dtype)),
        ("decoded dtype", decoded_dtype(one), decoded_dtype(two)),
        ("scale, offset, fill value or units", *packed),
    ):
        if mine != theirs:
            raise FileFormatError(
                f"{what} cannot be joined: {property} {theirs} in {there!r}, "
                f"but {mine} in {here!r}; {remedy}"
            )
    units, others = one.attrs.get("units"), two.attrs.get("units")
    if repr(units) != repr(others):
        warn(
            f"{what} has the units {others!r} in {there!r}, but {units!r} in {here!r}; its values "
            "are joined as they are"
        )
    names, others = class_names_of(one.attrs), class_names_of(two.attrs)
    odd = sorted(n for n in names.keys() & others.keys() if names[n] != others[n])
    if odd:
        warn(
            f"{what} names class {odd[0]} {others[odd[0]]!r} in {there!r}, but {names[odd[0]]!r} "
            f"in {here!r}; numbers are joined as they are: make them agree first"
        )


def _check_variables(first: FileHeader, other: FileHeader) -> None:
    differing: list[str] = []
    for name, variable in first.variables.items():
        match = other.variables.get(name)
        if not _is_along(variable, first):
            if match is None or _differ(variable, match):
                differing.append(name)
        elif match is None:
            raise UnknownNameError(
                f"{other.where!r} cannot be joined to {first.where!r}: it lacks the "
                f"coordinate {name!r} along {variable.dims[0]!r}; write it there too, or open "
                "the files apart"
            )
        else:
            _check_pair(f"coordinate {name!r}", variable, match, first.where, other.where)
    differing += sorted(set(other.variables) - set(first.variables))
    if differing:
        warn(
            f"variables {differing} in {other.where!r} are not as in {first.where!r}, "
            "which stands for all files joined: its are taken where it has them; open the files "
            "apart to see each one's own"
        )


def _differ(one: SourceHeader, two: SourceHeader) -> bool:
    """Whether two variables carried whole differ; values are compared where they are few."""
    for name in ("dims", "shape", "dtype", "cf", "attrs"):
        if repr(getattr(one, name)) != repr(getattr(two, name)):
            return True
    if math.prod(one.shape) * one.dtype.itemsize > COMPARED_BYTES:
        return False
    mine, theirs = Source.of((one,)).whole(), Source.of((two,)).whole()
    return not np.array_equal(mine, theirs, equal_nan=mine.dtype.kind in "fcmM")
