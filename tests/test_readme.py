"""The tour of the README, run as a reader would run it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import xarray as xr

import labeled

README = Path(__file__).parent.parent / "README.md"
TOUR = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert sum(bool(line.strip()) for code in TOUR for line in code.splitlines()) <= 30


def test_the_tour_runs_and_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}

    for code in TOUR:
        exec(compile(code, str(README), "exec"), names)

    assert list(tmp_path.iterdir()) == [tmp_path / "pictures.hdf5"]
    (shown,) = re.findall(r"```text\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert capsys.readouterr().out.replace(f"{tmp_path}/", "") == shown
    same, images = names["same"], names["images"]
    assert isinstance(same, labeled.Dataset)
    assert isinstance(images, xr.DataArray)
    xr.testing.assert_equal(same["images"].variable.load(), images.variable)


def test_every_command_the_readme_names_exists() -> None:
    from labeled.cli.main import main

    named = set(re.findall(r"labeled (\w+) (?:FILE|\[|--)", README.read_text(encoding="utf-8")))
    assert named
    assert named <= set(main.commands)
