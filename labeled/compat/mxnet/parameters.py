"""Parameters of the old iterators: everything is text, and unknown words were ignored.

Whatever is given is turned into the text that the old programs were handed, and read back by
their rules, so ``True``, ``"true"`` and ``1`` are the same flag and ``yes`` is none. A word that
an iterator does not know is passed over, as it was; ``strict=True`` refuses it instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from labeled.errors import LoaderError, OptionError, did_you_mean

Version = Literal["seed", "0.9.5", "1.9.1"]
VERSIONS: tuple[Version, ...] = ("seed", "0.9.5", "1.9.1")

REQUIRED = object()
"""Stands for a default that there is none of."""

SHAPE = re.compile(r"\s*[([]?\s*(-?\d+\s*(?:,\s*-?\d+\s*)*)?(,?)\s*([)\]]?)\s*")


@dataclass(frozen=True)
class Parameter:
    """One parameter: how its text is read, its default, and the least value it may have.

    A parameter that is `optional` stays None where None is given; others take their default.
    """

    read: Callable[[str], Any]
    default: Any = REQUIRED
    least: int | None = None
    optional: bool = False


def read_parameters(
    iterator: str, known: Mapping[str, Parameter], given: Mapping[str, Any], *, strict: bool
) -> dict[str, Any]:
    """Return the value of every known parameter.

    Raises
    ------
    LoaderError
        If a value cannot be read, is too small, or one that is required is missing.
    OptionError
        With `strict`: if a word is unknown.
    """
    for name in given:
        if strict and name not in known:
            hint = did_you_mean(name, known, limit=99)
            raise OptionError(f"{iterator} has no parameter {name!r}; {hint}")
    return {name: _value(iterator, name, one, given) for name, one in known.items()}


def _value(iterator: str, name: str, parameter: Parameter, given: Mapping[str, Any]) -> Any:
    value = given.get(name)
    if value is None:
        if parameter.optional and name in given:
            return None
        if parameter.default is REQUIRED:
            raise LoaderError(f"{iterator}: the parameter {name} is required and was not given")
        return parameter.default
    try:
        found = parameter.read(str(value))
    except ValueError:
        kind = parameter.read.__name__.removesuffix("_of")
        raise LoaderError(f"{iterator}: {name}={value!r} is no {kind}") from None
    except OverflowError:
        raise LoaderError(f"{iterator}: {name}={value!r} is too large for 32 bits") from None
    if parameter.least is not None and found < parameter.least:
        raise LoaderError(f"{iterator}: {name}={value!r} must be at least {parameter.least}")
    return found


def checked_version(version: Any) -> Version:
    """Return the version whose rules are meant."""
    if version not in VERSIONS:
        raise LoaderError(f"version={version!r} is none of {', '.join(map(repr, VERSIONS))}")
    found: Version = version
    return found


def text_of(text: str) -> str:
    """Return a text as it is."""
    return text


def integer_of(text: str) -> int:
    """Read a whole number of 32 bits, as every version kept them."""
    found = int(text)
    if not -(1 << 31) <= found < 1 << 31:
        raise OverflowError(text)
    return found


def number_of(text: str) -> float:
    """Read a finite number."""
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return found


def flag_of(text: str) -> bool:
    """Read a flag: true, false, 1 or 0, in letters of any case.

    Examples
    --------
    >>> flag_of("True"), flag_of("0")
    (True, False)
    """
    word = text.strip().lower()
    if word not in ("true", "false", "1", "0"):
        raise ValueError(text)
    return word in ("true", "1")


def shape_of(text: str) -> tuple[int, ...]:
    """Read a shape, with brackets or, for a single length, without.

    Examples
    --------
    >>> shape_of("(3, 48, 64)"), shape_of("[4]"), shape_of("4"), shape_of("()")
    ((3, 48, 64), (4,), (4,), ())
    """
    found = SHAPE.fullmatch(text)
    opened = text.strip()[:1] in ("(", "[")
    if found is None or opened != bool(found[3]) or (not opened and found[2]):
        raise ValueError(text)
    numbers = found[1]
    if numbers is None and (found[2] or not opened):
        raise ValueError(text)
    return tuple(int(n) for n in numbers.split(",")) if numbers else ()


def integers_of(text: str) -> tuple[int, ...]:
    """Read a list of whole numbers, with or without brackets around it.

    Examples
    --------
    >>> integers_of("0,90,180"), integers_of("(0, 90)")
    ((0, 90, 180), (0, 90))
    """
    return tuple(int(n) for n in text.strip().strip("()[]").split(",") if n.strip())
