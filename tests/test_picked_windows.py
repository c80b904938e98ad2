"""Windows whose rows are picked one by one: the same batches as of windows read whole."""

from __future__ import annotations

import struct
from pathlib import Path

import h5py
import numpy as np
import pytest
from fake_device import FakeDevice
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.errors import FileFormatError

N, CHUNK, VALUE_BYTES = 6000, 40, 2048
VALUES = np.random.default_rng(0).integers(0, 255, (N, VALUE_BYTES), dtype=np.uint8)
LABELS = np.arange(N, dtype=np.int64)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same rows in one piece, in chunks, and in chunks of which some were never written."""
    folder, found = tmp_path_factory.mktemp("picked"), {}
    for name, chunks in (
        ("contiguous", None),
        ("chunked", (CHUNK, VALUE_BYTES)),
        ("holes", (CHUNK, VALUE_BYTES)),
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
    return data.batches(**options)


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


@pytest.mark.parametrize("name", ["contiguous", "chunked", "holes"])
@settings(max_examples=6, deadline=None)
@given(
    batch=st.integers(20, 190),
    last=st.sampled_from(["keep", "pad"]),
    seed=st.integers(0, 2**32),
    haste=st.sampled_from([0.0, 0.05, 0.9]),
)
def test_rows_are_picked_for_a_device_too(files, name, batch, last, seed, haste):
    path, _ = files[name]
    wanted, device = {"batch_size": batch, "seed": seed, "last": last}, FakeDevice(seed, haste)
    whole = loader_of(path, slice(0, N), whole=True, **wanted)
    picked = loader_of(path, slice(0, N), device=device, **wanted)
    told = picked.explain()
    assert told.window_rows == whole.explain().window_rows == 400
    assert told.job_rows <= 200, "a window comes in several jobs, which threads share"
    for one, other in zip(whole, picked, strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one["x"], other["x"])
        np.testing.assert_array_equal(one["y"], other["y"])
    assert device.pinned_bytes <= told.pinned_bytes
    assert device.most_bytes <= told.device_bytes


@pytest.mark.parametrize("shuffle", ["window", "full"])
def test_a_chunk_that_reaches_past_the_file_is_an_error_and_not_another_row(
    files, tmp_path, shuffle
):
    """Its entry in the table lies at the end of the file."""
    path = tmp_path / "damaged.h5"
    content = bytearray(Path(files["chunked"][0]).read_bytes())
    first, n_bytes = 100 * CHUNK, CHUNK * VALUE_BYTES
    at = content.index(struct.pack("<IIQQQ", n_bytes, 0, first, 0, 0))
    struct.pack_into("<I", content, at, 16)
    struct.pack_into("<Q", content, at + 32, len(content) - 64)
    path.write_bytes(content)

    loader = loader_of(path, slice(0, N), batch_size=50, seed=1, shuffle=shuffle)
    with pytest.raises(FileFormatError, match=r"'x' in .*damaged\.h5.*position \(4000, 0\)"):
        for _ in loader:
            pass
