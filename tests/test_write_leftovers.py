"""What a killed writer leaves: removed where it is dead, kept where it lives."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from written_files import writer_under_way

import labeled
from labeled.cli.main import main
from labeled.errors import ArrayError


def write_without_end(path: Path, begun: Any) -> None:
    def batches() -> Any:
        while True:
            yield {"x": np.zeros((100, 1000))}
            begun.set()

    labeled.write(path, batches(), chunks=10)


def killed_writer(folder: Path) -> str:
    """Kill a writer of x.hdf5; return the name of what it leaves behind."""
    with writer_under_way(write_without_end, folder / "x.hdf5"):
        pass
    (left,) = [name for name in os.listdir(folder) if name.endswith(".part")]
    return left


def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    left = killed_writer(tmp_path)
    labeled.write(tmp_path / "x.hdf", {"x": np.arange(3)})  # another target, another name
    assert left in os.listdir(tmp_path)
    with pytest.raises(ArrayError):
        labeled.write(tmp_path / "x.hdf5", {})
    assert left in os.listdir(tmp_path)
    labeled.write(tmp_path / "x.hdf5", {"x": np.arange(3)})
    assert sorted(os.listdir(tmp_path)) == ["x.hdf", "x.hdf5"]


def test_what_a_living_writer_writes_stays(tmp_path: Path) -> None:
    with writer_under_way(write_without_end, tmp_path / "x.hdf5"):
        labeled.write(tmp_path / "x.hdf5", {"x": np.arange(3)})
        labeled.doctor(tmp_path / "x.hdf5")
        assert len(os.listdir(tmp_path)) == 2


def test_parts_of_other_machines_and_of_reused_process_numbers(tmp_path: Path) -> None:
    with writer_under_way(write_without_end, tmp_path / "x.hdf5"):
        (mine,) = os.listdir(tmp_path)
        machine, process, began = mine.split(".")[3].split("-")
        other = "0" * 12 if machine != "0" * 12 else "1" * 12
        for writer_name, stays in {
            f"{machine}-{process}-{began}": True,
            f"{machine}-{process}-{int(began, 16) + 1:x}": False,  # the number is another process's
            f"{machine}-{1 << 30:x}-{began}": False,
            f"{machine}-{process}-0": True,  # began nobody knows when
            f"{other}-{1 << 30:x}-1": True,
        }.items():
            part = tmp_path / f".x.hdf5.{writer_name}.{'a' * 12}.part"
            part.touch()
            labeled.write(tmp_path / "x.hdf5", {"x": np.arange(3)}, overwrite=True)
            assert part.exists() == stays
            part.unlink(missing_ok=True)


def test_the_doctor_names_what_was_left_and_removes_what_is_dead(tmp_path: Path) -> None:
    left = killed_writer(tmp_path)
    foreign = tmp_path / f".x.hdf5.{'0' * 12}-1-1.{'a' * 12}.part"
    foreign.write_bytes(b"x" * 2048)
    done = CliRunner().invoke(main, ["doctor", str(tmp_path / "x.hdf5")])
    assert done.exit_code == 1
    assert left in done.output
    assert "removed now" in done.output
    assert f"rm {foreign}" in done.output
    assert os.listdir(tmp_path) == [foreign.name]

    names = {"x": ("batch", "feature")}
    path = labeled.write(tmp_path / "x.hdf5", {"x": np.zeros((3, 2))}, dims=names)
    found = labeled.doctor(path)
    assert [(each.kind, each.where) for each in found.findings] == [("left behind", "beside it")]
    assert found.command is None
    foreign.unlink()
    assert labeled.doctor(path).healthy


def test_long_names_leave_room_for_those_of_parts(tmp_path: Path) -> None:
    for name in ("é" * 120 + ".hdf5", "x" * 250 + ".hdf5"):
        path = labeled.write(tmp_path / name, {"x": np.arange(3)})
        assert os.listdir(tmp_path) == [name]
        os.unlink(path)
