"""Abstract Dataloader by its old names and rules: protocols, base classes, compositions.

Code written for it runs after a change of import, or after :func:`install_aliases` with
none. The rules are the old ones to the letter (release 0.4.7, and what 0.3 had besides) where
they differ from those of :mod:`labeled.transforms`: parts without a transform are dropped, a
pipeline without a collate hands on its list, windows and sequences are cut short in silence.

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

from labeled.compat import aliases_of
from labeled.compat.abstract_dataloader import abstract, ext, generic, spec

__all__ = ["abstract", "ext", "generic", "install_aliases", "spec"]

# the modules of this package, and the paths by which old code imports what is there
MODULES = {
    "": ("",),
    ".abstract": (".abstract",),
    ".ext": (".ext", ".ext.augment", ".ext.graph", ".ext.sample"),
    ".generic": (".generic", ".generic.composition", ".generic.sequence", ".generic.sync"),
    ".spec": (".spec",),
}

install_aliases = aliases_of("abstract_dataloader", __name__, MODULES)
