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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from labeled import permute
from labeled.bench.subject import Array, Subject, named

Axes = tuple[int, ...]
Cell = dict[str, Any]
Times = dict[str, float]

MOST_BYTES = 16 << 20
"""Of the rows of a file that are moved about."""

ALL_ORDERS_RANK = 4
LEAST_S = 0.02
"""Copies of microseconds are timed for so long: a median of few turns is off by a tenth."""

GATHERED = 8
"""Batches out of which one is gathered."""


@dataclass(frozen=True)
class Effort:
    """How long one cell may take.

    Parameters
    ----------
    repeats : int
        Turns, besides the one that warms up; three at least, and short ones again and again
        until `LEAST_S` have passed.
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
    least_s = min(LEAST_S, effort.limit_s)
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
    out = np.zeros(shape, dtype)
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


# of the rows of a file


def permuted_source(subject: Subject) -> str | None:
    """Return the source whose rows are moved about: the largest one of rank 3 or more."""
    shapes, dtypes = subject.dataset.shapes, subject.dataset.dtypes
    some = [name for name in named(subject.dataset, "numbers") if len(shapes[name]) > 2]
    return max(
        (name for name in some if 0 not in shapes[name]),
        key=lambda name: int(np.prod(shapes[name][1:])) * dtypes[name].itemsize,
        default=None,
    )


def orders_of(n_axes: int) -> list[Axes]:
    """Return orders of axes, those that programs ask for most first.

    The example axis last, channels last; then every other order of up to four axes; of more,
    those that move one axis, and the reverse.

    Examples
    --------
    >>> orders_of(3)
    [(1, 2, 0), (0, 2, 1), (0, 1, 2), (1, 0, 2), (2, 0, 1), (2, 1, 0)]
    >>> len(orders_of(4)), len(orders_of(5))
    (24, 18)
    """
    axes = tuple(range(n_axes))
    if n_axes <= ALL_ORDERS_RANK:
        others: Iterator[Axes] = itertools.permutations(axes)
    else:
        others = iter([axes, *_one_moved(axes), axes[::-1]])
    return list(dict.fromkeys([(*axes[1:], 0), (0, *axes[2:], 1), *others]))


def _one_moved(axes: Axes) -> Iterator[Axes]:
    for axis in axes:
        rest = [other for other in axes if other != axis]
        for place in range(len(axes)):
            yield (*rest[:place], axis, *rest[place:])


def copies(subject: Subject, budget_s: float) -> list[Cell]:
    """Move a batch of the rows of a file about; the orders asked for most come first.

    Parameters
    ----------
    budget_s : float
        No further order is begun after that; the first two are always measured.
    """
    name = permuted_source(subject)
    if name is None:
        return []
    shape, item = subject.dataset.shapes[name], subject.dataset.dtypes[name].itemsize
    row_bytes = int(np.prod(shape[1:])) * item
    most = max(1, MOST_BYTES // row_bytes)
    n = min(subject.n_rows, subject.batch_rows, most)
    some = subject.dataset.select(name).subset(slice(0, min(GATHERED * n, most)))
    rows = some.load()[name].values
    cells: list[Cell] = []
    orders = orders_of(rows.ndim)
    effort = Effort(9, budget_s / len(orders) / 2)
    moved(rows[:n], orders[0], effort, scaled=False)  # kernels are compiled before time counts
    began = time.perf_counter()
    for number, axes in enumerate(orders):
        if number >= 2 and time.perf_counter() - began > budget_s:
            break
        cells.append(settled(rows[:n], axes, effort, scaled=False))
        if rows.dtype.kind in "ui":
            cells.append(settled(rows[:n], axes, effort, scaled=True))
        if number < 2:
            cells.append(gathered(rows, axes, effort, rows=n))
    dims = subject.dataset[name].dims
    return [{**cell, "order": " ".join(str(dims[axis]) for axis in cell["axes"])} for cell in cells]
