"""From a file in the page cache to batches on the device: rates, overlap, latency, peers."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from importlib import import_module
from time import perf_counter
from typing import Any

import h5py
import numpy as np

from benchmarks.gpu.bench import LARGE_BATCH, ROW_SHAPE, Bench
from benchmarks.gpu.card import MIB, Figures


def right(bench: Bench) -> Figures:
    """Whether batches of the device are those of the host."""
    here = bench.loader("uint8", MIB, device="cpu", shuffle="full", seed=3)
    there = bench.loader("uint8", MIB, shuffle="full", seed=3)
    n = 0
    for ours, theirs in zip(there, here, strict=True):
        array = ours["images"].data
        array = array.get() if bench.card.real else array
        if not np.array_equal(array, theirs["images"].data):
            return {"equal": False, "batch": n}
        n += 1
    return {"equal": True, "batches": n}


def files(bench: Bench, h2d: float) -> Figures:
    """File in the page cache to batches on the device, against the copy alone."""

    def plain(dtype: str, shuffle: Any) -> Figures:
        loader = bench.loader(dtype, LARGE_BATCH, shuffle=shuffle, seed=1)
        rate = bench.rate(loader)
        told = loader.explain()
        return {
            "bytes_per_s": rate,
            "of_h2d": rate / h2d,
            "pinned_bytes": told.pinned_bytes,
            "device_bytes": told.device_bytes,
        }

    def other(**options: Any) -> Figures:
        loader = bench.loader("uint8", LARGE_BATCH, seed=1, **options)
        return {"bytes_per_s": bench.rate(loader)}

    works: dict[str, Callable[[], Figures]] = {
        f"{dtype}, {shuffle or 'file order'}": partial(plain, dtype, shuffle)
        for dtype in ("uint8", "float32")
        for shuffle in (False, "full")
    }
    works["uint8 to float32, scaled"] = partial(other, dtype="float32", scale=1 / 255)
    works["gzip, decoded by host threads"] = partial(other, codec="gzip", shuffle="window")
    return bench.rows(works)


def small(bench: Bench) -> Figures:
    """What a small batch costs: 16 rows."""

    def measured(device: Any) -> float:
        loader = bench.loader("uint8", 16 * 12288, device=device)
        bench.epoch(loader)
        return bench.epoch(loader) / len(loader) * 1e6

    devices = {"host": "cpu", "device": bench.card.device}
    return bench.rows({f"{n}_us_a_batch": partial(measured, d) for n, d in devices.items()})


def depths(bench: Bench) -> Figures:
    """Jobs read ahead, in batches of 8 MiB."""

    def measured(prefetch: int) -> float:
        loader = bench.loader("uint8", 8 * MIB, prefetch=prefetch, memory=256 * MIB)
        return bench.rate(loader)

    return bench.rows({str(prefetch): partial(measured, prefetch) for prefetch in (1, 2, 4, 8)})


def overlap(bench: Bench) -> Figures:
    """A consumer that computes about as long as reading takes: wall against the longer."""
    loader = bench.loader("uint8", LARGE_BATCH)
    bench.epoch(loader)
    read = statistics.median(bench.epoch(loader) for _ in range(3))
    side = 2048 if bench.card.real else 128
    square = bench.card.xp.ones((side, side), np.float32)
    once = bench.card.seconds(lambda: square @ square)
    times = max(1, round(read / len(loader) / once))

    def compute(_: Any = None) -> None:
        for _ in range(times):
            square @ square

    alone = bench.card.seconds(compute, repeats=5) * len(loader)
    wall = statistics.median(bench.epoch(loader, compute) for _ in range(3))
    return {
        "read_s": read,
        "compute_s": alone,
        "wall_s": wall,
        "of_longer": wall / max(read, alone),
    }


def torch(bench: Bench) -> Figures:
    """torch's DataLoader with pinned memory and copies that do not block, on the same file."""
    theirs = import_module("torch")
    if not theirs.cuda.is_available():
        return {"left_out": "this torch has no CUDA"}
    data = import_module("torch.utils.data")
    path = bench.file("uint8")
    with h5py.File(path, "r") as f:
        offset, shape = f["images"].id.get_offset(), f["images"].shape
    mapped = np.memmap(path, np.uint8, "r", offset, shape)
    rows = max(1, LARGE_BATCH // int(np.prod(ROW_SHAPE)))

    class Batches(data.Dataset):  # type: ignore[misc,name-defined]
        def __len__(self) -> int:
            return len(mapped) // rows

        def __getitem__(self, number: int) -> Any:
            return theirs.from_numpy(mapped[number * rows : (number + 1) * rows].copy())

    def measured(workers: int) -> float:
        options = {"batch_size": None, "num_workers": workers, "pin_memory": True}
        loader = data.DataLoader(Batches(), **options)
        found = []
        for _ in range(4):
            began = perf_counter()
            for batch in loader:
                batch.cuda(non_blocking=True).sum(dtype=theirs.float32)
            theirs.cuda.synchronize()
            found.append(perf_counter() - began)
        nbytes: int = len(mapped) // rows * rows * mapped[0].nbytes
        return nbytes / statistics.median(found[1:])

    # batches of processes pass through shared memory, of which there may be too little
    return bench.rows({f"{n} workers, bytes_per_s": partial(measured, n) for n in (0, 2, 8)})
