"""The kinds of error that Fuel and Pylearn2 raised, each also a :class:`LabeledError`.

Native errors are often of two built-in kinds at once; old code distinguishes these kinds,
so here every error is of exactly one.
"""

from __future__ import annotations

from labeled.errors import LabeledError, UnknownAttributeError, UnknownNameError


class OldAssertionError(LabeledError, AssertionError):
    """An argument is not what was expected, where the old code had an ``assert``."""


class OldIndexError(LabeledError, IndexError):
    """A label or a row is out of range."""


class OldNotImplementedError(LabeledError, NotImplementedError):
    """There is no such conversion or quantity."""


class OldOSError(LabeledError, OSError):
    """A file is not open, or not found."""


class OldTypeError(LabeledError, TypeError):
    """A batch or an argument is of the wrong type."""


class OldValueError(LabeledError, ValueError):
    """A batch or an argument has the wrong size or value."""


OWN = [kind for kind in LabeledError.__subclasses__() if kind.__module__ == __name__]
OWN += [UnknownAttributeError, UnknownNameError]
# errors by their built-in kinds
KINDS: dict[type, type[LabeledError]] = {kind.__bases__[1]: kind for kind in OWN}


def old(kind: type[Exception], message: str) -> Exception:
    """Return an error of this library that is of one built-in kind."""
    return KINDS.get(kind, kind)(message)


def check(condition: object, message: str, kind: type[Exception] = ValueError) -> None:
    """Raise an error of a kind unless `condition` holds."""
    if not condition:
        raise old(kind, message)


def require(condition: object, message: str) -> None:
    """Raise an error where the old code had an ``assert``."""
    check(condition, message, AssertionError)
