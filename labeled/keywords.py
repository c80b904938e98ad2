"""Refusing keywords that there are none of, with the nearest that there is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar

from labeled.errors import LoaderTypeError, did_you_mean

P = ParamSpec("P")
T = TypeVar("T")


def known_keywords(make: Callable[P, T]) -> Callable[P, T]:
    """Let a function, or the ``__init__`` of a class, name the keyword that was meant.

    Examples
    --------
    >>> @known_keywords
    ... def provider(*, batch_size=0): ...
    >>> provider(batchsize=3)
    Traceback (most recent call last):
    labeled.errors.LoaderTypeError: provider has no parameter 'batchsize'; did you mean ...
    """
    known = keywords_of(make)
    title = make.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @wraps(make)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        if kwargs:
            check_keywords(title, kwargs, known)
        return make(*args, **kwargs)

    return checked


def keywords_of(make: Callable[..., object]) -> list[str]:
    """Return the names that a function takes by keyword."""
    parameters = signature(make).parameters.values()
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in named and p.name not in ("self", "cls")]


def check_mappings(**given: object) -> None:
    """Raise :class:`LoaderTypeError` for a value that is no mapping, and not None either."""
    for option, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise LoaderTypeError(f"{option}={value!r:.60} is no mapping; give {{name: ...}}")


def check_keywords(title: str, given: Iterable[str], *known: Iterable[str]) -> None:
    """Raise :class:`LoaderTypeError` for a name that there is none of."""
    names = {name for some in known for name in some}
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names, limit=99)
            raise LoaderTypeError(f"{title} has no parameter {name!r}; {hint}")
