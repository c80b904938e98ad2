"""``labeled bench``: how fast batches of one's own file come, on one short page.

This library, plain h5py and a bare loop read the same source. They take turns, and each touches
every cache line of every batch. The bare loop is what remains when all but the reading is taken
away; it knows rows that lie one after another, and chunks of whole rows under gzip. Other
loaders, and files of every layout, are compared by ``benchmarks/`` of the source tree.
"""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from time import perf_counter
from typing import Any

import click
import h5py
import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes
from deflate import zlib_decompress

import labeled
from labeled.cli.options import command, external_option, json_option, seconds_option
from labeled.display.text import count_words, table
from labeled.errors import LoaderError
from labeled.samplers.quality import batch_entropies

Array = npt.NDArray[Any]
Batches = Generator[tuple[Any, Array], None, None]
"""The values of each batch, and which rows of the file they are."""

ROUNDS, THREADS, STRETCHES, FEW_BATCHES, SEED = 3, 2, 10, 8, 7
LINE_BYTES = 64
DEFLATE, SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE
HEAD = ("rows/s", "GB/s", "labeled / it", "peak memory", "shuffle quality")
NOTES = """\
labeled / it: how many times as fast labeled is. Ratios within one run are what to trust.
peak memory: arrays and Python objects of the first round; pages of a mapped file are not counted.
shuffle quality: how evenly batches draw from ten equal stretches; 1 is a full shuffle."""


@dataclass
class Loop:
    """One way to read the file, and what was measured of it."""

    loop: str
    shuffled: bool
    epoch: Callable[[], Batches]
    rows_per_s: list[float] = field(default_factory=list)
    bytes_per_row: float = 0.0
    peak_bytes: int = 0
    quality: float | None = None

    def run(self, limit_s: float) -> tuple[float, list[Array]]:
        """Run epochs, the last one in part; return rows a second and the rows of batches."""
        n_rows = n_bytes = 0
        numbers: list[Array] = []
        began = perf_counter()
        while perf_counter() - began < limit_s:
            with closing(self.epoch()) as batches:
                for values, rows in batches:
                    n_bytes += touch(values)
                    n_rows += len(rows)
                    numbers.append(rows)
                    if perf_counter() - began > limit_s and len(numbers) >= FEW_BATCHES:
                        break
        self.bytes_per_row = n_bytes / max(1, n_rows)
        return n_rows / (perf_counter() - began), numbers


def loops_of(dataset: labeled.Dataset, name: str, size: int, memory: str) -> Iterator[Loop]:
    """Yield the ways to read a source in batches of a size: those that know its layout."""

    def ours(shuffle: bool) -> Callable[[], Batches]:
        loader = dataset.batches(size, shuffle=shuffle, seed=SEED, memory=memory)

        def epoch() -> Batches:
            with iter(loader) as batches:
                for batch in batches:
                    yield batch.arrays[name], batch.rows

        return epoch

    def orders(shuffle: bool) -> Iterator[Array]:
        order = np.arange(len(rows))
        if shuffle:
            np.random.default_rng(SEED).shuffle(order)
        return (order[first : first + size] for first in range(0, len(rows), size))

    def by_h5py() -> Batches:
        for some in orders(False):
            yield rows[some[0] : some[-1] + 1], some

    def by_h5py_shuffled() -> Batches:
        for some in map(np.sort, orders(True)):
            yield rows[some], some

    def mapped(shuffle: bool) -> Batches:
        found = np.memmap(rows.file.filename, rows.dtype, "r", offset, rows.shape)
        buffer = np.empty((size, *rows.shape[1:]), rows.dtype)
        for some in orders(shuffle):
            out = buffer[: len(some)]
            if shuffle:
                np.take(found, some, axis=0, out=out, mode="clip")
            else:
                out[...] = found[some[0] : some[-1] + 1]
            yield out, some

    path, *others = dataset.files.paths
    rows: Any = None
    if not others and os.path.isfile(path) and h5py.is_hdf5(path):
        rows = h5py.File(path, "r").get(name)
    plain = isinstance(rows, h5py.Dataset) and rows.shape == dataset.shapes[name]
    bare = plain and not rows.dtype.hasobject
    offset: Any = rows.id.get_offset() if bare and rows.chunks is None else None
    yield Loop("labeled", False, ours(False))
    if plain:
        yield Loop("h5py, x[a:b]", False, by_h5py)
    if offset is not None:
        yield Loop("bare loop", False, lambda: mapped(False))
    elif bare and rows.chunks is not None and chunks_are_known(rows):
        yield Loop("bare loop", False, lambda: bare_chunks(rows, max(1, size // rows.chunks[0])))
    yield Loop("labeled, shuffle=True", True, ours(True))
    if plain:
        yield Loop("h5py, x[sorted rows]", True, by_h5py_shuffled)
    if offset is not None:
        yield Loop("bare np.take", True, lambda: mapped(True))


def filters_of(rows: Any) -> tuple[int, ...]:
    """Return the numbers of a dataset's filters."""
    created = rows.id.get_create_plist()
    return tuple(created.get_filter(i)[0] for i in range(created.get_nfilters()))


def chunks_are_known(rows: Any) -> bool:
    """Whether the bare loop reads such chunks: whole rows, all there, plain or under gzip."""
    whole = rows.chunks[1:] == rows.shape[1:]
    known = filters_of(rows) in ((), (DEFLATE,), (SHUFFLE, DEFLATE))
    return known and whole and rows.id.get_num_chunks() == -(-len(rows) // rows.chunks[0])


def bare_chunks(rows: Any, step: int) -> Batches:
    """Read, inflate and un-shuffle a batch of whole chunks at a time, a few batches ahead."""
    places: list[tuple[int, int, int]] = []
    rows.id.chunk_iter(lambda c: places.append((c.chunk_offset[0], c.byte_offset, c.size)))
    places.sort()
    filters, item = filters_of(rows), rows.dtype.itemsize
    chunk_bytes = int(np.prod(rows.chunks)) * item

    def read(group: list[tuple[int, int, int]]) -> tuple[Array, Array]:
        out = np.empty((len(group), chunk_bytes), np.uint8)
        for place, (_, offset, size) in zip(out, group, strict=True):
            stored = os.pread(file.fileno(), size, offset)
            data = zlib_decompress(stored, chunk_bytes) if DEFLATE in filters else stored
            planes = np.frombuffer(data, np.uint8).reshape(item if SHUFFLE in filters else 1, -1)
            for byte, plane in enumerate(planes):
                place[byte :: len(planes)] = plane
        batch = out.reshape(-1).view(rows.dtype).reshape(-1, *rows.shape[1:])
        numbers = np.arange(group[0][0], min(group[0][0] + len(batch), len(rows)))
        return batch[: len(numbers)], numbers

    groups = [places[first : first + step] for first in range(0, len(places), step)]
    with open(rows.file.filename, "rb") as file, ThreadPoolExecutor(THREADS) as pool:
        waiting = [pool.submit(read, group) for group in groups[: 2 * THREADS]]
        for n in count(len(waiting)):
            if not waiting:
                return
            yield waiting.pop(0).result()
            waiting += [pool.submit(read, group) for group in groups[n : n + 1]]


def touch(values: Any) -> int:
    """Read a byte of each cache line; return how many bytes there are.

    Examples
    --------
    >>> touch(np.zeros((4, 8))), touch(np.array(["ab", "c"], object))
    (256, 3)
    """
    if isinstance(values, str | bytes):
        return len(values)
    if not isinstance(values, np.ndarray) or values.dtype.hasobject:
        return sum(map(touch, values))
    np.add.reduce(np.ascontiguousarray(values).reshape(-1).view(np.uint8)[::LINE_BYTES])
    return values.nbytes


def quality(batches: list[Array], n_rows: int, batch_rows: int) -> float | None:
    """Return the entropy of ten equal stretches in full batches, of that of random rows."""
    full = [rows * STRETCHES // n_rows for rows in batches if len(rows) == batch_rows]
    if not full:
        return None
    drawn = np.random.default_rng(5).integers(0, STRETCHES, (500, batch_rows))
    best = float(batch_entropies(drawn).mean())
    return float(batch_entropies(np.stack(full)).mean()) / best if best else 1.0


@command("labeled bench digits.hdf5", "labeled bench digits.hdf5 --source images --seconds 2")
@click.argument("file")
@click.option("--source", metavar="NAME", help="Default: the one with the largest rows.")
@click.option("--batch-size", default=256, show_default=True, type=click.IntRange(min=1))
@click.option("--memory", metavar="SIZE", default="64 MiB", show_default=True)
@seconds_option
@json_option
@external_option
def bench(
    file: str,
    source: str | None,
    batch_size: int,
    memory: str,
    seconds: float,
    as_json: bool,
    allow_external: bool,
) -> None:
    """Measure reading rates on your file.

    labeled, plain h5py and a bare loop take turns, four rounds each. The first round is not
    counted: FILE, which is only read, is in the page cache after it. h5py and the bare loop take
    part if they can read the layout of FILE.
    """
    dataset = labeled.open_dataset(file, sources=source, allow_external=allow_external)
    if not any(len(dataset.selection(one)) for one in dataset.sources):
        raise LoaderError(f"{file!r} has no rows to measure")
    row_bytes = {
        name: int(np.prod(dataset.shapes[name][1:], dtype=int)) * dtype.itemsize
        for name, dtype in dataset.dtypes.items()
    }
    name = max(row_bytes, key=row_bytes.__getitem__)
    dataset = dataset.select(name)
    loops = list(loops_of(dataset, name, batch_size, memory))
    for one in loops:
        tracemalloc.start()
        try:
            _, numbers = one.run(seconds)
            one.peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if one.shuffled:
            one.quality = quality(numbers, dataset.n_rows, batch_size)
    for _ in range(ROUNDS):
        for one in loops:
            one.rows_per_s.append(one.run(seconds)[0])
    if as_json:
        found = [
            {name: value for name, value in vars(one).items() if name != "epoch"} for one in loops
        ]
        click.echo(json.dumps(found, indent=2))
        return
    shape = " x ".join(map(str, dataset.shapes[name][1:])) or "one value"
    rows = f"{count_words(dataset.n_rows, 'row')} of {dataset.dtypes[name]}, {shape}"
    click.echo(f"{file}, source {name!r}: {rows}")
    click.echo(f"batches of {batch_size:,}, memory {memory}, medians of {ROUNDS} rounds")
    click.echo("\n".join([*table_of(loops), "", NOTES]))
    if len(loops) == 2:
        click.echo("h5py and the bare loop cannot read this layout.")
    loader = dataset.batches(batch_size, memory=memory, shuffle=True, seed=SEED)
    if loader.explain().kept_bytes:
        click.echo(
            "labeled keeps these rows in memory after the first epoch; a smaller --memory "
            "measures reading."
        )


def table_of(loops: list[Loop]) -> Iterator[str]:
    """Yield the lines of two tables, of file order and of shuffled rows."""
    lines: list[tuple[str, ...]] = []
    for shuffled, title in ((False, "in file order"), (True, "shuffled")):
        some = [one for one in loops if one.shuffled == shuffled]
        first = median(some[0].rows_per_s)
        lines.append((title, *HEAD))
        for one in some:
            rate = median(one.rows_per_s)
            ratio = "" if one is some[0] else f"{first / rate:.2f} x"
            even = "" if one.quality is None else f"{one.quality:.2f}"
            gigabytes = f"{rate * one.bytes_per_row / 1e9:.3g}"
            peak = format_bytes(one.peak_bytes)
            lines.append((f"  {one.loop}", f"{rate:,.0f}", gigabytes, ratio, peak, even))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [(line[0], *map(str.rjust, line[1:], widths[1:])) for line in lines]
    for cells, line in zip(lines, table(aligned, indent=""), strict=True):
        yield from ("", line) if cells[1:] == HEAD else (line,)
