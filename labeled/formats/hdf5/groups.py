"""Groups of one file that hold the same sources: a demonstration, episode or molecule each.

A pattern such as ``data/demo_*`` means every group that it matches; their rows follow one
another like those of several files, in the order of the numbers in their names. Where a file
looks like that, and no pattern was given, a note tells the one that fits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from glob import has_magic
from typing import Any

import h5py

from labeled.formats.hdf5.safety import NotThereError, resolve, to_text
from labeled.formats.header import SourceHeader

FEWEST_ALIKE = 3
"""Groups with the same sources that are taken for examples of one kind."""

FEWEST_DATASETS = 50
"""Datasets side by side that are taken for one example each; a table has fewer columns."""

MOST_NAMED = 4
"""Sources of such groups that a note names."""

ALONE = "x"
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
            and isinstance(thing := _there(group, name, allow_external), h5py.Group)
        }
    return found


def _there(group: h5py.Group, name: str, allow_external: bool) -> Any:
    try:
        return resolve(group, name, allow_external=allow_external).thing
    except NotThereError:
        return None


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


def told_of_groups(sources: Mapping[str, SourceHeader]) -> str | None:
    """Return what to say where most sources lie in groups alike; None where they do not."""
    for parent, children in _most_alike(sources):
        if not any("" in one for one in children.values()):
            return _told(parent, children)
    return None


def told_of_datasets(sources: Mapping[str, SourceHeader]) -> str | None:
    """Return what to say where most sources are so many datasets alike; None where not."""
    found = _datasets_alike(sources)
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


def _most_alike(sources: Mapping[str, SourceHeader]) -> Iterator[tuple[str, Children]]:
    """Yield what lies side by side and is alike, where that makes most of the sources."""
    deepest = max((name.count("/") for name in sources), default=0)
    for depth in range(deepest + 1):
        for parent, children in sorted(_below(sources, depth).items()):
            alike = _alike(children)
            n_alike = sum(map(len, alike.values()))
            if len(alike) >= FEWEST_ALIKE and 2 * n_alike > len(sources):
                yield parent, alike


def _below(sources: Mapping[str, SourceHeader], depth: int) -> dict[str, Children]:
    """Return what lies at a depth by the group that it lies in."""
    found: dict[str, Children] = {}
    for name, header in sources.items():
        parts = name.split("/")
        if len(parts) > depth:
            children = found.setdefault("/".join(parts[:depth]), {})
            children.setdefault(parts[depth], {})["/".join(parts[depth + 1 :])] = header
    return found


def _alike(children: Children) -> Children:
    """Return the children that hold sources of the same names and kinds, where those are most.

    Datasets of one axis, which may be columns, are alike only if their names differ by digits
    alone.
    """
    kinds: dict[Any, Children] = {}
    for child, below in children.items():
        is_column = "" in below and len(below[""].shape) == 1
        stem = re.sub("[0-9]+", "", child) if is_column else None
        kind = stem, frozenset((n, h.dtype.str, len(h.shape)) for n, h in below.items())
        kinds.setdefault(kind, {})[child] = below
    return max(kinds.values(), key=len, default={})


def _told(parent: str, children: Children) -> str:
    first, *others = children.values()
    names, pattern = sorted(first), _pattern(parent, children)
    even = [n for n in names if all(o[n].row_shape == first[n].row_shape for o in others)]
    listed = ", ".join(map(repr, names[:MOST_NAMED])) + ", ..." * (len(names) > MOST_NAMED)
    told = f" holds the same sources ({listed}) in {len(children):,} groups"
    if even:
        some = "" if even == names else f", sources={even}"
        told += (
            f"; group={pattern!r}{some} joins them, rows after rows, as if they were files, and "
            "leaves single values out"
        )
    one = "/".join(filter(None, (parent, next(iter(children)))))
    return (
        f"{told}; group={one!r} opens one of them. If each group is one example: "
        f"examples={pattern!r} when opening it"
    )


def _datasets_alike(sources: Mapping[str, SourceHeader]) -> tuple[str, list[str]] | None:
    """Return the group that holds datasets alike, and what they are called."""
    for parent, children in _most_alike(sources):
        if any("" in one for one in children.values()) and len(children) >= FEWEST_DATASETS:
            return parent, sorted(children, key=natural)
    return None


def name_of(part: str, pattern: str) -> str:
    """Return what a source is called whose examples a pattern matches, or a part of each.

    Examples
    --------
    >>> name_of("obs/image", "demo_*"), name_of("", "data/*"), name_of("", "*")
    ('obs/image', 'data', 'x')
    """
    above = pattern.strip("/").rpartition("/")[0].rpartition("/")[2]
    return part or (ALONE if not above or has_magic(above) else above)


def _pattern(parent: str, names: Iterable[str]) -> str:
    return "/".join(filter(None, (parent, f"{_common(names)}*")))


def _common(names: Iterable[str]) -> str:
    """Return how all names begin, up to the first digit."""
    first, last = min(names), max(names)
    n_same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    return re.split(r"[0-9]", first[:n_same])[0]
