"""Libraries that ``import labeled`` does without: each is imported at its first use.

:func:`extra_module` is for optional libraries. Each has a door of its own, which says what it is
needed for. :func:`import_optional` is for those that something else stands in for.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from labeled.errors import MissingExtraError, how_to_install


def extra_module(name: str, needed: str, libraries: str, extra: str) -> Any:
    """Import a module of an optional library.

    Parameters
    ----------
    name : str
        Of the module.
    needed : str
        What needs which library: ``"pictures need matplotlib"``.
    libraries, extra : str
        What to install, and the extra that it belongs to.

    Raises
    ------
    MissingExtraError
        If it is not installed, or does not load.

    Examples
    --------
    >>> extra_module("no_such_library", "this needs no_such_library", "it", "plot")
    Traceback (most recent call last):
    labeled.errors.MissingExtraError: this needs no_such_library, which is not installed here: ...
    """
    try:
        __import__(name)  # of one that is there, in a fifth of the time `import_module` takes
        return sys.modules[name]
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError)
        state = "is not installed here" if absent else f"does not load here ({error})"
        how = how_to_install(libraries, extra)
        raise MissingExtraError(f"{needed}, which {state}: {how}") from error


def import_optional(name: str) -> Any:
    """Import a module of an optional library; None where it is not installed or does not load.

    Examples
    --------
    >>> print(import_optional("no_such_library"))
    None
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
