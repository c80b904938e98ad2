"""What a GPU gets of all this: copies, permutes, files to batches, kept splits, a cluster.

    python -m benchmarks.gpu.first_contact [--gib 2] [--only PART] [--skip PART] [--out FILE]
    python -m benchmarks.gpu.first_contact --host --gib 0.05  # tries it; says nothing of a GPU

Runs alone, from the folder of the repository, and needs one GPU, on which nothing else runs, CuPy
with NVRTC, and what labeled itself needs. Where something else is missing (distributed, dask-cuda,
torch, what a test imports), its part or row says so, and the others go on. Two GiB a file and eight
minutes are enough for all parts; ``--limit-s`` bounds them, and what there is no time for is told.
They come in the order of their worth, so a second run takes those that are missing: ``--only
cluster --only latency``. Tests come last; alone they are ``pytest -m gpu``, and ``--skip tests``
leaves them out.

Every part runs in a process of its own, so that one that fails, dies or takes too long costs no
other, and no row of it that was measured before; processes that it leaves behind are ended. JSON is
written after each of them. Files are smaller than asked for where disk, memory or GPU are small.

Every figure is a median of repeats with the device waited for on both sides; rates of batches
are those of whole epochs from the page cache, in bytes of rows in the file's own dtype, with a
consumer that touches every cache line of a batch on the device, if not said otherwise. The bounds
are measured in the same run: pinned memory to device, device to device, and page cache to pinned
memory by threads that do nothing else. torch's loader is measured where it is installed.
The table leaves out the figures of each order of axes, which are in the JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, perf_counter, process_time, thread_time
from typing import IO, Any

import h5py
import numpy as np
import xarray as xr

import labeled
from labeled import permute
from labeled.device import Device
from labeled.loader.plan import device_of
from labeled.spaces import Conv2DSpace

MIB, GIB = 1 << 20, 1 << 30
Figures = dict[str, Any]


class NoGpu(Exception):
    """There is nothing to measure here."""


@dataclass(frozen=True)
class Card:
    """What is measured: a GPU by CuPy, or the host in its place.

    Parameters
    ----------
    xp : module
    device : str or Device
        As ``batches`` takes it.
    """

    xp: Any
    device: Any

    @property
    def real(self) -> bool:
        return self.xp is not np

    def wait(self) -> None:
        """Wait for everything that was asked for."""
        if self.real:
            self.xp.cuda.get_current_stream().synchronize()

    def seconds(self, work: Callable[[], object], repeats: int = 15) -> float:
        """Median time of some work, after two rounds that warm up."""
        found = []
        for turn in range(repeats + 2):
            self.wait()
            began = perf_counter()
            work()
            self.wait()
            if turn > 1:
                found.append(perf_counter() - began)
        return statistics.median(found)

    def kernel_seconds(
        self, work: Callable[[], object], calls: int = 10, repeats: int = 5
    ) -> float:
        """Median time that the device takes for one of several calls in a row.

        Waiting for each call would count what Python takes to ask for it, which a device that
        has other work to do does not wait for.
        """
        if not self.real:
            return self.seconds(work, 1)
        found = []
        for turn in range(repeats + 1):
            start, stop = self.xp.cuda.Event(), self.xp.cuda.Event()
            start.record()
            for _ in range(calls):
                work()
            stop.record()
            stop.synchronize()
            if turn:
                found.append(self.xp.cuda.get_elapsed_time(start, stop) / 1e3 / calls)
        return statistics.median(found)

    def pinned(self, nbytes: int) -> Any:
        if not self.real:
            return np.ones(nbytes, np.uint8)
        memory = np.ndarray((nbytes,), np.uint8, self.xp.cuda.alloc_pinned_memory(nbytes))
        memory[...] = 1
        return memory

    def upload(self, host: Any, target: Any) -> None:
        if self.real:
            stream = self.xp.cuda.get_current_stream()
            target.data.copy_from_host_async(host.ctypes.data, host.nbytes, stream)
        else:
            np.copyto(target, host)

    def copy(self, one: Any, two: Any) -> None:
        if self.real:
            stream = self.xp.cuda.get_current_stream()
            two.data.copy_from_device_async(one.data, one.nbytes, stream)
        else:
            np.copyto(two, one)

    def describe(self) -> Figures:
        """Return what ran this."""
        here: Figures = {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "labeled": labeled.__version__,
            "cores": os.cpu_count(),
            "date": date.today().isoformat(),
        }
        if not self.real:
            return {"card": "none: the host in its place, which says nothing of a GPU", **here}
        runtime = self.xp.cuda.runtime
        told = runtime.getDeviceProperties(0)
        return {
            "card": told["name"].decode(),
            "memory_bytes": told["totalGlobalMem"],
            "compute": f"{told['major']}.{told['minor']}",
            "driver": driver_version(),
            "driver_cuda": runtime.driverGetVersion(),
            "runtime": runtime.runtimeGetVersion(),
            "cupy": self.xp.__version__,
            **here,
        }


def fitting(card: Card, folder: Path, asked: int) -> int:
    """Return a size of files, at most the one asked for, of which all fit everywhere.

    Three times as much is written, and kept in the page cache; and no process that only
    starts others should begin work on a GPU, so its memory in all is what is asked for.
    """
    room = [shutil.disk_usage(folder).free // 8]
    room.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)
    if card.real:
        room.append(card.xp.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"] // 16)
    return max(min(asked, *room), MIB)


def driver_version() -> str:
    """Return what the driver calls itself, if it has a tool that tells."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return f"not told ({type(error).__name__})"
    return told.stdout.strip()


def find_card(host: bool) -> Card:
    """Find the GPU.

    Raises
    ------
    NoGpu
        If CuPy, a driver or a card is missing; says which.
    """
    if host:
        return Card(np, Device())
    try:
        cupy = import_module("cupy")
    except ImportError as error:
        raise NoGpu(f"CuPy does not load ({error}): pip install 'labeled[gpu-cu13]'") from None
    if not cupy.cuda.is_available():
        raise NoGpu("CuPy finds no GPU and driver here")
    return Card(cupy, "cuda:0")


# ---------------------------------------------------------------- files and loaders
ROW_SHAPE = (3, 64, 64)
NAMES = ("batch", "channel", "height", "width")
ROW_BYTES = 3 * 64 * 64  # of uint8
SMALL_BATCH = 192 << 10  # as much as 64 rows of 3 x 32 x 32
LARGE_BATCH = 32 * MIB
BATCHES = {"1 MiB": MIB, "8 MiB": 8 * MIB, "32 MiB": LARGE_BATCH, "128 MiB": 128 * MIB}
SCALED: Figures = {"dtype": "float32", "scale": 1 / 255}
CHUNK_ROWS = 64


MAX_LINES = 40
"""What is kept of what a part said last."""


def failed(error: Exception) -> Figures:
    """Return what stands for figures that there are none of, and how it came to that."""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return {"failed": f"{type(error).__name__}: {error}"[:500], "lines": lines[-MAX_LINES:]}


def touched(array: Any) -> None:
    """Read an item of every cache line of a batch: all of them take longer than copies."""
    array.reshape(len(array), -1)[:, :: 128 // array.dtype.itemsize].sum(axis=1, dtype=np.float32)


def unused(array: Any) -> None:
    """Leave a batch as it is: it is made all the same."""


@dataclass(frozen=True)
class Bench:
    """One run.

    Parameters
    ----------
    nbytes : int
        Of each file, and eight times that of an array that is copied.
    """

    card: Card
    folder: Path
    nbytes: int
    tell: Callable[[Figures], None] = lambda _: None
    """Gets the rows of a part as they are measured."""

    def rows(self, works: Mapping[str, Callable[[], Any]]) -> Figures:
        """Return the figures of some rows; one that fails costs no other."""
        out: Figures = {}
        for name, work in works.items():
            try:
                out[name] = work()
            except Exception as error:  # the other rows should not be lost
                out[name] = failed(error)
            self.tell(out)
        return out

    def random(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array of the device: numbers that repeat every 1024 rows at most."""
        few = min(shape[0], 1024), *shape[1:]
        host = np.random.default_rng(0).integers(0, 256, few, np.uint8)
        part = self.card.xp.asarray(host.astype(dtype))
        return self.card.xp.concatenate([part] * -(-shape[0] // len(part)))[: shape[0]]

    def file(self, dtype: str, codec: str | None = None) -> str:
        """Return a file of random images, made once; each of their lines is there twice.

        So every codec makes them smaller, LZ4 too, which nothing else would.
        """
        path = self.folder / f"{dtype}-{codec}-{self.nbytes}.hdf5"
        if path.exists():
            return str(path)
        row_bytes = int(np.prod(ROW_SHAPE)) * np.dtype(dtype).itemsize
        n = max(self.nbytes // row_bytes // (4 if codec else 1), 64)
        channels, height, width = ROW_SHAPE
        lines = np.random.default_rng(0).integers(
            0, 16, (min(n, 1024), channels, height // 2, width)
        )
        pool = lines.astype(dtype).repeat(2, axis=2)
        if codec is not None:
            images = xr.DataArray(np.resize(pool, (n, *ROW_SHAPE)), dims=NAMES)
            more: Figures = {"statistics": False, "checksums": False, "progress": False}
            return labeled.write(
                path, {"images": images}, compression=codec, chunks=CHUNK_ROWS, **more
            )
        part = path.with_suffix(".part")  # of a part that was ended there may be some
        with h5py.File(part, "w", libver=("v110", "v114")) as f:
            data = f.create_dataset("images", (n, *ROW_SHAPE), dtype)
            for start in range(0, n, len(pool)):
                data[start : start + len(pool)] = pool[: n - start]
            for axis, name in enumerate(NAMES):
                data.dims[axis].label = name
        part.replace(path)
        return str(path)

    def loader(
        self,
        stored: str,
        batch_bytes: int,
        codec: str | None = None,
        n_rows: int | None = None,
        **options: Any,
    ) -> Any:
        dataset = labeled.open_dataset(self.file(stored, codec))
        if n_rows is not None:
            dataset = dataset.subset(slice(0, n_rows))
        row_bytes = int(np.prod(ROW_SHAPE)) * np.dtype(stored).itemsize
        rows = max(1, min(batch_bytes // row_bytes, dataset.n_rows // 4))
        wider = np.dtype(options.get("dtype", stored)).itemsize // np.dtype(stored).itemsize
        memory = max(8 * batch_bytes * wider, 64 * MIB)  # batches count as they are handed out
        known = {"memory": memory, "device": self.card.device}
        return dataset.batches(rows, **{**known, **options})

    def epoch(self, loader: Any, use: Callable[[Any], object] = touched) -> float:
        """Seconds of an epoch whose every batch is used on the device."""
        self.card.wait()
        began = perf_counter()
        for batch in loader:
            use(batch["images"].data)
        self.card.wait()
        return perf_counter() - began

    def rate(self, loader: Any, use: Callable[[Any], object] = touched) -> Figures:
        """Stored bytes a second, of three epochs after one that warms up, and time a batch.

        ``loader_us`` is what of this time the caller's thread is in the loader, in the last epoch.
        """
        self.epoch(loader, use)
        seconds = statistics.median(self.epoch(loader, use) for _ in range(3))
        told = loader.stats()
        return {
            "bytes_per_s": told.n_bytes / seconds,
            "batch_us": seconds / told.n_batches * 1e6,
            "loader_us": told.wall_s / told.n_batches * 1e6,
        }


# ---------------------------------------------------------------- arrays on the device
ORDERS = ["".join(order) for order in itertools.permutations("bc01")]


def copies(bench: Bench) -> Figures:
    """The bounds in bytes a second: pinned memory to device, device to device, and reads."""
    n = max(bench.nbytes // 8, MIB)
    host, one = bench.card.pinned(n), bench.card.xp.zeros(n, np.uint8)
    two = bench.card.xp.zeros(n, np.uint8)
    to_device = bench.card.seconds(lambda: bench.card.upload(host, one))
    within = bench.card.kernel_seconds(lambda: bench.card.copy(one, two))
    out = {"nbytes": n, "h2d": n / to_device, "d2d": 2 * n / within}
    bench.tell(out)
    tells = replace(bench, tell=lambda rows: bench.tell(out | {"reads, threads": rows}))
    path, room = bench.file("uint8"), bench.card.pinned(READ_ROOM)
    by_threads = tells.rows({str(n): partial(read_rate, path, room, n) for n in READ_THREADS})
    best = max((rate for rate in by_threads.values() if isinstance(rate, float)), default=NAN)
    return out | {"reads": best, "reads, threads": by_threads}


READ_THREADS, READ_PIECE, READ_ROOM = (1, 2, 4, 8, 12, 15), 2 * MIB, 128 * MIB


def read_rate(path: str, room: Any, n_threads: int) -> float:
    """Bytes a second, page cache to memory, of threads that do nothing else: the best of four."""
    nbytes, mine = os.path.getsize(path), len(room) // n_threads // READ_PIECE

    def read(number: int) -> None:
        for turn, at in enumerate(range(number * READ_PIECE, nbytes, n_threads * READ_PIECE)):
            place = (number * mine + turn % mine) * READ_PIECE
            os.preadv(file.fileno(), [room[place : place + READ_PIECE]], at)

    found = []
    with open(path, "rb") as file, ThreadPoolExecutor(n_threads) as pool:
        for _ in range(4):
            began = perf_counter()
            list(pool.map(read, range(n_threads)))
            found.append(perf_counter() - began)
    return nbytes / min(found)


def permutes(bench: Bench, bounds: Figures) -> Figures:
    """Every order of four axes, moved, and cast and scaled: against a plain device copy.

    ``of_library`` is against what the array library itself does for the same result.
    """
    kinds: dict[str, tuple[Any, Figures]] = {
        "u8": (np.uint8, {}),
        "f32": (np.float32, {}),
        "u8 to f32, scaled": (np.uint8, SCALED),
    }
    d2d = bounds["d2d"]
    return bench.rows({name: partial(of_kind, bench, d2d, *kind) for name, kind in kinds.items()})


def of_kind(bench: Bench, d2d: float, dtype: Any, options: Figures) -> Figures:
    """Measure all orders of one kind of items."""
    rows = max(bench.nbytes // 8 // (3 * 224 * 224), 2)
    src = bench.random((max(rows // np.dtype(dtype).itemsize, 2), 3, 224, 224), dtype)
    item = np.dtype(dtype).itemsize + np.dtype(options.get("dtype", dtype)).itemsize
    found = {order: of_order(bench, src, order, options) for order in ORDERS}
    each = {
        "of_d2d": {o: src.size * item / one["ours"] / d2d for o, one in found.items()},
        "of_library": {o: one["library"] / one["ours"] for o, one in found.items()},
    }
    out: Figures = {"right": all(one["right"] for one in found.values())}
    for name, values in each.items():
        out[f"{name}, median"] = statistics.median(values.values())
        worst = sorted(values, key=values.__getitem__)[:4]
        out[f"{name}, worst"] = values[worst[0]]
        out[f"{name}, worst orders"] = " ".join(f"{o}:{values[o]:.3g}" for o in worst)
    return out | {"nbytes": src.nbytes, "each": each}


def of_order(bench: Bench, src: Any, order: str, options: Figures) -> Figures:
    """Time one order, by the library and by ours, and see that both give the same."""
    xp, axes = bench.card.xp, tuple("bc01".index(axis) for axis in order)

    def library(src: Any = src) -> Any:
        moved = src.transpose(axes)
        if options:
            moved = (moved.astype(np.float32) * np.float32(options["scale"])).astype(
                options["dtype"]
            )
            return xp.ascontiguousarray(moved)
        return moved.copy()  # also where nothing moves

    few = src[:65]
    return {
        "ours": bench.card.kernel_seconds(lambda: permute.copy(src, axes, **options)),
        "library": bench.card.kernel_seconds(library, calls=3, repeats=3),
        "right": bool((permute.copy(few, axes, **options) == library(few)).all()),
    }


def gathers(bench: Bench, bounds: Figures) -> Figures:
    """Shuffled rows, cast and scaled: one pass."""
    n = max(bench.nbytes // 8 // (3 * 224 * 224), 4)
    src, rows = bench.random((n, 3, 224, 224), np.uint8), np.random.default_rng(1).permutation(n)

    def measured(dtype: str, order: str) -> float:
        changes = SCALED if dtype == "float32" else {}
        axes = tuple("bc01".index(axis) for axis in order)
        moved = n * 3 * 224 * 224 * (1 + np.dtype(dtype).itemsize)
        seconds = bench.card.kernel_seconds(lambda: permute.gather(src, rows, axes, **changes))
        return float(moved / seconds / bounds["d2d"])

    return bench.rows(
        {
            f"{order}, {dtype}, of_d2d": partial(measured, dtype, order)
            for dtype in ("uint8", "float32")
            for order in ("bc01", "b01c", "c01b")
        }
    )


def latency(bench: Bench) -> Figures:
    """Microseconds of one small batch of a file, and of one permute, the device waited for.

    Beside batches that are made on the device: those of the host, each copied there by itself.
    Nothing uses either.
    """

    def permuted(shape: tuple[int, ...], options: Figures) -> float:
        src = bench.random(shape, np.uint8)
        work = partial(permute.copy, src, (1, 2, 3, 0), **options)
        return bench.card.seconds(work, repeats=50) * 1e6

    def batches(shuffle: Any) -> Figures:
        options: Figures = {"shuffle": shuffle, "seed": 1, "n_rows": 64 * MIB // ROW_BYTES}
        found = bench.rate(bench.loader("uint8", SMALL_BATCH, **options), unused)
        host = bench.loader("uint8", SMALL_BATCH, device="cpu", **options)
        return found | {"host_and_copy_us": bench.rate(host, bench.card.xp.asarray)["batch_us"]}

    works: dict[str, Callable[[], Any]] = {
        f"192 KiB of a file, {shuffle or 'file order'}": partial(batches, shuffle)
        for shuffle in (False, "full")
    }
    for shape in ((16, 3, 32, 32), (256, 3, 32, 32), (64, 3, 224, 224)):
        for name, options in {"move": Figures(), "scaled": SCALED}.items():
            works[f"{'x'.join(map(str, shape))} {name}"] = partial(permuted, shape, options)
    return bench.rows(works)


# ---------------------------------------------------------------- from files to batches
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


def files(bench: Bench, bounds: Figures) -> Figures:
    """File in the page cache to batches on the device, against the copy and the reads alone."""

    def row(stored: str, size: str, shuffle: Any = False, **options: Any) -> Figures:
        options |= {"shuffle": shuffle, "seed": 1}
        loader = bench.loader(stored, BATCHES[size], **options)
        found, told = bench.rate(loader), loader.explain()
        rate = found["bytes_per_s"]
        found |= {"of_h2d": rate / bounds["h2d"], "of_reads": rate / bounds["reads"]}
        if "codec" in options:
            host = bench.rate(bench.loader(stored, BATCHES[size], device="cpu", **options))
            found |= {"of_host": rate / host["bytes_per_s"]}
        return found | {"pinned_bytes": told.pinned_bytes, "device_bytes": told.device_bytes}

    works = {f"u8 {size}, file order": partial(row, "uint8", size) for size in BATCHES}
    works |= {
        "u8 32 MiB, window": partial(row, "uint8", "32 MiB", "window"),
        "u8 32 MiB, full": partial(row, "uint8", "32 MiB", "full"),
        "f4 32 MiB, file order": partial(row, "float32", "32 MiB"),
        "u8 to f32 32 MiB, file order": partial(row, "uint8", "32 MiB", **SCALED),
        "gzip u8 32 MiB, window": partial(row, "uint8", "32 MiB", "window", codec="gzip"),
    }
    return bench.rows(works)


def profile(bench: Bench) -> Figures:
    """Where the time of an epoch goes: u8 in file order, batches of 32 MiB.

    ``stats`` are the loader's own, in seconds of one epoch; ``caller_cpu_s`` and ``all_cpu_s``
    what its caller and all threads computed. Then bytes a second with parts left out, or with
    other threads.
    """
    loader = bench.loader("uint8", LARGE_BATCH)
    bench.epoch(loader)
    caller, every = thread_time(), process_time()
    seconds = bench.epoch(loader)
    caller, every, told = thread_time() - caller, process_time() - every, loader.explain()
    job_bytes = told.job_rows * ROW_BYTES
    out: Figures = {
        "epoch": {"s": seconds, "caller_cpu_s": caller, "all_cpu_s": every},
        "stats": {name: value for name, value in asdict(loader.stats()).items() if value},
        "plan": {name: getattr(told, name) for name in ("threads", "n_buffers", "device_windows")},
    }
    out["plan"]["job_bytes"] = job_bytes
    host, there = bench.card.pinned(job_bytes), bench.card.xp.zeros(job_bytes, np.uint8)

    def rate(use: Callable[[Any], object] = unused, **options: Any) -> float:
        return float(bench.rate(bench.loader("uint8", LARGE_BATCH, **options), use)["bytes_per_s"])

    def copied() -> float:
        seconds = bench.card.kernel_seconds(lambda: bench.card.upload(host, there))
        return float(job_bytes / seconds)

    works: dict[str, Callable[[], float]] = {"used": partial(rate, touched), "not used": rate}
    works |= {"not used, on the host": partial(rate, device="cpu"), "copies alone": copied}
    works |= {f"threads={n}": partial(rate, threads=n) for n in (0, 1, 2, 4, 8, 15)}
    tells = replace(bench, tell=lambda rows: bench.tell(out | {"bytes_per_s": rows}))
    return out | {"bytes_per_s": tells.rows(works)}


def overlap(bench: Bench) -> Figures:
    """A consumer that computes about as long as reading takes: wall against the longer."""
    loader = bench.loader("uint8", LARGE_BATCH)
    bench.epoch(loader)
    read = statistics.median(bench.epoch(loader) for _ in range(3))
    side = 2048 if bench.card.real else 128
    square = bench.card.xp.ones((side, side), np.float32)
    once = bench.card.seconds(lambda: square @ square)
    times = max(1, round(read / len(loader) / once))

    def compute(array: Any = None) -> None:
        if array is not None:
            touched(array)
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
    """torch's DataLoader with pinned memory and copies that do not block, and ours, on a file."""
    try:
        theirs = import_module("torch")
    except ImportError as error:
        return {"left_out": f"torch does not load ({error})"}
    if not theirs.cuda.is_available():
        return {"left_out": "this torch has no CUDA"}
    data = import_module("torch.utils.data")
    path = bench.file("uint8")
    with h5py.File(path, "r") as f:
        offset, shape = f["images"].id.get_offset(), f["images"].shape
    mapped = np.memmap(path, np.uint8, "r", offset, shape)[: GIB // ROW_BYTES]

    class Batches(data.Dataset):  # type: ignore[misc,name-defined]
        def __init__(self, rows: int) -> None:
            self.rows = rows

        def __len__(self) -> int:
            return len(mapped) // self.rows

        def __getitem__(self, number: int) -> Any:
            return theirs.from_numpy(mapped[number * self.rows :][: self.rows].copy())

    def measured(size: str, workers: int) -> Figures:
        rows = max(1, min(BATCHES[size] // ROW_BYTES, len(mapped) // 4))
        options = {"batch_size": None, "num_workers": workers, "pin_memory": True}
        loader = data.DataLoader(Batches(rows), **options)
        found = []
        for _ in range(4):
            began = perf_counter()
            for batch in loader:
                there = batch.cuda(non_blocking=True)
                there.flatten(1)[:, ::128].sum(1, dtype=theirs.float32)
            theirs.cuda.synchronize()
            found.append(perf_counter() - began)
        rate = len(mapped) // rows * rows * ROW_BYTES / statistics.median(found[1:])
        ours = bench.rate(bench.loader("uint8", BATCHES[size]))["bytes_per_s"]
        return {"bytes_per_s": rate, "ours_of_it": ours / rate}

    # batches of processes pass through shared memory, of which there may be too little
    works = [("1 MiB", 0), ("1 MiB", 8), ("32 MiB", 0), ("32 MiB", 2), ("32 MiB", 8)]
    return bench.rows({f"{size}, {n} workers": partial(measured, size, n) for size, n in works})


def resident(bench: Bench, bounds: Figures) -> Figures:
    """A split kept on the device, gathered and cast there: against copies of batches, and d2d.

    The copied ones come from the file, fully shuffled, too. Nothing uses any of them.
    """
    loaded = labeled.open_dataset(bench.file("uint8")).load(device=bench.card.device)

    def measured(size: str, options: Figures) -> Figures:
        copies = bench.loader("uint8", BATCHES[size], shuffle="full", seed=1)
        copied = bench.rate(copies, unused)["bytes_per_s"]
        rows = max(1, min(BATCHES[size] // ROW_BYTES, loaded.n_rows // 4))
        found = bench.rate(loaded.batches(rows, shuffle="full", seed=1, **options), unused)
        touches = 1 + np.dtype(options.get("dtype", "uint8")).itemsize  # read and written
        return found | {
            "of_copied": found["bytes_per_s"] / copied,
            "of_d2d": found["bytes_per_s"] * touches / bounds["d2d"],
        }

    return bench.rows(
        {
            f"{name}, {size}": partial(measured, size, options)
            for size in BATCHES
            for name, options in {"moved": Figures(), "to f32, scaled": SCALED}.items()
        }
    )


# ---------------------------------------------------------------- a cluster
def cluster(bench: Bench) -> Figures:
    """One worker: lazy blocks there, laid out, added up, kept beyond a limit; restarted."""
    cl = import_module("labeled.cluster")
    limit = max(bench.nbytes // 8, 64 * MIB)
    path = bench.file("uint8")
    images = labeled.open_dataset(path, chunks={"batch": 1024})["images"]
    wanted = int(images.sum(dtype=np.int64).compute())
    there = "cuda" if bench.card.real else "cpu"
    space = Conv2DSpace(ROW_SHAPE[1:], num_channels=3, axes=("c", 0, 1, "b"))
    out: Figures = {"device_memory_limit": limit, "nbytes": images.nbytes}

    def total(array: Any) -> int:
        return int(array.sum(dtype=np.int64).labeled.to_device("cpu").compute())

    options = {"device_memory_limit": limit} if bench.card.real else {}
    start = cl.cuda_cluster if bench.card.real else cl.local_cluster
    with (
        start(n_workers=1, **options) as machines,
        machines.get_client() as client,
        client.as_current(),
    ):
        moved = images.labeled.to_device(there)
        began = perf_counter()
        out["sum_equal"] = total(moved) == wanted
        out["sum_s"] = perf_counter() - began
        began = perf_counter()
        kept = moved.labeled.format_as(space).persist()
        out["persisted_equal"] = total(kept) == wanted
        out["persist_s"] = perf_counter() - began
        out["held"] = next(iter(client.run(held).values()))
        del kept
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)  # its nanny starts another
        out["after_restart_equal"] = total(moved) == wanted
        out["new_process"] = list(client.run(os.getpid).values()) != [pid]
        options = {"batch_size": 256, "every": 8}
        if bench.card.real:
            options |= {"device": "cuda", "resources": {"GPU": 1}}
        parts = cl.run_parts(client, labeled.open_dataset(path), add_up, 0, int.__add__, **options)
        out["parts_equal"] = parts == wanted
    return out


def held(dask_worker: Any) -> Figures:
    """Return how many values a worker keeps, and where as far as it tells."""
    data = dask_worker.data
    places = {"all": data}
    for name in ("device", "device_buffer", "host", "host_buffer", "disk", "fast", "slow"):
        part = getattr(data, name, None)
        if part is not None and hasattr(part, "__len__"):
            places[name] = part
    return {"kind": type(data).__name__, **{name: len(part) for name, part in places.items()}}


def add_up(acc: int, batch: Any) -> int:
    """Add up a batch, wherever it is."""
    return acc + int(batch.arrays["images"].sum(dtype=np.int64))


# ---------------------------------------------------------------- tests
HERE = Path(__file__).resolve().parents[2]
FILES = ("test_gpu.py", "test_gpu_arrays.py", "test_gpu_batches.py", "test_spaces_convert.py")
LOOK_S = 2.0
MAX_TOLD = 20
PROCESSES = 4
TEST_S = 100
"""What one test may take."""


def tests(bench: Bench) -> Figures:
    """Run them, also where plugins of others are missing; tell on the way how far they are.

    With pytest-xdist and pytest-timeout a test that hangs or dies costs no other.
    """
    files = [str(HERE / "tests" / name) for name in FILES]
    asked = [sys.executable, "-m", "pytest", "-v", "-rfEs", "-p", "no:cacheprovider"]
    asked += ["-W", "default", "-o", "addopts=", "--continue-on-collection-errors", "-m", "gpu"]
    if find_spec("xdist") is not None:
        asked += ["-n", str(PROCESSES)]
    if find_spec("pytest_timeout") is not None:  # by a thread: a device is waited for in C
        asked += ["--timeout", str(TEST_S), "--timeout-method", "thread"]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*asked, *files], cwd=HERE, stdout=said, stderr=said)
        while True:
            try:
                ended = process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                bench.tell(told_by(said))
            else:
                return {"rc": ended, **told_by(said)}


def told_by(said: IO[str]) -> Figures:
    """Return how many tests passed, and what is said of the others."""
    said.seek(0)
    lines = said.read().strip().splitlines() or ["nothing was said"]
    ways = ("PASSED", "FAILED", "ERROR", "SKIPPED")
    counts = {f"n_{way.lower()}": sum(f" {way} " in f"{line} " for line in lines) for way in ways}
    others = [line for line in lines if line.startswith(ways)]
    told = {str(number): line[:300] for number, line in enumerate(others[:MAX_TOLD])}
    return {**counts, "last": lines[-1][:300], **told}


# ---------------------------------------------------------------- parts
NAN = float("nan")
PACKAGES = (
    "dask", "distributed", "xarray", "h5py", "cupy-cuda12x", "cupy-cuda13x", "dask-cuda", "torch",
)  # fmt: skip


def environment(bench: Bench) -> Figures:
    """Return what measures, what stands between here and the GPU, and what of it loads."""
    known = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    packages = {name: known[name] for name in PACKAGES if name in known}
    here = bench.card.describe() | {"file_bytes": bench.nbytes, "packages": packages}
    tells = replace(bench, tell=lambda rows: bench.tell(here | {"loads": rows}))
    return here | {"loads": tells.rows(loads(bench.card.device))}


def loads(device: Any) -> Mapping[str, Callable[[], object]]:
    """Return what tells of each library behind a device what it is, or why it does not load."""

    def told(name: Callable[[], str]) -> str:
        try:
            return name()
        except ImportError as error:
            return f"no: {error}"

    works: Mapping[str, Callable[[], str]] = {
        "device": lambda: there().name,
        "dask-cuda": lambda: str(import_module("dask_cuda").__version__),
    }
    there: Callable[[], Any] = partial(device_of, device)
    return {name: partial(told, work) for name, work in works.items()}


PARTS: Mapping[str, Callable[..., Figures]] = {
    "environment": environment,
    "copies": copies,
    "right": right,
    "files": files,
    "profile": profile,
    "permutes": permutes,
    "resident": resident,
    "latency": latency,
    "torch": torch,
    "overlap": overlap,
    "gathers": gathers,
    "cluster": cluster,
    "tests": tests,
}
"""In the order of their worth, should time end."""

ALWAYS = ("environment", "copies")
BOUNDED = ("files", "permutes", "resident", "gathers")
"""Parts that are told in fractions of a rate that was measured before."""

PART_S = {"files": 60.0, "permutes": 60.0, "torch": 60.0, "tests": 150.0, "cluster": 60.0}
USUAL_S = 45.0
"""What a part may take, if not said above."""

SAYS_S = 5.0
"""How long one that takes too long may take to say where it is."""


def measured(name: str, bench: Bench, bounds: Figures) -> Figures:
    """Return the figures of a part; or what it failed of."""
    known = {bound: bounds.get(bound, NAN) for bound in ("h2d", "d2d", "reads")}
    try:
        return PARTS[name](bench, known) if name in BOUNDED else PARTS[name](bench)
    except Exception as error:  # the other parts should not be lost
        return failed(error)


def measured_apart(
    name: str, arguments: list[str], bounds: Figures, limit_s: float, folder: Path
) -> Figures:
    """Return the figures of a part that runs in a process of its own; what there is of them."""
    if limit_s < 1:
        return {"failed": "no time was left for it"}
    into = folder / f"{name}.json"
    into.unlink(missing_ok=True)
    asked = [sys.executable, "-X", "faulthandler", "-m", "benchmarks.gpu.first_contact"]
    asked += ["--part", name, "--out", str(into), *arguments, "--bounds", json.dumps(bounds)]
    fault, lines = None, []
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            asked, cwd=HERE, stdout=said, stderr=said, start_new_session=True
        )  # fmt: skip
        try:
            if (ended := process.wait(limit_s)) != 0:
                fault = f"ended with {ended}"
        except subprocess.TimeoutExpired:
            fault = f"took longer than {limit_s:.0f} s"
            process.send_signal(signal.SIGABRT)  # it says where it is
            with suppress(subprocess.TimeoutExpired):
                process.wait(SAYS_S)
        finally:  # with all that it started, which would disturb what comes next
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        lines = last_lines(said)
    figures: Figures = json.loads(into.read_text()) if into.exists() else {}
    return figures if fault is None else {**figures, "failed": fault, "lines": lines}


def last_lines(said: IO[str]) -> list[str]:
    """Return the end of what a process said."""
    said.seek(0)
    return [line[:300] for line in said.read().strip().splitlines()[-MAX_LINES:]]


def written(figures: Figures, path: Path) -> None:
    """Write JSON to a file, which is whole at any time."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(figures, indent=1, default=str) + "\n")
    part.replace(path)


# ---------------------------------------------------------------- the command
NO_GPU = 2
"""What the process ends with where there is nothing to measure."""


IN_JSON = ("each", "lines", "packages")
"""What the table leaves out."""


def lines_of(found: Figures) -> list[str]:
    """Write what was found, short enough to be read where only the end of it is shown."""
    lines = []

    def walk(name: str, values: Figures) -> None:
        told = {what: value for what, value in values.items() if what not in IN_JSON}
        single = [f"{k} {figure_of(v)}" for k, v in told.items() if not isinstance(v, dict)]
        if single:
            lines.append(f"{name}: {'; '.join(single)}")
        for what, value in told.items():
            if isinstance(value, dict):
                walk(f"{name} / {what}", value)

    for part, values in found.items():
        walk(part, values)
    return lines


def figure_of(value: Any) -> str:
    """Write a figure with three digits, ``G`` for 1e9, or the beginning of a text."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).replace("\n", " ")[:110]
    if abs(value) >= 1e7:
        return f"{value / 1e9:.3g}G"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.first_contact",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gib", type=float, default=2.0, help="size of a file, in GiB")
    parser.add_argument(
        "--only", action="append", default=[], choices=list(PARTS), help="may come again"
    )
    parser.add_argument(
        "--skip", action="append", default=[], choices=list(PARTS), help="may come again"
    )
    parser.add_argument("--out", type=Path, help="where JSON goes")
    parser.add_argument("--cache", type=Path, help="folder of files, kept between runs")
    parser.add_argument("--limit-s", type=float, default=480.0, help="for all parts together")
    parser.add_argument("--host", action="store_true", help="try the script without a GPU")
    parser.add_argument("--together", action="store_true", help="all parts in this process")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--bounds", type=json.loads, default={}, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table and write JSON; return what the process ends with."""
    options = options_of(arguments)
    end = monotonic() + options.limit_s
    try:
        measures = find_card(options.host)
    except NoGpu as error:
        print(f"no GPU to measure: {error}", file=sys.stderr)
        return NO_GPU
    nbytes = int(options.gib * GIB)
    if options.part is not None:
        bench = Bench(measures, options.cache, nbytes, partial(written, path=options.out))
        written(measured(options.part, bench, options.bounds), options.out)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        cache = options.cache or Path(folder)
        cache.mkdir(parents=True, exist_ok=True)
        nbytes = fitting(measures, cache, nbytes)
        bench = Bench(measures, cache, nbytes)
        same = ["--gib", str(nbytes / GIB), "--cache", str(cache), *["--host"] * options.host]
        found: Figures = {}
        for name in PARTS:
            if name in options.skip or (options.only and name not in (*ALWAYS, *options.only)):
                continue
            began, bounds = monotonic(), found.get("copies", {})
            if options.together:
                found[name] = measured(name, bench, bounds)
            else:
                limit_s = min(PART_S.get(name, USUAL_S), end - monotonic())
                found[name] = measured_apart(name, same, bounds, limit_s, Path(folder))
            fault = figure_of(found[name].get("failed", ""))
            print(f"{name}: {monotonic() - began:.1f} s {fault}".rstrip(), flush=True)
            if options.out is not None:
                written(found, options.out)
    print("\n".join(lines_of(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
