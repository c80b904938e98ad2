"""What will read badly in a file, judged by its headers: findings, each with its remedy.

Nothing is read or measured here but headers and lists of rows; whether a finding costs
anything, and how much, is for :mod:`labeled.dataset.doctor` to find out. A remedy is a set of
options of :func:`labeled.repack`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from dask.utils import format_bytes

from labeled.dims import likely_axis
from labeled.errors import NotYetError, SplitError
from labeled.formats.hdf5.arrays import pattern_of_datasets
from labeled.formats.hdf5.extras import extras_of
from labeled.formats.hdf5.filters import why_not, why_not_undone
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.labels import default_name
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.hdf5.safety import stored_bytes
from labeled.formats.header import FileHeader, Rows, SourceHeader
from labeled.writing.layouts import codec_of, shortened
from labeled.writing.splits import order_of

SMALL_CHUNK_BYTES = 16 << 10
LARGE_CHUNK_BYTES = 4 << 20
FEW_CHUNKS = 4
"""A source of so few chunks is small whatever their shape."""

POOR_RATIO = 1.15
"""A codec that makes a source smaller by less gains nothing."""

SLOW_CODEC = "slow codec"
"""The kind of finding that only a measurement can recommend to fix."""

APART = "examples apart"
"""The kind of finding that another way to open the file fixes."""

UNREADABLE = "cannot be read"
"""The kind of finding that nothing here can measure."""

SHORT_RUN_ROWS = 8
"""A list whose rows follow one another for less, on average, is scattered."""

Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that reads badly.

    Attributes
    ----------
    kind : str
        In a few words: "one-row chunks".
    source, split : str or None
        Which one it concerns; neither for what lies beside the file.
    words : str
        What was found.
    fix : mapping
        Options of :func:`labeled.repack`.
    rows_per_s, fixed_rows_per_s : float or None
        Measured as the file is, and with the remedy; None where nothing is slower for it.
    """

    kind: str
    source: str | None
    split: str | None
    words: str
    fix: Mapping[str, Any] = field(default_factory=dict)
    rows_per_s: float | None = None
    fixed_rows_per_s: float | None = None

    @property
    def where(self) -> str:
        """Which part of the file it concerns, in words."""
        if self.source is None and self.split is None:
            return "beside it"
        return self.source or f"split {self.split}"

    @property
    def cost(self) -> float | None:
        """How many times slower reading is for it."""
        if not self.rows_per_s or self.fixed_rows_per_s is None:
            return None
        return self.fixed_rows_per_s / self.rows_per_s


@dataclass(frozen=True, slots=True)
class Suspects:
    """Everything in a file that may read badly, and what stands in the way of fixing it."""

    findings: tuple[Finding, ...]
    obstacle: str | None
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names to open sources with that cannot be opened without."""
    examples: str | None = None
    """A pattern of datasets each of which seems to be one example."""


def suspects_of(path: str, *, allow_external: bool = False) -> Suspects:
    """Look through the headers of a file.

    Raises
    ------
    FileFormatError
        If the file cannot be opened.
    """
    header = scan(path, decode_cf=False, name_all=True, allow_external=allow_external)
    pattern = pattern_of_datasets(header.sources)
    if pattern is not None:
        n = len(header.sources)
        words = f"{n:,} datasets; if each is one example, they are rows of one source"
        return Suspects((Finding(APART, pattern, None, words),), None, examples=pattern)
    whys = {name: why_not_undone(source.filters) for name, source in header.sources.items()}
    unreadable = [f"{name!r}: {why}" for name, why in whys.items() if why is not None]
    out = [each for source in header.sources.values() for each in _of_source(source)]
    if _can_be_ordered(header):
        out += [each for split, by in header.splits.items() for each in _of_split(split, by)]
    numbered = {s.name: s.dims for s in header.sources.values() if s.shapes_path and _unnamed(s)}
    try:
        extras_of(header)
    except NotYetError as error:
        return Suspects(tuple(out), str(error), numbered)
    return Suspects(tuple(out), "; ".join(unreadable) or None, numbered)


def _can_be_ordered(header: FileHeader) -> bool:
    """Whether rows can change places: every source has as many, and splits the same ones."""
    if len({source.n_rows for source in header.sources.values()}) != 1:
        return False
    try:
        order_of("splits", header.splits, next(iter(header.sources.values())).n_rows, 0)
    except SplitError:
        return False
    return True


def _of_source(source: SourceHeader) -> Iterator[Finding]:
    why = why_not_undone(source.filters)
    if why is not None:
        yield _found(source, UNREADABLE, why)
    elif source.ragged is not None:
        if "values" not in source.parts:
            yield _found(
                source,
                "rows of variable length",
                "every row lies in a heap, which no codec reaches and others read row by row",
                ragged="flat",
            )
    elif source.dtype.kind != "O":
        yield from _of_storage(source)
        yield from _of_chunks(source)
        yield from _of_codec(source)
    yield from _of_names(source)


def _found(source: SourceHeader, kind: str, words: str, **fix: Any) -> Finding:
    by_source = {k: v if k == "ragged" else {source.name: v} for k, v in fix.items()}
    return Finding(kind, source.name, None, words, by_source)


def _of_storage(source: SourceHeader) -> Iterator[Finding]:
    if source.storage in ("contiguous", "chunked", "empty", "sparse"):
        return
    why = open_reader(source).why
    yield _found(source, f"{source.storage} storage", f"read by HDF5: {why}", layout="contiguous")


def _of_chunks(source: SourceHeader) -> Iterator[Finding]:
    chunks = source.chunks
    if chunks is None or not source.n_rows or not source.row_bytes:
        return
    n_bytes = math.prod(chunks) * source.dtype.itemsize
    pieces = math.prod(-(-n // c) for n, c in zip(source.row_shape, chunks[1:], strict=True))
    size = format_bytes(n_bytes)
    fix: Options = {"chunks": "auto"} if source.filters else {"layout": "contiguous"}
    if pieces > 1:
        words = f"every row is cut into {pieces:,} pieces: chunks {chunks} for rows "
        yield _found(source, "chunks across rows", words + str(source.row_shape), **fix)
    elif -(-source.n_rows // chunks[0]) <= FEW_CHUNKS:
        return
    elif n_bytes < SMALL_CHUNK_BYTES and chunks[0] == 1:
        words = f"each of {source.n_rows:,} rows is a chunk of its own, of {size}"
        yield _found(source, "one-row chunks", words, **fix)
    elif n_bytes < SMALL_CHUNK_BYTES:
        words = f"{chunks[0]:,} rows to a chunk are only {size}"
        yield _found(source, "tiny chunks", words, **fix)
    elif n_bytes > LARGE_CHUNK_BYTES and source.filters:
        words = f"{chunks[0]:,} rows to a chunk are {size}, decoded for any one of them"
        yield _found(source, "huge chunks", words, **fix)


def _of_codec(source: SourceHeader) -> Iterator[Finding]:
    if not source.filters or not source.n_rows or not source.row_bytes:
        return
    names = "+".join(step.name or f"filter {step.id}" for step in source.filters)
    (n_stored,) = stored_bytes([source])
    ratio = source.n_rows * source.row_bytes / max(n_stored, 1)
    foreign = why_not(source.filters)
    if ratio < POOR_RATIO:
        words = f"{names} makes it only {ratio:.2f} times smaller"
        yield _found(source, "useless codec", words, layout="contiguous")
    elif foreign is not None:
        yield _found(source, SLOW_CODEC, foreign, compression="gzip")
    elif codec_of(source.filters)[0] == "gzip":
        words = (
            f"{names} makes it {ratio:.1f} times smaller, and zstd decodes faster; plain h5py "
            f"needs hdf5plugin for it"
        )
        yield _found(source, SLOW_CODEC, words, compression="zstd")


def _of_names(source: SourceHeader) -> Iterator[Finding]:
    unnamed = _unnamed(source)
    if unnamed:
        guess = _guess(source)
        words = f"axes {unnamed} have no name of their own; {guess} is a guess from their lengths"
        yield _found(source, "axes without names", words, dims=guess)


def _unnamed(source: SourceHeader) -> list[int]:
    """Return the axes of rows that are called by their number."""
    return [
        axis
        for axis, dim in enumerate(source.dims)
        if axis and dim == default_name(source.name, axis)
    ]


def _guess(source: SourceHeader) -> tuple[str, ...]:
    """Guess names from the lengths of axes; names that are there stay."""
    lengths, n = source.row_shape, len(source.dims) - 1
    usual = {2: ("height", "width"), 3: ("depth", "height", "width")}
    names = usual.get(n, tuple(f"axis_{i + 1}" for i in range(n)))
    if n == 1:
        names = (likely_axis(None if source.ragged is not None else lengths[0], source.dtype.kind),)
    elif source.ragged is not None:
        names = tuple(f"axis_{i + 1}" for i in range(n))
    elif n == 3 and lengths[0] in (1, 3, 4):
        names = ("channel", "height", "width")
    elif n == 3 and lengths[2] in (1, 3, 4):
        names = ("height", "width", "channel")
    kept = [
        dim if dim != default_name(source.name, axis) or axis == 0 else None
        for axis, dim in enumerate(source.dims)
    ]
    wanted = [kept[0] or "batch", *(own or name for own, name in zip(kept[1:], names, strict=True))]
    return tuple(
        name if wanted.count(name) == 1 else f"{name}_{axis}" for axis, name in enumerate(wanted)
    )


def _of_split(split: str, by_source: Mapping[str, Rows]) -> Iterator[Finding]:
    rows = next((rows for rows in by_source.values() if isinstance(rows, np.ndarray)), None)
    if rows is None or len(rows) < 2 * SHORT_RUN_ROWS:
        return
    n_runs = 1 + int((np.diff(rows) != 1).sum())
    if len(rows) / n_runs < SHORT_RUN_ROWS:
        words = f"{len(rows):,} rows lie in {n_runs:,} places of the file"
        yield Finding("scattered split", None, split, words, {"order": "splits"})


def summed_up(findings: Iterable[Finding]) -> list[tuple[Finding, str]]:
    """Return the first of findings alike, and where all of them are, in words.

    Alike are those of one kind whose words differ in numbers only.

    Examples
    --------
    >>> some = (Finding("tiny chunks", name, None, f"{len(name)} rows") for name in ("x", "ab"))
    >>> [(first.source, where) for first, where in summed_up(some)]
    [('x', 'x and 1 more')]
    """
    alike: dict[tuple[Any, ...], list[Finding]] = {}
    for each in findings:
        kind = each.kind, each.source is None, each.cost is None
        alike.setdefault((*kind, re.sub("[0-9][0-9,.]*", "0", each.words)), []).append(each)
    return [
        (same[0], same[0].where + f" and {len(same) - 1} more" * (len(same) > 1))
        for same in alike.values()
    ]


# remedies


def merged(findings: Iterable[Finding]) -> Options:
    """Return one set of options that fixes everything.

    Examples
    --------
    >>> merged([Finding("", "x", None, "", {"chunks": {"x": "auto"}}),
    ...         Finding("", "x", None, "", {"layout": {"x": "contiguous"}})])
    {'layout': {'x': 'contiguous'}}
    """
    out: Options = {}
    for finding in findings:
        for option, value in finding.fix.items():
            out[option] = {**out.get(option, {}), **value} if isinstance(value, Mapping) else value
    plain = {name for name, layout in out.get("layout", {}).items() if layout == "contiguous"}
    for option in ("chunks", "compression"):
        kept = {name: value for name, value in out.get(option, {}).items() if name not in plain}
        if kept:
            out[option] = kept
        else:
            out.pop(option, None)
    return out


def command(path: str, target: str, options: Mapping[str, Any], names: Collection[str]) -> str:
    """Return the command line that repacks, or converts, a file, ready to be run by a shell.

    Sources that differ by digits alone (`names` are all there are) are said at once.

    Examples
    --------
    >>> command("a b.h5", "c.h5", {"chunks": {"x": "auto"}, "order": "splits"}, ["x", "y"])
    "labeled repack 'a b.h5' c.h5 --chunks x=auto --order splits"
    """
    verb = "convert" if "examples" in options else "repack"
    words = ["labeled", verb, shlex.quote(path), shlex.quote(target)]
    for option, value in options.items():
        if value is True:
            words.append(f"--{option.replace('_', '-')}")
        elif isinstance(value, Mapping):
            for name, one in shortened(value, names).items():
                words += [f"--{option}", shlex.quote(f"{name}={_word(one)}")]
        else:
            words += [f"--{option}", shlex.quote(_word(value))]
    return " ".join(words)


def _word(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    return "none" if value is None else str(value)
