"""How much memory of its own a piece of work takes, watched while it runs.

Anonymous and shared pages count; those of a mapped file belong to the system's cache. Only Linux
tells them apart.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

COUNTED = ("RssAnon:", "RssShmem:")
INTERVAL_S = 0.003


class PeakMemory:
    """Growth of this process's own memory in a ``with`` block.

    Attributes
    ----------
    peak_bytes : int or None
        The most above where it began; None where the system does not tell.
    """

    peak_bytes: int | None = None

    def __enter__(self) -> PeakMemory:
        gc.collect()
        self._base, self._ended = own_bytes(), threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="labeled-memory", daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._watcher.join()

    def _watch(self) -> None:
        ended = False
        while not ended:
            ended = self._ended.wait(INTERVAL_S)  # the last look comes after the work
            now = own_bytes()
            if now is not None and self._base is not None:
                self.peak_bytes = max(self.peak_bytes or 0, now - self._base)


def own_bytes() -> int | None:
    """Return the anonymous and shared memory of this process; None where nothing tells."""
    try:
        with open("/proc/self/status", encoding="utf-8") as status:
            counted = [int(line.split()[1]) << 10 for line in status if line.startswith(COUNTED)]
    except OSError:
        return None
    return sum(counted) if counted else None


def traced(work: Callable[[], Any]) -> tuple[Any, int]:
    """Return what some work makes, and the least that three times of it took at their peak.

    Imports, and threads that other tests left behind, take memory once.
    """
    peaks = list[int]()
    for _ in range(3):
        made = None
        tracemalloc.start()
        try:
            made = work()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return made, min(peaks)
