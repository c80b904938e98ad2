"""Fuel by its old names and rules: datasets, streams, schemes, transformers.

Code written for it runs after a change of import, or after :func:`install_aliases` with none. The
rules are the old ones to the letter where they differ from the native ones (docs/traps_fuel.md
shows both beside each other); rows are read by this library.

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

from labeled.compat import aliases_of
from labeled.compat.fuel.config_parser import config

__all__ = ["config", "install_aliases"]
__version__ = "0.2.0"

# the modules of this package, and the paths by which old code imports what is there
MODULES = {
    "": ("",),
    ".config_parser": (".config_parser", ".exceptions"),
    ".datasets": (".datasets",),
    ".datasets.base": (".datasets.base", ".datasets.text", ".datasets.toy"),
    ".datasets.hdf5": (".datasets.hdf5",),
    ".streams": (".iterator", ".streams"),
    ".schemes": (".schemes",),
    ".server": (".server", ".utils.parallel"),
    ".transformers": (".transformers", ".transformers.sequences", ".transformers.text"),
    ".transformers.image": (".transformers.defaults", ".transformers.image"),
    ".utils": (".utils", ".utils.cache"),
}

install_aliases = aliases_of("fuel", __name__, MODULES)
