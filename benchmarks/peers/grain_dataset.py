"""Grain's MapDataset with its global shuffle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain

from benchmarks.bare import mapped
from benchmarks.files import BenchFile
from benchmarks.measure import Array, Epoch, Way
from benchmarks.peers.common import dataset


class Source:
    """Grain's random access protocol; mapped where rows are contiguous, else through h5py."""

    def __init__(self, file: BenchFile) -> None:
        self.rows: Any = mapped(file) if file.spec.chunk_rows is None else dataset(file)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: Any) -> Array:
        return self.rows[int(row)]


def ways(file: BenchFile, batch_rows: int, order: str) -> list[Way]:
    def make(options: Any) -> Any:
        def opened() -> Epoch:
            data = grain.MapDataset.source(Source(file))
            if order != "file":
                data = data.shuffle(seed=7)
            batches = data.batch(batch_rows).to_iter_dataset(options)

            def epoch() -> Iterator[Array]:
                yield from batches

            return epoch

        return opened

    kind = "file" if order == "file" else "full"
    shuffle = "" if order == "file" else "shuffle(seed)."
    rows = "mapped rows" if file.spec.chunk_rows is None else "h5py rows"
    few = grain.ReadOptions(num_threads=2, prefetch_buffer_size=16)
    return [
        Way(
            "Grain",
            "peer",
            kind,
            f"source({rows}).{shuffle}batch().to_iter_dataset(), its defaults",
            make(None),
        ),
        Way(
            "Grain, 2 threads",
            "peer",
            kind,
            "the same, ReadOptions(num_threads=2, prefetch_buffer_size=16)",
            make(few),
        ),
    ]
