"""What the device does in the place of the host: decode chunks, by nvCOMP; read, by kvikio."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import h5py
import numpy as np

from benchmarks.gpu.bench import LARGE_BATCH, Bench
from benchmarks.gpu.card import Figures


def decoding(bench: Bench) -> Figures:
    """Compressed chunks: decoded by threads of the host, and on the device.

    The memory is less than the file, so that nothing is kept decoded.
    """
    return bench.rows(
        {
            f"{codec}, {order or 'file order'}": partial(decoded, bench, codec, order)
            for codec in ("gzip", "zstd", "lz4")
            for order in (False, "window")
        }
    )


def decoded(bench: Bench, codec: str, shuffle: Any) -> Figures:
    """Rates of stored rows a second on both sides, and whether the batches are the same."""
    found: Figures = {}
    try:
        bench.file("uint8", codec)
    except ImportError as error:
        return {"left_out": f"it is not written here ({error})"}
    options = {"codec": codec, "shuffle": shuffle, **bench.uncached()}
    sums: dict[str, list[int]] = {}
    for decode in ("host", "device"):
        loader = bench.loader("uint8", decode=decode, **options)
        sums[decode] = [int(batch["images"].data.sum(dtype=np.int64)) for batch in loader]
        found[f"{decode}_bytes_per_s"] = bench.rate(loader)
        stats = loader.stats()
        found[f"{decode}_bus_bytes"] = stats.bus_bytes
        if decode == "device":
            found["chunks_there"] = stats.n_chunks_there
            found["by"] = loader.explain().lanes[0].why
    found["equal"] = sums["host"] == sums["device"]
    if not found["chunks_there"]:  # both were decoded on the host
        found["left_out"] = f"{found.pop('device_bytes_per_s'):.4g} bytes a second, not there"
    return found


def kvikio(bench: Bench) -> Figures:
    """Files read by the device itself, against threads of the host; and kvikio's reads alone.

    ``compat_mode`` says whether it had GPUDirect Storage: without, it copies through memory
    of its own.
    """
    works: dict[str, Callable[[], Any]] = {
        "KVIKIO_NTHREADS": lambda: os.environ.get("KVIKIO_NTHREADS", "not set"),
        "file order": partial(straight, bench, shuffle=False),
        "window": partial(straight, bench, shuffle="window"),
    }
    return bench.rows(works | ({"alone": partial(alone, bench)} if bench.card.real else {}))


def straight(bench: Bench, shuffle: Any) -> Figures:
    """Rates of rows on both sides, and whether the batches are the same."""
    found: Figures = {}
    sums: dict[str, list[int]] = {}
    for reader in ("threads", "device"):
        loader = bench.loader("uint8", **bench.uncached(), shuffle=shuffle, reader=reader)
        sums[reader] = [int(batch["images"].data.sum(dtype=np.int64)) for batch in loader]
        found[f"{reader}_bytes_per_s"] = bench.rate(loader)
    found["read_there"] = loader.stats().direct_bytes
    found["by"] = loader.explain().direct
    found["equal"] = sums["threads"] == sums["device"]
    return found


def alone(bench: Bench) -> Figures:
    """Read the rows of a file straight to the device, 48 MiB at a time, and do nothing else."""
    library = import_module("kvikio")
    path = bench.file("uint8")
    with h5py.File(path, "r") as f:
        offset, nbytes = f["images"].id.get_offset(), f["images"].nbytes
    target = bench.card.xp.empty(min(LARGE_BATCH, nbytes), np.uint8)
    with library.CuFile(path, "r") as file:

        def read() -> None:
            for place in range(0, nbytes - target.nbytes + 1, target.nbytes):
                file.read(target, file_offset=offset + place)

        seconds = bench.card.seconds(read, repeats=3)
    mode = import_module("kvikio.defaults").get("compat_mode")
    read_bytes = nbytes // target.nbytes * target.nbytes
    return {"bytes_per_s": read_bytes / seconds, "compat_mode": str(mode)}
