"""A few threads that share one copy with their caller.

Work is cut into numbered units; the caller and its helpers claim stretches of them until none is
left, so a helper that wakes late, or is busy with another caller's copy, delays nobody. The
threads are started by the first copy that asks for them and never survive a fork.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

STRETCHES = 8  # stretches of units for each thread: late helpers still find work, claims stay few

MAX_THREADS = 8

_pool: ThreadPoolExecutor


def processors(most: int = MAX_THREADS) -> int:
    """Return how many threads this process may run at once, at most `most`."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(count, most)


def share(work: Callable[[int, int], None], n_units: int, threads: int) -> None:
    """Run ``work(first, last)`` over all units, on up to `threads` threads, the caller's one.

    The first error of any thread is raised once all have stopped.
    """
    if threads <= 1 or n_units <= 1:
        work(0, n_units)
        return
    stretch = max(1, n_units // (STRETCHES * threads))
    claims = iter(range(0, n_units, stretch))
    claiming = threading.Lock()

    def run() -> None:
        while True:
            with claiming:
                first = next(claims, None)
            if first is None:
                return
            work(first, min(first + stretch, n_units))

    helpers = list[Future[None]]()
    with suppress(RuntimeError):  # no thread is started once the main thread has ended
        helpers.extend(_pool.submit(run) for _ in range(min(threads, n_units) - 1))
    try:
        run()
    finally:
        waited = [helper for helper in helpers if not helper.cancel()]
        errors = [helper.exception() for helper in waited]
    for error in errors:
        if error is not None:
            raise error


def _renew() -> None:
    """Make a pool; a forked child needs one of its own, as the parent's threads are not there."""
    global _pool
    _pool = ThreadPoolExecutor(MAX_THREADS - 1, thread_name_prefix="labeled-permute")


_renew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
