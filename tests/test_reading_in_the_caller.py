"""Rows that follow one another are read by the caller; threads take over where that is slow."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import labeled

N, ROW = 600, 64 << 10


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make 600 rows of 64 KiB: 38 windows of a mebibyte."""
    found = tmp_path_factory.mktemp("caller") / "rows.h5"
    with h5py.File(found, "w") as file:
        file["x"] = np.repeat(np.arange(N, dtype="u2"), ROW // 2).reshape(N, -1)
        file["x"].dims[0].label = "batch"
        file["x"].dims[1].label = "value"
    return found


def reading_threads() -> int:
    return sum(one.name.startswith("labeled-read") for one in threading.enumerate())


def epoch(loader: labeled.Loader) -> tuple[list[int], int]:
    """Return the first value of each row, and how many threads were ever seen to read."""
    found, most = [], 0
    for batch in loader:
        found += batch["x"].values[:, 0].tolist()
        most = max(most, reading_threads())
    return found, most


def test_no_thread_is_started_where_the_caller_reads_fast_enough(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labeled.loader.engine.SLOW_BYTES_PER_S", 0.0)  # busy machines
    loader = labeled.open_dataset(path).batches(16, memory="32 MiB")
    assert epoch(loader) == (list(range(N)), 0)
    assert loader.stats().n_threads == 0
    assert "the caller alone" in repr(loader.stats())
    assert "read by the caller" in repr(loader.explain())


def test_threads_take_over_where_reading_is_slow(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read, and its order, stay the same."""
    inner = os.preadv

    def slow(*args: object) -> int:
        time.sleep(0.003)
        return inner(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "preadv", slow)
    loader = labeled.open_dataset(path).batches(16, memory="32 MiB")
    found, most = epoch(loader)
    assert found == list(range(N))
    assert most > 0
    assert loader.stats().n_threads > 0


def test_threads_that_are_asked_for_read_from_the_first_batch_on(path: Path) -> None:
    loader = labeled.open_dataset(path).batches(16, memory="32 MiB", threads=2)
    assert epoch(loader) == (list(range(N)), 2)
    assert "read by the caller" not in repr(loader.explain())


def test_an_epoch_that_is_left_and_resumed_gives_the_rows_that_are_left(path: Path) -> None:
    loader = labeled.open_dataset(path).batches(16, memory="32 MiB")
    for number, _ in enumerate(loader):
        if number == 4:
            break
    state = loader.state_dict()
    other = labeled.open_dataset(path).batches(16, memory="32 MiB")
    other.load_state_dict(state)
    assert epoch(other)[0] == list(range(5 * 16, N))
