"""Compiled code that cannot be kept for the next process is no reason to fail in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

pytest.importorskip("numba")

LOOP = """
from labeled.permute.compiler import loop

@loop
def doubled(number):
    return 2 * number
"""

FULL = """
import resource, signal
from doubling import doubled
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
print(doubled(4), doubled(4.5))
"""


@pytest.mark.skipif(os.name != "posix", reason="limits what a process may write")
def test_a_full_disk_does_not_end_the_loop_that_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "doubling.py").write_text(LOOP)
    here = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": here, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    ran = subprocess.run(
        [sys.executable, "-c", FULL], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (ran.stdout, ran.returncode) == ("8 9.0\n", 0), ran.stderr
