"""A small labelled file, and the arrays it was made of."""

from __future__ import annotations

import numpy as np

from make_files import fuel_file

N = 47
RNG = np.random.default_rng(3)
IMAGES = RNG.integers(0, 255, (N, 3, 4, 5), dtype=np.uint8)
VECTORS = RNG.normal(size=(N, 6)).astype("f4")
TARGETS = RNG.integers(0, 10, (N, 1), dtype=np.int64)
ODD = np.arange(N)[1::2][::-1].copy()
LABELS = {
    "images": ("batch", "channel", "height", "width"),
    "vectors": ("batch", "feature"),
    "targets": ("batch", "index"),
}
ARRAYS = {"images": IMAGES, "vectors": VECTORS, "targets": TARGETS}


def labelled_file(folder):
    """Write the arrays as a file with splits, compressed chunks and attributes."""
    return fuel_file(
        folder / "d.hdf5",
        ARRAYS,
        {"train": (0, 30), "test": (30, N), "odd": ODD},
        LABELS,
        chunks={"images": (4, 3, 3, 5), "vectors": (7, 6)},
        compression={"images": "gzip"},
        attrs={"title": "a test"},
    )
