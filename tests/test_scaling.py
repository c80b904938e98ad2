"""The simulation of large scales: its counts are those of the order, row by row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.scaling import (
    OBJECTS,
    PARALLEL,
    ROW_BYTES,
    SAMPLED_SHARDS,
    Scale,
    asked_of,
    plan_of,
    runs_of,
)

TEXT = (Path(__file__).parents[1] / "docs" / "scaling.md").read_text("utf-8")
SMALL = Scale(n_rows=60_000, n_files=40, n_workers=7)


@pytest.mark.parametrize("mode", ["file", "window", "full"])
def test_counts_are_those_of_every_row(mode):
    seen = np.zeros(SMALL.n_rows, np.int64)
    for part in range(SMALL.n_workers):
        plan = plan_of(SMALL, mode, 3000, part)
        asked = asked_of(plan, SMALL)
        files, n_reads = set(), 0
        for window in plan.windows():
            rows = np.sort(window.content.rows)
            seen[rows] += 1
            files |= set((rows // SMALL.file_rows).tolist())
            here = np.r_[True, (np.diff(rows) > 1) | (np.diff(rows // SMALL.file_rows) > 0)]
            n_reads += int(here.sum())
            held = np.concatenate(
                [np.arange(a, b) for a, b in runs_of(window.content, SMALL.file_rows)]
            )
            assert set(rows.tolist()) <= set(held.tolist())
        assert (asked.n_files, asked.n_rows) == (len(files), plan.n_rows)
        assert asked.n_bytes >= plan.n_rows * ROW_BYTES
        assert asked.n_reads == n_reads
    np.testing.assert_array_equal(seen, 1)


@pytest.mark.parametrize(
    ("row", "mode", "window_rows", "sticky"),
    [
        ("file order", "file", 1 << 16, False),
        ("window shuffle, 40,000 rows (256 MiB)", "window", 40_000, False),
        ("window shuffle, sticky shards", "window", 40_000, True),
    ],
)
def test_counts_in_the_text_are_those_of_the_simulation(row, mode, window_rows, sticky):
    line = next(each for each in TEXT.splitlines() if each.startswith(f"| {row} |"))
    told = [cell.strip().replace(",", "") for cell in line.split("|")[3:7]]
    parts = np.linspace(0, Scale().n_workers - 1, SAMPLED_SHARDS).astype(int).tolist()
    plans = [plan_of(Scale(), mode, window_rows, part, sticky=sticky) for part in parts]
    asked = [asked_of(plan, Scale()) for plan in plans]
    reads, files, opens = (
        round(float(np.mean([getattr(one, name) for one in asked])))
        for name in ("n_reads", "n_files", "n_opens")
    )
    assert (told[0], *told[2:]) == (str(reads), str(files), str(opens))


@pytest.mark.parametrize(
    ("row", "mode", "window_rows", "sticky"),
    [
        ("window shuffle", "window", 40_000, False),
        ("window shuffle, sticky shards", "window", 40_000, True),
    ],
)
def test_seconds_in_the_text_are_those_of_the_model(row, mode, window_rows, sticky):
    asked = asked_of(plan_of(Scale(), mode, window_rows, 500, sticky=sticky), Scale())
    all_of_them = [n * Scale().n_workers for n in (asked.n_opens, asked.n_reads, asked.n_bytes)]
    line = next(
        each for each in TEXT.splitlines() if each.startswith(f"| {row} | ") and " s |" in each
    )
    told = [float(cell.replace(",", "").removesuffix(" s ")) for cell in line.split("|")[2:6:2]]
    found = [max(each.seconds(*all_of_them).values()) for each in (PARALLEL, OBJECTS)]
    assert told == pytest.approx(found, rel=0.02)
