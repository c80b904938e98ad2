"""An epoch shared out to workers: one loader each, folded there, combined here.

The client keeps the last pair (accumulator, loader state) of every part and gives parts to
workers that are free, each pinned to its worker. A worker that is gone takes its part back
to the line, where another worker goes on from the last pair. The result holds one
accumulator a part, the one that was told at its end, so no row counts twice whatever was
lost on the way.

What travels through the scheduler is one pickled pair a part every so many batches.
"""

from __future__ import annotations

import logging
import pickle
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import cloudpickle
import distributed

from labeled._validation import whole
from labeled.cluster.door import (
    Reached,
    WorkerInfo,
    address_of,
    addresses_of,
    begun_by,
    connected,
    fits,
    fitting,
    paused_of,
    reachable,
    sent,
    workers_of,
)
from labeled.cluster.sight import (
    PAUSED,
    Question,
    blind_words,
    blind_workers,
    check_dataset,
    no_workers,
)
from labeled.cluster.work import PartWork, Report, loaded, run_part, stop_name
from labeled.dataset.dataset import Dataset, shared_options
from labeled.device import cuda_device
from labeled.display.progress import progress_bar
from labeled.errors import ClusterError, LoaderError, MissingExtraError, warn

log = logging.getLogger(__name__)

LOOK_S = 0.05
"""How often reports are looked for; workers as often, or less where there are very many."""

LOOK_PER_WORKER_S = 0.002

LOOK_PAUSED_S, LOOK_PAUSED_PER_WORKER_S = 1.0, 0.02
"""How often it is asked who is paused, which takes a longer answer."""

QUIET_S = 5.0
"""After how long without a word a part is taken from a worker that is paused."""

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
        memory is nearly full, is given no part, and what it has not begun goes to another.
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
        there = fitting(at, workers, needs)
        if not there:
            raise ClusterError(no_workers(workers, needs))
        n_parts = len(there) if parts is None else parts
        paused = paused_of(at)
        there = {address: info for address, info in there.items() if address not in paused}
        blind = blind_workers(at, dataset, there.values())
        there = {address: info for address, info in there.items() if blind.get(info) != PAUSED}
        blind = {info: words for info, words in blind.items() if words != PAUSED}
        if blind:
            raise ClusterError(blind_words(blind, len(there)))
        run = f"labeled-parts-{uuid.uuid4().hex}"
        works = [
            PartWork(run, dataset, (i, n_parts), fold, init, every, options, with_rows)
            for i in range(n_parts)
        ]
        total = None if batches_options.get("sampler") is not None else dataset.n_rows
        with progress_bar(progress, total, f"{n_parts} parts", unit="rows") as told:
            desk = _Desk(at, works, there, workers, needs, retries, wait_s, told)
            accs = desk.run()
    return reduce(combine, accs)


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
    shared = shared_options(dataset, known, "run_parts deals out: say how many with parts=")
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


@dataclass(eq=False)
class _Share:
    """A part on its way: who has it, and the last that was heard of it."""

    work: PartWork
    pair: bytes | None = None
    step: int = 0
    done: bool = False
    worker: WorkerInfo | None = None
    future: Any = None
    heard_s: float = 0.0
    """When it was given to its worker, or last heard of."""
    losses: int = 0
    """Workers lost in a row, since it last came further."""
    lost: list[str] = field(default_factory=list)

    @property
    def words(self) -> str:
        index, count = self.work.part
        return f"part {index} of {count}"

    def take_back(self) -> None:
        """Take the part from its worker."""
        if self.future is not None:
            self.future.cancel()
        self.worker = self.future = None

    def take(self, report: Report) -> bool:
        """Take a report, unless it is of a worker thought lost, and what is known goes further."""
        if self.done or (report.step <= self.step and not report.done):
            return False
        self.pair, self.step, self.done = report.pair, report.step, report.done
        self.heard_s = time.monotonic()
        self.losses = 0
        return True

    def lose(self, retries: int) -> None:
        """Note that its worker is gone.

        Raises
        ------
        ClusterError
            If that happens again and again without the part coming further.
        """
        self.losses += 1
        self.lost.append(str(self.worker))
        log.warning("%s lost its worker %s after batch %d", self.words, self.worker, self.step)
        self.take_back()
        if self.losses > retries:
            times = "once" if self.losses == 1 else f"{self.losses} times in a row"
            raise ClusterError(
                f"{self.words} lost its worker {times} after batch {self.step}, last "
                f"{', '.join(self.lost[-3:])}; the batches that follow may take more memory than "
                f"a worker has, or end its process: look at its log, give smaller batches or "
                f"memory=, or more than retries={retries}"
            )


class _Desk:
    """Where parts are given out and reports come in."""

    def __init__(
        self,
        client: distributed.Client,
        works: Sequence[PartWork],
        there: Mapping[str, WorkerInfo],
        wanted: Sequence[str] | None,
        resources: Mapping[str, float],
        retries: int,
        wait_s: float,
        told: Callable[[int], None],
    ) -> None:
        self._client = client
        self._shares = [_Share(work) for work in works]
        self._line = deque(self._shares)
        self._workers = dict(there)
        self._wanted = wanted
        self._resources = resources
        self._retries = retries
        self._wait_s = wait_s
        self._told = told
        self._unfit: set[str] = set()
        self._paused: set[str] = set()
        self._questions: dict[str, Question] = {}
        self._run = works[0].run
        self._reports = distributed.Queue(self._run, client=client)

    def run(self) -> list[Any]:
        """Return the accumulator of every part, once all are done."""
        look_s = look_paused_s = alone_s = 0.0
        scheduler = address_of(self._client)
        try:
            while not all(share.done for share in self._shares):
                began = time.monotonic()
                if began >= look_s:
                    self._look_around()
                    look_s = began + max(LOOK_S, LOOK_PER_WORKER_S * len(self._workers))
                if began >= look_paused_s:
                    self._look_for_paused()
                    wait_s = LOOK_PAUSED_PER_WORKER_S * len(self._workers)
                    look_paused_s = time.monotonic() + max(LOOK_PAUSED_S, wait_s)
                self._give_out()
                time.sleep(LOOK_S)
                heard = self._listen()
                able = heard or self._workers.keys() - self._paused
                alone_s = 0.0 if able else alone_s + time.monotonic() - began
                if alone_s > self._wait_s and self._folds():
                    alone_s = 0.0  # a batch of a paused worker takes long, and it is not done
                if alone_s > self._wait_s:
                    raise ClusterError(
                        f"every worker is {'paused' if self._paused else 'gone'} since "
                        f"{self._wait_s:g} s, with {sum(not s.done for s in self._shares)} parts "
                        "to go; start workers, or give more wait_s="
                    )
        except BaseException:
            with suppress(Exception), reachable(self._client, scheduler) as at:  # if it is there
                distributed.Event(stop_name(self._run), client=at).set()
            raise
        finally:
            for share in self._shares:
                share.take_back()
            self._reports.close()
        return [loaded(share.pair or b"")[0] for share in self._shares]

    def _give_out(self) -> None:
        """Give parts in line to workers that have none."""
        busy = {share.worker.address for share in self._shares if share.worker is not None}
        taken = busy | self._paused
        free = [info for address, info in self._workers.items() if address not in taken]
        self._take_from_paused(len(free) - len(self._line))
        for worker in free[: len(self._line)]:
            share = self._line.popleft()
            share.worker, share.heard_s = worker, time.monotonic()
            share.future = sent(
                self._client, worker, run_part, share.work, share.pair, resources=self._resources
            )

    def _take_from_paused(self, n_idle: int) -> None:
        """Put parts that nothing is heard of back in line, for workers that have nothing to do.

        A paused worker goes on with what it has begun and begins nothing, which looks alike from
        here; where both fold the same batches, what comes further counts.
        """
        now = time.monotonic()
        for share in self._shares:
            if n_idle < 1:
                return
            held = share.worker is not None and share.worker.address in self._paused
            if held and not share.done and now - share.heard_s > QUIET_S:
                log.warning(
                    "%s goes from %s, which is paused, to another", share.words, share.worker
                )
                share.take_back()
                self._line.append(share)
                n_idle -= 1

    def _look_for_paused(self) -> None:
        """See who begins nothing now, as its memory is nearly full."""
        before, self._paused = self._paused, paused_of(self._client)
        for address in (self._paused - before) & self._workers.keys():
            log.warning(
                "worker %s is paused, for its memory is nearly full", self._workers[address]
            )

    def _folds(self) -> bool:
        """Whether a paused worker is at a part that it had begun before."""
        held = [s for s in self._shares if s.worker is not None and not s.done]
        there = {s.worker.address for s in held if s.worker} & self._workers.keys()
        if not there:
            return False
        begun = self._client.run(begun_by, workers=list(there), on_error="ignore")
        return any(s.future.key in keys for s in held for keys in begun.values())

    def _listen(self) -> bool:
        """Take reports, then look at what workers have come to; return whether there were any."""
        ended = [share for share in self._shares if share.future is not None]
        ended = [share for share in ended if share.future.done()]
        messages = self._reports.get(batch=True)
        for message in messages:
            report = pickle.loads(message)
            if self._shares[report.part].take(report):
                self._told(report.n_rows)
        for share in ended:
            if share.done:
                share.take_back()
            elif share.future.status == "error":
                self._failed(share)
            else:  # cancelled, or its last report was lost with the scheduler's memory of it
                self._back_in_line(share)
        return bool(messages)

    def _failed(self, share: _Share) -> None:
        error = share.future.exception()
        if isinstance(error, distributed.KilledWorker):
            self._back_in_line(share)
            return
        error.add_note(f"in {share.words}, on worker {share.worker}, after batch {share.step}")
        raise error

    def _back_in_line(self, share: _Share) -> None:
        share.lose(self._retries)
        self._line.append(share)

    def _look_around(self) -> None:
        """See who is gone and who has come."""
        there = addresses_of(self._client)
        for share in self._shares:
            if share.worker is not None and share.worker.address not in there and not share.done:
                self._back_in_line(share)
        self._workers = {a: info for a, info in self._workers.items() if a in there}
        self._questions = {a: one for a, one in self._questions.items() if a in there}
        if there - self._workers.keys() - self._questions.keys() - self._unfit:
            self._ask_new()
        self._welcome()

    def _ask_new(self) -> None:
        """Ask workers that joined, if they fit, whether they see the files."""
        dataset = self._shares[0].work.dataset
        there = workers_of(self._client)
        for address in there.keys() - self._workers.keys() - self._questions.keys() - self._unfit:
            if fits(there[address], self._wanted, self._resources):
                self._questions[address] = Question(self._client, there[address], dataset)
            else:
                self._unfit.add(address)

    def _welcome(self) -> None:
        """Take on workers that say they see the files; those that are busy say so later."""
        for address in [a for a, question in self._questions.items() if question.answered]:
            question = self._questions.pop(address)
            words = question.words()
            if words is None:
                self._workers[address] = question.worker
                continue
            self._unfit.add(address)
            warn(
                f"worker {question.worker} joined and is left out, for it cannot read the files: "
                f"{words}"
            )
