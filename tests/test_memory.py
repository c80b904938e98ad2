"""What iterating adds to the memory of a process stays within ``memory=`` (law 6)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import LoaderError
from labeled.formats.recordio.writing import write_records

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="samples /proc/self/status"),
]

MIB = 1 << 20
LEAST = 0.5
"""The share of the promise that is used at least, however busy the machine is."""

SCRIPT = """
import ctypes, importlib, json, sys, threading, time
from types import SimpleNamespace
import numpy as np
import labeled
from labeled import permute
from labeled.transforms import whole
from labeled.spaces import Conv2DSpace

path, options = sys.argv[1], json.loads(sys.argv[2])


def held():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) * 1024


how = {}
if options.pop("each", False):
    how = {"examples": "g*", "dims": {"x": ("batch", "y", "x")}, "sources": ["x"]}
dataset = labeled.open_dataset(path, **how)
listed = options.pop("listed", 0)
if listed:
    dataset = dataset.subset(np.random.default_rng(0).permutation(dataset.n_rows)[:listed])
if options.pop("cast", False):
    chw = Conv2DSpace((32, 32), channels=3, axes=("c", 0, 1, "b"))
    options |= {"specs": (chw, "x"), "dtype": "float32", "scale": 1 / 255}
    warm = np.zeros((512, 3, 32, 32), np.uint8)  # kernels are loaded once a process
    permute.copy(warm, (1, 2, 3, 0), dtype="float32", scale=1 / 255)
    kernels = importlib.import_module("labeled.permute.kernels") if permute.available() else None
    if kernels is not None:
        kernels.scatter(permute.empty((4096, 3072), "u1"), np.arange(512), warm.reshape(512, -1))
    del warm
if options.pop("piped", False):
    options["pipeline"] = whole(lambda batch: {"x": batch["x"]})  # makes nothing of its own
    next(iter(dataset.subset([0]).batches(1, pipeline=options["pipeline"])))  # imports
if path.endswith(".rec"):
    dataset.subset([0]).load()  # imports
loader = dataset.batches(**options)
promised = loader.explain().promised_bytes
if hasattr(ctypes.CDLL(None), "malloc_trim"):  # else what imports left behind is used again
    ctypes.CDLL(None).malloc_trim(0)
before, peak, done = held(), 0, threading.Event()


def watch():
    global peak
    while not done.is_set():
        peak = max(peak, held())
        time.sleep(0.0005)


def settle():
    # Until nothing more is read ahead, however busy the machine is with others.
    still, last = 0, held()
    for _ in range(100):
        time.sleep(0.03)
        now = held()
        still, last = (still + 1, last) if now <= last else (0, now)
        if still == 5:
            return


watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
total = 0
for _ in range(2):
    for number, batch in enumerate(loader):
        if number == 3:
            settle()
        batch = batch if hasattr(batch, "arrays") else SimpleNamespace(arrays={"x": batch})
        for array in batch.arrays.values():
            total += int(array.reshape(-1).view(np.uint8)[::64].sum())
done.set()
watcher.join()
print(json.dumps({"growth": peak - before, "promised": promised, "total": total}))
"""


def write(path, shape, dtype, last=16, **layout):
    rng, most = np.random.default_rng(0), np.linspace(16, last, shape[0])
    with h5py.File(path, "w", libver=("v110", "v114")) as f:
        data = f.create_dataset("x", shape, dtype, **layout)
        for start in range(0, shape[0], 20_000):
            stop = min(shape[0], start + 20_000)
            below = most[start:stop].astype(np.uint8).reshape(-1, *[1] * (len(shape) - 1))
            low = rng.integers(0, below, (stop - start, *shape[1:]), np.uint8)
            data[start:stop] = low.astype(dtype, copy=False)
        for axis in range(len(shape)):
            data.dims[axis].label = "batch" if not axis else f"axis{axis}"
    return str(path)


def write_pictures(path):
    """Write 600 JPEGs of 128 x 160 pixels: 35 MiB decoded."""
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (600, 8, 10, 3), np.uint8)
    write_records(
        path, (np.kron(one, np.ones((16, 16, 1), np.uint8)) for one in coarse), range(600)
    )
    return str(path)


def write_examples(path):
    """Write 3,000 datasets of 16 KiB, each in two chunks."""
    rng = np.random.default_rng(0)
    with h5py.File(path, "w", libver=("v110", "v114")) as f:
        for i in range(3000):
            data = rng.integers(0, 16, (128, 128), np.uint8)
            f.create_dataset(f"g{i:04}/x", data=data, chunks=(64, 128), compression=1)
    return str(path)


def gzip(rows, last=16):
    return {"chunks": (rows, 3, 32, 32), "compression": 1, "last": last}


CASES = {
    "contiguous, file order": ({}, {"shuffle": False}, 32),
    "contiguous, full shuffle": ({}, {"shuffle": "full"}, 32),
    "contiguous, window": ({}, {"shuffle": "window"}, 32),
    "gzip, file order": (gzip(64), {"shuffle": False}, 32),
    "gzip, larger and larger": (gzip(64, 250), {"shuffle": False, "threads": 4}, 64),
    "gzip, window": (gzip(64), {"shuffle": "window"}, 32),
    "gzip, large chunks": (gzip(1300), {"shuffle": "window"}, 48),
    "small rows, full shuffle": ("small", {"shuffle": "full"}, 32),
    "small rows, window": ("small", {"shuffle": "window"}, 32),
    "small rows, the caller alone": ("small", {"shuffle": "full", "threads": 0}, 32),
    "small rows, kept, window": ("small", {"shuffle": "window"}, 256),
    "rows of 1 MB, full shuffle": ("large", {"shuffle": "full"}, 64),
    "kept": (gzip(64), {"shuffle": True}, 256),
    "specs to float32, window": (gzip(64), {"shuffle": "window", "cast": True}, 48),
    "specs to float32, file order": ({}, {"shuffle": False, "cast": True}, 48),
    "a pipeline, file order": ({}, {"shuffle": False, "piped": True}, 32),
    "a pipeline, window": (gzip(64), {"shuffle": "window", "piped": True}, 48),
    "pictures, full shuffle": ("pictures", {"shuffle": "full"}, 64),
    "packed examples, file order": ("each", {"shuffle": False, "each": True}, 48),
    "list, window": (gzip(64), {"shuffle": "window", "listed": 20_000}, 32),
    "list, file order": ({}, {"shuffle": False, "listed": 20_000}, 32),
    "list of small rows, file order": ("small", {"shuffle": False, "listed": 600_000}, 16),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files by layout, each written once."""
    folder, written = tmp_path_factory.mktemp("memory"), {}

    def get(layout):
        key = json.dumps(layout)
        if key not in written:
            path = folder / f"{len(written)}.hdf5"
            if layout == "pictures":
                written[key] = write_pictures(path.with_suffix(".rec"))
            elif layout == "each":
                written[key] = write_examples(path)
            elif layout == "small":
                written[key] = write(path, (1_200_000, 64), np.uint8)
            elif layout == "large":
                written[key] = write(path, (80, 3, 592, 592), np.uint8)
            else:
                written[key] = write(path, (25_000, 3, 32, 32), np.uint8, **layout)
        return written[key]

    return get


@pytest.mark.parametrize("case", sorted(CASES))
def test_growth_stays_within_the_promise(case, files):
    layout, options, memory = CASES[case]
    path = files(layout)
    batch_size = {"pictures": 48, "large": 8, "each": 64}.get(str(layout), 256)
    options = {"batch_size": batch_size, "seed": 1, "memory": memory * MIB, **options}
    shares: list[float] = []
    while not shares or (shares[-1] < LEAST and len(shares) < 3):
        figures = _grown(path, options)
        assert figures["growth"] <= memory * MIB, figures
        assert figures["promised"] <= memory * MIB, figures
        shares.append(figures["growth"] / figures["promised"])
        assert shares[-1] <= 1.0, figures
    assert max(shares) >= LEAST, shares


def _grown(path, options) -> dict[str, float]:
    """Iterate in a process of its own; return how it grew, and what was promised."""
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, path, json.dumps(options)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert out.returncode == 0, out.stderr
    figures: dict[str, float] = json.loads(out.stdout)
    return figures


def test_mapped_pages_are_let_go_of(tmp_path):
    rows = np.random.default_rng(0).integers(0, 9, (20_480, 8192), np.uint8)  # 160 MiB
    path = labeled.write(tmp_path / "x.h5", {"x": rows})
    loader = labeled.open_dataset(path, io="mmap").batches(192, memory="16 MiB", threads=0)
    assert 4 << 10 < max(_mapped_kib(path) for _ in loader) < 100 << 10
    told = labeled.open_dataset(path).batches(64, shuffle="full", memory="8 MiB").explain()
    assert told.mapped_bytes == rows.nbytes
    assert told.promised_bytes <= 8 << 20


def test_nothing_is_mapped_for_large_rows(tmp_path):
    rows = np.random.default_rng(0).integers(0, 9, (24, 1 << 18), np.int32)  # of 1 MiB
    path = labeled.write(tmp_path / "x.h5", {"x": rows, "y": rows[:, : 1 << 17]})
    dataset = labeled.open_dataset(path)
    for name, mapped in (("x", False), ("y", True)):
        loader = dataset.select(name).batches(3, shuffle="full", seed=1, memory="12 MiB", threads=0)
        assert bool(loader.explain().mapped_bytes) == mapped
        found = np.empty_like(rows[:, : dataset[name].shape[1]])
        for batch in loader:
            found[batch.rows] = batch.arrays[name]
            assert bool(_mapped_kib(path)) == mapped
        np.testing.assert_array_equal(found, rows[:, : found.shape[1]])


def _mapped_kib(path) -> int:
    """Resident KiB of the mapping of a file, as the system counts them."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    found, inside = 0, False
    for line in lines:
        if "-" in line.split(" ", 1)[0]:
            inside = line.endswith(str(path))
        elif inside and line.startswith("Rss:"):
            found += int(line.split()[1])
    return found


def test_the_largest_chunk_of_joined_files_counts(tmp_path):
    how = {"contiguous": None, "small": (8, 1024), "large": (16_384, 1024)}  # of 16 MiB
    for name, chunks in how.items():
        with h5py.File(tmp_path / name, "w") as file:  # stored as nothing
            packed = {"chunks": chunks, "compression": "gzip"} if chunks else {}
            file.create_dataset("x", (16_384, 1024), "u1", **packed)
    options = {"batch_size": 64, "threads": 1, "memory": "16 MiB"}
    for names in (["large"], ["contiguous", "large"], ["small", "large"], ["large", "small"]):
        joined = labeled.open_dataset([tmp_path / name for name in names], dims={"x": ("a", "b")})
        with pytest.raises(LoaderError, match=r"memory of 16.00 MiB is too small"):
            joined.batches(**options)


def test_memory_that_nobody_names_grows_with_the_batches(tmp_path):
    path = tmp_path / "large.hdf5"
    with h5py.File(path, "w") as file:  # stored as nothing
        file.create_dataset("x", (4000, 1 << 17), "f4", chunks=(1, 1 << 17), fillvalue=1.5)
    large = labeled.open_dataset(path, dims={"x": ("batch", "feature")})
    small = large.batches(8, threads=1)
    assert small.explain().memory_bytes == 256 << 20
    with pytest.raises(LoaderError, match=r"memory of 256.00 MiB is too small"):
        large.batches(600, memory="256 MiB", threads=1)
    grown = large.batches(600, threads=1)
    assert grown.explain().memory_bytes == 1 << 30
    named = large.batches(600, memory="1 GiB", threads=1)
    assert repr(named.explain()) == repr(grown.explain())
