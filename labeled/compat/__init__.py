"""Older libraries by their own names and rules, each a thin face over this one.

Their import paths are taken by the modules that stand in for them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType


def put_aliases(name: str, package: str, modules: Mapping[str, str]) -> dict[str, ModuleType]:
    """Put modules of `package` under `name`; paths (old to new) begin with a dot, or are empty."""
    made = {name + old: importlib.import_module(package + new) for old, new in modules.items()}
    return put_modules(made)


def put_modules(made: dict[str, ModuleType]) -> dict[str, ModuleType]:
    """Put modules under other names."""
    for alias, module in made.items():
        if sys.modules.get(alias, module) is not module:
            raise ImportError(f"{alias!r} is imported already, from {sys.modules[alias]}")
    sys.modules.update(made)
    for alias, module in made.items():
        parent, _, own = alias.rpartition(".")
        if parent in made and not hasattr(made[parent], own):
            setattr(made[parent], own, module)
    return made
