"""What memory a process may have, and what is told where a loader may take more."""

from __future__ import annotations

import os
import subprocess
import sys

import h5py
import numpy as np
import pytest

import labeled

pytestmark = pytest.mark.slow

MIB = 1 << 20


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    rows = np.arange(200_000 * 8, dtype=np.int64).reshape(-1, 8)
    made = tmp_path_factory.mktemp("machine") / "x.hdf5"
    return labeled.write(made, {"x": rows}, chunks=1000, compression="gzip")


PRELUDE = """
import os, pathlib, resource, sys, warnings
"""

TOLD = """
files = eval(sys.argv[2])
read = pathlib.Path.read_text

def faked(self, *args, **options):
    text = str(self)
    if text.startswith(("/proc/self/", "/sys/fs/cgroup")):
        if text not in files:
            raise FileNotFoundError(text)
        return files[text]
    return read(self, *args, **options)

pathlib.Path.read_text = faked
sizes = {"SC_PHYS_PAGES": 1000 * 256, "SC_PAGE_SIZE": 4096}
sysconf = os.sysconf
os.sysconf = lambda name: sizes.get(name) or sysconf(name)
import labeled
warnings.simplefilter("always")
with warnings.catch_warnings(record=True) as told:
    dataset = labeled.open_dataset(sys.argv[1])
    loader = dataset.batches(100, shuffle="window", seed=1, memory="16 MiB")
print(*[one.message for one in told], loader.explain())
"""

GROUP = "/sys/fs/cgroup"
V1 = {
    "/proc/self/cgroup": "4:cpu,cpuacct:/docker/ab\n3:memory:/docker/ab\n1:name=sys:/x:y\n",
    f"{GROUP}/cpu/docker/ab/memory.limit_in_bytes": "1",
}
V2 = {
    "/proc/self/cgroup": "0::/user.slice/job_7/step\n",
    f"{GROUP}/user.slice/job_7/step/memory.max": "max\n",
}
OWN = {"/proc/self/status": "VmRSS:  200000 kB\nRssAnon:\t  6144 kB\n"}
LIMITS = {
    "nobody tells": ({}, None),
    "none": (V2, None),
    "a group around": ({**V2, f"{GROUP}/user.slice/memory.max": f"{5 * MIB}\n"}, "5.00 MiB"),
    "unified": (
        {**V2, f"{GROUP}/unified/user.slice/job_7/memory.max": f"{6 * MIB}\n"},
        "6.00 MiB",
    ),
    "less what it has": (
        {**V2, **OWN, f"{GROUP}/user.slice/job_7/memory.max": f"{10 * MIB}\n"},
        "4.00 MiB",
    ),
    "version 1, in a container": (
        {**V1, f"{GROUP}/memory/memory.limit_in_bytes": f"{7 * MIB}\n"},
        "7.00 MiB",
    ),
    "version 1, none": ({**V1, f"{GROUP}/memory/memory.limit_in_bytes": f"{1 << 62}"}, None),
}


def run(code, *args):
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code, *args], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /sys/fs/cgroup")
@pytest.mark.parametrize("case", LIMITS)
def test_a_loader_that_may_take_more_than_there_is_says_so(path, case):
    files, least = LIMITS[case]
    told = run(TOLD, path, repr(files))
    assert ("but this process may take" in told) == (least is not None)
    if least is not None:
        assert f"but this process may take {least} " in told
        assert "or less" in told


LIMITED = """
import labeled

dataset = labeled.open_dataset(sys.argv[1])
loader = dataset.batches(100, shuffle="window", seed=1, memory="16 MiB")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
try:
    next(iter(loader))
except labeled.LabeledError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS, and /proc to set it by")
def test_a_limit_of_address_space_is_reported_when_windows_are_taken(path):
    assert run(LIMITED, path).startswith("RowsMemoryError the system gives no memory for windows")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are counted otherwise")
@pytest.mark.parametrize("shuffle", [False, "window"])
def test_all_orders_are_read_by_several_threads_where_there_are_cores(
    tmp_path, monkeypatch, shuffle
):
    rows = np.zeros((200_000, 3072), np.uint8)
    path = labeled.write(tmp_path / "x.hdf5", {"x": rows}, chunks=64, compression="gzip")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    loader = labeled.open_dataset(path).batches(256, shuffle=shuffle, seed=1, memory="384 MiB")
    told = loader.explain()
    assert told.threads >= 8
    assert 0.5 * 384 * MIB < told.promised_bytes <= 384 * MIB or not shuffle


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are counted otherwise")
@pytest.mark.parametrize(("batch_size", "most"), [(256, 4), (8192, 8)])
def test_few_threads_copy_runs_for_they_wait_for_one_another(
    tmp_path, monkeypatch, batch_size, most
):
    with h5py.File(tmp_path / "x.hdf5", "w", libver="latest") as f:
        f["x"] = np.zeros((100_000, 3072), np.uint8)
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "feature"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    dataset = labeled.open_dataset(tmp_path / "x.hdf5")
    assert dataset.batches(batch_size).explain().threads == most
    assert dataset.batches(batch_size, threads=12).explain().threads == 12
    assert dataset.batches(batch_size, shuffle="full").explain().threads == 15


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores are counted otherwise")
@pytest.mark.parametrize(
    ("batch_size", "memory", "buffers"), [(256, "40 MiB", 3), (256, "48 MiB", 3), (256, None, 4)]
)
def test_a_fourth_buffer_takes_no_memory_from_threads(
    tmp_path, monkeypatch, batch_size, memory, buffers
):
    """Of 40 MiB it left one thread, where three buffers leave eight."""
    with h5py.File(tmp_path / "x.hdf5", "w") as f:  # stored as nothing
        f.create_dataset("x", (4000, 30_000), "u1", fillvalue=1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    dataset = labeled.open_dataset(tmp_path / "x.hdf5", dims={"x": ("batch", "feature")})
    chosen = dataset.batches(batch_size, memory=memory)
    three = dataset.batches(batch_size, memory=memory, prefetch=2)
    assert chosen.explain().threads == three.explain().threads > 1
    assert chosen.plan.sizes.n_buffers == buffers
