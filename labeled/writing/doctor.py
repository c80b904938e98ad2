"""``labeled.doctor``: what reads badly in a file, what it costs here, and what fixes it.

A file is judged by its headers and the lists of its splits; no row is read for that. A remedy is a
set of options of :func:`labeled.repack`. Of the largest sources that have some, a sample of rows is
written as the printed command would, and read in shuffled batches, turn by turn with the same rows
of the file. So short a measurement is good for factors, not for percents.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from time import perf_counter
from typing import Any

import numpy as np
from dask.utils import format_bytes

from labeled._validation import check_arguments
from labeled.dims import default_name
from labeled.display.text import Summary, Table, Viewed
from labeled.errors import LabeledWarning, LoaderError, NotYetError, SplitError
from labeled.formats.hdf5.arrays import pattern_of_datasets
from labeled.formats.hdf5.extras import extras_of
from labeled.formats.hdf5.filters import why_not, why_not_by_hdf5
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.labels import likely_dims
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.hdf5.safety import stored_bytes
from labeled.formats.header import FileHeader, SourceHeader
from labeled.formats.reader import read_rows
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import parts_of
from labeled.loader.loader import Loader
from labeled.loader.options import BatchOptions
from labeled.loader.plan import LoaderPlan
from labeled.selection import Selection
from labeled.sources.source import Source
from labeled.writing.layouts import by_patterns, codec_of
from labeled.writing.splits import order_of
from labeled.writing.write import Path, write

SMALL_CHUNK_BYTES, LARGE_CHUNK_BYTES = 16 << 10, 4 << 20
FEW_CHUNKS = 4  # a source of so few is small whatever their shape
POOR_RATIO = 1.15  # a codec that makes a source smaller by less gains nothing
SHORT_RUN_ROWS = 8  # a list whose rows follow one another for less, on average, is scattered

SAMPLE_BYTES, WINDOW_BYTES = 16 << 20, 8 << 20
BATCH_ROWS, N_TURNS = 256, 3
MAX_MEASURED = 8  # sources that are measured: of more, the largest

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
        Of its source, in shuffled batches: as the file is, and once all that was found of that
        source is fixed. None where it was not measured.
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


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis(Viewed):
    """What :func:`labeled.doctor` found.

    Attributes
    ----------
    path : str
    findings : tuple of Finding
    options : mapping
        Options of :func:`labeled.repack` that fix all of them; of :func:`labeled.convert` where
        there is ``examples=``, since each dataset seems to be one example.
    command : str or None
        The same as a command line; None where nothing is found, or nothing can be done.
    obstacle : str or None
        Why the file cannot be repacked, though it should be.
    """

    path: str
    findings: tuple[Finding, ...]
    options: Mapping[str, Any]
    command: str | None
    obstacle: str | None = None

    @property
    def healthy(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def _summary(self) -> Summary:
        if self.healthy:
            return Summary(f"{self.path}: no slow layouts found")
        alike: dict[Any, list[Finding]] = {}  # of one kind, whose words differ in numbers only
        for each in self.findings:
            words = re.sub("[0-9][0-9,.]*", "0", each.words)
            alike.setdefault((each.kind, each.source is None, words), []).append(each)
        rows = []
        for first, *others in alike.values():
            where = first.where + f" and {len(others)} more" * bool(others)
            now, then, rates = first.rows_per_s, first.fixed_rows_per_s, ("", "", "")
            if now and then:
                rates = (f"{now:,.0f}", f"{then:,.0f}", f"{then / now:.1f} x")
            rows.append((where, first.kind, *rates, first.words))
        head = ("where", "finding", "rows/s", "fixed", "gain", "details")
        parts: list[str | Table] = [Table(head, rows, most=len(rows))]
        if self.command is not None:
            parts += ["", "fix it with:", f"  {self.command}"]
        elif self.obstacle is not None:
            parts += ["", f"it cannot be repacked yet: {self.obstacle}"]
        return Summary(f"{self.path}:", parts=parts)


@check_arguments(but=("path",))
def doctor(
    path: Path, *, target: str | None = None, seconds: float = 0.3, allow_external: bool = False
) -> Diagnosis:
    """Find what will read badly in a file, measure what it costs, and return what fixes it.

    What writers of the file left behind beside it when they were killed is found as well, and
    removed if they are known to be gone.

    Parameters
    ----------
    path : path
        An HDF5 file.
    target : str, optional
        The file that the command writes; a free name beside the file if not given.
    seconds : float
        How long each measurement takes, at least; 0 measures nothing. Samples of up to 16 MiB
        are written to the folder for temporary files and removed again. Of more than 8 sources
        the largest are measured.
    allow_external : bool
        Follow links and storage out of the file; only for files that you trust.

    Returns
    -------
    Diagnosis

    Raises
    ------
    FileFormatError
        If the file cannot be opened.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> names = {"x": ("batch", "feature")}
    >>> path = labeled.write(path, {"x": np.zeros((5000, 9), "u1")}, dims=names, chunks=1)
    >>> [finding.kind for finding in labeled.doctor(path).findings]
    ['one-row chunks']
    """
    name = os.path.expanduser(str(path))
    left = tuple(_left_behind(name))
    if left and not os.path.exists(name):
        return Diagnosis(name, left, {}, None)
    check_hdf5(path, "the doctor")
    with warnings.catch_warnings():  # a finding tells what these would
        for message in (".* does not name every axis", ".* datasets alike, "):
            warnings.filterwarnings("ignore", message, LabeledWarning)
        header = scan(name, decode_cf=False, name_all=True, allow_external=allow_external)
    sources, where = header.sources, header.stamp.path
    pattern, obstacle = pattern_of_datasets(sources), None
    if pattern is not None:
        words = f"{len(sources):,} datasets; if each is one example, they are rows of one source"
        found = [Finding("examples apart", pattern, None, words, {"examples": pattern})]
    else:
        found = [each for source in sources.values() for each in _of_source(source)]
        found += _of_splits(header)
        obstacle = _obstacle(header) if found else None
    if not found:
        return Diagnosis(where, left, {}, None)
    options = merged(found) | ({"allow_external": True} if allow_external else {})
    if obstacle is not None:
        return Diagnosis(where, (*found, *left), options, None, obstacle)
    stem, suffix = os.path.splitext(name)
    targets = (f"{stem}.fixed{number}{suffix}" for number in ("", *range(2, 1 << 20)))
    target = target or next(target for target in targets if not os.path.exists(target))
    line = command(name, target, options, sources)
    if seconds and pattern is None:
        found = _measured(found, sources, seconds)
    return Diagnosis(where, (*found, *left), options, line)


def _left_behind(path: str) -> Iterator[Finding]:
    """Find the parts of a file that nobody writes any more, and remove those known to be dead."""
    for part in parts_of(os.path.realpath(path)):
        words = part.path
        if part.state == "dead":
            part.remove()
            gone = "removed now" if not os.path.lexists(part.path) else "not removable by this user"
            words += f": process {part.process} was killed; {gone}"
        elif part.state == "unknown":
            words += (
                f" was begun on another machine, in another container, or before a restart; once "
                f"nobody writes it: rm {shlex.quote(part.path)}"
            )
        if part.state != "living":
            yield Finding("left behind", None, None, words)


def _obstacle(header: FileHeader) -> str | None:
    """Return why a file cannot be repacked."""
    try:
        extras_of(header)
    except NotYetError as error:
        return str(error)
    filters = {name: source.filters for name, source in header.sources.items()}
    whys = {name: why_not(each) and why_not_by_hdf5(each) for name, each in filters.items()}
    return "; ".join(f"{name!r}: {why}" for name, why in whys.items() if why is not None) or None


def _of_source(source: SourceHeader) -> Iterator[Finding]:
    why = why_not(source.filters) and why_not_by_hdf5(source.filters)
    if why is not None:
        yield _found(source, "cannot be read", why)
    elif source.ragged is not None:
        if "values" not in source.parts:
            words = "every row lies in a heap, which no codec reaches and others read row by row"
            yield _found(source, "rows of variable length", words, ragged="flat")
    elif source.dtype.kind != "O":
        if source.storage not in ("contiguous", "chunked", "empty", "sparse"):
            words = f"read by HDF5: {open_reader(source).why}"
            yield _found(source, f"{source.storage} storage", words, layout="contiguous")
        if source.chunks is not None and source.n_rows and source.row_bytes:
            yield from _of_chunks(source, source.chunks)
    default = [default_name(source.name, axis) for axis in range(len(source.dims))]
    unnamed = [i for i, dim in enumerate(source.dims) if i and dim == default[i]]
    if unnamed:
        likely = enumerate(likely_dims(source, unnamed))
        guess = tuple(f"axis_{i}" if i and dim == default[i] else dim for i, dim in likely)
        words = f"axes {unnamed} have no name of their own; {guess} is a guess from their lengths"
        yield _found(source, "axes without names", words, dims=guess)


def _found(source: SourceHeader, kind: str, words: str, **fix: Any) -> Finding:
    by_source = {k: v if k == "ragged" else {source.name: v} for k, v in fix.items()}
    return Finding(kind, source.name, None, words, by_source)


def _of_chunks(source: SourceHeader, chunks: tuple[int, ...]) -> Iterator[Finding]:
    n_bytes = math.prod(chunks) * source.dtype.itemsize
    pieces = math.prod(-(-n // c) for n, c in zip(source.row_shape, chunks[1:], strict=True))
    size, rows = format_bytes(n_bytes), f"{chunks[0]:,} rows to a chunk are"
    kind = words = ""
    if pieces > 1:
        kind = "chunks across rows"
        words = f"rows of {source.row_shape} are cut into {pieces:,} pieces by chunks {chunks}"
    elif -(-source.n_rows // chunks[0]) <= FEW_CHUNKS:
        pass
    elif n_bytes < SMALL_CHUNK_BYTES:
        kind, words = "tiny chunks", f"{rows} only {size}"
        if chunks[0] == 1:
            kind, words = "one-row chunks", f"each of {source.n_rows:,} rows is a chunk of {size}"
    elif n_bytes > LARGE_CHUNK_BYTES and source.filters:
        kind, words = "huge chunks", f"{rows} {size}, decoded for any one of them"
    if kind:
        fix: Options = {"chunks": "auto"} if source.filters else {"layout": "contiguous"}
        yield _found(source, kind, words, **fix)
    if not source.filters:
        return
    names = "+".join(step.name or f"filter {step.id}" for step in source.filters)
    (n_stored,) = stored_bytes([source])
    ratio = source.n_rows * source.row_bytes / max(n_stored, 1)
    foreign = why_not(source.filters)
    if ratio < POOR_RATIO:
        words = f"{names} makes it only {ratio:.2f} times smaller"
        yield _found(source, "useless codec", words, layout="contiguous")
    elif foreign is not None:
        yield _found(source, "slow codec", foreign, compression="gzip")


def _of_splits(header: FileHeader) -> Iterator[Finding]:
    """Find lists of rows that lie scattered, where rows of chunks can change places."""
    try:
        counts = {name: source.n_rows for name, source in header.sources.items()}
        order_of("splits", header.splits, counts, 0)
    except SplitError:
        return
    for split, by_source in header.splits.items():
        lists = [rows for rows in by_source.values() if isinstance(rows, np.ndarray)]
        chunked = any(header.sources[name].chunks is not None for name in by_source)
        if not chunked or not lists or len(lists[0]) < 2 * SHORT_RUN_ROWS:
            continue
        n_runs = 1 + int((np.diff(lists[0]) != 1).sum())
        if len(lists[0]) / n_runs < SHORT_RUN_ROWS:
            words = f"{len(lists[0]):,} rows lie in {n_runs:,} places of the file"
            yield Finding("scattered split", None, split, words, {"order": "splits"})


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
        out[option] = {name: v for name, v in out.get(option, {}).items() if name not in plain}
    return {option: value for option, value in out.items() if value}


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
        flag = f"--{option.replace('_', '-')}"
        value = by_patterns(value, names) if isinstance(value, Mapping) else value
        words += [flag] if value is True else words_of_option(flag, value)
    return " ".join(words)


def words_of_option(flag: str, value: Any) -> list[str]:
    """Return an option with its value as a shell takes it, once for each name of a mapping.

    Examples
    --------
    >>> print(*words_of_option("--dims", {"x": ["batch", "a b"], "y": ["k=1"]}))
    --dims 'x=batch,a b' --dims 'y=["k=1"]'
    """
    if not isinstance(value, Mapping):
        return [flag, shlex.quote(_option_word(value))]
    each = (shlex.quote(f"{name}={_option_word(one)}") for name, one in value.items())
    return [word for pair in each for word in (flag, pair)]


def _option_word(value: Any) -> str:
    """Return the value of an option as the command line takes it."""
    if isinstance(value, tuple | list):
        words = [str(one) for one in value]
        letters = "".join(words)
        return json.dumps(words) if "," in letters or "=" in letters else ",".join(words)
    return "none" if value is None else str(value)


# what findings cost here


def _measured(
    found: list[Finding], sources: Mapping[str, SourceHeader], seconds: float
) -> list[Finding]:
    """Return findings with the rates of the largest sources, as they are and as they would be."""
    fixes = {n: merged(one for one in found if one.source == n) for n in sources}
    able = [n for n, fix in fixes.items() if set(fix) - {"dims"} and sources[n].n_rows > 1]
    able.sort(key=lambda name: -sources[name].n_rows * sources[name].row_bytes)
    for name in able[:MAX_MEASURED]:
        now, then = _rates(sources[name], fixes[name], seconds)
        for at, one in enumerate(found):
            if one.source == name and set(one.fix) - {"dims"}:
                found[at] = replace(one, rows_per_s=now, fixed_rows_per_s=then)
    return found


def _rates(header: SourceHeader, fix: Options, seconds: float) -> tuple[float, float]:
    """Return rows a second of a source as it is and stored otherwise: the best of some turns.

    Its first rows are read: whole chunks, of about SAMPLE_BYTES.
    """
    source, step = Source.of((header,)), 1 if header.chunks is None else header.chunks[0]
    rows, row_bytes = Selection.all(header.n_rows), header.row_bytes
    codec, level = codec_of(header.filters)
    options: Any = {"layout": "chunked", "compression": codec, "level": level}
    if header.ragged is not None:
        row_bytes = source.select(rows).nbytes // header.n_rows
        options = {"ragged": fix["ragged"]}
    elif "layout" in fix:
        options = {"layout": "contiguous"}
    elif "compression" in fix:
        options |= {"compression": fix["compression"][header.name], "level": None}
    rows = rows[: -(-max(SAMPLE_BYTES // max(row_bytes, 1), 2) // step) * step]
    first = range(len(rows))
    sample = source.select(rows) if header.ragged else read_rows(open_reader(header), first)
    with tempfile.TemporaryDirectory(prefix="labeled-doctor-") as folder:
        path = os.path.join(folder, "sample.hdf5")
        write(path, {"rows": sample}, statistics=False, checksums=False, **options)
        fixed = Source.of((scan(path, decode_cf=False, quiet=True).sources["rows"],))
        loaders, best = [_shuffled(source, rows), _shuffled(fixed, rows)], [0.0, 0.0]
        for _ in range(N_TURNS):
            for place, loader in enumerate(loaders):
                n_rows, began, took = 0, perf_counter(), 0.0
                for batch in chain.from_iterable(repeat(loader)):
                    n_rows, took = n_rows + batch.count, perf_counter() - began
                    if took >= seconds / N_TURNS:
                        break
                best[place] = max(best[place], n_rows / took)
    return best[0], best[1]


def _shuffled(source: Source, rows: Selection) -> Loader:
    """Return shuffled batches, in windows as small to the sample as usual ones to a file."""
    options = BatchOptions(BATCH_ROWS, shuffle=True, seed=0, ragged="flat", memory=WINDOW_BYTES)
    sources, selections = {source.name: source}, {source.name: rows}
    try:
        return Loader(LoaderPlan(sources, selections, {}, len(rows), options))
    except LoaderError:  # its chunks are too large for that
        larger = replace(options, memory=None)
        return Loader(LoaderPlan(sources, selections, {}, len(rows), larger))
