"""The permuting copies: the sweep of :mod:`benchmarks.permute`, and what section 8 asks of it."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from labeled.bench.copies import Cell


def sweep(quick: bool) -> list[Cell]:
    """Run the sweep with little time for each cell."""
    from benchmarks import permute

    options = Namespace(quick=quick, threads=None, repeats=5, cell_s=0.04 if quick else 0.08)
    return permute.sweep(options)


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
