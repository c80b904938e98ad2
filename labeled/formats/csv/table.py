"""Which columns make which sources, and of which dtype."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from labeled.errors import FileFormatError, UnknownNameError, did_you_mean
from labeled.formats.csv.dialect import Dialect, arrow
from labeled.formats.csv.index import RowIndex
from labeled.formats.csv.options import TIME, TextOptions
from labeled.formats.csv.parsing import Guess, type_of
from labeled.formats.objects import TEXT

FEATURES, LABELS = "features", "labels"

ALONE = "ObM"
"""Kinds of columns that do not stand beside numbers: text, true and false, times."""

_NUMBERED = re.compile(r"(.+)_(\d+)$")

Chosen = int | tuple[int, ...]
"""One column, or several side by side."""


@dataclass(frozen=True)
class Columns:
    """What reading a source needs to know of its text."""

    dialect: Dialect
    columns: Chosen
    dtype: np.dtype[Any]
    types: tuple[Any, ...]
    """The Arrow type that each column is parsed as."""
    missing: tuple[str, ...]
    index: RowIndex = field(repr=False, compare=False)


def sources_of(
    path: str,
    names: Sequence[str],
    dtypes: Sequence[np.dtype[Any]],
    options: TextOptions,
    wide: Collection[int] = (),
) -> dict[str, Chosen]:
    """Return the columns of each source; float64 may round those of `wide`.

    Raises
    ------
    UnknownNameError
        If an option names a column that is not there.
    FileFormatError
        If two sources would have the same name, or a column of text is to stand beside others.
    """
    found: dict[str, Chosen] = {}
    if options.labels is not None:
        listed = tuple(column_of(path, one, names, "labels=") for one in options.labels)
        found[LABELS] = listed[0] if len(listed) == 1 else listed
    taken = set(np.ravel(list(found.values())).tolist()) if found else set()
    left = [i for i in range(len(names)) if i not in taken]
    if isinstance(options.columns, tuple):
        more = _mapped(path, names, options.columns)
    elif options.columns == "separate" or (options.columns is None and len(names) == 1):
        more = {names[i]: i for i in left}
    else:
        more = _grouped(names, left) if options.columns is None else {}
        more = more or _matrix(names, dtypes, left, wide)
    clash = sorted(set(found) & set(more))
    if clash:
        raise FileFormatError(
            f"two sources of {path!r} would be called {clash[0]!r}; pass names=[...], or name the "
            "sources with columns={...}"
        )
    return {**more, **found}


def column_of(path: str, said: Any, names: Sequence[str], argument: str) -> int:
    """Return the number of a column told by its name or number (negative from the end)."""
    if isinstance(said, int) and not isinstance(said, bool) and -len(names) <= said < len(names):
        return said % len(names)
    if said in names:
        return list(names).index(said)
    raise UnknownNameError(
        f"{argument} tells of column {said!r}, but {path!r} has {len(names)} columns; "
        f"{did_you_mean(str(said), names)}"
    )


def _mapped(
    path: str, names: Sequence[str], columns: Sequence[tuple[str, Any]]
) -> dict[str, Chosen]:
    out: dict[str, Chosen] = {}
    for source, said in columns:
        if isinstance(said, tuple):
            out[source] = tuple(column_of(path, one, names, "columns=") for one in said)
        else:
            out[source] = column_of(path, said, names, "columns=")
    return out


def _grouped(names: Sequence[str], left: Sequence[int]) -> dict[str, Chosen]:
    """Put ``x_0``, ``x_1``, ... side by side, each other column alone; nothing without such.

    Examples
    --------
    >>> _grouped(["x_0", "x_1", "y"], [0, 1, 2]), _grouped(["a_1", "b"], [0, 1])
    ({'x': (0, 1), 'y': 2}, {})
    """
    stems: dict[str, list[tuple[int, int]]] = {}
    for i in left:
        if (match := _NUMBERED.match(names[i])) and names[i] != f"column_{i}":
            stems.setdefault(match[1], []).append((int(match[2]), i))
    whole = {s: one for s, one in stems.items() if [n for n, _ in one] == list(range(len(one)))}
    if not whole or set(whole) & set(names):
        return {}
    grouped: dict[str, Chosen] = {s: tuple(i for _, i in one) for s, one in whole.items()}
    inside = {i for one in whole.values() for _, i in one}
    return {**grouped, **{names[i]: i for i in left if i not in inside}}


def _matrix(
    names: Sequence[str],
    dtypes: Sequence[np.dtype[Any]],
    left: Sequence[int],
    wide: Collection[int],
) -> dict[str, Chosen]:
    """Put all numbers side by side; alone each column of anything else, or without a name.

    Alone, too, are large whole numbers beside others: float64 would hold both, but rounds them.
    """
    nameless = {i for i in left if names[i] == f"column_{i}"}
    apart = nameless if len(nameless) < len(left) else set()
    numbers = tuple(i for i in left if dtypes[i].kind not in ALONE and i not in apart)
    if numbers and np.result_type(*(dtypes[i] for i in numbers)).kind == "f":
        rest = tuple(i for i in numbers if dtypes[i].kind == "f" or i not in wide)
        numbers = rest or numbers
    beside = set(numbers)
    out: dict[str, Chosen] = {names[i]: i for i in left if i not in beside}
    return {FEATURES: numbers, **out} if numbers else out


def dtypes_of(
    path: str, names: Sequence[str], guessed: Sequence[np.dtype[Any]], options: TextOptions
) -> list[np.dtype[Any]]:
    """Return the dtype of each column, as far as columns are told one by one."""
    said = options.dtype
    if said is None or isinstance(said, tuple):
        wanted: Mapping[str, np.dtype[Any]] = dict(said or ())
        return [_held(wanted.get(n, dtype)) for n, dtype in zip(names, guessed, strict=True)]
    if _held(said).hasobject:
        return [TEXT] * len(names)
    return [dtype if dtype.kind in ALONE else said for dtype in guessed]


def dtype_of(
    path: str, source: str, chosen: Chosen, dtypes: Sequence[np.dtype[Any]], options: TextOptions
) -> np.dtype[Any]:
    """Return the dtype of a source: as told for it, else what holds its columns.

    Raises
    ------
    FileFormatError
        If text is to stand beside other columns, or true and false, or times, beside numbers.
    """
    said = dict(options.dtype).get(source) if isinstance(options.dtype, tuple) else None
    listed = chosen if isinstance(chosen, tuple) else (chosen,)
    if said is not None:
        dtype = _held(said)
    elif isinstance(chosen, tuple) and any(dtypes[i].hasobject for i in listed):
        dtype = TEXT
    elif isinstance(chosen, tuple):
        _check_alike(path, source, [dtypes[i] for i in listed])
        dtype = np.result_type(*(dtypes[i] for i in listed))
    else:
        dtype = dtypes[chosen]
    if dtype.hasobject and isinstance(chosen, tuple):
        raise FileFormatError(
            f"source {source!r} of {path!r} would put text beside other columns; leave it out of "
            "columns=, or tell its dtype"
        )
    return dtype


def types_of(
    path: str,
    source: str,
    chosen: Chosen,
    dtype: np.dtype[Any],
    names: Sequence[str],
    dtypes: Sequence[np.dtype[Any]],
    guesses: Sequence[Guess],
    options: TextOptions,
) -> tuple[Any, ...]:
    """Return the Arrow type that each column of a source is parsed as: as told, else as guessed.

    Raises
    ------
    FileFormatError
        If only some are times that tell their zone.
    """
    said = options.dtype
    told = dict(said) if isinstance(said, tuple) else {}
    types = []
    for i in chosen if isinstance(chosen, tuple) else (chosen,):
        guess, kinds = guesses[i], arrow().types
        asked = names[i] in told or not (said is None or told or dtypes[i].kind in ALONE)
        if dtype.hasobject or dtype == TIME or source in told:
            types.append(type_of(dtype, zoned=guess.type == type_of(TIME, zoned=True)))
        elif asked:
            types.append(type_of(dtypes[i]))
        else:
            whole = kinds.is_integer(guess.type) or kinds.is_boolean(guess.type)
            types.append(guess.type if whole else type_of(dtype))
    if dtype == TIME and len(set(types)) > 1:
        raise FileFormatError(
            f"source {source!r} of {path!r} would put times with a zone beside times without one; "
            "leave some out of columns="
        )
    return tuple(types)


def _check_alike(path: str, source: str, dtypes: Sequence[np.dtype[Any]]) -> None:
    kinds = {dtype.kind for dtype in dtypes}
    for kind, words in (("M", "times"), ("b", "true and false")):
        if kind in kinds and len(kinds) > 1:
            raise FileFormatError(
                f"source {source!r} of {path!r} would put columns of {words} beside others; "
                "leave those out of columns= (or pass columns='separate')"
            )


def _held(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return TEXT if dtype.kind in "USO" else dtype


def check_dtype_names(
    path: str, options: TextOptions, names: Sequence[str], sources: Sequence[str]
) -> None:
    """Refuse a dtype for what is neither a column nor a source."""
    if isinstance(options.dtype, tuple):
        for name, _ in options.dtype:
            if name not in names and name not in sources:
                raise UnknownNameError(
                    f"dtype= tells of {name!r}, which is no column and no source of {path!r}; "
                    f"{did_you_mean(name, {*names, *sources})}"
                )
