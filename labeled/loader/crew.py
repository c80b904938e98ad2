"""Threads that work for an iterator: started together, ended with it, never waited for in vain."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

log = logging.getLogger(__name__)

LOOK_UP_S = 1.0
"""How long a thread sleeps before it looks whether the iterator is still there."""


class Workplace(Protocol):
    """What threads share with the iterator they work for; refers to no iterator itself."""

    def work(self) -> bool:
        """Do one piece of work; False when there is none left."""
        ...


def start_threads(place: Workplace, count: int, name: str) -> list[threading.Thread]:
    """Start threads that work until nothing is left; they do not keep the program alive.

    Where the system allows no more of them there are fewer, even none: whoever waits works too.
    """
    threads: list[threading.Thread] = []
    for i in range(count):
        thread = threading.Thread(target=_work, args=(place,), name=f"{name}-{i}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            log.warning("%d of %d threads could be started: %s", i, count, error)
            break
        threads.append(thread)
    return threads


def _work(place: Workplace) -> None:
    while place.work():
        pass


def join_threads(threads: Sequence[threading.Thread]) -> None:
    """Wait until threads have ended, but for the one that waits."""
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()


def wake_without_waiting(changed: threading.Condition) -> None:
    """Wake whoever waits for a condition, where its lock is free.

    The garbage collector may call this in any thread, also in one that holds the lock;
    threads that sleep look up after :data:`LOOK_UP_S`.
    """
    if changed.acquire(blocking=False):
        try:
            changed.notify_all()
        finally:
            changed.release()


def _unlock_properties() -> None:
    """Give cached properties new locks in a forked child.

    Python 3.11 computes each under a lock that all objects of its class share. A thread that held
    it when the process was forked is not there to let go of it.
    """
    modules = [one for name, one in sys.modules.items() if name.partition(".")[0] == "labeled"]
    kinds = {one for module in modules for one in vars(module).values() if isinstance(one, type)}
    for value in (one for kind in kinds for one in vars(kind).values()):
        if isinstance(value, cached_property):
            vars(value)["lock"] = threading.RLock()


if sys.version_info < (3, 12) and hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_properties)
