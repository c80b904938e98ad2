"""A file that changed, ends early or is damaged gives an error that says where."""

from __future__ import annotations

import errno
import mmap
import os
import re
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from payload_files import Layout, header_of, moved, write

from labeled.errors import FileChangedError, FileFormatError, MissingExtraError, ReadError
from labeled.formats import bytesource
from labeled.formats.bytesource import register_opener
from labeled.formats.hdf5 import filters
from labeled.formats.hdf5.reader import open_reader
from labeled.formats.header import SourceHeader
from labeled.formats.reader import read_rows

CONTIGUOUS = Layout("u1", (2000, 100))
CHUNKED = Layout("u1", (2000, 100), (50, 100))
GZIP = Layout("i4", (2000, 100), (50, 100), "gzip", shuffle=True)
CHECKED = Layout("i4", (2000, 100), (50, 100), "gzip", fletcher32=True)
H5PY = Layout("i4", (2000, 100), (50, 100), "bzip2")

every_kind = pytest.mark.parametrize(
    "layout", [CONTIGUOUS, CHUNKED, GZIP, H5PY], ids=["contiguous", "chunked", "gzip", "h5py"]
)


@every_kind
@pytest.mark.parametrize("how", ["runs", "rows"])
def test_a_file_truncated_after_opening_has_changed(
    tmp_path: Path, layout: Layout, how: str
) -> None:
    path = write(tmp_path, layout)
    reader = open_reader(header_of(path))
    read_rows(reader, range(10))
    os.truncate(path, path.stat().st_size // 2)

    with pytest.raises(FileChangedError, match=rf"{path.name}.*bytes then.*Open it again"):
        read_rows(reader, range(2000) if how == "runs" else np.array([1999, 3]))


@every_kind
def test_a_file_written_to_after_opening_has_changed(tmp_path: Path, layout: Layout) -> None:
    path = write(tmp_path, layout)
    reader = open_reader(header_of(path))
    read_rows(reader, range(10))
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))

    with pytest.raises(FileChangedError, match=rf"{path.name}.*modified at 20\d\d-"):
        read_rows(reader, np.array([7, 3]))


@every_kind
def test_a_file_that_is_gone_is_named(tmp_path: Path, layout: Layout) -> None:
    path = write(tmp_path, layout)
    header = header_of(path)
    path.unlink()
    with pytest.raises(FileFormatError, match=path.name):
        read_rows(open_reader(header), range(10))


class ShrinkingSource:
    """A file that ends early although its size says otherwise."""

    def __init__(self, path: str) -> None:
        self.data = Path(path.partition("://")[2]).read_bytes()
        self.size = len(self.data)
        self.end = self.size - 30_000

    def pread(self, offset: int, n: int) -> bytes:
        return self.data[offset : min(offset + n, self.end)]


def test_a_short_read_names_the_rows(tmp_path: Path) -> None:
    register_opener("shrinking", ShrinkingSource)
    path = write(tmp_path, CONTIGUOUS)
    reader = open_reader(moved(header_of(path), f"shrinking://{path}"))

    with pytest.raises(ReadError, match=r"'x' in .*, rows 1000 to 1999: the file ends early"):
        read_rows(reader, range(1000, 2000))
    assert len(read_rows(reader, range(100))) == 100


def test_a_local_short_read_names_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the file shrinks between the check and the read."""
    path = write(tmp_path, CONTIGUOUS)
    reader = open_reader(header_of(path), io="pread")
    read_rows(reader, range(10))
    monkeypatch.setattr(bytesource.LocalFile, "check", lambda self: None)
    os.truncate(path, 100_000)
    with pytest.raises(ReadError, match=r"rows 990 to 1999: the file ends early"):
        read_rows(reader, range(990, 2000))


def chunk_at(path: Path, header: SourceHeader, row: int) -> tuple[int, int]:
    with h5py.File(path, "r") as file:
        info = file[header.key].id.get_chunk_info_by_coord((row, 0))
        return info.byte_offset, info.size


def overwrite(path: Path, at: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("layout", [GZIP, CHECKED], ids=["deflate", "fletcher32"])
def test_a_damaged_chunk_names_its_rows(tmp_path: Path, layout: Layout) -> None:
    path = write(tmp_path, layout)
    at, size = chunk_at(path, header_of(path), 150)
    overwrite(path, at + size // 2, b"\xff\x00\xff\x00\xff\x00\xff\x00")
    reader = open_reader(header_of(path))

    what = "fletcher32 checksum" if layout.fletcher32 else "deflate data are damaged"
    with pytest.raises(ReadError, match=rf"'x' in .*, rows 150 to 199: the chunk .*{what}"):
        read_rows(reader, range(2000))
    with pytest.raises(ReadError, match="rows 150 to 199"):
        read_rows(reader, np.array([199, 0]))
    assert read_rows(reader, range(150)).shape == (150, 100)
    assert read_rows(reader, np.array([200, 149])).shape == (2, 100)


def test_a_chunk_beyond_the_file_is_found_before_reading(tmp_path: Path) -> None:
    for layout in (CHUNKED, GZIP):
        path = write(tmp_path, layout)
        at, _ = chunk_at(path, header_of(path), 150)
        data = path.read_bytes()
        entry = data.index(struct.pack("<Q", at))
        assert data.count(struct.pack("<Q", at)) == 1
        overwrite(path, entry, struct.pack("<Q", 1 << 40))

        with pytest.raises(FileFormatError, match=r"chunk at position \(150, 0\) should lie"):
            read_rows(open_reader(header_of(path)), range(10))


def test_contiguous_data_beyond_the_file_is_found_before_reading(tmp_path: Path) -> None:
    path = write(tmp_path, CONTIGUOUS)
    header = replace(header_of(path), offset=10_000)
    with pytest.raises(FileFormatError, match=r"rows 0 to 1999: its data should lie at"):
        read_rows(open_reader(header), range(10))


def test_more_stored_bytes_than_a_chunk_can_need_are_not_fetched(tmp_path: Path) -> None:
    path = tmp_path / "fat.h5"
    with h5py.File(path, "w") as file:
        x = file.create_dataset("x", (4, 10), "u1", chunks=(1, 10), compression="gzip")
        x.id.write_direct_chunk((2, 0), bytes(100_000))
    reader = open_reader(header_of(path))
    assert read_rows(reader, range(2)).tolist() == [[0] * 10] * 2
    with pytest.raises(ReadError, match=r"rows 2 to 2: the chunk .* more bytes stored"):
        read_rows(reader, range(4))


@pytest.mark.parametrize("kind", [H5PY, Layout("i4", (200, 100), (50, 100), "lzf")])
def test_damage_on_the_way_through_h5py_names_the_rows(
    tmp_path: Path, kind: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labeled.formats.hdf5.reader.why_not", lambda filters: "for this test")
    path = write(tmp_path, kind)
    at, size = chunk_at(path, header_of(path), 0)
    overwrite(path, at, b"\xff" * size)
    with pytest.raises(ReadError, match=r"source 'x' in .*, rows 0 to"):
        read_rows(open_reader(header_of(path)), range(20))


def test_a_filter_that_nothing_undoes_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, H5PY)
    reader = open_reader(header_of(path))
    monkeypatch.setattr(filters.h5py.h5z, "filter_avail", lambda code: False)
    with pytest.raises(MissingExtraError, match=r"'x' in .*\(307\).*extra 'codecs'"):
        read_rows(reader, range(3))


def test_more_files_than_descriptors_are_read_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytesource, "MAX_OPEN_FILES", 3)
    bytesource.close_files()
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else None
    readers = [
        open_reader(header_of(write(tmp_path, replace(CONTIGUOUS, seed=i)))) for i in range(9)
    ]
    rows = [read_rows(reader, range(5)) for reader in readers]
    for reader, first in zip(readers, rows, strict=True):
        np.testing.assert_array_equal(read_rows(reader, range(5)), first)
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 3


FEW_DESCRIPTORS = """
import os, resource, sys
import numpy as np, labeled
paths = sys.argv[1:]
dataset = labeled.open_dataset(paths).select("x")
loader = dataset.batches(700, shuffle="full", seed=0, memory="8 MiB")
allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(paths), most))
for batch in loader:  # opened in turn, and much is left for others
    assert len(os.listdir("/proc/self/fd")) < len(paths)
labeled.formats.bytesource.close_files()
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
    paths = [str(write(tmp_path, replace(CONTIGUOUS, seed=i))) for i in range(60)]
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FEW_DESCRIPTORS, *paths],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert re.search("cannot open .*as many files open as it may.*ulimit -n", ran.stdout)


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
    header = header_of(path)
    expected = read_rows(open_reader(header), rows)
    bytesource.close_files()
    monkeypatch.setattr(mmap, "mmap", refused)
    for io in ("auto", "mmap"):
        np.testing.assert_array_equal(read_rows(open_reader(header, io=io), rows), expected)
