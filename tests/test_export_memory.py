"""``memory=`` of exports bounds by how much the process grows, or is refused before any work."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import labeled
from labeled.errors import LoaderError
from labeled.writing.stretches import STRETCHES, stretches

MIB = 1 << 20

BESIDES = {".parquet": 4 * MIB}
"""What arrow's own allocator may hold on to where other work delays it."""

SCRIPT = """
import ctypes, json, os, sys, warnings
import numpy as np, labeled
from labeled.cli.memory import PeakMemory

TARGETS = sys.argv[1:]
free = getattr(ctypes.CDLL(None), "malloc_trim", lambda kept: None)


def write(path, n):
    sizes = np.minimum(np.random.default_rng(0).pareto(1, n) * 1000, 200_000).astype(int)
    given = {
        "texts": ["%06d" % i * 500 for i in range(n)],
        "uneven": np.split(np.zeros(sizes.sum(), np.uint8), np.cumsum(sizes)[:-1]),
    }
    labeled.write(path, {"texts": np.array(given["texts"], object), "uneven": given["uneven"]})


def grown(path, target):
    only = ["texts"] if target == ".csv" else None
    with PeakMemory() as memory:
        labeled.convert(path, "x" + target, sources=only, overwrite=True, memory="16 MiB")
    free(0)
    return memory.peak_bytes


if os.fork() == 0:  # the file is written by another process
    write("large", 5000)
    os._exit(0)
assert os.wait()[1] == 0
write("small", 64)
for target in TARGETS:
    grown("small", target)  # imports
free(0)
print(json.dumps({target: grown("large", target) for target in TARGETS}))
"""


def too_much(grown: dict[str, int]) -> list[str]:
    return [target for target, n in grown.items() if n > 16 * MIB + BESIDES.get(target, 0)]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less")
def test_growth_stays_within_the_memory(tmp_path: Path) -> None:
    """Texts of 14 MiB and examples of as many through a budget of 16, one process for all."""
    pytest.importorskip("pyarrow")
    targets = (".npz", ".csv", ".parquet")
    tries: list[dict[str, int]] = []
    while not tries or (too_much(tries[-1]) and len(tries) < 3):  # others' load delays freeing
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", SCRIPT, *targets],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        tries.append(json.loads(done.stdout))
        for path in tmp_path.iterdir():
            path.unlink()
    assert not too_much(tries[-1]), tries


def test_memory_that_a_row_does_not_fit_in_is_refused(tmp_path: Path) -> None:
    dims = {"x": ("batch", "height", "width", "channel")}
    path = labeled.write(tmp_path / "x", {"x": np.zeros((2, 1024, 1024, 3), np.uint8)}, dims=dims)
    for target, enough in (("y.rec", "15 MiB"), ("y.npz", "9 MiB"), ("y.npy", "9 MiB")):
        words = rf"memory='8 MiB' is too small for source 'x'.*give memory='{enough}'"
        with pytest.raises(LoaderError, match=words):
            labeled.convert(path, tmp_path / target, memory="8 MiB")
        assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert labeled.convert(path, tmp_path / "y.npy", memory="9 MiB")


def test_stretches_hold_every_row_once_and_what_fits(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = np.array(["é" * n for n in (rng.pareto(1, 1200) * 100).clip(0, 9000).astype(int)])
    sizes = rng.integers(0, 5000, 1200)
    uneven = np.split(np.zeros(sizes.sum(), np.uint8), np.cumsum(sizes)[:-1])
    sources = {"t": texts.astype(object), "x": np.arange(2400).reshape(1200, 2), "u": uneven}
    dataset = labeled.open_dataset(labeled.write(tmp_path / "x", sources))
    for names in (["t"], ["x"], ["u"], ["t", "u", "x"]):
        most = 160_000 // STRETCHES
        found = [some.loaded for some in stretches(dataset.select(*names), 160_000)]
        edges = np.cumsum([0] + [len(some[names[0]]) for some in found])
        assert edges[-1] == 1200
        assert len(found) > 1 or names == ["x"]
        for some, (a, b) in zip(found, pairwise(edges.tolist()), strict=True):
            if "t" in names:
                np.testing.assert_array_equal(some["t"], sources["t"][a:b])
                assert b - a == 1 or sum(map(len, some["t"])) <= most
            if "u" in names:
                assert some["u"].sizes.tolist() == sizes[a:b].tolist()
                assert b - a == 1 or sizes[a:b].sum() <= most
            if "x" in names:
                np.testing.assert_array_equal(some["x"], sources["x"][a:b])
