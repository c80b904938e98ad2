"""The watcher of a process's own memory, beside an allocation of known size."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import mmap, time
from labeled.cli.memory import PeakMemory

with PeakMemory() as memory:
    ballast = mmap.mmap(-1, 64 << 20)
    ballast.write(bytes(64 << 20))
    given_up = time.monotonic() + 30
    while memory.peak_bytes < 60 << 20 and time.monotonic() < given_up:
        time.sleep(0.001)  # a busy machine may let the watcher look late
    ballast.close()
print(memory.peak_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less")
def test_memory_taken_and_given_back_is_seen():
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60
    )
    assert 60 << 20 < int(out.stdout) < 200 << 20  # the pages and the bytes written to them
