"""The script that measures a GPU: refuses without one, and runs on the host in its place."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest

from benchmarks.gpu import first_contact
from benchmarks.gpu.first_contact import (
    ALWAYS,
    BATCHES,
    NO_GPU,
    ORDERS,
    PARTS,
    ROW_BYTES,
    main,
    measured_apart,
)

pytestmark = pytest.mark.slow


def failures(figures):
    """Return what stands under "failed", however deep."""
    if not isinstance(figures, dict):
        return []
    deeper = [one for value in figures.values() for one in failures(value)]
    return [*([figures["failed"]] if "failed" in figures else []), *deeper]


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_a_gpu_it_says_so_and_measures_nothing(capsys):
    assert main([]) == NO_GPU
    told = capsys.readouterr()
    assert "no GPU to measure: CuPy does not load" in told.err
    assert not told.out


def test_every_part_runs_on_the_host(tmp_path, capsys):
    out = tmp_path / "host.json"
    some = [name for name in PARTS if name not in (*ALWAYS, "tests", "torch")]
    skip = ["--skip", "tests", "--skip", "torch"]
    assert main(["--host", "--together", "--gib", "0.002", "--out", str(out), *skip]) == 0
    found = json.loads(out.read_text())
    assert list(found) == [*ALWAYS, *some]
    assert not failures(found), found
    assert "says nothing of a GPU" in found["environment"]["card"]
    assert set(found["environment"]["loads"]) == {"device", "dask-cuda"}
    assert found["right"] == {"equal": True, "batches": found["right"]["batches"]}
    assert set(found["permutes"]["u8"]["each"]["of_d2d"]) == set(ORDERS)
    assert all(one["right"] for one in found["permutes"].values())
    assert len(ORDERS) == 24
    kept = {f"{name}, {size}" for name in ("moved", "to f32, scaled") for size in BATCHES}
    assert set(found["resident"]) == kept
    assert found["copies"]["reads"] == max(found["copies"]["reads, threads"].values())
    for row in found["files"].values():
        rate = row["bytes_per_s"]
        assert rate / found["copies"]["h2d"] == pytest.approx(row["of_h2d"])
        assert rate / found["copies"]["reads"] == pytest.approx(row["of_reads"])
    told = found["profile"]["stats"]
    assert told["n_bytes"] == told["n_rows"] * ROW_BYTES
    assert told["wall_s"] + told["consumer_s"] <= found["profile"]["epoch"]["s"]
    equal = {name: value for name, value in found["cluster"].items() if name.endswith("equal")}
    assert len(equal) == 4
    assert all(equal.values()), equal
    printed = capsys.readouterr().out
    assert "\noverlap: read_s" in printed
    assert len(printed) < 9000  # only the last 12,000 characters of a call may be seen


def test_parts_run_apart_and_a_dead_one_costs_no_other(tmp_path, monkeypatch):
    out = tmp_path / "host.json"
    options = ["--host", "--gib", "0.002", "--out", str(out), "--only", "right"]
    monkeypatch.setitem(first_contact.PART_S, "right", 0.0)
    assert main(options) == 0
    found = json.loads(out.read_text())
    assert list(found) == ["environment", "copies", "right"]
    assert found["copies"]["h2d"] > 0
    assert found["right"] == {"failed": "no time was left for it"}
    monkeypatch.setattr(first_contact.sys, "executable", "/bin/false")
    figures = measured_apart("right", [], {}, 60.0, tmp_path)
    assert figures == {"failed": "ended with 1", "lines": []}


HANGS = """
import sys, time

def rests_in_peace():
    time.sleep(600)

with open(sys.argv[sys.argv.index("--out") + 1], "w") as out:
    out.write('{"one row": 1}')
rests_in_peace()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a shell and signals")
def test_a_part_that_hangs_says_where(tmp_path, monkeypatch):
    (tmp_path / "hangs.py").write_text(HANGS)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nhow="$1 $2"\nshift 2\nexec {sys.executable} $how {tmp_path}/hangs.py "$@"\n'
    )
    python.chmod(0o700)
    monkeypatch.setattr(first_contact.sys, "executable", str(python))
    figures = measured_apart("right", [], {}, 2.0, tmp_path)
    assert (figures["one row"], figures["failed"]) == (1, "took longer than 2 s")
    assert "in rests_in_peace" in "\n".join(figures["lines"])
