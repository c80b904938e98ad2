"""``labeled convert``: a labelled file of something else, or records of one."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import click
from dask.utils import format_bytes

from labeled.cli.options import (
    effort_options,
    examples_option,
    external_option,
    names_of,
    options_of,
    overwrite_option,
    storage_of,
    storage_options,
)
from labeled.dataset.convert import convert as convert_file
from labeled.dataset.opening import open_dataset
from labeled.writing.endings import RECORDS
from labeled.writing.sharing import rules_of_words


@click.command(short_help="Import other formats into a labelled file, with splits.")
@click.argument("origin")
@click.argument("target")
@click.argument("more", metavar="[SPLIT=RULE]...", nargs=-1)
@click.option(
    "--split",
    "split",
    multiple=True,
    metavar="SPLIT=RULE",
    help="Rows of a split: 0:50000, 0.8, 80%, 1000 or rest. More SPLIT=RULE may follow.",
)
@click.option("--stratify", metavar="SOURCE", help="Give every split its share of each class.")
@click.option("--group", metavar="SOURCE", help="Never cut what has one value of SOURCE.")
@click.option("--seed", default=0, show_default=True, help="Of the rows that are drawn.")
@click.option("--in-order", is_flag=True, help="Take shares in the order of rows.")
@click.option("--only", multiple=True, metavar="SPLIT", help="Take only rows of this split.")
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Take only this source.")
@click.option("--dims", multiple=True, metavar="SOURCE=a,b,c", help="Names of all its axes.")
@click.option(
    "--columns",
    multiple=True,
    metavar="SOURCE=a,b,c",
    help="Columns of a table that become one source.",
)
@click.option("--resize", metavar="EDGE|HxW", help="Make pictures one shape: scaled, then cut.")
@click.option(
    "--option",
    "more_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="How ORIGIN is opened: channels=1, delimiter=;, ...",
)
@examples_option
@external_option
@click.option("--example-dim", metavar="DIM", help="What counts examples in netCDF and zarr.")
@storage_options
@overwrite_option
@effort_options
def convert(
    origin: str,
    target: str,
    more: Sequence[str],
    split: Sequence[str],
    stratify: str | None,
    group: str | None,
    seed: int,
    in_order: bool,
    only: Sequence[str],
    sources: Sequence[str],
    dims: Sequence[str],
    columns: Sequence[str],
    resize: str | None,
    more_options: Sequence[str],
    examples: str | None,
    allow_external: bool,
    example_dim: str | None,
    layout: Sequence[str],
    compression: Sequence[str],
    level: Sequence[str],
    chunks: Sequence[str],
    overwrite: bool,
    memory: str | None,
    progress: bool | None,
    as_json: bool,
) -> None:
    """Import ORIGIN into the labelled file TARGET.

    ORIGIN may be .npy, .npz, .parquet, a zarr store, netCDF, a folder of pictures by class,
    or what labeled opens (HDF5, CSV, IDX, .rec); or several files, all those before TARGET.
    TARGET is a labelled HDF5 file, unless it ends in .rec. It appears only once it is complete;
    whatever cut a conversion short, begin it again.

    \b
      labeled convert digits.npz digits.hdf5 --split train=0:1500 test=1500:
      labeled convert digits.npz digits.hdf5 --split train=0.8 test=0.2 --stratify targets
      labeled convert train_x.npy test_x.npy digits.hdf5
      labeled convert digits.hdf5 test.hdf5 --only test
      labeled convert pictures/ pictures.hdf5 --resize 64 --split train=0.9 test=rest
    """
    paths = [origin, target, *itertools.takewhile(lambda word: "=" not in word, more)]
    *origins, target = paths
    rules = rules_of_words([*split, *more[len(paths) - 2 :]])
    opened = {**options_of(more_options, "option"), **resize_of(resize)}
    if "group" in opened:
        raise click.UsageError(
            "--option group: convert opens whole files; in Python, "
            "labeled.write(TARGET, labeled.open_dataset(ORIGIN, group=...)) writes groups"
        )
    if allow_external:
        opened["allow_external"] = True
    if examples is not None:
        opened["examples"] = examples
    started = perf_counter()
    asked = storage_of(layout, compression, level, chunks)
    storage = {option: value for option, value in asked.items() if value is not None}
    path = convert_file(
        origins if len(origins) > 1 else origin,
        target,
        split=rules or None,
        stratify=stratify,
        group=group,
        seed=seed,
        in_order=in_order,
        only=list(only) or None,
        sources=list(sources) or None,
        dims=names_of(dims, "dims", str.rpartition) or None,
        columns=names_of(columns, "columns", str.partition) or None,
        example_dim=example_dim,
        overwrite=overwrite,
        progress=progress,
        memory=memory,
        **storage,
        **opened,
    )
    report(path, perf_counter() - started, as_json=as_json)


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


def report(path: str, seconds: float, *, as_json: bool, **more: Any) -> None:
    """Say what was written, in one line or as JSON."""
    size = os.path.getsize(path)
    facts: dict[str, Any] = {
        "path": path,
        "file_bytes": size,
        "seconds": round(seconds, 3),
        "bytes_per_s": round(size / max(seconds, 1e-9)),
        **more,
    }
    labelled = os.path.splitext(path)[1].lower() != RECORDS
    if labelled:
        dataset = open_dataset(path)
        facts["sources"] = {n: len(dataset.selection(n)) for n in dataset.sources}
        facts["splits"] = dataset.splits if set(dataset.splits) != {"all"} else {}
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    rate = format_bytes(facts["bytes_per_s"])
    words = f"{path}: {format_bytes(size)} in {seconds:.1f} s ({rate}/s)"
    if labelled:
        words += "; " + ", ".join(f"{name} ({n:,} rows)" for name, n in facts["sources"].items())
    if facts.get("splits"):
        counts = (f"{s} {max(by.values(), default=0):,}" for s, by in facts["splits"].items())
        words += f"; splits {', '.join(counts)}"
    click.echo(words)
