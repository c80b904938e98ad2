"""Attributes that people guess from other libraries, and what says the same here.

A guess that is wrong ends in an error that names what is right: another attribute, the source
of that name, a call. This module makes the words; which guesses a class knows stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from labeled.errors import UnknownAttributeError, did_you_mean

MOST_SHOWN = 40


def said_of(*groups: tuple[str, str]) -> dict[str, str]:
    """Return what to say for each guess; a group is guesses, with blanks between, and the words.

    Examples
    --------
    >>> said_of(("take head", "slice it"), ("map", "say pipeline="))
    {'take': 'slice it', 'head': 'slice it', 'map': 'say pipeline='}
    """
    return {guess: words for guesses, words in groups for guess in guesses.split()}


def unknown_attribute(
    thing: object,
    name: str,
    said: Mapping[str, str],
    hint: Callable[[str], str | None] = lambda name: None,
) -> AttributeError:
    """Return the error for an attribute that `thing` does not have.

    Parameters
    ----------
    thing : object
        An instance of a public class; called from its ``__getattr__``.
    said : mapping of str to str
        What to say of guesses.
    hint : callable, optional
        What else is known of a name, asked first; None where nothing is.

    Raises
    ------
    AttributeError
        The one that a property of `thing` raised itself, where the name is one of its own.

    Examples
    --------
    >>> class Thing:
    ...     size = 3
    >>> unknown_attribute(Thing(), "length", {"length": "say .size"})
    UnknownAttributeError("Thing has no attribute 'length'; say .size")
    """
    kind = type(thing)
    if hasattr(kind, name):
        object.__getattribute__(thing, name)  # raises again what brought us here
    plain = f"{kind.__name__} has no attribute {name!r}"
    if name.startswith("_") or name in getattr(kind, "__dataclass_fields__", ()):
        return AttributeError(plain)  # asked by protocols, and while a pickle is put together
    words = hint(name) or said.get(name) or did_you_mean(name, _public(kind), limit=MOST_SHOWN)
    return UnknownAttributeError(f"{plain}; {words}")


def _public(kind: type) -> Iterable[str]:
    return (name for name in dir(kind) if not name.startswith("_"))
