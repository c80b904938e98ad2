"""Sources of a dataset as data and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from labeled.catalog.source import AnySource
from labeled.errors import LoaderError, UnknownNameError, did_you_mean
from labeled.providers.served import Feed, LoaderProvider, serving_of
from labeled.selection import Selection

LABEL_NAMES = frozenset({"label", "labels", "target", "targets", "y"})
"""Sources that are labels where nobody says which are."""

Names = str | Sequence[str] | Mapping[str, str]


def provider_of(
    sources: Mapping[str, AnySource],
    selections: Mapping[str, Selection],
    data: Names | None,
    label: Names | None,
    options: Mapping[str, Any],
) -> LoaderProvider:
    """Serve the sources that `data` and `label` name; see :meth:`labeled.Dataset.as_provider`."""
    serving = serving_of("as_provider", options)
    labels = _named("label", label, sources, [name for name in sources if name in LABEL_NAMES])
    others = [name for name in sources if name not in labels.values()]
    feeds = [Feed(name, source) for name, source in _named("data", data, sources, others).items()]
    feeds += [Feed(name, source, is_label=True) for name, source in labels.items()]
    return LoaderProvider(sources, selections, feeds, serving)


def _named(
    option: str, asked: Names | None, sources: Mapping[str, Any], default: Sequence[str]
) -> dict[str, str]:
    """Return the source behind each name to provide."""
    if asked is None:
        asked = default
    if isinstance(asked, str):
        asked = (asked,)
    found = dict(asked) if isinstance(asked, Mapping) else {name: name for name in asked}
    if len(found) < len(asked):
        again = next(name for name in found if list(asked).count(name) > 1)
        raise LoaderError(
            f"{option}= names {again!r} twice; give it two names by a mapping from name to source"
        )
    for name in found.values():
        if name not in sources:
            raise UnknownNameError(f"no source {name!r} to provide; {did_you_mean(name, sources)}")
    return found
