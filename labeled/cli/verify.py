"""``labeled verify``: are the rows of files still those that were written?"""

from __future__ import annotations

from collections.abc import Sequence

import click

from labeled.catalog.files import find_files
from labeled.convert.verify import verify as verify_file


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Only this source.")
@click.pass_context
def verify(ctx: click.Context, files: Sequence[str], sources: Sequence[str]) -> None:
    """Compare rows with the checksums stored when FILE was written.

    Reads every row once. Names source and rows that differ; the exit code is then 1.
    """
    sound = True
    for path in find_files(files):
        found = verify_file(path, sources=sources or None)
        sound = sound and found.sound
        for each in found.differences:
            click.echo(f"{found.path}: {each}")
        rows = ", ".join(f"{name} ({n:,} rows)" for name, n in found.n_rows.items())
        if found.sound and rows:
            click.echo(f"{found.path}: as written: {rows}")
        if found.without:
            click.echo(f"{found.path}: without checksums: {', '.join(found.without)}")
    if not sound:
        ctx.exit(1)
