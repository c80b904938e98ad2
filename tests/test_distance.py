"""Where memory lies that bytes of a file are read to: never close behind them within a page."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.formats import bytesource
from labeled.formats.bytesource import ASIDE_BYTES, MIN_ASIDE_BYTES, open_bytes, stamp_of
from labeled.formats.memory import CLOSE_BYTES, PAGE_BYTES, aliases_pages, apart, scratch

LARGE = MIN_ASIDE_BYTES + 5


@pytest.fixture
def distances(monkeypatch):
    """Note how far behind its bytes the memory of each large read lies."""
    found = []
    preadv = os.preadv

    def noting(fd, buffers, offset, *flags):
        for buffer in buffers:
            there = np.asarray(buffer)
            if there.nbytes >= MIN_ASIDE_BYTES:
                found.append((there.ctypes.data - offset) % PAGE_BYTES)
        return preadv(fd, buffers, offset, *flags)

    monkeypatch.setattr(bytesource.os, "preadv", noting)
    return found


def page_begin(n_bytes):
    """Return bytes that begin where a page does."""
    held = np.zeros(n_bytes + PAGE_BYTES, np.uint8)
    return held[-held.ctypes.data % PAGE_BYTES :]


@given(st.integers(0, 1 << 40), st.integers(1, 3 * PAGE_BYTES))
def test_memory_lies_apart_from_any_offset_and_on_a_cache_line(offset, n_bytes):
    held = np.empty(n_bytes + PAGE_BYTES, np.uint8)

    found = apart(held, n_bytes, offset)

    assert len(found) == n_bytes
    assert np.shares_memory(found, held)
    assert not aliases_pages(found, offset)
    assert found.ctypes.data % 64 == 0


@pytest.mark.parametrize("distance", [0, 1, 4, CLOSE_BYTES - 1, CLOSE_BYTES, 700, PAGE_BYTES - 1])
@pytest.mark.parametrize("n_bytes", [100, LARGE, 2 * ASIDE_BYTES + 3])
def test_bytes_are_read_right_at_any_distance(tmp_path, distances, distance, n_bytes):
    data = np.random.default_rng(0).integers(0, 256, n_bytes + 40, np.uint8)
    path = tmp_path / "some.bin"
    data.tofile(path)
    file = open_bytes(stamp_of(path))
    target = page_begin(n_bytes + 2 * PAGE_BYTES)[12 + distance :][:n_bytes]

    file.read_into(target, 12)

    np.testing.assert_array_equal(target, data[12:][:n_bytes])
    assert all(not 0 < found < CLOSE_BYTES for found in distances)
    assert bool(distances) == (n_bytes >= MIN_ASIDE_BYTES)


def test_a_file_that_ends_early_is_reported_from_memory_that_is_close_too(tmp_path):
    path = tmp_path / "some.bin"
    np.zeros(LARGE, np.uint8).tofile(path)
    file = open_bytes(stamp_of(path))
    target = page_begin(LARGE + PAGE_BYTES)[4:][:LARGE]

    with pytest.raises(EOFError, match="ends early"):
        file.read_into(target, LARGE // 2 // PAGE_BYTES * PAGE_BYTES)


def test_parts_of_rows_are_read_to_memory_apart_from_them(tmp_path, distances):
    rows = np.random.default_rng(0).random((64, 200)).astype(">f8")
    path = tmp_path / "train-features-idx2-double"
    path.write_bytes(bytes([0, 0, 0x0E, 2]) + np.array(rows.shape, ">u4").tobytes() + rows.data)
    dataset = labeled.open_dataset(path)

    some = dataset.isel(feature=slice(0, 150))
    (batch,) = some.batches(64, shuffle=False, memory="64 MiB", threads=0)

    np.testing.assert_array_equal(batch["features"], rows[:, :150])
    assert distances
    assert all(256 <= found < 256 + 64 for found in distances)


def test_memory_of_a_thread_is_used_again_wherever_its_bytes_lie():
    held = scratch("test", 100, 12).base

    for offset in (0, 13, 4090, 1 << 33):
        found = scratch("test", 100, offset)
        assert found.base is held
        assert not aliases_pages(found, offset)
    assert scratch("test", 100).base is held
