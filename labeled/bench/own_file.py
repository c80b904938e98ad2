"""Measuring a file of anybody's: what was asked for, every way to read it, peak memory.

A request travels as plain words, because peak memory is measured in fresh processes: this
module, run as a program, is such a process.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

from labeled.api.dataset import Dataset
from labeled.api.opening import open_dataset
from labeled.bench import bare, ours
from labeled.bench.peak import serve, watch
from labeled.bench.peers import peer_ways
from labeled.bench.subject import Subject, dense_sources, find_labels
from labeled.bench.timing import Measured, Way
from labeled.errors import LoaderError

ORDERS = ("file", "shuffled")


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

    def opened(self) -> Dataset:
        """Open the file, at the rows that were asked for."""
        dataset = open_dataset(self.file)
        return dataset if self.split is None else dataset.split(self.split)

    def dataset(self) -> Dataset:
        """Open the file; choose rows and sources.

        Raises
        ------
        LoaderError
            If a source that was named, or every one, has rows that are no plain numbers.
        """
        dataset = self.opened()
        if self.sources:
            dataset = dataset.select(*self.sources)
        dense = dense_sources(dataset)
        left_out = [name for name in dataset.sources if name not in dense]
        if not dense or (left_out and self.sources):
            raise LoaderError(
                f"{self.file!r}: {', '.join(map(repr, left_out))} cannot be measured, because "
                "rows must be numbers, all of one shape; name other sources with --source"
            )
        if not dataset.n_rows:
            raise LoaderError(f"{self.file!r} has no rows to measure")
        return dataset.select(*dense) if left_out else dataset

    def subject(self) -> Subject:
        """Return what all ways read, with the classes of its rows if a source holds them."""
        dataset = self.dataset()
        name, values = find_labels(dataset) or (None, None)
        return Subject(dataset, self.batch_rows, self.memory, values, name)


def every_way(subject: Subject, missing: dict[str, str]) -> list[Way]:
    """Return every way to read a subject; what is not installed goes into `missing`."""
    found: dict[str, Way] = {}
    for order in ORDERS:
        for way in (
            *bare.ways(subject, order),
            *ours.ways(subject, order),
            *peer_ways(subject, order, missing),
        ):
            found.setdefault(way.full_name, way)
    return list(found.values())


def watch_all(
    asked: Asked, found: Iterable[Measured], seconds: float, tell: Callable[[], object]
) -> dict[str, str]:
    """Measure the peak memory of each way in a process of its own, where the system tells."""
    return watch(__name__, [json.dumps(asdict(asked))], found, seconds, tell)


def main() -> None:
    """Be the process in which ways are watched."""
    words = json.loads(sys.argv[1])
    asked = Asked(**{**words, "sources": tuple(words["sources"])})
    subject = Subject(asked.dataset(), asked.batch_rows, asked.memory)
    serve(every_way(subject, {}), sys.argv[2:])


if __name__ == "__main__":
    main()
