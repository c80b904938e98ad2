"""``labeled.doctor``: what reads badly in a file, what it costs here, and what fixes it.

Findings come from :mod:`labeled.writing.diagnosis`. Each is tried out: some rows of the file are
copied with nothing but its remedy applied, a set of options of :func:`labeled.repack`, and both are
read in shuffled batches for a fraction of a second. Codecs and lists of rows that cost nothing here
are left unsaid; what is wrong whatever it costs (one-row chunks, say) is reported with its figures.

The trade-off: measurements this short are good for factors, not for percents, and rows
come from the system's cache as they would in a later epoch.
"""

from __future__ import annotations

import heapq
import os
import shlex
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from dask.utils import format_bytes

from labeled._validation import check_arguments
from labeled.dataset.dataset import Dataset
from labeled.dataset.files import find_files
from labeled.dataset.opening import open_dataset
from labeled.display.progress import progress_bar
from labeled.display.text import table
from labeled.errors import FileFormatError, LabeledWarning, LoaderError, MissingExtraError
from labeled.formats.header import SourceHeader
from labeled.formats.registry import check_hdf5
from labeled.formats.replacing import parts_of
from labeled.loader.loader import Loader
from labeled.writing.diagnosis import (
    APART,
    SLOW_CODEC,
    UNREADABLE,
    Finding,
    command,
    merged,
    summed_up,
    suspects_of,
)
from labeled.writing.layouts import stored_options
from labeled.writing.write import write

SAMPLE_BYTES = 16 << 20
LARGEST_SAMPLE_BYTES = 64 << 20
"""Samples grow to this where stored chunks are large."""

WINDOW_BYTES = 8 << 20
SAMPLE_S = 1.0
BATCH_ROWS = 256
MIN_EPOCHS = 4
MAX_MEASURED = 16
"""Sources that are tried out: of more, the largest."""

WORTHWHILE = 1.2
"""From this factor on another codec, or order, is proposed."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What :func:`doctor` found.

    Attributes
    ----------
    path : str
    findings : tuple of Finding
        The dearest first; those that cost no time last.
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

    def __str__(self) -> str:
        if self.healthy:
            return f"{self.path}: no slow layouts found"
        head = ("where", "finding", "rows/s", "fixed", "cost", "details")
        alike = summed_up(self.findings)
        lines = [f"{self.path}:", *table([head, *(_row(first, where) for first, where in alike)])]
        if self.command is not None:
            lines += ["", "fix it with:", f"  {self.command}"]
        elif self.obstacle is not None:
            lines += ["", f"it cannot be repacked yet: {self.obstacle}"]
        return "\n".join(lines)


def _row(finding: Finding, where: str) -> tuple[str, ...]:
    rates = ("", "", "")
    if finding.cost is not None:
        now, then = finding.rows_per_s, finding.fixed_rows_per_s
        rates = (f"{now:,.0f}", f"{then:,.0f}", f"{finding.cost:.1f} x")
    return (where, finding.kind, *rates, finding.words)


@check_arguments(but=("path",))
def doctor(
    path: str | os.PathLike[str],
    *,
    target: str | None = None,
    seconds: float = 0.3,
    allow_external: bool = False,
    progress: bool | None = None,
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
        How long each measurement takes, at least. Samples of rows (16 to 64 MiB) are written
        to the folder for temporary files and removed again. Of more than 16 sources the
        largest are measured.
    allow_external : bool
        Follow links and storage out of the file; only for files that you trust.
    progress : bool, optional
        Show how many findings were tried out. By default on a terminal and in a notebook, once
        it has taken two seconds.

    Returns
    -------
    Diagnosis

    Raises
    ------
    FileFormatError
        If the file cannot be opened, or is several files.

    Examples
    --------
    >>> import labeled, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "x.hdf5")
    >>> names = {"x": ("batch", "feature")}
    >>> path = labeled.write(path, {"x": np.zeros((5000, 9), "u1")}, dims=names, chunks=1)
    >>> [finding.kind for finding in labeled.doctor(path).findings]
    ['one-row chunks']
    """
    check_hdf5(path, "the doctor")
    paths = find_files(path)
    if len(paths) > 1:
        raise FileFormatError(f"{os.fspath(path)!r} means {len(paths)} files; name one")
    where = paths[0]
    left = _left_behind(where)
    if left and not os.path.exists(where):
        return Diagnosis(where, tuple(left), {}, None)
    with warnings.catch_warnings():  # a finding tells what these would
        for message in (".* does not name every axis", ".* datasets alike, "):
            warnings.filterwarnings("ignore", message, LabeledWarning)
        suspects = suspects_of(where, allow_external=allow_external)
        dataset = open_dataset(
            where, decode_cf=False, dims=suspects.dims, allow_external=allow_external
        )
        skipped = {f.source for f in suspects.findings if f.kind == UNREADABLE and f.source}
        with tempfile.TemporaryDirectory(prefix="labeled-doctor-") as folder:
            trial = _Trial(dataset, folder, seconds, frozenset(skipped))
            found = trial.run(suspects.findings, progress)
    options = {**merged(found), **({"allow_external": True} if found and allow_external else {})}
    if suspects.examples is not None:
        options["examples"] = suspects.examples
    words = None
    if found and suspects.obstacle is None:
        named = os.fspath(path) if os.path.isfile(path) else where
        words = command(named, target or _free_name(named), options, dataset.sources)
    obstacle = suspects.obstacle if found else None
    return Diagnosis(where, (*found, *left), options, words, obstacle)


def _left_behind(path: str) -> list[Finding]:
    """Find the parts of a file that nobody writes any more, and remove those known to be dead."""
    found = []
    for part in parts_of(os.path.realpath(path)):
        size = format_bytes(part.n_bytes)
        if part.state == "dead":
            part.remove()
            gone = "removed now" if not os.path.lexists(part.path) else "not removable by this user"
            words = f"{part.path} ({size}): process {part.process} was killed; {gone}"
        elif part.state == "unknown":
            words = (
                f"{part.path} ({size}) was begun on another machine, in another container, or "
                f"before a restart; once nobody writes it: rm {shlex.quote(part.path)}"
            )
        else:
            continue
        found.append(Finding("left behind", None, None, words))
    return found


def _free_name(path: str) -> str:
    stem, suffix = os.path.splitext(path)
    targets = (f"{stem}.fixed{number}{suffix}" for number in ("", *range(2, 1 << 20)))
    return next(target for target in targets if not os.path.exists(target))


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """Rows of a file, tried out as they are and stored otherwise."""

    dataset: Dataset
    folder: str
    seconds: float
    skipped: frozenset[str] = frozenset()
    """Sources that cannot be read."""

    def run(self, findings: Sequence[Finding], progress: bool | None) -> list[Finding]:
        """Try findings out; return them with their costs.

        All but the largest sources are reported without figures. What only a measurement could
        recommend, a list of rows or another codec, is left out where it is not measured.
        """
        there = self.dataset.files.known.sources
        names = sorted({f.source for f in findings if f.source is not None and f.source in there})
        largest = heapq.nlargest(
            MAX_MEASURED, names, key=lambda name: there[name].n_rows * there[name].row_bytes
        )
        tried = [f for f in findings if f.source is None or f.source in largest]
        others = (f for f in findings if f.source is not None and f.source not in largest)
        found = [f for f in others if f.kind != SLOW_CODEC]
        with progress_bar(progress, len(tried), "trying out", "findings") as done:
            for each in tried:
                measured = self._measured(each, findings)
                found += [] if measured is None else [measured]
                done(1)
        return sorted(found, key=lambda each: -(each.cost or 0))

    def _measured(self, finding: Finding, others: Sequence[Finding]) -> Finding | None:
        """Return a finding with its cost; None for lists and codecs that cost nothing here."""
        if "dims" in finding.fix or finding.kind in (APART, UNREADABLE):
            return finding
        some = self._rows(finding)
        if some is None:
            return None
        before, fix = some, finding.fix
        if finding.kind == SLOW_CODEC:  # chunks that must change too decide what a codec can do
            same = [f for f in others if f.source == finding.source and "chunks" in f.fix]
            before, fix = self._stored(some, merged(same), "before"), merged([*same, finding])
        try:
            now, then = self._rates(before, self._stored(some, fix))
        except MissingExtraError:
            return None
        tried = replace(finding, rows_per_s=now, fixed_rows_per_s=then)
        # once chunks are fixed, an index list costs more of them
        packed = finding.split is not None and bool(self._header(some).filters)
        unsure = finding.kind == SLOW_CODEC or (finding.split is not None and not packed)
        return None if unsure and (tried.cost or 0) < WORTHWHILE else tried

    def _rows(self, finding: Finding) -> Dataset | None:
        """Return the rows that a finding is tried out on; None where there are too few."""
        whole = self.dataset if finding.split is None else self.dataset.split(finding.split)
        if finding.source is not None:
            whole = whole.select(finding.source)
        else:
            dense = [n for n in whole.spaces if n not in self.skipped]
            if not dense:
                return None
            whole = whole.select(max(dense, key=lambda name: whole[name].nbytes))
        if whole.n_rows < 2:
            return None
        row_bytes = max(int(whole[whole.sources[0]].nbytes) // whole.n_rows, 1)
        wanted = max(SAMPLE_BYTES // row_bytes, 2)
        chunk_rows = self.dataset.files.catalog.sources[whole.sources[0]].layout.chunk_rows
        if chunk_rows and chunk_rows * row_bytes <= LARGEST_SAMPLE_BYTES:
            wanted = -(-wanted // chunk_rows) * chunk_rows
        few = whole.subset(slice(min(wanted, 4 * BATCH_ROWS)))
        started = perf_counter()
        few.load()
        slow = int(SAMPLE_S * few.n_rows / max(perf_counter() - started, 1e-9))
        return whole.subset(slice(min(wanted, max(slow, few.n_rows))))

    def _header(self, some: Dataset) -> SourceHeader:
        (name,) = some.sources
        return self.dataset.files.catalog.sources[name].headers[0]

    def _stored(self, some: Dataset, fix: Mapping[str, Any], name_of: str = "sample") -> Dataset:
        """Write rows as the file has them, but for a remedy; return them opened."""
        (name,) = some.sources
        options: dict[str, Any] = {
            "overwrite": True,
            "statistics": False,
            "checksums": False,
            "progress": False,
        }
        options |= stored_options(self._header(some), name, fix)
        path = write(os.path.join(self.folder, f"{name_of}.hdf5"), some, **options)
        return open_dataset(path, decode_cf=False).select(name)

    def _rates(self, *datasets: Dataset) -> tuple[float, float]:
        """Return rows a second of two datasets in shuffled batches: the best of some epochs.

        They take turns: whatever else the machine does slows some epochs of both then, and not
        all of one.
        """
        best, epoch, begun = [0.0, 0.0], 0, perf_counter()
        while epoch < MIN_EPOCHS or perf_counter() - begun < 2 * self.seconds:
            for place, rows in enumerate(datasets):
                done, started = 0, perf_counter()
                for batch in _shuffled(rows, epoch):
                    done += batch.count
                    if perf_counter() - started >= self.seconds:
                        break
                best[place] = max(best[place], done / (perf_counter() - started))
            epoch += 1
        return best[0], best[1]


def _shuffled(rows: Dataset, seed: int) -> Loader:
    """Return shuffled batches, in windows as small to the sample as usual ones to a file."""
    try:
        return rows.batches(BATCH_ROWS, shuffle=True, seed=seed, ragged="flat", memory=WINDOW_BYTES)
    except LoaderError:  # chunks too large for it
        return rows.batches(BATCH_ROWS, shuffle=True, seed=seed, ragged="flat")
