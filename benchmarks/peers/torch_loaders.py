"""``torch.utils.data.DataLoader``: row by row, batch by batch, with workers, and by hand.

The loader written by hand is the rival to beat: index lists on the mapped file where rows lie
contiguously; windows of random stored chunks, read through h5py and shuffled in memory, where
they are compressed (two workers then decode in two processes, each under its own lock).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    get_worker_info,
)

from benchmarks.bare import mapped
from benchmarks.files import BenchFile
from benchmarks.measure import Array, Epoch, Way
from benchmarks.ours import MEMORY
from benchmarks.peers.common import dataset

WINDOW_BYTES = 32 << 20
"""Half of the memory that this library is given: a window in use, and one being read."""


class Rows(Dataset[Any]):
    """Rows of a file through h5py, opened in the process that reads."""

    def __init__(self, file: BenchFile) -> None:
        self.file = file
        self.x: Any = None

    def opened(self) -> Any:
        if self.x is None:
            self.x = dataset(self.file)
        return self.x

    def __len__(self) -> int:
        return self.file.spec.n_rows

    def __getitem__(self, row: int) -> torch.Tensor:
        return torch.from_numpy(self.opened()[row])


class RowLists(Rows):
    """The rows of a batch in one sorted request (``__getitems__``)."""

    def __getitems__(self, rows: list[int]) -> torch.Tensor:
        ordered = sorted(rows)
        if ordered[-1] - ordered[0] == len(rows) - 1:
            return torch.from_numpy(self.opened()[ordered[0] : ordered[-1] + 1])
        return torch.from_numpy(self.opened()[ordered])


class Mapped(Rows):
    """Index lists on the mapped file: one gather a batch."""

    def opened(self) -> Any:
        if self.x is None:
            self.x = mapped(self.file)
        return self.x

    def __getitem__(self, rows: Any) -> torch.Tensor:
        if rows[-1] - rows[0] == len(rows) - 1 and rows[1:2] == [rows[0] + 1]:
            return torch.from_numpy(self.opened()[rows[0] : rows[-1] + 1].copy())
        return torch.from_numpy(self.opened()[rows])


class Windows(IterableDataset[Any]):
    """Windows of random stored chunks, shuffled in memory, cut into batches."""

    def __init__(self, file: BenchFile, batch_rows: int, shuffled: bool) -> None:
        self.file, self.batch_rows, self.shuffled = file, batch_rows, shuffled
        self.epoch = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        spec, worker = self.file.spec, get_worker_info()
        number, count = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        chunk_rows = spec.chunk_rows or self.batch_rows
        random = np.random.default_rng(self.epoch)
        self.epoch += 1
        chunks = np.arange(-(-spec.n_rows // chunk_rows))
        if self.shuffled:
            random.shuffle(chunks)
        chunks, x = chunks[number::count], dataset(self.file)
        a_window = max(1, WINDOW_BYTES // count // (chunk_rows * spec.row_bytes))
        for first in range(0, len(chunks), a_window):
            window = [
                x[c * chunk_rows : (c + 1) * chunk_rows] for c in chunks[first : first + a_window]
            ]
            rows = np.concatenate(window)
            if self.shuffled:
                rows = rows[random.permutation(len(rows))]
            for a in range(0, len(rows), self.batch_rows):
                yield torch.from_numpy(rows[a : a + self.batch_rows])


def same(batch: Any) -> Any:
    """Collate nothing: the batch is one tensor already."""
    return batch


def _make(build: Callable[[], Any]) -> Callable[[], Epoch]:
    def make() -> Epoch:
        loader = build()

        def epoch() -> Iterator[Array]:
            for batch in loader:
                yield batch.numpy()

        return epoch

    return make


def ways(file: BenchFile, batch_rows: int, order: str) -> list[Way]:
    shuffled = order != "file"
    quality = "full" if shuffled else "file"
    workers: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}

    def by_rows(**more: Any) -> Any:
        return DataLoader(Rows(file), batch_rows, shuffle=shuffled, **more)

    def by_lists(**more: Any) -> Any:
        return DataLoader(RowLists(file), batch_rows, shuffle=shuffled, collate_fn=same, **more)

    def by_hand(**more: Any) -> Any:
        data = Mapped(file)
        sampler: Any = RandomSampler(data) if shuffled else SequentialSampler(data)
        batches = BatchSampler(sampler, batch_rows, drop_last=False)
        return DataLoader(data, sampler=batches, batch_size=None, **more)

    def by_windows(**more: Any) -> Any:
        return DataLoader(Windows(file, batch_rows, shuffled), batch_size=None, **more)

    def way(name: str, kind: str, how: str, build: Callable[[], Any]) -> Way:
        return Way(f"torch {name}", "peer", kind, how, _make(build))

    found = [
        way("__getitem__", quality, "h5py, row by row, default collate", by_rows),
        way("__getitems__", quality, "h5py, one sorted request a batch", by_lists),
        way(
            "__getitems__, 2 workers",
            quality,
            "the same in two persistent workers",
            lambda: by_lists(**workers),
        ),
    ]
    if file.spec.chunk_rows is None:
        how = "by hand: BatchSampler as sampler, one gather a batch from the mapped file"
        found.append(way("by hand", quality, how, by_hand))
        found.append(
            way("by hand, 2 workers", quality, how + "; 2 workers", lambda: by_hand(**workers))
        )
    else:
        kind = "window" if shuffled else "file"
        how = f"by hand: windows of stored chunks through h5py, half of {MEMORY}"
        found.append(way("by hand", kind, how, by_windows))
        found.append(
            way("by hand, 2 workers", kind, how + "; 2 workers", lambda: by_windows(**workers))
        )
    return found
