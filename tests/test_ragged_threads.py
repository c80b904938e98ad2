"""Ragged values in compressed chunks, decoded by several threads at once."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import labeled
from labeled.errors import ReadError
from labeled.formats.hdf5 import chunked

SIZES = np.random.default_rng(0).integers(5_000, 15_000, 300)
ARRAYS = [np.arange(n, dtype="u2") * k for k, n in enumerate(SIZES.tolist())]
SHUFFLED = np.random.default_rng(1).integers(0, len(ARRAYS), 250)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return labeled.write(tmp_path / "x.h5", {"x": ARRAYS}, compression="gzip", chunks=1 << 17)


@pytest.mark.parametrize(
    "rows", [slice(None), slice(7, None, 3), SHUFFLED], ids=["all", "steps", "list"]
)
@pytest.mark.parametrize("n_files", [1, 2])
def test_several_threads_read_the_same(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: Any, n_files: int
) -> None:
    seen, met, several = set(), threading.Event(), False
    plain = chunked.ChunkedReader._read

    def noted(self: Any, *args: Any) -> None:
        seen.add(threading.current_thread().name)
        if len(seen) > 1:
            met.set()
        elif several:
            met.wait(20)  # leave the next piece to another thread, however late it starts
        plain(self, *args)

    other = tmp_path / "y.h5"
    other.write_bytes(Path(path).read_bytes())
    x = labeled.open_dataset([path, other][:n_files])["x"][rows]
    expected = ARRAYS * n_files if isinstance(rows, slice) else ARRAYS
    expected = expected[rows] if isinstance(rows, slice) else [ARRAYS[i] for i in rows]
    monkeypatch.setattr(chunked.ChunkedReader, "_read", noted)
    for threads in (1, 3):
        seen.clear()
        several = threads > 1
        values, offsets, _ = x.flat(threads)
        np.testing.assert_array_equal(values, np.concatenate(expected))
        np.testing.assert_array_equal(np.diff(offsets), [len(one) for one in expected])
        assert (len(seen) > 1) == several


def test_a_damaged_chunk_is_an_error_whoever_decodes_it(path: str) -> None:
    with h5py.File(path) as f:
        dataset = f["x"]
        at = dataset.id.get_chunk_info(dataset.id.get_num_chunks() // 2).byte_offset
    with open(path, "r+b") as file:
        file.seek(at + 100)
        file.write(b"\xff" * 200)
    x = labeled.open_dataset(path)["x"]
    for threads in (1, 3):
        with pytest.raises(ReadError, match=r"source 'x'.*x\.h5"):
            x.flat(threads)


@pytest.mark.parametrize("n_files", [1, 2])
@pytest.mark.parametrize("shuffle", [False, "window", "full"])
def test_few_chunks_are_decoded_again_and_these_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shuffle: Any, n_files: int
) -> None:
    lists = [np.full(9_000 + k % 2_000, k % 256, "u1") for k in range(3000 // n_files)]
    path = labeled.write(tmp_path / "x.h5", {"x": lists}, compression="gzip", chunks=1 << 18)
    other = tmp_path / "y.h5"
    other.write_bytes(Path(path).read_bytes())
    with h5py.File(path) as f:
        n_chunks = n_files * f["x"].id.get_num_chunks()
    loader = labeled.open_dataset([path, other][:n_files]).batches(
        300, shuffle=shuffle, seed=1, ragged="list", memory="30 MiB"
    )
    told = loader.explain().sources[0]
    n_decoded, plain = 0, chunked.ChunkedReader._fetched

    def counted(self: Any, *args: Any) -> Any:
        nonlocal n_decoded
        for found in plain(self, *args):
            n_decoded += 1
            yield found

    monkeypatch.setattr(chunked.ChunkedReader, "_fetched", counted)
    seen = [one[0] for batch in loader for one in batch.arrays["x"]]
    assert sorted(seen) == sorted(n_files * [k % 256 for k in range(3000 // n_files)])
    assert n_chunks <= n_decoded <= {False: 1.15, "window": 2.0, "full": 12.0}[shuffle] * n_chunks
    assert (told.chunks_decoded, told.chunks_needed) == (n_decoded, n_chunks)
    assert told.bytes_used == n_files * sum(map(len, lists))
