"""Pylearn2's data side by its old names and rules: spaces, specs, iteration, datasets.

Code written for it runs after :func:`install_aliases`. The rules are the old ones to the letter
where they differ from the native ones (docs/traps_pylearn2.md shows both beside each other). The
symbolic side, which was a graph of Theano variables, is a lazy dask graph here.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

from labeled.compat import put_aliases

config = SimpleNamespace(floatX="float64")
"""The one setting: what the dtype ``'floatX'`` stands for. Assign before making spaces."""

MODULES = {
    "": "",
    ".space": ".space",
    ".format": ".utils",
    ".format.target_format": ".utils",
    ".utils": ".utils",
    ".utils.data_specs": ".iteration",
    ".utils.iteration": ".iteration",
    ".utils.rng": ".utils",
    ".datasets": ".datasets",
    ".datasets.dataset": ".datasets",
    ".datasets.dense_design_matrix": ".datasets",
    ".datasets.hdf5": ".datasets",
    ".datasets.hdf5_deprecated": ".datasets",
    ".datasets.vector_spaces_dataset": ".datasets",
}
"""The paths that old code imports, and the modules of this package that stand there."""


def install_aliases(name: str = "pylearn2") -> dict[str, ModuleType]:
    """Make ``import pylearn2.space`` and the like find the modules of this package.

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
    >>> aliases = install_aliases("my_pylearn2")
    >>> from my_pylearn2.space import VectorSpace
    >>> VectorSpace(3)
    VectorSpace(dim=3, dtype=float64)
    >>> for name in aliases:
    ...     del sys.modules[name]
    """
    return put_aliases(name, __name__, MODULES)
