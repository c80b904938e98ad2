"""What a run leaves behind: a table for people, JSON for machines."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.files import BenchFile
from benchmarks.measure import Measured, paired_ratio
from benchmarks.rows import Workload
from benchmarks.section8 import Check, Results

PACKAGES = (
    "labeled",
    "numpy",
    "h5py",
    "hdf5plugin",
    "dask",
    "xarray",
    "deflate",
    "numba",
    "numcodecs",
    "torch",
    "xbatcher",
    "grain",
    "scDataset",
    "pyfive",
)
HEAD = (
    "way",
    "rows/s",
    "GB/s",
    "x bare",
    "ours / it",
    "entropy",
    "peak MiB",
    "first batch",
    "spread",
    "best rows/s",
)


def machine() -> dict[str, Any]:
    """Describe where a run was made, as far as it matters to its figures."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _line("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _line("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "huge_pages": _whole("/sys/kernel/mm/transparent_hugepage/enabled"),
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "allocator": "results recycled (a 24 MiB block was freed before timing)",
        "load": [round(x, 2) for x in os.getloadavg()],
        "commit": _commit(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _line(path: str, key: str) -> str:
    for line in _whole(path).splitlines():
        if line.startswith(key):
            return line.split(":", 1)[1].strip()
    return ""


def _whole(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    try:
        command = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def workload_rows(found: list[Measured], row_bytes: int) -> list[tuple[str, ...]]:
    """Return the table of one workload, without its head."""
    out = []
    for each in found:
        ours, bare = _like(found, each, "ours"), _like(found, each, "bare")
        if each.error is not None or each.median is None:
            out.append((each.way.name, f"failed: {each.error}", *[""] * (len(HEAD) - 2)))
            continue
        name = each.way.name if each.complete else each.way.name + " *"
        out.append(
            (
                name,
                f"{each.median:,.0f}",
                f"{each.median * row_bytes / 1e9:.3g}",
                _times(paired_ratio(each, bare)),
                _times(paired_ratio(ours, each)) if ours is not each else "",
                "" if each.entropy is None else f"{each.entropy:.3f}",
                "" if each.peak_bytes is None else f"{each.peak_bytes / 2**20:.0f}",
                f"{each.first_batch_s * 1e3:.0f} ms",
                "" if each.spread is None else f"{each.spread:.0%}",
                f"{each.best:,.0f}",
            )
        )
    return out


def _like(found: list[Measured], each: Measured, kind: str) -> Measured | None:
    """Return the fastest of a kind in the order of another way: file order, or shuffled."""
    in_order = each.way.order == "file"
    some = [m for m in found if m.way.kind == kind and m.median is not None]
    like = [m for m in some if (m.way.order == "file") == in_order] or some
    return max(like, key=lambda m: m.median or 0.0, default=None)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3g} x"


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
    wrong = [m.way.name for m in found if m.holds_each_row_once is False]
    if wrong:
        notes.append(f"- **not each row once**: {', '.join(wrong)}")
    return [title, *markdown(HEAD, workload_rows(found, spec.row_bytes)), "", *notes, ""]


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
            name: [_plain_way(m) for m in found] for name, found in results.measured.items()
        },
        "cold": results.cold,
        "chunks": results.chunks,
        "rows": results.rows,
        "copies": results.cells,
        "missing": results.missing,
        "failed": results.failed,
    }


def _plain_way(m: Measured) -> dict[str, Any]:
    return {
        "way": m.way.name,
        "kind": m.way.kind,
        "order": m.way.order,
        "how": m.way.how,
        "rows_per_s": [round(rate) for rate in m.rates],
        "median": m.median,
        "best": m.best,
        "spread": m.spread,
        "complete": m.complete,
        "first_batch_s": m.first_batch_s,
        "entropy": m.entropy,
        "predicted_entropy": m.predicted,
        "holds_each_row_once": m.holds_each_row_once,
        "peak_bytes": m.peak_bytes,
        "promised_bytes": m.promised_bytes,
        "error": m.error,
    }
