"""The maps of packages are true: they name every module, and none that is not there."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

MAPPED = (
    "loader",
    "catalog",
    "samplers",
    "formats",
    "formats.hdf5",
    "api",
)


@pytest.mark.parametrize("name", MAPPED)
def test_a_package_says_which_file_to_open(name):
    package = importlib.import_module(f"labeled.{name}")
    modules = {found.name for found in pkgutil.iter_modules(package.__path__)}
    told = set(re.findall(r"(?<!`)`([a-z0-9_]+)`(?!`)", package.__doc__))
    assert told == modules
