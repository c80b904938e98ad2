"""Pylearn2's data side by its old names and rules: spaces, specs, iteration, datasets.

Code written for it runs after a change of import, or after :func:`install_aliases` with none. The
rules are the old ones to the letter where they differ from the native ones (docs/traps_pylearn2.md
shows both beside each other). The symbolic side, which was a graph of Theano variables, is a lazy
dask graph here.

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

from types import SimpleNamespace

from labeled.compat import aliases_of

# The one setting: what the dtype `'floatX'` stands for. Assign before making spaces.
config = SimpleNamespace(floatX="float64")

# the modules of this package, and the paths by which old code imports what is there
MODULES = {
    "": ("",),
    ".space": (".space",),
    ".utils": (".format", ".format.target_format", ".utils", ".utils.rng"),
    ".iteration": (".utils.data_specs", ".utils.iteration"),
    ".datasets": (
        ".datasets",
        ".datasets.dataset",
        ".datasets.dense_design_matrix",
        ".datasets.hdf5",
        ".datasets.hdf5_deprecated",
        ".datasets.vector_spaces_dataset",
    ),
}

install_aliases = aliases_of("pylearn2", __name__, MODULES)
