"""The tour of the README, run as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import labeled

README = Path(__file__).parent.parent / "README.md"
TOUR = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_has_one_tour_of_about_thirty_lines() -> None:
    assert len(TOUR) == 1
    code = [line for line in TOUR[0].splitlines() if line.strip()]
    assert 25 <= len(code) <= 40


def test_the_tour_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    exec(compile(TOUR[0], str(README), "exec"), names)

    assert list(tmp_path.iterdir()) == [tmp_path / "pictures.hdf5"]
    assert re.search(r"targets +\(batch: 1,000, index: 1\) +uint8", capsys.readouterr().out)
    batch, same = names["batch"], names["same"]
    assert isinstance(batch, labeled.Batch)
    assert isinstance(same, labeled.Dataset)
    assert (same["images"].values == batch["images"].values).all()


def test_every_command_the_readme_names_exists() -> None:
    from labeled.cli.main import main

    named = set(re.findall(r"labeled (\w+) (?:FILE|\[|--)", README.read_text(encoding="utf-8")))
    assert named
    assert named <= set(main.commands)
