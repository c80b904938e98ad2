"""A cluster of one worker, on the device."""

from __future__ import annotations

import os
import signal
from time import perf_counter
from typing import Any

import numpy as np

import labeled
from benchmarks.gpu.bench import ROW_SHAPE, Bench
from benchmarks.gpu.card import MIB, Figures
from labeled import cluster as cl
from labeled.spaces import Conv2DSpace


def cluster(bench: Bench) -> Figures:
    """One worker: lazy blocks there, laid out, added up, kept beyond a limit; restarted."""
    limit = max(bench.nbytes // 8, 64 * MIB)
    path = bench.file("uint8")
    images = labeled.open_dataset(path, chunks={"batch": 1024})["images"]
    wanted = int(images.sum(dtype=np.int64).compute())
    there = "cuda" if bench.card.real else "cpu"
    space = Conv2DSpace(ROW_SHAPE[1:], num_channels=3, axes=("c", 0, 1, "b"))
    out: Figures = {"device_memory_limit": limit, "nbytes": images.nbytes}

    def total(array: Any) -> int:
        return int(array.sum(dtype=np.int64).labeled.to_device("cpu").compute())

    options = {"device_memory_limit": limit} if bench.card.real else {}
    start = cl.cuda_cluster if bench.card.real else cl.local_cluster
    with (
        start(n_workers=1, **options) as machines,
        machines.get_client() as client,
        client.as_current(),
    ):
        moved = images.labeled.to_device(there)
        began = perf_counter()
        out["sum_equal"] = total(moved) == wanted
        out["sum_s"] = perf_counter() - began
        began = perf_counter()
        kept = moved.labeled.format_as(space).persist()
        out["persisted_equal"] = total(kept) == wanted
        out["persist_s"] = perf_counter() - began
        out["held"] = next(iter(client.run(held).values()))
        del kept
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)  # its nanny starts another
        out["after_restart_equal"] = total(moved) == wanted
        out["new_process"] = list(client.run(os.getpid).values()) != [pid]
        options = {"batch_size": 256, "every": 8}
        if bench.card.real:
            options |= {"device": "cuda", "resources": {"GPU": 1}}
        parts = cl.run_parts(client, labeled.open_dataset(path), add_up, 0, int.__add__, **options)
        out["parts_equal"] = parts == wanted
    return out


def held(dask_worker: Any) -> Figures:
    """Return how many values a worker keeps, and where as far as it tells."""
    data = dask_worker.data
    places = {"all": data}
    for name in ("device", "device_buffer", "host", "host_buffer", "disk", "fast", "slow"):
        part = getattr(data, name, None)
        if part is not None and hasattr(part, "__len__"):
            places[name] = part
    return {"kind": type(data).__name__, **{name: len(part) for name, part in places.items()}}


def add_up(acc: int, batch: Any) -> int:
    """Add up a batch, wherever it is."""
    return acc + int(batch.arrays["images"].sum(dtype=np.int64))
