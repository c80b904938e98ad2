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
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
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
from labeled.cli import options as opt
from labeled.display.text import count_words
from labeled.errors import LoaderError

Array = npt.NDArray[Any]
Batches = Generator[Any, None, None]  # the values of each batch

ROUNDS, THREADS, FEW_BATCHES, SEED = 3, 2, 8, 7
LINE_BYTES = 64
LINE = "{:<23}{:>12}{:>9}{:>14}{:>13}{:>17}"
HEAD = ("rows/s", "GB/s", "labeled / it", "peak memory", "shuffle quality")
NOTES = """\
labeled / it: how many times as fast labeled is. Ratios within one run are what to trust.
peak memory: arrays and Python objects of the first round; pages of a mapped file are not counted.
shuffle quality: what explain() expects, not measured; 1 is a full shuffle, as the others make."""


@dataclass
class Loop:
    """One way to read the file, the shuffle quality to expect, and what was measured."""

    loop: str
    shuffled: bool
    epoch: Callable[[], Batches]
    quality: float | None
    rows_per_s: list[float] = field(default_factory=list)
    bytes_per_row: float = 0.0
    peak_bytes: int = 0

    def run(self, limit_s: float) -> float:
        """Run epochs, the last one in part; return rows a second."""
        n_rows, n_bytes, seconds = 0, 0, 0.0
        began = perf_counter()
        for n_batches, values in enumerate(chain.from_iterable(self.epoch() for _ in count()), 1):
            n_bytes += touch(values)
            n_rows += len(values)
            seconds = perf_counter() - began
            if seconds > limit_s and n_batches >= FEW_BATCHES:
                break
        self.bytes_per_row = n_bytes / n_rows
        return n_rows / seconds


def loops_of(dataset: labeled.Dataset, name: str, size: int, memory: str) -> list[Loop]:
    """Return the ways to read a source in batches of a size: those that know its layout."""
    path, *others = dataset.files.paths
    rows: Any = None
    if not others and os.path.isfile(path) and h5py.is_hdf5(path):
        rows = h5py.File(path, "r").get(name)
    plain = isinstance(rows, h5py.Dataset) and rows.shape == dataset.shapes[name]
    loops = []
    for shuffled in (False, True):
        made = partial(dataset.batches, size, shuffle=shuffled, seed=SEED, memory=memory)
        title, best = ("labeled, shuffle=True", 1.0) if shuffled else ("labeled", None)
        loops.append(Loop(title, shuffled, partial(ours, made, name), made().explain().quality))
        if not plain:
            continue
        title = "h5py, x[sorted rows]" if shuffled else "h5py, x[a:b]"
        loops.append(Loop(title, shuffled, partial(by_h5py, rows, size, shuffled), best))
        if rows.id.get_offset() is not None and not rows.dtype.hasobject:
            title = "bare np.take" if shuffled else "bare loop"
            loops.append(Loop(title, shuffled, partial(mapped, rows, size, shuffled), best))
        elif not shuffled and has_known_chunks(rows):
            loops.append(Loop("bare loop", False, partial(bare_chunks, rows), None))
    return loops


def ours(made: Callable[[], labeled.Loader], name: str) -> Batches:
    """Read by this library: a new loader has nothing in memory of the epoch before."""
    with iter(made()) as batches:
        for batch in batches:
            yield batch.arrays[name]


def orders(n_rows: int, size: int, shuffled: bool) -> Iterator[Array]:
    """Yield the rows of each batch."""
    order = np.arange(n_rows)
    if shuffled:
        np.random.default_rng(SEED).shuffle(order)
    return (order[first : first + size] for first in range(0, n_rows, size))


def by_h5py(rows: Any, size: int, shuffled: bool) -> Batches:
    """Read as HDF5 allows: a slice, or a list of rows in ascending order."""
    for some in orders(len(rows), size, shuffled):
        some.sort()
        yield rows[some if shuffled else slice(some[0], some[-1] + 1)]


def mapped(rows: Any, size: int, shuffled: bool) -> Batches:
    """Copy rows that lie one after another out of the mapped file."""
    found = np.memmap(rows.file.filename, rows.dtype, "r", rows.id.get_offset(), rows.shape)
    buffer = np.empty((size, *rows.shape[1:]), rows.dtype)
    for some in orders(len(rows), size, shuffled):
        out = buffer[: len(some)]
        if shuffled:
            np.take(found, some, axis=0, out=out, mode="clip")
        else:
            out[...] = found[some[0] : some[-1] + 1]
        yield out


def has_known_chunks(rows: Any) -> bool:
    """Whether rows are in whole chunks, all there, plain or under gzip."""
    if rows.chunks is None or rows.chunks[1:] != rows.shape[1:] or rows.dtype.hasobject:
        return False
    n_filters = rows.id.get_create_plist().get_nfilters()
    known = n_filters == (rows.compression == "gzip") + bool(rows.shuffle)
    return bool(known and rows.id.get_num_chunks() == -(-len(rows) // rows.chunks[0]))


def bare_chunks(rows: Any) -> Batches:
    """Read, inflate and un-shuffle whole chunks by two threads."""
    item, each = rows.dtype.itemsize, rows.chunks[0]
    n_bytes = int(np.prod(rows.chunks)) * item

    def read(first: int) -> Array:
        mask, data = rows.id.read_direct_chunk((first, *[0] * (rows.ndim - 1)))
        is_deflated = rows.compression and not mask >> bool(rows.shuffle) & 1  # not left as it was
        values = np.frombuffer(zlib_decompress(data, n_bytes) if is_deflated else data, "u1")
        if rows.shuffle and not mask & 1:
            values = np.ascontiguousarray(values.reshape(item, -1).T)
        chunk: Array = values.view(rows.dtype).reshape(rows.chunks)
        return chunk[: len(rows) - first]

    pool = ThreadPoolExecutor(THREADS)
    try:
        yield from pool.map(read, range(0, len(rows), each))
    finally:
        pool.shutdown(cancel_futures=True)


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


@click.command()
@click.argument("file")
@click.option("--source", "sources", metavar="NAME", help="Default: the one with the largest rows.")
@click.option("--batch-size", default=256, show_default=True, type=click.IntRange(min=1))
@click.option("--memory", metavar="SIZE", default="64 MiB", show_default=True)
@opt.seconds
@opt.as_json
@opt.external
def bench(
    file: str,
    sources: str | None,
    batch_size: int,
    memory: str,
    seconds: float,
    as_json: bool,
    allow_external: bool,
) -> None:
    """Measure reading rates on your file.

    \b
    labeled bench digits.hdf5
    labeled bench digits.hdf5 --source images --seconds 2

    labeled, plain h5py and a bare loop take turns, four rounds each. The first round is not
    counted: FILE, which is only read, is in the page cache after it. h5py and the bare loop take
    part if they can read the layout of FILE.
    """
    dataset = labeled.open_dataset(file, sources=sources, allow_external=allow_external)
    if not any(len(dataset.selection(one)) for one in dataset.sources):
        raise LoaderError(f"{file!r} has no rows to measure")
    found = dataset.files.catalog.sources
    ragged = [name for name in dataset.sources if found[name].ragged is not None]
    even = [name for name in dataset.sources if name not in ragged] or ragged[:1]
    name = max(even, key=lambda one: found[one].row_bytes)
    for other in ragged:
        if other != name:
            why = found[other].ragged
            click.echo(f"Not measured: {other!r}, as {why}; pass --source {other}", err=True)
    dataset = dataset.select(name)
    loops = loops_of(dataset, name, batch_size, memory)
    for one in loops:
        tracemalloc.start()
        try:
            one.run(seconds)
            one.peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    for _ in range(ROUNDS):
        for one in loops:
            one.rows_per_s.append(one.run(seconds))
    if as_json:
        facts = [{k: value for k, value in vars(one).items() if k != "epoch"} for one in loops]
        click.echo(json.dumps(facts, indent=2))
        return
    single = "one value" if len(dataset.dims[name]) == 1 else "of different shapes"
    shape = " x ".join(map(str, dataset.shapes[name][1:])) or single
    dtype = "text" if dataset.dtypes[name].kind == "O" else dataset.dtypes[name]
    rows = f"{count_words(dataset.n_rows, 'row')} of {dtype}, {shape}"
    click.echo(f"{file}, source {name!r}: {rows}")
    click.echo(f"batches of {batch_size:,}, memory {memory}, medians of {ROUNDS} rounds")
    click.echo("\n".join([*table_of(loops), "", NOTES]))
    if len(loops) == 2:
        click.echo("h5py and the bare loop cannot read this layout.")
    loader = dataset.batches(batch_size, memory=memory, shuffle=True, seed=SEED)
    if loader.explain().kept_bytes:
        click.echo(
            "Each epoch here is a first one, which reads the file. A loader of so much memory\n"
            "keeps the rows: its later epochs are faster."
        )


def table_of(loops: list[Loop]) -> Iterator[str]:
    """Yield the lines of two tables, of file order and of shuffled rows."""
    for shuffled, title in ((False, "in file order"), (True, "shuffled")):
        yield "\n" + LINE.format(title, *HEAD)
        some = [one for one in loops if one.shuffled == shuffled]
        first = median(some[0].rows_per_s)
        for one in some:
            rate, even = median(one.rows_per_s), one.quality
            yield LINE.format(
                f"  {one.loop}",
                f"{rate:,.0f}",
                f"{rate * one.bytes_per_row / 1e9:.3g}",
                "" if one is some[0] else f"{first / rate:.2f} x",
                format_bytes(one.peak_bytes),
                "" if even is None else f"{even:.2f}",
            ).rstrip()
