"""The command ``labeled``: its page of help, and how errors and warnings are said.

Whatever goes wrong for a reason leaves as one line on stderr and exit code 1: errors of
this library and of the file system. Wrong usage is click's own, with exit code 2. Any
other exception is a bug and keeps its traceback, so that it can be reported.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import click

from labeled import __version__
from labeled.cli import options as opt
from labeled.cli.bench import bench
from labeled.cli.demo import demo
from labeled.cli.showing import head, info
from labeled.cli.writing import append, convert, doctor, repack, verify
from labeled.errors import LabeledError, LabeledWarning

EXAMPLES = (
    "labeled demo                            without a file of your own",
    "labeled info FILE                       what is in it",
    "labeled head FILE images --rows 4       its first pictures",
    "labeled convert FOLDER FILE --split train=0.8 test=0.2",
)


class Commands(opt.WithExamples, click.Group):
    """A group of commands that says errors and warnings in one line each."""

    def invoke(self, ctx: click.Context) -> Any:
        said: set[str] = set()

        def words(message: object) -> str:
            return opt.in_flags(
                opt.one_line(message), self.commands.get(ctx.invoked_subcommand or "")
            )

        def show(message: Warning | str, *where: Any, **more: Any) -> None:
            text = words(message)
            if text not in said:
                said.add(text)
                click.echo(f"Warning: {text}", err=True)

        for stream in (sys.stdout, sys.stderr):  # a name in a file may be no UTF-8
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
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
    examples=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
In Python:
  ds = labeled.open_dataset("FILE")
  for batch in ds.batches(256, shuffle=True, seed=7): ...

\b
Files may be HDF5, netCDF-4, IDX, CSV, RecordIO or zarr. Progress and warnings go to stderr.
Exit codes: 0 done, 1 failed (one line says why), 2 wrong usage.""",
)
@click.version_option(__version__, prog_name="labeled")
def main() -> None:
    """Inspect, make and repair files of examples, and feed them in shuffled batches.

    A file holds sources: named arrays whose first axis counts examples, such as images
    and targets. Splits, such as train and test, name some of its rows.
    """


for command in (info, head, demo, bench, verify, convert, append, repack, doctor):
    main.add_command(command)
