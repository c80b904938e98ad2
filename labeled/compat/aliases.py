"""An older package's import paths, taken by the modules that stand in for it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from types import ModuleType


def put_aliases(name: str, package: str, modules: Iterable[str]) -> dict[str, ModuleType]:
    """Put the `modules` of `package` (paths that begin with a dot, or "") under `name`."""
    return put_modules({name + path: importlib.import_module(package + path) for path in modules})


def put_modules(made: dict[str, ModuleType]) -> dict[str, ModuleType]:
    """Put modules under other names."""
    for alias, module in made.items():
        if sys.modules.get(alias, module) is not module:
            raise ImportError(f"{alias!r} is imported already, from {sys.modules[alias]}")
    sys.modules.update(made)
    return made
