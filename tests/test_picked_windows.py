"""Windows whose rows are picked one by one: the same batches as of windows read whole."""

from __future__ import annotations

import struct
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.errors import FileFormatError
from labeled.formats import memory
from labeled.formats.bytesource import LocalFile, close_files
from labeled.formats.contiguous import ContiguousReader
from labeled.formats.memory import pick_rows
from labeled.loader import source_readers
from labeled.permute import compiler

N, CHUNK = 12000, 40
VALUES = np.random.default_rng(0).integers(0, 255, (N, 1024), dtype=np.uint8)
LABELS = np.arange(N, dtype=np.int64)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same rows in one piece, in chunks, and in chunks of which some were never written."""
    folder, found = tmp_path_factory.mktemp("picked"), {}
    for name, chunks in (
        ("contiguous", None),
        ("chunked", (CHUNK, 1024)),
        ("holes", (CHUNK, 1024)),
    ):
        values = VALUES.copy()
        with h5py.File(folder / f"{name}.h5", "w") as f:
            data = f.create_dataset("x", VALUES.shape, "u1", chunks=chunks, fillvalue=7)
            for start in range(0, N, CHUNK):
                if name == "holes" and start % (7 * CHUNK) == 0:
                    values[start : start + CHUNK] = 7
                else:
                    data[start : start + CHUNK] = values[start : start + CHUNK]
            f["y"] = LABELS
            data.dims[0].label, data.dims[1].label = "batch", "feature"
            f["y"].dims[0].label = "batch"
        found[name] = str(folder / f"{name}.h5"), values
    return found


def loader_of(path, rows, *, whole=False, **options):
    """A loader that picks rows; one that reads whole windows if `whole`."""
    data = labeled.open_dataset(path, io="pread" if whole else "auto").subset(rows)
    options = {"shuffle": "window", "memory": "9 MiB", "window_rows": 400, **options}
    loader = data.batches(**options)
    assert (loader.plan.sizes.whole is None) == (whole or options["shuffle"] == "full")
    return loader


def subsets():
    """A stretch, or a list in any order."""
    lists = st.integers(0, 99).map(
        lambda seed: np.random.default_rng(seed).permutation(N)[: N * 4 // 5]
    )
    return st.one_of(st.just(slice(0, N)), st.just(slice(13, N - 70)), lists)


@pytest.mark.parametrize("name", ["contiguous", "chunked", "holes"])
@settings(max_examples=12, deadline=None)
@given(
    rows=subsets(),
    batch=st.integers(5, 120),
    seed=st.integers(0, 2**40),
    shard=st.sampled_from([(0, 1), (0, 3), (2, 3)]),
    last=st.sampled_from(["keep", "drop", "pad", "wrap"]),
    threads=st.integers(0, 2),
    stop=st.floats(0, 1),
)
def test_batches_are_those_of_whole_windows(
    files, name, rows, batch, seed, shard, last, threads, stop
):
    path, values = files[name]
    wanted = {"batch_size": batch, "seed": seed, "shard": shard, "last": last, "threads": threads}
    whole = loader_of(path, rows, whole=True, **wanted)
    picked = loader_of(path, rows, **wanted)
    position = np.arange(N)[rows]
    stop = round(stop * len(whole))
    first, second = iter(whole), iter(picked)
    for number in range(len(whole)):
        if number == stop:  # either goes on where the other one was
            picked.load_state_dict(whole.state_dict())
            second = iter(picked)
        one, other = next(first), next(second)
        np.testing.assert_array_equal(one.rows, other.rows)
        real = one.rows[: one.count]
        np.testing.assert_array_equal(other.arrays["x"][: one.count], values[position[real]])
        np.testing.assert_array_equal(other.arrays["y"][: one.count], LABELS[position[real]])
    with pytest.raises(StopIteration):
        next(second)


@pytest.mark.parametrize("name", ["contiguous", "chunked"])
def test_what_is_predicted_of_picked_windows_happens(files, name):
    path, _ = files[name]
    options = {"batch_size": 48, "seed": 1}
    picked = loader_of(path, slice(0, N), **options)
    whole = loader_of(path, slice(0, N), whole=True, **options)
    told, of_whole = picked.explain(), whole.explain()
    assert told.n_windows == of_whole.n_windows
    assert told.quality == of_whole.quality
    assert told.n_jobs == sum(1 for _ in picked.plan.jobs(picked.plan.epoch_plan, 0))
    assert told.n_jobs > 2 * told.n_windows
    assert [source_reader.n_reads for source_reader in told.sources] == [
        source_reader.n_reads for source_reader in of_whole.sources
    ]
    assert told.promised_bytes < of_whole.promised_bytes
    assert told.mapped_bytes > 0 == of_whole.mapped_bytes


def test_windows_of_short_rows_are_read_whole(tmp_path):
    path = labeled.write(tmp_path / "short.h5", {"x": VALUES.reshape(-1, 64)})
    loader = labeled.open_dataset(path).batches(32, shuffle="window", seed=1, memory="5 MiB")
    assert loader.plan.sizes.whole is None
    told = loader.explain()
    assert told.n_jobs == told.n_windows


@pytest.mark.parametrize("name", ["contiguous", "chunked"])
@pytest.mark.parametrize("threads", [0, 1])
def test_a_cold_disk_is_advised_of_a_window_before_its_rows_are_picked(
    files, name, threads, monkeypatch
):
    path, values = files[name]
    announced = np.zeros(N, np.int64)
    known = []  # of each gather: whether all its rows had been announced

    gather = ContiguousReader._read_list

    def noting_advice(reader, runs):
        for start, stop in runs.tolist():
            announced[start:stop] += 1

    def noting_gather(self, rows, out, places):
        known.append(announced[rows].all())
        gather(self, rows, out, places)

    close_files()
    monkeypatch.setattr(LocalFile, "holds", lambda self, offset: False)
    monkeypatch.setattr(source_readers, "advise", noting_advice)
    monkeypatch.setattr(ContiguousReader, "_read_list", noting_gather)
    loader = loader_of(path, slice(0, N), batch_size=64, seed=3, threads=threads)
    epoch = iter(loader)
    first = next(epoch)
    ahead = int(announced.sum())
    assert 400 < ahead < 3 * 480  # this window and the next one, and not the epoch
    for batch in (first, *epoch):
        np.testing.assert_array_equal(batch.arrays["x"], values[batch.rows])
    assert announced.tolist() == [1] * N
    if not threads:  # otherwise announcing is a task beside the others
        assert all(known)


def test_chunks_whose_ends_were_read_with_others_are_announced_all_the_same(files, monkeypatch):
    """Around what it fetches for a map the system reads on, into the chunks beside."""
    path, _ = files["chunked"]
    announced = np.zeros(N, bool)

    def noting_advice(reader, runs):
        for start, stop in runs.tolist():
            announced[start:stop] = True

    monkeypatch.setattr(source_readers, "is_cold", lambda reader, row: 9 < row % 160 < 150)
    monkeypatch.setattr(source_readers, "advise", noting_advice)
    for _ in loader_of(path, slice(0, N), batch_size=64, seed=3, threads=0):
        pass
    assert announced.mean() > 0.5  # stretches of four chunks, some of them side by side


@settings(max_examples=150, deadline=None)
@given(
    row_bytes=st.integers(1, 1500),
    n_rows=st.integers(0, 30),
    aligned=st.booleans(),
    seed=st.integers(0, 999),
)
def test_rows_are_picked_from_any_bytes(row_bytes, n_rows, aligned, seed):
    rng = np.random.default_rng(seed)
    stored = rng.integers(0, 256, 40 * row_bytes + 17, dtype=np.uint8)
    if aligned:
        at = rng.integers(0, 39, n_rows) * row_bytes + int(rng.integers(0, row_bytes))
    else:
        at = rng.integers(0, len(stored) - row_bytes + 1, n_rows)
    target = np.zeros((n_rows, row_bytes), np.uint8)
    pick_rows(stored, at, target)
    np.testing.assert_array_equal(
        target, np.array([stored[a : a + row_bytes] for a in at]).reshape(n_rows, row_bytes)
    )


@pytest.mark.parametrize("shuffle", ["window", "full"])
def test_a_chunk_that_reaches_past_the_file_is_an_error_and_not_another_row(
    files, tmp_path, shuffle
):
    """Its entry in the table lies at the end of the file."""
    path = tmp_path / "damaged.h5"
    content = bytearray(Path(files["chunked"][0]).read_bytes())
    first, n_bytes = 100 * CHUNK, CHUNK * 1024
    at = content.index(struct.pack("<IIQQQ", n_bytes, 0, first, 0, 0))
    struct.pack_into("<I", content, at, 16)
    struct.pack_into("<Q", content, at + 32, len(content) - 64)
    path.write_bytes(content)

    loader = loader_of(path, slice(0, N), batch_size=50, seed=1, shuffle=shuffle)
    with pytest.raises(FileFormatError, match=r"'x' in .*damaged\.h5.*position \(4000, 0\)"):
        for _ in loader:
            pass


@pytest.mark.parametrize("name", ["contiguous", "chunked"])
def test_without_threads_a_few_jobs_are_enough(files, name):
    """One more would be made for every batch in which a window ends, and batches copied then."""
    path, _ = files[name]
    loader = loader_of(path, slice(0, N), batch_size=48, seed=1, threads=0, window_rows=1000)
    rows = [batch.rows for batch in loader]  # the last one is held while the next is made
    assert len(rows) == N // 48
    windows, _ = loader.pools()
    assert windows.extra == 0


@pytest.mark.parametrize("compiled", [False, True])
@settings(max_examples=40, deadline=None)
@given(
    row_bytes=st.sampled_from([1, 3, 63, 64, 256, 767, 768, 3072, 4096, 4160, 4223, 100_000]),
    n=st.integers(0, 70),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_are_picked_from_any_place(compiled, row_bytes, n, seed):
    if compiled:
        pytest.importorskip("numba")
    random = np.random.default_rng(seed)
    stored = random.integers(0, 255, row_bytes + random.integers(0, 5000), dtype=np.uint8)
    at = random.integers(0, len(stored) - row_bytes + 1, n)
    found = np.zeros((n, row_bytes), np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "earned", lambda n_bytes: compiled)
        pick_rows(stored, at, found)
    for row, place in zip(found, at.tolist(), strict=True):
        np.testing.assert_array_equal(row, stored[place : place + row_bytes])


@pytest.mark.parametrize("place", [-2, 11, 2**62])
def test_no_row_is_picked_from_beside_the_file(place):
    picking = pytest.importorskip("labeled.permute.kernels")
    stored, out = np.arange(20, dtype=np.uint8), np.zeros((2, 10), np.uint8)
    assert not picking.pick(stored, np.array([3, place]), out)
    assert not out.any()


@pytest.mark.parametrize("dtype", ["u1", ">f4", "c16", "M8[ns]", "O", [("a", "i2"), ("b", "f8")]])
@settings(max_examples=20, deadline=None)
@given(
    shape=st.sampled_from([(), (1,), (5,), (3, 7), (0,)]),
    n=st.integers(0, 60),
    seed=st.integers(0, 2**32 - 1),
)
def test_rows_of_memory_are_taken_as_numpy_takes_them(dtype, shape, n, seed):
    """Sizes from which compiled loops are used are set to nothing, so that all go that way."""
    pytest.importorskip("numba")
    random = np.random.default_rng(seed)
    stored = random.integers(0, 99, (40, *shape)).astype(dtype)
    rows = random.integers(0, len(stored), n)
    out = np.zeros((n, *shape), dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiler, "earned", lambda n_bytes: True)
        patch.setattr(memory, "STREAMED_BYTES", 0)
        patch.setattr(memory, "PICKED_BYTES", 1)
        memory.take_rows(stored, rows, out)
    np.testing.assert_array_equal(out, stored[rows])


def test_rows_of_large_memory_are_taken_by_compiled_loops(monkeypatch):
    picking, used = pytest.importorskip("labeled.permute.kernels"), []
    inner = picking.pick
    monkeypatch.setattr(picking, "pick", lambda *a: used.append(inner(*a)) or used[-1])
    stored = np.arange(memory.STREAMED_BYTES // 1024 * 128).reshape(-1, 128)
    for n, compiled in ((memory.PICKED_BYTES // 1024, True), (3, False)):
        rows = np.random.default_rng(0).permutation(len(stored))[:n]
        out = np.zeros((n, 128), stored.dtype)
        used.clear()
        memory.take_rows(stored, rows, out)
        np.testing.assert_array_equal(out, stored[rows])
        assert used == [True] * compiled
