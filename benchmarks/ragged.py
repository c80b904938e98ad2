"""Ragged rows a second: each layout read by this library against plain h5py loops.

Run ``python -m benchmarks.ragged [--quick] [--bytes 500]``. Every line is the median of several
interleaved repeats within one process, over files that are held in memory, so compare the
ratios: of each layout to h5py's slices of a batch of the same file, padded by a loop where ours
are padded, in file order whatever the order of ours. Everything that is handed
out is read once more, joined to one array. "h5py, one row a call" is the usual loop; it is
timed over part of the rows. "h5py, slices" reads 256 rows a call, of the flat layout their
offsets and their values.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import h5py
import numpy as np

import labeled
from benchmarks.cache import held
from labeled.compat.fuel.datasets.hdf5 import H5PYDataset

Way = tuple[str, str, Callable[[], int]]
BATCH = 256
LOOP_ROWS = 3000
KINDS = ("vlen", "fuel", "flat", "gzip")
ROWS = {40: 200_000, 500: 40_000, 12_000: 6_000}
"""How many rows of so many bytes."""
MEMORY = {40: "32 MiB", 500: "16 MiB", 12_000: "64 MiB"}
"""Less than they take, so that none are kept."""
SLICES, PADDED = "h5py, slices of 256 rows", "h5py, slices, padded by a loop"
ORDERS: dict[str, Any] = {"in order": False, "window shuffle": "window", "full shuffle": "full"}


def write(folder: Path, n: int, mean: int) -> dict[str, Path]:
    """Write the same examples as rows of variable length (with shapes, too), flat, and gzip."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(max(1, mean // 2), mean * 3 // 2 + 1, n)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    values = np.resize(rng.integers(0, 16, 1 << 22, dtype=np.uint8), int(offsets[-1]))
    paths = {kind: folder / f"{kind}-{mean}.h5" for kind in KINDS}
    for kind in ("vlen", "fuel"):
        with h5py.File(paths[kind], "w", libver=("v110", "v114")) as f:
            rows = f.create_dataset("x", (n,), h5py.vlen_dtype(np.uint8))
            for start in range(0, n, 4096):
                stop = min(n, start + 4096)
                block = np.empty(stop - start, object)
                block[:] = [values[offsets[i] : offsets[i + 1]] for i in range(start, stop)]
                rows[start:stop] = block
            rows.dims[0].label = "batch"
            if kind == "fuel":
                describe_shapes(f, sizes)
    gzip = {"chunks": 1 << 18, "compression": "gzip", "level": 1}
    examples = labeled.Ragged.from_flat(values, offsets, dims=("batch", "time"))
    for kind, options in (("flat", {}), ("gzip", gzip)):
        labeled.write(paths[kind], {"x": examples}, overwrite=True, **options)
    return paths


def describe_shapes(f: h5py.File, sizes: np.ndarray[Any, Any]) -> None:
    """Say of each row which shape it has, as Fuel does."""
    f["x_shapes"], f["x_shape_labels"] = sizes[:, None], np.array([b"time"])
    for name in ("shapes", "shape_labels"):
        f[f"x_{name}"].make_scale(name)
        f["x"].dims[0].attach_scale(f[f"x_{name}"])
    whole = {"all": {"x": (0, len(sizes))}}
    f.attrs["split"] = H5PYDataset.create_split_array(whole)


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


def h5py_slices(path: Path, n: int, kind: str, use: Callable[[Any], Any]) -> Callable[[], int]:
    def run() -> int:
        with h5py.File(path) as f:
            rows, flat = f["x"], kind in ("flat", "gzip")
            edges = f["x_offsets"] if flat else None
            for start in range(0, n, BATCH):
                if edges is None:
                    use(rows[start : start + BATCH])
                    continue
                cuts = edges[start : start + BATCH + 1]
                values = rows[cuts[0] : cuts[-1]]
                use([values[a:b] for a, b in pairwise((cuts - cuts[0]).tolist())])
        return n

    return run


def touch_padded(rows: Any) -> int:
    """Pad rows to the longest of them, with a mask, and read that."""
    longest = max(map(len, rows))
    dense = np.zeros((len(rows), longest), np.uint8)
    inside = np.zeros(dense.shape, bool)
    for place, there, row in zip(dense, inside, rows, strict=True):
        place[: len(row)] = row
        there[: len(row)] = True
    return touch([dense.reshape(-1)])


def ours_flat(path: Path, order: np.ndarray[Any, Any] | None) -> Callable[[], int]:
    """Read by 4096 rows as flat values."""
    ragged = labeled.open_dataset(path)["x"]
    ragged = ragged if order is None else ragged[order]

    def run() -> int:
        for start in range(0, len(ragged), 4096):
            touch([ragged[start : start + 4096].flat().values])
        return len(ragged)

    return run


def ours_batches(path: Path, shuffle: Any, mode: str, memory: str) -> Callable[[], int]:
    loader = labeled.open_dataset(path).batches(
        BATCH, shuffle=shuffle, seed=1, ragged=mode, memory=memory
    )

    def run() -> int:
        for batch in loader:
            touch(parts_of(batch.arrays, mode))
        return len(loader.plan.source_readers[0].selection)

    return run


def parts_of(arrays: Any, mode: str) -> Any:
    return arrays["x"] if mode == "list" else [arrays["x"].reshape(-1)]


def ways(paths: dict[str, Path], n: int, memory: str) -> Iterator[Way]:
    shuffled = np.random.default_rng(1).permutation(n)
    yield "vlen", "h5py, one row a call", h5py_rows(paths["vlen"], np.arange(n))
    yield "vlen", "h5py, one shuffled row a call", h5py_rows(paths["vlen"], shuffled)
    for kind, path in paths.items():
        yield kind, SLICES, h5py_slices(path, n, kind, touch)
        yield kind, PADDED, h5py_slices(path, n, kind, touch_padded)
        yield kind, "Ragged.flat", ours_flat(path, None)
        yield kind, "Ragged.flat, shuffled rows", ours_flat(path, shuffled)
        for order, shuffle in ORDERS.items():
            for mode in ("list", "pad", "flat"):
                yield kind, f"{mode}, {order}", ours_batches(path, shuffle, mode, memory)


def measure(todo: Sequence[Way], repeats: int) -> dict[tuple[str, str], float]:
    """Return rows a second, the median of `repeats` rounds in which all ways take turns."""
    rates: dict[tuple[str, str], list[float]] = {}
    for turn in range(repeats + 1):
        for kind, name, run in todo:
            began = time.perf_counter()
            rows = run()
            rate = rows / (time.perf_counter() - began)
            if turn:  # the first round warms up
                rates.setdefault((kind, name), []).append(rate)
    return {which: median(some) for which, some in rates.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--bytes", type=int, choices=sorted(ROWS), nargs="*", default=list(ROWS))
    chosen = parser.parse_args()
    for mean in chosen.bytes:
        n = ROWS[mean] // (10 if chosen.quick else 1)
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            paths = write(Path(folder), n, mean)
            locked = min([stack.enter_context(held(path)) for path in paths.values()])
            rates = measure([*ways(paths, n, MEMORY[mean])], 2 if chosen.quick else 3)
        where = "locked in memory" if locked else "read before"
        print(f"\n{n:,} rows of about {mean:,} bytes, {where}")
        for (kind, name), rate in rates.items():
            base = PADDED if name.startswith("pad,") else SLICES
            ratio, mbytes = rate / rates[kind, base], rate * mean / 1e6
            print(f"  {kind} {name:30} {rate:12,.0f} rows/s {mbytes:8,.1f} MB/s {ratio:7.2f} x")


if __name__ == "__main__":
    main()
