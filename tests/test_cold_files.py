"""Scattered rows that the page cache lacks are announced to the system before they are read."""

from __future__ import annotations

import os

import h5py
import numpy as np
import pytest

import labeled

N = 4000

pytestmark = pytest.mark.skipif(
    not hasattr(os, "RWF_NOWAIT"), reason="this system cannot tell what it has in memory"
)


def evict(path):
    with open(path, "rb") as f:
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("layout", ["contiguous", "chunked", "gzip"])
@pytest.mark.parametrize("shuffle", [False, "window", "full"])
def test_only_cold_rows_are_announced(tmp_path, monkeypatch, layout, shuffle):
    path = str(tmp_path / "cold.h5")
    values = np.random.default_rng(0).integers(0, 255, (N, 512), dtype=np.uint8)
    chunks = {} if layout == "contiguous" else {"chunks": (50, 512)}
    with h5py.File(path, "w") as f:
        data = f.create_dataset(
            "x", data=values, compression=1 if layout == "gzip" else None, **chunks
        )
        data.dims[0].label, data.dims[1].label = "batch", "feature"
    told = []
    posix_fadvise = os.posix_fadvise

    def noted(fd, offset, n, how):
        told.append(n if how == os.POSIX_FADV_WILLNEED else 0)
        posix_fadvise(fd, offset, n, how)

    monkeypatch.setattr(os, "posix_fadvise", noted)

    def read():
        told.clear()
        options = {"memory": "5 MiB", "errors": "skip"}  # nothing is kept
        loader = labeled.open_dataset(path).batches(50, shuffle=shuffle, seed=1, **options)
        for batch in loader:
            np.testing.assert_array_equal(batch.arrays["x"], values[batch.rows])
        return sum(told)

    read()
    assert read() == 0  # all of it is in memory now
    evict(path)
    with open(path, "rb") as f:
        try:
            os.preadv(f.fileno(), [bytearray(64)], 1 << 20, os.RWF_NOWAIT)
        except BlockingIOError:  # gone from memory
            announced = read()
            assert announced == 0 if shuffle is False else announced > values.nbytes // 4


def test_of_windows_read_row_by_row_whole_runs_are_announced(tmp_path, monkeypatch):
    path = str(tmp_path / "cold.h5")
    values = np.random.default_rng(0).integers(0, 255, (40_000, 512), dtype=np.uint8)
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=values)
    told = []

    def noted(fd, offset, n, how):
        if how == os.POSIX_FADV_WILLNEED:
            told.append(n)

    monkeypatch.setattr(os, "posix_fadvise", noted)
    monkeypatch.setattr("labeled.formats.bytesource.LocalFile.holds", lambda *_: False)
    ds = labeled.open_dataset(path, dims={"x": ("batch", "feature")})
    loader = ds.batches(50, shuffle="window", seed=1, memory="12 MiB")
    assert loader.plan.sizes.picks
    for batch in loader:
        np.testing.assert_array_equal(batch.arrays["x"], values[batch.rows])
    assert sum(told) == values.nbytes  # each row once
    assert len(told) < len(values) // 10
