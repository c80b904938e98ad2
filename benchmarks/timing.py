"""How everything is timed: one consumer for all, repeats that take turns, medians.

The consumer touches one byte of every cache line of every batch, whoever made it. All ways
of a workload run in one process and take turns, so that whatever else the machine does falls
on all of them; ratios are medians of ratios within a round. The first epoch of each way warms
up (mappings, memory pools, compiled code) and tells its order; later ones are counted.

A way too slow for a whole epoch is stopped after a time limit (four limits where it fills
windows, or has handed out only a few batches by then); its rate is that of what ran, time to
the first batch included, as it is for whole epochs.
"""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.subject import Array, Batch, Subject
from labeled.samplers.quality import batch_entropies

Epoch = Callable[[], Iterator[Batch | int]]
"""Starts an epoch: batches, or numbers of rows that were touched where they were read."""

LINE_BYTES = 64
REFERENCE_BATCHES = 500
FEW_BATCHES = 12
PATIENCE = 4


@dataclass(frozen=True)
class Way:
    """One way to get batches from a file.

    Parameters
    ----------
    name : str
    kind : str
        "bare", "ours" or "peer".
    order : str
        "file", "full", "window" or "list".
    how : str
        What it does, in a line: peers as their own documentation advises.
    make : callable
        Opens everything; returns what starts an epoch.
    explain : callable, optional
        For ours: the loader's own explanation.
    needs : tuple of str
        Libraries beside those that every installation has.
    """

    name: str
    kind: str
    order: str
    how: str
    make: Callable[[], Epoch]
    explain: Callable[[], Any] | None = None
    needs: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """A name that no other way to read the same rows has."""
        return f"{self.name}, {self.order}"


@dataclass
class Run:
    """What one epoch, or the beginning of one, took."""

    n_rows: int = 0
    n_batches: int = 0
    seconds: float = 0.0
    first_s: float = 0.0
    complete: bool = False

    @property
    def rows_per_s(self) -> float:
        return self.n_rows / max(self.seconds, 1e-9)


@dataclass
class Measured:
    """A way and everything that was found out about it."""

    way: Way
    open_s: float = 0.0
    runs: list[Run] = field(default_factory=list)
    first_batch_s: float = 0.0
    entropy: float | None = None
    """Mean entropy of the labels of a batch, relative to a full shuffle."""
    holds_each_row_once: bool | None = None
    predicted: float | None = None
    peak_bytes: int | None = None
    promised_bytes: int | None = None
    error: str | None = None
    mode: str | None = None
    """The order that this library chose."""
    kept: bool = False
    """Whether the rows fit the memory, so that later epochs read nothing."""
    surveyed: bool = False
    """Whether the only run so far is the one that warmed up, cut short."""

    @property
    def rates(self) -> list[float]:
        return [run.rows_per_s for run in self.runs]

    @property
    def median(self) -> float | None:
        return statistics.median(self.rates) if self.runs else None

    @property
    def best(self) -> float | None:
        return max(self.rates) if self.runs else None

    @property
    def spread(self) -> float | None:
        """Half of the distance between quartiles, relative to the median."""
        if len(self.runs) < 4:
            return None
        low, _, high = statistics.quantiles(self.rates, n=4)
        return (high - low) / 2 / statistics.median(self.rates)

    @property
    def complete(self) -> bool:
        return bool(self.runs) and all(run.complete for run in self.runs)


def touch(array: Array) -> int:
    """Read one byte of each cache line.

    Examples
    --------
    >>> touch(np.arange(200, dtype=np.uint8))  # bytes 0, 64, 128, 192; modulo 256
    128
    """
    if array.dtype.hasobject:
        return sum(map(touch, array))
    lines = np.ascontiguousarray(array).reshape(-1).view(np.uint8)[::LINE_BYTES]
    return int(np.add.reduce(lines, dtype=np.uint8))


def run(epoch: Epoch, limit_s: float, see: Callable[[Batch], object] | None = None) -> Run:
    """Consume an epoch for at most about `limit_s`."""
    out = Run()
    began = perf_counter()
    batches = epoch()
    try:
        for batch in batches:
            if isinstance(batch, int):
                out.n_rows += batch
            else:
                for array in batch:
                    touch(array)
                out.n_rows += len(batch[0])
                if see is not None:
                    see(batch)
            out.n_batches += 1
            out.seconds = perf_counter() - began
            if out.n_batches == 1:
                out.first_s = out.seconds
            if out.seconds > limit_s and (
                out.n_batches >= FEW_BATCHES or out.seconds > PATIENCE * limit_s
            ):
                return out
        out.complete, out.seconds = True, perf_counter() - began
        return out
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()


@dataclass(frozen=True)
class Effort:
    """How long measuring may take."""

    limit_s: float
    """Of one epoch."""
    way_s: float
    """Of all counted epochs of one way."""
    rounds: int


def measure(ways: Sequence[Way], subject: Subject, effort: Effort) -> list[Measured]:
    """Measure ways that read the same rows, turn by turn."""
    settle_allocator()
    found = [Measured(way) for way in ways]
    epochs = [_survey(each, subject, effort) for each in found]
    spent = [sum(r.seconds for r in each.runs) for each in found]
    for _ in range(effort.rounds):
        gc.collect()
        for i, (each, epoch) in enumerate(zip(found, epochs, strict=True)):
            if epoch is None or spent[i] >= effort.way_s:
                continue
            if each.runs and not each.runs[0].complete and each.surveyed:
                each.runs.clear()
            each.surveyed = False
            each.runs.append(run(epoch, limit_of(each.way, effort)))
            spent[i] += each.runs[-1].seconds
    return found


def limit_of(way: Way, effort: Effort) -> float:
    """Windows come in bursts: a few of them must pass before a rate means anything."""
    return effort.limit_s * (PATIENCE if way.order in ("window", "list") else 1)


def _survey(each: Measured, subject: Subject, effort: Effort) -> Epoch | None:
    """Open a way and run its first epoch: its order, its first batch, whether it works."""
    classes: list[Array] = []
    numbers: list[npt.NDArray[np.int64]] = []

    def see(batch: Batch) -> None:
        numbers.append(subject.numbers(batch))
        classes.append(subject.labels_of(batch))

    try:
        began = perf_counter()
        epoch = each.way.make()
        each.open_s = perf_counter() - began
        first = run(epoch, limit_of(each.way, effort), see)
        if each.way.explain is not None:
            told = each.way.explain()
            each.predicted, each.promised_bytes = told.quality, told.promised_bytes
            each.kept, each.mode = (
                all(source_reader.kept for source_reader in told.sources),
                told.mode,
            )
    except Exception as error:  # a peer that fails is reported, and the others go on
        each.error = f"{type(error).__name__}: {error}"
        return None
    each.first_batch_s = each.open_s + first.first_s
    if not first.complete:
        ours = each.way.kind == "ours"  # an epoch in which kernels were compiled tells no pace
        each.runs.append(run(epoch, limit_of(each.way, effort)) if ours else first)
        each.surveyed = True
    if classes:
        each.entropy = relative_entropy(classes, subject.labels, subject.batch_rows)
    if numbers and first.complete and each.way.order != "list":
        seen = np.sort(np.concatenate(numbers))
        each.holds_each_row_once = bool(np.array_equal(seen, np.arange(subject.n_rows)))
    return epoch


def relative_entropy(classes: list[Array], labels: Array, batch_rows: int) -> float | None:
    """Return the mean entropy of the labels of the full batches, relative to a full shuffle."""
    full = [batch for batch in classes if len(batch) == batch_rows]
    if not full:
        return None
    best = reference_entropy(labels, batch_rows)
    return float(batch_entropies(np.stack(full)).mean()) / best if best else 1.0


def reference_entropy(labels: Array, batch_rows: int) -> float:
    """Mean entropy of batches drawn from all rows, by simulation."""
    random = np.random.default_rng(5)
    draws = [labels[random.integers(0, len(labels), batch_rows)] for _ in range(REFERENCE_BATCHES)]
    return float(batch_entropies(np.stack(draws)).mean())


def settle_allocator() -> None:
    """Let malloc recycle results of a few MiB, as it does in a program that has run a while.

    Until a large block has been freed, glibc maps every result afresh, and each costs page
    faults that make any loop look several times slower.
    """
    for _ in range(2):
        block = np.ones(24 << 20, np.uint8)
        del block


def give_back_freed() -> None:
    """Give what malloc keeps of freed memory back to the system, where glibc allows it.

    What is taken from there again would not show as growth.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


def paired_ratio(above: Measured | None, below: Measured | None) -> float | None:
    """Median over rounds of how much faster one way is than another."""
    if above is None or below is None or not above.runs or not below.runs:
        return None
    if len(above.runs) == len(below.runs) and above.complete and below.complete:
        pairs = zip(above.rates, below.rates, strict=True)
        return statistics.median(a / b for a, b in pairs)
    assert above.median is not None
    assert below.median is not None
    return above.median / below.median
