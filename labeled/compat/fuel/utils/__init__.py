"""What old code imported from here: subsets, lazy attributes, paths of data.

Lazy attributes are left out of pickles, and loaded again when they are first asked for. The
old mechanism put its `__getstate__` where a class had none. Since Python 3.11 every object
has one, so that it silently did nothing; here only a `__getstate__` that the class or a base
of it wrote counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from labeled.compat.errors import OldOSError, OldValueError
from labeled.compat.fuel.config_parser import config
from labeled.compat.fuel.exceptions import ConfigurationError
from labeled.compat.fuel.utils.subset import Subset

__all__ = ["Subset", "do_not_pickle_attributes", "find_in_data_path"]

Class = TypeVar("Class", bound=type)


def do_not_pickle_attributes(*lazy_attributes: str) -> Callable[[Class], Class]:
    """Make attributes of a class lazy: not pickled, set by `load` when they are missing.

    Parameters
    ----------
    *lazy_attributes : str
        Names. The values are kept under the same names with an underscore before them.

    Returns
    -------
    class decorator

    Raises
    ------
    OldValueError
        If the class has no method `load`; when pickling, if one of the attributes is an
        iterator; when reading one, if `load` did not set it.

    Examples
    --------
    >>> @do_not_pickle_attributes("squares")
    ... class Table:
    ...     def load(self):
    ...         self.squares = [n * n for n in range(4)]
    >>> Table().squares
    [0, 1, 4, 9]
    """

    def decorate(cls: Class) -> Class:
        if not hasattr(cls, "load"):
            raise OldValueError(f"{cls.__name__} has lazy attributes, so it needs a method load()")
        for name in lazy_attributes:
            setattr(cls, name, _lazy(name))
        if getattr(cls, "__getstate__", None) is getattr(object, "__getstate__", None):
            setattr(cls, "__getstate__", _getstate_without(lazy_attributes))  # noqa: B010 (a class)
        return cls

    return decorate


def _lazy(name: str) -> property:
    held = "_" + name

    def get(self: Any) -> Any:
        if not hasattr(self, held):
            self.load()
        if not hasattr(self, held):
            raise OldValueError(f"load() of {type(self).__name__} does not set {name!r}")
        return getattr(self, held)

    def put(self: Any, value: Any) -> None:
        setattr(self, held, value)

    return property(get, put)


def _getstate_without(lazy_attributes: tuple[str, ...]) -> Callable[[Any], dict[str, Any]]:
    def getstate(self: Any) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in lazy_attributes:
            if isinstance(state.pop("_" + name, None), Iterator):
                raise OldValueError(
                    f"{name!r} of {type(self).__name__} is an iterator: its place would be lost"
                )
        return state

    return getstate


def find_in_data_path(filename: str) -> str:
    """Return the path of a file in the first folder of ``config.data_path`` that has it.

    Raises
    ------
    ConfigurationError
        If ``config.data_path`` is not set.
    OldOSError
        If none has it.
    """
    folders = config.data_path
    if not folders:
        raise ConfigurationError(
            f"data_path is not set, so {filename!r} is not found; assign config.data_path, or set "
            "FUEL_DATA_PATH"
        )
    for folder in folders:
        path = os.path.join(os.path.expanduser(os.path.expandvars(folder)), filename)
        if os.path.isfile(path):
            return path
    raise OldOSError(f"{filename!r} is in none of the folders of data_path, {list(folders)}")
