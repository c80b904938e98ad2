"""Stored chunks that memory does not hold: read all the same, each decoded once in file order."""

from __future__ import annotations

import os
import re

import h5py
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import labeled
from labeled.errors import LoaderError

MIB = 1 << 20
N_ROWS = 3000
ROW = (3, 16, 16)


def write(path, chunks, dtype=np.uint8, n_rows=N_ROWS, **filters):
    """Write rows of noise, about half their size once compressed, and their numbers."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 16, (n_rows, *ROW), np.uint8).astype(dtype)
    with h5py.File(path, "w") as f:
        x = f.create_dataset("x", data=values, chunks=chunks, **filters)
        y = f.create_dataset("y", data=np.arange(n_rows)[:, None])
        for axis, name in enumerate(("batch", "channel", "height", "width")):
            x.dims[axis].label = name
        for axis, name in enumerate(("batch", "index")):
            y.dims[axis].label = name
    return path


@pytest.fixture
def fetched(monkeypatch):
    """Note the bytes of each read."""
    sizes, preadv = [], os.preadv

    def noting(fd, buffers, offset, *flags):
        sizes.extend(np.asarray(buffer).nbytes for buffer in buffers)
        return preadv(fd, buffers, offset, *flags)

    monkeypatch.setattr(os, "preadv", noting)
    return sizes


PLAIN = {}
GZIP = {"compression": "gzip", "compression_opts": 1}
SHUFFLED = {**GZIP, "shuffle": True, "fletcher32": True}
LZF = {"compression": "lzf", "shuffle": True}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files by layout, each written once, and what h5py reads of them."""
    folder, written = tmp_path_factory.mktemp("large"), {}

    def get(chunks, dtype, coded):
        key = repr((chunks, dtype, coded))
        if key not in written:
            path = folder / f"{len(written)}.hdf5"
            write(path, chunks, dtype, maxshape=(None, *ROW), **coded)
            with h5py.File(path) as f:
                written[key] = path, f["x"][:]
        return written[key]

    return get


@settings(max_examples=15, deadline=None, phases=[Phase.generate])
@given(
    chunk_rows=st.sampled_from([700, 1024, N_ROWS, 2 * N_ROWS]),
    across=st.sampled_from([ROW, (1, 16, 16), (2, 7, 16)]),
    dtype=st.sampled_from(["u1", "<f4", ">i2"]),
    coded=st.sampled_from([PLAIN, GZIP, SHUFFLED, LZF]),
    mode=st.sampled_from([False, "window", "full", True]),
    narrow=st.booleans(),
    start=st.integers(0, 900),
    listed=st.booleans(),
    threads=st.sampled_from([None, 0, 2]),
)
def test_rows_are_those_of_the_file_whatever_the_chunks(
    files, chunk_rows, across, dtype, coded, mode, narrow, start, listed, threads
):
    path, expected = files((chunk_rows, *across), dtype, coded)
    dataset = labeled.open_dataset(path)
    if narrow:
        dataset, expected = dataset.isel(channel=1, width=slice(2, 9)), expected[:, 1, :, 2:9]
    rows = np.arange(start, N_ROWS)
    if listed:
        rows = np.random.default_rng(start).permutation(N_ROWS)[start:]
    dataset = dataset.subset(rows if listed else slice(start, None))
    loader = least(dataset, 64, shuffle=mode, seed=1, threads=threads)

    found = np.full(len(rows), -1)
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["x"], expected[rows[batch.rows]])
        np.testing.assert_array_equal(batch.arrays["y"][:, 0], rows[batch.rows])
        found[batch.rows] = batch.rows
    np.testing.assert_array_equal(found, np.arange(len(rows)))


def least(dataset, batch_size, **options):
    """Make a loader with the least memory that is said to do, after too little of it."""
    with pytest.raises(LoaderError, match="too small") as refused:
        dataset.batches(batch_size, memory="64 kiB", **options)
    (enough,) = re.findall(r"give memory='(\d+) MiB'", str(refused.value))
    loader = dataset.batches(batch_size, memory=f"{enough} MiB", **options)
    assert loader.explain().promised_bytes <= int(enough) * MIB
    if int(enough) > 1:
        with pytest.raises(LoaderError, match="too small"):
            dataset.batches(batch_size, memory=f"{int(enough) - 1} MiB", **options)
    return loader


@pytest.mark.parametrize("threads", [None, 1, 3])
@pytest.mark.parametrize("across", [ROW, (1, 16, 16)])
@pytest.mark.parametrize("coded", [GZIP, SHUFFLED, LZF])
def test_each_chunk_is_decoded_once_in_file_order(tmp_path, fetched, coded, across, threads):
    path = write(tmp_path / "x.hdf5", (800, *across), **coded)
    loader = least(labeled.open_dataset(path), 64, threads=threads)
    n_chunks = 4 * (ROW[0] // across[0])
    (told,) = (
        source_reader for source_reader in loader.explain().sources if source_reader.name == "x"
    )
    assert (told.chunks_decoded, told.chunks_needed) == (n_chunks, n_chunks)
    assert "one at a time" in told.why
    assert loader.plan.sizes.threads == 0
    assert loader.plan.sizes.job_rows < 800  # a chunk is cut

    fetched.clear()
    assert sum(batch.count for batch in loader) == N_ROWS
    with h5py.File(path) as f:
        stored = f["x"].id.get_storage_size() + f["y"].id.get_storage_size()
    assert 0 <= sum(fetched) - stored < 200  # and not what of a page was looked for


@pytest.mark.parametrize("options", [{}, {"threads": 2}])
def test_files_are_joined_and_keep_the_chunks_of_one(tmp_path, options):
    paths = [write(tmp_path / f"{k}.hdf5", (700, *ROW), n_rows=1000, **GZIP) for k in range(3)]
    loader = least(labeled.open_dataset(paths), 64, **options)
    (source_reader,) = (
        source_reader for source_reader in loader.plan.source_readers if source_reader.name == "x"
    )
    assert source_reader.source.layout.held_bytes < 4 * 700 * 768  # not three bands
    with h5py.File(paths[0]) as f:
        expected = f["x"][:]
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["x"], expected[batch.rows % 1000])


def test_a_state_of_file_order_fits_with_any_memory(tmp_path):
    dataset = labeled.open_dataset(write(tmp_path / "x.hdf5", (800, *ROW), **GZIP))
    small, large = least(dataset, 64), dataset.batches(64, memory="64 MiB")
    for one, other in ((small, large), (large, small)):
        batches = iter(one)
        for _ in range(5):
            next(batches)
        other.load_state_dict(one.state_dict())
        assert next(iter(other)).rows[0] == 5 * 64


def test_plain_chunks_are_shuffled_however_large(tmp_path):
    dataset = labeled.open_dataset(write(tmp_path / "x.hdf5", (N_ROWS, *ROW)))
    loader = least(dataset, 16, shuffle="window", seed=1)
    assert loader.plan.sizes.window_rows < N_ROWS
    starts = [int(batch.rows.min()) for batch in loader]
    assert starts != sorted(starts)  # runs of the one chunk come in random order


def test_what_is_too_large_is_reported_with_what_helps(tmp_path):
    dataset = labeled.open_dataset(write(tmp_path / "x.hdf5", (N_ROWS, *ROW), **GZIP))
    told = r"windows of 3,000 rows.*give memory='\d+ MiB'.*smaller chunks \('labeled repack'\)"
    with pytest.raises(LoaderError, match=told):
        dataset.batches(64, shuffle="window", memory="3 MiB")


@pytest.mark.parametrize("prefetch", [1, 3, 7])
def test_more_memory_is_never_refused_where_less_is_not(tmp_path, prefetch):
    dataset = labeled.open_dataset(write(tmp_path / "x.hdf5", (800, *ROW), **GZIP))
    enough = least(dataset, 64, prefetch=prefetch).plan.sizes.memory_bytes // MIB
    for memory in range(enough, enough + 12):
        dataset.batches(64, memory=f"{memory} MiB", prefetch=prefetch)
