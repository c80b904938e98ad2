"""``labeled demo``: the main job on real input, with figures measured on the spot.

Without a file it writes one (scikit-learn's digits), opens it, shows it, iterates one
shuffled epoch in another order of axes, and trains a classifier. With a file of the
user's own it opens, shows and iterates that. Every figure printed was measured here.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

import click
import numpy as np
import numpy.typing as npt
from dask.utils import format_bytes

from labeled.api.dataset import Dataset
from labeled.api.opening import open_dataset
from labeled.cli.digits import N_DIGITS, bundled_digits, write_digits
from labeled.cli.memory import PeakMemory
from labeled.errors import FileFormatError
from labeled.loader.batch import Batch
from labeled.loader.budget import DEFAULT_MEMORY, memory_of
from labeled.loader.loader import Loader
from labeled.spaces import CompositeSpace, Conv2DSpace, VectorSpace
from labeled.writing.progress import progress_bar

BATCH_ROWS = 256
TIMES_MEMORY, MARGIN = 4, 1.05
EPOCHS, MAX_STEPS = 40, 2_000
SHORT_S, MORE_EPOCHS = 0.1, 20
SEED = 7
CACHE_LINE = 64
AXES = ("c", 0, 1, "b")

Floats = npt.NDArray[np.float32]


@click.command(short_help="Open, show, iterate and train on real digits.")
@click.option(
    "--file", "path", metavar="FILE", help="Your own file, or with --keep where to write one."
)
@click.option(
    "--rows",
    "n_rows",
    type=click.IntRange(min=N_DIGITS),
    help=f"Rows of the file to write: the {N_DIGITS:,} digits, then repeats of them.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    help=f"The most that iterating may take, such as '32 MiB' [default: {DEFAULT_MEMORY}]. "
    f"The file written grows to at least {TIMES_MEMORY} times this size.",
)
@click.option("--keep", is_flag=True, help="Keep the file written.")
def demo(path: str | None, n_rows: int | None, memory: str | None, keep: bool) -> None:
    """Open a file, look at it, iterate it shuffled, and train a classifier on it.

    Without FILE, real scanned digits, which come with scikit-learn (the extra "demo"), are
    written to a temporary file. With a FILE that exists, that is opened and iterated; one that
    does not is written only with --keep or --rows.
    """
    memory_bytes = memory_of(DEFAULT_MEMORY if memory is None else memory)
    if path is not None and os.path.exists(path):
        if n_rows is not None or keep:
            raise click.UsageError(f"--rows and --keep are for a new file, and {path!r} exists")
        return demo_own(path, memory_bytes)
    if path is not None and n_rows is None and not keep:
        raise FileFormatError(
            f"file {path!r} does not exist; check the path, or add --keep to write the digits there"
        )
    with place_for(path, keep) as place:
        write(place, n_rows or N_DIGITS, None if memory is None else memory_bytes)
        demo_digits(place, memory_bytes)
        if path is not None or keep:
            click.echo(f"\nThe file stays: {place}")
    return None


@contextmanager
def place_for(path: str | None, keep: bool) -> Iterator[str]:
    """Yield where to write: the path given, or one in a temporary folder."""
    if path is not None:
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise FileFormatError(f"cannot write {path!r}: there is no folder {folder!r}")
        yield path
    elif keep:
        yield os.path.join(tempfile.mkdtemp(prefix="labeled-demo-"), "digits.hdf5")
    else:
        with tempfile.TemporaryDirectory(prefix="labeled-demo-") as folder:
            yield os.path.join(folder, "digits.hdf5")


def write(path: str, n_rows: int, memory_bytes: int | None) -> None:
    """Write the digits, as many rows as take a few times the memory, and say how large it is."""
    digits = bundled_digits()
    if memory_bytes is not None:
        large = TIMES_MEMORY * memory_bytes * MARGIN / digits.stored_row_bytes
        n_rows = max(n_rows, int(large))
    began = perf_counter()
    with progress_bar(None, n_rows, "writing", "rows") as told:
        write_digits(path, digits, n_rows, told)
    click.echo(
        f"Wrote {n_rows:,} rows of scanned digits in {perf_counter() - began:.2g} s: "
        f"{path}, {format_bytes(os.path.getsize(path))}."
    )


def demo_digits(path: str, memory_bytes: int) -> None:
    """Show, iterate and learn the digits."""
    dataset = open_and_show(path)
    space = Conv2DSpace((8, 8), num_channels=1, axes=AXES)
    specs = (CompositeSpace((space, VectorSpace(10, dtype="uint8"))), ("image_features", "targets"))
    click.echo(f"\nOne shuffled epoch, images laid out as {AXES}, targets one-hot:")
    iterate(dataset, memory_bytes, specs=specs)
    click.echo("\nA softmax classifier in NumPy:")
    learn(dataset, memory_bytes)


def demo_own(path: str, memory_bytes: int) -> None:
    """Show and iterate a file of the user's own."""
    dataset, left_out = iterable_part(open_and_show(path))
    for name, reason in left_out.items():
        click.echo(f"Left out: {name} ({reason})")
    if not dataset.sources or not dataset.n_rows:
        click.echo("There is no row to iterate.")
        return
    click.echo(f"\nOne shuffled epoch of {', '.join(dataset.sources)}:")
    iterate(dataset, memory_bytes)


def open_and_show(path: str) -> Dataset:
    """Open a file, say how long that took, and print its repr."""
    began = perf_counter()
    dataset = open_dataset(path)
    opening_ms = (perf_counter() - began) * 1e3
    click.echo(f"Opened in {opening_ms:.1f} ms (headers only):\n\n{dataset!r}")
    return dataset


def iterable_part(dataset: Dataset) -> tuple[Dataset, dict[str, str]]:
    """Return the largest group of dense sources of one length, and why others are left out."""
    left_out: dict[str, str] = {}
    by_length: dict[int, list[str]] = {}
    for name in dataset.sources:
        ragged = dataset.files.catalog.sources[name].ragged
        if ragged is not None:
            left_out[name] = f"its examples differ in shape: {ragged}"
        else:
            by_length.setdefault(len(dataset.selection(name)), []).append(name)
    if not by_length:
        return dataset, left_out
    length = max(by_length, key=lambda n: (len(by_length[n]), n))
    for n, names in by_length.items():
        if n != length:
            left_out |= dict.fromkeys(names, f"{n:,} rows, not {length:,}")
    return dataset.select(*by_length[length]), left_out


def iterate(dataset: Dataset, memory_bytes: int, **options: Any) -> None:
    """Iterate shuffled epochs, and print what the first one took."""
    loader = dataset.batches(BATCH_ROWS, shuffle=True, seed=SEED, memory=memory_bytes, **options)
    n_rows = dataset.n_rows
    with PeakMemory() as memory:
        seconds, n_bytes, shapes = one_epoch(loader)
    if options:
        click.echo(f"  first batch: {shapes}")
    click.echo(
        f"  {n_rows:,} rows in batches of {BATCH_ROWS} in {seconds:.2g} s: "
        f"{n_rows / seconds:,.0f} rows/s, {format_bytes(int(n_bytes / seconds))}/s"
    )
    peak = memory.peak_bytes
    words = "not told by this system" if peak is None else format_bytes(peak)
    click.echo(f"  peak memory: {words} (allowed {format_bytes(memory_bytes)})")
    file_bytes = sum(map(os.path.getsize, dataset.files.paths))
    if file_bytes >= memory_bytes:
        times = file_bytes / memory_bytes
        click.echo(f"  the file ({format_bytes(file_bytes)}) is {times:.1f} times that memory")
    if seconds < SHORT_S:  # too short to tell more than how an epoch starts
        usual = median(one_epoch(loader)[0] for _ in range(MORE_EPOCHS))
        click.echo(f"  the {MORE_EPOCHS} epochs after it: {n_rows / usual:,.0f} rows/s (median)")


def one_epoch(loader: Loader) -> tuple[float, int, str]:
    """Touch every cache line of an epoch; return seconds, bytes and the form of the first batch."""
    n_bytes, shapes = 0, ""
    began = perf_counter()
    with progress_bar(None, len(loader), "reading", "batches") as told:
        for batch in loader:
            arrays = tuple(batch.arrays.values()) if isinstance(batch, Batch) else batch
            shapes = shapes or ", ".join(f"{a.shape} {a.dtype}" for a in arrays)
            for array in arrays:
                if array.dtype.kind != "O" and array.flags.c_contiguous:
                    array.reshape(-1).view(np.uint8)[::CACHE_LINE].sum()
                n_bytes += array.nbytes
            told(1)
    return perf_counter() - began, n_bytes, shapes


@dataclass(eq=False)
class Softmax:
    """Linear scores and their softmax, trained by plain gradient descent.

    Parameters
    ----------
    weights : float32 array, lengths (feature, class)
    bias : float32 array, lengths (class,)
    """

    weights: Floats
    bias: Floats

    @classmethod
    def zeros(cls, n_features: int, n_classes: int) -> Softmax:
        return cls(np.zeros((n_features, n_classes), np.float32), np.zeros(n_classes, np.float32))

    def scores(self, images: Floats) -> Floats:
        return images @ self.weights + self.bias

    def learn(self, images: Floats, targets: Floats, rate: float = 0.5) -> None:
        """Take one step: `images` (batch, feature), `targets` (batch, class) one-hot."""
        scores = self.scores(images)
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        wrong = odds / odds.sum(axis=1, keepdims=True) - targets
        step = np.float32(rate / max(len(images), 1))
        self.weights -= step * (images.T @ wrong)
        self.bias -= step * wrong.sum(axis=0)

    def accuracy(self, batches: Iterable[tuple[Floats, Floats]]) -> float:
        """Return the share of rows whose highest score is the right class."""
        right = seen = 0
        for images, targets in batches:
            right += int((self.scores(images).argmax(axis=1) == targets.argmax(axis=1)).sum())
            seen += len(images)
        return right / max(seen, 1)


def learn(dataset: Dataset, memory_bytes: int) -> None:
    """Train on split "train", test on split "test", and print the accuracy."""
    specs = (CompositeSpace((VectorSpace(64), VectorSpace(10))), ("image_features", "targets"))
    options: dict[str, Any] = {
        "specs": specs,
        "dtype": "float32",
        "scale": 1 / 16,
        "memory": memory_bytes,
    }
    train, test = dataset.split("train"), dataset.split("test")
    loader = train.batches(BATCH_ROWS // 2, shuffle=True, seed=SEED, **options)
    model = Softmax.zeros(64, 10)
    n_steps = min(EPOCHS * len(loader), MAX_STEPS)
    began = perf_counter()
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    with progress_bar(None, n_steps, "training", "batches") as told:
        for images, targets in itertools.islice(epochs, n_steps):
            model.learn(images, targets)
            told(1)
    seconds = perf_counter() - began
    accuracy = model.accuracy(test.batches(BATCH_ROWS, **options))
    click.echo(
        f"  trained on {n_steps:,} batches of {loader.batch_size} rows of 'train' in "
        f"{seconds:.2g} s\n"
        f"  accuracy on the {test.n_rows:,} rows of 'test': {accuracy:.1%}"
    )
