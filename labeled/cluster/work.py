"""What a worker does with its part: fold batch after batch, and report progress.

What is reported is the pair (accumulator, loader state), pickled together at the same moment.
Any such pair is a whole truth about its part, so whoever goes on from it repeats some work
and no contribution, and it never matters which of several workers reported it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
from distributed import Event, Queue

from labeled.dataset.dataset import Dataset
from labeled.errors import ClusterError


@dataclass(frozen=True, eq=False)
class PartWork:
    """One part of an epoch, as a worker gets it.

    Parameters
    ----------
    run : str
        Name of the queue that takes reports.
    part : (index, count)
    fold : callable
        ``fold(acc, batch) -> acc``.
    init : value or callable
        What the accumulator begins as, or what makes it.
    every : int
        Batches between two reports.
    options : mapping
        Of ``batches``.
    with_rows : bool
        Fold ``(data, rows, count)`` in the place of the batch alone.
    """

    run: str
    dataset: Dataset
    part: tuple[int, int]
    fold: Callable[[Any, Any], Any]
    init: Any
    every: int
    options: Mapping[str, Any]
    with_rows: bool

    def begin(self) -> Any:
        """Return a fresh accumulator; workers that are threads have all parts' `init` in common."""
        return self.init() if callable(self.init) else pickle.loads(cloudpickle.dumps(self.init))


@dataclass(frozen=True, eq=False)
class Report:
    """How far a part has come."""

    part: int
    step: int
    """Batches of the epoch that the accumulator holds."""
    n_rows: int
    """Rows of those that were folded since the last report of the same worker."""
    done: bool
    pair: bytes
    """The pickled pair (accumulator, loader state)."""


def stop_name(run: str) -> str:
    """Name of the event that asks workers to end."""
    return f"{run}-stop"


def run_part(work: PartWork, pair: bytes | None) -> None:
    """Fold what is left of a part, reporting on the way; runs on a worker."""
    loader = work.dataset.batches(shard=work.part, **work.options)
    work.dataset.files.check_times()  # since the loader looked, or before: either is noticed
    if pair is None:
        acc = work.begin()
    else:
        acc, state = loaded(pair)
        loader.load_state_dict(state)
    reports, stop = Queue(work.run), Event(stop_name(work.run))
    n_rows = folded = 0
    try:
        with iter(loader.with_rows()) as epoch:
            if len(epoch) == 0:
                reports.put(_report(work, acc, loader.state_dict(), 0, done=True))
            for data, rows, count in epoch:
                acc = _folded(work.fold, acc, (data, rows, count) if work.with_rows else data)
                folded, n_rows = folded + 1, n_rows + count
                done = len(epoch) == 0
                if done or folded % work.every == 0:
                    reports.put(_report(work, acc, loader.state_dict(), n_rows, done=done))
                    n_rows = 0
                    if done or stop.is_set():
                        return
    finally:
        reports.close()


def _folded(fold: Callable[[Any, Any], Any], acc: Any, batch: Any) -> Any:
    try:
        return fold(acc, batch)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as end:  # of which workers end
        raise ClusterError(
            f"fold raised {end!r}, which would end the worker; raise an error in its place"
        ) from end


def loaded(pair: bytes) -> tuple[Any, dict[str, Any]]:
    """Return a reported pair (accumulator, loader state).

    Raises
    ------
    ClusterError
        If what `fold` returned does not unpickle.
    """
    try:
        acc, state = pickle.loads(pair)
    except Exception as error:
        raise ClusterError(
            f"what fold returned was sent, but does not unpickle where it came to "
            f"({type(error).__name__}: {error}); return numbers, arrays, or an object whose module "
            "is there, too, and whose __setstate__ gets along"
        ) from error
    return acc, state


def _report(
    work: PartWork, acc: Any, state: Mapping[str, Any], n_rows: int, *, done: bool
) -> bytes:
    try:
        pair = cloudpickle.dumps((acc, state))
    except Exception as error:
        raise ClusterError(
            f"what fold returned, a {type(acc).__name__}, does not pickle ({error}), so it cannot "
            "be sent; return numbers, arrays, or an object with __getstate__"
        ) from error
    report: bytes = pickle.dumps(Report(work.part[0], state["step"], n_rows, done, pair))
    return report
