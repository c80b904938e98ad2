"""Splits: which rows each names, as people write them, by rules, and in another order.

``{"train": (0, 90)}``, slices, ranges, lists of rows, masks, or any of these by source all
become ``split -> source -> rows``, where rows are a range with step 1 or an int64 array.
Splits that share rows are allowed, but said, since an example in two splits is nearly
always a mistake.

A rule says which rows a split takes without naming each of them: ``"0:50000"`` (a
stretch), ``"0.8"`` or ``"80%"`` (a share), ``"1000"`` (so many), ``"rest"``. Stretches are
taken first; shares and numbers are of the rows that no stretch names, drawn at random or
taken in order. Every row lands in at most one drawn split, and in exactly one where the
shares add up to 1. With classes (*stratified*) every split gets its share of each class, give
or take one row; with groups no group is cut, so shares hold only as nearly as the groups allow.

An order says which row goes where. Shuffling keeps every split together: rows change places only
with rows that are in the same splits. Stretches stay where they are; of lists, rows are put
together by the splits they are in, and most lists become stretches. ``"splits"`` does only that,
in the order that the splits themselves have.

Only integers are handled here: labels come in as an array, rows go out as ranges and arrays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np

from labeled._validation import as_array
from labeled.errors import SplitError, SplitTypeError, check_known, warn
from labeled.formats.hdf5.writing import check_name
from labeled.formats.header import Rows
from labeled.formats.region import Array, Ints
from labeled.samplers.permutation import explicit_permutation, key_of

Splits = dict[str, dict[str, Rows]]

HELP = (
    "a rule is a stretch ('0:50000'), a share ('0.8' or '80%'), a number of rows ('1000') or 'rest'"
)

_STRETCH = re.compile(r"(-?\d+)?:(-?\d+)?(?::(-?\d+))?")
_ENOUGH = 1e-9

ORDERS = ("keep", "splits", "shuffle")


def as_splits(given: Any, n_rows: Mapping[str, int | None]) -> Splits:
    """Return splits in one form, checked as far as the numbers of rows are known.

    Parameters
    ----------
    given : mapping of split to rows, or to mapping of source to rows
        Rows are ``(start, stop)``, a slice or range, integers or a boolean mask. None, and
        a source left out, mean that the split does not have the source.
    n_rows : mapping of source to int
        None where the number is not known yet; see :func:`check_inside`.

    Raises
    ------
    SplitError
        If rows lie outside their source, or sources of a split differ in length.
    SplitTypeError
        If something names no rows.
    UnknownNameError
        If a split names a source that is not written.

    Examples
    --------
    >>> as_splits({"train": (0, 3), "test": [4, 3]}, {"x": 5})
    {'train': {'x': range(0, 3)}, 'test': {'x': array([4, 3])}}
    """
    if not isinstance(given, Mapping):
        raise SplitTypeError(f"splits={given!r:.60} is not a mapping; pass {{'train': (0, 90)}}")
    if not given:
        raise SplitError("splits={} names no split; leave it out to write a file without splits")
    out: Splits = {}
    for split, rows in given.items():
        check_split_name(split)
        out[split], done = {}, dict[tuple[int, int | None], Rows]()
        by_source = rows if isinstance(rows, Mapping) else dict.fromkeys(n_rows, rows)
        check_known(f"split {split!r} names source", by_source, n_rows, "written")
        for source, asked in by_source.items():
            if asked is not None:
                key = (id(asked), n_rows[source])  # sources that share a list go on sharing it
                if key not in done:
                    where = f"split {split!r} of source {source!r}"
                    done[key] = _rows(where, asked, n_rows[source])
                out[split][source] = done[key]
    if not any(out.values()):
        raise SplitError(f"splits {tuple(out)} have no source at all; give at least one its rows")
    check_inside(out, n_rows)
    return out


def check_split_name(name: Any) -> None:
    """Raise :class:`SplitTypeError` for what cannot name a split."""
    if not isinstance(name, str) or not name or "\0" in name:
        raise SplitTypeError(f"{name!r} cannot name a split; give a text")
    check_name("a split is called", name, SplitTypeError)


def _rows(where: str, asked: Any, n_rows: int | None) -> Rows:
    if isinstance(asked, slice):
        asked = _range_of(where, asked, n_rows)
    if isinstance(asked, range) and asked.step == 1:
        return asked
    why, is_tuple = "", isinstance(asked, tuple)
    numbers = is_tuple and all(isinstance(n, int | np.integer) for n in asked)
    if numbers and len(asked) == 2 and not any(isinstance(n, bool) for n in asked):
        return range(int(asked[0]), int(asked[1]))
    rows = as_array(where, () if is_tuple else asked, SplitTypeError)
    if is_tuple:
        why = "give (start, stop), or other rows as a list"
    elif rows.ndim != 1 or (rows.dtype.kind not in "biu" and rows.size):
        why = "give (start, stop), a slice, a range, a list of row numbers or a boolean mask"
    elif rows.dtype.kind == "u" and rows.size and rows.max() > np.iinfo(np.int64).max:
        why = "give row numbers of at most 63 bits"
    if why:
        raise SplitTypeError(f"{where}: {why}, not {asked!r:.60}")
    if rows.dtype.kind != "b":
        return np.ascontiguousarray(rows, np.int64)
    if len(rows) != n_rows:
        there, how = f"{n_rows} rows", "they must agree"
        if n_rows is None:
            there, how = "an unknown number of rows", "give the numbers, np.flatnonzero(mask)"
        raise SplitError(f"{where} is a mask of {len(rows)} values for {there}; {how}")
    return np.flatnonzero(rows)


def _range_of(where: str, asked: slice, n_rows: int | None) -> range:
    ends = (asked.start, asked.stop, asked.step)
    if not all(end is None or isinstance(end, int | np.integer) for end in ends):
        raise SplitTypeError(f"{where} is {asked!r}; give whole numbers")
    why, most = "", asked.stop if n_rows is None else n_rows
    if asked.step == 0:
        why = "a step is not 0; leave it out"
    elif n_rows is None and (most is None or any(n is not None and n < 0 for n in ends)):
        why = "how many rows there are is not known yet; give a start and a stop from 0 on"
    elif any(end is not None and not -most <= end <= most for end in ends[:2]):
        why = f"there are {most} rows; keep within them"
    if why:
        raise SplitError(f"{where} is {asked!r}, but {why}")
    return range(*asked.indices(int(most)))


def check_inside(splits: Splits, n_rows: Mapping[str, int | None]) -> None:
    """Refuse rows outside their source, and splits whose sources differ in length.

    Raises
    ------
    SplitError
        Naming split, source and rows.
    """
    for split, by_source in splits.items():
        for source, rows in by_source.items():
            n, why = n_rows[source], ""
            most, has = np.iinfo(np.int64).max if n is None else n, f"but the source has {n} rows"
            if isinstance(rows, range):
                if not 0 <= rows.start <= rows.stop <= most:
                    why = f"is rows {rows.start} to {rows.stop}, {has}; "
                    why += f"expected 0 <= start <= stop <= {n}"
            elif rows.size and (int(rows.min()) < 0 or int(rows.max()) >= most):
                at = int(np.flatnonzero((rows < 0) | (rows >= most))[0])
                why = f"lists row {rows[at]} (at position {at}), {has}, numbered from 0"
            if why:
                raise SplitError(f"split {split!r} of source {source!r} {why}")
        lengths = {source: len(rows) for source, rows in by_source.items()}
        if len(set(lengths.values())) > 1:
            raise SplitError(
                f"split {split!r} has different numbers of rows: {lengths}; they must agree"
            )


def warn_of_overlaps(splits: Splits) -> None:
    """Warn, once, of splits that share rows, with how many."""
    overlaps: list[str] = []
    for source in dict.fromkeys(name for by_source in splits.values() for name in by_source):
        rows = {split: by[source] for split, by in splits.items() if source in by}
        shared = shared_rows(rows)
        if shared is not None:
            one, two, count = shared
            words = "1 row" if count == 1 else f"{count:,} rows"
            overlaps.append(f"{words} of source {source!r} (such as {one!r} and {two!r})")
    if overlaps:
        more = f", and of {len(overlaps) - 1} more sources" if len(overlaps) > 1 else ""
        found = f"splits overlap: more than one of them has {overlaps[0]}{more}"
        warn(f"{found}; an example in two splits is usually a mistake")


def shared_rows(rows: Mapping[str, Rows]) -> tuple[str, str, int] | None:
    """Return two splits that share rows, and how many rows are in more than one of all.

    Examples
    --------
    >>> shared_rows({"train": range(0, 90), "valid": range(80, 100), "test": range(100, 120)})
    ('train', 'valid', 10)
    >>> shared_rows({"train": range(0, 90), "test": np.array([95, 90])})
    """
    sets = [each if isinstance(each, range) else np.unique(each) for each in rows.values()]
    bounds = sorted((int(each[0]), int(each[-1])) for each in sets if len(each))
    if all(one[1] < two[0] for one, two in pairwise(bounds)):
        return None
    seen = np.zeros(max(last for _, last in bounds) + 1, np.uint16)
    for each in sets:
        seen[slice(each.start, each.stop) if isinstance(each, range) else each] += 1
    shared = np.flatnonzero(seen > 1)
    if not len(shared):
        return None
    one, two, *_ = [name for name, each in rows.items() if int(shared[0]) in each]
    return one, two, len(shared)


# by rules


REST = "rest"

# part of the rows that no stretch names: a share, a number of rows, or `REST` of them
Share = float | int | str


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
            raise SplitError(f"{word!r} is not a split; pass NAME=RULE, where {HELP}")
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
    classes: Array | None = None,
    groups: Array | None = None,
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
    _check_together(shares, in_order, classes, groups)
    if not shares:
        return fixed
    pool = _left_over(fixed, n_rows)
    wanted = _wanted(shares, len(pool))
    if groups is not None:
        parts = _by_group(groups[pool], wanted, seed)
        for name, share, part in zip(shares, wanted, parts, strict=False):
            if share and len(pool) and not len(part):
                why = f"the groups are too large for {share:.2%} of the rows"
                warn(f"split {name!r} has no rows: {why}; give it a larger share")
    else:
        alike = np.zeros(len(pool), int) if classes is None else classes[pool]
        order = np.arange(len(pool)) if in_order else _drawn(len(pool), seed, "rows")
        parts = _by_class(alike, order, wanted)
    drawn = {name: _ascending(pool[part]) for name, part in zip(shares, parts, strict=False)}
    return {name: drawn.get(name, rule) for name, rule in read.items()}


def _rule(name: str, rule: Any, n_rows: int) -> Any:
    """Read one rule: a :data:`Share`, or rows that are known already."""
    if isinstance(rule, bool):
        raise SplitTypeError(f"split {name!r} is {rule!r}; {HELP}")
    if isinstance(rule, str):
        stretch = _STRETCH.fullmatch(rule)
        if stretch:
            ends = slice(*(int(n) if n else None for n in stretch.groups()))
            return _range_of(f"split {name!r}", ends, n_rows)
        if rule == REST:
            return REST
        try:
            number = float(rule.removesuffix("%"))
        except ValueError:
            raise SplitError(f"split {name!r} has the rule {rule!r}; {HELP}") from None
        rule = int(rule) if rule.isdecimal() else number / 100 if rule.endswith("%") else number
    if isinstance(rule, int | np.integer):
        if not 0 <= rule <= n_rows:
            raise SplitError(f"split {name!r} asks for {rule} rows, but there are {n_rows}")
        return int(rule)
    if isinstance(rule, Real):
        share = float(rule)
        if not 0 <= share <= 1:
            raise SplitError(f"split {name!r} has the share {share:g}; a share is from 0 to 1")
        return share
    return rule


def _check_together(shares: Mapping[str, Share], in_order: bool, classes: Any, groups: Any) -> None:
    """Refuse rules that do not go together, or have no rows to divide."""
    given = {"stratify": classes is not None, "groups": groups is not None, "in_order": in_order}
    asked, why = [f"{word}=" for word, is_given in given.items() if is_given], ""
    floats = classes is not None and classes.dtype.kind == "f"
    if asked and not shares:
        why = f"{asked[0]} needs splits by share, such as train=0.8 test=0.2"
    elif len(asked) > 1:
        why = f"{' and '.join(asked)} do not go together; choose one of them"
    elif list(shares.values()).count(REST) > 1:
        why = "more than one split takes the rest; give one of them a share"
    elif floats and 1 < classes.size == np.unique(classes).size:  # measurements by mistake
        why = "stratify has another number in each row; make bins: np.digitize(values, edges)"
    if why:
        raise SplitError(why)


def _left_over(fixed: Mapping[str, Any], n_rows: int) -> Ints:
    """Return the rows that no fixed split has."""
    free = np.ones(n_rows, bool)
    for rows in fixed.values():
        by_source = rows.values() if isinstance(rows, Mapping) else [rows]
        for each in by_source:
            free[slice(*each) if isinstance(each, tuple) else each] = False
    return np.flatnonzero(free)


def _wanted(shares: Mapping[str, Share], n: int) -> list[float]:
    """Return the share of every split, and last of all that of no split."""
    known = [0.0 if share == REST else float(share) for share in shares.values()]
    for place, share in enumerate(shares.values()):
        if isinstance(share, int) and share:
            known[place] = share / n if n else math.inf
    total = math.fsum(known)
    if total > 1 + _ENOUGH:
        rows = f"the {n} rows that are left to share out"
        raise SplitError(f"{tuple(shares)} ask for {total:.6g} of {rows}; the most is 1")
    left = 1 - total if total < 1 - _ENOUGH else 0.0
    if REST in shares.values():
        known[list(shares.values()).index(REST)], left = left, 0.0
    return [*known, left]


def _by_class(classes: Array, order: Ints, wanted: Sequence[float]) -> list[Ints]:
    """Divide every class by share; what is left of each goes where most is missing."""
    _, which, sizes = np.unique(classes, return_inverse=True, return_counts=True)
    order = order[np.argsort(which[order], kind="stable")]
    parts: list[list[Ints]] = [[np.empty(0, np.int64)] for _ in wanted]
    missing = np.zeros(len(wanted))
    for members in np.split(order, np.cumsum(sizes)[:-1]):
        exact = np.array(wanted) * len(members)
        counts = np.floor(exact + _ENOUGH).astype(np.int64)
        missing += exact - counts
        lacking = np.where(exact - counts > _ENOUGH, missing, -np.inf)
        more = np.argsort(-lacking, kind="stable")[: len(members) - int(counts.sum())]
        counts[more] += 1
        missing[more] -= 1
        for part, rows in zip(parts, np.split(members, np.cumsum(counts)[:-1]), strict=True):
            part.append(rows)
    return [np.concatenate(part) for part in parts]


def _by_group(groups: Array, wanted: Sequence[float], seed: int) -> list[Ints]:
    """Assign whole groups, the largest first, each to where most rows are missing."""
    _, which, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    drawn = _drawn(len(sizes), seed, "groups")
    missing = np.array(wanted) * len(groups)
    owner = np.empty(len(sizes), np.int64)
    for group in drawn[np.argsort(-sizes[drawn], kind="stable")].tolist():
        owner[group] = int(np.argmax(missing))
        missing[owner[group]] -= sizes[group]
    return [np.flatnonzero(owner[which] == place) for place in range(len(wanted))]


def _drawn(n: int, seed: int, what: str) -> Ints:
    return explicit_permutation(n, key_of(seed, "splits", what))


def _ascending(rows: Ints) -> Rows:
    """Return rows in the order of the file; a range where nothing is missing between them."""
    ordered = np.sort(rows)
    if len(ordered) and int(ordered[-1] - ordered[0]) == len(ordered) - 1:
        return range(int(ordered[0]), int(ordered[-1]) + 1)
    return ordered


# by changing places: an order says which row goes where


def moved(positions: Ints, rows: Rows) -> Rows:
    """Return where the rows of a split are, once row i is at ``positions[i]``.

    Stretches and ascending lists mean sets of rows, and ascend again; other lists keep their
    sequence of examples.
    """
    listed = np.asarray(rows, np.int64)
    found = positions[listed]
    if isinstance(rows, range) or bool((np.diff(listed) > 0).all()):
        return _ascending(found)
    return found


def order_of(
    kind: str, splits: Mapping[str, Mapping[str, Rows]], counts: Mapping[str, int], seed: int
) -> Ints | None:
    """Return which row goes to each position; None where rows keep their places.

    Parameters
    ----------
    kind : {"keep", "splits", "shuffle"}
    splits : mapping of split to mapping of source to rows
    counts : mapping of source to its number of rows
    seed : int
        Of a shuffle.

    Raises
    ------
    SplitError
        If sources differ in their number of rows, or in which of them a split has.

    Examples
    --------
    >>> lists = {"a": {"x": np.array([4, 0])}, "b": {"x": np.array([1, 3])}}
    >>> order_of("splits", lists, {"x": 5}, 0).tolist()
    [4, 0, 1, 3, 2]
    """
    if kind == "keep":
        return None
    if len(set(counts.values())) > 1:
        raise SplitError(
            f"sources have different numbers of rows, {dict(counts)}; another order needs one"
        )
    n_rows = next(iter(counts.values()), 0)
    by_split: list[Rows] = []
    for split, by_source in splits.items():
        first, *others = by_source.values() or [range(0)]
        if any(one is not first and not np.array_equal(one, first) for one in others):
            raise SplitError(
                f"split {split!r} has different rows of its sources {tuple(by_source)}, so no "
                f"order suits all of them; repack with order='keep'"
            )
        by_split.append(first)
    ranges = [rows for rows in by_split if isinstance(rows, range)]
    if kind == "shuffle" and len(ranges) == len(by_split):  # stretches stay where they are
        edges = sorted(end for rows in ranges if rows for end in (rows.start, rows.stop))
        group = np.searchsorted(edges, np.arange(n_rows), side="right")
    else:
        group = np.zeros(n_rows, np.int64)  # a number for the splits that a row is in
        for rows in by_split:
            outside = np.ones(n_rows, bool)
            outside[np.asarray(rows, np.int64)] = False
            group = np.unique(2 * group + outside, return_inverse=True)[1]
    if kind == "shuffle":
        place = explicit_permutation(n_rows, key_of(seed, "repack"))
    else:
        place = np.arange(n_rows)
        for rows in reversed(by_split):  # the first split that has a row says where it goes
            first_of, places = np.unique(np.asarray(rows, np.int64), return_index=True)
            place[first_of] = places
    return np.lexsort((place, group)).astype(np.int64)
