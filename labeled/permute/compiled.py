"""Running plans on the compiled kernels: when to load them, scratch memory, threads.

Importing and compiling the kernels costs about a second, so nothing here touches numba until a
copy is large enough (`LOAD_BYTES`); from then on smaller copies use them too.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import threading
import time
from types import ModuleType
from typing import Any

import numpy as np

from labeled.permute import workers
from labeled.permute.arguments import Array
from labeled.permute.job import Job
from labeled.permute.plan import Plan, plan

SWITCH = "LABELED_FAST"
"""The environment variable that turns the kernels off when it is ``0``."""

LOAD_BYTES = 1 << 18
"""The first copy of so many bytes imports the kernels."""

USE_BYTES = 1 << 15
"""Once they are imported, copies of so many bytes use them."""

SHARE_BYTES = 1 << 22
"""Bytes read and written from which a second thread pays for its waking up."""

STREAM_BYTES = 1 << 22
"""Results of so many bytes are stored past the caches, where they would not stay anyway."""

BLOCK_ITEMS = 4096
_state = threading.local()
_kernels: ModuleType | None = None
_failed = ""
compile_seconds = 0.0
"""Spent so far on importing and compiling (or loading compiled) kernels."""


def available() -> bool:
    """Say whether the kernels are installed and not turned off."""
    if os.environ.get(SWITCH, "1") == "0" or _failed:
        return False
    return _kernels is not None or importlib.util.find_spec("numba") is not None


def describe() -> str:
    """Return one line for plans and reports."""
    if os.environ.get(SWITCH, "1") == "0":
        return f"blocked NumPy (compiled kernels turned off by {SWITCH}=0)"
    if not available():
        return f"blocked NumPy ({_failed or 'numba is not installed: pip install labeled[fast]'})"
    if _kernels is None:
        return "compiled kernels (not needed yet)"
    return f"compiled kernels ({compile_seconds:.1f} s spent on loading and compiling)"


def run(job: Job, threads: int | None) -> bool:
    """Make a copy by a kernel; False, with nothing written, where none is at hand or fits."""
    size = max(job.dst.nbytes, job.dst.size * job.src.itemsize)
    if size < (USE_BYTES if _kernels is not None else LOAD_BYTES) or not available():
        return False
    found = plan(job)
    if found is None:
        return False
    kernels = _loaded()
    if kernels is None:
        return False
    _execute(kernels, found, job, threads)
    return True


def _loaded() -> ModuleType | None:
    global _kernels, _failed, compile_seconds
    if _kernels is None and not _failed:
        started = time.perf_counter()
        try:
            _kernels = importlib.import_module("labeled.permute.kernels")
        except ImportError as error:
            _failed = f"numba does not load: {error}"
        compile_seconds += time.perf_counter() - started
    return _kernels


def _execute(kernels: ModuleType, found: Plan, job: Job, threads: int | None) -> None:
    global compile_seconds
    kernel = getattr(kernels, found.kernel)
    item, final = found.item.type(0), found.final.type(0)
    dst, src = _address(job.dst), _address(job.src)
    streamed, head = _streaming(found, dst, job.dst)
    rows = _padded(found.rows, kernels.PADDING)
    block, per_outer = _units(found, head, kernels.TILE_RUN)
    sizes = np.array(
        [
            found.n_rows, found.n_fast, found.step, block, streamed, *found.by, head,
            found.item.itemsize, found.final.itemsize, job.pure,
        ],
        np.int64,
    )  # fmt: skip
    fixed = (
        item, final, src, dst, found.outer_src, found.outer_dst, rows, sizes,
        _address(found.scale), _address(found.shift),
    )  # fmt: skip
    if (found.kernel, found.item, found.final) not in _compiled:
        started = time.perf_counter()
        kernel(*fixed, 0, 0, 0)
        compile_seconds += time.perf_counter() - started
        _compiled.add((found.kernel, found.item, found.final))

    def work(first: int, last: int) -> None:
        kernel(*fixed, first, last, _scratch(kernels.SCRATCH_BYTES))

    n_units = len(found.outer_src) * per_outer
    workers.share(
        work, n_units, _threads(threads, job.dst.nbytes + job.dst.size * job.src.itemsize)
    )


_compiled: set[tuple[str, Any, Any]] = set()


def _threads(asked: int | None, moved_bytes: int) -> int:
    if asked == 1 or moved_bytes < SHARE_BYTES:
        return 1
    return min(workers.processors() if asked is None else asked, moved_bytes // (SHARE_BYTES // 2))


def _units(found: Plan, head: int, tile_run: int) -> tuple[int, int]:
    """Return how many items a unit takes along the axis that is split, and units an outer step."""
    if found.kernel == "runs":
        block = max(1, BLOCK_ITEMS * 4 // max(1, found.n_fast))
        return block, -(-found.n_rows // block)
    if found.kernel == "unweaves":
        return BLOCK_ITEMS, -(-found.n_rows // BLOCK_ITEMS)
    n_blocks = -(-found.n_fast // BLOCK_ITEMS)
    if found.kernel == "weaves":
        return BLOCK_ITEMS, n_blocks
    run = max(tile_run // found.final.itemsize, 16 // found.item.itemsize)
    n_runs = -(-(found.n_rows - head) // run) + (1 if head else 0)
    return BLOCK_ITEMS, n_runs * n_blocks


def _streaming(found: Plan, dst: int, out: Array) -> tuple[bool, int]:
    """Say whether to store past the caches, and how many rows come before the first whole line."""
    if out.nbytes < STREAM_BYTES or np.any(found.outer_dst & 63):
        return False, 0
    if found.kernel == "weaves":
        return dst % 64 == 0, 0
    if found.step % 64:
        return False, 0
    if found.kernel == "tiles":
        head = (-dst % 64) // found.final.itemsize
        whole = found.n_rows - head >= 64 // found.final.itemsize
        return (whole, head) if dst % found.final.itemsize == 0 and whole else (False, 0)
    if found.kernel == "runs":
        return dst % 64 == 0 and found.n_fast * found.final.itemsize % 64 == 0, 0
    return dst % 64 == 0, 0


def _padded(rows: Array, padding: int) -> Array:
    """Append what tiles read past the rows: the last offset again, and the rows of the stage."""
    stage = np.arange(128 + padding, dtype=np.int64) * 64
    return np.concatenate([rows, np.repeat(rows[-1:], padding), stage])


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _scratch(n_bytes: int) -> int:
    """Return the address of this thread's scratch memory, at the start of a cache line."""
    memory = getattr(_state, "memory", None)
    if memory is None:
        memory = _state.memory = np.empty(n_bytes + 64, np.uint8)
        _state.address = -(-_address(memory) // 64) * 64
    address: int = _state.address
    return address
