"""Peak memory of one way, in a fresh process, sampled from outside.

Counted is what anonymous and shared memory grow by after opening: mapped file pages are not,
the kernel takes them back when it likes. Processes that the way starts are counted with the
part of their memory that is theirs alone. ``python -m benchmarks.memory`` is the process that
is watched: it opens the way, says so, waits for a line, and runs one epoch.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter, sleep

ROOT = Path(__file__).parent.parent
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


def growth(arguments: Sequence[str], limit_s: float) -> tuple[int | None, str]:
    """Run a way in a fresh process; return its peak growth in bytes, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.memory", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    ready = process.stdout.readline().strip()
    if ready != "ready":
        _, errors = process.communicate()
        return None, (errors.strip().splitlines() or ["it ended at once"])[-1]
    base = peak = status_bytes(process.pid)
    process.stdin.write("go\n")
    process.stdin.flush()
    began, looked = perf_counter(), 0.0
    while process.poll() is None and perf_counter() - began < limit_s:
        peak = max(peak, status_bytes(process.pid))
        if perf_counter() - looked > CHILDREN_S:
            if children := descendants(process.pid):
                peak = max(peak, sum(map(own_bytes, [process.pid, *children])))
            looked = perf_counter()
        sleep(SAMPLE_S)
    if process.poll() is None:
        process.kill()
    process.communicate()
    return peak - base, ""


def main() -> None:
    from benchmarks.measure import run, settle_allocator
    from benchmarks.rows import find_way

    folder, scale, workload, name, limit_s = sys.argv[1:]
    way = find_way(Path(folder), int(scale), workload, name)
    settle_allocator()
    epoch = way.make()
    print("ready", flush=True)
    sys.stdin.readline()
    run(epoch, float(limit_s))


if __name__ == "__main__":
    main()
