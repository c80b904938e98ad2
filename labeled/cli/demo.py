"""``labeled demo``: the main job on real input, with figures measured on the spot.

It writes a file (scikit-learn's digits), opens it, shows it, iterates one shuffled epoch in
another order of axes, and trains a classifier. Every figure printed was measured here. It is a
program of its own, apart from the commands that look at files.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import tracemalloc
from time import perf_counter
from typing import Any

import click
import numpy as np
from dask.utils import format_bytes

import labeled
from labeled._optional import extra_module
from labeled._validation import memory_of
from labeled.cli.bench import touch
from labeled.loader.options import DEFAULT_MEMORY

N_DIGITS, TEST_EVERY = 1_797, 5
ROW_BYTES = 65  # an image of 8 x 8 and its target

BLOCK_ROWS, BATCH_ROWS, TIMES_MEMORY, SEED = 1 << 15, 256, 4, 7
EPOCHS, MAX_STEPS, TRACED_S = 40, 2_000, 2.0
AXES = "channel height width batch"
IMAGES, TARGETS = "image_features", "targets"


@click.command()
@click.option("--keep", metavar="FILE", help="Write the digits there, and leave them.")
@click.option(
    "--memory",
    metavar="SIZE",
    help=f"The most that iterating may take [default: {DEFAULT_MEMORY}]. The file grows to at "
    f"least {TIMES_MEMORY} times this size.",
)
def demo(keep: str | None, memory: str | None) -> None:
    """Open, show, iterate and train on real digits.

    \b
    labeled demo
    labeled demo --keep digits.hdf5 --memory '32 MiB'

    Real scanned digits, which come with scikit-learn (the extra "demo"), are written to a
    temporary file, or where --keep says.
    """
    memory_bytes = memory_of(DEFAULT_MEMORY if memory is None else memory)
    options = {"one_hot": {TARGETS: 10}, "memory": memory_bytes, "as_tuple": True}
    least = 0 if memory is None else -(-TIMES_MEMORY * memory_bytes // ROW_BYTES)
    with tempfile.TemporaryDirectory(prefix="labeled-demo-") as folder:
        path = keep or os.path.join(folder, "digits.hdf5")
        write_digits(path, max(N_DIGITS, least))
        began = perf_counter()
        dataset = labeled.open_dataset(path)
        opening_ms = (perf_counter() - began) * 1e3
        click.echo(f"Opened in {opening_ms:.1f} ms (headers only):\n\n{dataset!r}")
        click.echo(f"\nOne shuffled epoch, images laid out as {AXES!r}, targets one-hot:")
        iterate(dataset, memory_bytes, options)
        click.echo("\nA softmax classifier in NumPy:")
        learn(dataset, options)


def write_digits(path: str, n_rows: int) -> None:
    """Write scikit-learn's scanned digits.

    Every fifth digit is for testing. Rows beyond the digits repeat them, each on its own side:
    a classifier is never tested on what it has seen.

    Raises
    ------
    MissingExtraError
        If scikit-learn is not installed.
    """
    needed = "the demo reads the digits that come with scikit-learn"
    found = extra_module("sklearn.datasets", needed, "scikit-learn", "demo").load_digits()
    images, targets = found.images.astype(np.uint8)[:, None], found.target.astype(np.uint8)[:, None]
    began = perf_counter()
    tested = np.arange(N_DIGITS) % TEST_EVERY == TEST_EVERY - 1
    n_test = n_rows * int(tested.sum()) // N_DIGITS
    train = np.resize(np.flatnonzero(~tested), n_rows - n_test)
    rows = np.concatenate([train, np.resize(np.flatnonzero(tested), n_test)])
    blocks = (rows[first : first + BLOCK_ROWS] for first in range(0, n_rows, BLOCK_ROWS))
    labeled.write(
        path,
        ({IMAGES: images[some], TARGETS: targets[some]} for some in blocks),
        splits={"train": (0, n_rows - n_test), "test": (n_rows - n_test, n_rows)},
        dims={IMAGES: ("batch", "channel", "height", "width"), TARGETS: ("batch", "index")},
        attrs={"title": "scanned digits, 8 x 8 pixels, 0 (paper) to 16 (ink)"},
        progress=False,
    )
    click.echo(
        f"Wrote {n_rows:,} rows of scanned digits in {perf_counter() - began:.2g} s: "
        f"{path}, {format_bytes(os.path.getsize(path))}."
    )


def iterate(dataset: labeled.Dataset, memory_bytes: int, options: dict[str, Any]) -> None:
    """Iterate a shuffled epoch, touching every cache line, and print what it took."""
    options = {**options, "layout": {IMAGES: AXES}, "dtype": {TARGETS: "u1"}, "seed": SEED}
    tracemalloc.start()  # it slows loops down, so the epoch that is timed is another one
    try:
        began = perf_counter()
        for _ in dataset.batches(BATCH_ROWS, shuffle=True, **options):
            if perf_counter() - began > TRACED_S:
                break
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    n_bytes, shapes, began = 0, "", perf_counter()
    for arrays in dataset.batches(BATCH_ROWS, shuffle=True, **options):
        shapes = shapes or ", ".join(f"{a.shape} {a.dtype}" for a in arrays)
        n_bytes += touch(arrays)
    seconds = perf_counter() - began
    click.echo(f"  first batch: {shapes}")
    click.echo(
        f"  {dataset.n_rows:,} rows in batches of {BATCH_ROWS} in {seconds:.2g} s: "
        f"{dataset.n_rows / seconds:,.0f} rows/s, {format_bytes(int(n_bytes / seconds))}/s"
    )
    allowed = format_bytes(memory_bytes)
    click.echo(f"  peak memory of arrays and objects: {format_bytes(peak)} (allowed {allowed})")
    file_bytes = os.path.getsize(dataset.files.paths[0])
    if file_bytes >= memory_bytes:
        times = file_bytes / memory_bytes
        click.echo(f"  the file ({format_bytes(file_bytes)}) is {times:.1f} times that memory")


def learn(dataset: labeled.Dataset, options: dict[str, Any]) -> None:
    """Train by gradient descent on split "train", test on "test", and print the accuracy."""
    options = {**options, "normalize": {IMAGES: (0, 16)}}
    test = dataset.split("test")
    loader = dataset.split("train").batches(BATCH_ROWS // 2, shuffle=True, seed=SEED, **options)
    weights, bias = np.zeros((64, 10), np.float32), np.zeros(10, np.float32)
    n_steps = min(EPOCHS * len(loader), MAX_STEPS)
    began = perf_counter()
    epochs = itertools.chain.from_iterable(itertools.repeat(loader))
    for images, targets in itertools.islice(epochs, n_steps):
        pixels = images.reshape(-1, 64)
        odds = np.exp(pixels @ weights + bias)
        wrong = odds / odds.sum(axis=1, keepdims=True) - targets
        step = np.float32(0.5 / len(images))  # the learning rate
        weights -= step * (pixels.T @ wrong)
        bias -= step * wrong.sum(axis=0)
    seconds = perf_counter() - began
    right = 0
    for images, targets in test.batches(BATCH_ROWS, **options):
        guessed = (images.reshape(-1, 64) @ weights + bias).argmax(axis=1)
        right += int((guessed == targets.argmax(axis=1)).sum())
    click.echo(
        f"  trained on {n_steps:,} batches of {loader.batch_size} rows of 'train' in "
        f"{seconds:.2g} s\n"
        f"  accuracy on the {test.n_rows:,} rows of 'test': {right / test.n_rows:.1%}"
    )
