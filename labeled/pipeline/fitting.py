"""What a step takes and returns, as far as its annotations say, and whether two steps fit.

Nothing is known of a callable without annotations, and what is not known fits. Where both
sides are known, the first must be a subtype of the second: a class of a class, a union
member by member, parameters of generics by the same rule (``Any`` and type variables fit
everything), with ``int`` for ``float`` for ``complex`` as type checkers have it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from labeled.errors import PipelineTypeError

UNKNOWN: Any = Any
_WIDER = {bool: (int, float, complex), int: (float, complex), float: (complex,)}


def name_of(step: Any) -> str:
    """Return how messages name a step."""
    name = getattr(step, "__qualname__", None)
    if name is None or isinstance(step, partial):
        return repr(step)
    return f"{name.rpartition('.<locals>.')[2]}()" if not isinstance(step, type) else name


def takes(step: Any) -> Any:
    """Return the annotated type of the first argument, or ``Any``."""
    if isinstance(getattr(step, "steps", None), tuple):
        return takes(step.steps[0]) if step.steps else UNKNOWN
    hints, names = _hints(step)
    return hints.get(names[0], UNKNOWN) if names else UNKNOWN


def returns(step: Any) -> Any:
    """Return the annotated type of the result, or ``Any``; a class makes its instances."""
    if isinstance(getattr(step, "steps", None), tuple):
        return returns(step.steps[-1]) if step.steps else UNKNOWN
    if isinstance(step, type):
        return step
    return _hints(step)[0].get("return", UNKNOWN)


def _hints(step: Any) -> tuple[dict[str, Any], list[str]]:
    if isinstance(step, partial):
        hints, names = _hints(step.func)
        return hints, [] if step.args else [n for n in names if n not in step.keywords]
    described = step
    if isinstance(step, type):
        described = inspect.getattr_static(step, "__init__")
    elif not (inspect.isroutine(step)):
        described = type(step).__call__
    try:
        hints = get_type_hints(described)
        names = [
            p.name
            for p in inspect.signature(step).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except Exception:  # annotations that cannot be resolved tell nothing
        return {}, []
    return hints, names


def check_fit(before: Any, after: Any, pick: Callable[[Any], Any] = lambda found: found) -> None:
    """Raise :class:`PipelineTypeError` if one step is known not to take what another returns.

    Parameters
    ----------
    before, after : callable
    pick : callable
        From the type that `after` takes to that of what it is given of `before`.
    """
    made, wanted = returns(before), pick(takes(after))
    if not fits(made, wanted):
        raise PipelineTypeError(
            f"{name_of(after)} takes {_shown(wanted)}, but {name_of(before)} before it returns "
            f"{_shown(made)}; put a transform between them, or mend the annotations"
        )


def element_of(found: Any) -> Any:
    """Return the type of the items of a sequence type, or ``Any``."""
    args = get_args(found)
    return args[0] if args and get_origin(found) is not tuple else UNKNOWN


def fits(made: Any, wanted: Any) -> bool:
    """Whether a value of one type may stand for another; True where that is not known.

    Examples
    --------
    >>> fits(bool, int), fits(int, str), fits(Any, str), fits(list[int], list[str])
    (True, False, True, False)
    >>> fits(int | str, str), fits(str, int | str)
    (False, True)
    """
    if made is Any or wanted is Any or wanted is object:
        return True
    if isinstance(made, TypeVar | str) or isinstance(wanted, TypeVar | str):
        return True
    made, wanted = (NoneType if one is None else one for one in (made, wanted))
    if _is_union(made):
        return all(fits(one, wanted) for one in get_args(made))
    if _is_union(wanted):
        return any(fits(made, one) for one in get_args(wanted))
    return _classes_fit(made, wanted)


def _classes_fit(made: Any, wanted: Any) -> bool:
    mine, theirs = get_origin(made) or made, get_origin(wanted) or wanted
    if not (isinstance(mine, type) and isinstance(theirs, type)):
        return True
    if theirs in _WIDER.get(mine, ()):
        return True
    try:
        if not issubclass(mine, theirs):
            return False
    except TypeError:  # a protocol that says nothing at run time
        return True
    pairs = (get_args(made), get_args(wanted))
    if mine is not theirs or len(pairs[0]) != len(pairs[1]):
        return True
    return all(fits(one, other) for one, other in zip(*pairs, strict=True))


def _is_union(found: Any) -> bool:
    return get_origin(found) in (Union, UnionType)


def _shown(found: Any) -> str:
    return found.__name__ if isinstance(found, type) and not get_args(found) else str(found)
