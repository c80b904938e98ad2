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
from benchmarks.bare import pread_in_order
from benchmarks.files import BenchFile, FileSpec, make
from benchmarks.ours import in_order, loader

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
    """No copy between the file and the consumer: all batches lie in the buffers themselves."""
    batches = loader(files["contiguous"].subject(256, MEMORY))
    n_buffers = batches.explain().n_buffers
    owners = set()
    for batch in batches:
        array = batch.arrays["features"]
        assert array.base is not None
        assert not isinstance(array.base, np.memmap)
        assert array.flags.c_contiguous
        owners.add(array.base.__array_interface__["data"][0])
    assert len(owners) <= n_buffers


def test_a_source_is_one_layer_with_a_task_a_block(files: dict[str, BenchFile]) -> None:
    data = labeled.open_dataset(str(files["gzip"].path), chunks=512)
    some = data.subset(slice(100, None)).subset(slice(None, -100))
    for one in (data, some):
        array = one["features"].data
        graph = array.__dask_graph__()
        assert len(graph.layers) == 1
        assert len(dict(graph)) == int(np.prod(array.numblocks))


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
