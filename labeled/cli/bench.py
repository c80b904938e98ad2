"""``labeled bench``: how fast batches of one's own file come, on one short page.

This library, plain h5py and a bare loop read the same source. They take turns, and each touches
every cache line of every batch. The bare loop is what remains when all but the reading is taken
away; it knows rows that lie one after another, and chunks of whole rows under gzip. Other
loaders, and files of every layout, are compared by ``benchmarks/`` of the source tree.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from statistics import median
from time import perf_counter
from typing import Any

import click
import h5py
import numpy as np
import numpy.typing as npt
from deflate import zlib_decompress

import labeled
from labeled.cli.memory import PeakMemory
from labeled.cli.options import command, external_option, json_option, seconds_option
from labeled.display.text import count_words, table
from labeled.errors import LabeledWarning, LoaderError
from labeled.samplers.quality import batch_entropies

Array = npt.NDArray[Any]
Batches = Generator[tuple[Any, Array], None, None]
"""The values of each batch, and which rows of the file they are."""

Epochs = Callable[[], Batches]

ROUNDS = 3
THREADS = 2
LINE_BYTES = 64
STRETCHES = 10
FEW_BATCHES = 8
SEED = 7

DEFLATE, SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE
HEAD = ("rows/s", "GB/s", "labeled / it", "shuffle quality", "peak MiB")
NOTES = """\
labeled / it: how many times as fast labeled is. Ratios within one run are what to trust.
shuffle quality: how evenly batches draw from ten equal stretches of the file; 1 is a full shuffle.
peak MiB: memory beyond what the process had after opening the file; mapped pages do not count."""


@dataclass(frozen=True)
class Job:
    """What is read: one source of a file."""

    file: str
    source: str
    batch_rows: int
    memory: str
    allow_external: bool = False

    def dataset(self) -> labeled.Dataset:
        """Open the file again; what is worth a warning was said the first time."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LabeledWarning)
            return labeled.open_dataset(
                self.file, sources=self.source, allow_external=self.allow_external
            )

    def by_h5py(self) -> Any:
        """Return the source as h5py has it; None if h5py does not see the same rows."""
        if not os.path.isfile(self.file) or not h5py.is_hdf5(self.file):
            return None
        found = h5py.File(self.file, "r").get(self.source)
        same = isinstance(found, h5py.Dataset) and found.shape == self.dataset().shapes[self.source]
        return found if same else None


def ours(job: Job, shuffle: bool) -> Epochs:
    loader = job.dataset().batches(job.batch_rows, shuffle=shuffle, seed=SEED, memory=job.memory)

    def epoch() -> Batches:
        with iter(loader) as batches:
            for batch in batches:
                yield batch.arrays[job.source], batch.rows

    return epoch


def plain_h5py(job: Job, shuffle: bool) -> Epochs | None:
    """Slices in file order; for a shuffle, the sorted rows of each batch."""
    rows = job.by_h5py()

    def epoch() -> Batches:
        for some in rows_of_batches(job, len(rows), shuffle):
            some.sort()
            yield rows[some] if shuffle else rows[some[0] : some[-1] + 1], some

    return None if rows is None else epoch


def bare(job: Job, shuffle: bool) -> Epochs | None:
    """Copies out of the mapped file; in file order, chunks decoded by two threads."""
    rows = job.by_h5py()
    if rows is None or rows.dtype.hasobject:
        return None
    if rows.chunks is None:
        offset = rows.id.get_offset()
        return None if offset is None else lambda: bare_copies(job, rows, offset, shuffle)
    created = rows.id.get_create_plist()
    filters = tuple(created.get_filter(i)[0] for i in range(created.get_nfilters()))
    n_chunks = -(-len(rows) // rows.chunks[0])
    is_known = filters in ((), (DEFLATE,), (SHUFFLE, DEFLATE)) and not shuffle
    whole_rows = rows.chunks[1:] == rows.shape[1:] and rows.id.get_num_chunks() == n_chunks
    return (lambda: bare_chunks(job, rows, filters)) if is_known and whole_rows else None


def rows_of_batches(job: Job, n_rows: int, shuffle: bool) -> Iterator[Array]:
    order = np.arange(n_rows)
    if shuffle:
        np.random.default_rng(SEED).shuffle(order)
    for first in range(0, n_rows, job.batch_rows):
        yield order[first : first + job.batch_rows]


def bare_copies(job: Job, rows: Any, offset: int, shuffle: bool) -> Batches:
    mapped = np.memmap(rows.file.filename, rows.dtype, "r", offset, rows.shape)
    buffer = np.empty((job.batch_rows, *rows.shape[1:]), rows.dtype)
    for some in rows_of_batches(job, len(rows), shuffle):
        out = buffer[: len(some)]
        if shuffle:
            np.take(mapped, some, axis=0, out=out, mode="clip")
        else:
            out[...] = mapped[some[0] : some[-1] + 1]
        yield out, some


def bare_chunks(job: Job, rows: Any, filters: tuple[int, ...]) -> Batches:
    """Read, inflate and un-shuffle a batch of whole chunks at a time, a few batches ahead."""
    places: list[tuple[int, int, int]] = []
    rows.id.chunk_iter(lambda c: places.append((c.chunk_offset[0], c.byte_offset, c.size)))
    places.sort()
    item, chunk_bytes = rows.dtype.itemsize, int(np.prod(rows.chunks)) * rows.dtype.itemsize

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

    step = max(1, job.batch_rows // rows.chunks[0])
    waiting: deque[Any] = deque()
    with open(rows.file.filename, "rb") as file, ThreadPoolExecutor(THREADS) as pool:
        for first in range(0, len(places), step):
            waiting.append(pool.submit(read, places[first : first + step]))
            if len(waiting) > 2 * THREADS:
                yield waiting.popleft().result()
        for one in waiting:
            yield one.result()


LOOPS: dict[str, tuple[Callable[[Job, bool], Epochs | None], bool]] = {
    "labeled": (ours, False),
    "h5py, x[a:b]": (plain_h5py, False),
    "bare loop": (bare, False),
    "labeled, shuffle=True": (ours, True),
    "h5py, x[sorted rows]": (plain_h5py, True),
    "bare np.take": (bare, True),
}
"""What is compared, by its name in the table, and whether it shuffles."""


@dataclass
class Figures:
    """What was measured of a loop."""

    loop: str
    shuffled: bool
    rows_per_s: list[float] = field(default_factory=list)
    bytes_per_row: float = 0.0
    quality: float | None = None
    peak_bytes: int | None = None


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


def consume(epochs: Epochs, limit_s: float) -> tuple[int, int, float, list[Array]]:
    """Run epochs, the last one in part; return rows, bytes, seconds and the rows of batches."""
    n_rows = n_bytes = 0
    numbers: list[Array] = []
    began = perf_counter()
    while perf_counter() - began < limit_s:
        with closing(epochs()) as batches:
            for values, rows in batches:
                n_bytes += touch(values)
                n_rows += len(rows)
                numbers.append(rows)
                if perf_counter() - began > limit_s and len(numbers) >= FEW_BATCHES:
                    break
    return n_rows, n_bytes, perf_counter() - began, numbers


def measure(job: Job, limit_s: float) -> list[Figures]:
    """Let loops take turns; the first round warms up and is not counted."""
    block = np.ones(24 << 20, np.uint8)
    del block  # glibc recycles large results from now on, as in a program that has run a while
    made = {name: make(job, shuffled) for name, (make, shuffled) in LOOPS.items()}
    able = [(Figures(n, LOOPS[n][1]), made_of) for n, made_of in made.items() if made_of]
    n_rows = job.dataset().n_rows
    for number in range(ROUNDS + 1):
        for one, epochs in able:
            n, n_bytes, seconds, numbers = consume(epochs, limit_s)
            if number:
                one.rows_per_s.append(n / seconds)
            elif one.shuffled:
                one.quality = quality(numbers, n_rows, job.batch_rows)
            one.bytes_per_row = n_bytes / max(1, n)
    return [one for one, _ in able]


def quality(batches: list[Array], n_rows: int, batch_rows: int) -> float | None:
    """Return the entropy of ten equal stretches in full batches, of that of random rows."""
    full = [rows * STRETCHES // n_rows for rows in batches if len(rows) == batch_rows]
    if not full:
        return None
    drawn = np.random.default_rng(5).integers(0, STRETCHES, (500, batch_rows))
    best = float(batch_entropies(drawn).mean())
    return float(batch_entropies(np.stack(full)).mean()) / best if best else 1.0


def peak_bytes(job: Job, name: str, limit_s: float) -> int | None:
    """Return by how much memory grows while a loop runs; called in a process of its own."""
    make, shuffle = LOOPS[name]
    epochs = make(job, shuffle)
    assert epochs is not None
    with PeakMemory() as memory:
        consume(epochs, limit_s)
    return memory.peak_bytes


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
    job = Job(file, name, batch_size, memory, allow_external)
    found = measure(job, seconds)
    context = get_context("spawn")
    with ProcessPoolExecutor(THREADS, mp_context=context, max_tasks_per_child=1) as pool:
        tasks = [pool.submit(peak_bytes, job, one.loop, seconds) for one in found]
        for one, task in zip(found, tasks, strict=True):
            one.peak_bytes = task.result()
    if as_json:
        click.echo(json.dumps([asdict(one) for one in found], indent=2))
    else:
        click.echo("\n".join(page(job, found)))


def page(job: Job, found: list[Figures]) -> Iterator[str]:
    """Yield what was measured, line by line."""
    dataset = job.dataset()
    shape = " x ".join(map(str, dataset.shapes[job.source][1:])) or "one value"
    rows = f"{count_words(dataset.n_rows, 'row')} of {dataset.dtypes[job.source]}, {shape}"
    yield f"{job.file}, source {job.source!r}: {rows}"
    yield f"batches of {job.batch_rows:,}, memory {job.memory}, medians of {ROUNDS} rounds"
    lines: list[tuple[str, ...]] = []
    for shuffled, title in ((False, "in file order"), (True, "shuffled")):
        some = [one for one in found if one.shuffled == shuffled]
        lines += [(title, *HEAD), *(_cells(one, some[0]) for one in some)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [(line[0], *map(str.rjust, line[1:], widths[1:])) for line in lines]
    for cells, line in zip(lines, table(aligned, indent=""), strict=True):
        yield from ("", line) if cells[1:] == HEAD else (line,)
    yield ""
    yield from NOTES.splitlines()
    if len(found) == 2:
        yield "h5py and the bare loop cannot read this layout."
    loader = dataset.batches(job.batch_rows, memory=job.memory, shuffle=True, seed=SEED)
    if loader.explain().kept_bytes:
        yield (
            "labeled keeps these rows in memory after the first epoch; a smaller --memory "
            "measures reading."
        )


def _cells(one: Figures, first: Figures) -> tuple[str, ...]:
    rate = median(one.rows_per_s)
    return (
        f"  {one.loop}",
        f"{rate:,.0f}",
        f"{rate * one.bytes_per_row / 1e9:.3g}",
        "" if one is first else f"{median(first.rows_per_s) / rate:.2f} x",
        "" if one.quality is None else f"{one.quality:.2f}",
        "" if one.peak_bytes is None else f"{one.peak_bytes / 2**20:.0f}",
    )
