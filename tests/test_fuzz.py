"""A smoke run of `fuzz`: damaged files of every layout, and that the tool sees what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import fuzz
import pytest
from fuzz_layouts import LAYOUTS, X, Y

pytestmark = pytest.mark.slow


@pytest.mark.skipif(sys.platform == "win32", reason="children are forked")
def test_damaged_files_are_refused_by_name_or_read_as_h5py_reads_them(tmp_path: Path) -> None:
    each = 8 * len(LAYOUTS)
    words = ["--mutants", str(each), "--seed", "5", "--minutes", "3", "--keep", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, fuzz.__file__, *words], capture_output=True, text=True, timeout=200
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"seed 5: {each} mutants" in ran.stdout
    assert not [*tmp_path.iterdir()]


def test_values_that_are_not_those_of_h5py_are_seen(tmp_path: Path) -> None:
    path = str(LAYOUTS["tree, gzip"](tmp_path))
    stored = {"x": X, "y": Y}
    assert fuzz.judge(path, {}, stored) == "same values"
    for other in (X + 1, X[:-1], X.astype("f4") + 0.5, None):
        changed = {**stored, "x": other}
        assert fuzz.judge(path, {}, changed) == "FAULT: x differs from h5py"
        assert fuzz.judge(path, stored, changed) == "values as written"


def test_other_errors_than_ours_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> None:
        raise UnicodeError("no")

    monkeypatch.setattr(fuzz, "by_us", broken)
    assert fuzz.judge("a.h5", {}, None).startswith("FAULT: UnicodeError")
