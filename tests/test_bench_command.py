"""``labeled bench``: every way delivers the rows it should, and the command tells of them.

No rate is tested: only which rows come, in what order, and what is said of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.bench import cache, peers
from labeled.bench.cores import handover
from labeled.bench.own_file import Asked, every_way, watch_all
from labeled.bench.subject import Chosen, Subject, find_labels
from labeled.bench.timing import Effort, Measured, measure
from labeled.cli.main import main
from labeled.selection import Selection

N_ROWS, CHUNK, MEMORY = 1000, 64, "8 MiB"
LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunked": {"chunks": (CHUNK, 4, 5)},
    "gzip": {"chunks": (CHUNK, 4, 5), "compression": "gzip", "shuffle": True},
    "scaled": {"chunks": (CHUNK, 2, 5), "compression": "lzf"},
}
SPLITS = {"all": slice(None), "range": slice(100, 900), "list": [7, 3, 900, 5, 3] * 60}


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
    sizes = np.array([N_ROWS, 4, 5], ">i4").tobytes()
    (where / "images.idx").write_bytes(b"\0\0\x0e\x03" + sizes + images.astype(">f8").tobytes())
    lines = [f"{i},{i % 7}" for i in range(N_ROWS)]
    (where / "table.csv").write_text("\n".join(["number,kind", *lines]) + "\n")
    return where


def subject_of(path: Path, split: str = "all", names: tuple[str, ...] = ()) -> Subject:
    data = labeled.open_dataset(path).subset(SPLITS[split])
    return Subject(data.select(*names) if names else data, 32, MEMORY)


def check(subject: Subject, way: Any) -> None:
    """Consume an epoch: which rows came, in what order."""
    expected = [subject.dataset.load()[name].values for name in subject.dataset.sources]
    batches: list[Any] = [
        batch if isinstance(batch, int) else [np.array(one) for one in batch]
        for batch in way.make()()
    ]
    if way.name == "bare decode":
        assert sum(batches) == subject.n_rows
        return
    got = [np.concatenate(arrays) for arrays in zip(*batches, strict=True)]
    if way.kind == "bare":
        assert len(got) == 1
        main = subject.main
        assert main is not None
        expected = [expected[subject.dataset.sources.index(main.name)]]
    rows = sorted(zip(*[x.reshape(len(x), -1)[:, 0].tolist() for x in got], strict=True))
    wanted = sorted(zip(*[x.reshape(len(x), -1)[:, 0].tolist() for x in expected], strict=True))
    if way.order == "list" or way.name == "xbatcher":  # some of the rows
        assert set(rows) <= set(wanted)
        assert rows
        return
    assert rows == wanted, way.full_name
    if way.order == "file":
        for one, other in zip(got, expected, strict=True):
            if "2 workers" not in way.name:  # two workers hand out theirs in turn
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ways_of_every_installation_deliver_their_rows(
    folder: Path, layout: str, split: str
) -> None:
    subject = subject_of(folder / f"{layout}.hdf5", split)
    ways = [way for way in every_way(subject, {}) if not way.needs]
    names = {way.full_name for way in ways}
    for name in ("ours, file order, file", "ours, window shuffle, window", "h5py slices, file"):
        assert name in names
    bare = {way.name for way in ways if way.kind == "bare"}
    expected = {"contiguous": {"bare pread", "bare copy", "bare take"}, "chunked": {"bare pread"}}
    expected["gzip"] = {"bare decode"}
    assert bare == (set() if split == "list" else expected.get(layout, set()))
    for way in ways:
        check(subject, way)


@pytest.mark.parametrize(
    "peer",
    ["torch_loaders", "scdataset_blocks", "xbatcher_batches", "grain_dataset", "pyfive_reads"],
)
def test_peers_deliver_their_rows(folder: Path, peer: str) -> None:
    module = importlib.import_module(f"labeled.bench.peers.{peer}")
    for needed in module.NEEDS:
        pytest.importorskip(needed)
    for layout, split, names in (("contiguous", "all", ()), ("gzip", "range", ("images",))):
        subject = subject_of(folder / f"{layout}.hdf5", split, names)
        for order in ("file", "shuffled"):
            for way in peers.peer_ways(subject, order, {}, peer):
                if "2 workers" not in way.name:  # processes beside the threads of this one
                    check(subject, way)


def test_files_of_other_formats_are_measured_by_what_can_read_them(folder: Path) -> None:
    idx = Asked(str(folder / "images.idx"), (), None, 32, MEMORY).subject()
    ways = every_way(idx, {})
    assert {"bare copy", "ours, full shuffle", "xarray+dask"} <= {way.name for way in ways}
    assert not any(way.name.startswith("h5py") for way in ways)
    csv = Asked(str(folder / "table.csv"), (), None, 32, MEMORY).subject()
    others = every_way(csv, {})
    assert {way.name for way in others if way.kind == "peer"} <= {"xarray+dask", "xbatcher"}
    for subject, some in ((idx, ways), (csv, others)):
        for way in some:
            if not way.needs:
                check(subject, way)


@given(
    st.lists(st.integers(0, 29), min_size=1, max_size=40),
    st.data(),
)
def test_chosen_rows_are_those_of_numpy(rows: list[int], data: st.DataObject) -> None:
    whole = np.arange(60).reshape(30, 2)
    some, expected = Chosen(whole, Selection.of(rows)), whole[rows]
    positions = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20))
    a, b = data.draw(st.integers(0, len(rows))), data.draw(st.integers(0, len(rows)))
    np.testing.assert_array_equal(some[a:b], expected[a:b])
    np.testing.assert_array_equal(some[positions], expected[positions])
    np.testing.assert_array_equal(some[a:b, 1:], expected[a:b, 1:])
    assert (len(some), some.shape) == (len(rows), expected.shape)


def test_labels_are_the_source_with_the_fewest_classes(tmp_path: Path) -> None:
    n = 60
    arrays = {
        "ids": np.arange(n),
        "same": np.zeros(n, np.uint8),
        "fine": np.arange(n) % 20,
        "coarse": np.arange(n) // 20,
        "weights": np.arange(n) % 2 * 0.5,
    }
    data = labeled.open_dataset(labeled.write(tmp_path / "x.hdf5", arrays))
    name, values = find_labels(data) or ("", None)
    assert name == "coarse"
    np.testing.assert_array_equal(values, arrays["coarse"])
    assert find_labels(data.select("ids", "weights", "same")) is None


def test_entropy_is_of_the_labels_in_a_batch(folder: Path) -> None:
    subject = Asked(str(folder / "contiguous.hdf5"), (), None, 20, MEMORY).subject()
    assert subject.labelled == "targets"
    chosen = ("ours, file order", "ours, full shuffle")
    ways = [way for way in every_way(subject, {}) if way.name in chosen]
    sorted_, mixed = measure(ways, subject, Effort(5, 0.01, 1))
    assert sorted_.entropy == 0
    assert mixed.entropy == pytest.approx(1, abs=0.05)
    assert mixed.predicted == 1


def test_peak_memory_is_of_each_way_by_itself_or_why_not_is_said(folder: Path) -> None:
    asked = Asked(str(folder / "gzip.hdf5"), (), None, 20, "1 kiB")  # too little for this library
    names = ("ours, file order", "h5py slices")
    ways = [way for way in every_way(asked.subject(), {}) if way.name in names]
    ours, h5py_loop = (Measured(way) for way in ways)
    told: list[int] = []
    failed = watch_all(asked, [ours, h5py_loop], 0.2, lambda: told.append(1))
    if Path("/proc/self/status").exists():
        assert "too small" in failed["ours, file order, file"]
        assert ours.peak_bytes is None
        assert h5py_loop.peak_bytes is not None
        assert len(told) == 2


def test_a_missing_peer_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    missing: dict[str, str] = {}
    found = peers.peer_ways(subject_of(folder / "gzip.hdf5"), "file", missing)
    assert {way.name for way in found} == {"h5py slices", "xarray+dask"}
    assert "pip install torch (the extra 'bench'" in missing["torch DataLoader"]
    assert set(missing) == {"torch DataLoader", "xbatcher", "Grain", "scDataset", "pyfive"}


def run(*words: str) -> Any:
    quickly = ("--seconds", "0.01", "--rounds", "1", "--no-peak", "--no-cold", "--memory", MEMORY)
    return CliRunner().invoke(main, ["bench", *quickly, *words])


def test_the_command_tells_of_every_loop(folder: Path) -> None:
    done = run(str(folder / "gzip.hdf5"), "--only", "labeled", "--only", "h5py", "--how")
    assert done.exit_code == 0, done.output
    for words in (
        "1,000 rows, batches of 256, memory 8 MiB",
        "images, targets, read together: 88 bytes a row",
        "chunks of 64 rows, shuffle, gzip 4",
        "labeled, window shuffle",
        "h5py sorted lists",
        "not measured: not asked for",
        "chunk index",
        "images, targets, shuffled: ",
        "80 % list / all rows, shuffled alike",
        "batch entropy of the window shuffle, foretold by explain()",
        "256 rows of images (float32) by labeled, against NumPy's copy and memcpy",
        "h w batch, rows picked",
        "Entropy: of the 'targets' in a batch",
        "x[np.sort(rows)]",
    ):
        assert words in done.output
    assert "bare decode" not in done.output
    assert "reads them once and keeps them" in done.output


def test_the_command_gives_json(folder: Path) -> None:
    path = str(folder / "gzip.hdf5")
    words = ("--source", "images", "--batch-size", "50", "--only", "labeled, f", "--json")
    done = run(path, *words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (part,) = found["parts"]
    assert (part["measured"], part["form"], part["labels"]) == (["images"], "numbers", None)
    assert [way["way"] for way in part["ways"]] == ["labeled, file order", "labeled, full shuffle"]
    for way in part["ways"]:
        assert way["error"] is None
        assert way["mb_per_s"] == pytest.approx(way["median"] * 80 / 1e6)
    assert found["cold"] == {"of": ["images"], "why": "not asked for"}
    assert {cell["order"] for cell in found["copies"]} >= {"h w batch", "batch w h"}
    assert found["planning"]["open_s"] > 0
    assert found["planning"]["graph_layers"] == 1
    assert found["planning"]["n_chunks"] == -(-N_ROWS // CHUNK)
    assert found["machine"]["versions"]["h5py"] == h5py.__version__


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("none.hdf5",), 1, "does not exist"),
        (("gzip.hdf5", "--source", "imags"), 1, "images"),
        (("gzip.hdf5", "--split", "tset"), 1, "tset"),
        (("gzip.hdf5", "--only", "tensor"), 2, "there are: "),
        (("gzip.hdf5", "--memory", "much"), 1, "is not a size"),
        (("gzip.hdf5", "--memory", "1 kiB"), 1, "too small"),
        (("times.hdf5", "--source", "when"), 1, "cannot be measured"),
    ],
)
def test_bad_requests_are_refused_before_any_work(
    folder: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    with h5py.File(folder / "times.hdf5", "w") as file:
        for name in ("when", "x"):
            file[name] = np.arange(3)
            file[name].dims[0].label = "batch"
        file["when"].attrs["units"] = "days since 2000-01-01"
    done = run(str(folder / words[0]), *words[1:])
    assert done.exit_code == code, done.output
    assert said in done.output


def test_warming_reads_what_there_is_time_for(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(bytes(20 << 20))
    assert cache.warm(path) == 1
    assert cache.warm(path, 0) == 0
    with cache.held(path) as locked:
        cache.evict(path)
        assert cache.resident(path) == 1 or not locked


def test_a_core_hands_over_what_it_has_read() -> None:
    before = threading.active_count()
    found = handover()
    several = hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) > 1
    assert (found is not None and found > 0) if several else found is None
    assert threading.active_count() == before


def test_freed_memory_is_given_back_before_growth_is_watched() -> None:
    script = (
        "import labeled.bench.peak as p, labeled.bench.timing as t, os\n"
        "t.settle_allocator(); before = p.status_bytes(os.getpid())\n"
        "t.give_back_freed(); print(before - p.status_bytes(os.getpid()))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    freed = int(done.stdout)
    assert freed > 16 << 20 or platform.libc_ver()[0] != "glibc"
