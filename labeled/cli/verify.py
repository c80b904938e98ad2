"""``labeled verify``: are the rows of files still those that were written?"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from labeled.catalog.files import find_files
from labeled.writing.verify import Verified
from labeled.writing.verify import verify as verify_file


@click.command(short_help="Compare rows with the checksums stored beside them.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only this source.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list with one entry a file.")
@click.pass_context
def verify(ctx: click.Context, files: Sequence[str], sources: Sequence[str], as_json: bool) -> None:
    """Compare rows with the checksums stored when FILE was written.

    Reads every row once. Names source and rows that differ; the exit code is then 1.
    """
    found = []
    for path in find_files(files):
        found.append(verify_file(path, sources=sources or None))
        if not as_json:
            click.echo("\n".join(lines_of(found[-1])))
    if as_json:
        facts = [{**asdict(each), "sound": each.sound} for each in found]
        click.echo(json.dumps(facts, indent=2))
    if not all(each.sound for each in found):
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
