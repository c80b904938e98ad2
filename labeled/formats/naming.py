"""Names for the sources of formats that have none, or few, of their own.

What ``sources=``, ``dims=`` and ``example_dim=`` ask for is checked here, alike for every
format whose dims come from a rule and not from the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from labeled.errors import DimsError, UnknownNameError, did_you_mean
from labeled.formats.format import Options
from labeled.formats.header import ALL, Rows, SourceHeader


def chosen_sources(there: Collection[str], options: Options, where: str) -> tuple[str, ...]:
    """Return the sources to open: those asked for, in that order, else all, sorted.

    Raises
    ------
    UnknownNameError
        If ``sources=`` or ``dims=`` names what is not there, or one source twice.
    """
    asked = tuple(sorted(there)) if options.sources is None else options.sources
    known = frozenset(there)
    given = (("sources=", asked), ("dims=", tuple(name for name, _ in options.dims)))
    for argument, names in given:
        for name in names:
            if name not in known:
                raise UnknownNameError(
                    f"{argument} names {name!r}, which is not in {where}; "
                    f"{did_you_mean(name, there)}"
                )
    check_once("sources=", asked)
    return asked


def check_once(argument: str, sources: Iterable[str]) -> None:
    """Raise :class:`UnknownNameError` if an argument names a source twice."""
    for name, times in Counter(sources).items():
        if times > 1:
            raise UnknownNameError(f"{argument} names {name!r} twice; name each source once")


def dims_of(name: str, default: tuple[str, ...], options: Options, where: str) -> tuple[str, ...]:
    """Return the dims of a source: as asked for, else `default`.

    Raises
    ------
    DimsError
        If they are too many, too few, or not all different.
    """
    own = options.example_dim
    dims = default if own is None else (own, *default[1:])
    given: tuple[str | None, ...] = dict(options.dims).get(name, dims)
    if len(given) != len(default):
        raise DimsError(
            f"dims={{{name!r}: {given}}} names {len(given)} axes, but source {name!r} in {where} "
            f"has {len(default)}: {default}"
        )
    dims = tuple(old if new is None else new for new, old in zip(given, dims, strict=True))
    if len(set(dims)) < len(dims):
        raise DimsError(
            f"source {name!r} in {where} would have the dims {dims}; name each axis differently, "
            f"with dims={{{name!r}: ...}}"
        )
    if own is not None and dims[0] != own:
        raise DimsError(
            f"example_dim={own!r} is not the first of dims={dims} given for source {name!r}; axis "
            "0 counts the examples"
        )
    return dims


def all_rows(sources: dict[str, SourceHeader]) -> dict[str, dict[str, Rows]]:
    """Return the splits of a file that names none: all rows of every source."""
    return {ALL: {name: range(header.n_rows) for name, header in sources.items()}}
