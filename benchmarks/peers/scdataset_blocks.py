"""scDataset: blocks of neighbouring rows, fetched sorted and many batches at once."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.subject import Array, Batch, Subject
from benchmarks.timing import Epoch, Way

NAME = "scDataset"
NEEDS = ("scdataset", "torch")


def read_runs(x: Any, rows: Any) -> Array:
    """Fetch sorted rows run by run: what a user of h5py writes as the `fetch_callback`."""
    rows = np.asarray(rows)
    ends = np.flatnonzero(np.diff(rows) != 1) + 1
    out = np.empty((len(rows), *x.shape[1:]), x.dtype)
    for a, b in zip([0, *ends], [*ends, len(rows)], strict=True):
        out[a:b] = x[rows[a] : rows[b - 1] + 1]
    return out


def _blocks(block: int, library: Any) -> Any:
    return library.BlockShuffling(block)


def ways(subject: Subject, order: str) -> list[Way]:
    most = max(1, subject.half_memory // (subject.batch_rows * subject.row_bytes))

    def make(strategy: Callable[[Any], Any], fetch: int) -> Callable[[], Epoch]:
        def opened() -> Epoch:
            scdataset = importlib.import_module("scdataset")
            data = scdataset.scDataset(
                subject.quick(),
                strategy(scdataset),
                subject.batch_rows,
                fetch_factor=fetch,
                seed=7,
                fetch_callback=None if subject.is_mappable else read_runs,
            )
            loader = importlib.import_module("torch.utils.data").DataLoader(data, batch_size=None)

            def epoch() -> Iterator[Batch]:
                for batch in loader:
                    yield (np.asarray(batch),)

            return epoch

        return opened

    rows = "mapped rows" if subject.is_mappable else "h5py, read run by run"
    if order == "file":
        how = f"Streaming(), fetch_factor=16, {rows}"
        return [Way("scDataset", "peer", "file", how, make(lambda lib: lib.Streaming(), 16))]
    found = []
    for block, fetch in ((16, 16), (64, most)):
        how = f"BlockShuffling({block}), fetch_factor={fetch}, {rows}"
        opened = make(partial(_blocks, block), fetch)
        found.append(Way(f"scDataset {block} x {fetch}", "peer", "window", how, opened))
    return found
