"""Rows of HDF5 files are those of h5py: any layout, any region, any rows, in any order."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import threading
from itertools import permutations
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest import mock

import h5py
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hdf5_layouts import (
    BY_RANGE,
    COMPRESSIONS,
    Layout,
    elsewhere,
    layouts,
    opened,
    outer,
    read_with_h5py,
    reader_of,
    regions,
    rows_of,
    runs,
    write,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import labeled
from labeled.testing import ReaderTests

IO = ["auto", "pread", "mmap"]
LAWS = [name for name in dir(ReaderTests) if name.startswith("test_")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


def check(reader: Any, expected: np.ndarray) -> None:
    """Hold a reader to all laws of readers."""
    for law in LAWS:
        getattr(ReaderTests(), law)(reader, expected)


@settings(max_examples=80)
@given(layouts(), st.sampled_from(IO), st.data())
def test_any_layout_reads_as_h5py_reads_it(
    folder: Path, layout: Layout, io: str, data: st.DataObject
) -> None:
    path = write(folder, layout)
    region = data.draw(regions(layout.shape[1:]))
    check(reader_of(path, region, io=io), outer(read_with_h5py(path), region))
    path.unlink()


def test_a_chunked_dataset_without_rows_refuses_all_rows(folder: Path) -> None:
    path = write(folder, Layout("u1", (0, 1, 1), (1, 1, 1)))
    check(reader_of(path), read_with_h5py(path))


SOME = ((0, 150), (170, 171), (300, 400))
# of up to seven pieces, which are half a megabyte each
LARGE = {
    "contiguous": Layout("u1", (40, 5, 9000)),
    "big-endian": Layout(">f4", (150, 4, 700)),
    "rows of a megabyte": Layout("u1", (3, 2, 530_000)),
    "big-endian rows of a megabyte": Layout(">u2", (3, 2, 300_000)),
    "chunks": Layout("u2", (400, 3, 500), (7, 3, 500)),
    "chunks, holes": Layout("f4", (400, 3, 350), (7, 3, 350), written=SOME, fill=7),
    "columns": Layout("u1", (400, 4, 900), (50, 1, 450)),
    "columns, holes": Layout("f4", (400, 4, 300), (50, 1, 150), written=SOME, fill=7),
    "columns of long rows": Layout("f4", (6, 80, 900), (4, 3, 100)),
    "gzip": Layout("f4", (200, 4, 500), (16, 4, 500), "gzip", shuffle=True, fletcher32=True),
    "gzip, holes": Layout(">i2", (400, 4, 500), (16, 4, 500), "gzip", written=SOME, fill=7),
    "gzip, columns": Layout("i4", (90, 16, 300), (20, 7, 100), "gzip"),
    "gzip, columns of long rows": Layout("f4", (6, 80, 900), (4, 30, 400), "gzip"),
    "bzip2": Layout("i4", (60, 4, 500), (16, 4, 500), "bzip2"),
}


@pytest.mark.parametrize(
    ("kind", "io"),
    [(k, io) for k, one in LARGE.items() for io in IO[: 1 if one.compression != "none" else 2]],
)
def test_rows_of_several_pieces_read_as_h5py_reads_them(folder: Path, kind: str, io: str) -> None:
    path = write(folder, LARGE[kind])
    values, last = read_with_h5py(path), LARGE[kind].shape[2] - 1
    for region in ((), (slice(1, None), slice(3, 200, 2)), (1, np.array([last, 0, 5]))):
        check(reader_of(path, region, io=io), outer(values, region))
    path.unlink()


def test_rows_that_were_never_stored_are_filled_in_together(folder: Path) -> None:
    """Every third of them is no stretch of its own, to be filled in by itself."""
    path, calls = folder / "holes.h5", 0
    with h5py.File(path, "w") as file:
        rows = file.create_dataset("x", (30_000,), "u1", chunks=(1000,), fillvalue=7)
        rows.dims[0].label = "batch"
        rows[10_000:11_000] = 1

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    third = labeled.open_dataset(path)[::3]
    sys.setprofile(count)
    try:
        values = third.read_rows("x", 0, len(third))
    finally:
        sys.setprofile(None)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(values, file["x"][::3])
    assert calls < 1000
    path.unlink()


@pytest.mark.parametrize("compression", sorted(COMPRESSIONS))
@pytest.mark.parametrize("dtype", ["u1", ">f4"])
def test_each_filter_takes_its_own_path(folder: Path, compression: str, dtype: str) -> None:
    layout = Layout(dtype, (300, 5, 6), (64, 5, 6), compression, shuffle=True, fletcher32=True)
    path = write(folder, layout)
    reader = reader_of(path)

    assert reader.kind == ("chunked" if compression in BY_RANGE else "h5py"), reader.why
    check(reader, read_with_h5py(path))
    assert compression == "none" or compression.split(",")[0] in reader.why


@pytest.mark.parametrize(
    "order", [*permutations(("deflate", "shuffle", "fletcher32"))], ids="-".join
)
@pytest.mark.parametrize("dtype", ["u2", "i4", "f8"])
def test_filters_in_any_order_are_undone(folder: Path, order: tuple[str, ...], dtype: str) -> None:
    """C programs often ask for shuffle last; what is packed is then no whole number of elements."""
    path, plan = folder / "order.h5", h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    for name in order:
        getattr(plan, f"set_{name}")(*([4] if name == "deflate" else []))
    values = np.random.default_rng(0).integers(0, 300, (40, 9)).astype(dtype)
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=values, chunks=(7, 4), dcpl=plan)
    reader = reader_of(path)
    assert reader.kind == "chunked"
    check(reader, values)


def test_filters_that_hdf5_left_out_of_a_chunk_are_not_undone(folder: Path) -> None:
    """Random bytes do not shrink, so the deflate step skips them and says so in the mask."""
    path = folder / "mask.h5"
    noise = np.random.default_rng(0).integers(0, 1 << 16, (64, 100), dtype="u2")
    noise[16:32] = 3
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("x", noise.shape, "u2", chunks=(8, 100), compression="gzip")
        for start in range(0, 64, 8):
            part = noise[start : start + 8]
            if start % 16:
                dataset.id.write_direct_chunk((start, 0), part.tobytes(), filter_mask=1)
            else:
                dataset[start : start + 8] = part
    assert reader_of(path).kind == "chunked"
    check(reader_of(path), noise)


@pytest.mark.parametrize("kind", ["text", "virtual", "compact", "wide bool", "spaces"])
def test_what_hdf5_must_convert_goes_through_h5py(folder: Path, kind: str) -> None:
    path = folder / f"{kind}.h5"
    with h5py.File(path, "w") as file:
        _write_odd(file, kind)
    assert reader_of(path).kind == "h5py"
    check(reader_of(path), read_with_h5py(path))


def _write_odd(file: h5py.File, kind: str) -> None:
    numbers, space = np.arange(9), h5py.h5s.create_simple((9,))
    if kind == "text":
        file["x"] = [f"row {i}" * i for i in numbers]
    elif kind == "virtual":
        file["real"] = numbers
        layout = h5py.VirtualLayout((9,), "i8")
        layout[:] = h5py.VirtualSource(file["real"])
        file.create_virtual_dataset("x", layout)
    elif kind == "compact":
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I16LE, space, plist)
        file["x"][...] = numbers
    elif kind == "wide bool":
        wide = h5py.h5t.enum_create(h5py.h5t.STD_I32LE)
        wide.enum_insert(b"FALSE", 0)
        wide.enum_insert(b"TRUE", 1)
        h5py.h5d.create(file.id, b"x", wide, space)
        file["x"][...] = numbers % 2 == 0
    else:
        text = h5py.h5t.C_S1.copy()
        text.set_size(6)
        text.set_strpad(h5py.h5t.STR_SPACEPAD)
        h5py.h5d.create(file.id, b"x", text, space)
        file["x"][...] = numbers.astype("S4")


def test_chunks_with_odd_gaps_between_them_are_not_taken_for_one_stretch(folder: Path) -> None:
    path = folder / "odd.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (40, 5), "u1", chunks=(1, 5))
        y = file.create_dataset("y", (40, 3), "u1", chunks=(1, 3))
        for i in range(40):
            x[i], y[i] = i, 200
            file.flush()
    check(reader_of(path, io="pread"), np.repeat(np.arange(40, dtype="u1"), 5).reshape(40, 5))


@pytest.mark.parametrize(
    ("shape", "chunks", "maxshape"),
    [
        ((257, 1, 16), (1, 1, 3), (264, None, 23)),
        ((6, 4, 4), (2, 2, 2), (6, None, 4)),
        ((200, 6), (20, 4), (200, None)),
        ((20, 6), (4, 4), (None, 6)),
        ((20, 6), (4, 4), (None, None)),
        ((20, 6), (4, 4), (40, 12)),
    ],
)
@pytest.mark.parametrize("libver", [None, "latest", ("v110", "v114")])
def test_unlimited_axes_of_any_kind_read_as_h5py_reads_them(
    tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], maxshape: Any, libver: Any
) -> None:
    values = np.arange(np.prod(shape)).reshape(shape)
    path = tmp_path / "grown.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.create_dataset("x", data=values, chunks=chunks, maxshape=maxshape, compression="gzip")
    check(reader_of(path), values)


def test_few_chunks_of_a_huge_grid_are_found(tmp_path: Path) -> None:
    path = tmp_path / "sparse.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        x = file.create_dataset("x", (10**9, 2), "u1", chunks=(1, 2))
        for i in range(100):
            x.id.write_direct_chunk((i * 10**7, 0), b"ab")
    rows = opened(path).subset([0, 1, 10**7, 10**9 - 1])["x"].values
    assert rows.tolist() == [[97, 98], [0, 0], [97, 98], [0, 0]]


# what a read costs


@settings(max_examples=60)
@given(data=st.data())
def test_reading_costs_what_was_said(folder: Path, data: st.DataObject) -> None:
    layout = data.draw(layouts() | st.sampled_from([*LARGE.values()]))
    if layout.compression not in BY_RANGE:
        return
    path = write(folder, layout)
    region = data.draw(regions(layout.shape[1:]))
    reader, wanted = reader_of(elsewhere(path), region), data.draw(runs(layout.shape[0]))
    said = [n for part in reader.byte_ranges(wanted) for n in part.lengths.tolist()]
    out = np.empty((len(rows_of(wanted)), *reader.row_shape), reader.dtype)
    fetch = MemoryFileSystem.cat_file
    with mock.patch.object(MemoryFileSystem, "cat_file", autospec=True, side_effect=fetch) as calls:
        reader.read(wanted, out)
    fetched = [call.kwargs["end"] - call.kwargs["start"] for call in calls.call_args_list]
    assert sorted(fetched) == sorted(said)
    np.testing.assert_array_equal(out, outer(read_with_h5py(path), region)[rows_of(wanted)])
    path.unlink()


BIG = Layout("u1", (5000, 64))
PACKED = Layout("f4", (1000, 16), (10, 16), "gzip")
BLOCKS = Layout("f4", (100, 8, 8), (10, 4, 4), "gzip")
FAR = (slice(500, 516),)
COSTS: list[tuple[Layout, tuple, Any, tuple[int, int | None, int]]] = [
    (BIG, (), [[100, 600]], (1, 32_000, 0)),
    (BIG, (), [[0, 10], [20, 30], [3000, 3001]], (2, 31 * 64, 0)),
    (PACKED, (), [[5, 25], [27, 28], [29, 30], [990, 1000]], (2, None, 4)),
    (BLOCKS, (), [[0, 100]], (1, None, 40)),
    (BLOCKS, (slice(0, 3), 7), [[0, 100]], (1, None, 10)),
    (Layout("u1", (20, 100_000)), FAR, [[0, 20]], (20, 320, 0)),
    (Layout("u1", (20, 100_000), (5, 100_000)), FAR, [[0, 20]], (20, 320, 0)),
    (Layout("u1", (20, 100)), (slice(10, 12),), [[0, 20]], (1, 19 * 100 + 2, 0)),
]


@pytest.mark.parametrize(("layout", "region", "wanted", "cost"), COSTS)
def test_only_what_is_wanted_is_fetched_with_few_calls(
    folder: Path, layout: Layout, region: tuple, wanted: Any, cost: tuple
) -> None:
    (found,) = reader_of(write(folder, layout), region).byte_ranges(np.array(wanted))
    n_reads, n_bytes, n_chunks = cost
    assert found.chunks_decoded == n_chunks
    assert len(found.lengths) <= n_reads
    assert n_bytes is None or found.lengths.sum() == n_bytes


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note the memory that the system reads to, call by call."""
    targets: list[Any] = []
    preadv = os.preadv

    def noting(fd: int, buffers: Any, offset: int, *flags: int) -> int:
        if not flags:  # with flags it is asked whether a byte is in memory
            targets.extend(map(np.asarray, buffers))
        return preadv(fd, buffers, offset, *flags)

    monkeypatch.setattr(os, "preadv", noting)
    return targets


@pytest.mark.parametrize("distance", [0, 1, 4, 15, 16, 700, 4095])
def test_bytes_are_read_right_wherever_memory_lies(folder: Path, distance: int) -> None:
    path = write(folder, Layout("u1", (90, 4096)))
    held = np.zeros(91 * 4096 + 4096, np.uint8)
    out = held[-held.ctypes.data % 4096 + distance :][: 80 * 4096].reshape(80, 4096)
    reader_of(path).read(range(5, 85), out)
    np.testing.assert_array_equal(out, read_with_h5py(path)[5:85])


TILED = Layout("u1", (6000, 3, 16, 16), (50, 1, 8, 16))


def test_rows_of_thousands_of_chunks_are_cut_in_one_pass(tmp_path: Path) -> None:
    x = np.arange(12_000_000, dtype="u4").view("u1")[::4].reshape(3, 4_000_000)
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f.create_dataset("x", data=x, chunks=(3, 1000))
        f["x"].dims[0].label, f["x"].dims[1].label = "batch", "place"
    dataset = labeled.open_dataset(tmp_path / "x.h5")

    began = perf_counter()
    (batch,) = dataset.batches(3)
    took = perf_counter() - began

    np.testing.assert_array_equal(batch["x"], x)
    assert took < 5  # a pass over the row for each chunk took 13 s


@pytest.mark.parametrize("shuffle", [False, "window"])
def test_chunks_narrower_than_rows_are_read_together(
    folder: Path, reads: list[Any], shuffle: Any
) -> None:
    path = write(folder, TILED)
    values = read_with_h5py(path)
    loader = opened(path).batches(40, seed=1, shuffle=shuffle, memory="5 MiB")
    reads.clear()
    for batch in loader:
        np.testing.assert_array_equal(batch["x"].values, values[batch.rows])
    fetched = sum(target.nbytes for target in reads)
    assert values.nbytes <= loader.explain().sources[0].bytes_read <= 1.05 * values.nbytes
    assert values.nbytes <= fetched <= 1.05 * values.nbytes  # HDF5's own tables lie between
    assert len(reads) <= 2 * 6000 // 50  # and not six a band


# threads and processes


KINDS = {
    "contiguous": Layout(">i4", (3000, 20)),
    "chunked": Layout("u2", (3000, 20), (64, 7)),
    "gzip": Layout("f4", (3000, 20), (16, 20), "gzip", shuffle=True, fletcher32=True),
    "columns": Layout("i8", (3000, 20), (100, 6), "lz4", shuffle=True),
    "h5py": Layout("u1", (3000, 20), (64, 20), "bzip2"),
}

FORK = """
import os, pickle, sys, threading
datasets = pickle.load(sys.stdin.buffer)
before = [ds.read_rows("x", 0, 3000).tobytes() for ds in datasets]
stop = threading.Event()

def busy():
    while not stop.is_set():
        for ds in datasets:
            ds.read_rows("x", 7, 2900)

thread = threading.Thread(target=busy)
thread.start()
for _ in range(5):
    child = os.fork()
    if child == 0:
        same = [ds.read_rows("x", 0, 3000).tobytes() for ds in datasets] == before
        os._exit(0 if same else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
stop.set()
thread.join()
print([int(ds.read_rows("x", 0, 3000).astype("f8").sum()) for ds in datasets])
"""


def test_fresh_processes_and_children_forked_while_reading_read_the_same(tmp_path: Path) -> None:
    datasets = [opened(write(tmp_path, layout)) for layout in KINDS.values()]
    sums = [int(ds.read_rows("x", 0, 3000).astype("f8").sum()) for ds in datasets]
    data = pickle.dumps(datasets)
    assert len(data) < 20_000
    done = subprocess.run(
        [sys.executable, "-c", FORK], input=data, capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == str(sums)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_threads_read_at_once_what_one_reads(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, KINDS[kind])
    dataset, expected = opened(path), read_with_h5py(path)
    faults = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        try:
            for _ in range(20):
                start = int(rng.integers(2900))
                got = dataset.read_rows("x", start, start + 100)
                np.testing.assert_array_equal(got, expected[start : start + 100])
        except BaseException as fault:
            faults.append(fault)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


FEW_DESCRIPTORS = """
import os, resource, sys
paths = sys.argv[1:]
allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(paths), most))
import labeled
dataset = labeled.open_dataset(paths).select("x")
loader = dataset.batches(700, shuffle="full", seed=0, memory="8 MiB")
for batch in loader:  # opened in turn, and much is left for others
    assert len(os.listdir("/proc/self/fd")) < len(paths)
dataset.close()
try:
    while True:
        os.open(os.devnull, os.O_RDONLY)
except OSError:
    pass
try:
    next(iter(loader))
except labeled.LabeledError as error:
    print(error)
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_a_process_that_may_open_few_files_reads_many(tmp_path: Path) -> None:
    paths = [str(write(tmp_path, Layout("u1", (2000, 100), seed=i))) for i in range(60)]
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FEW_DESCRIPTORS, *paths],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert re.search("cannot open .*as many files open as it may.*ulimit -n", ran.stdout)
