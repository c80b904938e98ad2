"""Measuring a file of anybody's: what was asked for, every way to read it, peak memory.

A request travels as plain words, because some things are measured in fresh processes: peak
memory, opening, and reading from a cold page cache. This module, run as a program, is such a
process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

from labeled.api.dataset import Dataset
from labeled.api.opening import open_dataset
from labeled.bench import bare, cold, ours, pictures, uneven
from labeled.bench.peak import serve, watch
from labeled.bench.peers import peer_ways
from labeled.bench.subject import Subject, find_labels, form_of, named
from labeled.bench.timing import Measured, Way
from labeled.errors import LoaderError
from labeled.loader.sizing.memory import memory_of, size_words

ORDERS = ("file", "shuffled")
MOST_UNEVEN = 3
"""Sources of uneven rows that are measured, unless they are named."""

MOST_MEMORY = 4 << 30
"""That is taken without being asked for."""

LITTLE = 100
"""Numbers that take so many times less than examples beside them are not measured."""


@dataclass(frozen=True)
class Asked:
    """What is to be measured.

    Parameters
    ----------
    sources : tuple of str
        All that can be measured when empty.
    split : str, optional
        Whose rows; those of the file when None.
    """

    file: str
    sources: tuple[str, ...]
    split: str | None
    batch_rows: int
    memory: str
    allow_external: bool = False

    def opened(self) -> Dataset:
        """Open the file, at the sources and rows that were asked for."""
        dataset = open_dataset(
            self.file, sources=self.sources or None, allow_external=self.allow_external
        )
        return dataset if self.split is None else dataset.split(self.split)

    def chosen(self) -> Dataset:
        """Open the file, and see that it can be measured.

        Raises
        ------
        LoaderError
            If a source that was named, or every one, can not be measured.
        """
        dataset = self.opened()
        unknown = named(dataset, None)
        if len(unknown) == len(dataset.sources) or (unknown and self.sources):
            raise LoaderError(
                f"{self.file!r}: {', '.join(map(repr, unknown))} cannot be measured, because "
                "rows must be numbers or text; name other sources with --source"
            )
        if not dataset.n_rows:
            raise LoaderError(f"{self.file!r} has no rows to measure")
        return dataset

    def subjects(self) -> list[Subject]:
        """Return what ways read: the numbers of one shape together, then other sources singly.

        The numbers come with the classes of their rows, if a source holds them.
        """
        dataset, found = self.chosen(), []
        if numbers := named(dataset, "numbers"):
            plain = dataset.select(*numbers)
            name, values = find_labels(plain) or (None, None)
            found.append(Subject(plain, self.batch_rows, self.memory, values, name))
        others = [
            Subject(dataset.select(name), self.batch_rows, self.memory)
            for name in named(dataset, "ragged", "text")
        ]
        if self.sources:
            return [*found, *others]
        others = sorted(others, key=lambda one: -one.row_bytes)[:MOST_UNEVEN]
        little = found and others and LITTLE * found[0].row_bytes < others[0].row_bytes
        return others if little else [*found, *others]

    def fitting(self) -> Asked:
        """Return the request with as much memory as every order of every source needs.

        Raises
        ------
        LoaderError
            If that is more than :data:`MOST_MEMORY`.
        """
        memory = memory_of(self.memory)
        for subject in self.subjects():
            while memory < MOST_MEMORY and not _fits(subject, memory):
                memory += memory // 4  # little more than needed: rows that fit are kept
            check_memory(subject, memory)
        return (
            self if memory == memory_of(self.memory) else replace(self, memory=size_words(memory))
        )

    def subject(self) -> Subject:
        """Return the first of what ways read."""
        return self.subjects()[0]

    def of(self, subject: Subject) -> Asked:
        """Return the request for this subject alone."""
        return replace(self, sources=subject.dataset.sources)

    def left_out(self, subjects: Iterable[Subject]) -> dict[str, str]:
        """Return the sources that were not measured, and why."""
        measured = {name for one in subjects for name in one.dataset.sources}
        dataset = self.opened()
        return {
            name: "rows that are neither numbers nor text"
            if form_of(dataset, name) is None
            else f"little beside the others; --source {name} measures it"
            for name in dataset.sources
            if name not in measured and not self.sources
        }


def check_memory(subject: Subject, memory: int | str) -> None:
    """Make the loaders that will be measured, which reads nothing.

    Raises
    ------
    LoaderError
        If one of them cannot be, in so much memory.
    """
    for shuffle in (False, "window", "full"):
        ours.loader(subject, shuffle=shuffle, memory=memory)


def _fits(subject: Subject, memory: int) -> bool:
    try:
        check_memory(subject, memory)
    except LoaderError:
        return False
    return True


def every_way(subject: Subject, missing: dict[str, str]) -> list[Way]:
    """Return every way to read a subject; what is not installed goes into `missing`."""
    found: dict[str, Way] = {}
    for order in ORDERS:
        for way in _ways(subject, order, missing):
            found.setdefault(way.full_name, way)
    return list(found.values())


def _ways(subject: Subject, order: str, missing: dict[str, str]) -> list[Way]:
    if subject.form != "numbers":
        return uneven.ways(subject, order)
    return [
        *bare.ways(subject, order),
        *pictures.decode_pictures(subject, order),
        *ours.ways(subject, order),
        *peer_ways(subject, order, missing),
    ]


def fresh_figures(asked: Asked, subject: Subject, rounds: int, limit_s: float) -> dict[str, Any]:
    """Measure what only a new process can: opening the file, and reading it uncached.

    Parameters
    ----------
    subject : Subject
        What is read.
    rounds : int
        Readings from a cold page cache; none if 0.
    limit_s : float
        Of one of these.

    Returns
    -------
    dict
        "open_s", and what :func:`.cold.measure_cold` returns as "cold".
    """
    why = cold.why_not(subject) if rounds else "not asked for"
    words = json.dumps(asdict(asked.of(subject)))
    try:
        found: dict[str, Any] = cold.in_a_process(
            __name__, words, FRESH, str(0 if why else rounds), str(limit_s)
        )
    except RuntimeError as error:
        return {"cold": {"why": str(error)}}
    return {**found, "cold": {"why": why} if why else found["cold"]}


def _be_fresh(asked: Asked, rounds: int, limit_s: float) -> dict[str, Any]:
    began = perf_counter()
    asked.opened()
    open_s = perf_counter() - began
    subject = asked.subject()
    return {"open_s": open_s, "cold": cold.measure_cold(subject, rounds, limit_s) if rounds else {}}


def watch_all(
    asked: Asked, found: Iterable[Measured], seconds: float, tell: Callable[[], object]
) -> dict[str, str]:
    """Measure the peak memory of each way in a process of its own, where the system tells."""
    return watch(__name__, [json.dumps(asdict(asked))], found, seconds, tell)


FRESH = "fresh"


def main() -> None:
    """Be a process in which ways are watched, or that has opened nothing yet."""
    words = json.loads(sys.argv[1])
    asked = Asked(**{**words, "sources": tuple(words["sources"])})
    if sys.argv[2] == FRESH:
        print(json.dumps(_be_fresh(asked, int(sys.argv[3]), float(sys.argv[4]))))
    else:
        serve(every_way(asked.subject(), {}), sys.argv[2:])


if __name__ == "__main__":
    main()
