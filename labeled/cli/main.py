"""The command ``labeled``: its page of help, how errors and warnings are said, and the commands
that make files, change them and look after them; each is a function of the public API.

Whatever goes wrong for a reason leaves as one line on stderr and exit code 1: errors of
this library and of the file system. Wrong usage is click's own, with exit code 2. Any
other exception is a bug and keeps its traceback, so that it can be reported.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from time import perf_counter
from typing import Any

import click
from dask.utils import format_bytes

import labeled
from labeled.cli import options as opt
from labeled.cli.bench import bench
from labeled.cli.demo import demo
from labeled.cli.showing import head, info
from labeled.dataset.files import find_files
from labeled.display.text import count_words
from labeled.errors import LabeledError, LabeledWarning
from labeled.formats.format import natural
from labeled.writing.splits import ORDERS, rules_of_words


class Commands(click.Group):
    """A group of commands that says errors and warnings in one line each."""

    def invoke(self, ctx: click.Context) -> Any:
        said: set[str] = set()

        def words(message: object) -> str:
            command = self.commands.get(ctx.invoked_subcommand or "")
            return opt.in_flags(opt.one_line(message), command)

        def show(message: Warning | str, *where: Any, **more: Any) -> None:
            text = words(message)
            if text not in said:
                said.add(text)
                click.echo(f"Warning: {text}", err=True)

        for stream in filter(None, (sys.stdout, sys.stderr)):  # a name in a file may be no UTF-8
            stream.reconfigure(errors="backslashreplace")
        with warnings.catch_warnings():
            warnings.simplefilter("always", LabeledWarning)
            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except BrokenPipeError:  # `labeled info x | head -1`: click ends quietly
                raise
            except (LabeledError, OSError) as error:
                raise click.ClickException(words(error)) from error


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
In Python:
  ds = labeled.open_dataset("FILE")
  for batch in ds.batches(256, shuffle=True, seed=7): ...

\b
Files may be HDF5, netCDF-4, IDX, CSV, RecordIO or zarr. Progress and warnings go to stderr.
Exit codes: 0 done, 1 failed (one line says why), 2 wrong usage.""",
)
@click.version_option(labeled.__version__, prog_name="labeled")
def main() -> None:
    """Inspect, make and repair files of examples, and feed them in shuffled batches.

    \b
    labeled demo                            without a file of your own
    labeled info FILE                       what is in it
    labeled head FILE images --rows 4       its first pictures
    labeled convert FOLDER FILE --split train=0.8 test=0.2

    A file holds sources: named arrays whose first axis counts examples, such as images
    and targets. Splits, such as train and test, name some of its rows.
    """


# commands that make files, change them and look after them


@click.command()
@click.argument("origin")
@click.argument("target")
@click.argument("more", metavar="[SPLIT=RULE]...", nargs=-1)
@click.option(
    "--split",
    multiple=True,
    metavar="SPLIT=RULE",
    help="Rows of a split: 0:50000, 0.8, 80%, 1000, rest.",
)
@click.option("--stratify", metavar="SOURCE", help="Share out each class evenly; pictures: labels.")
@click.option(
    "--keep-together", "groups", metavar="SOURCE", help="Keep rows with equal SOURCE in one split."
)
@click.option("--seed", default=0, show_default=True, help="Seed of the rows drawn at random.")
@click.option("--in-order", is_flag=True, help="Take shares in file order, not at random.")
@click.option(
    "--only", multiple=True, metavar="SPLIT", help="Only the rows of this split of ORIGIN."
)
@opt.sources
@opt.dims
@opt.pairs(
    "--columns",
    "SOURCE=a,b,c",
    "Columns of a table to join into one source.",
    opt.names_of,
    cut=str.partition,
)
@click.option("--resize", metavar="EDGE|HxW", help="Make pictures one shape: scale, then crop.")
@opt.opened
@opt.group
@opt.examples
@opt.external
@click.option("--example-dim", metavar="DIM", help="The dim that counts examples (netCDF, zarr).")
@opt.storage
@opt.overwrite
@opt.effort
@click.pass_context
def convert(
    ctx: click.Context, /, origin: str, target: str, more: Sequence[str], **params: Any
) -> None:
    """Import other formats into a labelled file, with splits.

    \b
    labeled convert digits.npz digits.hdf5 --split train=0.8 test=0.2 --stratify targets
    labeled convert train_x.npy test_x.npy digits.hdf5
    labeled convert pictures/ all.hdf5 --resize 64 --split train=0.9 test=rest

    ORIGIN may be .npy, .npz, .parquet, zarr, netCDF-4, a folder of pictures by class, or anything
    that labeled opens (HDF5, CSV, IDX, .rec). Give several files one after another, and TARGET
    last. TARGET is an HDF5 file, unless its name ends in .rec, and appears only once it is
    complete.
    """
    paths = [origin, target, *itertools.takewhile(lambda word: "=" not in word, more)]
    *origins, target = paths
    if origins == sorted(origins):  # as the shell leaves a glob, with x_10.npy before x_2.npy
        origins.sort(key=natural)
    rules = rules_of_words([*params["split"], *more[len(paths) - 2 :]])
    opened = {**params["opened"], **resize_of(params["resize"])}
    options = opt.given(ctx, "origin", "target", "more", "split", "opened", "resize", "as_json")
    options |= opened | ({"split": rules} if rules else {})
    report(partial(labeled.convert, origins, target, **options), params["as_json"])


def resize_of(text: str | None) -> dict[str, Any]:
    """Return options that give pictures one shape.

    Examples
    --------
    >>> resize_of("64"), resize_of("32x48")
    ({'resize': 64, 'shape': (64, 64)}, {'resize': 48, 'shape': (32, 48)})
    """
    if text is None:
        return {}
    parts = text.lower().split("x")
    if not all(part.isdigit() and int(part) for part in parts) or len(parts) > 2:
        raise click.UsageError(f"--resize {text}: give the edge of a square, or HEIGHTxWIDTH")
    height, width = int(parts[0]), int(parts[-1])
    return {"resize": max(height, width), "shape": (height, width)}


@click.command()
@click.argument("file")
@click.argument("more")
@click.option("--split", metavar="NAME", help="The split of FILE, old or new, that gets the rows.")
@click.option("--only", metavar="NAME", help="Only rows of this split of MORE.")
@opt.sources
@opt.opened
@opt.effort
@click.pass_context
def append(ctx: click.Context, /, file: str, more: str, only: str | None, **params: Any) -> None:
    """Add the rows of another file to a file.

    \b
    labeled append all.hdf5 monday.csv --split train

    MORE has the same sources as FILE, and is anything that labeled opens (HDF5, CSV, IDX,
    .rec). FILE is written once more and then takes its own place, so that it is whole at any
    time.
    """
    with warnings.catch_warnings():  # axes that MORE does not name are those of FILE
        warnings.filterwarnings("ignore", ".* does not name every axis", LabeledWarning)
        rows = labeled.open_dataset(more, sources=params["sources"] or None, **params["opened"])
    rows = rows if only is None else rows.split(only)
    options = opt.given(ctx, "file", "more", "only", "sources", "opened", "as_json")
    report(partial(labeled.append, file, rows, **options), params["as_json"])


@click.command()
@click.argument("file")
@click.argument("target")
@opt.storage
@click.option(
    "--ragged",
    type=click.Choice(["flat", "fuel"]),
    help="How examples of different shapes are stored.",
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default="keep",
    show_default=True,
    help="splits: put the rows of each split together; shuffle: mix them there, too.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the shuffle.")
@opt.dims
@click.option(
    "--verify/--no-verify", default=True, show_default=True, help="Compare the rows with FILE."
)
@opt.external
@opt.overwrite
@opt.effort
@click.pass_context
def repack(ctx: click.Context, /, file: str, target: str, **params: Any) -> None:
    """Rewrite a file with other chunks, codec or row order.

    \b
    labeled repack slow.hdf5 fast.hdf5 --chunks images=64 --compression images=gzip
    labeled repack demos.hdf5 fast.hdf5 --layout 'data/demo_*/actions=contiguous'
    labeled repack sorted.hdf5 mixed.hdf5 --order shuffle --seed 7

    What is not asked for stays as it is. Before TARGET takes its name, its rows are read back
    and compared with those of FILE. TARGET may be FILE itself, with --overwrite.
    """
    options = opt.given(ctx, "file", "target", "as_json")
    written = partial(labeled.repack, file, target, **options)
    report(written, params["as_json"], verified=params["verify"])


def report(write: Callable[[], str], as_json: bool, **more: Any) -> None:
    """Have a file written, and say what was, in one line or as JSON."""
    started = perf_counter()
    path = write()
    seconds, size = perf_counter() - started, os.path.getsize(path)
    facts: dict[str, Any] = {
        "path": path,
        "file_bytes": size,
        "seconds": round(seconds, 3),
        "bytes_per_s": round(size / max(seconds, 1e-9)),
        **more,
    }
    facts["sources"], facts["splits"] = {}, {}
    if size:  # a file of no records has no bytes, and nothing opens it
        dataset = labeled.open_dataset(path)
        facts["sources"] = {n: len(dataset.selection(n)) for n in dataset.sources}
        facts["splits"] = dataset.splits if set(dataset.splits) != {"all"} else {}
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    rate = format_bytes(facts["bytes_per_s"])
    words = f"{path}: {format_bytes(size)} in {seconds:.1f} s ({rate}/s)"
    words += f"; {rows_words(facts['sources']) or 'no rows'}"
    if facts["splits"]:
        counts = (f"{s} {max(by.values(), default=0):,}" for s, by in facts["splits"].items())
        words += f"; splits {', '.join(counts)}"
    click.echo(words)


def rows_words(n_rows: Mapping[str, int]) -> str:
    """Say how many rows sources have."""
    return ", ".join(f"{name} ({count_words(n, 'row')})" for name, n in n_rows.items())


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@opt.sources
@opt.as_json
@opt.external
@click.pass_context
def verify(ctx: click.Context, /, files: Sequence[str], as_json: bool, **params: Any) -> None:
    """Compare rows with their stored checksums.

    \b
    labeled verify digits.hdf5
    labeled verify data/

    Reads every row once. Names source and rows that differ, and files that cannot be compared;
    the exit code is then 1.
    """
    facts: list[dict[str, Any]] = []
    for path in find_files(files):
        try:
            found = labeled.verify(path, **opt.given(ctx, "files", "as_json"))
        except LabeledError as error:
            words = opt.in_flags(opt.one_line(error), ctx.command)
            facts.append({"path": path, "error": words, "sound": False})
            click.echo(f"Error: {words}", err=True)
            continue
        facts.append({**asdict(found), "sound": found.sound})
        if as_json:
            continue
        for difference in found.differences:
            click.echo(f"{found.path}: {difference}")
        if found.sound and found.n_rows:
            click.echo(f"{found.path}: as written: {rows_words(found.n_rows)}")
        if found.without:
            click.echo(f"{found.path}: without checksums: {', '.join(found.without)}")
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    if not all(each["sound"] for each in facts):
        ctx.exit(1)


@click.command()
@click.argument("file")
@click.option("--target", help="TARGET of the printed command [default: an unused name].")
@opt.seconds
@opt.as_json
@opt.external
@click.pass_context
def doctor(ctx: click.Context, /, file: str, as_json: bool, **params: Any) -> None:
    """Report slow layouts and the command that fixes them.

    \b
    labeled doctor slow.hdf5

    Headers are judged. Then a sample of rows is written as the command would, and read in
    shuffled batches beside the file's own: rates are those of this machine. Of similar findings
    the first is shown (--json has all). The exit code is 1 if anything is found.
    """
    found = labeled.doctor(file, **opt.given(ctx, "file", "as_json"))
    if as_json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        click.echo(str(found))
    if not found.healthy:
        ctx.exit(1)


for command in (info, head, demo, bench, verify, convert, append, repack, doctor):
    main.add_command(command)
