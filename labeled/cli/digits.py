"""The demo's file: scikit-learn's 1,797 scanned digits, written in the Fuel layout.

Written with plain h5py, so that what the demo opens owes nothing to this library. A
larger file repeats the digits with a little seeded noise, block by block; repeats of test
digits stay among the test rows, so that a classifier is never tested on what it has seen.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from labeled.errors import MissingExtraError, how_to_install
from labeled.formats.hdf5.tables import split_array

Array = npt.NDArray[Any]
"""Of a split: ``(start, stop)``, or an object reference to a list of rows."""

N_DIGITS = 1_797
TEST_EVERY = 5
DARKEST = 16
CHUNK_ROWS = 256
BLOCK_ROWS = 128 * CHUNK_ROWS
MOST_LISTED = 10_000
GZIP_LEVEL = 1
SEED = 7

# What files of other programs look like too: HDF5 1.10 and newer can read it.
LIBVER = ("v110", "v114")


@dataclass(frozen=True, eq=False)
class Digits:
    """Scanned digits, those for testing last.

    Parameters
    ----------
    images : uint8 array, lengths (batch, channel, height, width)
        0 is paper, 16 is ink.
    targets : uint8 array, lengths (batch, index)
    n_test : int
        How many of the last rows are for testing.
    """

    images: Array
    targets: Array
    n_test: int

    @property
    def n_train(self) -> int:
        return len(self.images) - self.n_test


def bundled_digits() -> Digits:
    """Return the digits that come with scikit-learn; every fifth is for testing.

    Raises
    ------
    MissingExtraError
        If scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise MissingExtraError(
            "the demo reads the digits that come with scikit-learn, which is not installed; "
            "give a file of your own, or " + how_to_install("scikit-learn", "demo")
        ) from None
    images, targets = load_digits(return_X_y=True)
    for_testing = np.arange(len(images)) % TEST_EVERY == TEST_EVERY - 1
    order = np.argsort(for_testing, kind="stable")
    return Digits(
        images[order].astype(np.uint8).reshape(-1, 1, 8, 8),
        targets[order].astype(np.uint8).reshape(-1, 1),
        int(for_testing.sum()),
    )


def stored_row_bytes(digits: Digits) -> float:
    """Return about how many bytes a row of a larger file takes, compressed as it will be."""
    images, targets = noisy(digits, CHUNK_ROWS, 0, CHUNK_ROWS, repeat=1)
    stored = len(zlib.compress(images.tobytes(), GZIP_LEVEL)) + targets.nbytes
    return stored / CHUNK_ROWS


def write_digits(
    path: str | os.PathLike[str],
    digits: Digits,
    n_rows: int,
    tell: Callable[[int], Any] = lambda n: None,
) -> None:
    """Write a file in the Fuel layout that must not exist yet.

    Images are chunked, shuffled and gzipped; targets are contiguous. Splits ``train``
    and ``test`` are ranges, ``sevens`` is a list of row numbers.

    Parameters
    ----------
    n_rows : int
        Rows of the file; beyond the digits there are, they repeat with noise.
    tell : callable
        Is told after each block how many rows were written.
    """
    with h5py.File(path, "x", libver=LIBVER) as file:
        shape = digits.images.shape[1:]
        images = file.create_dataset(
            "image_features",
            (n_rows, *shape),
            np.uint8,
            chunks=(min(CHUNK_ROWS, n_rows), *shape),
            compression="gzip",
            compression_opts=GZIP_LEVEL,
            shuffle=True,
        )
        targets = file.create_dataset("targets", (n_rows, 1), np.uint8)
        _label(images, ("batch", "channel", "height", "width"))
        _label(targets, ("batch", "index"))
        sevens: list[int] = []
        for begin, some, labels in blocks(digits, n_rows):
            images[begin : begin + len(some)] = some
            targets[begin : begin + len(some)] = labels
            found = begin + np.flatnonzero(labels[:, 0] == 7)
            sevens += found[: MOST_LISTED - len(sevens)].tolist()
            tell(len(some))
        listed = file.create_dataset("sevens_rows", data=np.array(sevens, np.int64))
        n_train = n_rows - n_test_of(digits, n_rows)
        rows = {"train": (0, n_train), "test": (n_train, n_rows), "sevens": (0, 0, listed.ref)}
        sources = ("image_features", "targets")
        file.attrs["split"] = split_array({k: dict.fromkeys(sources, v) for k, v in rows.items()})
        file.attrs["title"] = "scanned digits, 8 x 8 pixels, 0 (paper) to 16 (ink)"


def n_test_of(digits: Digits, n_rows: int) -> int:
    """Return how many rows of a file of `n_rows` are for testing."""
    return n_rows * digits.n_test // len(digits.images)


def blocks(digits: Digits, n_rows: int) -> Iterator[tuple[int, Array, Array]]:
    """Yield (first row, images, targets) of a file, in blocks of bounded size."""
    n_train = n_rows - n_test_of(digits, n_rows)
    for begin in range(0, n_rows, BLOCK_ROWS):
        end = min(begin + BLOCK_ROWS, n_rows)
        yield begin, *noisy(digits, n_train, begin, end)


def noisy(
    digits: Digits, n_train: int, begin: int, end: int, repeat: int = 0
) -> tuple[Array, Array]:
    """Return rows ``begin .. end``: digits as they are, then repeats that differ by -1, 0 or 1."""
    row = np.arange(begin, end)
    testing = row >= n_train
    within = np.where(testing, row - n_train, row)
    length = np.where(testing, digits.n_test, digits.n_train)
    digit = within % length + np.where(testing, digits.n_train, 0)
    images = digits.images[digit]
    noise = np.random.default_rng((SEED, begin)).integers(-1, 2, images.shape, np.int8)
    noise[within // length + repeat == 0] = 0
    changed = np.clip(images.view(np.int8) + noise, 0, DARKEST).astype(np.uint8)
    return changed, digits.targets[digit]


def _label(dataset: h5py.Dataset, names: tuple[str, ...]) -> None:
    for axis, name in enumerate(names):
        dataset.dims[axis].label = name
