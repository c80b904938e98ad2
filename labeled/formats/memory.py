"""Memory: how much a process may have, and texts take; where bytes are read to; how rows move.

Whoever takes more memory than allowed is ended by the system without a word, so the limit is
known before: that of the machine, or of the control groups that a process is in (Docker,
Kubernetes, Slurm), of which each counts, and each that it is part of.

Where memory lies matters too. The system copies from its cache of a file front to back, and a
processor tells what it has just stored from what it loads next by the last twelve bits of their
addresses. Where memory lies a few bytes further within its page than the bytes lie in theirs, each
load seems to need what was stored a moment ago, and waits for it: 768 KiB took 238 microseconds at
a distance of 1 to 15 bytes, 88 at 16 to 31, and 31 to 42 at all others (Zen 4). To read them
elsewhere and copy them from there takes 92. Large memory of the allocator begins 16 bytes into a
page, and values of a file often 12 bytes into the first, so that it is not left to chance.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

import numpy as np

from labeled._numba import pays_off
from labeled.errors import ReadError
from labeled.formats.region import Array, Ints
from labeled.permute import compiled
from labeled.permute.plan import address_of

GROUPS = Path("/proc/self/cgroup")
MOUNTED = Path("/sys/fs/cgroup")
STATUS = Path("/proc/self/status")

PAGE_BYTES, LINE_BYTES = 4096, 64
# Within a page memory lies too close if it begins less than the first behind the bytes of the file.
# It is made to begin at least the second behind them, at the beginning of a cache line.
CLOSE_BYTES, DISTANCE_BYTES = 16, 256

KEPT_BYTES = 16 * 1024 * 1024  # the largest buffer a thread keeps from one read to the next

BLOCK_BYTES = 4 << 20  # what is read at once of examples out of order, or where HDF5 reads them

STREAMED_BYTES = 8 << 20  # rows are scattered past the caches over arrays from this size on

PICKED_BYTES = 1 << 16  # less than this is picked by NumPy, which is called sooner

# so much is picked at a time where NumPy copies rows twice: the second time out of the cache
CACHED_BYTES = 192 * 1024


@functools.cache
def machine_bytes() -> float:
    """Return how much memory this process may have; infinity if no limit is known."""
    try:
        physical: float = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        physical = float("inf")
    return min([physical, *_group_limits()])


def available_bytes() -> float:
    """Return how much more memory this process may take than it has of its own now."""
    for line in _lines(STATUS):
        if line.startswith("RssAnon:"):
            return machine_bytes() - (int(line.split()[1]) << 10)
    return machine_bytes()


def _group_limits() -> Iterator[float]:
    """Yield the limits of the groups of this process, version 1 and 2, and of all around them.

    In a container what is mounted may begin at its own group, whatever that is called outside:
    what is not there is passed over, up to the root of the mount.
    """
    for line in _lines(GROUPS):
        number, controllers, path = line.rstrip("\n").split(":", 2)
        if number == "0":
            mounts, name = [MOUNTED, MOUNTED / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            mounts, name = [MOUNTED / "memory"], "memory.limit_in_bytes"
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        for mount in mounts:
            for group in (inside, *inside.parents):
                for text in _lines(mount / group / name):
                    if text.strip().isdigit():  # or "max"
                        yield float(text)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return []


# where bytes are read to


# buffers of each thread, by use; they stay in its cache because the next read reuses them
_SCRATCH = threading.local()


def scratch(use: str, nbytes: int, offset: int = 0) -> Array:
    """Return `nbytes` bytes of this thread's memory for `use`; the next call reuses them.

    What is read there from a file should say from which `offset`, to lie well for that.
    """
    held = _SCRATCH.__dict__.get(use)
    if held is None or len(held) < nbytes + PAGE_BYTES:
        # Let go of first: beside the smaller one it would leave holes that no larger one fits.
        held = _SCRATCH.__dict__[use] = None
        held = np.empty(nbytes + PAGE_BYTES, np.uint8)
        if nbytes <= KEPT_BYTES:
            _SCRATCH.__dict__[use] = held
    line = -(-(offset + DISTANCE_BYTES) // LINE_BYTES) * LINE_BYTES
    begin = (line - address_of(held)) % PAGE_BYTES
    return held[begin : begin + nbytes]


def aliases_pages(target: Array, offset: int) -> bool:
    """Whether bytes from `offset` of a file are better not read directly to an array.

    Examples
    --------
    >>> page = np.empty(2 * PAGE_BYTES, np.uint8)
    >>> page = page[-page.ctypes.data % PAGE_BYTES :]
    >>> [aliases_pages(page[16:], offset) for offset in (12, 16, 5 * PAGE_BYTES + 15)]
    [True, False, True]
    """
    return 0 < (address_of(target) - offset) % PAGE_BYTES < CLOSE_BYTES


# moving rows


def put_rows(out: Array, place: slice | Ints, rows: Array, wanted: Ints | None = None) -> None:
    """Store ``out[place] = rows[wanted]``; scattered rows go as single items of many bytes.

    NumPy moves such items up to seven times faster than rows of small numbers. Where compiled
    loops are at hand they go past the caches, twice as fast, to an array larger than these.
    """
    alike = rows.dtype == out.dtype and rows.shape[1:] == out.shape[1:] and rows.size > 0
    packed = rows.flags.c_contiguous and out.flags.c_contiguous
    if isinstance(place, slice) or out.ndim == 1 or out.dtype.hasobject or not (alike and packed):
        out[place] = rows if wanted is None else np.take(rows, wanted, axis=0, mode="clip")
        return
    streams = out.nbytes >= STREAMED_BYTES and pays_off(rows.nbytes)
    if streams and compiled.kernels().scatter(out, place, rows, wanted):
        return
    if wanted is not None:
        rows = np.take(rows, wanted, axis=0, mode="clip")
    n_bytes = rows[0].nbytes
    items(out, n_bytes)[place] = items(rows, n_bytes)


def take_rows(stored: Array, rows: Ints, out: Array) -> None:
    """Store ``out[...] = stored[rows]``, of one dtype, both C-contiguous; rows are in range.

    From an array larger than the caches compiled loops, where they are at hand, ask for each
    row some time before it is copied.
    """
    large = stored.nbytes >= STREAMED_BYTES and out.nbytes >= PICKED_BYTES
    if large and not out.dtype.hasobject and pays_off(out.nbytes):
        row_bytes = out.nbytes // len(out)
        target = out.reshape(-1).view(np.uint8).reshape(len(out), row_bytes)
        if compiled.kernels().pick(stored.reshape(-1).view(np.uint8), rows * row_bytes, target):
            return
    np.take(stored, rows, axis=0, out=out, mode="clip")


def pick_rows(stored: Array, at: Ints, target: Array) -> None:
    """Copy the rows that begin at some bytes of `stored` to `target`, ``(len(at), row_bytes)``."""
    row_bytes = target.shape[1]
    first = int(at[0]) % row_bytes if len(at) else 0
    if not ((at - first) % row_bytes).any():  # whole rows apart, as in a contiguous source
        n = (len(stored) - first) // row_bytes
        rows = stored[first : first + n * row_bytes].reshape(n, row_bytes)
        take_rows(rows, at // row_bytes, target)
        return
    if pays_off(target.nbytes) and compiled.kernels().pick(stored, at, target):
        return
    item = np.dtype((np.void, row_bytes))  # rows that begin at every byte
    anywhere = np.ndarray(max(len(stored) - row_bytes + 1, 0), item, stored, strides=(1,))
    step = max(1, CACHED_BYTES // row_bytes)
    for a in range(0, len(at), step):
        items(target, row_bytes)[a : a + step] = anywhere[at[a : a + step]]


def items(rows: Array, row_bytes: int) -> Array:
    """View C-contiguous rows as items of one type without fields: each moves as a whole."""
    return rows.reshape(-1).view(np.dtype((np.void, row_bytes)))


# what texts take


TEXT_BYTES = 256  # of a text in memory, as long as none has been read
# texts that are read first, and at how many places, to estimate their length
FIRST_TEXTS, TEXT_PLACES = 64, 8


def text_sizes(rows: Array) -> Ints:
    """Return what each row of texts takes in memory, itself included."""
    sizes = np.full(len(rows), rows.nbytes // max(len(rows), 1))
    if rows.dtype.hasobject and rows.size:
        each = np.fromiter(map(sys.getsizeof, rows.flat), np.int64, rows.size)
        sizes += each.reshape(len(rows), -1).sum(axis=1)
    return sizes


def text_row_bytes(read: Callable[[int, int], Array], n_rows: int) -> int:
    """Return what a row of texts takes in memory, as far as a few from several places tell.

    Places that cannot be read are passed over: reading them in earnest says why.
    """
    few, sizes = FIRST_TEXTS // TEXT_PLACES, []
    starts = np.linspace(0, max(n_rows - few, 0), TEXT_PLACES, dtype=np.int64)
    for start in np.unique(starts).tolist():
        with suppress(ReadError):
            sizes.append(text_sizes(np.asarray(read(start, min(start + few, n_rows)))))
    found = np.concatenate(sizes) if sizes else np.zeros(0)
    return max(int(found.mean()), 1) if len(found) else TEXT_BYTES
