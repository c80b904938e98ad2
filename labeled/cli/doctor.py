"""``labeled doctor``: slow layouts in a file, what they cost, and the command that fixes them."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from labeled.cli.info import visible
from labeled.cli.options import external_option
from labeled.dataset.doctor import doctor as diagnose


@click.command(short_help="Report slow layouts and the command that fixes them.")
@click.argument("file")
@click.option("--target", help="Target of the printed command. Default: a free name beside FILE.")
@click.option(
    "--seconds",
    default=0.3,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time of each measurement.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@external_option
@click.pass_context
def doctor(
    ctx: click.Context,
    file: str,
    target: str | None,
    seconds: float,
    as_json: bool,
    allow_external: bool,
) -> None:
    """Report slow layouts in FILE, and print the command that fixes them.

    Each fix is tried on a sample of rows, so rates are those of this machine. Of similar
    findings the most expensive is shown (--json has all). The exit code is 1 if anything is
    found.
    """
    found = diagnose(file, target=target, seconds=seconds, allow_external=allow_external)
    if as_json:
        findings = [{**asdict(each), "cost": each.cost} for each in found.findings]
        click.echo(json.dumps({**asdict(found), "findings": findings}, indent=2))
    else:
        click.echo(visible(str(found)))
    if not found.healthy:
        ctx.exit(1)
