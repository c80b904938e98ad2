"""``memory=`` of writing bounds by how much the process grows, or is refused before any work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import labeled
from labeled.errors import LoaderError

pytestmark = pytest.mark.slow

MIB = 1 << 20

SCRIPT = """
import ctypes, json, sys, threading, time
import dask.array as da, numpy as np, labeled
from peak_memory import PeakMemory

kind, doing, options, asked = *sys.argv[1:3], json.loads(sys.argv[3]), sys.argv[4]
rng = np.random.default_rng(0)


def rows(n):
    if kind == "lazy":
        block = lambda block_id=None: np.full((256, 3072), block_id[0], np.uint8)
        return da.map_blocks(block, chunks=((256,) * (n // 256), (3072,)), dtype=np.uint8)
    if kind == "uneven":
        sizes = rng.integers(100, 6000, n)
        return np.split(np.zeros(sizes.sum(), np.uint8), np.cumsum(sizes)[:-1])
    return np.array(["%06d" % i * 500 for i in range(n)], object)


def batches(n):
    for size in (64, n - 64):
        yield {"x": rows(size)}


def begun(n):
    if doing == "batches":  # a small one, and all the rest
        given = list(batches(n))
        return lambda: labeled.write(
            "x", iter(given), overwrite=True, memory=MEMORY, threads=2, **options)
    given = {"x": rows(n)}
    if doing == "append":
        labeled.write("x", {"x": given["x"][:2]}, overwrite=True, **options)
        return lambda: labeled.append("x", given, memory=MEMORY, threads=2)
    if doing == "write":
        return lambda: labeled.write(
            "x", given, overwrite=True, memory=MEMORY, threads=2, **options)
    if not WARM:
        labeled.write("y", given, overwrite=True)
    return lambda: getattr(labeled, doing)("y", "x", overwrite=True, memory=MEMORY, threads=2)


MEMORY, WARM = "64 MiB", False
begun(512)()  # imports
MEMORY = asked
if doing in ("convert", "repack"):  # of a file that another process wrote
    import os
    if os.fork() == 0:
        begun(12_288)
        os._exit(0)
    assert os.wait()[1] == 0
    WARM = True
write = begun(12_288)
if hasattr(ctypes.CDLL(None), "malloc_trim"):  # else what is free already is used again
    ctypes.CDLL(None).malloc_trim(0)
with PeakMemory() as memory:
    write()
print(memory.peak_bytes)
"""

CASES: list[tuple[str, str, dict[str, Any], int]] = [
    ("lazy", "write", {}, 16),
    ("lazy", "write", {"compression": "gzip", "level": 1}, 16),
    ("uneven", "append", {}, 5),
    ("uneven", "write", {"ragged": "fuel"}, 9),
    ("uneven", "batches", {}, 16),
    ("texts", "batches", {}, 6),
    ("texts", "convert", {}, 16),
    ("texts", "repack", {}, 5),
    ("texts", "repack", {"order": "shuffle"}, 6),
]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems tell less")
@pytest.mark.parametrize(("kind", "doing", "options", "mib"), CASES)
def test_growth_stays_within_the_memory(
    kind: str, doing: str, options: dict[str, Any], mib: int, tmp_path: Path
) -> None:
    """36 MiB of rows through a few, or through the least that is taken, in a new process."""
    words = [kind, doing, json.dumps(options), f"{mib} MiB"]
    grown: list[int] = []
    while not grown or (grown[-1] > mib * MIB and len(grown) < 3):  # others' load delays freeing
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", SCRIPT, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        grown.append(int(done.stdout))
    assert grown[-1] <= mib * MIB, grown


def test_memory_that_a_piece_does_not_fit_in_is_refused(tmp_path: Path) -> None:
    rows = np.zeros((4096, 3072), np.uint8)
    uneven = [np.zeros(6 * MIB, np.uint8), np.zeros(9, np.uint8)]
    given: list[tuple[Any, dict[str, Any]]] = [
        ({"x": rows}, {"chunks": 2048}),
        ({"x": da.from_array(rows, (2048, -1))}, {}),
        ({"x": uneven}, {}),
        ({"x": uneven}, {"ragged": "fuel"}),
        (iter([{"x": rows[:3072]}, {"x": rows}]), {}),
    ]
    words = r"too small for source 'x'.*give memory='(19|[23]\d) MiB'"
    for sources, options in given:
        with pytest.raises(LoaderError, match=words):
            labeled.write(tmp_path / "x", sources, memory="16 MiB", threads=1, **options)
        assert list(tmp_path.iterdir()) == []


def test_texts_in_batches_need_no_more_than_their_batch(tmp_path: Path) -> None:
    texts = np.array(["a" * 3000] * 64, object)
    labeled.write(tmp_path / "x", iter([{"x": texts}] * 9), memory="6 MiB", threads=1)
    labeled.write(tmp_path / "y", [{"x": np.repeat(texts, 99)}], memory="6 MiB", threads=1)
    with pytest.raises(LoaderError, match=r"give memory='4\d MiB'"):  # one, and the next being made
        labeled.write(tmp_path / "z", iter([{"x": np.repeat(texts, 99)}]), memory="16 MiB")


def test_memory_that_is_said_to_be_enough_is(tmp_path: Path) -> None:
    rows = np.zeros((4096, 3072), np.uint8)
    with pytest.raises(LoaderError, match="too small") as found:
        labeled.write(tmp_path / "x", {"x": rows}, chunks=2048, memory="2 MiB")
    enough = str(found.value).split("memory='")[-1].split("'")[0]
    labeled.write(tmp_path / "x", {"x": rows}, chunks=2048, memory=enough)
    with pytest.raises(LoaderError, match=f"memory='{enough}'"):
        labeled.append(tmp_path / "x", {"x": rows}, memory="2 MiB")
    with pytest.raises(LoaderError, match=f"memory='{enough}'"):
        labeled.repack(tmp_path / "x", tmp_path / "y", memory="2 MiB")


def test_without_memory_a_large_block_is_written_all_the_same(tmp_path: Path) -> None:
    lazy = da.zeros((1, 44 * MIB), np.uint8, chunks=-1)
    with pytest.raises(LoaderError, match="too small"):
        labeled.write(tmp_path / "x", {"x": lazy}, memory="128 MiB")
    path = labeled.write(tmp_path / "x", {"x": lazy}, statistics=False, checksums=False)
    assert Path(path).stat().st_size > 44 * MIB


def test_texts_of_any_length_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    texts = np.array(["é" * n for n in rng.pareto(0.7, 3000).clip(0, 50_000).astype(int)], object)
    path = labeled.write(tmp_path / "x", {"x": texts.reshape(1500, 2)}, memory="6 MiB")
    labeled.append(path, {"x": texts[:100].reshape(50, 2)}, memory="6 MiB")
    labeled.repack(path, tmp_path / "y", order="shuffle", layout="chunked", memory="16 MiB")
    labeled.repack(tmp_path / "y", tmp_path / "z", layout="contiguous", memory="16 MiB")
    expected = np.concatenate([texts, texts[:100]]).reshape(-1, 2)
    np.testing.assert_array_equal(labeled.open_dataset(path)["x"].values, expected)
    found = labeled.open_dataset(tmp_path / "z")["x"].values
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, expected.tolist()))
    assert labeled.verify(path).sound
    assert labeled.verify(tmp_path / "z").sound
