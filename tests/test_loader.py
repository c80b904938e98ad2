"""Loaders: every row as promised, in an order that depends on nothing else."""

from __future__ import annotations

import copy
import gc
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import time
from html import escape

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import (
    LoaderError,
    ReadError,
)
from make_files import fuel_file

N = 203
RNG = np.random.default_rng(5)
IMAGES = RNG.integers(0, 255, (N, 3, 4, 5), dtype=np.uint8)
TARGETS = RNG.integers(0, 10, (N, 1), dtype=np.uint8)
LISTED = RNG.permutation(N)[:150]
ASCENDING = np.sort(RNG.permutation(N)[:120])


@pytest.fixture(scope="module", params=["contiguous", "gzip"])
def path(request, tmp_path_factory):
    chunked = {"chunks": {"images": (8, 3, 4, 5)}, "compression": {"images": "gzip"}}
    return fuel_file(
        tmp_path_factory.mktemp(request.param) / "d.hdf5",
        {"images": IMAGES, "targets": TARGETS},
        {"all": (0, N), "part": (20, 180), "listed": LISTED, "ascending": ASCENDING},
        {"images": ("batch", "channel", "height", "width"), "targets": ("batch", "index")},
        **(chunked if request.param == "gzip" else {}),
    )


one_file = pytest.mark.parametrize("path", ["gzip"], indirect=True)
"""For what starts a Python of its own."""

SMALL = {"memory": "8 MiB", "window_rows": 40}


def rows_of(loader):
    return [batch.rows for batch in loader]


def check(batch, rows):
    real = batch.rows[: batch.count]
    np.testing.assert_array_equal(batch.arrays["images"][: batch.count], IMAGES[rows[real]])
    np.testing.assert_array_equal(batch.arrays["targets"][: batch.count], TARGETS[rows[real]])


def test_a_second_iterator_ends_the_first_loudly(path):
    loader = labeled.open_dataset(path).batches(16)
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert len(list(second)) == 13
    with pytest.raises(LoaderError, match="one live iterator"):
        next(first)


def test_balance_and_weights(path):
    dataset = labeled.open_dataset(path)
    balanced = dataset.batches(10, balance="targets", seed=1)
    assert len(balanced) == N // 10
    drawn = np.concatenate([b.arrays["targets"][:, 0] for _ in range(30) for b in balanced])
    counts = np.bincount(drawn, minlength=10) / len(drawn)
    assert abs(counts - 0.1).max() < 0.02
    weights = np.zeros(N)
    weights[[3, 77]] = 1, 3
    rows = np.concatenate(rows_of(dataset.batches(10, weights=weights, seed=1, **SMALL)))
    assert set(rows) == {3, 77}
    for batch in dataset.batches(10, weights=weights, seed=1, **SMALL):
        check(batch, np.arange(N))
    named = rows_of(dataset.batches(10, weights="targets", seed=1, **SMALL))
    given = dataset["targets"].values[:, 0]
    same = rows_of(dataset.batches(10, weights=given, seed=1, **SMALL))
    np.testing.assert_array_equal(np.concatenate(named), np.concatenate(same))
    assert given[np.concatenate(named)].all()


def threads_now():
    return [t for t in threading.enumerate() if t.name.startswith("labeled-read")]


def settled(check, seconds=5.0):
    end = time.monotonic() + seconds
    while not check() and time.monotonic() < end:
        gc.collect()
        time.sleep(0.01)
    return check()


def test_leaving_early_ends_the_threads(path):
    loader = labeled.open_dataset(path).batches(2, shuffle="window", threads=3, **SMALL)
    for _ in loader:
        break
    assert settled(lambda: not threads_now())
    iterator = iter(loader)
    next(iterator)
    del iterator
    assert settled(lambda: not threads_now())


@pytest.mark.parametrize("order", [False, "full"])
def test_without_prefetching_no_thread_reads(path, order):
    loader = labeled.open_dataset(path).batches(
        4, shuffle=order, seed=1, prefetch=0, errors="skip", memory="4 MiB"
    )
    whole = len(loader) - 1  # the last batch may be short
    for _, _ in zip(range(whole), loader, strict=False):
        assert not threads_now()
    assert loader.explain().threads == 0


@pytest.mark.parametrize(("codec", "first"), [(None, 0), (None, 50), ("gzip", 0), ("gzip", 64)])
def test_jobs_of_whole_chunks_end_where_batches_do(tmp_path, codec, first):
    rows = np.zeros((8192, 3072), np.uint8)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=rows, chunks=(64, 3072), compression=codec)
    ds = labeled.open_dataset(tmp_path / "x.h5", dims={"x": ("batch", "feature")})
    loader = ds.subset(slice(first, None)).batches(256, memory="16 MiB")
    for _ in loader:  # a batch that lies in two jobs is copied
        pass
    job_rows = loader.explain().job_rows
    assert job_rows % 256 == 0
    assert loader.stats().n_windows == -(-(8192 - first) // job_rows)


def test_neither_threads_nor_prefetching_decide_what_is_kept(tmp_path):
    path = labeled.write(tmp_path / "x.hdf5", {"x": np.arange(5000)}, chunks=10, compression="gzip")
    rows = labeled.open_dataset(path)
    for memory in range(7 << 18, 4 << 20, 1 << 17):
        options = ({"threads": 0}, {"threads": 8}, {"prefetch": 200}, {})
        loaders = [rows.batches(16, shuffle="window", memory=memory, **each) for each in options]
        assert len({loader.explain().window_rows for loader in loaders}) == 1


def test_an_error_while_reading_reaches_the_consumer_in_order(tmp_path):
    rows = np.random.default_rng(0).integers(0, 9, (4000, 500), dtype=np.uint8)
    name = fuel_file(
        tmp_path / "bad.hdf5",
        {"x": rows},
        {"all": (0, 4000)},
        {"x": ("batch", "feature")},
        chunks=(10, 500),
        compression="gzip",
    )
    with h5py.File(name) as f:
        info = f["x"].id.get_chunk_info(350)
    stat = os.stat(name)
    with open(name, "r+b") as raw:
        raw.seek(info.byte_offset + 8)
        raw.write(b"\xff" * 64)
    os.utime(name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    loader = labeled.open_dataset(name).batches(10, memory="4.4 MiB", threads=1)
    seen = []

    def read_all():
        for batch in loader:
            np.testing.assert_array_equal(batch.arrays["x"], rows[batch.rows])
            seen.append(batch.rows)

    with pytest.raises(ReadError, match=r"'x'.*bad\.hdf5.*350\d"):
        read_all()
    np.testing.assert_array_equal(np.concatenate(seen), np.arange(10 * len(seen)))
    assert 0 < len(seen) <= 350
    assert settled(lambda: not threads_now())


def in_child(loader, out):
    out.put(np.concatenate(rows_of(loader)))


@one_file
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_loaders_travel_to_other_processes(path, method):
    loader = labeled.open_dataset(path).batches(9, shuffle=True, seed=4, memory="8 MiB")
    iterator = iter(loader)
    next(iterator)
    context = multiprocessing.get_context(method)
    out = context.Queue()
    process = context.Process(target=in_child, args=(loader, out))
    process.start()
    rows = out.get(timeout=60)
    process.join(60)
    assert process.exitcode == 0
    want = labeled.open_dataset(path).batches(9, shuffle=True, seed=4, epoch=1, memory="8 MiB")
    np.testing.assert_array_equal(rows, np.concatenate(rows_of(want)))
    iterator.close()


def test_an_iterator_does_not_work_in_a_forked_child(path):
    iterator = iter(labeled.open_dataset(path).batches(9))
    next(iterator)
    parent, child = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            next(iterator)
            next(iterator)
            for _ in iterator:
                pass
        except LoaderError as error:
            os.write(child, str(error).encode())
        finally:
            os._exit(0)
    os.close(child)
    assert b"another process" in os.read(parent, 1000)
    os.waitpid(pid, 0)


BROKEN_OFF = """
import atexit, sys, time
begun, ended = [], []
atexit.register(lambda: print(len(begun), len(begun) - len(ended)))  # after whatever comes later
import labeled
from labeled.transforms import whole


def slowly(batch):
    begun.append(0)
    time.sleep(0.3)
    ended.append(0)
    return batch


dataset = labeled.open_dataset(sys.argv[1])
loader = dataset.batches(9, pipeline=whole(slowly), threads=2, memory="8 MiB")
for batch in loader:
    raise SystemExit("broken off")
"""


@one_file
def test_threads_end_their_tasks_before_the_program_ends(path):
    """One that is stopped within HDF5 would keep its lock for ever, or read a closed library."""
    script = (
        BROKEN_OFF + "next(iter(loader))\nfor batch in loader:\n    raise SystemExit('broken off')"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (out.returncode, out.stderr) == (1, "broken off\n")
    begun, on_their_way = map(int, out.stdout.split())
    assert begun > 1
    assert on_their_way == 0


GOES_ON = """
import sys, threading
import numpy as np
import labeled
from labeled import permute

dataset = labeled.open_dataset(sys.argv[1])
x = permute.empty((64, 256, 1024), "f4")
x[...] = np.arange(1024)


def train():
    main.join()
    rows = [row for _ in range(2) for batch in dataset.batches(9, threads=2) for row in batch.rows]
    turned = permute.copy(x, (2, 0, 1), threads=2)
    right = (turned == np.arange(1024)[:, None, None]).all()
    print(len(rows), len(dataset.load()["images"]), right)


main = threading.current_thread()
threading.Thread(target=train).start()
"""


@one_file
def test_a_thread_goes_on_after_the_main_one_has_ended(path):
    """No further thread is started then: each works alone."""
    command = [sys.executable, "-c", GOES_ON, path]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (out.stdout.split(), out.stderr) == ([str(2 * N), str(N), "True"], "")


LEFT_BEHIND = """
import sys, threading, time
import h5py
import labeled


def read():
    with h5py._objects.phil:  # as all of h5py does
        reading.set()
        time.sleep(0.3)


file, reading = h5py.File(sys.argv[1]), threading.Event()
threading.Thread(target=read, daemon=True).start()
reading.wait()
"""


@one_file
def test_a_daemon_thread_within_hdf5_does_not_keep_the_program_from_ending(path):
    """Python stops it wherever it is, and it would hold the lock that the end waits for."""
    command = [sys.executable, "-c", LEFT_BEHIND, path]
    out = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (out.returncode, out.stderr) == (0, "")


def test_a_batch_is_a_labelled_mapping(path):
    batch = next(iter(labeled.open_dataset(path).batches(4)))
    assert batch["images"].dims == ("batch", "channel", "height", "width")
    assert list(batch) == ["images", "targets"]
    assert batch.to_xarray()["targets"].shape == (4, 1)
    assert "count=4" in repr(batch)
    assert "count=4" in batch._repr_html_()
    assert "channel: 3" in batch._repr_html_()
    with pytest.raises(KeyError, match="did you mean 'images'"):
        batch["image"]
    subset = labeled.open_dataset(path).subset(batch.rows)
    np.testing.assert_array_equal(subset["images"].values, batch["images"].values)


def test_a_plan_is_explained_before_anything_is_read(path):
    dataset = labeled.open_dataset(path)
    loader = dataset.batches(8, shuffle="window", seed=1, memory="8 MiB", window_rows=40)
    told = loader.explain(labels=TARGETS)
    images = next(source_reader for source_reader in told.sources if source_reader.name == "images")
    assert (told.n_rows, told.n_batches) == (N, 26)
    assert images.bytes_used == IMAGES.nbytes
    assert told.promised_bytes <= 8 << 20
    assert 0.9 < told.quality < 1.05
    json.dumps(told.to_dict())
    text, html = repr(told), told._repr_html_()
    for word in ("203 rows", "26 batches", "images", images.why):
        assert word in text
        assert escape(word) in html
    assert loader.explain(labels="targets").quality == told.quality
    with pytest.raises(LoaderError, match="3 labels for 203 rows"):
        loader.explain(labels=[1, 2, 3])
    with pytest.raises(LoaderError, match="labels='images' is not a source of one value"):
        loader.explain(labels="images")
    with pytest.raises(
        LoaderError,
        match="labels='target' is not a source of one value a row; did you mean 'targets'",
    ):
        loader.explain(labels="target")


def test_an_epoch_under_way_is_neither_pickled_nor_copied(path):
    """copy.copy() made a second owner of its threads, pickle spoke of a lambda."""
    dataset = labeled.open_dataset(path)
    epoch = iter(dataset.batches(8))
    next(epoch)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(LoaderError, match="pickle its loader"):
            attempt(epoch)
    assert sum(len(batch.rows) for batch in epoch) == dataset.n_rows - 8
