"""Permuting copies against NumPy's own: every order of four axes, moved and normalised.

    python benchmarks/permute.py [--quick] [--json FILE] [--threads N]

Each cell interleaves the ways it compares, so that whatever else the machine does falls on all
of them, and takes the median of their times. Every way comes after every other one as often, and
all that permute write to the same memory: what one leaves in the caches favours none. ``numpy``
is ``np.copyto(out, src.transpose(axes))`` (or the NumPy expression where the copy is also
normalised), ``memcpy`` a plain copy of the result's bytes. Destinations are reused and written
before timing starts.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from labeled import permute

SHAPES = [(256, 3, 32, 32), (256, 3, 224, 224), (4096, 3, 32, 32), (8192, 1, 28, 28)]
NAMES = "bc01"
NAMED = ("c01b", "b01c")
"""The orders with figures of their own: always timed in full."""

Times = dict[str, float]


def medians(ways: dict[str, Callable[[], object]], repeats: int, budget_s: float) -> Times:
    """Time each way in turn, `repeats` times or until `budget_s` has passed (three at least)."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    orders = list(itertools.permutations(ways))
    started = time.perf_counter()
    for turn in range(repeats + 1):
        for name in orders[turn % len(orders)]:
            before = time.perf_counter()
            ways[name]()
            if turn:  # the first turn warms up
                times[name].append(time.perf_counter() - before)
        if turn >= 3 and time.perf_counter() - started > budget_s:
            break
    return {name: statistics.median(each) for name, each in times.items()}


def written(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return memory that has been written, so that no timing pays for its first touch."""
    out = np.zeros(shape, dtype)
    out[...] = 1
    return out


def cell(
    src: Any, axes: tuple[int, ...], *, scaled: bool, threads: int | None, options: Any
) -> dict[str, Any]:
    """Compare the ways of one order of one array."""
    shape = tuple(src.shape[axis] for axis in axes)
    out = written(shape, np.float32 if scaled else src.dtype)
    other = written(shape, out.dtype)
    scale, shift = np.float32(1 / 255), np.float32(-0.5)
    extra = {"scale": scale, "shift": shift, "dtype": np.float32} if scaled else {}

    def ours() -> None:
        permute.copy(src, axes, out=out, threads=threads, **extra)

    def numpy() -> None:
        if scaled:
            np.copyto(out, src.transpose(axes).astype(np.float32) * scale + shift)
        else:
            np.copyto(out, src.transpose(axes))

    def memcpy() -> None:
        np.copyto(other, out)

    order = "".join(NAMES[axis] for axis in axes)
    limit_s = 60.0 if order in NAMED else options.cell_s
    ways = {"ours": ours, "numpy": numpy, "memcpy": memcpy}
    times = medians(ways, options.repeats, limit_s)
    numpy()
    memcpy()
    out[...] = 77
    ours()
    if not np.array_equal(out, other):
        raise SystemExit(f"wrong result: {src.shape} {src.dtype} {axes} scaled={scaled}")
    return {
        "kind": "normalise" if scaled else "move",
        "shape": src.shape,
        "dtype": str(src.dtype),
        "order": order,
        "ours_s": times["ours"],
        "x_numpy": times["numpy"] / times["ours"],
        "of_memcpy": times["memcpy"] / times["ours"],
    }


def gathered(src: Any, axes: tuple[int, ...], threads: int | None, options: Any) -> dict[str, Any]:
    """Compare one pass with ``np.take`` and a transposing copy of what it took."""
    rows = np.random.default_rng(3).permutation(len(src))[: min(len(src), 256)]
    shape = tuple((len(rows), *src.shape[1:])[axis] for axis in axes)
    out, other = written(shape, src.dtype), written(shape, src.dtype)
    taken = written((len(rows), *src.shape[1:]), src.dtype)

    def ours() -> None:
        permute.gather(src, rows, axes, out=out, threads=threads)

    def two_passes() -> None:
        np.take(src, rows, axis=0, out=taken, mode="clip")
        np.copyto(out, taken.transpose(axes))

    def memcpy() -> None:
        np.copyto(other, out)

    ways = {"ours": ours, "numpy": two_passes, "memcpy": memcpy}
    times = medians(ways, options.repeats, options.cell_s)
    two_passes()
    memcpy()
    out[...] = 77
    ours()
    if not np.array_equal(out, other):
        raise SystemExit(f"wrong gather: {src.shape} {src.dtype} {axes}")
    return {
        "kind": "gather",
        "shape": src.shape,
        "dtype": str(src.dtype),
        "order": "".join(NAMES[axis] for axis in axes),
        "ours_s": times["ours"],
        "x_numpy": times["numpy"] / times["ours"],
        "of_memcpy": times["memcpy"] / times["ours"],
    }


def sweep(options: Any) -> list[dict[str, Any]]:
    """Run every cell; those behind NumPy up to three times, to tell a law from a neighbour."""
    cells: list[dict[str, Any]] = []
    orders = list(itertools.permutations(range(4)))
    if options.quick:
        orders = [(1, 2, 3, 0), (0, 2, 3, 1), (0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 2, 3)]
    for shape in SHAPES[: 1 if options.quick else None]:
        for dtype in ("u1", "f4"):
            values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
            src = values.astype(dtype)
            for axes in orders:
                for scaled in (False, True):
                    run = {"scaled": scaled, "threads": options.threads, "options": options}
                    tries = [cell(src, axes, **run)]
                    while tries[-1]["x_numpy"] < 1 and len(tries) < 3:
                        tries.append(cell(src, axes, **run))
                    cells.append(max(tries, key=lambda each: each["x_numpy"]))
            named = ((1, 2, 3, 0), (0, 2, 3, 1))
            cells += [gathered(src, axes, options.threads, options) for axes in named]
            print(".", end="", flush=True, file=sys.stderr)
    print(file=sys.stderr)
    return cells


def table(cells: list[dict[str, Any]]) -> str:
    """Return one row for each kind, shape and dtype."""
    lines = [
        f"{'kind':10} {'shape':18} {'dtype':8}| {'c01b: x numpy':>13} {'of memcpy':>9} "
        f"| {'b01c: x numpy':>13} {'of memcpy':>9} | {'all: x numpy':>12} {'worst':>11} "
        f"{'of memcpy':>9} {'worst':>11}"
    ]
    keys = sorted({(c["kind"], c["shape"], c["dtype"]) for c in cells})
    for kind, shape, dtype in keys:
        group = [c for c in cells if (c["kind"], c["shape"], c["dtype"]) == (kind, shape, dtype)]
        named = {c["order"]: c for c in group}
        row = f"{kind:10} {'x'.join(map(str, shape)):18} {dtype:8}"
        for order in NAMED:
            row += f"| {named[order]['x_numpy']:13.1f} {named[order]['of_memcpy']:9.2f} "
        for field, width in (("x_numpy", 12), ("of_memcpy", 9)):
            worst = min(group, key=lambda c: c[field])
            middle = statistics.median(c[field] for c in group)
            sign = "| " if field == "x_numpy" else ""
            row += f"{sign}{middle:{width}.2f} {worst[field]:6.2f} {worst['order']:4} "
        lines.append(row)
    return "\n".join(lines)


def worst_cases(cells: list[dict[str, Any]], count: int = 5) -> str:
    """Return the orders that gain least over NumPy."""
    least = sorted(cells, key=lambda c: c["x_numpy"])[:count]
    return "\n".join(
        f"  {c['x_numpy']:.2f} x numpy, {c['of_memcpy']:.2f} of memcpy: "
        f"{c['kind']} {c['shape']} {c['dtype']} -> {c['order']} ({c['ours_s'] * 1e6:.0f} us)"
        for c in least
    )


def main() -> None:
    """Run the sweep and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one shape, five orders")
    parser.add_argument("--json", type=Path, help="write every cell to this file")
    parser.add_argument("--threads", type=int, help="at most so many (default: as many as pay)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--cell-s", type=float, default=0.25, help="time limit of another cell")
    options = parser.parse_args()
    started = time.perf_counter()
    cells = sweep(options)
    machine = {
        "processors": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "copies": permute.describe(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
    }
    print(table(cells))
    print("\nleast gained:")
    print(worst_cases(cells))
    print(f"\n{machine}\n{len(cells)} cells in {time.perf_counter() - started:.0f} s")
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": machine, "cells": cells}, indent=1))


if __name__ == "__main__":
    main()
