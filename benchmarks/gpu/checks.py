"""The tests that need a GPU, run beside the figures."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.card import Figures

HERE = Path(__file__).resolve().parents[2]
FILES = ("test_gpu.py", "test_gpu_permute.py", "test_spaces_convert.py")
LOOK_S = 2.0
MAX_TOLD = 20
PROCESSES = 4
TEST_S = 100
"""What one test may take."""


def tests(bench: Bench) -> Figures:
    """Run them, also where plugins of others are missing; tell on the way how far they are.

    With pytest-xdist and pytest-timeout a test that hangs or dies costs no other.
    """
    files = [str(HERE / "tests" / name) for name in FILES]
    asked = [sys.executable, "-m", "pytest", "-v", "-rfEs", "-p", "no:cacheprovider"]
    asked += ["-W", "default", "-o", "addopts=", "--continue-on-collection-errors", "-m", "gpu"]
    if find_spec("xdist") is not None:
        asked += ["-n", str(PROCESSES)]
    if find_spec("pytest_timeout") is not None:  # by a thread: a device is waited for in C
        asked += ["--timeout", str(TEST_S), "--timeout-method", "thread"]
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*asked, *files], cwd=HERE, stdout=said, stderr=said)
        while True:
            try:
                ended = process.wait(LOOK_S)
            except subprocess.TimeoutExpired:
                bench.tell(told_by(said))
            else:
                return {"rc": ended, **told_by(said)}


def told_by(said: IO[str]) -> Figures:
    """Return how many tests passed, and what is said of the others."""
    said.seek(0)
    lines = said.read().strip().splitlines() or ["nothing was said"]
    ways = ("PASSED", "FAILED", "ERROR", "SKIPPED")
    counts = {f"n_{way.lower()}": sum(f" {way} " in f"{line} " for line in lines) for way in ways}
    others = [line for line in lines if line.startswith(ways)]
    told = {str(number): line[:300] for number, line in enumerate(others[:MAX_TOLD])}
    return {**counts, "last": lines[-1][:300], **told}
