"""Peak memory of one way, in a process of its own, sampled from outside.

Counted is what anonymous and shared memory grow by after opening: mapped file pages are not,
the kernel takes them back when it likes. Processes that the way starts are counted with the
part of their memory that is theirs alone.

Importing the libraries of a way may take longer than running it, so that a :class:`Nursery`
imports them once and forks a process for each way. That one opens the way, says so, waits for
a line, and runs an epoch. Ways that need no further libraries have a nursery without any.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from time import perf_counter, sleep

from benchmarks.rows import ways_of
from benchmarks.timing import Measured, Way, give_back_freed, run, settle_allocator

OPENING_S = 60
"""How long a way may take to open before its process ends itself."""

SAMPLE_S = 0.001
CHILDREN_S = 0.05


def status_bytes(pid: int) -> int:
    """Return anonymous and shared memory of one process; 0 once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(x.split()[1]) << 10 for x in lines if x.startswith(("RssAnon", "RssShmem")))


def own_bytes(pid: int) -> int:
    """Return the share of anonymous and shared memory that is this process's own."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(x.split()[1]) << 10 for x in lines if x.startswith(("Pss_Anon", "Pss_Shmem")))


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and theirs."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    except OSError:
        pass
    return found


class Nursery:
    """A process that makes a process for each way to be watched.

    Parameters
    ----------
    arguments : sequence of str
        Given to this module, run as a program.
    folder : path
        Where it runs.
    """

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peak", *arguments],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def growth(self, name: str) -> tuple[int | None, str]:
        """Run a way; return its peak growth in bytes, or None and what went wrong."""
        try:
            answer = self._ask(name)
            if not answer.isdigit():
                return None, answer or "the process that measures memory ended"
            child = int(answer)
            base = peak = status_bytes(child)
            self._say("go")
        except OSError as fault:
            return None, str(fault)
        looked = perf_counter()
        while now := status_bytes(child):  # none are left of a process that has ended
            peak = max(peak, now)
            if perf_counter() - looked > CHILDREN_S:
                if children := descendants(child):
                    peak = max(peak, sum(map(own_bytes, [child, *children])))
                looked = perf_counter()
            sleep(SAMPLE_S)
        return peak - base, ""

    def _ask(self, name: str) -> str:
        self._say(name)
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def watch(
    arguments: Sequence[str], found: Iterable[Measured], seconds: float, folder: Path
) -> dict[str, str]:
    """Measure the peak memory of ways, two at a time, where the system tells.

    Parameters
    ----------
    arguments, folder
        Of the :class:`Nursery`; the arguments are followed by those of :func:`serve`.
    seconds : float
        How much of an epoch is run.

    Returns
    -------
    dict
        Names of ways that could not be measured, and why.
    """
    failed: dict[str, str] = {}
    if not Path("/proc/self/status").exists() or not hasattr(os, "fork"):
        return failed
    ran = [m for m in found if m.error is None]
    groups = [[m for m in ran if bool(m.way.needs) == needing] for needing in (False, True)]

    def one(group: list[Measured]) -> None:
        needs = sorted({name for m in group for name in m.way.needs})
        nursery = Nursery([*arguments, str(seconds), *needs], folder)
        try:
            for m in group:
                m.peak_bytes, why = nursery.growth(m.way.full_name)
                if m.peak_bytes is None:
                    failed[m.way.full_name] = why
        finally:
            nursery.close()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, filter(None, groups)))
    return failed


def serve(ways: Iterable[Way], arguments: Sequence[str]) -> None:
    """Be a nursery's process: read names of ways, and run each in a fork.

    Parameters
    ----------
    arguments : sequence of str
        How many seconds of an epoch are run, and libraries to import first.
    """
    seconds, by_name = float(arguments[0]), {way.full_name: way for way in ways}
    for needed in arguments[1:]:
        import_module(needed)
    settle_allocator()
    while name := sys.stdin.readline().strip():
        child = os.fork()
        if not child:
            _be_watched(by_name[name], seconds)
        os.waitpid(child, 0)


def _be_watched(way: Way, seconds: float) -> None:
    """Be the process that is watched, and end."""
    signal.alarm(int(seconds) + OPENING_S)
    answered = False
    try:
        epoch = way.make()
        give_back_freed()
        print(os.getpid(), flush=True)
        answered = True
        sys.stdin.readline()
        run(epoch, seconds)
    except BaseException as fault:
        if not answered:
            print(traceback.format_exception_only(fault)[-1].strip(), flush=True)
    finally:
        os._exit(0)


def main() -> None:
    folder, scale, workload = sys.argv[1:4]
    serve(ways_of(Path(folder), int(scale), workload), sys.argv[4:])


if __name__ == "__main__":
    main()
