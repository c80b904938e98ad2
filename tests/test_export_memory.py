"""``memory=`` of records bounds by how much the process grows, or is refused before any work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labeled
from labeled.errors import LoaderError

pytestmark = pytest.mark.slow

MIB = 1 << 20

SCRIPT = """
import ctypes, os, sys
import numpy as np, labeled
from peak_memory import PeakMemory

free = getattr(ctypes.CDLL(None), "malloc_trim", lambda kept: None)
dims = {"x": ("batch", "height", "width", "channel")}


def write(path, n):
    row = np.random.default_rng(0).integers(0, 16, (1, 256, 256, 3), np.uint8)
    labeled.write(path, {"x": np.repeat(row, n, axis=0)}, dims=dims)


def grown(path):
    with PeakMemory() as memory:
        labeled.convert(path, "x.rec", overwrite=True, memory="16 MiB")
    free(0)
    return memory.peak_bytes


if os.fork() == 0:  # the file is written by another process
    write("large", 300)
    os._exit(0)
assert os.wait()[1] == 0
write("small", 64)
grown("small")  # imports
free(0)
print(grown("large"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less")
def test_growth_stays_within_the_memory(tmp_path: Path) -> None:
    """Pictures of 56 MiB through a budget of 16."""
    pytest.importorskip("PIL")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 16 * MIB


def test_memory_that_a_picture_does_not_fit_in_is_refused(tmp_path: Path) -> None:
    dims = {"x": ("batch", "height", "width", "channel")}
    path = labeled.write(tmp_path / "x", {"x": np.zeros((2, 1024, 1024, 3), np.uint8)}, dims=dims)
    words = r"memory='8 MiB' is too small for source 'x'.*give memory='15 MiB'"
    with pytest.raises(LoaderError, match=words):
        labeled.convert(path, tmp_path / "y.rec", memory="8 MiB")
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert labeled.convert(path, tmp_path / "y.rec", memory="15 MiB")
