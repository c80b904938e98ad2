"""How near the cores are to each other: what one has read, another must fetch to overwrite.

A virtual machine's cores may lie side by side, or on parts of a processor that share no cache,
and its host may move them in the middle of a run. Whatever hands memory from thread to thread
becomes several times slower then, so results are told apart by this figure.
"""

from __future__ import annotations

import os
import statistics
import threading
from collections.abc import Callable
from time import perf_counter

import numpy as np

COPY_BYTES = 768 * 1024
TURNS = 100


def handover() -> float | None:
    """Measure how much longer a copy takes over lines that another core has just read.

    Returns
    -------
    float or None
        Of the time of the same copy while nobody else looks; 2 to 3 where cores share a cache.
        None with a single core, or where threads cannot be held to one.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        return None
    source, target = np.ones(COPY_BYTES, np.uint8), np.ones(COPY_BYTES, np.uint8)

    def write() -> None:
        np.copyto(target, source)

    shared = _in_turns(cores, write, lambda: np.add.reduce(target[::64], dtype=np.uint8))
    return shared / _in_turns(cores, write, lambda: None)


def _in_turns(cores: list[int], first: Callable[[], object], second: Callable[[], object]) -> float:
    """Run two works in turns, each on a core of its own; return the median seconds of the first."""
    turns = threading.Semaphore(1), threading.Semaphore(0)
    took: list[float] = []

    def run(number: int, work: Callable[[], object]) -> None:
        os.sched_setaffinity(0, {cores[number]})  # of this thread alone
        for _ in range(TURNS):
            turns[number].acquire()
            began = perf_counter()
            work()
            if number == 0:
                took.append(perf_counter() - began)
            turns[1 - number].release()

    threads = [threading.Thread(target=run, args=args) for args in enumerate((first, second))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.median(took)
