"""Files that are not complete yet: their names, and whether anybody still writes them.

A part lies beside its target and is called ``.TARGET.WRITER.TOKEN.part``. WRITER tells the
machine since it was last started (and the process namespace), the process, and when that
process began; so whoever finds a part later knows whether its writer can still be alive.

A part is *dead* only if it was begun on this machine, since it was last started, by a
process that is gone. Nobody can tell this of a part that another machine or another
container began, or this machine before a restart: such parts are told, never removed.

This module knows names and processes, and nothing of what is in a file.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import re
import secrets
import shutil
import uuid
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Literal

log = logging.getLogger(__name__)

PART = ".part"
"""How the names of files end that are not complete yet."""

STEM_BYTES = 160
"""Of the target's name in that of its part: file systems allow 255 bytes in all."""

State = Literal["dead", "living", "unknown"]

_NAME = re.compile(r"\.([0-9a-f]{12})-([0-9a-f]+)-([0-9a-f]+)\.[0-9a-f]{12}" + re.escape(PART))
_BOOT = "/proc/sys/kernel/random/boot_id"
_NAMESPACE = "/proc/self/ns/pid"
_ENDED = "ZX"


@dataclass(frozen=True, slots=True)
class Part:
    """A file (or folder of files) that somebody began, and did not complete so far."""

    path: str
    state: State
    """Whether its writer is alive; "unknown" if it is not of this machine, as it runs now."""
    process: int

    @property
    def n_bytes(self) -> int:
        """What it takes on the disk, about."""
        inside = [os.path.join(d, f) for d, _, files in os.walk(self.path) for f in files]
        total = 0
        for path in inside or [self.path]:
            with contextlib.suppress(OSError):
                total += os.path.getsize(path)
        return total

    def remove(self) -> None:
        """Remove it; quietly where somebody else just did, or it may not be removed."""
        with contextlib.suppress(OSError):
            if os.path.isdir(self.path):
                shutil.rmtree(self.path)
            else:
                os.unlink(self.path)


def part_name(target: str) -> str:
    """Return a new path beside a target, for a part that this process writes."""
    folder, name = os.path.split(target)
    process = os.getpid()
    writer = f"{_machine()}-{process:x}-{_began(process) or 0:x}"
    return os.path.join(folder, f".{_stem(name)}.{writer}.{secrets.token_hex(6)}{PART}")


def parts_of(target: str) -> list[Part]:
    """Return the parts of a target, whoever writes them or wrote them."""
    folder, name = os.path.split(target)
    begin, found = f".{_stem(name)}", []
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return []
    for each in sorted(names):
        if each.startswith(begin):
            told = _NAME.fullmatch(each, len(begin))
            if told is not None:
                process, began = int(told[2], 16), int(told[3], 16)
                state: State = "unknown"
                if told[1] == _machine():
                    state = "living" if _lives(process, began) else "dead"
                found.append(Part(os.path.join(folder, each), state, process))
    return found


def remove_dead(target: str) -> list[Part]:
    """Remove the parts of a target whose writers are gone; return them."""
    dead = [part for part in parts_of(target) if part.state == "dead"]
    for part in dead:
        log.info("removing %r, whose writer (process %d) is gone", part.path, part.process)
        part.remove()
    return dead


def _stem(name: str) -> str:
    """Shorten a name, never within a character."""
    return os.fsencode(name)[:STEM_BYTES].decode("utf-8", "ignore")


@cache
def _machine() -> str:
    """Return a name for this machine since it was started, and the processes that are seen."""
    try:
        with open(_BOOT, encoding="ascii") as file:
            told = f"{file.read().strip()} {os.stat(_NAMESPACE).st_ino}"
    except OSError:
        if platform.system() == "Linux":  # a sandbox that hides it: nobody can tell whose a part is
            return secrets.token_hex(6)
        told = f"{platform.node()} {uuid.getnode()}"
    return blake2b(told.encode(), digest_size=6).hexdigest()


def _lives(process: int, began: int) -> bool:
    """Whether a process that began then still runs; in doubt it does."""
    if os.name == "nt":
        return True  # asking there would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    found = _began(process)
    return found is None or not began or found == began


def _began(process: int) -> int | None:
    """Return when a process began, in ticks; 1 if it has ended already, None if nobody tells."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return 1 if fields[0].decode() in _ENDED else int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
