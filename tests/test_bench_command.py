"""``labeled bench``: which loops take part, and what is said of them; no rate is tested."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import labeled
from labeled.cli.main import main

CHUNKS = (64, 4, 5)
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "shuffled": {"chunks": CHUNKS, "compression": "gzip", "shuffle": True},
}
BARE = {"contiguous": 2, "shuffled": 1}


def run(*words: Any) -> Any:
    rate = ("--seconds", "0.005", "--memory", "8 MiB")
    return CliRunner().invoke(main, ["bench", *rate, *map(str, words)])


def hdf5_file(path: Path, **layout: Any) -> Path:
    numbers = np.arange(1000, dtype=np.float32)
    with h5py.File(path, "w") as file:
        images = np.broadcast_to(numbers[:, None, None], (1000, 4, 5))
        file.create_dataset("images", data=images, **layout)
        file["targets"] = np.arange(1000)
        for name in file:
            for axis, dim in enumerate(("batch", "h", "w")[: file[name].ndim]):
                file[name].dims[axis].label = dim
    return path


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_loops_that_can_read_a_layout_take_part(tmp_path: Path, layout: str) -> None:
    done = run(hdf5_file(tmp_path / "x.hdf5", **LAYOUTS[layout]), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert len(found) == 4 + BARE[layout]
    for one in found:
        assert len(one["rows_per_s"]) == 3
        assert one["bytes_per_row"] == 80
        assert one["peak_bytes"] >= 80 * 100 or "bare" in one["loop"]
        if one["shuffled"]:
            assert one["quality"] == pytest.approx(1, abs=0.05)


def test_chunks_that_no_codec_makes_smaller_are_read_too(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 1 << 16, (40, 4), "u2")
    noise[10:20] = 0  # but these are
    labeled.write(tmp_path / "x.hdf5", {"x": noise}, chunks=10, compression="gzip")
    done = run(tmp_path / "x.hdf5", "--json")
    assert done.exit_code == 0, repr(done.exception)
    assert "bare loop" in {one["loop"] for one in json.loads(done.stdout)}


def test_the_shuffle_quality_is_what_explain_expects(tmp_path: Path) -> None:
    rows, memory = np.zeros((8000, 1024), "u1"), "5 MiB"
    path = labeled.write(tmp_path / "x.hdf5", {"x": rows}, chunks=200, compression="gzip")
    loader = labeled.open_dataset(path).batches(64, shuffle=True, seed=7, memory=memory)
    found = json.loads(run(path, "--json", "--memory", memory, "--batch-size", 64).stdout)
    expected = {False: {None}, True: {loader.explain().quality, 1.0}}
    assert min(expected[True]) < 0.9
    for shuffled, qualities in expected.items():
        assert {one["quality"] for one in found if one["shuffled"] == shuffled} == qualities


@pytest.mark.slow
def test_the_page_compares_three_loops(tmp_path: Path) -> None:
    done = run(hdf5_file(tmp_path / "x.hdf5"))
    assert done.exit_code == 0, done.output
    for words in (
        "source 'images': 1,000 rows of float32, 4 x 5",
        "batches of 256, memory 8 MiB",
        "labeled, shuffle=True",
        "h5py, x[sorted rows]",
        "bare loop",
        "peak memory",
        "shuffle quality: what explain() expects, not measured",
        "its later epochs are faster",
    ):
        assert words in done.output
    assert max(map(len, done.output.splitlines()[1:])) <= 100  # the first holds the path


@pytest.mark.slow
def test_what_h5py_does_not_read_is_measured_alone(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("number,kind\n" + "".join(f"{i},1\n" for i in range(99)))
    done = run(tmp_path / "table.csv")
    assert done.exit_code == 0, done.output
    assert "h5py and the bare loop cannot read this layout" in done.output
    examples = [np.zeros(1 + row % 5, np.uint8) for row in range(300)]
    done = run(labeled.write(tmp_path / "x.hdf5", {"x": labeled.Ragged.of(examples)}), "--json")
    assert json.loads(done.stdout)[0]["bytes_per_row"] == pytest.approx(3, abs=0.5)


def test_sources_that_are_left_out_are_named(tmp_path: Path) -> None:
    examples = labeled.Ragged.of([np.zeros(1 + row % 5, np.uint8) for row in range(300)])
    path = labeled.write(tmp_path / "x.hdf5", {"x": examples, "y": np.zeros(300)})
    done = run(path, "--json")
    assert json.loads(done.stdout)[0]["bytes_per_row"] == 8
    assert done.stderr.startswith("Not measured: 'x', as every example has its own shape")
    assert "--source x" in done.stderr
    assert "300 rows of uint8, of different shapes" in run(path, "--source", "x").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.hdf5",), "does not exist"),
        (("good.hdf5", "--source", "imags"), "images"),
        (("good.hdf5", "--memory", "much"), "is not a size"),
        (("empty.hdf5",), "no rows to measure"),
        (("good.hdf5", "--memory", "1 kiB"), "too small"),
    ],
)
def test_bad_requests_are_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    hdf5_file(tmp_path / "good.hdf5")
    labeled.write(tmp_path / "empty.hdf5", {"x": np.zeros((0, 3))})
    done = run(tmp_path / words[0], *words[1:])
    assert done.exit_code == 1, done.output
    assert said in done.output
    assert len(done.output.splitlines()) == 1
