"""What is measured: a GPU by CuPy, or the host in its place."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import labeled
from labeled.device import HostDevice

MIB, GIB = 1 << 20, 1 << 30
Figures = dict[str, Any]


class NoGpu(Exception):
    """There is nothing to measure here."""


@dataclass(frozen=True)
class Card:
    """What is measured: a GPU by CuPy, or the host in its place.

    Parameters
    ----------
    xp : module
    device : str or Device
        As ``batches`` takes it.
    """

    xp: Any
    device: Any

    @property
    def real(self) -> bool:
        return self.xp is not np

    def wait(self) -> None:
        """Wait for everything that was asked for."""
        if self.real:
            self.xp.cuda.get_current_stream().synchronize()

    def seconds(self, work: Callable[[], object], repeats: int = 15) -> float:
        """Median time of some work, after two rounds that warm up."""
        found = []
        for turn in range(repeats + 2):
            self.wait()
            began = perf_counter()
            work()
            self.wait()
            if turn > 1:
                found.append(perf_counter() - began)
        return statistics.median(found)

    def kernel_seconds(
        self, work: Callable[[], object], calls: int = 10, repeats: int = 5
    ) -> float:
        """Median time that the device takes for one of several calls in a row.

        Waiting for each call would count what Python takes to ask for it, which a device that
        has other work to do does not wait for.
        """
        if not self.real:
            return self.seconds(work, 1)
        found = []
        for turn in range(repeats + 1):
            start, stop = self.xp.cuda.Event(), self.xp.cuda.Event()
            start.record()
            for _ in range(calls):
                work()
            stop.record()
            stop.synchronize()
            if turn:
                found.append(self.xp.cuda.get_elapsed_time(start, stop) / 1e3 / calls)
        return statistics.median(found)

    def pinned(self, nbytes: int) -> Any:
        if not self.real:
            return np.ones(nbytes, np.uint8)
        memory = np.ndarray((nbytes,), np.uint8, self.xp.cuda.alloc_pinned_memory(nbytes))
        memory[...] = 1
        return memory

    def upload(self, host: Any, target: Any) -> None:
        if self.real:
            stream = self.xp.cuda.get_current_stream()
            target.data.copy_from_host_async(host.ctypes.data, host.nbytes, stream)
        else:
            np.copyto(target, host)

    def copy(self, one: Any, two: Any) -> None:
        if self.real:
            stream = self.xp.cuda.get_current_stream()
            two.data.copy_from_device_async(one.data, one.nbytes, stream)
        else:
            np.copyto(two, one)

    def describe(self) -> Figures:
        """Return what ran this."""
        here: Figures = {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "labeled": labeled.__version__,
            "cores": os.cpu_count(),
            "date": date.today().isoformat(),
        }
        if not self.real:
            return {"card": "none: the host in its place, which says nothing of a GPU", **here}
        runtime = self.xp.cuda.runtime
        told = runtime.getDeviceProperties(0)
        return {
            "card": told["name"].decode(),
            "memory_bytes": told["totalGlobalMem"],
            "compute": f"{told['major']}.{told['minor']}",
            "driver": driver_version(),
            "driver_cuda": runtime.driverGetVersion(),
            "runtime": runtime.runtimeGetVersion(),
            "cupy": self.xp.__version__,
            **here,
        }


def fitting(card: Card, folder: Path, asked: int) -> int:
    """Return a size of files, at most the one asked for, of which all fit everywhere.

    Three times as much is written, and kept in the page cache; and no process that only
    starts others should begin work on a GPU, so its memory in all is what is asked for.
    """
    room = [shutil.disk_usage(folder).free // 8]
    room.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)
    if card.real:
        room.append(card.xp.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"] // 16)
    return max(min(asked, *room), MIB)


def driver_version() -> str:
    """Return what the driver calls itself, if it has a tool that tells."""
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as error:
        return f"not told ({type(error).__name__})"
    return told.stdout.strip()


def card(host: bool) -> Card:
    """Find the GPU.

    Raises
    ------
    NoGpu
        If CuPy, a driver or a card is missing; says which.
    """
    if host:
        return Card(np, HostDevice())
    try:
        cupy = import_module("cupy")
    except ImportError as error:
        raise NoGpu(f"CuPy does not load ({error}): pip install 'labeled[gpu-cu13]'") from None
    if not cupy.cuda.is_available():
        raise NoGpu("CuPy finds no GPU and driver here")
    return Card(cupy, "cuda:0")
