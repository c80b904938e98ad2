"""Rows to write, a look at what was written, and programs that write."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

# forks of a server that has the libraries and holds no socket of this process; Windows has none
PROCESSES = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")

KINDS: list[dict[str, Any]] = [
    {},
    {"compression": "gzip", "chunks": 7},
    {"layout": "chunked", "chunks": 8},
]


def rows(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.integers(0, 256, (n, 3, 8), np.uint8),
        "t": np.array([f"text {i} é" for i in range(n)], object),
    }


def run(script: str, folder: Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


@contextmanager
def writer_under_way(write: Callable[[Path, Any], None], path: Path) -> Iterator[Any]:
    """Have another process write a file, and say when it has begun; it is killed in the end."""
    begun = PROCESSES.Event()
    writer = PROCESSES.Process(target=write, args=(path, begun))
    writer.start()
    try:
        assert begun.wait(60)
        yield writer
    finally:
        writer.kill()
        writer.join()
