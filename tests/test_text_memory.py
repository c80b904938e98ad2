"""Texts count in ``memory=`` by their length (law 6)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import labeled

N, MIB = 8_000, 1 << 20


@pytest.fixture(scope="module")
def texts(tmp_path_factory: Any) -> Path:
    """40 MB of texts of 2 to 8 kB, each beginning with its number."""
    path = tmp_path_factory.mktemp("texts") / "x.hdf5"
    lengths = np.random.default_rng(0).integers(2_000, 8_000, N).tolist()
    with h5py.File(path, "w") as file:
        made = [f"{row:06d}".ljust(length, "-") for row, length in enumerate(lengths)]
        file.create_dataset("text", data=made, dtype=h5py.string_dtype(), chunks=(64,))
        file["text"].dims[0].label = "batch"
    return path


# in a process of its own: what other threads allocate counts, too
SCRIPT = """
import json, sys, tracemalloc
import labeled

path, *words = sys.argv[1:]
for shuffle in map(json.loads, words):
    loader = labeled.open_dataset(path).batches(
        64, shuffle=shuffle, seed=3, memory="20 MiB", output="numpy"
    )
    seen = []
    tracemalloc.start()
    for batch in loader:
        seen += [int(text[:6]) for text in batch["text"]]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(json.dumps({"seen": seen, "peak": peak, "promised": loader.explain().promised_bytes}))
"""
SHUFFLES = [False, "window", "full"]


@pytest.fixture(scope="module")
def epochs(texts: Path) -> list[Any]:
    """What epochs of these orders took, one after the other."""
    command = [sys.executable, "-c", SCRIPT, str(texts), *map(json.dumps, SHUFFLES)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_epochs_of_texts_stay_within_the_memory(epochs: list[Any], shuffle: Any) -> None:
    told = epochs[SHUFFLES.index(shuffle)]
    assert sorted(told["seen"]) == list(range(N))
    assert (told["seen"] == list(range(N))) == (shuffle is False)
    assert 2 * MIB < told["promised"] <= 20 * MIB
    assert told["peak"] < 1.2 * told["promised"]


def test_short_texts_are_kept_and_long_ones_are_not(texts: Path) -> None:
    dataset = labeled.open_dataset(texts)
    for memory, kept in (("20 MiB", False), ("128 MiB", True)):
        (told,) = dataset.batches(64, memory=memory).explain().sources
        assert told.kept is kept
    kept_bytes = dataset.batches(64, memory="128 MiB").explain().promised_bytes
    assert kept_bytes > 40_000_000


def test_a_text_that_cannot_be_read_does_not_keep_a_loader_from_being_made(texts: Path) -> None:
    """Where texts are looked at for their length, one is not there; its rows may be left out."""
    damaged = texts.with_name("damaged.hdf5")
    damaged.write_bytes(texts.read_bytes())
    with h5py.File(damaged) as file:
        info = file["text"].id.get_chunk_info(0)
    with damaged.open("r+b") as raw:  # the references of the first chunk, to nowhere
        raw.seek(info.byte_offset)
        raw.write(b"\x10\0\0\0" + b"\xfe" * 12)
    loader = labeled.open_dataset(damaged).batches(64, memory="20 MiB", output="numpy")
    with pytest.raises(labeled.errors.ReadError, match="'text'"):
        list(loader)


def test_texts_that_lie_in_one_piece_are_read_in_windows(tmp_path: Path) -> None:
    """HDF5 alone reads texts, with a call for every row that is not beside another."""
    texts = [f"{n:0200}" for n in range(30_000)]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=texts, dtype=h5py.string_dtype())
        file["x"].dims[0].label = "batch"
    loader = labeled.open_dataset(tmp_path / "x.h5").batches(100, shuffle=True, memory="6 MiB")
    assert "shuffle='window'" in str(loader.explain())
    rows = [text for batch in loader for text in batch["x"].values.tolist()]
    assert sorted(rows) == texts


def test_texts_between_scattered_ones_are_not_read(tmp_path: Path, monkeypatch: Any) -> None:
    texts = np.array([[f"{n:05}", "a" * (n % 7)] for n in range(30_000)], object)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("x", data=texts, dtype=h5py.string_dtype())
        file["x"].dims[0].label, file["x"].dims[1].label = "batch", "part"
    n_read, getitem = [], h5py.Dataset.__getitem__

    def see(dataset: h5py.Dataset, *index: Any) -> Any:
        n_read.append(np.size(found := getitem(dataset, *index)))
        return found

    monkeypatch.setattr(h5py.Dataset, "__getitem__", see)
    rows = np.random.default_rng(0).permutation(30_000)[:200]
    found = labeled.open_dataset(tmp_path / "x.h5").subset(rows)["x"].values
    np.testing.assert_array_equal(found, texts[rows])
    assert sum(n_read) < 1_000  # 400, and some that tell how long texts are
