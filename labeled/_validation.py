"""Arguments checked against their annotations before a call does anything.

:func:`check_arguments` decorates a public call. Arguments must have the plain
types of their annotations (``int``, ``float``, ``bool``, ``str``, ``None``, a ``Literal``, a path,
sequences and mappings of those, our own classes). Other annotations (``Any``, an array, a
protocol) accept everything. Ranges are checked where they matter, by :func:`integer`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from itertools import chain, islice, repeat, starmap
from numbers import Integral, Real
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
from dask.utils import parse_bytes

from labeled.errors import (
    ArgumentError,
    LabeledError,
    LoaderError,
    OptionError,
    closest,
    suggestion,
)

P = ParamSpec("P")
R = TypeVar("R")

# the types that are taken for each plain type, and what it is called in a message
_PLAIN: Mapping[Any, tuple[tuple[type, ...], str]] = {
    int: ((Integral,), "a whole number"),
    float: ((Real,), "a number"),
    bool: ((bool, np.bool_), "True or False"),
    str: ((str,), "text"),
    type(None): ((type(None),), "None"),
}

_PLURALS = {"a whole number": "whole numbers", "a number": "numbers", "anything": "values"}

_hints_of: Callable[[Any], Mapping[str, Any]] = functools.cache(get_type_hints)


def check_arguments(
    error: type[LabeledError] = ArgumentError, *, but: Collection[str] = (), options: Any = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a decorator that refuses unknown keywords, and types that the annotations do not name.

    Parameters
    ----------
    error : type of LabeledError
        Raised with the name of the argument, what was given and what it must be.
    but : collection of str
        Arguments that the call looks at itself, since it can say more about them.
    options : dataclass instance, optional
        Its fields are what the call takes as ``**options``, with their types and defaults: help
        and editors show them as keywords.

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
        shown = _with_options(signature(call), options)
        parameters = shown.parameters.values()
        several = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        names = [one.name for one in parameters if one.kind not in several]
        takes_any = any(one.kind is Parameter.VAR_KEYWORD for one in parameters)
        kind: Any = type(options)
        own = {} if options is None else _hints_of(kind)
        title = call.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @functools.wraps(call)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            if not takes_any and not kwargs.keys() <= set(names):
                check_keywords(title, kwargs, keywords_of(checked))
            hints = {**_hints_of(call), **own}
            for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
                if name in hints and name not in but and not _fits(value, hints[name]):
                    raise error(_unfit(name, value, hints[name]))
            return call(*args, **kwargs)

        checked.__signature__ = shown  # type: ignore[attr-defined]
        return checked

    return decorate


def _with_options(found: Signature, options: Any) -> Signature:
    """Return a signature with the fields of `options` as keywords.

    ``**options`` stays only where it has no type of its own, and so takes others besides.
    """
    if options is None:
        return found
    *parameters, rest = found.parameters.values()
    for field in dataclasses.fields(options):
        if field.init and field.name not in found.parameters:
            default, kind = getattr(options, field.name), Parameter.KEYWORD_ONLY
            parameters.append(Parameter(field.name, kind, default=default, annotation=field.type))
    return found.replace(parameters=[*parameters, *[rest] * (rest.annotation == "Any")])


def check_fields(
    instance: Any, error: type[LabeledError] = ArgumentError, *, but: Collection[str] = ()
) -> None:
    """Check the fields of a dataclass against their annotations; called when one is made.

    Those of `but` are looked at by whoever calls, who can say more about them.
    """
    kind: Any = type(instance)
    hints = _hints_of(kind)
    for field in dataclasses.fields(instance):
        if field.init and field.name not in but:
            value, annotation = getattr(instance, field.name), hints[field.name]
            if not _fits(value, annotation):
                raise error(_unfit(field.name, value, annotation))


def keywords_of(call: Callable[..., object]) -> list[str]:
    """Return the names that a call takes by keyword."""
    parameters = signature(call).parameters.values()
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [one.name for one in parameters if one.kind in named and one.name not in ("self", "cls")]


def check_keywords(title: str, given: Iterable[str], *known: Iterable[str]) -> None:
    """Raise :class:`OptionError` for an option that does not exist."""
    names = set().union(*known)
    for name in given:
        if name not in names:
            raise OptionError(f"{title}() has no option {name!r}; {suggestion(name, names)}")


def as_array(name: str, values: Any, error: type[LabeledError] = ArgumentError) -> npt.NDArray[Any]:
    """Return values as an array; refuse masks, and lists of unequal lengths, which make none."""
    if np.ma.is_masked(values):
        raise error(f"{name} has masked values; leave them out with .compressed() or fill them in")
    try:
        return np.asarray(values)
    except ValueError:
        raise error(f"{name}={_shown(values)}: lists of several lengths form no array") from None


def check_classes(
    where: str, values: npt.NDArray[Any], name: str, error: type[LabeledError]
) -> None:
    """Refuse NaN among class labels: it would count as one more class.

    Parameters
    ----------
    where : str
        Begins the message.
    values : array, lengths ``(n_rows,)``
    name : str
        How the caller writes the labels.
    """
    missing = int(np.isnan(values).sum()) if values.dtype.kind in "fmM" else 0
    if missing:
        rows = "1 row" if missing == 1 else f"{missing:,} rows"
        raise error(
            f"{where} holds NaN in {rows}, which is not a class; leave them out: "
            f"ds.subset(~np.isnan({name}))"
        )


def integer(
    name: str,
    value: Any,
    *,
    least: int | None = None,
    most: int | None = None,
    error: type[LabeledError] = LoaderError,
) -> int:
    """Return a whole number; refuse bools, floats and text, and what is out of bounds.

    Examples
    --------
    >>> integer("threads", np.int64(3), least=1)
    3
    >>> integer("threads", 0, least=1)
    Traceback (most recent call last):
    labeled.errors.LoaderError: threads=0 must be at least 1
    """
    if not _fits(value, int):
        raise error(_unfit(name, value, int))
    if least is not None and value < least:
        raise error(f"{name}={value} must be at least {least:,}")
    if most is not None and value > most:
        raise error(f"{name}={value} must be at most {most:,}")
    return int(value)


def memory_of(memory: Any) -> int:
    """Read a size such as ``"512 MiB"`` or a number of bytes.

    Raises
    ------
    LoaderError
        If it is not a size, or not positive.
    """
    try:
        n = int(memory if isinstance(memory, np.number) else parse_bytes(memory))
    except (ValueError, TypeError, AttributeError, OverflowError):
        n = 0
    if n <= 0 or isinstance(memory, bool | np.bool_):
        raise LoaderError(f"memory={memory!r} is not a size; pass bytes or text such as '512 MiB'")
    return n


def _unfit(name: str, value: Any, annotation: Any) -> str:
    """Say what a value must be, as the annotation has it."""
    words = list(dict.fromkeys(_words(annotation)))
    texts = [word for word in words if word.startswith("'")]
    close = closest(repr(value), texts) if isinstance(value, str) else None
    hint = f"; did you mean {close}?" if close else ""
    return f"{name}={_shown(value)} must be {_either(words)}{hint}"


def _fits(value: Any, annotation: Any) -> bool:
    """Whether a value has a type that the annotation names, as far as this module knows."""
    if annotation in _PLAIN:
        is_plain = isinstance(value, _PLAIN[annotation][0])
        return is_plain and (annotation is bool or not isinstance(value, bool))
    origin, args = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(map(_fits, repeat(value), args))
    if origin is Literal:
        return any(map(_fits, repeat(value), map(type, args))) and value in args
    if origin is Callable:
        return callable(value)
    if origin is os.PathLike:
        return isinstance(value, os.PathLike | bytes)  # as functions of os take them
    if origin is None:
        ours = isinstance(annotation, type) and annotation.__module__.startswith("labeled.")
        protocol = getattr(annotation, "_is_protocol", False)
        return not ours or protocol or isinstance(value, annotation)
    if not (isinstance(origin, type) and issubclass(origin, Iterable)):
        return True
    kinds = (tuple, list, np.ndarray) if origin is tuple else origin
    if not isinstance(value, kinds) or getattr(value, "ndim", 1) == 0:
        return False
    if not isinstance(value, Collection):
        return True  # looking at an iterator would use it up
    items: Iterable[tuple[Any, Any]] = zip(value, repeat(args[0]), strict=False)
    if issubclass(origin, Mapping) and isinstance(value, Mapping):
        items = chain(items, zip(value.values(), repeat(args[1]), strict=False))
    elif origin is tuple and args[-1] is not Ellipsis:
        if len(value) != len(args):
            return False
        items = zip(value, args, strict=True)
    return all(starmap(_fits, islice(items, 1000)))  # others are checked where they are used


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
    return _either([_PLURALS.get(word, word.removeprefix("a ")) for word in _words(annotation)])


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
