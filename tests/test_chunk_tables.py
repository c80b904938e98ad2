"""Tables of chunks read without HDF5 say what HDF5 says, or leave it to HDF5."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payload_files import header_of

from labeled.errors import FileFormatError
from labeled.formats.bytesource import stamp_of
from labeled.formats.hdf5 import chunktables, safety
from labeled.formats.hdf5.chunkindex import build_index
from labeled.formats.hdf5.chunktables import read_table
from labeled.formats.hdf5.jenkins import checksums
from labeled.formats.header import SourceHeader

OLD, NEW = "earliest", ("v110", "v114")
FAR = 140_000
"""Chunks along an axis, so that the last of an extensible array lie in pages."""

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


@pytest.fixture(autouse=True)
def _all_tables_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (chunktables, safety):
        monkeypatch.setattr(module, "MANY_CHUNKS", 0)


@dataclass(frozen=True)
class Table:
    """A dataset of which some chunks are stored."""

    grid: tuple[int, ...]
    chunks: tuple[int, ...]
    more: tuple[int | None, ...]
    """Chunks that the dataset may grow by along each axis; None without a limit."""
    stored: tuple[tuple[tuple[int, ...], int], ...]
    """Steps along the grid and mask of each stored chunk, in the order of writing."""
    new: bool
    filtered: bool

    def bytes_of(self, steps: tuple[int, ...]) -> bytes:
        """Return what is written of a chunk: with filters as many bytes as its number says."""
        number = int(np.ravel_multi_index(steps, self.grid))
        size = 1 + number % 300 if self.filtered else math.prod(self.chunks)
        return (str(number).encode() * size)[:size]

    @property
    def understood(self) -> bool:
        grows = self.more.count(None)
        single = not grows and math.prod(map(sum, zip(self.grid, self.more, strict=True))) == 1
        return not self.new or (grows < 2 and not single)


@st.composite
def tables(draw: st.DrawFn) -> Table:
    n_axes = draw(st.integers(1, 3))
    grid = [draw(st.integers(1, 5)) for _ in range(n_axes)]
    if draw(st.booleans()):
        grid[draw(st.integers(0, n_axes - 1))] = draw(st.sampled_from([1500, FAR]))
    filtered = draw(st.booleans())
    steps = st.tuples(*(st.sampled_from([0, n // 3, n - 2, n - 1]) for n in grid))
    steps = steps.map(lambda place: tuple(max(step, 0) for step in place))
    mask = st.sampled_from([0, 0, 1]) if filtered else st.just(0)
    stored = st.lists(st.tuples(steps, mask), max_size=12, unique_by=lambda one: one[0])
    return Table(
        tuple(grid),
        tuple(draw(st.integers(1, 3)) for _ in range(n_axes)),
        tuple(draw(st.sampled_from([0, 0, 2, None])) for _ in range(n_axes)),
        tuple(draw(stored)),
        draw(st.booleans()),
        filtered,
    )


def written(folder: Path, table: Table) -> Path:
    path = folder / f"{next(_NUMBERS)}.h5"
    shape = tuple(n * c for n, c in zip(table.grid, table.chunks, strict=True))
    room = zip(shape, table.more, table.chunks, strict=True)
    most = tuple(None if more is None else n + more * c for n, more, c in room)
    with h5py.File(path, "w", libver=NEW if table.new else OLD) as file:
        file["before"] = np.arange(7)
        x = file.create_dataset(
            "x", shape, "u1", chunks=table.chunks, maxshape=most,
            compression="gzip" if table.filtered else None,
        )  # fmt: skip
        for steps, mask in table.stored:
            place = tuple(step * c for step, c in zip(steps, table.chunks, strict=True))
            x.id.write_direct_chunk(place, table.bytes_of(steps), mask)
    return path


def told_by_hdf5(path: Path, table: Table) -> list[tuple[int, int, int, int]]:
    found: list[tuple[int, int, int, int]] = []

    def note(one: h5py.h5d.StoreInfo) -> None:
        steps = tuple(np.array(one.chunk_offset) // table.chunks)
        number = int(np.ravel_multi_index(steps, table.grid))
        found.append((number, one.byte_offset, one.size, one.filter_mask))

    with h5py.File(path, "r") as file:
        file["x"].id.chunk_iter(note)
    return sorted(found)


def told_here(
    path: Path, table: Table, header: SourceHeader | None = None
) -> list[tuple[int, int, int, int]] | None:
    header = header_of(path) if header is None else replace(header, file=stamp_of(path))
    with h5py.File(path, "r") as file:
        found = read_table(header, file["x"], table.grid)
    if found is None:
        return None
    return sorted(zip(*(column.tolist() for column in found), strict=True))


@given(tables())
def test_tables_say_what_hdf5_says(folder: Path, table: Table) -> None:
    path = written(folder, table)
    check(path, table)
    path.unlink()


def check(path: Path, table: Table) -> None:
    """Compare with HDF5, where it is right (see `layout`), and with what was written."""
    told = told_here(path, table)
    if not table.understood:
        assert told is None
        return
    assert told is not None
    if not (table.new and None in table.more[1:]):
        assert told == told_by_hdf5(path, table)
    expected = {int(np.ravel_multi_index(one[0], table.grid)): one for one in table.stored}
    assert [number for number, *_ in told] == sorted(expected)
    whole = path.read_bytes()
    for number, offset, size, mask in told:
        steps, expected_mask = expected[number]
        assert (whole[offset : offset + size], mask) == (table.bytes_of(steps), expected_mask)


FULL = {
    "tree": Table((5000,), (2,), (0,), (), new=False, filtered=False),
    "tree of two axes": Table((90, 70), (1, 2), (0, None), (), new=False, filtered=True),
    "fixed array": Table((5000,), (2,), (0,), (), new=True, filtered=False),
    "with room": Table((40, 50), (1, 2), (3, 2), (), new=True, filtered=True),
    "extensible array": Table((5000,), (2,), (None,), (), new=True, filtered=False),
    "along the second axis": Table((50, 90), (1, 2), (3, None), (), new=True, filtered=True),
}


def full(name: str) -> Table:
    """Store every chunk, the last ones first."""
    table = FULL[name]
    steps = list(itertools.product(*map(range, table.grid)))[::-1]
    stored = tuple((place, n % 2 * table.filtered) for n, place in enumerate(steps))
    return replace(table, stored=stored)


@pytest.mark.parametrize("name", FULL)
def test_full_tables_of_every_kind(folder: Path, name: str) -> None:
    table = full(name)
    path = written(folder, table)
    check(path, table)
    assert len(table.stored) == math.prod(table.grid)


def test_an_extensible_array_with_pages(folder: Path) -> None:
    stored = tuple(((n,), 0) for n in (*range(FAR - 3000, FAR, 7), 0, 40_000, 131_075, 131_076))
    table = Table((FAR,), (1,), (None,), stored, new=True, filtered=False)
    check(written(folder, table), table)


@pytest.mark.parametrize("name", [name for name in FULL if "tree" not in name])
def test_a_damaged_array_is_left_to_hdf5(folder: Path, name: str) -> None:
    table = full(name)
    path = written(folder, table)
    whole, header = path.read_bytes(), header_of(path)
    found = [one for one in (b"FAHD", b"FADB", b"EAHD", b"EAIB", b"EASB", b"EADB") if one in whole]
    assert len(found) in (2, 4)
    for signature in found:
        assert told_here(path, table, header) is not None
        damaged(path, whole.rfind(signature) + 16, whole)
        assert told_here(path, table, header) is None
        path.write_bytes(whole)


def damaged(path: Path, at: int, whole: bytes, value: bytes = b"") -> None:
    value = value or bytes([whole[at] ^ 4])
    path.write_bytes(whole[:at] + value + whole[at + len(value) :])


def test_a_damaged_tree_is_left_to_hdf5(folder: Path) -> None:
    table = full("tree")
    path = written(folder, table)
    whole, header = path.read_bytes(), header_of(path)
    told = told_here(path, table)
    at = whole.rfind(b"TREE")
    for place, value in ((0, b"t"), (4, b"\0"), (5, b"\3"), (6, b"\xff\xff"), (24 + 8, b"\1")):
        damaged(path, at + place, whole, value)
        assert told_here(path, table, header) is None
    path.write_bytes(whole)
    assert told_here(path, table) == told


def test_a_chunk_outside_the_file_is_an_error(folder: Path) -> None:
    path = written(folder, full("tree"))
    whole = path.read_bytes()
    at = whole.rfind(b"TREE") + 24 + 24  # the address of the node's first chunk
    path.write_bytes(whole[:at] + (1 << 40).to_bytes(8, "little") + whole[at + 8 :])
    with pytest.raises(FileFormatError, match=r"the chunk at position \(\d+,\) should lie at"):
        build_index(header_of(path))


def test_files_with_a_block_before_them_are_left_to_hdf5(folder: Path) -> None:
    path = folder / "userblock.h5"
    with h5py.File(path, "w", userblock_size=512) as file:
        file.create_dataset("x", data=np.arange(20, dtype="u1"), chunks=(2,))
    table = Table((10,), (2,), (0,), (), new=False, filtered=False)
    assert told_here(path, table) is None
    assert len(build_index(header_of(path)).offsets) == 10


def test_a_named_dtype_is_no_hindrance(folder: Path) -> None:
    path = folder / "named.h5"
    with h5py.File(path, "w") as file:
        file["dtype"] = np.dtype("u1")
        file.create_dataset("x", (20,), file["dtype"], chunks=(2,))[...] = 1
        for number in range(40):  # the header goes on elsewhere
            file["x"].attrs[f"a{number}"] = "something"
    stored = tuple(((n,), 0) for n in range(10))
    table = Table((10,), (2,), (0,), stored, new=False, filtered=False)
    assert told_here(path, table) == told_by_hdf5(path, table)


def test_small_tables_are_hdf5s_and_large_ones_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = full("tree")
    path = written(folder, table)
    monkeypatch.setattr(chunktables, "MANY_CHUNKS", 5000)
    assert told_here(path, table) is not None
    monkeypatch.setattr(chunktables, "MANY_CHUNKS", 5001)
    assert told_here(path, table) is None


def test_checksums_are_those_of_the_paper_and_of_hdf5(folder: Path) -> None:
    text = np.frombuffer(b"Four score and seven years ago", np.uint8)
    assert checksums(np.stack([text, text])).tolist() == [0x17770551] * 2
    path = folder / "superblock.h5"
    h5py.File(path, "w", libver="latest").close()
    head = np.frombuffer(path.read_bytes()[:48], np.uint8)
    assert checksums(head[None, :44])[0] == head[44:].view("<u4")[0]


def test_what_identifies_a_dataset_is_told_without_its_table(folder: Path) -> None:
    path, other = written(folder, full("tree")), folder / "other.h5"
    whole = path.read_bytes()
    damaged(path, whole.rfind(b"TREE"), whole)
    with h5py.File(path, "r+") as file:
        file["group/hard"] = file["x"]
        file["soft"] = h5py.SoftLink("/group/hard")
        file["small"] = np.arange(3)
        file.attrs["reference"] = file["x"].ref
    with h5py.File(other, "w") as file:
        file["x"] = h5py.ExternalLink(str(path), "/x")
    with h5py.File(path, "r") as file:
        with pytest.raises(RuntimeError, match="B-tree"):
            h5py.h5o.get_info(file["x"].id)
        known = safety.address(file["x"])
        assert known == safety.address(file["group/hard"])
        assert known == safety.address(file[file.attrs["reference"]])
        assert known != safety.address(file["small"]) != safety.address(file["group"])
        with pytest.raises(RuntimeError, match="B-tree"):  # a soft link does not tell where
            safety.address(file["soft"])
        assert safety.resolve(file, "soft").thing.name == "/group/hard"
    with h5py.File(other, "r") as file:
        assert safety.address(file["x"]) == known
