"""One command for every figure: ``python -m benchmarks.run [--quick] [--only NAME]``.

Measures each row of section 8 of the design, next to other loaders, and writes a table for
people and JSON for machines; those on a GPU where there is one, by
:mod:`benchmarks.gpu.first_contact`. Files are made once, into ``--cache``.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from time import perf_counter

from benchmarks import permute, plain_files, planning, records, report
from benchmarks.cache import held
from benchmarks.gpu.first_contact import NO_GPU
from benchmarks.peak import watch
from benchmarks.rows import WORKLOADS, Workload, file_of
from benchmarks.section8 import Results, checks
from benchmarks.timing import Effort, Measured, measure

QUICK_SCALE = 8
QUICK = Effort(limit_s=0.6, way_s=0.5, rounds=5)
FULL = Effort(limit_s=2.5, way_s=2.4, rounds=9)
MEMORY_S = 2.5
"""How much of an epoch is watched for its peak memory."""

ROOT = Path(__file__).parent.parent


class Bench:
    """A run: what was asked for, and what was found so far."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.scale = QUICK_SCALE if options.quick else 1
        self.effort = QUICK if options.quick else FULL
        self.results = Results()
        self.lines: list[str] = []

    def wanted(self, name: str) -> bool:
        return not self.options.only or any(word in name for word in self.options.only)

    def say(self, *lines: str) -> None:
        """Print lines and keep them for the report."""
        self.lines += lines
        print("\n".join(lines), flush=True)

    def everything(self) -> None:
        for line in WORKLOADS:
            if self.wanted(line.name):
                self.guarded(line.name, lambda line=line: self.workload(line))
        parts: dict[str, Callable[[], None]] = {
            "cold": self.cold,
            "chunks": self.chunks,
            "rows-of-plans": self.rows,
            "copies": self.copies,
            "records": self.records,
            "plain-files": self.plain_files,
            "gpu": self.gpu,
        }
        for name, part in parts.items():
            if self.wanted(name):
                self.guarded(name, part)

    def guarded(self, name: str, part: Callable[[], None]) -> None:
        """Do a part; if it fails, say so and go on with the others."""
        began = perf_counter()
        print(f"\n... {name}", file=sys.stderr, flush=True)
        try:
            part()
        except Exception as error:
            self.results.failed[name] = f"{type(error).__name__}: {error}"
            self.say(f"\n**{name} failed**: {self.results.failed[name]}\n")
        print(f"... {name}: {perf_counter() - began:.0f} s", file=sys.stderr, flush=True)

    def workload(self, line: Workload) -> None:
        file = file_of(line, self.options.cache, self.scale)
        subject = file.subject(line.batch_rows)
        with held(file.path) as locked:
            found = measure(line.ways(subject, self.results.missing), subject, self.effort)
        if not locked:
            self.results.missing[f"{line.name}, locked in memory"] = "the system does not allow it"
        self.results.measured[line.name] = found
        self.results.ratios[line.name] = file.ratio
        self.results.row_bytes[line.name] = file.spec.row_bytes
        if not self.options.no_memory:
            self.memory(line, found)
        self.say(*report.workload_section(line, file, found))

    def memory(self, line: Workload, found: list[Measured]) -> None:
        """Measure peak memory, way by way in fresh processes, two at a time."""
        everyone = not self.options.quick
        chosen = [m for m in found if m.error is None and (everyone or m.way.kind == "ours")]
        about = [str(self.options.cache.resolve()), str(self.scale), line.name]
        for m, why in watch(about, chosen, MEMORY_S, ROOT).items():
            self.results.failed[f"memory of {m}, {line.name}"] = why

    def cold(self) -> None:
        command = [sys.executable, "-m", "benchmarks.cold", str(self.options.cache.resolve())]
        command += [str(self.scale), "2" if self.options.quick else "4"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        self.results.cold = json.loads(done.stdout)
        for found in self.results.cold:
            stayed = f"{found['stayed']:.1%} of pages stayed"
            self.say(f"### cold page cache: {found['file']}, {found['mb']:.0f} MB ({stayed})\n")
            rows = [(name, f"{rate:,.0f}") for name, rate in found["median"].items()]
            self.say(*report.markdown(("way", "MB/s of the file, median"), rows), "")

    def chunks(self) -> None:
        n = 100_000 if self.options.quick else 1_000_000
        self.results.chunks = planning.chunk_figures(self.options.cache, n)
        self.figures(f"planning: {n:,} chunks", self.results.chunks)

    def rows(self) -> None:
        n = 10_000_000 if self.options.quick else 100_000_000
        self.results.rows = planning.row_figures(self.options.cache, n)
        self.figures(f"planning: {n:,} rows", self.results.rows)

    def records(self) -> None:
        quick, missing = self.options.quick, self.results.missing
        found = records.figures(self.options.cache, quick=quick, missing=missing)
        self.results.records = found
        self.figures("record files of JPEGs", found)

    def plain_files(self) -> None:
        quick, missing = self.options.quick, self.results.missing
        found = plain_files.figures(self.options.cache, quick=quick, missing=missing)
        self.results.plain_files = found
        self.figures("IDX files and delimited text", found)

    def figures(self, title: str, found: planning.Figures) -> None:
        rows = [(name, f"{value:,.6g}") for name, value in found.items()]
        self.say(f"### {title}\n", *report.markdown(("what", "figure"), rows), "")

    def copies(self) -> None:
        cell_s = 0.04 if self.options.quick else 0.08
        options = argparse.Namespace(
            quick=self.options.quick, threads=None, repeats=5, cell_s=cell_s
        )
        self.results.cells = permute.sweep(options)
        table = permute.table(self.results.cells)
        self.say("### permuting copies\n", "```text", table, "```", "")

    def gpu(self) -> None:
        """Let :mod:`benchmarks.gpu.first_contact` measure what needs a GPU, if there is one."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "gpu.json"
            command = [sys.executable, "-m", "benchmarks.gpu.first_contact", "--out", str(out)]
            command += ["--gib", "0.25" if self.options.quick else "2"]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            if done.returncode == NO_GPU:
                self.results.missing["rows on a GPU"] = done.stderr.strip()
                return
            if done.returncode:
                raise RuntimeError(done.stderr.strip().splitlines()[-1])
            self.results.gpu = json.loads(out.read_text())
        self.say("### on a GPU\n", "```text", done.stdout.rstrip(), "```", "")

    def finish(self, about: dict[str, object]) -> str:
        found = checks(self.results)
        met = sum(check.met is True for check in found)
        head = ("row", "what", "figure", "bound", "")
        top = [
            f"# Benchmarks, {about['date']}",
            "",
            *_about_lines(about),
            "",
            "Rates are medians of interleaved epochs; `x bare` and `ours / it` are medians of",
            "ratios within a round. `*`: cut short by a time limit. Entropy: of the labels of a",
            "batch, relative to a full shuffle. Peak: growth of anonymous and shared memory after",
            "opening, in a fresh process. First batch: from before opening. A bare decode loop",
            "makes no batches, and so has no entropy.",
            "",
            f"## Section 8 of the design, row by row: {met} of {len(found)} met",
            "",
            *report.markdown(head, report.check_rows(found)),
            "",
        ]
        for what, why in {**self.results.missing, **self.results.failed}.items():
            top.append(f"- not measured: {what}: {why}")
        text = "\n".join([*top, "", "## Workloads", "", *self.lines, ""])
        print("\n" + "\n".join(top[top.index("") :]))
        if not self.options.no_results:
            name = self.options.name or f"{date.today():%Y-%m-%d}-{platform.machine()}"
            name += "-quick" if self.options.quick else ""
            report.write(self.options.results, name, text, self.results, found, about)
            print(f"\nwritten: {self.options.results / name}.md and .json")
        return text


def _about_lines(about: dict[str, object]) -> Iterator[str]:
    for key, value in about.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {v or '-'}" for k, v in value.items())
        yield f"- {key}: {value}"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small files, few repeats: minutes")
    parser.add_argument("--only", action="append", default=[], help="part of a workload's name")
    parser.add_argument("--cache", type=Path, default=ROOT / ".bench-cache")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--name", default="", help="of the result files; date and machine if not")
    parser.add_argument("--no-memory", action="store_true", help="leave peak memory out")
    parser.add_argument("--no-results", action="store_true", help="only print")
    return parser.parse_args(arguments)


def main() -> None:
    warnings.filterwarnings("ignore")  # of the peers: forks beside threads, their own deprecations
    bench = Bench(parse())
    about = report.about()
    began = perf_counter()
    bench.everything()
    at_end = report.about()
    about["load_at_end"], about["handover_at_end"] = at_end["load"], at_end["handover"]
    about["took"] = f"{perf_counter() - began:.0f} s"
    about["options"] = f"{'quick' if bench.options.quick else 'full'} {bench.options.only or ''}"
    bench.finish(about)


if __name__ == "__main__":
    main()
