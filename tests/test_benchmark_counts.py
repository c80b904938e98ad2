"""What the benchmarks rest on, as counts that do not jitter: bytes, reads, tasks, copies.

A rate can be missed because the machine is busy; these cannot. They are told by
``explain()`` and by graphs, and compared with what h5py says of the same files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import labeled
from benchmarks import report, section8, timing
from benchmarks.bare import decode, pread_in_order, take
from benchmarks.files import BenchFile, FileSpec, make, numbers_of, row_numbers
from benchmarks.ours import full, in_order, loader, way, window
from benchmarks.table import measured_rows

ROWS, IMAGE, CHUNK = 16_384, (3, 16, 16), 64
MEMORY = "8 MiB"  # less than the rows take, so that none are kept


def spec(name: str, **more: Any) -> FileSpec:
    return FileSpec(name, ROWS, IMAGE, **more)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, BenchFile]:
    folder = tmp_path_factory.mktemp("bench")
    gzip: dict[str, Any] = {"chunk_rows": CHUNK, "codec": "gzip", "byte_shuffle": True}
    found = [
        spec("contiguous"),
        spec("gzip", values="digits", **gzip),
        FileSpec("floats", ROWS // 4, IMAGE, "f4", "floats", **gzip),
    ]
    return {one.name: make(one, folder) for one in found}


def predicted(file: BenchFile, rows: Any = None, **options: Any) -> Any:
    explained = loader(file.subject(256, MEMORY), rows, **options).explain()
    (source_reader,) = explained.sources
    assert explained.exact, "counted, not estimated"
    assert not source_reader.kept, "the file must be larger than the memory"
    return explained, source_reader


def stored_bytes(file: BenchFile) -> int:
    with h5py.File(file.path, "r") as opened:
        return int(opened["features"].id.get_storage_size())


def test_file_order_reads_every_byte_once_in_long_reads(files: dict[str, BenchFile]) -> None:
    file = files["contiguous"]
    explained, source_reader = predicted(file, threads=1)
    assert source_reader.path == "contiguous"
    assert source_reader.bytes_read == source_reader.bytes_used == file.spec.n_bytes
    assert source_reader.n_reads <= explained.n_jobs + file.spec.n_bytes // (512 << 10)
    assert source_reader.chunks_decoded == 0


def test_full_shuffle_reads_no_byte_that_is_not_used(files: dict[str, BenchFile]) -> None:
    _, source_reader = predicted(files["contiguous"], shuffle="full")
    assert source_reader.bytes_read == source_reader.bytes_used == files["contiguous"].spec.n_bytes
    assert source_reader.n_reads <= files["contiguous"].spec.n_rows


@pytest.mark.parametrize("shuffle", [False, "window"])
def test_each_stored_chunk_is_decoded_once_an_epoch(
    files: dict[str, BenchFile], shuffle: Any
) -> None:
    file = files["gzip"]
    _, source_reader = predicted(file, shuffle=shuffle)
    assert source_reader.chunks_decoded == source_reader.chunks_needed == file.spec.n_rows // CHUNK
    stored = stored_bytes(file)
    assert (
        stored <= source_reader.bytes_read <= 1.02 * stored
    )  # tables between chunks are read through
    assert source_reader.n_reads <= source_reader.chunks_decoded


def test_a_random_list_decodes_each_chunk_once(files: dict[str, BenchFile]) -> None:
    file = files["gzip"]
    rows = np.random.default_rng(0).permutation(file.spec.n_rows)[: file.spec.n_rows * 4 // 5]
    _, source_reader = predicted(file, rows, shuffle="window")
    assert source_reader.amplification == 1.0
    assert source_reader.chunks_decoded == file.spec.n_rows // CHUNK
    assert source_reader.bytes_used == len(rows) * file.spec.row_bytes


def test_an_epoch_does_what_was_predicted(files: dict[str, BenchFile]) -> None:
    for name in ("contiguous", "gzip"):
        explained, _ = predicted(files[name])
        batches = loader(files[name].subject(256, MEMORY))
        n_rows = sum(batch.count for batch in batches)
        stats = batches.stats()
        assert stats.n_windows == explained.n_jobs
        assert stats.n_batches == explained.n_batches
        assert stats.n_rows == n_rows == files[name].spec.n_rows
        assert stats.n_bytes == files[name].spec.n_bytes
        assert stats.n_tasks >= explained.n_jobs
        assert stats.read_s > 0
        assert (stats.decode_s > 0) == (name == "gzip")  # told apart; which is longer is chance


def test_batches_are_views_of_a_few_slots(files: dict[str, BenchFile]) -> None:
    """No copy between the file and the consumer: all batches lie in the slots themselves."""
    batches = loader(files["contiguous"].subject(256, MEMORY))
    slots = batches.explain().slots
    owners = set()
    for batch in batches:
        array = batch.arrays["features"]
        assert array.base is not None
        assert not isinstance(array.base, np.memmap)
        assert array.flags.c_contiguous
        owners.add(array.base.__array_interface__["data"][0])
    assert len(owners) <= slots


def test_a_source_is_one_layer_with_a_task_a_block(files: dict[str, BenchFile]) -> None:
    data = labeled.open_dataset(str(files["gzip"].path), chunks=512)
    some = data.subset(slice(100, None)).subset(slice(None, -100))
    for one in (data, some):
        array = one["features"].data
        graph = array.__dask_graph__()
        assert len(graph.layers) == 1
        assert len(dict(graph)) == int(np.prod(array.numblocks))


def test_rows_are_numbered_and_each_is_counted_once(files: dict[str, BenchFile]) -> None:
    for name, kind in (("contiguous", full), ("gzip", window), ("floats", in_order)):
        subject = files[name].subject(256)
        (found,) = timing.measure([kind(subject)], subject, timing.Effort(5, 0.1, 1))
        assert found.error is None
        assert found.holds_each_row_once is True
        assert found.complete
        assert found.runs[0].n_rows == subject.n_rows
    with h5py.File(files["floats"].path, "r") as opened:
        np.testing.assert_array_equal(row_numbers(opened["features"][7:90]), np.arange(7, 90))


def test_bare_loops_read_the_same_rows(files: dict[str, BenchFile]) -> None:
    file = files["contiguous"]
    for bare in (pread_in_order(file.subject(256)), take(file.subject(256))):
        rows = np.concatenate([numbers_of(batch) for batch in bare.make()()])
        np.testing.assert_array_equal(np.sort(rows), np.arange(file.spec.n_rows))
    for name in ("gzip", "floats"):
        assert sum(decode(files[name].subject(256)).make()()) == files[name].spec.n_rows


def test_a_way_that_fails_is_reported_and_the_others_go_on(files: dict[str, BenchFile]) -> None:
    subject = files["contiguous"].subject(256)
    bad = way(subject, "bad", "file", memory="1 kiB")
    found = timing.measure([bad, in_order(subject)], subject, timing.Effort(5, 0.1, 1))
    assert "too small" in (found[0].error or "")
    assert found[1].runs
    failed, ran = measured_rows(found, files["contiguous"].spec.row_bytes)
    assert failed[:3] == ("bad", "failed", "")
    assert float(ran[1].replace(",", "")) > 0


def test_entropy_of_sorted_and_of_mixed_batches() -> None:
    labels = np.arange(10_000) // 1000
    mixed = [labels[np.random.default_rng(i).integers(0, 10_000, 250)] for i in range(40)]
    runs = [labels[a : a + 250] for a in range(0, 10_000, 250)]
    assert timing.relative_entropy(mixed, labels, 250) == pytest.approx(1.0, abs=0.01)
    assert timing.relative_entropy(runs, labels, 250) == 0.0


def test_touch_reads_one_byte_of_each_line() -> None:
    batch = np.zeros((4, 64), np.uint8)
    batch[:, 1:] = 77
    assert timing.touch(batch) == 0
    batch[:, 0] = 1
    assert timing.touch(batch) == 4


def test_what_a_run_leaves_behind_holds_ratios_and_every_part(
    files: dict[str, BenchFile], tmp_path: Path
) -> None:
    file = files["contiguous"]
    subject = file.subject(256)
    ways = [pread_in_order(subject), in_order(subject)]
    found = timing.measure(ways, subject, timing.Effort(5, 0.1, 2))
    results = section8.Results(measured={"x": found}, row_bytes={"x": file.spec.row_bytes})
    results.cold = [{"file": "y", "ratios": {"file order / a plain read": 0.95}}]
    checks = section8.checks(results)
    report.write(tmp_path, "run", "text", results, checks, {})
    written = json.loads((tmp_path / "run.json").read_text())
    bare, ours = written["workloads"]["x"]
    assert bare["x_bare"] == pytest.approx(1)
    assert ours["x_bare"] == timing.paired_ratio(found[1], found[0])
    assert bare["ours_over_it"] == ours["x_bare"]
    assert ours["mb_per_s"] == pytest.approx(ours["median"] * file.spec.row_bytes / 1e6)
    assert {"cold", "chunks", "rows", "copies", "records", "plain_files", "gpu"} <= set(written)
    (cold,) = (check for check in written["checks"] if check["row"] == "cold page cache: y")
    assert (cold["figure"], cold["met"]) == (0.95, True)


def test_a_check_is_met_missed_or_left_out() -> None:
    assert section8.Check("row", "words", 1.1, 1.0).met is True
    assert section8.Check("row", "words", 1.1, 1.0, at_least=False).met is False
    assert section8.Check("row", "words", None, 1.0).met is None
    assert section8.checks(section8.Results()) == []
