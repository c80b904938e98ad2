"""What memory a process may have, and what is told where a loader may take more."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import labeled
from labeled.errors import LabeledWarning
from labeled.formats import memory as machine
from labeled.loader import explain, memory

pytestmark = pytest.mark.slow

MIB = 1 << 20


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Make files that stand for those of the system; nothing is limited by them."""
    for name in ("GROUPS", "MOUNTED", "STATUS"):
        monkeypatch.setattr(machine, name, tmp_path / name.lower())
    monkeypatch.setattr(machine, "_physical_bytes", lambda: 1000.0 * MIB)
    machine.machine_bytes.cache_clear()

    def put(name, text):
        machine.machine_bytes.cache_clear()
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    yield put
    machine.machine_bytes.cache_clear()


def test_where_nobody_tells_the_machine_does(system):
    assert machine.machine_bytes() == machine.available_bytes() == 1000 * MIB


@pytest.mark.parametrize("where", ["mounted", "mounted/unified"])
def test_each_group_around_a_process_limits_it(system, where):
    system("groups", "0::/user.slice/job_7/step\n")
    system(f"{where}/user.slice/job_7/step/memory.max", "max\n")
    assert machine.machine_bytes() == 1000 * MIB
    system(f"{where}/user.slice/memory.max", f"{700 * MIB}\n")
    assert machine.machine_bytes() == 700 * MIB
    system(f"{where}/user.slice/job_7/memory.max", f"{512 * MIB}\n")
    assert machine.machine_bytes() == 512 * MIB
    system("status", "VmRSS:  200000 kB\nRssAnon:\t  102400 kB\n")
    assert machine.available_bytes() == 412 * MIB


def test_limits_of_version_1_and_in_containers(system):
    """There the group is called what it is outside, and lies at the root of the mount."""
    system("groups", "4:cpu,cpuacct:/docker/ab\n3:memory:/docker/ab\n1:name=systemd:/docker:x\n")
    system("mounted/cpu/docker/ab/memory.limit_in_bytes", "1")
    system("mounted/memory/memory.limit_in_bytes", f"{256 * MIB}\n")
    assert machine.machine_bytes() == 256 * MIB
    system("mounted/memory/memory.limit_in_bytes", "9223372036854771712\n")  # none
    assert machine.machine_bytes() == 1000 * MIB


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and /sys/fs/cgroup")
def test_this_machine_tells():
    assert 0 < machine.machine_bytes() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine.available_bytes() < machine.machine_bytes()


@pytest.fixture
def path(tmp_path):
    rows = np.arange(200_000 * 8, dtype=np.int64).reshape(-1, 8)
    return labeled.write(tmp_path / "x.hdf5", {"x": rows}, chunks=1000, compression="gzip")


def test_a_loader_that_may_take_more_than_there_is_says_so(path, monkeypatch):
    dataset = labeled.open_dataset(path)
    loader = dataset.batches(100, shuffle="window", seed=1, memory="16 MiB")
    assert "more than there is" not in repr(loader.explain())
    for module in (memory, explain):
        monkeypatch.setattr(module, "available_bytes", lambda: 10.0 * MIB)
    with pytest.warns(LabeledWarning, match=r"may take .*, but this process may take 10.00 MiB "):
        warned = dataset.batches(100, shuffle="window", seed=1, memory="16 MiB")
    assert "give memory='5 MiB' or less" in repr(warned.explain())
    assert warned.state_dict() == loader.state_dict()  # the order is what was asked for
    dataset.batches(100, shuffle="window", seed=1, memory="5 MiB")


LIMITED = """
import resource, sys
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
    out = subprocess.run(
        [sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=False
    )
    assert out.returncode == 0, out.stderr
    assert out.stdout.startswith("RowsMemoryError the system gives no memory for windows"), out


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
