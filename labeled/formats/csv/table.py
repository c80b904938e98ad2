"""Which columns make which sources, and of which dtype."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from labeled.errors import FileFormatError, UnknownNameError, did_you_mean
from labeled.formats.csv.index import Dialect, RowIndex
from labeled.formats.csv.options import TIME, TextOptions
from labeled.formats.csv.parsing import Guess, type_of

FEATURES, LABELS = "features", "labels"

ALONE = "ObM"
"""Kinds of columns that do not stand beside numbers: text, true and false, times."""

_NUMBERED = re.compile(r"(.+)_(\d+)$")

Chosen = int | tuple[int, ...]
"""One column, or several side by side."""


class Typed(NamedTuple):
    """The columns of a source, its dtype, and the Arrow types that the columns are parsed as."""

    columns: Chosen
    dtype: np.dtype[Any]
    types: tuple[Any, ...]


class Column(NamedTuple):
    """One column of a text."""

    name: str
    guess: Guess
    told: np.dtype[Any] | None
    """The dtype that was asked for."""

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.guess.dtype if self.told is None else self.told

    def type_as(self, dtype: np.dtype[Any]) -> Any:
        """Return the Arrow type that the column is parsed as, in a source of a dtype."""
        if dtype.hasobject or dtype == TIME:
            return type_of(dtype, zoned=self.guess.zoned)
        if self.told is not None:
            return type_of(self.told)
        exact = self.guess.dtype.kind in "iub" or self.guess.gaps
        return self.guess.type if exact else type_of(dtype)


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


def sources_of(path: str, columns: Sequence[Column], options: TextOptions) -> dict[str, Chosen]:
    """Return the columns of each source.

    Raises
    ------
    UnknownNameError
        If an option names a column that is not there.
    FileFormatError
        If two sources would have the same name, or a column of text is to stand beside others.
    """
    names = [column.name for column in columns]
    found: dict[str, Chosen] = {}
    if options.labels is not None:
        listed = tuple(column_of(path, one, names, "labels=") for one in options.labels)
        found[LABELS] = listed[0] if len(listed) == 1 else listed
    taken = set(np.ravel(list(found.values())).tolist()) if found else set()
    left = [i for i in range(len(names)) if i not in taken]
    if isinstance(options.columns, tuple):
        more = {
            source: tuple(column_of(path, one, names, "columns=") for one in said)
            if isinstance(said, tuple)
            else column_of(path, said, names, "columns=")
            for source, said in options.columns
        }
    elif options.columns == "separate" or (options.columns is None and len(names) == 1):
        more = {names[i]: i for i in left}
    else:
        more = _grouped(names, left) if options.columns is None else {}
        more = more or _matrix(columns, left)
    clash = sorted(set(found) & set(more))
    if clash:
        raise FileFormatError(
            f"two sources of {path!r} would be called {clash[0]!r}; pass names=[...], or name the "
            "sources with columns={...}"
        )
    for name, _ in options.dtype if isinstance(options.dtype, tuple) else ():
        if name not in (*names, *more, *found):
            raise UnknownNameError(
                f"dtype= tells of {name!r}, which is no column and no source of {path!r}; "
                f"{did_you_mean(name, {*names, *more, *found})}"
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


def _matrix(columns: Sequence[Column], left: Sequence[int]) -> dict[str, Chosen]:
    """Put all numbers side by side; alone each column of anything else, or without a name.

    Alone, too, are large integers beside floats: float64 would hold both, but rounds them.
    """
    named = [i for i in left if columns[i].name != f"column_{i}"] or left
    numbers = [i for i in named if columns[i].dtype.kind not in ALONE]
    if numbers and np.result_type(*(columns[i].dtype for i in numbers)).kind == "f":
        exact = [i for i in numbers if columns[i].dtype.kind == "f" or not columns[i].guess.wide]
        numbers = exact or numbers
    beside = set(numbers)
    out: dict[str, Chosen] = {columns[i].name: i for i in left if i not in beside}
    return {FEATURES: tuple(numbers), **out} if numbers else out


def columns_of(
    names: Sequence[str], guesses: Sequence[Guess], options: TextOptions
) -> list[Column]:
    """Return the columns of a text, with what was asked for: of all, only numbers take a dtype."""
    said, found = options.dtype, []
    for name, guess in zip(names, guesses, strict=True):
        told = dict(said).get(name) if isinstance(said, tuple) else said
        if not isinstance(said, tuple) and told is not None and not told.hasobject:
            told = None if guess.dtype.kind in ALONE else told
        found.append(Column(name, guess, told))
    return found


def typed(
    path: str, source: str, chosen: Chosen, columns: Sequence[Column], options: TextOptions
) -> Typed:
    """Return the dtype of a source, and the Arrow types that its columns are parsed as.

    Raises
    ------
    FileFormatError
        If text is to stand beside other columns, true and false or times beside numbers, or
        times with a zone beside times without.
    """
    told = dict(options.dtype).get(source) if isinstance(options.dtype, tuple) else None
    if told is not None:
        columns = [column._replace(told=told) for column in columns]
    if not isinstance(chosen, tuple):
        dtype = columns[chosen].dtype
        return Typed(chosen, dtype, (columns[chosen].type_as(dtype),))
    some = [columns[i] for i in chosen]
    kinds = {column.dtype.kind for column in some}
    why = ""
    if "O" in kinds:
        why = "text beside other columns"
    elif "M" in kinds and len({column.guess.zoned for column in some}) > 1 and len(kinds) == 1:
        why = "times with a zone beside times without one"
    elif len(kinds) > 1 and kinds & {"M", "b"}:
        what = "columns of times" if "M" in kinds else "columns of true and false"
        why = f"{what} beside others"
    if why:
        raise FileFormatError(
            f"source {source!r} of {path!r} would put {why}; leave those out of columns= (or pass "
            "columns='separate')"
        )
    dtype = np.result_type(*(column.dtype for column in some))
    return Typed(chosen, dtype, tuple(column.type_as(dtype) for column in some))
