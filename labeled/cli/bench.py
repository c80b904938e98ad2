"""``labeled bench``: how fast batches of one's own file can be had, here and elsewhere.

The bare loop, this library, h5py, xarray and every other loader that is installed read the
same rows, turn by turn, and are stopped after a time limit; what ran is what the rate is of.
How they are timed is told in :mod:`labeled.bench.timing`, what is said of it in
:mod:`.bench_words`.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from tqdm import tqdm

from labeled.bench.cache import warm
from labeled.bench.copies import copies
from labeled.bench.own_file import Asked, check_memory, every_way, fresh_figures, watch_all
from labeled.bench.planning import planning_figures
from labeled.bench.subject import Subject
from labeled.bench.table import machine, plain_rows
from labeled.bench.timing import Effort, Measured, Way, measure
from labeled.cli.bench_words import Run, page, shown
from labeled.cli.options import external_option
from labeled.errors import LabeledWarning

DEFAULT_MEMORY = "64 MiB"
WARM_S = 10.0
COLD_LIMITS, COPY_LIMITS = 2, 12
"""Time limits of a loop that a reading from storage may take, and all permuting copies."""

Part = tuple[Subject, list[Way]]


@click.command(short_help="Measure reading rates on your file, beside other loaders.")
@click.argument("file")
@click.option(
    "--source", "sources", multiple=True, metavar="NAME", help="Only this source; may be repeated."
)
@click.option("--split", metavar="NAME", help="Rows of this split; of the file if not.")
@click.option(
    "--batch-size",
    "--batch",
    "batch_rows",
    default=256,
    show_default=True,
    type=click.IntRange(min=1),
)
@click.option(
    "--memory",
    metavar="SIZE",
    help="For windows and read-ahead, here and where others can be told. Default: 64 MiB, or what "
    "large rows need.",
)
@click.option(
    "--seconds",
    default=0.5,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit of one loop in one round.",
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1))
@click.option("--quick", is_flag=True, help="The same as --seconds 0.1 --rounds 1 --no-peak.")
@click.option(
    "--only", multiple=True, metavar="WORD", help="Only loops with WORD in their names; repeatable."
)
@click.option("--peak/--no-peak", default=True, help="Measure peak memory too, in new processes.")
@click.option(
    "--cold/--no-cold", default=True, help="Drop FILE from the page cache and read it again, too."
)
@click.option(
    "--copies/--no-copies", "permuted", default=True, help="Measure permuting copies too."
)
@click.option("--how", is_flag=True, help="Tell of each loop how it reads.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@external_option
def bench(
    file: str,
    sources: tuple[str, ...],
    split: str | None,
    batch_rows: int,
    memory: str | None,
    seconds: float,
    rounds: int,
    quick: bool,
    only: tuple[str, ...],
    peak: bool,
    cold: bool,
    permuted: bool,
    how: bool,
    as_json: bool,
    allow_external: bool,
) -> None:
    """Measure how fast batches of FILE can be had: here, by other loaders, by a bare loop.

    Numbers of one shape are read together, as a training loop reads them; examples that differ
    in shape, and text, source by source. Every loop touches each cache line of every batch.
    The first round warms up and is not counted. Ratios within one run are what to trust: rates
    move with whatever else the machine does.

    FILE is only read: a file, a folder, a glob. Loaders that are not installed are named, and
    how to get them.
    """
    if quick:
        seconds, rounds, peak = 0.1, 1, False
    size = DEFAULT_MEMORY if memory is None else memory
    asked = Asked(file, sources, split, batch_rows, size, allow_external)
    if memory is None:
        asked = asked.fitting()
    subjects = asked.subjects()
    for subject in subjects:
        check_memory(subject, asked.memory)  # what cannot be is refused before any work
    missing: dict[str, str] = {}
    parts = wanted([(one, every_way(one, missing)) for one in subjects], only)
    largest = max(subjects, key=lambda one: one.row_bytes)
    with bar("cold page cache", 1) as told:
        fresh = fresh_figures(asked, largest, min(rounds, 2) if cold else 0, seconds * COLD_LIMITS)
        told.update()
    run = Run(asked, missing, warmed(subjects[0]), cold=fresh["cold"], cold_of=largest)
    if memory is None and asked.memory != DEFAULT_MEMORY:
        run.default = DEFAULT_MEMORY
    effort = Effort(seconds, seconds * rounds, rounds, seconds, least_rounds=1)
    for subject, ways in parts:
        found = timed(ways, subject, effort)
        if peak:
            with bar("peak memory", len(found)) as told:
                unwatched = watch_all(asked.of(subject), found, seconds, told.update)
            missing |= {f"peak memory of {shown(name)}": why for name, why in unwatched.items()}
        run.parts.append((subject, found))
    run.planned = planning_figures(largest)
    if "open_s" in fresh:
        run.planned["open_s"] = fresh["open_s"]
    if permuted:
        with bar("orders of axes", 1) as told:
            run.cells = copies(subjects[0], seconds * COPY_LIMITS)
            told.update()
    click.echo(json.dumps(figures(run), indent=2) if as_json else "\n".join(page(run, how)))


def figures(run: Run) -> dict[str, Any]:
    """Return everything as plain values."""
    return {
        "machine": machine(),
        "about": {**asdict(run.asked), "read_before": run.cached},
        "parts": [
            {
                **about_rows(subject),
                "ways": [
                    {**row, "way": shown(row["way"])}
                    for row in plain_rows(found, subject.row_bytes)
                ],
                "figures": {shown(one.words): one.value for one in run.digest(subject, found)},
            }
            for subject, found in run.parts
        ],
        "planning": run.planned,
        "cold": {"of": list(run.cold_of.dataset.sources), **_named(run.cold)},
        "copies": run.cells,
        "missing": run.missing,
    }


def _named(cold: dict[str, Any]) -> dict[str, Any]:
    """Call this library by its name in rates."""
    rates = {key: cold[key] for key in ("mb_per_s", "median") if key in cold}
    return cold | {key: {shown(name): x for name, x in one.items()} for key, one in rates.items()}


def wanted(parts: list[Part], only: Sequence[str]) -> list[Part]:
    """Keep the ways whose names hold one of some words.

    Raises
    ------
    click.UsageError
        If there is none.
    """
    kept = [
        (subject, [w for w in ways if not only or any(word in shown(w.name) for word in only)])
        for subject, ways in parts
    ]
    if not any(ways for _, ways in kept):
        names = ", ".join(dict.fromkeys(shown(way.name) for _, ways in parts for way in ways))
        raise click.UsageError(f"no loop is called {' or '.join(only)}; there are: {names}")
    return [part for part in kept if part[1]]


def warmed(subject: Subject) -> float:
    """Bring the files into the page cache; return the share of them that there was time for."""
    paths = [path for path in subject.dataset.files.paths if "://" not in path]
    return min((warm(path, WARM_S / len(paths)) for path in paths), default=0.0)


def timed(ways: Sequence[Way], subject: Subject, effort: Effort) -> list[Measured]:
    """Measure all ways, saying on stderr which one is at it."""
    with bar("measuring", len(ways) * (effort.rounds + 1)) as told:

        def tell(name: str) -> None:
            told.set_postfix_str(shown(name), refresh=False)
            told.update()

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the peers: views, forks, their own deprecations
            warnings.simplefilter("default", LabeledWarning)
            return measure(ways, subject, effort, tell)


def bar(what: str, total: int) -> Any:
    """Return a progress bar on stderr that vanishes when done; nothing in pipes and logs."""
    return tqdm(total=total, desc=what, leave=False, disable=None, file=sys.stderr)


def about_rows(subject: Subject) -> dict[str, Any]:
    """Say what a batch is made of."""
    return {
        "measured": list(subject.dataset.sources),
        "form": subject.form,
        "n_rows": subject.n_rows,
        "row_bytes": subject.row_bytes,
        "labels": subject.labelled,
    }
