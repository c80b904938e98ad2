"""Reading files that are not in the page cache: a plain loop, and this library.

Pages are dropped with ``posix_fadvise(DONTNEED)``, which needs no privileges for clean pages
that nobody maps, and ``mincore`` confirms it. So it is done in a process of its own, which
lets go of its maps before: this module, run as a program. Ways take turns; each begins with
nothing cached and reads everything, or as much as there is time for. The plain loop reads the
same stretches of the same files, in as large pieces. Below the page cache there may be another
one (of a virtual disk): the second reading of a disk that is not real can be faster than the
first, for everybody alike.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from labeled.bench import ours
from labeled.bench.bare import GROUP_BYTES, stored_chunks
from labeled.bench.cache import evict, resident, stays_warm
from labeled.bench.subject import Stored, Subject
from labeled.bench.timing import PATIENCE, Way, run, touch
from labeled.catalog.source import Source
from labeled.formats.bytesource import close_files
from labeled.selection import Selection

MOST_STAYED = 0.01
LEAST = 8 << 20
"""Reading fewer bytes than these tells of the system, not of storage."""

PLAIN = ("plain read, 1 thread", "plain read, 2 threads")
ORDERED, SHUFFLED = "ours, file order", "ours, window shuffle"

Found = dict[str, Any]


class Stretch(NamedTuple):
    """Bytes of a file that are read."""

    path: str
    start: int
    stop: int


def stretches(subject: Subject) -> list[Stretch]:
    """Return where the rows lie: of files whose layout is not known here, all of them."""
    found: dict[str, list[tuple[int, int]]] = {}
    parts = stored_parts(subject)
    if not parts:
        return [Stretch(path, 0, os.path.getsize(path)) for path in subject.dataset.files.paths]
    for one in parts:
        found.setdefault(one.header.file.path, []).extend(_places(one))
    return [
        Stretch(path, start, stop)
        for path, places in found.items()
        for start, stop in joined(places)
    ]


def stored_parts(subject: Subject) -> list[Stored]:
    """Return every source as it lies in each of its files, where it is an array there."""
    found = []
    for name in subject.dataset.sources:
        source = subject.dataset.files.catalog.sources[name]
        if len(source.headers) == 1 and isinstance(source, Source):
            found.append(Stored(source.headers[0], subject.dataset.selection(name)))
            continue
        for header in source.headers:
            arrays = [header] if isinstance(source, Source) else list(header.parts.values())
            if not isinstance(source, Source) and "values" not in header.parts:
                return []
            found += [Stored(one, Selection.of(range(one.n_rows))) for one in arrays]
    return found


def _places(one: Stored) -> Iterator[tuple[int, int]]:
    header, span = one.header, one.span
    size = os.path.getsize(header.file.path)
    if span is not None and one.is_mappable:
        begin, row = header.offset or 0, header.row_bytes
        yield begin + span.start * row, begin + span.stop * row
    elif span is not None and one.is_hdf5 and header.storage == "chunked":
        try:
            chunks = stored_chunks(one)
        except ValueError:  # chunks of parts of rows, or some that were never written
            chunks = [(0, size)]
        for offset, n in chunks:
            yield offset, offset + n
    elif header.storage != "empty":
        yield 0, size


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


def plain_read(wanted: Sequence[Stretch], n_threads: int, limit_s: float) -> int:
    """Read stretches in long pieces, each thread taking the next one; touch what was read.

    Returns
    -------
    int
        How many bytes there was time for.
    """
    opened = {path: os.open(path, os.O_RDONLY) for path in {each.path for each in wanted}}
    pieces = iter(
        [
            (opened[each.path], at, min(GROUP_BYTES, each.stop - at))
            for each in wanted
            for at in range(each.start, each.stop, GROUP_BYTES)
        ]
    )
    lock, read, began = threading.Lock(), [0] * n_threads, perf_counter()

    def work(number: int) -> None:
        buffer: Any = np.empty(GROUP_BYTES, np.uint8)
        while perf_counter() - began < limit_s:
            with lock:
                descriptor, at, n = next(pieces, (-1, 0, 0))
            if not n:
                return
            part = buffer[: os.preadv(descriptor, [buffer[:n]], at)]
            touch(part)
            read[number] += len(part)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for descriptor in opened.values():
        os.close(descriptor)
    return sum(read)


def works(subject: Subject, limit_s: float) -> tuple[dict[str, Callable[[], float]], float]:
    """Return what is compared, each telling the bytes that it got through; and all bytes."""
    wanted = stretches(subject)
    n_bytes = sum(each.stop - each.start for each in wanted)

    def consume(way: Way) -> Callable[[], float]:
        epoch = way.make()
        return lambda: run(epoch, limit_s * PATIENCE).n_rows / subject.n_rows * n_bytes

    return {
        PLAIN[0]: lambda: plain_read(wanted, 1, limit_s),
        PLAIN[1]: lambda: plain_read(wanted, 2, limit_s),
        ORDERED: consume(ours.in_order(subject)),
        SHUFFLED: consume(ours.window(subject)),
    }, n_bytes


def why_not(subject: Subject) -> str | None:
    """Say why reading from a cold cache cannot be measured, if that is so."""
    found = next(filter(None, map(stays_warm, subject.dataset.files.paths)), None)
    if found is None and not _is_a_stretch(subject):
        found = "these rows do not follow one another, as a plain loop reads them"
    if found is None and not stored_parts(subject) and _among_others(subject):
        found = "where its rows lie among those of other sources is not known"
    if found is None and (n := sum(part.stop - part.start for part in stretches(subject))) < LEAST:
        found = f"its {n / 1e6:.1f} MB are read too fast to tell"
    return found


def _is_a_stretch(subject: Subject) -> bool:
    """Whether the rows are those of the files, or follow one another in a single one."""
    whole = all(
        subject.n_rows == sum(header.n_rows for header in source.headers)
        for name, source in subject.dataset.files.catalog.sources.items()
        if name in subject.dataset.sources
    )
    single = bool(subject.stored) and all(one.span is not None for one in subject.stored)
    return whole or single


def _among_others(subject: Subject) -> bool:
    """Whether other sources take much of the files."""
    sources = subject.dataset.files.catalog.sources
    others = [one for name, one in sources.items() if name not in subject.dataset.sources]
    n_bytes = sum(one.row_bytes * one.n_rows for one in others if one.ragged is None)
    ragged = any(one.ragged is not None for one in others)
    return ragged or n_bytes > 0.1 * sum(map(os.path.getsize, subject.dataset.files.paths))


def measure_cold(subject: Subject, rounds: int, limit_s: float = 600.0) -> Found:
    """Time each way from a cold page cache, turn by turn.

    Parameters
    ----------
    limit_s : float
        Of one reading; four times as long for this library, which fills its windows first.

    Returns
    -------
    dict
        "mb" that each would read, the share of pages that "stayed" at most, rates in
        "mb_per_s", their "median", and "ratios" within a round. Only "why" if pages stay.
    """
    rates: dict[str, list[float]] = {}
    stayed = 0.0
    for _ in range(rounds):
        compared, n_bytes = works(subject, limit_s)
        for name, work in compared.items():
            close_files()  # and with them their maps, whose pages cannot be dropped
            for path in subject.dataset.files.paths:
                evict(path)
                left = resident(path)
                if not left <= MOST_STAYED:
                    return {"why": f"{left:.0%} of {path!r} stayed in the page cache: {STAYED}"}
                stayed = max(stayed, left)
            began = perf_counter()
            done = work()
            rates.setdefault(name, []).append(done / 1e6 / (perf_counter() - began))
    return {
        "mb": n_bytes / 1e6,
        "stayed": stayed,
        "mb_per_s": rates,
        "median": {name: statistics.median(found) for name, found in rates.items()},
        "ratios": cold_ratios(rates),
    }


STAYED = "another process maps it, or you may not write it, so that the system does not tell"


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


def in_a_process(module: str, *words: str) -> Any:
    """Run a module as a program of its own; return what it printed, which is JSON.

    Raises
    ------
    RuntimeError
        If it failed: with the last line that it said.
    """
    done = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it ended without a word"])[-1])
    return json.loads(done.stdout)
