"""How often a file is asked, counted: stretches of chunks, scattered rows, announced bytes."""

from __future__ import annotations

import os
import sys

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.formats import bytesource
from labeled.formats.bytesource import LocalFile, close_files
from labeled.formats.contiguous import ContiguousReader
from labeled.formats.reader import cost, read_rows
from labeled.loader import explain, memory

N, CHUNK = 4000, 50
VALUES = np.random.default_rng(0).integers(0, 255, (N, 512), dtype=np.uint8)


def write(path, *, chunked=True, order=None):
    """Write the rows; chunk after chunk in `order`, so that they lie in the file like that."""
    with h5py.File(path, "w") as f:
        data = f.create_dataset("x", VALUES.shape, "u1", chunks=(CHUNK, 512) if chunked else None)
        for k in range(N // CHUNK) if order is None else order:
            data[k * CHUNK : (k + 1) * CHUNK] = VALUES[k * CHUNK : (k + 1) * CHUNK]
        data.dims[0].label, data.dims[1].label = "batch", "feature"
    return str(path)


def places(path):
    """Where chunks begin, as h5py says."""
    with h5py.File(path) as f:
        told = [f["x"].id.get_chunk_info(i) for i in range(N // CHUNK)]
    return {info.chunk_offset[0] // CHUNK: info.byte_offset for info in told}


def reader_of(path, **options):
    return labeled.open_dataset(path, **options).files.catalog.sources["x"].reader()


def loader_of(path, batch_rows=50, **options):
    """A loader that keeps nothing, so that it reads."""
    loader = labeled.open_dataset(path).batches(batch_rows, seed=1, memory="5 MiB", **options)
    for source_reader in loader.plan.source_readers:
        source_reader.keep = False
    return loader


def check(loader):
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["x"], VALUES[batch.rows])


@pytest.fixture
def calls(monkeypatch):
    """Count what is asked of files and of the pieces that reading is planned in."""
    found = {"read": 0, "planned": 0, "told": []}
    read, plan = LocalFile.read_into, ContiguousReader._read

    def counted_read(self, target, offset):
        found["read"] += 1
        read(self, target, offset)

    def counted_plan(self, *args):
        found["planned"] += 1
        return plan(self, *args)

    monkeypatch.setattr(LocalFile, "read_into", counted_read)
    monkeypatch.setattr(ContiguousReader, "_read", counted_plan)
    monkeypatch.setattr(LocalFile, "advise", lambda self, at, n: found["told"].append((at, n)))
    return found


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A file of stretches of some chunks each, in an order of their own."""
    blocks = [range(k, min(k + 7, N // CHUNK)) for k in range(0, N // CHUNK, 7)]
    order = [k for b in np.random.default_rng(2).permutation(len(blocks)) for k in blocks[b]]
    return write(tmp_path_factory.mktemp("calls") / "mixed.h5", order=order)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, N - 1), st.integers(1, 600))
def test_a_run_within_a_stretch_of_chunks_is_one_call(mixed, start, length):
    stop = min(start + length, N)
    reader, at = reader_of(mixed), places(mixed)
    out = np.zeros((stop - start, 512), np.uint8)
    reader.read(range(start, stop), out)
    np.testing.assert_array_equal(out, VALUES[start:stop])
    touched = range(start // CHUNK, (stop - 1) // CHUNK + 1)
    breaks = sum(at[k + 1] - at[k] != CHUNK * 512 for k in touched[:-1])
    assert cost(reader, range(start, stop)).n_reads <= 1 + breaks
    assert cost(reader, range(start, stop)).bytes_read == out.nbytes


def test_chunks_in_file_order_are_read_a_job_a_call(tmp_path, calls):
    path = write(tmp_path / "ordered.h5")
    gaps = np.diff([at for _, at in sorted(places(path).items())]) != CHUNK * 512
    loader = loader_of(path)
    check(loader)
    assert calls["planned"] <= gaps.sum()  # only jobs across a gap are planned piece by piece
    assert calls["read"] <= loader.explain().n_jobs + gaps.sum()
    assert not calls["told"]


@pytest.mark.parametrize("dtype", ["<u4", ">u4"])
def test_a_job_of_rows_in_file_order_is_one_call(tmp_path, calls, dtype):
    values = np.arange(8 * 3 * 512, dtype=dtype).reshape(-1, 8)
    rows = values.repeat(64, axis=1)
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["x"] = rows
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "feature"
    loader = labeled.open_dataset(tmp_path / "x.h5").batches(256, memory="16 MiB")
    for source_reader in loader.plan.source_readers:
        source_reader.keep = False
    for number, batch in enumerate(loader):
        np.testing.assert_array_equal(batch.arrays["x"], rows[number * 256 :][:256])
    jobs = loader.stats().n_windows
    assert loader.stats().n_tasks == jobs == rows.nbytes // (3 << 19)
    assert calls["planned"] == 0
    assert calls["read"] == jobs


@pytest.mark.parametrize("dtype", ["u1", ">u2"])
@pytest.mark.parametrize("shuffle", [False, "full"])
def test_rows_larger_than_a_read_come_one_by_one(tmp_path, dtype, shuffle):
    values = np.random.default_rng(0).integers(0, 255, (5, 1_300_000)).astype(dtype)
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["x"] = values
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "feature"
    loader = labeled.open_dataset(tmp_path / "x.h5").batches(2, seed=1, shuffle=shuffle)
    for source_reader in loader.plan.source_readers:
        source_reader.keep = False
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["x"], values[batch.rows])


@pytest.mark.parametrize(("threads", "n_jobs"), [(0, 6), (1, 4)])
def test_jobs_are_smaller_where_nobody_reads_ahead(tmp_path, threads, n_jobs):
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.create_dataset("x", (1536, 1024), "u4").dims[0].label = "batch"
    dataset = labeled.open_dataset(tmp_path / "x.h5", dims={"x": ("batch", "feature")})
    loader = dataset.batches(128, memory="16 MiB", threads=threads, shuffle="full", seed=1)
    for source_reader in loader.plan.source_readers:
        source_reader.keep = False
    assert sum(1 for _ in loader) == 12
    assert loader.stats().n_windows == n_jobs


def test_chunks_here_and_there_are_found_one_by_one(tmp_path):
    order = np.random.default_rng(1).permutation(N // CHUNK).tolist()
    path = write(tmp_path / "scattered.h5", order=order)
    reader = reader_of(path)
    np.testing.assert_array_equal(read_rows(reader, range(30, 333)), VALUES[30:333])


def test_a_chunk_that_was_never_written_ends_no_run(tmp_path):
    path = write(tmp_path / "holes.h5", order=[0, 1, 2, 3, 5, 6, 7, 8])
    wanted = VALUES[:450].copy()
    wanted[200:250] = 0
    np.testing.assert_array_equal(read_rows(reader_of(path), range(450)), wanted)


@pytest.mark.parametrize("io", ["auto", "pread"])
@pytest.mark.parametrize("shuffled", [False, True])
def test_scattered_rows_of_chunks_are_picked_together(tmp_path, calls, io, shuffled):
    rows = np.arange(3, N, 40)  # so far apart that no gap is read through
    reader = reader_of(write(tmp_path / "full.h5"), io=io)
    dest = np.random.default_rng(3).permutation(len(rows)) if shuffled else None
    out = np.zeros((len(rows), 512), np.uint8)
    reader.read(np.stack((rows, rows + 1), axis=1), out, dest)
    np.testing.assert_array_equal(out if dest is None else out[dest], VALUES[rows])
    assert calls["read"] == (len(rows) if io == "pread" else 0)


@pytest.mark.parametrize("io", ["auto", "pread"])
@pytest.mark.parametrize("chunked", [False, True])
def test_what_is_announced_is_what_is_read(tmp_path, monkeypatch, calls, chunked, io):
    monkeypatch.setattr(LocalFile, "holds", lambda self, offset: False)
    monkeypatch.setattr(memory, "kept_choices", lambda *_: [(0, set())])
    path = write(tmp_path / "window.h5", chunked=chunked)
    data = labeled.open_dataset(path, io=io)
    loader = data.batches(50, seed=1, memory="5 MiB", window_rows=400, shuffle="window")
    cost = loader.explain().sources[0]
    check(loader)
    assert sum(n for _, n in calls["told"]) == cost.bytes_read == VALUES.nbytes
    assert len(calls["told"]) == cost.n_reads
    assert calls["read"] == (cost.n_reads if io == "pread" else 0)  # else picked from a map


def advice_of(path):
    """What Linux says of the map of a file: "rr" stands for random reads."""
    with open("/proc/self/smaps") as f:
        parts = f.read().split(path)[1:]
    return [part.split("VmFlags:")[1].split("\n")[0].split() for part in parts]


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/self/smaps")
@pytest.mark.parametrize("too_large", [False, True])
def test_rows_of_a_file_larger_than_memory_are_fetched_alone(tmp_path, monkeypatch, too_large):
    memory = os.path.getsize(path := write(tmp_path / "rows.h5", chunked=False)) - too_large
    monkeypatch.setattr(bytesource, "machine_bytes", lambda: memory)
    monkeypatch.setattr(explain, "machine_bytes", lambda: VALUES.nbytes - too_large)
    close_files()
    loader = loader_of(path, shuffle="full")
    check(loader)
    assert [("rr" in flags) for flags in advice_of(path)] == [too_large]
    assert ("of memory there may be" in repr(loader.explain())) == too_large
    assert "more than" not in repr(loader_of(path, shuffle="window").explain())
