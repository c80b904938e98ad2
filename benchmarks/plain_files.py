"""IDX files and delimited text, each against the bare loop that reads the same.

The bare loop over IDX reads batches by ``preadv`` into memory used in turn, makes them
native, or inflates them in order; the one over text is pyarrow's own parser, from a whole
file on two threads and as a stream, with its columns as they are or put side by side.
torch's DataLoader reads the same rows shuffled, one by one, with two workers.
"""

from __future__ import annotations

import gzip
import statistics
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import labeled
from benchmarks.cache import held
from benchmarks.records import Figures, rounds
from benchmarks.subject import Array, Batch
from benchmarks.timing import Epoch, settle_allocator

BATCH = 256
RING = 3
COLUMNS = 32
ROWS = {"u8 images": 100_000, "f8 big-endian": 60_000, "u8 images, gz": 60_000, "csv": 400_000}
SHAPES = {"u8 images": (3, 32, 32), "f8 big-endian": (384,), "u8 images, gz": (3, 32, 32)}
CODES = {"|u1": 8, ">f8": 14}
MEMORY = "32 MiB"


def idx_file(cache: Path, name: str, n: int) -> tuple[Path, int]:
    """Make an IDX file once; return it and where its values begin."""
    shape, dtype = SHAPES[name], np.dtype(">f8" if name.startswith("f8") else "u1")
    packed = name.endswith("gz")
    path = cache / f"idx-{name.replace(' ', '-')}-{n}-idx{len(shape) + 1}-x{'.gz' * packed}"
    head = bytes([0, 0, CODES[dtype.str], len(shape) + 1])
    head += struct.pack(f">{len(shape) + 1}I", n, *shape)
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        with gzip.open(path, "wb", 1) if packed else path.open("wb") as file:
            file.write(head)
            for start in range(0, n, 5000):
                some = rng.integers(0, 16, (min(5000, n - start), *shape)).astype(dtype)
                file.write(some.tobytes())
    return path, len(head)


def bare_idx(path: Path, offset: int, name: str, n: int) -> Epoch:
    shape, dtype = SHAPES[name], np.dtype(">f8" if name.startswith("f8") else "u1")
    ring = np.empty((RING, BATCH, *shape), dtype)
    native = np.empty((RING, BATCH, *shape), dtype.newbyteorder("="))

    def epoch() -> Iterator[Batch]:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb", buffering=0) as file:
            file.seek(offset)
            for number, start in enumerate(range(0, n, BATCH)):
                out = ring[number % RING][: min(BATCH, n - start)]
                file.readinto(out)
                if dtype.isnative:
                    yield (out,)
                else:
                    made = native[number % RING][: len(out)]
                    made[...] = out
                    yield (made,)

    return epoch


def csv_file(cache: Path, n: int) -> Path:
    """Make a table of numbers once."""
    path = cache / f"numbers-{n}.csv"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(0)
        with path.open("w") as file:
            file.write(",".join(f"c{i}" for i in range(COLUMNS)) + "\n")
            for start in range(0, n, 5000):
                some = rng.standard_normal((min(5000, n - start), COLUMNS))
                np.savetxt(file, some, fmt="%.9g", delimiter=",")
    return path


def pyarrow_epochs(path: Path) -> dict[str, Epoch]:
    import pyarrow
    from pyarrow import csv

    pyarrow.set_cpu_count(2)

    def whole() -> Iterator[int]:
        yield from _columns(csv.read_csv(path))

    def stream() -> Iterator[int]:
        for batch in csv.open_csv(path):
            yield from _columns(batch)

    def side_by_side() -> Iterator[Batch]:
        for batch in csv.open_csv(path):
            out = np.empty((batch.num_rows, batch.num_columns))
            for i, column in enumerate(batch.columns):
                out[:, i] = column.to_numpy()
            yield (out,)

    return {
        "pyarrow.csv.read_csv": whole,
        "pyarrow.csv.open_csv": stream,
        "pyarrow.csv.open_csv, side by side": side_by_side,
    }


def _columns(table: Any) -> Iterator[int]:
    """Touch the columns of a table, and count its rows once."""
    for number, column in enumerate(table.columns):
        np.add.reduce(column.to_numpy().view(np.uint8)[::64], dtype=np.uint8)
        yield 0 if number else len(column)


def torch_epoch(rows: Any) -> Epoch:
    """Return a DataLoader over an object with rows, as its documentation has it: two workers."""
    import torch

    loader = torch.utils.data.DataLoader(
        rows, BATCH, shuffle=True, num_workers=2, persistent_workers=True
    )

    def epoch() -> Iterator[Batch]:
        for batch in loader:
            yield (batch.numpy(),)

    return epoch


class MappedRows:
    """Rows of a plain IDX file, one by one from a memory map."""

    def __init__(self, path: Path, offset: int, name: str, n: int) -> None:
        dtype = np.dtype(">f8" if name.startswith("f8") else "u1")
        self.rows = np.memmap(path, dtype, "r", offset, (n, *SHAPES[name]))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Array:
        return self.rows[row].astype(self.rows.dtype.newbyteorder("="))


class Lines:
    """Lines of a table, one by one: where each begins is found out before."""

    def __init__(self, path: Path) -> None:
        data = np.fromfile(path, np.uint8)
        self.path, self.ends = path, np.flatnonzero(data == ord("\n"))

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, row: int) -> Array:
        with self.path.open("rb") as file:
            file.seek(self.ends[row] + 1)
            line = file.read(self.ends[row + 1] - self.ends[row] - 1)
        return np.array(line.split(b","), np.float64)


def ours(path: Path, shuffle: bool) -> Epoch:
    dataset = labeled.open_dataset(path)
    (source,) = dataset.sources
    loader = dataset.batches(BATCH, shuffle=shuffle, seed=1, memory=MEMORY)
    assert not loader.plan.all_kept, "rows that are kept are read once"

    def epoch() -> Iterator[Batch]:
        for batch in loader:
            yield (batch.arrays[source],)

    return epoch


def figures(cache: Path, *, quick: bool, missing: dict[str, str]) -> Figures:
    """Measure every file; returns rows a second, and ratios to the bare loops.

    Parameters
    ----------
    missing : dict
        Receives what could not be measured, and why.
    """
    settle_allocator()
    out: Figures = {}
    for name in SHAPES:
        n = ROWS[name] // (3 if quick else 1)
        path, offset = idx_file(cache, name, n)
        bare = {"bare": bare_idx(path, offset, name, n)}
        rows = None if name.endswith("gz") else MappedRows(path, offset, name, n)
        _measured(out, f"idx, {name}", path, bare, _torch(rows, missing), quick)
    path = csv_file(cache, ROWS["csv"] // (3 if quick else 1))
    try:
        parsers = pyarrow_epochs(path)
    except ImportError as error:
        missing["delimited text"] = str(error)
        return out
    _measured(out, "csv", path, parsers, _torch(Lines(path), missing), quick)
    return out


def _torch(rows: Any, missing: dict[str, str]) -> dict[str, Epoch]:
    """Return torch's loader over some rows, if there are any and it is installed."""
    try:
        return {} if rows is None else {"torch DataLoader, shuffled": torch_epoch(rows)}
    except ImportError as error:
        missing["torch DataLoader over plain files"] = str(error)
        return {}


def _measured(
    out: Figures,
    name: str,
    path: Path,
    bare: dict[str, Epoch],
    peers: dict[str, Epoch],
    quick: bool,
) -> None:
    mine = {"ours": ours(path, False), "ours, shuffled": ours(path, True)}
    with held(path):
        rates = rounds({**bare, **mine, **peers}, 3 if quick else 7)
    for way, found in rates.items():
        out[f"{name}: {way}, rows/s"] = statistics.median(found)
    for way in mine:
        best = [max(every) for every in zip(*(rates[one] for one in bare), strict=True)]
        pairs = zip(rates[way], best, strict=True)
        out[f"{name}: {way} / bare"] = statistics.median(a / b for a, b in pairs)
    for way in peers:
        pairs = zip(rates["ours, shuffled"], rates[way], strict=True)
        out[f"{name}: ours, shuffled / {way}"] = statistics.median(a / b for a, b in pairs)
