"""Arguments checked against their annotations before a call does anything.

:func:`check_arguments` decorates a public call. What its annotations say in plain types (``int``,
``float``, ``bool``, ``str``, ``None``, a ``Literal``, a path, sequences and mappings of those, our
own classes) is what its arguments must be; an annotation that says more than this module can
tell (``Any``, an array, a protocol) lets everything through. Ranges are checked where they have
their meaning, by :func:`whole` and :func:`number`.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import itertools
import math
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from labeled.errors import ArgumentError, LabeledError, OptionError
from labeled.guesses import suggestion

P = ParamSpec("P")
R = TypeVar("R")

_PLAIN: Mapping[Any, tuple[tuple[type, ...], str]] = {
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    bool: ((bool, np.bool_), "True or False"),
    str: ((str,), "text"),
    type(None): ((type(None),), "None"),
}
"""The types that are taken for each plain type, and what it is called in a message."""

_PLURALS = {"a whole number": "whole numbers", "a number": "numbers", "anything": "values"}

MOST_ITEMS = 1000
"""So many items of a sequence are looked at; the rest is checked where it is used."""


def check_arguments(
    error: type[LabeledError] = ArgumentError, *, but: Collection[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a decorator that refuses unknown keywords, and types that the annotations do not name.

    Parameters
    ----------
    error : type of LabeledError
        Raised with the name of the argument, what was given and what it must be.
    but : collection of str
        Arguments that the call looks at itself, since it can say more about them.

    Examples
    --------
    >>> @check_arguments()
    ... def shown(rows: int, title: str | None = None) -> str:
    ...     return f"{title}: {rows}"
    >>> shown(3)
    'None: 3'
    >>> shown("3")
    Traceback (most recent call last):
    labeled.errors.ArgumentError: rows='3' must be a whole number
    """

    def decorate(call: Callable[P, R]) -> Callable[P, R]:
        known, takes_any = keywords_of(call), _takes_any(call)

        @functools.wraps(call)
        def checking(*args: P.args, **kwargs: P.kwargs) -> R:
            annotations, title = _annotations_of(call), call.__qualname__
            if not takes_any and not kwargs.keys() <= annotations.keys():
                check_keywords(title.removesuffix(".__init__").rpartition(".")[2], kwargs, known)
            given = {**dict(zip(annotations, args, strict=False)), **kwargs}
            for name, value in given.items():
                if name not in but:
                    _check(name, value, annotations.get(name, Any), error)
            return call(*args, **kwargs)

        return checking

    return decorate


def keywords_of(call: Callable[..., object]) -> list[str]:
    """Return the names that a call takes by keyword."""
    parameters = inspect.signature(call).parameters.values()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters if one.kind in named and one.name not in ("self", "cls")]


def check_keywords(title: str, given: Iterable[str], *known: Iterable[str]) -> None:
    """Raise :class:`OptionError` for an option that does not exist."""
    names = {name for some in known for name in some}
    for name in given:
        if name not in names:
            raise OptionError(f"{title}() has no option {name!r}; {suggestion(name, names)}")


def check_fields(
    instance: Any, error: type[LabeledError] = ArgumentError, *, but: Collection[str] = ()
) -> None:
    """Check the fields of a dataclass against their annotations; called when one is made.

    Those of `but` are looked at by whoever calls, who can say more about them.
    """
    kind: type = type(instance)
    for name, annotation in _fields_of(kind).items():
        if name not in but:
            _check(name, getattr(instance, name), annotation, error)


def as_array(name: str, values: Any, error: type[LabeledError] = ArgumentError) -> npt.NDArray[Any]:
    """Return values as an array; refuse lists of unequal lengths, which make none."""
    try:
        return np.asarray(values)
    except ValueError:
        raise error(f"{name}={_shown(values)}: lists of unequal lengths make no array") from None


def whole(
    name: str,
    value: Any,
    *,
    least: int | None = None,
    most: int | None = None,
    error: type[LabeledError] = ArgumentError,
) -> int:
    """Return a whole number; refuse bools, floats and text, and what is out of bounds.

    Examples
    --------
    >>> whole("threads", np.int64(3), least=1)
    3
    >>> whole("threads", 0, least=1)
    Traceback (most recent call last):
    labeled.errors.ArgumentError: threads=0 must be at least 1
    """
    _check(name, value, int, error)
    _check_bounds(name, value, least, most, error)
    return int(value)


def number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    error: type[LabeledError] = ArgumentError,
) -> float:
    """Return a finite number; refuse bools and text, and what is out of bounds."""
    _check(name, value, float, error)
    if not math.isfinite(value):
        raise error(f"{name}={value!r} must be a finite number")
    _check_bounds(name, value, least, most, error)
    return float(value)


def flag(name: str, value: Any, *, error: type[LabeledError] = ArgumentError) -> bool:
    """Return True or False; text such as ``"no"``, which is true to Python, is refused."""
    _check(name, value, bool, error)
    return bool(value)


def choice(
    name: str, value: Any, known: Sequence[str], *, error: type[LabeledError] = ArgumentError
) -> str:
    """Return one of some words.

    Examples
    --------
    >>> choice("last", "keap", ("keep", "drop", "pad"))
    Traceback (most recent call last):
    labeled.errors.ArgumentError: last='keap' must be 'keep', 'drop' or 'pad'
    """
    if not isinstance(value, str) or value not in known:
        raise error(f"{name}={value!r} must be {_either([repr(word) for word in known])}")
    return value


def _check_bounds(
    name: str, value: float, least: float | None, most: float | None, error: type[LabeledError]
) -> None:
    if least is not None and value < least:
        raise error(f"{name}={value} must be at least {least:,}")
    if most is not None and value > most:
        raise error(f"{name}={value} must be at most {most:,}")


def _check(name: str, value: Any, annotation: Any, error: type[LabeledError]) -> None:
    if _allows(annotation, value):
        return
    words = list(dict.fromkeys(_words(annotation)))
    close = difflib.get_close_matches(repr(value), words, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {close[0]}?" if close else ""
    raise error(f"{name}={_shown(value)} must be {_either(words)}{hint}")


def _allows(annotation: Any, value: Any) -> bool:
    """Whether a value has a type that an annotation names, as far as one can tell."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation in _PLAIN:
        return isinstance(value, _PLAIN[annotation][0]) and (
            annotation is bool or not isinstance(value, bool)
        )
    if origin in (Union, types.UnionType):
        return any(_allows(one, value) for one in args)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in args)
    if origin is tuple:
        return _allows_tuple(args, value)
    if origin is Callable:
        return callable(value)
    if origin is os.PathLike:
        return isinstance(value, os.PathLike | bytes)  # as functions of os take them
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, origin):
            return False
        return _allow_all(args[0], value.keys()) and _allow_all(args[1], value.values())
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _allows_several(origin, args[0], value)
    return not _is_ours(annotation) or isinstance(value, annotation)


def _allows_tuple(items: tuple[Any, ...], value: Any) -> bool:
    if not isinstance(value, tuple | list | np.ndarray):
        return False
    if items[-1] is Ellipsis:
        return _allow_all(items[0], value)
    return len(value) == len(items) and all(map(_allows, items, value))


def _allows_several(origin: type, item: Any, value: Any) -> bool:
    if not isinstance(value, origin) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return False
    return not isinstance(value, Collection) or _allow_all(item, value)


def _allow_all(item: Any, values: Iterable[Any]) -> bool:
    return all(_allows(item, one) for one in itertools.islice(values, MOST_ITEMS))


def _is_ours(annotation: Any) -> bool:
    """Whether an annotation is a class of this library that instances can be told by."""
    return (
        isinstance(annotation, type)
        and annotation.__module__.startswith("labeled.")
        and not getattr(annotation, "_is_protocol", False)
    )


def _takes_any(call: Callable[..., object]) -> bool:
    parameters = inspect.signature(call).parameters.values()
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def _words(annotation: Any) -> list[str]:
    """Return what an annotation asks for, in words."""
    origin, args = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return ["anything"]
    if annotation in _PLAIN:
        return [_PLAIN[annotation][1]]
    if origin in (Union, types.UnionType):
        return [word for one in args for word in _words(one)]
    if origin is Literal:
        return [repr(one) for one in args]
    if origin is os.PathLike:
        return ["a path"]
    if origin is Callable:
        return ["a function"]
    if origin is tuple and args[-1] is not Ellipsis:
        return [f"({', '.join(' or '.join(_words(one)) for one in args)})"]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return [f"a mapping of {_plural(args[0])} to {_plural(args[1])}"]
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return [f"a sequence of {_plural(args[0])}"]
    return [f"a {getattr(annotation, '__name__', annotation)}"]


def _plural(annotation: Any) -> str:
    words = [_PLURALS.get(word, word.removeprefix("a ")) for word in _words(annotation)]
    return _either(words)


def _either(words: Sequence[str]) -> str:
    """Join words of a choice.

    Examples
    --------
    >>> _either(["a", "b", "c"])
    'a, b or c'
    """
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"<{type(value).__qualname__}>"


@functools.cache
def _annotations_of(call: Callable[..., Any]) -> Mapping[str, Any]:
    """Return what each parameter is annotated with, in order; Any where nothing is said."""
    hints = get_type_hints(call)
    found = inspect.signature(call).parameters.values()
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {one.name: hints.get(one.name, Any) for one in found if one.kind not in several}


@functools.cache
def _fields_of(kind: type) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {one.name: hints[one.name] for one in dataclasses.fields(kind) if one.init}
