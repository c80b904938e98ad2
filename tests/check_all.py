"""``make check-all``: the suite with the oldest and the newest dependencies, on every Python.

Each combination gets a throw-away virtual environment: the newest of everything on every
supported Python that is installed, and on the oldest one also the lowest versions that
pyproject.toml allows. Nothing outside a temporary folder is changed. Words after ``--``
go to pytest: ``python tests/check_all.py --only oldest -- tests/test_selection.py``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
BIN = "Scripts" if sys.platform == "win32" else "bin"


@dataclass(frozen=True)
class Combination:
    """One Python with one choice of dependencies."""

    name: str
    python: str
    resolution: str


COMBINATIONS = (
    Combination("oldest", PYTHONS[0], "lowest-direct"),
    *(Combination(f"newest-{python}", python, "highest") for python in PYTHONS),
)


def main(words: Sequence[str] | None = None) -> int:
    """Check every combination, print one line for each, and return 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="WORD", default="", help="part of a combination's name")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest, after --")
    given = parser.parse_args(words)
    wanted = [one for one in COMBINATIONS if given.only in one.name]
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="labeled-check-") as folder:
        uv = installed_uv(Path(folder))
        for one in wanted:
            began = perf_counter()
            outcome = check(one, uv, Path(folder), given.pytest)
            outcomes.append((one.name, outcome, perf_counter() - began))
            say_outcome(*outcomes[-1])
    print("\nIn short:")
    for line in outcomes:
        say_outcome(*line)
    ran = [outcome for _, outcome, _ in outcomes if not outcome.startswith("not run")]
    return 0 if ran and all(outcome == "passed" for outcome in ran) else 1


def say_outcome(name: str, outcome: str, seconds: float) -> None:
    print(f"{name:12} {outcome}  ({seconds:.0f} s)", flush=True)


def installed_uv(folder: Path) -> Path:
    """Install uv, which can resolve to the lowest versions, in an environment of its own."""
    venv.create(folder / "uv", with_pip=True)
    run([folder / "uv" / BIN / "python", "-m", "pip", "install", "-q", "uv"], check=True)
    return folder / "uv" / BIN / "uv"


def installed_python(version: str) -> Path | None:
    """Return a Python of this version that runs; pyenv's stand-ins on the path may not."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    folders += sorted(Path.home().glob(f".pyenv/versions/{version}*/bin"), reverse=True)
    for folder in folders:
        path = folder / f"python{version}"
        if path.is_file() and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return None


def check(one: Combination, uv: Path, folder: Path, pytest_words: Sequence[str]) -> str:
    """Install one combination and run the suite in it; return how it went."""
    base = installed_python(one.python)
    if base is None:
        return f"not run: Python {one.python} is not installed"
    place = folder / one.name
    python = place / BIN / "python"
    run([uv, "venv", "-q", "--python", base, place], check=True)
    install = [uv, "pip", "install", "-q", "--python", python, "--resolution", one.resolution]
    if run([*install, "-e", ".[test]"]):
        return "FAILED to install"
    run([uv, "pip", "list", "-q", "--python", python])
    failed = run([python, "-m", "pytest", "-n", "2", "-q", "-p", "no:cacheprovider", *pytest_words])
    return "FAILED" if failed else "passed"


def run(command: Sequence[str | Path], *, check: bool = False) -> int:
    """Run a command in the root of the project, showing it, and return its exit code."""
    print("$", *map(str, command), flush=True)
    return subprocess.run([str(word) for word in command], cwd=ROOT, check=check).returncode


if __name__ == "__main__":
    sys.exit(main())
