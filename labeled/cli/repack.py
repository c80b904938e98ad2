"""``labeled repack``: the same rows in other chunks, another codec, another order."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import click

from labeled.cli.convert import report
from labeled.cli.options import (
    effort_options,
    external_option,
    names_of,
    overwrite_option,
    storage_of,
    storage_options,
)
from labeled.writing.ordering import ORDERS
from labeled.writing.repack import repack as repack_file


@click.command(short_help="Rewrite a file with other chunks, codec or row order.")
@click.argument("file")
@click.argument("target")
@storage_options
@click.option(
    "--ragged", type=click.Choice(["flat", "fuel"]), help="How examples of many shapes are kept."
)
@click.option(
    "--order",
    type=click.Choice(ORDERS),
    default="keep",
    show_default=True,
    help="splits puts the rows of each split together, shuffle mixes them there as well.",
)
@click.option("--shuffle", is_flag=True, help="The same as --order shuffle.")
@click.option("--seed", default=0, show_default=True, help="Of the shuffle.")
@click.option("--dims", multiple=True, metavar="SOURCE=a,b,c", help="Names of all its axes.")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Compare the rows.")
@external_option
@overwrite_option
@effort_options
def repack(
    file: str,
    target: str,
    layout: Sequence[str],
    compression: Sequence[str],
    level: Sequence[str],
    chunks: Sequence[str],
    ragged: Any,
    order: str,
    shuffle: bool,
    seed: int,
    dims: Sequence[str],
    verify: bool,
    allow_external: bool,
    overwrite: bool,
    memory: str,
    progress: bool | None,
    as_json: bool,
) -> None:
    """Write FILE again as TARGET, stored differently; what is not asked for stays as it is.

    Before TARGET takes its name, its rows are read back and compared with those of FILE.
    TARGET may be FILE itself, with --overwrite.

    \b
      labeled repack slow.hdf5 fast.hdf5 --chunks images=64 --compression images=gzip
      labeled repack demos.hdf5 fast.hdf5 --layout 'data/demo_*/actions=contiguous'
      labeled repack sorted.hdf5 mixed.hdf5 --shuffle --seed 7
    """
    if shuffle and order not in ("keep", "shuffle"):
        raise click.UsageError(f"--shuffle and --order {order} do not go together")
    started = perf_counter()
    storage = storage_of(layout, compression, level, chunks)
    if not compression:  # "none" is a wish too
        del storage["compression"]
    path = repack_file(
        file,
        target,
        **{k: v for k, v in storage.items() if v is not None or k == "compression"},
        ragged=ragged,
        order="shuffle" if shuffle else order,
        seed=seed,
        dims=names_of(dims, "dims", str.rpartition) or None,
        verify=verify,
        allow_external=allow_external,
        overwrite=overwrite,
        memory=memory,
        progress=progress,
    )
    report(path, perf_counter() - started, as_json=as_json, verified=verify)
