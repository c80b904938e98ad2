"""Many epochs with random early exits: memory, threads and descriptors stay flat."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import gc, os, random, sys, threading, time
import h5py
import numpy as np
import labeled

path, seconds = sys.argv[1], float(sys.argv[2])
rng = np.random.default_rng(0)
with h5py.File(path, "w") as f:
    for name, layout in {"a": {}, "b": {"chunks": (32, 3, 16, 16), "compression": 1}}.items():
        f.create_dataset(name, data=rng.integers(0, 9, (3000, 3, 16, 16), dtype=np.uint8), **layout)
        for axis, label in enumerate(("batch", "channel", "height", "width")):
            f[name].dims[axis].label = label
with h5py.File(path) as f:
    truth = {name: f[name][:] for name in "ab"}
dataset = labeled.open_dataset(path)
chance = random.Random(0)


def held():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    anonymous = sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1024
    return anonymous, threading.active_count(), len(os.listdir("/proc/self/fd"))


def epoch(kept):
    loader = dataset.batches(
        chance.choice([1, 7, 64, 256]),
        shuffle=chance.choice([False, True, "full", "window"]),
        seed=chance.randrange(1000),
        memory="16 MiB",
        threads=chance.choice([0, 1, 3]),
        last=chance.choice(["keep", "pad", "drop", "wrap"]),
        part=chance.choice([(0, 1), (1, 3)]),
    )
    stop = chance.choice([None, 0, 1, 5, 30])
    for number, batch in enumerate(loader):
        rows = batch.rows[: batch.count]
        for name in "ab":
            assert np.array_equal(batch.arrays[name][: batch.count], truth[name][rows])
        if chance.random() < 0.05:
            kept[:] = [batch, *kept[:3]]
        if number == stop:
            break


kept, epochs = [], 0
end = time.monotonic() + seconds
while time.monotonic() < end or epochs < 60:
    epoch(kept)
    epochs += 1
    if epochs == 30:
        gc.collect()
        time.sleep(1.2)
        before = held()
kept.clear()
gc.collect()
time.sleep(1.2)
print(epochs, before, held())
(memory, threads, files), (memory_now, threads_now, files_now) = before, held()
assert memory_now <= memory + 12, (memory, memory_now)
assert threads_now <= threads, (threads, threads_now)
assert files_now <= files, (files, files_now)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self")
def test_many_epochs_leave_nothing_behind(tmp_path):
    seconds = os.environ.get("LABELED_SOAK_S", "4")
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path / "soak.h5"), seconds],
        capture_output=True,
        text=True,
        check=False,
        timeout=60 + 2 * float(seconds),
    )
    assert out.returncode == 0, out.stderr
    print(out.stdout)
