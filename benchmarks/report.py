"""What a run leaves behind: a table for people, JSON for machines."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.files import BenchFile
from benchmarks.machine import machine
from benchmarks.rows import Workload
from benchmarks.section8 import Check, Results
from benchmarks.table import HEAD, measured_rows, plain_rows
from benchmarks.timing import Measured


def about() -> dict[str, Any]:
    """Describe the machine and the version of these sources."""
    return {**machine(), "commit": _commit()}


def _commit() -> str:
    try:
        command = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def markdown(head: Iterable[str], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Draw a table that also reads well as it is."""
    head, rows = tuple(head), list(rows)
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)) + " |"

    return [line(head), "|" + "|".join("-" * (w + 2) for w in widths) + "|", *map(line, rows)]


def check_rows(checks: list[Check]) -> list[tuple[str, ...]]:
    """Return section 8, row by row."""
    words = {True: "met", False: "MISSED", None: "not measured"}
    return [
        (
            c.row,
            c.words,
            "" if c.figure is None else f"{c.figure:.3g} {c.unit}".strip(),
            f"{'>=' if c.at_least else '<='} {c.bound:g} {c.unit}".strip(),
            words[c.met],
        )
        for c in checks
    ]


def workload_section(line: Workload, file: BenchFile, found: list[Measured]) -> list[str]:
    """Draw everything about one workload."""
    spec = file.spec
    title = (
        f"### {line.title}\n\n{spec.n_rows:,} rows of {spec.row_bytes:,} B "
        f"({spec.n_bytes / 1e6:.0f} MB, {file.ratio:.2f}:1), batch {line.batch_rows}\n"
    )
    notes = [f"- {m.way.name}: {m.way.how}" for m in found if m.way.kind != "bare"]
    notes += [f"- {m.way.name} failed: {m.error}" for m in found if m.error is not None]
    wrong = [m.way.name for m in found if m.holds_each_row_once is False]
    if wrong:
        notes.append(f"- **not each row once**: {', '.join(wrong)}")
    return [title, *markdown(HEAD, measured_rows(found, spec.row_bytes)), "", *notes, ""]


def write(
    folder: Path, name: str, text: str, results: Results, checks: list[Check], about: dict[str, Any]
) -> None:
    """Write the run as ``<name>.md`` and ``<name>.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    (folder / f"{name}.json").write_text(json.dumps(_plain(results, checks, about), indent=1))


def _plain(results: Results, checks: list[Check], about: dict[str, Any]) -> dict[str, Any]:
    return {
        "machine": about,
        "checks": [{**asdict(c), "met": c.met} for c in checks],
        "workloads": {
            name: plain_rows(found, results.row_bytes.get(name, 0))
            for name, found in results.measured.items()
        },
        "compression": results.ratios,
        "cold": results.cold,
        "chunks": results.chunks,
        "rows": results.rows,
        "copies": results.cells,
        "records": results.records,
        "plain_files": results.plain_files,
        "gpu": results.gpu,
        "missing": results.missing,
        "failed": results.failed,
    }
