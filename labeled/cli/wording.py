"""What functions call ``overwrite=True`` is ``--overwrite`` on the command line.

Messages of the library name the parameters of its functions. Those that a command has as
options or arguments of the same name are put into its words; others stay as they are.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping
from typing import Any

import click

_PARAMETER = re.compile(
    r"""(?<![\w."'-])(?P<name>[a-z_]+)=(?!=)"""
    r"""(?P<value>\{[^{}]*\}|\[[^][]*\]|'[^']*'|"[^"]*"|[\w.%+-]*\w)?"""
)


def one_line(message: object) -> str:
    """Put a message on one line.

    Examples
    --------
    >>> one_line(ValueError("split 'a'\\n  is not there"))
    "split 'a' is not there"
    """
    return " ".join(str(message).split()) or type(message).__name__


def in_flags(message: str, command: click.Command | None) -> str:
    """Put the parameters that a message names into the words of a command.

    Examples
    --------
    >>> option = click.Option(["--overwrite"], is_flag=True)
    >>> in_flags("it is there; pass overwrite=True", click.Command("write", params=[option]))
    'it is there; pass --overwrite'
    """
    known = {} if command is None else {str(p.name): p for p in command.params}

    def words(found: re.Match[str]) -> str:
        param = known.get(found["name"]) or known.get(found["name"].removesuffix("s"))
        return found[0] if param is None else _words(param, found["value"])

    return _PARAMETER.sub(words, message)


def _words(param: click.Parameter, value: str | None) -> str:
    """Say a parameter and its value as they are given on the command line."""
    if isinstance(param, click.Argument):
        return str(param.name).upper()
    option = max(param.opts, key=len)
    if value is None:
        return option
    try:
        given = ast.literal_eval(value)
    except (ValueError, SyntaxError):  # a bare word, or a form such as {name: (...)}
        given = value
    if getattr(param, "is_flag", False):
        return option if given else (param.secondary_opts or [option])[0]
    if "..." in value:
        return f"{option} {param.metavar or '...'}"
    if isinstance(given, Mapping):
        return " ".join(f"{option} {name}={_joined(one)}" for name, one in given.items())
    if isinstance(given, list):
        return " ".join(f"{option} {_joined(one)}" for one in given)
    return f"{option} {_joined(given)}"


def _joined(value: Any) -> str:
    """Return a value as one word of a shell."""
    if isinstance(value, tuple | list):
        return ",".join(map(_joined, value))
    return shlex.quote(str(value))
