"""What the doctor finds and measures, and that its command mends it as printed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import h5py
import numpy as np
import pytest
from test_cli import run

import labeled
from labeled.compat.fuel.datasets import H5PYDataset
from labeled.errors import FileFormatError, LabeledWarning

N = 3000


def images() -> np.ndarray:
    """Compress well, as pictures of few colours do."""
    small = np.random.default_rng(0).integers(0, 256, (N, 3, 4, 4), np.uint8)
    return np.repeat(np.repeat(small, 4, axis=2), 4, axis=3)


def label(dataset: h5py.Dataset, *names: str) -> None:
    for axis, name in enumerate(names):
        dataset.dims[axis].label = name


@pytest.fixture
def bad_file(tmp_path: Path) -> Path:
    """A file with one of everything that reads badly."""
    path = tmp_path / "bad file.hdf5"
    rng = np.random.default_rng(1)
    with h5py.File(path, "w") as file:
        x = file.create_dataset("images", data=images(), chunks=(1, 3, 16, 16), compression="gzip")
        label(x, "batch", "channel", "height", "width")
        floats = rng.random((N, 32)).astype("f4")
        file.create_dataset("features", data=floats, chunks=(N // 2, 1), compression="gzip")
        words = file.create_dataset("words", (N,), h5py.vlen_dtype("i4"))
        for i in range(N):
            words[i] = np.arange(i % 9)
        perm = rng.permutation(N)
        file["a"], file["b"] = perm[: N // 2], perm[N // 2 :]
        sources = ("images", "features", "words")
        file.attrs["split"] = H5PYDataset.create_split_array(
            {s: dict.fromkeys(sources, (0, 0, file[s].ref)) for s in ("a", "b")}
        )
    return path


def kinds(found: labeled.Diagnosis) -> set[tuple[str | None, str]]:
    return {(each.source or each.split, each.kind) for each in found.findings}


@pytest.mark.filterwarnings("ignore:.*does not name every axis")
def test_everything_is_found_and_the_command_fixes_it(bad_file: Path) -> None:
    found = labeled.doctor(bad_file, seconds=0.1)
    assert {
        ("images", "one-row chunks"),
        ("features", "useless codec"),
        ("features", "chunks across rows"),
        ("features", "axes without names"),
        ("words", "rows of variable length"),
        ("a", "scattered split"),
        ("b", "scattered split"),
    } <= kinds(found)
    for one in found.findings:
        measured = bool(set(one.fix) & {"chunks", "layout", "ragged"})
        assert (one.rows_per_s is not None) == measured, one
        assert (one.fixed_rows_per_s is not None) == measured, one
    slow = next(one for one in found.findings if one.source == "images")
    assert slow.fixed_rows_per_s > 1.5 * slow.rows_per_s  # about 10 times, if nothing disturbs
    assert found.command is not None
    program, *words = shlex.split(found.command)
    assert program == "labeled"

    done = run(*words)

    assert done.exit_code == 0, done.output
    fixed = words[2]
    again = labeled.doctor(fixed, seconds=0)
    left = kinds(again)
    assert not left & kinds(found)
    for name in ("images", "features"):
        for split in ("a", "b"):
            np.testing.assert_array_equal(
                labeled.open_dataset(fixed).split(split)[name].values,
                labeled.open_dataset(bad_file).split(split)[name].values,
            )
    with h5py.File(fixed) as file:
        assert file["images"].chunks[0] > 1
        assert file["features"].chunks is None


def test_a_good_file_is_healthy(tmp_path: Path) -> None:
    names = {"images": ("batch", "channel", "height", "width"), "y": ("batch",)}
    sources = {"images": images(), "y": np.arange(N) % 10}
    splits = {"train": (0, 2000), "test": (2000, N)}
    for options in ({}, {"compression": {"images": "zstd"}}):
        path = labeled.write(
            tmp_path / "good", sources, splits, dims=names, overwrite=True, **options
        )
        found = labeled.doctor(path)
        assert found.healthy, str(found)
        assert (found.command, found.options) == (None, {})
        assert "no slow layouts" in str(found)
    done = run("doctor", path)
    assert (done.exit_code, done.stderr) == (0, "")


def test_suspects_by_header(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (2000, 64), np.uint8)
    with h5py.File(tmp_path / "x", "w") as file:
        file.create_dataset("tiny", data=noise, chunks=(4, 64))
        file.create_dataset("few", data=noise[:3], chunks=(1, 64))
        file.create_dataset("noise", data=noise, chunks=(1000, 64), compression="gzip")
        file.create_dataset("zeros", (200_000, 64), "u1", chunks=(100_000, 64), compression="gzip")
        file["zeros"][::1000] = 1
        layout = h5py.VirtualLayout((2000, 64), "u1")
        layout[:] = h5py.VirtualSource(file["tiny"])
        file.create_virtual_dataset("virtual", layout)
        for name in file:
            label(file[name], "batch", "feature")
    found = kinds(labeled.doctor(tmp_path / "x", seconds=0))
    assert found == {
        ("tiny", "tiny chunks"),
        ("noise", "useless codec"),
        ("virtual", "virtual storage"),
    }


def test_what_cannot_be_fixed_is_said(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "x", "w") as file:
        x = file.create_dataset("x", data=images(), chunks=(1, 3, 16, 16), compression="gzip")
        label(x, "batch", "channel", "height", "width")
        file["odd"] = np.array([x.ref], h5py.ref_dtype)
    found = labeled.doctor(tmp_path / "x")
    assert ("x", "one-row chunks") in kinds(found)
    assert found.command is None
    assert "'odd': it holds references" in str(found)
    (tmp_path / "y").write_bytes((tmp_path / "x").read_bytes())
    with pytest.raises(FileFormatError, match="does not exist"):
        labeled.doctor(tmp_path / "*")


@pytest.mark.parametrize("way", ["virtual", "external"])
def test_data_in_other_files_are_brought_home(tmp_path: Path, way: str) -> None:
    with h5py.File(tmp_path / "part.hdf5", "w") as f:
        f["x"] = np.arange(40).reshape(20, 2)
        label(f["x"], "batch", "feature")
    layout = h5py.VirtualLayout((20, 2), "i8")
    layout[:] = h5py.VirtualSource("part.hdf5", "x", shape=(20, 2))
    path = tmp_path / "all.hdf5"
    with h5py.File(path, "w") as f:
        if way == "virtual":
            label(f.create_virtual_dataset("x", layout), "batch", "feature")
        else:
            f["x"] = h5py.ExternalLink("part.hdf5", "x")
    for words in (["doctor", str(path)], ["repack", str(path), str(tmp_path / "own.hdf5")]):
        refused = run(*words)
        assert refused.exit_code == 1
        assert "pass --allow-external" in refused.stderr
    found = labeled.doctor(path, allow_external=True)
    assert [each.kind for each in found.findings] == [f"{way} storage"]
    assert found.command is not None
    assert found.command.endswith(" --allow-external")
    fixed = run(*shlex.split(found.command)[1:])
    assert fixed.exit_code == 0, fixed.stderr
    (tmp_path / "part.hdf5").unlink()
    own = labeled.open_dataset(shlex.split(found.command)[3])
    np.testing.assert_array_equal(own["x"].values, np.arange(40).reshape(20, 2))


def test_a_source_called_like_the_dim_of_examples_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("batch", data=np.arange(2000), chunks=(1,), compression="gzip")
    found = labeled.doctor(path, seconds=0.1)
    assert ("batch", "one-row chunks") in kinds(found)


@pytest.mark.filterwarnings("ignore:.*holds the same sources:labeled.LabeledWarning")
def test_findings_alike_are_summed_up(tmp_path: Path) -> None:
    path = tmp_path / "many.h5"
    with h5py.File(path, "w") as f:
        for number in range(12):
            f[f"scan_{number}/frames"] = np.zeros((4, 5, 6))
        f["other"] = np.zeros((4, 3))

    found = labeled.doctor(path)

    assert len(found.findings) == 13
    said = run("doctor", path)
    for text in (repr(found), said.stdout):
        rows = [line for line in text.splitlines() if "axes without names" in line]
        assert len(rows) == 2
        assert "scan_0/frames and 11 more" in text
    assert "frames and 11 more</b>" in found._repr_html_()
    told = json.loads(run("doctor", path, "--json").stdout)
    assert len(told["findings"]) == 13


@pytest.mark.filterwarnings("ignore::labeled.LabeledWarning")
def test_what_cannot_be_read_is_a_finding_and_others_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("fine", data=np.zeros((5000, 9), "u1"), chunks=(1, 9))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((5000,))
        plist.set_filter(32845, h5py.h5z.FLAG_OPTIONAL, (1,))
        kind, space = h5py.h5t.NATIVE_INT32, h5py.h5s.create_simple((5000,))
        h5py.h5d.create(f.id, b"packed", kind, space, plist).write_direct_chunk((0,), bytes(20000))

    found = labeled.doctor(path)

    kinds = {each.source: each.kind for each in found.findings if each.kind != "axes without names"}
    assert kinds == {"fine": "one-row chunks", "packed": "cannot be read"}
    assert found.command is None
    assert "32845" in str(found.obstacle)


@pytest.mark.filterwarnings("ignore:.*holds the same sources")
def test_groups_alike_are_fixed_by_one_short_command(tmp_path: Path) -> None:
    path, target = tmp_path / "demos.h5", tmp_path / "new.h5"
    with h5py.File(path, "w") as file:
        for i in range(12):
            file.create_dataset(f"demo_{i}/x", data=np.full((6, 7), i), chunks=(1, 7))
        file.create_dataset("other_1/x", data=np.zeros((6, 7)), chunks=(6, 7))

    found = labeled.doctor(path, target=str(target), seconds=0)

    assert found.command is not None
    assert "--layout 'demo_*/x=contiguous'" in found.command
    assert len(found.command) < 300 + len(str(path)) + len(str(target))
    done = run(*shlex.split(found.command)[1:])
    assert done.exit_code == 0, done.output
    with h5py.File(target) as file:
        for i in range(12):
            assert file[f"demo_{i}/x"].chunks is None
            assert file[f"demo_{i}/x"][...].tolist() == [[i] * 7] * 6
            assert file[f"demo_{i}/x"].dims[1].label == "feature"


@pytest.mark.parametrize("even", [True, False])
def test_datasets_that_are_an_example_each_become_rows(tmp_path: Path, even: bool) -> None:
    """A command named every axis of hundreds of sources, which were to be one."""
    path = tmp_path / "waves.h5"
    waves = [np.full((3 if even else 2 + i % 3, 2), i) for i in range(60)]
    with h5py.File(path, "w") as file:
        for i, wave in enumerate(waves):
            file[f"data/u{i}"] = wave
    done = run("doctor", path)
    assert (done.exit_code, done.stderr) == (1, "")
    command = shlex.split(done.stdout.splitlines()[-1])
    assert command[:2] == ["labeled", "convert"]
    assert command[4:] == ["--examples", "data/u*"]
    assert run(*command[1:]).exit_code == 0
    fixed = labeled.open_dataset(command[3])
    for found, wave in zip(fixed["data"], waves, strict=True):
        np.testing.assert_array_equal(found, wave)
    with pytest.warns(LabeledWarning, match="names and attributes of examples are kept where"):
        again = labeled.convert(
            path, tmp_path / "again.h5", **labeled.doctor(path, seconds=0).options
        )
    assert labeled.open_dataset(again).n_rows == 60


def test_the_printed_command_quotes_names_of_dims_that_contain_commas(tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros((5, 4, 3))
        label(file["x"], "batch", "height, width")
    found = labeled.doctor(path, seconds=0)
    assert found.options == {"dims": {"x": ("batch", "height, width", "axis_2")}}
    _, *words = shlex.split(str(found.command))
    assert run(*words).exit_code == 0
    fixed = labeled.open_dataset(words[2])
    assert fixed.dims["x"] == ("batch", "height, width", "axis_2")
