"""Reading a file that is not in the page cache; run as a process of its own.

Pages are dropped with ``posix_fadvise(DONTNEED)``, which needs no privileges for clean pages
that nobody maps, and ``mincore`` confirms it. Each way reads the whole file once; ways take
turns. Below the page cache there may be another one (of a virtual disk): the second reading
of a disk that is not real can be faster than the first, for everybody alike.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import statistics
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.files import BenchFile, image_specs, make
from labeled.bench import cache, ours
from labeled.bench.bare import GROUP_BYTES
from labeled.bench.timing import Way, run, touch

MOST_STAYED = 0.01


def evict(path: Path) -> float:
    """Drop a file from the page cache; return the share of it that stayed."""
    cache.evict(path)
    descriptor = os.open(path, os.O_RDWR)
    share = resident(descriptor)
    os.close(descriptor)
    return share


def resident(descriptor: int) -> float:
    """Return the share of a file that is in the page cache."""
    size = os.fstat(descriptor).st_size
    pages = -(-size // mmap.PAGESIZE)
    there = np.zeros(pages, np.uint8)
    with mmap.mmap(descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as view:
        anchor = ctypes.c_char.from_buffer(view)
        library = ctypes.CDLL(None, use_errno=True)
        address, out = ctypes.c_void_p(ctypes.addressof(anchor)), there.ctypes.data_as
        failed = library.mincore(address, ctypes.c_size_t(size), out(ctypes.c_void_p))
        del anchor
    return float("nan") if failed else float((there & 1).mean())


def plain_read(path: Path, n_threads: int) -> int:
    """Read a file in long stretches, each thread taking the next one; touch what was read."""
    descriptor, size = os.open(path, os.O_RDONLY), path.stat().st_size
    lock, places = threading.Lock(), iter(range(0, size, GROUP_BYTES))

    def work() -> None:
        buffer = np.empty(GROUP_BYTES, np.uint8)
        while True:
            with lock:
                place = next(places, None)
            if place is None:
                return
            touch(buffer[: os.preadv(descriptor, [buffer], place)])

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(descriptor)
    return size


def works(file: BenchFile) -> dict[str, Callable[[], object]]:
    """Return what is compared, each reading the whole file."""

    def consume(way: Way) -> Callable[[], object]:
        epoch = way.make()
        return lambda: run(epoch, 600.0)

    subject = file.subject(256)
    return {
        "plain read, 1 thread": lambda: plain_read(file.path, 1),
        "plain read, 2 threads": lambda: plain_read(file.path, 2),
        "ours, file order": consume(ours.in_order(subject)),
        "ours, window shuffle": consume(ours.window(subject)),
    }


def measure_cold(file: BenchFile, rounds: int) -> dict[str, Any]:
    """Time each way from a cold page cache, turn by turn."""
    found: dict[str, list[float]] = {}
    stayed: list[float] = []
    compared = works(file)
    for _ in range(rounds):
        for name, work in compared.items():
            stayed.append(evict(file.path))
            if not stayed[-1] <= MOST_STAYED:
                raise SystemExit(f"{file.path.name} is not cold: {stayed[-1]:.0%} of pages stayed")
            began = perf_counter()
            work()
            found.setdefault(name, []).append(perf_counter() - began)
    size = file.path.stat().st_size
    return {
        "file": file.spec.name,
        "mb": size / 1e6,
        "stayed": max(stayed),
        "mb_per_s": {n: [size / 1e6 / s for s in seconds] for n, seconds in found.items()},
        "median": {n: size / 1e6 / statistics.median(s) for n, s in found.items()},
    }


def files(folder: Path, scale: int) -> Iterator[BenchFile]:
    """Yield files of its own: pages of a file that another process maps cannot be dropped."""
    for spec in image_specs(scale):
        if spec.name in ("contiguous", "chunked"):
            yield make(replace(spec, name=f"cold-{spec.name}"), folder)


def main() -> None:
    folder, scale, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps([measure_cold(file, rounds) for file in files(folder, scale)]))


if __name__ == "__main__":
    main()
