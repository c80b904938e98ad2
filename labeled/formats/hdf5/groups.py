"""Groups of one file that hold the same sources: a demonstration, episode or molecule each.

A pattern such as ``data/demo_*`` means every group that it matches; their rows follow one
another like those of several files, in the order of the numbers in their names. Where a file
looks like that, and no pattern was given, a note tells the one that fits.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from glob import has_magic
from typing import Any

import h5py

from labeled.formats.hdf5.safety import find, to_text
from labeled.formats.header import SourceHeader

MIN_ALIKE = 3
"""Groups with the same sources that are taken for examples of one kind."""

MIN_DATASETS = 50
"""Datasets side by side that are taken for one example each; a table has fewer columns."""

MAX_NAMED = 4
"""Sources of such groups that a note names."""

ROOT_NAME = "x"
"""What the source is called whose examples are datasets at the root of the file."""


def is_pattern(base: h5py.Group, group: str) -> bool:
    """Whether a name means groups by a pattern; one that is there is meant as it is."""
    return has_magic(group) and group not in base


def matching(base: h5py.Group, pattern: str, *, allow_external: bool) -> dict[str, h5py.Group]:
    """Return the groups that a pattern matches, level by level, by path in natural order."""
    found = {"": base}
    for part in filter(None, pattern.split("/")):
        found = {
            f"{path}/{name}".lstrip("/"): thing
            for path, group in found.items()
            for name in sorted(map(to_text, group.id), key=natural)
            if fnmatchcase(name, part)
            and isinstance(
                thing := find(group, name, allow_external=allow_external).thing, h5py.Group
            )
        }
    return found


def natural(name: str) -> list[Any]:
    """Return a key that sorts by the numbers in names.

    Examples
    --------
    >>> sorted(["demo_10", "demo_9", "demo"], key=natural)
    ['demo', 'demo_9', 'demo_10']
    """
    parts = re.split(r"([0-9]+)", name)
    return [int(part) if number % 2 else part for number, part in enumerate(parts)]


Children = dict[str, dict[str, SourceHeader]]
"""The sources of each group, by what their names end in; a dataset has the end ``""``."""


def how_to_join(sources: Mapping[str, SourceHeader], nameless: Collection[str]) -> str | None:
    """Return advice where most sources are alike: in groups, or side by side; None elsewhere.

    An axis 0 that has a name counts examples, so that datasets are examples only among the
    `nameless`.
    """
    for parent, children in _alike(sources):
        if all("" not in one for one in children.values()):
            return _of_groups(parent, children)
    found = _datasets_alike({name: sources[name] for name in sources if name in nameless})
    if found is None:
        return None
    parent, names = found
    return (
        f" holds {len(names):,} datasets alike, {names[0]!r} to {names[-1]!r}. If each of them is "
        f"one example: examples={_pattern(parent, names)!r} when opening it"
    )


def pattern_of_datasets(sources: Mapping[str, SourceHeader]) -> str | None:
    """Return what matches the datasets alike that most sources are; None where they are not."""
    found = _datasets_alike(sources)
    return None if found is None else _pattern(*found)


def _datasets_alike(sources: Mapping[str, SourceHeader]) -> tuple[str, list[str]] | None:
    """Return the group that holds most sources as datasets alike, and what they are called."""
    for parent, children in _alike(sources):
        if len(children) >= MIN_DATASETS and any("" in one for one in children.values()):
            return parent, sorted(children, key=natural)
    return None


def _alike(sources: Mapping[str, SourceHeader]) -> Iterator[tuple[str, Children]]:
    """Yield what lies side by side and holds sources of the same names and kinds, where that
    makes most of the sources.

    Datasets of one axis, which may be columns, are alike only if their names differ by digits
    alone.
    """
    deepest = max((name.count("/") for name in sources), default=0)
    for depth in range(deepest + 1):
        below: dict[str, Children] = {}
        for name, header in sources.items():
            parts = name.split("/")
            if len(parts) > depth:
                group = below.setdefault("/".join(parts[:depth]), {})
                group.setdefault(parts[depth], {})["/".join(parts[depth + 1 :])] = header
        for parent, children in sorted(below.items()):
            kinds: dict[Any, Children] = {}
            for child, held in children.items():
                is_column = "" in held and len(held[""].shape) == 1
                stem = re.sub("[0-9]+", "", child) if is_column else None
                kind = frozenset((n, h.dtype.str, len(h.shape)) for n, h in held.items())
                kinds.setdefault((stem, kind), {})[child] = held
            alike = max(kinds.values(), key=len)
            if len(alike) >= MIN_ALIKE and 2 * sum(map(len, alike.values())) > len(sources):
                yield parent, alike


def _of_groups(parent: str, children: Children) -> str:
    first, *others = children.values()
    names, pattern = sorted(first), _pattern(parent, children)
    even = [n for n in names if all(o[n].row_shape == first[n].row_shape for o in others)]
    few = ", ".join(map(repr, names[:MAX_NAMED])) + ", ..." * (len(names) > MAX_NAMED)
    advice = f" holds the same sources ({few}) in {len(children):,} groups"
    if even:
        some = "" if even == names else f", sources={even}"
        advice += (
            f"; group={pattern!r}{some} joins them, rows after rows, as if they were files, and "
            "leaves single values out"
        )
    one = "/".join(filter(None, (parent, next(iter(children)))))
    return (
        f"{advice}; group={one!r} opens one of them. If each group is one example: "
        f"examples={pattern!r} when opening it"
    )


def name_of(part: str, pattern: str) -> str:
    """Return what a source is called whose examples a pattern matches, or a part of each.

    Examples
    --------
    >>> name_of("obs/image", "demo_*"), name_of("", "data/*"), name_of("", "*")
    ('obs/image', 'data', 'x')
    """
    above = pattern.strip("/").rpartition("/")[0].rpartition("/")[2]
    return part or (ROOT_NAME if not above or has_magic(above) else above)


def _pattern(parent: str, names: Iterable[str]) -> str:
    return "/".join(filter(None, (parent, f"{_common(names)}*")))


def _common(names: Iterable[str]) -> str:
    """Return how all names begin, up to the first digit."""
    first, last = min(names), max(names)
    n_same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    return re.split(r"[0-9]", first[:n_same])[0]
