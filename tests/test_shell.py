"""Commands that are printed to be copied into a shell mean there what they say."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labeled

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="needs bash")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="such names are none elsewhere")
def test_what_the_doctor_prints_fixes_files_of_odd_names(tmp_path: Path) -> None:
    odd = os.fsdecode(b'-it\'s "a" $HOME `id` \xc3\xa9 =*.h5')
    x = np.arange(3000 * 16, dtype="u1").reshape(3000, 16)
    labeled.write(tmp_path / odd, {"a=b c": x, "-n": x}, chunks=1)
    labelled = [sys.executable, "-m", "labeled"]
    found = subprocess.run([*labelled, "doctor", f"./{odd}"], cwd=tmp_path, capture_output=True)
    shown = found.stdout.decode().rpartition("fix it with:\n")[2].strip()
    assert "\n" not in shown, found.stderr
    command = f'labeled() {{ "{sys.executable}" -m labeled "$@"; }}; {shown}'
    subprocess.run([BASH, "-c", command], cwd=tmp_path, capture_output=True, check=True)
    (made,) = [name for name in os.listdir(tmp_path) if ".fixed" in name]
    fixed = labeled.open_dataset(tmp_path / made)
    assert fixed.sources == ("-n", "a=b c")
    assert all(np.array_equal(fixed[name].values, x) for name in fixed.sources)
    assert labeled.doctor(tmp_path / made).healthy
