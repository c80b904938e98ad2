"""Records of small pictures: of many sizes, all alike, and with several labels."""

from __future__ import annotations

import numpy as np

from labeled.formats.recordio.writing import write_records

RNG = np.random.default_rng(5)
N = 60
SIZES = [
    (int(h), int(w), (1, 3)[i % 5 > 0]) for i, (h, w) in enumerate(RNG.integers(5, 30, (N, 2)))
]
PICTURES = [RNG.integers(0, 256, size, np.uint8) for size in SIZES]
ALIKE = RNG.integers(0, 256, (N, 8, 6, 3), np.uint8)
IDS = np.arange(N) * 3 + 100


def picture_records(path):
    """Files of pictures without loss: of many sizes, all alike, with several labels."""
    write_records(path / "mixed.rec", PICTURES, np.arange(N) / 2, IDS, format=".png")
    write_records(path / "alike.rec", ALIKE, np.arange(N) % 7, IDS, format=".png")
    several = [np.arange(4) + i for i in range(N)]
    write_records(path / "several.rec", ALIKE, several, IDS, format=".png", index=False)
    differing = [np.arange(i % 4) + i for i in range(N)]
    write_records(path / "differing.rec", ALIKE, differing, IDS, format=".png")
    write_records(path / "bytes.rec", [bytes([i]) * i for i in range(N)])
    return path
