"""Measures all parts, or those asked for; prints a table and writes JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import benchmarks.gpu
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.card import GIB, Figures, NoGpu, card, fitting
from benchmarks.gpu.parts import ALWAYS, PART_S, PARTS, USUAL_S, measured, measured_apart, written
from labeled.display.text import table

NO_GPU = 2
"""What the process ends with where there is nothing to measure."""


def lines_of(found: Figures) -> list[str]:
    """Write what was found as one table: part, what, figure."""
    rows = [("part", "what", "figure")]

    def walk(part: str, what: str, value: Any) -> None:
        if isinstance(value, dict):
            for name, one in value.items():
                walk(part, f"{what} / {name}" if what else name, one)
        elif isinstance(value, list):
            pass  # what was said last: in the JSON
        elif isinstance(value, float):
            rows.append((part, what, f"{value / 1e9:.2f} G" if value > 1e7 else f"{value:.4g}"))
        else:
            rows.append((part, what, str(value)))

    for part, value in found.items():
        walk(part, "", value)
    return table(rows)


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=benchmarks.gpu.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gib", type=float, default=2.0, help="size of a file, in GiB")
    parser.add_argument("--only", action="append", default=[], choices=PARTS, help="may come again")
    parser.add_argument("--out", type=Path, help="where JSON goes")
    parser.add_argument("--cache", type=Path, help="folder of files, kept between runs")
    parser.add_argument("--limit-s", type=float, default=480.0, help="for all parts together")
    parser.add_argument("--host", action="store_true", help="try the script without a GPU")
    parser.add_argument("--together", action="store_true", help="all parts in this process")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--bounds", type=json.loads, default={}, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table and write JSON; return what the process ends with."""
    options = options_of(arguments)
    end = monotonic() + options.limit_s
    try:
        measures = card(options.host)
    except NoGpu as error:
        print(f"no GPU to measure: {error}", file=sys.stderr)
        return NO_GPU
    nbytes = int(options.gib * GIB)
    if options.part is not None:
        bench = Bench(measures, options.cache, nbytes, partial(written, path=options.out))
        written(measured(options.part, bench, options.bounds), options.out)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        cache = options.cache or Path(folder)
        cache.mkdir(parents=True, exist_ok=True)
        nbytes = fitting(measures, cache, nbytes)
        bench = Bench(measures, cache, nbytes)
        same = ["--gib", str(nbytes / GIB), "--cache", str(cache), *["--host"] * options.host]
        found: Figures = {}
        for name in PARTS:
            if options.only and name not in (*ALWAYS, *options.only):
                continue
            bounds = found.get("copies", {})
            if options.together:
                found[name] = measured(name, bench, bounds)
            else:
                limit_s = min(PART_S.get(name, USUAL_S), end - monotonic())
                found[name] = measured_apart(name, same, bounds, limit_s, Path(folder))
            print(f"{name}: {json.dumps(found[name], default=str)}", flush=True)
            if options.out is not None:
                written(found, options.out)
    print("\n".join(lines_of(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
