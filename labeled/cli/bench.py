"""``labeled bench``: how fast one's own file can be read here, next to plain h5py.

Four loops over the same rows take turns: slices and sorted lists through h5py, and this
library in file order and shuffled. Every loop touches each cache line of every batch, and
is stopped after a time limit; what ran is what the rate is of. No other loader is needed.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from labeled.api.dataset import Dataset
from labeled.api.opening import open_dataset
from labeled.formats.hdf5.door import opened
from labeled.formats.registry import check_hdf5
from labeled.loader.loader import Loader
from labeled.views.text import table

Array = npt.NDArray[Any]
Batches = Generator[list[Array], None, None]
Epoch = Callable[[], Batches]

LINE_BYTES = 64
FIRST = "h5py, slices"


@dataclass
class Timing:
    """What was found out about one loop: a rate for each round."""

    rows_per_s: list[float] = field(default_factory=list)
    first_s: float = 0.0
    whole: bool = False


@click.command(short_help="Measure reading rates on your file, beside plain h5py.")
@click.argument("file")
@click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only this source; may be repeated."
)
@click.option("--split", metavar="NAME", help="Rows of this split; of the file if not.")
@click.option("--batch", "batch_rows", default=256, show_default=True, type=click.IntRange(min=1))
@click.option("--memory", metavar="SIZE", default="256 MiB", show_default=True)
@click.option(
    "--seconds",
    default=2.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit of one loop in one round.",
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def bench(
    file: str,
    sources: tuple[str, ...],
    split: str | None,
    batch_rows: int,
    memory: str,
    seconds: float,
    rounds: int,
    as_json: bool,
) -> None:
    """Measure how fast batches of FILE can be had, by h5py and by this library.

    The first round warms up and is not counted. Ratios within one run are what to
    trust: rates move with whatever else the machine does.
    """
    dataset = open_dataset(file)
    if len(dataset.files.paths) > 1:
        raise click.UsageError(f"{file} means {len(dataset.files.paths)} files; name one of them")
    check_hdf5(dataset.files.paths[0], "measuring beside h5py")
    if split is not None:
        dataset = dataset.split(split)
    if sources:
        dataset = dataset.select(*sources)
    dataset = dense(dataset)
    shuffled = dataset.batches(batch_rows, shuffle=True, memory=memory, seed=0)
    loops = {
        FIRST: h5py_epoch(dataset, batch_rows, shuffled=False),
        "h5py, sorted lists": h5py_epoch(dataset, batch_rows, shuffled=True),
        "labeled, file order": loader_epoch(dataset.batches(batch_rows, memory=memory)),
        "labeled, shuffled": loader_epoch(shuffled),
    }
    found = timings(loops, rounds, seconds)
    row_bytes = row_bytes_of(dataset)
    if as_json:
        click.echo(json.dumps({name: figures(t, row_bytes) for name, t in found.items()}, indent=2))
        return
    about = f"{dataset.n_rows:,} rows of {row_bytes:,} bytes ({', '.join(dataset.sources)})"
    click.echo(f"{file}: {about}, batches of {batch_rows:,}")
    click.echo("\n".join(table(timing_rows(found, row_bytes))))
    explained = shuffled.explain()
    if all(lane.kept for lane in explained.lanes):
        click.echo(
            f"\nThe rows fit --memory {memory!r} and were kept after the first round, so that the "
            "rates of labeled are those of memory; give less to measure the file."
        )
    click.echo(f"\n{explained!r}")


def dense(dataset: Dataset) -> Dataset:
    """Leave out sources whose rows are not plain values of one shape."""
    catalog = dataset.files.catalog.sources
    kept = [n for n in dataset.sources if catalog[n].ragged is None and not _objects(dataset, n)]
    return dataset.select(*kept) if len(kept) < len(dataset.sources) else dataset


def _objects(dataset: Dataset, name: str) -> bool:
    return bool(dataset.dtypes[name].hasobject)


def row_bytes_of(dataset: Dataset) -> int:
    """Return the bytes of one row over all sources."""
    return sum(
        math.prod(shape[1:]) * dataset.dtypes[name].itemsize
        for name, shape in dataset.shapes.items()
    )


def h5py_epoch(dataset: Dataset, batch_rows: int, *, shuffled: bool) -> Epoch:
    """Return the loop that one writes with h5py alone."""
    headers = {name: dataset.files.catalog.sources[name].headers[0] for name in dataset.sources}
    n_rows = dataset.n_rows

    def epoch() -> Batches:
        order = np.random.default_rng(0).permutation(n_rows) if shuffled else np.arange(n_rows)
        rows = {name: dataset.selection(name) for name in headers}
        with opened(next(iter(headers.values())).file.path) as file:
            sets = {name: file[header.key] for name, header in headers.items()}
            for start in range(0, n_rows, batch_rows):
                wanted = order[start : start + batch_rows]
                yield [_by_h5py(sets[name], rows[name].take(wanted)) for name in sets]

    return epoch


def _by_h5py(stored: Any, rows: npt.NDArray[np.int64]) -> Array:
    """Read some rows: a slice where they follow one another, else a sorted list."""
    if len(rows) and np.array_equal(rows, np.arange(rows[0], rows[0] + len(rows))):
        return np.asarray(stored[rows[0] : rows[0] + len(rows)])
    return np.asarray(stored[np.unique(rows)])


def loader_epoch(loader: Loader) -> Epoch:
    """Return the loop over a loader."""

    def epoch() -> Batches:
        with iter(loader) as live:
            for batch in live:
                yield list(batch.arrays.values())

    return epoch


def timings(loops: dict[str, Epoch], rounds: int, limit_s: float) -> dict[str, Timing]:
    """Time all loops, turn by turn."""
    found = {name: Timing() for name in loops}
    for name, epoch in loops.items():
        _, found[name].first_s, _ = consume(epoch, limit_s)
    for _ in range(rounds):
        for name, epoch in loops.items():
            rate, _, found[name].whole = consume(epoch, limit_s)
            found[name].rows_per_s.append(rate)
    return found


def consume(epoch: Epoch, limit_s: float) -> tuple[float, float, bool]:
    """Consume batches until the end or the limit: rows/s, time to the first, whether all."""
    n_rows, first_s, began = 0, 0.0, perf_counter()
    whole = True
    with closing(epoch()) as batches:
        for arrays in batches:
            for array in arrays:
                touch(array)
            n_rows += len(arrays[0]) if arrays else 0
            first_s = first_s or perf_counter() - began
            if perf_counter() - began > limit_s:
                whole = False
                break
        seconds = perf_counter() - began
    return n_rows / max(seconds, 1e-9), first_s, whole


def touch(array: Array) -> int:
    """Read one byte of each cache line.

    Examples
    --------
    >>> touch(np.arange(200, dtype=np.uint8))  # bytes 0, 64, 128, 192; modulo 256
    128
    """
    lines = np.ascontiguousarray(array).reshape(-1).view(np.uint8)[::LINE_BYTES]
    return int(np.add.reduce(lines, dtype=np.uint8))


def figures(timing: Timing, row_bytes: int) -> dict[str, Any]:
    """Return the figures of one loop as plain values."""
    rate = statistics.median(timing.rows_per_s)
    return {
        "rows_per_s": rate,
        "mb_per_s": rate * row_bytes / 1e6,
        "first_batch_s": timing.first_s,
        "whole_epochs": timing.whole,
        "rounds": timing.rows_per_s,
    }


def timing_rows(found: dict[str, Timing], row_bytes: int) -> list[tuple[str, ...]]:
    """Return the table: a head, then a line for each loop."""
    head = ("loop", "rows/s", "MB/s", "x h5py slices", "first batch", "")
    rows: list[tuple[str, ...]] = [head]
    for name, timing in found.items():
        rate = statistics.median(timing.rows_per_s)
        pairs = zip(timing.rows_per_s, found[FIRST].rows_per_s, strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        rows.append(
            (
                name,
                f"{rate:,.0f}",
                f"{rate * row_bytes / 1e6:,.0f}",
                f"{ratio:.2f}",
                f"{timing.first_s * 1e3:.0f} ms",
                "" if timing.whole else "cut short",
            )
        )
    return rows
