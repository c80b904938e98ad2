"""An epoch shared out to workers: one loader each, folded there, combined here.

A worker tells the pair (accumulator, loader state) of its part every so many batches, pickled
together at the same moment. Any such pair is a whole truth about its part: whoever goes on
from it repeats some work and no contribution, and it never matters which of several workers
reported it. The client keeps the last pair of every part and gives parts to workers that are free,
each pinned to its worker. The part of a worker that is gone waits in line, and another worker
goes on from the last pair. So no row counts twice whatever was lost on the way.
"""

from __future__ import annotations

import logging
import math
import pickle
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, NamedTuple

import cloudpickle
import distributed

from labeled._validation import whole
from labeled.cluster.client import (
    Reached,
    Worker,
    ask,
    check_dataset,
    connected,
    large_graphs,
    no_workers,
    read_problem,
    unable_words,
    workers_of,
)
from labeled.dataset.dataset import Dataset, shared_options
from labeled.device import cuda_device
from labeled.display.progress import progress_bar
from labeled.errors import ArrayError, ClusterError, LoaderError, MissingExtraError, warn
from labeled.loader.batch import Batch
from labeled.writing.statistics import Measure, Moments, can_measure, plain

log = logging.getLogger(__name__)

LISTEN_S, LOOK_S = 0.05, 0.5
"""How often reports are looked for, and how often it is asked who is there."""

BATCH_BYTES, BATCH_ROWS = 4 << 20, 1 << 16
"""Of the batches that statistics measure."""

OF_DEVICES = ("device", "output", "pinned")
"""Options of ``batches`` that only a process with the device can check."""


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
    wait_s: float = 60.0,
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
        How often a part may lose its worker in a row without having come further.
    wait_s : float
        How long to wait for a worker when there is none left. One that is paused, because its
        memory is nearly full, counts as gone: its part goes to another.
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
        If workers cannot see the files (they are named), there are none, or a part loses
        worker after worker.
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
    whole("every", every, least=1, error=LoaderError)
    whole("retries", retries, least=0, error=LoaderError)
    if parts is not None:
        whole("parts", parts, least=1, error=LoaderError)
    options = _shared(dataset, batches_options)
    _check_travels({"fold": fold, "init": init, **options})
    needs = dict(resources or {})
    with connected(client) as at:
        there = workers_of(at, workers, needs)
        if not there:
            raise ClusterError(no_workers(workers, needs))
        unable = ask(at, there.values(), read_problem, dataset)
        if unable:
            raise ClusterError(unable_words(unable, len(there)))
        n_parts = len(there) if parts is None else parts
        run = f"labeled-parts-{uuid.uuid4().hex}"
        work = PartWork(run, dataset, n_parts, fold, init, every, options, with_rows)
        total = None if batches_options.get("sampler") is not None else dataset.n_rows
        with progress_bar(progress, total, f"{n_parts} parts", unit="rows") as advance:
            rules = _Rules(workers, needs, retries, wait_s)
            accs = _Run(at, work, rules, set(there), advance).finish()
    return reduce(combine, accs)


def statistics(
    client: Reached, dataset: Dataset, *, every: int = 32, **options: Any
) -> dict[str, dict[str, Any]]:
    """Measure every numeric source of a dataset on the workers of a cluster, in one pass.

    The numbers are those that :func:`labeled.write` gathers, by the same arithmetic.

    Parameters
    ----------
    client : distributed.Client, cluster or str
        Or the address of a scheduler.
    dataset : Dataset
        Its rows are those measured.
    every, **options
        As for :func:`run_parts`: `parts`, `workers`, `batch_size`, `memory`, ...

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
    shapes, dims, measures, row_bytes = dataset.shapes, dataset.dims, {}, 1
    flat = {name for name, shape in shapes.items() if len(shape) < len(dims[name])}
    for name, dtype in dataset.dtypes.items():
        if can_measure(dtype):
            row = shapes[name][1:]
            measures[name] = Measure() if name in flat else Measure.of(dims[name], row, dtype)
            row_bytes += math.prod(row) * dtype.itemsize
    if not measures:
        raise ArrayError(
            f"no source of {dataset.where} holds numbers to measure: {dict(dataset.dtypes)}"
        )
    known: dict[str, Any] = {"batch_size": min(max(BATCH_BYTES // row_bytes, 1), BATCH_ROWS)}
    known |= {"ragged": "flat"} if flat & measures.keys() else {}
    chosen, fold = dataset.select(*measures), partial(_measured, measures)
    given = {**known, "every": every, **options}
    found = run_parts(client, chosen, fold, {}, _merged, **given)
    return {name: plain(found.get(name, Moments())) for name in measures}


def _measured(
    measures: Mapping[str, Measure], acc: dict[str, Moments], batch: Batch
) -> dict[str, Moments]:
    found = {name: measure.rows(batch.arrays[name]) for name, measure in measures.items()}
    # flat values of examples of different shapes are counted by example
    return _merged(acc, {n: replace(one, n_rows=batch.count) for n, one in found.items()})


def _merged(one: Mapping[str, Moments], two: Mapping[str, Moments]) -> dict[str, Moments]:
    """Return the moments of both, by source; a missing entry means no rows."""
    out = dict(one)
    for name, moments in two.items():
        out[name] = out[name].merge(moments) if name in out else moments
    return out


def _shared(dataset: Dataset, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check options of ``batches``, but those of a GPU that workers have and this process has not.

    Raises
    ------
    LoaderError
        If one is impossible.
    """
    known = options
    if str(options.get("device")).startswith("cuda") and not _is_here(options["device"]):
        known = {name: value for name, value in options.items() if name not in OF_DEVICES}
    shared = shared_options(dataset, known, "run_parts shares out: say how many with parts=")
    return {**options, **shared}


def _is_here(device: Any) -> bool:
    try:
        cuda_device(str(device))
    except (LoaderError, MissingExtraError):
        return False
    return True


def _check_travels(given: Mapping[str, Any]) -> None:
    """Raise :class:`ClusterError` where something that workers need does not pickle."""
    for name, value in given.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            raise ClusterError(
                f"{name}={value!r} cannot be sent to workers: {error}; what it refers to (locks, "
                "open files, connections) has to be made there, where it is first used"
            ) from error


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

    @property
    def stop(self) -> str:
        """Name of the event that asks workers to end."""
        return f"{self.run}-stop"


class Report(NamedTuple):
    """How far a part has come."""

    part: int
    step: int
    """Batches of the epoch that the accumulator holds."""
    n_rows: int
    """Rows of those that were folded since the last report of the same worker."""
    done: bool
    pair: bytes
    """The pickled pair (accumulator, loader state)."""


def run_part(work: PartWork, part: int, pair: bytes | None) -> None:
    """Fold what is left of a part, reporting on the way; runs on a worker."""
    loader = work.dataset.batches(shard=(part, work.n_parts), **work.options)
    work.dataset.files.check_times()  # since the loader looked, or before: either is noticed
    if pair is not None:
        acc, state = unpickled(pair)
        loader.load_state_dict(state)
    else:  # workers that are threads have all parts' `init` in common
        init = work.init
        acc = init() if callable(init) else pickle.loads(cloudpickle.dumps(init))
    reports, stop = distributed.Queue(work.run), distributed.Event(work.stop)
    n_rows = folded = 0

    def report() -> None:
        state = loader.state_dict()
        try:
            made = cloudpickle.dumps((acc, state))
        except Exception as error:
            raise ClusterError(
                f"what fold returned, a {type(acc).__name__}, does not pickle ({error}), so it "
                "cannot be sent; return numbers, arrays, or an object with __getstate__"
            ) from error
        done = len(epoch) == 0
        reports.put(pickle.dumps(Report(part, state["step"], n_rows, done, made)))

    try:
        with iter(loader.with_rows()) as epoch:
            if len(epoch) == 0:
                report()
            for data, rows, count in epoch:
                try:
                    acc = work.fold(acc, (data, rows, count) if work.with_rows else data)
                except (SystemExit, KeyboardInterrupt, GeneratorExit) as end:
                    raise ClusterError(
                        f"fold raised {end!r}, which would end the worker; raise an error in its "
                        "place"
                    ) from end
                folded, n_rows = folded + 1, n_rows + count
                if len(epoch) == 0 or folded % work.every == 0:
                    report()
                    n_rows = 0
                    if stop.is_set():
                        return
    finally:
        reports.close()


def unpickled(pair: bytes) -> tuple[Any, dict[str, Any]]:
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
            "is installed there, with a __setstate__ that works"
        ) from error
    return acc, state


# ---------------------------------------------------------------- what the client does
@dataclass(frozen=True)
class _Rules:
    """Who may work, and how long is waited for whom."""

    workers: Sequence[str] | None
    resources: Mapping[str, float]
    retries: int
    wait_s: float


@dataclass(eq=False)
class _Share:
    """A part on its way: who has it, and the last that was heard of it."""

    part: int
    words: str
    pair: bytes = b""
    step: int = 0
    done: bool = False
    worker: Worker | None = None
    future: Any = None
    lost: list[str] = field(default_factory=list)
    """Workers lost in a row, since it last came further."""

    def take_back(self) -> None:
        """Take the part from its worker."""
        if self.future is not None:
            self.future.cancel()
        self.worker = self.future = None


class _Run:
    """Parts given out, and reports that come in.

    Parameters
    ----------
    client : distributed.Client
    work : PartWork
    rules : _Rules
    known : set of str
        Addresses of workers that see the files; others are asked when they join.
    advance : callable
        Called with the number of rows folded.
    """

    def __init__(
        self,
        client: distributed.Client,
        work: PartWork,
        rules: _Rules,
        known: set[str],
        advance: Callable[[int], None],
    ) -> None:
        self._client, self._work, self._rules, self._advance = client, work, rules, advance
        n = work.n_parts
        self._shares = [_Share(part, f"part {part} of {n}") for part in range(n)]
        self._waiting = deque(self._shares)
        self._workers: dict[str, Worker] = {}
        self._known, self._rejected = known, set[str]()
        self._reports = distributed.Queue(work.run, client=client)

    def finish(self) -> list[Any]:
        """Return the accumulator of every part, once all are done."""
        look_s, seen_s = 0.0, time.monotonic()
        try:
            while not all(share.done for share in self._shares):
                if time.monotonic() >= look_s:
                    self._look_around()
                    look_s = time.monotonic() + LOOK_S
                self._give_out()
                time.sleep(LISTEN_S)
                if self._listen() or self._workers:
                    seen_s = time.monotonic()
                elif time.monotonic() - seen_s > self._rules.wait_s:
                    to_go = sum(not share.done for share in self._shares)
                    raise ClusterError(
                        f"every worker is gone or paused since {self._rules.wait_s:g} s, with "
                        f"{to_go} parts to go; start workers, or give more wait_s="
                    )
        except BaseException:
            with suppress(Exception):  # if the scheduler is there
                distributed.Event(self._work.stop, client=self._client).set()
            raise
        finally:
            for share in self._shares:
                share.take_back()
            self._reports.close()
        return [unpickled(share.pair)[0] for share in self._shares]

    def _look_around(self) -> None:
        """See who is gone and who has come, and leave out who cannot read the files."""
        there = workers_of(self._client, self._rules.workers, self._rules.resources)
        for share in self._shares:
            if share.worker is not None and share.worker.address not in there and not share.done:
                self._lose(share)
        new = [there[address] for address in there.keys() - self._known]
        unable = ask(self._client, new, read_problem, self._work.dataset)
        for worker, words in unable.items():
            self._rejected.add(worker.address)
            warn(f"worker {worker} joined and is left out, for it cannot read the files: {words}")
        self._known |= there.keys()
        self._workers = {a: w for a, w in there.items() if a not in self._rejected}

    def _give_out(self) -> None:
        """Give parts in line to workers that have none."""
        busy = {share.worker.address for share in self._shares if share.worker is not None}
        free = [worker for address, worker in self._workers.items() if address not in busy]
        for worker in free[: len(self._waiting)]:
            share, needs = self._waiting.popleft(), self._rules.resources
            share.worker = worker
            with large_graphs():
                share.future = self._client.submit(
                    run_part,
                    self._work,
                    share.part,
                    share.pair or None,
                    workers=[worker.address],
                    allow_other_workers=False,
                    resources=dict(needs) or None,
                    pure=False,
                )

    def _listen(self) -> bool:
        """Take reports, then look at what workers have come to; return whether there were any."""
        ended = [one for one in self._shares if one.future is not None and one.future.done()]
        messages = self._reports.get(batch=True)
        for report in map(pickle.loads, messages):
            share = self._shares[report.part]
            # whoever reports: also a worker thought lost, where it has come further
            if not share.done and (report.step > share.step or report.done):
                share.pair, share.step, share.done = report.pair, report.step, report.done
                share.lost.clear()
                self._advance(report.n_rows)
        for share in ended:
            error = share.future.exception() if share.future.status == "error" else None
            if share.done:
                share.take_back()
            elif error is None or isinstance(error, distributed.KilledWorker):
                self._lose(share)  # also where its last report went with the scheduler's memory
            else:
                error.add_note(
                    f"in {share.words}, on worker {share.worker}, after batch {share.step}"
                )
                raise error
        return bool(messages)

    def _lose(self, share: _Share) -> None:
        """Put a part whose worker is gone back in line.

        Raises
        ------
        ClusterError
            If that happens again and again without the part coming further.
        """
        share.lost.append(str(share.worker))
        log.warning("%s lost its worker %s after batch %d", share.words, share.worker, share.step)
        share.take_back()
        self._waiting.append(share)
        losses, retries = len(share.lost), self._rules.retries
        if losses > retries:
            times = "once" if losses == 1 else f"{losses} times in a row"
            raise ClusterError(
                f"{share.words} lost its worker {times} after batch {share.step}, last "
                f"{', '.join(share.lost[-3:])}; the batches that follow may take more memory than "
                f"a worker has, or end its process: look at its log, give smaller batches or "
                f"memory=, or more than retries={retries}"
            )
