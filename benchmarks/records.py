"""Record files of JPEGs: pictures a second, against the bare loop that decodes them.

The bare loop is that of :mod:`x`. Ways take turns, round by round;
ratios are medians over rounds.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import labeled
from benchmarks.bare import RING, THREADS
from benchmarks.cache import held
from benchmarks.subject import Array, Batch, as_objects
from benchmarks.timing import Epoch, Run, run, settle_allocator
from labeled.formats.bytesource import stamp_of
from labeled.formats.pictures import encode
from labeled.formats.recordio.records import HEADER_BYTES, RecordFile
from labeled.formats.recordio.writing import write_records
from labeled.loader.reading import owned

Figures = dict[str, float]

BATCH = 64
SIZES = {"96x96": (96, 96), "224x224": (224, 224), "mixed": None}
COUNTS = {"96x96": 8000, "224x224": 2000, "mixed": 1000}
MEMORY = {"96x96": "48 MiB", "224x224": "96 MiB", "mixed": "256 MiB"}
LIMIT_S = 20.0


def photograph(rng: np.random.Generator, height: int, width: int) -> Array:
    """Return a picture that is about as hard to decode as a photograph: soft shapes, some noise."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    waves = rng.uniform(0.01, 0.12, (3, 4, 2))
    phases = rng.uniform(0, 6, (3, 4))
    image = np.full((height, width, 3), 128, np.float32)
    for channel in range(3):
        for (a, b), phase in zip(waves[channel], phases[channel], strict=True):
            image[..., channel] += 30 * np.sin(a * x + b * y + phase)
    image += rng.normal(0, 6, (height, width, 1)).astype(np.float32)
    return image.clip(0, 255).astype(np.uint8)


def file_of(cache: Path, name: str, n: int) -> Path:
    """Make a record file once: 50 different pictures, over and over."""
    path = cache / f"records-{name}-{n}.rec"
    if path.exists():
        return path
    cache.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    sizes = [SIZES[name] or tuple(rng.integers(200, 500, 2).tolist()) for _ in range(50)]
    encoded = [encode(photograph(rng, *size), quality=90) for size in sizes]
    write_records(path, (encoded[i % 50] for i in range(n)), range(n), overwrite=True)
    return path


def ours(path: Path, name: str, shuffle: bool) -> Epoch:
    """Return batches of this library; the caller is one of its threads."""
    dataset = labeled.open_dataset(path)
    loader = dataset.batches(
        BATCH, shuffle=shuffle, seed=1, memory=MEMORY[name], threads=THREADS - 1
    )
    assert not loader.plan.all_kept, "pictures that are kept are decoded once"

    def epoch() -> Iterator[Batch]:
        for batch in loader:
            yield (batch.arrays["images"],)

    return epoch


def places(path: str | Path) -> list[tuple[int, int]]:
    """Return the offset and length of every JPEG."""
    file = RecordFile(stamp_of(path))
    lengths = [len(payload) - HEADER_BYTES for _, payload in file.payloads(range(file.n_rows))]
    starts = (file.offsets[:-1] + 8 + HEADER_BYTES).tolist()
    return list(zip(starts, lengths, strict=True))


def bare_loop(path: str | Path, size: tuple[int, ...] | None, batch_rows: int) -> Epoch:
    """Return the shortest loop that reads and decodes, on two threads.

    Parameters
    ----------
    size : (height, width), optional
        Of every picture; each has its own if None.
    """
    decode = import_module("simplejpeg").decode_jpeg
    descriptor, where = os.open(path, os.O_RDONLY), places(path)
    shape = None if size is None else (RING, batch_rows, *size, 3)
    ring = None if shape is None else owned("", shape, np.dtype(np.uint8))

    def some(out: Any, first: int, stop: int, begin: int) -> None:
        for i in range(begin, stop - first, THREADS):
            offset, length = where[first + i]
            data = os.pread(descriptor, length, offset)
            if ring is None:
                out[i] = decode(data, "RGB")
            else:
                decode(data, "RGB", buffer=out[i])

    def epoch() -> Iterator[Batch]:
        with ThreadPoolExecutor(THREADS) as pool:
            pending: list[Any] = []
            for number, first in enumerate(range(0, len(where), batch_rows)):
                stop = min(len(where), first + batch_rows)
                n = stop - first
                out = np.empty(n, object) if ring is None else ring[number % RING]
                tasks = [pool.submit(some, out, first, stop, k) for k in range(THREADS)]
                pending.append((out[:n], tasks))
                if len(pending) == RING - 1:
                    yield _done(pending.pop(0))
            while pending:
                yield _done(pending.pop(0))

    return epoch


def _done(one: tuple[Array, list[Any]]) -> Batch:
    for task in one[1]:
        task.result()
    return (one[0],)


class Records:
    """Pictures one by one, read and decoded by who asks for them."""

    def __init__(self, path: str | Path) -> None:
        self.where, self.descriptor = places(path), os.open(path, os.O_RDONLY)

    def __len__(self) -> int:
        return len(self.where)

    def __getitem__(self, row: int) -> Any:
        offset, length = self.where[row]
        data = os.pread(self.descriptor, length, offset)
        return import_module("torch").from_numpy(import_module("simplejpeg").decode_jpeg(data))


def torch_epoch(path: str | Path, size: tuple[int, ...] | None, batch_rows: int) -> Epoch:
    """Return a DataLoader over the same file as its documentation has it: two workers."""
    loader = import_module("torch.utils.data").DataLoader(
        Records(path),
        batch_rows,
        num_workers=THREADS,
        persistent_workers=True,
        collate_fn=None if size else list,
    )

    def epoch() -> Iterator[Batch]:
        for batch in loader:
            yield (batch.numpy() if size else as_objects([one.numpy() for one in batch]),)

    return epoch


def figures(cache: Path, *, quick: bool, missing: dict[str, str]) -> Figures:
    """Measure every file; returns pictures a second, and ratios to the bare loop.

    Parameters
    ----------
    missing : dict
        Receives what could not be measured, and why.
    """
    settle_allocator()
    out: Figures = {}
    for name, size in SIZES.items():
        path = file_of(cache, name, COUNTS[name] // (3 if quick else 1))
        ways = {
            "bare": bare_loop(path, size, BATCH),
            "ours": ours(path, name, False),
            "ours, shuffled": ours(path, name, True),
        }
        try:
            ways["torch DataLoader"] = torch_epoch(path, size, BATCH)
        except ImportError as error:
            missing["torch DataLoader over records"] = str(error)
        with held(path):
            rates = rounds(ways, 3 if quick else 7)
        for way, found in rates.items():
            out[f"{name}: {way}, pictures/s"] = statistics.median(found)
        for way in list(ways)[1:3]:
            pairs = zip(rates[way], rates["bare"], strict=True)
            out[f"{name}: {way} / bare"] = statistics.median(a / b for a, b in pairs)
        if "torch DataLoader" in rates:
            pairs = zip(rates["ours"], rates["torch DataLoader"], strict=True)
            out[f"{name}: ours / torch DataLoader"] = statistics.median(a / b for a, b in pairs)
    return out


def rounds(ways: dict[str, Epoch], n: int) -> dict[str, list[float]]:
    """Let ways take turns; the first round warms up."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(n + 1):
        for name, epoch in ways.items():
            found: Run = run(epoch, LIMIT_S)
            if number:
                rates[name].append(found.rows_per_s)
    return rates
