"""The demo's file: scikit-learn's 1,797 scanned digits, written in the Fuel layout.

Written with plain h5py, so that what the demo opens owes nothing to this library. A larger
file repeats the digits; repeats of test digits stay among the test rows, so that a
classifier is never tested on what it has seen.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from labeled.errors import MissingExtraError, how_to_install
from labeled.formats.hdf5.tables import split_array

Array = npt.NDArray[Any]

N_DIGITS = 1_797
TEST_EVERY = 5
CHUNK_ROWS = 256
BLOCK_ROWS = 128 * CHUNK_ROWS
MAX_LISTED = 10_000
SOURCES = {
    "image_features": ("batch", "channel", "height", "width"),
    "targets": ("batch", "index"),
}


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

    @property
    def stored_row_bytes(self) -> float:
        """About how many bytes a row takes in a file, compressed."""
        some = self.images[:CHUNK_ROWS]
        return len(zlib.compress(some.tobytes(), 1)) / len(some) + 1


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
        Rows of the file; beyond the digits there are, they repeat.
    tell : callable
        Is told after each block how many rows were written.
    """
    n_train = n_rows - n_rows * digits.n_test // len(digits.images)
    chunks = (min(CHUNK_ROWS, n_rows), *digits.images.shape[1:])
    with h5py.File(path, "x", libver=("v110", "v114")) as file:
        images = file.create_dataset(
            "image_features",
            (n_rows, *chunks[1:]),
            np.uint8,
            chunks=chunks,
            compression="gzip",
            compression_opts=1,
            shuffle=True,
        )
        targets = file.create_dataset("targets", (n_rows, 1), np.uint8)
        for name, dims in SOURCES.items():
            for axis, dim in enumerate(dims):
                file[name].dims[axis].label = dim
        sevens: list[int] = []
        for begin in range(0, n_rows, BLOCK_ROWS):
            row = np.arange(begin, min(begin + BLOCK_ROWS, n_rows))
            test_digit = digits.n_train + (row - n_train) % digits.n_test
            digit = np.where(row < n_train, row % digits.n_train, test_digit)
            labels = digits.targets[digit]
            images[begin : begin + len(row)] = digits.images[digit]
            targets[begin : begin + len(row)] = labels
            found = row[labels[:, 0] == 7]
            sevens += found[: MAX_LISTED - len(sevens)].tolist()
            tell(len(row))
        listed = file.create_dataset("sevens_rows", data=np.array(sevens, np.int64))
        rows = {"train": (0, n_train), "test": (n_train, n_rows), "sevens": (0, 0, listed.ref)}
        file.attrs["split"] = split_array({k: dict.fromkeys(SOURCES, v) for k, v in rows.items()})
        file.attrs["title"] = "scanned digits, 8 x 8 pixels, 0 (paper) to 16 (ink)"
