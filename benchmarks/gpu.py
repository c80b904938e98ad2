"""What a GPU gets of all this: copies, permutes, files to batches, overlap, a cluster.

    python -m benchmarks.gpu [--gib 2] [--only PART] [--out benchmarks/results/gpu.json]
    python -m benchmarks.gpu --host --gib 0.05     # tries the script; says nothing of a GPU

Runs alone and needs CuPy and one GPU, on which nothing else runs. Every part runs in a
process of its own, so that one that fails, dies or takes too long costs no other, and no row of
it that was measured before; processes that it leaves behind are ended. JSON is written after
each of them, and what there is no time for within ``--limit-s`` is told. Files are smaller than
asked for where disk, memory or GPU are small.

Every figure is a median of repeats with the device waited for on both sides; rates of batches
are those of whole epochs from the page cache, with a consumer that adds up every element on the
device. The bounds are measured in the same run: pinned memory to device, and device to device.
Chunks that the library has decoded on the device, by nvCOMP, and files that it has read by the
device, by kvikio, are measured against its own threads of the host. Peers are measured where they
are installed: torch's loader, and kvikio's reads alone.
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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import h5py
import numpy as np

import labeled
from labeled import cluster, permute
from labeled.device import HostDevice
from labeled.spaces import Conv2DSpace
from labeled.views.text import table

MIB, GIB = 1 << 20, 1 << 30
NAN = float("nan")
ROW_SHAPE = (3, 64, 64)
NAMES = ("batch", "channel", "height", "width")
LARGE_BATCH = 48 * MIB
CHUNK_ROWS = 64
HERE = Path(__file__).resolve().parents[1]
PACKAGES = (
    "dask", "distributed", "xarray", "h5py", "cupy-cuda12x", "cupy-cuda13x", "dask-cuda", "torch",
    "nvidia-libnvcomp-cu12", "nvidia-libnvcomp-cu13", "kvikio-cu12", "kvikio-cu13",
)  # fmt: skip
DEVICE_TESTS = ("test_gpu.py", "test_nvcomp.py", "test_permute_cuda.py", "test_spaces_convert.py")
ORDERS = ["".join(order) for order in itertools.permutations("bc01")]

NO_GPU = 2
"""What the process ends with where there is nothing to measure."""

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


def card(host: bool) -> Card:
    """Find the GPU.

    Raises
    ------
    NoGpu
        If CuPy, a driver or a card is missing; says which.
    """
    if host:
        return Card(np, HostDevice())
    try:
        cupy = import_module("cupy")
    except ImportError as error:
        raise NoGpu(f"CuPy does not load ({error}): pip install 'labeled[gpu-cu13]'") from None
    if not cupy.cuda.is_available():
        raise NoGpu("CuPy finds no GPU and driver here")
    return Card(cupy, "cuda:0")


def written_by(codec: str) -> Figures:
    """Return h5py's options for a codec; those that h5py lacks are hdf5plugin's."""
    if codec == "gzip":
        return {"compression": codec}
    plugin = import_module("hdf5plugin")
    return dict({"zstd": plugin.Zstd, "lz4": plugin.LZ4}[codec]())


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

    # bounds

    def copies(self) -> Figures:
        """Pinned memory to device, and device to device, in bytes a second."""
        n = max(self.nbytes // 8, MIB)
        host, one = self.card.pinned(n), self.card.xp.zeros(n, np.uint8)
        two = self.card.xp.zeros(n, np.uint8)
        to_device = self.card.seconds(lambda: self.card.upload(host, one))
        within = self.card.seconds(lambda: self.card.copy(one, two))
        return {"nbytes": n, "h2d": n / to_device, "d2d": 2 * n / within}

    def permutes(self, d2d: float) -> Figures:
        """Every order of four axes, moved, and cast and scaled: against a plain device copy.

        ``of_library`` is against what the array library itself does for the same result.
        """
        kinds = {
            "u8": (np.uint8, {}),
            "f16": (np.float16, {}),
            "f32": (np.float32, {}),
            "u8 to f32, scaled": (np.uint8, {"dtype": np.float32, "scale": 1 / 255}),
            "u8 to f16, scaled": (np.uint8, {"dtype": np.float16, "scale": 1 / 255}),
        }
        return self.rows({name: partial(self.orders, d2d, *kind) for name, kind in kinds.items()})

    def orders(self, d2d: float, dtype: Any, options: Figures) -> Figures:
        """Measure all orders of one kind of items."""
        rows = max(self.nbytes // 8 // (3 * 224 * 224), 2)
        src = self.random((max(rows // np.dtype(dtype).itemsize, 2), 3, 224, 224), dtype)
        item = np.dtype(dtype).itemsize + np.dtype(options.get("dtype", dtype)).itemsize
        found = {order: self.order(src, order, options) for order in ORDERS}
        out: Figures = {
            "nbytes": src.nbytes,
            "of_d2d": {o: src.size * item / one["ours"] / d2d for o, one in found.items()},
            "of_library": {o: one["library"] / one["ours"] for o, one in found.items()},
            "right": all(one["right"] for one in found.values()),
        }
        for name in ("of_d2d", "of_library"):
            values = list(out[name].values())
            out[f"{name}, median"] = statistics.median(values)
            out[f"{name}, worst"] = min(values)
        return out

    def random(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return an array of the device: numbers that repeat every 1024 rows at most."""
        host = np.random.default_rng(0).integers(0, 256, (min(shape[0], 1024), *shape[1:]))
        part = self.card.xp.asarray(host.astype(dtype))
        return self.card.xp.concatenate([part] * -(-shape[0] // len(part)))[: shape[0]]

    def order(self, src: Any, order: str, options: Figures) -> Figures:
        """Time one order, by the library and by ours, and see that both give the same."""
        xp, axes = self.card.xp, tuple("bc01".index(axis) for axis in order)

        def library(src: Any = src) -> Any:
            moved = src.transpose(axes)
            if options:
                moved = (moved.astype(np.float32) * np.float32(options["scale"])).astype(
                    options["dtype"]
                )
            return xp.ascontiguousarray(moved)

        few, repeats = src[:65], 7 if self.card.real else 1
        return {
            "ours": self.card.seconds(lambda: permute.copy(src, axes, **options), repeats),
            "library": self.card.seconds(library, repeats),
            "right": bool((permute.copy(few, axes, **options) == library(few)).all()),
        }

    def crops(self, d2d: float) -> Figures:
        """Shuffled rows, each cropped and mirrored on its own, cast and scaled: one pass."""
        n = max(self.nbytes // 8 // (3 * 256 * 256), 4)
        src, rng = self.random((n, 3, 256, 256), np.uint8), np.random.default_rng(1)
        starts = rng.integers(0, 33, (2, n))
        options: Figures = {
            "rows": rng.permutation(n),
            "at": {2: (starts[0], 224), 3: (starts[1], 224)},
            "mirror": {3: rng.integers(0, 2, n).astype(bool)},
        }

        def measured(dtype: str, order: str) -> float:
            changes = {"dtype": dtype, "scale": 1 / 255} if dtype == "float32" else {}
            axes = tuple("bc01".index(axis) for axis in order)
            moved = n * 3 * 224 * 224 * (1 + np.dtype(dtype).itemsize)
            seconds = self.card.seconds(lambda: permute.crop(src, axes, **options, **changes), 7)
            return moved / seconds / d2d

        return self.rows(
            {
                f"{order}, {dtype}, of_d2d": partial(measured, dtype, order)
                for dtype in ("uint8", "float32")
                for order in ("bc01", "b01c", "c01b")
            }
        )

    def latency(self) -> Figures:
        """Microseconds of one permute of a small batch, the device waited for."""

        def measured(shape: tuple[int, ...], options: Figures) -> float:
            src = self.random(shape, np.uint8)
            work = partial(permute.copy, src, (1, 2, 3, 0), **options)
            return self.card.seconds(work, repeats=50) * 1e6

        return self.rows(
            {
                f"{'x'.join(map(str, shape))} {name}": partial(measured, shape, options)
                for shape in ((16, 3, 32, 32), (256, 3, 32, 32), (64, 3, 224, 224))
                for name, options in (("move", {}), ("scaled", {"dtype": "f4", "scale": 1 / 255}))
            }
        )

    # files

    def file(self, dtype: str, codec: str | None = None) -> str:
        """Return a file of random images, made once."""
        path = self.folder / f"{dtype}-{codec}-{self.nbytes}.hdf5"
        if path.exists():
            return str(path)
        row_bytes = int(np.prod(ROW_SHAPE)) * np.dtype(dtype).itemsize
        n = max(self.nbytes // row_bytes // (4 if codec else 1), 64)
        pool = np.random.default_rng(0).integers(0, 16, (min(n, 1024), *ROW_SHAPE)).astype(dtype)
        chunks = {"chunks": (CHUNK_ROWS, *ROW_SHAPE), **written_by(codec)} if codec else {}
        part = path.with_suffix(".part")  # of a part that was ended there may be some
        with h5py.File(part, "w", libver=("v110", "v114")) as f:
            data = f.create_dataset("images", (n, *ROW_SHAPE), dtype, **chunks)
            for start in range(0, n, len(pool)):
                data[start : start + len(pool)] = pool[: n - start]
            for axis, name in enumerate(NAMES):
                data.dims[axis].label = name
        part.replace(path)
        return str(path)

    def loader(
        self, stored: str, batch_bytes: int, codec: str | None = None, **options: Any
    ) -> Any:
        dataset = labeled.open_dataset(self.file(stored, codec))
        row_bytes = int(np.prod(ROW_SHAPE)) * np.dtype(stored).itemsize
        rows = max(1, min(batch_bytes // row_bytes, dataset.n_rows // 4))
        known = {"memory": max(8 * batch_bytes, 64 * MIB), "device": self.card.device}
        return dataset.batches(rows, **{**known, **options})

    def epoch(self, loader: Any, more: Callable[[Any], object] | None = None) -> float:
        """Seconds of an epoch whose every element is added up on the device."""
        self.card.wait()
        began = perf_counter()
        for batch in loader:
            array = batch["images"].data
            array.sum(dtype=np.float32)
            if more is not None:
                more(array)
        self.card.wait()
        return perf_counter() - began

    def rate(self, loader: Any) -> float:
        """Stored bytes a second, of three epochs after one that warms up."""
        self.epoch(loader)
        seconds = statistics.median(self.epoch(loader) for _ in range(3))
        return float(loader.stats().n_bytes / seconds)

    def files(self, h2d: float) -> Figures:
        """File in the page cache to batches on the device, against the copy alone."""

        def plain(dtype: str, shuffle: Any) -> Figures:
            loader = self.loader(dtype, LARGE_BATCH, shuffle=shuffle, seed=1)
            rate = self.rate(loader)
            told = loader.explain()
            return {
                "bytes_per_s": rate,
                "of_h2d": rate / h2d,
                "pinned_bytes": told.pinned_bytes,
                "device_bytes": told.device_bytes,
            }

        def other(**options: Any) -> Figures:
            loader = self.loader("uint8", LARGE_BATCH, seed=1, **options)
            return {"bytes_per_s": self.rate(loader)}

        works: dict[str, Callable[[], Figures]] = {
            f"{dtype}, {shuffle or 'file order'}": partial(plain, dtype, shuffle)
            for dtype in ("uint8", "float32")
            for shuffle in (False, "full")
        }
        works["uint8 to float32, scaled"] = partial(other, dtype="float32", scale=1 / 255)
        works["gzip, decoded by host threads"] = partial(other, codec="gzip", shuffle="window")
        return self.rows(works)

    def small(self) -> Figures:
        """What a small batch costs: 16 rows."""

        def measured(device: Any) -> float:
            loader = self.loader("uint8", 16 * 12288, device=device)
            self.epoch(loader)
            return self.epoch(loader) / len(loader) * 1e6

        devices = {"host": "cpu", "device": self.card.device}
        return self.rows({f"{n}_us_a_batch": partial(measured, d) for n, d in devices.items()})

    def depths(self) -> Figures:
        """Jobs read ahead, in batches of 8 MiB."""

        def measured(prefetch: int) -> float:
            loader = self.loader("uint8", 8 * MIB, prefetch=prefetch, memory=256 * MIB)
            return self.rate(loader)

        return self.rows({str(prefetch): partial(measured, prefetch) for prefetch in (1, 2, 4, 8)})

    def overlap(self) -> Figures:
        """A consumer that computes about as long as reading takes: wall against the longer."""
        loader = self.loader("uint8", LARGE_BATCH)
        self.epoch(loader)
        read = statistics.median(self.epoch(loader) for _ in range(3))
        side = 2048 if self.card.real else 128
        square = self.card.xp.ones((side, side), np.float32)
        once = self.card.seconds(lambda: square @ square)
        times = max(1, round(read / len(loader) / once))

        def compute(_: Any = None) -> None:
            for _ in range(times):
                square @ square

        alone = self.card.seconds(compute, repeats=5) * len(loader)
        wall = statistics.median(self.epoch(loader, compute) for _ in range(3))
        return {
            "read_s": read,
            "compute_s": alone,
            "wall_s": wall,
            "of_longer": wall / max(read, alone),
        }

    def torch_loader(self) -> Figures:
        """torch's DataLoader with pinned memory and copies that do not block, on the same file."""
        torch = import_module("torch")
        if not torch.cuda.is_available():
            return {"left_out": "this torch has no CUDA"}
        data = import_module("torch.utils.data")
        path = self.file("uint8")
        with h5py.File(path, "r") as f:
            offset, shape = f["images"].id.get_offset(), f["images"].shape
        mapped = np.memmap(path, np.uint8, "r", offset, shape)
        rows = max(1, LARGE_BATCH // int(np.prod(ROW_SHAPE)))

        class Batches(data.Dataset):  # type: ignore[misc,name-defined]
            def __len__(self) -> int:
                return len(mapped) // rows

            def __getitem__(self, number: int) -> Any:
                return torch.from_numpy(mapped[number * rows : (number + 1) * rows].copy())

        def measured(workers: int) -> float:
            options = {"batch_size": None, "num_workers": workers, "pin_memory": True}
            loader = data.DataLoader(Batches(), **options)
            found = []
            for _ in range(4):
                began = perf_counter()
                for batch in loader:
                    batch.cuda(non_blocking=True).sum(dtype=torch.float32)
                torch.cuda.synchronize()
                found.append(perf_counter() - began)
            nbytes: int = len(mapped) // rows * rows * mapped[0].nbytes
            return nbytes / statistics.median(found[1:])

        # batches of processes pass through shared memory, of which there may be too little
        return self.rows({f"{n} workers, bytes_per_s": partial(measured, n) for n in (0, 2, 8)})

    def right(self) -> Figures:
        """Whether batches of the device are those of the host."""
        here = self.loader("uint8", MIB, device="cpu", shuffle="full", seed=3)
        there = self.loader("uint8", MIB, shuffle="full", seed=3)
        n = 0
        for ours, theirs in zip(there, here, strict=True):
            array = ours["images"].data
            array = array.get() if self.card.real else array
            if not np.array_equal(array, theirs["images"].data):
                return {"equal": False, "batch": n}
            n += 1
        return {"equal": True, "batches": n}

    # chunks decoded there

    def decoding(self) -> Figures:
        """Compressed chunks: decoded by threads of the host, and on the device.

        The memory is less than the file, so that nothing is kept decoded.
        """
        return self.rows(
            {
                f"{codec}, {order or 'file order'}": partial(self.decoded, codec, order)
                for codec in ("gzip", "zstd", "lz4")
                for order in (False, "window")
            }
        )

    def decoded(self, codec: str, shuffle: Any) -> Figures:
        """Rates of stored rows a second on both sides, and whether the batches are the same."""
        found: Figures = {}
        try:
            self.file("uint8", codec)
        except ImportError as error:
            return {"left_out": f"it cannot be written here ({error})"}
        options = {"codec": codec, "shuffle": shuffle, **self.uncached()}
        sums: dict[str, list[int]] = {}
        for decode in ("host", "device"):
            loader = self.loader("uint8", decode=decode, **options)
            sums[decode] = [int(batch["images"].data.sum(dtype=np.int64)) for batch in loader]
            found[f"{decode}_bytes_per_s"] = self.rate(loader)
            stats = loader.stats()
            found[f"{decode}_bus_bytes"] = stats.bus_bytes
            if decode == "device":
                found["chunks_there"] = stats.n_chunks_there
                found["by"] = loader.explain().lanes[0].why
        found["equal"] = sums["host"] == sums["device"]
        if not found["chunks_there"]:  # both were decoded on the host
            found["left_out"] = f"{found.pop('device_bytes_per_s'):.4g} bytes a second, not there"
        return found

    # peers below the library, and a cluster above it

    def kvikio(self) -> Figures:
        """Files read by the device itself, against threads of the host; and kvikio's reads alone.

        ``compat_mode`` says whether it had GPUDirect Storage: without, it copies through memory
        of its own.
        """
        works: dict[str, Callable[[], Any]] = {
            "KVIKIO_NTHREADS": lambda: os.environ.get("KVIKIO_NTHREADS", "not set"),
            "file order": lambda: self.straight(shuffle=False),
            "window": lambda: self.straight(shuffle="window"),
        }
        return self.rows(works | ({"alone": self.kvikio_alone} if self.card.real else {}))

    def straight(self, shuffle: Any) -> Figures:
        """Rates of rows on both sides, and whether the batches are the same."""
        found: Figures = {}
        sums: dict[str, list[int]] = {}
        for reader in ("threads", "device"):
            loader = self.loader("uint8", **self.uncached(), shuffle=shuffle, reader=reader)
            sums[reader] = [int(batch["images"].data.sum(dtype=np.int64)) for batch in loader]
            found[f"{reader}_bytes_per_s"] = self.rate(loader)
        found["read_there"] = loader.stats().direct_bytes
        found["by"] = loader.explain().direct
        found["equal"] = sums["threads"] == sums["device"]
        return found

    def uncached(self) -> Figures:
        """Return a size of batches, and memory that holds some of them and less than a file."""
        batch_bytes = max(MIB // 4, min(LARGE_BATCH, self.nbytes // 64))
        memory = max(8 * batch_bytes, min(512 * MIB, self.nbytes // 8), 10 * MIB)
        return {"batch_bytes": batch_bytes, "memory": memory, "seed": 1}

    def kvikio_alone(self) -> Figures:
        """Read the rows of a file straight to the device, 48 MiB at a time, and do nothing else."""
        kvikio = import_module("kvikio")
        path = self.file("uint8")
        with h5py.File(path, "r") as f:
            offset, nbytes = f["images"].id.get_offset(), f["images"].nbytes
        target = self.card.xp.empty(min(LARGE_BATCH, nbytes), np.uint8)
        with kvikio.CuFile(path, "r") as file:

            def read() -> None:
                for place in range(0, nbytes - target.nbytes + 1, target.nbytes):
                    file.read(target, file_offset=offset + place)

            seconds = self.card.seconds(read, repeats=3)
        mode = import_module("kvikio.defaults").get("compat_mode")
        read_bytes = nbytes // target.nbytes * target.nbytes
        return {"bytes_per_s": read_bytes / seconds, "compat_mode": str(mode)}

    def cluster(self) -> Figures:
        """One worker: lazy blocks there, laid out, added up, kept beyond a limit; restarted."""
        limit = max(self.nbytes // 8, 64 * MIB)
        path = self.file("uint8")
        images = labeled.open_dataset(path, chunks={"batch": 1024})["images"]
        wanted = int(images.sum(dtype=np.int64).compute())
        there = "cuda" if self.card.real else "cpu"
        space = Conv2DSpace(ROW_SHAPE[1:], num_channels=3, axes=("c", 0, 1, "b"))
        out: Figures = {"device_memory_limit": limit, "nbytes": images.nbytes}

        def total(array: Any) -> int:
            return int(array.sum(dtype=np.int64).labeled.to_device("cpu").compute())

        options = {"device_memory_limit": limit} if self.card.real else {}
        start = cluster.cuda_cluster if self.card.real else cluster.local_cluster
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
            if self.card.real:
                options |= {"device": "cuda", "resources": {"GPU": 1}}
            parts = cluster.run_parts(
                client, labeled.open_dataset(path), add_up, 0, int.__add__, **options
            )
            out["parts_equal"] = parts == wanted
        return out

    def tests(self) -> Figures:
        """Run the tests that need a GPU, also where plugins of others are missing."""
        files = [str(HERE / "tests" / name) for name in DEVICE_TESTS]
        asked = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider"]
        asked += ["-W", "default", "-o", "addopts=", "--continue-on-collection-errors"]
        done = subprocess.run(
            [*asked, "-m", "gpu", *files], cwd=HERE, capture_output=True, text=True, check=False
        )
        lines = done.stdout.strip().splitlines()
        told = [line for line in lines if line.startswith(("FAILED", "ERROR", "SKIPPED"))]
        return {"rc": done.returncode, "summary": lines[-1] if lines else done.stderr[-500:]} | {
            str(number): line[:300] for number, line in enumerate(told[:20])
        }


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


PARTS: dict[str, Callable[[Bench, Figures], Figures]] = {
    "environment": lambda bench, _: (
        bench.card.describe() | {"file_bytes": bench.nbytes, "packages": packages()}
    ),
    "copies": lambda bench, _: bench.copies(),
    "tests": lambda bench, _: bench.tests(),
    "right": lambda bench, _: bench.right(),
    "files": lambda bench, bounds: bench.files(bounds.get("h2d", NAN)),
    "permutes": lambda bench, bounds: bench.permutes(bounds.get("d2d", NAN)),
    "crops": lambda bench, bounds: bench.crops(bounds.get("d2d", NAN)),
    "latency": lambda bench, _: bench.latency(),
    "overlap": lambda bench, _: bench.overlap(),
    "small": lambda bench, _: bench.small(),
    "depths": lambda bench, _: bench.depths(),
    "decoding": lambda bench, _: bench.decoding(),
    "torch": lambda bench, _: bench.torch_loader(),
    "cluster": lambda bench, _: bench.cluster(),
    "kvikio": lambda bench, _: bench.kvikio(),
}
"""In the order of their worth, should time end."""

ALWAYS = ("environment", "copies")
PART_S = {"tests": 180.0, "files": 120.0, "decoding": 180.0, "cluster": 120.0}
"""What a part may take; 90 seconds if not said here."""


def packages() -> Figures:
    """Return the versions of what stands between here and the GPU."""
    known = {dist.metadata["Name"]: dist.version for dist in metadata.distributions()}
    return {name: known[name] for name in PACKAGES if name in known}


def failed(error: Exception) -> Figures:
    """Return what stands for figures that there are none of."""
    return {"failed": f"{type(error).__name__}: {error}"[:500]}


def measured(name: str, bench: Bench, bounds: Figures) -> Figures:
    """Return the figures of a part; or what it failed of."""
    try:
        return PARTS[name](bench, bounds)
    except Exception as error:  # the other parts should not be lost
        return failed(error)


def written(figures: Figures, path: Path) -> None:
    """Write JSON to a file, which is whole at any time."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(figures, indent=1, default=str) + "\n")
    part.replace(path)


def measured_apart(
    name: str, arguments: list[str], bounds: Figures, limit_s: float, folder: Path
) -> Figures:
    """Return the figures of a part that runs in a process of its own; what there is of them."""
    if limit_s < 1:
        return {"failed": "no time was left for it"}
    into = folder / f"{name}.json"
    into.unlink(missing_ok=True)
    asked = [sys.executable, "-m", "benchmarks.gpu", "--part", name, "--out", str(into), *arguments]
    asked += ["--bounds", json.dumps(bounds)]
    fault = None
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            asked, cwd=HERE, stdout=said, stderr=said, start_new_session=True
        )  # fmt: skip
        try:
            if (ended := process.wait(limit_s)) != 0:
                said.seek(0)
                last = said.read().strip().splitlines()[-1:] or ["nothing"]
                fault = f"ended with {ended}, and said {last[0][:300]}"
        except subprocess.TimeoutExpired:
            fault = f"took longer than {limit_s:.0f} s"
        finally:  # with all that it started, which would disturb what comes next
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    figures: Figures = json.loads(into.read_text()) if into.exists() else {}
    return figures if fault is None else {**figures, "failed": fault}


def lines_of(found: Figures) -> list[str]:
    """Write what was found as one table: part, what, figure."""
    rows = [("part", "what", "figure")]

    def walk(part: str, what: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, one in value.items():
                walk(part, f"{what} / {name}" if what else name, one)
        elif isinstance(value, float):
            rows.append((part, what, f"{value / 1e9:.2f} G" if value > 1e7 else f"{value:.4g}"))
        else:
            rows.append((part, what, str(value)))

    for part, value in found.items():
        walk(part, "", value)
    return table(rows)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table and write JSON; return what the process ends with."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0, help="size of a file, in GiB")
    parser.add_argument("--only", action="append", default=[], help="a part; may come again")
    parser.add_argument("--out", type=Path, help="where JSON goes")
    parser.add_argument("--cache", type=Path, help="folder of files, kept between runs")
    parser.add_argument("--limit-s", type=float, default=540.0, help="for all parts together")
    parser.add_argument("--host", action="store_true", help="try the script without a GPU")
    parser.add_argument("--together", action="store_true", help="all parts in this process")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--bounds", type=json.loads, default={}, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        measures = card(options.host)
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
        nbytes = fitting(measures, cache, nbytes)
        bench = Bench(measures, cache, nbytes)
        same = ["--gib", str(nbytes / GIB), "--cache", str(cache), *["--host"] * options.host]
        found: Figures = {}
        end = monotonic() + options.limit_s
        for name in PARTS:
            if options.only and name not in (*ALWAYS, *options.only):
                continue
            bounds = found.get("copies", {})
            if options.together:
                found[name] = measured(name, bench, bounds)
            else:
                limit_s = min(PART_S.get(name, 90.0), end - monotonic())
                found[name] = measured_apart(name, same, bounds, limit_s, Path(folder))
            print(f"{name}: {json.dumps(found[name], default=str)}", flush=True)
            if options.out is not None:
                written(found, options.out)
    print("\n".join(lines_of(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
