"""What commands share: options, how words become values, and what is printed about failures.

A command is a function of the public API with its options as click has them: :func:`given` hands
over those that somebody gave, under the same names, so that a default is written once. Messages
of the library name parameters of functions; :func:`in_flags` puts them into words of the command
line: ``overwrite=True`` is ``--overwrite``.
"""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import click

from labeled.display.progress import is_terminal
from labeled.formats.registry import option_names
from labeled.writing.doctor import words_of_option

Decorator = Callable[[Any], Any]


def wants_colour() -> bool:
    """Whether stdout is a terminal, and nobody asked for no colour."""
    return is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def heading(text: str) -> str:
    """Return a line that stands out on a terminal."""
    return click.style(text, bold=True) if wants_colour() else text


def given(ctx: click.Context, *without: str) -> dict[str, Any]:
    """Return the parameters that a command was given, but for some of them."""
    default = click.core.ParameterSource.DEFAULT
    return {
        name: value
        for name, value in ctx.params.items()
        if name not in without and ctx.get_parameter_source(name) is not default
    }


def together(*options: Decorator) -> Decorator:
    """Return a decorator that adds options in the order in which they are given."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


def before_value(word: str, equals: str) -> tuple[str, str, str]:
    """Cut ``NAME=VALUE`` in two: names may hold ``=``, and values that are a list of JSON.

    Examples
    --------
    >>> before_value("k=0/x=a,b", "="), before_value('x=["a=b"]', "=")
    (('k=0/x', '=', 'a,b'), ('x', '=', '["a=b"]'))
    """
    name, _, listed = word.partition(f"{equals}[")
    return (name, equals, f"[{listed}") if listed.endswith("]") else word.rpartition(equals)


def pairs(
    name: str,
    metavar: str,
    words: str,
    read: Callable[[str], Any],
    target: str = "",
    *,
    alone: bool = False,
    cut: Callable[..., Any] = before_value,
) -> Decorator:
    """Return an option of words ``NAME=VALUE``, which become a mapping by the rule `read`.

    Parameters
    ----------
    target : str
        The parameter it fills, where that is not called as the option.
    alone : bool
        Take one ``VALUE`` without a name, for all.
    cut : callable
        ``str.partition`` where values hold ``=`` sooner than names.
    """

    def values(ctx: click.Context, option: click.Parameter, given: Sequence[str]) -> Any:
        named = {}
        for word in given:
            key, equals, value = cut(word, "=") if "=" in word else ("", "", word)
            if not (key if equals else alone):
                raise click.UsageError(f"{name} {word}: give NAME=VALUE")
            try:
                named[key] = read(value)
            except ValueError:
                raise click.UsageError(
                    f"{name} {word}: {value!r} cannot be read; see --help"
                ) from None
        if "" in named and len(given) > 1:
            raise click.UsageError(f"{name} is given for all sources and once more; name a source")
        return named.get("", named)

    targets = [target] * bool(target)
    return click.option(name, *targets, multiple=True, metavar=metavar, callback=values, help=words)


def names_of(text: str) -> list[str]:
    """Read ``a,b,c``; names that contain commas are a list of JSON."""
    listed = value_of(text)
    return listed if isinstance(listed, list) else text.split(",")


def lengths_of(text: str) -> Any:
    """Read ``64``, ``64,3,32``, or a word that functions know: ``auto``, ``keep``."""
    if text in ("auto", "keep"):
        return text
    numbers = tuple(int(part) for part in text.split(","))
    return numbers if len(numbers) > 1 else numbers[0]


def value_of(text: str) -> Any:
    """Read a value of JSON where it is one, or of Python as messages show it, else a text.

    Examples
    --------
    >>> value_of("1"), value_of("False"), value_of(";")
    (1, False, ';')
    """
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


def or_none(text: str) -> str | None:
    """Read ``none`` as None."""
    return None if text == "none" else text


# how sources are stored
storage = together(
    pairs("--layout", "[NAME=]LAYOUT", "auto, contiguous or chunked.", str, alone=True),
    pairs("--compression", "[NAME=]CODEC", "none, gzip, zstd or lz4.", or_none, alone=True),
    pairs("--level", "[NAME=]LEVEL", "Level of compression.", int, alone=True),
    pairs(
        "--chunks", "[NAME=]ROWS", "Rows per chunk, or its shape: 64,3,32,32.", lengths_of,
        alone=True,
    ),
)  # fmt: skip

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

# how much memory is used, and what is shown meanwhile
effort = together(
    click.option("--memory", metavar="SIZE", help="Memory it may use for rows [default: 128 MiB]."),
    click.option(
        "--progress/--no-progress", default=None, help="Show a bar [default: on a terminal]."
    ),
    as_json,
)

overwrite = click.option("--overwrite", is_flag=True, help="Replace TARGET if it exists.")

sources = click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only this source."
)

seconds = click.option(
    "--seconds",
    default=0.3,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit of a measurement.",
)

opened = pairs(
    "--option", "NAME=VALUE", "How to read the format: channels=1, delimiter=;", value_of,
    "opened", cut=str.partition,
)  # fmt: skip

dims = pairs(
    "--dims", "SOURCE=a,b,c", "Names of all axes of SOURCE, if the file has none.", names_of
)

external = click.option(
    "--allow-external", is_flag=True, help="Follow links to other files, if you trust the file."
)

group = click.option(
    "--group", metavar="GROUP", help="Open this group of an HDF5 file; 'data/*' joins many."
)

examples = click.option(
    "--examples", metavar="PATTERN", help="HDF5 datasets or groups, each of them one example."
)


# messages


_PARAMETER = re.compile(
    r"""(?<![\w."'/-])(?P<name>[a-z_]+)=(?!=)"""
    r"""(?P<value>\{[^{}]*\}|\[[^][]*\]|'[^']*'|"[^"]*"|[\w.%+-]*\w)?"""
)


def one_line(message: object) -> str:
    """Put a message on one line."""
    return " ".join(str(message).split()) or type(message).__name__


def in_flags(message: str, command: click.Command | None) -> str:
    """Put the parameters that a message names into the words of a command.

    Examples
    --------
    >>> option = click.Option(["--overwrite"], is_flag=True)
    >>> in_flags("it is there; pass overwrite=True", click.Command("write", params=[option]))
    'it is there; pass --overwrite'
    """
    known = {} if command is None else {str(one.name): one for one in command.params}

    def words(found: re.Match[str]) -> str:
        param, text = known.get(found["name"]), found["value"]
        if param is None:
            of_format = "opened" in known and found["name"] in {*option_names(), "decode_cf"}
            plain = (text or " ")[0] not in "[{" and message[found.start() - 1] != "("
            value = (text or "").strip("'\"")
            return f"--option {found['name']}={value}" if of_format and plain else found[0]
        option = max(param.opts, key=len)
        if isinstance(param, click.Argument):
            option = param.human_readable_name.strip("[].")
        if text is None or getattr(param, "is_flag", False):
            off = text == "False" and param.secondary_opts
            return param.secondary_opts[0] if off else option
        if "..." in text:
            return f"{option} {getattr(param, 'metavar', None)}"
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):  # a bare word
            value = text
        return " ".join(words_of_option(option, value))

    return _PARAMETER.sub(words, message)
