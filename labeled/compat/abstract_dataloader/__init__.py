"""Abstract Dataloader by its old names and rules: protocols, base classes, compositions.

Code written for it runs after a change of import, or after :func:`install_aliases` with
none. The rules are the old ones to the letter (release 0.4.7, and what 0.3 had besides) where
they differ from those of :mod:`labeled.transforms`: parts without a transform are dropped, a
pipeline without a collate hands on its list, windows and sequences are cut short in silence.
"""

from __future__ import annotations

from types import ModuleType

from labeled.compat import put_aliases, put_modules
from labeled.compat.abstract_dataloader import abstract, ext, generic, spec

__all__ = ["abstract", "ext", "generic", "install_aliases", "spec"]

MODULES = ("", ".abstract", ".ext", ".generic", ".spec")
SPLIT = {
    "ext": ("augment", "graph", "sample"),
    "generic": ("composition", "sequence", "sync"),
}
"""What the old package had in several modules is in one here."""


def install_aliases(name: str = "abstract_dataloader") -> dict[str, ModuleType]:
    """Make ``import abstract_dataloader`` and the like find the modules of this package.

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
    >>> aliases = install_aliases("my_adl")
    >>> from my_adl.generic import ParallelTransforms
    >>> ParallelTransforms(x=abs)({"x": -1, "y": 2})
    {'x': 1}
    >>> for name in aliases:
    ...     del sys.modules[name]
    """
    made = put_aliases(name, __name__, dict(zip(MODULES, MODULES, strict=True)))
    inner = {f"{name}.{one}.{part}": made[f"{name}.{one}"] for one in SPLIT for part in SPLIT[one]}
    return made | put_modules(made | inner)
