"""Rows that span several chunks without filters: few reads, and the values of h5py."""

from __future__ import annotations

import itertools

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from payload_files import Layout, header_of, read_with_h5py, small_units, values, write

import labeled
from labeled.formats.bytesource import LocalFile
from labeled.formats.hdf5.chunked import ChunkedReader
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.reader import read_rows
from labeled.loader import memory as budget

N, CHUNK, ROW = 2000, 50, (3, 16, 16)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tiled")


@pytest.fixture
def reads(monkeypatch):
    """The sizes of all reads."""
    sizes = []
    read = LocalFile.read_into

    def counted(self, target, offset):
        sizes.append(target.nbytes)
        read(self, target, offset)

    monkeypatch.setattr(LocalFile, "read_into", counted)
    return sizes


def tiled_file(folder, across=(1, 8, 16), dtype="u1"):
    """Write chunks that each hold part of some rows, one band after the other."""
    layout = Layout(dtype, (N, *ROW), (CHUNK, *across))
    path = write(folder, layout)
    with h5py.File(path, "r+") as file:
        for axis, name in enumerate(("batch", "channel", "height", "width")):
            file["x"].dims[axis].label = name
    return path, values(layout)


def gaps(path):
    """Count the chunks that do not follow the one before them in the file."""
    with h5py.File(path) as file:
        ids = file["x"].id
        told = sorted(
            (info.chunk_offset, info.byte_offset, info.size)
            for info in map(ids.get_chunk_info, range(ids.get_num_chunks()))
        )
    return sum(b[1] != a[1] + a[2] for a, b in itertools.pairwise(told))


def loader_of(path, batch_rows, **options):
    """A loader that keeps nothing, so that it reads."""
    dataset = labeled.open_dataset(path).select(["x"])
    loader = dataset.batches(batch_rows, seed=1, memory="8 MiB", **options)
    for source_reader in loader.plan.source_readers:
        source_reader.keep = False
    return loader


@settings(max_examples=80, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 30), *[st.integers(2, 9)] * 3),
    chunk=st.tuples(st.integers(1, 9), *[st.integers(1, 6)] * 3),
    dtype=st.sampled_from(["u1", "<f4", ">i2", "S3"]),
    written=st.sampled_from([((0, 99),), ((3, 11),), ((0, 5), (12, 20))]),
    io=st.sampled_from(["auto", "pread", "mmap"]),
    piece=st.sampled_from([64, 1000, 1 << 19]),
    gap=st.sampled_from([0, 40, 1 << 14]),
    cut=st.booleans(),
    data=st.data(),
)
def test_rows_are_those_of_h5py(folder, shape, chunk, dtype, written, io, piece, gap, cut, data):
    path = write(folder, Layout(dtype, shape, chunk, written=written, fill=7))
    region = (slice(1, None), slice(0, -1, 2), -1) if cut else ()
    expected = read_with_h5py(path)[(slice(None), *region)]
    with small_units(piece, gap):
        reader = open_reader(header_of(path), region=region, io=io)
        rows = data.draw(st.lists(st.integers(0, shape[0] - 1), min_size=1, max_size=40))
        np.testing.assert_array_equal(read_rows(reader, np.array(rows)), expected[rows])
        start = data.draw(st.integers(0, shape[0] - 1))
        np.testing.assert_array_equal(read_rows(reader, range(start, shape[0])), expected[start:])
        out = np.empty_like(expected)
        reader.read(range(start, shape[0]), out[start:])
        np.testing.assert_array_equal(out[start:], expected[start:])


def test_bands_in_file_order_are_read_together(folder, reads):
    path, expected = tiled_file(folder)
    loader = loader_of(path, CHUNK)
    reader = loader.plan.source_readers[0].reader
    assert isinstance(reader, ChunkedReader)
    reads.clear()
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["x"], expected[batch.rows])
    assert sum(reads) == expected.nbytes
    assert len(reads) <= loader.explain().n_jobs + 3 * gaps(path)  # and not six a band
    assert loader.explain().sources[0].bytes_read == expected.nbytes


def test_windows_read_a_band_with_one_call(folder, reads):
    path, expected = tiled_file(folder)
    loader = loader_of(path, 40, shuffle="window")
    list(loader)
    reads.clear()
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["x"], expected[batch.rows])
    assert sum(reads) == expected.nbytes
    assert len(reads) <= N // CHUNK + gaps(path)


def test_rows_of_a_run_are_all_that_is_read(folder, reads):
    path, expected = tiled_file(folder)
    reader = open_reader(header_of(path), io="pread")
    np.testing.assert_array_equal(read_rows(reader, range(120, 125)), expected[120:125])
    assert sum(reads) == expected[:5].nbytes


@pytest.mark.parametrize("across", [ROW, (1, 8, 16)])
def test_a_full_shuffle_picks_its_rows_a_batch_at_a_time(folder, reads, across, monkeypatch):
    monkeypatch.setattr(budget, "JOB_BYTES", 1 << 20)  # less than the file
    path, expected = tiled_file(folder, across)
    loader = loader_of(path, 32, shuffle="full")
    sizes = loader.plan.sizes
    assert sizes.job_rows * expected[0].nbytes <= 1 << 20  # no window of all that memory holds
    told = loader.explain().sources[0]
    assert told.bytes_read == told.bytes_used == expected.nbytes
    seen = []
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["x"], expected[batch.rows])
        seen += batch.rows.tolist()
    assert not reads  # they come from a memory map
    assert sorted(seen) == list(range(N))


def test_a_full_shuffle_without_maps_still_reads_each_chunk_once_a_window(folder, reads):
    path, expected = tiled_file(folder)
    dataset = labeled.open_dataset(path, io="pread").select(["x"])
    loader = dataset.batches(32, seed=1, shuffle="full", memory="8 MiB")
    assert loader.plan.sizes.job_rows > 1 << 10
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["x"], expected[batch.rows])
    assert reads
