"""Origins that cannot be converted, and conversions that break off: what is said and left."""

from __future__ import annotations

import os
import warnings
import zipfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from written_files import run

import labeled
from labeled.cli.main import main
from labeled.errors import (
    ArrayError,
    FileFormatError,
    SplitError,
    UnknownNameError,
    UnsafeFileError,
    WriteError,
)


def test_bad_input_leaves_nothing(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", one=np.array(3), bad=np.array([{}], object))
    with (
        pytest.warns(labeled.LabeledWarning, match=r"\['one'\]"),
        pytest.raises(UnsafeFileError, match=r"member bad\.npy holds Python objects"),
    ):
        labeled.convert(tmp_path / "a.npz", tmp_path / "o")
    np.savez(tmp_path / "a.npz", x=np.arange(4), y=np.arange(5), one=np.array(3))
    whole = (tmp_path / "a.npz").read_bytes()
    with pytest.warns(labeled.LabeledWarning) as caught:
        labeled.convert(tmp_path / "a.npz", tmp_path / "fine")
    assert any("['one']" in str(one.message) for one in caught)
    (tmp_path / "fine").unlink()
    with (
        pytest.warns(labeled.LabeledWarning),
        pytest.raises(SplitError, match="differ in length"),
    ):
        labeled.convert(tmp_path / "a.npz", tmp_path / "o", split={"a": "0:4"})
    (tmp_path / "a.npz").write_bytes(whole[:300])
    with pytest.raises(FileFormatError, match=r"not a sound \.npz"):
        labeled.convert(tmp_path / "a.npz", tmp_path / "o")
    np.save(tmp_path / "b.npy", np.arange(1000))
    (tmp_path / "b.npy").write_bytes((tmp_path / "b.npy").read_bytes()[:500])
    with pytest.raises(FileFormatError, match="cut short"):
        labeled.convert(tmp_path / "b.npy", tmp_path / "o")
    with pytest.raises(FileFormatError, match="does not exist"):
        labeled.convert(tmp_path / "nothing.npz", tmp_path / "o")
    (tmp_path / "z.parquet").write_bytes(b"nonsense")
    with pytest.raises(FileFormatError, match="not a sound parquet"):
        labeled.convert(tmp_path / "z.parquet", tmp_path / "o")
    with pytest.raises(WriteError, match="does not exist"):
        labeled.convert({"x": np.arange(3)}, tmp_path / "no" / "o")
    with pytest.raises(UnknownNameError, match="stratify='z' is not a source"):
        labeled.convert({"x": np.arange(3)}, tmp_path / "o", split={"a": 0.5}, stratify="z")
    two = {"images": np.zeros((3, 2, 2)), "labels": np.arange(3)}
    with pytest.raises(UnknownNameError, match=r"one label a row in .*; there are: 'labels'$"):
        labeled.convert(two, tmp_path / "o", split={"a": 0.5}, stratify="targets")
    with pytest.raises(SplitError, match="must be 3 integers or texts"):
        labeled.convert({"x": np.zeros(3)}, tmp_path / "o", split={"a": 0.5}, stratify="x")
    with pytest.raises(SplitError, match="need splits: give split="):
        labeled.convert({"x": np.zeros(3)}, tmp_path / "o", stratify="x")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b.npy", "z.parquet"]


def test_a_damaged_compressed_member_names_its_rows(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (200_000, 8), np.uint8)
    np.savez_compressed(tmp_path / "a.npz", x=noise)
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    raw[len(raw) // 2] ^= 255
    (tmp_path / "a.npz").write_bytes(bytes(raw))
    with pytest.raises(FileFormatError, match=r"member x\.npy, rows"):
        labeled.convert(tmp_path / "a.npz", tmp_path / "o")
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    script = """
        import resource, signal, numpy as np, labeled
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        noise = np.random.default_rng(0).integers(0, 256, (40, 100, 100), np.uint8)
        labeled.write("x.hdf5", {"x": noise}, dims={"x": ("batch", "height", "width")})
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        for target in ("o.hdf5", "o.rec"):
            try:
                labeled.convert("x.hdf5", target)
            except labeled.LabeledError as error:
                print(type(error).__name__, error)
    """
    done = run(script, tmp_path)
    out, err = done.communicate()
    lines = out.splitlines()
    assert len(lines) == 2, err
    assert all(line.startswith("WriteError writing") for line in lines), lines
    assert [p.name for p in tmp_path.iterdir()] == ["x.hdf5"]


@pytest.mark.slow
def test_memory_stays_within_the_budget(tmp_path: Path) -> None:
    """Four times the budget, in a fresh process: in compressed, and across."""
    some = np.random.default_rng(0).integers(0, 4, (1000, 1024), np.uint8)
    rows = np.tile(np.repeat(some, 16, axis=1)[:, :1024], (82, 1))
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as member,
    ):
        np.lib.format.write_array(member, rows)
    np.savez(tmp_path / "small.npz", x=rows[:2000])
    script = """
        import labeled
        from labeled.cli.memory import PeakMemory
        labeled.convert("small.npz", "s.hdf5", split={"a": 0.5}, compression="gzip")
        labeled.convert("s.hdf5", "again.hdf5")
        with PeakMemory() as memory:
            labeled.convert("x.npz", "x.hdf5", memory="20 MiB", split={"a": 0.5})
            labeled.convert("x.hdf5", "y.hdf5", memory="20 MiB", split={"a": 0.5})
            labeled.convert("y.hdf5", "z.hdf5", memory="20 MiB", only="a")
        print(memory.peak_bytes)
    """
    done = run(script, tmp_path)
    out, err = done.communicate()
    assert done.returncode == 0, err
    assert int(out) <= 20 << 20


def test_a_target_that_exists_is_reported_before_the_origin_is_looked_at(tmp_path: Path) -> None:
    target = labeled.write(tmp_path / "x.hdf5", {"x": np.arange(3)})
    with pytest.raises(WriteError, match=r"exists already; pass overwrite=True to replace it"):
        labeled.convert(tmp_path / "missing.npy", target)


def test_very_little_memory_is_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(30))
    path = labeled.convert(tmp_path / "a.npy", tmp_path / "a.hdf5", memory=1)
    assert labeled.open_dataset(path)["a"].values.tolist() == list(range(30))


def test_names_that_come_twice_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of zipfile itself
        archive.write(tmp_path / "a.npy", "x.npy")
        archive.write(tmp_path / "a.npy", "x.npy")
    with pytest.raises(FileFormatError, match=r"a.npz' has members of the same name"):
        labeled.convert(tmp_path / "a.npz", tmp_path / "x.hdf5")
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    table = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(ArrayError, match=r"a.parquet' has columns of the same name"):
        labeled.convert(tmp_path / "a.parquet", tmp_path / "x.hdf5")
    assert not (tmp_path / "x.hdf5").exists()


@pytest.mark.filterwarnings("ignore:.*are no sources of examples:labeled.LabeledWarning")
def test_a_source_in_another_file_is_left_out_or_allowed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "part.hdf5", "w") as f:
        f["x"] = np.arange(6)
    layout = h5py.VirtualLayout((6,), "i8")
    layout[:] = h5py.VirtualSource("part.hdf5", "x", shape=(6,))
    origin, target = tmp_path / "a.hdf5", tmp_path / "b.hdf5"
    with h5py.File(origin, "w") as f:
        f.create_virtual_dataset("x", layout)
        f["y"] = np.arange(6) + 10
        for each in f.values():
            each.dims[0].label = "batch"
    with pytest.warns(labeled.LabeledWarning, match=r"opens without 'x': .*allow_external=True"):
        labeled.convert(origin, target)
    for how in (["--source", "y"], ["--allow-external"]):
        done = CliRunner().invoke(main, ["convert", str(origin), str(target), "--overwrite", *how])
        assert done.exit_code == 0, done.stderr
        ds = labeled.open_dataset(target)
        expected = {"y": 12} if "--source" in how else {"x": 2, "y": 12}
        assert {name: ds[name].values[2] for name in ds.sources} == expected
    with pytest.raises(UnknownNameError, match="'z'"):
        labeled.convert(origin, target, sources=["z"], overwrite=True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["rows.csv", "rows.npy", "rows.parquet", "rows"])
def test_pipes_are_refused_instead_of_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    for use in (lambda p: labeled.convert(p, tmp_path / "new.h5"), labeled.open_dataset):
        with pytest.raises(FileFormatError, match=rf"{name}' is a pipe .*: cat .*{name} > FILE"):
            use(tmp_path / name)
