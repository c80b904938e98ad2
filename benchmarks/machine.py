"""Where a run was made, as far as it matters to its figures.

How near the cores are to each other matters: what one has read, another must fetch to
overwrite. A virtual machine's cores may lie side by side, or on parts of a processor that share
no cache, and its host may move them in the middle of a run. Whatever hands memory from thread
to thread becomes several times slower then, so results are told apart by this figure.
"""

from __future__ import annotations

import os
import platform
import statistics
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

PACKAGES = (
    "labeled",
    "numpy",
    "h5py",
    "hdf5plugin",
    "dask",
    "xarray",
    "deflate",
    "imagecodecs",
    "numba",
    "torch",
    "xbatcher",
    "grain",
    "scDataset",
    "pyfive",
)

COPY_BYTES = 768 * 1024
TURNS = 100


def machine() -> dict[str, Any]:
    """Describe where a run was made, as far as it matters to its figures."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _line("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": _cores(),
        "handover": _handover(),
        "memory": _line("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "huge_pages": _whole("/sys/kernel/mm/transparent_hugepage/enabled"),
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "allocator": "results recycled (a 24 MiB block was freed before timing)",
        "load": [round(x, 2) for x in _load()],
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _handover() -> str:
    found = handover()
    return "" if found is None else f"{found:.1f} x a copy, over lines that another core has read"


def _cores() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _load() -> Sequence[float]:
    return os.getloadavg() if hasattr(os, "getloadavg") else ()


def _line(path: str, key: str) -> str:
    for line in _whole(path).splitlines():
        if line.startswith(key):
            return line.split(":", 1)[1].strip()
    return ""


def _whole(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


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
