"""``labeled bench``: every loop reads the rows it should, and the page tells of them.

No rate is tested: only which rows come, in what order, and what is said of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

import labeled
from labeled.cli.bench import LOOPS, Job, peak_bytes, quality
from labeled.cli.main import main

N_ROWS, BATCH, MEMORY = 1000, 32, "8 MiB"
CHUNKS = (64, 4, 5)
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": CHUNKS},
    "gzip": {"chunks": CHUNKS, "compression": "gzip"},
    "shuffled": {"chunks": CHUNKS, "compression": "gzip", "shuffle": True},
    "parts": {"chunks": (64, 2, 5), "compression": "gzip"},
    "lzf": {"chunks": CHUNKS, "compression": "lzf"},
}
BARE = {"contiguous": 2, "chunked": 1, "gzip": 1, "shuffled": 1, "parts": 0, "lzf": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("bench")
    numbers = np.arange(N_ROWS, dtype=np.float32)
    images = np.broadcast_to(numbers[:, None, None], (N_ROWS, 4, 5))
    for name, layout in LAYOUTS.items():
        with h5py.File(where / f"{name}.hdf5", "w") as file:
            file.create_dataset("images", data=images, **layout)
            file["targets"] = (np.arange(N_ROWS) * 10 // N_ROWS).astype(np.int64)
            for source, dims in {"images": ("batch", "h", "w"), "targets": ("batch",)}.items():
                for axis, dim in enumerate(dims):
                    file[source].dims[axis].label = dim
    (where / "table.csv").write_text("number,kind\n" + "".join(f"{i},{i % 7}\n" for i in range(99)))
    return where


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_loop_reads_each_row_once(folder: Path, layout: str) -> None:
    job = Job(str(folder / f"{layout}.hdf5"), "images", BATCH, MEMORY)
    made = [(loop, loop.make(job, loop.shuffle)) for loop in LOOPS]
    ran = [(loop, epochs) for loop, epochs in made if epochs is not None]
    assert len(ran) == 4 + BARE[layout]
    for loop, epochs in ran:
        batches = [(np.array(values), np.array(rows)) for values, rows in epochs()]
        values, rows = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        np.testing.assert_array_equal(values[:, 3, 4], rows)
        in_order = bool((np.diff(rows) == 1).all())
        assert in_order != loop.shuffle, loop.name
        np.testing.assert_array_equal(np.sort(rows), np.arange(N_ROWS))


def run(*words: str) -> Any:
    return CliRunner().invoke(main, ["bench", "--seconds", "0.005", "--memory", MEMORY, *words])


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no processes, which takes seconds."""
    monkeypatch.setattr("labeled.cli.bench.watch", lambda *about: None)


@pytest.mark.usefixtures("unwatched")
def test_axes_without_names_are_warned_of_once(tmp_path: Path) -> None:
    path = tmp_path / "plain.hdf5"
    with h5py.File(path, "w") as file:
        file["x"] = np.zeros((1000, 3))
    assert run(str(path)).output.count("does not name every axis") == 1
    peak_bytes(Job(str(path), "x", 10, "8 MiB"), LOOPS[0].name, 0.01)  # a warning is an error here


@pytest.mark.slow
def test_the_page_compares_three_loops(folder: Path) -> None:
    done = run(str(folder / "gzip.hdf5"))
    assert done.exit_code == 0, done.output
    for words in (
        "source 'images': 1,000 rows of float32, 4 x 5",
        "batches of 256, memory 8 MiB",
        "labeled, shuffle=True",
        "h5py, x[sorted rows]",
        "bare loop",
        "keeps these rows in memory",
    ):
        assert words in done.output
    first, *lines = done.output.splitlines()  # the first holds the path
    assert len(first.removeprefix(str(folder))) <= 80
    assert max(map(len, lines)) <= 100


@pytest.mark.usefixtures("unwatched")
def test_the_figures_come_as_json(folder: Path) -> None:
    done = run(str(folder / "contiguous.hdf5"), "--source", "targets", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [one["loop"] for one in found] == [loop.name for loop in LOOPS]
    for one in found:
        assert len(one["rows_per_s"]) == 3
        assert one["bytes_per_row"] == 8
        assert (one["quality"] is not None) == one["shuffled"]
    shuffled = next(one for one in found if one["loop"] == "labeled, shuffle=True")
    assert shuffled["quality"] == pytest.approx(1, abs=0.05)


@pytest.mark.usefixtures("unwatched")
def test_a_layout_that_only_labeled_reads_is_measured_alone(folder: Path) -> None:
    done = run(str(folder / "table.csv"))
    assert done.exit_code == 0, done.output
    assert "h5py and the bare loop cannot read this layout" in done.output
    assert "x[a:b]" not in done.output


@pytest.mark.usefixtures("unwatched")
def test_examples_that_differ_in_shape_are_measured(tmp_path: Path) -> None:
    examples = [np.zeros(1 + row % 5, np.uint8) for row in range(300)]
    ragged = labeled.Ragged.of(examples, dims=("batch", "time"))
    done = run(str(labeled.write(tmp_path / "x.hdf5", {"x": ragged})), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["bytes_per_row"] == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.hdf5",), "does not exist"),
        (("gzip.hdf5", "--source", "imags"), "images"),
        (("gzip.hdf5", "--memory", "much"), "is not a size"),
        (("nothing.hdf5",), "no rows to measure"),
        (("empty.hdf5",), "no rows to measure"),
        (("gzip.hdf5", "--memory", "1 kiB"), "too small"),
    ],
)
def test_bad_requests_are_refused(folder: Path, words: tuple[str, ...], said: str) -> None:
    h5py.File(folder / "nothing.hdf5", "w").close()
    with h5py.File(folder / "empty.hdf5", "w") as file:
        file["x"] = np.zeros((0, 3))
        file["x"].dims[0].label, file["x"].dims[1].label = "batch", "feature"
    done = run(str(folder / words[0]), *words[1:])
    assert done.exit_code == 1, done.output
    assert said in done.output
    assert len(done.output.splitlines()) == 1


def test_quality_is_one_of_random_rows_and_zero_in_file_order() -> None:
    n, size = 100_000, 250
    order = np.random.default_rng(0).permutation(n)
    assert quality(list(order.reshape(-1, size)), n, size) == pytest.approx(1, abs=0.01)
    assert quality(list(np.arange(n).reshape(-1, size)), n, size) == 0
    assert quality([np.arange(3)], n, size) is None


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell")
def test_peak_memory_holds_what_a_loop_takes(tmp_path: Path) -> None:
    path = tmp_path / "large.hdf5"
    with h5py.File(path, "w") as file:
        file["x"] = np.ones((4, 16 << 20), np.uint8)
        file["x"].dims[0].label, file["x"].dims[1].label = "batch", "byte"
    peak = peak_bytes(Job(str(path), "x", 2, "96 MiB"), "h5py, x[a:b]", 0.1)
    assert peak is not None
    assert 32 << 20 <= peak <= 128 << 20
