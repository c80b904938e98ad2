"""Threads: all that this library starts.

:func:`share` divides work between its caller and a pool that lasts as long as the process. Whoever
shares also works, and waits for nobody who has not begun, so it may be called in a thread of any
kind, in one of the pool, too. The pool does not survive a fork: a child has its own.

:func:`workers` and :func:`in_threads` are threads for one piece of work, and end with it. Each of
those keeps the memory that it reads, decodes and measures in, often megabytes; threads that last
would keep it for ever. Their number is what the caller asked for, and what its memory allows.

:func:`background` starts a thread that goes on until somebody stops it.
"""

from __future__ import annotations

import atexit
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from math import inf
from threading import Lock, Thread
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakMethod

T = TypeVar("T")
R = TypeVar("R")

# results to wait for: the bytes that each takes, and what waits for it and returns it
Waiting = deque[tuple[int, Callable[[], R]]]

STRETCHES = 8  # stretches of units for each thread: late helpers still find work, claims stay few

MAX_THREADS = 8

EXIT_S = 10.0  # how long the end of the program waits for each thread in the background

LOOK_UP_S = 1.0  # how long a thread in the background sleeps before it looks whether to stop

_STOPS = WeakKeyDictionary[Thread, WeakMethod[Any]]()  # of threads in the background


def processors(most: int = MAX_THREADS) -> int:
    """Return how many threads this process may run at once, at most `most`."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(count, most)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MAX_THREADS - 1, "labeled-share")


if hasattr(os, "register_at_fork"):  # the parent's threads are not in the child
    os.register_at_fork(after_in_child=_pool.cache_clear)


def share(work: Callable[[int, int], None], n_units: int, threads: int) -> None:
    """Run ``work(first, last)`` over all units, on up to `threads` threads, the caller's one.

    Stretches of units are claimed until none is left, so a helper that wakes late, or is busy with
    another caller's units, delays nobody. The first error of any thread is raised once all have
    stopped.
    """
    if threads <= 1 or n_units <= 1:
        work(0, n_units)
        return
    stretch = max(1, n_units // (STRETCHES * threads))
    claims = iter(range(0, n_units, stretch))
    claiming = Lock()

    def run() -> None:
        while True:
            with claiming:
                first = next(claims, None)
            if first is None:
                return
            work(first, min(first + stretch, n_units))

    helpers = list[Future[None]]()
    with suppress(RuntimeError):  # no thread is started once the main thread has ended
        helpers.extend(_pool().submit(run) for _ in range(min(threads, n_units) - 1))
    try:
        run()
    finally:
        waited = [helper for helper in helpers if not helper.cancel()]
        wait(waited)
    for helper in waited:
        helper.result()


def workers(threads: int) -> ThreadPoolExecutor:
    """Return threads, one at least, that end with the ``with`` block of what is returned."""
    return ThreadPoolExecutor(max(1, threads), "labeled-work")


def in_threads(work: Callable[[T], R], items: Sequence[T], threads: int) -> Iterator[R]:
    """Yield what `work` makes of each item, in order; one thread is the caller's own."""
    done: Iterator[R] = map(work, items)
    if threads <= 1 or len(items) <= 1:
        yield from done
        return
    with workers(threads) as pool:
        with suppress(RuntimeError):  # no thread is started once the main thread has ended
            done = pool.map(work, items)
        yield from done


def taken(waiting: Waiting[R], most: float = 0, room: float = inf) -> Iterator[R]:
    """Yield results, in order, until `most` at most, of `room` bytes at most, are left."""
    while waiting and (len(waiting) > most or sum(n_bytes for n_bytes, _ in waiting) > room):
        yield waiting.popleft()[1]()


def background(work: Callable[[], Any], name: str, stop: Callable[[], Any]) -> Thread:
    """Start a thread that does not keep the program alive.

    One that Python stops within HDF5 holds its lock for ever: the end of the program calls `stop`
    and gives the thread the time to end, or HDF5 is taken down while it reads.

    Parameters
    ----------
    stop : method
        Of an object that `work` holds; it waits for nothing.

    Raises
    ------
    RuntimeError
        Where the system allows no more threads.
    """
    # At each start, since what was registered last, after h5py's own, is done first.
    atexit.unregister(_stop_all)
    atexit.register(_stop_all)
    thread = Thread(target=work, name=name, daemon=True)
    thread.start()
    _STOPS[thread] = WeakMethod(stop)
    return thread


def _stop_all() -> None:
    """Let threads end their tasks before the program ends."""
    stops = [method() for method in _STOPS.values()]
    for stop in filter(None, stops):
        stop()
    for thread in [*_STOPS]:
        thread.join(EXIT_S)
