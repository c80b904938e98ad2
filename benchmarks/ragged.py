"""Ragged rows a second: each layout read by this library against plain h5py loops.

Run ``python benchmarks/ragged.py [--quick]``. Every line is the best of several interleaved
repeats within one process, over a warm page cache, so compare the ratios. Everything that
is handed out is read once more, joined to one array. "h5py, one row a call" is the usual
loop; it is timed over part of the rows. "h5py, slices" reads 256 rows a call.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import labeled

BATCH = 256
LOOP_ROWS = 3000


def write(folder: Path, n: int, mean: int) -> dict[str, Path]:
    """Write the same examples as rows of variable length, flat, and flat with gzip."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(max(1, mean // 2), mean * 3 // 2 + 1, n)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    values = np.resize(rng.integers(0, 16, 1 << 22, dtype=np.uint8), int(offsets[-1]))
    paths = {kind: folder / f"{kind}-{mean}.h5" for kind in ("vlen", "flat", "gzip")}
    with h5py.File(paths["vlen"], "w", libver=("v110", "v114")) as f:
        rows = f.create_dataset("x", (n,), h5py.vlen_dtype(np.uint8))
        for start in range(0, n, 4096):
            stop = min(n, start + 4096)
            block = np.empty(stop - start, object)
            block[:] = [values[offsets[i] : offsets[i + 1]] for i in range(start, stop)]
            rows[start:stop] = block
        rows.dims[0].label = "batch"
    gzip = {"chunks": 1 << 18, "compression": "gzip", "level": 1}
    examples = labeled.Ragged.from_flat(values, offsets, dims=("batch", "time"))
    for kind, options in (("flat", {}), ("gzip", gzip)):
        labeled.write(paths[kind], {"x": examples}, overwrite=True, **options)
    return paths


def touch(arrays: Any) -> int:
    """Read what was handed out: joined in one call, which costs little beside making it."""
    return int(np.concatenate(list(arrays))[::64].sum())


def h5py_rows(path: Path, order: np.ndarray[Any, Any]) -> Callable[[], int]:
    def run() -> int:
        with h5py.File(path) as f:
            rows = f["x"]
            touch([rows[row] for row in order[:LOOP_ROWS].tolist()])
        return min(LOOP_ROWS, len(order))

    return run


def h5py_slices(path: Path, n: int) -> Callable[[], int]:
    def run() -> int:
        with h5py.File(path) as f:
            for start in range(0, n, BATCH):
                touch(f["x"][start : start + BATCH])
        return n

    return run


def ours_flat(path: Path, order: np.ndarray[Any, Any] | None) -> Callable[[], int]:
    """Read by 4096 rows as flat values."""
    ragged = labeled.open_dataset(path)["x"]
    ragged = ragged if order is None else ragged[order]

    def run() -> int:
        for start in range(0, len(ragged), 4096):
            touch([ragged[start : start + 4096].flat().values])
        return len(ragged)

    return run


def ours_batches(path: Path, shuffle: Any, mode: str) -> Callable[[], int]:
    loader = labeled.open_dataset(path).batches(
        BATCH, shuffle=shuffle, seed=1, ragged=mode, memory="64 MiB"
    )

    def run() -> int:
        for batch in loader:
            touch(batch.arrays["x"] if mode == "list" else [batch.arrays["x"].reshape(-1)])
        return len(loader.plan.lanes[0].selection)

    return run


def ways(paths: dict[str, Path], n: int) -> Iterator[tuple[str, Callable[[], int]]]:
    shuffled = np.random.default_rng(1).permutation(n)
    yield "vlen: h5py, one row a call", h5py_rows(paths["vlen"], np.arange(n))
    yield "vlen: h5py, one shuffled row a call", h5py_rows(paths["vlen"], shuffled)
    yield "vlen: h5py, slices of 256", h5py_slices(paths["vlen"], n)
    for kind in ("vlen", "flat", "gzip"):
        yield f"{kind}: ours, flat values", ours_flat(paths[kind], None)
        yield f"{kind}: ours, shuffled rows, flat values", ours_flat(paths[kind], shuffled)
        yield f"{kind}: ours, batches as lists", ours_batches(paths[kind], False, "list")
        yield f"{kind}: ours, batches, window shuffle", ours_batches(paths[kind], "window", "list")
        yield f"{kind}: ours, batches padded", ours_batches(paths[kind], False, "pad")


def measure(paths: dict[str, Path], n: int, repeats: int) -> dict[str, float]:
    """Return rows a second, the best of `repeats` rounds in which all ways take turns."""
    todo, best = list(ways(paths, n)), {}
    for turn in range(repeats + 1):
        for name, run in todo:
            began = time.perf_counter()
            rows = run()
            rate = rows / (time.perf_counter() - began)
            if turn:  # the first round warms up
                best[name] = max(best.get(name, 0.0), rate)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    for mean, n in ((40, 400_000), (500, 200_000), (12_000, 12_000)):
        n = n // 10 if quick else n
        with tempfile.TemporaryDirectory() as folder:
            paths = write(Path(folder), n, mean)
            best = measure(paths, n, 2 if quick else 4)
        base = best["vlen: h5py, one row a call"]
        print(f"\n{n:,} rows of about {mean:,} bytes")
        for name, rate in best.items():
            mbytes = rate * mean / 1e6
            print(f"  {name:40} {rate:12,.0f} rows/s {mbytes:8,.1f} MB/s {rate / base:8.1f} x")


if __name__ == "__main__":
    main()
