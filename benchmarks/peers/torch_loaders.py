"""``torch.utils.data.DataLoader``: row by row, batch by batch, with workers, and by hand.

The loader written by hand is the rival to beat: index lists on the mapped file where rows lie
contiguously; windows of random stored chunks, read through h5py and shuffled in memory, where
they are compressed (two workers then decode in two processes, each under its own lock).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.subject import Batch, Subject
from benchmarks.timing import Epoch, Way

NAME = "torch DataLoader"
NEEDS = ("torch",)


def _torch(name: str = "torch") -> Any:
    return importlib.import_module(name)


class Rows:
    """Rows of a file through h5py, opened in the process that reads."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.rows: Any = None

    def opened(self) -> Any:
        if self.rows is None:
            self.rows = self.subject.by_h5py()
        return self.rows

    def __len__(self) -> int:
        return self.subject.n_rows

    def __getitem__(self, row: int) -> Any:
        return _tensor(np.asarray(self.opened()[row]))


class RowLists(Rows):
    """The rows of a batch in one sorted request (``__getitems__``)."""

    def __getitems__(self, rows: list[int]) -> Any:
        ordered = sorted(rows)
        if ordered[-1] - ordered[0] == len(rows) - 1:
            return _tensor(self.opened()[ordered[0] : ordered[-1] + 1])
        return _tensor(self.opened()[ordered])


class Mapped(Rows):
    """Index lists on the mapped file: one gather a batch."""

    def opened(self) -> Any:
        if self.rows is None:
            self.rows = self.subject.mapped()
        return self.rows

    def __getitem__(self, rows: Any) -> Any:
        if rows[-1] - rows[0] == len(rows) - 1 and rows[1:2] == [rows[0] + 1]:
            return _tensor(self.opened()[rows[0] : rows[-1] + 1].copy())
        return _tensor(self.opened()[rows])


class WindowRows:
    """Windows of random stored chunks, shuffled in memory, cut into batches."""

    def __init__(self, subject: Subject, shuffled: bool) -> None:
        self.subject, self.shuffled = subject, shuffled
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        subject, worker = self.subject, _torch("torch.utils.data").get_worker_info()
        number, count = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        step = subject.layout.chunk_rows or subject.batch_rows
        random = np.random.default_rng(self.epoch)
        self.epoch += 1
        chunks = np.arange(-(-subject.n_rows // step))
        if self.shuffled:
            random.shuffle(chunks)
        chunks, x = chunks[number::count], subject.quick()
        a_window = max(1, subject.half_memory // count // (step * subject.row_bytes))
        for first in range(0, len(chunks), a_window):
            wanted = chunks[first : first + a_window].tolist()
            rows = np.concatenate([x[c * step : (c + 1) * step] for c in wanted])
            if self.shuffled:
                rows = rows[random.permutation(len(rows))]
            for a in range(0, len(rows), subject.batch_rows):
                yield _tensor(rows[a : a + subject.batch_rows])


@lru_cache(maxsize=1)
def _windows() -> type[WindowRows]:
    """Return :class:`WindowRows` as a class of torch's, which its DataLoader knows as such."""
    base = _torch("torch.utils.data").IterableDataset
    return type("Windows", (WindowRows, base), {"__module__": __name__})


def __getattr__(name: str) -> Any:
    if name == "Windows":  # where a worker unpickles it
        return _windows()
    raise AttributeError(name)


def _tensor(array: Any) -> Any:
    return _torch().from_numpy(array)


def same(batch: Any) -> Any:
    """Collate nothing: the batch is made of tensors already."""
    return batch


def _make(build: Callable[[], Any]) -> Callable[[], Epoch]:
    def make() -> Epoch:
        loader = build()

        def epoch() -> Iterator[Batch]:
            for batch in loader:
                yield (batch.numpy(),)

        return epoch

    return make


def ways(subject: Subject, order: str) -> list[Way]:
    shuffled = order != "file"
    quality = "full" if shuffled else "file"
    batch_rows = subject.batch_rows
    workers: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}

    def loader(data: Any, **options: Any) -> Any:
        return _torch("torch.utils.data").DataLoader(data, **options)

    def by_rows(**more: Any) -> Any:
        return loader(Rows(subject), batch_size=batch_rows, shuffle=shuffled, **more)

    def by_lists(**more: Any) -> Any:
        options = {"batch_size": batch_rows, "shuffle": shuffled, "collate_fn": same}
        return loader(RowLists(subject), **options, **more)

    def by_hand(**more: Any) -> Any:
        data, library = Mapped(subject), _torch("torch.utils.data")
        sampler = library.RandomSampler(data) if shuffled else library.SequentialSampler(data)
        batches = library.BatchSampler(sampler, batch_rows, drop_last=False)
        return loader(data, sampler=batches, batch_size=None, **more)

    def by_windows(**more: Any) -> Any:
        return loader(_windows()(subject, shuffled), batch_size=None, **more)

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
    if subject.is_mappable:
        kind, build = quality, by_hand
        how = "by hand: BatchSampler as sampler, one gather a batch from the mapped file"
    else:
        kind, build = "window" if shuffled else "file", by_windows
        how = f"by hand: windows of stored chunks through h5py, half of {subject.memory}"
    found.append(way("by hand", kind, how, build))
    two = f"{how}; 2 workers"
    found.append(way("by hand, 2 workers", kind, two, lambda: build(**workers)))
    return found
