"""Options that several commands share, and how ``NAME=VALUE`` words are taken apart."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import click

Command = Callable[..., Any]


def together(*options: Command) -> Command:
    """Return a decorator that adds options in the order in which they are given."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


storage_options = together(
    click.option(
        "--layout",
        multiple=True,
        metavar="[NAME=]LAYOUT",
        help="auto, contiguous or chunked; for one source with NAME=.",
    ),
    click.option(
        "--compression",
        multiple=True,
        metavar="[NAME=]CODEC",
        help="none, gzip, zstd or lz4; for one source with NAME=.",
    ),
    click.option("--level", multiple=True, metavar="[NAME=]LEVEL", help="Of compression."),
    click.option(
        "--chunks",
        multiple=True,
        metavar="[NAME=]ROWS",
        help="Rows of a chunk, or its whole shape: 64 or 64,3,32,32.",
    ),
)
"""How sources are stored."""

effort_options = together(
    click.option(
        "--memory",
        metavar="SIZE",
        help="By how much this process may grow. Default: 128 MiB, or what the largest "
        "piece needs that cannot be cut.",
    ),
    click.option(
        "--progress/--no-progress",
        default=None,
        help="Show bytes a second and the time left, on stderr. Default: on a terminal.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON."),
)
"""How much memory is used, and what is shown meanwhile."""

overwrite_option = click.option("--overwrite", is_flag=True, help="Replace TARGET if it is there.")

external_option = click.option(
    "--allow-external",
    is_flag=True,
    help="Follow links and storage out of the file; only for files that you trust.",
)


group_option = click.option(
    "--group",
    metavar="GROUP",
    help="Only what lies below this group of an HDF5 file; a pattern ('data/*') joins many.",
)


examples_option = click.option(
    "--examples",
    metavar="PATTERN",
    help="Each dataset or group of an HDF5 file that this matches ('data/*') is one example.",
)


def by_source(words: Sequence[str], read: Callable[[str], Any], option: str) -> Any:
    """Read ``[NAME=]VALUE`` words: a mapping of source, one value for all, or None.

    Raises
    ------
    click.UsageError
        If values for all sources and for single ones are mixed, or one cannot be read.

    Examples
    --------
    >>> by_source(["x=3", "y=4"], int, "chunks"), by_source(["3"], int, "chunks")
    ({'x': 3, 'y': 4}, 3)
    """
    named: dict[str, Any] = {}
    plain: list[Any] = []
    for word in words:
        name, equals, value = word.rpartition("=")
        try:
            found = read(value)
        except ValueError:
            raise click.UsageError(
                f"--{option} {word}: {value!r} cannot be read; see --help"
            ) from None
        if equals:
            named[name] = found
        else:
            plain.append(found)
    if len(plain) > 1 or (plain and named):
        raise click.UsageError(f"--{option} is given for all sources and once more; name a source")
    return named or (plain[0] if plain else None)


def lengths_of(text: str) -> Any:
    """Read ``64``, ``64,3,32``, or a word that functions know: ``auto``, ``keep``."""
    if text in ("auto", "keep"):
        return text
    numbers = tuple(int(part) for part in text.split(","))
    return numbers if len(numbers) > 1 else numbers[0]


def codec_of(text: str) -> str | None:
    """Read the name of a codec; "none" is None."""
    return None if text == "none" else text


def names_of(
    words: Sequence[str], option: str, cut: Callable[[str, str], tuple[str, str, str]]
) -> dict[str, list[str]]:
    """Read ``NAME=a,b,c`` words.

    `cut` is ``str.partition``, or ``str.rpartition`` where the names before ``=`` hold such signs
    sooner than those behind.

    Raises
    ------
    click.UsageError
        If a word has no ``=``.
    """
    out: dict[str, list[str]] = {}
    for word in words:
        name, equals, names = cut(word, "=")
        if not equals or not name:
            raise click.UsageError(f"--{option} {word}: give SOURCE=name,name,...")
        out[name] = names.split(",")
    return out


def options_of(words: Sequence[str], option: str) -> dict[str, Any]:
    """Read ``NAME=VALUE`` words; values as in JSON where they are, else texts.

    Examples
    --------
    >>> options_of(["channels=1", "delimiter=;"], "option")
    {'channels': 1, 'delimiter': ';'}
    """
    out: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--{option} {word}: give NAME=VALUE")
        try:
            out[name] = json.loads(value)
        except ValueError:
            out[name] = value
    return out


def storage_of(
    layout: Sequence[str], compression: Sequence[str], level: Sequence[str], chunks: Sequence[str]
) -> dict[str, Any]:
    """Return what `storage_options` were given, as functions take it; None for nothing."""
    return {
        "layout": by_source(layout, str, "layout"),
        "compression": by_source(compression, codec_of, "compression"),
        "level": by_source(level, int, "level"),
        "chunks": by_source(chunks, lengths_of, "chunks"),
    }
