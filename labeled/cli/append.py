"""``labeled append``: the rows of another file, at the end of a file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from time import perf_counter

import click

from labeled.cli.convert import report
from labeled.cli.options import effort_options, options_of
from labeled.dataset.opening import open_dataset
from labeled.errors import LabeledWarning
from labeled.writing.append import append as append_rows


@click.command(short_help="Add the rows of another file to a file.")
@click.argument("file")
@click.argument("more")
@click.option("--split", metavar="NAME", help="The split of FILE, old or new, that gets the rows.")
@click.option("--only", metavar="NAME", help="Take only rows of this split of MORE.")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Take only this source.")
@click.option(
    "--option",
    "more_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="How MORE is opened: labels=species, delimiter=;, ...",
)
@click.option("--in-place", is_flag=True, help="Change FILE itself; its sources must be chunked.")
@effort_options
def append(
    file: str,
    more: str,
    split: str | None,
    only: str | None,
    sources: Sequence[str],
    more_options: Sequence[str],
    in_place: bool,
    memory: str | None,
    progress: bool | None,
    as_json: bool,
) -> None:
    """Add the rows of MORE to FILE, which has the same sources.

    MORE is anything that labeled opens (HDF5, CSV, IDX, .rec). A copy of FILE grows and then
    takes its place, so that FILE is whole at any time; --in-place costs only what is new.

    \b
      labeled append all.hdf5 monday.csv --split train
    """
    started = perf_counter()
    with warnings.catch_warnings():  # axes that MORE does not name are those of FILE
        warnings.filterwarnings("ignore", ".* does not name every axis", LabeledWarning)
        opened = options_of(more_options, "option")
        rows = open_dataset(more, sources=list(sources) or None, **opened)
    path = append_rows(
        file,
        rows if only is None else rows.split(only),
        split=split,
        in_place=in_place,
        progress=progress,
        memory=memory,
    )
    report(path, perf_counter() - started, as_json=as_json)
