"""``labeled verify``: are the rows of files still those that were written?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from labeled.cli.isolated import run_isolated
from labeled.cli.options import external_option
from labeled.cli.wording import in_flags, one_line
from labeled.dataset.files import find_files
from labeled.errors import LabeledError
from labeled.writing.verify import Verified
from labeled.writing.verify import verify as verify_file


@click.command(short_help="Compare rows with their stored checksums.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only this source.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list with one entry a file.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Read each file in a process of its own, which is ended after so many seconds.",
)
@external_option
@click.pass_context
def verify(
    ctx: click.Context,
    files: Sequence[str],
    sources: Sequence[str],
    as_json: bool,
    timeout: float | None,
    allow_external: bool,
) -> None:
    """Compare rows with the checksums stored when FILE was written.

    Reads every row once. Names source and rows that differ, and files that cannot be compared;
    the exit code is then 1. With --timeout, a damaged file can neither end the command nor keep
    it busy.
    """
    if timeout is not None:
        run_isolated(ctx, files, "timeout", timeout, {"sound": False})
        return
    facts: list[dict[str, Any]] = []
    for path in find_files(files):
        try:
            found = verify_file(path, sources=sources or None, allow_external=allow_external)
        except LabeledError as error:
            words = in_flags(one_line(error), ctx.command)
            facts.append({"path": path, "error": words, "sound": False})
            click.echo(f"Error: {words}", err=True)
            continue
        facts.append({**asdict(found), "sound": found.sound})
        if not as_json:
            click.echo("\n".join(lines_of(found)))
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    if not all(each["sound"] for each in facts):
        ctx.exit(1)


def lines_of(found: Verified) -> list[str]:
    """Say what was found out about one file."""
    lines = [f"{found.path}: {each}" for each in found.differences]
    rows = ", ".join(f"{name} ({n:,} rows)" for name, n in found.n_rows.items())
    if found.sound and rows:
        lines.append(f"{found.path}: as written: {rows}")
    if found.without:
        lines.append(f"{found.path}: without checksums: {', '.join(found.without)}")
    return lines
