"""A target is the old file or the whole new one: killed, full, refused or interrupted writers."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from written_files import KINDS, rows, writer_under_way

import labeled
from labeled.cli.main import main
from labeled.errors import ArrayError, FileFormatError, SplitError, WriteError


def write_on(path: Path, begun: Any) -> None:
    """Write a file again and again, each time with other rows."""
    for i in range(10_000):
        labeled.write(
            path, {"x": np.full(50_000 + i, i)}, overwrite=True, compression="gzip", level=1
        )
        begun.set()


def test_a_killed_writer_leaves_the_old_file_or_the_whole_new_one(tmp_path: Path) -> None:
    labeled.write(tmp_path / "x.hdf5", {"x": np.full(1000, -1)})
    rng = np.random.default_rng(0)
    for _ in range(3):
        with writer_under_way(write_on, tmp_path / "x.hdf5") as writer:
            time.sleep(float(rng.uniform(0, 0.15)))
        assert writer.exitcode == -signal.SIGKILL
        values = labeled.open_dataset(tmp_path / "x.hdf5")["x"].values
        assert len(values) == 50_000 + values[0]
        assert (values == values[0]).all()
        assert labeled.verify(tmp_path / "x.hdf5").sound
        names = [name for name in os.listdir(tmp_path) if name != "x.hdf5"]
        assert all(name.startswith(".") and name.endswith(".part") for name in names)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_exception_leaves_the_old_file_and_nothing_else(tmp_path: Path, error: Any) -> None:
    path = labeled.write(tmp_path / "x", {"x": np.arange(5)})
    before = Path(path).read_bytes()

    def batches() -> Any:
        yield {"x": np.zeros(1000)}
        raise error

    with pytest.raises(error):
        labeled.write(path, batches(), overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert Path(path).read_bytes() == before


class Swallows:
    """Raises an interrupt where Python can only print it: while an object is removed."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("shown", [False, True])
def test_an_interrupt_that_is_lost_ends_writing_at_the_next_block(
    tmp_path: Path, shown: bool
) -> None:
    begun = []

    def batches() -> Iterator[dict[str, np.ndarray]]:
        for number in range(200):
            if number == 3:
                Swallows()
            begun.append(number)
            yield {"x": np.zeros((64, 4096))}

    with pytest.raises(KeyboardInterrupt):
        labeled.write(tmp_path / "x.h5", batches(), progress=shown, memory="16 MiB")
    assert len(begun) < 100
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_batches_that_do_not_fill_their_splits_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(SplitError, match=r"rows 0 to 9.*has 4 rows"):
        labeled.write(tmp_path / "x", iter([{"x": np.zeros(4)}]), {"train": (0, 9)})
    with pytest.raises(ArrayError, match="batch 1 has sources"):
        labeled.write(tmp_path / "x", iter([{"x": np.zeros(4)}, {"y": np.zeros(4)}]))
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_is_said_before_writing(tmp_path: Path) -> None:
    claim = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 55,), (0,))
    with pytest.raises(WriteError, match="takes at least 36,028,797,018,963,968 bytes"):
        labeled.write(tmp_path / "x", {"x": claim})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("overwrite", [True, False])
def test_of_two_writers_of_a_new_file_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool, links: bool
) -> None:
    path = tmp_path / "x.hdf5"

    def no_link(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "no second names here")

    if not links:
        monkeypatch.setattr(os, "link", no_link)

    def batches() -> Iterator[dict[str, Any]]:
        yield {"x": np.zeros(3)}
        labeled.write(path, {"x": np.ones(4)})
        yield {"x": np.zeros(3)}

    if overwrite:
        labeled.write(path, batches(), overwrite=True)
    else:
        with pytest.raises(
            WriteError, match=r"x\.hdf5.*by another process meanwhile.*overwrite=True"
        ):
            labeled.write(path, batches())
    with h5py.File(path) as file:
        assert file["x"][...].tolist() == ([0.0] * 6 if overwrite else [1.0] * 4)
    assert os.listdir(tmp_path) == ["x.hdf5"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    pipe, link, records = (tmp_path / name for name in ("pipe", "link.hdf5", "link.rec"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    records.symlink_to(pipe)
    file = labeled.write(tmp_path / "x.hdf5", {"x": np.arange(3)})
    for target in (pipe, link):
        with pytest.raises(WriteError, match="is a device or a pipe"):
            labeled.write(target, {"x": np.arange(3)}, overwrite=True)
    for target in (pipe, link, records):
        with pytest.raises(WriteError, match="is a device or a pipe"):
            labeled.convert(file, target, overwrite=True)
        assert pipe.is_fifo()


def test_permissions_of_a_replaced_file_stay(tmp_path: Path) -> None:
    path = Path(labeled.write(tmp_path / "x", {"x": np.arange(3)}))
    path.chmod(0o640)
    labeled.write(path, {"x": np.arange(4)}, overwrite=True)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("options", KINDS)
def test_verify_finds_a_flipped_byte(tmp_path: Path, options: Any) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 9, (3000, 500), np.uint8)
    path = labeled.write(tmp_path / "x", {"x": array, "y": np.arange(3000)}, **options)
    row = 1234
    with h5py.File(path) as f:
        if f["x"].chunks is None:
            at = f["x"].id.get_offset() + row * 500 + 7
        else:
            info = f["x"].id.get_chunk_info_by_coord((row, 0))
            at = info.byte_offset + info.size // 2
    with open(path, "r+b") as raw:
        raw.seek(at)
        byte = raw.read(1)
        raw.seek(at)
        raw.write(bytes([byte[0] ^ 16]))

    found = labeled.verify(path)

    (difference,) = found.differences
    assert difference.source == "x"
    assert difference.start <= row < difference.stop
    assert difference.stop - difference.start <= 2200  # about a mebibyte
    said = CliRunner().invoke(main, ["verify", path])
    assert said.exit_code == 1
    assert f"source 'x', rows {difference.start} to {difference.stop - 1}" in said.output


def test_verify_needs_checksums_and_names_sources_without(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x", rows(5), checksums=False)
    with pytest.raises(FileFormatError, match="no checksums"):
        labeled.verify(path)
    path = labeled.write(path, rows(5), overwrite=True)
    assert labeled.verify(path, sources=["t"]).n_rows == {"t": 5}
    said = CliRunner().invoke(main, ["verify", path])
    assert (said.exit_code, "as written" in said.output) == (0, True)


def test_file_systems_without_a_size_are_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = shutil.disk_usage(tmp_path)._replace(total=0, used=0, free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: unknown)
    path = labeled.write(tmp_path / "x", {"x": np.arange(3)})
    assert len(labeled.open_dataset(path)) == 3
