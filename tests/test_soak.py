"""Many epochs with random early exits: memory, threads and descriptors stay flat."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import gc, os, random, sys, threading, time
from pathlib import Path
import h5py
import numpy as np
import labeled

path, seconds = sys.argv[1], float(sys.argv[2])
rng = np.random.default_rng(0)
with h5py.File(path, "w") as f:
    for name, layout in {"a": {}, "b": {"chunks": (32, 3, 16, 16), "compression": 1}}.items():
        f.create_dataset(name, data=rng.integers(0, 9, (8000, 3, 16, 16), dtype=np.uint8), **layout)
        for axis, label in enumerate(("batch", "channel", "height", "width")):
            f[name].dims[axis].label = label
with h5py.File(path) as f:
    truth = {name: f[name][:] for name in "ab"}
dataset = labeled.open_dataset(path)
chance = random.Random(0)


def held():
    status = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in status)
    memory = sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1024
    return memory, int(fields["Threads"]), len(os.listdir("/proc/self/fd"))


def made():
    return dataset.batches(
        chance.choice([1, 7, 64, 256]),
        shuffle=chance.choice([False, True, "full", "window"]),
        seed=chance.randrange(1000),
        memory=chance.choice(["12 MiB", "12 MiB", "32 MiB"]),  # windows, or all is kept
        threads=chance.choice([0, 1, 3]),
        last=chance.choice(["keep", "pad", "drop", "wrap"]),
        shard=chance.choice([(0, 1), (1, 3)]),
    )


def epoch(loader, kept):
    stop = chance.choice([None, 0, 1, 5, 30])
    for number, batch in enumerate(loader):
        rows = batch.rows[: batch.count]
        for name in "ab":
            assert np.array_equal(batch.arrays[name][: batch.count], truth[name][rows])
        if chance.random() < 0.05:
            kept[:] = [batch, *kept[:3]]
        if number == stop:
            break


kept, epochs, loader = [], 0, None
end = time.monotonic() + seconds
while time.monotonic() < end or epochs < 100:
    loader = made()
    epoch(loader, kept)
    epochs += 1
    if epochs == 50:
        loader = None
        gc.collect()
        time.sleep(1.2)
        before = held()
kept.clear()
loader = None
gc.collect()
time.sleep(1.2)
after = held()
print(epochs, before, after)
assert after[0] <= before[0] + 6, (before, after)
assert after[1] <= before[1], (before, after)
assert after[2] <= before[2], (before, after)
"""


AT_ONCE = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(1 << 17)}
"""Has glibc give memory back at once: what is kept is the loaders', not its own choice."""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_epochs_leave_nothing_behind(tmp_path):
    seconds = os.environ.get("LABELED_SOAK_S", "4")
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT, str(tmp_path / "soak.h5"), seconds],
        capture_output=True,
        text=True,
        check=False,
        timeout=120 + 2 * float(seconds),
        env=os.environ | AT_ONCE,
    )
    assert out.returncode == 0, out.stderr
    print(out.stdout)
