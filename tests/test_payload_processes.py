"""Readers in many threads, in forked children and in fresh processes."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from payload_files import Layout, header_of, read_with_h5py, small_units, write

from labeled.formats import bytesource
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.reader import Reader, pieces, read_rows

LAYOUTS = {
    "contiguous": Layout(">i4", (3000, 20)),
    "chunked": Layout("u2", (3000, 20), (64, 7)),
    "gzip": Layout("f4", (3000, 20), (16, 20), "gzip", shuffle=True, fletcher32=True),
    "tiles": Layout("i8", (3000, 20), (100, 6), "lz4", shuffle=True),
    "h5py": Layout("u1", (3000, 20), (64, 20), "bzip2"),
}
every_kind = pytest.mark.parametrize("kind", sorted(LAYOUTS))


def share(reader: Reader, runs: np.ndarray, out: np.ndarray, dest: np.ndarray, n: int) -> None:
    """Read all pieces of some runs in `n` threads, in random order."""
    parts = pieces(reader, runs)
    random.Random(n).shuffle(parts)
    faults = []

    def work(mine: int) -> None:
        try:
            for rows, which in parts[mine::n]:
                reader.read(rows, out, dest[which])
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


@every_kind
@pytest.mark.parametrize("n", [2, 5])
def test_threads_share_the_pieces_of_a_window(tmp_path: Path, kind: str, n: int) -> None:
    path = write(tmp_path, LAYOUTS[kind])
    runs = np.array([[3, 900], [901, 905], [1000, 2999]])
    rows = np.concatenate([np.arange(a, b) for a, b in runs.tolist()])
    dest = np.random.default_rng(0).permutation(len(rows))
    out = np.empty((len(rows), 20), np.dtype(LAYOUTS[kind].dtype).newbyteorder("="))
    with small_units(4000, 64):
        share(open_reader(header_of(path)), runs, out, dest, n)
    np.testing.assert_array_equal(out[dest], read_with_h5py(path)[rows])


def test_a_file_dropped_from_the_cache_stays_open_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytesource, "MAX_OPEN_FILES", 1)
    paths = [write(tmp_path, LAYOUTS[kind]) for kind in ("contiguous", "gzip", "chunked")]
    readers = [open_reader(header_of(path)) for path in paths]
    expected = [read_with_h5py(path) for path in paths]
    faults = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(60):
                i, start = int(rng.integers(3)), int(rng.integers(2900))
                got = read_rows(readers[i], range(start, start + 100))
                np.testing.assert_array_equal(got, expected[i][start : start + 100])
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


FORK = """
import os, pickle, sys, threading
from labeled.formats.reader import read_rows
readers = pickle.load(sys.stdin.buffer)
before = [read_rows(reader, range(3000)).tobytes() for reader in readers]
stop = threading.Event()

def busy():
    while not stop.is_set():
        for reader in readers:
            read_rows(reader, range(0, 3000, 7))

thread = threading.Thread(target=busy)
thread.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        same = [read_rows(reader, range(3000)).tobytes() for reader in readers] == before
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
stop.set()
thread.join()
print("same")
"""

FRESH = """
import pickle, sys
from labeled.formats.reader import read_rows
readers = pickle.load(sys.stdin.buffer)
print([int(read_rows(reader, range(3000)).astype("f8").sum()) for reader in readers])
"""


def in_new_process(script: str, readers: list[Reader]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=pickle.dumps(readers),
        capture_output=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def test_children_forked_in_the_middle_of_reading_read_the_same(tmp_path: Path) -> None:
    readers = [open_reader(header_of(write(tmp_path, layout))) for layout in LAYOUTS.values()]
    assert in_new_process(FORK, readers) == "same"


def test_a_fresh_process_reads_the_same(tmp_path: Path) -> None:
    readers = [open_reader(header_of(write(tmp_path, layout))) for layout in LAYOUTS.values()]
    sums = [int(read_rows(reader, range(3000)).astype("f8").sum()) for reader in readers]
    assert in_new_process(FRESH, readers) == str(sums)
