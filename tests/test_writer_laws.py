"""What was written is found again, and a write that was cut short changes nothing: every way."""

from __future__ import annotations

import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401 - registers zstd and lz4 with HDF5
import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import labeled

Array = npt.NDArray[Any]

TEXTS = ("", "a", "bé", "日本 x", "longer than all the others")

law = settings(
    max_examples=max(10, settings().max_examples // 4),
    deadline=None,
    suppress_health_check=[HealthCheck.differing_executors],
)


class WriterLaws:
    """What is opened is what was written, and a file is whole or untouched.

    `splits` says whether files hold splits.
    """

    dtypes: Sequence[str] = ("u1", "<i2", ">i4", "<i8", "<f2", ">f4", "<f8", "<c8", "?", "S3", "U")
    splits: bool = True

    def write(
        self, path: Path, sources: Mapping[str, Any], splits: Mapping[str, Any] | None = None
    ) -> None:
        """Write a file, in the place of one that is there already."""
        raise NotImplementedError

    def change(self, path: Path, sources: Mapping[str, Any]) -> None:
        """Change a file that :meth:`write` has made; by default it is written anew."""
        self.write(path, sources)

    def check(self, path: Path, sources: Mapping[str, Any]) -> labeled.Dataset:
        """Compare a file with what was written, and return it opened."""
        dataset = labeled.open_dataset(path)
        assert set(dataset.sources) == set(sources)
        for name, values in sources.items():
            if isinstance(values, list):
                found = dataset[name].to_objects()
                assert [one.shape for one in found] == [one.shape for one in values]
                same(np.concatenate([np.empty(0, values[0].dtype), *map(np.ravel, found)]),
                     np.concatenate([one.reshape(-1) for one in values]))  # fmt: skip
            else:
                same(dataset[name].values, values)
        return dataset

    # found again

    @law
    @given(data=st.data(), n_rows=st.integers(0, 40))
    def test_written_then_opened_is_equal(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, n_rows: int
    ) -> None:
        path = tmp_path_factory.mktemp("written") / "x.hdf5"
        names = data.draw(st.sampled_from([("x",), ("b", "a"), ("é", "c/d")]))
        sources = {name: data.draw(arrays(self.dtypes, n_rows)) for name in names}
        self.write(path, sources)
        self.check(path, sources)

    def test_rows_of_many_blocks_and_chunks_are_joined(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        sources: dict[str, Any] = {
            "x": rng.integers(0, 9, (2000, 30, 100), np.uint8),
            "t": rng.choice(np.array(TEXTS, object), 2000),
        }
        sources["r"] = [np.full((n % 9, 10), n, "i4") for n in range(2000)]
        self.write(tmp_path / "x.hdf5", sources)
        self.check(tmp_path / "x.hdf5", sources)

    @law
    @given(data=st.data(), n_rows=st.integers(1, 20), n_axes=st.integers(1, 3))
    def test_examples_of_different_shapes_keep_them(
        self,
        tmp_path_factory: pytest.TempPathFactory,
        data: st.DataObject,
        n_rows: int,
        n_axes: int,
    ) -> None:
        path = tmp_path_factory.mktemp("ragged") / "x.hdf5"
        dtype = data.draw(st.sampled_from(["u1", "<i4", "<f4", "<f8"]))
        lengths = st.lists(st.integers(0, 5), min_size=n_axes, max_size=n_axes)
        shapes = data.draw(st.lists(lengths, min_size=n_rows, max_size=n_rows))
        shapes += [[1] * n_axes, [2] * n_axes]  # not all are alike
        sources = {
            "r": [np.arange(np.prod(shape)).astype(dtype).reshape(shape) for shape in shapes],
            "y": np.arange(len(shapes)),
        }
        self.write(path, sources)
        self.check(path, sources)

    @law
    @given(data=st.data(), n_rows=st.integers(1, 40))
    def test_splits_are_the_rows_that_were_named(
        self, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, n_rows: int
    ) -> None:
        if not self.splits:
            pytest.skip("it writes no splits")
        path = tmp_path_factory.mktemp("splits") / "x.hdf5"
        cut = data.draw(st.integers(0, n_rows))
        rest = data.draw(st.permutations(range(cut, n_rows)))
        splits: dict[str, Any] = {"train": slice(0, cut), "tést": rest}
        sources = {name: data.draw(arrays(self.dtypes, n_rows)) for name in ("x", "y")}
        self.write(path, sources, splits)
        dataset = self.check(path, sources)
        assert set(dataset.splits) == set(splits)
        for split, rows in splits.items():
            for name, values in sources.items():
                part = values[rows] if len(np.arange(n_rows)[rows]) else values[:0]
                same(dataset.split(split)[name].values, part)

    # whole or untouched

    def test_what_was_there_is_replaced(self, tmp_path: Path) -> None:
        for first in (0, 5):
            sources = {"x": np.arange(first, 90)}
            self.write(tmp_path / "x.hdf5", sources)
            self.check(tmp_path / "x.hdf5", sources)
        assert os.listdir(tmp_path) == ["x.hdf5"]

    @pytest.mark.parametrize("error", [OSError, MemoryError, KeyboardInterrupt])
    def test_a_write_that_fails_leaves_the_old_file(
        self, tmp_path: Path, error: type[BaseException]
    ) -> None:
        path = tmp_path / "x.hdf5"
        sources = {"x": np.arange(200).reshape(100, 2)}
        self.write(path, sources)
        before = path.read_bytes()
        with pytest.raises(BaseException, match="cut short"):
            self.change(path, {"x": Breaking(sources["x"], error)})
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["x.hdf5"]

    def test_a_writer_that_is_killed_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / "x.hdf5"
        sources = {"x": np.arange(200).reshape(100, 2)}
        self.write(path, sources)
        before = path.read_bytes()
        broken = {"x": Breaking(sources["x"], None)}
        process = multiprocessing.get_context("spawn").Process(
            target=self.change, args=(path, broken)
        )
        process.start()
        process.join()
        assert process.exitcode == KILLED
        assert path.read_bytes() == before
        self.check(path, sources)
        self.write(path, sources)
        self.check(path, sources)


KILLED = 77


class Breaking:
    """An array whose last rows cannot be read: an error is raised, or the process ends."""

    def __init__(self, values: Array, error: type[BaseException] | None) -> None:
        self.values, self.error = values, error
        self.dtype, self.shape = values.dtype, values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: slice) -> Array:
        if len(range(*rows.indices(len(self)))) == 0 or rows.indices(len(self))[1] < len(self):
            return self.values[rows]
        if self.error is None:
            os._exit(KILLED)
        raise self.error("cut short")


@st.composite
def arrays(draw: Callable[..., Any], dtypes: Sequence[str], n_rows: int) -> Array:
    """Draw an array of one of some dtypes, of up to four axes."""
    dtype = draw(st.sampled_from(dtypes))
    shape = (n_rows, *draw(st.lists(st.integers(0, 5), max_size=3)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if dtype == "U":
        return rng.choice(np.array(TEXTS, object), shape)
    if dtype[0] == "S":
        return rng.choice([b"a", b"bcd", b""], shape).astype(dtype)
    return (rng.standard_normal(shape) * 50).astype(dtype)


def same(found: Array, expected: Array) -> None:
    """Compare values and dtypes but for the byte order."""
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype.newbyteorder("=")


class PlainTests(WriterLaws):
    """These files are read by plain h5py and by h5netcdf, too, and carry checksums."""

    def check(self, path: Path, sources: Mapping[str, Any]) -> Any:
        dense = {name: array for name, array in sources.items() if not isinstance(array, list)}
        with h5py.File(path) as file:
            for name, array in dense.items():
                found = file[name].asstr()[...] if array.dtype == object else file[name][...]
                np.testing.assert_array_equal(found, array)
        if not any("/" in name for name in sources):
            with xr.open_dataset(path, engine="h5netcdf") as netcdf:
                for name, array in dense.items():
                    np.testing.assert_array_equal(netcdf[name].values, array)
        assert labeled.verify(path).sound
        return super().check(path, sources)


class TestWrite(PlainTests):
    options: Mapping[str, Any] = {}

    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        labeled.write(path, sources, splits, overwrite=True, **self.options)


class TestWriteInChunks(TestWrite):
    options: Mapping[str, Any] = {"compression": "gzip", "chunks": 7}


class TestWriteZstd(TestWrite):
    options: Mapping[str, Any] = {"compression": "zstd"}


class TestWriteLz4(TestWrite):
    options: Mapping[str, Any] = {"compression": "lz4", "chunks": 17}


class TestWriteForFuel(TestWrite):
    """Rows of variable length, which h5netcdf does not know."""

    options: Mapping[str, Any] = {"ragged": "fuel", "netcdf": False, "layout": "chunked"}

    def check(self, path: Path, sources: Mapping[str, Any]) -> Any:
        return WriterLaws.check(self, path, sources)


class TestBatches(PlainTests):
    """Rows that come batch by batch."""

    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        n_rows = len(next(iter(sources.values())))
        if splits is not None:
            splits = {name: np.arange(n_rows)[rows] for name, rows in splits.items()}
        labeled.write(path, batches(sources, n_rows), splits, overwrite=True)


def batches(sources: Mapping[str, Any], n_rows: int) -> Iterator[dict[str, Any]]:
    given = {
        name: labeled.Ragged.of(values) if isinstance(values, list) else values
        for name, values in sources.items()
    }
    start = 0
    for size in itertools.cycle([7, 1, 0, 700]):
        rows = slice(start, min(start + size, n_rows))
        yield {name: values[rows] for name, values in given.items()}
        start = rows.stop
        if start == n_rows:
            return


class TestAppend(PlainTests):
    """Half of the rows are there, the others are added."""

    options: Mapping[str, Any] = {"layout": "chunked"}
    splits = False

    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        n_rows = len(next(iter(sources.values())))
        some, others = (
            {name: values[rows] for name, values in sources.items()}
            for rows in (slice(n_rows // 2), slice(n_rows // 2, n_rows))
        )
        labeled.write(path, ragged(some), overwrite=True, **self.options)
        labeled.append(path, ragged(others))

    def change(self, path: Path, sources: Any) -> None:
        labeled.append(path, sources)


def ragged(sources: Mapping[str, Any]) -> dict[str, Any]:
    """Take lists for examples of different shapes, whether a few of them are alike or not."""
    out = dict(sources)
    for name, values in sources.items():
        if isinstance(values, list):
            out[name] = np.empty(len(values), object)
            for row, one in enumerate(values):
                out[name][row] = one
    return out


class TestAppendToContiguous(TestAppend):
    options: Mapping[str, Any] = {}


class TestRepack(PlainTests):
    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        labeled.write(path.with_suffix(".first"), sources, splits)
        try:
            labeled.repack(path.with_suffix(".first"), path, compression="gzip", overwrite=True)
        finally:
            path.with_suffix(".first").unlink()


class TestConvert(PlainTests):
    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        labeled.convert(sources, path, split=splits, overwrite=True)


class TestConvertAFile(PlainTests):
    def write(self, path: Path, sources: Any, splits: Any = None) -> None:
        labeled.write(path.with_suffix(".first"), sources, splits)
        try:
            labeled.convert(path.with_suffix(".first"), path, chunks=5, overwrite=True)
        finally:
            path.with_suffix(".first").unlink()
