"""Copies of files on a disk of this machine, so that a file server is read once a machine.

``config.local_data_path`` (``FUEL_LOCAL_DATA_PATH``) names the folder of copies; without it
files are read where they are. They also are on any doubt: a copy of another size or older
than the file, a folder that cannot be written, a disk that would be more than 90 % full.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from labeled.compat.fuel.config_parser import config

MAX_DISK_USE = 0.9


def cache_file(filename: str) -> str:
    """Return the path of a local copy of a file, made if there is none; else its own path."""
    folder = config.local_data_path
    if not folder or not os.path.isfile(filename):
        return filename
    folder = os.path.abspath(os.path.expanduser(os.path.expandvars(folder)))
    path = os.path.abspath(filename)
    if path.startswith(os.path.join(folder, "")):
        return filename
    copy = os.path.join(folder, os.path.splitdrive(path)[1].lstrip(os.sep))
    try:
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        with _locked(f"{copy}.lock"):
            if not os.path.exists(copy) and _has_room(folder, os.path.getsize(path)):
                _copy(path, copy)
            return copy if _is_current(copy, path) else filename
    except OSError:
        return filename


def _has_room(folder: str, n_bytes: int) -> bool:
    disk = shutil.disk_usage(folder)
    return disk.used + n_bytes <= MAX_DISK_USE * disk.total


def _copy(path: str, copy: str) -> None:
    """Make a copy, which appears under its name only once it is whole."""
    handle, part = tempfile.mkstemp(dir=os.path.dirname(copy))
    os.close(handle)
    try:
        shutil.copy2(path, part)
        os.replace(part, copy)
    except BaseException:
        os.unlink(part)
        raise


def _is_current(copy: str, path: str) -> bool:
    if not os.path.exists(copy):
        return False
    here, there = os.stat(copy), os.stat(path)
    return here.st_size == there.st_size and here.st_mtime >= there.st_mtime


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Let one process in at a time; the system unlocks for those that die."""
    try:
        import fcntl  # not on Windows, where two processes may copy at once
    except ImportError:  # pragma: no cover
        yield
        return
    with open(path, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
