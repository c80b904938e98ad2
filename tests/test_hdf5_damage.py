"""A file that changed, ends early or is damaged gives an error that says where."""

from __future__ import annotations

import errno
import mmap
import os
import re
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hdf5_layouts import (
    BY_RANGE,
    COMPRESSIONS,
    Layout,
    elsewhere,
    opened,
    read_with_h5py,
    write,
)

import labeled
from labeled.errors import (
    FileChangedError,
    FileFormatError,
    LabeledError,
    LabeledWarning,
    MissingExtraError,
    ReadError,
)

CONTIGUOUS = Layout("u1", (2000, 100))
CHUNKED = Layout("u1", (2000, 100), (50, 100))
GZIP = Layout("i4", (2000, 100), (50, 100), "gzip", shuffle=True)
CHECKED = Layout("i4", (2000, 100), (50, 100), "gzip", fletcher32=True)
H5PY = Layout("i4", (2000, 100), (50, 100), "bzip2")
DIMS = {"x": ("batch", "n")}

every_kind = pytest.mark.parametrize(
    "layout", [CONTIGUOUS, CHUNKED, GZIP, H5PY], ids=["contiguous", "chunked", "gzip", "h5py"]
)


# files that are others now


@every_kind
@pytest.mark.parametrize("how", ["runs", "rows"])
def test_a_file_truncated_after_opening_has_changed(
    tmp_path: Path, layout: Layout, how: str
) -> None:
    path = write(tmp_path, layout)
    dataset = opened(path)
    some = dataset.subset(slice(None) if how == "runs" else [1999, 3])["x"]
    os.truncate(path, path.stat().st_size // 2)

    with pytest.raises(FileChangedError, match=rf"{path.name}.*bytes then.*Open it again"):
        some.compute()


@every_kind
def test_a_file_written_to_after_opening_has_changed(tmp_path: Path, layout: Layout) -> None:
    path = write(tmp_path, layout)
    dataset = opened(path)
    dataset.read_rows("x", 0, 10)
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))

    with pytest.raises(FileChangedError, match=rf"{path.name}.*modified at 20\d\d-"):
        dataset.subset([7, 3])["x"].compute()


@pytest.mark.parametrize("layout", [CONTIGUOUS, CHUNKED, GZIP, H5PY, None])
def test_a_file_truncated_while_it_is_read_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout | None
) -> None:
    path = write(tmp_path, layout or CONTIGUOUS)
    if layout is None:
        with h5py.File(path, "w") as file:
            rows = file.create_dataset("x", (2000,), h5py.vlen_dtype("i4"))
            for row in range(2000):
                rows[row] = np.arange(row % 50)
    names = ("batch", "n")
    dataset = labeled.open_dataset(path, sources=["x"], dims={"x": names}, io="pread")

    def truncated(read: Any) -> Any:
        def reading(*args: Any) -> Any:
            os.truncate(path, 1000)
            return read(*args)

        return reading

    if layout in (H5PY, None):
        monkeypatch.setattr(h5py.Dataset, "__getitem__", truncated(h5py.Dataset.__getitem__))
    else:
        monkeypatch.setattr(os, "preadv", truncated(os.preadv))
    with pytest.raises(FileChangedError, match=rf"{path.name}.*bytes then.*Open it again"):
        next(iter(dataset.batches(1900)))


@every_kind
def test_a_file_that_is_gone_is_named(tmp_path: Path, layout: Layout) -> None:
    path = write(tmp_path, layout)
    dataset = opened(path)
    path.unlink()
    with pytest.raises(FileFormatError, match=path.name):
        dataset.read_rows("x", 0, 10)


@pytest.mark.parametrize("remote", [False, True])
def test_a_short_read_names_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: bool
) -> None:
    """As when the file shrinks between the check and the read."""
    path = write(tmp_path, CONTIGUOUS)
    dataset = opened(elsewhere(path) if remote else path, io="pread")
    assert len(dataset.read_rows("x", 0, 100)) == 100
    end, preadv, fetch = path.stat().st_size - 30_000, os.preadv, MemoryFileSystem.cat_file

    def shorter(fd: int, buffers: Any, offset: int, *flags: int) -> int:
        parts = [memoryview(b).cast("B")[: max(end - offset, 0)] for b in buffers]
        return preadv(fd, parts, offset, *flags) if len(parts[0]) else 0

    def less(self: Any, path: str, start: int, end_: int = 0, **options: Any) -> bytes:
        return bytes(fetch(self, path, start, min(options.get("end", end_), end)))

    monkeypatch.setattr(os, "preadv", shorter)
    monkeypatch.setattr(MemoryFileSystem, "cat_file", less)
    with pytest.raises(ReadError, match=r"'x' in .*, rows 1000 to 1999: the file ends early"):
        dataset.read_rows("x", 1000, 2000)


@every_kind
@pytest.mark.parametrize("fault", [errno.ENODEV, errno.ENOMEM, errno.EMFILE])
def test_a_file_that_cannot_be_mapped_is_read_by_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout, fault: int
) -> None:
    """Some file systems have no maps; address space and descriptors come to an end."""

    def refused(*args: object, **options: object) -> None:
        raise OSError(fault, os.strerror(fault))

    rows = np.random.default_rng(0).permutation(2000)
    path = write(tmp_path, layout)
    monkeypatch.setattr(mmap, "mmap", refused)
    for io in ("auto", "mmap"):
        found = opened(path, io=io).subset(rows)["x"].values
        np.testing.assert_array_equal(found, read_with_h5py(path)[rows])


# chunks


def chunk_at(path: Path, row: int) -> tuple[int, int]:
    with h5py.File(path, "r") as file:
        info = file["x"].id.get_chunk_info_by_coord((row, 0))
        return info.byte_offset, info.size


def overwrite(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("layout", [GZIP, CHECKED], ids=["deflate", "fletcher32"])
def test_a_damaged_chunk_names_its_rows(tmp_path: Path, layout: Layout) -> None:
    path = write(tmp_path, layout)
    at, size = chunk_at(path, 150)
    overwrite(path, at + size // 2, b"\xff\x00\xff\x00\xff\x00\xff\x00")
    dataset = opened(path)

    what = "fletcher32 checksum" if layout.fletcher32 else "deflate data are damaged"
    with pytest.raises(ReadError, match=rf"'x' in .*, rows 150 to 199: the chunk .*{what}"):
        dataset.read_rows("x", 0, 2000)
    with pytest.raises(ReadError, match="rows 150 to 199"):
        dataset.subset([199, 0])["x"].compute()
    assert dataset.read_rows("x", 0, 150).shape == (150, 100)
    assert dataset.subset([200, 149])["x"].values.shape == (2, 100)


def test_damage_on_the_way_through_h5py_names_the_rows(tmp_path: Path) -> None:
    path = write(tmp_path, H5PY)
    at, size = chunk_at(path, 0)
    overwrite(path, at, b"\xff" * size)
    with pytest.raises(ReadError, match=r"source 'x' in .*, rows 0 to"):
        opened(path).read_rows("x", 0, 20)


def test_more_stored_bytes_than_a_chunk_can_need_are_not_fetched(tmp_path: Path) -> None:
    path = tmp_path / "fat.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (4, 10), "u1", chunks=(1, 10), compression="gzip")
        x.id.write_direct_chunk((2, 0), bytes(100_000))
    dataset = opened(path)
    assert dataset.read_rows("x", 0, 2).tolist() == [[0] * 10] * 2
    with pytest.raises(ReadError, match=r"rows 2 to 2: the chunk .* more bytes stored"):
        dataset.read_rows("x", 0, 4)


SHAPE = (40, 33)


def stored_by_hdf5(folder: Path, compression: str) -> tuple[np.ndarray, bytes]:
    """Return the rows of one chunk, and its bytes in the file."""
    rows = np.random.default_rng(1).integers(0, 9, SHAPE).astype("i4")
    with h5py.File(folder / "good.h5", "w") as file:
        x = file.create_dataset("x", data=rows, chunks=SHAPE, **COMPRESSIONS[compression])
        return rows, x.id.read_direct_chunk((0, 0))[1]


def read_chunk(folder: Path, compression: Any, stored: bytes, shape: tuple[int, int]) -> Any:
    """Read a file with one chunk of these bytes; None where it is refused with its place."""
    if not isinstance(compression, dict):
        compression = COMPRESSIONS[compression]
    with h5py.File(folder / "one.h5", "w") as file:
        x = file.create_dataset("x", shape, "i4", chunks=shape, **compression)
        x.id.write_direct_chunk((0, 0), stored)
    try:
        return opened(folder / "one.h5").read_rows("x", 0, shape[0])
    except ReadError as error:
        words = r"'x' in .*one.h5', rows 0 to \d+: the chunk at byte \d+ is damaged"
        return None if re.search(words, str(error)) else error


@pytest.mark.parametrize("compression", sorted(BY_RANGE - {"none", "bitshuffle, no codec"}))
def test_damage_never_gets_past_the_size(tmp_path: Path, compression: str) -> None:
    """Any byte may be wrong: the outcome has the right size, or is an error that says so."""
    rows, stored = stored_by_hdf5(tmp_path, compression)
    np.testing.assert_array_equal(read_chunk(tmp_path, compression, stored, SHAPE), rows)
    rng, refused = np.random.default_rng(0), 0
    for _ in range(60):
        bad = bytearray(stored)
        bad[rng.integers(len(bad))] ^= 1 << int(rng.integers(8))
        refused += read_chunk(tmp_path, compression, bytes(bad), SHAPE) is None
    assert refused
    for n in (1, 3, 11, 12, 15, 17, len(stored) // 2, len(stored) - 1):
        assert read_chunk(tmp_path, compression, stored[:n], SHAPE) is None
    for shape in ((1, 25), (40, 32), (40, 34), (1024, 256)):
        assert read_chunk(tmp_path, compression, stored, shape) is None


def test_what_a_stream_claims_is_not_allocated(tmp_path: Path) -> None:
    huge = 1 << 50
    streams = {
        "zstd": b"\x28\xb5\x2f\xfd" + bytes([0b11100000]) + struct.pack("<Q", huge) + bytes(20),
        "lz4": struct.pack(">QII", huge, 1 << 30, 12) + bytes(12),
        "blosc": struct.pack("<4BIII", 2, 1, 0x21, 4, (1 << 32) - 1, 1 << 20, 40) + bytes(24),
        "bitshuffle": struct.pack(">QI", huge, 1 << 30) + bytes(12),
        "gzip": zlib.compress(bytes(10_000_000)),
    }
    for compression, stream in streams.items():
        assert read_chunk(tmp_path, compression, stream, SHAPE) is None


def test_checksums_are_those_of_hdf5_of_any_version(tmp_path: Path) -> None:
    """HDF5 1.6.2 and older swapped the bytes of each half."""
    rows = np.arange(1320, dtype="i4").reshape(SHAPE)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        x = file.create_dataset("x", data=rows, chunks=SHAPE, fletcher32=True)
        stored = x.id.read_direct_chunk((0, 0))[1]
    *body, a, b, c, d = stored
    for end, good in (((a, b, c, d), True), ((b, a, d, c), True), ((a, b, d, c), False)):
        found = read_chunk(tmp_path, {"fletcher32": True}, bytes([*body, *end]), SHAPE)
        assert np.array_equal(found, rows) if good else found is None


@pytest.mark.parametrize("dtype", ["u1", "<u2", ">i4", "f8", "c16", "S3"])
def test_compiled_kernels_undo_a_shuffle(tmp_path: Path, dtype: str) -> None:
    pytest.importorskip("numba")  # what makes them used
    for n in (1, 3, 720, 4097):
        raw = np.random.default_rng(n).integers(0, 256, n * np.dtype(dtype).itemsize, "u1")
        rows = raw.view(dtype)[:, None]
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file.create_dataset("x", data=rows, chunks=rows.shape, shuffle=True)
        np.testing.assert_array_equal(opened(tmp_path / "x.h5").read_rows("x", 0, n), rows)


def test_a_filter_that_nothing_undoes_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, Layout("i4", (20, 3), (5, 3), "bzip2"))
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    monkeypatch.setattr(h5py.h5z, "filter_avail", lambda code: False)
    with pytest.warns(LabeledWarning, match=r"no row of 'x' can be read: .*bzip2 \(307\)"):
        dataset = opened(path)
    with pytest.raises(MissingExtraError, match=r"'x' in .*\(307\).*extra 'codecs'"):
        dataset.read_rows("x", 0, 3)


# tables of chunks


def test_contiguous_data_beyond_the_file_is_found_before_reading(tmp_path: Path) -> None:
    path = write(tmp_path, CONTIGUOUS)
    with h5py.File(path) as file:
        place = struct.pack("<Q", file["x"].id.get_offset())
    whole = path.read_bytes()
    assert whole.count(place) == 1
    overwrite(path, whole.index(place), struct.pack("<Q", len(whole) - 1000))
    with pytest.raises(FileFormatError, match=path.name):
        labeled.open_dataset(path, dims=DIMS, sources=["x"]).read_rows("x", 0, 10)


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (8, 2, r"off the grid|should lie|is there twice|is not found"),
        (32, 1 << 40, r"the chunk at position \(\d+, 0\) should lie at"),
        (4 + 4 + 3 * 8 + 8 + 32, None, "shares bytes with another chunk"),
    ],
)
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_damaged_entry_of_a_chunk_table_is_named(
    tmp_path: Path, at: int, value: int | None, words: str, compression: Any
) -> None:
    path = tmp_path / "entry.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        x = np.arange(40).reshape(20, 2)
        file.create_dataset("x", data=x, chunks=(2, 2), compression=compression)
    whole = path.read_bytes()
    first = whole.rfind(b"TREE\x01") + 24
    new = whole[first + 32 : first + 40] if value is None else value.to_bytes(8, "little")
    overwrite(path, first + at, new)
    with pytest.raises(FileFormatError, match=f"'x' in .*entry.h5.*{words}"):
        next(iter(labeled.open_dataset(path, dims=DIMS).batches(4)))


def read_here(path: Path) -> Any:
    """Read `x` in shuffled order, put back into that of the file; None where it is refused."""
    try:
        loader = labeled.open_dataset(path, dims=DIMS).batches(64, shuffle="full", seed=1)
        batches = [(batch.rows, batch["x"].copy()) for batch in loader]
    except LabeledError as error:
        return None if str(path) in str(error) else "an error that names no file"
    order = np.argsort(np.concatenate([rows for rows, _ in batches]))
    return np.concatenate([values for _, values in batches])[order]


@pytest.mark.slow
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_damaged_tree_gives_the_values_of_h5py_or_an_error(
    tmp_path: Path, compression: str | None
) -> None:
    """Every byte of the nodes of a chunk tree, changed one at a time.

    Where a node above others names the wrong ones, HDF5 lists all chunks but searches in vain,
    and fills their rows: they are read here as they were written.
    """
    path = tmp_path / "damaged.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        values = np.arange(1, 601).reshape(300, 2)
        file.create_dataset("x", data=values, chunks=(2, 2), compression=compression)
    whole = path.read_bytes()
    nodes = [at.start() for at in re.finditer(b"TREE\\x01", whole)]
    assert len(nodes) > 2, "a tree of two levels"
    refused = 0
    for node in nodes[:3]:
        for at in range(node + 4, node + 24 + 5 * 40):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
            found = read_here(path)
            refused += found is None
            if found is not None and not np.array_equal(found, values):
                with h5py.File(path, "r") as file:
                    np.testing.assert_array_equal(found, file["x"][()])
    assert refused > 100
