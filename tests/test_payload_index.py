"""The chunk table says what HDF5 says, is small, and is built once."""

from __future__ import annotations

import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from payload_files import COMPRESSIONS, Layout, header_of, layouts, write

from labeled.errors import LabeledWarning
from labeled.formats.hdf5 import chunkindex
from labeled.formats.hdf5.chunkindex import build_index, chunk_index
from labeled.formats.hdf5.format import scan
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.reader import UNSTORED, read_rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("index")


@given(layouts(compression="gzip"))
def test_a_table_says_what_hdf5_says_of_each_chunk(folder: Path, layout: Layout) -> None:
    path = write(folder, layout)
    header = header_of(path)
    index = build_index(header)
    grid = tuple(-(-n // c) for n, c in zip(layout.shape, layout.chunks, strict=True))
    assert index.grid == grid
    expected = {}
    with h5py.File(path, "r") as file:
        dataset = file["x"]
        for i in range(dataset.id.get_num_chunks()):
            info = dataset.id.get_chunk_info(i)
            at = tuple(np.array(info.chunk_offset) // layout.chunks)
            expected[int(np.ravel_multi_index(at, grid))] = (info.byte_offset, info.size)
    numbers = np.arange(int(np.prod(grid)))
    offsets, sizes, masks = index.find(numbers)
    found = {int(n): (int(offsets[n]), int(sizes[n])) for n in numbers if offsets[n] != UNSTORED}
    assert found == expected
    assert not masks.any()
    path.unlink()


def many_chunks(path: Path, n: int, *, step: int = 1, **options: object) -> None:
    # HDF5 walks through every place of a fixed array, but only through the chunks of a B-tree
    with h5py.File(path, "w", libver=("v110", "v114") if step == 1 else "earliest") as file:
        x = file.create_dataset("x", (n * step, 2), "u1", chunks=(1, 2), **options)
        for i in range(n):
            x.id.write_direct_chunk((i * step, 0), b"ab", filter_mask=1 if options else 0)


def test_a_hundred_thousand_chunks_take_little_memory(folder: Path) -> None:
    path = folder / "many.h5"
    many_chunks(path, 100_000)
    header = header_of(path)
    tracemalloc.start()
    index = build_index(header)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert index.nbytes == 12 * 100_000
    assert peak < 60 * 100_000 + (8 << 20)  # the latter for what is taken apart at once
    assert index.numbers is None
    assert read_rows(open_reader(header), np.array([99_999, 0])).tolist() == [[97, 98]] * 2


def test_few_chunks_of_a_huge_grid_take_little_memory(folder: Path) -> None:
    path = folder / "sparse.h5"
    many_chunks(path, 100, step=10_000_000)
    index = build_index(header_of(path))
    assert index.nbytes == 20 * 100
    reader = open_reader(header_of(path))
    assert read_rows(reader, np.array([0, 1, 10_000_000, 999_999_999])).tolist() == [
        [97, 98],
        [0, 0],
        [97, 98],
        [0, 0],
    ]


def test_masks_are_kept_only_where_there_are_any(folder: Path) -> None:
    path = folder / "masks.h5"
    many_chunks(path, 10, compression="gzip")
    index = build_index(header_of(path))
    assert index.find(np.array([3]))[2].tolist() == [1]
    assert read_rows(open_reader(header_of(path)), range(10)).tolist() == [[97, 98]] * 10


def test_threads_build_a_table_once_and_share_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(folder, Layout("u1", (500, 3), (1, 3), "gzip"))
    header = header_of(path)
    calls = []
    real = chunkindex.build_index
    monkeypatch.setattr(chunkindex, "build_index", lambda source: calls.append(1) or real(source))
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(chunk_index(header_of(path))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert calls == [1]
    assert all(index is found[0] for index in found)
    assert chunk_index(header) is found[0]


def test_tables_beyond_the_limit_are_forgotten_oldest_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunkindex, "_CACHE", chunkindex._Cache())
    headers = [
        header_of(write(folder, Layout("u1", (100, 3), (1, 3), seed=seed))) for seed in range(4)
    ]
    monkeypatch.setattr(chunkindex, "CACHE_BYTES", 2 * 1200 + 100)
    first = [chunk_index(header) for header in headers]
    again = [chunk_index(header) for header in reversed(headers)]
    kept = [old is new for old, new in zip(first, reversed(again), strict=True)]
    assert kept == [False, False, True, True]


def test_a_table_more_does_not_look_at_all_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Table:
        @property
        def nbytes(self) -> int:
            asked.append(1)
            return 40

    header = header_of(write(folder, Layout("u1", (10, 3), (1, 3))))
    monkeypatch.setattr(chunkindex, "build_index", lambda source: Table())
    cache = chunkindex._Cache()
    for number in range(300):
        cache.get(replace(header, key=f"x{number}"))
    assert len(cache.held) == 300
    assert len(asked) == 300


@pytest.mark.parametrize("libver", ["earliest", ("v110", "v114")])
@pytest.mark.parametrize("maxshape", [(200, 6), (None, 6), (None, None)])
def test_every_kind_of_chunk_table_is_read(
    folder: Path, libver: object, maxshape: tuple[int | None, ...]
) -> None:
    """B-trees of both versions, fixed and extensible arrays, one chunk alone."""
    data = np.random.default_rng(0).integers(0, 9, (200, 6), "i4")
    for n, chunks in enumerate([(7, 4), (200, 6)]):
        path = folder / f"{libver[0]}_{maxshape}_{n}.h5"
        with h5py.File(path, "w", libver=libver) as file:
            file.create_dataset(
                "x", data=data, chunks=chunks, maxshape=maxshape, **COMPRESSIONS["gzip"]
            )
        reader = open_reader(header_of(path))
        np.testing.assert_array_equal(read_rows(reader, range(200)), data)
        assert reader.kind == "chunked"


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
    with pytest.warns(LabeledWarning, match="label"):
        header = scan(str(path)).sources["x"]
    reader = open_reader(header)
    np.testing.assert_array_equal(read_rows(reader, range(len(values))), values)
    np.testing.assert_array_equal(read_rows(reader, np.array([5, 0, 5])), values[[5, 0, 5]])
