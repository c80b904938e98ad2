"""Commands that look at each file in a process of its own, on files that HDF5 never leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner, Result

import labeled
from labeled.cli.main import main


def run(*words: Any) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return Path(labeled.write(tmp_path / "b.hdf5", {"x": np.arange(5)}))


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The heap of its texts ends in a piece of no size, which HDF5 2.0 takes again and again."""
    path = tmp_path / "a.hdf5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(5)
        file["x"].dims[0].label = "batch"
    data = bytearray(path.read_bytes())
    free = data.index(b"GCOL") + 16 + 16 + 8  # behind the head of the heap and its one text
    data[free + 8 : free + 16] = bytes(8)
    path.write_bytes(data)
    return path


@pytest.mark.slow
def test_verify_leaves_a_damaged_file_and_goes_on(sound: Path, damaged: Path) -> None:
    words = [sys.executable, "-m", "labeled", "verify", damaged, sound, "--timeout", "15"]
    said = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert said.returncode == 1
    assert said.stderr.startswith("Error: ")
    assert str(damaged) in said.stderr
    assert said.stdout == f"{sound}: as written: x (5 rows)\n"


def test_a_file_that_takes_longer_than_allowed_is_named(sound: Path) -> None:
    said = run("verify", sound, "--timeout", 0.01)
    assert said.exit_code == 1
    assert f"{str(sound)!r} took more than 0.01 s" in said.stderr
    found = json.loads(run("verify", sound, "--timeout", 0.01, "--json").stdout)
    assert (found[0]["path"], found[0]["sound"]) == (str(sound), False)
    assert "took more than 0.01 s" in found[0]["error"]


def test_a_file_that_ends_the_process_is_named(
    sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = tmp_path / "python"
    dying.write_text("#!/bin/sh\nkill -SEGV $$\n")
    dying.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(dying))
    said = run("info", sound, "--isolated")
    assert said.exit_code == 1
    assert f"{str(sound)!r} ended the process that read it (SIGSEGV)" in said.stderr


@pytest.mark.parametrize("words", [(), ("--source", "x", "--json")])
def test_info_isolated_says_what_info_says(sound: Path, words: tuple[str, ...]) -> None:
    assert run("info", sound, *words, "--isolated").stdout == run("info", sound, *words).stdout


def test_errors_of_a_child_are_said_once(sound: Path) -> None:
    said = run("info", sound, "--isolated", "--source", "no")
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.count("Error: ") == 1
    assert "'no'" in said.stderr
