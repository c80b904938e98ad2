"""When a reader process pays: consumers with work of their own, over cheap and dear data.

Run ``python benchmarks/process_reader.py [--quick]``. A consumer touches each cache line of
a batch and then works for a given time, in Python (which holds the interpreter's lock) or
in many small NumPy calls, as a program does that launches small kernels. Epochs of both
readers alternate within one process and the best of each counts: compare the ratios.

"own work" is how long the consumer's work takes beside the reader, relative to the same
work alone: what the threads of a reader cost by taking the lock, and cores shared. "CPU"
is what the consumer's process spends on a batch beside its own work, in milliseconds: it
hardly moves when other programs use the machine, as the rates do.

A reader process can pay only where a core is free for it, and where reading takes much of
the interpreter: blocks that a dask graph computes in Python. Chunks of files are decoded
outside the lock, so that threads disturb a consumer little, and then what is left is the
price of a message a window. Run it on an otherwise idle machine before choosing: the last
lines say where it paid.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import dask.array as da
import h5py
import numpy as np
import xarray as xr

import labeled
from labeled.loader.loader import Loader

BATCH = 256
LOAD = 3.0
"""What the run itself makes of load, at most; more means that other programs ran beside it."""

PAYS = 1.05
"""How much faster a process must be before it is said to pay: about what runs differ by."""
SMALL = np.ones(16, np.float32)
Work = Callable[[], None]
Made = Callable[[str], Loader]
Array = np.ndarray


def write(path: Path, n_rows: int, **layout: object) -> Path:
    random = np.random.default_rng(0)
    with h5py.File(path, "w", libver=("v110", "v114")) as file:
        x = file.create_dataset("x", (n_rows, 3, 32, 32), np.uint8, **layout)
        for start in range(0, n_rows, 2048):
            stop = min(n_rows, start + 2048)
            x[start:stop] = random.integers(0, 16, (stop - start, 3, 32, 32), np.uint8)
        for axis, name in enumerate(("batch", "channel", "height", "width")):
            x.dims[axis].label = name
    return path


def python_loop(n: int) -> None:
    total = 0
    for i in range(n):
        total += i & 7


def small_calls(n: int) -> None:
    for _ in range(n):
        np.add(SMALL, SMALL, out=SMALL)
        np.multiply(SMALL, 0.5, out=SMALL)


def lasting(work: Callable[[int], None], milliseconds: float) -> Work:
    """Choose how often `work` repeats, so that alone it takes so long."""
    n = 1000
    while True:
        took = min(timed(work, n) for _ in range(5))
        if took > 0.002:
            repeats = int(n * milliseconds / 1e3 / took)
            return lambda: work(repeats)
        n *= 2


def alone_s(work: Work | None) -> float:
    """Seconds of a consumer's own work with no reader beside it."""
    return 1.0 if work is None else min(timed(lambda _: work(), 0) for _ in range(20))


def timed(work: Callable[[int], None], n: int) -> float:
    start = time.perf_counter()
    work(n)
    return time.perf_counter() - start


class Epoch(NamedTuple):
    """What one epoch took."""

    rate: float
    """Rows/s."""
    own_s: float
    """Own work of a batch, the median."""
    cpu_s: float
    """CPU time of this process for a batch, own work not counted."""


def epoch(loader: Loader, work: Work | None) -> Epoch:
    start, cpu, own, total, own_cpu = time.perf_counter(), time.process_time(), [0.0], 0, 0.0
    for batch in loader:
        total += int(batch.arrays["x"].reshape(-1)[::64].sum())
        if work is not None:
            began, began_cpu = time.perf_counter(), time.thread_time()
            work()
            own_cpu += time.thread_time() - began_cpu
            own.append(time.perf_counter() - began)
    took, cpu = time.perf_counter() - start, time.process_time() - cpu - own_cpu
    stats = loader.stats()
    return Epoch(stats.n_rows / took, float(np.median(own)), cpu / stats.n_batches)


def of_file(path: Path, shuffle: str) -> Made:
    return lambda reader: labeled.open_dataset(path).batches(
        BATCH, shuffle=shuffle, seed=1, memory="32 MiB", reader=reader
    )


def computed(n_rows: int) -> Made:
    """Make loaders of blocks that are computed in Python, about a millisecond for each batch."""

    def block(x: Array) -> Array:
        for _ in range(len(x) // BATCH):
            python_loop(20_000)
        return x

    raw = da.zeros((n_rows, 3, 32, 32), dtype=np.uint8, chunks=(512, -1, -1, -1))
    array = xr.DataArray(
        raw.map_blocks(block, dtype=np.uint8), dims=("batch", "c", "h", "w"), name="x"
    )
    return lambda reader: labeled.batches(array, BATCH, memory="32 MiB", reader=reader)


Found = dict[tuple[str, str], float]
"""Rate with a process relative to threads, by data and consumer."""


def compare(
    title: str, made: Made, consumers: dict[str, Work | None], repeats: int, ratios: Found
) -> None:
    loaders = {reader: made(reader) for reader in ("threads", "process")}
    for loader in loaders.values():
        assert not loader.plan.all_kept
        epoch(loader, None)
    head = ("consumer, a batch", "threads", "process", "ratio", "own work, each", "CPU, each")
    print(f"\n{title}: rows/s")
    print("{:32} {:>10} {:>10} {:>8} {:>16} {:>16}".format(*head))
    for name, work in consumers.items():
        alone = alone_s(work)
        found: dict[str, list[Epoch]] = {reader: [] for reader in loaders}
        for _ in range(repeats):
            for reader, loader in loaders.items():
                found[reader].append(epoch(loader, work))
        threads, process = (max(one.rate for one in runs) for runs in found.values())
        ratios[title, name] = process / threads
        own = " / ".join(f"{min(o.own_s for o in runs) / alone:.2f} x" for runs in found.values())
        cpu = " / ".join(f"{1e3 * min(one.cpu_s for one in runs):.2f}" for runs in found.values())
        print(
            f"{name:32} {threads:10,.0f} {process:10,.0f} {process / threads:6.2f} x "
            f"{own if work is not None else '-':>16} {cpu:>16}"
        )


def time_to_first(path: Path) -> None:
    for reader in ("threads", "process"):
        loader = labeled.open_dataset(path).batches(BATCH, memory="32 MiB", reader=reader)
        start = time.perf_counter()
        next(iter(loader))
        print(f"first batch, {reader}: {time.perf_counter() - start:.3f} s")


def verdict(ratios: Found) -> list[str]:
    """Say where a reader process paid, and whether the machine was idle enough to tell.

    Examples
    --------
    >>> for line in verdict({("gzip", "looks"): 0.8, ("computed", "1 ms"): 1.4}):
    ...     print(line)
    A reader process paid (by 5 % or more) in 1 of 2 lines:
      computed, 1 ms: 1.40 x
    Elsewhere threads were as fast or faster, by up to 1.25 x (gzip, looks).
    """
    pays = {line: ratio for line, ratio in ratios.items() if ratio >= PAYS}
    share = f"(by {PAYS - 1:.0%} or more)".replace("%", " %")
    lines = [
        f"A reader process paid {share} in {len(pays)} of {len(ratios)} lines" + ":" * bool(pays)
    ]
    lines += [f"  {', '.join(line)}: {ratio:.2f} x" for line, ratio in pays.items()]
    if len(pays) < len(ratios):
        least = min(ratios, key=lambda line: ratios[line])
        most = f"{1 / ratios[least]:.2f} x ({', '.join(least)})"
        lines.append(f"Elsewhere threads were as fast or faster, by up to {most}.")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and repeats")
    quick = parser.parse_args().quick
    n_rows, repeats = (12_288, 2) if quick else (14_336, 8)
    consumers: dict[str, Work | None] = {
        "only looks at it": None,
        "1 ms of Python": lasting(python_loop, 1),
        "5 ms of Python": lasting(python_loop, 5),
        "1 ms of small NumPy calls": lasting(small_calls, 1),
        "5 ms of small NumPy calls": lasting(small_calls, 5),
    }
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}, batches of {BATCH} rows of 3x32x32 uint8")
    with tempfile.TemporaryDirectory() as folder:
        packed = {"chunks": (64, 3, 32, 32), "compression": 4, "shuffle": True}
        gzip = write(Path(folder, "gzip.hdf5"), n_rows, **packed)
        contiguous = write(Path(folder, "contiguous.hdf5"), n_rows)
        ratios: Found = {}
        for title, made in {
            "gzip, window shuffle": of_file(gzip, "window"),
            "contiguous, full shuffle": of_file(contiguous, "full"),
            "computed in Python, file order": computed(n_rows),
        }.items():
            compare(title, made, consumers, repeats, ratios)
        time_to_first(gzip)
    print("\n" + "\n".join(verdict(ratios)))
    if max(load, os.getloadavg()[0]) > LOAD:
        print(
            f"The load was {load:.1f} before and {os.getloadavg()[0]:.1f} after: do not trust this."
        )


if __name__ == "__main__":
    main()
