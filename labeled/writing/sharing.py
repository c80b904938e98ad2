"""Splits by rule: stretches of rows, shares drawn by a seed, evenly by class or whole by group.

A rule says which rows a split takes without naming each of them: ``"0:50000"`` (a
stretch), ``"0.8"`` or ``"80%"`` (a share), ``"1000"`` (so many), ``"rest"``. Stretches are
taken first; shares and numbers are of the rows that no stretch names, drawn at random or
taken in order. Every row lands in at most one drawn split, and in exactly one where the
shares add up to 1.

With classes (*stratified*) every split gets its share of each class, give or take one row;
with groups no group is cut, so shares hold only as nearly as the groups allow. Only
integers are dealt with here: labels come in as an array, rows go out as ranges and arrays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from labeled.errors import SplitError, SplitTypeError
from labeled.formats.header import Rows
from labeled.samplers.permutation import explicit_permutation, key_of

IntArray = npt.NDArray[np.int64]

HELP = (
    "a rule is a stretch ('0:50000'), a share ('0.8' or '80%'), a number of rows ('1000') or 'rest'"
)

_STRETCH = re.compile(r"(-?\d*):(-?\d*)(?::(-?\d+))?")
_ENOUGH = 1e-9


@dataclass(frozen=True, slots=True)
class Share:
    """Part of the rows that no stretch names: a share, a number of rows, or all that is left."""

    share: float | None = None
    count: int | None = None


def rules_of_words(words: Sequence[str]) -> dict[str, str]:
    """Take ``["train=0.8", "test=0.2 valid=rest"]`` apart.

    Raises
    ------
    SplitError
        If a word has no ``=``, or a split is named twice.

    Examples
    --------
    >>> rules_of_words(["train=0:90 test=90:"])
    {'train': '0:90', 'test': '90:'}
    """
    rules: dict[str, str] = {}
    for word in " ".join(words).split():
        name, equals, rule = word.partition("=")
        if not equals or not name or not rule:
            raise SplitError(f"{word!r} is no split; give NAME=RULE, where {HELP}")
        if name in rules:
            raise SplitError(f"split {name!r} is given twice; give each split one rule")
        rules[name] = rule
    return rules


def splits_by_rules(
    rules: Mapping[str, Any],
    n_rows: int,
    *,
    seed: int = 0,
    in_order: bool = False,
    classes: npt.NDArray[Any] | None = None,
    groups: npt.NDArray[Any] | None = None,
) -> dict[str, Any]:
    """Return the rows of every split.

    Parameters
    ----------
    rules : mapping of split to rule
        Texts as above; a float is a share and an integer a number of rows. Anything else
        names its rows itself, as for :func:`labeled.write`.
    n_rows : int
    seed : int
        Of the drawing. The same seed, rules and rows give the same splits.
    in_order : bool
        Take shares in the order of rows, in place of drawing them.
    classes, groups : array (n_rows,), optional
        What every split gets its share of; what is never cut.

    Returns
    -------
    dict
        Drawn rows ascend; they are a range where they are consecutive.

    Raises
    ------
    SplitError
        If a rule cannot be followed.

    Examples
    --------
    >>> splits_by_rules({"train": "0:3", "test": "rest"}, 5)
    {'train': range(0, 3), 'test': range(3, 5)}
    >>> drawn = splits_by_rules({"train": 0.6, "test": 0.4}, 5, seed=1)
    >>> sorted(map(int, [*drawn["train"], *drawn["test"]]))
    [0, 1, 2, 3, 4]
    """
    read = {name: _rule(name, rule, n_rows) for name, rule in rules.items()}
    shares = {name: rule for name, rule in read.items() if isinstance(rule, Share)}
    fixed = {name: rule for name, rule in read.items() if name not in shares}
    _check_kind(shares, in_order=in_order, classes=classes, groups=groups)
    if not shares:
        return fixed
    pool = _left_over(fixed, n_rows)
    wanted = _wanted(shares, len(pool))
    if groups is not None:
        parts = _by_group(groups[pool], wanted, seed)
    elif classes is not None:
        parts = _by_class(classes[pool], wanted, seed)
    else:
        order = np.arange(len(pool)) if in_order else _drawn(len(pool), seed, "rows")
        parts = np.split(order, np.cumsum(_apportioned(len(pool), wanted)))[: len(shares)]
    drawn = {name: _ascending(pool[part]) for name, part in zip(shares, parts, strict=False)}
    return {name: drawn.get(name, rule) for name, rule in read.items()}


def _rule(name: str, rule: Any, n_rows: int) -> Any:
    """Read one rule: a :class:`Share`, or rows that are known already."""
    if isinstance(rule, bool):
        raise SplitTypeError(f"split {name!r} is {rule!r}; {HELP}")
    if isinstance(rule, float | np.floating):
        return _share(name, rule, float(rule))
    if isinstance(rule, int | np.integer):
        return Share(count=_count(name, int(rule), n_rows))
    if not isinstance(rule, str):
        return rule
    stretch = _STRETCH.fullmatch(rule)
    if stretch:
        return _stretch(name, rule, [int(n) if n else None for n in stretch.groups()], n_rows)
    if rule == "rest":
        return Share()
    if re.fullmatch(r"\d+", rule):
        return Share(count=_count(name, int(rule), n_rows))
    number, scale = (rule[:-1], 0.01) if rule.endswith("%") else (rule, 1.0)
    try:
        share = float(number) * scale
    except ValueError:
        raise SplitError(f"split {name!r} has the rule {rule!r}; {HELP}") from None
    return _share(name, rule, share)


def _share(name: str, rule: Any, share: float) -> Share:
    if not 0 <= share <= 1:
        raise SplitError(f"split {name!r} has the share {rule!r}; a share is from 0 to 1")
    return Share(share=share)


def _count(name: str, count: int, n_rows: int) -> int:
    if not 0 <= count <= n_rows:
        raise SplitError(f"split {name!r} asks for {count} rows, but there are {n_rows}")
    return count


def _stretch(name: str, rule: str, ends: Sequence[int | None], n_rows: int) -> range:
    start, stop, step = ends
    for end in (start, stop):
        if end is not None and not -n_rows <= end <= n_rows:
            raise SplitError(
                f"split {name!r} is rows {rule}, but there are {n_rows}; keep within them"
            )
    if step == 0:
        raise SplitError(f"split {name!r} is rows {rule}; a step is not 0")
    return range(*slice(start, stop, step).indices(n_rows))


def _check_kind(shares: Mapping[str, Share], *, in_order: bool, classes: Any, groups: Any) -> None:
    asked = [
        word
        for word, given in (
            ("stratify", classes is not None),
            ("group", groups is not None),
            ("in_order", in_order),
        )
        if given
    ]
    if asked and not shares:
        raise SplitError(f"{asked[0]} needs splits by share, such as train=0.8 test=0.2")
    if len(asked) > 1:
        raise SplitError(f"{' and '.join(asked)} do not go together; choose one of them")
    if sum(share == Share() for share in shares.values()) > 1:
        raise SplitError("more than one split takes the rest; give one of them a share")
    floats = classes is not None and classes.dtype.kind == "f"
    if floats and 1 < classes.size == np.unique(classes).size:  # measurements by mistake
        raise SplitError(
            "stratify has another number in each row, so that there is no class to share out; put "
            "numbers into a few bins first: np.digitize(values, edges)"
        )


def _left_over(fixed: Mapping[str, Any], n_rows: int) -> IntArray:
    """Return the rows that no fixed split has."""
    free = np.ones(n_rows, bool)
    for rows in fixed.values():
        by_source = rows.values() if isinstance(rows, Mapping) else [rows]
        for each in by_source:
            free[slice(*each) if isinstance(each, tuple) else each] = False
    return np.flatnonzero(free)


def _wanted(shares: Mapping[str, Share], n: int) -> list[float]:
    """Return the share of every split, and last of all that of no split."""
    known = [
        s.share if s.share is not None else 0.0 if s.count is None else s.count / max(n, 1)
        for s in shares.values()
    ]
    total = math.fsum(known)
    if total > 1 + _ENOUGH:
        raise SplitError(
            f"the splits {tuple(shares)} ask for {total:.6g} of the {n} rows there are to draw "
            f"from; shares must not add up to more than 1"
        )
    left = max(1 - total, 0.0) if total < 1 - _ENOUGH else 0.0
    rest = [share == Share() for share in shares.values()]
    if any(rest):
        known[rest.index(True)], left = left, 0.0
    return [*known, left]


def _apportioned(n: int, wanted: Sequence[float]) -> IntArray:
    """Cut n into whole numbers by share: by largest remainder, which adds up.

    Examples
    --------
    >>> _apportioned(10, [0.55, 0.45, 0.0]).tolist()
    [6, 4, 0]
    """
    exact = np.array(wanted) * n
    counts = np.floor(exact + _ENOUGH).astype(np.int64)
    over = exact - counts
    for place in np.argsort(-over, kind="stable")[: n - int(counts.sum())]:
        counts[place] += 1
    return counts


def _by_class(classes: npt.NDArray[Any], wanted: Sequence[float], seed: int) -> list[IntArray]:
    """Deal out every class by share; what is left of each goes where most is missing."""
    _, which = np.unique(classes, return_inverse=True)
    order = _drawn(len(classes), seed, "rows")
    order = order[np.argsort(which[order], kind="stable")]
    sizes = np.bincount(which) if len(which) else np.empty(0, np.int64)
    parts: list[list[IntArray]] = [[] for _ in wanted]
    missing = np.zeros(len(wanted))
    for members in np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []:
        exact = np.array(wanted) * len(members)
        counts = np.floor(exact + _ENOUGH).astype(np.int64)
        missing += exact - counts
        partial = exact - counts > _ENOUGH
        for _ in range(len(members) - int(counts.sum())):
            place = int(np.argmax(np.where(partial, missing, -np.inf)))
            counts[place] += 1
            missing[place] -= 1
            partial[place] = False
        for part, rows in zip(parts, np.split(members, np.cumsum(counts)[:-1]), strict=True):
            part.append(rows)
    return [np.concatenate(part) if part else np.empty(0, np.int64) for part in parts]


def _by_group(groups: npt.NDArray[Any], wanted: Sequence[float], seed: int) -> list[IntArray]:
    """Deal out whole groups, the largest first, each to where most rows are missing."""
    _, which = np.unique(groups, return_inverse=True)
    sizes = np.bincount(which) if len(which) else np.empty(0, np.int64)
    drawn = _drawn(len(sizes), seed, "groups")
    missing = np.array(wanted) * len(groups)
    owner = np.empty(len(sizes), np.int64)
    for group in drawn[np.argsort(-sizes[drawn], kind="stable")].tolist():
        owner[group] = int(np.argmax(missing))
        missing[owner[group]] -= sizes[group]
    owners = owner[which] if len(which) else np.empty(0, np.int64)
    return [np.flatnonzero(owners == place) for place in range(len(wanted))]


def _drawn(n: int, seed: int, what: str) -> IntArray:
    return explicit_permutation(n, key_of(seed, "splits", what))


def _ascending(rows: IntArray) -> Rows:
    """Return rows in the order of the file; a range where nothing is missing between them."""
    ordered = np.sort(rows)
    if len(ordered) and int(ordered[-1] - ordered[0]) == len(ordered) - 1:
        return range(int(ordered[0]), int(ordered[-1]) + 1)
    return ordered
