"""``labeled bench`` on what is not numbers of one shape, on storage, and on orders of axes.

No rate is tested: only what is read, from where, and what is said of it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import labeled
from labeled.bench import cache, cold, copies, own_file
from labeled.bench.digest import digest
from labeled.bench.own_file import Asked, every_way, fresh_figures
from labeled.bench.subject import Subject
from labeled.bench.table import plain_rows, short
from labeled.bench.timing import Effort, Measured, Run, Way, measure, touch
from labeled.cli.main import main
from labeled.errors import LoaderError
from labeled.formats.recordio.writing import write_records
from labeled.loader.sizing.memory import memory_of

N, MEMORY = 300, "8 MiB"
WORDS = [("cat", "dogs", "naïve", "")[row % 4] + str(row) for row in range(N)]
TEXTS = {"words.hdf5": "words", "fixed.hdf5": "words", "words.csv": "words"}
EXAMPLES = {"flat.hdf5": "x", "shaped.hdf5": "x", "vlen.hdf5": "x", "mixed.rec": "images"}


def example(row: int) -> np.ndarray[Any, Any]:
    return np.full((1 + row % 5, 2 + row % 3), row % 251, np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("own")
    targets = np.arange(N) % 7
    with h5py.File(where / "words.hdf5", "w") as file:
        file["words"], file["targets"] = WORDS, targets
        label(file)
    with h5py.File(where / "fixed.hdf5", "w") as file:
        file["words"] = np.array([word.encode() for word in WORDS])
        label(file)
    lines = [f"{row},{word}" for row, word in enumerate(WORDS)]
    (where / "words.csv").write_text("\n".join(["number,words", *lines]) + "\n")
    shaped = [example(row) for row in range(N)]
    straight = [one.reshape(-1) for one in shaped]
    labeled.write(where / "flat.hdf5", {"x": labeled.Ragged.of(straight, dims=("batch", "time"))})
    labeled.write(where / "shaped.hdf5", {"x": labeled.Ragged.of(shaped, dims=("batch", "h", "w"))})
    with h5py.File(where / "vlen.hdf5", "w") as file:
        rows = file.create_dataset("x", (N,), h5py.vlen_dtype(np.uint8))
        for row, one in enumerate(straight):
            rows[row] = one
        label(file)
    shades = np.indices((10, 9, 3)).sum(axis=0).astype(np.uint8) * 9
    pictures = [shades[: 8 + row % 3] + np.uint8(row) for row in range(40)]
    write_records(where / "mixed.rec", pictures, range(40), format=".jpg")
    write_records(where / "same.rec", [pictures[0]] * 40, range(40), format=".jpg")
    (where / "parts").mkdir()
    for part in range(2):
        with h5py.File(where / "parts" / f"{part}.hdf5", "w") as file:
            file["images"] = np.full((N, 4, 5), part, np.uint8)
            file["targets"] = targets
            label(file)
    return where


def label(file: h5py.File) -> None:
    for dataset in file.values():
        for axis, dim in enumerate(("batch", "h", "w")[: dataset.ndim]):
            dataset.dims[axis].label = dim


def subject_of(folder: Path, name: str, source: str, split: str | None = None) -> Subject:
    (subject,) = Asked(str(folder / name), (source,), split, 32, MEMORY).subjects()
    return subject


def delivered(way: Way) -> list[bytes]:
    """Return what each row of an epoch is, as bytes."""
    out = []
    for batch in way.make()():
        assert not isinstance(batch, int)
        out += [
            one.encode() if isinstance(one, str) else np.asarray(one).tobytes() for one in batch[0]
        ]
    return out


@pytest.mark.parametrize(("name", "source"), (TEXTS | EXAMPLES).items())
def test_every_loop_delivers_the_same_rows(folder: Path, name: str, source: str) -> None:
    if name.endswith(".rec"):
        pytest.importorskip("simplejpeg")
    subject = subject_of(folder, name, source)
    ways = {way.full_name: way for way in every_way(subject, {}) if "workers" not in way.name}
    if name.endswith(".rec"):
        expected = delivered(ways["bare decode, file"])
        assert len(expected) == 40
    elif name in TEXTS:
        expected = [word.encode() for word in WORDS]
    else:
        expected = [example(row).tobytes() for row in range(N)]
    for full_name, way in ways.items():
        if "padded" in full_name or "flat values" in full_name:
            assert sum(batch for batch in way.make()() if isinstance(batch, int)) == len(expected)
            continue
        got = delivered(way)
        assert sorted(got) == sorted(expected), full_name
        assert (got == expected) == (way.order == "file"), full_name
    assert ("h5py slices, file" in ways) == name.endswith(".hdf5")
    assert ("ours, padded, file" in ways) == (name in EXAMPLES)


def test_h5py_loops_read_a_stretch_of_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "split.hdf5"
    examples = [example(row) for row in range(N)]
    ragged = labeled.Ragged.of(examples, dims=("batch", "h", "w"))
    labeled.write(path, {"x": ragged}, splits={"train": (0, 200), "test": (200, N)})
    subject = subject_of(tmp_path, path.name, "x", "test")
    ways = {way.full_name: way for way in every_way(subject, {})}
    expected = [one.tobytes() for one in examples[200:]]
    for name in ("h5py slices, file", "h5py, row by row, file", "ours, file order, file"):
        assert delivered(ways[name]) == expected
    listed = Subject(subject.dataset.subset([5, 3]), 32, MEMORY)
    assert not any(way.kind == "peer" for way in every_way(listed, {}))


@given(st.lists(st.text(max_size=5), max_size=8))
def test_touching_text_reads_all_of_it(words: list[str]) -> None:
    text = np.array([*words, None], object)[:-1]
    assert touch(text) == sum(map(len, words))
    arrays = np.empty(len(words), object)
    for place, word in enumerate(words):
        arrays[place] = np.full(len(word), 3, np.uint8)
    assert touch(arrays) == 3 * sum(bool(word) for word in words)


def test_sources_are_grouped_by_what_rows_are(folder: Path) -> None:
    together, words = Asked(str(folder / "words.hdf5"), (), None, 32, MEMORY).subjects()
    assert (together.dataset.sources, together.form) == (("targets",), "numbers")
    assert (words.dataset.sources, words.form) == (("words",), "text")
    assert words.row_bytes == round(np.mean([len(word.encode()) for word in WORDS]))
    ragged = subject_of(folder, "shaped.hdf5", "x")
    assert ragged.form == "ragged"
    assert ragged.row_bytes == round(np.mean([example(row).size for row in range(N)]))


def test_little_beside_examples_is_left_out(tmp_path: Path) -> None:
    examples = [np.zeros(900 + row, np.uint8) for row in range(20)]
    arrays = {"x": labeled.Ragged.of(examples, dims=("batch", "time")), "y": np.arange(20) % 3}
    asked = Asked(str(labeled.write(tmp_path / "x.hdf5", arrays)), (), None, 4, MEMORY)
    subjects = asked.subjects()
    assert [one.dataset.sources for one in subjects] == [("x",)]
    assert asked.left_out(subjects) == {"y": "little beside the others; --source y measures it"}


def test_large_rows_get_the_memory_they_need(tmp_path: Path) -> None:
    path = labeled.write(tmp_path / "x.hdf5", {"x": np.zeros((64, 4096), np.uint8)})
    little = Asked(str(path), (), None, 32, "64 kiB")
    enough = little.fitting()
    assert memory_of(enough.memory) >= 2 * 32 * 4096
    assert replace(enough, memory=little.memory) == little
    assert enough.fitting() == enough
    huge = replace(little, batch_rows=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_file, "MOST_MEMORY", 1 << 17)
        with pytest.raises(LoaderError, match="too small"):
            huge.fitting()


# storage


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A contiguous and a chunked source, of 2 MiB each."""
    path = tmp_path / "plain.hdf5"
    values = np.random.default_rng(0).integers(0, 256, (1024, 2048), np.uint8)
    with h5py.File(path, "w") as file:
        file["a"] = values
        file.create_dataset("b", data=values, chunks=(64, 2048))
        label(file)
        file.attrs["split"] = split_table(1024)
    return path


def split_table(n: int) -> Any:
    fields = [("split", "S5"), ("source", "S1"), ("start", "i8"), ("stop", "i8")]
    fields += [("indices", h5py.ref_dtype), ("available", bool), ("comment", "S1")]
    rows = [
        (split, source, start, stop, h5py.Reference(), True, b"")
        for split, start, stop in ((b"train", 0, n // 2), (b"test", n // 2, n))
        for source in (b"a", b"b")
    ]
    return np.array(rows, fields)


def test_a_plain_loop_reads_the_bytes_of_the_rows(plain: Path) -> None:
    with h5py.File(plain) as file:
        offset = file["a"].id.get_offset()
        chunks = [file["b"].id.get_chunk_info(i) for i in range(16)]
    whole = cold.stretches(subject_of(plain.parent, plain.name, "a"))
    assert whole == [(str(plain), offset, offset + (2 << 20))]
    half = cold.stretches(subject_of(plain.parent, plain.name, "a", "test"))
    assert half == [(str(plain), offset + (1 << 20), offset + (2 << 20))]
    (packed,) = cold.stretches(subject_of(plain.parent, plain.name, "b"))
    assert packed.start == min(chunk.byte_offset for chunk in chunks)
    assert packed.stop == max(chunk.byte_offset + chunk.size for chunk in chunks)
    for n_threads in (1, 2):
        assert cold.plain_read(whole, n_threads, 60) == 2 << 20
        assert cold.plain_read([*whole, packed], n_threads, 60) == (2 << 20) + packed.stop - (
            packed.start
        )
    assert cold.plain_read(whole, 1, 0.0) == 0


def test_of_unusual_chunks_the_whole_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "odd.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("parts", data=np.zeros((100, 8), np.uint8), chunks=(10, 4))
        sparse = file.create_dataset("sparse", (100, 8), np.uint8, chunks=(10, 8))
        sparse[:20] = 1
        label(file)
    for name in ("parts", "sparse"):
        found = cold.stretches(subject_of(tmp_path, path.name, name))
        assert found == [(str(path), 0, path.stat().st_size)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=12))
def test_joined_stretches_hold_every_byte(places: list[tuple[int, int]]) -> None:
    wanted = [(start << 20, (start + n) << 20) for start, n in places]
    found = cold.joined(wanted)
    assert all(any(a <= start and stop <= b for a, b in found) for start, stop in wanted)
    ends = [edge for pair in found for edge in pair]
    assert ends == sorted(ends)
    assert {a for a, _ in found} <= {a for a, _ in wanted}
    assert {b for _, b in found} <= {b for _, b in wanted}


def test_reading_cold_leaves_the_file_as_it_is(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold, "LEAST", 1)
    before = plain.stat(), hashlib.sha256(plain.read_bytes()).hexdigest()
    asked = Asked(str(plain), ("a",), None, 32, MEMORY)
    found = fresh_figures(asked, asked.subject(), 2, 1.0)
    assert found["open_s"] > 0
    if cache.stays_warm(str(plain)) is None and "why" not in found["cold"]:
        assert set(found["cold"]["median"]) == {*cold.PLAIN, cold.ORDERED, cold.SHUFFLED}
        assert all(len(rates) == 2 for rates in found["cold"]["mb_per_s"].values())
        assert found["cold"]["mb"] == pytest.approx((2 << 20) / 1e6)
        assert found["cold"]["stayed"] <= cold.MOST_STAYED
    else:
        assert found["cold"]["why"]
    after = plain.stat(), hashlib.sha256(plain.read_bytes()).hexdigest()
    assert (before[0].st_mtime_ns, before[1]) == (after[0].st_mtime_ns, after[1])


def test_a_file_that_somebody_maps_is_not_called_cold(plain: Path) -> None:
    if cache.stays_warm(str(plain)) is not None:
        pytest.skip("the folder of temporary files cannot be dropped from the page cache")
    subject = subject_of(plain.parent, plain.name, "a")
    with plain.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        for _ in range(3):  # a system short of memory takes mapped pages, too
            assert sum(view[:: mmap.PAGESIZE]) >= 0  # every page is mapped now
            found = cold.measure_cold(subject, 1, 1.0)
            if "why" in found:
                break
    assert set(found) == {"why"}
    assert "another process maps it" in found["why"]


@pytest.mark.parametrize(
    ("kind", "said"),
    [("nfs4", "cache elsewhere"), ("fuse.sshfs", "cache elsewhere"), ("tmpfs", "in memory")],
)
def test_files_that_cannot_be_cold_are_told_of(
    plain: Path, monkeypatch: pytest.MonkeyPatch, kind: str, said: str
) -> None:
    mounts = Path("/proc/self/mountinfo")
    points = (
        [line.split()[4] for line in mounts.read_text().splitlines()] if mounts.exists() else []
    )
    if "/" not in points:
        pytest.skip("this system, or one that was entered by chroot, does not tell where files lie")
    assert cache.filesystem(str(plain))
    monkeypatch.setattr(cache, "filesystem", lambda path: kind)
    asked = Asked(str(plain), ("a",), None, 32, MEMORY)
    assert said in str(cold.why_not(asked.subject()))
    monkeypatch.setattr(cold, "measure_cold", None)
    assert said in fresh_figures(asked, asked.subject(), 1, 1.0)["cold"]["why"]


def test_rows_that_no_plain_loop_reads_are_not_measured_cold(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold, "stays_warm", lambda path: None)
    subject = subject_of(plain.parent, plain.name, "a")
    assert "too fast to tell" in str(cold.why_not(subject))
    monkeypatch.setattr(cold, "LEAST", 1)
    assert cold.why_not(subject) is None
    listed = Subject(subject.dataset.subset([4, 1]), 32, MEMORY)
    assert "do not follow one another" in str(cold.why_not(listed))
    assert "network" in str(cache.stays_warm("https://example.org/x.hdf5"))


# orders of axes


@given(st.integers(2, 6))
def test_orders_are_permutations_the_useful_ones_first(n_axes: int) -> None:
    orders = copies.orders_of(n_axes)
    assert len(set(orders)) == len(orders)
    assert all(sorted(order) == list(range(n_axes)) for order in orders)
    assert orders[0] == (*range(1, n_axes), 0)
    assert tuple(range(n_axes)) in orders
    assert tuple(range(n_axes))[::-1] in orders


def test_rows_of_a_file_are_moved_about(folder: Path) -> None:
    subject = Asked(str(folder / "parts"), (), None, 32, MEMORY).subject()
    assert copies.permuted_source(subject) == "images"
    cells = copies.copies(subject, 60.0)
    kinds = [cell["kind"] for cell in cells]
    assert [kinds.count(kind) for kind in ("move", "normalise", "gather")] == [6, 6, 2]
    assert all(cell["shape"][1:] == (4, 5) and cell["dtype"] == "uint8" for cell in cells)
    assert {cell["shape"][0] for cell in cells if cell["kind"] == "move"} == {32}
    assert {cell["order"] for cell in cells if cell["kind"] == "gather"} == {
        "h w batch",
        "batch w h",
    }
    few = copies.copies(subject, 0.0)
    assert len({cell["order"] for cell in few}) == 2
    assert copies.copies(subject_of(folder, "words.hdf5", "words"), 1.0) == []


def test_a_wrong_copy_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    src = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    monkeypatch.setattr(copies.permute, "copy", lambda src, axes, out, **_: out.fill(0))
    with pytest.raises(RuntimeError, match="wrong result: move"):
        copies.moved(src, (2, 1, 0), copies.Effort(3, 0.0), scaled=False)


@pytest.mark.parametrize(("step_s", "turns"), [(0.0001, 41), (0.001, 6), (0.1, 4)])
def test_short_copies_are_timed_again_and_long_ones_cut_short(
    monkeypatch: pytest.MonkeyPatch, step_s: float, turns: int
) -> None:
    """A clock that goes on by `step_s` at each look: five times a turn of two ways."""
    looks = itertools.count()
    monkeypatch.setattr(copies.time, "perf_counter", lambda: next(looks) * step_s)
    called: list[str] = []
    found = copies.medians(
        {"a": lambda: called.append("a"), "b": lambda: called.append("b")},
        copies.Effort(5, 0.05),
    )
    assert called.count("a") == called.count("b") == turns
    assert found == pytest.approx({"a": step_s, "b": step_s})


# what is said


def measured(name: str, kind: str, order: str, rates: list[int], **more: Any) -> Measured:
    runs = [Run(n_rows=rate, n_batches=1, seconds=1.0, complete=True) for rate in rates]
    return Measured(Way(name, kind, order, "", lambda: lambda: iter(())), runs=runs, **more)


def test_what_a_run_comes_to() -> None:
    mib = 1 << 20
    found = [
        measured("bare copy", "bare", "file", [10, 30]),
        measured("ours, file order", "ours", "file", [20, 30]),
        measured("h5py slices", "peer", "file", [5, 10]),
        measured("ours, window shuffle", "ours", "window", [10, 15], entropy=0.9, predicted=0.8),
        measured("ours, 80 % list", "ours", "list", [5, 3], mode="window"),
    ]
    found[1].peak_bytes, found[1].promised_bytes = 3 * mib, 4 * mib
    figures = {one.words: one.value for one in digest(found, {"ratios": {"a / b": 0.5}})}
    assert figures == {
        "file order / bare copy": 1.5,
        "file order / h5py slices": 3.5,
        "window shuffle / its own file order": 0.5,
        "80 % list / all rows, shuffled alike": pytest.approx((0.5 + 0.2) / 2),
        "batch entropy of the window shuffle, measured": 0.9,
        "batch entropy of the window shuffle, foretold by explain()": 0.8,
        "peak memory / promised, the most (ours, file order)": 0.75,
        "cold page cache: a / b": 0.5,
    }
    by_name = {row["way"]: row for row in plain_rows(found, 1000)}
    assert by_name["h5py slices"]["ours_over_it"] == 3.5
    assert by_name["ours, file order"]["x_bare"] == 1.5
    assert by_name["bare copy"]["mb_per_s"] == 20 * 1000 / 1e6


@given(st.floats(0, 1e9))
def test_figures_are_short_and_near(value: float) -> None:
    words = short(value)
    assert "e" not in words
    if value >= 0.001:
        assert float(words.replace(",", "")) == pytest.approx(value, rel=0.006)


def run(*words: str) -> Any:
    quickly = ("--seconds", "0.005", "--rounds", "1", "--no-peak", "--no-cold", "--memory", MEMORY)
    return CliRunner().invoke(main, ["bench", *quickly, *words])


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open nothing in a new process, which takes a second."""
    monkeypatch.setattr(own_file.cold, "in_a_process", lambda *words: {"open_s": 0.001, "cold": {}})


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("words.hdf5", ("words, text: about", "h5py, row by row", "targets, read together")),
        ("flat.hdf5", ("x, examples that differ in shape", "labeled, flat values", "h5py slices")),
        ("mixed.rec", ("images, examples that differ in shape", "labeled, padded")),
        ("same.rec", ("ids, images, labels, read together", "other loaders cannot read")),
        ("words.csv", ("words, text: about", "h5py cannot read this layout")),
        ("parts", ("2 files", "other loaders cannot read", "h w batch, scaled to float32")),
    ],
)
def test_any_file_is_told_of_within_a_screen(
    folder: Path, name: str, said: tuple[str, ...]
) -> None:
    done = run(str(folder / name), "--only", "labeled", "--only", "h5py")
    assert done.exit_code == 0, done.output
    for words in (*said, "before the first row", "Columns: "):
        assert words in " ".join(done.output.split()), done.output
    assert max(map(len, done.output.splitlines())) <= 120


@pytest.mark.usefixtures("here")
def test_quick_takes_one_short_round(folder: Path) -> None:
    words = ("bench", str(folder / "words.hdf5"), "--quick", "--json", "--source", "words")
    done = CliRunner().invoke(main, [*words, "--only", "labeled"])
    assert done.exit_code == 0, done.output
    (part,) = json.loads(done.stdout)["parts"]
    assert part["form"] == "text"
    assert [len(way["rows_per_s"]) for way in part["ways"]] == [1, 1]
    assert all(way["peak_bytes"] is None for way in part["ways"])


def test_every_way_is_counted_once_at_least(folder: Path) -> None:
    subject = subject_of(folder, "words.hdf5", "words")
    ways = [way for way in every_way(subject, {}) if way.kind == "ours"]
    for found in measure(ways, subject, Effort(5.0, 0.0, 2, least_rounds=1)):
        assert found.error is None
        assert len(found.runs) == 1
