"""Fuel by its old names and rules: datasets, streams, schemes, transformers.

Code written for it runs after :func:`install_aliases`. The rules are the old ones to the letter
where they differ from the native ones (docs/traps_fuel.md shows both beside each other); rows are
read by this library.
"""

from __future__ import annotations

from types import ModuleType

from labeled.compat import put_aliases
from labeled.compat.fuel.config_parser import config

__all__ = ["MODULES", "config", "install_aliases"]

MODULES = {
    "": "",
    ".config_parser": ".config_parser",
    ".datasets": ".datasets",
    ".datasets.base": ".datasets.base",
    ".datasets.hdf5": ".datasets.hdf5",
    ".datasets.text": ".datasets.base",
    ".datasets.toy": ".datasets.base",
    ".exceptions": ".config_parser",
    ".iterator": ".streams",
    ".schemes": ".schemes",
    ".server": ".server",
    ".streams": ".streams",
    ".transformers": ".transformers",
    ".transformers.defaults": ".transformers.image",
    ".transformers.image": ".transformers.image",
    ".transformers.sequences": ".transformers",
    ".transformers.text": ".transformers",
    ".utils": ".utils",
    ".utils.cache": ".utils",
    ".utils.parallel": ".server",
}
"""The paths that old code imports, and the modules of this package that stand there."""


def install_aliases(name: str = "fuel") -> dict[str, ModuleType]:
    """Make ``import fuel.datasets`` and the like find the modules of this package.

    Parameters
    ----------
    name : str
        What the package is to be called.

    Returns
    -------
    dict
        The entries put into ``sys.modules``; delete them to undo it.

    Raises
    ------
    ImportError
        If another package of that name is imported already.

    Examples
    --------
    >>> import sys
    >>> aliases = install_aliases("my_fuel")
    >>> from my_fuel.schemes import SequentialScheme
    >>> list(SequentialScheme(5, 3).get_request_iterator())
    [[0, 1, 2], [3, 4]]
    >>> for name in aliases:
    ...     del sys.modules[name]
    """
    return put_aliases(name, __name__, MODULES)
