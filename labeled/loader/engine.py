"""Reading ahead: threads that fill slots, and a caller who helps instead of sleeping.

Under one lock, whoever finds no task claims a free slot and the next window *in that
order*, so that no window waits for a slot that a later window holds. A window becomes
tasks (pieces of about half a mebibyte); background threads and the caller take them
first come, first served, and windows are handed out in order. When the caller's next
window is not ready it does a task itself: a thread that sleeps takes longer to wake
than a small window takes to read.

An error while reading is kept with its window and raised when the caller comes to it, but
for Ctrl-C and the like, which end the epoch at once.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import LoaderError, ReadError
from labeled.formats.clock import decode_s
from labeled.loader.crew import LOOK_UP_S, join_threads, start_threads, wake_without_waiting
from labeled.loader.lanes import Lane
from labeled.loader.slots import Filled, Slot, SlotPool
from labeled.loader.stats import Stats
from labeled.samplers.windows import WindowRows
from labeled.sources.loading import Task

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]


class WindowSource:
    """Filled windows in order, read ahead by background threads.

    Parameters
    ----------
    windows : iterator of (start, stop, WindowRows)
        What to read; taken one by one, under the lock.
    lanes : sequence of Lane
        What is read of each window.
    group : int64 array, optional
        Dataset position of each grouped position.
    pool : SlotPool
        Memory for windows.
    threads : int
        Background threads; 0 reads in the caller alone.
    """

    def __init__(
        self,
        windows: Iterator[tuple[int, int, WindowRows]],
        lanes: Sequence[Lane],
        group: Rows | None,
        pool: SlotPool,
        threads: int,
        stats: Stats,
        *,
        skips: bool = False,
    ) -> None:
        self._core = _Core(windows, lanes, group, pool, stats, skips)
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _Core.let_go, self._core)
        self._threads = start_threads(self._core, threads, "labeled-read")

    def next(self) -> Filled | None:
        """Return the next filled window, or None after the last.

        Raises
        ------
        Exception
            Whatever reading this window raised, with the traceback of the thread.
        """
        return self._core.next()

    def ready(self) -> Filled | None:
        """Return the next window if it is filled already and nothing went wrong; never waits."""
        return self._core.ready_now()

    def check_process(self) -> None:
        """Raise :class:`LoaderError` if a fork left the threads behind."""
        if os.getpid() != self._pid:
            raise LoaderError(
                "this iterator was made in another process, whose threads did not come along; "
                "make a new one here with iter(loader)"
            )

    def poke(self) -> None:
        """Let the threads go on if the consumer has let go of slots; cheap, for every batch."""
        self._core.poke()

    def stop(self) -> None:
        """Let :meth:`next` return None soon, whoever is in it; :meth:`close` must follow."""
        self._core.stop()

    def close(self) -> None:
        """Stop the threads; returns when none of them touches a slot any more."""
        self._finalizer.detach()
        if os.getpid() != self._pid:
            return
        self._core.stop()
        join_threads(self._threads)


class _Core:
    """What threads and caller share; refers to no iterator, so that one can be collected."""

    def __init__(
        self,
        windows: Iterator[tuple[int, int, WindowRows]],
        lanes: Sequence[Lane],
        group: Rows | None,
        pool: SlotPool,
        stats: Stats,
        skips: bool,
    ) -> None:
        self._skips = skips
        self._windows: Iterator[tuple[int, int, WindowRows]] | None = windows
        self._lanes = lanes
        self._group = group
        self._pool = pool
        self._stats = stats
        self._tasks: deque[tuple[Filled, Task]] = deque()
        self._jobs: deque[Filled] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._sleeping = 0
        self._caller_sleeps = False
        self._stopped = False

    # what the caller does

    def next(self) -> Filled | None:
        while True:
            job = self._ready()
            if job is not None:
                return self._hand_out(job)
            with self._lock:
                if self._stopped:
                    return None
                item = self._next_task(caller=True)
                if item is None:
                    if not self._jobs and self._windows is None:
                        return None
                    self._sleep()
                    continue
            self._stats.help_s += self.run(*item)

    def _ready(self) -> Filled | None:
        """Take the first window if it is filled, without the lock, which planning holds long.

        Another thread may stop the epoch meanwhile, and clear what was there.
        """
        try:
            return self._jobs.popleft() if self._jobs[0].ready else None
        except IndexError:
            return None

    def ready_now(self) -> Filled | None:
        """Take the first window if it is filled without an error."""
        try:
            if not self._jobs[0].ready or self._jobs[0].error is not None:
                return None
        except IndexError:
            return None
        job = self._ready()
        return None if job is None else self._hand_out(job)

    def _hand_out(self, job: Filled) -> Filled:
        if job.error is not None:
            self.stop()
            raise job.error
        if self._sleeping:
            self.poke()
        return job

    def poke(self) -> None:
        """Wake the threads if they sleep and enough slots are free again to be worth it."""
        if self._sleeping and self._pool.n_free >= self._pool.enough:
            with self._changed:
                self._changed.notify_all()

    def _sleep(self) -> None:
        """Wait, with the lock held, until the first window is ready or a task appears."""
        began = perf_counter()
        self._caller_sleeps = True
        while self._jobs and not (self._jobs[0].ready or self._tasks or self._stopped):
            self._changed.wait()
        self._caller_sleeps = False
        self._stats.wait_s += perf_counter() - began

    # what everybody does

    def work(self) -> bool:
        """Do one task; False when all is done.

        A call of its own, so that a thread that sleeps refers to no task: that would keep
        the slot of a window handed out long ago.
        """
        item = self.wait_for_task()
        if item is None:
            return False
        self.run(*item)
        return True

    def wait_for_task(self) -> tuple[Filled, Task] | None:
        """Return the next task; sleep while there is none; None when all is done."""
        with self._lock:
            while not self._stopped:
                item = self._next_task(caller=False)
                if item is not None:
                    return item
                if self._windows is None:
                    return None
                self._sleeping += 1
                self._changed.wait(LOOK_UP_S)
                self._sleeping -= 1
            return None

    def _next_task(self, *, caller: bool) -> tuple[Filled, Task] | None:
        while not self._tasks:
            if not self._claim(caller=caller):
                return None
        return self._tasks.popleft()

    def _claim(self, *, caller: bool) -> bool:
        """Give the next window a slot and cut it into tasks; False if that is impossible now."""
        if self._windows is None or self._stopped:
            return False
        try:
            slot = self._pool.take(force=caller and not self._jobs)
        except Exception as error:  # no memory for one more: told when the caller comes to it
            self._fail(Slot({}, 0), error)
            return True
        if slot is None:
            return False
        began = perf_counter()
        try:
            window = next(self._windows, None)
            if window is None:
                self._end(slot)
                return False
            self._open(slot, *window)
        except BaseException as error:
            self._fail(slot, error)
            if not isinstance(error, Exception):
                raise
        self._stats.plan_s += perf_counter() - began
        if self._sleeping and len(self._tasks) > 1:
            self._changed.notify_all()
        return True

    def _open(self, slot: Slot, start: int, stop: int, content: WindowRows) -> None:
        n = stop - start
        arrays = {
            lane.name: lane.room(content, self._group, slot.arrays[lane.name], n)
            for lane in self._lanes
        }
        job = Filled(start, stop, content, slot, arrays)
        slot.taken = False  # held from here on by its views: a job that is dropped gives it back
        tasks: list[tuple[Filled, Task]] = []
        for lane in self._lanes:
            todo = lane.tasks(content, self._group, arrays[lane.name])
            tasks += [(job, task) for task in todo]
        job.pending = len(tasks)
        job.ready = not tasks
        self._jobs.append(job)
        self._tasks.extend(tasks)
        self._stats.n_windows += 1
        self._stats.n_tasks += len(tasks)

    def _fail(self, slot: Slot, error: BaseException) -> None:
        """Let an error be met behind the windows that are on their way."""
        self._jobs.append(Filled(0, 0, WindowRows(), slot, {}, ready=True, error=error))
        self._end(slot)

    def _end(self, slot: Slot) -> None:
        slot.taken = False
        self._windows = None
        self._changed.notify_all()

    def run(self, job: Filled, task: Task) -> float:
        """Do one task and note that it is done; return how long it took."""
        began, before = perf_counter(), decode_s()
        error: BaseException | None = None
        try:
            if job.error is None:
                task()
        except BaseException as caught:
            error = caught
        decoded, took = decode_s() - before, perf_counter() - began
        with self._lock:
            self._stats.decode_s += decoded
            self._stats.read_s += took - decoded
            if self._skips and isinstance(error, ReadError):
                job.unread, error = True, None
            job.error = job.error or error
            job.pending -= 1
            if job.pending == 0:
                job.ready = True
                if self._caller_sleeps and self._jobs and self._jobs[0] is job:
                    self._changed.notify_all()
        if error is not None and not isinstance(error, Exception):
            raise error  # Ctrl-C waits for no window
        return took

    def stop(self) -> None:
        """Tell every thread to end after the task it is doing."""
        with self._changed:
            self._stopped = True
            self._windows = None
            self._tasks.clear()
            self._jobs.clear()
            self._changed.notify_all()

    def let_go(self) -> None:
        """Stop without waiting for the lock, because nobody iterates any more."""
        self._stopped = True
        wake_without_waiting(self._changed)
