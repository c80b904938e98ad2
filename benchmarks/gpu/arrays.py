"""Arrays that are on the device already: copies, which are the bounds, permutes, gathers."""

from __future__ import annotations

import itertools
import statistics
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.card import MIB, Figures
from labeled import permute

ORDERS = ["".join(order) for order in itertools.permutations("bc01")]


def copies(bench: Bench) -> Figures:
    """Pinned memory to device, and device to device, in bytes a second."""
    n = max(bench.nbytes // 8, MIB)
    host, one = bench.card.pinned(n), bench.card.xp.zeros(n, np.uint8)
    two = bench.card.xp.zeros(n, np.uint8)
    to_device = bench.card.seconds(lambda: bench.card.upload(host, one))
    within = bench.card.kernel_seconds(lambda: bench.card.copy(one, two))
    return {"nbytes": n, "h2d": n / to_device, "d2d": 2 * n / within}


def permutes(bench: Bench, d2d: float) -> Figures:
    """Every order of four axes, moved, and cast and scaled: against a plain device copy.

    ``of_library`` is against what the array library itself does for the same result.
    """
    kinds = {
        "u8": (np.uint8, {}),
        "f16": (np.float16, {}),
        "f32": (np.float32, {}),
        "u8 to f32, scaled": (np.uint8, {"dtype": np.float32, "scale": 1 / 255}),
        "u8 to f16, scaled": (np.uint8, {"dtype": np.float16, "scale": 1 / 255}),
    }
    return bench.rows({name: partial(of_kind, bench, d2d, *kind) for name, kind in kinds.items()})


def of_kind(bench: Bench, d2d: float, dtype: Any, options: Figures) -> Figures:
    """Measure all orders of one kind of items."""
    rows = max(bench.nbytes // 8 // (3 * 224 * 224), 2)
    src = bench.random((max(rows // np.dtype(dtype).itemsize, 2), 3, 224, 224), dtype)
    item = np.dtype(dtype).itemsize + np.dtype(options.get("dtype", dtype)).itemsize
    found = {order: of_order(bench, src, order, options) for order in ORDERS}
    out: Figures = {
        "nbytes": src.nbytes,
        "of_d2d": {o: src.size * item / one["ours"] / d2d for o, one in found.items()},
        "of_library": {o: one["library"] / one["ours"] for o, one in found.items()},
        "right": all(one["right"] for one in found.values()),
    }
    for name in ("of_d2d", "of_library"):
        values = list(out[name].values())
        out[f"{name}, median"] = statistics.median(values)
        out[f"{name}, worst"] = min(values)
    return out


def of_order(bench: Bench, src: Any, order: str, options: Figures) -> Figures:
    """Time one order, by the library and by ours, and see that both give the same."""
    xp, axes = bench.card.xp, tuple("bc01".index(axis) for axis in order)

    def library(src: Any = src) -> Any:
        moved = src.transpose(axes)
        if options:
            moved = (moved.astype(np.float32) * np.float32(options["scale"])).astype(
                options["dtype"]
            )
        return xp.ascontiguousarray(moved)

    few = src[:65]
    return {
        "ours": bench.card.kernel_seconds(lambda: permute.copy(src, axes, **options)),
        "library": bench.card.kernel_seconds(library),
        "right": bool((permute.copy(few, axes, **options) == library(few)).all()),
    }


def gathers(bench: Bench, d2d: float) -> Figures:
    """Shuffled rows, cast and scaled: one pass."""
    n = max(bench.nbytes // 8 // (3 * 224 * 224), 4)
    src, rows = bench.random((n, 3, 224, 224), np.uint8), np.random.default_rng(1).permutation(n)

    def measured(dtype: str, order: str) -> float:
        changes = {"dtype": dtype, "scale": 1 / 255} if dtype == "float32" else {}
        axes = tuple("bc01".index(axis) for axis in order)
        moved = n * 3 * 224 * 224 * (1 + np.dtype(dtype).itemsize)
        seconds = bench.card.kernel_seconds(lambda: permute.gather(src, rows, axes, **changes))
        return moved / seconds / d2d

    return bench.rows(
        {
            f"{order}, {dtype}, of_d2d": partial(measured, dtype, order)
            for dtype in ("uint8", "float32")
            for order in ("bc01", "b01c", "c01b")
        }
    )


def latency(bench: Bench) -> Figures:
    """Microseconds of one permute of a small batch, the device waited for."""

    def measured(shape: tuple[int, ...], options: Figures) -> float:
        src = bench.random(shape, np.uint8)
        work = partial(permute.copy, src, (1, 2, 3, 0), **options)
        return bench.card.seconds(work, repeats=50) * 1e6

    return bench.rows(
        {
            f"{'x'.join(map(str, shape))} {name}": partial(measured, shape, options)
            for shape in ((16, 3, 32, 32), (256, 3, 32, 32), (64, 3, 224, 224))
            for name, options in (("move", {}), ("scaled", {"dtype": "f4", "scale": 1 / 255}))
        }
    )
