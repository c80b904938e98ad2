"""Rows of variable length without HDF5: against h5py, over files of every age and damage."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ragged_files import DTYPES, ragged_path, same

import labeled
from labeled.errors import FileFormatError
from labeled.formats.hdf5 import heap
from labeled.formats.hdf5 import ragged as reading
from labeled.ragged.flat import read_at


def write(
    path: Path, rows: Any, dtype: Any = "u1", *, labelled: bool = True, **options: Any
) -> str:
    with h5py.File(path, "w", **options) as f:
        dataset = f.create_dataset("x", (len(rows),), h5py.vlen_dtype(np.dtype(dtype)))
        for i, row in enumerate(rows):
            dataset[i] = row
        if labelled:
            dataset.dims[0].label = "batch"
    return str(path)


def refuse_h5py(patch: Any) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError("read through h5py")

    patch.setattr(reading.VlenReader, "_by_h5py", refuse)


def dealt(ragged: labeled.Ragged, rows: Any) -> list[np.ndarray[Any, Any]]:
    """Read rows, each once, in file order, as windows do."""
    rows = np.array(sorted(set(rows)), np.int64)
    sizes = ragged.reader.sizes(rows)
    stops = np.cumsum(sizes)
    out = np.zeros(int(sizes.sum()), ragged.dtype)
    read_at(ragged.reader, rows, out, stops - sizes, sizes)
    return [out[stop - size : stop] for stop, size in zip(stops, sizes, strict=True)]


SIZES = st.lists(st.integers(0, 60) | st.sampled_from([500, 4096, 9000, 70_000]), max_size=40)


def test_heaps_that_follow_one_another_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [np.full(100 + 7 * i % 900, i, "u2") for i in range(1500)]
    path = write(tmp_path / "x.h5", rows, "u2")
    n_alone, alone = 0, heap._read_collection

    def counted(*args: Any) -> None:
        nonlocal n_alone
        n_alone += 1
        alone(*args)

    monkeypatch.setattr(heap, "_read_collection", counted)
    ragged = labeled.open_dataset(path)["x"]
    same(ragged.to_objects(), rows)
    assert Path(path).read_bytes().count(b"GCOL\1") > 20
    assert n_alone == 0
    same(ragged[700:800].to_objects(), rows[700:800])
    assert n_alone == 1  # begins within one
    same(ragged[::-3].to_objects(), rows[::-3])
    assert n_alone > 20
    searched = n_alone
    same(dealt(ragged, range(0, 1500, 3)), rows[::3])
    assert n_alone == searched  # their places follow from the sizes of all


@pytest.mark.parametrize(("at", "change"), [(0, b"NOPE"), (8, b"\1\0\0"), (16, b"\7"), (24, b"\1")])
def test_one_bad_heap_among_others_is_told(tmp_path: Path, at: int, change: bytes) -> None:
    path = write(tmp_path / "bad.h5", [np.full(900, i % 9 + 50, "u1") for i in range(1000)])
    raw = bytearray(Path(path).read_bytes())
    places = [i for i in range(0, len(raw), 8) if raw.startswith(b"GCOL\1", i)]
    place = places[len(places) // 2] + at
    raw[place : place + len(change)] = change
    Path(path).write_bytes(raw)
    ragged = labeled.open_dataset(path)["x"]
    with pytest.raises(FileFormatError, match=r"source 'x' in '.*bad.h5', rows 0 to 999: "):
        ragged.flat()
    with pytest.raises(FileFormatError, match=r"source 'x' in '.*bad.h5', rows \d+ to \d+: "):
        dealt(ragged, [0, *range(2, 1000)])


@given(SIZES, st.sampled_from(DTYPES), st.data())
def test_heaps_hold_what_h5py_wrote(
    tmp_path_factory: Any, sizes: list[int], dtype: str, data: Any
) -> None:
    rows = [(np.arange(n) % 120 + 1).astype(np.dtype(dtype)) for n in sizes]
    path = write(tmp_path_factory.mktemp("h") / "x.h5", rows, dtype)
    order = data.draw(st.lists(st.sampled_from(range(len(rows))))) if rows else []
    with pytest.MonkeyPatch.context() as patch:
        refuse_h5py(patch)
        ragged = labeled.open_dataset(path)["x"]
        same(ragged.to_objects(), rows)
        same(ragged[order].to_objects(), [rows[i] for i in order])
        same(dealt(ragged, order), [rows[i] for i in sorted(set(order))])
        assert ragged.sizes.tolist() == sizes


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3000)), max_size=25))
def test_rows_that_were_written_again_and_again(
    tmp_path_factory: Any, changes: list[tuple[int, int]]
) -> None:
    rows = [np.full(20 * i, i, "u2") for i in range(10)]
    path = write(tmp_path_factory.mktemp("h") / "x.h5", rows, "u2")
    with h5py.File(path, "a") as f:
        for row, size in changes:
            rows[row] = np.full(size, size % 251, "u2")
            f["x"][row] = rows[row]
    with pytest.MonkeyPatch.context() as patch:
        refuse_h5py(patch)
        same(labeled.open_dataset(path)["x"].to_objects(), rows)
        same(labeled.open_dataset(path)["x"][::-2].to_objects(), rows[::-2])
        same(dealt(labeled.open_dataset(path)["x"], range(0, 10, 2)), rows[::2])


@pytest.mark.parametrize(
    "options", [{"libver": "v110"}, {"libver": "latest"}, {"userblock_size": 512}]
)
def test_files_of_every_age(tmp_path: Path, options: Any, recwarn: Any) -> None:
    rows = [np.arange(i % 7, dtype="f4") for i in range(300)]
    path = write(tmp_path / "x.h5", rows, "f4", **options)
    ragged = labeled.open_dataset(path)["x"]
    same(ragged.to_objects(), rows)
    assert ("h5py" in ragged.reader.why) == ("userblock_size" in options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_h5py_reads_where_storage_is_out_of_reach(
    tmp_path: Path, monkeypatch: Any, dtype: str
) -> None:
    rows = [(np.arange(i % 9) + 1).astype(np.dtype(dtype)) for i in range(200)]
    path = write(tmp_path / "x.h5", rows, dtype)
    order = np.random.default_rng(0).integers(0, 200, 150)
    for unreachable in ("_heap", "_references"):
        monkeypatch.setattr(reading.VlenReader, unreachable, None)
        ragged = labeled.open_dataset(path)["x"]
        same(ragged.to_objects(), rows)
        same(ragged[order].to_objects(), [rows[i] for i in order])
        assert ragged.shapes[:, 0].tolist() == [len(row) for row in rows]
    assert "unknown before reading" in ragged.reader.why


def test_chunked_and_compressed_references(tmp_path: Path, monkeypatch: Any) -> None:
    refuse_h5py(monkeypatch)
    rows = [np.arange(i % 5) for i in range(100)]
    options = {"chunks": (7,), "compression": "gzip", "shuffle": True}
    path = ragged_path(tmp_path / "x.h5", "vlen", rows, options=options)
    same(labeled.open_dataset(path)["x"].to_objects(), rows)
    with h5py.File(path, "a") as f:
        f.create_dataset("never", (5,), h5py.vlen_dtype("u1"), chunks=(2,))
        f["never"].dims[0].label = "batch"
        del f.attrs["split"]
    assert labeled.open_dataset(path)["never"].shapes.tolist() == [[0]] * 5


@pytest.mark.parametrize(
    ("at", "change", "words"),
    [
        (0, b"NOPE", "there is no heap at byte"),
        (4, b"\7", "there is no heap at byte"),
        (8, (2**40).to_bytes(8, "little"), "there is no heap at byte"),
        (16, b"\5", "no object under number 1"),
        (24, b"\1", "1 bytes under number 1, where 30 bytes were expected"),
        (24, (2**50).to_bytes(8, "little"), "no object under number 1"),
    ],
)
def test_a_damaged_heap_names_source_and_rows(
    tmp_path: Path, at: int, change: bytes, words: str
) -> None:
    path = write(tmp_path / "bad.h5", [np.arange(30)] * 4, labelled=False)
    raw = bytearray(Path(path).read_bytes())
    place = next(i for i in range(len(raw)) if raw.startswith(b"GCOL", i) and raw[i + 24] == 30)
    raw[place + at : place + at + len(change)] = change
    Path(path).write_bytes(raw)
    with pytest.raises(FileFormatError, match=rf"source 'x' in '.*bad.h5', rows 0 to 3: .*{words}"):
        labeled.open_dataset(path, dims={"x": ("batch", "time")})["x"].flat()


@given(st.integers(0, 3), st.binary(min_size=1, max_size=12), st.integers(0, 400))
def test_any_damage_to_a_heap_is_an_error_or_other_numbers(
    tmp_path_factory: Any, row: int, junk: bytes, at: int
) -> None:
    path = write(tmp_path_factory.mktemp("h") / "bad.h5", [np.arange(30)] * 4, labelled=False)
    raw = bytearray(Path(path).read_bytes())
    place = raw.rindex(b"GCOL")
    raw[place + at : place + at + len(junk)] = junk
    Path(path).write_bytes(raw)
    ragged = labeled.open_dataset(path, dims={"x": ("batch", "time")})["x"]
    with contextlib.suppress(FileFormatError):  # and nothing else, nor any other length
        assert len(ragged[[row]].to_objects()[0]) == 30
    with contextlib.suppress(FileFormatError):
        assert [len(one) for one in dealt(ragged, [0, 2, 3])] == [30] * 3


@given(st.lists(st.integers(1, 40), min_size=2, max_size=60), st.data())
def test_objects_are_found_among_values_that_look_like_their_headers(
    tmp_path_factory: Any, sizes: list[int], data: Any
) -> None:
    """Two values of eight bytes, a number and a size, are like the header of another row."""
    rows = [np.arange(size, dtype="<i8") + 1000 for size in sizes]
    numbers = st.sampled_from(range(len(rows)))
    some = data.draw(st.lists(numbers, min_size=1, max_size=5))
    for row, like in data.draw(st.lists(st.tuples(numbers, st.sampled_from(some)), max_size=9)):
        if sizes[row] > 1:
            rows[row][-2:] = 1 + like, 8 * sizes[like]
    path = write(tmp_path_factory.mktemp("h") / "x.h5", rows, "<i8")
    with pytest.MonkeyPatch.context() as patch:
        refuse_h5py(patch)
        same(labeled.open_dataset(path)["x"][some].to_objects(), [rows[i] for i in some])
        chosen = sorted(set(some))
        same(dealt(labeled.open_dataset(path)["x"], chosen), [rows[i] for i in chosen])


def test_objects_of_sixteen_bytes_are_read_together_too(tmp_path: Path) -> None:
    rows = [np.arange(40 + i % 7) * (1 + 2j) + i for i in range(300)]
    with h5py.File(tmp_path / "x.h5", "w") as f:
        made = f.create_dataset("x", len(rows), h5py.vlen_dtype("c16"))
        for i, row in enumerate(rows):
            made[i] = row
    ragged = labeled.open_dataset(tmp_path / "x.h5", dims={"x": ("batch", "time")})["x"]
    assert ragged.reader.why == "rows of variable length: heaps read outside HDF5's lock"
    same(ragged.to_objects(), rows)
    same(ragged[50:60].to_objects(), rows[50:60])


@pytest.mark.parametrize("more", [1, 60, 4000, 100_000])
@pytest.mark.parametrize("row", [0, 37, 499])
def test_a_row_that_claims_what_lies_behind_its_heap_is_told(
    tmp_path: Path, row: int, more: int
) -> None:
    path = write(tmp_path / "bad.h5", [np.full(900, i % 9 + 50, "u1") for i in range(500)])
    with h5py.File(path) as f:
        place = f["x"].id.get_offset() + 16 * row
    with open(path, "r+b") as f:
        f.seek(place)
        f.write(np.uint32(900 + more).tobytes())
    words = ", rows 0 to 499: " if more < 100_000 else ": its rows claim 550000 bytes"
    ragged = labeled.open_dataset(path)["x"]
    with pytest.raises(FileFormatError, match=f"source 'x' in '.*bad.h5'{words}"):
        ragged.flat()
    with pytest.raises(FileFormatError, match=r"source 'x' in '.*bad.h5', rows \d+ to \d+: "):
        dealt(ragged, [row, (row + 250) % 500])
    others = [i for i in range(500) if i != row]
    same(dealt(ragged, others), [np.full(900, i % 9 + 50, "u1") for i in others])


def test_objects_of_two_datasets_in_one_heap(tmp_path: Path) -> None:
    """Of one size: where one should lie is another of the same size, with another number."""
    one, two = ([np.full(40, i + k, "u2") for i in range(400)] for k in (0, 500))
    with h5py.File(tmp_path / "x.h5", "w") as f:
        made = [f.create_dataset(name, 400, h5py.vlen_dtype("u2")) for name in "xy"]
        for dataset in made:
            dataset.dims[0].label = "batch"
        for i in range(400):
            made[0][i] = one[i]
            made[1][i] = two[i]
    ds = labeled.open_dataset(tmp_path / "x.h5")
    for name, rows in (("x", one), ("y", two)):
        same(dealt(ds[name], range(0, 400, 7)), rows[::7])
