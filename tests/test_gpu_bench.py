"""The script that measures a GPU: refuses without one, and runs on the host in its place."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

from benchmarks import gpu
from benchmarks.gpu import ORDERS, main


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed")
def test_without_a_gpu_it_says_so_and_measures_nothing(capsys):
    assert main([]) == 2
    told = capsys.readouterr()
    assert "no GPU to measure: CuPy does not load" in told.err
    assert not told.out


def test_every_part_runs_on_the_host(tmp_path, capsys):
    out = tmp_path / "host.json"
    parts = ["right", "files", "permutes", "crops", "latency", "overlap", "small", "depths"]
    parts += ["decoding", "cluster", "kvikio"]
    only = [word for part in parts for word in ("--only", part)]
    assert main(["--host", "--together", "--gib", "0.002", "--out", str(out), *only]) == 0
    found = json.loads(out.read_text())
    assert list(found) == ["environment", "copies", *parts]
    assert not [part for part, figures in found.items() if "failed" in figures], found
    assert "says nothing of a GPU" in found["environment"]["card"]
    assert found["right"] == {"equal": True, "batches": found["right"]["batches"]}
    assert set(found["permutes"]["u8"]["of_d2d"]) == set(ORDERS)
    assert all(one["right"] for one in found["permutes"].values())
    assert len(ORDERS) == 24
    assert len(found["decoding"]) == 6
    for name, one in found["decoding"].items():  # LZ4 makes nothing smaller of what is drawn
        assert one["equal"], name
        assert bool(one["chunks_there"]) == ("lz4" not in name), name
    for order in ("file order", "window"):
        assert found["kvikio"][order]["equal"]
        assert found["kvikio"][order]["read_there"]
    equal = {name: value for name, value in found["cluster"].items() if name.endswith("equal")}
    assert len(equal) == 4
    assert all(equal.values()), equal
    assert "overlap" in capsys.readouterr().out


def test_parts_run_apart_and_a_dead_one_costs_no_other(tmp_path, monkeypatch):
    out = tmp_path / "host.json"
    options = ["--host", "--gib", "0.002", "--out", str(out), "--only", "right"]
    monkeypatch.setitem(gpu.PART_S, "right", 0.0)
    assert main(options) == 0
    found = json.loads(out.read_text())
    assert list(found) == ["environment", "copies", "right"]
    assert found["copies"]["h2d"] > 0
    assert found["right"] == {"failed": "no time was left for it"}
    monkeypatch.setattr(gpu.sys, "executable", "/bin/false")
    figures = gpu.measured_apart("right", [], {}, 60.0)
    assert figures == {"failed": "ended with 1, and said nothing"}
