"""Refusing keywords that there are none of, with the nearest that there is."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
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
    parameters = signature(make).parameters
    known = [
        name for name, one in parameters.items() if name != "self" and one.kind != one.VAR_KEYWORD
    ]
    title = make.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @wraps(make)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs:
            if name not in known:
                hint = did_you_mean(name, known, limit=99)
                raise LoaderTypeError(f"{title} has no parameter {name!r}; {hint}")
        return make(*args, **kwargs)

    return checked
