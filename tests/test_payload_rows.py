"""Readers give what h5py gives: any layout, any region, any rows, in any order."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from payload_files import (
    BY_RANGE,
    COMPRESSIONS,
    Layout,
    header_of,
    layouts,
    outer,
    read_with_h5py,
    regions,
    small_units,
    write,
)

from labeled.errors import LoaderError, SelectionError, SelectionTypeError
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.reader import PIECE_BYTES, Reader, cost, read_rows
from labeled.testing import ReaderTests

IO = ["auto", "pread", "mmap"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("payload")


LAWS = [name for name in dir(ReaderTests) if name.startswith("test_")]


def check(reader: Reader, expected: np.ndarray) -> None:
    """Hold a reader to all laws of readers."""
    for law in LAWS:
        getattr(ReaderTests(), law)(reader, expected)


@settings(max_examples=80)
@given(layouts(), st.sampled_from(IO), st.sampled_from([64, 700, 1 << 19]), st.data())
def test_any_layout_reads_as_h5py_reads_it(
    folder: Path, layout: Layout, io: str, piece: int, data: st.DataObject
) -> None:
    path = write(folder, layout)
    header = header_of(path)
    region = data.draw(regions(header.row_shape))

    with small_units(piece, gap=data.draw(st.sampled_from([0, 8, 1 << 14]))):
        reader = open_reader(header, region=region, io=io)
        check(reader, outer(read_with_h5py(path), region))
    path.unlink()


@pytest.mark.parametrize("compression", sorted(COMPRESSIONS))
@pytest.mark.parametrize("dtype", ["u1", ">f4", "<f8"])
def test_each_filter_takes_its_own_path(folder: Path, compression: str, dtype: str) -> None:
    layout = Layout(dtype, (300, 5, 6), (64, 5, 6), compression, shuffle=True, fletcher32=True)
    path = write(folder, layout)
    reader = open_reader(header_of(path))

    assert reader.kind == ("chunked" if compression in BY_RANGE else "h5py"), reader.why
    check(reader, read_with_h5py(path))
    assert compression == "none" or any(
        step.name in reader.why or str(step.id) in reader.why for step in reader.source.filters
    )


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

    reader = open_reader(header_of(path))
    np.testing.assert_array_equal(read_rows(reader, range(64)), noise)
    assert reader.kind == "chunked"


@pytest.mark.parametrize("kind", ["text", "vlen", "virtual", "compact", "wide bool", "spaces"])
def test_what_hdf5_must_convert_goes_through_h5py(folder: Path, kind: str) -> None:
    path = folder / f"{kind}.h5"
    with h5py.File(path, "w") as file:
        _write_odd(file, kind)
    reader = open_reader(header_of(path))
    expected = read_with_h5py(path)

    assert reader.kind == "h5py"
    assert reader.why
    check(reader, expected)


def _write_odd(file: h5py.File, kind: str) -> None:
    numbers = np.arange(9)
    if kind == "text":
        file["x"] = [f"row {i}" * i for i in numbers]
    elif kind == "vlen":
        x = file.create_dataset("x", (9,), h5py.vlen_dtype("i4"))
        for i in numbers:
            x[i] = np.arange(i)
    elif kind == "virtual":
        file["real"] = numbers
        layout = h5py.VirtualLayout((9,), "i8")
        layout[:] = h5py.VirtualSource(file["real"])
        file.create_virtual_dataset("x", layout)
    elif kind == "compact":
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((9,))
        h5py.h5d.create(file.id, b"x", h5py.h5t.STD_I16LE, space, plist)
        file["x"][...] = numbers
    elif kind == "wide bool":
        wide = h5py.h5t.enum_create(h5py.h5t.STD_I32LE)
        wide.enum_insert(b"FALSE", 0)
        wide.enum_insert(b"TRUE", 1)
        h5py.h5d.create(file.id, b"x", wide, h5py.h5s.create_simple((9,)))
        file["x"][...] = numbers % 2 == 0
    else:
        text = h5py.h5t.C_S1.copy()
        text.set_size(6)
        text.set_strpad(h5py.h5t.STR_SPACEPAD)
        h5py.h5d.create(file.id, b"x", text, h5py.h5s.create_simple((9,)))
        file["x"][...] = numbers.astype("S4")


@pytest.mark.parametrize("compression", ["none", "gzip", "bzip2"])
def test_rows_without_elements_are_not_read(folder: Path, compression: str) -> None:
    path = write(folder, Layout("i4", (10, 4, 2), (3, 4, 2), compression))
    reader = open_reader(header_of(path), region=(np.empty(0, np.int64),))
    assert read_rows(reader, range(10)).shape == (10, 0, 2)
    assert read_rows(reader, np.array([3, 3, 1])).shape == (3, 0, 2)
    assert reader.byte_ranges(range(10)) == ()


def test_long_stretches_that_were_never_written_are_filled(folder: Path) -> None:
    for compression in ("none", "gzip"):
        layout = Layout("u2", (4000, 300), (50, 300), compression, written=((0, 70),), fill=7)
        path = write(folder, layout)
        reader = open_reader(header_of(path))
        assert cost(reader, range(100, 4000)).n_reads == 0
        np.testing.assert_array_equal(read_rows(reader, range(4000)), read_with_h5py(path))
        some = np.array([3999, 60, 2])
        np.testing.assert_array_equal(read_rows(reader, some), read_with_h5py(path)[some])


def test_a_chunk_after_one_that_was_never_written_is_read(folder: Path) -> None:
    path = write(folder, Layout("u1", (4, 10), (1, 10), "gzip", written=((1, 2), (3, 4)), fill=7))
    out = np.full((4, 10), 99, "u1")  # fresh memory may hold the right bytes by chance
    open_reader(header_of(path)).read(range(4), out)
    np.testing.assert_array_equal(out, read_with_h5py(path))


def test_chunks_with_odd_gaps_between_them_are_not_taken_for_one_stretch(folder: Path) -> None:
    path = folder / "odd.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (40, 5), "u1", chunks=(1, 5))
        y = file.create_dataset("y", (40, 3), "u1", chunks=(1, 3))
        for i in range(40):
            x[i], y[i] = i, 200
            file.flush()
    reader = open_reader(header_of(path), io="pread")
    expected = np.repeat(np.arange(40), 5).reshape(40, 5)
    np.testing.assert_array_equal(read_rows(reader, range(40)), expected)
    np.testing.assert_array_equal(read_rows(reader, np.array([7, 3, 5, 4])), expected[[7, 3, 5, 4]])


def test_a_pickle_is_small_and_reads_the_same(folder: Path) -> None:
    path = write(folder, Layout(">f4", (500, 6), (7, 3), "gzip", shuffle=True))
    reader = open_reader(header_of(path), region=(slice(1, 5, 2),), io="pread")
    first = read_rows(reader, np.arange(500))

    data = pickle.dumps(reader)
    again = pickle.loads(data)
    assert len(data) < 1500
    assert again.io == "pread"
    np.testing.assert_array_equal(read_rows(again, np.arange(500)), first)


BAD_RUNS = [[[0, 11]], [[-1, 3]], [[4, 2]], [[0, 5], [4, 6]], [[5, 6], [0, 1]], [[1, 2, 3]]]


@pytest.mark.parametrize("bad", BAD_RUNS, ids=str)
def test_runs_that_do_not_fit_are_refused(folder: Path, bad: list[list[int]]) -> None:
    path = write(folder, Layout("i4", (10,)))
    reader = open_reader(header_of(path))
    with pytest.raises(SelectionError, match=r"'x' in '.*\.h5': runs must"):
        reader.byte_ranges(np.array(bad))


def test_what_does_not_fit_is_refused_before_reading(folder: Path) -> None:
    path = write(folder, Layout("i4", (10, 3)))
    header = header_of(path)
    reader = open_reader(header)
    path.unlink()

    with pytest.raises(SelectionError, match="rows 0 to 10 were asked for"):
        read_rows(reader, np.array([0, 10]))
    with pytest.raises(SelectionError, match="rows -1 to 2 were asked for"):
        read_rows(reader, np.array([-1, 2]))
    with pytest.raises(SelectionError, match=r"needs an array of 4 x \(3,\) int32"):
        reader.read(np.arange(4), np.empty((4, 3), "i8"))
    with pytest.raises(SelectionError, match="C-ordered"):
        reader.read(np.arange(4), np.empty((3, 4), "i4").T)
    with pytest.raises(SelectionError, match="4 places for 2 rows"):
        reader.read(np.array([[0, 2]]), np.empty((4, 3), "i4"), np.arange(4))
    with pytest.raises(SelectionError, match="axis 1: 3 lies outside"):
        open_reader(header, region=(3,))
    with pytest.raises(SelectionError, match="2 indexers for 1 axes"):
        open_reader(header, region=(0, 0))
    with pytest.raises(SelectionTypeError, match="positive step"):
        open_reader(header, region=(slice(None, None, -1),))
    with pytest.raises(LoaderError, match="io must be 'auto', 'pread' or 'mmap', found 'fast'"):
        open_reader(header, io="fast")
    with pytest.raises(SelectionTypeError, match="expected integers"):
        open_reader(header, region=("a",))


@pytest.mark.parametrize("dtype", ["u1", ">f4", ">c8"])
@pytest.mark.parametrize("mebibytes", [3, 9])
def test_large_runs_are_read_with_few_calls_directly_to_their_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, mebibytes: int
) -> None:
    row = np.arange((1 << 12) // np.dtype(dtype).itemsize)
    rows = (row + np.arange(256 * mebibytes + 7)[:, None]).astype(dtype)
    path = folder / "large.h5"
    with h5py.File(path, "w") as file:
        file["x"] = rows
    reader = open_reader(header_of(path))
    out = np.empty((256 * mebibytes, *reader.row_shape), reader.dtype)
    targets, preadv = [], os.preadv

    def noting(fd: int, buffers: list, offset: int) -> int:
        targets.extend(buffers)
        return preadv(fd, buffers, offset)

    monkeypatch.setattr("labeled.formats.bytesource.os.preadv", noting)
    reader.read(range(3, 3 + len(out)), out)

    np.testing.assert_array_equal(out, rows[3:-4])
    assert len(targets) == 1
    assert all(np.shares_memory(out, target) for target in targets)


def test_a_large_run_goes_to_scattered_places_through_little_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (3 << 8, 1 << 12), np.uint8)
    path = folder / "scattered.h5"
    with h5py.File(path, "w") as file:
        file["x"] = rows
    reader = open_reader(header_of(path))
    dest = np.random.default_rng(1).permutation(len(rows))
    sizes, preadv = [], os.preadv

    def noting(fd: int, buffers: list, offset: int) -> int:
        sizes.extend(buffer.nbytes for buffer in buffers)
        return preadv(fd, buffers, offset)

    monkeypatch.setattr("labeled.formats.bytesource.os.preadv", noting)
    out = np.empty_like(rows)
    reader.read(range(len(rows)), out, dest)

    np.testing.assert_array_equal(out[dest], rows)
    assert max(sizes) <= 2 * PIECE_BYTES
