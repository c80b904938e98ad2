"""What functions call ``overwrite=True`` is ``--overwrite`` on the command line.

Messages of the library name the parameters of its functions. Those that a command has as
options or arguments of the same name are put into its words; others stay as they are, and
whose parameters they are is said at the end.
"""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from labeled.api.opening import open_dataset
from labeled.writing.write import write

_PARAMETER = re.compile(r"(?<![\w.\"'-])([a-z_]+)=(?!=)")
_CLOSING = {"{": "}", "[": "]", "(": ")", "'": "'", '"': '"'}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "labeled.open_dataset": open_dataset,
    "labeled.write": write,
}
_PLAIN = re.compile(r"[\w.%+-]*\w")


def in_flags(text: str, command: click.Command | None) -> str:
    """Put the parameters that a message names into the words of a command.

    Examples
    --------
    >>> option = click.Option(["--overwrite"], is_flag=True)
    >>> in_flags("it is there; pass overwrite=True", click.Command("write", params=[option]))
    'it is there; pass --overwrite'
    """
    if command is None:
        return text
    known = {str(p.name): p for p in command.params}
    out, end = [], 0
    others: list[str] = []
    for found in _PARAMETER.finditer(text):
        name = found[1]
        param = known.get(name) or known.get(name.removesuffix("s"))
        if found.start() < end:
            continue
        if param is None:
            others.append(name)
            continue
        value = _value_at(text, found.end())
        out += [text[end : found.start()], _words(param, value)]
        end = found.end() + len(value)
    return "".join(out) + text[end:] + _whose(others)


def _whose(names: Sequence[str]) -> str:
    """Say whose parameters those are that a command has no words for."""
    told = []
    for function, called in _FUNCTIONS.items():
        its = dict.fromkeys(n for n in names if n in inspect.signature(called).parameters)
        names = [name for name in names if name not in its]
        if its:
            are = "is a parameter" if len(its) == 1 else "are parameters"
            told.append(f"{' and '.join(f'{n}=' for n in its)} {are} of {function}")
    return f" ({', '.join(told)}, in Python)" if told else ""


def _value_at(text: str, start: int) -> str:
    """Return the value that begins there, up to its closing bracket; "" where none does."""
    closing = _CLOSING.get(text[start : start + 1])
    if closing is None:
        plain = _PLAIN.match(text, start)
        return "" if plain is None else plain[0]
    ends = (i + 1 for i in range(start + 1, len(text)) if text[i] == closing)
    texts = [text[start:end] for end in ends]
    return next((one for one in texts if _is_value(one)), texts[0] if texts else "")


def _is_value(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    return True


def _words(param: click.Parameter, value: str) -> str:
    """Say a parameter and its value as they are given on the command line."""
    if isinstance(param, click.Argument):
        return str(param.name).upper()
    option = max(param.opts, key=len)
    if not value:
        return option
    given = _given(value)
    if getattr(param, "is_flag", False):
        return option if given else (param.secondary_opts or [option])[0]
    if given is ...:
        return f"{option} {param.metavar or '...'}"
    if isinstance(given, Mapping):
        return " ".join(f"{option} {name}={_joined(one)}" for name, one in given.items())
    if isinstance(given, list):
        return " ".join(f"{option} {_joined(one)}" for one in given)
    return f"{option} {_joined(given)}"


def _given(value: str) -> Any:
    """Read a value; an ellipsis stands for what a message leaves open, such as ``[...]``."""
    if "..." in value:
        return ...
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def _joined(value: Any) -> str:
    """Return a value as one word of a shell."""
    if isinstance(value, tuple | list):
        return ",".join(map(_joined, value))
    return shlex.quote(str(value))
