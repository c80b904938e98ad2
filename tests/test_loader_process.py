"""Reading in a process of its own: the same batches, and an end to it however things end."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import dask.array as da
import h5py
import numpy as np
import psutil
import pytest
import xarray as xr

import labeled
from labeled.errors import LoaderError, ReadError
from labeled.loader.reading import process as process_module
from labeled.loader.reading.shared import SharedSlots, file_bytes, shared_file
from make_files import fuel_file

pytestmark = pytest.mark.skipif(os.name != "posix", reason="shares memory as POSIX systems do")
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

N = 2003
RNG = np.random.default_rng(5)
IMAGES = RNG.integers(0, 9, (N, 3, 20, 20), dtype=np.uint8)
TARGETS = RNG.integers(0, 10, (N, 1), dtype=np.uint8)
LISTED = RNG.permutation(N)[:1500]
TIGHT = {"memory": "8500 kiB", "window_rows": 300, "seed": 3}
ROOMY = {"memory": "64 MiB", "seed": 3}


def written(folder, **options):
    return fuel_file(
        folder / "d.hdf5",
        {"images": IMAGES, "targets": TARGETS},
        {"all": (0, N), "listed": LISTED},
        {"images": ("batch", "channel", "height", "width"), "targets": ("batch", "index")},
        **options,
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return written(tmp_path_factory.mktemp("contiguous"))


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    chunked = {"chunks": {"images": (16, 3, 20, 20)}, "compression": {"images": "gzip"}}
    return written(tmp_path_factory.mktemp("gzip"), **chunked)


@pytest.fixture(scope="module")
def shared_loader(packed):
    """One loader for the tests that leave its process as they found it."""
    loader = batches(packed, shuffle="window", **TIGHT)
    assert not loader.plan.all_kept
    return loader


def batches(path, size=64, *, split="all", reader="process", **options):
    return labeled.open_dataset(path).split(split).batches(size, reader=reader, **options)


def images_of(batch):
    return batch.arrays["images"].copy(), batch.rows, batch.count


def assert_same(mine, others):
    assert len(mine) == len(others)
    for (images, rows, count), (their_images, their_rows, their_count) in zip(
        mine, others, strict=True
    ):
        np.testing.assert_array_equal(images, their_images)
        np.testing.assert_array_equal(rows, their_rows)
        assert count == their_count


def epoch_of(loader):
    return [images_of(batch) for batch in loader]


def pid_of(loader):
    return loader._process.pid


def alive(pid):
    """Whether a process runs; one that only waits to be reaped by a stranger does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def settled(check, seconds=10.0):
    end = time.monotonic() + seconds
    while not check() and time.monotonic() < end:
        time.sleep(0.02)
    return check()


# the same batches


CASES = {
    "file order": ("packed", "all", {"shuffle": False, "last": "pad", **TIGHT}),
    "full": ("plain", "all", {"shuffle": "full", "last": "drop", **TIGHT}),
    "window, part": ("packed", "all", {"shuffle": "window", "part": (1, 3), **TIGHT}),
    "listed": ("packed", "listed", {"shuffle": "window", "last": "wrap", **TIGHT}),
    "kept, drawn": ("plain", "all", {"balance": "targets", "threads": 0, **ROOMY}),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_batches_are_those_of_threads_bit_for_bit(case, request):
    fixture, split, options = CASES[case]
    path = request.getfixturevalue(fixture)
    loader = batches(path, split=split, **options)
    assert loader.plan.all_kept == case.startswith("kept")
    threaded = batches(path, split=split, reader="threads", **options)
    for _ in range(2):
        mine = epoch_of(loader)
        assert_same(mine, epoch_of(threaded))
        for images, rows, count in mine:
            of_file = rows[:count] if split == "all" else LISTED[rows[:count]]
            np.testing.assert_array_equal(images[:count], IMAGES[of_file])
    assert loader.stats().n_batches == threaded.stats().n_batches
    assert loader.stats().n_windows == threaded.stats().n_windows > 0
    assert all(lane.kept is None for lane in loader.plan.lanes)


def test_saved_places_and_early_ends(shared_loader, packed):
    whole = epoch_of(shared_loader)
    pid, epoch = pid_of(shared_loader), shared_loader.epoch
    iterator = iter(shared_loader)
    for _ in range(5):
        next(iterator)
    state = json.loads(json.dumps(shared_loader.state_dict()))
    iterator.close()
    assert list(iterator) == []
    threaded = batches(packed, shuffle="window", reader="threads", epoch=epoch, **TIGHT)
    expected = epoch_of(threaded)
    for _ in range(3):
        shared_loader.load_state_dict(state)
        for _ in shared_loader:
            break
    shared_loader.load_state_dict(state)
    assert_same(epoch_of(shared_loader), expected[5:])
    assert_same(epoch_of(shared_loader), epoch_of(threaded))
    assert len(whole) == len(expected)
    assert pid_of(shared_loader) == pid


def test_a_batch_stays_what_it_was_and_nobody_waits_for_it(packed):
    loader = batches(packed, 200, shuffle="window", **TIGHT)
    kept = []
    for _ in range(2):
        kept += [(batch, batch.arrays["images"].copy()) for batch in loader]
    assert loader._pools[0].extra > 0, "no slot was ever missing"
    del loader
    gc.collect()
    for batch, images in kept:
        np.testing.assert_array_equal(batch.arrays["images"], images)
        np.testing.assert_array_equal(images, IMAGES[batch.rows])


def test_any_consumer_is_served(shared_loader):
    """Epochs left at any batch, batches held for any time, slots short or not."""
    random = np.random.default_rng(1)
    first = shared_loader.plan.epoch_plan
    held = []
    for _ in range(40):
        epoch, leave_at = shared_loader.epoch, random.integers(0, 45)
        plan = replace(first, order=first.order.at_epoch(epoch))
        for number, batch in enumerate(shared_loader):
            np.testing.assert_array_equal(batch.rows, plan.batch(number)[0])
            held = [one for one in held if random.random() > 0.3]
            held.append(batch)
            if number == leave_at:
                break
        for one in held:
            np.testing.assert_array_equal(one.arrays["images"], IMAGES[one.rows])


def test_slots_come_back_to_a_consumer_who_lets_go(shared_loader):
    for _ in shared_loader:
        pass
    before = shared_loader._pools[0].extra
    for _ in range(2):
        for _ in shared_loader:
            pass
    assert shared_loader._pools[0].extra == before


def test_a_loader_pickles_while_it_iterates(shared_loader):
    iterator = iter(shared_loader)
    next(iterator)
    copy = pickle.loads(pickle.dumps(shared_loader))
    assert copy.state_dict() == shared_loader.state_dict()
    assert copy._process is None
    iterator.close()


def test_slots_for_no_rows_at_all():
    layout = {"x": ((0, 3), np.dtype("f4"))}
    fd = shared_file(file_bytes(layout, 1, 2))
    slots = SharedSlots(fd, layout, 1, 2).slots
    os.close(fd)
    assert [slot.arrays["x"].shape for slot in slots] == [(1, 0, 3)] * 3


def test_explain_tells_who_reads(shared_loader):
    told = shared_loader.explain()
    assert told.reader == "process"
    assert "in a reader process" in repr(told)


# refusals and failures


def test_impossible_readers_are_refused_at_once(plain, monkeypatch):
    dataset = labeled.open_dataset(plain)
    with pytest.raises(LoaderError, match="'fork' must be 'threads', 'process' or 'device'"):
        dataset.batches(4, reader="fork")
    with pytest.raises(LoaderError, match=r"'images' .*already.*reader='threads'"):
        dataset.load().batches(4, reader="process")
    monkeypatch.setattr(process_module, "os", SimpleNamespace(name="nt"))
    with pytest.raises(LoaderError, match="Linux and macOS"):
        dataset.batches(4, reader="process")


def test_a_plan_that_does_not_pickle_is_refused():
    lock = threading.Lock()
    array = da.zeros((10, 2), chunks=5).map_blocks(lambda x: (lock, x)[1])
    lazy = xr.DataArray(array, dims=("batch", "x"), name="x")
    loader = labeled.batches(lazy, 2, reader="process")
    with pytest.raises(LoaderError, match=r"'x'.*lock.*reader='threads'"):
        iter(loader)


class UnknownThereError(Exception):
    """Raised in a graph, and of a type that takes two arguments."""

    def __init__(self, block, reason):
        super().__init__(f"{reason} in block {block}")
        self.block = block


def test_an_error_comes_in_order_with_its_trace(tmp_path):
    name = fuel_file(
        tmp_path / "d.hdf5",
        {"images": np.concatenate([IMAGES] * 3)},
        {"all": (0, 3 * N)},
        {"images": ("batch", "channel", "height", "width")},
        chunks=(16, 3, 20, 20),
        compression=1,
    )
    with h5py.File(name) as f:
        chunk = f["images"].id.get_chunk_info(300)
    stat = os.stat(name)
    with open(name, "r+b") as raw:
        raw.seek(chunk.byte_offset + 8)
        raw.write(b"\xff" * 64)
    os.utime(name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    loader = batches(name, 16, **TIGHT)
    for _ in range(2):
        seen = []
        with pytest.raises(ReadError, match=r"'images'.*d\.hdf5.*48[01]\d") as caught:
            seen.extend(images_of(batch) for batch in loader)
        rows = np.concatenate([rows for _, rows, _ in seen])
        np.testing.assert_array_equal(rows, np.arange(16 * len(seen)))
        assert 0 < len(seen) <= 300
        note = "".join(caught.value.__notes__)
        assert f"reader process {pid_of(loader)}" in note
        assert "read_piece" in note


def test_blocks_of_a_graph_are_computed_there():
    here = os.getpid()

    def work(x):
        if (x >= 950).any():
            raise UnknownThereError(38, "no luck")
        return x + (os.getpid() == here)

    values = np.repeat(np.arange(1000), 500).reshape(1000, 500)
    array = da.from_array(values, chunks=(25, 500)).map_blocks(work, dtype=int)
    lazy = xr.DataArray(array, dims=("batch", "feature"), name="x")
    loader = labeled.batches(lazy, 25, reader="process", memory="4 MiB")
    assert not loader.plan.all_kept
    seen = []
    with pytest.raises(ReadError, match="no luck in block 38") as caught:
        seen.extend(batch["x"].values for batch in loader)
    np.testing.assert_array_equal(np.concatenate(seen), values[: 25 * len(seen)])
    assert seen
    assert "UnknownThereError" in "".join(caught.value.__notes__)


def test_a_killed_reader_is_reported_and_replaced(packed):
    loader = batches(packed, shuffle="window", **TIGHT)
    iterator = iter(loader)
    first = next(iterator)
    images, rows = images_of(first)[:2]
    old = pid_of(loader)
    os.kill(old, signal.SIGKILL)
    with pytest.raises(ReadError, match=r"'images'.*SIGKILL.*after \d+ rows.*memory"):
        list(iterator)
    threaded = batches(packed, shuffle="window", reader="threads", epoch=1, **TIGHT)
    assert_same(epoch_of(loader), epoch_of(threaded))
    assert pid_of(loader) != old
    np.testing.assert_array_equal(first.arrays["images"], images)
    np.testing.assert_array_equal(images, IMAGES[rows])


# other processes


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_leaves_the_reader_alone(shared_loader):
    loader, iterator = shared_loader, iter(shared_loader)
    next(iterator)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            with contextlib.suppress(LoaderError):
                next(iterator)
                os.write(writer, b"served")
            iterator.close()
            loader._process.close()
            os.write(writer, b"done")
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as said:
        assert said.read() == b"done"
    os.waitpid(child, 0)
    assert len(list(iterator)) == len(loader) - 1


@linux
def test_nothing_piles_up(packed):
    def things():
        gc.collect()
        mapped = Path("/proc/self/maps").read_text().count("labeled-slots")
        children = psutil.Process().children()  # ended ones that nobody waited for, too
        return len(os.listdir("/proc/self/fd")), mapped, len(children)

    def use(leave_at):
        loader = batches(packed, shuffle="window", **TIGHT)
        for number, _ in enumerate(loader):
            if number == leave_at:
                break

    before = things()
    for leave_at in (2, 99):
        use(leave_at)
    assert things() == before


def script(text, packed, **popen):
    """Run a script without a ``__main__`` guard; `packed` is its first argument."""
    return subprocess.Popen(
        [sys.executable, "-u", "-X", "dev", "-W", "error", "-c", textwrap.dedent(text), packed],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **popen,
    )


OPENED = """
import os, sys, time
import labeled
loader = labeled.open_dataset(sys.argv[1]).batches(
    16, shuffle="window", memory="12 MiB", window_rows=300, reader="process")
iterator = iter(loader)
next(iterator)
print(loader._process.pid)
"""


@linux
def test_a_script_may_end_in_mid_epoch(packed):
    held = "\nbatches = [next(iterator) for _ in range(80)]\nprint(len(batches))\n"
    with script(OPENED + held, packed) as run:
        out, errors = run.communicate(timeout=60)
    pid, n = map(int, out.split())
    assert (run.returncode, errors, n) == (0, "", 80)
    assert not alive(pid)


@linux
def test_the_reader_ends_when_its_consumer_is_killed(packed):
    # the fork holds the connection open, so that no end of file tells the reader
    waits = """
import warnings
warnings.simplefilter("ignore")  # of forks beside threads that only a library has
if not os.fork():
    os.closerange(0, 3)
    time.sleep(30)
print("forked")
time.sleep(60)
"""
    with script(OPENED + waits, packed, start_new_session=True) as run:
        pid = int(run.stdout.readline())
        assert run.stdout.readline() == "forked\n"
        assert alive(pid)
        run.kill()
        run.wait()
        try:
            assert settled(lambda: not alive(pid))
        finally:
            os.killpg(run.pid, signal.SIGKILL)


@linux
def test_an_interrupt_ends_both(packed):
    forever = """
import signal
import socket
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background has none
while True:
    for _ in loader:
        pass
"""
    with script(OPENED + forever, packed, start_new_session=True) as run:
        pid = int(run.stdout.readline())
        time.sleep(1)
        began = time.monotonic()
        os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to both processes
        _, errors = run.communicate(timeout=30)
    assert time.monotonic() - began < 3
    assert run.returncode == -signal.SIGINT
    assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1
    assert not alive(pid)


MEMORY = """
import json, os, sys, threading, time
import numpy as np
import labeled
from labeled.loader.reading.process import ReaderProcess

options = json.loads(sys.argv[2])


def held(pid, *names):
    fields = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status"))
    return sum(int(fields[name].split()[0]) for name in names) * 1024


loader = labeled.open_dataset(sys.argv[1]).batches(reader="process", **options)
promised = loader.explain().promised_bytes
loader._process = ReaderProcess(loader.plan)
child, own, seen = loader._process.pid, os.getpid(), [-1, -2]
while len(set(seen[-8:])) > 1 or seen[-1] < 20 << 20:
    time.sleep(0.05)
    waits = open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0] == "S"
    seen.append(held(child, "RssAnon") if waits else -len(seen))  # a busy machine lets it wait too
before = seen[-1] + held(own, "RssAnon")
peak, done = 0, threading.Event()


def watch():
    global peak
    while not done.is_set():
        shared = max(held(pid, "RssShmem") for pid in (own, child))
        peak = max(peak, held(own, "RssAnon") + held(child, "RssAnon") + shared)
        time.sleep(0.0005)


watcher = threading.Thread(target=watch)
watcher.start()
total = 0
for _ in range(2):
    for batch in loader:
        for array in batch.arrays.values():
            total += int(array.reshape(-1).view(np.uint8)[::64].sum())
done.set()
watcher.join()
print(json.dumps({"growth": peak - before, "promised": promised, "total": total}))
"""


@linux
def test_growth_of_both_processes_stays_within_the_promise(tmp_path):
    memory = 24
    values = np.random.default_rng(0).integers(0, 16, (16_000, 3, 32, 32), dtype=np.uint8)
    name = fuel_file(
        tmp_path / "m.hdf5",
        {"x": values},
        {"all": (0, len(values))},
        {"x": ("batch", "channel", "height", "width")},
        chunks=(64, 3, 32, 32),
        compression=1,
    )
    options = {"batch_size": 256, "shuffle": "window", "seed": 1, "memory": memory << 20}
    command = [sys.executable, "-W", "error", "-c", MEMORY, name, json.dumps(options)]
    out = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert out.returncode == 0, out.stderr
    figures = json.loads(out.stdout)
    assert figures["promised"] <= memory << 20, figures
    assert 0.5 <= figures["growth"] / figures["promised"] <= 1.0, figures


def test_a_reader_that_is_left_before_it_began_says_nothing():
    """As Ctrl-C does, while the reader still starts."""
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        command = [sys.executable, "-P", "-c", process_module._BOOT, str(theirs.fileno())]
        ran = subprocess.run(
            command, pass_fds=(theirs.fileno(),), capture_output=True, text=True, timeout=60
        )
    assert (ran.returncode, ran.stderr) == (0, "")
