"""Names of many sources said at once: ``data/demo_*/actions`` means those of all demos.

``*`` stands for any text, also across groups. A name said outright goes before patterns, and a
source that is really called so is only itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from labeled.errors import UnknownNameError, did_you_mean


def matching(pattern: str, names: Collection[str]) -> list[str]:
    """Return the names that a pattern means.

    Examples
    --------
    >>> matching("demo_*/x", ["demo_1/x", "demo_2/x", "demo_2/y"]), matching("x", ["x", "xy"])
    (['demo_1/x', 'demo_2/x'], ['x'])
    """
    if "*" not in pattern or pattern in names:
        return [pattern] if pattern in names else []
    form = re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
    return [name for name in names if form.fullmatch(name)]


def expanded(option: str, values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return what is said of sources by patterns, by their names.

    Raises
    ------
    UnknownNameError
        If a name or a pattern means no source.
    """
    out: dict[str, Any] = {}
    for pattern in sorted(values, key=lambda said: said in names):
        found = matching(pattern, names)
        if not found:
            raise UnknownNameError(
                f"{option}= names {pattern!r}, which is no source; {did_you_mean(pattern, names)}"
            )
        out.update(dict.fromkeys(found, values[pattern]))
    return out


def shortened(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the same by patterns, where names that differ by digits alone have the same value.

    `names` are those of all sources: a pattern must mean no others.

    Examples
    --------
    >>> shortened({"a1/x": 4, "a2/x": 4, "b1/x": 4, "y": 2}, ["a1/x", "a2/x", "b1/x", "b2/x", "y"])
    {'a*/x': 4, 'b1/x': 4, 'y': 2}
    """
    alike = dict[str, bool]()
    out: dict[str, Any] = {}
    for name, value in values.items():
        pattern = re.sub("[0-9]+", "*", name)
        if pattern not in alike:  # asked once, however many names have it
            meant = matching(pattern, names)
            same = all(n in values and values[n] == value for n in meant)
            alike[pattern] = same and len(meant) > 1
        out[pattern if alike[pattern] else name] = value
    return out
