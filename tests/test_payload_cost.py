"""Costs are counts, not estimates: what a counting file sees is what was said before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from payload_files import (
    BY_RANGE,
    Layout,
    header_of,
    layouts,
    moved,
    outer,
    read_with_h5py,
    regions,
    rows_of,
    runs,
    small_units,
    write,
)

from labeled.errors import FileChangedError, FileFormatError
from labeled.formats.bytesource import register_opener
from labeled.formats.hdf5.chunkindex import chunk_index
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.reader import Reader, advise, cost, read_rows


class CountingSource:
    """A file in memory that notes what is fetched from it."""

    def __init__(self, path: str) -> None:
        self.data = Path(path.partition("://")[2]).read_bytes()
        self.size = len(self.data)
        self.reads = READS.setdefault(path, [])

    def pread(self, offset: int, n: int) -> bytes:
        self.reads.append(n)
        return self.data[offset : offset + n]


READS: dict[str, list[int]] = {}
register_opener("counted", CountingSource)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cost")


def counted_reader(path: Path, region: tuple) -> Reader:
    return open_reader(moved(header_of(path), f"counted://{path}"), region=region)


@settings(max_examples=120)
@given(layouts(), st.sampled_from([64, 700, 1 << 19]), st.sampled_from([0, 8, 1 << 14]), st.data())
def test_reading_costs_what_was_said(
    folder: Path, layout: Layout, piece: int, gap: int, data: st.DataObject
) -> None:
    path = write(folder, layout)
    region = data.draw(regions(layout.shape[1:]))
    wanted = data.draw(runs(layout.shape[0]))
    with small_units(piece, gap):
        reader = counted_reader(path, region)
        if layout.compression not in BY_RANGE:
            return
        told = cost(reader, wanted)
        out = np.empty((len(rows_of(wanted)), *reader.row_shape), reader.dtype)
        reads = READS.setdefault(f"counted://{path}", [])
        reads.clear()
        reader.read(wanted, out)
        assert told.n_reads == len(reads)
        assert told.bytes_read == sum(reads)
    assert told.bytes_used == out.nbytes
    np.testing.assert_array_equal(out, outer(read_with_h5py(path), region)[rows_of(wanted)])
    path.unlink()


def test_contiguous_rows_cost_their_bytes_and_one_read(folder: Path) -> None:
    path = write(folder, Layout("u1", (5000, 64)))
    reader = open_reader(header_of(path))
    told = cost(reader, np.array([[100, 600]]))
    assert (told.bytes_read, told.bytes_used, told.n_reads) == (32_000, 32_000, 1)
    assert told.chunks_decoded == 0
    apart = cost(reader, np.array([[0, 10], [20, 30], [3000, 3001]]))
    assert (apart.bytes_read, apart.bytes_used, apart.n_reads) == (31 * 64, 21 * 64, 2)


def test_each_touched_chunk_is_decoded_once(folder: Path) -> None:
    path = write(folder, Layout("f4", (1000, 16), (10, 16), "gzip"))
    header = header_of(path)
    told = cost(open_reader(header), np.array([[5, 25], [27, 28], [29, 30], [990, 1000]]))
    assert told.chunks_decoded == 4
    sizes = chunk_index(header).sizes
    assert told.bytes_read >= sizes[[0, 1, 2, 99]].sum()


def test_a_region_reads_only_the_chunks_it_touches(folder: Path) -> None:
    path = write(folder, Layout("f4", (100, 8, 8), (10, 4, 4), "gzip"))
    header = header_of(path)
    assert cost(open_reader(header), range(100)).chunks_decoded == 40
    corner = open_reader(header, region=(slice(0, 3), 7))
    assert cost(corner, range(100)).chunks_decoded == 10
    assert cost(corner, range(100)).bytes_used == 100 * 3 * 4
    np.testing.assert_array_equal(read_rows(corner, range(100)), read_with_h5py(path)[:, :3, 7])


def test_a_region_of_unfiltered_data_reads_only_the_bytes_it_needs(folder: Path) -> None:
    for chunks in (None, (5, 100_000)):
        path = write(folder, Layout("u1", (20, 100_000), chunks))
        reader = open_reader(header_of(path), region=(slice(500, 516),))
        told = cost(reader, range(20))
        assert (told.bytes_read, told.bytes_used, told.n_reads) == (320, 320, 20)


def test_small_gaps_between_rows_of_a_region_are_read_through(folder: Path) -> None:
    path = write(folder, Layout("u1", (20, 100)))
    reader = counted_reader(path, (slice(10, 12),))
    read_rows(reader, range(20))
    assert READS[f"counted://{path}"] == [19 * 100 + 2]
    assert cost(reader, range(20)).bytes_read == 19 * 100 + 2


def test_any_url_with_an_opener_is_read(folder: Path) -> None:
    path = write(folder, Layout(">f4", (300, 7), (16, 4), "gzip", shuffle=True))
    reader = counted_reader(path, ())
    order = np.array([299, 0, 0, 17])
    np.testing.assert_array_equal(read_rows(reader, order), read_with_h5py(path)[order])
    assert reader.kind == "chunked"
    advise(reader, range(300))


def test_fsspec_reads_what_has_no_opener(folder: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    path = write(folder, Layout("i2", (300, 7), (16, 7), "gzip"))
    fsspec.filesystem("memory").pipe_file("/payload.h5", path.read_bytes())
    header = moved(header_of(path), "memory://payload.h5")
    rows = np.arange(0, 300, 7)
    np.testing.assert_array_equal(read_rows(open_reader(header), rows), read_with_h5py(path)[rows])

    fsspec.filesystem("memory").pipe_file("/payload.h5", path.read_bytes() + b"?")
    moved_on = moved(header, "memory:///payload.h5")
    with pytest.raises(FileChangedError, match=r"payload\.h5.*bytes then"):
        read_rows(open_reader(moved_on), rows)
    with pytest.raises(FileFormatError, match="cannot open 'memory://gone"):
        read_rows(open_reader(moved(header, "memory://gone.h5")), rows)
