"""The script that measures a GPU: refuses without one, and runs on the host in its place."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from importlib.util import find_spec

import pytest

from benchmarks.gpu import card as cards
from benchmarks.gpu import checks, parts
from benchmarks.gpu.__main__ import NO_GPU, main
from benchmarks.gpu.arrays import ORDERS
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.card import MIB, card, fitting
from benchmarks.gpu.parts import ALWAYS, PARTS, measured_apart, written

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
    only = [word for part in some for word in ("--only", part)]
    assert main(["--host", "--together", "--gib", "0.002", "--out", str(out), *only]) == 0
    found = json.loads(out.read_text())
    assert list(found) == [*ALWAYS, *some]
    assert not failures(found), found
    assert "says nothing of a GPU" in found["environment"]["card"]
    assert set(found["environment"]["loads"]) == {"device", "dask-cuda"}
    assert found["right"] == {"equal": True, "batches": found["right"]["batches"]}
    assert set(found["permutes"]["u8"]["of_d2d"]) == set(ORDERS)
    assert all(one["right"] for one in found["permutes"].values())
    assert len(ORDERS) == 24
    equal = {name: value for name, value in found["cluster"].items() if name.endswith("equal")}
    assert len(equal) == 4
    assert all(equal.values()), equal
    assert "overlap" in capsys.readouterr().out


def test_parts_run_apart_and_a_dead_one_costs_no_other(tmp_path, monkeypatch):
    out = tmp_path / "host.json"
    options = ["--host", "--gib", "0.002", "--out", str(out), "--only", "right"]
    monkeypatch.setitem(parts.PART_S, "right", 0.0)
    assert main(options) == 0
    found = json.loads(out.read_text())
    assert list(found) == ["environment", "copies", "right"]
    assert found["copies"]["h2d"] > 0
    assert found["right"] == {"failed": "no time was left for it"}
    monkeypatch.setattr(parts.sys, "executable", "/bin/false")
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
    monkeypatch.setattr(parts.sys, "executable", str(python))
    figures = measured_apart("right", [], {}, 2.0, tmp_path)
    assert (figures["one row"], figures["failed"]) == (1, "took longer than 2 s")
    assert "in rests_in_peace" in "\n".join(figures["lines"])


def ended(listening):
    """Whether nobody is left who could write; those who were killed take a moment to go."""
    for _ in range(200):
        try:
            return os.read(listening, 1) == b""
        except BlockingIOError:
            time.sleep(0.05)
    return False


@pytest.mark.skipif(sys.platform == "win32", reason="a shell and process groups")
def test_a_part_that_takes_too_long_leaves_its_rows_and_no_process(tmp_path, monkeypatch):
    lives = tmp_path / "lives"
    os.mkfifo(lives)
    listening = os.open(lives, os.O_RDONLY | os.O_NONBLOCK)
    script = tmp_path / "python"
    script.write_text(
        '#!/bin/sh\nwhile [ "$1" != --out ]; do shift; done\n'
        f'echo \'{{"one row": 1}}\' > "$2"\n'
        f"sleep 600 > {lives} &\necho > {tmp_path}/begun\nwait\n"
    )
    script.chmod(0o700)
    monkeypatch.setattr(parts.sys, "executable", str(script))
    figures = measured_apart("right", [], {}, 3.0, tmp_path)
    assert figures == {"one row": 1, "failed": "took longer than 3 s", "lines": []}
    assert (tmp_path / "begun").exists()
    assert ended(listening)
    os.close(listening)


def test_a_row_that_fails_costs_no_other(tmp_path):
    told = []
    bench = Bench(card(host=True), tmp_path, MIB, lambda figures: told.append(dict(figures)))
    works = {"one": lambda: 1.0, "two": lambda: 1 / 0, "three": lambda: 3.0}
    found = bench.rows(works)
    assert (found["one"], found["three"]) == (1.0, 3.0)
    assert found["two"]["failed"] == "ZeroDivisionError: division by zero"
    assert any("test_gpu_bench.py" in line for line in found["two"]["lines"])  # where it was
    assert told == [dict(list(found.items())[:n]) for n in (1, 2, 3)]
    written(found, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text()) == found


def test_a_part_whose_module_does_not_load_costs_no_other(tmp_path, monkeypatch):
    bench = Bench(card(host=True), tmp_path, MIB)
    monkeypatch.setitem(sys.modules, "benchmarks.gpu.machines", None)
    assert parts.measured("cluster", bench, {})["failed"].startswith("ModuleNotFoundError")
    assert parts.measured("copies", bench, {})["h2d"] > 0


TESTS = """
import os, time
import pytest

pytestmark = pytest.mark.gpu

def test_passes():
    pass

def test_hangs():
    time.sleep(600)

def test_dies():
    os.abort()

def test_passes_too():
    pass
"""


def test_a_test_that_hangs_or_dies_costs_no_other(tmp_path, monkeypatch):
    pytest.importorskip("xdist")
    pytest.importorskip("pytest_timeout")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(TESTS)
    for name, value in {"HERE": tmp_path, "FILES": ("test_it.py",), "TEST_S": 1}.items():
        monkeypatch.setattr(checks, name, value)
    monkeypatch.setattr(checks, "PROCESSES", 1)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # three processes load plugins
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin,pytest_timeout")
    found = checks.tests(Bench(card(host=True), tmp_path, MIB))
    assert (found["n_passed"], found["n_failed"], found["rc"]) == (2, 2, 1)
    others = " ".join(map(str, found.values()))
    assert "test_it.py::test_hangs" in others
    assert "test_it.py::test_dies" in others


def test_what_tests_print_is_shown_also_halfway():
    said = io.StringIO(
        "tests/test_a.py::test_one PASSED [ 25%]\ntests/test_a.py::test_two[x] FAILED [ 50%]\n"
        "tests/test_a.py::test_three SKIPPED (no GPU) [ 75%]\ntests/test_b.py::test_four "
    )
    told = checks.told_by(said)
    assert [told[f"n_{way}"] for way in ("passed", "failed", "skipped", "error")] == [1, 1, 1, 0]
    assert told["last"].endswith("test_four")
    said = io.StringIO("nothing before\nFAILED tests/test_a.py::test_two - KeyError: 3\n1 failed")
    assert checks.told_by(said)["0"].endswith("KeyError: 3")


def test_files_are_no_larger_than_what_there_is_room_for(tmp_path, monkeypatch):
    here = card(host=True)
    assert fitting(here, tmp_path, 5 * MIB) == 5 * MIB
    usage = cards.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(cards.shutil, "disk_usage", lambda _: usage._replace(free=80 * MIB))
    assert fitting(here, tmp_path, 1 << 60) == 10 * MIB
