"""A command on each file in a process of its own, with a time limit.

HDF5 may never come back from a damaged file, or end the process: nothing that runs in the same
process can help that. Here the command is run again, once for each file, and what became of a
child is said in one line that names its file.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from labeled.dataset.files import find_files

SECONDS = 60.0
"""How long a child may take where no limit is given."""


def run_isolated(
    ctx: click.Context,
    files: Sequence[str],
    asked_by: str,
    timeout_s: float = SECONDS,
    failed: Mapping[str, Any] | None = None,
) -> None:
    """Run the command of `ctx` again for each of `files`, each in a child.

    Parameters
    ----------
    ctx : click.Context
        Of a command with an argument ``files`` and an option ``as_json``.
    files : sequence of str
        Files, folders and globs.
    asked_by : str
        The parameter that asked for this, which children are not given.
    timeout_s : float
        Seconds for each file; a child that takes longer is ended.
    failed : mapping, optional
        What JSON says of a file that no child could tell about, beside its path and the error.
    """
    words = [str(ctx.command.name), *option_words(ctx, asked_by)]
    as_json = ctx.params["as_json"]
    described: list[Any] = []
    codes = []
    for path in find_files(files):
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


def option_words(ctx: click.Context, without: str) -> list[str]:
    """Return the options that a command was given, as words of the command line."""
    words = []
    for param in ctx.command.params:
        value = ctx.params.get(str(param.name))
        if isinstance(param, click.Argument) or param.name == without or value is None:
            continue
        if isinstance(param, click.Option) and param.is_flag:
            words += param.opts if value else []
        else:
            values = value if param.multiple else [value]
            words += [word for one in values for word in (param.opts[0], str(one))]
    return words


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
