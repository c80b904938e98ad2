"""Reading ahead: one set of threads that read jobs and take batches through a pipeline.

Under one lock, whoever finds no task claims a free buffer and the next job *in that order*, so
that no job waits for a buffer that a later job holds. A job becomes tasks, of half a
mebibyte to seven (see `reading`); threads and the caller take them first come, first served,
and jobs are handed out in order. When the caller's next job is not ready it does a task
itself: a thread that sleeps takes longer to wake than a small job takes to read.

With a pipeline the caller cuts batches from the jobs, ahead of what it hands out, and the same
threads transform them. Without threads the caller does all of it by itself.

An error is kept with its job, or its batch, and raised when the caller comes to it, but for
Ctrl-C and the like while reading, which end the epoch at once.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from labeled._threads import LOOK_UP_S, background
from labeled.errors import ReadError, is_interrupt
from labeled.formats.reader import CLOCK
from labeled.loader.explain import Stats
from labeled.loader.plan import Job, LoaderPlan
from labeled.loader.reading import BufferPool, LoadedJob
from labeled.samplers.windows import WindowRows
from labeled.sources.source import Rows, Task

log = logging.getLogger(__name__)

# A batch: data, what works out its rows, how many are real, how many were lost. A plain tuple,
# which costs nothing where batches are many and small.
Made = tuple[Any, Callable[[], Rows], int, int]

# Rows of kept sources, if fewer bytes than this, are copied by a task that reads others as well:
# a further task takes longer than the copy.
SHORT_BYTES = 1 << 16


class Interrupted(Exception):
    """The jobs ended before the batches did: somebody has stopped the epoch."""


@dataclass(eq=False, slots=True)
class PipedBatch:
    """A batch on its way through a pipeline; then what was made of it, or what went wrong."""

    made: Any = None
    ready: bool = False
    error: BaseException | None = None


class Prefetcher:
    """Jobs that are read ahead, in order; refers to no iterator, so that one can be collected.

    Parameters
    ----------
    plan : LoaderPlan
    jobs : iterator of (start, stop, WindowRows)
        What to read; taken one by one, under the lock.
    pool : BufferPool
        Memory for what is read.
    """

    def __init__(
        self, plan: LoaderPlan, jobs: Iterator[Job], pool: BufferPool, stats: Stats
    ) -> None:
        self._plan, self.pool, self.stats = plan, pool, stats
        self._jobs: Iterator[Job] | None = jobs
        self._tasks: deque[Task] = deque()
        self._loading: deque[LoadedJob] = deque()
        # batches that nobody transforms yet
        self._batches: dict[PipedBatch, Callable[[], Made]] = {}
        # Never `with self._changed`: it enters in Python, where Ctrl-C may leave it locked.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._sleeping = 0
        self._poked = False  # whether threads were woken for buffers, and none of them runs yet
        # What the caller sleeps for, and how it is woken: in C, for Ctrl-C that comes to it within
        # a condition or a future, which are Python's, leaves their locks taken or let go of twice.
        self._awaited: LoadedJob | PipedBatch | None = None
        self._wake: SimpleQueue[None] = SimpleQueue()
        self.stopped = False
        self._pid = os.getpid()
        self.threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads; only once somebody will abandon them, for Ctrl-C may come meanwhile.

        They do not keep the program alive. Where the system allows no more of them there are
        fewer, even none: whoever waits works.
        """
        n_threads = self._plan.sizes.threads
        for i in range(n_threads):
            try:
                self.threads.append(background(self._work, f"labeled-read-{i}", self.abandon))
            except RuntimeError as error:
                log.warning("%d of %d threads could be started: %s", i, n_threads, error)
                break

    # jobs, for one caller at a time

    def next(self) -> LoadedJob | None:
        """Return the next job, or None after the last.

        Raises
        ------
        Exception
            Whatever reading this job raised, with the traceback of the thread.
        """
        while True:
            job = self.ready() if self._loading else None
            if job is not None:
                return job
            with self._lock:
                if self.stopped:
                    return None
                if self._loading and self._loading[0].error is not None and self._loading[0].ready:
                    error = self._loading[0].error
                    self._end_reading()
                    raise error
                task, began = self._next_task(caller=True), perf_counter()
                if task is None:
                    if not self._loading:
                        return None
                    awaited = self._loading[0]
            if task is None:
                self._sleep(awaited)
                continue
            task()
            self.stats.help_s += perf_counter() - began

    def ready(self) -> LoadedJob | None:
        """Return the next job if it is filled already and nothing went wrong; never waits.

        It takes no lock, which planning holds long. Another thread may stop the epoch meanwhile,
        and clear what was there.
        """
        try:
            first = self._loading[0]
            if not first.ready or first.error is not None:
                return None
            self._loading.popleft()
        except IndexError:
            return None
        if self._sleeping:
            self.poke()
        return first

    def poke(self) -> None:
        """Wake a thread for each free buffer if half of them are free; called for every batch.

        Of up to four, one is enough: the consumer holds another, and the caller may read to a
        third. Epochs of batches of 3 MiB, a buffer each of three, took 39 ms where threads slept
        until two were free, and 32 ms so, at best; jobs of 6 MiB, four at a time, 4 % less.
        """
        if not self._sleeping or self._poked:
            return
        count = self.pool.count
        if 2 * len(self._loading) > count + 1:  # most of them hold jobs: no need to look at each
            return
        free = self.pool.n_free
        if free and (2 * free >= count or count <= 4):
            with self._lock:
                self._poked = self._sleeping > 0  # or the last has woken by itself meanwhile
                self._changed.notify(free)  # who begins a job wakes others for its tasks

    # batches of a pipeline

    def transform(self, work: Callable[[], Made]) -> PipedBatch:
        """Have a batch transformed by whoever comes first."""
        batch = PipedBatch()
        with self._lock:
            self._batches[batch] = work
            if self._sleeping:  # one for the batch, and one for each buffer that is free
                self._changed.notify(1 + self.pool.n_free)
        return batch

    def wait_for(self, batch: PipedBatch) -> Made:
        """Return a batch once it is made; one that nobody has begun is made here."""
        with self._lock:
            work = self._batches.pop(batch, None)
        if work is not None:
            self._make(batch, work)
        while not batch.ready:
            if self.stopped:
                raise Interrupted
            self._sleep(batch)
        if batch.error is not None:
            raise batch.error
        made: Made = batch.made
        return made

    def _make(self, batch: PipedBatch, work: Callable[[], Made]) -> None:
        began = perf_counter()
        try:
            batch.made = work()
        except BaseException as error:
            batch.error = error
        with self._lock:
            self.stats.pipeline_s += perf_counter() - began
            self._finish(batch)

    def _sleep(self, awaited: LoadedJob | PipedBatch) -> None:
        """Let the caller sleep until a job or a batch is there, or the epoch is stopped."""
        began = perf_counter()
        with self._lock:
            if awaited.ready or self.stopped:
                return
            self._awaited = awaited
        self._wake.get()
        self.stats.wait_s += perf_counter() - began

    # what everybody does

    def _work(self) -> None:
        """Do what there is to do, one task after another, until all is done; sleep meanwhile."""
        while True:
            with self._lock:
                task = self._next_task(caller=False)
                while task is None:
                    if self.stopped or (self._jobs is None and not self._plan.sizes.in_flight):
                        return
                    self._sleeping += 1
                    self._changed.wait(LOOK_UP_S)
                    self._sleeping -= 1
                    self._poked = False
                    task = self._next_task(caller=False)
            task()

    def _next_task(self, *, caller: bool) -> Task | None:
        """Return a task to do, if need be by giving the next job a buffer and cutting it."""
        if self._batches and not caller and not self.stopped:
            batch = next(iter(self._batches))
            return partial(self._make, batch, self._batches.pop(batch))
        while not self._tasks:
            if self._jobs is None or self.stopped:
                return None
            began = perf_counter()
            try:
                if not self._begin_job(force=caller and not self._loading):
                    return None
            except BaseException as error:  # met behind the jobs that are on their way
                self._tasks.clear()
                failed = LoadedJob(0, 0, WindowRows(), {}, ready=True, error=error)
                self._loading.append(failed)
                self._end_reading(keeps=True)
                if is_interrupt(error):
                    raise
            self.stats.plan_s += perf_counter() - began
            if self._sleeping and len(self._tasks) > 1:
                self._changed.notify(len(self._tasks) - 1)
        return self._tasks.popleft()

    def _begin_job(self, *, force: bool) -> bool:
        """Cut the next job into tasks; False where no buffer is free, or no job is left.

        Rows of sources that are kept are copied along with the first task that reads.
        """
        buffer = self.pool.take(force=force)
        if buffer is None:
            return False
        assert self._jobs is not None
        following = next(self._jobs, None)
        if following is None:
            self._end_reading(keeps=True)
            return False
        start, stop, content = following
        job = LoadedJob(start, stop, content, {})
        first: list[Task] = []
        reading: list[Task] = []
        for one in self._plan.source_readers:
            job.arrays[one.name], tasks = one.tasks(content, buffer[one.name], stop - start)
            short = one.kept is not None and (stop - start) * one.row_bytes <= SHORT_BYTES
            (first if short else reading).extend(tasks)
        first += reading[:1]
        if first:
            self._tasks.append(partial(self._read, job, *first))
        for task in reading[1:]:
            self._tasks.append(partial(self._read, job, task))
        job.pending = len(self._tasks)
        job.ready = not job.pending
        self._loading.append(job)
        self.stats.n_windows += 1
        self.stats.n_tasks += job.pending
        return True

    def _end_reading(self, *, keeps: bool = False) -> None:
        """Begin no job any more; drop jobs on their way, unless one `keeps` them."""
        self._jobs = None
        if not keeps:
            self._tasks.clear()
            self._loading.clear()
        self._changed.notify_all()

    def _read(self, job: LoadedJob, *tasks: Task) -> None:
        """Do a task, or some together, and note that it is done."""
        began, before = perf_counter(), CLOCK.decode_s
        error: BaseException | None = None
        try:
            if job.error is None:
                for task in tasks:
                    task()
        except BaseException as caught:
            error = caught
        decoded, took = CLOCK.decode_s - before, perf_counter() - began
        with self._lock:
            self.stats.decode_s += decoded
            self.stats.read_s += took - decoded
            if isinstance(error, ReadError) and self._plan.options.skips:
                job.unread, error = True, None
            job.error = job.error or error
            job.pending -= 1
            if job.pending == 0:
                self._finish(job)
        if error is not None and is_interrupt(error):
            raise error  # Ctrl-C waits for no job

    def _finish(self, one: LoadedJob | PipedBatch) -> None:
        """Note, under the lock, that something is there; wake the caller if it sleeps for that."""
        one.ready = True
        if one is self._awaited:
            self._awaited = None
            self._wake.put(None)

    # the end

    def close(self) -> None:
        """Stop the threads; returns when none of them touches a buffer any more."""
        if os.getpid() != self._pid:  # threads that were left behind may hold the lock for ever
            return
        with self._lock:
            self.stopped = True
            self._batches.clear()
            self._end_reading()
            self._wake.put(None)
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join()

    def abandon(self) -> None:
        """Stop without waiting for the lock, because nobody iterates any more.

        The garbage collector may call this in any thread, also in one that holds the lock;
        threads that sleep look up after :data:`LOOK_UP_S`.
        """
        self.stopped = True
        self._wake.put(None)
        if self._lock.acquire(blocking=False):
            try:
                self._changed.notify_all()
            finally:
                self._lock.release()


def _unlock_properties() -> None:
    """Give cached properties new locks in a forked child.

    Python 3.11 computes each under a lock that all objects of its class share. A thread that held
    it when the process was forked is not there to let go of it.
    """
    modules = [one for name, one in sys.modules.items() if name.partition(".")[0] == "labeled"]
    kinds = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    for value in (one for kind in kinds for one in vars(kind).values()):
        if isinstance(value, cached_property):
            vars(value)["lock"] = threading.RLock()


if sys.version_info < (3, 12) and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_properties)
