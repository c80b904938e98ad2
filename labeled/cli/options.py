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
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import click

from labeled.dataset.files import find_files

Decorator = Callable[[Any], Any]


class WithExamples(click.Command):
    """A command whose help begins with lines to copy."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = examples

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(formatter, self.examples)
        super().format_help_text(ctx, formatter)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[str]) -> None:
    """Write lines to copy as they are."""
    formatter.write_paragraph()
    formatter.write("".join(f"  {line}\n" for line in examples))


def command(*examples: str) -> Decorator:
    """Make a command of a function; its docstring follows the examples in its help."""
    return click.command(cls=WithExamples, examples=examples)


def wants_colour() -> bool:
    """Whether stdout is a terminal, and nobody asked for no colour."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


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


def pairs(
    read: Callable[[str], Any], *, alone: bool = False, cut: Callable[..., Any] = str.rpartition
) -> Any:
    """Return what reads words ``NAME=VALUE`` as a mapping, by the rule `read` for values.

    Parameters
    ----------
    alone : bool
        Take one ``VALUE`` without a name, for all.
    cut : callable
        ``str.partition`` where values hold ``=`` sooner than names.
    """

    def values(ctx: click.Context, option: click.Parameter, words: Sequence[str]) -> Any:
        named, plain = {}, []
        for word in words:
            name, equals, value = cut(word, "=") if "=" in word else ("", "", word)
            if not (name if equals else alone):
                raise click.UsageError(f"{option.opts[0]} {word}: give NAME=VALUE")
            try:
                found = read(value)
            except ValueError:
                raise click.UsageError(
                    f"{option.opts[0]} {word}: {value!r} cannot be read; see --help"
                ) from None
            if equals:
                named[name] = found
            else:
                plain.append(found)
        if len(plain) > 1 or (plain and named):
            raise click.UsageError(
                f"{option.opts[0]} is given for all sources and once more; name a source"
            )
        return plain[0] if plain else named

    return values


def names_of(text: str) -> list[str]:
    """Read ``a,b,c``."""
    return text.split(",")


def lengths_of(text: str) -> Any:
    """Read ``64``, ``64,3,32``, or a word that functions know: ``auto``, ``keep``."""
    if text in ("auto", "keep"):
        return text
    numbers = tuple(int(part) for part in text.split(","))
    return numbers if len(numbers) > 1 else numbers[0]


def value_of(text: str) -> Any:
    """Read a value of JSON where it is one, else a text.

    Examples
    --------
    >>> value_of("1"), value_of(";")
    (1, ';')
    """
    try:
        return json.loads(text)
    except ValueError:
        return text


def pairs_option(name: str, metavar: str, words: str, read: Any, *target: str) -> Decorator:
    """Return an option that takes a word for each source."""
    return click.option(name, *target, multiple=True, metavar=metavar, callback=read, help=words)


def or_none(text: str) -> str | None:
    """Read ``none`` as None."""
    return None if text == "none" else text


storage_options = together(
    pairs_option(
        "--layout", "[NAME=]LAYOUT", "auto, contiguous or chunked.", pairs(str, alone=True)
    ),
    pairs_option(
        "--compression", "[NAME=]CODEC", "none, gzip, zstd or lz4.", pairs(or_none, alone=True)
    ),
    pairs_option("--level", "[NAME=]LEVEL", "Level of compression.", pairs(int, alone=True)),
    pairs_option(
        "--chunks",
        "[NAME=]ROWS",
        "Rows per chunk, or its shape: 64,3,32,32.",
        pairs(lengths_of, alone=True),
    ),
)
"""How sources are stored."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")

effort_options = together(
    click.option("--memory", metavar="SIZE", help="Memory it may use for rows [default: 128 MiB]."),
    click.option(
        "--progress/--no-progress", default=None, help="Show a bar [default: on a terminal]."
    ),
    json_option,
)
"""How much memory is used, and what is shown meanwhile."""

overwrite_option = click.option("--overwrite", is_flag=True, help="Replace TARGET if it exists.")

sources_option = click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only this source."
)

seconds_option = click.option(
    "--seconds",
    default=0.3,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit of a measurement.",
)

opened_option = pairs_option(
    "--option",
    "NAME=VALUE",
    "How to read the format: channels=1, delimiter=;",
    pairs(value_of, cut=str.partition),
    "opened",
)

dims_option = pairs_option(
    "--dims", "SOURCE=a,b,c", "Names of all axes of SOURCE, if the file has none.", pairs(names_of)
)

external_option = click.option(
    "--allow-external", is_flag=True, help="Follow links to other files, if you trust the file."
)

group_option = click.option(
    "--group", metavar="GROUP", help="Open this group of an HDF5 file; 'data/*' joins many."
)

examples_option = click.option(
    "--examples", metavar="PATTERN", help="HDF5 datasets or groups, each of them one example."
)


# messages


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

    said = _PARAMETER.sub(words, message)
    if "dims=" in said:  # of a command without --dims
        said = said.replace("when opening it", "to labeled.open_dataset in Python")
    return said


def _words(param: click.Parameter, value: str | None) -> str:
    """Say a parameter and its value as they are given on the command line."""
    if isinstance(param, click.Argument):
        return str(param.name).upper()
    option = max(param.opts, key=len)
    if value is None:
        return option
    try:
        read = ast.literal_eval(value)
    except (ValueError, SyntaxError):  # a bare word, or a form such as {name: (...)}
        read = value
    if getattr(param, "is_flag", False):
        return option if read else (param.secondary_opts or [option])[0]
    if "..." in value:
        return f"{option} {param.metavar or '...'}"
    if isinstance(read, Mapping):
        return " ".join(f"{option} {name}={_joined(one)}" for name, one in read.items())
    return " ".join(f"{option} {_joined(one)}" for one in (read if type(read) is list else [read]))


def _joined(value: Any) -> str:
    """Return a value as one word of a shell."""
    if isinstance(value, tuple | list):
        return ",".join(map(_joined, value))
    return shlex.quote(str(value))


# a command on each file in a process of its own: HDF5 may never come back from a damaged file, or
# end the process, and nothing that runs in the same process can help that


SECONDS = 60.0
"""How long a child may take where no limit is given."""


def run_isolated(
    ctx: click.Context,
    /,
    asked_by: str,
    timeout_s: float = SECONDS,
    failed: Mapping[str, Any] | None = None,
) -> None:
    """Run the command of `ctx` again for each of its files, each in a child.

    Parameters
    ----------
    ctx : click.Context
        Of a command with an argument ``files`` and an option ``as_json``.
    asked_by : str
        The parameter that asked for this, which children are not given.
    timeout_s : float
        Seconds for each file; a child that takes longer is ended.
    failed : mapping, optional
        What JSON says of a file that no child could tell about, beside its path and the error.
    """
    words = [str(ctx.command.name)]
    for param in ctx.command.get_params(ctx):
        value = given(ctx, "files", asked_by).get(str(param.name))
        if value is True:
            words += param.opts
        elif value:
            values = value if param.multiple else [value]
            words += [word for one in values for word in (param.opts[0], str(one))]
    as_json = ctx.params["as_json"]
    described: list[Any] = []
    codes = []
    for path in find_files(ctx.params["files"]):
        code, printed, said = run_child([*words, "--", path], path, timeout_s)
        codes.append(code)
        click.echo(said, err=True, nl=False)
        if not as_json:
            click.echo(printed, nl=False)
        elif printed:
            described += json.loads(printed)
        else:
            error = said.strip().removeprefix("Error: ")
            described.append({"path": path, "error": error, **(failed or {})})
    if as_json:
        click.echo(json.dumps(described, indent=2))
    if any(codes):
        ctx.exit(1)


def run_child(words: Sequence[str], path: str, timeout_s: float) -> tuple[int, str, str]:
    """Run ``labeled`` with these words; return its exit code, and what it printed and said."""
    # -P: what lies in the current folder is not imported
    command = [sys.executable, "-P", "-m", "labeled", *words]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        why = (
            f"took more than {timeout_s:g} s and was given up: it may be damaged, so that HDF5 "
            "searches it without end; or allow it more time"
        )
        return 1, "", f"Error: {path!r} {why}\n"
    if ended.returncode >= 0:
        return ended.returncode, ended.stdout, ended.stderr
    name = signal.Signals(-ended.returncode).name
    return 1, "", f"Error: {path!r} ended the process that read it ({name}): it may be damaged\n"
