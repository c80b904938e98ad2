"""Reading files that are not in the page cache: a plain loop, and this library.

Pages are dropped with ``posix_fadvise(DONTNEED)``, which needs no privileges for clean pages
that nobody maps, and ``mincore`` confirms it. So it is done in a process of its own, which
lets go of its maps before: this module, run as a program. Ways take turns; each begins with
nothing cached and reads everything. The plain loop reads the same stretches of the same files,
in pieces as large as ours. Below the page cache there may be another one (of a virtual disk):
the second reading of a disk that is not real can be faster than the first, for everybody alike.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks import ours
from benchmarks.bare import GROUP_BYTES, stored_chunks
from benchmarks.cache import evict, resident
from benchmarks.files import BenchFile, image_specs, make
from benchmarks.subject import Subject
from benchmarks.timing import Way, run, touch
from labeled.formats.bytesource import close_files

MAX_STAYED = 0.01
LIMIT_S = 2400.0

PLAIN = ("plain read, 1 thread", "plain read, 2 threads")
ORDERED, SHUFFLED = "ours, file order", "ours, window shuffle"


class Stretch(NamedTuple):
    """Bytes of a file that are read."""

    path: str
    start: int
    stop: int


def stretches(subject: Subject) -> list[Stretch]:
    """Return where the rows lie."""
    begin = subject.layout.offset
    if begin is not None:
        return [Stretch(subject.path, begin, begin + subject.n_rows * subject.row_bytes)]
    places = [(offset, offset + size) for offset, size in stored_chunks(subject)]
    return [Stretch(subject.path, start, stop) for start, stop in joined(places)]


def joined(places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join stretches that overlap, or have less than a piece between them.

    Examples
    --------
    >>> joined([(50 << 20, 60 << 20), (0, 1 << 20), (2 << 20, 3 << 20)])
    [(0, 3145728), (52428800, 62914560)]
    """
    out: list[tuple[int, int]] = []
    for start, stop in sorted(places):
        if out and start - out[-1][1] < GROUP_BYTES:
            out[-1] = (out[-1][0], max(out[-1][1], stop))
        else:
            out.append((start, stop))
    return out


def plain_read(wanted: Sequence[Stretch], n_threads: int) -> None:
    """Read stretches in long pieces, each thread taking the next one; touch what was read."""
    opened = {path: os.open(path, os.O_RDONLY) for path in {each.path for each in wanted}}
    pieces = iter(
        [
            (opened[each.path], at, min(GROUP_BYTES, each.stop - at))
            for each in wanted
            for at in range(each.start, each.stop, GROUP_BYTES)
        ]
    )
    lock = threading.Lock()

    def work() -> None:
        buffer: Any = np.empty(GROUP_BYTES, np.uint8)
        while True:
            with lock:
                descriptor, at, n = next(pieces, (-1, 0, 0))
            if not n:
                return
            touch(buffer[: os.preadv(descriptor, [buffer[:n]], at)])

    threads = [threading.Thread(target=work) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for descriptor in opened.values():
        os.close(descriptor)


def works(subject: Subject) -> dict[str, Callable[[], object]]:
    """Return what is compared."""
    wanted = stretches(subject)

    def consume(way: Way) -> Callable[[], object]:
        return lambda: run(way.make(), LIMIT_S)  # which keeps no map once it has returned

    return {
        PLAIN[0]: lambda: plain_read(wanted, 1),
        PLAIN[1]: lambda: plain_read(wanted, 2),
        ORDERED: consume(ours.in_order(subject)),
        SHUFFLED: consume(ours.window(subject)),
    }


def measure_cold(subject: Subject, rounds: int) -> dict[str, Any]:
    """Time each way from a cold page cache, turn by turn.

    Returns
    -------
    dict
        "mb" that each reads, the share of pages that "stayed" at most, rates in "mb_per_s",
        their "median", and "ratios" within a round.

    Raises
    ------
    SystemExit
        If pages stay in the cache.
    """
    path = subject.path
    n_bytes = sum(each.stop - each.start for each in stretches(subject))
    rates: dict[str, list[float]] = {}
    stayed = 0.0
    for _ in range(rounds):
        for name, work in works(subject).items():
            close_files()  # and with them their maps, whose pages cannot be dropped
            evict(path)
            left = resident(path)
            if not left <= MAX_STAYED:
                raise SystemExit(f"{path} is not cold: {left:.0%} of it stayed in the page cache")
            stayed = max(stayed, left)
            began = perf_counter()
            work()
            rates.setdefault(name, []).append(n_bytes / 1e6 / (perf_counter() - began))
    return {
        "mb": n_bytes / 1e6,
        "stayed": stayed,
        "mb_per_s": rates,
        "median": {name: statistics.median(found) for name, found in rates.items()},
        "ratios": cold_ratios(rates),
    }


def cold_ratios(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return medians of ratios within a round.

    Examples
    --------
    >>> rates = {PLAIN[0]: [4, 8], PLAIN[1]: [5, 10], ORDERED: [5, 20], SHUFFLED: [4, 10]}
    >>> cold_ratios(rates)
    {'file order / a plain read': 1.5, 'window shuffle / file order': 0.65}
    """
    plain = [max(both) for both in zip(*(rates[name] for name in PLAIN), strict=True)]
    pairs = (
        ("file order / a plain read", rates[ORDERED], plain),
        ("window shuffle / file order", rates[SHUFFLED], rates[ORDERED]),
    )
    return {
        name: statistics.median(a / b for a, b in zip(above, below, strict=True))
        for name, above, below in pairs
    }


def files(folder: Path, scale: int) -> Iterator[BenchFile]:
    """Yield files of its own: pages of a file that another process maps cannot be dropped."""
    for spec in image_specs(scale):
        if spec.name in ("contiguous", "chunked"):
            yield make(replace(spec, name=f"cold-{spec.name}"), folder)


def main() -> None:
    folder, scale, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    found = [
        {"file": file.spec.name, **measure_cold(file.subject(256), rounds)}
        for file in files(folder, scale)
    ]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
