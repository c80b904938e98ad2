"""The script that measures a GPU: refuses without one, and runs on the host in its place."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from benchmarks.gpu import ORDERS, main


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_a_gpu_it_says_so_and_measures_nothing(capsys):
    assert main([]) == 2
    told = capsys.readouterr()
    assert "no GPU to measure: CuPy does not load" in told.err
    assert not told.out


def test_every_part_runs_on_the_host(tmp_path, capsys):
    out = tmp_path / "host.json"
    parts = ["right", "permutes", "crops", "latency", "files", "small", "depths", "overlap"]
    only = [word for part in parts for word in ("--only", part)]
    assert main(["--host", "--gib", "0.002", "--out", str(out), *only]) == 0
    found = json.loads(out.read_text())
    assert set(found) == {"environment", "copies", *parts}
    assert not [part for part, figures in found.items() if "failed" in figures], found
    assert "says nothing of a GPU" in found["environment"]["card"]
    assert found["right"] == {"equal": True, "batches": found["right"]["batches"]}
    assert set(found["permutes"]["u8"]["of_d2d"]) == set(ORDERS)
    assert all(one["right"] for one in found["permutes"].values())
    assert len(ORDERS) == 24
    assert "overlap" in capsys.readouterr().out
