"""Are the rows of two files the same, up to a known change of order?

Every row becomes a 64-bit number; with the position it is expected at it is mixed once
more, and the results are added up for each of many stretches of positions. Two files agree
where all sums do. That takes one pass over each file in whatever order suits it, and no
memory that grows with the rows; where sums differ, the stretch tells which rows to look at.

Chance alone lets two different stretches agree once in 2**60 or so; nobody's malice is
guarded against.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.formats.region import Array
from labeled.ragged.flat import Flat, Rows
from labeled.writing.spilling import packed_texts

Hashes = npt.NDArray[np.uint64]

STRETCHES = 1024
PIECE_ROWS = 1 << 15

_SEED = 0x9E3779B97F4A7C15


class Fingerprint:
    """Sums over the rows of one source, one a stretch of positions.

    Parameters
    ----------
    n_rows : int
    """

    def __init__(self, n_rows: int) -> None:
        self.stretch_rows = max(-(-n_rows // STRETCHES), 1)
        self._n_rows = n_rows
        self._sums = np.zeros(-(-n_rows // self.stretch_rows), np.uint64)

    def add(self, hashes: Hashes, positions: Rows) -> None:
        """Count rows in, each at its position."""
        mixed = _mixed(hashes + _mixed(positions.astype(np.uint64)))
        np.add.at(self._sums, positions // self.stretch_rows, mixed)  # modulo 2**64

    def first_difference(self, other: Fingerprint) -> tuple[int, int] | None:
        """Return the first stretch of positions that differs; None where all agree."""
        different = np.flatnonzero(self._sums != other._sums)
        if not len(different):
            return None
        start = int(different[0]) * self.stretch_rows
        return start, min(start + self.stretch_rows, self._n_rows)


def _mixed(values: Hashes) -> Hashes:
    """Scatter the bits of 64-bit numbers (the finaliser of SplitMix64)."""
    out = values + np.uint64(_SEED)
    out = (out ^ (out >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    out = (out ^ (out >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Hashes = out ^ (out >> np.uint64(31))
    return mixed


def hashes_of_rows(rows: Array) -> Hashes:
    """Return a number for every row of one shape: a sum of its words, each times its own.

    Examples
    --------
    >>> one, two, three = hashes_of_rows(np.array([[1, 2], [2, 1], [1, 2]])).tolist()
    >>> one == three, one == two
    (True, False)
    """
    out = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), PIECE_ROWS):
        some = np.ascontiguousarray(rows[start : start + PIECE_ROWS])
        raw = some.reshape(len(some), -1).view(np.uint8) if some.size else None
        out[start : start + len(some)] = 0 if raw is None else _words(raw) @ _factors(raw.shape[1])
    return out


def _words(raw: Array) -> Hashes:
    """Return rows of bytes as 64-bit words, the last one filled up with zeros."""
    n_rows, n_bytes = raw.shape
    if n_bytes % 8:
        padded = np.zeros((n_rows, -(-n_bytes // 8) * 8), np.uint8)
        padded[:, :n_bytes] = raw
        raw = padded
    words: Hashes = raw.view(np.uint64)
    return words


def _factors(n_bytes: int) -> Hashes:
    """Return the odd number that each word of a row is multiplied by."""
    return _mixed(np.arange(-(-n_bytes // 8), dtype=np.uint64)) | np.uint64(1)


def hashes_of_texts(rows: Array) -> Hashes:
    """Return a number for every row of texts."""
    return _numbers(packed_texts, rows)


def hashes_of_examples(flat: Flat) -> Hashes:
    """Return a number for every example: of its values and its shape."""
    values = flat.examples()
    shapes = [tuple(shape) for shape in flat.shapes.tolist()]
    return _numbers(
        lambda one: repr(one[1]).encode() + np.ascontiguousarray(one[0]).tobytes(),
        list(zip(values, shapes, strict=True)),
    )


def _numbers(raw_of: Callable[[Any], bytes], rows: Any) -> Hashes:
    numbers = [zlib.crc32(raw) << 32 | zlib.adler32(raw) for raw in map(raw_of, rows)]
    return np.array(numbers, np.uint64)
