"""Grain's MapDataset with its global shuffle."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from benchmarks.subject import Array, Batch, Subject
from benchmarks.timing import Epoch, Way

NAME = "Grain"
NEEDS = ("grain",)


class Source:
    """Grain's random access protocol; mapped where rows are contiguous, else through h5py."""

    def __init__(self, subject: Subject) -> None:
        self.rows = subject.quick()

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: Any) -> Array:
        return self.rows[int(row)]


def ways(subject: Subject, order: str) -> list[Way]:
    def make(few: bool) -> Any:
        def opened() -> Epoch:
            grain = importlib.import_module("grain")
            data = grain.MapDataset.source(Source(subject))
            if order != "file":
                data = data.shuffle(seed=7)
            options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=16) if few else None
            batches = data.batch(subject.batch_rows).to_iter_dataset(options)

            def epoch() -> Iterator[Batch]:
                for batch in batches:
                    yield (batch,)

            return epoch

        return opened

    kind = "file" if order == "file" else "full"
    shuffle = "" if order == "file" else "shuffle(seed)."
    rows = "mapped rows" if subject.is_mappable else "h5py rows"
    how = f"source({rows}).{shuffle}batch().to_iter_dataset(), its defaults"
    fewer = "the same, ReadOptions(num_threads=2, prefetch_buffer_size=16)"
    return [
        Way("Grain", "peer", kind, how, make(False)),
        Way("Grain, 2 threads", "peer", kind, fewer, make(True)),
    ]
