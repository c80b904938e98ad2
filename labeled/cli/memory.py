"""How much memory of its own a piece of work takes, watched while it runs.

A thread looks at the process's anonymous and shared pages every few milliseconds; pages
of a mapped file belong to the system's cache and do not count. Only Linux tells them apart.
"""

from __future__ import annotations

import gc
import threading
from types import TracebackType

COUNTED = ("RssAnon:", "RssShmem:")
INTERVAL_S = 0.003


class PeakMemory:
    """Growth of this process's own memory in a ``with`` block.

    Attributes
    ----------
    peak_bytes : int or None
        The most above where it began; None where the system does not tell.

    Examples
    --------
    >>> with PeakMemory() as memory:
    ...     ballast = b"x" * (32 << 20)
    >>> memory.peak_bytes  # what else the process does meanwhile counts too  # doctest: +SKIP
    33558528
    """

    def __init__(self) -> None:
        self.peak_bytes: int | None = None
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="labeled-memory", daemon=True)

    def __enter__(self) -> PeakMemory:
        gc.collect()
        self._base = own_bytes()
        self._look()
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._look()
        self._ended.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            self._look()

    def _look(self) -> None:
        now = own_bytes()
        if now is not None and self._base is not None:
            self.peak_bytes = max(self.peak_bytes or 0, now - self._base)


def own_bytes() -> int | None:
    """Return the anonymous and shared memory of this process; None where nothing tells."""
    try:
        with open("/proc/self/status", "rb") as status:
            lines = status.read().decode().splitlines()
    except OSError:
        return None
    counted = [int(line.split()[1]) << 10 for line in lines if line.startswith(COUNTED)]
    return sum(counted) if counted else None
