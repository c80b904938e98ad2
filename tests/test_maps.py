"""The maps of packages are true: they name every module, and none that is not there."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

MAPPED = (
    "loader",
    "sources",
    "samplers",
    "formats",
    "formats.hdf5",
    "dataset",
    "writing",
)


@pytest.mark.parametrize("name", MAPPED)
def test_a_package_says_which_file_to_open(name):
    package = importlib.import_module(f"labeled.{name}")
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    told = set(re.findall(r"(?<!`)`([a-z0-9_]+)`(?!`)", package.__doc__))
    assert told == modules


def test_files_that_contributing_names_are_there():
    root = Path(__file__).parent.parent
    named = re.findall(r"`([a-z0-9_/]+\.py)`", (root / "CONTRIBUTING.md").read_text())
    assert len(named) > 5
    assert [
        one for one in named if not any((f / one).exists() for f in (root, root / "labeled"))
    ] == []
