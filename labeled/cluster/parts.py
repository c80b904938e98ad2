"""An epoch shared out to workers: one loader each, folded there, combined here.

A worker tells the pair (accumulator, loader state) of its part every so many batches, pickled
together at the same moment. Any such pair is a whole truth about its part: whoever goes on
from it repeats some work and no contribution, and it never matters which of several workers
reported it. The client keeps the last pair of every part and gives parts to workers that are free,
each pinned to its worker. The part of a worker that is gone waits in line, and another worker
goes on from the last pair. So no row counts twice whatever was lost on the way.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

import cloudpickle
import distributed

from labeled._validation import integer
from labeled.cluster.client import (
    Names,
    Reached,
    Worker,
    ask,
    check_dataset,
    connected,
    large_graphs,
    readers_of,
    reports_of,
    workers_of,
)
from labeled.dataset.dataset import Dataset, shared_options
from labeled.dataset.summary import measure_batch, measure_of, rows_at_once
from labeled.display.progress import Advance, progress_bar
from labeled.errors import ArrayError, ClusterError, warn
from labeled.writing.statistics import Moments, can_measure, merged, plain

# how often reports are looked for, how often it is asked who is there, and how long a worker is
# waited for where there is none
LISTEN_S, LOOK_S, WAIT_S = 0.05, 0.5, 60.0

# options of `batches` that only a process with the device can check
OF_DEVICES = ("device", "output", "pinned")


def run_parts(
    client: Reached,
    dataset: Dataset,
    fold: Callable[[Any, Any], Any],
    init: Any,
    combine: Callable[[Any, Any], Any],
    *,
    parts: int | None = None,
    every: int = 32,
    workers: Sequence[str] | None = None,
    resources: Mapping[str, float] | None = None,
    retries: int = 3,
    with_rows: bool = False,
    progress: bool | None = None,
    **batches_options: Any,
) -> Any:
    """Fold every batch of an epoch on the workers of a cluster, each row once.

    Parameters
    ----------
    client : distributed.Client, cluster or str
        Or the address of a running scheduler.
    dataset : Dataset
        Its files must lie under the same paths on every worker.
    fold : callable
        ``fold(acc, batch) -> acc``; may change `acc` in place.
    init : value or callable
        What each part begins with, neutral to `combine`: a value, copied for every part,
        or a function that makes one on the worker.
    combine : callable
        ``combine(acc, acc) -> acc``; called here, over the parts in their order.
    parts : int, optional
        Shares of the epoch; one a worker by default. The result may depend on it in the
        last digits of floats, and where batches end.
    every : int
        Batches between two reports of a part, which is what is repeated at most when a
        worker is lost. A report sends the accumulator through the scheduler.
    workers : sequence of str, optional
        Names or addresses of those to use; all by default, also those that join later.
    resources : mapping of str to number, optional
        What a worker must have and a part takes: ``{"GPU": 1}``.
    retries : int
        How often a part may lose its worker in a row without having come further. One that is
        paused, because its memory is nearly full, counts as gone: its part goes to another.
    with_rows : bool
        Fold ``(data, rows, count)`` in the place of the batch alone.
    progress : bool, optional
        Show a bar of rows; on a terminal by default, after two seconds.
    **batches_options
        As for :meth:`labeled.Dataset.batches`, but `shard`. `memory` is that of each worker.

    Returns
    -------
    object
        The accumulators of all parts, combined.

    Raises
    ------
    ClusterError
        If workers cannot see the files (they are named), there are none, or none for a minute,
        or a part loses worker after worker.
    LoaderError
        If an option is impossible; before anything is sent.
    Exception
        What `fold` raised, with a note that says where.

    Examples
    --------
    >>> def count(acc, batch):
    ...     return acc + batch.count
    >>> with local_cluster(4) as cluster, cluster.get_client() as client:  # doctest: +SKIP
    ...     run_parts(client, dataset, count, 0, operator.add, batch_size=256)
    60000
    """
    check_dataset(dataset)
    integer("every", every, least=1)
    integer("retries", retries, least=0)
    integer("parts", 1 if parts is None else parts, least=1)
    # a process without a GPU cannot check what only workers with one can do
    known = {name: value for name, value in batches_options.items() if name not in OF_DEVICES}
    deals = "run_parts shares out: say how many with parts="
    options = {**batches_options, **shared_options(dataset, known, deals)}
    for name, value in {"fold": fold, "init": init, **options}.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            raise ClusterError(
                f"{name}={value!r} cannot be sent to workers: {error}; what it refers to (locks, "
                "open files, connections) has to be made there, where it is first used"
            ) from error
    needs = dict(resources or {})
    with connected(client) as at:
        there = readers_of(at, dataset, workers, needs)
        n_parts = len(there) if parts is None else parts
        run = f"labeled-parts-{uuid.uuid4().hex}"
        work = PartWork(run, dataset, n_parts, fold, init, every, options, with_rows)
        total = None if batches_options.get("sampler") is not None else dataset.n_rows
        with progress_bar(progress, total, f"{n_parts} parts", unit="rows") as advance:
            seen = dict.fromkeys(there, True)
            accs = _Run(at, work, workers, needs, retries, seen, advance).finish()
    return reduce(combine, accs)


def statistics(client: Reached, dataset: Dataset, **options: Any) -> dict[str, dict[str, Any]]:
    """Measure every numeric source of a dataset on the workers of a cluster, in one pass.

    The numbers are those that :func:`labeled.write` gathers, by the same arithmetic.

    Parameters
    ----------
    client : distributed.Client, cluster or str
        Or the address of a scheduler.
    dataset : Dataset
        Its rows are those measured.
    **options
        As for :func:`run_parts`: `parts`, `every`, `workers`, `batch_size`, `memory`, ...

    Returns
    -------
    dict
        By source: ``n_rows``, ``n_values``, ``not_finite``, ``mean``, ``std``, ``min``,
        ``max`` (lists where a dim means channels, named ``by``), ``classes`` where there is
        one integer a row. Values that are not finite are counted and left out.

    Raises
    ------
    ArrayError
        If no source holds numbers.
    """
    check_dataset(dataset)
    sources = {n: source for n, source in dataset._sources.items() if can_measure(source.dtype)}
    if not sources:
        raise ArrayError(f"no source of {dataset.where} holds numbers to measure: {dataset.dtypes}")
    batch_rows = rows_at_once(sum(source.row_bytes for source in sources.values()))
    given = {"batch_size": batch_rows, "ragged": "flat", **options}
    fold = partial(measure_batch, {name: measure_of(one) for name, one in sources.items()})
    init = {name: Moments() for name in sources}
    found = run_parts(client, dataset.select(*sources), fold, init, _merged, **given)
    return {name: plain(moments) for name, moments in found.items()}


def _merged(one: dict[str, Moments], two: dict[str, Moments]) -> dict[str, Moments]:
    return {name: merged([moments, two[name]]) for name, moments in one.items()}


# ---------------------------------------------------------------- what a worker does
@dataclass(frozen=True, eq=False)
class PartWork:
    """What workers do with their parts of an epoch; `run` names the queue that takes reports."""

    run: str
    dataset: Dataset
    n_parts: int
    fold: Callable[[Any, Any], Any]
    init: Any
    every: int
    options: Mapping[str, Any]
    with_rows: bool


# A report tells how far a part has come: the part; batches of the epoch that its accumulator holds;
# rows folded since the last report of the same worker; whether it is done; the pickled pair
# (accumulator, loader state).


def run_part(work: PartWork, part: int, pair: bytes | None) -> None:
    """Fold what is left of a part, reporting on the way; runs on a worker."""
    loader = work.dataset.batches(shard=(part, work.n_parts), **work.options)
    work.dataset.files.check_times()  # since the loader looked, or before: either is noticed
    if pair is not None:
        acc, state = pickle.loads(pair)
        loader.load_state_dict(state)
    else:  # workers that are threads have all parts' `init` in common
        init = work.init
        acc = init() if callable(init) else pickle.loads(cloudpickle.dumps(init))
    reports, stop = distributed.Queue(work.run), distributed.Event(f"{work.run}-stop")
    n_rows = folded = 0

    def report() -> None:
        state = loader.state_dict()
        made = cloudpickle.dumps((acc, state))
        reports.put((part, int(state["step"]), int(n_rows), len(epoch) == 0, made))

    try:
        with iter(loader.with_rows()) as epoch:
            for data, rows, count in epoch:
                acc = work.fold(acc, (data, rows, count) if work.with_rows else data)
                folded, n_rows = folded + 1, n_rows + count
                if len(epoch) and folded % work.every == 0:
                    report()
                    n_rows = 0
                    if stop.is_set():
                        return
            report()
    finally:
        reports.close()


# ---------------------------------------------------------------- what the client does
@dataclass(eq=False)
class _Share:
    """A part on its way: who has it, and the last that was heard of it."""

    part: int
    pair: bytes = b""
    step: int = 0
    done: bool = False
    worker: Worker | None = None
    future: Any = None
    # workers lost in a row, since it last came further
    lost: list[str] = field(default_factory=list)

    def take_back(self) -> None:
        """Take the part from its worker."""
        if self.future is not None:
            self.future.cancel()
        self.worker = self.future = None


@dataclass(eq=False)
class _Run:
    """Parts given out, and reports that come in."""

    client: distributed.Client
    work: PartWork
    named: Names  # workers that may be used
    needs: Mapping[str, float]  # resources that a part takes
    retries: int
    # whether workers see the files, by address; others are asked when they join
    known: dict[str, bool]
    advance: Advance  # called with the number of rows folded
    workers: dict[str, Worker] = field(default_factory=dict)
    seen_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._shares = [_Share(part) for part in range(self.work.n_parts)]
        self._waiting = deque(self._shares)

    def finish(self) -> list[Any]:
        """Return the accumulator of every part, once all are done."""
        look_s = 0.0
        try:
            with reports_of(self.work.run, self.client) as reports:
                while not all(share.done for share in self._shares):
                    if time.monotonic() >= look_s:
                        self._look_around()
                        look_s = time.monotonic() + LOOK_S
                    self._give_out()
                    time.sleep(LISTEN_S)
                    self._listen(reports)
        finally:
            for share in self._shares:
                share.take_back()
        return [pickle.loads(share.pair)[0] for share in self._shares]

    def _look_around(self) -> None:
        """See who is gone and who has come, and leave out who cannot read the files."""
        there = workers_of(self.client, self.named, self.needs)
        for share in self._shares:
            if share.worker is not None and share.worker.address not in there and not share.done:
                self._lose(share)
        new = [there[address] for address in there.keys() - self.known.keys()]
        unable = ask(self.client, new, self.work.dataset.files.check_times)
        for worker, words in unable.items():
            warn(f"worker {worker} joined and is left out, for it cannot read the files: {words}")
        self.known |= {worker.address: worker not in unable for worker in new}
        self.workers = {a: w for a, w in there.items() if self.known[a]}
        if self.workers:
            self.seen_s = time.monotonic()
        elif time.monotonic() - self.seen_s > WAIT_S:
            to_go = sum(not share.done for share in self._shares)
            words = f"every worker is gone or paused since {WAIT_S:g} s, with {to_go} parts to go"
            raise ClusterError(f"{words}; start workers")

    def _give_out(self) -> None:
        """Give parts in line to workers that have none."""
        busy = {share.worker.address for share in self._shares if share.worker is not None}
        free = [worker for address, worker in self.workers.items() if address not in busy]
        for worker in free[: len(self._waiting)]:
            share = self._waiting.popleft()
            args, needs = (self.work, share.part, share.pair or None), dict(self.needs) or None
            at: Any = {"workers": [worker.address], "allow_other_workers": False, "pure": False}
            with large_graphs():
                share.future = self.client.submit(run_part, *args, **at, resources=needs)
            share.worker = worker

    def _listen(self, reports: distributed.Queue) -> None:
        """Take reports, then look at what workers have come to."""
        ended = [one for one in self._shares if one.future is not None and one.future.done()]
        for part, step, n_rows, done, pair in reports.get(batch=True):
            share = self._shares[part]
            # whoever reports: also a worker thought lost, where it has come further
            if not share.done and (step > share.step or done):
                share.pair, share.step, share.done = pair, step, done
                share.lost.clear()
                self.advance(n_rows)
        for share in ended:
            error = share.future.exception() if share.future.status == "error" else None
            if share.done:
                share.take_back()
            elif error is None or isinstance(error, distributed.KilledWorker):
                self._lose(share)  # also where its last report went with the scheduler's memory
            else:
                where = f"part {share.part} of {self.work.n_parts}, on worker {share.worker}"
                error.add_note(f"in {where}, after batch {share.step}")
                raise error

    def _lose(self, share: _Share) -> None:
        """Put a part whose worker is gone back in line.

        Raises
        ------
        ClusterError
            If that happens again and again without the part coming further.
        """
        words, at = f"part {share.part} of {self.work.n_parts} lost its worker", share.step
        share.lost.append(str(share.worker))
        share.take_back()
        self._waiting.append(share)
        losses = len(share.lost)
        if losses > self.retries:
            times = "once" if losses == 1 else f"{losses} times in a row"
            raise ClusterError(
                f"{words} {times} after batch {at}, last {', '.join(share.lost[-3:])}; look at its "
                f"log: give smaller batches or memory=, or more than retries={self.retries}"
            )
