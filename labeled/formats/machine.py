"""How much memory this process may have: the machine's, or less in a container or a job.

Whoever takes more is ended by the system without a word, so it is told before. Limits come
from the control groups that a process is in, those of Docker, Kubernetes and Slurm too: each
counts, and so does each that it is part of.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

GROUPS = Path("/proc/self/cgroup")
MOUNTED = Path("/sys/fs/cgroup")
STATUS = Path("/proc/self/status")


def machine_bytes() -> float:
    """Return how much memory this process may have; without end where nobody tells."""
    return min([_physical_bytes(), *_group_limits()])


def room_bytes() -> float:
    """Return how much more memory this process may take than it has of its own now."""
    return machine_bytes() - _own_bytes()


def _physical_bytes() -> float:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")


def _own_bytes() -> int:
    """Return the memory that is this process's alone; 0 where the system does not tell."""
    for line in _lines(STATUS):
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    return 0


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
