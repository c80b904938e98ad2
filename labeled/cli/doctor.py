"""``labeled doctor``: what reads badly in a file, what it costs, and the command that mends it."""

from __future__ import annotations

import json
from typing import Any

import click

from labeled.api.doctoring import Diagnosis
from labeled.api.doctoring import doctor as diagnose
from labeled.cli.info import visible
from labeled.cli.options import external_option
from labeled.views.text import table
from labeled.writing.diagnosis import Finding, summed_up


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
        click.echo(json.dumps(facts(found), indent=2))
    else:
        click.echo(visible("\n".join(lines(found))))
    if not found.healthy:
        ctx.exit(1)


def facts(found: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as values fit for JSON."""
    return {
        "path": found.path,
        "findings": [
            {
                "kind": each.kind,
                "source": each.source,
                "split": each.split,
                "found": each.words,
                "mend": each.mend,
                "rows_per_s": each.rows_per_s,
                "mended_rows_per_s": each.mended_rows_per_s,
                "cost": each.cost,
            }
            for each in found.findings
        ],
        "command": found.command,
        "obstacle": found.obstacle,
        "rows_per_s": dict(found.rows_per_s),
        "mended_rows_per_s": dict(found.mended_rows_per_s),
    }


def lines(found: Diagnosis) -> list[str]:
    """Draw a diagnosis as text."""
    if found.healthy:
        return [str(found)]
    head = ("where", "finding", "rows/s", "mended", "cost", "what it is")
    alike = summed_up(found.findings)
    out = [f"{found.path}:", *table([head, *(row_of(first, where) for first, where in alike)])]
    shown = {first.source for first, _ in alike if first.cost is not None}
    for name, now in found.rows_per_s.items():
        if name not in shown:
            continue
        then = found.mended_rows_per_s[name]
        out.append(f"{name}, all together: {now:,.0f} rows/s now, {then:,.0f} rows/s mended")
    advice = found.advice()
    return [*out, "", *advice] if advice else out


def row_of(finding: Finding, where: str) -> tuple[str, ...]:
    """Return the row of a finding in the table."""
    if finding.cost is None:
        return where, finding.kind, "", "", "", finding.words
    return (
        where,
        finding.kind,
        f"{finding.rows_per_s:,.0f}",
        f"{finding.mended_rows_per_s:,.0f}",
        f"{finding.cost:.1f} x",
        finding.words,
    )
