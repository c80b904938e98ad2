"""scDataset: blocks of neighbouring rows, fetched sorted and many batches at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scdataset import BlockShuffling, Streaming, scDataset
from torch.utils.data import DataLoader

from benchmarks.bare import mapped
from benchmarks.files import BenchFile
from benchmarks.measure import Array, Epoch, Way
from benchmarks.peers.common import dataset

FETCH_BYTES = 32 << 20
"""Half of the memory that this library is given: rows fetched, and their batches."""


def read_runs(x: Any, rows: Any) -> Array:
    """Fetch sorted rows run by run: what a user of h5py writes as the `fetch_callback`."""
    rows = np.asarray(rows)
    ends = np.flatnonzero(np.diff(rows) != 1) + 1
    out = np.empty((len(rows), *x.shape[1:]), x.dtype)
    for a, b in zip([0, *ends], [*ends, len(rows)], strict=True):
        out[a:b] = x[rows[a] : rows[b - 1] + 1]
    return out


def ways(file: BenchFile, batch_rows: int, order: str) -> list[Way]:
    contiguous = file.spec.chunk_rows is None
    most = max(1, FETCH_BYTES // (batch_rows * file.spec.row_bytes))

    def make(strategy: Callable[[], Any], fetch: int) -> Callable[[], Epoch]:
        def opened() -> Epoch:
            x = mapped(file) if contiguous else dataset(file)
            callback = None if contiguous else read_runs
            data = scDataset(
                x, strategy(), batch_rows, fetch_factor=fetch, seed=7, fetch_callback=callback
            )
            loader = DataLoader(data, batch_size=None)

            def epoch() -> Iterator[Array]:
                for batch in loader:
                    yield batch.numpy()

            return epoch

        return opened

    rows = "mapped rows" if contiguous else "h5py, read run by run"
    if order == "file":
        how = f"Streaming(), fetch_factor=16, {rows}"
        return [Way("scDataset", "peer", "file", how, make(Streaming, 16))]
    found = []
    for block, fetch in ((16, 16), (64, most)):
        how = f"BlockShuffling({block}), fetch_factor={fetch}, {rows}"
        found.append(
            Way(
                f"scDataset {block} x {fetch}",
                "peer",
                "window",
                how,
                make(lambda block=block: BlockShuffling(block), fetch),
            )
        )
    return found
