"""The old class by its old names against the old way of reading, made anew here, in one run.

The old way is what Fuel's class did with a file: index splits walked through element by
element, rows asked for as sorted lists through h5py, put back into the order asked for by
a second copy. Sequential epochs are compared with plain h5py slices besides. Both sides
read the same rows and are checked against each other before anything is measured.

Run ``python -m benchmarks.fuel_access [--rows 100000]``; it prints a table of the best of
several runs of each, taken in turns, in seconds, of a file that is held in memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from benchmarks.cache import held
from labeled.compat.fuel.datasets.hdf5 import H5PYDataset
from labeled.compat.fuel.schemes import SequentialScheme, ShuffledScheme
from labeled.compat.fuel.streams import DataStream
from labeled.compat.fuel.transformers import MultiProcessing

SOURCES = ("features", "targets")
Timed = Callable[[], Any]


def write_file(path: Path, n_rows: int) -> None:
    """Write float32 features (n, 784) in chunks of 64 rows, int64 targets, and two splits."""
    rng = np.random.default_rng(7)
    with h5py.File(path, "w") as f:
        features = f.create_dataset("features", (n_rows, 784), "f4", chunks=(64, 784))
        for start in range(0, n_rows, 10_000):
            some = min(10_000, n_rows - start)
            features[start : start + some] = rng.random((some, 784), np.float32)
        f["targets"] = rng.integers(0, 10, n_rows)
        f["half"] = np.sort(rng.permutation(n_rows)[: n_rows // 2])
        half = (-1, -1, f["half"].ref)
        f.attrs["split"] = H5PYDataset.create_split_array(
            {"all": dict.fromkeys(SOURCES, (0, n_rows)), "half": dict.fromkeys(SOURCES, half)}
        )


# ---------------------------------------------------------------- the old way, made anew
def old_rows(path: Path, split: str) -> list[Any]:
    """Construct: the file is opened for its table, labels and scales, and again for the rows.

    Each question is put to the table anew, and each element of an index dataset is visited,
    several times.
    """
    with h5py.File(path, "r") as f:
        for _ in ("splits", "sources of the split", "all sources", "all sources again"):
            _ = {(row["split"], row["source"]) for row in f.attrs["split"]}
        for name in SOURCES:
            assert "shapes" not in f[name].dims[0].keys()  # noqa: SIM118 (no mapping)
            _ = [dim.label for dim in f[name].dims]
    with h5py.File(path, "r") as f:
        for name in SOURCES:
            _ = [row for row in f.attrs["split"] if row["source"] == name.encode()]
        n = len(f["features"])
        if split == "all":
            return [slice(0, n) for _ in SOURCES]
        found = []
        for _ in SOURCES:
            indices = f["half"]
            assert min(indices) >= 0
            assert max(indices) < n
            found.append(sorted({int(row) for row in indices}))
        return found


def old_read(dataset: Any, rows: list[int]) -> Any:
    """Read listed rows: sorted, through h5py, then put into the order asked for."""
    if len(rows) == 1:
        return dataset[rows]
    order = np.argsort(rows)
    out = np.empty((len(rows), *dataset.shape[1:]), dataset.dtype)
    out[order] = dataset[np.array(rows)[order], ...]
    return out


def old_epoch(path: Path, requests: Any) -> None:
    with h5py.File(path, "r") as f:
        sources = [f[name] for name in SOURCES]
        for request in requests:
            _ = [old_read(source, request) for source in sources]


def plain_slices(path: Path, n_rows: int, batch_rows: int) -> None:
    with h5py.File(path, "r") as f:
        sources = [f[name] for name in SOURCES]
        for start in range(0, n_rows, batch_rows):
            _ = [source[start : start + batch_rows] for source in sources]


def _put_batches(path: Path, n_rows: int, batch_rows: int, items: Any) -> None:
    with h5py.File(path, "r") as f:
        for start in range(0, n_rows, batch_rows):
            rows = list(range(start, min(start + batch_rows, n_rows)))
            items.put([old_read(f[name], rows) for name in SOURCES])
    items.put(None)


def old_ahead(path: Path, n_rows: int, batch_rows: int) -> None:
    """Fetch ahead in a forked process, which pickles every batch into a queue."""
    forking = multiprocessing.get_context("fork")
    items: Any = forking.Queue(8)
    forking.Process(
        target=_put_batches, args=(path, n_rows, batch_rows, items), daemon=True
    ).start()
    while items.get() is not None:
        pass


def old_examples(path: Path, rows: Iterable[int]) -> None:
    with h5py.File(path, "r") as f:
        sources = [f[name] for name in SOURCES]
        for row in rows:
            _ = [source[row] for source in sources]


def old_load(path: Path, split: str) -> list[Any]:
    rows = old_rows(path, split)
    with h5py.File(path, "r") as f:
        return [f[name][one] for name, one in zip(SOURCES, rows, strict=True)]


# ---------------------------------------------------------------- ours
def our_epoch(path: Path, scheme: Any) -> None:
    stream = DataStream(H5PYDataset(str(path), ("all",)), iteration_scheme=scheme)
    for _ in stream.get_epoch_iterator():
        pass
    stream.close()


def our_ahead(path: Path, scheme: Any) -> None:
    stream = MultiProcessing(
        DataStream(H5PYDataset(str(path), ("all",)), iteration_scheme=scheme), max_store=8
    )
    for _ in stream.get_epoch_iterator():
        pass


def our_examples(path: Path, rows: list[int]) -> None:
    dataset = H5PYDataset(str(path), ("all",))
    dataset.open()
    for row in rows:
        dataset.get_data(None, row)
    dataset.close(None)


def our_example_stream(path: Path, n_rows: int) -> None:
    stream = H5PYDataset(str(path), ("all",)).get_example_stream()
    for _ in islice(stream.get_epoch_iterator(), n_rows):
        pass
    stream.close()


def our_load(path: Path, split: str) -> Any:
    return H5PYDataset(str(path), (split,), load_in_memory=True).data_sources


def lists(n_rows: int, batch_rows: int, n_batches: int) -> list[list[int]]:
    rows = np.random.RandomState(1).permutation(n_rows).tolist()
    return [rows[k * batch_rows : (k + 1) * batch_rows] for k in range(n_batches)]


def comparisons(path: Path, n_rows: int) -> list[tuple[str, Timed, Timed]]:
    """Return what is compared: a name, the old way, and ours."""
    small, large = lists(n_rows, 128, 50), lists(n_rows, min(8192, n_rows // 2), 2)
    sequential = [list(range(a, min(a + 128, n_rows))) for a in range(0, n_rows, 128)]
    alone = list(range(0, n_rows, max(n_rows // 2000, 1)))[:2000]
    shuffled = [row for batch in small for row in batch]
    wide = [row for batch in large for row in batch]
    return [
        ("construct, contiguous split", lambda: old_rows(path, "all"), lambda: made(path, "all")),
        ("construct, index split", lambda: old_rows(path, "half"), lambda: made(path, "half")),
        (
            "sequential epoch, batch 128, lists",
            lambda: old_epoch(path, sequential),
            lambda: our_epoch(path, SequentialScheme(n_rows, 128)),
        ),
        (
            "sequential epoch, batch 128, against plain slices",
            lambda: plain_slices(path, n_rows, 128),
            lambda: our_epoch(path, SequentialScheme(n_rows, 128)),
        ),
        (
            "shuffled, 50 batches of 128",
            lambda: old_epoch(path, small),
            lambda: our_epoch(path, SequentialScheme(shuffled, 128)),
        ),
        (
            "shuffled, sorted within, 50 batches of 128",
            lambda: old_epoch(path, map(sorted, small)),
            lambda: our_epoch(path, ShuffledScheme(shuffled, 128, sorted_indices=True)),
        ),
        (
            "shuffled, 2 large batches",
            lambda: old_epoch(path, large),
            lambda: our_epoch(path, SequentialScheme(wide, len(large[0]))),
        ),
        (
            "2000 examples in order",
            lambda: old_examples(path, range(2000)),
            lambda: our_example_stream(path, 2000),
        ),
        (
            "2000 examples, far apart",
            lambda: old_examples(path, alone),
            lambda: our_examples(path, alone),
        ),
        (
            "load, contiguous split",
            lambda: old_load(path, "all"),
            lambda: our_load(path, "all"),
        ),
        ("load, index split", lambda: old_load(path, "half"), lambda: our_load(path, "half")),
        (
            "sequential epoch, batch 512, fetched ahead",
            lambda: old_ahead(path, n_rows, 512),
            lambda: our_ahead(path, SequentialScheme(n_rows, 512)),
        ),
    ]


def made(path: Path, split: str) -> int:
    return H5PYDataset(str(path), (split,)).num_examples


def check(path: Path, n_rows: int) -> None:
    """Compare both ways on a few requests."""
    with h5py.File(path, "r") as f:
        dataset = H5PYDataset(str(path), ("all",))
        for rows in lists(n_rows, 100, 3):
            for name, found in zip(SOURCES, dataset.get_data(None, rows), strict=True):
                np.testing.assert_array_equal(found, old_read(f[name], rows))
        dataset.close(None)
    for old, ours in zip(old_load(path, "half"), our_load(path, "half"), strict=True):
        np.testing.assert_array_equal(old, ours)


def best_of_both(old: Timed, ours: Timed, times: int) -> tuple[float, float]:
    """Return the shortest time of each, taken in turns so that other work disturbs both."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(times):
        for run, mine in zip((old, ours), took, strict=True):
            start = time.perf_counter()
            run()
            mine.append(time.perf_counter() - start)
    return min(took[0]), min(took[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--times", type=int, default=5)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.h5"
        write_file(path, chosen.rows)
        check(path, chosen.rows)
        print(f"| {chosen.rows} rows | old way | ours | times faster |\n| --- | --- | --- | --- |")
        with held(path):
            for name, old, ours in comparisons(path, chosen.rows):
                before, after = best_of_both(old, ours, chosen.times)
                print(f"| {name} | {before:.4f} | {after:.4f} | {before / after:.2f} |", flush=True)


if __name__ == "__main__":
    main()
