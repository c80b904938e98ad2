"""``labeled bench``: how fast batches of one's own file can be had, here and elsewhere.

The bare loop, this library, h5py, xarray and every other loader that is installed read the
same rows, turn by turn, and are stopped after a time limit; what ran is what the rate is of.
How they are timed is told in :mod:`labeled.bench.timing`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click
from dask.utils import format_bytes
from tqdm import tqdm

from labeled.bench import ours
from labeled.bench.cache import warm
from labeled.bench.own_file import Asked, every_way, watch_all
from labeled.bench.planning import Figures, planning_figures
from labeled.bench.subject import Subject
from labeled.bench.table import HEAD, machine, measured_rows, plain
from labeled.bench.timing import Effort, Measured, Way, measure, paired_ratio
from labeled.loader.sizes import size_words
from labeled.views.text import table

WARM_S = 10.0
SMALL_BYTES = 8 << 20


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
    default="64 MiB",
    show_default=True,
    help="For windows and read-ahead, here and where others can be told.",
)
@click.option(
    "--seconds",
    default=0.5,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit of one loop in one round.",
)
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--only", multiple=True, metavar="WORD", help="Only loops with WORD in their names; repeatable."
)
@click.option("--peak/--no-peak", default=True, help="Measure peak memory too, in new processes.")
@click.option("--how", is_flag=True, help="Tell of each loop how it reads.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def bench(
    file: str,
    sources: tuple[str, ...],
    split: str | None,
    batch_rows: int,
    memory: str,
    seconds: float,
    rounds: int,
    only: tuple[str, ...],
    peak: bool,
    how: bool,
    as_json: bool,
) -> None:
    """Measure how fast batches of FILE can be had: here, by other loaders, by a bare loop.

    Sources are read together, as a training loop reads them, and every loop touches each
    cache line of every batch. The first round warms up and is not counted. Ratios within
    one run are what to trust: rates move with whatever else the machine does.

    Loaders that are not installed are named, and how to get them.
    """
    asked = Asked(file, sources, split, batch_rows, memory)
    subject = asked.subject()
    ours.loader(subject, shuffle="window")  # what cannot be is refused before any work
    missing: dict[str, str] = {}
    ways = wanted(every_way(subject, missing), only)
    cached = warmed(subject)
    found = timed(ways, subject, Effort(seconds, seconds * rounds, rounds, seconds))
    if peak:
        with bar("peak memory", len(found)) as told:
            unwatched = watch_all(asked, found, seconds, told.update)
        missing |= {f"peak memory of {shown(name)}": why for name, why in unwatched.items()}
    planned = planning_figures(subject)
    if as_json:
        about = {"file": file, **about_rows(subject), **asdict(asked), "read_before": cached}
        ran = [{**plain(m), "way": shown(m.way.name)} for m in found]
        figures = {"machine": machine(), "about": about, "planning": planned}
        click.echo(json.dumps({**figures, "ways": ran, "missing": missing}, indent=2))
        return
    lines = [*heading(asked, subject), *tables(found, subject), *planning_lines(planned)]
    lines += ["", *summary(found), *notes(asked, subject, found, missing, cached)]
    if how:
        lines += ["", *(f"{shown(m.way.full_name)}: {m.way.how}" for m in found)]
    click.echo("\n".join(lines))


def wanted(ways: list[Way], only: Sequence[str]) -> list[Way]:
    """Keep the ways whose names hold one of some words.

    Raises
    ------
    click.UsageError
        If there is none.
    """
    kept = [way for way in ways if not only or any(word in shown(way.name) for word in only)]
    if not kept:
        names = ", ".join(dict.fromkeys(shown(way.name) for way in ways))
        raise click.UsageError(f"no loop is called {' or '.join(only)}; there are: {names}")
    return kept


def shown(name: str) -> str:
    """Call this library by its name.

    Examples
    --------
    >>> shown("ours, file order"), shown("h5py slices")
    ('labeled, file order', 'h5py slices')
    """
    return name.replace("ours", "labeled", 1) if name.startswith("ours") else name


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

        return measure(ways, subject, effort, tell)


def bar(what: str, total: int) -> Any:
    """Return a progress bar on stderr that vanishes when done; nothing in pipes and logs."""
    return tqdm(total=total, desc=what, leave=False, disable=None, file=sys.stderr)


def about_rows(subject: Subject) -> dict[str, Any]:
    """Say what a batch is made of."""
    return {
        "n_rows": subject.n_rows,
        "row_bytes": subject.row_bytes,
        "measured": list(subject.dataset.sources),
        "labels": subject.labelled,
    }


def heading(asked: Asked, subject: Subject) -> Iterator[str]:
    yield (
        f"{asked.file}: {subject.n_rows:,} rows of {subject.row_bytes:,} bytes "
        f"({', '.join(subject.dataset.sources)}), batches of {asked.batch_rows:,}, "
        f"memory {asked.memory}"
    )
    main = subject.main
    if main is not None:
        packed = ", ".join(step.words for step in main.header.filters) or "no filter"
        rows = main.chunk_rows
        laid = "contiguous" if rows is None else f"chunks of {rows:,} rows, {packed}"
        yield f"{main.name}: {main.header.dtype} {main.header.row_shape} a row, {laid}"


def tables(found: Sequence[Measured], subject: Subject) -> Iterator[str]:
    """Draw what was measured: loops in file order, then those in any other."""
    lines = measured_rows(found, subject.row_bytes)
    named = [(shown(line[0]), *line[1:]) for line in lines]
    for title, in_order in (("file order", True), ("shuffled", False)):
        some = [
            line
            for line, m in zip(named, found, strict=True)
            if (m.way.order == "file") == in_order
        ]
        if some:
            yield f"\n{title}"
            yield from table([OUR_HEAD, *some])


OUR_HEAD = tuple("labeled / it" if name == "ours / it" else name for name in HEAD)


def planning_lines(planned: Figures) -> Iterator[str]:
    """Say what happens before the first row."""
    yield "\nbefore the first row"
    rows = [
        ("lazy array", f"{planned['graph_s'] * 1e3:.1f} ms", f"{planned['graph_blocks']:,} blocks"),
        ("plan of an epoch", f"{planned['plan_s'] * 1e3:.1f} ms", ""),
        ("going on in mid-epoch", f"{planned['seek_s'] * 1e3:.1f} ms", ""),
    ]
    if "index_s" in planned:
        kept = format_bytes(int(planned["index_bytes"]))
        told = f"{planned['n_chunks']:,.0f} chunks, {kept}"
        rows.insert(0, ("chunk index", f"{planned['index_s'] * 1e3:.1f} ms", told))
    yield from table(rows)


def summary(found: Sequence[Measured]) -> Iterator[str]:
    """Say in a line for each order how this library compares with the fastest of the others."""
    for title, in_order in (("In file order", True), ("Shuffled", False)):
        some = [m for m in found if (m.way.order == "file") == in_order and m.median is not None]
        mine = [m for m in some if m.way.kind == "ours" and m.way.order != "list"]
        others = [m for m in some if m.way.kind == "peer"]
        if mine and others:
            best, rival = (max(group, key=lambda m: m.median or 0.0) for group in (mine, others))
            ratio, mixed = paired_ratio(best, rival), _mixed(best, rival)
            yield f"{title}: {ratio:.3g} x {rival.way.name}, the fastest of the others{mixed}."


def _mixed(best: Measured, rival: Measured) -> str:
    if best.way.order == "file" or best.entropy is None or rival.entropy is None:
        return ""
    return f" (batch entropy {best.entropy:.3f} against {rival.entropy:.3f})"


def notes(
    asked: Asked,
    subject: Subject,
    found: Sequence[Measured],
    missing: dict[str, str],
    cached: float,
) -> Iterator[str]:
    """Say what a reader of the table must know."""
    if any(not m.complete for m in found):
        yield "*: stopped before the end of an epoch; more --seconds measure more of it."
    if subject.labelled is not None:
        yield (
            f"Entropy: of the {subject.labelled!r} in a batch, relative to a full shuffle; 1 is "
            "as good as it gets."
        )
    else:
        yield "Entropy: none of the sources measured holds classes, one whole number a row."
    if asked.sources == () and len(dropped := left_out(asked, subject)):
        yield f"Left out, because rows are not numbers of one shape: {', '.join(dropped)}."
    if any(m.kept for m in found):
        yield (
            f"The rows fit --memory {asked.memory!r}: labeled reads them once and keeps them, and "
            f"its rates are those of memory. {_measuring(subject)}"
        )
    if cached < 1:
        yield (
            f"Only {cached:.0%} of the file was read beforehand, in {WARM_S:.0f} s: what was "
            "measured includes its storage."
        )
    if not subject.by_others:
        yield "Other loaders cannot read this file by themselves, and were left out."
    for name, why in missing.items():
        yield f"Not measured: {name}: {why}"


def _measuring(subject: Subject) -> str:
    """Say how reading the file itself is measured."""
    half = subject.n_rows * subject.row_bytes // 2
    if half < SMALL_BYTES:
        return "Reading a file as small as this one cannot be measured."
    return f"--memory {size_words(half)!r} measures the file."


def left_out(asked: Asked, subject: Subject) -> list[str]:
    """Return the sources that could not be measured."""
    everything = asked.opened().sources
    return [name for name in everything if name not in subject.dataset.sources]
