"""Permuting copies against NumPy's own: every order of four axes, moved and normalised.

    python benchmarks/permute.py [--quick] [--json FILE] [--threads N]

How each cell is timed is told in :mod:`benchmarks.copies`.
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
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.copies import Cell, Effort, gathered, settled
from labeled import permute

SHAPES = [(256, 3, 32, 32), (256, 3, 224, 224), (4096, 3, 32, 32), (8192, 1, 28, 28)]
NAMES = "bc01"
NAMED = ("c01b", "b01c")
"""The orders with figures of their own: always timed in full."""


def sweep(options: Any) -> list[Cell]:
    """Run every cell; those behind NumPy up to three times, to tell a law from a neighbour."""
    cells: list[Cell] = []
    orders = list(itertools.permutations(range(4)))
    if options.quick:
        orders = [(1, 2, 3, 0), (0, 2, 3, 1), (0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 2, 3)]
    for shape in SHAPES[: 1 if options.quick else None]:
        for dtype in ("u1", "f4"):
            values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
            src = values.astype(dtype)
            for axes in orders:
                order = "".join(NAMES[axis] for axis in axes)
                limit_s = 60.0 if order in NAMED else options.cell_s
                effort = Effort(options.repeats, limit_s, options.threads)
                cells += [
                    {**settled(src, axes, effort, scaled=scaled), "order": order}
                    for scaled in (False, True)
                ]
            effort = Effort(options.repeats, options.cell_s, options.threads)
            for axes, order in zip(((1, 2, 3, 0), (0, 2, 3, 1)), NAMED, strict=True):
                cells.append({**gathered(src, axes, effort, rows=256), "order": order})
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


def least(cells: list[Cell], channels: int | None = None, **wanted: Any) -> float | None:
    """Return the smallest gain over NumPy among the cells that fit, of so many channels.

    A single channel is left out where an order moves it: NumPy is at memory speed there.
    """
    found = [
        cell["x_numpy"]
        for cell in cells
        if all(cell[key] == value for key, value in wanted.items())
        and ("order" not in wanted or cell["shape"][1] > 1)
        and (channels is None or cell["shape"][1] == channels)
    ]
    return min(found, default=None)


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
