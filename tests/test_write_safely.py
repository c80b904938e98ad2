"""A target is the old file or the whole new one: killed, full, refused or interrupted writers."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import labeled
from labeled.cli.main import main
from labeled.errors import ArrayError, FileFormatError, NotYetError, SplitError, WriteError
from labeled.formats import parts
from labeled.formats.hdf5.own import read_statistics
from labeled.formats.hdf5.tables import split_array
from labeled.formats.parts import part_name, parts_of
from labeled.writing import streaming

KINDS: list[dict[str, Any]] = [
    {},
    {"compression": "gzip", "chunks": 7},
    {"layout": "chunked", "chunks": 8},
]


def rows(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.integers(0, 256, (n, 3, 8), np.uint8),
        "t": np.array([f"text {i} é" for i in range(n)], object),
    }


def check_rows(path: Any, expected: dict[str, np.ndarray]) -> None:
    ds = labeled.open_dataset(path)
    for name, array in expected.items():
        np.testing.assert_array_equal(ds[name], array)
    assert labeled.verify(path).sound


def run(script: str, folder: Path, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_killed_writer_leaves_the_old_file_or_the_whole_new_one(tmp_path: Path) -> None:
    labeled.write(tmp_path / "x.hdf5", {"x": np.full(1000, -1)})
    script = """
        import numpy as np, labeled
        for i in range(10_000):
            labeled.write("x.hdf5", {"x": np.full(50_000 + i, i)}, overwrite=True,
                          compression="gzip", level=1)
            if i == 0: print("go", flush=True)
    """
    rng = np.random.default_rng(0)
    for _ in range(3):
        writer = run(script, tmp_path)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "go\n"
        time.sleep(float(rng.uniform(0, 0.15)))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
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


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """The system refuses to let a file grow beyond 300 kB, as a full disk would."""
    script = """
        import resource, signal, numpy as np, labeled
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        noise = np.random.default_rng(0).integers(0, 256, 2_000_000, np.uint8)
        for options in ({}, {"compression": "gzip"}, {"layout": "chunked"}):
            try:
                labeled.write("x.hdf5", {"x": noise}, **options)
            except labeled.LabeledError as error:
                print(type(error).__name__, error)
    """
    done = run(script, tmp_path)
    out, err = done.communicate()
    lines = out.splitlines()
    assert len(lines) == 3, err
    for line in lines:
        assert line.startswith("WriteError writing")
        assert "longer than this system" in line
    assert done.returncode == 0, err
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_is_said_before_writing(tmp_path: Path) -> None:
    claim = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 55,), (0,))
    with pytest.raises(WriteError, match="takes at least 36,028,797,018,963,968 bytes"):
        labeled.write(tmp_path / "x", {"x": claim})
    assert list(tmp_path.iterdir()) == []


def test_too_little_space_in_place_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x", {"x": np.arange(3, dtype=np.uint8)}, layout="chunked")
    claim = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (1 << 55,), (0,))
    with pytest.raises(WriteError, match="takes at least 36,028,797,018,963,968 bytes"):
        labeled.append(path, {"x": claim}, in_place=True)
    assert labeled.open_dataset(path)["x"].values.tolist() == [0, 1, 2]


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
            WriteError, match=r"x\.hdf5.*by somebody else meanwhile.*overwrite=True"
        ):
            labeled.write(path, batches())
    with h5py.File(path) as file:
        assert file["x"][...].tolist() == ([0.0] * 6 if overwrite else [1.0] * 4)
    assert os.listdir(tmp_path) == ["x.hdf5"]


def test_targets_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="does not exist"):
        labeled.write(tmp_path / "no" / "x", {"x": np.arange(3)})
    with pytest.raises(WriteError, match="is a folder"):
        labeled.write(tmp_path, {"x": np.arange(3)}, overwrite=True)
    if os.geteuid():
        tmp_path.chmod(0o500)
        with pytest.raises(WriteError, match="may not write"):
            labeled.write(tmp_path / "x", {"x": np.arange(3)})
        tmp_path.chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    pipe, link, archive = (tmp_path / name for name in ("pipe", "link.hdf5", "link.npz"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    archive.symlink_to(pipe)
    file = labeled.write(tmp_path / "x.hdf5", {"x": np.arange(3)})
    for target in (pipe, link):
        with pytest.raises(WriteError, match="is a device or a pipe"):
            labeled.write(target, {"x": np.arange(3)}, overwrite=True)
    for target in (pipe, link, archive):
        with pytest.raises(WriteError, match="is a device or a pipe"):
            labeled.convert(file, target, overwrite=True)
        assert pipe.is_fifo()


def test_file_systems_without_a_size_are_not_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = shutil.disk_usage(tmp_path)._replace(total=0, used=0, free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: unknown)
    path = labeled.write(tmp_path / "x", {"x": np.arange(3)})
    assert len(labeled.open_dataset(path)) == 3


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux's /proc")
def test_folders_that_take_no_files_are_not_called_full() -> None:
    with pytest.raises(WriteError, match=r"takes no files|may not write") as caught:
        labeled.write("/proc/x.hdf5", {"x": np.arange(3)})
    assert "free" not in str(caught.value)


def test_permissions_of_a_replaced_file_stay(tmp_path: Path) -> None:
    path = Path(labeled.write(tmp_path / "x", {"x": np.arange(3)}))
    path.chmod(0o640)
    labeled.write(path, {"x": np.arange(4)}, overwrite=True)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("options", KINDS)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("n_old", [0, 21, 24])
def test_append_keeps_old_rows(tmp_path: Path, options: Any, in_place: bool, n_old: int) -> None:
    data = rows(40)
    old = {name: a[:n_old] for name, a in data.items()}
    new = {name: a[n_old:] for name, a in data.items()}
    path = (
        labeled.write(
            tmp_path / "x", old, {"train": (0, n_old), "few": [0] * bool(n_old)}, **options
        )
        if n_old == 0
        else _with_few(tmp_path / "x", old, n_old, options)
    )
    if in_place and not options:
        with pytest.raises(WriteError, match="contiguous or ragged and cannot grow in place"):
            labeled.append(path, new, in_place=True)
        return

    labeled.append(path, new, split="train", in_place=in_place)

    check_rows(path, data)
    ds = labeled.open_dataset(path)
    np.testing.assert_array_equal(ds.split("train")["t"], data["t"])
    assert ds.split("few").n_rows == min(n_old, 1)
    found = read_statistics(path)["x"]
    for each in (found["rows"], found["splits"]["train"]):
        assert each["n_rows"] == 40
        assert each["std"] == pytest.approx(data["x"].std(), rel=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def _with_few(path: Path, old: dict[str, np.ndarray], n_old: int, options: Any) -> str:
    with pytest.warns(labeled.LabeledWarning, match="1 row "):
        return labeled.write(path, old, {"train": (0, n_old), "few": [0]}, **options)


def test_append_batches_to_a_list_of_rows(tmp_path: Path) -> None:
    data = rows(30)
    parts = [{name: a[i : i + 5] for name, a in data.items()} for i in range(0, 30, 5)]
    path = labeled.write(tmp_path / "x", iter(parts[:2]), {"train": [9, 0, 3]}, chunks=4)
    labeled.append(path, iter(parts[2:]), split="train", in_place=True)
    check_rows(path, data)
    found = labeled.open_dataset(path).split("train")["x"]
    np.testing.assert_array_equal(found, data["x"][[9, 0, 3, *range(10, 30)]])
    with h5py.File(path) as f:
        assert [name for name in f if name.endswith("indices")] == ["train_indices"]


@pytest.mark.parametrize("n_rows", [3, 5, 10, 12])
def test_rows_that_no_codec_makes_smaller_end_within_a_chunk(tmp_path: Path, n_rows: int) -> None:
    data = {"x": np.random.default_rng(0).normal(size=n_rows)}
    batches = ({"x": data["x"][i : i + 2]} for i in range(0, n_rows, 2))
    path = labeled.write(tmp_path / "x", batches, compression="gzip", chunks=4)
    check_rows(path, data)

    labeled.append(path, data, in_place=True)
    twice = {"x": np.tile(data["x"], 2)}
    check_rows(path, twice)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["x"], twice["x"])


def test_append_to_a_file_of_plain_h5py_keeps_its_codec_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with h5py.File(path, "w") as f:
        f.create_dataset("x", data=np.arange(5.0), chunks=(2,), maxshape=(None,), compression="lzf")
        f["x"].dims[0].label = "batch"
        f["split"] = np.zeros(3)  # what is no source of the table stays
        f.attrs["split"] = split_array({"a": {"x": (0, 5, None, "said")}})
    labeled.append(path, {"x": np.arange(3, dtype="f4")}, split="a")
    assert labeled.open_dataset(path).split("a").n_rows == 8
    with h5py.File(path) as f:
        np.testing.assert_array_equal(f["x"], [0, 1, 2, 3, 4, 0, 1, 2])
        assert (f["x"].compression, f.attrs["split"]["stop"][0]) == ("lzf", 8)
        assert f.attrs["split"]["comment"].tolist() == [b"said"]
        assert "split" in f


@pytest.mark.parametrize(
    ("new", "options", "error", "words"),
    [
        ({"x": np.zeros((2, 9))}, {}, ArrayError, "have sources"),
        ({"x": np.zeros((2, 9)), "t": ["a", "b"]}, {}, ArrayError, "rows of shape"),
        ({"x": np.zeros((2, 3, 8)), "t": ["a", "b"]}, {}, ArrayError, "has dtype uint8"),
        ({"x": np.zeros((2, 3, 8), "u1"), "t": ["a"]}, {}, ArrayError, "differ in number"),
        (rows(2), {"split": "a"}, SplitError, "no splits"),
    ],
)
def test_append_refuses_rows_that_do_not_fit(
    tmp_path: Path, new: Any, options: Any, error: Any, words: str
) -> None:
    path = labeled.write(tmp_path / "x", rows(5), chunks=2)
    before = Path(path).read_bytes()
    with pytest.raises(error, match=words):
        labeled.append(path, new, in_place=True, **options)
    assert Path(path).read_bytes() == before


def test_append_refuses_coordinates_along_the_rows(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x", {"x": np.zeros(3)}, coords={"batch": [5, 6, 7]}, chunks=2)
    with pytest.raises(NotYetError, match="'batch'"):
        labeled.append(path, {"x": np.zeros(3)})


def wide_rows(n: int) -> dict[str, Any]:
    """Rows of 9 kB, so that 29 of them are written together."""
    noise = np.random.default_rng(n).integers(0, 200, (n, 9_000), dtype=np.uint8)
    return {"x": noise, "t": np.array(["\u00e9" * (i % 5) for i in range(n)], object)}


@pytest.mark.parametrize("n_old", [0, 3, 60, 150])
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_append_in_place_that_breaks_off_is_undone(
    tmp_path: Path, n_old: int, options: Any, error: Any
) -> None:
    path = labeled.write(tmp_path / "x", wide_rows(n_old), {"a": (0, n_old)}, chunks=4, **options)
    before = Path(path).read_bytes()
    sizes = []

    def batches() -> Any:
        for n in (1, 60, 0, 90, 1):
            yield wide_rows(n)
            sizes.append(Path(path).stat().st_size)
        raise error

    with pytest.raises(error):
        labeled.append(path, batches(), in_place=True, split="a", threads=1, memory="5 MiB")
    assert max(sizes) > len(before) + 300_000
    assert Path(path).read_bytes() == before
    assert labeled.verify(path).sound
    labeled.append(path, wide_rows(9), in_place=True, split="a")
    assert labeled.open_dataset(path).split("a").n_rows == n_old + 9
    assert labeled.verify(path).sound


def test_an_append_in_place_to_a_full_disk_is_undone(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (3_000, 1_000), dtype=np.uint8)
    path = labeled.write(tmp_path / "x", {"x": noise[:999]}, chunks=100, compression="gzip")
    before = Path(path).read_bytes()
    script = """
        import numpy as np, labeled, resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
        noise = np.random.default_rng(0).integers(0, 255, (3_000, 1_000), dtype=np.uint8)
        try:
            labeled.append("x", {"x": noise[999:]}, in_place=True)
        except labeled.errors.WriteError as error:
            print(error)
    """
    said, _ = run(script, tmp_path).communicate()
    assert "longer than this system or user may write; it is as it was before" in said
    assert Path(path).read_bytes() == before


def test_what_is_too_much_to_undo_stays_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "COUNTED_BYTES", 1 << 30)  # no memory is too small
    path = labeled.write(tmp_path / "x", rows(20), chunks=4)

    def batches() -> Any:
        yield rows(9)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        labeled.append(path, batches(), in_place=True, memory=1000)
    with pytest.raises(FileFormatError, match="labeled_incomplete"):
        labeled.open_dataset(path)
    with pytest.raises(FileFormatError, match="labeled_incomplete"):
        labeled.append(path, rows(3))


def test_a_killed_append_in_place_is_refused(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x", {"x": np.arange(20)}, chunks=4)
    script = """
        import numpy as np, labeled, os, signal
        def batches():
            yield {"x": np.arange(50)}
            for i in range(100): yield {"x": np.arange(50)}
            os.kill(os.getpid(), signal.SIGKILL)
        labeled.append("x", batches(), in_place=True)
    """
    run(script, tmp_path).communicate()
    with pytest.raises(FileFormatError):
        labeled.open_dataset(path)


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


def test_info_shows_statistics(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x", {"y": np.array([1, 1, 3])}, {"train": (0, 2)})
    said = CliRunner().invoke(main, ["info", path])
    assert "train (2)" in said.output
    assert "1: 2, 3: 1" in said.output
    assert "_labeled" not in said.output


def test_info_shows_attributes_of_sources(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["stack"], file["plain"] = np.zeros((4, 2)), np.zeros(4)
        file["stack"].attrs.update(pixel_size_um=[0.5, 0.25], channels="GFP")
    said = CliRunner().invoke(main, ["info", str(tmp_path / "x.h5")])
    assert (
        "attributes of sources:\n  stack  channels: GFP, pixel_size_um: [0.5, 0.25]\n"
        in said.output
    )


ENDLESS = """
    import sys, numpy as np, labeled
    def batches():
        while True:
            yield {"x": np.zeros((100, 1000))}
            print("go", flush=True)
    labeled.write("x.hdf5", batches(), chunks=10)
"""


def killed_writer(folder: Path) -> str:
    """Kill a writer of x.hdf5; return the name of what it leaves behind."""
    writer = run(ENDLESS, folder)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "go\n"
    writer.kill()
    writer.communicate()
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
    writer = run(ENDLESS, tmp_path)
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "go\n"
        labeled.write(tmp_path / "x.hdf5", {"x": np.arange(3)})
        labeled.doctor(tmp_path / "x.hdf5", seconds=0.01)
        assert len(os.listdir(tmp_path)) == 2
        assert [part.state for part in parts_of(str(tmp_path / "x.hdf5"))] == ["living"]
    finally:
        writer.kill()
        writer.communicate()


def test_parts_of_other_machines_and_of_reused_process_numbers(tmp_path: Path) -> None:
    target = str(tmp_path / "x.hdf5")
    mine = os.path.basename(part_name(target))
    machine, process, began = mine.split(".")[3].split("-")
    other = "0" * 12 if machine != "0" * 12 else "1" * 12
    for writer, state in {
        f"{machine}-{process}-{began}": "living",
        f"{machine}-{process}-{int(began, 16) + 1:x}": "dead",
        f"{machine}-{1 << 30:x}-{began}": "dead",
        f"{machine}-{process}-0": "living",  # began nobody knows when
        f"{other}-{1 << 30:x}-1": "unknown",
    }.items():
        part = tmp_path / f".x.hdf5.{writer}.{'a' * 12}.part"
        part.touch()
        assert [one.state for one in parts_of(target)] == [state]
        labeled.write(target, {"x": np.arange(3)}, overwrite=True)
        assert part.exists() == (state != "dead")
        part.unlink(missing_ok=True)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the host's name is told")
def test_where_the_machine_is_hidden_no_part_is_known_to_be_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_BOOT", str(tmp_path / "hidden"))
    target = str(tmp_path / "x.hdf5")
    try:
        parts._machine.cache_clear()
        Path(part_name(target)).touch()
        parts._machine.cache_clear()  # as in another process
        assert [part.state for part in parts_of(target)] == ["unknown"]
    finally:
        parts._machine.cache_clear()


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
    found = labeled.doctor(path, seconds=0.01)
    assert [(each.kind, each.where) for each in found.findings] == [("left behind", "beside it")]
    assert found.command is None
    foreign.unlink()
    assert labeled.doctor(path, seconds=0.01).healthy


def test_long_names_leave_room_for_those_of_parts(tmp_path: Path) -> None:
    for name in ("é" * 120 + ".hdf5", "x" * 250 + ".hdf5"):
        path = labeled.write(tmp_path / name, {"x": np.arange(3)})
        assert os.listdir(tmp_path) == [name]
        os.unlink(path)
