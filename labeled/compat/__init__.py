"""Older libraries by their own names and rules, each a thin face over this one.

Their import paths are taken by the modules that stand in for them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType


def aliases_of(
    default: str, package: str, modules: Mapping[str, Iterable[str]]
) -> Callable[..., dict[str, ModuleType]]:
    """Return the function `install_aliases` of a package.

    `modules` maps paths of `package` to those by which old code imports what is there; each
    begins with a dot, or is empty.
    """

    def install_aliases(name: str = default) -> dict[str, ModuleType]:
        """Make imports of the old package find the modules of this one.

        Parameters
        ----------
        name : str
            What the package is to be called; its old name if not given.

        Returns
        -------
        dict
            The entries put into ``sys.modules``; delete them to undo it.

        Raises
        ------
        ImportError
            If another package of that name is imported already.
        """
        made: dict[str, ModuleType] = {}
        for new, olds in modules.items():
            module = importlib.import_module(package + new)
            made |= {name + old: module for old in olds}
        for alias, module in made.items():
            if sys.modules.get(alias, module) is not module:
                raise ImportError(f"{alias!r} is imported already, from {sys.modules[alias]}")
        sys.modules.update(made)
        for alias, module in made.items():
            parent, _, own = alias.rpartition(".")
            if parent in made and not hasattr(made[parent], own):
                setattr(made[parent], own, module)
        return made

    install_aliases(package)  # old paths below the package, too
    return install_aliases
