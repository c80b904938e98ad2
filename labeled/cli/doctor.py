"""``labeled doctor``: what reads badly in a file, what it costs, and the command that mends it."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from labeled.api.doctoring import doctor as diagnose
from labeled.cli.info import visible
from labeled.cli.options import external_option


@click.command(short_help="Find what reads badly, and the command that mends it.")
@click.argument("file")
@click.option("--target", help="What the command shall write. Default: a free name beside FILE.")
@click.option(
    "--seconds",
    default=0.3,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Of each measurement.",
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
    """Find what reads badly in FILE, and print the command that mends it.

    Each finding is tried out on some rows of FILE, as they are and with the remedy, so
    rates are those of this machine; of findings alike the dearest is shown (--json tells all).
    The exit code is 1 if anything is found.
    """
    found = diagnose(file, target=target, seconds=seconds, allow_external=allow_external)
    if as_json:
        costs = [{"cost": each.cost} for each in found.findings]
        facts = asdict(found)
        for each, cost in zip(facts["findings"], costs, strict=True):
            each |= cost
        click.echo(json.dumps(facts, indent=2))
    else:
        click.echo(visible(str(found)))
    if not found.healthy:
        ctx.exit(1)
