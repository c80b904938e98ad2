"""Tables of chunks say what was written; damaged ones are refused, or read as h5py reads them."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payload_files import header_of

import labeled
from labeled.errors import FileFormatError, LabeledError
from labeled.formats.hdf5 import safety
from labeled.formats.hdf5.chunkindex import build_index
from labeled.formats.reader import UNSTORED

OLD, NEW = "earliest", ("v110", "v114")
FAR = 140_000
"""Chunks along an axis, so that the last of an extensible array lie in pages."""

DIMS = {"x": ("batch", "n")}

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


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


def listed_by_hdf5(path: Path, table: Table) -> list[tuple[int, int, int, int]]:
    found: list[tuple[int, int, int, int]] = []

    def note(one: h5py.h5d.StoreInfo) -> None:
        steps = tuple(np.array(one.chunk_offset) // table.chunks)
        number = int(np.ravel_multi_index(steps, table.grid))
        found.append((number, one.byte_offset, one.size, one.filter_mask))

    with h5py.File(path, "r") as file:
        file["x"].id.chunk_iter(note)
    return sorted(found)


@given(tables())
def test_tables_say_what_was_written(folder: Path, table: Table) -> None:
    path = written(folder, table)
    check(path, table)
    path.unlink()


def check(path: Path, table: Table) -> None:
    """Compare what an index finds with what was written, where HDF5 is right (see `layout`)."""
    if table.new and None in table.more[1:]:
        return
    numbers = np.arange(math.prod(table.grid))
    offsets, sizes, masks = build_index(header_of(path)).find(numbers)
    columns = (numbers, offsets, sizes, masks)
    told = sorted(zip(*(c[offsets != UNSTORED].tolist() for c in columns), strict=True))
    assert told == listed_by_hdf5(path, table)
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


def damaged(path: Path, at: int, whole: bytes, value: bytes = b"") -> None:
    value = value or bytes([whole[at] ^ 4])
    path.write_bytes(whole[:at] + value + whole[at + len(value) :])


def test_a_chunk_outside_the_file_is_an_error(folder: Path) -> None:
    path = written(folder, full("tree"))
    whole = path.read_bytes()
    at = whole.rfind(b"TREE") + 24 + 24  # the address of the node's first chunk
    path.write_bytes(whole[:at] + (1 << 40).to_bytes(8, "little") + whole[at + 8 :])
    with pytest.raises(FileFormatError, match=r"the chunk at position \(\d+,\) should lie at"):
        build_index(header_of(path))


def by_h5py(path: Path) -> Any:
    """Read `x` as h5py does; None where it cannot."""
    try:
        with h5py.File(path, "r") as file:
            return file["x"][()]
    except (OSError, RuntimeError, KeyError):
        return None


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
    folder: Path, compression: str | None
) -> None:
    """Every byte of the nodes of a chunk tree, changed one at a time.

    Where a node above others names the wrong ones, HDF5 lists all chunks but searches in vain,
    and fills their rows: they are read here as they were written.
    """
    path = folder / f"damaged-{compression}.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        values = np.arange(1, 601).reshape(300, 2)
        file.create_dataset("x", data=values, chunks=(2, 2), compression=compression)
    whole = path.read_bytes()
    nodes = [at.start() for at in re.finditer(b"TREE\\x01", whole)]
    assert len(nodes) > 2, "a tree of two levels"
    refused = 0
    for node in nodes[:3]:
        for at in range(node + 4, node + 24 + 5 * 40):
            damaged(path, at, whole)
            found, expected = read_here(path), by_h5py(path)
            refused += found is None
            if found is not None and not np.array_equal(found, values):
                np.testing.assert_array_equal(found, expected)
    assert refused > 100


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (8, 2, r"off the grid|should lie|is there twice|is not found"),
        (32, 1 << 40, r"the chunk at position \(\d+, 0\) should lie at"),
    ],
)
def test_a_damaged_entry_is_named(folder: Path, at: int, value: int, words: str) -> None:
    path = folder / "entry.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("x", data=np.arange(40).reshape(20, 2), chunks=(2, 2))
    whole = path.read_bytes()
    first = whole.rfind(b"TREE\x01") + 24
    damaged(path, first + at, whole, value.to_bytes(8, "little"))
    with pytest.raises(FileFormatError, match=f"'x' in .*entry.h5.*{words}"):
        next(iter(labeled.open_dataset(path, dims=DIMS).batches(4)))


def test_two_chunks_in_one_place_are_refused(folder: Path) -> None:
    path = folder / "shared.h5"
    with h5py.File(path, "w", libver="earliest") as file:
        file.create_dataset("x", data=np.arange(40).reshape(20, 2), chunks=(2, 2))
    whole = path.read_bytes()
    first = whole.rfind(b"TREE\x01") + 24
    entry = 4 + 4 + 3 * 8 + 8  # size, mask, where it begins along three axes, address
    damaged(path, first + entry + 32, whole, whole[first + 32 : first + 40])
    with pytest.raises(FileFormatError, match="shares bytes with another chunk"):
        next(iter(labeled.open_dataset(path, dims=DIMS).batches(4)))


def test_what_identifies_a_dataset_is_reported_without_its_table(folder: Path) -> None:
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
