"""Whether the disk has room for values of variable length, before HDF5 is given them.

HDF5 reports a disk that is full while it stores arrays of numbers. While it stores texts or
rows of variable length it ends the process instead, without a word. So those are stored only
where there is room for them, and for what HDF5 still holds in its caches.

The trade-off: a user's quota is told by nobody beforehand, and others may fill the disk between
the question and the answer.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

import h5py
import numpy as np

from labeled.formats.region import Array

CACHED_BYTES = 4 << 20
"""What HDF5 holds at most of stretches within the file that it has not yet written."""

PIECE_BYTES = 64
"""What storing one text or row takes besides, and the place that refers to it."""

SLACK_BYTES = 1 << 20
"""For tables, attributes, and what else ends a file."""


def check_room(file: h5py.File, n_bytes: int) -> None:
    """Refuse values of variable length for which the file has no room.

    Parameters
    ----------
    file : h5py.File
        Open for writing.
    n_bytes : int
        What they take, from :func:`heap_bytes`.

    Raises
    ------
    OSError
        With the number that the system would give: ENOSPC or EFBIG.
    """
    if os.name == "nt":
        return  # free space is not told of open files there
    now, handle = file.id.get_filesize(), file.id.get_vfd_handle()
    needed = n_bytes + SLACK_BYTES
    limit = _longest_file()
    if limit is not None and now + needed > limit:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    stored, disk = os.fstat(handle), os.fstatvfs(handle)
    unwritten = now - min(now, stored.st_size)
    holes = max(0, min(now, stored.st_size) - stored.st_blocks * 512)
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and needed + unwritten + min(holes, CACHED_BYTES) > free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def heap_bytes(values: Array) -> int:
    """Return what storing values takes at most: heaps may be half empty.

    Examples
    --------
    >>> heap_bytes(np.array(["abc", "de"], object))
    138
    """
    if values.dtype.names is not None:
        return sum(heap_bytes(values[name]) for name in values.dtype.names)
    if values.dtype.kind != "O":
        return values.nbytes
    return sum(2 * _length(item) + PIECE_BYTES for item in values.reshape(-1).tolist())


def _length(item: Any) -> int:
    if isinstance(item, str):
        return len(item) if item.isascii() else 4 * len(item)
    if isinstance(item, np.ndarray):
        return heap_bytes(item)
    return len(item) if isinstance(item, bytes) else 0


def _longest_file() -> int | None:
    """Return how long this process may make a file, if there is a limit."""
    if sys.platform == "win32":
        return None
    import resource  # there is no such module elsewhere

    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return None if limit == resource.RLIM_INFINITY else limit
